"""A conversation with one peer: typed messages, in order, sealed end to end."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from colonnade.errors import ColonnadeError, ProtocolError
from colonnade.wire import codec
from colonnade.wire.counters import Traffic
from colonnade.wire.identity import Certificate, Identity
from colonnade.wire.packet import MAX_PACKET
from colonnade.wire.post import Post
from colonnade.wire.session import Session

_LENGTH = struct.Struct("<Q")
_RECORD = 1 << 14
_OVERHEAD = 64
_MAX_PIECE = MAX_PACKET - (MAX_PACKET // _RECORD + 4) * _OVERHEAD
"""Plain bytes whose sealed records surely fit one packet."""


class Channel:
    """Messages to and from one peer. One thread may send while another receives."""

    def __init__(
        self, identity: Identity, peer: Certificate, post: Post, traffic: Traffic, window: int, topic: bytes
    ) -> None:
        self.peer = peer.name
        self._topic = topic
        self._identity, self._certificate = identity, peer
        self._post, self._traffic = post, traffic
        self._piece = min(_MAX_PIECE, max(window // 4, 1024))
        self._tls = threading.Lock()
        self._session: Session | None = None
        self._opened = False
        self._start = threading.Lock()
        # Of small messages several may share a record; what was read of it beyond the first waits here.
        self._record: memoryview | None = None
        self._left = memoryview(b"")

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message; blocks only while the peer is too far behind."""
        parts = codec.encode_parts([kind, fields])
        size = sum(len(part) for part in parts)
        session = self._open_session()
        for pieces in _cut([_LENGTH.pack(size), *parts], self._piece):
            self._post.wait_for_room(self.peer, sum(len(piece) for piece in pieces))
            with self._tls, self._traffic.timed(), self._guard(session):
                self._post.dispatch(self.peer, session.seal(pieces))
        self._traffic.messages_sent += 1
        self._traffic.payload_sent += size

    def recv(self, kind: str) -> dict[str, Any]:
        """The fields of the next message, which must be of this kind."""
        session = self._open_session()
        frame = self._read(session, _LENGTH.unpack(self._read(session, _LENGTH.size))[0])
        self._traffic.messages_received += 1
        self._traffic.payload_received += len(frame)
        got, fields = _message(codec.decode(frame), self.peer)
        if got != kind:
            raise ProtocolError(f"expected {kind!r} from {self.peer}, got {got!r}")
        return fields

    def open(self) -> None:
        """Start the session, without waiting for it."""
        with self._start:
            if self._opened:
                return
            self._opened = True
        if self._identity.name < self.peer:
            self.advance()
        else:
            self._post.dispatch(self.peer, b"")  # a knock: the peer opens when it hears anything

    @property
    def is_ready(self) -> bool:
        """Whether the session is up, and each side has accepted the other."""
        return self._session is not None and self._session.ready

    def advance(self) -> None:
        """Go on with the handshake. Runs in the link's thread, so that nobody's computing delays it."""
        if self.is_ready:
            return
        try:
            with self._tls, self._traffic.timed():
                self._step()
        except ColonnadeError as error:
            self._post.spoil(self.peer, error)
        if self.is_ready:
            self._post.wake()

    def _step(self) -> None:
        if self._session is None:
            self._session = Session(self._identity, self._certificate, self._topic)
        session = self._session
        try:
            session.advance()
            while not session.ready and (packet := self._post.take_if_any(self.peer)) is not None:
                session.feed(packet)
                session.advance()
        finally:
            # Also after a failure: the alert tells the peer why.
            if sealed := session.drain():
                self._post.dispatch(self.peer, sealed)

    def _guard(self, session: Session) -> _Guard:
        """Make a broken session stay broken, and let the peer know."""
        return _Guard(self, session)

    def _break(self, session: Session, error: ColonnadeError) -> None:
        self._post.spoil(self.peer, error)
        if sealed := session.drain():
            self._post.dispatch(self.peer, sealed)

    def _open_session(self) -> Session:
        if not self.is_ready:
            self.open()
            self._post.wait_until_open(self.peer, lambda: self.is_ready)
        session = self._session
        assert session is not None  # noqa: S101 - is_ready says so
        return session

    def _read(self, session: Session, size: int) -> memoryview:
        if size > codec.MAX_FRAME:
            raise ProtocolError(f"{self.peer} announces a message of {size} bytes, above the limit")
        # Not bytearray: that would first fill the buffer with zeros.
        target = np.empty(size, np.uint8).data
        filled = 0
        while True:
            filled += self._from_record(target[filled:])
            if filled == size:
                self._post.check(self.peer)
                return target
            if not session.has_bytes:
                packet = self._post.take(self.peer)
                with self._tls:
                    session.feed(packet)
            with self._tls, self._traffic.timed(), self._guard(session):
                if size - filled < _RECORD:
                    self._record = self._record or memoryview(bytearray(_RECORD))
                    self._left = self._record[: session.unseal_some(self._record)]
                else:
                    filled += session.unseal_into(target[filled:])

    def _from_record(self, target: memoryview) -> int:
        """Copy what is left of the last small record."""
        count = min(len(target), len(self._left))
        if count:
            target[:count] = self._left[:count]
            self._left = self._left[count:]
        return count


class _Guard:
    """A block in which a failure of the session is made known."""

    __slots__ = ("_channel", "_session")

    def __init__(self, channel: Channel, session: Session) -> None:
        self._channel, self._session = channel, session

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, ColonnadeError):
            self._channel._break(self._session, error)


def _cut(parts: Iterable[bytes | memoryview], limit: int) -> Iterator[list[memoryview]]:
    """The same bytes in batches of at most ``limit``, without copying."""
    batch: list[memoryview] = []
    room = limit
    for part in parts:
        rest = memoryview(part)
        while rest:
            piece, rest = rest[:room], rest[room:]
            batch.append(piece)
            room -= len(piece)
            if not room:
                yield batch
                batch, room = [], limit
    if batch:
        yield batch


def _message(value: Any, peer: str) -> tuple[str, dict[str, Any]]:
    match value:
        case [str(kind), dict(fields)]:
            return kind, fields
    raise ProtocolError(f"{peer} sent something that is not a message")
