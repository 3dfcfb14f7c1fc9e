"""One end-to-end TLS 1.3 session that uses memory buffers instead of a socket."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256

from colonnade.errors import ColonnadeError, IdentityError, ProtocolError, StudyError
from colonnade.wire.identity import Certificate, Identity, fingerprint_of, load_key

_WIRE = b"colonnade wire "
_VERSION = _WIRE + b"4"
_ONE_RECORD = 1 << 14
_OUT_OF_DATE = (9, 10)
"""OpenSSL's codes for a certificate that is not valid yet and for one that is not valid any more."""
_REFUSALS = ("UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED", "ACCESS_DENIED")


class TlsSession:
    """TLS with one peer, whose certificate is known. Only one thread at a time may use it; the channel has a lock."""

    def __init__(self, identity: Identity, peer: Certificate, topic: bytes = b"", said: bytes = b"") -> None:
        """Both ends have the same ``topic``; ``said`` is told to the peer, which tells equally many bytes."""
        identity.certificate.check_dates()
        peer.check_dates()
        self._peer = peer
        self.is_client = identity.name < peer.name
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _context(identity, peer, self.is_client).wrap_bio(
            self._incoming, self._outgoing, server_side=not self.is_client
        )
        self._shaken = False
        self._own_greeting, self._said = _VERSION + sha256(topic).digest(), said
        self._greeting = self.heard = b""
        self.ready = False

    def feed(self, sealed: memoryview) -> None:
        """Take sealed bytes that came from the peer."""
        self._incoming.write(sealed)

    @property
    def has_bytes(self) -> bool:
        """Whether there are bytes to decrypt or to read."""
        return bool(self._incoming.pending or self._tls.pending())

    def drain(self) -> bytes:
        """Sealed bytes to send to the peer; empty if there are none."""
        return self._outgoing.read()

    def advance(self) -> None:
        """Continue the handshake, as far as possible with the bytes that came."""
        try:
            if not self._shaken:
                self._tls.do_handshake()
                self._check_peer()
                self._shaken = True
                self._tls.write(self._own_greeting + self._said)
            # In TLS 1.3 a client is ready before the server has checked it: wait for the peer's greeting.
            if len(self._greeting) < len(self._own_greeting):
                self._greeting += self._tls.read(len(self._own_greeting) - len(self._greeting))
            if len(self._greeting) == len(self._own_greeting):
                self._check_greeting()
                if len(self.heard) < len(self._said):
                    self.heard += self._tls.read(len(self._said) - len(self.heard))
                self.ready = len(self.heard) == len(self._said)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise self._translate(error) from None

    def seal(self, pieces: Sequence[bytes | memoryview], head: bytes = b"") -> bytes:
        """The sealed bytes of some pieces, one after the other; ``head`` comes before them, and is not sealed."""
        if sum(map(len, pieces)) <= _ONE_RECORD:
            pieces = [b"".join(pieces)]
        if head:  # put in here, because a head that is joined to the sealed bytes later costs a copy of them
            self._outgoing.write(head + self._outgoing.read())
        try:
            for piece in pieces:
                self._tls.write(piece)
        except ssl.SSLError as error:
            self._outgoing.read(len(head))  # what is left is for the peer
            raise self._translate(error) from None
        return self._outgoing.read()

    def unseal_into(self, target: memoryview) -> int:
        """Decrypt the bytes that came into ``target``; returns how many bytes were written."""
        filled = 0
        try:
            while filled < len(target):
                # One call returns one record at most.
                count = self._tls.read(len(target) - filled, target[filled:])
                if not count:
                    raise ProtocolError(f"{self._peer.name} ended the sealed session [MS093]")
                filled += int(count)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise self._translate(error) from None
        return filled

    def unseal_some(self, target: memoryview) -> int:
        """Decrypt at most one record into ``target``; returns its bytes, 0 if no record is complete."""
        try:
            count = int(self._tls.read(len(target), target))
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError as error:
            raise self._translate(error) from None
        if not count:
            raise ProtocolError(f"{self._peer.name} ended the sealed session [MS094]")
        return count

    def _check_peer(self) -> None:
        found = self._tls.getpeercert(binary_form=True)
        if found != self._peer.der:
            raise IdentityError(
                f"whoever answers as {self._peer.name} is not who the study names: "
                f"expected {self._peer.fingerprint}, found {fingerprint_of(found or b'')} [ID042]"
            )

    def _check_greeting(self) -> None:
        if not self._greeting.startswith(_VERSION):
            theirs = self._greeting[len(_WIRE) : len(_VERSION)]
            known = self._greeting.startswith(_WIRE) and theirs.isdigit()
            raise ProtocolError(
                f"{self._peer.name} speaks another version of the wire protocol ({theirs.decode() if known else '?'}; "
                f"ours is {_VERSION[len(_WIRE) :].decode()}): install the same release of Colonnade "
                "on both machines [MS095]"
            )
        if self._greeting != self._own_greeting:
            error = StudyError(
                f"{self._peer.name} holds another version of the study: give everyone the same study file, the same "
                "schemas and the same release of Colonnade, and start again [ST612]"
            )
            error.public = True  # both sides see it in the greeting
            raise error

    def _translate(self, error: ssl.SSLError) -> ColonnadeError:
        peer, reason = self._peer, error.reason or ""
        if isinstance(error, ssl.SSLCertVerificationError):
            if (dated := certificate_date_error(peer.name, error)) is not None:
                return dated
            return IdentityError(
                f"whoever answers as {peer.name} does not hold the certificate that the study names for it "
                f"(expected {peer.fingerprint}): {error.verify_message} [ID043]"
            )
        if "ALERT" in reason and "EXPIRED" in reason:
            return IdentityError(
                f"by the clock of {peer.name} our certificate is not valid; this machine's clock says {clock_text()}: "
                "compare the two, and set the wrong one right [ID044]"
            )
        if "ALERT" in reason and any(refusal in reason for refusal in _REFUSALS):
            return IdentityError(
                f"{peer.name} does not accept our certificate; compare the fingerprints in both study files [ID045]"
            )
        return ProtocolError(f"the sealed session with {peer.name} was damaged on its way ({reason}) [MS096]")


def certificate_date_error(name: str, error: ssl.SSLCertVerificationError) -> IdentityError | None:
    """The error for a certificate that is not valid at this time, by which a wrong clock shows; else ``None``."""
    if error.verify_code not in _OUT_OF_DATE:
        return None
    return IdentityError(
        f"this machine's clock says {clock_text()}, and at that time the certificate with which {name} answers is not "
        f"valid ({error.verify_message}): compare the clocks of both machines, and set the wrong one right [ID046]"
    )


def clock_text() -> str:
    """What this machine takes the time to be, for a person who compares it."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def _context(identity: Identity, peer: Certificate, is_client: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if is_client else ssl.PROTOCOL_TLS_SERVER)
    context.check_hostname = False  # the certificate itself is pinned
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=peer.der)
    load_key(context, identity.key_pem, identity.certificate.pem)
    if not is_client:
        context.num_tickets = 0
    return context
