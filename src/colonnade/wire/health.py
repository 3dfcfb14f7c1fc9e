"""Whether the hub serves, by the protocol that load balancers and container platforms ask with: ``grpc.health.v1``."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib import import_module
from ipaddress import ip_address
from typing import Any

from colonnade.errors import ConnectError
from colonnade.wire import envelope
from colonnade.wire.bound import split_address
from colonnade.wire.services import MOST_STREAMS, STOP_SECONDS, grpc

_MOST_CONNECTIONS = 16


class Health:
    """Answers whether the hub serves: to members at the hub's port and, if wanted, in the clear on this machine."""

    def __init__(self) -> None:
        self._messages, self._service = (
            import_module("grpc_health.v1.health_pb2"),
            import_module("grpc_health.v1.health_pb2_grpc"),
        )
        self._answers: Any = import_module("grpc_health.v1.health").aio.HealthServicer()
        self._server: Any = None
        self.port = 0
        """The port in the clear, after it was asked for."""

    @classmethod
    def if_installed(cls, address: str | None) -> Health | None:
        """None where the package is missing, unless an address was asked for."""
        try:
            return cls()
        except ImportError:
            if address is None:
                return None
            raise ConnectError(
                "health checks need a package that is not installed: run `pip install 'colonnade[console]'` [CN016]"
            ) from None

    def answer_at(self, server: Any) -> None:
        """Answer at a gRPC server that does not run yet."""
        self._service.add_HealthServicer_to_server(self._answers, server)

    async def serve(self, address: str | None) -> None:
        """The hub serves from now on; with an address, answer there in the clear as well."""
        await self._answers.set(envelope.SERVICE, self._messages.HealthCheckResponse.SERVING)
        if address is None:
            return
        host, _ = split_address(address)
        if host != "localhost" and not _is_loopback(host):
            raise ConnectError(
                f"health is answered in the clear, so only at an address such as 127.0.0.1, not {host} [CN017]"
            )
        self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", MOST_STREAMS),
                ("grpc.max_allowed_incoming_connections", _MOST_CONNECTIONS),
                ("grpc.max_receive_message_length", 1 << 12),
            ]
        )
        self.answer_at(self._server)
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError:
            raise ConnectError(
                f"the hub cannot answer health checks on {address}: is the port in use? [CN018]"
            ) from None
        await self._server.start()

    async def ending(self) -> None:
        """Say that the hub serves no longer; whoever watches and does not read is not waited for."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._answers.enter_graceful_shutdown(), STOP_SECONDS)

    async def stop(self) -> None:
        """Answer no longer."""
        if self._server is not None:
            await self._server.stop(0)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
