"""Identities and workers: whose certificates count, who may speak for a party, where, and until when."""

from __future__ import annotations

import copy
import os
import pickle
import ssl
import stat
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, strategies as st

from colonnade import wire
from colonnade.errors import IdentityError
from colonnade.wire import Certificate, Hub, Identity, certificates, dial, workers
from colonnade.wire.identity import load_key
from colonnade.wire.lanes import is_lane, lane_room, lane_topic
from colonnade.wire.workers import LONGEST, MOST_BYTES, Introduction, WorkerKeys, check_introduction, introduce
from tests.support.errors import refused

TOPIC = b"digest of a study"


def soon(hours: float = 6.0) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


@pytest.fixture(scope="module")
def bank() -> SimpleNamespace:
    identity, keys = Identity.create("bank"), WorkerKeys.create("bank")
    until = soon()
    raw = introduce(identity, keys.request, TOPIC, until)
    return SimpleNamespace(identity=identity, base=identity.certificate, keys=keys, until=until, raw=raw)


def test_an_introduction_is_believed_for_its_study_and_its_time(bank: Any) -> None:
    assert check_introduction(bank.raw, bank.base, TOPIC) == bank.keys.certificate
    assert check_introduction(bank.raw, bank.base, TOPIC, bank.until - timedelta(seconds=2)) == bank.keys.certificate
    assert bank.keys.certificate.fingerprint != bank.base.fingerprint
    refused(IdentityError, ("ID060", "bank"), check_introduction, bank.raw, bank.base, TOPIC, bank.until)
    refused(IdentityError, "ID054", check_introduction, bank.raw, bank.base, b"another study")


def test_only_the_pinned_identity_introduces_and_only_its_own(bank: Any) -> None:
    own, other = Introduction.read(bank.raw, "bank"), WorkerKeys.create("bank")
    shop, of_shop = Identity.create("shop"), WorkerKeys.create("shop")
    # the shop's head signs its own worker under the name of the bank
    forged = shop.sign(workers._statement(other.certificate, own.connection, TOPIC, own.until))
    longer = own.until + timedelta(hours=1)
    for raw in (
        introduce(Identity.create("bank"), bank.keys.request, TOPIC, soon()),
        Introduction(other.certificate, own.connection, own.until, own.signature).to_bytes(),
        Introduction(own.worker, own.connection, longer, own.signature).to_bytes(),
        introduce(bank.keys._identity, other.request, TOPIC, soon()),  # by a worker
        Introduction(other.certificate, own.connection, own.until, forged).to_bytes(),
    ):
        refused(IdentityError, "ID054", check_introduction, raw, bank.base, TOPIC)
    raw = introduce(shop, of_shop.request, TOPIC, soon())
    refused(IdentityError, ("ID053", "shop", "bank"), check_introduction, raw, bank.base, TOPIC)
    refused(IdentityError, ("ID057", "bank"), introduce, shop, bank.keys.request, TOPIC, soon())
    lazy = WorkerKeys(bank.identity, certificates.connection_key())  # a worker has a key of its own
    refused(IdentityError, ("ID058", "bank"), introduce, bank.identity, lazy.request, TOPIC, soon())


def test_nobody_is_introduced_for_the_past_or_for_days_or_longer_than_a_certificate_lasts(bank: Any) -> None:
    for hours in (-0.001, 0.0, 49.0):
        said = ("ID055", "48")
        refused(IdentityError, said, introduce, bank.identity, bank.keys.request, TOPIC, soon(hours))
    until = datetime.now(UTC).replace(microsecond=0) + LONGEST + certificates.CLOCK_SKEW + timedelta(hours=1)
    signature = bank.identity.sign(workers._statement(bank.keys.certificate, b"", TOPIC, until))
    beyond = Introduction(bank.keys.certificate, b"", until, signature)
    refused(IdentityError, "ID061", beyond.check, bank.base, TOPIC)
    for days in ((1, 30), (30, 1)):
        party, own = (Identity.create("bank", days=each) for each in days)
        worker = WorkerKeys(own, certificates.connection_key())
        raw = introduce(party, worker.request, TOPIC, soon(40))
        assert check_introduction(raw, party.certificate, TOPIC, soon(20)) == worker.certificate
        refused(IdentityError, ("ID023", "bank"), check_introduction, raw, party.certificate, TOPIC, soon(30))


