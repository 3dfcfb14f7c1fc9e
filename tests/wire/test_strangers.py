"""The door of a hub: strangers at its address do not stop a study, and what comes in goes on, whole and in order."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import pytest

from colonnade.wire import Hub, strangers
from colonnade.wire.door import _listeners
from colonnade.wire.passage import Mover, Side
from colonnade.wire.strangers import Crowd, Stranger, begins_tls, neighbourhood, places_for_lanes, places_for_strangers
from tests.support.errors import refused
from tests.support.wires import SECONDS, WORDS, closed, connected, hello, join, says

V4, V6 = socket.AF_INET, socket.AF_INET6


def test_a_connection_that_says_nothing_is_closed_and_a_participant_stays(people: Any) -> None:
    with Hub(people.coordinator, people.pins, handshake=0.3) as hub:
        bank, shop = join(hub, "bank"), join(hub, "shop")
        connection = hub._rooms.open[""].connections["bank"]
        for guest in hub._door._open:  # none of its messages waits for the receipt of another
            assert guest.outer.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for words in WORDS.values():
            with socket.create_connection(("127.0.0.1", hub.port), timeout=SECONDS) as end:
                end.sendall(words)
                with suppress(ConnectionResetError):
                    while end.recv(1 << 16):
                        pass
        time.sleep(0.6)  # longer than a handshake may last
        says(bank, shop)
        assert hub._rooms.open[""].connections["bank"] is connection
        closed(bank, shop)


@pytest.mark.parametrize("code", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_addresses_that_this_machine_has_not_are_left_out(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Such as ::1, which localhost may have where IPv6 is off; a port in use is an error at any address."""
    create, absent = socket.create_server, {V6: code}

    def create_here(at: tuple[str, int], **how: Any) -> socket.socket:
        if how["family"] in absent:
            raise OSError(absent[how["family"]], "not here")
        return create(at, **how)

    both = [(family, socket.SOCK_STREAM, 6, "", (at, 0)) for family, at in ((V4, "127.0.0.1"), (V6, "::1"))]
    monkeypatch.setattr("colonnade.wire.door.socket.create_server", create_here)
    monkeypatch.setattr("colonnade.wire.door.socket.getaddrinfo", lambda *_, **__: both)
    (found,) = _listeners("localhost", 0)
    assert found.family == V4
    found.close()
    for others in ({V4: code, V6: code}, {V6: errno.EADDRINUSE}):
        absent.update(others)
        refused(OSError, "not here", _listeners, "localhost", 0)
        absent.clear()


class Visitor(Stranger):
    dropped = False

    def drop(self) -> None:
        self.dropped = True


def test_the_oldest_of_the_fullest_address_makes_room() -> None:
    crowd = Crowd(4)
    visitors = [Visitor(home) for home in ("a", "b", "b", "c", "c", "d")]
    for visitor in visitors:
        crowd.add(visitor)
    assert [visitor.dropped for visitor in visitors] == [False, True, False, True, False, False]
    assert neighbourhood("2001:db8:1:2:3::4") == neighbourhood("2001:db8:1:2:ffff::") != neighbourhood("2001:db8::1")
    assert neighbourhood("::ffff:192.0.2.7") == neighbourhood("192.0.2.7") != neighbourhood("192.0.2.8")
    assert neighbourhood("fe80::1%eth0") == "fe80::/64"


def test_only_the_whole_greeting_of_a_client_is_passed_on() -> None:
    whole = hello()
    assert (begins_tls(whole), begins_tls(whole + b"more")) == (True, True)
    assert {begins_tls(whole[:length]) for length in range(len(whole))} == {None}
    for at in (0, 1, 5):
        for length in (at + 1, len(whole)):
            changed = bytearray(whole[:length])
            changed[at] ^= 0xFF
            assert begins_tls(bytes(changed)) is False
    assert begins_tls(b"\x16\x03\x01\xff\xff\x01") is False


@pytest.mark.parametrize(("allowed", "lanes"), [(256, 1), (1024, 31), (4096, 128), (20_000, 128)])
def test_lanes_leave_descriptors_for_others(monkeypatch: pytest.MonkeyPatch, allowed: int, lanes: int) -> None:
    assert places_for_strangers(3) >= places_for_strangers(10_000) >= 1
    monkeypatch.setattr(strangers, "_descriptors", lambda useful: min(useful, allowed))
    assert places_for_lanes(4, 4, 128) == lanes
    taken = 2 * strangers.EACH * (4 + 4 * lanes + places_for_strangers(4 + 4 * lanes))
    assert taken <= allowed


# --- from one connection to the other, with the kernel's help and without it


SPLICES = hasattr(os, "splice")
WAYS = [pytest.param(splice, id="spliced" if splice else "copied") for splice in {False, SPLICES}]


