"""An agent before a hub that takes its time: nothing that a person or a limit wants ever waits for the hub."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest

from colonnade.errors import ConnectError, FederationError
from colonnade.standing import agent as agents, errands, standing_file
from colonnade.standing.agent import Agent
from colonnade.standing.fetched import Fetched
from colonnade.standing.proposal import STUDY_FILE, Outcome, Proposal
from colonnade.wire import Identity
from tests.support.organisations import PARTIES, Organisations

from .club import study_text

UNKNOWN = "ab" * 16


class Hub:
    """What a hub would answer; its ``proposal`` does not answer before ``answers`` is set."""

    def __init__(self, proposals: dict[str, bytes] | None = None) -> None:
        self.studies: list[dict[str, Any]] = []
        self.proposals = proposals or {}
        self.asked, self.answers, self.changed = threading.Event(), threading.Event(), threading.Event()
        self.waits: list[float] = []
        self.told: list[Outcome] = []
        self.files: dict[str, bytes] = {}
        self.finished: list[bytes] = []
        self.handed_out = 0

    def __call__(self, *_: object) -> Hub:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, study: str, state: str, attempt: int = 0, room: str | None = None) -> None:
        told = {"id": study, "state": state, "answers": {}, "attempt": attempt, "room": room, "ended": None}
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


class Sleeper:
    """A process of a study that runs until it is stopped."""

    overran = False

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def poll(self) -> int | None:
        return 1 if self.stopped.is_set() else None

    def ask_to_stop(self) -> None:
        self.stopped.set()

    def stop(self) -> int:
        self.stopped.set()
        return 1


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Organisations:
    return Organisations(tmp_path_factory.mktemp("slow"), rows=60, ask=PARTIES)


@contextmanager
def working(three: Organisations, hub: Hub, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Agent]:
    """The bank's agent in a thread, with this hub."""
    three.edit("bank", r"^folder = .*\n|^\[agent\]\n", f'[agent]\nfolder = "{folder}"\n')
    monkeypatch.setattr(agents, "Line", hub)
    monkeypatch.setattr(errands, "Line", hub)
    found = Agent(three.party_file("bank"))
    thread = threading.Thread(target=found.run)
    thread.start()
    try:
        yield found
    finally:
        found.stop()
        hub.answers.set()
        thread.join(60)
        three.edit("bank", r"^folder = .*\n", "")
        assert not thread.is_alive()


def proposed(three: Organisations) -> tuple[Proposal, bytes]:
    now, members = datetime.now(UTC), three.members
    files = {STUDY_FILE: study_text(members, PARTIES).encode()}
    proposal = Proposal("ana", "to test", now, now + timedelta(days=1), "a study", "0" * 64, files)
    raw = proposal.pack(Identity.load(three.folder / "ana" / "ana.key", three.folder / "ana" / "ana.crt"))
    return Proposal.unpack(raw, members), raw


