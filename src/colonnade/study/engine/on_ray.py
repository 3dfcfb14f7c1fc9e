"""Workers as actors of a Ray cluster that the party has anyway, or of one that is started here for a while.

Ray repeats nothing (``max_restarts=0``, ``max_task_retries=0``) and carries bytes that we have pickled ourselves, so
that what refuses to be pickled is refused here too. An actor runs its role in a thread; the head asks each actor for
what it says by a call that waits there (*hear*), so its answer comes at once, and so does the news of its death.
"""

from __future__ import annotations

import os
import pickle
import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from colonnade.errors import EngineError
from colonnade.study.engine.contract import Engine, Gone, pickled
from colonnade.study.engine.ray_connection import Connection, cut_after, ray_module
from colonnade.study.engine.ray_door import is_loopback
from colonnade.study.engine.worker import Birth, QueuedLine, event, live

PLACE_SECONDS = 120.0
"""For how long a worker may wait for a free core of the cluster, and for a process there."""
_END_SECONDS = 20.0
_READER_SECONDS = 5.0
_CALLS_AT_ONCE = 4  # commands, one call that waits for words, and one to spare
_CUT = "the connection to its Ray cluster is lost"
_UNEQUAL = "install the same Colonnade and the same Python on all of them"


class Seat:
    """An actor: a worker, its commands and its words."""

    def __init__(self, birth: bytes) -> None:
        self._said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._line = QueuedLine(self._said.put, _own_address())
        self._early: dict[int, bytes] = {}
        self._taken, self._taking = 0, threading.Lock()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for place in (1, 2):  # Ray would keep what is printed in files of its own
            os.dup2(nowhere, place)
        found = pickle.loads(birth)  # noqa: S301 - of our own head
        threading.Thread(target=live, args=(found, self._line), daemon=True).start()

    def tell(self, place: int, command: bytes) -> None:
        """Take a command; calls that are under way together may run in any order."""
        with self._taking:
            self._early[place] = command
            while self._taken in self._early:
                self._line.put(self._early.pop(self._taken))
                self._taken += 1

    def hear(self) -> list[bytes]:
        """What the worker has said, as soon as it says something."""
        found = [self._said.get()]
        with suppress(queue.Empty):
            while True:
                found.append(self._said.get_nowait())
        return found


@dataclass
class _Actor:
    handle: Any
    reader: threading.Thread | None = None
    sent: int = 0
    sending: threading.Lock = field(default_factory=threading.Lock)


