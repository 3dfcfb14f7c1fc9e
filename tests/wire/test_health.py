"""Whether a hub serves, as platforms ask it."""

from __future__ import annotations

import sys
from typing import Any

import grpc
import pytest

from colonnade.errors import ConnectError
from colonnade.wire import Hub, Identity, Service
from colonnade.wire.hub_carrier import open_channel
from tests.support.refusals import refused

health_pb2 = pytest.importorskip("grpc_health.v1.health_pb2")
health_pb2_grpc = pytest.importorskip("grpc_health.v1.health_pb2_grpc")
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def identities() -> dict[str, Identity]:
    return {name: Identity.create(name) for name in ("bank", "coordinator")}


async def echo(_: str, asked: bytes) -> bytes:
    return asked


def standing(identities: dict[str, Identity], **options: Any) -> Hub:
    pins = {name: identity.certificate for name, identity in identities.items()}
    return Hub(identities["coordinator"], pins, services=[Service("colonnade.Test", "Echo", echo)], rooms={}, **options)


def asked(channel: Any, service: str = "") -> int:
    with channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=20).status)


def test_members_are_told_at_the_port_of_the_hub(identities: dict[str, Identity]) -> None:
    with standing(identities) as hub:
        for service in ("", "colonnade.Hub"):
            channel = open_channel(hub.address, identities["bank"], identities["coordinator"].certificate, 5.0)
            assert asked(channel, service) == SERVING
        assert hub.health_port == 0


def test_this_machine_is_told_in_the_clear_and_nothing_else(identities: dict[str, Identity]) -> None:
    with standing(identities, health="127.0.0.1:0") as hub:
        plain = f"127.0.0.1:{hub.health_port}"
        assert asked(grpc.insecure_channel(plain)) == SERVING
        with grpc.insecure_channel(plain) as channel, pytest.raises(grpc.RpcError) as refused:
            list(channel.stream_stream("/colonnade.Test/Echo")(iter([b""]), timeout=20))
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_whoever_watches_sees_that_the_hub_ends(identities: dict[str, Identity]) -> None:
    hub = standing(identities, health="localhost:0").start()
    with grpc.insecure_channel(f"127.0.0.1:{hub.health_port}") as channel:
        watched = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(watched).status == SERVING
        hub.stop()
        assert next(watched).status == NOT_SERVING


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.7:0", "[::]:0", "hub.example.org:1"])
def test_others_are_never_told_in_the_clear(identities: dict[str, Identity], address: str) -> None:
    refused(ConnectError, "CN017", standing(identities, health=address).start)


def test_without_the_package_there_is_a_hub_without_health(
    identities: dict[str, Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("health", "health_pb2", "health_pb2_grpc"):
        monkeypatch.setitem(sys.modules, f"grpc_health.v1.{name}", None)
    with standing(identities) as hub:
        channel = open_channel(hub.address, identities["bank"], identities["coordinator"].certificate, 5.0)
        with pytest.raises(grpc.RpcError) as refused:
            asked(channel)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    refused(ConnectError, "CN016", standing(identities, health="127.0.0.1:0").start)
