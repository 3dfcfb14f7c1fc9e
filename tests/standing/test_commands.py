"""What a person types at an agent: text that can be read, and one sentence where something cannot be."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from colonnade.disk import writing
from colonnade.privacy.largest import Largest
from colonnade.privacy.rows import rounded_up
from colonnade.standing.attempts import Attempts
from colonnade.standing.filing import Filing
from colonnade.standing.keeper import Keeper
from colonnade.standing.metrics import AgentMetrics
from colonnade.standing.proposal import Proposal
from colonnade.standing.proposing import deadline_of, proposal_of
from colonnade.study import PartyConfig
from colonnade.study.forks import Forks
from colonnade.wire import Identity
from tests.support.organisations import Organisations

Command = Callable[..., tuple[int, str, str]]
PURPOSE = "<b>why</b>\x1b[31m"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Organisations:
    return Organisations(tmp_path_factory.mktemp("federation"), rows=60, ask=("bank",))


@pytest.fixture
def waiting(three: Organisations, tmp_path: Path) -> tuple[Filing, str, Path]:
    """The bank's office, in which a study waits for an answer; the bank's party file names it."""
    key = three.folder / "ana" / "ana.key"
    until = datetime.now(UTC) + timedelta(hours=1)
    proposal, cost = proposal_of(three.study(match=False), three.members, "ana", PURPOSE, until)
    raw = proposal.pack(Identity.load(key, key.with_suffix(".crt")))
    party = three.folder / "bank" / f"{tmp_path.name}.toml"
    party.write_text(three.party_file("bank").read_text() + f'folder = "{tmp_path.name}"\n')
    office = Filing.open(party.parent / tmp_path.name)
    study = office.receive(Proposal.unpack(raw, three.members)).id
    found = {"statement": cost.statement.to_dict(), "text": str(cost.statement), "refused": None}
    left = {"observer": "analyst", "cap": 3.0, "delta": 1e-5, "period": None, "spent": 0.0, "after": 0.5}
    office.assessed(study, found | {"left": [left]}, "waiting", None)
    return office, study, party


def test_the_table_has_state_price_and_who_is_waited_for(
    waiting: tuple[Filing, str, Path], in_this_process: Command
) -> None:
    office, study, party = waiting
    code, text, _ = in_this_process("studies", party)
    assert code == 0
    assert "not connected: no agent runs" in text
    row = next(line for line in text.splitlines() if line.startswith(study[:8]))
    assert "waiting" in row
    assert "bank, shop, clinic" in row
    found = json.loads(in_this_process("studies", party, "--json")[1])
    assert found["studies"][0]["waited_for"] == ["bank", "shop", "clinic"]
    price = found["studies"][0]["price"]
    largest = Largest.written(office.entry(study).assessment["statement"])  # type: ignore[index]
    assert [each["epsilon"] for each in price["figures"]] == [row.epsilon for row, _ in largest.figures]
    shown = [f"{rounded_up(each['epsilon'], 3)} ({each['who']})" for each in price["figures"]]
    assert ", ".join(shown) in row
    assert price["no_promise_against"] == [row.observer.label for row in largest.beyond]


def test_approve_shows_the_price_and_wants_a_clear_yes(
    waiting: tuple[Filing, str, Path], in_this_process: Command
) -> None:
    office, study, party = waiting
    code, text, error = in_this_process("approve", party, study[:6])
    assert code == 14
    assert "epsilon" in text
    assert "spent 0.0000, after it 0.5000, of 3" in text
    assert "\x1b" not in text, "what others wrote moves no cursor"
    assert "--yes" in error
    assert office.entry(study).state == "waiting"
    code, text, _ = in_this_process("approve", party, study[:6], "--yes")
    assert code == 0
    assert "no agent runs, so nobody is told" in text
    entry = office.entry(study)
    assert entry.state == "approved"
    assert entry.answer_by is not None
    assert entry.answer_by.endswith("at the command line")
    assert [(click.what, click.study) for click in office.clicks()] == [("approve", study)]
    code, _, error = in_this_process("decline", party, study[:6], "--why", "too late")
    assert code == 19
    assert "is approved" in error
    assert in_this_process("cancel", party, study[:6], "--why", "second thoughts")[0] == 0
    assert office.entry(study).state == "cancelled"


def test_logs_show_every_attempt_in_order(waiting: tuple[Filing, str, Path], in_this_process: Command) -> None:
    office, study, party = waiting
    office.approve(study, "eva")
    assert office.begin(study, 1, "room", 3, timedelta(hours=12))
    folder = office.attempts(study)[0].folder
    folder.mkdir(parents=True)
    noted = [
        {"time": f"2030-01-01T10:11:{second}.000+00:00", "what": what}
        for second, what in ((12, "connected"), (14, "revealed"))
    ]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in noted) + '{"time": ')
    here = {"rounds": 3, "bytes": 2500, "here": ["shop"], "waited_for": ["clinic"]}
    said = {"time": "2030-01-01T10:11:13.000+00:00", "presence": here}
    (folder / "output.jsonl").write_text(f"begins\n{json.dumps(said)}\na line of a log\n")
    office.end(study, 1, "lost", None)
    office.heard(study, {}, "failed", None)
    code, text, _ = in_this_process("logs", party, study[:6], "-f")
    assert code == 0
    lines = text.splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines] == [
        "begins",
        "10:11:12  connected",
        "10:11:13  here: shop; 3 rounds, 2.5 kB",
        "a line of a log",
        "10:11:14  revealed",
    ]
    code, _, error = in_this_process("result", party, study[:6])
    assert code == 19
    assert "there is no result here" in error


def test_nothing_runs_where_a_result_lies(waiting: tuple[Filing, str, Path]) -> None:
    """Also where the agent's store was put back from a backup, and knows of no attempt."""
    office, study, party = waiting
    office.approve(study, "eva")
    entry = office.entry(study)
    there = entry.folder / "attempts" / "1"
    there.mkdir(parents=True)
    (there / "model.json").write_text("{}")
    attempts = Attempts(office, party, AgentMetrics(), Forks())
    assert not attempts.start(entry, 2, f"{study}.2", PartyConfig.load(party))
    assert len(attempts) == 0
    assert office.attempts(study) == []


