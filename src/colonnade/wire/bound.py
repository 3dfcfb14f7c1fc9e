"""Sockets that listen at every address that a name has on this machine."""

from __future__ import annotations

import errno
import socket


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
