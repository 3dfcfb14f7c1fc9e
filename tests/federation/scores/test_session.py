"""A standing question over TLS: its answers are those of a study, its price is in the ledger before; and over HTTP.

A bank and a shop, a public model of who defaults, and a standing question about it, all on loopback.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import pytest

from colonnade import Federation, LogisticRegression, Party
from colonnade.cli import initialise
from colonnade.console.app import make_app as make_console
from colonnade.console.party_pages import PARTY_PAGES
from colonnade.console.party_view import PartyView
from colonnade.errors import ColonnadeError, FederationError, PeerLost, PolicyError, StudyError
from colonnade.federation.agent_store import AgentStore
from colonnade.federation.members import FederationMembers, RevokedKeys
from colonnade.federation.scores import session, web_api
from colonnade.federation.scores.kept_answers import KeptAnswers
from colonnade.federation.scores.periods import Period, kind_named
from colonnade.federation.scores.service import ScoresService, make_key_check
from colonnade.federation.scores.session import (
    AlignmentLog,
    PersistentSession,
    QuestionQueue,
    RefusedPerson,
    RepeatedId,
    ScoresParticipant,
    StandingStudy,
    keep_coordinator,
    make_joiner,
    make_own_hub,
    make_owner,
)
from colonnade.federation.scores.web_api import make_scores_app, serve_scores
from colonnade.kinds.prediction import model as on_demand
from colonnade.privacy import Ledger, Observer
from colonnade.protocols.on_demand import GateDecision, OpenedAnswer
from colonnade.study import PartyConfig, Study
from colonnade.study.alignment_session import AlignmentStore, align_as_coordinator
from colonnade.tables import population
from colonnade.wire import Certificate, InMemoryNetwork
from tests.console.kit import access, signed_in
from tests.support import standing as processes
from tests.support.errors import check_said, raises
from tests.support.ports import free_port
from tests.support.studies import outcomes, play, runnable_text, scatter
from tests.support.waiting import until

ROWS = 400
DOCS = Path(__file__).parents[3] / "docs"
COLUMNS = {"bank": ["income", "arrears"], "shop": ["basket", "discounts"]}
EXACT = ("exact = true\n", "")
NOISY = ("", "[budget]\nepsilon = { bank = 2.0 }\n")


@dataclass
class Place:
    """One folder with everyone's keys, tables and policies; the model has columns of the bank and the shop."""

    folder: Path
    columns: Mapping[str, Sequence[str]] = field(default_factory=lambda: COLUMNS)

    @classmethod
    def make(cls, folder: Path, columns: Mapping[str, Sequence[str]] = COLUMNS) -> Place:
        people = population(ROWS)
        people.write(folder / "tables")
        (folder / "schemas").mkdir()
        place = cls(folder, columns)
        for number, name in enumerate(columns):
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
        path.write_text(runnable_text(name, task, price[1], self.columns, limits, pins))
        if pins is None:
            initialise.trial(path)
        return Study.load(path)

    def key(self, name: str) -> Path:
        return self.config(name).key if name != "coordinator" else self.folder / "coordinator/coordinator.key"


@contextmanager
def standing_up(
    place: Place, standing: StandingStudy, clock: Callable | None = None, **checks: Callable[[], object]
) -> Iterator[QuestionQueue]:
    """Everybody's part in threads of this process, over TLS on loopback; where the bank asks."""
    timed = {"clock": clock} if clock else {}
    questions = QuestionQueue(period=standing.period, **timed)
    shop = place.config("shop")
    answers = KeptAnswers(standing, shop, shop.path.parent / "agent", **timed)
    parts = {
        "bank": make_owner(standing, place.config("bank"), questions),
        "shop": make_owner(standing, shop, answers.open_session),
    }
    with ExitStack() as stack:
        stack.callback(answers.close)
        hub = stack.enter_context(make_own_hub(standing, place.key("coordinator"), listen="127.0.0.1:0"))
        stack.callback(keep_coordinator(standing, place.key("coordinator"), hub).stop)
        for name, part in parts.items():
            enter = make_joiner(standing, name, place.key(name), hub=hub.own_address)
            stay = PersistentSession(enter, part, checks.get(name, lambda: None))
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


