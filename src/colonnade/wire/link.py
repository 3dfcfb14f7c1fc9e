"""One direct connection to a peer, and the packets on it.

What a packet carries is sealed end to end already. Here each gets a tag, under keys that only the two ends know (GMAC,
with a number for each packet): so whoever is on the way can break the connection, and not the session. Then packets
that were not acknowledged go through the hub.
"""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from colonnade.errors import ProtocolError
from colonnade.wire.offer import (
    ANSWER_BYTES,
    GREETING_BYTES,
    Keys,
    Offer,
    StrangerError,
    fresh_nonce,
    name_in,
    read_exactly,
)
from colonnade.wire.packet import HEADER_BYTES, MAX_PACKET

_LENGTH = struct.Struct("<I")
_TAG_BYTES = 16
_LONGEST = HEADER_BYTES + MAX_PACKET
_BEAT, _END = b"", b"\0"
"""What is no packet: a sign of life, and the last word of whoever leaves."""
_BEAT_BYTES = _LENGTH.size + _TAG_BYTES
_STOCK = 1 << 16
_PARTS = 768  # in one system call; a frame has three
_AT_ONCE_FLAGS = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)
_WHOLE_FLAGS = socket.MSG_WAITALL


class BrokenError(ProtocolError):
    """A connection is of no more use; the message says why."""


class Link:
    """An open connection whose two ends have proven who they are."""

    def __init__(self, connection: socket.socket, keys: Keys) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._sealing, self._checking = AESGCM(keys.sending), AESGCM(keys.receiving)
        self._count_out = self._count_in = 0
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._waiting: deque[memoryview] = deque()
        self._writer: threading.Thread | None = None
        self._busy = self._over = self._ended = False
        self._written = 0  # bytes that the system took from the writer
        self.sent = self.received = 0
        """Bytes of packets."""
        self.why = ""
        """Why it was cut from this side."""
        self.spoke_at = self.heard_at = monotonic()

    # Sending. None of these waits.

    def put(self, packet: bytes | memoryview) -> None:
        """Send a packet; what the system does not take at once is sent by a thread of its own."""
        with self._lock:
            if self._over:
                return
            frame = self._framed(packet)
            self.sent += len(packet) if len(packet) > len(_END) else 0
            self.spoke_at = monotonic()
            if not self._busy:
                try:
                    frame = _left(frame, self._socket.sendmsg(frame, [], _AT_ONCE_FLAGS))
                except BlockingIOError:
                    pass
                except OSError:
                    self._cut("the connection broke")
                    return
                if not frame:
                    return
            self._waiting.extend(frame)
            self._busy = True
            if self._writer is None:
                writer = threading.Thread(target=self._write, name="wire-link-out", daemon=True)
                try:
                    writer.start()
                except RuntimeError:  # there can be no more threads
                    self._cut("no thread could be started for it")
                    return
                self._writer = writer
            self._filled.notify_all()

    def beat(self) -> None:
        """Give a sign of life."""
        self.put(_BEAT)

    def cut(self, why: str) -> None:
        """Break the connection; whoever reads it is woken."""
        with self._lock:
            self._cut(why)

    def end(self) -> None:
        """Say that nothing more will come, after everything that waits."""
        with self._lock:
            ended, self._ended = self._ended, True
        if not ended:
            self.put(_END)

    def finish(self, seconds: float) -> bool:
        """End, and wait until the system took everything, or nothing for so long; returns whether it took all."""
        self.end()
        with self._lock:
            seen, until = self._written, monotonic() + seconds
            while self._busy and not self._over and monotonic() < until:
                self._filled.wait(until - monotonic())
                if self._written != seen:
                    seen, until = self._written, monotonic() + seconds
            whole = not self._busy and not self._over
            self._over = True
            self._filled.notify_all()
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            return whole

    def close(self) -> None:
        """Free what the connection holds; its reader has ended."""
        self.cut("it was closed")
        if self._writer is not None:
            self._writer.join()
        self._socket.close()

    def _cut(self, why: str) -> None:
        self.why = self.why or why
        self._over = True
        self._filled.notify_all()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _framed(self, packet: bytes | memoryview) -> list[memoryview]:
        tag = self._sealing.encrypt(_number(self._count_out), b"", packet)
        self._count_out += 1
        return [memoryview(part) for part in (_LENGTH.pack(len(packet)), packet, tag) if part]

    def _write(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_WRITE)
            parts: list[memoryview] = []
            while True:
                with self._lock:
                    while not parts and not self._waiting and not self._over:
                        self._busy = False
                        self._filled.notify_all()
                        self._filled.wait()
                    if self._over:
                        return
                    parts += [self._waiting.popleft() for _ in range(min(len(self._waiting), _PARTS - len(parts)))]
                try:
                    sent = self._socket.sendmsg(parts, [], _AT_ONCE_FLAGS)
                except BlockingIOError:
                    selector.select()
                except OSError:
                    self.cut("the connection broke")
                    return
                else:
                    parts = _left(parts, sent)
                    self._written += sent

    # Receiving, in one thread

    def read(self, deliver: Callable[[memoryview], None]) -> None:
        """Deliver packets until the peer says that it ends the connection; a BrokenError if it ends otherwise."""
        try:
            for packet in self._frames():
                if len(packet) == len(_END):
                    return
                if packet:
                    self.received += len(packet)
                    deliver(packet)
        except OSError as error:
            raise BrokenError(f"{self.why or error.strerror or 'the connection broke'} [MS071]") from None
        except InvalidTag:
            raise BrokenError("something on it came from somebody else [MS072]") from None

    def _frames(self) -> Iterator[memoryview]:
        """The content of every frame, each in memory of its own."""
        stock = memoryview(bytearray(_STOCK))
        start = end = 0
        while True:
            while end - start < _LENGTH.size:
                stock[: end - start] = stock[start:end]
                start, end = 0, end - start
                end += self._receive(stock[end:])
            (size,) = _LENGTH.unpack_from(stock, start)
            start += _LENGTH.size
            if size > _LONGEST:
                raise BrokenError("something on it came from somebody else [MS073]")
            frame = np.empty(size + _TAG_BYTES, np.uint8).data
            filled = min(len(frame), end - start)
            frame[:filled] = stock[start : start + filled]
            start += filled
            while filled < len(frame):
                # In slices: a long frame may take long on a slow connection, and each slice is a sign of life.
                count = self._receive(frame[filled : filled + _STOCK], _WHOLE_FLAGS)
                filled += count
                if count == _STOCK:
                    self.heard_at = monotonic()
            self._check(frame[:size], frame[size:])
            yield frame[:size]

    def _receive(self, target: memoryview, flags: int = 0) -> int:
        count = self._socket.recv_into(target, 0, flags)
        if not count:
            raise BrokenError(f"{self.why or 'the other end hung up'} [MS074]")
        return count

    def _check(self, content: memoryview | bytes, tag: memoryview | bytes) -> None:
        self._checking.decrypt(_number(self._count_in), tag, content)
        self._count_in += 1
        self.heard_at = monotonic()  # not before: somebody on the way could let a byte through now and then

    def await_beat(self, deadline: float) -> None:
        """Wait for the first word of whoever dialled, by which it proves that it is no echo of an earlier one."""
        frame = read_exactly(self._socket, _BEAT_BYTES, deadline)
        try:
            if frame[: _LENGTH.size] != _LENGTH.pack(0):
                raise StrangerError("whoever dialled does not go on as it should [MS075]")
            self._check(b"", frame[_LENGTH.size :])
        except InvalidTag:
            raise StrangerError("whoever dialled repeats what somebody else said [MS076]") from None
        self._socket.settimeout(None)


