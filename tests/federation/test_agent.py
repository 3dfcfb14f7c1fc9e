"""An agent and its store: answers count once, nothing runs without a yes of our own, and nothing waits for the hub."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import shutil
import socket
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colonnade.cli import proposals
from colonnade.cli.proposals import lanes_in
from colonnade.console.party_pages import describe_needs
from colonnade.disk import writing
from colonnade.errors import BudgetError, ConnectError, FederationError, PolicyError, StorageError, StudyError
from colonnade.federation import agent as agents, agent_store, checks, store_file
from colonnade.federation.agent import Agent
from colonnade.federation.agent_store import AgentStore
from colonnade.federation.attempts import (
    AttemptRunner,
    FetchedResult,
    find_outcome,
    release_reservation,
    result_digest,
)
from colonnade.federation.hub_protocol import pack_files, read_answer, read_members
from colonnade.federation.hub_server import HubServer
from colonnade.federation.members import FederationMembers, MemberIdentity, RevokedKeys, accept_member
from colonnade.federation.monitoring import AgentMetrics
from colonnade.federation.processes import ProcessLimits
from colonnade.federation.statements import (
    STUDY_FILE,
    AttemptReport,
    Proposal,
    Withdrawal,
    format_moment,
    make_proposal,
    parse_deadline,
    proposal_id,
)
from colonnade.privacy import Ledger
from colonnade.privacy.ledger.approvers import ApprovalRule, Approver, ApproverKind
from colonnade.privacy.statement import LargestEpsilon, format_rounded_up
from colonnade.study import PartyConfig, Study
from colonnade.study.fork_server import ForkServer
from colonnade.study.record import write_facts
from colonnade.wire import Certificate, Identity
from tests.support.errors import raises
from tests.support.opened import watched
from tests.support.standing import ALIGNED, HUB, Standing, make
from tests.support.waiting import until

from .club import Club, Talk, club, identity, refused

MOST = 3
GRACE, LONG = timedelta(hours=12), timedelta(days=90)
HOUR, NOW = timedelta(hours=1), timedelta(0)
UNKNOWN = "ab" * 16
TWO = ApprovalRule(2)
FOR_ANALYST = "{ analyst = 0.5 }"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Standing:
    return make(tmp_path_factory.mktemp("three") / "f")


@pytest.fixture(scope="module")
def circle(tmp_path_factory: pytest.TempPathFactory) -> Club:
    return club(tmp_path_factory.mktemp("club"))


class Desk:
    """An store that receives proposals, as many as a test wants."""

    def __init__(self, folder: Path, circle: Club) -> None:
        self.filing, self.circle = AgentStore(folder), circle

    def asked(self, purpose: str = "to test", size: int = 0, analyst: str = "ana", ago: timedelta = NOW) -> Proposal:
        made = datetime.now(UTC) - ago
        files = {**self.circle.proposal(analyst=analyst).files, "more.toml": b"#" * size}
        said = {"purpose": purpose, "made": made, "deadline": made + HOUR, "files": files}
        return Proposal.unpack(self.circle.packed(analyst=analyst, **said), self.circle.members)

    def taken(self, purpose: str = "to test", state: str | None = None, size: int = 0) -> Path:
        """The folder of a proposal that an agent takes in; its analyst then cancels it, say."""
        proposal = self.asked(purpose, size)
        agent_store.make_room(self.filing, proposal)
        proposal.write(self.filing.folder / "studies" / proposal.id / "study", self.circle.members)
        entry = self.filing.receive(proposal)
        if state is not None:
            self.filing.record_hub_state(entry.id, {}, state)
        return entry.folder

    def waiting(self, ago: timedelta = NOW) -> str:
        study = self.filing.receive(self.asked(ago=ago)).id
        self.filing.record_assessment(study, {"refused": None}, "waiting", None)
        return study

    def begin(self, study: str, number: int = 1, grace: timedelta = GRACE) -> bool:
        return self.filing.start_attempt(study, number, f"{study}.{number}", MOST, grace)

    def state(self, study: str) -> str:
        return self.filing.entry(study).state


@pytest.fixture
def desk(tmp_path: Path, circle: Club) -> Desk:
    return Desk(tmp_path / "agent", circle)


# --- answers


def test_an_answer_counts_once_and_a_yes_can_be_withdrawn_until_the_study_has_ended(desk: Desk) -> None:
    store, study = desk.filing, desk.waiting()
    refused("OF006", store.withdraw, study, "eva", "second thoughts")
    assert store.approve(study[:8], Approver.at_terminal("eva")).state == "approved"
    for again in (lambda: store.approve(study, Approver.at_terminal("max")), lambda: store.decline(study, "max", "no")):
        refused(("OF007", "approved"), again)
    assert store.entry(study).answer_by == "eva at the command line"
    assert store.withdraw(study, "eva", "second thoughts").state == "cancelled"
    refused(("OF006", "cancelled"), store.withdraw, study, "eva", "again")
    entry = Desk(store.folder / "other", desk.circle)
    declined = entry.filing.decline(entry.waiting(), "eva", " not our\npurpose ")
    assert (declined.state, declined.answer_by, declined.why) == ("declined", "eva", "not our\ufffdpurpose")


@pytest.mark.parametrize(
    ("first", "second", "joins"),
    [("console", "console", True), ("terminal", "console", True), ("console", "terminal", False)],
)
def test_two_people_must_say_yes_where_the_policy_asks_for_two(
    desk: Desk, first: ApproverKind, second: ApproverKind, joins: bool
) -> None:
    store, study = desk.filing, desk.waiting()
    ada, bob = Approver("Ada", first, "127.0.0.1"), Approver("bob", second, "127.0.0.1")
    assert (store.approve(study, ada, TWO).state, store.unsent_answers()) == ("waiting", [])
    again = Desk.__new__(Desk)
    again.filing = AgentStore(store.folder)  # as after a restart
    for same in (ada, Approver("ADA", "console", "10.0.0.1"), replace(ada, place="another place")):
        refused(("OF780", "Ada"), again.filing.approve, study, same, TWO)
    if not joins:
        refused(("OF780", "Ada"), again.filing.approve, study, bob, TWO)
        bob = replace(bob, kind="console")
    assert again.filing.approve(study, bob, TWO).state == "approved"
    assert store.approvers(study) == (ada, bob)
    assert [entry.id for entry in store.unsent_answers()] == [study]


def test_two_of_those_whom_the_policy_lists_must_say_yes(desk: Desk) -> None:
    store, study, rule = desk.filing, desk.waiting(), ApprovalRule(2, ("Ada", "bob", "eva"))
    ada, eva = Approver("Ada", "console", "10.0.0.1"), Approver.at_terminal("eva")
    strangers = [
        Approver(who, kind, "") for who in ("Max", "ada", "the policy", "") for kind in ("console", "terminal")
    ]
    for stranger in (*strangers, Approver("bob", "program", ""), Approver("bob", "policy", "")):
        refused(("OF820", "two of Ada, bob, eva"), store.approve, study, stranger, rule)
    assert (store.approve(study, ada, rule).state, store.unsent_answers()) == ("waiting", [])
    for again in (ada, Approver.at_terminal("Ada"), replace(ada, place="another place")):
        refused(("OF780", "Ada"), store.approve, study, again, rule)
    assert store.approvers(study) == (ada,), "twice is once"
    assert store.approve(study, eva, rule).state == "approved"
    assert store.approvers(study) == (ada, eva)
    other = Desk(store.folder / "other", desk.circle)
    study = other.waiting()
    other.filing.approve(study, Approver("Max", "console", ""), TWO)
    assert other.filing.approve(study, ada, rule).state == "waiting", "who was taken off the list counts no more"
    assert other.filing.approve(study, eva, rule).state == "approved"


@pytest.mark.parametrize(
    "wrong", ["0", "3", "true", "1.0", '"Ada"', '["Ada"]', '["Ada", "ada"]', '["Ada", ""]', "[1, 2]"]
)
def test_who_approves_is_a_number_or_a_list_of_names(three: Standing, tmp_path: Path, wrong: str) -> None:
    def load(approvers: str, approval: str = "ask") -> PartyConfig:
        path, text = tmp_path / "party.toml", three.file("bank").read_text()
        said = f'[policy]\napprovers = {approvers}\napproval = "{approval}"'
        path.write_text(re.sub(r"\[policy\]", said, re.sub(r"(?m)^approval = .*$", "", text)))
        return PartyConfig.load(path)

    with raises(StudyError, "VA820"):
        load(wrong)
    for several in ("2", '["Ada", "Bob"]'):
        assert load(several).content.policy.rule.needed == 2
        with raises(StudyError, "VA780"):
            load(several, "auto-within-budget")


def test_the_terminals_name_is_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody else")
    assert Approver.at_terminal().who == pwd.getpwuid(os.getuid()).pw_name


def test_a_policy_says_no_yes_to_what_a_person_declined_and_counts_attempts_by_the_study(
    three: Standing, tmp_path: Path
) -> None:
    """The same study in other proposals, of which each has an id of its own; a changed one is another study."""
    path = three.of("bank") / f"{tmp_path.name}.toml"
    text = re.sub(r"(?m)^approval = .*$", 'approval = "auto-within-budget"', three.file("bank").read_text())
    path.write_text(text.replace('folder = "agent"', f'folder = "{tmp_path.name}"'))
    agent = Agent(path)
    store, most = agent.store, 1 + agent.config.agent_section.retries
    other = three.study_named("another study")

    def proposed(purpose: str, file: Path | None = None) -> str:
        asked = three.proposal(file, purpose)
        study = store.receive(Proposal.unpack(asked.pack(three.identity()), three.members())).id
        agent._decide(study, {"refused": None})
        return study

    def state(study: str) -> tuple[str, str]:
        entry = store.entry(study)
        return entry.state, (entry.assessment or {})["earlier"] or ""

    def begin(study: str, number: int) -> bool:
        return store.start_attempt(study, number, "room", most, GRACE)

    first, *more = (proposed(each) for each in "abcd")
    assert store.approvers(first) == (Approver("the policy, within its budget", "policy", path.name),)
    for study in (first, *more[:-1]):
        assert begin(study, 1), "all came in before any was tried"
        store.end_attempt(study, 1, "lost", None)
    assert len(more) == most
    assert not begin(first, 2), "a new id is no new attempt"
    assert not begin(more[-1], 1)
    again = proposed("e")
    assert state(again) == ("waiting", f"Attempts at this study that have no result, in all its proposals: {most}.")
    store.approve(again, Approver.at_terminal("eva"))
    assert begin(again, 1), "a person has seen that"
    store.end_attempt(again, 1, "finished", None)
    fresh = proposed("f")
    assert state(fresh) == ("approved", "")
    store.withdraw(fresh, "eva", "")
    declined = proposed("g")
    assert state(declined)[0] == "waiting"
    assert "said no" in state(declined)[1]
    store.decline(declined, "eva", "no")
    assert [state(proposed(each))[0] for each in "hi"] == ["waiting", "waiting"]
    assert state(proposed("j", other))[0] == "approved"


@pytest.mark.parametrize("state", ["checking", "refused", "declined", "running", "done", "failed", "cancelled", "late"])
def test_only_what_waits_is_approved(desk: Desk, state: str) -> None:
    study = desk.waiting(2 * HOUR if state == "late" else NOW)
    if state != "late":
        with desk.filing.file.writing() as file:
            file.execute("UPDATE studies SET state = ?", (state,))
    refused(("OF007", "expired" if state == "late" else ()), desk.filing.approve, study, Approver.at_terminal("eva"))
    assert desk.state(study) == ("waiting" if state == "late" else state)


def test_an_id_must_be_one_and_known_and_the_file_ours(tmp_path: Path, desk: Desk) -> None:
    for chosen in ("a" * 32, "ab" + "0" * 30):
        made = desk.taken(chosen).name
        with desk.filing.file.writing() as file:
            file.execute("UPDATE studies SET id = ? WHERE id = ?", (chosen, made))
    for prefix in ("", "b", "a", "../x", "A"):
        refused("OF*", desk.filing.entry, prefix)
    assert desk.filing.entry("ab").id.startswith("ab0")
    assert (len(desk.filing.entries()), desk.filing.entries(["running"])) == (2, [])
    assert desk.filing.status().pid is None, "no agent runs"
    (tmp_path / "agent.db").write_bytes(b"something else" * 100)
    with raises(StorageError, "SO036"):
        AgentStore(tmp_path)


# --- attempts


def test_nothing_runs_without_our_own_yes(desk: Desk) -> None:
    filing, study = desk.filing, desk.taken().name
    assert not desk.begin(study), "it is being checked"
    filing.record_assessment(study, {"refused": None}, "waiting", None)
    filing.record_hub_state(study, dict.fromkeys(("bank", "shop", "clinic"), True), "running")
    assert not desk.begin(study), "the hub says that all have agreed, and we have not"
    assert (filing.running_attempts(), filing.unsent_answers()) == ([], [])
    filing.approve(study, Approver.at_terminal("eva"))
    assert [entry.id for entry in filing.unsent_answers()] == [study]
    filing.mark_sent("answer", study)
    assert filing.unsent_answers() == []
    assert desk.begin(study)
    assert not desk.begin(study), "the same attempt again"
    assert not desk.begin("0" * 32), "a study that nobody knows"
    filing.withdraw(study, "eva", "second thoughts")
    assert [entry.id for entry in filing.unsent_withdrawals()] == [study]
    filing.record_hub_state(study, {}, "cancelled")
    assert filing.unsent_withdrawals() == []


def test_attempts_are_counted_and_end_with_a_result(desk: Desk) -> None:
    filing, study = desk.filing, desk.waiting()
    filing.approve(study, Approver.at_terminal("eva"))
    assert desk.begin(study)
    assert not desk.begin(study, 2), "the first one still runs"
    filing.end_attempt(study, 1, "lost", None)
    assert [each.id for each in filing.list_unfinished()] == [study]
    assert not desk.begin(study, MOST + 1), "more than we allow"
    assert desk.begin(study, 2)
    filing.end_attempt(study, 2, "finished", None)
    assert not desk.begin(study, 3), "there is a result"
    other = filing.receive(desk.asked("another")).id
    filing.record_assessment(other, {"refused": None}, "approved", "eva")
    assert desk.begin(other)
    filing.end_attempt(other, 1, "stopped", None)
    assert not desk.begin(other, 2), "it would stop for the same reason"
    assert [ended for told, _, ended in filing.unsent_outcomes() if told == study] == ["lost", "finished"]
    filing.mark_sent("outcome", other, 1)
    filing.mark_sent("outcome", study, 1)
    assert [number for _, number, _ in filing.unsent_outcomes()] == [2]
    assert [each.id for each in filing.list_unfinished()] == [other]


def test_nothing_but_a_hash_is_taken_for_that_of_a_result(tmp_path: Path) -> None:
    assert result_digest(tmp_path) is None
    for noted, taken in (("ab" * 32, "ab" * 32), ("ab", None), ("AB" * 32, None), (7, None), (None, None)):
        write_facts(tmp_path / "run.json", {"result": noted})
        assert result_digest(tmp_path) == taken


@pytest.mark.parametrize("end", ["done", "failed", "expired", "cancelled", "declined"])
def test_the_hub_says_what_became_of_it_once(desk: Desk, end: str) -> None:
    study, own = desk.waiting(), desk.taken("ours").name
    desk.filing.approve(study, Approver.at_terminal("eva"))
    desk.filing.record_assessment(own, {"refused": "over budget"}, "refused", "the policy")
    for each in (study, own):
        desk.filing.record_hub_state(each, {"bank": False}, end)
    assert (desk.state(study), desk.state(own)) == (end, "refused"), "our own refusal stays ours"
    assert desk.filing.entry(own).answers == {"bank": False, "shop": None, "clinic": None}
    assert desk.filing.entry(study).said_by_hub == (end != "declined"), "the bank has signed its no"
    if end in ("done", "failed", "expired"):
        desk.filing.record_hub_state(study, {"bank": True, "eve": True}, "cancelled")
        assert desk.state(study) == end
        desk.filing.record_hub_state(study, {"bank": None}, "cancelled")
        assert desk.filing.entry(study).answers == {"bank": True, "shop": None, "clinic": None}, "once proven, always"


@pytest.mark.parametrize("end", ["done", "failed", "expired", "cancelled", "declined"])
def test_what_our_own_person_decided_stays_whatever_a_hub_says(desk: Desk, end: str) -> None:
    filing, declined, yes = desk.filing, desk.waiting(), desk.filing.receive(desk.asked("a yes")).id
    withdrawn = filing.receive(desk.asked("another")).id
    for study in (yes, withdrawn):
        filing.record_assessment(study, {"refused": None}, "approved", "eva")
    filing.decline(declined, "eva", "")
    filing.withdraw(withdrawn, "eva", "")
    for study in (declined, withdrawn, yes):
        filing.record_hub_state(study, {}, end)
    assert (desk.state(declined), desk.state(withdrawn)) == ("declined", "cancelled")
    assert [filing.entry(study).state_by for study in (declined, withdrawn, yes)] == ["us", "us", "the hub"]
    assert [entry.id for entry in filing.unsent_answers()] == [declined], "no word of ours is made of the hub's"


def test_when_a_study_ended_is_not_the_hubs_word(desk: Desk) -> None:
    study, long_ago = desk.waiting(), "2000-01-01T00:00:00.000+00:00"
    agent = Agent.__new__(Agent)
    agent.store, agent._ahead, agent._running = desk.filing, {}, {}
    agent.config = SimpleNamespace(name="bank")  # type: ignore[assignment]
    told = {"id": study, "state": "cancelled", "answers": {}, "attempt": 0, "room": None, "ended": long_ago}
    agent._process_news({"studies": [told]})
    first = desk.filing.entry(study).ended
    assert first
    assert datetime.fromisoformat(first) > datetime.now(UTC) - HOUR
    agent._process_news({"studies": [told]})
    assert desk.filing.entry(study).ended == first, "when we first heard of it"


def test_a_yes_ends(desk: Desk) -> None:
    filing, study = desk.filing, desk.filing.receive(desk.asked(ago=2 * HOUR)).id
    other = desk.filing.receive(desk.asked("runs between", ago=2 * HOUR)).id
    for each in (study, other):
        filing.record_assessment(each, {"refused": None}, "approved", "the policy, within its budget")
    assert desk.begin(other)
    assert filing.expire(GRACE) == [], "the hub may have waited for a place"
    assert not desk.begin(study, grace=timedelta(minutes=59)), "though nobody has closed it yet"
    assert desk.state(study) == "approved"
    assert filing.expire(timedelta(minutes=59)) == ["a study"], "what runs is not closed"
    assert not desk.begin(study)
    filing.record_hub_state(study, {}, "running")
    assert desk.state(study) == "expired"
    filing.end_attempt(other, 1, "lost", None)
    assert not desk.begin(other, 2, NOW)
    assert filing.expire(NOW) == ["a study"]
    assert [(number, ended) for _, number, ended in filing.unsent_outcomes()] == [(1, "lost")]
    for said in ("done", "expired"):
        filing.record_hub_state(other, {}, said)
        assert desk.state(other) == "done", "others finished while we were away"


@pytest.mark.parametrize("put_back", ["before the answers", "before the outcomes"])
def test_a_hub_that_was_put_back_is_told_again(tmp_path: Path, put_back: str) -> None:
    """It finds the end that the study had, after an attempt that was lost, and no party is asked once more."""
    talk, ever = Talk(tmp_path, overdue=10), timedelta(days=36500)
    study = talk.propose()
    proposal = Proposal.unpack(talk.desk.signed_proposal(study, "bank"), talk.club.members)
    parties = {name: AgentStore(tmp_path / name) for name in proposal.parties}
    for filing in parties.values():
        filing.receive(proposal)
        filing.record_assessment(study, {}, "approved", "eva")

    def tell() -> None:
        for name, filing in parties.items():
            for entry in filing.unsent_answers():
                talk.answer(entry.id, name)
                filing.mark_sent("answer", entry.id)
            for told_of, number, ended in filing.unsent_outcomes():
                talk.outcome(told_of, name, ended, number)
                filing.mark_sent("outcome", told_of, number)

    talk.after(seconds=1)
    if put_back == "before the outcomes":
        tell()
    shutil.copytree(tmp_path / "hub", tmp_path / "copy")
    tell()
    for number, ended in ((1, "lost"), (2, "finished")):
        for filing in parties.values():
            assert filing.start_attempt(study, number, "r", MOST, ever)
            filing.end_attempt(study, number, ended, None)
        tell()
        talk.outcome(study, "coordinator", "lost", number)
    assert talk.state(study) == ("done", 2)
    shutil.rmtree(tmp_path / "hub")
    (tmp_path / "copy").rename(tmp_path / "hub")
    talk.restart()
    assert talk.state(study)[0] != "done"
    for _ in range(4):
        told = talk.desk.study(study, "ana")
        for name, filing in parties.items():
            filing.resend_forgotten(study, name, told)
            filing.record_hub_state(study, told["answers"], told["state"])
        tell()
        if told["attempt"] and told["state"] == "running":
            talk.outcome(study, "coordinator", "lost", told["attempt"])
        talk.after(seconds=30)
    assert talk.state(study) == ("done", 2)
    for filing in parties.values():
        assert not filing.start_attempt(study, 3, "r", MOST, ever)
        filing.record_hub_state(study, {}, "failed")
        assert filing.entry(study).state == "done", "there is a result here, whatever a hub says"


# --- what is kept


def test_propose_and_cancel_fills_nobodys_disk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_store, "MAX_KEPT_BYTES", 500_000)
    folders = [desk.taken(f"number {number}", "cancelled", 100_000) for number in range(12)]
    kept = [folder for folder in folders if folder.exists()]
    assert kept == folders[-len(kept) :], "the oldest go first"
    assert 2 <= len(kept) <= 4
    assert len(desk.filing.entries()) == 12, "the rows stay"
    waiting = desk.taken("this one waits", size=300_000)
    refused("FE087", desk.taken, "one too many", size=300_000)
    assert (waiting / "study" / STUDY_FILE).exists(), "what has not ended loses nothing"


def test_proposals_of_one_analyst_are_counted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_store, "MAX_OPEN", 2)
    monkeypatch.setattr(agent_store, "MAX_A_DAY", 4)
    opened = [desk.taken(f"open {number}").name for number in range(2)]
    refused("FE086", desk.taken, "a third")
    agent_store.make_room(desk.filing, desk.asked("of somebody else", analyst="bank"))
    for study in opened:
        desk.filing.record_hub_state(study, {}, "cancelled")
    for number in range(2):
        desk.taken(f"more {number}", "cancelled")
    refused(("FE086", "4"), desk.taken, "a fifth")


@pytest.mark.parametrize("end", ["done", "failed"])
def test_what_runs_keeps_its_files_and_can_be_ended_whatever_the_hub_says(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    filing, folder, proposal = desk.filing, desk.taken(size=100_000), desk.asked("another", 100_000)
    filing.record_assessment(folder.name, {"refused": None}, "approved", "eva")
    assert desk.begin(folder.name)
    filing.record_hub_state(folder.name, {}, end)
    assert filing.entry(folder.name).ended > format_moment(datetime.now(UTC) - HOUR)
    assert agent_store.prune(filing, NOW) == 0
    monkeypatch.setattr(agent_store, "MAX_KEPT_BYTES", 150_000)
    refused("FE087", agent_store.make_room, filing, proposal)
    assert (folder / "study" / STUDY_FILE).exists()
    assert filing.withdraw(folder.name, "eva", "it runs on").state_by == "us"
    refused("OF006", filing.withdraw, folder.name, "eva", "again")
    filing.end_attempt(folder.name, 1, "stopped", None)
    agent_store.make_room(filing, proposal)
    assert not folder.exists()


def test_files_go_after_some_days_and_results_never(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, failed, done = (desk.taken(purpose, "cancelled") for purpose in ("gone", "failed", "done"))
    for folder in (failed, done):
        (folder / "attempts" / "1").mkdir(parents=True)
    (done / "attempts" / "1" / "model.json").write_text("{}")
    still = desk.taken("still open")
    assert desk.filing.known_ids([still.name, "0" * 64]) == {still.name}
    assert desk.filing.count_proposed_by("ana", "") == (1, 4)
    assert [agent_store.prune(desk.filing, age) for age in (LONG, NOW, NOW)] == [0, 2, 0]
    assert [folder.exists() for folder in (gone, failed, done, still)] == [False, False, True, True]
    monkeypatch.setattr(agent_store, "MAX_ENDED", 2)
    many = [desk.taken(f"many {number}", "cancelled") for number in range(5)]
    assert agent_store.prune(desk.filing, LONG) == 3
    assert sum(folder.exists() for folder in many) == 2
    assert done.exists()


# --- what a person types


@pytest.fixture
def waiting(three: Standing, tmp_path: Path) -> tuple[AgentStore, str, Path]:
    proposal, cost = make_proposal(
        three.study, three.members(), "ana", "<b>why</b>\x1b[31m\nspent 0", parse_deadline("1h")
    )
    party = three.of("bank") / f"{tmp_path.name}.toml"
    party.write_text(three.file("bank").read_text().replace('folder = "agent"', f'folder = "{tmp_path.name}"'))
    store = AgentStore(party.parent / tmp_path.name)
    study = store.receive(Proposal.unpack(proposal.pack(three.identity()), three.members())).id
    found = {"statement": cost.statement.to_dict(), "text": str(cost.statement), "refused": None}
    left = {"observer": "analyst", "cap": 3.0, "delta": 1e-5, "period": None, "spent": 0.0, "after": 0.5}
    store.record_assessment(study, found | {"left": [left]}, "waiting", None)
    return store, study, party


def test_the_table_has_state_price_and_who_is_waited_for(
    waiting: tuple[AgentStore, str, Path], in_this_process: Command
) -> None:
    store, study, party = waiting
    code, text, _ = in_this_process("federation", "studies", party)
    assert (code, "not connected: no agent runs" in text) == (0, True)
    row = next(line for line in text.splitlines() if line.startswith(study[:8]))
    (told,) = json.loads(in_this_process("federation", "studies", party, "--json")[1])["studies"]
    assert (told["state"], told["waited_for"]) == ("waiting", ["bank", "shop", "clinic"])
    largest = LargestEpsilon.parse(store.entry(study).assessment["statement"])  # type: ignore[index]
    figures = told["price"]["figures"]
    assert [each["epsilon"] for each in figures] == [row.epsilon for row, _ in largest.figures]
    assert ", ".join(f"{format_rounded_up(each['epsilon'], 3)} ({each['who']})" for each in figures) in row
    assert told["price"]["no_promise_against"] == [row.observer.label for row in largest.beyond]


def test_approve_shows_the_price_and_wants_a_clear_yes(
    waiting: tuple[AgentStore, str, Path], in_this_process: Command
) -> None:
    store, study, party = waiting
    code, text, error = in_this_process("federation", "approve", party, study[:6])
    assert (code, store.entry(study).state) == (14, "waiting")
    assert "spent 0.0000, after it 0.5000, of 3" in text
    assert "\x1b" not in text, "what others wrote moves no cursor"
    assert "\nspent 0" not in text, "and begins no line"
    assert "--yes" in error
    assert in_this_process("federation", "approve", party, study[:6], "--yes")[0] == 0
    entry = store.entry(study)
    assert (entry.state, (entry.answer_by or "").endswith("at the command line")) == ("approved", True)
    assert [(click.what, click.study) for click in store.audit.latest()] == [("approve", study)]
    code, _, error = in_this_process("federation", "decline", party, study[:6], "--why", "too late")
    assert (code, "is approved" in error) == (19, True)
    assert in_this_process("federation", "cancel", party, study[:6], "--why", "second thoughts")[0] == 0
    assert store.entry(study).state == "cancelled"


def test_logs_show_every_attempt_in_order(waiting: tuple[AgentStore, str, Path], in_this_process: Command) -> None:
    store, study, party = waiting
    store.approve(study, Approver.at_terminal("eva"))
    assert store.start_attempt(study, 1, "room", 3, GRACE)
    folder = store.attempts(study)[0].folder
    folder.mkdir(parents=True)
    when = "2030-01-01T10:11:{}.000+00:00"
    noted = [{"time": when.format(at), "what": what} for at, what in ((12, "connected"), (14, "revealed"))]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in noted) + '{"time": ')
    here = {"rounds": 3, "bytes": 2500, "here": ["shop"], "waited_for": ["clinic"]}
    said = {"time": when.format(13), "presence": here}
    (folder / "output.jsonl").write_text(f"begins\n{json.dumps(said)}\na line of a log\n")
    store.end_attempt(study, 1, "lost", None)
    store.record_hub_state(study, {}, "failed")
    code, text, _ = in_this_process("federation", "logs", party, study[:6], "-f")
    assert code == 0
    assert [line.split(maxsplit=1)[1] for line in text.splitlines()] == [
        "begins",
        "10:11:12  connected",
        "10:11:13  here: shop; 3 rounds, 2.5 kB",
        "a line of a log",
        "10:11:14  revealed",
    ]
    code, _, error = in_this_process("federation", "result", party, study[:6])
    assert (code, "there is no result here" in error) == (19, True)


def test_nothing_runs_where_a_result_lies(waiting: tuple[AgentStore, str, Path]) -> None:
    """Also where the agent's store was put back from a backup, and knows of no attempt."""
    store, study, party = waiting
    entry = store.approve(study, Approver.at_terminal("eva"))
    there = entry.folder / "attempts" / "1"
    there.mkdir(parents=True)
    (there / "model.json").write_text("{}")
    attempts = AttemptRunner(store, party, AgentMetrics(), ForkServer())
    members = FederationMembers.load(party.parent / "FEDERATION.toml")
    assert not attempts.start(entry, 2, f"{study}.2", PartyConfig.load(party), members)
    assert (len(attempts), store.attempts(study)) == (0, [])


