"""Studies in processes of their own: those that end well, and participants that are killed, interrupted or asked."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from colonnade import PCA, errors, versions
from colonnade.cli import show
from colonnade.cli.publish import publish
from colonnade.errors import NO_PART
from colonnade.privacy import Statement
from colonnade.study import local, run_local
from colonnade.study.local import Child
from colonnade.study.network import bytes_by_way
from tests.support.errors import check_said, raises
from tests.support.ports import free_port
from tests.support.studies import check_ended, check_words

OTHERS = ("coordinator", "shop", "clinic")
EVERYBODY = ("bank", *OTHERS)
LOST = [errors.PeerLost, errors.PeerStopped]
system = pytest.mark.system


# --- those that end well


@system
def test_three_parties_and_a_coordinator_in_processes_of_their_own(trial):
    study = trial(rows=600)
    study.edit("STUDY.toml", r'address = "127\.0\.0\.1', 'address = "127.0.0.2')  # another one of this machine
    study.start_all()
    study.end_well()
    first, *models = [PCA.load(study.out(name) / "model.json") for name in EVERYBODY]
    assert all(np.array_equal(model.components_, first.components_) for model in models)
    for name in EVERYBODY:
        run = study.run_json(name)
        assert run["status"] == "finished"
        assert {"phases", "traffic", "seconds", "digest"} <= set(run)
        phases = run["phases"].values()
        sent = {key: sum(peer[f"{key}_sent"] for peer in run["traffic"].values()) for key in ("messages", "payload")}
        assert run["rounds"] >= sum(phase["rounds"] for phase in phases)
        assert sent["messages"] >= sum(phase["messages"] for phase in phases)
        assert sent["payload"] >= sum(phase["bytes"] for phase in phases)
        said = Statement.from_dict(json.loads((study.out(name) / "privacy.json").read_text()))
        assert said.epsilon("analyst") == pytest.approx(1.0, abs=1e-6)
        assert "revealed" in [line["what"] for line in study.happened(name)]
    study.check_states("committed")
    whats = [line["what"] for line in study.happened("bank")]
    assert whats.index("budget reserved") < whats.index("connected") < whats.index("first share")
    assert (study.out("coordinator") / "report.html").stat().st_size > 10_000


@system
def test_two_parties_with_the_coordinator_as_third_seat(trial):
    study, steps = trial(rows=500, parties=2), []
    folders = run_local(study.study(), study.folder / "out", progress=lambda *step: steps.append(step))
    assert set(folders) == {"coordinator", "bank", "shop"}
    phases = json.loads((study.folder / "out" / "run.json").read_text())["phases"]
    assert {"receive", "multiply", "open"} <= set(phases)
    assert min(phases["open"]["rounds"], phases["open"]["bytes"]) >= 1
    assert steps[-1] == ("multiply", 1, 1)


def direct(study):
    """Let the study's participants connect, and bank and clinic listen."""
    study.edit("STUDY.toml", r"^\[coordinator\]$", '[coordinator]\nlinks = "direct"')
    for name in ("bank", "clinic"):
        study.edit(f"{name}/party.toml", r"\Z", f'\n[network]\nlisten = "127.0.0.1:{free_port()}"\n')


@system
def test_a_coordinator_that_does_not_dial(trial):
    study = trial(rows=400, match=False)
    direct(study)
    study.start("coordinator", dial=False)
    study.start(*study.parties, threads=True)
    study.end_well()
    links = {name: study.run_json(name)["links"] for name in EVERYBODY}
    for party in ("bank", "clinic"):
        assert links["coordinator"][party]["way"] == links[party]["coordinator"]["way"] == "hub"
        assert links["coordinator"][party]["why"] == "this participant does not dial, and the other has not dialled"
    assert links["bank"]["clinic"]["way"] == links["shop"]["bank"]["way"] == "direct"


@system
def test_processes_that_connect_to_each_other(trial):
    study = trial(rows=600, match=False)
    direct(study)
    out = study.folder / "out"
    folders = run_local(study.study(), out)
    bank = json.loads((folders["bank"] / "run.json").read_text())
    assert bank["links"]["clinic"]["way"] == bank["links"]["shop"]["way"] == "direct"
    events = [json.loads(line) for line in (folders["bank"] / "events.jsonl").read_text().splitlines()]
    assert {said["peer"]: said["way"] for said in events if said["what"] == "way to a peer"}["clinic"] == "directly"
    sent, relayed = bytes_by_way(bank)
    assert sent > relayed > 0
    assert sent + relayed == sum(peer["sealed_sent"] for peer in bank["traffic"].values())
    page = publish(study.study(), out, folders)
    assert page["run"]["parties"]["bank"]["links"]["shop"]["way"] == "direct"
    assert "Sent through the hub" in (out / "report.html").read_text()


# --- whoever is killed or interrupted


