"""Ports for servers that a test starts a moment later."""

from __future__ import annotations

import os
import socket
from itertools import count

# Ports of outgoing connections are taken from 32768 on: one of those could be gone before the server is there.
_FIRST, _EACH = 12000, 2000
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
_taken = count(os.getpid())


def free_port() -> int:
    """A port that nobody listens at, and that no other test of this run is given."""
    for number in _taken:
        port = _FIRST + _worker * _EACH + number % _EACH
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("numbers never end")
