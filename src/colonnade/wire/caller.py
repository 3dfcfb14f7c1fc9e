"""Asks the hub questions, one at a time or several at once, and says clearly why one was not answered."""

from __future__ import annotations

import threading
from time import monotonic
from types import TracebackType
from typing import Any, Self

from colonnade.errors import ColonnadeError, ConnectError, IdentityError, ProtocolError
from colonnade.harmless import harmless
from colonnade.wire import envelope
from colonnade.wire.hub_carrier import grpc, open_channel
from colonnade.wire.hub_probe import probe
from colonnade.wire.identity import Certificate, Guest
from colonnade.wire.services import pieces
from colonnade.wire.watch import Limits

_DAY = 24 * 3600.0
_MOST = 1 << 27
_IDLE = int(Limits.handshake * 500)  # milliseconds: we hang up before the hub does, so that no question is lost


class Caller:
    """A member's line for questions to the hub; any thread may ask. It connects when it is asked something."""

    def __init__(
        self, address: str, identity: Guest, hub_certificate: Certificate, *, attempt: float = Limits.attempt
    ) -> None:
        self._address, self._identity, self._hub, self._attempt = address, identity, hub_certificate, attempt
        self._lock = threading.Lock()
        self._channel: Any = None
        self._made = 0.0

    def ask(self, service: str, method: str, body: bytes, timeout: float = 30.0, most: int = _MOST) -> bytes:
        """The hub's answer; a ``ConnectError``, an ``IdentityError`` or a ``ProtocolError`` says why there is none.

        After a ``ConnectError`` the hub may or may not have heard the question. It answers with at most ``most`` bytes.
        """
        channel = self._line()
        parts, size = [], 0
        try:
            call = channel.stream_stream(f"/{service}/{method}")(
                pieces(body), metadata=((envelope.VERSION_KEY, envelope.VERSION),), timeout=timeout
            )
            for part in call:
                size += len(part)
                if size > most:
                    call.cancel()
                    raise ProtocolError(f"the hub at {self._address} sent an answer of more than {most} bytes [MS051]")
                parts.append(part)
        except grpc.RpcError as error:
            raise self._reason(error, channel, timeout) from None
        except ValueError:  # another thread has closed the channel
            raise ConnectError(f"the connection to {self._address} was closed [CN011]") from None
        return b"".join(parts)

    def close(self) -> None:
        """Hang up; the next question connects anew."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def _line(self) -> Any:
        with self._lock:
            if self._channel is None or monotonic() - self._made > _DAY:  # what it shows the hub is valid for days
                former, self._made = self._channel, monotonic()
                idle = ("grpc.client_idle_timeout_ms", _IDLE)
                self._channel = open_channel(self._address, self._identity, self._hub, Limits.heartbeat, idle)
                if former is not None:
                    former.close()
            return self._channel

    def _reason(self, error: Any, channel: Any, timeout: float) -> ColonnadeError:
        """The error that says why a question was not answered."""
        status, said = error.code(), harmless(error.details() or "")
        if status in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            return IdentityError(f"the hub at {self._address} refuses: {said} [ID011]")
        if status in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT):
            return ProtocolError(f"the hub at {self._address} refuses: {said} [MS052]")
        if status is grpc.StatusCode.UNIMPLEMENTED:
            return ProtocolError(
                f"the hub at {self._address} does not answer questions of this kind; is it a standing hub of this "
                "release? [MS053]"
            )
        if status in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ABORTED, grpc.StatusCode.INTERNAL):
            return ConnectError(f"the hub at {self._address} says: {said} [CN012]")
        if status is grpc.StatusCode.DEADLINE_EXCEEDED:
            return ConnectError(f"the hub at {self._address} did not answer within {timeout:g} s [CN013]")
        with self._lock:
            if self._channel is channel:  # the next question must not wait until gRPC tries again
                self._channel = None
        channel.close()
        try:
            probe(self._address, self._identity, self._hub, self._attempt)
        except ColonnadeError as reason:
            return reason
        return ConnectError(f"the connection to {self._address} broke [CN014]")
