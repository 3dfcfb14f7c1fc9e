"""What can go wrong between participants: a clear sentence everywhere, a documented code, a true ledger.

Participants are threads, and processes where they are killed, interrupted or asked.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from colonnade import PCA, errors, versions
from colonnade.cli import text_output
from colonnade.cli.results import publish
from colonnade.errors import NO_PART
from colonnade.mpc import ShareEngine, Shares
from colonnade.privacy import Ledger, Statement
from colonnade.study import local, run_local
from colonnade.study.local import LocalParticipant, first_cause
from colonnade.study.party_file import bytes_by_way
from colonnade.wire import Endpoint, Hub, Identity
from tests.support.errors import check_said, raises
from tests.support.ports import free_port
from tests.support.studies import check_ended, check_words
from tests.wire.conftest import Wire

OTHERS = ("coordinator", "shop", "clinic")
EVERYBODY = ("bank", *OTHERS)
STOPPED = [errors.PeerStopped]


def test_who_came_too_late_is_not_the_cause():
    def ended(name, error):
        return LocalParticipant(name, SimpleNamespace(returncode=1), None, {"error": error, "message": "why"})

    late, broken = ended("bank", "ConnectError"), ended("shop", "DataError")
    assert isinstance(first_cause({"bank": late, "shop": broken}), errors.DataError)
    assert isinstance(first_cause({"bank": late}), errors.ConnectError)


def test_parties_with_different_people(trial):
    study = trial(match=False)
    table = study.folder / "bank" / "bank.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-1]))
    study.start_all(threads=True)
    ended = study.ends()
    found = [errors.StudyError, errors.PeerStopped]
    check_ended(ended, study.parties, found, "do not hold the same people", "[align]")
    assert errors.StudyError.exit_code in {end.code for end in ended.values()}
    study.check_states("released")


def test_a_key_or_a_certificate_that_is_not_the_pinned_one(trial):
    """The bank runs with another key than everyone else expects of it; then everyone has another pin."""
    study = trial()
    Identity.create("bank").save(study.folder / "bank" / "other")
    study.edit("bank/party.toml", r'^key = "bank.key"', 'key = "other/bank.key"')
    study.start("bank", threads=True)
    check_ended(study.ends(), ["bank"], [errors.IdentityError], "bank.crt")
    study.edit("STUDY.toml", r'^"bank" = "sha256:...', '"bank" = "sha256:000')
    study.start_all(threads=True, study=study.file.rename(study.folder / "PINNED.toml"))
    told = "ask bank which is right: if the file, pin it by `colonnade init pins`"
    check_ended(study.ends(), EVERYBODY, [errors.IdentityError], "bank", told)
    assert not (study.folder / "shop" / "ledger.sqlite").exists()


def test_whoever_does_not_join_is_waited_for_and_named(trial):
    study = trial(join=0.5, match=False)
    study.start("coordinator", threads=True)
    check_ended(
        study.ends(), ["coordinator"], [errors.PeerLost], "bank, clinic, shop have not joined the study within 0.5 s"
    )


def test_an_impostor_hub_is_refused(trial):
    study = trial()
    impostor = Identity.create("coordinator")
    known = study.study().certificates() | {"coordinator": impostor.certificate}
    with Hub(impostor, known, address=f"127.0.0.1:{study.port}"):
        study.start("bank", threads=True)
        check_ended(study.ends(), ["bank"], [errors.IdentityError], "coordinator")
    study.check_states("released", names=["bank"])


class HangsUp(http.server.BaseHTTPRequestHandler):
    def handle(self):
        self.connection.close()


@pytest.mark.parametrize(
    ("handler", "said"),
    [(http.server.SimpleHTTPRequestHandler, "does not speak TLS as a hub does"), (HangsUp, "hangs up")],
    ids=["http", "closes"],
)
def test_another_program_has_the_port(trial, handler, said):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
        threading.Thread(target=other.serve_forever).start()
        study, place = trial(join=0.3), f"127.0.0.1:{other.server_port}"
        study.edit("STUDY.toml", r'^address = ".*"', f'address = "{place}"')
        study.start("coordinator", "bank", threads=True)
        ended = study.ends()
        other.shutdown()
    wrong = [errors.ConnectError]
    there = (f"cannot listen on {place}: another program has the port", "write another port into the study file")
    check_ended(ended, ["coordinator"], wrong, *there)
    told = (f"whatever listens at {place} {said}", "check that this is the coordinator's address and port")
    check_ended(ended, ["bank"], wrong, *told)
    study.check_states("released", names=["bank"])


def test_a_budget_that_is_spent(trial):
    study = trial()
    study.edit("bank/party.toml", r"^epsilon = .*", "epsilon = { analyst = 1.3, others = 9.0 }")
    study.edit("bank/party.toml", r"\Z", "[[policy.periods]]\ndays = 30\nepsilon = { analyst = 1.2 }\n")
    loaded, config = study.study(), study.config()
    config.check_budget(loaded)
    ledger, events = Ledger(config.ledger), config.charged_events(loaded)
    ledger.commit(ledger.mark_sent(ledger.reserve(loaded.name, loaded.digest, events, loaded.trust, config.caps)))
    before = study.spent("bank")
    left = "analyst: spent 1.0000, asked 1.0000, left 0.2 of 1.2 in 30 days"
    with raises(errors.BudgetError, "BU*", left, "enough will have aged out on 2"):
        config.check_budget(loaded)
    study.start_bank_last(threads=True)
    ended = study.ends()
    check_ended(ended, ["bank"], [errors.BudgetError], "analyst", "spent", "asked", "left")
    check_ended(ended, OTHERS, STOPPED, f"bank stopped the study: {NO_PART}")
    assert study.spent("bank") == before
    study.check_states("committed", names=["bank"])
    assert not {"approved", "budget reserved", "connected"} & {line["what"] for line in study.happened("bank")}


def test_participants_with_different_studies_spend_nothing(trial):
    study = trial()
    other = study.folder / "OTHER.toml"
    other.write_text(study.file.read_text().replace("n_components = 2", "n_components = 3"))
    study.start_bank_last(study=other, threads=True)
    found = [errors.StudyError, errors.PeerStopped]
    told = "holds another version of the study: give everyone the same study file"
    check_ended(study.ends(), EVERYBODY, found, told)
    study.check_states("released")


def test_a_wrong_share_for_one_recipient_leaves_nobody_with_a_model(trial, monkeypatch):
    """Four seats of which three open: one recipient sees that the shares do not fit, and no other writes a result."""
    study = trial(rows=100, parties=4, match=False)
    liar, victim = study.parties[-1], study.parties[0]
    real = ShareEngine.send_opening

    def send(hand, shares, to):
        if hand.name != liar:
            return real(hand, shares, to)
        wrong = Shares(hand.system.reduce(shares.values + 1.0), shares.degree)
        real(hand, wrong, [victim])
        return real(hand, shares, [name for name in to if name != victim])

    monkeypatch.setattr(ShareEngine, "send_opening", send)
    study.start_all(threads=True)
    ended = study.ends()
    assert ended[victim].code == errors.ShareError.exit_code, ended
    found = [errors.ShareError, errors.PeerStopped]
    check_ended(ended, ["coordinator", *study.parties], found, "do not lie on")
    assert not any((study.out(name) / "model.json").exists() for name in ("coordinator", *study.parties))
    study.check_states("sent")


def test_escape_codes_in_a_partys_last_words_reach_neither_screen_nor_log(trial, monkeypatch):
    """A party that is not honest signs whatever it likes as its reason; the others see one plain, short sentence."""
    study, joined = trial(match=False), Endpoint.wait_for_peers

    def leave(endpoint, *given, **named):
        joined(endpoint, *given, **named)
        if endpoint.name == "bank":
            endpoint.abort("\x1b]0;owned\x07\x1b[2J\u202e\r\ncolonnade: all is well\x9b31m" * 99)
            raise SystemExit(1)

    monkeypatch.setattr(Endpoint, "wait_for_peers", leave)
    study.start_all(threads=True)
    ended = study.ends()
    check_ended(ended, OTHERS, STOPPED, "bank stopped the study: \N{REPLACEMENT CHARACTER}]0;owned")
    for name in OTHERS:
        failed = study.happened(name)[-1]
        for said in (ended[name].sentence, failed["message"]):
            assert said.isprintable()
            assert len(said) < 1000
        assert study.run_json(name)["message"] == failed["message"]


def test_a_reservation_released_by_hand_stops_the_run_before_anything_is_dealt(trial):
    study = trial()
    study.start("coordinator", "bank", threads=True)
    study.until("bank", "connected")
    ledger = Ledger(study.folder / "bank" / "ledger.sqlite")
    ledger.release(ledger.entries()[0])
    study.start("shop", "clinic", threads=True)
    ended = study.ends()
    check_ended(ended, ["bank"], [errors.LedgerError], "entry 1 is released and cannot become sent")
    check_ended(ended, OTHERS, STOPPED, f"bank stopped the study: {NO_PART}")
    whats = [line["what"] for line in study.happened("bank")]
    assert "budget had been released by hand: no share had left" in whats
    assert "first share" not in whats
    study.check_states("released", names=["bank"])


def test_a_result_that_cannot_be_saved_says_so_and_stays_spent(trial):
    study = trial()
    study.start_bank_last(threads=True)
    study.until("bank", "table checked")
    (study.out("bank") / "model.json.partial").mkdir()
    ended = study.ends()
    told = ("ended well and stays spent", "model.json, which holds the same result")
    check_ended(ended, ["bank"], [errors.StorageError], *told)
    study.check_states("sent", names=["bank"])
    assert all(ended[name].code == 0 for name in OTHERS), ended
    assert (study.out("shop") / "model.json").exists()


def slow_line(study):
    """A line from the parties to the coordinator, so slow that nobody is done before all have begun; where it ends."""
    behind = free_port()
    wire = Wire(behind)
    wire.rate = 100_000.0
    study.edit("STUDY.toml", r'^address = ".*"', f'address = "127.0.0.1:{wire.port}"')
    return wire, f"127.0.0.1:{behind}"


def test_a_record_with_gaps_does_not_cost_the_result(trial):
    study = trial(rows=5_000, match=False)
    wire, listen = slow_line(study)
    study.start_all(threads=True, listen=listen)
    study.until("bank", "first share")
    record = study.out("bank") / "run.json"
    while not record.is_dir():  # the run may write it again at any moment
        record.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            record.mkdir()
    wire.rate = None
    ended = study.ends()
    wire.close()
    check_ended(ended, ["bank"], [errors.StorageError], "its record has gaps")
    assert (study.out("bank") / "model.json").stat().st_size > 0
    study.check_states("committed", names=["bank"])
    assert all(ended[name].code == 0 for name in OTHERS), ended


@pytest.mark.parametrize("mended", [True, False], ids=["for a moment", "for good"])
def test_lines_that_are_cut(trial, mended):
    study = trial(rows=20_000, reconnect=5 if mended else 0.5, match=False)
    wire, listen = slow_line(study)
    study.start("coordinator", listen=listen, threads=True)
    study.until("coordinator", "listening")
    study.start(*study.parties, threads=True)
    for name in study.parties:
        study.until(name, "first share")
    wire.cut()
    wire.rate = None
    if mended:
        wire.restore()
        study.end_well()
    else:
        ended = study.ends()
        check_ended(ended, study.parties, [errors.ConnectError, errors.PeerLost])
        check_ended(ended, ["coordinator"], [errors.PeerLost, errors.PeerStopped])
        assert "budget stays spent: shares had left" in [line["what"] for line in study.happened("bank")]
    wire.close()
    study.check_states("committed" if mended else "sent")


# --- in processes of their own: those that end well, and participants that are killed, interrupted or asked

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
        assert run["rounds"] >= sum(phase["rounds"] for phase in run["phases"].values()) > 0
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


@system
def test_a_coordinator_that_does_not_dial(trial):
    study = trial(rows=400, match=False)
    study.edit("STUDY.toml", r"^\[coordinator\]$", '[coordinator]\nlinks = "direct"')
    for name in ("bank", "clinic"):
        study.edit(f"{name}/party.toml", r"\Z", f'\n[network]\nlisten = "127.0.0.1:{free_port()}"\n')
    study.start("coordinator", dial=False)
    study.start(*study.parties)
    study.end_well()
    links = {name: study.run_json(name)["links"] for name in EVERYBODY}
    for party in ("bank", "clinic"):
        assert links["coordinator"][party]["way"] == links[party]["coordinator"]["way"] == "hub"
        assert links["coordinator"][party]["why"] == "this participant does not dial, and the other has not dialled"
    assert links["bank"]["clinic"]["way"] == links["shop"]["bank"]["way"] == "direct"
    sent, relayed = bytes_by_way(study.run_json("bank"))
    assert sent > relayed > 0
    assert "Sent through the hub" in (study.out("coordinator") / "report.html").read_text()


# --- whoever is killed or interrupted


@pytest.mark.parametrize("killed", ["bank", pytest.param("coordinator", marks=system)])
def test_a_participant_killed_half_way(trial, killed):
    study = trial(rows=20_000, match=False, reconnect=1.5)
    wire, listen = slow_line(study)
    if killed == "bank":
        study.start_bank_last(listen)
    else:
        study.start("coordinator", listen=listen)
        study.start(*study.parties, threads=True)
    for name in study.parties:
        study.until(name, "first share")
    study.children[killed].send_signal(signal.SIGKILL)
    ended, others = study.ends(), [name for name in EVERYBODY if name != killed]
    wire.close()
    assert ended[killed].code == -signal.SIGKILL
    check_ended(ended, others, [*LOST, errors.ConnectError] if killed == "coordinator" else LOST, killed)
    assert {study.run_json(name)["status"] for name in others} == {"failed"}
    study.check_states("sent")
    assert all(study.spent(name) == pytest.approx(1.0, abs=1e-6) for name in study.parties)


@system
def test_an_interrupted_party_tells_the_others(trial):
    study = trial(rows=20_000, match=False)
    wire, listen = slow_line(study)
    study.start_bank_last(listen)
    study.until("bank", "first share")
    study.children["bank"].send_signal(signal.SIGTERM)
    ended = study.ends()
    wire.close()
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
from colonnade.protocols.roles import Role

def killed(me, *given, **named):
    transport = next(iter(me.engine.links.values()))._post
    with transport.changed:
        transport._flush()  # what it has dealt has arrived
    os.kill(os.getpid(), signal.SIGKILL)

Role.reveal = killed  # the opening of the result; those of proofs and checks come before
main()
"""


