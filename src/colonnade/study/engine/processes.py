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
from typing import NoReturn

from colonnade.errors import EngineError
from colonnade.study.engine.base import (
    Engine,
    WorkerHandle,
    WorkerLine,
    WorkerLoss,
    WorkerStart,
    pickle_value,
    run_worker,
)
from colonnade.study.fork_server import ForkServer, ProcessHandle, ProcessRequest

COMMAND = "_worker"
"""The command of a worker, which is for heads alone."""
_GRACE_SECONDS = 5.0


class _WorkerProcess(WorkerHandle):
    """A worker's process and our end of its line."""

    def __init__(self, process: ProcessHandle, line: socket.socket) -> None:
        self.process, self._socket = process, line
        self.line = Connection(line.fileno())
        self._sending, self._ending = threading.Lock(), threading.Lock()

    def send(self, frame: bytes) -> None:
        """Send a command."""
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


class ProcessEngine(Engine[_WorkerProcess]):
    """Workers in processes of their own; as many as this process may use cores, if no number is given."""

    def __init__(self, memory: int | None = None, forks: ForkServer | None = None) -> None:
        super().__init__(memory)
        self._forks, self._own_forks = forks or ForkServer(), forks is None

    def process(self, worker: int) -> int | None:
        """The number of a worker's process, as long as it is here."""
        with self._lock:
            child = self._workers.get(worker)
        return None if child is None else child.process.pid

    def _open(self, workers: int | None) -> int:
        if not hasattr(socket, "AF_UNIX") or sys.platform == "win32":
            raise EngineError("workers in processes need Linux or macOS [EN007]")
        return count_cores() if workers is None else workers

    def _make(self, birth: WorkerStart) -> _WorkerProcess:
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
        return child

    def _listen(self, worker: int, child: _WorkerProcess) -> None:
        last = self._heard(worker, child)
        if self._has(worker, child):
            if last is not None:
                child.process.kill()
            status = child.ended()
            self._lose(worker, child, last or WorkerLoss(worker, _reason(status)))
        child.close()

    def _heard(self, worker: int, child: _WorkerProcess) -> WorkerLoss | None:
        """The last word of a worker; ``None`` if it had none."""
        try:
            while (frame := _receive_frame(child.line)) is not None:
                if (last := self._take(worker, child, frame)) is not None:
                    return last
        except MemoryError:
            return WorkerLoss(worker, "its head had no memory left for what it said", "memory")
        return None

    def _end(self, children: Sequence[_WorkerProcess]) -> None:
        for child in children:
            child.process.kill()
        for child in children:
            child.ended()
            if child.reader is not None:
                child.reader.join(_GRACE_SECONDS)
            else:
                child.close()
        if self._stopped and self._own_forks:
            self._forks.close()


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


def _reason(status: int | None) -> str:
    if status == -signal.SIGKILL:
        return "its process was killed, by somebody or by the system for want of memory"
    if status is not None and status < 0:
        with suppress(ValueError):
            return f"its process was ended by {signal.Signals(-status).name}"
    return "its process has ended"
