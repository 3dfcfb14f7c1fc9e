"""Direct links between participants: where one listens, and what became of them.

Only settings and figures; the connections are in ``links``, which takes longer to load.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace

from colonnade.wire.offer import HOST, is_address

_LISTEN = re.compile(rf"({HOST}):(\d{{1,5}})(?:-(\d{{1,5}}))?")

Told = Callable[[str, str], None]
"""Is told the name of a peer, and in one sentence by which way packets go to it now."""


DIRECTLY = "directly"


@dataclass(frozen=True)
class Direct:
    """How a participant takes part in direct links."""

    listen: str | None = None
    """``host:port`` or ``host:first-last``, or ``None`` if it only dials."""
    advertise: str | None = None
    """``host`` or ``host:port`` that peers dial, if not the one it listens at."""
    dials: bool = True
    patient: bool = True
    """Whether it waits a moment for connections that it dials before it begins."""

    def of_worker(self, host: str | None = None) -> Direct:
        """The same for one worker of several, each of which needs a port of its own.

        ``host`` is the address of its machine, if that is another one than its head's; peers are told the same.
        """
        if self.listen is None:
            return self
        ports = Ports.read(self.listen)
        if ports.first == ports.last:  # which its head has
            return replace(self, listen=None, advertise=None)
        if host is None:
            return self
        written = f"[{host}]" if ":" in host else host
        return replace(self, listen=f"{written}:{ports.first}-{ports.last}", advertise=None)


@dataclass
class Way:
    """By which way packets went to one peer."""

    direct: bool = False
    """Whether there is a direct connection now."""
    dialled: bool = False
    """Whether this participant is the one that dials first."""
    links: int = 0
    """How many there were, one after the other."""
    broken: int = 0
    """How many of them broke."""
    sent: int = 0
    received: int = 0
    """Bytes of packets on them."""
    why: str = "it was not reached yet"
    """Why packets go, or went, through the hub."""


@dataclass(frozen=True)
class Ports:
    """A host, and the ports of which the first free one is taken."""

    host: str
    first: int
    last: int

    @classmethod
    def read(cls, text: str) -> Ports:
        """From ``host:port`` or ``host:first-last``; anything else is a ValueError."""
        found = _LISTEN.fullmatch(text)
        if found is None:
            raise ValueError("must be host:port or host:first-last, such as 10.0.0.5:9400 or [::1]:9400-9409 [VA268]")
        first = int(found[2])
        last = int(found[3] or first)
        if not 0 < first <= last < 1 << 16:
            raise ValueError("must end in a port from 1 to 65535, or in two with a dash between them [VA269]")
        return cls(found[1], first, last)

    @property
    def everywhere(self) -> bool:
        """Whether the host means every address of the machine, however that is written."""
        try:
            if self.host.startswith("["):
                address = ipaddress.IPv6Address(self.host.strip("[]"))
                return (address.ipv4_mapped or address).is_unspecified
            return socket.inet_aton(self.host) == bytes(4)  # which also reads 0 and 0x0
        except (OSError, ValueError):
            return False


def told_address(listen: str, advertise: str | None, port: int) -> str:
    """The address that peers are told, where the port is the one that is listened on."""
    told = advertise or Ports.read(listen).host
    return told if is_address(told) else f"{told}:{port}"