def test_what_is_cut_has_more_or_asks_for_another_certificate_is_refused(bank: Any) -> None:
    for raw in (b"", bank.raw[:-1], bank.raw + b"\0", bank.keys.request, bank.raw + bytes(MOST_BYTES), bank.raw[1:]):
        refused(IdentityError, "ID050", check_introduction, raw, bank.base, TOPIC)
    for raw in (b"", bank.keys.request[:-1], bank.keys.request + b"\0", bank.raw):
        refused(IdentityError, "ID056", introduce, bank.identity, raw, TOPIC, soon())
    own = Introduction.read(bank.raw, "bank")
    late = workers._joined(own.worker.der, own.connection, struct.pack("<Q", 1 << 63), own.signature)
    refused(IdentityError, "ID052", check_introduction, workers._INTRODUCTION + late, bank.base, TOPIC)
    bodies = [b"nonsense", certificates.request("bank", certificates.connection_key())[:-1] + b"\1"]
    for key in (ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)):
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        bodies.append(builder.sign(key, SHA256()).public_bytes(Encoding.DER))
    for body in bodies:
        request = workers._REQUEST + workers._joined(bank.keys.certificate.der, body)
        refused(IdentityError, "ID059", introduce, bank.identity, request, TOPIC, soon())


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")  # of changed serial numbers
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7), cut=st.integers(0, 10_000))
def test_no_changed_byte_is_believed_and_nothing_else_is_raised(bank: Any, at: int, bit: int, cut: int) -> None:
    changed = bytearray(bank.raw)
    changed[at % len(changed)] ^= 1 << bit
    for raw in (bytes(changed), bank.raw[: cut % len(bank.raw)]):
        refused(IdentityError, (), check_introduction, raw, bank.base, TOPIC)


def test_a_worker_takes_its_own_introduction_only(bank: Any) -> None:
    admission = bank.keys.admission(bank.raw, bank.base, TOPIC)
    shown = x509.load_pem_x509_certificate(admission.issue_connection_certificate().chain_pem)
    assert bank.base.has_issued(shown)
    assert (certificates.worker_of(shown), certificates.holder(shown)) == ("bank", "")
    # A hub that knows of no lanes goes by the common name, and one that is dialled by the alternative one.
    assert certificates.common_name(shown) == ""
    assert x509.SubjectAlternativeName not in {type(found.value) for found in shown.extensions}
    used = shown.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    assert (used.critical, list(used.value)) == (True, [ExtendedKeyUsageOID.CLIENT_AUTH])
    assert not shown.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert shown.not_valid_after_utc == bank.until.replace(microsecond=0)
    refused(IdentityError, "ID047", WorkerKeys.create("bank").admission, bank.raw, bank.base, TOPIC)
    # the certificate of another worker's connection, beside our own, and one with which a worker could do too much
    other = Introduction.read(introduce(bank.identity, WorkerKeys.create("bank").request, TOPIC, soon()), "bank")
    own = Introduction.read(bank.raw, "bank")
    subject, key = certificates._x509_name("bank", "link"), bank.keys._key.public_key()
    whole = certificates._connection(subject, key, soon(), bank.base.parsed).sign(bank.identity._key, None)
    for connection in (other.connection, whole.public_bytes(Encoding.DER)):
        signature = bank.identity.sign(workers._statement(own.worker, connection, TOPIC, own.until))
        mixed = Introduction(own.worker, connection, own.until, signature).to_bytes()
        refused(IdentityError, "ID048", bank.keys.admission, mixed, bank.base, TOPIC)