def test_a_period_is_reserved_before_the_first_answer_and_costs_once_however_often_somebody_is_asked_about(place):
    place.allow("shop", exact="")
    standing = StandingStudy.of(place.study("noisy", NOISY), per_day=34)
    moment = [NOON]
    ledger = place.config("shop").ledger
    with standing_up(place, standing, lambda: moment[0]) as questions:
        assert not Ledger(ledger).entries()
        first = questions._places and [*questions._places][:3]
        told = [questions.ask(first[:1]).result(60) for _ in range(30)]
        assert all("deviations" in row for row in told[0])
        assert told == told[:1] * 30, "asked about alone, the answer is always the same"
        (entry,) = Ledger(ledger).entries()
        assert (entry.state, entry.events) == ("sent", (standing.task.event,))
        assert [str(each) for each in entry.approvers] == ["the digest in the party's file"]
        assert Ledger(ledger).epsilon_spent(Observer.party("bank"), 1e-5) <= 2.0, "30 questions that were 14.9"
    with standing_up(place, standing, lambda: moment[0]) as questions:
        assert questions.ask(first[:1]).result(60) == told[0], "after a restart, too"
        over = questions.ask(first).result(60)  # the 32nd of 34, and two more
        assert [type(one) is RefusedPerson for one in over] == [False, False, False]
        late = questions.ask(first[:1]).result(60)
        assert late == [RefusedPerson(int(datetime(2031, 5, 7, tzinfo=UTC).timestamp()))]
        moment[0] = datetime(2031, 5, 7, 0, 0, 1, tzinfo=UTC)
        assert questions.ask(first[:1]).result(60) == told[0]
        assert len(Ledger(ledger).entries()) == 1
        moment[0] = datetime(2031, 6, 1, 0, 0, 1, tzinfo=UTC)
        assert questions.ask(first[:1]).result(60) != told[0], "a new period draws anew for everybody"
        assert [entry.state for entry in Ledger(ledger).entries()] == ["committed", "sent"]
        assert 2.0 < Ledger(ledger).epsilon_spent(Observer.party("bank"), 1e-5) <= 4.0