def test_a_party_killed_half_way(trial):
    study = trial(rows=20_000, match=False, reconnect=1.5)
    study.start_bank_last()
    study.until("bank", "first share")
    study.children["bank"].send_signal(signal.SIGKILL)
    ended = study.ends()
    assert ended["bank"].code == -signal.SIGKILL
    check_ended(ended, OTHERS, LOST, "bank")
    assert {study.run_json(name)["status"] for name in OTHERS} == {"failed"}
    study.check_states("sent")
    assert all(study.spent(name) == pytest.approx(1.0, abs=1e-6) for name in study.parties)


@system
def test_the_coordinator_killed_half_way(trial):
    study = trial(rows=20_000, match=False, reconnect=1.5)
    study.start("coordinator")
    study.start(*study.parties, threads=True)
    study.until("bank", "first share")
    study.children["coordinator"].send_signal(signal.SIGKILL)
    check_ended(study.ends(), study.parties, [errors.ConnectError, errors.PeerLost], "coordinator")
    study.check_states("sent")


@system
def test_an_interrupted_party_tells_the_others(trial):
    study = trial(rows=20_000, match=False)
    study.start_bank_last()
    study.until("bank", "first share")
    study.children["bank"].send_signal(signal.SIGTERM)
    ended = study.ends()
    assert ended["bank"].code == study.run_json("bank")["exit_code"] == 130
    check_ended(ended, OTHERS, [errors.PeerStopped])
    for name in OTHERS:  # when its operator stops it just before a share leaves, that is a refusal like any other
        said = ended[name].sentence
        assert said.endswith(f"bank stopped the study: {NO_PART} [PE019]") or "interrupted by its operator" in said


@pytest.fixture
def _heard():
    """Children hear when a terminal closes, also where these tests were started by nohup, which they would inherit."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@system
@pytest.mark.usefixtures("_heard")
def test_a_terminal_that_closes_gives_an_unsent_reservation_back(trial):
    study = trial()
    study.start("coordinator", "bank")
    study.until("bank", "connected")
    study.children["bank"].send_signal(signal.SIGHUP)
    study.children["bank"].wait(timeout=300)
    study.children["coordinator"].send_signal(signal.SIGTERM)
    assert study.ends()["bank"].code == 130
    study.check_states("released", names=["bank"])


@system
def test_a_whole_run_names_the_first_cause(trial):
    study = trial()
    study.edit("shop/shop.csv", r"person_id", "pid")
    with raises(errors.DataError, "DA154", "shop.csv", "person_id"):
        run_local(study.study(), study.folder / "run")


KILLED_BEFORE_ITS_OPENING = """
import os, signal
from colonnade.cli import main
from colonnade.mpc import Hand

def killed(hand, shares, to):
    post = next(iter(hand.links.values()))._post
    with post._lock:
        post._flush()  # what it has dealt has arrived
    os.kill(os.getpid(), signal.SIGKILL)

Hand.send_opening = killed
main()
"""


@pytest.fixture
def spare(trial):
    """Five seats of which any three open."""
    study = trial(rows=100, parties=5, match=False, reconnect=0.5)
    study.edit("STUDY.toml", r"^\[budget\]", "[committee]\nthreshold = 1\n[budget]")
    return study


@system
def test_a_spare_party_killed_before_the_opening(spare):
    """The others end well, with the same result, and say who was lost."""
    *others, lost = spare.parties
    rest = ["coordinator", *others]
    spare.start("coordinator")
    spare.start(*others, threads=True)
    spare.start(lost, script=KILLED_BEFORE_ITS_OPENING)
    ended = spare.ends()
    assert {name: end.code for name, end in ended.items()} == dict.fromkeys(rest, 0) | {lost: -signal.SIGKILL}
    assert len({(spare.out(name) / "model.json").read_bytes() for name in rest}) == 1
    for name in rest:
        run = spare.run_json(name)
        assert (run["status"], run["lost"]) == ("finished", [lost])
        assert ("went on without", [lost]) in [(line["what"], line.get("lost")) for line in spare.happened(name)]
    assert f"The study went on without {lost}" in (spare.out("coordinator") / "report.html").read_text()
    spare.check_states("committed", names=others)
    spare.check_states("sent", names=[lost])


@pytest.mark.slow  # six processes
def test_a_whole_run_goes_on_without_a_spare_party(spare, monkeypatch):
    real, steps, lost = local._start, [], spare.parties[-1]

    def start(name, command, forks):
        if name != lost:
            return real(name, command, forks)
        words = [sys.executable, "-c", KILLED_BEFORE_ITS_OPENING, *command]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return Child(name, process, output=process.stdout)

    monkeypatch.setattr(local, "_start", start)
    loaded, out = spare.study(), spare.folder / "run"
    facts = publish(loaded, out, run_local(loaded, out, progress=lambda *step: steps.append(step)))
    assert steps[-1] == (f"without {lost}", 1, 1)
    assert facts["run"]["lost"] == [lost]
    assert f"\nwent on without {lost}\n" in show.outcome(loaded, out, facts["run"])


NO_ROOM_FOR_A_REPORT = """
import resource, sys
from colonnade.cli import main