CN, ORG, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
NAMES: dict[tuple[tuple[x509.ObjectIdentifier, str], ...], tuple[str, str]] = {
    ((CN, "bank"), (OU, "link")): ("bank", ""),
    ((ORG, "bank"), (OU, "lanes")): ("", "bank"),
    ((CN, "bank"),): ("", ""),
    ((ORG, "bank"),): ("", ""),
    ((CN, "bank"), (OU, "lanes")): ("", ""),
    ((ORG, "bank"), (OU, "link")): ("", ""),
    ((CN, "bank"), (ORG, "bank"), (OU, "lanes")): ("", ""),
    ((CN, "bank"), (ORG, "bank"), (OU, "link")): ("", ""),
    ((CN, "bank"), (CN, "shop"), (OU, "link")): ("", ""),
    ((ORG, "bank"), (ORG, "shop"), (OU, "lanes")): ("", ""),
    ((ORG, "bank"), (OU, "lanes"), (OU, "link")): ("", ""),
    ((CN, "b\u0430nk"), (OU, "link")): ("b\u0430nk", ""),  # which is no name that a study can have
}


@pytest.mark.parametrize("subject", NAMES)
def test_whose_connection_certificate_it_is(bank: Any, subject: tuple[Any, ...]) -> None:
    key, now = certificates.connection_key(), datetime.now(UTC)
    issued = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(*part) for part in subject]))
        .issuer_name(bank.base.parsed.subject)
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(hours=1))
        .public_key(key.public_key())
        .sign(bank.identity._key, None)
    )
    assert (certificates.holder(issued), certificates.worker_of(issued)) == NAMES[subject]
    assert bank.base.has_issued(issued) == ("bank" in NAMES[subject])