def test_requests_that_come_together_are_one_question(place):
    standing, before = StandingStudy.of(place.study("standing")), threading.active_count()
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
def test_an_answer_is_on_disk_before_the_process_is_killed(place, tmp_path):
    """An owner is killed right after it decided about a question: the next process deals the same."""
    place.allow("shop", exact="")
    study = place.study("noisy", NOISY)
    script = f"""
import os, signal
import numpy as np
from pathlib import Path
from colonnade.federation.scores.kept_answers import KeptAnswers
from colonnade.federation.scores.periods import Period
from colonnade.federation.scores.session import StandingStudy
from colonnade.study import PartyConfig, Study
config = PartyConfig.load({str(place.config("shop").path)!r})
answers = KeptAnswers(StandingStudy.of(Study.load({str(study.path)!r})), config, Path({str(tmp_path)!r}))
gate = answers.open_session((b"anna", b"berta"), lambda places: places[:, None] + int.from_bytes(os.urandom(6)))
print(gate(Period.at("month", answers._clock()).name, np.array([0]))[1].tolist(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    words = [sys.executable, "-c", script]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    answers = KeptAnswers(StandingStudy.of(study), place.config("shop"), tmp_path)
    gate = answers.open_session((b"anna", b"berta"), lambda places: places[:, None] - 1)
    _, values = gate(Period.at("month", answers._clock()).name, np.array([0, 1]))
    assert values.tolist() == [json.loads(ended.stdout)[0], [0]]
    answers.close()
    (entry,) = Ledger(place.config("shop").ledger).entries()  # one period, reserved once
    assert entry.state == "sent"


@pytest.mark.slow
def test_a_federation_of_processes_answers_and_comes_back_after_a_kill(place, tmp_path):
    place = Place(Path(shutil.copytree(place.folder, tmp_path / "s")))
    study, console = place.study("who defaults"), free_port()
    roles = {"coordinator": "hub", "bank": "party", "shop": "party"}
    certificates = {name: Certificate.load(place.key(name).with_suffix(".crt")) for name in roles}
    path = place.folder / "coordinator" / "FEDERATION.toml"
    FederationMembers("two", f"127.0.0.1:{free_port()}", certificates, roles, None, path).save(path)
    model = f'{{ study = "../{study.path.name}", digest = "{study.digest}" }}'
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
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert answers[0].json()["scores"] == answers[1].json()["scores"]
        assert answers[0].json()["scores"][0]["id"] == person
        assert len(Ledger(place.config("shop").ledger).entries()) == 1
    finally:
        two.stop(*two.running)


# --- what is kept: one draw for each person and period, whatever is asked and whatever becomes of files

PEOPLE = ("anna", "berta", "carla")


class Shop:
    """An owner whose part of everybody is a number of its table, with noise that is a counter: no draw comes twice."""

    def __init__(self, place: Place, **limits) -> None:
        self.config = place.config("shop")
        self.standing = StandingStudy.of(place.study("noisy", NOISY), **limits)
        self.kept = self.config.path.parent / "agent" / "answers.db"
        self.now, self.draws, self.table = NOON, 0, dict.fromkeys(PEOPLE, 0)
        self.until = 0
        self.start()

    def start(self, **limits) -> None:
        if limits:
            self.standing = StandingStudy.of(self.standing.study, **limits)
        self.answers = KeptAnswers(self.standing, self.config, self.kept.parent, clock=lambda: self.now)
        self.people = tuple(self.table)
        self.gate = self.answers.open_session([name.encode() for name in self.people], self.draw)

    def draw(self, places):
        first, self.draws = self.draws, self.draws + len(places)
        parts = np.array([self.table[self.people[place]] for place in places.tolist()], dtype=np.int64)
        return (parts * 1000 + np.arange(first + 1, self.draws + 1))[:, None]

    def stop(self) -> None:
        self.answers.close()

    def told(self, *names: str) -> dict[str, int]:
        places = np.array([self.people.index(name) for name in names])
        decision, values = self.gate(Period.at(self.standing.period, self.now).name, places)
        self.until = decision.until
        return dict(zip(names[: decision.told], values[:, 0].tolist(), strict=True))

    def entries(self):
        return Ledger(self.config.ledger).entries()

    def lose(self, name: str) -> None:
        for path in self.config.ledger.parent.glob(f"**/{name}"):
            path.unlink()

    def lose_ledger(self) -> None:
        """Its marks of answers stay."""
        for name in ("ledger.sqlite", "ledger.sqlite-*"):
            self.lose(name)

    def restart(self, **limits) -> None:
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


def test_an_answer_says_nothing_about_a_table_that_changes_or_stays(shop):
    """Were noise a function of the part, (a, a) and (a, b) would be told apart for certain: alike against different."""
    assert shop.told("anna", "berta") == {"anna": 1, "berta": 2}
    shop.table["berta"] = 7
    shop.table["dora"] = 5  # who is new is drawn for at first sight
    shop.restart()
    assert shop.told("berta", "dora", "anna") == {"berta": 2, "dora": 5003, "anna": 1}
    shop.now += timedelta(days=31)
    assert shop.told("anna", "berta") == {"anna": 4, "berta": 7005}, "a new period draws for all, changed or not"
    shop.now -= timedelta(days=31)
    assert shop.told("anna", "dora") == {"anna": 1, "dora": 5003}, "a clock that goes back finds what was dealt"
    assert [entry.study for entry in shop.entries()] == ["noisy: scores of 2031-05", "noisy: scores of 2031-06"]
    assert [entry.events for entry in shop.entries()] == [(shop.standing.task.event,)] * 2


@pytest.mark.parametrize("second", [("anna",), ("carla",), ("carla", "anna")])
def test_what_is_let_through_follows_from_how_many_were_asked_about_and_not_from_who(shop, second):
    """A seat hears how many of each question are told about: that must not say who was asked about before."""
    shop.restart(per_day=3)
    assert len(shop.told("anna", "berta")) == 2
    assert [*shop.told(*second)] == [*second[:1]]
    assert shop.until == (0 if len(second) == 1 else int(datetime(2031, 5, 7, tzinfo=UTC).timestamp()))
    assert shop.told("anna") == {}


def test_all_owners_answer_in_one_period_or_not_at_all(shop):
    """Answers of one owner kept beside fresh ones of another would be more than either of them was charged for."""
    asked = np.array([0])
    for period, later in (("2031-06", datetime(2031, 6, 1, tzinfo=UTC)), ("2031-04", NOON + timedelta(seconds=1))):
        decision, values = shop.gate(period, asked)
        assert (decision, len(values)) == (GateDecision(0, int(later.timestamp())), 0)
    for period in ("2031-W19", "2031-05-06"):
        with raises(StudyError, "ST700"):
            shop.gate(period, asked)
    assert (shop.draws, shop.entries()) == (0, ())


@pytest.mark.parametrize(
    ("kind", "moment", "name", "ends"),
    [
        ("day", NOON, "2031-05-06", datetime(2031, 5, 7, tzinfo=UTC)),
        ("week", NOON, "2031-W19", datetime(2031, 5, 12, tzinfo=UTC)),
        ("week", datetime(2030, 12, 31, tzinfo=UTC), "2031-W01", datetime(2031, 1, 6, tzinfo=UTC)),
        ("month", NOON, "2031-05", datetime(2031, 6, 1, tzinfo=UTC)),
        ("month", datetime(2031, 12, 31, 23, 59, tzinfo=UTC), "2031-12", datetime(2032, 1, 1, tzinfo=UTC)),
    ],
)
def test_the_period_follows_from_the_date_alone(kind, moment, name, ends):
    assert Period.at(kind, moment) == Period(kind, name, ends)
    assert (kind_named(name), Period.at(kind, ends - timedelta(seconds=1)).name) == (kind, name)
    assert Period.at(kind, ends).name != name


@pytest.mark.parametrize("restarted", [True, False])
def test_a_new_ledger_holds_what_is_kept(shop, restarted):
    assert shop.told("anna") == {"anna": 1}
    if restarted:
        shop.stop()
    shop.lose_ledger()
    if restarted:
        shop.start()
    assert shop.told("anna", "berta") == {"anna": 1, "berta": 2}  # what was kept goes on, under a new entry
    assert [(entry.state, entry.events) for entry in shop.entries()] == [("sent", (shop.standing.task.event,))]


def test_a_ledger_that_was_put_back_holds_the_period_again(shop, tmp_path):
    shop.reserve_another()
    shutil.copy(shop.config.ledger, tmp_path / "copy")
    assert shop.told("anna") == {"anna": 1}
    shop.lose_ledger()
    shutil.copy(tmp_path / "copy", shop.config.ledger)
    assert shop.told("anna") == {"anna": 1}
    assert [(entry.study, entry.state) for entry in shop.entries()] == [
        ("another", "reserved"),
        ("noisy: scores of 2031-05", "sent"),
    ]


def test_the_entry_of_another_study_with_the_same_number_is_left_alone(shop):
    assert shop.told("anna") == {"anna": 1}
    shop.lose_ledger()
    shop.reserve_another()
    shop.now += timedelta(days=31)  # the month before ended, and its entry is gone
    assert shop.told("anna") == {"anna": 2}
    assert [entry.state for entry in shop.entries()] == ["reserved", "sent"]
    shop.now -= timedelta(days=31)
    assert shop.told("anna") == {"anna": 1}
    assert [entry.state for entry in shop.entries()] == ["reserved", "committed", "sent"]


def test_where_a_new_ledger_allows_no_period_nobody_is_answered_about(place, shop):
    assert shop.told("anna") == {"anna": 1}
    shop.stop()
    shop.lose_ledger()
    shop.config = place.allow("shop", exact="", epsilon=shop.standing.study.statement.epsilon("bank") / 2)
    shop.start()
    assert (shop.told("anna"), shop.told("carla"), shop.entries()) == ({}, {}, ())
    assert shop.until == int(datetime(2031, 6, 1, tzinfo=UTC).timestamp())


@pytest.mark.parametrize("open_file", [True, False])
def test_answers_that_were_put_back_are_drawn_and_paid_for_anew_each_time(shop, tmp_path, open_file):
    assert shop.told("berta") == {"berta": 1}
    shop.stop()
    shutil.copy(shop.kept, tmp_path / "copy")
    shop.start()
    assert shop.told("anna") == {"anna": 2}
    for times in (2, 3):
        if open_file:
            with closing(sqlite3.connect(tmp_path / "copy")) as copy, closing(sqlite3.connect(shop.kept)) as kept:
                copy.backup(kept)
        else:
            shop.stop()
            shop.lose("answers.db*")
            shutil.copy(tmp_path / "copy", shop.kept)
            shop.start()
        drawn = {"berta": 2 * times - 1, "anna": 2 * times}
        assert shop.told("berta", "anna") == drawn, "never the noise of before with another part"
        assert shop.told("anna", "berta") == drawn
        assert [entry.state for entry in shop.entries()] == ["sent"] * times


@pytest.mark.parametrize("lost", ["answers.db*", "*.answers*", "nothing"])
def test_answers_or_a_mark_that_were_lost_cost_another_period(shop, lost):
    assert shop.told("anna") == {"anna": 1}
    shop.reserve_another()  # whatever else the ledger records
    shop.stop()
    shop.lose(lost)
    shop.start()
    assert shop.told("anna") == {"anna": 1 if lost == "nothing" else 2}
    periods = [entry.study for entry in shop.entries()].count("noisy: scores of 2031-05")
    assert periods == (1 if lost == "nothing" else 2)


@pytest.mark.parametrize("lost", ["answers.db*", "*.answers*", "ledger.sqlite*", "nothing"])
def test_where_the_noise_of_several_is_one_nobody_draws_anew_alone(shop, lost, monkeypatch):
    """Others keep their noise of the period: two draws beside it would differ by the noise of one owner alone."""
    monkeypatch.setattr(type(shop.standing.question), "summed", True)
    assert shop.told("anna") == {"anna": 1}
    shop.stop()
    shop.lose(lost)
    shop.start()
    assert shop.told("anna", "berta") == ({"anna": 1, "berta": 2} if lost == "nothing" else {})
    if lost != "nothing":
        assert shop.until == int(datetime(2031, 6, 1, tzinfo=UTC).timestamp())
    shop.now += timedelta(days=31)
    shop.restart()
    assert [*shop.told("anna")] == ["anna"]


def test_a_reservation_that_nobody_was_answered_under_is_used_by_the_next_process(shop, monkeypatch):
    monkeypatch.setattr(type(shop.standing.question), "summed", True)

    def broken(places):
        raise RuntimeError("killed here")

    shop.gate = shop.answers.open_session([b"anna"], broken)
    with pytest.raises(RuntimeError):
        shop.told("anna")
    assert [entry.state for entry in shop.entries()] == ["reserved"]
    shop.restart()
    assert shop.told("anna") == {"anna": 1}
    assert [entry.state for entry in shop.entries()] == ["sent"]


# --- names of rows that repeat, and alignments that are repeated


def household(place: Place, tmp_path: Path, *names: str) -> Place:
    """The same place where these parties call their rows by household: three people each, and some by nothing."""
    place = Place(Path(shutil.copytree(place.folder, tmp_path / "s")))
    for name in names:
        table = place.folder / "tables" / f"{name}.csv"
        first, *lines = table.read_text().splitlines()
        at = first.replace('"', "").split(",").index("person_id")
        people = [line.split(",")[at].strip('"') for line in lines]
        called = [f"H{int(re.sub(r'[^0-9]', '', one)) // 3:04d}" for one in people]
        called = ["" if one.endswith("7") else one for one in called]
        rows = zip(["household", *called], [first, *lines], strict=True)
        table.write_text("\n".join(f"{house},{line}" for house, line in rows) + "\n")
        path = place.folder / name / "party.toml"
        keys = '[keys]\nperson_id = "person_id"\n\n[policy]'
        path.write_text(
            path.read_text().replace('id = "person_id"', 'id = "household"', 1).replace("[policy]", keys, 1)
        )
    return place


def test_a_person_is_a_key_and_no_name_that_rows_may_share(place, tmp_path):
    """With a household's number as its id, the shop told about one person in 8 of 8 sessions and charged for one."""
    place = household(place, tmp_path, "shop")
    place.allow("shop", exact="")
    standing, seen = StandingStudy.of(place.study("noisy", NOISY), per_day=1000), {}
    for _ in range(3):
        with standing_up(place, standing, lambda: NOON) as questions:
            people = [*questions._places][:12]
            for person in people:
                (row,) = questions.ask([person]).result(60)
                seen.setdefault(person, set()).add(row["scores"][0])
    assert [len(scores) for scores in seen.values()] == [1] * 12, "one answer each, and nobody is refused"
    assert len(set.union(*seen.values())) == 12
    assert [entry.events for entry in Ledger(place.config("shop").ledger).entries()] == [(standing.task.event,)]


