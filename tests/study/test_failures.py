"""What can go wrong between participants: a clear sentence everywhere, a documented code, a true ledger.

Whoever is killed or interrupted, or whose output is looked at, has a process of its own; the others are threads.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from colonnade import errors
from colonnade.cli import show
from colonnade.cli.publish import publish
from colonnade.errors import NO_PART
from colonnade.mpc import Hand, Shares
from colonnade.privacy import Ledger, PostProcessing, Trust
from colonnade.study import PartyConfig, Study, local, run_local
from colonnade.study.local import Child, first_cause
from colonnade.study.run import _given_back
from colonnade.wire import Hub, Identity
from tests.support.errors import raises
from tests.support.ports import free_port

OTHERS = ("coordinator", "shop", "clinic")


def assert_stopped_by_bank(ended, reason=NO_PART):
    for name in OTHERS:
        assert ended[name].code == errors.PeerStopped.exit_code, ended[name]
        assert f"bank stopped the study: {reason}" in ended[name].sentence


def test_a_table_that_does_not_fit(trial):
    study = trial()
    study.edit("bank/bank.csv", "employed", "astronaut")
    study.edit("bank/party.toml", r'^# misfits = "refuse"', 'misfits = "refuse"')
    study.start_bank_last()
    ended = study.ends()
    assert ended["bank"].code == errors.DataError.exit_code
    for part in ("bank.csv", "work", "row"):
        assert part in ended["bank"].sentence
    assert "astronaut" not in ended["bank"].text
    assert_stopped_by_bank(ended)
    assert all("bank.csv" not in ended[name].text for name in OTHERS)
    assert study.run_json("bank")["exit_code"] == errors.DataError.exit_code
    for name in study.parties:
        assert study.states(name) == ["released"]
        assert study.spent(name) == 0


@pytest.mark.parametrize(
    ("pattern", "replacement", "said"),
    [
        (r"^(\"?person_id\"?,\"?)age", r"\1agee", ("DA154", "bank.csv", "age")),
        (r"^(\"P\d+\"),\d+,", r"\1,NaN,", ("DA152", "bank.csv", "age", "1")),
        (r"(?s)^.*", "", ("DA155", "bank.csv")),
    ],
    ids=["unknown column", "NaN", "empty file"],
)
def test_other_tables_that_do_not_fit(trial, pattern, replacement, said):
    study = trial()
    study.edit("bank/bank.csv", pattern, replacement)
    study.edit("bank/party.toml", r'^# misfits = "refuse"', 'misfits = "refuse"')
    loaded, config = study.study(), PartyConfig.load(study.folder / "bank" / "party.toml")
    with raises(errors.DataError, said):
        config.table(loaded.roster.schemas["bank"], loaded.aligning.plan)


def test_a_whole_run_names_the_first_cause(trial):
    study = trial()
    study.edit("shop/shop.csv", r"person_id", "pid")
    loaded = Study.load(study.folder / "STUDY.toml")
    with raises(errors.DataError, "DA154", "shop.csv", "person_id"):
        run_local(loaded, study.folder / "run")


def test_who_came_too_late_is_not_the_cause():
    def ended(name, error):
        process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"], text=True)
        process.wait()
        return Child(name, process, {"error": error, "message": "why"})

    late, broken = ended("bank", "ConnectError"), ended("shop", "DataError")
    assert isinstance(first_cause({"bank": late, "shop": broken}), errors.DataError)
    assert isinstance(first_cause({"bank": late}), errors.ConnectError)


def test_parties_with_different_people(trial):
    study = trial(match=False)
    table = study.folder / "bank" / "bank.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-1]))
    study.start_all(threads=True)
    ended = study.ends()
    for name in study.parties:
        assert ended[name].code in (errors.StudyError.exit_code, errors.PeerStopped.exit_code)
        assert "do not hold the same people" in ended[name].sentence
        assert "[align]" in ended[name].sentence
        assert study.states(name) == ["released"]
    assert errors.StudyError.exit_code in {end.code for end in ended.values()}


def test_a_wrong_pin(trial):
    study = trial()
    study.edit("STUDY.toml", r'^"bank" = "sha256:...', '"bank" = "sha256:000')
    study.start_all(threads=True)
    ended = study.ends()
    for name in ("coordinator", *study.parties):
        assert ended[name].code == errors.IdentityError.exit_code, ended[name]
        assert "bank" in ended[name].sentence
        assert "ask bank which is right: if the file, pin it by `colonnade init pins`" in ended[name].sentence
    assert not (study.folder / "shop" / "ledger.sqlite").exists()


def test_a_certificate_that_is_not_the_pinned_one(trial):
    """The bank runs with another key than everyone else expects of it."""
    study = trial(join=4)
    Identity.create("bank").save(study.folder / "bank" / "other")
    study.edit("bank/party.toml", r'^key = "bank.key"', 'key = "other/bank.key"')
    study.start_all(threads=True)
    ended = study.ends()
    assert ended["bank"].code == errors.IdentityError.exit_code
    assert "bank.crt" in ended["bank"].sentence
    for name in OTHERS:
        assert ended[name].code in (errors.PeerLost.exit_code, errors.PeerStopped.exit_code)
        assert "bank has not joined the study within 4 s" in ended[name].sentence
    assert study.states("shop") == ["released"]


def test_an_impostor_hub_is_refused(trial):
    """Somebody else listens at the coordinator's address, with a certificate of its own."""
    study = trial(join=6)
    impostor = Identity.create("coordinator")
    known = study.study().certificates() | {"coordinator": impostor.certificate}
    with Hub(impostor, known, address=f"127.0.0.1:{study.port}"):
        study.start("bank", threads=True)
        ended = study.ends()
    assert ended["bank"].code == errors.IdentityError.exit_code, ended["bank"]
    assert "coordinator" in ended["bank"].sentence
    assert study.states("bank") == ["released"]


