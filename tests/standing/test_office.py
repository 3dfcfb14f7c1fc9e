"""An agent's office: answers count once, nothing runs without a yes of our own; and what people type there."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from colonnade.disk import writing
from colonnade.privacy.largest import Largest
from colonnade.privacy.rows import rounded_up
from colonnade.standing import pruning
from colonnade.standing.attempts import Attempts
from colonnade.standing.filing import Filing
from colonnade.standing.keeper import Keeper
from colonnade.standing.metrics import AgentMetrics
from colonnade.standing.office import Office
from colonnade.standing.proposal import STUDY_FILE, Proposal
from colonnade.standing.proposing import deadline_of, proposal_of
from colonnade.study import PartyConfig
from colonnade.study.forks import Forks
from tests.support.standing import HUB, Standing, make

from .club import Club, Talk, club, refused

MOST = 3
GRACE, LONG = timedelta(hours=12), timedelta(days=90)
HOUR, NOW = timedelta(hours=1), timedelta(0)
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def circle(tmp_path_factory: pytest.TempPathFactory) -> Club:
    return club(tmp_path_factory.mktemp("club"))


class Desk:
    """An office that receives proposals, as many as a test wants."""

    def __init__(self, folder: Path, circle: Club) -> None:
        self.filing, self.circle = Filing.open(folder), circle

    def asked(self, purpose: str = "to test", size: int = 0, analyst: str = "ana", ago: timedelta = NOW) -> Proposal:
        made = datetime.now(UTC) - ago
        files = {**self.circle.proposal(analyst=analyst).files, "more.toml": b"#" * size}
        said = {"purpose": purpose, "made": made, "deadline": made + HOUR, "files": files}
        return Proposal.unpack(self.circle.packed(analyst=analyst, **said), self.circle.members)

    def taken(self, purpose: str = "to test", state: str | None = None, size: int = 0) -> Path:
        """The folder of a proposal that an agent takes in; its analyst then cancels it, say."""
        proposal = self.asked(purpose, size)
        pruning.make_room(self.filing, proposal)
        proposal.write(self.filing.folder / "studies" / proposal.id / "study", self.circle.members)
        entry = self.filing.receive(proposal)
        if state is not None:
            self.filing.heard(entry.id, {}, state, None)
        return entry.folder

    def waiting(self, ago: timedelta = NOW) -> str:
        study = self.filing.receive(self.asked(ago=ago)).id
        self.filing.assessed(study, {"refused": None}, "waiting", None)
        return study

    def begin(self, study: str, number: int = 1, grace: timedelta = GRACE) -> bool:
        return self.filing.begin(study, number, f"{study}.{number}", MOST, grace)

    def state(self, study: str) -> str:
        return self.filing.entry(study).state


@pytest.fixture
def desk(tmp_path: Path, circle: Club) -> Desk:
    return Desk(tmp_path / "agent", circle)


# --- answers


def test_an_answer_counts_once_and_a_yes_can_be_withdrawn_until_the_study_has_ended(desk: Desk) -> None:
    office, study = desk.filing, desk.waiting()
    refused("OF006", office.withdraw, study, "eva", "second thoughts")
    assert office.approve(study[:8], "eva").state == "approved"
    for again in (lambda: office.approve(study, "max"), lambda: office.decline(study, "max", "no")):
        refused(("OF007", "approved"), again)
    assert office.entry(study).answer_by == "eva"
    assert office.withdraw(study, "eva", "second thoughts").state == "cancelled"
    refused(("OF006", "cancelled"), office.withdraw, study, "eva", "again")
    entry = Desk(office.folder / "other", desk.circle)
    declined = entry.filing.decline(entry.waiting(), "eva", " not our\npurpose ")
    assert (declined.state, declined.answer_by, declined.why) == ("declined", "eva", "not our\ufffdpurpose")


@pytest.mark.parametrize("state", ["checking", "refused", "declined", "running", "done", "failed", "cancelled", "late"])
def test_only_what_waits_is_approved(desk: Desk, state: str) -> None:
    study = desk.waiting(2 * HOUR if state == "late" else NOW)
    if state != "late":
        with desk.filing.file.writing() as file:
            file.execute("UPDATE studies SET state = ?", (state,))
    refused(("OF007", "expired" if state == "late" else ()), desk.filing.approve, study, "eva")
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
    refused("OF*|SO036", Office.open, tmp_path)


# --- attempts


def test_nothing_runs_without_our_own_yes(desk: Desk) -> None:
    filing, study = desk.filing, desk.taken().name
    assert not desk.begin(study), "it is being checked"
    filing.assessed(study, {"refused": None}, "waiting", None)
    filing.heard(study, dict.fromkeys(("bank", "shop", "clinic"), True), "running", None)
    assert not desk.begin(study), "the hub says that all have agreed, and we have not"
    assert (filing.unended(), filing.untold().answers) == ([], [])
    filing.approve(study, "eva")
    assert [entry.id for entry in filing.untold().answers] == [study]
    filing.told_answer(study)
    assert filing.untold().answers == []
    assert desk.begin(study)
    assert not desk.begin(study), "the same attempt again"
    assert not desk.begin("0" * 32), "a study that nobody knows"
    filing.withdraw(study, "eva", "second thoughts")
    assert [entry.id for entry in filing.untold().withdrawals] == [study]
    filing.heard(study, {}, "cancelled", None)
    assert filing.untold().withdrawals == []


def test_attempts_are_counted_and_end_with_a_result(desk: Desk) -> None:
    filing, study = desk.filing, desk.waiting()
    filing.approve(study, "eva")
    assert desk.begin(study)
    assert not desk.begin(study, 2), "the first one still runs"
    filing.end(study, 1, "lost", None)
    assert [each.id for each in filing.unfinished()] == [study]
    assert not desk.begin(study, MOST + 1), "more than we allow"
    assert desk.begin(study, 2)
    filing.end(study, 2, "finished", None)
    assert not desk.begin(study, 3), "there is a result"
    assert [(number, ended) for _, number, ended in filing.untold().outcomes] == [(1, "lost"), (2, "finished")]
    filing.told_outcome(study, 1)
    assert [number for _, number, _ in filing.untold().outcomes] == [2]
    assert filing.unfinished() == []


@pytest.mark.parametrize("end", ["done", "failed", "expired", "cancelled", "declined"])
def test_the_hub_says_what_became_of_it_once(desk: Desk, end: str) -> None:
    study, own = desk.waiting(), desk.taken("ours").name
    desk.filing.approve(study, "eva")
    desk.filing.assessed(own, {"refused": "over budget"}, "refused", "the policy")
    for each in (study, own):
        desk.filing.heard(each, {"bank": False}, end, None)
    assert (desk.state(study), desk.state(own)) == (end, "refused"), "our own refusal stays ours"
    assert desk.filing.entry(own).answers == {"bank": False}
    if end in ("done", "failed", "expired"):
        desk.filing.heard(study, {}, "cancelled", None)
        assert desk.state(study) == end


def test_a_yes_ends(desk: Desk) -> None:
    filing, study = desk.filing, desk.filing.receive(desk.asked(ago=2 * HOUR)).id
    other = desk.filing.receive(desk.asked("runs between", ago=2 * HOUR)).id
    for each in (study, other):
        filing.assessed(each, {"refused": None}, "approved", "the policy, within its budget")
    assert desk.begin(other)
    assert filing.expire(GRACE) == [], "the hub may have waited for a place"
    assert not desk.begin(study, grace=timedelta(minutes=59)), "though nobody has closed it yet"
    assert desk.state(study) == "approved"
    assert filing.expire(timedelta(minutes=59)) == ["a study"], "what runs is not closed"
    assert not desk.begin(study)
    filing.heard(study, {}, "running", None)
    assert desk.state(study) == "expired"
    filing.end(other, 1, "lost", None)
    assert not desk.begin(other, 2, NOW)
    assert filing.expire(NOW) == ["a study"]
    assert [(number, ended) for _, number, ended in filing.untold().outcomes] == [(1, "lost")]
    for said in ("done", "expired"):
        filing.heard(other, {}, said, None)
        assert desk.state(other) == "done", "others finished while we were away"


@pytest.mark.parametrize("put_back", ["before the answers", "before the outcomes"])
def test_a_hub_that_was_put_back_is_told_again(tmp_path: Path, put_back: str) -> None:
    """It finds the end that the study had, after an attempt that was lost, and no party is asked once more."""
    talk, ever = Talk(tmp_path, overdue=10), timedelta(days=36500)
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

    talk.after(seconds=1)
    if put_back == "before the outcomes":
        tell()
    shutil.copytree(tmp_path / "hub", tmp_path / "copy")
    tell()
    for number, ended in ((1, "lost"), (2, "finished")):
        for filing in parties.values():
            assert filing.begin(study, number, "r", MOST, ever)
            filing.end(study, number, ended, None)
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
            filing.tell_again(study, name, told)
            filing.heard(study, told["answers"], told["state"], told["ended"])
        tell()
        if told["attempt"] and told["state"] == "running":
            talk.outcome(study, "coordinator", "lost", told["attempt"])
        talk.after(seconds=30)
    assert talk.state(study) == ("done", 2)
    for filing in parties.values():
        assert not filing.begin(study, 3, "r", MOST, ever)
        filing.heard(study, {}, "failed", None)
        assert filing.entry(study).state == "done", "there is a result here, whatever a hub says"


# --- what is kept


def test_propose_and_cancel_fills_nobodys_disk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "MOST_BYTES", 500_000)
    folders = [desk.taken(f"number {number}", "cancelled", 100_000) for number in range(12)]
    kept = [folder for folder in folders if folder.exists()]
    assert kept == folders[-len(kept) :], "the oldest go first"
    assert 2 <= len(kept) <= 4
    assert len(desk.filing.entries()) == 12, "the rows stay"
    waiting = desk.taken("this one waits", size=300_000)
    refused("FE087", desk.taken, "one too many", size=300_000)
    assert (waiting / "study" / STUDY_FILE).exists(), "what has not ended loses nothing"


def test_proposals_of_one_analyst_are_counted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "MOST_OPEN", 2)
    monkeypatch.setattr(pruning, "MOST_A_DAY", 4)
    opened = [desk.taken(f"open {number}").name for number in range(2)]
    refused("FE086", desk.taken, "a third")
    pruning.make_room(desk.filing, desk.asked("of somebody else", analyst="bank"))
    for study in opened:
        desk.filing.heard(study, {}, "cancelled", None)
    for number in range(2):
        desk.taken(f"more {number}", "cancelled")
    refused(("FE086", "4"), desk.taken, "a fifth")


def test_files_go_after_some_days_and_results_never(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, failed, done = (desk.taken(purpose, "cancelled") for purpose in ("gone", "failed", "done"))
    for folder in (failed, done):
        (folder / "attempts" / "1").mkdir(parents=True)
    (done / "attempts" / "1" / "model.json").write_text("{}")
    still = desk.taken("still open")
    assert desk.filing.known([still.name, "0" * 64]) == {still.name}
    assert desk.filing.proposed_by("ana", "") == (1, 4)
    assert [pruning.prune(desk.filing, age) for age in (LONG, NOW, NOW)] == [0, 2, 0]
    assert [folder.exists() for folder in (gone, failed, done, still)] == [False, False, True, True]
    monkeypatch.setattr(pruning, "MOST_ENDED", 2)
    many = [desk.taken(f"many {number}", "cancelled") for number in range(5)]
    assert pruning.prune(desk.filing, LONG) == 3
    assert sum(folder.exists() for folder in many) == 2
    assert done.exists()


# --- what a person types


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Standing:
    return make(tmp_path_factory.mktemp("three") / "f")


@pytest.fixture
def waiting(three: Standing, tmp_path: Path) -> tuple[Filing, str, Path]:
    proposal, cost = proposal_of(three.study, three.members(), "ana", "<b>why</b>\x1b[31m", deadline_of("1h"))
    party = three.of("bank") / f"{tmp_path.name}.toml"
    party.write_text(three.file("bank").read_text().replace('folder = "agent"', f'folder = "{tmp_path.name}"'))
    office = Filing.open(party.parent / tmp_path.name)
    study = office.receive(Proposal.unpack(proposal.pack(three.identity()), three.members())).id
    found = {"statement": cost.statement.to_dict(), "text": str(cost.statement), "refused": None}
    left = {"observer": "analyst", "cap": 3.0, "delta": 1e-5, "period": None, "spent": 0.0, "after": 0.5}
    office.assessed(study, found | {"left": [left]}, "waiting", None)
    return office, study, party


def test_the_table_has_state_price_and_who_is_waited_for(
    waiting: tuple[Filing, str, Path], in_this_process: Command
) -> None:
    office, study, party = waiting
    code, text, _ = in_this_process("studies", party)
    assert (code, "not connected: no agent runs" in text) == (0, True)
    row = next(line for line in text.splitlines() if line.startswith(study[:8]))
    (told,) = json.loads(in_this_process("studies", party, "--json")[1])["studies"]
    assert (told["state"], told["waited_for"]) == ("waiting", ["bank", "shop", "clinic"])
    largest = Largest.written(office.entry(study).assessment["statement"])  # type: ignore[index]
    figures = told["price"]["figures"]
    assert [each["epsilon"] for each in figures] == [row.epsilon for row, _ in largest.figures]
    assert ", ".join(f"{rounded_up(each['epsilon'], 3)} ({each['who']})" for each in figures) in row
    assert told["price"]["no_promise_against"] == [row.observer.label for row in largest.beyond]


def test_approve_shows_the_price_and_wants_a_clear_yes(
    waiting: tuple[Filing, str, Path], in_this_process: Command
) -> None:
    office, study, party = waiting
    code, text, error = in_this_process("approve", party, study[:6])
    assert (code, office.entry(study).state) == (14, "waiting")
    assert "spent 0.0000, after it 0.5000, of 3" in text
    assert "\x1b" not in text, "what others wrote moves no cursor"
    assert "--yes" in error
    assert in_this_process("approve", party, study[:6], "--yes")[0] == 0
    entry = office.entry(study)
    assert (entry.state, (entry.answer_by or "").endswith("at the command line")) == ("approved", True)
    assert [(click.what, click.study) for click in office.clicks()] == [("approve", study)]
    code, _, error = in_this_process("decline", party, study[:6], "--why", "too late")
    assert (code, "is approved" in error) == (19, True)
    assert in_this_process("cancel", party, study[:6], "--why", "second thoughts")[0] == 0
    assert office.entry(study).state == "cancelled"


def test_logs_show_every_attempt_in_order(waiting: tuple[Filing, str, Path], in_this_process: Command) -> None:
    office, study, party = waiting
    office.approve(study, "eva")
    assert office.begin(study, 1, "room", 3, GRACE)
    folder = office.attempts(study)[0].folder
    folder.mkdir(parents=True)
    when = "2030-01-01T10:11:{}.000+00:00"
    noted = [{"time": when.format(at), "what": what} for at, what in ((12, "connected"), (14, "revealed"))]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in noted) + '{"time": ')
    here = {"rounds": 3, "bytes": 2500, "here": ["shop"], "waited_for": ["clinic"]}
    said = {"time": when.format(13), "presence": here}
    (folder / "output.jsonl").write_text(f"begins\n{json.dumps(said)}\na line of a log\n")
    office.end(study, 1, "lost", None)
    office.heard(study, {}, "failed", None)
    code, text, _ = in_this_process("logs", party, study[:6], "-f")
    assert code == 0
    assert [line.split(maxsplit=1)[1] for line in text.splitlines()] == [
        "begins",
        "10:11:12  connected",
        "10:11:13  here: shop; 3 rounds, 2.5 kB",
        "a line of a log",
        "10:11:14  revealed",
    ]
    code, _, error = in_this_process("result", party, study[:6])
    assert (code, "there is no result here" in error) == (19, True)


def test_nothing_runs_where_a_result_lies(waiting: tuple[Filing, str, Path]) -> None:
    """Also where the agent's store was put back from a backup, and knows of no attempt."""
    office, study, party = waiting
    entry = office.approve(study, "eva")
    there = entry.folder / "attempts" / "1"
    there.mkdir(parents=True)
    (there / "model.json").write_text("{}")
    attempts = Attempts(office, party, AgentMetrics(), Forks())
    assert not attempts.start(entry, 2, f"{study}.2", PartyConfig.load(party))
    assert (len(attempts), office.attempts(study)) == (0, [])