def test_an_id_that_several_of_the_askers_own_rows_have_names_nobody(place, tmp_path):
    place = household(place, tmp_path, "bank")
    standing = StandingStudy.of(place.study("standing"))
    rows = (place.folder / "tables" / "bank.csv").read_text().splitlines()[1:]
    houses = [line.partition(",")[0] for line in rows]
    with standing_up(place, standing, lambda: NOON) as questions:
        once = next(house for house in houses if house and houses.count(house) == 1 and house in questions._places)
        often = next(house for house in houses if house and houses.count(house) > 1 and house in questions._places)
        found = questions.ask([often, "nobody", once]).result(60)
    assert (found[:2], found[2]["id"]) == ([RepeatedId(houses.count(often)), None], once)
    assert web_api._to_json(found[0], often) == {"id": often, "rows": houses.count(often)}


def test_a_time_that_is_no_date_is_refused_where_it_arrives():
    """It would end the web interface of the entitled party by an error nobody foresaw."""
    until = on_demand.verdict_message(1).fields["until"]
    assert until.accepts(until.high)
    assert not until.accepts(1 << 38)
    assert web_api._to_json(RefusedPerson(until.high), "p") == {"id": "p", "refused_until": "6325-04-08T15:04:32Z"}


def play_session(
    place: Place, standing: StandingStudy, **stays: ScoresParticipant
) -> tuple[int, dict[str, BaseException]]:
    """One session of everybody, ended at once: how many people were common, and who was refused something."""
    questions, shop, matched, wrong = QuestionQueue(), place.config("shop"), [], {}
    begin, questions.begin = questions.begin, lambda people: matched.append(len(people)) or begin(people)
    questions.stop()
    answers = KeptAnswers(standing, shop, shop.path.parent / "agent", clock=lambda: NOON)

    def coordinator(me):
        align_as_coordinator(me, standing.study, AlignmentLog())
        standing.question.coordinator(me)

    parts = {
        "bank": make_owner(standing, place.config("bank"), questions),
        "shop": make_owner(standing, shop, answers.open_session),
        "coordinator": ScoresParticipant(standing, coordinator),
    } | stays
    room = InMemoryNetwork([*parts], timeout=60)

    def play(name):
        try:
            parts[name].play(room.place(name))
        except ColonnadeError as error:
            wrong[name] = error

    with ThreadPoolExecutor(len(parts)) as pool:
        [*pool.map(play, parts)]
    answers.close()
    return sum(matched), wrong