PLAIN = """
import http.server, sys
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print(server.server_port, flush=True)
server.serve_forever()
"""
HANGS_UP = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    server.accept()[0].close()
"""


@pytest.mark.parametrize(
    ("program", "said"), [(PLAIN, "does not speak TLS as a hub does"), (HANGS_UP, "hangs up")], ids=["http", "closes"]
)
def test_another_program_has_the_port(trial, tmp_path, program, said):
    """The coordinator cannot listen there, and a party that dials it is told that this is not the coordinator."""
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path) as other:
        try:
            port = int(other.stdout.readline())
            study = trial(join=2)
            study.edit("STUDY.toml", r'^address = ".*"', f'address = "127.0.0.1:{port}"')
            study.start("coordinator", "bank", threads=True)
            ended = study.ends()
        finally:
            other.kill()
    assert ended["coordinator"].code == ended["bank"].code == errors.ConnectError.exit_code
    assert f"cannot listen on 127.0.0.1:{port}: another program has the port" in ended["coordinator"].sentence
    assert "write another port into the study file" in ended["coordinator"].sentence
    assert f"whatever listens at 127.0.0.1:{port} {said}" in ended["bank"].sentence
    assert "check that this is the coordinator's address and port" in ended["bank"].sentence
    assert study.states("bank") == ["released"]


def reserved(study):
    """The bank's ledger, in which this study is reserved as its run would."""
    loaded, config = study.study(), PartyConfig.load(study.folder / "bank" / "party.toml")
    ledger, events = Ledger(config.ledger), config.charged(loaded)
    return ledger, ledger.reserve(loaded.name, loaded.digest, events, loaded.roster.trust, config.caps, config.periods)


def test_a_budget_that_is_spent(trial):
    study = trial()
    study.edit("bank/party.toml", r"^epsilon = .*", "epsilon = { analyst = 1.3, others = 9.0 }")
    ledger, entry = reserved(study)
    ledger.commit(ledger.mark_sent(entry))
    before = study.spent("bank")
    study.start_bank_last(threads=True)
    ended = study.ends()
    assert ended["bank"].code == errors.BudgetError.exit_code
    for word in ("analyst", "spent", "asked", "left"):
        assert word in ended["bank"].sentence
    assert_stopped_by_bank(ended)
    assert study.spent("bank") == before
    assert study.states("bank") == ["committed"]
    assert not {"approved", "budget reserved", "connected"} & {line["what"] for line in study.happened("bank")}


