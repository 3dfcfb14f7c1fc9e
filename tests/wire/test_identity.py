from __future__ import annotations

import copy
import pickle
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from colonnade.errors import IdentityError
from colonnade.wire import Certificate, Identity
from tests.support.refusals import refused


def test_files_round_trip(tmp_path: Path) -> None:
    identity = Identity.create("bank")
    key_path, crt_path = identity.save(tmp_path / "keys")
    assert (key_path.name, crt_path.name) == ("bank.key", "bank.crt")
    assert stat.S_IMODE(key_path.stat().st_mode) == 0o600
    again = Identity.load(key_path, crt_path)
    assert again.name == "bank"
    digest = identity.certificate.parsed.fingerprint(SHA256()).hex()
    assert again.fingerprint == identity.fingerprint == f"sha256:{digest}"
    assert identity.certificate.has_signed(again.sign(b"x"), b"x")
    assert not identity.certificate.has_signed(again.sign(b"x"), b"y")


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    Identity.create("bank").save(tmp_path)
    refused(IdentityError, ("ID029", "bank.key"), Identity.create("bank").save, tmp_path)


def test_a_pin_that_does_not_match_says_who_where_and_what(tmp_path: Path) -> None:
    bank, other = Identity.create("bank"), Identity.create("bank")
    _, path = bank.save(tmp_path)
    assert Certificate.load(path, bank.fingerprint.upper().replace("SHA256", "sha256")).name == "bank"
    with pytest.raises(IdentityError) as caught:
        Certificate.load(path, other.fingerprint)
    for part in ("bank", str(path), bank.fingerprint, other.fingerprint):
        assert part in str(caught.value)


def test_key_and_certificate_must_belong_together(tmp_path: Path) -> None:
    key_path, _ = Identity.create("bank").save(tmp_path / "a")
    _, crt_path = Identity.create("bank").save(tmp_path / "b")
    refused(IdentityError, "ID028", Identity.load, key_path, crt_path)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END"])
def test_files_that_are_something_else(tmp_path: Path, content: bytes) -> None:
    key_path, crt_path = Identity.create("bank").save(tmp_path)
    bad = tmp_path / "bad"
    bad.write_bytes(content)
    refused(IdentityError, "ID020", Identity.load, key_path, bad)
    refused(IdentityError, "ID026", Identity.load, bad, crt_path)
    refused(IdentityError, "ID032", Certificate.load, tmp_path / "missing")
    refused(IdentityError, ("ID025", "missing.key"), Identity.load, tmp_path / "missing.key", tmp_path / "missing.crt")


def test_a_connection_certificate_is_not_an_identity() -> None:
    chain = Identity.create("bank").issue_connection_certificate().chain_pem
    refused(IdentityError, (), Certificate.from_pem, chain)


def test_only_its_own_connection_certificates_count() -> None:
    bank, impostor = Identity.create("bank"), Identity.create("bank")
    shown = x509.load_pem_x509_certificate(bank.issue_connection_certificate().chain_pem)
    assert bank.certificate.has_issued(shown)
    assert not impostor.certificate.has_issued(shown)
    assert not Identity.create("shop").certificate.has_issued(shown)


def test_dates() -> None:
    certificate = Identity.create("bank", days=10).certificate
    certificate.check_dates()
    certificate.check_dates(datetime.now(UTC) - timedelta(hours=12))  # a clock may be off
    refused(IdentityError, ("ID023", "bank"), certificate.check_dates, datetime.now(UTC) + timedelta(days=11))
    refused(IdentityError, "ID024", certificate.check_dates, datetime.now(UTC) - timedelta(days=2))


@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "ä", "a/b", "a\n", "x" * 64])
def test_names_that_cannot_be(name: str) -> None:
    refused(IdentityError, "ID031", Identity.create, name)


def test_a_private_key_is_neither_copied_nor_sent() -> None:
    bank = Identity.create("bank")
    for taken in (pickle.dumps, copy.copy, copy.deepcopy):
        refused(TypeError, ("VA271", "bank"), taken, bank)
    assert bank.certificate.has_signed(bank.sign(b"x"), b"x")  # which reads the certificate
    assert pickle.loads(pickle.dumps(bank.certificate)) == bank.certificate  # noqa: S301 - our own bytes