def test_sessions_that_try_out_keys_end_at_the_limit_of_alignments(place, tmp_path):
    """Each session of a bank with another list is a new alignment, which the shop counts before it begins."""
    place = Place(Path(shutil.copytree(place.folder, tmp_path / "s")))
    path = place.folder / "shop" / "party.toml"
    path.write_text(f"{path.read_text()}\n[policy.alignments]\nat_most = 2\nat_most_each = 2\n")
    standing, table = StandingStudy.of(place.study("standing")), place.folder / "tables" / "bank.csv"
    first, *lines = table.read_text().splitlines()
    tried = []
    for some in range(6):
        table.write_text("\n".join([first, *lines[some * 60 : some * 60 + 60]]) + "\n")
        tried.append(play_session(place, standing))
    assert [matched > 0 for matched, _ in tried] == [True, True, False, False, False, False]
    for _, wrong in tried[2:]:
        assert isinstance(wrong["shop"], PolicyError)
        check_said(wrong["shop"], "PO701")
    book = Ledger(place.config("shop").ledger)
    assert (book.count_alignments(days=30), book.count_aborted_studies()) == (2, 0)
    assert (book.studies, book.count_alignments(days=1e-9)) == (0, 0)
    book.verify()


def test_sessions_without_an_alignment_that_try_out_lists_end_at_the_same_limit(place, tmp_path):
    """A list that was found equal is not counted again; any other one could be a guess."""
    place = Place(Path(shutil.copytree(place.folder, tmp_path / "s")))
    tables = [place.folder / "tables" / f"{name}.csv" for name in COLUMNS]
    held = [(each.read_text().splitlines()[0], sorted(each.read_text().splitlines()[1:])) for each in tables]
    both = {line.split(",")[0] for line in held[0][1]} & {line.split(",")[0] for line in held[1][1]}
    for each, (head, lines) in zip(tables, held, strict=True):
        each.write_text("\n".join([head, *(line for line in lines if line.split(",")[0] in both)]) + "\n")
    path, right = place.folder / "shop" / "party.toml", tables[0].read_text()
    path.write_text(f"{path.read_text()}\n[policy.alignments]\nat_most = 3\nat_most_each = 3\n")
    standing, shop = StandingStudy.of(place.study("loose", align=False)), place.config("shop")
    answers = KeptAnswers(standing, shop, shop.path.parent / "agent", clock=lambda: NOON)
    shops, book = make_owner(standing, shop, answers.open_session), Ledger(shop.ledger)
    for _ in range(2):
        assert play_session(place, standing, shop=shops)[0] == len(both)
        assert book.count_alignments(days=30) == 1
    for counted in (1, 2, 3):
        tables[0].write_text("\n".join(right.splitlines()[:-counted]) + "\n")
        assert "shop" in play_session(place, standing, shop=shops)[1]
        assert book.count_alignments(days=30) == counted
    tables[0].write_text(right)
    matched, wrong = play_session(place, standing, shop=shops)
    answers.close()
    assert matched == 0
    check_said(wrong["shop"], "PO701")


