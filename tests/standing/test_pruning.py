"""What an agent keeps of proposals: one member cannot fill a party's disk, and a result is never lost for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from colonnade.errors import FederationError
from colonnade.standing import desk as desks, pruning
from colonnade.standing.filing import Filing
from colonnade.standing.proposal import STUDY_FILE, Proposal
from tests.support.errors import raises

from .club import Club, club
from .test_desk import Talk

LONG = timedelta(days=90)


@pytest.fixture
def ours(tmp_path: Path) -> tuple[Club, Filing]:
    return club(tmp_path / "club"), Filing.open(tmp_path / "agent")


def asked(circle: Club, purpose: str, size: int = 0, analyst: str = "ana") -> Proposal:
    now = datetime.now(UTC)
    plain = circle.proposal(analyst=analyst)
    files = {**plain.files, "more.toml": b"#" * size}
    said = {"purpose": purpose, "made": now, "deadline": now + timedelta(hours=1), "files": files}
    return Proposal.unpack(circle.packed(analyst=analyst, **said), circle.members)


def taken(circle: Club, filing: Filing, purpose: str, *, size: int = 0, state: str | None = "cancelled") -> Path:
    """A proposal as an agent takes it in; its analyst then cancels it, say."""
    proposal = asked(circle, purpose, size)
    pruning.make_room(filing, proposal)
    proposal.write(filing.folder / "studies" / proposal.id / "study", circle.members)
    entry = filing.receive(proposal)
    if state is not None:
        filing.heard(entry.id, {}, state, None)
    return entry.folder


def test_propose_and_cancel_fills_nobodys_disk(ours: tuple[Club, Filing], monkeypatch: pytest.MonkeyPatch) -> None:
    circle, filing = ours
    monkeypatch.setattr(pruning, "MOST_BYTES", 500_000)
    folders = [taken(circle, filing, f"number {number}", size=100_000) for number in range(12)]
    kept = [folder for folder in folders if folder.exists()]
    assert kept == folders[-len(kept) :], "the oldest go first"
    assert 2 <= len(kept) <= 4
    assert len(filing.entries()) == 12, "the rows stay"
    waiting = taken(circle, filing, "this one waits", size=300_000, state=None)
    with raises(FederationError, "FE087"):
        taken(circle, filing, "one too many", size=300_000)
    assert (waiting / "study" / STUDY_FILE).exists(), "what has not ended loses nothing"


def test_proposals_of_one_analyst_are_counted(ours: tuple[Club, Filing], monkeypatch: pytest.MonkeyPatch) -> None:
    circle, filing = ours
    monkeypatch.setattr(pruning, "MOST_OPEN", 2)
    monkeypatch.setattr(pruning, "MOST_A_DAY", 4)
    for number in range(2):
        taken(circle, filing, f"open {number}", state=None)
    with raises(FederationError, "FE086"):
        taken(circle, filing, "a third")
    pruning.make_room(filing, asked(circle, "of somebody else", analyst="bank"))
    for entry in filing.entries():
        filing.heard(entry.id, {}, "cancelled", None)
    for number in range(2):
        taken(circle, filing, f"more {number}")
    with raises(FederationError, "FE086", "4"):
        taken(circle, filing, "a fifth")


def test_files_go_after_some_days_and_results_never(ours: tuple[Club, Filing], monkeypatch: pytest.MonkeyPatch) -> None:
    circle, filing = ours
    gone, failed, done = (taken(circle, filing, purpose) for purpose in ("gone", "failed", "done"))
    (failed / "attempts" / "1").mkdir(parents=True)
    (done / "attempts" / "1").mkdir(parents=True)
    (done / "attempts" / "1" / "model.json").write_text("{}")
    still = taken(circle, filing, "still open", state=None)
    assert pruning.prune(filing, LONG) == 0
    assert pruning.prune(filing, timedelta(0)) == 2
    assert [folder.exists() for folder in (gone, failed, done, still)] == [False, False, True, True]
    assert pruning.prune(filing, timedelta(0)) == 0
    monkeypatch.setattr(pruning, "MOST_ENDED", 2)
    many = [taken(circle, filing, f"many {number}") for number in range(5)]
    assert pruning.prune(filing, LONG) == 3
    assert sum(folder.exists() for folder in many) == 2
    assert done.exists()


def test_what_has_finished_is_not_read_again(ours: tuple[Club, Filing], monkeypatch: pytest.MonkeyPatch) -> None:
    circle, filing = ours
    for number in range(6):
        folder = taken(circle, filing, f"number {number}", state=None)
        filing.assessed(folder.name, {"text": "long" * 1000}, "approved", "pat")
        assert filing.begin(folder.name, 1, "room", 1, LONG)
        filing.end(folder.name, 1, "finished", None)
        filing.heard(folder.name, {}, "done", None)
    waiting = taken(circle, filing, "this one waits", state=None).name
    assert [each.id for each in filing.unfinished()] == [waiting]
    assert filing.known([waiting, "0" * 64]) == {waiting}
    assert filing.proposed_by("ana", "") == (1, 7)
    read: list[str] = []
    monkeypatch.setattr(Filing, "_entry", lambda _, row: read.append(row["id"]))
    pruning.prune(filing, timedelta(0))
    pruning.make_room(filing, asked(circle, "one more"))
    assert not read


def test_the_hub_takes_so_many_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desks, "MOST_A_DAY", 3)
    talk = Talk(tmp_path)
    for number in range(3):
        talk.withdraw(talk.propose(name=f"number {number}"), "ana")
    with raises(FederationError, "FE028"):
        talk.propose(name="one more")
    talk.after(days=1)
    assert talk.propose(name="the next day")
    assert len(talk.desk.ended_before(talk.now)) == 3
    assert talk.desk.ended_before(talk.now - timedelta(days=2)) == set()