@pytest.mark.parametrize("who", ["shop", "ana"])
@pytest.mark.parametrize("now", ["another key", "none"])
def test_nothing_runs_whose_keys_are_others_than_when_it_was_approved(
    three: Standing, waiting: tuple[AgentStore, str, Path], who: str, now: str
) -> None:
    store, study, party = waiting
    entry = store.approve(study, Approver.at_terminal("eva"))
    members, attempts = three.members("bank"), AttemptRunner(store, party, AgentMetrics(), ForkServer())
    three.proposal(three.study).write(entry.folder / "study", members)
    members.check_keys(map(Certificate.load, (entry.study_file.parent / "certs").glob("*.crt")))
    keys = {**members.certificates, who: Identity.create(who).certificate}
    if now == "none":
        del keys[who]
    attempts.start(entry, 1, f"{study}.1", PartyConfig.load(party), replace(members, certificates=keys))
    (found,) = store.attempts(study)
    assert (len(attempts), found.state) == (0, "stopped")
    assert found.message.startswith(f"the key of {who} was called back or is another")
    assert "FE803" in found.message


@pytest.mark.parametrize("who", ["agent", "hub"])
def test_a_second_one_of_a_folder_serves_nothing(
    waiting: tuple[AgentStore, str, Path], three: Standing, in_this_process: Command, who: str
) -> None:
    """Its console has the port of the first one, which is not what is wrong."""
    store, _, party = waiting
    folder = store.folder if who == "agent" else HubServer(three.file(HUB)).folder
    with socket.create_server(("127.0.0.1", 0)) as taken, writing.lock_folder(folder):
        address = f'console = "127.0.0.1:{taken.getsockname()[1]}"\n'
        path = three.file(HUB).with_name("SECOND.toml")
        path.write_text(three.file(HUB).read_text() + address)
        party.write_text(party.read_text().replace("console = false\n", address))
        code, text, error = in_this_process("federation", who, party if who == "agent" else path)
    assert (code, text) == (26, "")
    assert "another agent or hub works in" in error