sys.dont_write_bytecode = True  # or compiled modules would be cut off, and stay so
resource.setrlimit(resource.RLIMIT_FSIZE, (32_000, 32_000))
main()
"""


@system
def test_a_report_that_does_not_fit_is_named_and_the_model_is_whole(trial):
    study = trial(match=False)
    study.start("coordinator", script=NO_ROOM_FOR_A_REPORT)
    study.start(*study.parties, threads=True)
    ended, out = study.ends(), study.out("coordinator")
    whole = f"the study ended well and {out / 'model.json'} is whole"
    missing = f"{out / 'report.html'} cannot be written: File too large"
    check_ended(ended, ["coordinator"], [errors.StorageError], whole, missing)
    assert "standard output" not in ended["coordinator"].sentence
    assert (out / "model.json").read_bytes() == (study.out("bank") / "model.json").read_bytes()
    assert all(ended[name].code == 0 for name in study.parties), ended


# --- whose rules or wire really differ

DECOMPOSES = """
from functools import partial
import unicodedata
from colonnade.cli import main
from colonnade.tables import normal

normal._FORMS["NFC"] = partial(unicodedata.normalize, "NFD")  # as pyarrow did before 26
main()
"""
EARLIER_WIRE = """
from colonnade.cli import main
from colonnade.wire import tls

tls._VERSION = b"colonnade wire 3"
main()
"""


@system
@pytest.mark.parametrize(
    ("script", "said"), [(DECOMPOSES, ("MS043", "bank")), (EARLIER_WIRE, ("MS095", "3", "4"))], ids=["rules", "wire"]
)
def test_another_release_is_refused_before_anything_is_spent(trial, script, said):
    study = trial()
    study.start_bank_last(script=script)
    ended = study.ends()
    for name in ("bank", "shop", "clinic") if script == EARLIER_WIRE else EVERYBODY:
        assert ended[name].code in (errors.ProtocolError.exit_code, errors.PeerStopped.exit_code)
        check_said(ended[name].sentence, said)
        if script == DECOMPOSES:
            assert ended[name].sentence.count(f"has {versions.in_words()}") == 2
    study.check_states("released")


# --- who says yes at a terminal


@pytest.fixture
def terminal():
    """The two ends of a terminal: what a person types into, and what a process reads."""
    person, process = pty.openpty()
    yield person, process
    os.close(person)
    os.close(process)


def asking(study):
    study.edit("bank/party.toml", r'^approval = "auto-within-budget"', 'approval = "ask"')
    return study


def question(child) -> str:
    """What a process says on standard error, up to the question."""
    said = ""
    while "[y/N] " not in said:
        character = child.stderr.read(1)
        assert character, said
        said += character
    return said


@system
def test_without_a_terminal_a_digest_is_needed(trial):
    study = asking(trial())
    study.start_bank_last()
    ended = study.ends()
    check_ended(ended, ["bank"], [errors.PolicyError], f"--approve {study.study().digest}`")
    check_ended(ended, OTHERS, [errors.PeerStopped], f"bank stopped the study: {NO_PART}")
    assert study.states("bank") == []


@system
def test_no_at_the_terminal_and_nothing_leaves_before_the_answer(trial, terminal):
    study = asking(trial(join=60))
    person, process = terminal
    with socket.create_server(("127.0.0.1", study.port)) as nobody:
        nobody.settimeout(0.5)
        study.start("bank", stdin=process)
        assert study.study().digest in question(study.children["bank"])
        with pytest.raises(TimeoutError):
            nobody.accept()
        assert not (study.folder / "bank" / "ledger.sqlite").exists()
    study.start("coordinator", threads=True)
    study.until("coordinator", "listening")
    os.write(person, b"n\n")
    ended = study.ends()
    # only now it dialled, to say that it will not take part
    check_words(ended["coordinator"].sentence, f"bank stopped the study: {NO_PART}")
    check_ended(ended, ["bank"], [errors.PolicyError], "was not approved by bank's operator")
    assert study.states("bank") == []


@system
def test_yes_at_the_terminal(trial, terminal):
    study = asking(trial())
    person, process = terminal
    study.start("coordinator", "shop", "clinic", threads=True)
    study.start("bank", stdin=process)
    question(study.children["bank"])
    os.write(person, b"y\n")
    study.end_well()
    assert study.run_json("bank")["approval"] == {"mode": "ask", "by": "an answer at the terminal"}
    study.check_states("committed", names=["bank"])


@system
def test_a_repetition_is_asked_about_at_the_terminal(trial, terminal):
    study = trial()
    study.edit("STUDY.toml", r"^silence = 60", "silence = 60\nexcuse = 0.2")  # nobody listens to its excuse
    study.edit("bank/party.toml", r"^tasks = ", "again = false\ntasks = ")
    loaded, book = study.study(), study.config().book()
    book.commit(
        book.mark_sent(book.reserve(loaded.name, loaded.digest, loaded.events, loaded.trust, [], (), loaded.keys()))
    )
    person, process = terminal
    study.start("bank", stdin=process)
    told = rf"study '{loaded.name}' already ran on .* UTC, as bank's ledger says: spend again\? \[y/N\]"
    assert re.search(told, question(study.children["bank"]))
    os.write(person, b"n\n")
    check_ended(study.ends(), ["bank"], [errors.PolicyError])
    study.check_states("committed", names=["bank"])
