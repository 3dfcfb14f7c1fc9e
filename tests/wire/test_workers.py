"""Workers: who may speak for a party, where, and until when."""

from __future__ import annotations

import copy
import pickle
import struct
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, strategies as st

from colonnade.errors import IdentityError
from colonnade.wire import Identity, certificates, workers
from colonnade.wire.lanes import is_lane, lane_room, lane_topic
from colonnade.wire.workers import LONGEST, MOST_BYTES, Introduction, WorkerKeys, check_introduction, introduce
from tests.support.refusals import refused

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


def test_only_the_pinned_identity_introduces(bank: Any) -> None:
    impostor = Identity.create("bank")
    forged = introduce(impostor, bank.keys.request, TOPIC, soon())
    refused(IdentityError, "ID054", check_introduction, forged, bank.base, TOPIC)
    own = Introduction.read(bank.raw, "bank")
    swapped = Introduction(WorkerKeys.create("bank").certificate, own.connection, own.until, own.signature)
    refused(IdentityError, "ID054", check_introduction, swapped.to_bytes(), bank.base, TOPIC)
    longer = Introduction(own.worker, own.connection, own.until + timedelta(hours=1), own.signature)
    refused(IdentityError, "ID054", check_introduction, longer.to_bytes(), bank.base, TOPIC)


def test_a_worker_introduces_nobody(bank: Any) -> None:
    other = WorkerKeys.create("bank")
    chained = introduce(bank.keys._identity, other.request, TOPIC, soon())
    refused(IdentityError, "ID054", check_introduction, chained, bank.base, TOPIC)


def test_another_party_is_not_introduced_as_this_one(bank: Any) -> None:
    shop, keys = Identity.create("shop"), WorkerKeys.create("shop")
    raw = introduce(shop, keys.request, TOPIC, soon())
    refused(IdentityError, ("ID053", "shop", "bank"), check_introduction, raw, bank.base, TOPIC)
    refused(IdentityError, ("ID057", "bank"), introduce, shop, bank.keys.request, TOPIC, soon())
    # the shop's head signs its own worker under the name of the bank
    own, forged = Introduction.read(bank.raw, "bank"), WorkerKeys.create("bank")
    signature = shop.sign(workers._statement(forged.certificate, own.connection, TOPIC, own.until))
    refused(
        IdentityError,
        "ID054",
        Introduction(forged.certificate, own.connection, own.until, signature).check,
        bank.base,
        TOPIC,
    )


@pytest.mark.parametrize("until", [-0.001, 0.0, 49.0])
def test_nobody_is_introduced_for_the_past_or_for_days(bank: Any, until: float) -> None:
    refused(IdentityError, ("ID055", "48"), introduce, bank.identity, bank.keys.request, TOPIC, soon(until))


def test_an_introduction_that_is_good_for_too_long_is_refused(bank: Any) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + LONGEST + certificates.CLOCK_SKEW + timedelta(hours=1)
    signature = bank.identity.sign(workers._statement(bank.keys.certificate, b"", TOPIC, until))
    refused(IdentityError, "ID061", Introduction(bank.keys.certificate, b"", until, signature).check, bank.base, TOPIC)


@pytest.mark.parametrize("short", ["party", "worker"])
def test_nobody_is_believed_longer_than_its_own_certificate(short: str) -> None:
    days = {"party": 30, "worker": 30, short: 1}
    party = Identity.create("bank", days=days["party"])
    worker = WorkerKeys(Identity.create("bank", days=days["worker"]), certificates.connection_key())
    raw = introduce(party, worker.request, TOPIC, soon(40))
    assert check_introduction(raw, party.certificate, TOPIC, soon(20)) == worker.certificate
    refused(IdentityError, ("ID023", "bank"), check_introduction, raw, party.certificate, TOPIC, soon(30))


def test_a_worker_has_a_key_of_its_own(bank: Any) -> None:
    lazy = WorkerKeys(bank.identity, certificates.connection_key())
    refused(IdentityError, ("ID058", "bank"), introduce, bank.identity, lazy.request, TOPIC, soon())


@pytest.mark.parametrize("kind", ["p384", "rsa", "nonsense", "another signature"])
def test_requests_for_other_certificates_are_refused(bank: Any, kind: str) -> None:
    def asked(key: Any) -> bytes:
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        return builder.sign(key, SHA256()).public_bytes(Encoding.DER)

    body = {
        "p384": lambda: asked(ec.generate_private_key(ec.SECP384R1())),
        "rsa": lambda: asked(rsa.generate_private_key(65537, 2048)),
        "nonsense": lambda: b"nonsense",
        "another signature": lambda: asked(certificates.connection_key())[:-1] + b"\1",
    }[kind]()
    request = workers._REQUEST + workers._joined(bank.keys.certificate.der, body)
    refused(IdentityError, "ID059", introduce, bank.identity, request, TOPIC, soon())


def test_what_is_cut_or_has_more_cannot_be_read(bank: Any) -> None:
    for raw in (b"", bank.raw[:-1], bank.raw + b"\0", bank.keys.request, bank.raw + bytes(MOST_BYTES), bank.raw[1:]):
        refused(IdentityError, "ID050", check_introduction, raw, bank.base, TOPIC)
    for raw in (b"", bank.keys.request[:-1], bank.keys.request + b"\0", bank.raw):
        refused(IdentityError, "ID056", introduce, bank.identity, raw, TOPIC, soon())
    own = Introduction.read(bank.raw, "bank")
    late = workers._joined(own.worker.der, own.connection, struct.pack("<Q", 1 << 63), own.signature)
    refused(IdentityError, "ID052", check_introduction, workers._INTRODUCTION + late, bank.base, TOPIC)


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


def test_private_keys_stay_where_they_were_born(bank: Any) -> None:
    admission = bank.keys.admission(bank.raw, bank.base, TOPIC)
    for held in (bank.keys, admission, admission.connection):
        for taken in (pickle.dumps, copy.deepcopy):
            refused(TypeError, "VA270|VA273", taken, held)
        assert "PRIVATE" not in repr(held)
    assert repr(bank.keys) == f"WorkerKeys('bank', '{bank.keys.certificate.fingerprint}')"
    secrets = (bank.keys._identity._key.private_bytes_raw(), certificates.key_pem(bank.keys._key))
    assert not any(secret in public for secret in secrets for public in (bank.keys.request, bank.raw))


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
