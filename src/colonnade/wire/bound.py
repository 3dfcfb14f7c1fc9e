"""Addresses, and sockets that listen at every one that a name has on this machine."""

from __future__ import annotations

import errno
import socket

from colonnade.errors import ConnectError


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConnectError(f"{address!r} is not an address: write host:port [CN024]")
    return host.strip("[]"), int(port)


def at_all_addresses(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Sockets that do not block, all at one port, which the system chooses for port 0; an OSError if there is none."""
    found: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, _, _, _, address in dict.fromkeys(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)):
            at = (address[0], found[0].getsockname()[1] if found and not port else port)
            try:
                found.append(socket.create_server(at, family=family, backlog=backlog))
            except OSError as error:
                # A name may have addresses that this machine has not, such as ::1 where IPv6 is off.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
        if missing is not None and not found:
            raise missing
    except OSError:
        for listener in found:
            listener.close()
        raise
    for listener in found:
        listener.setblocking(False)
    return found