def test_an_alignment_that_is_used_again_is_not_counted_and_one_of_a_study_is(place, tmp_path):
    place = Place(Path(shutil.copytree(place.folder, tmp_path / "s")))
    standing, book = StandingStudy.of(place.study("standing")), Ledger(place.config("shop").ledger)
    for name in COLUMNS:
        shutil.rmtree(place.config(name).alignments, ignore_errors=True)
    for _ in range(2):
        assert not play_session(place, standing)[1]
        assert book.count_alignments(days=30) == 1
    rows = (place.folder / "tables" / "bank.csv").read_text().splitlines()
    (place.folder / "tables" / "bank.csv").write_text("\n".join(rows[:-9]) + "\n")
    play(place.study("once"), tmp_path / "once")
    assert ([entry.study for entry in book.entries()], book.count_alignments(days=30)) == (["once"], 2)
    noted = [change.study for change, _ in book.lines() if change.state == "released"]
    assert noted == [
        f"people were aligned for {each}" for each in ("standing, asked for by the standing question standing", "once")
    ]
    path = place.folder / "shop" / "party.toml"
    path.write_text(f"{path.read_text()}\n[policy.alignments]\nat_most = 2\nat_most_each = 2\n")
    (place.folder / "tables" / "bank.csv").write_text("\n".join(rows[:-5]) + "\n")
    check_said(outcomes(place.study("more"), tmp_path / "more")["shop"], "PO701")
    assert [(entry.study, entry.state) for entry in book.entries()] == [("once", "committed"), ("more", "released")]


