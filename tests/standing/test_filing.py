"""What the agent writes: no attempt without a yes of our own, none after a result, and the hub's word on the end."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from colonnade.standing.filing import Filing
from colonnade.standing.proposal import Proposal

from .club import club
from .test_desk import Talk

MOST = 3
GRACE = timedelta(hours=12)


@pytest.fixture
def office(tmp_path: Path) -> tuple[Filing, str]:
    """An office that has just received a proposal."""
    circle = club(tmp_path / "club")
    soon = datetime.now(UTC) + timedelta(hours=1)
    raw = circle.packed(made=datetime.now(UTC), deadline=soon)
    found = Filing.open(tmp_path / "agent")
    return found, found.receive(Proposal.unpack(raw, circle.members)).id


def approved(office: Filing, study: str) -> None:
    office.assessed(study, {"refused": None}, "waiting", None)
    office.approve(study, "eva")


def test_nothing_runs_without_our_own_yes(office: tuple[Filing, str]) -> None:
    filing, study = office
    assert not filing.begin(study, 1, f"{study}.1", MOST, GRACE), "it is being checked"
    filing.assessed(study, {"refused": None}, "waiting", None)
    filing.heard(study, dict.fromkeys(("bank", "shop", "clinic"), True), "running", None)
    assert not filing.begin(study, 1, f"{study}.1", MOST, GRACE), "the hub says that all have agreed, and we have not"
    assert filing.unended() == []
    filing.approve(study, "eva")
    assert filing.begin(study, 1, f"{study}.1", MOST, GRACE)
    assert not filing.begin(study, 1, f"{study}.1", MOST, GRACE), "the same attempt again"
    assert not filing.begin("0" * 32, 1, "x", MOST, GRACE), "a study that nobody knows"


def test_attempts_are_counted_and_end_with_a_result(office: tuple[Filing, str]) -> None:
    filing, study = office
    approved(filing, study)
    assert filing.begin(study, 1, "r", MOST, GRACE)
    assert not filing.begin(study, 2, "r", MOST, GRACE), "the first one still runs"
    filing.end(study, 1, "lost", None)
    assert not filing.begin(study, MOST + 1, "r", MOST, GRACE), "more than we allow"
    assert filing.begin(study, 2, "r", MOST, GRACE)
    filing.end(study, 2, "finished", None)
    assert not filing.begin(study, 3, "r", MOST, GRACE), "there is a result"
    assert [(number, ended) for _, number, ended in filing.untold().outcomes] == [(1, "lost"), (2, "finished")]
    filing.told_outcome(study, 1)
    assert [number for _, number, _ in filing.untold().outcomes] == [2]


def test_answers_are_told_until_the_hub_has_them(office: tuple[Filing, str]) -> None:
    filing, study = office
    assert filing.untold().answers == []
    approved(filing, study)
    assert [entry.id for entry in filing.untold().answers] == [study]
    filing.told_answer(study)
    assert filing.untold().answers == []
    filing.withdraw(study, "eva", "second thoughts")
    assert [entry.id for entry in filing.untold().withdrawals] == [study]
    filing.heard(study, {}, "cancelled", None)
    assert filing.untold().withdrawals == []


@pytest.mark.parametrize("end", ["done", "failed", "expired", "cancelled", "declined"])
def test_the_hub_says_what_became_of_it_once(office: tuple[Filing, str], end: str) -> None:
    filing, study = office
    approved(filing, study)
    filing.heard(study, {}, end, None)
    assert filing.entry(study).state == end
    if end in ("done", "failed", "expired"):
        filing.heard(study, {}, "cancelled", None)
        assert filing.entry(study).state == end


def test_our_own_refusal_stays_ours(office: tuple[Filing, str]) -> None:
    filing, study = office
    filing.assessed(study, {"refused": "over budget"}, "refused", "the policy")
    filing.heard(study, {"bank": False}, "declined", None)
    assert filing.entry(study).state == "refused"
    assert filing.entry(study).answers == {"bank": False}


@pytest.fixture
def late(tmp_path: Path) -> tuple[Filing, str]:
    """An office with a yes to a proposal whose deadline was an hour ago."""
    circle = club(tmp_path / "club")
    made = datetime.now(UTC) - timedelta(days=1)
    proposal = Proposal.unpack(circle.packed(made=made, deadline=made + timedelta(hours=23)), circle.members)
    filing = Filing.open(tmp_path / "agent")
    study = filing.receive(proposal).id
    filing.assessed(study, {"refused": None}, "approved", "the policy, within its budget")
    return filing, study


def test_a_yes_ends(late: tuple[Filing, str]) -> None:
    filing, study = late
    assert filing.expire(GRACE) == [], "the hub may have waited for a place"
    assert not filing.begin(study, 1, "r", MOST, timedelta(minutes=59)), "though nobody has closed it yet"
    assert filing.entry(study).state == "approved"
    assert filing.expire(timedelta(minutes=59)) == ["a study"]
    assert filing.entry(study).state == "expired"
    assert not filing.begin(study, 1, "r", MOST, GRACE)
    filing.heard(study, {}, "running", None)
    assert filing.entry(study).state == "expired"


def test_a_yes_ends_between_attempts_and_the_hub_may_say_how_it_ended_elsewhere(late: tuple[Filing, str]) -> None:
    filing, study = late
    assert filing.begin(study, 1, "r", MOST, GRACE)
    assert filing.expire(timedelta(0)) == [], "what runs is not closed"
    filing.end(study, 1, "lost", None)
    assert not filing.begin(study, 2, "r", MOST, timedelta(0))
    assert filing.expire(timedelta(0)) == ["a study"]
    assert [(number, ended) for _, number, ended in filing.untold().outcomes] == [(1, "lost")]
    filing.heard(study, {}, "done", None)
    assert filing.entry(study).state == "done", "others finished while we were away"
    filing.heard(study, {}, "expired", None)
    assert filing.entry(study).state == "done"


@pytest.mark.parametrize("put_back", ["before the answers", "before the outcomes"])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_hub_that_was_put_back_is_told_again(tmp_path: Path, put_back: str, lost: int) -> None:
    """It finds the end that the study had, and no party is asked, or takes part, once more."""
    talk = Talk(tmp_path, overdue=10)
    study = talk.propose()
    proposal = Proposal.unpack(talk.desk.packed(study, "bank"), talk.club.members)
    parties = {name: Filing.open(tmp_path / name) for name in proposal.parties}
    for filing in parties.values():
        filing.receive(proposal)
        filing.assessed(study, {}, "approved", "eva")

    def tell() -> None:
        for name, filing in parties.items():
            left = filing.untold()
            for entry in left.answers:
                talk.answer(entry.id, name)
                filing.told_answer(entry.id)
            for told_of, number, ended in left.outcomes:
                talk.outcome(told_of, name, ended, number)
                filing.told_outcome(told_of, number)

    def copied() -> None:
        shutil.copytree(tmp_path / "hub", tmp_path / "copy")

    talk.after(seconds=1)
    if put_back == "before the answers":
        copied()
    tell()
    if put_back == "before the outcomes":
        copied()
    for number in range(1, lost + 2):
        for name, filing in parties.items():
            assert filing.begin(study, number, "r", MOST, timedelta(days=36500)), name
            filing.end(study, number, "lost" if number <= lost else "finished", None)
        tell()
        talk.outcome(study, "coordinator", "lost", number)
    assert talk.state(study) == ("done", lost + 1)
    shutil.rmtree(tmp_path / "hub")
    (tmp_path / "copy").rename(tmp_path / "hub")
    talk.restart()
    assert talk.state(study)[0] != "done"
    for _ in range(2 + 2 * lost):
        told = talk.desk.study(study, "ana")
        for name, filing in parties.items():
            filing.tell_again(study, name, told)
            filing.heard(study, told["answers"], told["state"], told["ended"])
        tell()
        if told["attempt"] and told["state"] == "running":
            talk.outcome(study, "coordinator", "lost", told["attempt"])
        talk.after(seconds=30)
    assert talk.state(study) == ("done", lost + 1)
    for filing in parties.values():
        assert not filing.begin(study, lost + 2, "r", MOST, timedelta(days=36500))
        filing.heard(study, {}, "failed", None)
        assert filing.entry(study).state == "done", "there is a result here, whatever a hub says"