def test_a_period_that_is_spent(trial):
    study = trial()
    path = study.folder / "bank" / "party.toml"
    path.write_text(path.read_text() + "[[policy.periods]]\ndays = 30\nepsilon = { analyst = 1.3 }\n")
    loaded, config = study.study(), PartyConfig.load(path)
    config.check_budget(loaded)
    reserved(study)
    with pytest.raises(errors.BudgetError) as refused:
        config.check_budget(loaded)
    assert "analyst: spent 1.0000, asked 1.0000, left 0.3 of 1.3 in 30 days" in str(refused.value)
    assert "enough will have aged out on 2" in str(refused.value)


def test_a_study_for_other_columns_than_the_policy_allows(trial):
    study = trial()
    study.edit("bank/party.toml", r'^columns = "all".*', 'columns = ["age", "income"]')
    study.start_bank_last(threads=True)
    ended = study.ends()
    assert ended["bank"].code == errors.PolicyError.exit_code
    assert "balance" in ended["bank"].sentence
    assert_stopped_by_bank(ended)


def test_a_party_that_is_not_in_the_study(trial):
    study = trial()
    study.edit("bank/party.toml", r'^name = "bank"', 'name = "insurer"')
    study.start("bank", threads=True)
    ended = study.ends()
    assert ended["bank"].code == errors.PolicyError.exit_code
    assert "insurer is not a party" in ended["bank"].sentence


def test_a_participant_with_another_study(trial):
    study = trial()
    other = study.folder / "OTHER.toml"
    other.write_text(study.file.read_text().replace("n_components = 2", "n_components = 3"))
    study.start_bank_last(study=other, threads=True)
    ended = study.ends()
    for name in ("coordinator", *study.parties):
        assert ended[name].code in (errors.StudyError.exit_code, errors.PeerStopped.exit_code), ended[name]
        assert "holds another version of the study" in ended[name].sentence
    assert all(study.states(name) == ["released"] for name in study.parties)


def test_the_same_parties_in_another_order_are_another_study(trial):
    """The order of the parties is the order of the columns: two orders must never meet unnoticed."""
    study = trial()
    text = study.file.read_text()
    tables = [f'[parties.{name}]\nschema = "schemas/{name}.toml"\n' for name in study.parties]
    head = '[committee]\nseats = ["bank", "shop", "clinic"]\n'
    study.file.write_text(text.replace(tables[0], head + tables[0]))
    first = study.study().digest
    study.file.write_text(study.file.read_text().replace(tables[1] + tables[2], tables[2] + tables[1]))
    assert study.study().digest != first


def test_a_party_killed_half_way(trial):
    study = trial(rows=20_000, match=False, reconnect=1.5)
    study.start_bank_last()
    study.until("bank", "first share")
    study.children["bank"].send_signal(signal.SIGKILL)
    start = time.monotonic()
    ended = study.ends()
    assert time.monotonic() - start < 1.5 + 300  # and not for ever, on a machine with other work
    assert ended["bank"].code == -signal.SIGKILL
    for name in OTHERS:
        assert ended[name].code in (errors.PeerLost.exit_code, errors.PeerStopped.exit_code), ended[name]
        assert "bank" in ended[name].sentence
        assert study.run_json(name)["status"] == "failed"
    for name in study.parties:
        assert study.states(name) == ["sent"]
        assert study.spent(name) == pytest.approx(1.0, abs=1e-6)


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


