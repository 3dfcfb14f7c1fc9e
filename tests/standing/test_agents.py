"""Agents as real processes: what is proposed is checked, answered, run, and ends in the same state everywhere."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from colonnade.disk import writing
from colonnade.models import Estimator
from tests.support.organisations import PARTIES, Organisations

TRIES = 5


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Callable[..., Organisations]]:
    made: list[Organisations] = []

    def make(**settings: Any) -> Organisations:
        made.append(Organisations(tmp_path / str(len(made)), **settings))
        return made[-1]

    yield make
    for each in made:
        each.clean_up()


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def proposed(three: Organisations, study: Path) -> str:
    """The id of a study that was proposed once everybody is there."""
    for name in PARTIES:
        three.until(lambda name=name: three.office(name).status().connected, f"{name} is connected")
    return three.propose(study)


def late_proposal(three: Organisations) -> str:
    """A proposal that nobody answers in time, with as much time as a slow machine needs to make it."""
    for seconds in (20, 120, 600):
        study = three.study("late", match=False)
        words = ["propose", study, "--federation", three.federation, "--key", three.folder / "ana" / "ana.key"]
        if "id" in (said := three.command(*words, "--deadline", in_seconds(seconds), fails=None)):
            return str(said["id"])
    raise AssertionError("no proposal could be made within ten minutes")


def finished(three: Organisations, study: str) -> list[tuple[str, int]]:
    """Who holds a result of its own, and of which attempt."""
    return [
        (name, attempt.number)
        for name in PARTIES
        for attempt in three.office(name).attempts(study)
        if attempt.state == "finished"
    ]


def ledger_as_noted(three: Organisations, study: str) -> None:
    """What left is counted, at every party: an attempt whose first share was noted has an entry that stays."""
    for name in PARTIES:
        attempts = three.office(name).attempts(study)
        noted = [any(line["what"] == "first share" for line in three.events(name, study, a.number)) for a in attempts]
        states = three.ledger(name)
        assert sum(state in ("sent", "committed") for state in states) >= sum(noted), (name, states, noted)
        assert sum(state == "committed" for state in states) <= 1


@pytest.mark.slow
def test_from_a_proposal_to_reports_at_every_party(federation: Callable[..., Organisations]) -> None:
    """Two policies say yes by themselves, and one person at the command line."""
    three = federation(ask=("clinic",))
    three.start("hub", *PARTIES)
    study = proposed(three, three.study())
    three.until_state("clinic", study, "waiting")
    entry = three.office("clinic").entry(study)
    assert (entry.analyst, entry.purpose) == ("ana", "to know")
    assert entry.assessment is not None
    assert entry.assessment["statement"]["rows"]
    three.command("approve", three.party_file("clinic"), study[:8], "--yes")
    for name in PARTIES:
        three.until_state(name, study, "done")
        report = three.until(lambda name=name: three.office(name).report(study), f"{name} has a report")
        assert f"For {name} alone" in report.read_text()
        assert three.ledger(name) == ["committed"]
    three.until(lambda: finished(three, study) == [(name, 1) for name in PARTIES], "all processes have ended")
    by = three.events("clinic", study, 1)[0]
    assert (by["what"], by["by"]) == ("approved", three.office("clinic").entry(study).answer_by)
    assert three.office("clinic").progress(study) is not None
    told = three.as_analyst("result", study[:8], "--out", three.folder / "result")
    assert told["signed"]
    assert not told["differs"]
    folders = [three.folder / "result", *(three.office(name).attempts(study)[0].folder for name in PARTIES)]
    results = {str(Estimator.load(folder / "model.json").learned()) for folder in folders}
    assert len(results) == 1, "everybody has the same result"
    assert set(told["files"]) == {"model.json", "model.npz", "privacy.json"} & set(os.listdir(folders[1]))
    assert (folders[0] / "privacy.json").read_bytes() == (folders[1] / "privacy.json").read_bytes(), "parties signed it"
    # Whoever was away at the end takes what others have signed, and writes a page about it alone.
    (place := three.office("shop").entry(study).folder / "result").mkdir()
    shutil.copy(folders[0] / "model.json", place)
    for each in folders[0].glob("model.npz"):
        shutil.copy(each, place)
    three.command(
        "_report", place.parent / "study" / "study.toml", three.party_file("shop"), "--out", place, json=False
    )
    assert "For shop alone" in (place / "report.html").read_text()


@pytest.mark.slow
def test_what_is_not_run_costs_nothing(federation: Callable[..., Organisations]) -> None:
    """Over budget, declined by a person, or not answered in time: a no, a reason where somebody wrote one, no entry."""
    three = federation(ask=("clinic",))
    three.start("hub", *PARTIES)
    dear = proposed(three, three.study("dear", epsilon=9.0))
    unwanted = proposed(three, three.study("unwanted", epsilon=0.1, match=False))
    late = late_proposal(three)
    three.until_state("clinic", unwanted, "waiting")
    shown = three.command("studies", three.party_file("clinic"))["studies"]
    assert next(row["waited_for"] for row in shown if row["id"] == unwanted)[-1] == "clinic"
    three.command("decline", three.party_file("clinic"), unwanted[:8], "--why", "not our purpose")
    for name in PARTIES:
        three.until_state(name, dear, "refused", "declined")
        three.until_state(name, unwanted, "declined")
        three.until_state(name, late, "expired")
        assert three.ledger(name) == []
    entries = [three.office(name).entry(dear) for name in PARTIES]  # whose check came later hears that it is over
    refused = [(entry.assessment or {})["refused"] for entry in entries if entry.state == "refused"]
    assert refused
    assert all("over budget" in why for why in refused)
    told = {row["id"]: row for row in three.as_analyst("studies")["studies"]}
    assert {told[each]["state"] for each in (dear, unwanted)} == {"declined"}
    assert told[unwanted]["reasons"] == {"clinic": "not our purpose"}
    assert not told[dear]["reasons"], "a plain no"
    assert told[late]["state"] == "expired"
    for name in (*PARTIES, "hub"):
        assert three.end(name) == 0


@pytest.mark.slow
def test_a_party_that_is_away_comes_back(federation: Callable[..., Organisations]) -> None:
    three = federation()
    three.start("hub", "bank", "clinic")
    study = three.propose(three.study())
    three.until_state("bank", study, "approved")
    three.start("shop")
    for name in PARTIES:
        three.until_state(name, study, "done")
    three.until(lambda: finished(three, study) == [(name, 1) for name in PARTIES], "all processes have ended")


@pytest.mark.slow
def test_cancelled_while_it_runs(federation: Callable[..., Organisations]) -> None:
    three = federation()
    three.start("hub", *PARTIES)
    study = three.propose(three.study())
    held = three.hold("shop", study, 1)
    three.until_state("bank", study, "running")
    three.command("cancel", three.party_file("bank"), study[:8], "--why", "second thoughts")
    assert three.state("bank", study) == "cancelled"
    os.kill(held, signal.SIGCONT)
    for name in PARTIES:
        three.until_state(name, study, "cancelled")
    assert three.hub_state(study) == "cancelled"
    assert finished(three, study) == []
    for name in PARTIES:
        assert len(three.office(name).attempts(study)) == 1, "it is not tried again"
    ledger_as_noted(three, study)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["bank", "hub"])
def test_killed_in_the_middle_and_tried_again(federation: Callable[..., Organisations], who: str) -> None:
    """A second attempt by itself: what had left is counted twice, the alignment is used again, there is one result."""
    three = federation(rows=200)
    three.start("hub", *PARTIES)
    for number in range(TRIES):  # a kill may come too late, when the result is there already
        before = {name: len(three.ledger(name)) for name in PARTIES}
        study = three.propose(three.study(f"survey {number}", epsilon=0.2))
        three.until(lambda: three.happened("bank", study, 1, "first share"), "shares leave", pause=0.001)  # noqa: B023
        three.kill(who)
        three.start(who)
        for name in PARTIES:
            three.until_state(name, study, "done")
        assert three.hub_state(study) == "done"
        holders = finished(three, study)
        assert len({attempt for _, attempt in holders}) == 1, "one result"
        for name in PARTIES:
            new = three.ledger(name)[before[name] :]
            noted = sum(three.happened(name, study, n + 1, "first share") for n in range(len(new)))
            assert sum(state in ("sent", "committed") for state in new) >= noted
            three.until(lambda name=name: three.office(name).report(study), f"{name} has a report")  # noqa: B023
        if holders[0][1] == 2:
            break
    else:
        pytest.fail(f"{TRIES} kills came too late")
    assert three.ledger("bank")[before["bank"] :] == ["sent", "committed"], three.said()
    for name in PARTIES:
        assert three.happened(name, study, 2, "alignment used again")


@pytest.mark.slow
def test_killed_before_anything_left_costs_nothing(federation: Callable[..., Organisations]) -> None:
    three = federation(rows=200)
    three.start("hub", *PARTIES)
    study = three.propose(three.study())
    held = three.hold("clinic", study, 1)
    three.until(lambda: three.happened("bank", study, 1, "connected"), "bank waits for clinic")
    three.kill("bank")
    three.start("bank")
    os.kill(held, signal.SIGCONT)
    for name in PARTIES:
        three.until_state(name, study, "done")
        assert three.ledger(name)[-1] == "committed"
    assert three.ledger("bank")[:-1] == ["released"] * (len(three.ledger("bank")) - 1)
    assert len(three.ledger("bank")) > 1


def test_an_agent_removes_tables_that_nobody_uses_and_nothing_else(federation: Callable[..., Organisations]) -> None:
    three = federation(rows=20)
    bank, kept = three.folder / "bank", three.folder / "kept"
    left, used, almost = (bank / f".colonnade-spool.{name}.new" for name in ("abcdefgh", "stuvwxyz", "short"))
    for folder in (left, used, almost, kept):
        folder.mkdir()
        (folder / "run-0.arrow").write_bytes(b"rows")
    (bank / ".colonnade-spool.pointing.new").symlink_to(kept)
    with writing.locked(used):  # as the head of another attempt does
        three.start("bank")
        three.until(lambda: not left.exists(), "the table that was left is gone")
        assert three.end("bank") == 0
    assert all((folder / "run-0.arrow").exists() for folder in (used, almost, kept))