def test_what_cannot_be_done_is_said_in_a_sentence(three: Standing, in_this_process: Command) -> None:
    federation = ("--federation", three.file("ana"), "--key", three.key("ana"))
    for expected, sentence, words in (
        (19, "start `colonnade federation agent", ("federation", "studies", three.file("shop"))),
        (26, "--federation", ("federation", "studies")),
        (26, "no deadline", ("federation", "propose", three.study, *federation, "--deadline", "soon")),
    ):
        code, _, error = in_this_process(*words)
        assert (code, sentence in error) == (expected, True), error
    for text, seconds in {"30m": 1800, "12h": 43_200, "7d": 604_800}.items():
        assert abs((parse_deadline(text) - datetime.now(UTC)).total_seconds() - seconds) < 600


# --- the check of a proposal


class Written:
    """A proposed study as an agent writes it down."""

    def __init__(self, three: Standing, folder: Path, study: Path | None = None) -> None:
        self.proposal = three.proposal(study or three.study_named("survey", budget=FOR_ANALYST, more=ALIGNED))
        self.path = self.proposal.write(folder, three.members())
        self.said = {"name": self.proposal.name, "digest": self.proposal.digest}

    def assessed(self, config: PartyConfig) -> tuple[dict[str, Any], Study | None]:
        return checks.assess(self.path, config, **self.said)


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
    assert checks.private_forecast(study, config)["people"] == config.count_rows(study.schemas["bank"]) == 60
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