def until(is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_withdrawal_is_acted_on_while_the_hub_keeps_us_waiting(
    three: Organisations, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub, child, (study, _) = Hub(), Sleeper(), proposed(three)
    with working(three, hub, monkeypatch, tmp_path / "agent") as agent:
        until(lambda: agent.office.status().connected)
        agent.office.receive(study)
        agent.office.assessed(study.id, {"refused": None}, "approved", "Ada")
        assert agent.office.begin(study.id, 1, f"{study.id}.1", 3, timedelta(hours=1))
        agent._attempts._children[study.id, 1] = child  # type: ignore[assignment]
        hub.say(UNKNOWN, "open")
        assert hub.asked.wait(60), "the agent asks for what it does not know"
        agent.office.withdraw(study.id, "Ada", "enough")
        assert child.stopped.wait(60), "and ends what a person wants to end before the hub has answered"
        until(lambda: agent.office.attempts(study.id)[0].state == "stopped")
        assert not hub.answers.is_set()
    assert [told.ended for told in hub.told] == ["stopped"], "the last words are said once the hub answers"


def test_what_is_said_of_a_study_while_it_is_fetched_is_not_lost(
    three: Organisations, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    study, raw = proposed(three)
    hub = Hub({study.id: raw})
    with working(three, hub, monkeypatch, tmp_path / "agent") as agent:
        hub.say(study.id, "open")
        assert hub.asked.wait(60)
        hub.say(study.id, "cancelled")
        until(lambda: agent._ahead.get(study.id, {}).get("state") == "cancelled")
        hub.studies = []
        until(lambda: agent._news.empty())
        hub.answers.set()
        until(lambda: agent.office.known([study.id]))
        until(lambda: agent.office.entry(study.id).state == "cancelled")


def test_an_agent_says_at_once_that_it_is_connected(
    three: Organisations, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first question of each connection waits for nothing; the queue of news has a bound."""
    hub = Hub()
    with working(three, hub, monkeypatch, tmp_path / "agent") as agent:
        until(lambda: len(hub.waits) > 3)
        assert (hub.waits[0], hub.waits[1]) == (0.0, 25.0)
        until(lambda: agent.office.status().connected)
        assert agent._news.maxsize == 4


def test_a_result_of_the_hubs_own_making_is_not_taken_and_one_that_a_party_signed_is(
    three: Organisations, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(errands, "_RESULT_PAUSES", (0.01,) * 100_000)
    hub, (study, _) = Hub(), proposed(three)
    hub.files = {"model.json": b'{"forged": true}', "report.html": b"<h1>forged</h1>"}
    with working(three, hub, monkeypatch, tmp_path / "agent") as agent:
        until(lambda: agent.office.status().connected)
        study.write(agent.office.folder / "studies" / study.id / "study", three.members)
        agent.office.receive(study)
        agent.office.assessed(study.id, {"refused": None}, "approved", "Ada")
        assert agent.office.begin(study.id, 1, f"{study.id}.1", 3, timedelta(hours=1))
        agent.office.end(study.id, 1, "lost", None)
        hub.say(study.id, "done", 1)
        until(lambda: hub.handed_out > 2)
        place = agent.office.entry(study.id).folder / "result"
        assert not place.exists()
        assert agent.office.report(study.id) is None
        shop = Identity.load(three.folder / "shop" / "shop.key", three.folder / "shop" / "shop.crt")
        signed = hashlib.sha256(b"{}").hexdigest()
        hub.finished = [Outcome(study.id, 1, "shop", "finished", datetime.now(UTC), signed).pack(shop)]
        before = hub.handed_out
        until(lambda: hub.handed_out > before + 2)
        assert not place.exists(), "a party signed another one"
        hub.files = {"model.json": b"{}"}
        until((place / "model.json").exists)


def test_a_disk_that_cannot_be_written_for_a_while_ends_no_agent(
    three: Organisations, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study, raw = proposed(three)
    hub = Hub({study.id: raw})
    hub.answers.set()
    with working(three, hub, monkeypatch, tmp_path / "agent") as agent:
        until(lambda: agent.office.status().connected)
        with closing(sqlite3.connect(tmp_path / "agent" / "agent.db", timeout=60, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")  # as a disk that is full: nothing can be written
            with monkeypatch.context() as impatient:  # not longer, or the agent's own uses would be in each other's way
                impatient.setattr(standing_file, "_BUSY_SECONDS", 0.01)
                hub.say(study.id, "open")
                until(lambda: "cannot go on now" in caplog.text and "nothing can be fetched or told now" in caplog.text)
            other.execute("ROLLBACK")
        until(lambda: agent.office.known([study.id]))


def test_a_result_folder_that_was_left_half_written_is_filled(
    three: Organisations, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub, (study, _) = Hub(), proposed(three)
    hub.files = {"model.json": b"{}"}
    shop = Identity.load(three.folder / "shop" / "shop.key", three.folder / "shop" / "shop.crt")
    told = Outcome(study.id, 1, "shop", "finished", datetime.now(UTC), hashlib.sha256(b"{}").hexdigest())
    hub.finished = [told.pack(shop)]
    with working(three, hub, monkeypatch, tmp_path / "agent") as agent:
        until(lambda: agent.office.status().connected)
        study.write(agent.office.folder / "studies" / study.id / "study", three.members)
        agent.office.receive(study)
        agent.office.assessed(study.id, {"refused": None}, "approved", "Ada")
        assert agent.office.begin(study.id, 1, "r", 3, timedelta(hours=1))
        agent.office.end(study.id, 1, "lost", None)
        folder = agent.office.entry(study.id).folder / "result"
        folder.mkdir()  # and then the machine lost its power
        hub.say(study.id, "done")
        until((folder / "model.json").exists)