def test_an_alignment_that_is_used_again_is_compared_in_a_session_too(place, tmp_path, monkeypatch):
    """The bank offers the alignment that all hold, with its rows in another order."""
    place = Place(Path(shutil.copytree(place.folder, tmp_path / "s")))
    standing, find = StandingStudy.of(place.study("standing")), AlignmentStore.find
    assert not play_session(place, standing)[1]

    def other_rows(store, keys, note):
        held = find(store, keys, note)
        return replace(held, rows=held.rows[::-1]) if place.config("bank").alignments == store.path.parent else held

    monkeypatch.setattr(AlignmentStore, "find", other_rows)
    matched, wrong = play_session(place, standing)
    assert matched == 0
    check_said(wrong["shop"], "DI002")


# --- callers who stopped waiting: nobody is asked about for them, and everybody else is answered


@pytest.fixture
def questions():
    found = QuestionQueue(gather=0.0, quiet=0.0)
    found.begin(("anna", "berta"))
    found.prepare(lambda answer, places: [{"place": place} for place in places.tolist()], {})
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
        questions.answer(OpenedAnswer(None, GateDecision(len(places))))
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
    said = {"models": [{"study": f"../{study.path.name}", "digest": study.digest, "per_day": 1000}]}
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
    asked = services["shop"].kept["who defaults"].answers.count_today()
    assert asked >= 1
    assert f'data-label="Asked today">{asked}</td>' in shown["shop"]
    assert f'data-label="Left today">{1000 - asked}<span class="why">paid for in the ledger' in shown["shop"]
    assert all(piece in shown["bank"] for piece in ("counted by others", "all are here"))
    assert person not in shown["shop"], "no page says whom it was about"


def test_past_the_allowance_it_says_when_to_come_again(house, ask, monkeypatch):
    person, other = [*house[1]["bank"].kept["who defaults"].questions._places][9:11]
    answers = house[1]["shop"].kept["who defaults"].answers
    assert [ask({"ids": [person]}).status_code for _ in range(4)] == [200] * 4
    monkeypatch.setattr(answers, "_standing", replace(answers._standing, per_day=answers.count_today()))
    late = ask({"ids": [person]})
    assert (late.status_code, 0 < int(late.headers["retry-after"]) <= 24 * 3600) == (429, True)
    assert re.search(r"before \d{4}-\d\d-\d\dT00:00:00Z", late.json()["detail"])
    monkeypatch.setattr(answers, "_standing", replace(answers._standing, per_day=answers.count_today() + 1))
    mixed = ask({"ids": [other, person]}).json()["scores"]
    assert sorted(("refused_until" in one) for one in mixed) == [False, True]


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
    assert (model["period"]["kind"], model["period"]["ends"][7:]) == ("month", "-01T00:00:00Z")
    noisy = web_api.describe_model(StandingStudy.of(study))
    assert noisy["epsilon_of_a_period"] == study.statement.epsilon("bank")


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


