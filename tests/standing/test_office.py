"""The agent's office: answers count once, and what is asked of a wrong state changes nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from colonnade.errors import OfficeError
from colonnade.standing.office import Office
from colonnade.standing.output import OUTPUT
from tests.support.errors import raises

SOON = (datetime.now(UTC) + timedelta(days=1)).isoformat()
PAST = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()


def office_with(folder: Path, state: str = "waiting", deadline: str = SOON, id: str = "a" * 32) -> Office:
    office = Office.open(folder)
    with office.file.writing() as file:
        file.execute(
            "INSERT INTO studies (id, name, kind, digest, analyst, purpose, made, deadline, received, state) "
            "VALUES (?, 'survey', 'pca', 'd', 'ana', 'to know', ?, ?, ?, ?)",
            (id, PAST, deadline, PAST, state),
        )
    return office


def test_an_answer_counts_once(tmp_path: Path) -> None:
    office = office_with(tmp_path)
    assert office.approve("aaaa", "eva").state == "approved"
    for again in (lambda: office.approve("aaaa", "max"), lambda: office.decline("aaaa", "max", "no")):
        with raises(OfficeError, "OF007", "approved"):
            again()
    assert office.entry("a").answer_by == "eva"


def test_decline_keeps_the_reason(tmp_path: Path) -> None:
    entry = office_with(tmp_path).decline("a" * 32, "eva", " not our\npurpose ")
    assert (entry.state, entry.answer_by, entry.why) == ("declined", "eva", "not our\ufffdpurpose")


def test_after_the_deadline_nothing_is_approved(tmp_path: Path) -> None:
    office = office_with(tmp_path, deadline=PAST)
    with raises(OfficeError, "OF007", "expired"):
        office.approve("a", "eva")
    assert office.entry("a").state == "waiting"


@pytest.mark.parametrize("state", ["checking", "refused", "declined", "running", "done", "failed", "cancelled"])
def test_only_what_waits_is_approved(tmp_path: Path, state: str) -> None:
    office = office_with(tmp_path, state)
    with pytest.raises(OfficeError):
        office.approve("a", "eva")
    assert office.entry("a").state == state


def test_a_yes_can_be_withdrawn_until_the_study_has_ended(tmp_path: Path) -> None:
    office = office_with(tmp_path)
    with raises(OfficeError, "OF006"):
        office.withdraw("a", "eva", "second thoughts")
    office.approve("a", "eva")
    assert office.withdraw("a", "eva", "second thoughts").state == "cancelled"
    with raises(OfficeError, "OF006", "cancelled"):
        office.withdraw("a", "eva", "again")


def test_an_id_must_be_one_and_known(tmp_path: Path) -> None:
    office_with(tmp_path)
    office = office_with(tmp_path, id="ab" + "0" * 30)
    for prefix in ("", "b", "a", "../x", "A"):
        with pytest.raises(OfficeError):
            office.entry(prefix)
    assert office.entry("ab").id.startswith("ab0")
    assert len(office.entries()) == 2
    assert office.entries(["running"]) == []


def test_the_audit_log_is_kept(tmp_path: Path) -> None:
    office = office_with(tmp_path)
    office.log("eva", "approver", "approve", "a" * 32, "by hand")
    office.log("<b>max</b>", "viewer", "sign in")
    assert [(click.who, click.study) for click in Office.open(tmp_path).clicks()] == [
        ("<b>max</b>", None),
        ("eva", "a" * 32),
    ]
    assert len(office.clicks(1)) == 1


def test_progress_is_the_last_that_was_said(tmp_path: Path) -> None:
    office = office_with(tmp_path, "running")
    assert office.progress("a") is None
    with office.file.writing() as file:
        file.execute(
            "INSERT INTO attempts (study, number, room, state, started) VALUES (?, 1, 'r', 'running', ?)",
            ("a" * 32, PAST),
        )
    folder = office.attempts("a")[0].folder
    folder.mkdir(parents=True)
    presence = {"rounds": 3, "bytes": 10, "here": ["bank"], "waited_for": ["clinic"]}
    lines = [{"progress": "share", "done": 1, "total": 4}, {"presence": presence}, {"progress": "open", "done": 2}]
    (folder / OUTPUT).write_text("".join(json.dumps(line) + "\n" for line in lines) + "a log line\n{\n")
    progress = office.progress("a")
    assert progress is not None
    assert (progress.phase, progress.done, progress.rounds, progress.waited_for) == ("open", 2, 3, ["clinic"])


def test_no_agent_means_not_connected(tmp_path: Path) -> None:
    assert office_with(tmp_path).status().pid is None


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agent.db").write_bytes(b"something else" * 100)
    with pytest.raises(OfficeError):
        Office.open(tmp_path)
