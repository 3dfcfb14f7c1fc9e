"""Two connections of which each gets what comes on the other.

Where the kernel can, it moves the bytes from socket to socket through a pipe, and none of them is copied; elsewhere
they go through one buffer that is used again and again.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress

_AT_ONCE = 1 << 20  # bytes of one connection, before others have their turn
_PIPE_BYTES = 1 << 20
_CAN_SPLICE = hasattr(os, "splice")
_NOT_HERE = (errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP)
_BUSY = "the other side is busy"


class SocketMover:
    """Moves what waits at one socket to another. One serves all connections of a loop: it keeps nothing in between."""

    def __init__(self, *, splice: bool = _CAN_SPLICE) -> None:
        self._splice = splice
        self._pipe: tuple[int, int] | None = None
        self._buffer = memoryview(b"")

    @property
    def copies(self) -> bool:
        """Whether bytes are copied, because the kernel cannot move them."""
        return not self._splice

    def close(self) -> None:
        """Give back the pipe."""
        if self._pipe is not None:
            for end in self._pipe:
                os.close(end)
            self._pipe = None

    def move(self, source: socket.socket, sink: socket.socket) -> tuple[int, bytes]:
        """How many bytes came, 0 at the end of them, and those that the sink did not take."""
        if self._splice:
            try:
                return self._splice_bytes(source.fileno(), sink.fileno())
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                self._copy_from_now_on()
        return self._copy_bytes(source, sink)

    def _splice_bytes(self, source: int, sink: int) -> tuple[int, bytes]:
        pipe = self._pipe or self._open()
        how = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
        came = left = os.splice(source, pipe[1], _AT_ONCE, flags=how)
        rest = b""
        try:
            while left:
                left -= os.splice(pipe[0], sink, left, flags=how)
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            self._splice = False  # what is in the pipe is not lost
        finally:
            # The pipe is empty afterwards, also after an error: what comes next is another connection's.
            while len(rest) < left:
                rest += os.read(pipe[0], left - len(rest))
            if not self._splice:
                self.close()
        return came, rest

    def _open(self) -> tuple[int, int]:
        import fcntl  # not on every system, but wherever there is splice

        self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with suppress(OSError):  # a smaller pipe works as well
            fcntl.fcntl(self._pipe[1], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return self._pipe

    def _copy_from_now_on(self) -> None:
        self._splice = False
        self.close()

    def _copy_bytes(self, source: socket.socket, sink: socket.socket) -> tuple[int, bytes]:
        self._buffer = self._buffer or memoryview(bytearray(_AT_ONCE))
        came = source.recv_into(self._buffer)
        sent = 0
        if came:
            with suppress(BlockingIOError, InterruptedError):
                sent = sink.send(self._buffer[:came])
        return came, bytes(self._buffer[sent:came])


class ProxySocket:
    """One connection, in the loop that runs. What it could not send yet waits here, and its other side meanwhile."""

    def __init__(self, connection: socket.socket, lost: Callable[[], None]) -> None:
        """``lost`` is called once, soon after the connection was closed by either end."""
        self.socket = connection
        connection.setblocking(False)
        # Without it a small message may wait for the receipt of the one before, which the other end delays by 40 ms.
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self._ready: Callable[[], None] | None = None
        self._reads = False
        self._why_silent: set[str] = set()
        self._unsent = memoryview(b"")
        self._closing = self._closed = False

    def on_readable(self, ready: Callable[[], None]) -> None:
        """From now on, call this whenever something came."""
        self._ready = ready
        if self._reads:
            self._loop.add_reader(self.socket, ready)
        self._update_reader()

    def pause_reading(self, why: str) -> None:
        """Read nothing, until all reasons for that are gone."""
        self._why_silent.add(why)
        self._update_reader()

    def resume_reading(self, why: str) -> None:
        """This reason not to read is gone."""
        self._why_silent.discard(why)
        self._update_reader()

    def _update_reader(self) -> None:
        """Watch for what comes if it is to be read, and only then."""
        reads = self._ready is not None and not self._why_silent and not self._closing
        if reads and not self._reads and self._ready is not None:
            self._loop.add_reader(self.socket, self._ready)
        elif self._reads and not reads:
            self._loop.remove_reader(self.socket)
        self._reads = reads

    def read(self, most: int) -> bytes:
        """What came, empty if nothing did; the connection is closed when nothing more can come."""
        try:
            data = self.socket.recv(most)
        except (BlockingIOError, InterruptedError):
            return b""
        except OSError:
            self.abort()
            return b""
        if not data:
            self.close()
        return data

    def forward(self, other: ProxySocket, mover: SocketMover) -> int:
        """Move what came to the other side; returns how many bytes. At the end of all bytes this side closes."""
        try:
            came, rest = mover.move(self.socket, other.socket)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:  # of either; what belongs to it ends as well
            self.abort()
            return 0
        if not came:
            self.close()
        elif rest:
            self.pause_reading(_BUSY)
            other._buffer_unsent(rest, self)
        return came

    def send(self, data: bytes, source: ProxySocket) -> None:
        """Send these bytes; if they cannot go now, its source is not read until they have gone."""
        sent = 0
        try:
            sent = self.socket.send(data)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.abort()
            return
        if sent < len(data):
            source.pause_reading(_BUSY)
            self._buffer_unsent(data[sent:], source)

    def _buffer_unsent(self, data: bytes, source: ProxySocket) -> None:
        self._unsent = memoryview(data)
        self._loop.add_writer(self.socket, self._flush_unsent, source)

    def _flush_unsent(self, source: ProxySocket) -> None:
        try:
            self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.abort()
            return
        if not self._unsent:
            self._loop.remove_writer(self.socket)
            source.resume_reading(_BUSY)
            if self._closing:
                self.abort()

    def close(self) -> None:
        """Read no more, and close the connection after what waits is sent."""
        self._closing = True
        if self._unsent:
            self._update_reader()
        else:
            self.abort()

    def abort(self) -> None:
        """Close the connection now."""
        if self._closed:
            return
        self._closing = self._closed = True
        self._update_reader()
        self._loop.remove_writer(self.socket)
        self._unsent = memoryview(b"")
        self.socket.close()
        self._loop.call_soon(self._lost)
