"""Finds out why a connection to the hub fails; gRPC itself only reports that the hub is unavailable."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime
from time import sleep

from colonnade.errors import ColonnadeError, ConnectError, IdentityError
from colonnade.wire.bound import split_address
from colonnade.wire.identity import Certificate, Guest, certificates, load_key
from colonnade.wire.tls import clock, out_of_date

_PAUSE = 0.3
_IS_IT_THE_HUB = (
    "check that this is the coordinator's address and port, that no other program has the port, and that no proxy "
    "between ends TLS itself"
)
_REFUSALS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")


def probe(address: str, identity: Guest, hub: Certificate, timeout: float) -> None:
    """Open and close one TLS connection to the hub; raise an error that explains what is wrong, if anything."""
    identity.certificate.check_dates()
    hub.check_dates()
    # If gRPC refuses a certificate it only closes the connection. A hub that is just stopping does the same, so try
    # twice.
    if _try(address, identity, hub, timeout) is not None:
        sleep(_PAUSE)
        if (since := _try(address, identity, hub, timeout)) is not None:
            raise IdentityError(
                f"{hub.name} at {address} does not accept the certificate of {identity.name} "
                f"({identity.certificate.fingerprint}); {_look_at(since)} [ID018]"
            )


def _look_at(since: datetime) -> str:
    """What to compare; ``since`` is when the hub began, by its own clock.

    What we issued is valid from a day before our time. So the hub's clock can be to blame, or ours, only where it began
    earlier than that.
    """
    other = "is that the one in the coordinator's study file?"
    if datetime.now(UTC) - certificates.CLOCK_SKEW <= since:
        return other
    return (
        f"by its own clock it began at {since:%Y-%m-%d %H:%M} UTC, and this machine's clock says {clock()}: compare "
        f"the clocks first, and set the wrong one right; if both are right, {other}"
    )


def _try(address: str, identity: Guest, hub: Certificate, timeout: float) -> datetime | None:
    """``None`` if the hub accepts our certificate, else when it began; an error if it is not the right hub."""
    try:
        with socket.create_connection(split_address(address), timeout=timeout) as plain:
            plain.settimeout(timeout)
            return _shake_hands(plain, address, identity, hub)
    except ColonnadeError:
        raise
    except TimeoutError:
        raise ConnectError(
            f"{address} does not answer within {timeout:g} s; check the address, that no firewall blocks it, and that "
            "it is the coordinator's port and not another program's [CN025]"
        ) from None
    except ConnectionRefusedError:
        raise ConnectError(
            f"nothing listens at {address}; check that the coordinator is running and the port is right [CN026]"
        ) from None
    except (ConnectionError, ssl.SSLEOFError):  # which of the two it is depends on how far the handshake had come
        raise ConnectError(f"whatever listens at {address} hangs up; {_IS_IT_THE_HUB} [CN027]") from None
    except OSError as error:
        raise ConnectError(f"{address} cannot be reached: {error.strerror or error} [CN028]") from None


def _shake_hands(plain: socket.socket, address: str, identity: Guest, hub: Certificate) -> datetime | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=hub.der)
    context.set_alpn_protocols(["h2"])
    own = identity.issue_connection_certificate()
    load_key(context, own.key_pem, own.chain_pem)
    since = datetime.now(UTC)
    try:
        with context.wrap_socket(plain, server_hostname=hub.name) as sealed:
            shown = str((sealed.getpeercert() or {})["notBefore"])
            since = datetime.fromtimestamp(ssl.cert_time_to_seconds(shown), UTC) + certificates.CLOCK_SKEW
            # The server checks the client only after the client has finished its part of the handshake.
            return None if sealed.recv(1) else since
    except ssl.SSLEOFError:
        raise
    except ssl.SSLCertVerificationError as error:
        raise out_of_date(hub.name, error) or IdentityError(
            f"whoever answers at {address} is not {hub.name} as the study names it "
            f"(expected {hub.fingerprint}): {error.verify_message}; ask the coordinator for its fingerprint: if it has "
            "a new key, pin its new certificate, else check the address [ID019]"
        ) from None
    except ssl.SSLError as error:
        if any(refusal in (error.reason or "") for refusal in _REFUSALS):
            return since
        raise ConnectError(
            f"whatever listens at {address} does not speak TLS as a hub does; {_IS_IT_THE_HUB} [CN030]"
        ) from None
