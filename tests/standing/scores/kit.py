"""A bank and a shop, a public model of who defaults, and a standing question about it: on loopback over TLS."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from colonnade import Federation, LogisticRegression, Party
from colonnade.cli import initialise
from colonnade.standing.scores.allowance import Allowance
from colonnade.standing.scores.meeting import keep_seat, own_hub, way_in
from colonnade.standing.scores.questions import Questions
from colonnade.standing.scores.session import Answering, Asking, Stay, counts_file
from colonnade.standing.scores.settings import Standing
from colonnade.study import PartyConfig, Study
from colonnade.tables import population
from tests.support.studies import runnable_text, scatter
from tests.support.waiting import until

ROWS = 400
DOCS = Path(__file__).parents[3] / "docs"
COLUMNS = {"bank": ["income", "arrears"], "shop": ["basket", "discounts"]}
EXACT = ("exact = true\n", "")
NOISY = ("", "[budget]\nepsilon = { bank = 2.0 }\n")


@dataclass
class Place:
    """One folder with everyone's keys, tables and policies."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Place:
        people = population(ROWS)
        people.write(folder / "tables")
        (folder / "schemas").mkdir()
        place = cls(folder)
        for number, name in enumerate(COLUMNS):
            scatter(folder / "tables" / f"{name}.csv", number)
            people.schemas[name].save(folder / "schemas" / f"{name}.toml")
            initialise.party(name, folder / name, f"../tables/{name}.csv", "person_id", "auto-within-budget")
            place.allow(name)
        with_label = {name: people.schemas[name].select([*columns]) for name, columns in COLUMNS.items()}
        with_label["bank"] = people.schemas["bank"].select([*COLUMNS["bank"], "default"])
        known = Federation(
            [Party(name, people.arrow[name], schema=with_label[name], id="person_id") for name in COLUMNS]
        )
        LogisticRegression(epsilon=4.0, label="bank.default", rows=ROWS).fit(known).save(folder / "model.json")
        place.study("keys")
        return place

    def allow(self, name: str, epsilon: float = 1000.0, exact: str = 'exact = ["bank"]') -> PartyConfig:
        """Change what a party agrees to: a cap against other parties, or exact answers."""
        path = self.folder / name / "party.toml"
        caps = "epsilon = { analyst = 1000.0, coordinator = 1000.0" + ("" if exact else f", party = {epsilon}") + " }"
        text = re.sub(r"^tasks = .*$", 'tasks = ["prediction"]', path.read_text(), flags=re.M)
        text = re.sub(r"^epsilon = .*$", caps, text, count=1, flags=re.M)
        text = re.sub(r"^(# )?exact = .*$", exact or "# exact = []", text, count=1, flags=re.M)
        path.write_text(text)
        return PartyConfig.load(path)

    def config(self, name: str) -> PartyConfig:
        return PartyConfig.load(self.folder / name / "party.toml")

    def study(self, name: str, price: tuple[str, str] = EXACT, *, align: bool = True) -> Study:
        path, pins = self.folder / f"{name}.toml", None
        task = f'kind = "prediction"\nmodel = "model.json"\nto = "bank"\n{price[0]}'
        if (self.folder / "keys.toml").exists():
            pins = Study.load(self.folder / "keys.toml").content.pins
        limits = '[align]\non = "person_id"\n' if align else ""
        path.write_text(runnable_text(name, task, price[1], COLUMNS, limits, pins))
        if pins is None:
            initialise.trial(path)
        return Study.load(path)

    def key(self, name: str) -> Path:
        return self.config(name).key if name != "coordinator" else self.folder / "coordinator/coordinator.key"


@contextmanager
def standing_up(place: Place, standing: Standing, clock: Callable | None = None) -> Iterator[Questions]:
    """Everybody's part in threads of this process, over TLS on loopback; where the bank asks."""
    questions = Questions()
    shop = place.config("shop")
    allowance = Allowance(
        standing, shop, counts_file(shop.path.parent / "agent"), **({"clock": clock} if clock else {})
    )
    parts = {
        "bank": Asking(standing, place.config("bank"), questions),
        "shop": Answering(standing, shop, allowance.opened),
    }
    with ExitStack() as stack:
        stack.callback(allowance.close)
        hub = stack.enter_context(own_hub(standing, place.key("coordinator"), listen="127.0.0.1:0"))
        stack.callback(keep_seat(standing, place.key("coordinator"), hub).stop)
        for name, part in parts.items():
            stay = Stay(way_in(standing, name, place.key(name), hub=hub.own_address), standing, part)
            stack.callback(stay.start().stop)
        until_ready(questions)
        yield questions


def until_ready(questions: Questions) -> None:
    until(lambda: questions.ready, "the session to begin")
