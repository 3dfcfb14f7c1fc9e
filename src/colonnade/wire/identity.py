"""Who somebody is: an Ed25519 key and the certificate it signed for itself.

Participants know each other by the fingerprint of that certificate and by nothing else. gRPC does not take
Ed25519 certificates in TLS, so for the hop to the hub an identity issues itself a short-lived P-256 *link
certificate*; the sessions between participants use the identity itself.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from colonnade.errors import IdentityError

IDENTITY_DAYS = 3650
LINK_DAYS = 30
CLOCK_SKEW = timedelta(hours=24)

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Certificate:
    """The public half of an identity."""

    name: str
    pem: bytes

    @classmethod
    def from_pem(cls, pem: bytes, source: str = "the certificate") -> Certificate:
        """Read a certificate and check that it is one of ours; ``source`` is named in errors."""
        try:
            cert = x509.load_pem_x509_certificate(pem)
            key = cert.public_key()
            cert.verify_directly_issued_by(cert)
        except (ValueError, TypeError, InvalidSignature):
            raise IdentityError(f"{source} is not a self-signed certificate in PEM form") from None
        if not isinstance(key, Ed25519PublicKey):
            raise IdentityError(f"{source} does not hold an Ed25519 key; make one with `colonnade init`")
        return cls(check_name(common_name(cert)), cert.public_bytes(serialization.Encoding.PEM))

    @classmethod
    def load(cls, path: str | os.PathLike[str], pin: str | None = None) -> Certificate:
        """Read a certificate file and, where ``pin`` is given, hold it against that fingerprint."""
        certificate = cls.from_pem(_read(Path(path)), str(path))
        if pin is not None:
            certificate.check_pin(pin, str(path))
        return certificate

    @cached_property
    def parsed(self) -> x509.Certificate:
        """The certificate as an object."""
        return x509.load_pem_x509_certificate(self.pem)

    @cached_property
    def der(self) -> bytes:
        """The certificate as it appears in a TLS handshake."""
        return self.parsed.public_bytes(serialization.Encoding.DER)

    @cached_property
    def fingerprint(self) -> str:
        """``sha256:`` and the hash of the certificate."""
        return fingerprint(self.parsed)

    def check_pin(self, pin: str, source: str = "the certificate") -> None:
        """Fail unless this is the certificate with that fingerprint."""
        if self.fingerprint != pin.strip().lower():
            raise IdentityError(
                f"{source} is not the certificate of {self.name} that the study names: "
                f"expected {pin}, found {self.fingerprint}"
            )

    def check_dates(self, now: datetime | None = None) -> None:
        """Fail when the certificate is not valid at this time."""
        now = now or datetime.now(UTC)
        if now > self.parsed.not_valid_after_utc:
            raise IdentityError(
                f"the certificate of {self.name} expired on {self.parsed.not_valid_after_utc:%Y-%m-%d}; "
                "make a new identity and pin it in the study"
            )
        if now < self.parsed.not_valid_before_utc:
            raise IdentityError(
                f"the certificate of {self.name} is valid only from "
                f"{self.parsed.not_valid_before_utc:%Y-%m-%d %H:%M} UTC; check this machine's clock"
            )

    def has_signed(self, signature: bytes, message: bytes) -> bool:
        """Whether the holder of this identity signed ``message``."""
        key = self.parsed.public_key()
        assert isinstance(key, Ed25519PublicKey)  # noqa: S101 - from_pem takes no other
        try:
            key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def has_issued(self, link: x509.Certificate) -> bool:
        """Whether ``link`` is a link certificate that this identity issued to itself."""
        try:
            link.verify_directly_issued_by(self.parsed)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return common_name(link) == self.name


@dataclass(frozen=True)
class LinkCertificate:
    """A P-256 key with a certificate from an identity, for one gRPC connection."""

    key_pem: bytes
    chain_pem: bytes


class Identity:
    """A participant's own key and certificate."""

    def __init__(self, key: Ed25519PrivateKey, certificate: Certificate) -> None:
        self._key = key
        self.certificate = certificate

    @classmethod
    def create(cls, name: str, *, days: int = IDENTITY_DAYS) -> Identity:
        """A new identity under ``name``."""
        check_name(name)
        key = Ed25519PrivateKey.generate()
        subject = _x509_name(name)
        builder = _builder(name, subject, subject, days).public_key(key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        cert = builder.add_extension(_usage(signs_certificates=True), critical=True).sign(key, None)
        return cls(key, Certificate(name, cert.public_bytes(serialization.Encoding.PEM)))

    @classmethod
    def load(cls, key_path: str | os.PathLike[str], crt_path: str | os.PathLike[str]) -> Identity:
        """Read an identity from its two files."""
        certificate = Certificate.load(crt_path)
        try:
            key = serialization.load_pem_private_key(_read(Path(key_path)), password=None)
        except (ValueError, TypeError):
            raise IdentityError(f"{key_path} is not an unencrypted private key in PEM form") from None
        if os.name == "posix" and Path(key_path).stat().st_mode & 0o077:
            raise IdentityError(f"{key_path} can be read by others: run `chmod 600 {key_path}`, and consider a new key")
        if not isinstance(key, Ed25519PrivateKey) or key.public_key() != certificate.parsed.public_key():
            raise IdentityError(f"{key_path} is not the key of the certificate in {crt_path}")
        return cls(key, certificate)

    @property
    def name(self) -> str:
        """The name in the certificate."""
        return self.certificate.name

    @property
    def fingerprint(self) -> str:
        """The fingerprint by which others pin this identity."""
        return self.certificate.fingerprint

    def save(self, folder: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write ``NAME.key`` (readable by its owner only) and ``NAME.crt``; existing files stay."""
        key_path, crt_path = Path(folder) / f"{self.name}.key", Path(folder) / f"{self.name}.crt"
        try:
            key_path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(key_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(_key_pem(self._key))
            with crt_path.open("xb") as file:
                file.write(self.certificate.pem)
        except FileExistsError as error:
            raise IdentityError(f"{error.filename} exists already and is not overwritten") from None
        except OSError as error:
            raise IdentityError(f"{error.filename} cannot be written: {error.strerror}") from None
        return key_path, crt_path

    def sign(self, message: bytes) -> bytes:
        """An Ed25519 signature."""
        return self._key.sign(message)

    def issue_link(self, *, days: int = LINK_DAYS) -> LinkCertificate:
        """A fresh P-256 key and certificate for the hop to the hub."""
        self.certificate.check_dates()
        key = ec.generate_private_key(ec.SECP256R1())
        # The unit keeps subject and issuer apart: OpenSSL takes equal names for a self-signed certificate.
        subject = _x509_name(self.name, unit="link")
        issuer = self.certificate.parsed.subject
        builder = _builder(self.name, subject, issuer, days).public_key(key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        cert = builder.sign(self._key, None)
        chain = cert.public_bytes(serialization.Encoding.PEM) + self.certificate.pem
        return LinkCertificate(_key_pem(key), chain)

    @contextmanager
    def pem_file(self) -> Iterator[str]:
        """A private file with key and certificate, for as long as the block runs."""
        with private_file(_key_pem(self._key) + self.certificate.pem) as path:
            yield path


@contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """A file that only this user can read; Python's ``ssl`` takes keys from files only."""
    with tempfile.NamedTemporaryFile(prefix="colonnade-", suffix=".pem") as file:
        file.write(content)
        file.flush()
        yield file.name


def fingerprint(cert: x509.Certificate) -> str:
    """``sha256:`` and the hash of a certificate in hexadecimal."""
    return f"sha256:{cert.fingerprint(hashes.SHA256()).hex()}"


def fingerprint_of(der: bytes) -> str:
    """The fingerprint of a certificate in the form in which TLS carries it."""
    return f"sha256:{sha256(der).hexdigest()}"


def check_name(name: str) -> str:
    """The name itself, if a participant can have it."""
    if not _NAME.fullmatch(name):
        raise IdentityError(
            f"{name!r} cannot name a participant: use 1 to 63 letters, digits, '-', '_' or '.', "
            "with a letter or digit first and last"
        )
    return name


def _builder(name: str, subject: x509.Name, issuer: x509.Name, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )


def _x509_name(name: str, unit: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if unit is not None:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
    return x509.Name(parts)


def common_name(cert: x509.Certificate) -> str:
    """The name that a certificate bears."""
    names = cert.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise IdentityError(f"{path} cannot be read: {error.strerror}") from None
