"""A standing question over TLS: its answers are those of a study, its price is in the ledger before; and over HTTP.

A bank and a shop, a public model of who defaults, and a standing question about it, all on loopback.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import httpx
import numpy as np
import pytest

from colonnade import Federation, LogisticRegression, Party
from colonnade.cli import initialise
from colonnade.console.app import make_app as make_console
from colonnade.console.party_pages import PARTY_PAGES, PartyView
from colonnade.errors import PeerLost, PolicyError, StorageError, StudyError
from colonnade.federation.agent_store import AgentStore
from colonnade.federation.members import FederationMembers
from colonnade.federation.scores import session, web_api
from colonnade.federation.scores.service import AnswerQuota, ScoresService, day_events
from colonnade.federation.scores.session import (
    PersistentSession,
    QuestionQueue,
    RefusedPerson,
    StandingStudy,
    keep_coordinator,
    make_joiner,
    make_own_hub,
    make_owner,
)
from colonnade.federation.scores.web_api import make_scores_app, serve_scores
from colonnade.privacy import (
    Ledger,
    NonPrivate,
    Observer,
    PostProcessing,
    RepeatedRelease,
    SkellamRelease,
    Trust,
    epsilon,
    views,
)
from colonnade.protocols.on_demand import GateDecision, OpenedAnswer
from colonnade.study import PartyConfig, Study
from colonnade.tables import population
from colonnade.wire import Certificate
from tests.console.kit import access, signed_in
from tests.support import standing as processes
from tests.support.errors import raises
from tests.support.ports import free_port
from tests.support.studies import play, runnable_text, scatter
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
def standing_up(place: Place, standing: StandingStudy, clock: Callable | None = None) -> Iterator[QuestionQueue]:
    """Everybody's part in threads of this process, over TLS on loopback; where the bank asks."""
    questions = QuestionQueue()
    shop = place.config("shop")
    allowance = AnswerQuota(standing, shop, shop.path.parent / "agent", **({"clock": clock} if clock else {}))
    parts = {
        "bank": make_owner(standing, place.config("bank"), questions),
        "shop": make_owner(standing, shop, allowance.open_session),
    }
    with ExitStack() as stack:
        stack.callback(allowance.close)
        hub = stack.enter_context(make_own_hub(standing, place.key("coordinator"), listen="127.0.0.1:0"))
        stack.callback(keep_coordinator(standing, place.key("coordinator"), hub).stop)
        for name, part in parts.items():
            stay = PersistentSession(make_joiner(standing, name, place.key(name), hub=hub.own_address), part)
            stack.callback(stay.start().stop)
        until_ready(questions)
        yield questions


def until_ready(questions: QuestionQueue) -> None:
    until(lambda: questions.ready, "the session to begin")


NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place.make(tmp_path_factory.mktemp("scores") / "s")


@pytest.fixture(autouse=True)
def _fresh(place):
    place.allow("shop")
    for name in COLUMNS:
        for path in [*(place.folder / name).glob("ledger.sqlite*"), *(place.folder / name / "agent").glob("*")]:
            path.unlink()


