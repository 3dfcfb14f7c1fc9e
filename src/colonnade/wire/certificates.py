"""X.509 certificates: made, read and checked with the library ``cryptography``.

The library takes long to load. So others reach it through ``LazyModule``, which imports it at first use.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCK_SKEW = timedelta(hours=24)
"""By how much clocks may differ: what is issued is valid from so long before."""
_LINK, _LANES = "link", "lanes"
"""The units in the names of connection certificates: a participant's own, and those of its workers."""
_DER = Encoding.DER


def read(pem: bytes) -> x509.Certificate:
    """The first certificate in PEM text; other text is a ValueError."""
    return x509.load_pem_x509_certificate(pem)


def read_self_signed(pem: bytes) -> x509.Certificate:
    """The certificate in PEM text, which its own key must have signed; anything else is a ValueError.

    Its key, its names and its dates are read here as well: the library reads each of them only when it is asked for.
    """
    try:
        certificate = read(pem)
        parts = certificate.public_key(), certificate.subject, certificate.extensions
        dates = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except (TypeError, ArithmeticError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension) as error:
        raise ValueError("this certificate cannot be read [VA260]") from error
    dated = dates[0] <= dates[1] and dates[0].year >= 2000 and dates[1].year <= 9000  # days are added to them
    if not parts[1] or not dated or not is_issued_by(certificate, certificate):
        raise ValueError("this certificate is not self-signed [VA261]")
    return certificate


def is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Whether the key of ``issuer`` signed this certificate, and the certificate names it."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def raw_key(certificate: x509.Certificate) -> bytes:
    """The Ed25519 key of this certificate, as its 32 bytes; another kind of key is a TypeError."""
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise TypeError("this certificate holds another kind of key [VA262]")
    return key.public_bytes_raw()


def has_signed(certificate: x509.Certificate, signature: bytes, message: bytes) -> bool:
    """Whether the key of this certificate made the signature of ``message``."""
    key = certificate.public_key()
    try:
        return isinstance(key, Ed25519PublicKey) and key.verify(signature, message) is None
    except InvalidSignature:
        return False


def common_name(certificate: x509.Certificate) -> str:
    """The name of the holder; empty if the certificate does not have exactly one."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def pem_of(certificate: x509.Certificate) -> bytes:
    """The certificate as PEM text."""
    return certificate.public_bytes(Encoding.PEM)


def create(name: str, days: int, key: Ed25519PrivateKey | None = None) -> tuple[Ed25519PrivateKey, bytes]:
    """An Ed25519 key, a new one if none is given, and the certificate that it signs for itself as PEM text."""
    key, now = key or Ed25519PrivateKey.generate(), datetime.now(UTC)
    dates = now - CLOCK_SKEW, now + timedelta(days=days)
    return key, _self_signed(key, name, x509.random_serial_number(), *dates)


def from_seed(name: str, seed: bytes, until: datetime) -> tuple[Ed25519PrivateKey, bytes]:
    """The key and the certificate that follow from a seed of 32 bytes: the same, byte by byte, wherever it is known."""
    key, number = Ed25519PrivateKey.from_private_bytes(seed), int.from_bytes(sha256(b"serial" + seed).digest()[:16])
    dates = until - timedelta(days=366), until + CLOCK_SKEW
    return key, _self_signed(key, name, max(number, 1), *dates)


def _self_signed(key: Ed25519PrivateKey, name: str, serial: int, first: datetime, last: datetime) -> bytes:
    builder = _dated(_x509_name(name), _x509_name(name), serial, first, last).public_key(key.public_key())
    builder = builder.add_extension(_alternative(name), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return pem_of(builder.add_extension(_usage(signs_certificates=True), critical=True).sign(key, None))


def issue(name: str, days: int, issuer: x509.Certificate, issuer_key: Ed25519PrivateKey) -> tuple[bytes, bytes]:
    """A new P-256 key, and a certificate for it that the issuer signs; both as PEM text."""
    key = connection_key()
    # The unit makes subject and issuer different: if they were equal, OpenSSL would expect a self-signed certificate.
    builder = _connection(_x509_name(name, _LINK), key.public_key(), datetime.now(UTC) + timedelta(days=days), issuer)
    return key_pem(key), pem_of(builder.add_extension(_alternative(name), critical=False).sign(issuer_key, None))


def connection_key() -> ec.EllipticCurvePrivateKey:
    """A new P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def request(name: str, key: ec.EllipticCurvePrivateKey) -> bytes:
    """The request of a P-256 key for a certificate, which shows that whoever asks has the key."""
    return x509.CertificateSigningRequestBuilder().subject_name(_x509_name(name)).sign(key, SHA256()).public_bytes(_DER)


