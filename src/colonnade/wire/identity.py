"""Who somebody is: an Ed25519 key and the certificate it signed for itself.

Participants recognise each other by the fingerprint of that certificate and by nothing else. gRPC does not accept
Ed25519 certificates in TLS. So for its connection to the hub, an identity issues itself a short-lived P-256
*connection certificate*; the sessions between participants use the identity itself.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from getpass import getpass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from colonnade.disk import reading, writing
from colonnade.errors import IdentityError, StorageError
from colonnade.lazy import LazyModule

if TYPE_CHECKING:
    import ssl

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.x509 import Certificate as X509Certificate

    from colonnade.wire import certificates as certificates
else:
    certificates = LazyModule("colonnade.wire.certificates")  # the library for certificates takes long to load

IDENTITY_DAYS = 365
CONNECTION_DAYS = 30
LONGEST_STAY = timedelta(hours=48)
"""For how long a worker can be introduced at most; it can be introduced again."""
_MOST_BYTES = 1 << 20
"""More than any key or certificate has."""

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Certificate:
    """The public half of an identity."""

    name: str
    pem: bytes

    @classmethod
    def from_pem(cls, pem: bytes, source: str = "the certificate") -> Certificate:
        """Read PEM text and check that it is the certificate of an identity; errors call it ``source``."""
        try:
            found = certificates.read_self_signed(pem)
            certificates.raw_key(found)
        except ValueError:
            raise IdentityError(f"{source} is not a self-signed certificate in PEM form [ID020]") from None
        except TypeError:
            raise IdentityError(
                f"{source} does not hold an Ed25519 key; make one with `colonnade init` [ID021]"
            ) from None
        return cls(check_name(certificates.common_name(found)), certificates.pem_of(found))

    @classmethod
    def from_der(cls, der: bytes, source: str = "the certificate") -> Certificate:
        """The same of the form in which TLS carries it."""
        import ssl

        return cls.from_pem(ssl.DER_cert_to_PEM_cert(der).encode("ascii"), source)

    @classmethod
    def load(cls, path: str | os.PathLike[str], pin: str | None = None) -> Certificate:
        """Read a certificate file; if ``pin`` is given, the certificate must have that fingerprint."""
        certificate = cls.from_pem(_read(Path(path)), str(path))
        if pin is not None:
            certificate.check_pin(pin, str(path))
        return certificate

    def __reduce__(self) -> tuple[type[Certificate], tuple[str, bytes]]:
        """Without what was read from it, which the library cannot send."""
        return Certificate, (self.name, self.pem)

    @cached_property
    def parsed(self) -> X509Certificate:
        """The certificate as an object of the library ``cryptography``."""
        return certificates.read(self.pem)

    @cached_property
    def der(self) -> bytes:
        """The certificate as it appears in a TLS handshake."""
        import ssl

        return ssl.PEM_cert_to_DER_cert(self.pem.decode("ascii"))

    @cached_property
    def fingerprint(self) -> str:
        """``sha256:`` and the hash of the certificate."""
        return fingerprint_of(self.der)

    @cached_property
    def key_fingerprint(self) -> str:
        """``sha256:`` and the hash of the key alone: the same for every name and every certificate of that key."""
        return f"sha256:{sha256(certificates.raw_key(self.parsed)).hexdigest()}"

    def check_pin(self, pin: str, source: str = "the certificate") -> None:
        """Raise an error unless this certificate has the fingerprint ``pin``."""
        if self.fingerprint != pin.strip().lower():
            raise IdentityError(
                f"{source} is not the certificate of {self.name} that the study names: "
                f"expected {pin}, found {self.fingerprint}; ask {self.name} which is right: if the file, pin it by "
                "`colonnade init pins`, and give everyone the new study file; if the pin, put the "
                "right file there [ID022]"
            )

    def check_dates(self, now: datetime | None = None) -> None:
        """Raise an error unless the certificate is valid at this time."""
        now = now or datetime.now(UTC)
        if now > self.parsed.not_valid_after_utc:
            raise IdentityError(
                f"the certificate of {self.name} expired on {self.parsed.not_valid_after_utc:%Y-%m-%d}, and this "
                f"machine's clock says {now:%Y-%m-%d}; set the clock right, or make a new identity and pin it [ID023]"
            )
        if now < self.parsed.not_valid_before_utc:
            raise IdentityError(
                f"the certificate of {self.name} is valid only from "
                f"{self.parsed.not_valid_before_utc:%Y-%m-%d %H:%M} UTC; check this machine's clock [ID024]"
            )

    def has_signed(self, signature: bytes, message: bytes) -> bool:
        """Whether the holder of this identity signed ``message``."""
        return certificates.has_signed(self.parsed, signature, message)

    def has_issued(self, other: X509Certificate) -> bool:
        """Whether ``other`` is a connection certificate that this identity issued to itself, or to a worker of its."""
        named = certificates.holder(other) or certificates.worker_of(other)
        return certificates.is_issued_by(other, self.parsed) and named == self.name


@dataclass(frozen=True)
class ConnectionCertificate:
    """A P-256 key with a certificate from an identity, for one gRPC connection."""

    key_pem: bytes = field(repr=False)
    chain_pem: bytes

    def __reduce__(self) -> NoReturn:
        """Refused, as for an identity."""
        raise TypeError("the private key of a connection is neither copied nor sent to another process [VA270]")


@dataclass(frozen=True)
class WorkerAdmission:
    """What a worker shows a hub: a certificate for its connections, which its party's identity issued."""

    certificate: Certificate
    """That of the party."""
    connection: ConnectionCertificate = field(repr=False)
    until: datetime

    @property
    def name(self) -> str:
        """The name of the party."""
        return self.certificate.name

    def issue_connection_certificate(self) -> ConnectionCertificate:
        """The same for every connection; an error once it is out of date."""
        check_until(self.name, self.until, datetime.now(UTC))
        return self.connection