def test_a_day_is_reserved_before_the_first_answer_and_kept_over_a_restart(place):
    place.allow("shop", exact="")
    standing = StandingStudy.of(place.study("noisy", NOISY), per_person=2, per_day=4)
    moment = [NOON]
    ledger = place.config("shop").ledger
    with standing_up(place, standing, lambda: moment[0]) as questions:
        assert not ledger.exists() or not Ledger(ledger).entries()
        first = questions._places and [*questions._places][:3]
        assert all("deviations" in row for row in questions.ask(first[:1]).result(60))
        (entry,) = Ledger(ledger).entries()
        assert entry.state == "sent"
        assert entry.events == (RepeatedRelease(standing.task.event, 2),)
    with standing_up(place, standing, lambda: moment[0]) as questions:
        assert questions.ask(first[:1]).result(60)[0]["id"] == first[0]
        again = questions.ask(first[:2]).result(60)
        assert again[0] == RefusedPerson(int(datetime(2031, 5, 7, tzinfo=UTC).timestamp()))
        assert again[1]["id"] == first[1]
        over = questions.ask(first[1:]).result(60)  # the fourth of four, and a fifth
        assert [type(one) is RefusedPerson for one in over] == [False, True]
        assert len(Ledger(ledger).entries()) == 1
        one_day = Ledger(ledger).epsilon_spent(Observer.party("bank"), 1e-5)
        moment[0] = datetime(2031, 5, 7, 0, 0, 1, tzinfo=UTC)
        assert questions.ask(first[:1]).result(60)[0]["id"] == first[0]
        states = [entry.state for entry in Ledger(ledger).entries()]
        assert states == ["committed", "sent"]
        assert one_day < Ledger(ledger).epsilon_spent(Observer.party("bank"), 1e-5) <= 2 * one_day


def test_requests_that_come_together_are_one_question(place):
    standing, before = StandingStudy.of(place.study("standing"), per_person=100), threading.active_count()
    with standing_up(place, standing, lambda: NOON) as questions:
        ids = [*questions._places][:20]
        asked, inner = [], questions._take_requests
        questions._take_requests = lambda: asked.append(inner()) or asked[-1]
        futures = []
        with questions._changed:  # nothing is taken before all have come
            futures = [questions.ask([one, ids[0]]) for one in ids]
        found = [future.result(60) for future in futures]
    assert [len(one) for one in asked] == [20]
    assert [[row["id"] for row in one] for one in found] == [[one, ids[0]] for one in ids]
    assert threading.active_count() < before + 20