def test_a_session_ends_when_a_key_is_called_back_and_none_begins_without_a_list(house, monkeypatch):
    place, services, _ = house
    questions, path = services["bank"].kept["who defaults"].questions, place.folder / "shop" / "FEDERATION.toml"
    roles = {"coordinator": "hub", "bank": "party", "shop": "party"}
    keys = {name: Certificate.load(place.key(name).with_suffix(".crt")) for name in roles}
    FederationMembers("two", f"127.0.0.1:{free_port()}", keys, roles, None, path).save(path)
    file = place.config("shop").path
    file.write_text(f'{file.read_text()}\n[agent]\nfederation = "FEDERATION.toml"\n')
    monkeypatch.setattr(session, "_LOOK_SECONDS", 0.05)
    services["shop"].stop()
    part, hub = services["bank"].part.model_dump(), services["bank"].hub
    services["shop"] = ScoresService(place.config("shop"), part, file.parent / "agent", hub=hub).start()
    kept = services["shop"].kept["who defaults"]
    try:
        until_ready(questions)
        RevokedKeys(wanted=frozenset([keys["bank"].key_fingerprint])).save(path.parent)
        until(lambda: not questions.ready, "the session to end")
        until(lambda: "FE803" in (kept.stay.last or ""), "the reason")
    finally:
        services["shop"].stop()
    check = make_key_check(kept.standing, place.config("shop"))
    (path.parent / "revocations.json").unlink()
    check()
    path.write_text(f'{path.read_text()}\n[revocations]\nsigners = ["bank", "shop"]\nneeded = 2\n')
    with raises(FederationError, "FE783"):
        check()


def test_a_check_that_fails_by_surprise_ends_its_session_and_the_next_one_is_looked_after_too(
    place, monkeypatch, caplog
):
    """An error that was not our own ended the thread that looks whether keys still stand, and nobody heard of it."""
    for name, seconds in {"_LOOK_SECONDS": 0.05, "_FIRST_PAUSE": 0.2, "_LONGEST_PAUSE": 0.2}.items():
        monkeypatch.setattr(session, name, seconds)
    surprises, raised = [], []

    def check() -> None:
        # Only where a session is looked after: the check before it begins has a handler of its own.
        if surprises and threading.current_thread().name.startswith("keys"):
            raised.append(surprises.pop())
            raise raised[-1]

    standing = StandingStudy.of(place.study("standing"))
    with standing_up(place, standing, shop=check) as questions:
        for surprise in (OSError("P000017"), sqlite3.OperationalError("P000017")):
            before = questions._places
            surprises.append(surprise)
            places = until(lambda old=before: now if (now := questions._places) is not old else None, "a next session")
            person = next(iter(places))
            assert questions.ask([person]).result(60)[0]["id"] == person
    assert [type(each) for each in raised] == [OSError, sqlite3.OperationalError]
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert [each.rpartition(" ")[2] for each in said] == ["OSError", "OperationalError"]
    assert "P000017" not in caplog.text


def test_a_study_that_changed_or_is_of_another_kind_is_refused(house):
    place = house[0]
    config = place.config("shop")
    study = place.study("changed")
    said = {"models": [{"study": f"../{study.path.name}", "digest": "0" * 64}]}
    with raises(PolicyError, "PO009"):
        ScoresService(config, said, config.path.parent / "agent")
    with raises(StudyError, "ST548", "agent.scores.models"):
        ScoresService(config, {"models": []}, config.path.parent / "agent")
    said = {"models": [{"study": f"../{study.path.name}", "digest": study.digest, "per_person": 2}]}
    with raises(StudyError, "VA700"):
        ScoresService(config, said, config.path.parent / "agent")


def test_levels_are_kept_as_scores_are(place):
    place.allow("shop", exact="")
    standing = StandingStudy.of(place.study("levels", ('answers = "levels"\n', NOISY[1])))
    with standing_up(place, standing, lambda: NOON) as questions:
        people = [*questions._places][:40]
        told = [questions.ask(people).result(60) for _ in range(2)]
    assert told[0] == told[1]
    assert len({row["scores"][0] for row in told[0]}) > 2
    (entry,) = Ledger(place.config("shop").ledger).entries()
    assert (entry.state, entry.events) == ("sent", standing.task.events)