class Identity:
    """A participant's own key and certificate."""

    def __init__(self, key: Ed25519PrivateKey, certificate: Certificate, passphrase: bytes | None = None) -> None:
        self._key, self._passphrase = key, passphrase
        self.certificate = certificate

    @classmethod
    def create(cls, name: str, *, days: int = IDENTITY_DAYS) -> Identity:
        """A new identity with the name ``name``."""
        key, pem = certificates.create(check_name(name), days)
        return cls(key, Certificate(name, pem))

    @classmethod
    def from_seed(cls, name: str, seed: bytes, until: datetime) -> Identity:
        """The identity that follows from a seed of 32 bytes, for a short while; whoever has the seed has it too."""
        key, pem = certificates.from_seed(check_name(name), seed, until)
        return cls(key, Certificate(name, pem))

    @classmethod
    def load(cls, key_path: str | os.PathLike[str], crt_path: str | os.PathLike[str]) -> Identity:
        """Read an identity from its two files."""
        if not os.path.lexists(key_path):
            raise IdentityError(
                f"there is no private key at {key_path}: check the path; `colonnade init` makes keys [ID025]"
            )
        certificate = Certificate.load(crt_path)
        pem = _read(Path(key_path))
        secret = read_passphrase(Path(key_path)) if b"ENCRYPTED" in pem else None
        try:
            key = certificates.read_key(pem, secret)
        except (ValueError, TypeError):
            raise IdentityError(
                f"{key_path} is not a private key in PEM form, or its passphrase is another one [ID026]"
            ) from None
        if Path(key_path).stat().st_mode & 0o077:
            raise IdentityError(
                f"{key_path} can be read by others: run `chmod 600 {key_path}`, and consider a new key [ID027]"
            )
        if key is None or key.public_key() != certificate.parsed.public_key():
            raise IdentityError(f"{key_path} is not the key of the certificate in {crt_path} [ID028]")
        return cls(key, certificate, secret)

    def renewed(self, days: int) -> Identity:
        """The same name and key with a new certificate."""
        return Identity(
            self._key, Certificate(self.name, certificates.create(self.name, days, self._key)[1]), self._passphrase
        )

    def protected(self, passphrase: bytes | None) -> Identity:
        """The same with another passphrase, or with none."""
        return Identity(self._key, self.certificate, passphrase)

    def __reduce__(self) -> NoReturn:
        """Refused: a private key stays in the process that made or read it."""
        raise TypeError(f"the private key of {self.name} is neither copied nor sent to another process [VA271]")

    @property
    def name(self) -> str:
        """The name in the certificate."""
        return self.certificate.name

    @property
    def fingerprint(self) -> str:
        """The fingerprint by which others pin this identity."""
        return self.certificate.fingerprint

    def save(self, folder: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write ``NAME.key`` (readable by its owner only) and ``NAME.crt``, or neither; no file is overwritten."""
        key_path, crt_path = Path(folder) / f"{self.name}.key", Path(folder) / f"{self.name}.crt"
        try:
            key_path.parent.mkdir(parents=True, exist_ok=True)
            writing.create_files({key_path: self.file_pem, crt_path: self.certificate.pem}, private=[key_path])
        except FileExistsError as error:
            raise IdentityError(f"{error.filename} exists already and is not overwritten [ID029]") from None
        except OSError as error:
            raise StorageError(f"{error.filename} cannot be written: {error.strerror} [SO044]") from None
        return key_path, crt_path

    def sign(self, message: bytes) -> bytes:
        """An Ed25519 signature of ``message``."""
        return self._key.sign(message)

    def issue_connection_certificate(self, *, days: int = CONNECTION_DAYS) -> ConnectionCertificate:
        """A new P-256 key and certificate for the connection to the hub."""
        self.certificate.check_dates()
        key_pem, pem = certificates.issue(self.name, days, self.certificate.parsed, self._key)
        return ConnectionCertificate(key_pem, pem + self.certificate.pem)

    def issue_for_worker(self, asked: bytes, until: datetime) -> bytes:
        """A certificate for a worker's connections to lanes, as DER; a ValueError if ``asked`` is no request of one."""
        self.certificate.check_dates()
        return certificates.issue_for_lanes(asked, self.name, until, self.certificate.parsed, self._key)

    @property
    def key_pem(self) -> bytes:
        """The private key as PEM text, not encrypted."""
        return certificates.key_pem(self._key)

    @property
    def file_pem(self) -> bytes:
        """The private key as it is written to a file: encrypted, if it has a passphrase."""
        return certificates.key_pem(self._key, self._passphrase)


HubIdentity = Identity | WorkerAdmission
"""Whoever connects to a hub: an identity, or a worker whom one has sent."""


def load_key(context: ssl.SSLContext, key_pem: bytes, chain_pem: bytes) -> None:
    """Let a TLS context use a private key and its certificates, without a file that could be left behind.

    Python's ``ssl`` reads keys from paths only. The paths here are those of two pipes: what goes through them stays in
    the memory of the system, and is gone with this process.
    """
    try:
        with _readable(chain_pem) as chain, _readable(key_pem) as key:
            context.load_cert_chain(chain, key)
    except OSError as error:  # an ssl.SSLError, too
        raise IdentityError(
            f"TLS cannot take the private key through /dev/fd ({error.strerror or error}) [ID030]"
        ) from None


@contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """A path at which this process can read the content once."""
    reader, writer = os.pipe()
    try:
        try:
            os.set_blocking(writer, False)  # a pipe without room is an error, and nobody waits
            written = os.write(writer, content)
        finally:
            os.close(writer)
        if written < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield f"/dev/fd/{reader}"
    finally:
        os.close(reader)


PASSPHRASE = "COLONNADE_KEY_PASSPHRASE"  # noqa: S105 - the name of a variable
_UNDER = "colonnade"


def open_keyring() -> Any:
    """The library for the system's keyring; ``None`` where it is not installed."""
    try:
        return import_module("keyring")
    except ImportError:
        return None


def name_in_keyring(key: Path) -> tuple[str, str]:
    """Under which service and name the keyring has the passphrase of a key, also while its next one is made."""
    return _UNDER, str(key.resolve()).replace(".next.key", ".key")


def read_passphrase(key: Path) -> bytes:
    """The passphrase of this key; one that was typed is known to the processes that this one starts, and to no file."""
    found = os.environ.get(PASSPHRASE)
    if found is None and (ring := open_keyring()) is not None:
        found = ring.get_password(*name_in_keyring(key))
    if found is None and sys.stdin.isatty():
        found = os.environ[PASSPHRASE] = getpass(f"passphrase of {key}: ")
    if not found:
        raise IdentityError(
            f"{key} is encrypted: put its passphrase into {PASSPHRASE} or the system's keyring, or start this at a "
            "terminal [ID781]"
        )
    return found.encode()


def check_until(name: str, until: datetime, now: datetime) -> None:
    """Raise an error unless a worker's introduction is good at this time."""
    if now >= until:
        raise IdentityError(
            f"the introduction of a worker of {name} was good until {until:%Y-%m-%d %H:%M} UTC, and this machine's "
            f"clock says {now:%Y-%m-%d %H:%M}: let its head introduce it again, or set the clock right [ID060]"
        )
    if until > now + LONGEST_STAY + certificates.CLOCK_SKEW:
        raise IdentityError(f"the introduction of a worker of {name} is good for longer than any may be [ID061]")


def fingerprint_of(der: bytes) -> str:
    """The fingerprint of a certificate in the form in which TLS carries it: ``sha256:`` and its hash."""
    return f"sha256:{sha256(der).hexdigest()}"


def check_name(name: str) -> str:
    """Return the name if a participant may have it, and raise an error otherwise."""
    if not _NAME.fullmatch(name):
        raise IdentityError(
            f"{name!r} cannot name a participant: use 1 to 63 letters, digits, '-', '_' or '.', "
            "with a letter or digit first and last [ID031]"
        )
    return name


def _read(path: Path) -> bytes:
    try:
        return reading.read_bytes(path, _MOST_BYTES)
    except reading.UnreadableFile as error:
        raise IdentityError(f"{path} cannot be read: {error} [ID032]") from None