def test_a_member_with_another_key_goes_on_under_its_first_one_in_the_ledger(tmp_path: Path) -> None:
    three = make(tmp_path / "f")
    config, members, file = three.config("bank"), three.members(), three.of("bank") / "FEDERATION.toml"

    def study(*renewed: str) -> Study:
        keys = {name: new[name].certificate if name in renewed else old for name, old in members.certificates.items()}
        others = replace(members, certificates=keys)
        proposal, _ = make_proposal(three.study, others, "ana", "", parse_deadline("1h"))
        return Study.load(proposal.write(tmp_path / "-".join(("with", *renewed)), others))

    new = {name: Identity.create(name) for name in ("shop", "clinic")}
    accept_member(file, MemberIdentity("shop", "party", new["shop"].certificate))
    book, first, others = config.open_ledger(), study(), study("shop", "clinic")
    assert config.ledger_keys(others)["shop"] == first.keys()["shop"]
    for each in (first, others):
        asked = each.name, each.digest, config.charged_events(each), each.trust, (), (), config.ledger_keys(each)
        book.mark_sent(book.reserve(*asked))
    spent = {each.who.partition(" (")[0]: each.spent for each in config.remaining() if each.who != "others"}
    seen = Counter(each.who.partition(" (")[0] for each in config.remaining())
    assert (seen["shop"], seen["clinic"]) == (1, 2), "whom nobody has accepted with another key is somebody else"
    assert spent["shop"] == spent["bank"] > spent["clinic"]
    accept_member(file, MemberIdentity("shop", "party", Identity.create("shop").certificate))
    assert config.ledger_keys(others)["shop"] == first.keys()["shop"], "nor is one between forgotten"
    file.write_text("[")
    with raises(StudyError, "ST800"):
        config.check_budget(first)


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
    spent = {each.who: each.spent for each in book.remaining(watched.caps)}
    assert spent["analyst at the hub"] == pytest.approx(price["coordinator"])