class OnRay(Engine):
    """Workers on Ray: at an address, or without one on a cluster of this machine, which is started if there is none."""

    def __init__(self, address: str | None = None, memory: int | None = None, patience: float = PLACE_SECONDS) -> None:
        super().__init__()
        self._address, self._memory, self._patience = address, memory, patience
        self._lock = threading.Lock()
        """Never held while Ray is asked, which may wait for a cluster that does not answer."""
        self._actors: dict[int, _Actor] = {}
        self._birth: bytes | None = None
        self._next = 0
        self._connection: Connection | None = None
        self._stopped = False

    def start(self, role: str, arguments: Sequence[Any] = (), workers: int | None = None) -> list[int]:
        """Connect, and start workers; as many as the cluster has cores, if no number is given."""
        if self._birth is not None:
            raise EngineError("an engine is started once [EN002]")
        birth = pickled(Birth.of(role, tuple(arguments), self._memory), "a role")
        self._connection = Connection.made(self._address, workers)
        self._birth = birth
        try:
            count = workers or max(1, int(ray_module().cluster_resources().get("CPU", 1)))
            return [self._begin(birth) for _ in range(count)]
        except BaseException:
            self.stop()
            raise

    def send(self, worker: int, command: Any) -> None:
        """Send a command."""
        frame = pickled(command, "a command")
        with self._lock:
            actor = self._actors.get(worker)
        if actor is not None:
            with actor.sending:
                with suppress(Exception):  # that it is gone, or our connection, is said by its reader
                    actor.handle.tell.remote(actor.sent, frame)
                actor.sent += 1

    def replace(self, worker: int) -> int:
        """End a worker, and start another."""
        if self._birth is None:
            raise EngineError("an engine without workers has none to replace [EN003]")
        with self._lock:
            actor = self._actors.pop(worker, None)
        if actor is not None:
            _kill(actor)
        return self._begin(self._birth)

    def stop(self) -> None:
        """End all workers, and the cluster if it is ours."""
        with self._lock:
            self._stopped = True
            actors = list(self._actors.values())
            self._actors.clear()
        with cut_after(_END_SECONDS):
            for actor in actors:
                _kill(actor)
            for actor in actors:
                if actor.reader is not None:
                    actor.reader.join(_READER_SECONDS)
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _begin(self, birth: bytes) -> int:
        # One core each, and as much memory as it may have, so that Ray puts no more workers onto a node than fit.
        most = {} if self._memory is None else {"memory": self._memory}
        try:
            seat = (
                ray_module()
                .remote(Seat)
                .options(num_cpus=1, max_restarts=0, max_task_retries=0, max_concurrency=_CALLS_AT_ONCE, **most)
            )
            actor = _Actor(seat.remote(birth))
        except ImportError:  # of a client server, which has to import what it passes on
            raise EngineError(f"no worker can begin on the machines of the Ray cluster: {_UNEQUAL} [EN004]") from None
        except Exception as error:
            why = _CUT if self._connection is None or self._connection.lost else f"Ray raised {type(error).__name__}"
            raise EngineError(f"no worker can be started: {why} [EN005]") from None
        with self._lock:
            if not self._stopped:
                worker, self._next = self._next, self._next + 1
                self._actors[worker] = actor
                actor.reader = threading.Thread(target=self._listen, args=(worker, actor), daemon=True)
                actor.reader.start()
                return worker
        _kill(actor)
        raise EngineError("an engine that was stopped starts no worker [EN006]")

    def _listen(self, worker: int, actor: _Actor) -> None:
        """Put what a worker says into the queue, until it is gone."""
        ray = ray_module()
        patience: float | None = self._patience
        last: Gone | None = None
        while last is None and self._has(worker, actor):
            try:
                frames = ray.get(actor.handle.hear.remote(), timeout=patience)
            except ray.exceptions.GetTimeoutError:
                last = Gone(worker, f"the cluster had no room for it within {self._patience:.0f} seconds")
            except Exception as error:  # what Ray says names hosts and paths
                last = _lost(worker, error, self._connection)
            else:
                last = self._told(worker, actor, frames)
            patience = None
        if last is None or not self._has(worker, actor):
            return  # its user ended it, and lets go of it
        _kill(actor)
        with self._lock:  # so that its user, who may end it meanwhile, hears nothing of it afterwards
            if self._actors.get(worker) is actor:
                del self._actors[worker]
                self.events.put(last)

    def _has(self, worker: int, actor: _Actor) -> bool:
        with self._lock:
            return self._actors.get(worker) is actor

    def _told(self, worker: int, actor: _Actor, frames: list[bytes]) -> Gone | None:
        for frame in frames:
            heard = event(worker, frame)
            if isinstance(heard, Gone):
                return heard
            with self._lock:
                if heard is not None and self._actors.get(worker) is actor:
                    self.events.put(heard)
        return None


def _own_address() -> str | None:
    """The address of the node that this actor runs on; none where all nodes are on the loopback interface."""
    found = str(ray_module().util.get_node_ip_address())
    return None if is_loopback(f"{found}:0") else found


def _lost(worker: int, error: Exception, connection: Connection | None) -> Gone:
    if connection is not None and connection.lost:
        return Gone(worker, _CUT, "raised")
    # A client server that cannot import our classes says so by the error itself.
    if getattr(error, "actor_init_failed", False) or isinstance(error, ImportError):
        why = f"it could not begin on its machine: {_UNEQUAL}"
        return Gone(worker, why, "raised")
    return Gone(worker, "its actor or its machine is gone")


def _kill(actor: _Actor) -> None:
    with suppress(Exception):  # it is gone, or its cluster is
        ray_module().kill(actor.handle, no_restart=True)
