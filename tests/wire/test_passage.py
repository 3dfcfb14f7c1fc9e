"""What comes on one connection goes out on the other, whole and in order, with the kernel's help and without it."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import pytest

from colonnade.wire.passage import Mover, Side

WAYS = [pytest.param(False, id="copied")]
if hasattr(os, "splice"):
    WAYS.append(pytest.param(True, id="spliced"))
SMALL = 1 << 16


class Way:
    """A way from one socket to another and back, as the door has it; who uses it holds the two outer ends."""

    def __init__(self, mover: Mover, stack: ExitStack) -> None:
        self.near, near = map(stack.enter_context, _connected())
        self.far, far = map(stack.enter_context, _connected())
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


def _connected() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection with small buffers, so that it is soon full."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
    for end in (here, there):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        end.setblocking(False)
    return here, there


def _play(splice: bool, act: Callable[[Callable[[], Way], Mover], Any]) -> None:
    async def run() -> None:
        mover = Mover(splice=splice)
        with ExitStack() as stack:
            try:
                await act(lambda: Way(mover, stack), mover)
            finally:
                mover.close()

    asyncio.run(asyncio.wait_for(run(), 60))


async def _read(end: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer if there are no more."""
    loop, found = asyncio.get_running_loop(), b""
    while len(found) < size and (data := await loop.sock_recv(end, size - len(found))):
        found += data
    return found


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def _filled(way: Way) -> None:
    """Return when a way takes no more."""
    before = -1
    while before != way.passed:
        before = way.passed
        await asyncio.sleep(0.05)


def _data(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(size)


@pytest.mark.parametrize("splice", WAYS)
def test_all_bytes_arrive_in_order_both_ways_at_once(splice: bool) -> None:
    async def act(open_way: Callable[[], Way], mover: Mover) -> None:
        way, loop = open_way(), asyncio.get_running_loop()
        there, back = _data(5_000_003), _data(3_000_001, 1)
        found = await asyncio.gather(
            _read(way.far, len(there)),
            _read(way.near, len(back)),
            loop.sock_sendall(way.near, there),
            loop.sock_sendall(way.far, back),
        )
        assert found[:2] == [there, back]
        assert way.passed == len(there) + len(back)
        assert mover.copies is not splice

    _play(splice, act)


@pytest.mark.parametrize("splice", WAYS)
def test_who_does_not_read_stops_its_sender_and_nobody_else(splice: bool) -> None:
    async def act(open_way: Callable[[], Way], _: Mover) -> None:
        stuck, free, loop = open_way(), open_way(), asyncio.get_running_loop()
        data, other = _data(20_000_000), _data(2_000_000, 1)
        sending = asyncio.create_task(loop.sock_sendall(stuck.near, data))
        await _filled(stuck)
        assert not sending.done()
        assert stuck.passed < len(data) // 2  # so little is held that the sender notices
        arriving = asyncio.create_task(_read(free.far, len(other)))
        await loop.sock_sendall(free.near, other)
        assert await arriving == other
        assert await _read(stuck.far, len(data)) == data
        await sending

    _play(splice, act)


@pytest.mark.parametrize("splice", WAYS)
def test_what_was_passed_on_is_sent_before_the_end(splice: bool) -> None:
    async def act(open_way: Callable[[], Way], _: Mover) -> None:
        way, loop = open_way(), asyncio.get_running_loop()
        data = _data(3_000_000)
        sending = asyncio.create_task(loop.sock_sendall(way.near, data))
        await _filled(way)
        arriving = asyncio.create_task(_read(way.far, len(data) + 1))
        await sending
        way.near.close()
        assert await arriving == data
        await _until(lambda: sorted(way.lost) == ["far", "near"])

    _play(splice, act)


@pytest.mark.parametrize("splice", WAYS)
def test_bytes_for_a_connection_that_broke_reach_nobody_else(splice: bool) -> None:
    async def act(open_way: Callable[[], Way], _: Mover) -> None:
        broken, whole, loop = open_way(), open_way(), asyncio.get_running_loop()
        broken.far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sending = asyncio.create_task(loop.sock_sendall(broken.near, _data(20_000_000)))
        await _filled(broken)
        broken.far.close()  # with a reset
        with suppress(ConnectionError):
            await sending
        await _until(lambda: sorted(broken.lost) == ["far", "near"])
        data = _data(1_000_000, 1)
        arriving = asyncio.create_task(_read(whole.far, len(data)))
        await loop.sock_sendall(whole.near, data)
        assert await arriving == data
        assert whole.lost == []

    _play(splice, act)


def test_a_connection_that_was_aborted_sends_no_more() -> None:
    async def act(open_way: Callable[[], Way], _: Mover) -> None:
        way, loop = open_way(), asyncio.get_running_loop()
        sending = asyncio.create_task(loop.sock_sendall(way.near, _data(20_000_000)))
        await _filled(way)
        way.far_side.abort()
        with suppress(ConnectionError):
            await sending
        await _until(lambda: sorted(way.lost) == ["far", "near"])
        assert len(await _read(way.far, 20_000_000)) < 20_000_000

    _play(False, act)


@pytest.mark.skipif(not hasattr(os, "splice"), reason="this system cannot splice")
@pytest.mark.parametrize("refused", ["into the pipe", "out of it"])
def test_where_the_kernel_refuses_bytes_are_copied(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    splice, calls = os.splice, 0

    def refuse(*given: Any, **how: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == (3 if refused == "into the pipe" else 4):
            raise OSError(errno.EINVAL, "not these files")
        return splice(*given, **how)

    async def act(open_way: Callable[[], Way], mover: Mover) -> None:
        way, loop = open_way(), asyncio.get_running_loop()
        for seed in range(4):
            data = _data(1000, seed)
            await loop.sock_sendall(way.near, data)
            assert await _read(way.far, len(data)) == data
        assert mover.copies

    monkeypatch.setattr(os, "splice", refuse)
    _play(True, act)
    assert calls in (3, 4)


@pytest.mark.skipif(not hasattr(os, "splice"), reason="this system cannot splice")
def test_a_mover_that_is_closed_has_no_descriptor() -> None:
    async def act(open_way: Callable[[], Way], mover: Mover) -> None:
        way, loop = open_way(), asyncio.get_running_loop()
        before = len(os.listdir("/dev/fd"))
        await loop.sock_sendall(way.near, b"word")
        assert await _read(way.far, 4) == b"word"
        assert len(os.listdir("/dev/fd")) == before + 2
        mover.close()
        assert len(os.listdir("/dev/fd")) == before

    _play(True, act)