def test_a_worker_that_is_out_of_date_does_not_dial(bank: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    admission = bank.keys.admission(bank.raw, bank.base, TOPIC)
    later = SimpleNamespace(now=lambda tz: bank.until + timedelta(minutes=1))
    monkeypatch.setattr(workers, "datetime", later)
    refused(IdentityError, "ID060", admission.issue_connection_certificate)


def test_lanes_have_names_and_topics(bank: Any) -> None:
    mark = "0123456789abcdef" * 2
    assert all(is_lane(f"{room}-{mark}") for room in ("lane-0-1", "lane-1023-12", "lane-9999999-9999"))
    bad = ("", "lane", "lane-1", "lane-01-1", "lane-1-0", "lane-1-01", "lane--1-1", "xlane-1-1", "lane-10000000-1")
    for room in (*(f"{room}-{mark}" for room in bad), f"lane-1-1-{mark}\n", f"lane-\u0661-1-{mark}", "lane-1-1"):
        assert not is_lane(room)
    for partition, attempt in ((-1, 1), (0, 0), (10**7, 1), (0, 10**4)):
        refused(ValueError, ("VA272", partition, attempt), lane_room, partition, attempt, b"")
    shop = WorkerKeys.create("shop").certificate
    crews = [{"shop": shop, "bank": cert} for cert in (bank.keys.certificate, WorkerKeys.create("bank").certificate)]
    lanes = [(topic, *lane, crew) for topic in (b"a", b"b") for lane in ((1, 1), (11, 1), (1, 11)) for crew in crews]
    topics = [lane_topic(*lane) for lane in lanes]
    assert len({lane_room(1, 1, topic) for topic in topics}) == len(set(topics)) == len(lanes) == 12
    # the order in which somebody was told of them does not matter
    assert lane_topic(b"a", 1, 1, dict(reversed(crews[0].items()))) == topics[0]
    assert lane_room(1, 1, topics[0]).startswith("lane-1-1-")


# --- identities


def test_files_round_trip_and_no_key_is_overwritten(tmp_path: Path) -> None:
    identity, other = Identity.create("bank"), Identity.create("bank")
    key_path, crt_path = identity.save(tmp_path / "keys")
    assert (key_path.name, crt_path.name, stat.S_IMODE(key_path.stat().st_mode)) == ("bank.key", "bank.crt", 0o600)
    again = Identity.load(key_path, crt_path)
    digest = identity.certificate.parsed.fingerprint(SHA256()).hex()
    assert (again.name, again.fingerprint, identity.fingerprint) == ("bank", *[f"sha256:{digest}"] * 2)
    assert [identity.certificate.has_signed(again.sign(b"x"), text) for text in (b"x", b"y")] == [True, False]
    refused(IdentityError, ("ID029", "bank.key"), other.save, tmp_path / "keys")
    assert Certificate.load(crt_path, identity.fingerprint.upper().replace("SHA256", "sha256")).name == "bank"
    said = ("bank", crt_path, identity.fingerprint, other.fingerprint)
    refused(IdentityError, said, Certificate.load, crt_path, other.fingerprint)
    _, foreign = other.save(tmp_path / "other")
    refused(IdentityError, "ID028", Identity.load, key_path, foreign)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    identity = Identity.create("bank")
    key_path, crt_path = identity.save(tmp_path)
    bad, missing = tmp_path / "bad", tmp_path / "missing.key"
    for content in (b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END"):
        bad.write_bytes(content)
        refused(IdentityError, "ID020", Identity.load, key_path, bad)
        refused(IdentityError, "ID026", Identity.load, bad, crt_path)
    refused(IdentityError, "ID032", Certificate.load, missing)
    refused(IdentityError, ("ID025", "missing.key"), Identity.load, missing, missing.with_suffix(".crt"))
    chain = identity.issue_connection_certificate().chain_pem  # which is no identity
    refused(IdentityError, (), Certificate.from_pem, chain)
    shown = x509.load_pem_x509_certificate(chain)
    others = [Identity.create(name).certificate for name in ("bank", "shop")]
    assert [each.has_issued(shown) for each in (identity.certificate, *others)] == [True, False, False]


def test_dates_and_names_that_cannot_be() -> None:
    certificate = Identity.create("bank", days=10).certificate
    certificate.check_dates()
    certificate.check_dates(soon(-12))  # a clock may be off
    refused(IdentityError, ("ID023", "bank"), certificate.check_dates, soon(11 * 24))
    refused(IdentityError, "ID024", certificate.check_dates, soon(-48))
    for name in ("", "-a", "a-", "a b", "ä", "a/b", "a\n", "x" * 64):
        refused(IdentityError, "ID031", Identity.create, name)


def test_a_private_key_is_neither_copied_nor_sent_nor_handed_over_wrongly(bank: Any) -> None:
    own, shop = bank.identity, Identity.create("shop")
    admission = bank.keys.admission(bank.raw, bank.base, TOPIC)
    for held in (own, bank.keys, admission, admission.connection):
        for taken in (pickle.dumps, copy.deepcopy):
            refused(TypeError, "VA270|VA271|VA273", taken, held)
        assert "PRIVATE" not in repr(held)
    secrets = (bank.keys._identity._key.private_bytes_raw(), certificates.key_pem(bank.keys._key))
    assert not any(secret in public for secret in secrets for public in (bank.keys.request, bank.raw))
    assert own.certificate.has_signed(own.sign(b"x"), b"x")  # which reads the certificate
    assert pickle.loads(pickle.dumps(own.certificate)) == own.certificate  # noqa: S301 - our own bytes
    for key in (shop.key_pem, own.key_pem + bytes(1 << 24)):
        refused(IdentityError, "ID030", load_key, ssl.create_default_context(), key, own.certificate.pem)


def test_no_descriptor_is_left_open(people: Any) -> None:
    def talk() -> int:
        with Hub(people.coordinator, people.pins) as hub, dial(hub.address, people.bank, people.pins):
            pass
        load_key(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), people.bank.key_pem, people.bank.certificate.pem)
        return len(os.listdir("/dev/fd"))

    first = [talk() for _ in range(3)][-1]
    assert max(talk() for _ in range(3)) <= first


def test_every_exported_name_is_found_and_no_other() -> None:
    for name in wire.__all__:
        assert getattr(wire, name).__name__ == name
    refused(AttributeError, "has no attribute 'nothing'", getattr, wire, "nothing")