def dial(offer: Offer, seconds: float) -> Link:
    """Connect to the address of an offer and prove who we are; an OSError or a StrangerError if that fails."""
    host, _, port = offer.address.rpartition(":")
    connection = socket.create_connection((host.strip("[]"), int(port)), timeout=seconds)
    try:
        deadline = monotonic() + seconds
        nonce = fresh_nonce()
        connection.sendall(offer.greeting(nonce))
        theirs = offer.check_answer(read_exactly(connection, ANSWER_BYTES, deadline), nonce)
        link = Link(connection, offer.keys(nonce, theirs, dials=True))
        link.beat()
    except BaseException:
        connection.close()
        raise
    return link


def welcome(connection: socket.socket, offers: dict[bytes, tuple[str, Offer]], seconds: float) -> tuple[str, Link]:
    """The peer that dialled and its connection; an OSError or a StrangerError if it does not prove who it is.

    Nothing is said before the greeting has proven that whoever dialled knows the secret of an offer.
    """
    deadline = monotonic() + seconds
    greeting = read_exactly(connection, GREETING_BYTES, deadline)
    known = offers.get(name_in(greeting))
    if known is None:
        raise StrangerError("whoever dialled does not know the secret [MS077]")
    peer, offer = known
    theirs, nonce = offer.check_greeting(greeting), fresh_nonce()
    connection.sendall(offer.answer(theirs, nonce))
    link = Link(connection, offer.keys(theirs, nonce, dials=False))
    link.await_beat(deadline)
    return peer, link


def _left(parts: list[memoryview], sent: int) -> list[memoryview]:
    """What is left of some parts after so many bytes of them were sent."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [part[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []


def _number(count: int) -> bytes:
    return count.to_bytes(12, "little")