def issue_for_lanes(
    asked: bytes, name: str, until: datetime, issuer: x509.Certificate, issuer_key: Ed25519PrivateKey
) -> bytes:
    """A certificate for the P-256 key of a request, for whoever dials and for lanes only.

    It has no common name and no alternative one, so a hub of a release without lanes knows nobody by it. Whatever is no
    such request is a ValueError.
    """
    try:
        found = x509.load_der_x509_csr(asked)
        key, fits = found.public_key(), found.is_signature_valid
    except (TypeError, ArithmeticError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise ValueError("this request cannot be read [VA263]") from error
    if not fits or not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("this is no request of a P-256 key [VA264]")
    builder = _connection(_worker_name(name), key, until, issuer)
    # Otherwise a worker of whoever runs a hub could answer as that hub, to somebody who asks for no name.
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=True)
    return builder.sign(issuer_key, None).public_bytes(_DER)


def chain_for_lanes(der: bytes, key: ec.EllipticCurvePrivateKey, issuer: x509.Certificate) -> bytes:
    """The certificate of this key for lanes and that of its issuer, as PEM text; a ValueError if it is no such one."""
    try:
        found = x509.load_der_x509_certificate(der)
        fits = found.public_key() == key.public_key() and is_issued_by(found, issuer)
        names = worker_of(found), common_name(issuer)
    except (TypeError, ArithmeticError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise ValueError("this certificate cannot be read [VA265]") from error
    if not fits or names[0] != names[1]:
        raise ValueError("this is no certificate for the connection of this worker [VA266]")
    return pem_of(found) + pem_of(issuer)


def worker_of(certificate: x509.Certificate) -> str:
    """The party of whose worker this is a connection certificate; empty if it is no such one."""
    parties = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    party = str(parties[0].value) if len(parties) == 1 else ""
    return party if party and certificate.subject == _worker_name(party) else ""


def holder(certificate: x509.Certificate) -> str:
    """The participant whose own connection certificate this is; empty if it is no such one."""
    name = common_name(certificate)
    return name if name and certificate.subject == _x509_name(name, _LINK) else ""


def _worker_name(party: str) -> x509.Name:
    named = ((NameOID.ORGANIZATION_NAME, party), (NameOID.ORGANIZATIONAL_UNIT_NAME, _LANES))
    return x509.Name([x509.NameAttribute(*part) for part in named])


def _connection(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime, issuer: x509.Certificate
) -> x509.CertificateBuilder:
    number, first = x509.random_serial_number(), datetime.now(UTC) - CLOCK_SKEW
    builder = _dated(subject, issuer.subject, number, first, until).public_key(key)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    return builder.add_extension(_usage(signs_certificates=False), critical=True)


def key_pem(key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey, passphrase: bytes | None = None) -> bytes:
    """A private key as PEM text, encrypted if there is a passphrase."""
    sealed = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed)


def read_key(pem: bytes, passphrase: bytes | None = None) -> Ed25519PrivateKey | None:
    """The private key in PEM text; None if it is not an Ed25519 key. Other text is a ValueError or a TypeError."""
    try:
        key = load_pem_private_key(pem, password=passphrase)
    except (ArithmeticError, UnsupportedAlgorithm) as error:
        raise ValueError("this key cannot be read [VA267]") from error
    return key if isinstance(key, Ed25519PrivateKey) else None


def _dated(
    subject: x509.Name, issuer: x509.Name, serial: int, first: datetime, last: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(serial)
        .not_valid_before(first)
        .not_valid_after(last)
    )


def _alternative(name: str) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.DNSName(name)])


def _x509_name(name: str, unit: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if unit is not None:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
    return x509.Name(parts)


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
