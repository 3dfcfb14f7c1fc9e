"""Workers as processes of this machine, forked from one that has imported everything (``study/fork_server.py``).

A worker's standard input is one end of a pair of sockets, on which pickles go both ways, as the standard library frames
them. When the head is gone, however it ended, that line closes and the worker leaves at once, whatever it computes.
When a worker is gone, the head reads the end of its line. What a worker prints goes nowhere: it might hold data.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from colonnade.errors import EngineError
from colonnade.study.engine.base import (
    Engine,
    WorkerLine,
    WorkerLoss,
    WorkerStart,
    decode_event,
    pickle_value,
    run_worker,
)
from colonnade.study.fork_server import ForkServer, ProcessHandle, ProcessRequest

COMMAND = "_worker"
"""The command of a worker, which is for heads alone."""
_GRACE_SECONDS = 5.0


class _WorkerProcess:
    """A worker's process and our end of its line."""

    def __init__(self, process: ProcessHandle, line: socket.socket) -> None:
        self.process, self._socket = process, line
        self.line = Connection(line.fileno())
        self.reader: threading.Thread | None = None
        self._sending, self._ending = threading.Lock(), threading.Lock()

    def send(self, frame: bytes) -> None:
        with self._sending, suppress(OSError):  # that it is gone is said by its reader
            self.line.send_bytes(frame)

    def ended(self) -> int | None:
        """The exit status, once it has ended; whoever waits at its line is woken then."""
        status = None
        with self._ending:
            try:
                status = self.process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                with suppress(subprocess.TimeoutExpired):
                    status = self.process.wait(_GRACE_SECONDS)
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        return status

    def close(self) -> None:
        """Close the line, at which nobody waits; its number may be another file's at once."""
        with self._sending:
            self._socket.detach()
            self.line.close()


class ProcessEngine(Engine):
    """Workers in processes of their own."""

    def __init__(self, memory: int | None = None, forks: ForkServer | None = None) -> None:
        super().__init__()
        self._memory, self._forks, self._own_forks = memory, forks or ForkServer(), forks is None
        self._lock = threading.Lock()
        self._children: dict[int, _WorkerProcess] = {}
        self._birth: WorkerStart | None = None
        self._next = 0
        self._stopped = False

    def start(self, role: str, arguments: Sequence[Any] = (), workers: int | None = None) -> list[int]:
        """Start workers; as many as this process may use cores, if no number is given."""
        if not hasattr(socket, "AF_UNIX") or sys.platform == "win32":
            raise EngineError("workers in processes need Linux or macOS [EN007]")
        if self._birth is not None:
            raise EngineError("an engine is started once [EN008]")
        self._birth = WorkerStart.of(role, tuple(arguments), self._memory)
        try:
            return [self._begin(self._birth) for _ in range(count_cores() if workers is None else workers)]
        except BaseException:
            self.stop()
            raise

    def send(self, worker: int, command: Any) -> None:
        """Send a command."""
        frame = pickle_value(command, "a command")
        with self._lock:
            child = self._children.get(worker)
        if child is not None:
            child.send(frame)

    def replace(self, worker: int) -> int:
        """End a worker, and start another."""
        if self._birth is None:
            raise EngineError("an engine without workers has none to replace [EN009]")
        with self._lock:
            child = self._children.pop(worker, None)
        if child is not None:
            _end([child])
        return self._begin(self._birth)

    def stop(self) -> None:
        """End all workers."""
        with self._lock:
            self._stopped = True
            children = list(self._children.values())
            self._children.clear()
        _end(children)
        if self._own_forks:
            self._forks.close()

    def process(self, worker: int) -> int | None:
        """The number of a worker's process, as long as it is here."""
        with self._lock:
            child = self._children.get(worker)
        return None if child is None else child.process.pid

    def _begin(self, birth: WorkerStart) -> int:
        ours, its = socket.socketpair()
        nowhere = os.open(os.devnull, os.O_RDWR)
        try:
            wanted = ProcessRequest([COMMAND], its.fileno(), nowhere, own_session=True)
            child = _WorkerProcess(self._forks.start(wanted), ours)
        except OSError as error:
            ours.close()
            raise EngineError(f"a worker cannot be started: {error.strerror} [EN010]") from None
        finally:
            its.close()
            os.close(nowhere)
        child.send(pickle_value(birth, "a role"))
        with self._lock:
            worker, self._next = self._next, self._next + 1
            if not self._stopped:
                child.reader = threading.Thread(target=self._listen, args=(worker, child), daemon=True)
                child.reader.start()
                self._children[worker] = child
        if child.reader is None:
            _end([child])
            if self._own_forks:
                self._forks.close()
            raise EngineError("an engine that was stopped starts no worker [EN011]")
        return worker

    def _listen(self, worker: int, child: _WorkerProcess) -> None:
        """Put what a worker says into the queue, until it is gone."""
        last = self._heard(worker, child)
        if self._has(worker, child):
            if last is not None:
                child.process.kill()
            status = child.ended()
            with self._lock:  # so that its user, who may end it meanwhile, hears nothing of it afterwards
                if self._children.get(worker) is child:
                    del self._children[worker]
                    self.events.put(last or WorkerLoss(worker, _reason(status)))
        child.close()

    def _heard(self, worker: int, child: _WorkerProcess) -> WorkerLoss | None:
        """The last word of a worker; ``None`` if it had none."""
        try:
            while (frame := _receive_frame(child.line)) is not None:
                heard = decode_event(worker, frame)
                if isinstance(heard, WorkerLoss):
                    return heard
                with self._lock:
                    if heard is not None and self._children.get(worker) is child:
                        self.events.put(heard)
        except MemoryError:
            return WorkerLoss(worker, "its head had no memory left for what it said", "memory")
        return None

    def _has(self, worker: int, child: _WorkerProcess) -> bool:
        with self._lock:
            return self._children.get(worker) is child