def test_a_second_agent_of_a_folder_serves_nothing(waiting: tuple[Filing, str, Path], in_this_process: Command) -> None:
    """Its console has the port of the first one, which is not what is wrong."""
    office, _, party = waiting
    with socket.create_server(("127.0.0.1", 0)) as taken, writing.locked(office.folder):
        party.write_text(party.read_text() + f'console = "127.0.0.1:{taken.getsockname()[1]}"\n')
        code, text, error = in_this_process("agent", party)
    assert code == 19
    assert "another agent works in" in error
    assert not text


def test_a_second_hub_of_a_folder_serves_nothing(three: Organisations, in_this_process: Command) -> None:
    folder = Keeper(three.federation).folder
    with socket.create_server(("127.0.0.1", 0)) as taken, writing.locked(folder):
        path = three.federation.with_name("SECOND.toml")
        port = taken.getsockname()[1]
        path.write_text(three.federation.read_text().replace("[hub]\n", f'[hub]\nconsole = "127.0.0.1:{port}"\n'))
        code, text, error = in_this_process("hub", path)
    assert code == 26
    assert "another hub works in" in error
    assert not text


def test_a_party_without_an_agent_is_told_so(three: Organisations, in_this_process: Command) -> None:
    code, _, error = in_this_process("studies", three.party_file("shop"))
    assert code == 19
    assert "start `colonnade agent" in error
    code, _, error = in_this_process("studies")
    assert code == 26
    assert "--federation" in error


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("12h", 43_200), ("7d", 604_800)])
def test_deadlines(text: str, seconds: int) -> None:
    assert abs((deadline_of(text) - datetime.now(UTC)).total_seconds() - seconds) < 600


def test_a_deadline_that_nobody_can_read(three: Organisations, in_this_process: Command) -> None:
    key = three.folder / "ana" / "ana.key"
    study = three.study(match=False)
    words = ["propose", study, "--federation", three.federation, "--key", key, "--deadline", "soon"]
    code, _, error = in_this_process(*words)
    assert code == 26
    assert "no deadline" in error