def test_a_spare_party_killed_before_the_opening(trial):
    """Five seats of which any three open: the others end well, with the same result, and say who was lost."""
    study = trial(rows=100, parties=5, match=False, reconnect=0.5)
    study.edit("STUDY.toml", r"^\[budget\]", "[committee]\nthreshold = 1\n[budget]")
    *others, lost = study.parties
    study.start("coordinator")
    study.start(*others, threads=True)
    study.start(lost, script=KILLED_BEFORE_ITS_OPENING)
    ended = study.ends()
    assert ended[lost].code == -signal.SIGKILL
    assert all(ended[name].code == 0 for name in ("coordinator", *others)), ended
    first, *models = [(study.out(name) / "model.json").read_bytes() for name in ("coordinator", *others)]
    assert all(model == first for model in models)
    for name in ("coordinator", *others):
        run = study.run_json(name)
        assert (run["status"], run["lost"]) == ("finished", [lost])
        assert ("went on without", [lost]) in [(line["what"], line.get("lost")) for line in study.happened(name)]
    assert f"The study went on without {lost}" in (study.out("coordinator") / "report.html").read_text()
    assert all(study.states(name) == ["committed"] for name in others)
    assert study.states(lost) == ["sent"]


def test_a_wrong_share_for_one_recipient_leaves_nobody_with_a_model(trial, monkeypatch):
    """Four seats of which three open: one recipient sees that the shares do not fit, and no other writes a result."""
    study = trial(rows=100, parties=4, match=False)
    liar, victim = study.parties[-1], study.parties[0]
    real = Hand.send_opening

    def send(hand, shares, to):
        if hand.name != liar:
            return real(hand, shares, to)
        wrong = Shares(hand.system.reduce(shares.values + 1.0), shares.degree)
        real(hand, wrong, [victim])
        return real(hand, shares, [name for name in to if name != victim])

    monkeypatch.setattr(Hand, "send_opening", send)
    study.start_all(threads=True)
    ended = study.ends()
    assert ended[victim].code == errors.ShareError.exit_code, ended
    for name in ("coordinator", *study.parties):
        assert ended[name].code in (errors.ShareError.exit_code, errors.PeerStopped.exit_code), ended[name]
        assert "do not lie on one polynomial" in ended[name].sentence
        assert not (study.out(name) / "model.json").exists()
    assert all(study.states(name) == ["sent"] for name in study.parties)


@pytest.mark.slow  # six processes
def test_a_whole_run_goes_on_without_a_spare_party(trial, monkeypatch):
    study = trial(rows=100, parties=5, match=False, reconnect=0.5)
    study.edit("STUDY.toml", r"^\[budget\]", "[committee]\nthreshold = 1\n[budget]")
    real, steps, lost = local._start, [], study.parties[-1]

    def start(name, command, forks):
        if name != lost:
            return real(name, command, forks)
        words = [sys.executable, "-c", KILLED_BEFORE_ITS_OPENING, *command]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return Child(name, process, output=process.stdout)

    monkeypatch.setattr(local, "_start", start)
    loaded, out = study.study(), study.folder / "run"
    facts = publish(loaded, out, run_local(loaded, out, progress=lambda *step: steps.append(step)))
    assert steps[-1] == (f"without {lost}", 1, 1)
    assert facts["run"]["lost"] == [lost]
    assert f"\nwent on without {lost}\n" in show.outcome(loaded, out, facts["run"])


def test_the_coordinator_killed_half_way(trial):
    study = trial(rows=20_000, match=False, reconnect=1.5)
    study.start("coordinator")
    study.start(*study.parties, threads=True)
    study.until("bank", "first share")
    study.children["coordinator"].send_signal(signal.SIGKILL)
    ended = study.ends()
    for name in study.parties:
        assert ended[name].code in (errors.ConnectError.exit_code, errors.PeerLost.exit_code), ended[name]
        assert "coordinator" in ended[name].sentence
        assert study.states(name) == ["sent"]


LAST_WORDS = r"""
from colonnade.cli.app import command_line
from colonnade.wire import Endpoint

joined = Endpoint.wait_for_peers

def leave(self, *given, **named):
    joined(self, *given, **named)
    self.abort("\x1b]0;owned\x07\x1b[2J\u202e\r\ncolonnade: all is well\x9b31m" * 99)
    raise SystemExit(1)

Endpoint.wait_for_peers = leave
command_line()
"""