@system
def test_a_study_goes_on_without_a_spare_party_that_is_killed_before_the_opening(trial, monkeypatch):
    """Five seats of which any three open: the others end well, with the same result, and say who was lost."""
    study = trial(rows=100, parties=5, match=False, reconnect=0.5)
    study.edit("STUDY.toml", r"^\[budget\]", "[committee]\nthreshold = 1\n[budget]")
    *others, lost = study.parties
    real, steps = local._start, []

    def start(name, command, forks):
        if name != lost:
            return real(name, command, forks)
        words = [sys.executable, "-c", KILLED_BEFORE_ITS_OPENING, *command]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return LocalParticipant(name, process, output=process.stdout)

    monkeypatch.setattr(local, "_start", start)
    loaded, out = study.study(), study.folder / "run"
    folders = run_local(loaded, out, progress=lambda *step: steps.append(step))
    facts = publish(loaded, out, folders)
    assert steps[-1] == (f"without {lost}", 1, 1)
    rest = [folders[name] for name in ("coordinator", *others)]
    assert len({(folder / "model.json").read_bytes() for folder in rest}) == 1
    for folder in rest:
        run = json.loads((folder / "run.json").read_text())
        assert (run["status"], run["lost"]) == ("finished", [lost])
    assert f"\nwent on without {lost}\n" in text_output.outcome(loaded, out, facts["run"])
    assert f"The study went on without {lost}" in (out / "report.html").read_text()
    study.check_states("committed", names=others)
    study.check_states("sent", names=[lost])


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
from colonnade.tables import keys

