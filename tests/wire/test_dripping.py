"""Signs of life without progress are no reason to wait: whoever only drips is given up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from colonnade.errors import ColonnadeError, PeerLost
from colonnade.wire import Endpoint, Identity
from colonnade.wire.channel import _LENGTH
from colonnade.wire.packet import Kind
from colonnade.wire.watch import PROGRESS, Limits, Watch
from tests.support.errors import raises

from .switchboard import Switchboard

SILENCE, DROPS, PAUSE = 0.4, 300, 0.1
"""A drip lasts much longer than the silence, and ends: then what was waited for comes."""


@pytest.fixture
def ends() -> Iterator[tuple[Endpoint, Endpoint]]:
    identities = [Identity.create(name) for name in ("bank", "shop")]
    board = Switchboard(identity.certificate for identity in identities)
    limits = {"timeout": SILENCE, "window": 1 << 14}
    bank, shop = (board.endpoint(identity, **limits) for identity in identities)
    for end in (bank, shop):
        end.channel({"bank": "shop", "shop": "bank"}[end.name]).open()
    for end in (bank, shop):
        end.wait_for_peers(timeout=200.0)
    yield bank, shop
    for end in (bank, shop):
        end.close()


class Drip:
    """A thread that does something small again and again."""

    def __init__(self, drop: Callable[[int], None], finish: Callable[[], None]) -> None:
        self._drop, self._finish, self._over = drop, finish, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with suppress(ColonnadeError):
            for number in range(DROPS):
                if self._over.wait(PAUSE):
                    return
                self._drop(number)
            self._finish()

    def __enter__(self) -> Drip:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def bare(kind: Kind) -> Callable[[Endpoint, Endpoint], Callable[[int], None]]:
    """A packet without a body."""

    def prepare(bank: Endpoint, shop: Endpoint) -> Callable[[int], None]:
        def drop(_: int) -> None:
            with shop._post._lock:
                shop._post._send("bank", kind)

        return drop

    return prepare


def empty_data(bank: Endpoint, shop: Endpoint) -> Callable[[int], None]:
    return lambda _: shop._post.dispatch("bank", b"")


def one_message(bank: Endpoint, shop: Endpoint) -> Callable[[int], None]:
    """The bytes of a message, one by one."""
    session: Any = shop.channel("bank")._session  # type: ignore[attr-defined]
    raw = _LENGTH.pack(1000) + bytes(1000)
    return lambda number: shop._post.dispatch("bank", session.seal([raw[number : number + 1]]))


def coming_and_going(bank: Endpoint, shop: Endpoint) -> Callable[[int], None]:
    incarnation = bank._post._watch.peers["shop"].incarnation

    def drop(_: int) -> None:
        bank._post.peer_gone("shop")
        bank._post.peer_here("shop", incarnation)

    return drop


DRIPS = {
    "acknowledgements": bare(Kind.ACK),
    "questions": bare(Kind.ASK),
    "empty data": empty_data,
    "a message byte by byte": one_message,
    "a connection that breaks again and again": coming_and_going,
}


@pytest.mark.parametrize("prepare", DRIPS.values(), ids=DRIPS)
def test_a_message_that_only_drips_is_not_waited_for(ends: tuple[Endpoint, Endpoint], prepare: Any) -> None:
    bank, shop = ends
    with (
        Drip(prepare(bank, shop), lambda: shop.channel("bank").send("word")),
        raises(PeerLost, "PE017", "shop"),
    ):
        bank.channel("shop").recv("word")


@pytest.mark.parametrize("name", ["acknowledgements", "questions"])
def test_a_peer_that_reads_nothing_and_asks_for_more_is_given_up(ends: tuple[Endpoint, Endpoint], name: str) -> None:
    bank, shop = ends

    def read() -> None:
        for _ in range(3):
            shop.channel("bank").recv("block")

    def send() -> None:
        for _ in range(3):
            bank.channel("shop").send("block", block=bytes(15_000))

    with (
        Drip(DRIPS[name](bank, shop), read),
        raises(PeerLost, "PE017", "shop"),
    ):
        send()


def test_time_starts_anew_with_progress_and_stands_still_while_a_connection_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("colonnade.wire.watch.monotonic", lambda: now)
    watch = Watch("bank", ["shop"], Limits(timeout=10.0))
    with watch.changed:
        watch.here("shop", 1)
        assert watch._patience_ends("shop", 100.0, giving=False) == 110.0
        now = 105.0
        watch.took("shop", PROGRESS - 1)
        assert watch._patience_ends("shop", 100.0, giving=False) == 110.0
        watch.took("shop", 1)
        assert watch._patience_ends("shop", 100.0, giving=False) == 115.0
        now = 107.0
        watch.gave("shop", PROGRESS)
        assert watch._patience_ends("shop", 100.0, giving=False) == 115.0
        assert watch._patience_ends("shop", 100.0, giving=True) == 117.0
        watch.gone("shop")
        now = 109.0
        watch.carrier_down("cut")
        now = 112.0
        watch.carrier_up({"shop": 1})
        assert watch._patience_ends("shop", 100.0, giving=False) == 120.0