@pytest.mark.system
def test_a_count_is_on_disk_before_the_process_is_killed(place, tmp_path):
    """An owner is killed right after it decided about a question: the next process still counts it."""
    study = place.study("who defaults")
    script = f"""
import os, signal
import numpy as np
from pathlib import Path
from colonnade.federation.scores.service import AnswerQuota
from colonnade.federation.scores.session import StandingStudy
from colonnade.study import PartyConfig, Study
config = PartyConfig.load({str(place.config("shop").path)!r})
allowance = AnswerQuota(StandingStudy.of(Study.load({str(study.path)!r}), 2), config, Path({str(tmp_path)!r}))
gate = allowance.open_session(("anna", "berta"))
print([gate(np.array([0])).refused.tolist() for _ in range(2)], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    words = [sys.executable, "-c", script]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert ended.stdout.strip() == "[[False], [False]]"
    allowance = AnswerQuota(StandingStudy.of(study, 2), place.config("shop"), tmp_path)
    gate = allowance.open_session(("anna", "berta"))
    assert [gate(np.array([who])).refused.tolist() for who in (0, 1)] == [[True], [False]]
    allowance.close()
    (entry,) = Ledger(place.config("shop").ledger).entries()  # one day, reserved once
    assert entry.state == "sent"


@pytest.mark.slow
def test_a_federation_of_processes_answers_and_comes_back_after_a_kill(place, tmp_path):
    place = Place(Path(shutil.copytree(place.folder, tmp_path / "s")))
    study, console = place.study("who defaults"), free_port()
    roles = {"coordinator": "hub", "bank": "party", "shop": "party"}
    certificates = {name: Certificate.load(place.key(name).with_suffix(".crt")) for name in roles}
    path = place.folder / "coordinator" / "FEDERATION.toml"
    FederationMembers("two", f"127.0.0.1:{free_port()}", certificates, roles, None, path).save(path)
    model = f'{{ study = "../{study.path.name}", digest = "{study.digest}", per_person = 2 }}'
    agent = '\n[agent]\nfederation = "../coordinator/FEDERATION.toml"\n'
    served = {"bank": f'console = "127.0.0.1:{console}"\n', "shop": ""}
    more = {name: f"{agent}{served[name]}\n[agent.scores]\nmodels = [{model}]\n" for name in served}
    more["coordinator"] = f'\n[hub]\nkey = "coordinator.key"\nscores = ["../{study.path.name}"]\n'
    for name, text in more.items():
        with open(path if name == "coordinator" else place.config(name).path, "a") as file:
            file.write(text)
    two = processes.Standing(place.folder, {})
    tables = [(place.folder / "tables" / f"{name}.csv").read_text().splitlines()[1:] for name in COLUMNS]
    person = min(set.intersection(*({line.split(",")[0].strip('"') for line in lines} for lines in tables)))

    def ask() -> httpx.Response | None:
        two.check_alive()
        with suppress(httpx.TransportError, FileNotFoundError):
            token = (place.folder / "bank" / "agent" / "scores.token").read_text().strip()
            shown, asked = {"authorization": f"Bearer {token}"}, {"ids": [person]}
            answer = httpx.post(f"http://127.0.0.1:{console}/v1/scores", json=asked, headers=shown, timeout=60)
            return answer if answer.status_code != 503 else None
        return None

    answers: list[httpx.Response] = []
    two.start("coordinator", "bank", "shop")
    try:
        for name in ("shop", "coordinator"):
            answers.append(processes.until(ask, "an answer"))
            two.kill(name)
            two.start(name)
        answers.append(processes.until(ask, "an answer"))
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[0].json()["scores"] == answers[1].json()["scores"]
        assert answers[0].json()["scores"][0]["id"] == person
        assert len(Ledger(place.config("shop").ledger).entries()) == 1
    finally:
        two.stop(*two.running)


# --- counts: what a day is charged as, and what is told stays in the ledger whatever becomes of its files

TRUST = Trust(("bank", "shop", "clinic"), ("bank", "shop", "clinic"), 1)
SCORES = SkellamRelease(
    "scores", (("shop", Fraction(10**8)), ("clinic", Fraction(10**8))), 1, 5000, 25 * 10**6, 5000, 25 * 10**6,
    tail=0.0, theorem="joint-prediction", unproven="", audience=("bank",), about=("shop", "clinic"),
)  # fmt: skip


@pytest.mark.parametrize("times", [1, 2, 10])
def test_a_day_costs_what_as_many_questions_about_one_person_cost(times: int) -> None:
    day = day_events((SCORES,), times)
    assert day == ((SCORES,) if times == 1 else (RepeatedRelease(SCORES, times),))
    for who in ("bank", "bank+coordinator"):
        seen = Observer.parse(who)
        asked = epsilon(views([SCORES] * times, seen, TRUST), 1e-6).epsilon
        assert epsilon(views(day, seen, TRUST), 1e-6).epsilon == pytest.approx(asked, rel=1e-9)
        assert 0 < asked < float("inf")
    free = (NonPrivate("exact scores", audience=("bank",)), PostProcessing("opened to shop", audience=("shop",)))
    assert day_events(free, times) == free


# --- files that were lost or put back

PEOPLE = ("anna", "berta", "carla")


class Shop:
    def __init__(self, place: Place, **limits: int) -> None:
        self.config = place.config("shop")
        self.standing = StandingStudy.of(place.study("noisy", NOISY), **limits)
        self.counts = self.config.path.parent / "agent" / "scores.db"
        self.now = NOON
        self.start()

    def start(self, **limits: int) -> None:
        if limits:
            self.standing = StandingStudy.of(self.standing.study, **limits)
        self.allowance = AnswerQuota(self.standing, self.config, self.counts.parent, clock=lambda: self.now)
        self.gate = self.allowance.open_session(PEOPLE)

    def stop(self) -> None:
        self.allowance.close()

    def told(self, *names: str) -> list[str]:
        refused = self.gate(np.array([PEOPLE.index(name) for name in names])).refused
        return [name for name, one in zip(names, refused.tolist(), strict=True) if not one]

    def entries(self):
        return self.config.open_ledger().entries()

    def lose(self, name: str) -> None:
        for path in self.config.ledger.parent.glob(f"**/{name}"):
            path.unlink()

    def lose_ledger(self) -> None:
        """Its marks of scores stay."""
        for name in ("ledger.sqlite", "ledger.sqlite-*"):
            self.lose(name)

    def restart(self, **limits: int) -> None:
        self.stop()
        self.start(**limits)

    def reserve_another(self) -> None:
        study = self.standing.study
        self.config.open_ledger().reserve("another", "0" * 64, study.events, study.trust, self.config.caps)


@pytest.fixture
def shop(place):
    place.allow("shop", exact="")
    found = Shop(place)
    yield found
    found.stop()


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("marks", [True, False])
def test_a_new_ledger_holds_the_rest_of_the_day(shop, restarted, marks):
    assert shop.told("anna") == ["anna"]
    if restarted:
        shop.stop()
    shop.lose_ledger() if marks else shop.lose("ledger.sqlite*")
    if restarted:
        shop.start()
    assert shop.told("anna", "berta") == ["berta"]  # what was counted goes on
    assert [(entry.state, entry.events) for entry in shop.entries()] == [("sent", (shop.standing.task.event,))]


def test_a_ledger_that_was_put_back_holds_the_day_again(shop, tmp_path):
    shop.reserve_another()
    shutil.copy(shop.config.ledger, tmp_path / "copy")
    assert shop.told("anna") == ["anna"]
    shop.lose_ledger()
    shutil.copy(tmp_path / "copy", shop.config.ledger)
    assert shop.told("berta") == ["berta"]
    assert [(entry.study, entry.state) for entry in shop.entries()] == [
        ("another", "reserved"),
        ("noisy: scores of 2031-05-06", "sent"),
    ]


def test_the_entry_of_another_study_with_the_same_number_is_left_alone(shop):
    assert shop.told("anna") == ["anna"]
    shop.lose_ledger()
    shop.reserve_another()
    shop.now += timedelta(days=1)  # the day before ended, and its entry is gone
    assert shop.told("anna") == ["anna"]
    assert [entry.state for entry in shop.entries()] == ["reserved", "sent"]
    shop.now -= timedelta(days=1)
    assert shop.told("berta") == ["berta"]
    assert [entry.state for entry in shop.entries()] == ["reserved", "committed", "sent"]


def test_a_new_ledger_pays_for_as_many_times_as_were_allowed_before(shop):
    shop.restart(per_person=3)
    assert shop.told("anna") == shop.told("anna") == ["anna"]
    shop.stop()
    shop.lose_ledger()
    shop.start(per_person=1)
    assert shop.told("anna", "berta") == ["berta"]
    assert [entry.events for entry in shop.entries()] == [(RepeatedRelease(shop.standing.task.event, 3),)]


def test_where_a_new_ledger_allows_no_day_nobody_is_answered_about(place, shop):
    assert shop.told("anna") == ["anna"]
    shop.stop()
    shop.lose_ledger()
    single = shop.standing.study.statement.epsilon("bank")
    shop.config = place.allow("shop", exact="", epsilon=single)  # one question would do, three do not
    shop.start(per_person=3)
    refused = shop.told("berta") + shop.told("carla")
    assert (refused, len(shop.entries())) == ([], 0)


@pytest.mark.parametrize("open_file", [True, False])
def test_counts_that_were_put_back_cost_another_day_each_time(shop, tmp_path, open_file):
    assert shop.told("berta") == ["berta"]
    shop.stop()
    shutil.copy(shop.counts, tmp_path / "copy")
    shop.start()
    assert shop.told("anna") == ["anna"]
    for times in (2, 3):
        if open_file:
            with closing(sqlite3.connect(tmp_path / "copy")) as copy, closing(sqlite3.connect(shop.counts)) as counts:
                copy.backup(counts)
        else:
            shop.stop()
            shop.lose("scores.db*")
            shutil.copy(tmp_path / "copy", shop.counts)
            shop.start()
        assert shop.told("anna", "berta") == ["anna"]
        assert shop.told("anna") == []
        assert [entry.state for entry in shop.entries()] == ["sent"] * times


@pytest.mark.parametrize("lost", ["scores.db*", "*.scores*", "nothing"])
def test_counts_or_a_mark_that_were_lost_cost_another_day(shop, lost):
    assert shop.told("anna") == ["anna"]
    shop.reserve_another()  # whatever else the ledger records
    shop.stop()
    shop.lose(lost)
    shop.start()
    assert shop.told("berta") == ["berta"]
    days = [entry.study for entry in shop.entries()].count("noisy: scores of 2031-05-06")
    assert days == (1 if lost == "nothing" else 2)


# --- callers who stopped waiting: nobody is asked about for them, and everybody else is answered


@pytest.fixture
def questions():
    found = QuestionQueue(gather=0.0, quiet=0.0)
    found.begin(("anna", "berta"))
    found.set_weighing(lambda answer, places: [{"place": place} for place in places.tolist()])
    return found


def give_up(answered: Future) -> None:
    async def wait() -> None:
        await asyncio.wait_for(asyncio.wrap_future(answered), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(wait())


def test_nobody_is_asked_about_for_a_caller_that_has_gone_and_others_have_their_answers(questions):
    for gone_before in (True, False):
        late, other = questions.ask(["anna"]), questions.ask(["berta"])
        if gone_before:
            give_up(late)
        places = questions.question()
        if not gone_before:
            give_up(late)
        assert places.tolist() == ([1] if gone_before else [0, 1])
        questions.answer(OpenedAnswer(None, GateDecision(np.zeros(len(places), dtype=bool))))
        assert other.result(0) == [{"place": 1}]
    give_up(questions.ask(["anna"]))
    assert not len(questions.question())


def test_the_end_of_a_session_reaches_everybody_who_still_waits(questions):
    asked = questions.ask(["anna"])
    questions.question()
    late, other = questions.ask(["anna"]), questions.ask(["berta"])
    give_up(asked)
    give_up(late)
    questions.end()
    with pytest.raises(PeerLost):
        other.result(0)


# --- the interface for programs: what is asked and answered over HTTP, and what is refused


@pytest.fixture(scope="module")
def house(place, tmp_path_factory):
    """A bank that asks and a shop that answers, each with the service that its agent would keep."""
    place = Place(Path(shutil.copytree(place.folder, tmp_path_factory.mktemp("house") / "s")))
    study = place.study("who defaults")
    standing = StandingStudy.of(study)
    said = {"models": [{"study": f"../{study.path.name}", "digest": study.digest, "per_person": 3, "per_day": 1000}]}
    with ExitStack() as stack:
        hub = stack.enter_context(make_own_hub(standing, place.key("coordinator"), listen="127.0.0.1:0"))
        stack.callback(keep_coordinator(standing, place.key("coordinator"), hub).stop)
        services = {}
        for name in COLUMNS:
            config = place.config(name)
            services[name] = ScoresService(config, said, config.path.parent / "agent", hub=hub.own_address).start()
            stack.callback(services[name].stop)
        served = serve_scores(services["bank"], "127.0.0.1:0")
        stack.callback(served.stop)
        until_ready(services["bank"].kept[study.name].questions)
        yield place, services, served


@pytest.fixture
def ask(house):
    _, services, served = house
    token = services["bank"].token()

    def post(body, token=token, **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        shown = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.post(f"{served.url}/v1/scores", content=content, headers=shown | headers, timeout=60)

    return post


def test_answers_are_exactly_those_of_a_study_and_are_counted_where_they_are_told_and_answered(house, ask, monkeypatch):
    place, services, _ = house
    counted = {name: [] for name in ("bank", "shop")}
    for name, numbers in counted.items():
        monkeypatch.setattr(services[name], "scored", numbers.append)
    want = play(place.study("once"), place.folder / "runs" / "once")["bank"].joint
    some = slice(40, 240)
    answer = ask({"ids": [*want.ids[some], "nobody", want.ids[40]], "model": "who defaults"})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    *everybody, nobody, again = answer.json()["scores"]
    assert (nobody, again) == (None, everybody[0])
    assert [row["id"] for row in everybody] == want.ids[some]
    assert np.array_equal([row["probabilities"] for row in everybody], want.probabilities[some])
    assert np.array_equal([row["scores"] for row in everybody], want.scores[some])
    assert np.array_equal([row["prediction"] for row in everybody], want.predictions[some])
    assert counted == {"bank": [201], "shop": [200]}  # one of them is told twice, and asked about once


def test_the_console_shows_what_was_asked_today_and_what_is_left(house, ask, tmp_path):
    place, services, _ = house
    person = [*services["bank"].kept["who defaults"].questions._places][3]
    assert ask({"ids": [person]}).status_code == 200
    shown = {}
    for name in COLUMNS:
        config = place.config(name)
        desk = PartyView(config, AgentStore(tmp_path / name), services[name])
        shown[name] = (
            signed_in(make_console(desk, access(tmp_path / f"{name}-access"), PARTY_PAGES)).get("/scores").text
        )
    asked = services["shop"].kept["who defaults"].allowance.count_today()
    assert asked >= 1
    assert f'data-label="Told today">{asked}</td>' in shown["shop"]
    assert f'data-label="Left today">{1000 - asked}<span class="why">paid for in the ledger' in shown["shop"]
    assert all(piece in shown["bank"] for piece in ("counted by others", "all are here"))
    assert person not in shown["shop"], "no page says whom it was about"


def test_past_the_allowance_it_says_when_to_come_again(house, ask):
    person, other = [*house[1]["bank"].kept["who defaults"].questions._places][9:11]
    assert [ask({"ids": [person]}).status_code for _ in range(3)] == [200, 200, 200]
    late = ask({"ids": [person]})
    assert (late.status_code, 0 < int(late.headers["retry-after"]) <= 24 * 3600) == (429, True)
    assert re.search(r"before \d{4}-\d\d-\d\dT00:00:00Z", late.json()["detail"])
    mixed = ask({"ids": [person, other]}).json()["scores"]
    assert (set(mixed[0]), mixed[1]["id"]) == ({"id", "refused_until"}, other)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 422, "not valid JSON"),
        ({"ids": []}, 422, "ids"),
        ({"ids": [7]}, 422, "ids.0"),
        ({"ids": ["secret-person"] * 9000}, 422, "ids"),
        ({"ids": ["a"], "secret-key": 1}, 422, "body"),
        ({"ids": ["a"], "model": "secret-model"}, 404, "no such model"),
        (b"x" * (1 << 21), 413, "too long"),
    ],
)
def test_what_is_malformed_is_refused_without_repeating_it(ask, body, status, said):
    answer = ask(body)
    assert (answer.status_code, said in answer.json()["detail"]) == (status, True)
    assert "secret" not in answer.text


def test_whoever_hangs_up_in_the_middle_leaves_nothing_behind(house):
    _, services, _ = house
    app = make_scores_app(services["bank"], ("here",))
    shown = {"host": "here", "authorization": f"Bearer {services['bank'].token()}"}
    scope = {"type": "http", "method": "POST", "path": "/v1/scores", "root_path": "", "query_string": b""}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in shown.items()]
    left = [{"type": "http.request", "body": b'{"ids"', "more_body": True}]
    sent = []

    async def receive():
        return left.pop() if left else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 413


def test_strangers_are_refused(house, ask):
    _, _, served = house
    tried = [
        ({"token": None}, 401),
        ({"token": "0" * 64}, 401),
        ({"token": None, "cookie": "colonnade=x"}, 401),
        ({"origin": "https://example.org"}, 403),
        ({"host": "attacker.example:80"}, 421),
    ]
    for headers, status in tried:
        assert ask({"ids": ["a"]}, **headers).status_code == status, headers
    assert [httpx.get(f"{served.url}/v1/{path}").status_code for path in ("models", "scores")] == [401, 405]


def test_it_describes_itself(house):
    place, services, served = house
    spec = httpx.get(f"{served.url}/v1/openapi.json").json()
    asked = spec["paths"]["/v1/scores"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert asked["properties"]["ids"]["maxItems"] == 8192
    page = httpx.get(f"{served.url}/v1/docs")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not re.search(r"(src|href)=.?https?:|<script", page.text)
    token = {"authorization": f"Bearer {services['bank'].token()}"}
    (model,) = httpx.get(f"{served.url}/v1/models", headers=token).json()["models"]
    assert (model["ready"], model["exact"], model["to"]) == (True, True, "bank")
    study = place.study("noisy", NOISY)
    once, often = (web_api.describe_model(StandingStudy.of(study, per_person)) for per_person in (1, 5))
    assert once == often, "a price is that of a question, and limits of a day are those of others"
    assert once["epsilon_of_a_question"] == study.statement.epsilon("bank")


def test_the_command_of_the_page_works(house):
    _, services, served = house
    text = (DOCS / "how-to" / "scores-on-demand.md").read_text()
    command = re.search(r"```bash\n(curl .*?)```", text, re.S)[1]
    person = [*services["bank"].kept["who defaults"].questions._places][20]
    command = command.replace("agent/scores.token", str(services["bank"].token_file)).replace("P000017", person)
    command = re.sub(r"http://127.0.0.1:\d+", served.url, command)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["scores"][0]["id"] == person


def test_an_owner_that_comes_back_is_asked_again(house, ask, monkeypatch):
    place, services, _ = house
    for pause in ("_FIRST_PAUSE", "_LONGEST_PAUSE", "_GOODBYE"):
        monkeypatch.setattr(session, pause, 0.2)
    questions = services["bank"].kept["who defaults"].questions
    person = [*questions._places][30]
    services["shop"].stop()
    until(lambda: not questions.ready, "the session to end")
    away = ask({"ids": [person]})
    assert (away.status_code, away.headers["retry-after"]) == (503, "2")
    config = place.config("shop")
    part = services["bank"].part.model_dump()
    hub = services["bank"].hub
    services["shop"] = ScoresService(config, part, config.path.parent / "agent", hub=hub).start()
    try:
        until_ready(questions)
        assert ask({"ids": [person]}).status_code == 200
    finally:
        services["shop"].stop()


def test_a_study_that_changed_or_is_of_another_kind_is_refused(house):
    place, services, _ = house
    config = place.config("shop")
    study = place.study("changed")
    said = {"models": [{"study": f"../{study.path.name}", "digest": "0" * 64}]}
    with raises(PolicyError, "PO009"):
        ScoresService(config, said, config.path.parent / "agent")
    with raises(StudyError, "ST548", "agent.scores.models"):
        ScoresService(config, {"models": []}, config.path.parent / "agent")
    levels = place.study("levels", ('answers = "levels"\n', NOISY[1]))
    with raises(StudyError, "ST547"):
        StandingStudy.of(levels)
    not_allowed = place.allow("shop", exact="")
    said["models"][0]["digest"] = study.digest
    with raises(PolicyError, "PO022"):
        ScoresService(not_allowed, said, config.path.parent / "agent")
    place.allow("shop")
    token = services["bank"].token_file
    token.chmod(0o644)
    if os.name == "posix":
        with raises(StorageError, "SO031"):
            services["bank"].token()
    token.chmod(0o600)
