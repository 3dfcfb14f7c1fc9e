"""An agent in this process: how it checks a proposal, and that nothing a person or a limit wants waits for the hub."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colonnade.cli.standing import lanes_in
from colonnade.console.pages.study import needs
from colonnade.errors import BudgetError, ConnectError, FederationError, StudyError
from colonnade.privacy import Ledger
from colonnade.standing import agent as agents, assess, errands, standing_file
from colonnade.standing.agent import Agent
from colonnade.standing.attempts import give_back
from colonnade.standing.children import Limits
from colonnade.standing.fetched import Fetched
from colonnade.standing.outcome import outcome_of
from colonnade.standing.proposal import Outcome, Proposal
from colonnade.study import PartyConfig, Study
from tests.support.errors import raises
from tests.support.standing import ALIGNED, Standing, make
from tests.support.waiting import until

UNKNOWN = "ab" * 16
FOR_ANALYST = "{ analyst = 0.5 }"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Standing:
    return make(tmp_path_factory.mktemp("three") / "f")


# --- the check of a proposal


class Written:
    """A proposed study as an agent writes it down."""

    def __init__(self, three: Standing, folder: Path, study: Path | None = None) -> None:
        self.proposal = three.proposal(study or three.study_named("survey", budget=FOR_ANALYST, more=ALIGNED))
        self.path = self.proposal.write(folder, three.members())
        self.said = {"name": self.proposal.name, "digest": self.proposal.digest}

    def assessed(self, config: PartyConfig) -> tuple[dict[str, Any], Study | None]:
        return assess.assess(self.path, config, **self.said)


def test_the_assessment_has_what_a_person_needs(three: Standing, tmp_path: Path) -> None:
    asked, config = Written(three, tmp_path), three.config("bank")
    found, study = asked.assessed(config)
    assert (study.digest, study.content.coordinator.address) == (asked.proposal.digest, three.members().address)
    assert study.content.pins == {name: three.members().pins[name] for name in study.participants}
    study.certificates()
    assert (found["refused"], found["attempts"], set(found["others"])) == (None, 3, {"shop", "clinic"})
    assert found["columns"] == list(study.schemas["bank"].names)
    assert (found["statement"], found["text"]) == (study.statement.to_dict(), str(study.statement))
    price = {row["observer"]: row["epsilon"] for row in found["statement"]["rows"]}
    assert all(cap["spent"] == 0 and cap["at_most"] >= cap["after"] for cap in found["left"])
    analyst = next(cap for cap in found["left"] if cap["observer"] == "analyst")
    assert (analyst["cap"], analyst["after"]) == (3.0, pytest.approx(price["analyst"]))
    assert analyst["at_most"] > 1.2 * analyst["after"], "three attempts cost more than one"
    assert found["preflight"]["rounds"] > 0
    json.dumps(found, allow_nan=False)
    assert assess.own_eyes(study, config)["people"] == config.rows_held(study.schemas["bank"]) == 60
    assert not (three.of("bank") / "ledger.sqlite").exists(), "a check makes no ledger"


def test_a_budget_that_is_too_small_or_another_study_than_the_one_signed_is_a_refusal(
    three: Standing, tmp_path: Path
) -> None:
    dear = Written(three, tmp_path / "dear", three.study_named("dear", budget="{ analyst = 9.0 }"))
    found, _ = dear.assessed(three.config("bank"))
    assert "over budget" in found["refused"]
    assert found["statement"], "the price is shown all the same"
    other = Written(three, tmp_path / "other")
    other.path.write_text(other.path.read_text().replace("n_components = 1", "n_components = 2"))
    found, study = other.assessed(three.config("bank"))
    assert ("signed another" in found["refused"], study) == (True, None)


def test_a_cap_for_the_analyst_holds_for_a_member_who_watches_the_hub(three: Standing, tmp_path: Path) -> None:
    """Such a member sees what the coordinator sees, so the dearer of the two rows is checked and shown."""
    asked = Written(three, tmp_path)
    statement = Study.load(asked.path).statement.to_dict()
    price = {row["observer"]: row["epsilon"] for row in statement["rows"] if row.get("missing") is None}
    assert price["analyst"] < price["coordinator"]
    between = (price["analyst"] + price["coordinator"]) / 2
    given = three.file("bank")
    text = re.sub("(?m)^epsilon = .*$", f"epsilon = {{ analyst = {between}, others = 9.0 }}", given.read_text())
    given.with_name("watched.toml").write_text(text)
    given.with_name("alone.toml").write_text(text.partition("[agent]")[0])
    watched, alone = (PartyConfig.load(given.with_name(f"{each}.toml")) for each in ("watched", "alone"))
    found, study = asked.assessed(watched)
    left = {cap["observer"]: (cap["cap"], cap["after"]) for cap in found["left"]}
    assert left["analyst at the hub"] == pytest.approx((between, price["coordinator"]))
    assert left["analyst"] == pytest.approx((between, price["analyst"]))
    assert "over budget: analyst at the hub: spent 0" in found["refused"]
    alone.check_budget(study)  # nobody proposes there: the analyst has the result alone
    charged = ("survey", asked.proposal.digest, study.events, study.trust)
    book = Ledger(tmp_path / "ledger.sqlite", owner="bank")
    with raises(BudgetError, "BU002"):
        book.reserve(*charged, watched.caps, watched.periods, study.keys())
    book.reserve(*charged, alone.caps, (), study.keys())
    spent = {each.who: each.spent for each in book.left(watched.caps)}
    assert spent["analyst at the hub"] == pytest.approx(price["coordinator"])


@pytest.mark.system
def test_a_child_checks_it_within_its_limits(three: Standing, tmp_path: Path) -> None:
    asked = Written(three, tmp_path / "study")

    def checked(memory: int) -> dict[str, Any]:
        place = tmp_path / str(memory)
        return assess.wait_for(
            assess.checked_in_child(asked.path, three.file("clinic"), asked.said, place, Limits(memory, 300))
        )

    found = checked(4 * 10**9)
    assert (found["refused"], found["people"], "new" in found["schema_news"]) == (None, 60, True)
    assert "within the memory and time" in checked(10**8)["refused"]


def test_a_study_in_lanes_is_checked_as_any_other_and_the_table_decides_nothing(
    three: Standing, tmp_path: Path
) -> None:
    """A check may not tell the analyst anything about the table: not even that it cannot be read."""
    lanes, config = f"{ALIGNED}\n[lanes]\npartitions = 4\n", three.config("shop")
    (three.of("shop") / "shop.csv").write_bytes(b"\xff\x00 no table at all")
    found, study = Written(three, tmp_path, three.study_named("lanes", more=lanes)).assessed(config)
    assert (found["refused"], found["preflight"]["partitions"]) == (None, 4)
    assert assess.own_eyes(study, config)["people"] is None
    assert ("Partitions, added up by our workers", "4") in needs(found)
    assert lanes_in(found) == "lanes: people are added up in 4 partitions, by workers of everybody"
    with raises(StudyError, "FE067", "hubs.toml"):
        three.proposal(three.study_named("hubs", more=f'{lanes}[coordinator]\naddress = "h:1"\nhubs = ["h:2"]\n'))


# --- how attempts end


@pytest.mark.parametrize(
    ("exit_code", "status", "ended"),
    [
        (22, 22, "lost"), (23, 23, "lost"), (21, 21, "lost"), (130, 130, "lost"), (11, 11, "stopped"),
        (25, 25, "stopped"), (0, -9, "lost"), (0, None, "lost"), (0, -24, "stopped"), (None, -9, "lost"),
    ],
)  # fmt: skip
def test_how_an_attempt_ended(tmp_path: Path, exit_code: int | None, status: int | None, ended: str) -> None:
    said = {"error": "StudyError", "message": "no such file", "exit_code": 13}
    (tmp_path / "output.jsonl").write_text(f"a log line\n{json.dumps(said)}\n")
    assert outcome_of(tmp_path, 13) == ("stopped", "no such file"), "before the record began"
    (tmp_path / "output.jsonl").unlink()
    failed = {"status": "failed", "exit_code": exit_code, "message": "why"}
    if exit_code is not None:  # there is a record, of a run that failed or that was going on
        (tmp_path / "run.json").write_text(json.dumps(failed if exit_code else {"status": "running"}))
    assert outcome_of(tmp_path, status)[0] == ended
    (tmp_path / "model.json").write_text("{}")
    assert outcome_of(tmp_path, status)[0] == "finished", "whoever has the result has finished"


def test_a_reservation_is_given_back_only_if_nothing_had_left(three: Standing, tmp_path: Path) -> None:
    study = Study.load(Written(three, tmp_path / "study").path)
    three.change("clinic", 'ledger = "ledger.sqlite"', 'ledger = "other.sqlite"')
    config = three.config("clinic")
    book = config.book()

    def reserved() -> tuple[Path, Any]:
        entry = book.reserve(study.name, study.digest, study.events, study.trust, config.caps, early=config.failures)
        folder = tmp_path / str(entry.id)
        folder.mkdir()
        (folder / "events.jsonl").write_text(json.dumps({"what": "budget reserved", "entry": entry.id}) + "\n{")
        return folder, entry

    (kept, sent), (back, _) = reserved(), reserved()
    book.mark_sent(sent)
    assert not give_back(config, kept), "shares had left"
    assert [give_back(config, back), give_back(config, back)] == [True, False], "once"
    assert not give_back(config, tmp_path), "nothing was reserved"
    assert [entry.state for entry in book.entries()] == ["sent", "released"]


# --- before a hub that takes its time


class SlowHub:
    """What a hub would answer; its ``proposal`` does not answer before ``answers`` is set."""

    def __init__(self) -> None:
        self.studies: list[dict[str, Any]] = []
        self.proposals: dict[str, bytes] = {}
        self.asked, self.answers, self.changed = threading.Event(), threading.Event(), threading.Event()
        self.waits: list[float] = []
        self.told: list[Outcome] = []
        self.files: dict[str, bytes] = {}
        self.finished: list[bytes] = []
        self.handed_out = 0

    def say(self, study: str, state: str, attempt: int = 0) -> None:
        told = {"id": study, "state": state, "answers": {}, "attempt": attempt, "room": None, "ended": None}
        self.studies = [told]
        self.changed.set()

    def news(self, since: int, wait: float) -> dict[str, Any]:
        self.waits.append(wait)
        if wait and self.changed.wait(0.05):
            self.changed.clear()
        return {"serial": 1, "studies": list(self.studies)}

    def proposal(self, study: str) -> bytes:
        self.asked.set()
        assert self.answers.wait(60)
        if study not in self.proposals:
            raise ConnectError("it took too long")
        return self.proposals[study]

    def result(self, study: str) -> Fetched:
        self.handed_out += 1
        return Fetched(study, self.files, self.finished)

    def members(self) -> Any:
        raise FederationError("nobody is named")

    def outcome(self, outcome: Outcome) -> None:
        self.told.append(outcome)

    def answer(self, *_: object) -> None:
        pass

    withdraw = answer


class Working:
    """The bank's agent in a thread, before a slow hub, and a study that may be proposed to it."""

    def __init__(self, three: Standing, folder: Path) -> None:
        self.hub, self.three, self.folder = SlowHub(), three, folder
        proposal = three.proposal(three.study_named(f"for {folder.name}"))
        raw = proposal.pack(three.identity())
        self.study = Proposal.unpack(raw, three.members())
        self.hub.proposals[self.study.id] = raw

    @contextmanager
    def agent(self, begun: bool = False) -> Iterator[Agent]:
        """``begun``: with a first attempt of the study."""
        path = self.three.file("bank").with_name(f"{self.folder.name}.toml")
        path.write_text(self.three.file("bank").read_text().replace('"agent"', f'"{self.folder}"'))
        found = Agent(path)
        thread = threading.Thread(target=found.run)
        thread.start()
        try:
            until(lambda: found.office.status().connected)
            if begun:
                self.study.write(found.office.folder / "studies" / self.study.id / "study", self.three.members())
                found.office.receive(self.study)
                found.office.assessed(self.study.id, {"refused": None}, "approved", "Ada")
                assert found.office.begin(self.study.id, 1, f"{self.study.id}.1", 3, timedelta(hours=1))
            yield found
        finally:
            found.stop()
            self.hub.answers.set()
            thread.join(60)
            assert not thread.is_alive()

    def sign(self, content: bytes) -> None:
        told = Outcome(self.study.id, 1, "shop", "finished", datetime.now(UTC), hashlib.sha256(content).hexdigest())
        self.hub.finished = [told.pack(self.three.identity("shop"))]