@pytest.mark.system
def test_a_child_checks_it_within_its_limits(three: Standing, tmp_path: Path) -> None:
    asked = Written(three, tmp_path / "study")

    def checked(memory: int) -> dict[str, Any]:
        place = tmp_path / str(memory)
        child = checks.start_check(asked.path, three.file("clinic"), asked.said, place, ProcessLimits(memory, 300))
        until(lambda: child.poll() is not None, "the check ended")
        return checks.read_check(place)

    found = checked(4 * 10**9)
    assert (found["refused"], found["people"], "new" in found["schema_news"]) == (None, None, True)
    assert "within the memory and time" in checked(10**8)["refused"]


def test_a_study_in_lanes_is_checked_as_any_other_and_the_table_decides_nothing(
    three: Standing, tmp_path: Path
) -> None:
    """A check may not tell the analyst anything about the table: not even that it cannot be read."""
    lanes, config = f"{ALIGNED}\n[lanes]\npartitions = 4\n", three.config("shop")
    (three.of("shop") / "shop.csv").write_bytes(b"\xff\x00 no table at all")
    found, study = Written(three, tmp_path, three.study_named("lanes", more=lanes)).assessed(config)
    assert (found["refused"], found["people"], found["preflight"]["partitions"]) == (None, None, 4)
    assert checks.private_forecast(study, config)["people"] is None
    assert ("Partitions, added up by our workers", "4") in describe_needs(found)
    assert lanes_in(found) == "lanes: people are added up in 4 partitions, by workers of everybody"
    with raises(StudyError, "FE067", "hubs.toml"):
        three.proposal(three.study_named("hubs", more=f'{lanes}[coordinator]\naddress = "h:1"\nhubs = ["h:2"]\n'))