def test_escape_codes_in_a_partys_last_words_reach_neither_screen_nor_log(trial):
    """A party that is not honest signs whatever it likes as its reason; the others see one plain, short sentence."""
    study = trial(match=False)
    study.start("coordinator", "shop", threads=True)
    study.start("clinic")
    study.start("bank", script=LAST_WORDS)
    ended = study.ends()
    for name in OTHERS:
        assert ended[name].code == errors.PeerStopped.exit_code, ended[name]
        assert "bank stopped the study: \N{REPLACEMENT CHARACTER}]0;owned" in ended[name].sentence
        assert ended[name].sentence.isprintable()
        assert len(ended[name].sentence) < 1000
        failed = study.happened(name)[-1]
        assert failed["message"].isprintable()
        assert study.run_json(name)["message"] == failed["message"]


def test_an_interrupted_party_tells_the_others(trial):
    study = trial(rows=20_000, match=False)
    study.start_bank_last()
    study.until("bank", "first share")
    study.children["bank"].send_signal(signal.SIGTERM)
    ended = study.ends()
    assert ended["bank"].code == study.run_json("bank")["exit_code"] == 130
    for name in OTHERS:  # when its operator stops it just before a share leaves, that is a refusal like any other
        assert ended[name].code == errors.PeerStopped.exit_code, ended[name]
        said = ended[name].sentence
        assert said.endswith(f"bank stopped the study: {NO_PART} [PE019]") or "interrupted by its operator" in said


@pytest.fixture
def _heard():
    """Children hear when a terminal closes, also where these tests were started by nohup, which they would inherit."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_heard")
def test_a_terminal_that_closes_gives_an_unsent_reservation_back(trial):
    study = trial()
    study.start("coordinator", "bank")
    study.until("bank", "connected")
    study.children["bank"].send_signal(signal.SIGHUP)
    study.children["bank"].wait(timeout=300)
    study.children["coordinator"].send_signal(signal.SIGTERM)
    assert study.ends()["bank"].code == 130
    assert study.states("bank") == ["released"]


def test_a_reservation_released_by_hand_stops_the_run_before_anything_is_dealt(trial):
    study = trial()
    study.start("coordinator", "bank", threads=True)
    study.until("bank", "connected")
    ledger = Ledger(study.folder / "bank" / "ledger.sqlite")
    ledger.release(ledger.entries()[0])
    study.start("shop", "clinic", threads=True)
    ended = study.ends()
    assert ended["bank"].code == errors.LedgerError.exit_code
    assert "entry 1 is released and cannot become sent" in ended["bank"].sentence
    assert_stopped_by_bank(ended)
    whats = [line["what"] for line in study.happened("bank")]
    assert "budget had been released by hand: no share had left" in whats
    assert "first share" not in whats
    assert study.states("bank") == ["released"]


def test_a_result_that_cannot_be_saved_says_so_and_stays_spent(trial):
    study = trial()
    study.start_bank_last(threads=True)
    study.until("bank", "table checked")
    (study.out("bank") / "model.json.partial").mkdir()
    ended = study.ends()
    assert ended["bank"].code == errors.StorageError.exit_code
    assert "ended well and stays spent" in ended["bank"].sentence
    assert "model.json, which holds the same result" in ended["bank"].sentence
    assert study.states("bank") == ["sent"]
    assert all(ended[name].code == 0 for name in OTHERS), ended
    assert (study.out("shop") / "model.json").exists()


NO_ROOM_FOR_A_REPORT = """
import resource, sys
from colonnade.cli import main

