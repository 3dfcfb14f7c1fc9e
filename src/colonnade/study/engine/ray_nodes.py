"""Nodes of Ray that are started here, on a machine that may be busy.

Ray waits half a minute for a node, which a busy machine may exceed. If a helper of its own takes more than about 15
seconds, its raylet ends at once, and Ray would still wait for it. So there is more time, and a node whose raylet has
ended is begun again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, TypeVar

Made = TypeVar("Made")

START_SECONDS = 120
"""For how long a node of a cluster that is started here may take to begin, all tries together."""
TRIES = 5
_LOOK_SECONDS = 0.1


class RayletError(Exception):
    """The raylet of a node that is being started has ended."""


def begun(start: Callable[[], Made], seconds: float = START_SECONDS) -> Made:
    """What ``start`` makes, with one node that it starts in this process, or none; it may be called several times."""
    until, tries = time.monotonic() + seconds, 0
    while True:
        tries += 1
        with _patient(until) as nodes:
            try:
                return start()
            except RayletError:
                for node in nodes:
                    with suppress(Exception):  # some of its processes are gone
                        node.kill_all_processes(check_alive=False, allow_graceful=False)
                if tries == TRIES or time.monotonic() > until:
                    raise


@contextmanager
def _patient(until: float) -> Iterator[list[Any]]:
    """Wait for a node until then, or until its raylet has ended; yields nodes that are being started."""
    services: Any = import_module("ray._private.services")
    node: Any = import_module("ray._private.node").Node
    look_once, start_raylet = services.get_node, node.start_raylet
    nodes: list[Any] = []

    def started(self: Any, *given: Any, **named: Any) -> Any:
        nodes.append(self)
        return start_raylet(self, *given, **named)

    def get_node(*given: Any, **named: Any) -> Any:
        while True:
            try:
                return look_once(*given, **named)
            except RuntimeError:  # it is not there yet
                if not nodes:
                    raise
                if any(map(_raylet_ended, nodes)):
                    raise RayletError from None
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK_SECONDS)

    services.get_node, node.start_raylet = get_node, started
    try:
        yield nodes
    finally:
        services.get_node, node.start_raylet = look_once, start_raylet


def _raylet_ended(node: Any) -> bool:
    return any(found.process.poll() is not None for found in node.all_processes.get("raylet", ()))