def test_a_check_says_the_same_whatever_table_there_is_and_opens_none(
    three: Standing, tmp_path: Path, in_this_process: Command
) -> None:
    """Else the analyst would know how long the table takes to count, or that there is none, without anybody's yes."""
    asked, place = Written(three, tmp_path / "study"), three.of("bank")
    (place / "long.csv").write_text("person_id,first,second\n" + "p,0.5,0.5\n" * 100_000)
    os.mkfifo(place / "pipe.csv")
    told, party, said = [], place / "other.toml", [f"--{key}={value}" for key, value in asked.said.items()]
    for name in ("bank", "long", "pipe", "away"):
        party.write_text(three.file("bank").read_text().replace('"bank.csv"', f'"{name}.csv"'))
        with watched(place) as opened:
            code, text, _ = in_this_process("_assess", asked.path, party, *said)
            told.append(json.loads(text)["assessment"])
            assert told[-1]["preflight"].pop("seconds") > 0, "by the speed of this machine now"
            assert (code, told[-1]["refused"], told[-1]) == (0, None, told[0])
            assert {"other.toml", f"{name}.csv"} & opened.names == {"other.toml"}


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
    assert find_outcome(tmp_path, 13) == ("stopped", "no such file"), "before the record began"
    (tmp_path / "output.jsonl").unlink()
    failed = {"status": "failed", "exit_code": exit_code, "message": "why"}
    if exit_code is not None:  # there is a record, of a run that failed or that was going on
        (tmp_path / "run.json").write_text(json.dumps(failed if exit_code else {"status": "running"}))
    assert find_outcome(tmp_path, status)[0] == ended
    (tmp_path / "model.json").write_text("{}")
    assert find_outcome(tmp_path, status)[0] == "finished", "whoever has the result has finished"


def test_a_reservation_is_given_back_only_if_nothing_had_left(three: Standing, tmp_path: Path) -> None:
    study = Study.load(Written(three, tmp_path / "study").path)
    three.change("clinic", 'ledger = "ledger.sqlite"', 'ledger = "other.sqlite"')
    config = three.config("clinic")
    book = config.open_ledger()

    def reserved() -> tuple[Path, Any]:
        entry = book.reserve(study.name, study.digest, study.events, study.trust, config.caps, early=config.failures)
        folder = tmp_path / str(entry.id)
        folder.mkdir()
        (folder / "events.jsonl").write_text(json.dumps({"what": "budget reserved", "entry": entry.id}) + "\n{")
        return folder, entry

    (kept, sent), (back, _) = reserved(), reserved()
    book.mark_sent(sent)
    assert not release_reservation(config, kept), "shares had left"
    assert [release_reservation(config, back), release_reservation(config, back)] == [True, False], "once"
    assert not release_reservation(config, tmp_path), "nothing was reserved"
    assert [entry.state for entry in book.entries()] == ["sent", "released"]


# --- before a hub that takes its time


class SlowHub:
    """What a hub would answer; its ``proposal`` does not answer before ``answers`` is set."""

    def __init__(self) -> None:
        self.studies: list[dict[str, Any]] = []
        self.proposals: dict[str, bytes] = {}
        self.asked, self.answers, self.changed = threading.Event(), threading.Event(), threading.Event()
        self.waits: list[float] = []
        self.told: list[AttemptReport] = []
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

    def result(self, study: str) -> FetchedResult:
        self.handed_out += 1
        return FetchedResult(study, self.files, self.finished)

    def members(self) -> Any:
        raise FederationError("nobody is named")

    def tell(self, statement: object) -> None:
        if isinstance(statement, AttemptReport):
            self.told.append(statement)