class Way:
    """A way from one socket to another and back, as the door has it; who uses it holds the two outer ends."""

    def __init__(self, mover: Mover, stack: ExitStack) -> None:
        self.near, near = map(stack.enter_context, _soon_full())
        self.far, far = map(stack.enter_context, _soon_full())
        self.lost: list[str] = []
        self.near_side = Side(near, lambda: self._ends("near"))
        self.far_side = Side(far, lambda: self._ends("far"))
        self.passed = 0
        self.near_side.attend(lambda: self._pass(self.near_side, self.far_side, mover))
        self.far_side.attend(lambda: self._pass(self.far_side, self.near_side, mover))

    def _pass(self, source: Side, sink: Side, mover: Mover) -> None:
        self.passed += source.pass_on(sink, mover)

    def _ends(self, which: str) -> None:
        self.lost.append(which)
        self.near_side.close()
        self.far_side.close()

    async def has_ended(self) -> None:
        while sorted(self.lost) != ["far", "near"]:
            await asyncio.sleep(0.001)

    async def carries(self, data: bytes, more: int = 0) -> bytes:
        """What arrives of so many bytes."""
        arriving = asyncio.create_task(_read(self.far, len(data) + more))
        await asyncio.get_running_loop().sock_sendall(self.near, data)
        return await arriving

    async def filled(self, size: int) -> Any:
        """Somebody sends so many bytes; return when it takes no more of them."""
        sending, before = asyncio.create_task(asyncio.get_running_loop().sock_sendall(self.near, _data(size))), -1
        while before != self.passed:
            before = self.passed
            await asyncio.sleep(0.05)
        return sending


def _soon_full() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection with small buffers."""
    ends = connected()
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        end.setblocking(False)
    return ends


def _play(splice: bool, act: Callable[[Callable[[], Way], Mover], Any]) -> None:
    async def run() -> None:
        mover = Mover(splice=splice)
        with ExitStack() as stack:
            try:
                await act(lambda: Way(mover, stack), mover)
            finally:
                mover.close()

    asyncio.run(asyncio.wait_for(run(), SECONDS))


async def _read(end: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer if there are no more."""
    loop, found = asyncio.get_running_loop(), b""
    while len(found) < size and (data := await loop.sock_recv(end, size - len(found))):
        found += data
    return found


def _data(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(size)


@pytest.mark.parametrize("splice", WAYS)
def test_all_bytes_arrive_in_order_both_ways_at_once_and_before_the_end(splice: bool) -> None:
    async def act(open_way: Callable[[], Way], mover: Mover) -> None:
        way, loop = open_way(), asyncio.get_running_loop()
        there, back = _data(2_000_003), _data(1_000_001, 1)
        sending = loop.sock_sendall(way.far, back)
        found = await asyncio.gather(way.carries(there), _read(way.near, len(back)), sending)
        assert found[:2] == [there, back]
        assert way.passed == len(there) + len(back)
        assert mover.copies is not splice
        sending = await way.filled(2_000_000)
        arriving = asyncio.create_task(_read(way.far, 2_000_001))
        await sending
        way.near.close()
        assert await arriving == _data(2_000_000)
        await way.has_ended()

    _play(splice, act)


@pytest.mark.parametrize("splice", WAYS)
def test_who_does_not_read_stops_its_sender_and_nobody_else(splice: bool) -> None:
    size = 10_000_000

    async def act(open_way: Callable[[], Way], _: Mover) -> None:
        stuck, free = open_way(), open_way()
        sending = await stuck.filled(size)
        assert not sending.done()
        assert stuck.passed < size // 2  # so little is held that the sender notices
        assert await free.carries(_data(1_000_000, 1)) == _data(1_000_000, 1)
        assert await _read(stuck.far, size) == _data(size)
        await sending

    _play(splice, act)


@pytest.mark.parametrize("splice", WAYS)
def test_bytes_for_a_connection_that_broke_reach_nobody_else(splice: bool) -> None:
    async def act(open_way: Callable[[], Way], _: Mover) -> None:
        broken, whole = open_way(), open_way()
        broken.far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sending = await broken.filled(20_000_000)
        broken.far.close()  # with a reset
        with suppress(ConnectionError):
            await sending
        await broken.has_ended()
        assert await whole.carries(_data(1_000_000, 1)) == _data(1_000_000, 1)
        assert whole.lost == []

    _play(splice, act)


def test_a_connection_that_was_aborted_sends_no_more() -> None:
    async def act(open_way: Callable[[], Way], _: Mover) -> None:
        way = open_way()
        sending = await way.filled(20_000_000)
        way.far_side.abort()
        with suppress(ConnectionError):
            await sending
        await way.has_ended()
        assert len(await _read(way.far, 20_000_000)) < 20_000_000

    _play(False, act)


@pytest.mark.skipif(not SPLICES, reason="this system cannot splice")
@pytest.mark.parametrize("call", [3, 4], ids=["into the pipe", "out of it"])
def test_where_the_kernel_refuses_bytes_are_copied(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    splice, calls = os.splice, list[Any]()

    def refuse(*given: Any, **how: Any) -> int:
        calls.append(given)
        if len(calls) == call:
            raise OSError(errno.EINVAL, "not these files")
        return splice(*given, **how)

    async def act(open_way: Callable[[], Way], mover: Mover) -> None:
        way, before = open_way(), len(os.listdir("/dev/fd"))
        for seed in range(4):
            assert await way.carries(_data(1000, seed)) == _data(1000, seed)
        assert mover.copies
        mover.close()
        assert len(os.listdir("/dev/fd")) == before, "it keeps no descriptor"

    monkeypatch.setattr(os, "splice", refuse)
    _play(True, act)
    assert len(calls) in (3, 4)
