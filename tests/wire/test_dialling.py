"""Every attempt to connect ends within its limit, whenever the hub stops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest

from colonnade.errors import ColonnadeError, ConnectError, PeerLost
from colonnade.wire import Hub, Identity, dial, hub_carrier
from colonnade.wire.watch import Limits
from tests.support.refusals import refused

FOR_EVER = 60.0
"""Seconds after which a dial that should take two counts as one that never ends."""


@pytest.fixture(scope="module")
def identities() -> dict[str, Identity]:
    return {name: Identity.create(name) for name in ("bank", "coordinator", "shop")}


def ends_when_the_hub_stops(identities: dict[str, Identity], after: float, patch: pytest.MonkeyPatch) -> str:
    """Dial a hub that stops some seconds after it was probed, then wait for a message; how that ended."""
    pins = {name: identity.certificate for name, identity in identities.items()}
    hub = Hub(identities["coordinator"], pins).start()
    stopping: list[threading.Timer] = []
    probe = hub_carrier.probe

    def probe_then_stop(*args: Any) -> None:
        probe(*args)
        if not stopping:
            stopping.append(threading.Timer(after, hub.stop))
            stopping[0].start()

    patch.setattr(hub_carrier, "probe", probe_then_stop)
    ended: list[str] = []

    def talk() -> None:
        limits = {"connect_timeout": 0.2, "reconnect_grace": 0.2, "timeout": 1.0}
        try:
            with dial(hub.address, identities["bank"], pins, **limits) as bank:
                bank.channel("shop").recv("word")
        except (ConnectError, PeerLost) as error:
            ended.append(type(error).__name__)

    talking = threading.Thread(target=talk, daemon=True)
    talking.start()
    talking.join(FOR_EVER)
    patch.undo()
    for timer in stopping:
        timer.join(FOR_EVER)
    hub.stop()
    return ended[0] if ended else "never"


class Pending:
    """A connection and its call as gRPC may leave them: a read ends with the connection, not with the call."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self._done: list[Callable[[object], None]] = []

    def close(self) -> None:
        self.closed.set()

    def stream_stream(self, path: str) -> Callable[..., Pending]:
        return lambda requests, metadata: self

    def add_done_callback(self, done: Callable[[object], None]) -> None:
        self._done.append(done)

    def cancel(self) -> None:
        for done in self._done:
            done(self)

    def __next__(self) -> bytes:
        assert self.closed.wait(FOR_EVER), "a read that never ends"
        raise Ended


class Ended(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.CANCELLED

    def details(self) -> str:
        return "closed"


@pytest.fixture
def pending(identities: dict[str, Identity], monkeypatch: pytest.MonkeyPatch) -> tuple[Pending, hub_carrier._Line]:
    found = Pending()
    monkeypatch.setattr("colonnade.wire.hub_carrier.grpc.secure_channel", lambda *_: found)
    certificate = identities["coordinator"].certificate
    return found, hub_carrier._Line("127.0.0.1:1", identities["bank"], certificate, 1, Limits.heartbeat)


def test_an_answer_that_never_comes_is_not_waited_for(pending: tuple[Pending, hub_carrier._Line]) -> None:
    refused(ConnectError, "CN022", pending[1].await_roster, 0.05)


def test_a_read_ends_with_its_call(pending: tuple[Pending, hub_carrier._Line]) -> None:
    found, line = pending
    found.cancel()  # as gRPC does it when the other side is gone
    refused(Ended, (), next, line.messages)


def test_a_dial_ends_although_the_hub_stops(identities: dict[str, Identity], monkeypatch: pytest.MonkeyPatch) -> None:
    moments = np.random.default_rng(8)
    for _ in range(3):
        after = float(moments.uniform(0.0, 0.008))
        assert ends_when_the_hub_stops(identities, after, monkeypatch) in ("ConnectError", "PeerLost")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_dials_end_although_the_hub_stops(
    identities: dict[str, Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = np.random.default_rng(9)
    ends = [ends_when_the_hub_stops(identities, float(moments.uniform(0.0, 0.008)), monkeypatch) for _ in range(3000)]
    assert set(ends) <= {"ConnectError", "PeerLost"}


def test_a_hub_that_falls_silent_after_the_probe(
    identities: dict[str, Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = {name: identity.certificate for name, identity in identities.items()}
    silent, go_on = threading.Event(), threading.Event()
    with Hub(identities["coordinator"], pins) as hub:
        probe = hub_carrier.probe

        def probe_then_freeze(*args: Any) -> None:
            if not silent.is_set():
                probe(*args)
                hub._loop.call_soon_threadsafe(lambda: (silent.set(), go_on.wait()))
                silent.wait()

        monkeypatch.setattr(hub_carrier, "probe", probe_then_freeze)
        start = time.monotonic()
        try:
            refused(ColonnadeError, "CN022", dial, hub.address, identities["bank"], pins, connect_timeout=0.2)
        finally:
            go_on.set()
        assert time.monotonic() - start < FOR_EVER