@pytest.mark.parametrize("who", ["agent", "hub"])
def test_a_second_one_of_a_folder_serves_nothing(
    waiting: tuple[Filing, str, Path], three: Standing, in_this_process: Command, who: str
) -> None:
    """Its console has the port of the first one, which is not what is wrong."""
    office, _, party = waiting
    folder = office.folder if who == "agent" else Keeper(three.file(HUB)).folder
    with socket.create_server(("127.0.0.1", 0)) as taken, writing.locked(folder):
        address = f'console = "127.0.0.1:{taken.getsockname()[1]}"\n'
        path = three.file(HUB).with_name("SECOND.toml")
        path.write_text(three.file(HUB).read_text() + address)
        party.write_text(party.read_text().replace("console = false\n", address))
        code, text, error = in_this_process(who, party if who == "agent" else path)
    assert (code, text) == ({"agent": 19, "hub": 26}[who], "")
    assert f"another {who} works in" in error


def test_what_cannot_be_done_is_said_in_a_sentence(three: Standing, in_this_process: Command) -> None:
    federation = ("--federation", three.file("ana"), "--key", three.key("ana"))
    for expected, sentence, words in (
        (19, "start `colonnade agent", ("studies", three.file("shop"))),
        (26, "--federation", ("studies",)),
        (26, "no deadline", ("propose", three.study, *federation, "--deadline", "soon")),
    ):
        code, _, error = in_this_process(*words)
        assert (code, sentence in error) == (expected, True), error
    for text, seconds in {"30m": 1800, "12h": 43_200, "7d": 604_800}.items():
        assert abs((deadline_of(text) - datetime.now(UTC)).total_seconds() - seconds) < 600