def main() -> NoReturn:
    """A worker: standard input is its line."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    try:
        with socket.socket(fileno=os.dup(0)) as given:
            given.getpeername()
            line_to_head = Connection(given.detach())
    except OSError:
        raise EngineError("workers are started by a head, and by nobody else [EN012]") from None
    with open(os.devnull, "rb") as nowhere:
        os.dup2(nowhere.fileno(), 0)
    first = _receive_frame(line_to_head)
    if first is None:
        os._exit(0)
    # Frames have one writer at a time: the line that a role speaks on sees to it.
    line = WorkerLine(lambda frame: _leave_unless_sent(line_to_head, frame))
    threading.Thread(target=_hear, args=(line_to_head, line), daemon=True).start()
    run_worker(pickle.loads(first), line)  # noqa: S301 - of our own head, over a line that only it has
    os._exit(0)


def count_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _hear(source: Connection, line: WorkerLine) -> None:
    """Take commands; when the head is gone, so is the worker."""
    try:
        while (frame := _receive_frame(source)) is not None:
            line.put(frame)
    finally:  # also if there is no memory for a command
        os._exit(0)


def _leave_unless_sent(target: Connection, frame: bytes) -> None:
    try:
        target.send_bytes(frame)
    except OSError:
        os._exit(0)


def _receive_frame(source: Connection) -> bytes | None:
    """The next frame; ``None`` at the end of the line, also in the middle of a frame."""
    try:
        return source.recv_bytes()
    except (EOFError, OSError):
        return None


def _end(children: Sequence[_WorkerProcess]) -> None:
    for child in children:
        child.process.kill()
    for child in children:
        child.ended()
        if child.reader is not None:
            child.reader.join(_GRACE_SECONDS)
        else:
            child.close()


def _reason(status: int | None) -> str:
    if status == -signal.SIGKILL:
        return "its process was killed, by somebody or by the system for want of memory"
    if status is not None and status < 0:
        with suppress(ValueError):
            return f"its process was ended by {signal.Signals(-status).name}"
    return "its process has ended"