sys.dont_write_bytecode = True  # or compiled modules would be cut off, and stay so
resource.setrlimit(resource.RLIMIT_FSIZE, (32_000, 32_000))
main()
"""


def test_a_report_that_does_not_fit_is_named_and_the_model_is_whole(trial):
    study = trial(match=False)
    study.start("coordinator", script=NO_ROOM_FOR_A_REPORT)
    study.start(*study.parties, threads=True)
    ended = study.ends()
    assert ended["coordinator"].code == errors.StorageError.exit_code, ended
    said = ended["coordinator"].sentence
    assert f"the study ended well and {study.out('coordinator') / 'model.json'} is whole" in said
    assert f"{study.out('coordinator') / 'report.html'} cannot be written: File too large" in said
    assert "standard output" not in said
    assert (study.out("coordinator") / "model.json").read_bytes() == (study.out("bank") / "model.json").read_bytes()
    assert all(ended[name].code == 0 for name in study.parties), ended


def put_folder_at(path):
    """Put a folder where a file stands that a run may write again at any moment."""
    while not path.is_dir():
        path.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir()


def test_a_record_with_gaps_does_not_cost_the_result(trial):
    study = trial(rows=5_000, match=False)
    study.start_all(threads=True)
    study.until("bank", "first share")
    put_folder_at(study.out("bank") / "run.json")
    ended = study.ends()
    assert ended["bank"].code == errors.StorageError.exit_code
    assert "its record has gaps" in ended["bank"].sentence
    assert (study.out("bank") / "model.json").stat().st_size > 0
    assert study.states("bank") == ["committed"]
    assert all(ended[name].code == 0 for name in OTHERS), ended


class Proxy:
    """A wire that can be cut: forwards one port to another, and drops some callers when told to."""

    def __init__(self, port, target):
        self._server = socket.create_server(("127.0.0.1", port))
        self._target = target
        self._pairs = []
        self.open = True
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            if not self.open:
                near.close()
                continue
            pair = (near, socket.create_connection(("127.0.0.1", self._target)))
            self._pairs.append(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self._copy, args=(source, sink, pair), daemon=True).start()

    def _copy(self, source, sink, pair):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        if pair in self._pairs:
            self._pairs.remove(pair)
        for end in pair:
            end.close()

    def callers(self):
        return list(self._pairs)

    def cut(self, callers):
        self.open = False
        for pair in callers:
            for end in pair:
                with suppress(OSError):  # a caller may have hung up by itself
                    end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.open = False
        self._server.close()
        for pair in self.callers():
            for end in pair:
                end.close()


@pytest.fixture
def proxied(trial):
    """A study whose parties reach the coordinator through a wire that can be cut; the bank calls first."""
    study = trial(rows=20_000, reconnect=5, match=False)
    behind = free_port()
    proxy = Proxy(study.port, behind)
    study.start("coordinator", listen=f"127.0.0.1:{behind}", threads=True)
    study.until("coordinator", "listening")
    study.start("bank", threads=True)
    study.until("bank", "connected")
    bank = proxy.callers()
    study.start("shop", "clinic", threads=True)
    study.until("bank", "first share")
    proxy.cut(bank)
    yield study, proxy
    proxy.close()


def test_a_link_cut_for_two_seconds(proxied):
    study, proxy = proxied
    time.sleep(2)
    proxy.open = True
    ended = study.ends()
    assert all(end.code == 0 for end in ended.values()), ended
    assert all(study.states(name) == ["committed"] for name in study.parties)


def test_a_link_cut_for_good(proxied):
    study, _ = proxied
    ended = study.ends()
    assert ended["bank"].code == errors.ConnectError.exit_code, ended["bank"]
    for name in OTHERS:
        assert ended[name].code in (errors.PeerLost.exit_code, errors.PeerStopped.exit_code), ended[name]
        assert "bank" in ended[name].sentence
    assert all(study.states(name) == ["sent"] for name in study.parties)


def test_what_is_given_back_is_known_without_reading_every_entry(tmp_path, monkeypatch):
    trust = Trust(("bank", "shop"), (), 0)
    ledger = Ledger(tmp_path / "l.sqlite", owner="bank")
    entries = [ledger.reserve(f"s{number}", "d", [PostProcessing("a table")], trust, ()) for number in range(3)]
    ledger.mark_sent(entries[1])
    monkeypatch.delattr(Ledger, "entries")
    assert _given_back(ledger, entries[0]) == "budget released: no share had left"
    assert _given_back(ledger, entries[0]) == "budget had been released by hand: no share had left"
    assert _given_back(ledger, entries[1]) == "budget stays spent: shares had left"
