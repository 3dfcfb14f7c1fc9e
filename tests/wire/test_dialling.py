"""Every attempt to connect ends within its limit, whenever the hub stops."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from colonnade.errors import ColonnadeError, ConnectError, PeerLost
from colonnade.wire import Hub, Identity, dial, hub_carrier

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


def test_a_dial_ends_although_the_hub_stops(identities: dict[str, Identity], monkeypatch: pytest.MonkeyPatch) -> None:
    moments = np.random.default_rng(8)
    for _ in range(15):
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
            with pytest.raises(ColonnadeError, match="does not answer"):
                dial(hub.address, identities["bank"], pins, connect_timeout=0.2)
        finally:
            go_on.set()
        assert time.monotonic() - start < FOR_EVER
