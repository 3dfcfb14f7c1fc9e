"""Whom the hub knows: names with their pinned certificates, which may change while the hub runs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import monotonic
from typing import Any

from colonnade.errors import IdentityError
from colonnade.wire import envelope
from colonnade.wire.identity import CONNECTION_DAYS, Certificate, Identity, certificates
from colonnade.wire.lanes import is_lane
from colonnade.wire.services import grpc

_RENEWAL = CONNECTION_DAYS * 24 * 3600 / 2


class Register:
    """Names and certificates; gRPC asks here before every handshake what to show and whom to trust."""

    def __init__(self, identity: Identity, members: Mapping[str, Certificate]) -> None:
        self._identity = identity
        self._members = dict(members)
        self._lock = threading.Lock()  # gRPC asks in threads of its own
        self._changed, self._issued = False, 0.0

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def add(self, name: str, certificate: Certificate) -> bool:
        """Know somebody by this certificate from now on; whether the name had another one before."""
        if certificate.name != name:
            raise IdentityError(f"the certificate given for {name} is that of {certificate.name} [ID033]")
        with self._lock:
            former = self._members.get(name)
            self._members[name] = certificate
            self._changed = True
        return former is not None and former.fingerprint != certificate.fingerprint

    def remove(self, name: str) -> None:
        """Know somebody no longer."""
        with self._lock:
            self._members.pop(name, None)
            self._changed = True

    @property
    def credentials(self) -> Any:
        """The server's credentials, which follow every change."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), self._news, require_client_authentication=True
        )

    def _configuration(self) -> Any:
        own = self._identity.issue_connection_certificate()
        self._issued = monotonic()
        with self._lock:
            self._changed = False
            roots = b"".join(certificate.pem for certificate in self._members.values())
        return grpc.ssl_server_certificate_configuration([(own.key_pem, own.chain_pem)], root_certificates=roots)

    def _news(self) -> Any:
        """What has changed since the last handshake, or None."""
        due = self._changed or monotonic() - self._issued > _RENEWAL
        return self._configuration() if due else None

    def recognise(self, context: Any, *, joins: bool) -> tuple[str, dict[str, Any]]:
        """The name of the caller, and what it said beside; an error if its certificate does not prove the name.

        Whoever ``joins`` a lane may be a worker; for everything else the certificate must be its party's own.
        """
        said = dict(context.invocation_metadata() or ())
        if said.get(envelope.VERSION_KEY) != envelope.VERSION:
            raise IdentityError(
                "the hub speaks another version of the wire protocol: install the same release of "
                "Colonnade everywhere [ID034]"
            )
        try:
            shown = certificates.read(context.auth_context()["x509_pem_cert"][0])
            worker_of = certificates.worker_of(shown)
            name = worker_of or certificates.holder(shown)
        except (KeyError, IndexError, ValueError):
            name = worker_of = ""
        if not name:
            raise IdentityError("the connection does not say who it is from [ID035]")
        pinned = self._members.get(name)
        if pinned is None:
            raise IdentityError(f"{name} is not known here [ID036]")
        if not pinned.has_issued(shown):
            raise IdentityError(
                f"the connection in the name of {name} does not hold the key that the study names for it "
                f"({pinned.fingerprint}) [ID037]"
            )
        if worker_of and not (joins and is_lane(str(said.get(envelope.ROOM_KEY, "")))):
            raise IdentityError(f"a worker of {name} may only join lanes, and this is none [ID038]")
        return name, said