keys._FORMS["NFC"] = partial(unicodedata.normalize, "NFD")  # as pyarrow did before 26
main()
"""
EARLIER_WIRE = """
from colonnade.cli import main
from colonnade.wire import endpoint

endpoint._VERSION = b"colonnade wire 3"
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
            assert ended[name].sentence.count(f"has {versions.versions_text()}") == 2
    study.check_states("released")


# --- who says yes at a terminal


@pytest.fixture
def asked(trial):
    """A study about which the bank's operator is asked, and a function that hears the question and answers it."""
    study = trial(join=60)
    study.edit("STUDY.toml", r"\A", 'security = "semi-honest"\n')
    study.edit("bank/party.toml", r'^approval = "auto-within-budget"', 'approval = "ask"')
    person, process = pty.openpty()

    def hear():
        study.start("bank", stdin=process)
        said = ""
        while "[y/N] " not in said:
            character = study.children["bank"].stderr.read(1)
            assert character, said
            said += character
        return said

    yield study, hear, lambda word: os.write(person, f"{word}\n".encode())
    os.close(person)
    os.close(process)


@system
def test_without_a_terminal_a_digest_is_needed_and_nothing_leaves_before_the_answer(asked):
    study, hear, answer = asked
    study.start("bank")
    check_ended(study.ends(), ["bank"], [errors.PolicyError], f"--approve {study.study().digest}`")
    with socket.create_server(("127.0.0.1", study.port)) as nobody:
        nobody.settimeout(0.5)
        assert study.study().digest in hear()
        with pytest.raises(TimeoutError):
            nobody.accept()
        assert not (study.folder / "bank" / "ledger.sqlite").exists()
    study.start("coordinator", threads=True)
    study.until("coordinator", "listening")
    answer("n")
    ended = study.ends()
    # only now it dialled, to say that it will not take part
    check_words(ended["coordinator"].sentence, f"bank stopped the study: {NO_PART}")
    check_ended(ended, ["bank"], [errors.PolicyError], "was not approved by bank's operator")
    assert study.states("bank") == []


@system
def test_yes_at_the_terminal_and_no_to_a_repetition(asked):
    study, hear, answer = asked
    study.start("coordinator", "shop", "clinic", threads=True)
    hear()
    answer("y")
    study.end_well()
    assert study.run_json("bank")["approval"] == {"mode": "ask", "by": "an answer at the terminal"}
    told = r"study 'trial' already ran on .* UTC, as bank's ledger says: spend again\? \[y/N\]"
    assert re.search(told, hear())
    answer("n")
    assert study.children["bank"].wait(300) == errors.PolicyError.exit_code
    study.check_states("committed", names=["bank"])
