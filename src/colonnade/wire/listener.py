"""Where a participant waits for direct connections of its peers, and what becomes of strangers there.

A stranger hears nothing: it has a few seconds for a greeting of fixed length, and there are few places for those who
have not proven who they are. Where no place is left, the oldest of them goes, from the address with the most.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from colonnade.errors import ConnectError, ProtocolError
from colonnade.wire.bound import at_all_addresses
from colonnade.wire.direct import Ports
from colonnade.wire.link import Link, welcome
from colonnade.wire.offer import Offer
from colonnade.wire.strangers import Crowd, Stranger, neighbourhood

_PLACES = 16
_BACKLOG = 64
_PAUSE = 0.1


class Listener:
    """Listens at an address, and passes on connections of peers."""

    def __init__(self, listen: str, arrived: Callable[[str, Link], object], seconds: float) -> None:
        """``arrived`` is called in a thread of its own for each peer that proved, in so many seconds, who it is."""
        self.sockets, self.port = open_sockets(listen)
        self.offers: dict[bytes, tuple[str, Offer]] = {}
        """The peers and the offers that were made to them, by the names of these."""
        self._arrived, self._seconds = arrived, seconds
        self._crowd, self._lock = Crowd(_PLACES), threading.Lock()

    def accept(self, listening: socket.socket) -> None:
        """Let in whoever waits at this socket, until it proves who it is or its time is over."""
        try:
            connection, (host, *_) = listening.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                time.sleep(_PAUSE)  # whoever waits is still there
            return
        guest = _Guest(connection, neighbourhood(str(host)))
        with self._lock:
            self._crowd.add(guest)
        try:
            threading.Thread(target=self._meet, args=(guest,), name="wire-link-in", daemon=True).start()
        except RuntimeError:  # there can be no more threads
            self._forget(guest)
            connection.close()

    def close(self) -> None:
        """Listen no more."""
        for listening in self.sockets:
            listening.close()
        with self._lock:
            while self._crowd:
                self._crowd.make_room()

    def _meet(self, guest: _Guest) -> None:
        try:
            peer, link = welcome(guest.connection, self.offers, self._seconds)
        except (OSError, ProtocolError):  # a stranger is told nothing, and nothing is kept of it
            guest.connection.close()
            return
        finally:
            self._forget(guest)
        self._arrived(peer, link)

    def _forget(self, guest: _Guest) -> None:
        with self._lock:
            guest.leave_crowd()


class _Guest(Stranger):
    """A connection of somebody who has not proven who it is."""

    def __init__(self, connection: socket.socket, home: str) -> None:
        super().__init__(home)
        self.connection = connection

    def drop(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def open_sockets(listen: str) -> tuple[list[socket.socket], int]:
    """Sockets that listen at all addresses of the host, and their port; a ConnectError if that cannot be."""
    ports = Ports.read(listen)
    why = "the system refuses"
    for port in range(ports.first, ports.last + 1):
        try:
            return at_all_addresses(ports.host.strip("[]"), port, _BACKLOG), port
        except UnicodeError:
            why = "that is no name of a machine"
            break
        except OSError as error:
            why = _why_not(error)
            if error.errno != errno.EADDRINUSE:
                break
    raise ConnectError(f"this participant cannot listen at {listen}: {why} [CN031]")


def _why_not(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program has the port, or all of them"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "this user may not open the port; choose one above 1023"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return "that is no address of this machine"
    return error.strerror or "the system refuses"
