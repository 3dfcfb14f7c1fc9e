from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from colonnade.mpc import Committee, Hand


class QueueLink:
    """A link between two threads; nothing but the two methods the committee asks for."""

    def __init__(self, out: queue.SimpleQueue[Any], into: queue.SimpleQueue[Any]) -> None:
        self._out, self._into = out, into
        self.sent: list[dict[str, Any]] = []

    def send(self, kind: str, /, **fields: Any) -> None:
        self.sent.append(fields)
        self._out.put((kind, fields))

    def recv(self, kind: str, /) -> dict[str, Any]:
        got, fields = self._into.get(timeout=20)
        assert got == kind
        return fields


def play(committee: Committee, programs: Mapping[str, Callable[[Hand], Any]]) -> dict[str, Any]:
    """Run one program a participant, each in its thread, and return what each returned."""
    names = list(programs)
    lines = {(a, b): queue.SimpleQueue() for a in names for b in names if a != b}
    results: dict[str, Any] = {}

    def run(name: str) -> None:
        links = {peer: QueueLink(lines[name, peer], lines[peer, name]) for peer in names if peer != name}
        try:
            results[name] = programs[name](Hand(name, committee, links))
        except Exception as error:
            results[name] = error

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    failures = [value for value in results.values() if isinstance(value, Exception)]
    if failures:
        raise failures[0]
    return results


@pytest.fixture(name="play")
def _play() -> Callable[..., dict[str, Any]]:
    return play