class Working:
    """The bank's agent in a thread, before a slow hub, and a study that may be proposed to it."""

    def __init__(self, three: Standing, folder: Path) -> None:
        self.hub, self.three, self.folder = SlowHub(), three, folder
        proposal = three.proposal(three.study_named(f"for {folder.name}"))
        raw = proposal.pack(three.identity())
        self.study = Proposal.unpack(raw, three.members())
        self.hub.proposals[self.study.id] = raw
        self.changed: dict[str, str] = {}  # in its party file

    def party(self) -> Path:
        """Its party file."""
        path = self.three.file("bank").with_name(f"{self.folder.name}.toml")
        text = self.three.file("bank").read_text()
        for old, new in {'"agent"': f'"{self.folder}"', **self.changed}.items():
            assert old in text
            text = text.replace(old, new)
        path.write_text(text)
        return path

    @contextmanager
    def agent(self, begun: bool = False) -> Iterator[Agent]:
        """``begun``: with a first attempt of the study."""
        found = Agent(self.party())
        thread = threading.Thread(target=found.run)
        thread.start()
        try:
            until(lambda: found.store.status().connected)
            if begun:
                self.study.write(found.store.folder / "studies" / self.study.id / "study", self.three.members())
                found.store.receive(self.study)
                found.store.record_assessment(self.study.id, {"refused": None}, "approved", "Ada")
                assert found.store.start_attempt(self.study.id, 1, f"{self.study.id}.1", 3, timedelta(hours=1))
            yield found
        finally:
            found.stop()
            self.hub.answers.set()
            thread.join(180)
            assert not thread.is_alive()


@pytest.fixture
def bank(three: Standing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Working:
    found = Working(three, tmp_path)
    monkeypatch.setattr(agents, "FederationClient", lambda *_: nullcontext(found.hub))
    return found


@pytest.mark.parametrize("approval", ["ask", "auto-within-budget"])
def test_a_table_is_opened_once_a_person_or_the_policy_has_approved(bank: Working, approval: str) -> None:
    hub, study = bank.hub, bank.study.id
    hub.answers.set()
    bank.changed = {'approval = "ask"': f'approval = "{approval}"'}
    with watched(bank.three.of("bank")) as opened, bank.agent() as agent:
        hub.say(study, "open")
        until(lambda: agent.store.known_ids([study]) and agent.store.entry(study).state in ("waiting", "approved"))
        assert (agent.store.entry(study).assessment or {})["refused"] is None
        assert "bank.csv" not in opened.names
        if approval == "ask":
            agent.store.approve(study, Approver("Ada", "console", "127.0.0.1"))
        hub.say(study, "running", 1)
        hub.studies[0] |= {"room": f"{study}.1", "answers": {"shop": True}}
        until(lambda: agent.store.entry(study).answers["shop"])
        assert not agent._may_begin(agent.store.entry(study)), "the clinic has signed no yes, whatever the hub says"
        hub.studies[0]["answers"] = {"shop": True, "clinic": True}
        until(lambda: "bank.csv" in opened.names, "the attempt to read the table")


def test_whom_a_hub_named_once_leaves_no_file_here(bank: Working) -> None:
    agent, ours = Agent(bank.party()), bank.three.members()
    bank.hub.notices = list  # type: ignore[attr-defined]
    for name in ("one", "two"):
        named = ours.with_member(identity(name).certificate, "party")
        bank.hub.members = lambda named=named: named  # type: ignore[method-assign]
        agent._sync._compare_members()
        kept = {path.stem for path in (agent.folder / "offered" / "certs").glob("*.crt")}
        assert kept == {*ours.certificates, name}
    raw = pack_files({"name": "x", "address": "h:1", "roles": {"bank": "party"}}, {"bank": b"#" * 20_000})
    refused("FE065", read_members, ours, *read_answer(raw))


def test_a_withdrawal_is_acted_on_while_the_hub_keeps_us_waiting(bank: Working) -> None:
    hub, study, stopped = bank.hub, bank.study.id, threading.Event()
    runs = {"overran": False, "poll": lambda: 1 if stopped.is_set() else None}  # until it is stopped
    child = SimpleNamespace(**runs, ask_to_stop=stopped.set, stop=stopped.set)
    with bank.agent(begun=True) as agent:
        agent._attempts._children[study, 1] = child  # type: ignore[assignment]
        hub.say(UNKNOWN, "open")
        assert hub.asked.wait(60), "the agent asks for what it does not know"
        agent.store.withdraw(study, "Ada", "enough")
        assert stopped.wait(60), "and ends what a person wants to end before the hub has answered"
        until(lambda: agent.store.attempts(study)[0].state == "stopped")
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
        until(lambda: agent.store.known_ids([study]) and agent.store.entry(study).state == "cancelled")


def test_an_agent_that_cannot_listen_any_more_ends_with_the_error(bank: Working) -> None:
    def news(since: int, wait: float) -> dict[str, Any]:
        raise OverflowError("date value out of range")

    bank.hub.news = news  # type: ignore[method-assign]
    agent = Agent(bank.party())
    late = threading.Timer(60, agent.stop)
    late.start()
    with pytest.raises(OverflowError):
        agent.run()
    late.cancel()


def test_a_result_of_the_hubs_own_making_is_not_taken_and_one_that_a_party_signed_is(
    bank: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_RESULT_PAUSES", (0.01,) * 100_000)
    hub, study = bank.hub, bank.study.id
    hub.files = {"model.json": b'{"forged": true}', "report.html": b"<h1>forged</h1>"}
    with bank.agent(begun=True) as agent:
        agent.store.end_attempt(study, 1, "lost", None)
        hub.say(study, "done", 1)
        until(lambda: hub.handed_out > 2)
        place = agent.store.entry(study).folder / "result"
        assert not place.exists()
        assert agent.store.report(study) is None

        def signed(who: str, content: bytes, lost: tuple[str, ...] = ()) -> bytes:
            result = hashlib.sha256(content).hexdigest()
            told = AttemptReport(study, 1, who, "finished", datetime.now(UTC), result, lost=lost)
            return told.pack(bank.three.identity(who))

        planted = signed("shop", hub.files["model.json"])
        claims = signed("shop", hub.files["model.json"], ("clinic",))
        for finished in ([planted], [claims], [planted, signed("clinic", b"{}")]):
            hub.finished, before = finished, hub.handed_out
            until(lambda before=before: hub.handed_out > before + 2)
            assert not place.exists(), "the hub and one party"
        assert agent.store.entry(study).said_by_hub, "done, as the hub says"
        place.mkdir()  # as if the machine had lost its power while the folder was written
        hub.files, hub.finished = {"model.json": b"{}"}, [signed("shop", b"{}"), signed("clinic", b"{}")]
        until((place / "model.json").exists)
        assert not agent.store.entry(study).said_by_hub
    ours = [told for told in hub.told if told.ended == "finished"]
    assert {told.result for told in ours} == {hashlib.sha256(b"{}").hexdigest()}, "whoever asks next needs our name"


def test_who_was_lost_stands_in_what_a_party_signs(bank: Working) -> None:
    with bank.agent(begun=True) as agent:
        folder = agent.store.attempts(bank.study.id)[0].folder
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"result": "0" * 64, "lost": ["clinic"]}))
        agent.store.end_attempt(bank.study.id, 1, "finished", None)
        until(lambda: bank.hub.told)
    assert [(told.ended, told.lost) for told in bank.hub.told] == [("finished", ("clinic",))]


