"""What can go wrong between participants: a clear sentence everywhere, a documented code, a true ledger.

Participants are threads here; those that are killed or interrupted are in ``test_processes.py``.
"""

from __future__ import annotations

import contextlib
import http.server
import threading
from types import SimpleNamespace

import pytest

from colonnade import errors
from colonnade.errors import NO_PART
from colonnade.mpc import Hand, Shares
from colonnade.privacy import Ledger, PostProcessing, Trust
from colonnade.study.local import Child, first_cause
from colonnade.study.run import _given_back
from colonnade.wire import Endpoint, Hub, Identity
from tests.support.errors import raises
from tests.support.ports import free_port
from tests.support.studies import check_ended
from tests.wire.conftest import Wire

OTHERS = ("coordinator", "shop", "clinic")
EVERYBODY = ("bank", *OTHERS)
STOPPED = [errors.PeerStopped]


def test_who_came_too_late_is_not_the_cause():
    def ended(name, error):
        return Child(name, SimpleNamespace(returncode=1), {"error": error, "message": "why"})

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
    """Somebody else listens at the coordinator's address, with a certificate of its own."""
    study = trial()
    impostor = Identity.create("coordinator")
    known = study.study().certificates() | {"coordinator": impostor.certificate}
    with Hub(impostor, known, address=f"127.0.0.1:{study.port}"):
        study.start("bank", threads=True)
        check_ended(study.ends(), ["bank"], [errors.IdentityError], "coordinator")
    study.check_states("released", names=["bank"])


class HangsUp(http.server.BaseHTTPRequestHandler):
    def handle(self) -> None:
        self.connection.close()


@pytest.mark.parametrize(
    ("handler", "said"),
    [(http.server.SimpleHTTPRequestHandler, "does not speak TLS as a hub does"), (HangsUp, "hangs up")],
    ids=["http", "closes"],
)
def test_another_program_has_the_port(trial, handler, said):
    """The coordinator cannot listen there, and a party that dials it is told that this is not the coordinator."""
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
    ledger, events = Ledger(config.ledger), config.charged(loaded)
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
    found = [errors.ShareError, errors.PeerStopped]
    check_ended(ended, ["coordinator", *study.parties], found, "do not lie on one polynomial")
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


def test_a_record_with_gaps_does_not_cost_the_result(trial):
    study = trial(rows=5_000, match=False)
    study.start_all(threads=True)
    study.until("bank", "first share")
    record = study.out("bank") / "run.json"
    while not record.is_dir():  # the run may write it again at any moment
        record.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            record.mkdir()
    ended = study.ends()
    check_ended(ended, ["bank"], [errors.StorageError], "its record has gaps")
    assert (study.out("bank") / "model.json").stat().st_size > 0
    study.check_states("committed", names=["bank"])
    assert all(ended[name].code == 0 for name in OTHERS), ended


@pytest.mark.parametrize("mended", [True, False], ids=["for a moment", "for good"])
def test_lines_that_are_cut(trial, mended):
    study, behind = trial(rows=20_000, reconnect=5 if mended else 0.5, match=False), free_port()
    wire = Wire(behind)
    study.edit("STUDY.toml", r'^address = ".*"', f'address = "127.0.0.1:{wire.port}"')
    study.start("coordinator", listen=f"127.0.0.1:{behind}", threads=True)
    study.until("coordinator", "listening")
    study.start(*study.parties, threads=True)
    study.until("bank", "first share")
    wire.cut()
    if mended:
        wire.restore()
        study.end_well()
    else:
        ended = study.ends()
        check_ended(ended, study.parties, [errors.ConnectError, errors.PeerLost])
        check_ended(ended, ["coordinator"], [errors.PeerLost, errors.PeerStopped])
    wire.close()
    study.check_states("committed" if mended else "sent")


def test_what_is_given_back_is_known_without_reading_every_entry(tmp_path, monkeypatch):
    trust = Trust(("bank", "shop"), (), 0)
    ledger = Ledger(tmp_path / "l.sqlite", owner="bank")
    entries = [ledger.reserve(f"s{number}", "d", [PostProcessing("a table")], trust, ()) for number in range(3)]
    ledger.mark_sent(entries[1])
    monkeypatch.delattr(Ledger, "entries")
    assert _given_back(ledger, entries[0]) == "budget released: no share had left"
    assert _given_back(ledger, entries[0]) == "budget had been released by hand: no share had left"
    assert _given_back(ledger, entries[1]) == "budget stays spent: shares had left"