@pytest.fixture
def bank(three: Standing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Working:
    found = Working(three, tmp_path)
    for module in (agents, errands):
        monkeypatch.setattr(module, "Line", lambda *_: nullcontext(found.hub))
    return found


def test_a_withdrawal_is_acted_on_while_the_hub_keeps_us_waiting(bank: Working) -> None:
    hub, study, stopped = bank.hub, bank.study.id, threading.Event()
    runs = {"overran": False, "poll": lambda: 1 if stopped.is_set() else None}  # until it is stopped
    child = SimpleNamespace(**runs, ask_to_stop=stopped.set, stop=stopped.set)
    with bank.agent(begun=True) as agent:
        agent._attempts._children[study, 1] = child  # type: ignore[assignment]
        hub.say(UNKNOWN, "open")
        assert hub.asked.wait(60), "the agent asks for what it does not know"
        agent.office.withdraw(study, "Ada", "enough")
        assert stopped.wait(60), "and ends what a person wants to end before the hub has answered"
        until(lambda: agent.office.attempts(study)[0].state == "stopped")
        assert not hub.answers.is_set()
    assert [told.ended for told in hub.told] == ["stopped"], "the last words are said once the hub answers"


def test_an_agent_says_at_once_that_it_is_connected_and_loses_nothing_that_is_said_while_it_fetches(
    bank: Working,
) -> None:
    hub, study = bank.hub, bank.study.id
    with bank.agent() as agent:
        until(lambda: len(hub.waits) > 3)
        assert hub.waits[:2] == [0.0, 25.0], "the first question of each connection waits for nothing"
        assert agent._news.maxsize == 4
        hub.say(study, "open")
        assert hub.asked.wait(60)
        hub.say(study, "cancelled")
        until(lambda: agent._ahead.get(study, {}).get("state") == "cancelled")
        hub.studies = []
        until(lambda: agent._news.empty())
        hub.answers.set()
        until(lambda: agent.office.known([study]) and agent.office.entry(study).state == "cancelled")


def test_a_result_of_the_hubs_own_making_is_not_taken_and_one_that_a_party_signed_is(
    bank: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errands, "_RESULT_PAUSES", (0.01,) * 100_000)
    hub, study = bank.hub, bank.study.id
    hub.files = {"model.json": b'{"forged": true}', "report.html": b"<h1>forged</h1>"}
    with bank.agent(begun=True) as agent:
        agent.office.end(study, 1, "lost", None)
        hub.say(study, "done", 1)
        until(lambda: hub.handed_out > 2)
        place = agent.office.entry(study).folder / "result"
        assert not place.exists()
        assert agent.office.report(study) is None
        bank.sign(b"{}")
        before = hub.handed_out
        until(lambda: hub.handed_out > before + 2)
        assert not place.exists(), "a party signed another one"
        place.mkdir()  # as if the machine had lost its power while the folder was written
        hub.files = {"model.json": b"{}"}
        until((place / "model.json").exists)


def test_a_disk_that_cannot_be_written_for_a_while_ends_no_agent(
    bank: Working, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bank.hub.answers.set()
    with bank.agent() as agent:
        with closing(sqlite3.connect(bank.folder / "agent.db", timeout=60, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")  # as a disk that is full: nothing can be written
            with monkeypatch.context() as impatient:  # not longer, or the agent's own uses would be in each other's way
                impatient.setattr(standing_file, "_BUSY_SECONDS", 0.01)
                bank.hub.say(bank.study.id, "open")
                until(lambda: "cannot go on now" in caplog.text and "nothing can be fetched or told now" in caplog.text)
            other.execute("ROLLBACK")
        until(lambda: agent.office.known([bank.study.id]))