def test_an_analyst_takes_no_model_of_the_hub_and_one_party(
    three: Standing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are all that signs; the hub says that nobody else takes part, or sends the proposal of another study."""
    raw, other = (three.proposal(purpose=purpose).pack(three.identity()) for purpose in ("one", "another"))
    study, model, where = proposal_id(raw), b'{"forged": true}', tmp_path / "result"
    hers = Path(shutil.copytree(three.of("ana"), tmp_path / "ana")) / "FEDERATION.toml"

    def signed(who: str, lost: tuple[str, ...] = ()) -> bytes:
        result = hashlib.sha256(model).hexdigest()
        told = AttemptReport(study, 1, who, "finished", datetime.now(UTC), result, lost=lost)
        return told.pack(three.identity(who))

    def fetch(finished: list[bytes], named: list[str], proposal: bytes = raw, key: Path | None = None) -> None:
        line = SimpleNamespace(
            studies=lambda: [{"id": study, "name": "x", "parties": named}],
            proposal=lambda _: proposal,
            result=lambda _: FetchedResult(study, {"model.json": model}, finished),
        )
        monkeypatch.setattr(proposals, "FederationClient", lambda *_: nullcontext(line))
        proposals.result([study], where, False, hers, key or three.key("ana"), True)

    monkeypatch.setattr(proposals, "_SIGNED_SECONDS", 0.0)
    everybody = ["bank", "shop", "clinic"]
    for finished, named in (
        ([signed("bank")], everybody),
        ([signed("bank")], ["bank", "coordinator"]),
        ([signed("bank", ("clinic", "shop"))], everybody),
        ([signed("bank"), signed("shop", ("clinic",))], ["bank", "shop"]),
    ):
        refused(("FE041", "clinic"), fetch, finished, named)
    refused("FE721", fetch, [signed(who) for who in everybody], everybody, other)
    assert not where.exists()
    fetch([signed(who) for who in everybody], everybody)
    assert (where / "model.json").read_bytes() == model
    accept_member(hers, MemberIdentity("shop", "party", Identity.create("shop").certificate))
    RevokedKeys(revoked=frozenset([three.identity("bank").certificate.key_fingerprint])).save(hers.parent)
    where = tmp_path / "later"
    capsys.readouterr()
    fetch([signed(who) for who in everybody], everybody)
    told = json.loads(capsys.readouterr().out)
    assert told["revoked"] == ["bank"], "what was signed before stays verified"
    assert told["former"] == {"shop": three.identity("shop").fingerprint}
    fresh, where = Identity.create("ana"), tmp_path / "then"
    accept_member(hers, MemberIdentity("ana", "analyst", fresh.certificate))
    fresh.save(tmp_path / "fresh")
    fetch([signed(who) for who in everybody], everybody, key=tmp_path / "fresh" / "ana.key")
    assert json.loads(capsys.readouterr().out)["former"]["ana"] == three.identity("ana").fingerprint
    where = tmp_path / "last"
    RevokedKeys(revoked=frozenset([three.identity("ana").certificate.key_fingerprint])).save(hers.parent)
    fetch([signed(who) for who in everybody], everybody, key=tmp_path / "fresh" / "ana.key")
    assert json.loads(capsys.readouterr().out)["revoked"] == ["ana"], "who owns the study stands in what it signed"


def test_an_analyst_reads_of_which_study_a_command_is_as_it_was_signed(
    three: Standing, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hub says the name of another one."""
    one, other = (three.proposal(three.study_named(name)) for name in ("old", "new"))
    raw, told = {proposal_id(raw): raw for raw in (each.pack(three.identity()) for each in (one, other))}, []
    names = dict(zip(raw, ("new", "old"), strict=True))

    def tell(statement: Withdrawal) -> dict[str, Any]:
        told.append(statement.proposal)
        return {"state": "cancelled"}

    line = SimpleNamespace(
        studies=lambda: [{"id": each, "name": name, "parties": ["bank"]} for each, name in names.items()],
        proposal=raw.__getitem__,
        tell=tell,
    )
    monkeypatch.setattr(proposals, "FederationClient", lambda *_: nullcontext(line))
    proposals.cancel([next(iter(raw))], "", three.file("ana"), three.key("ana"))
    said = capsys.readouterr().out
    assert (told, f"'old' ({one.digest})" in said, "'new'" in said) == ([next(iter(raw))], True, False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(proposals, "ask_yes_or_no", lambda asked: f"'old' ({one.digest})" not in asked)
    with raises(PolicyError, "PO860", "old"):
        proposals.cancel([next(iter(raw))], "", three.file("ana"), three.key("ana"))
    raw[next(iter(raw))] = raw[list(raw)[1]]
    refused("FE721", proposals.cancel, [next(iter(raw))], "", three.file("ana"), three.key("ana"), True)
    assert len(told) == 1


def test_a_local_user_is_told_nothing_of_caps(three: Standing) -> None:
    pytest.importorskip("prometheus_client")
    agent = Agent(three.file("shop"))
    assert b"observer" not in agent.counts("")[0]
    token = (agent.folder / "metrics.token").read_text().strip()
    told = agent.counts(f"Bearer {token}")
    assert told
    assert b'colonnade_epsilon_left{days="0",observer="analyst"} 3.0' in told[0]
    for wrong in (f"Basic {token}", "Bearer ", f"Bearer {token[1:]}0", "Bearer \u00e9", token):
        assert agent.counts(wrong) is None
    assert b"observer" not in agent.counts("")[0], "also after somebody has shown the token"


def test_a_disk_that_cannot_be_written_for_a_while_ends_no_agent(
    bank: Working, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bank.hub.answers.set()
    monkeypatch.setattr(store_file, "_BUSY_SECONDS", 1.0)
    with bank.agent() as agent:
        with closing(sqlite3.connect(bank.folder / "agent.db", timeout=60, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")  # as a disk that is full: nothing can be written
            bank.hub.say(bank.study.id, "open")
            until(lambda: "cannot go on now" in caplog.text and "nothing can be fetched or told now" in caplog.text)
            other.execute("ROLLBACK")
        until(lambda: agent.store.known_ids([bank.study.id]))
