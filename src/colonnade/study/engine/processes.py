"""Workers as processes of this machine, forked from one that has imported everything (``study/forks.py``).

A worker's standard input is one end of a pair of sockets, on which frames go both ways: eight bytes of length, then a
pickle. When the head is gone, however it ended, that line closes and the worker leaves at once, whatever it computes.
When a worker is gone, the head reads the end of its line. What a worker prints goes nowhere: it might hold data.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from colonnade.errors import EngineError
from colonnade.study.engine.contract import Engine, Gone, pickled
from colonnade.study.engine.worker import Birth, QueuedLine, event, live
from colonnade.study.forks import Forks, Process, Wanted

COMMAND = "_worker"
"""The command of a worker, which is for heads alone."""
_LENGTH = struct.Struct(">Q")
_GRACE_SECONDS = 5.0


@dataclass
class _Child:
    process: Process
    line: socket.socket
    sending: threading.Lock
    reader: threading.Thread | None = None


class Processes(Engine):
    """Workers in processes of their own."""

    def __init__(self, memory: int | None = None, forks: Forks | None = None) -> None:
        super().__init__()
        self._memory, self._forks, self._own_forks = memory, forks or Forks(), forks is None
        self._lock = threading.Lock()
        self._children: dict[int, _Child] = {}
        self._birth: Birth | None = None
        self._next = 0

    def start(self, role: str, arguments: Sequence[Any] = (), workers: int | None = None) -> list[int]:
        """Start workers; as many as this process may use cores, if no number is given."""
        if not hasattr(socket, "AF_UNIX") or sys.platform == "win32":
            raise EngineError("workers in processes need Linux or macOS")
        if self._birth is not None:
            raise EngineError("an engine is started once")
        self._birth = Birth.of(role, tuple(arguments), self._memory)
        return [self._begin(self._birth) for _ in range(cores() if workers is None else workers)]

    def send(self, worker: int, command: Any) -> None:
        """Send a command."""
        frame = pickled(command, "a command")
        with self._lock:
            child = self._children.get(worker)
        if child is not None:
            _write(child, frame)

    def replace(self, worker: int) -> int:
        """End a worker, and start another."""
        if self._birth is None:
            raise EngineError("an engine without workers has none to replace")
        with self._lock:
            child = self._children.pop(worker, None)
        if child is not None:
            _end([child])
        return self._begin(self._birth)

    def stop(self) -> None:
        """End all workers."""
        with self._lock:
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

    def _begin(self, birth: Birth) -> int:
        ours, its = socket.socketpair()
        nowhere = os.open(os.devnull, os.O_RDWR)
        try:
            wanted = Wanted([COMMAND], its.fileno(), nowhere, own_session=True)
            child = _Child(self._forks.start(wanted), ours, threading.Lock())
        except OSError as error:
            ours.close()
            raise EngineError(f"a worker cannot be started: {error.strerror}") from None
        finally:
            its.close()
            os.close(nowhere)
        _write(child, pickled(birth, "a role"))
        with self._lock:
            worker, self._next = self._next, self._next + 1
            self._children[worker] = child
        child.reader = threading.Thread(target=self._listen, args=(worker, child), daemon=True)
        child.reader.start()
        return worker

    def _listen(self, worker: int, child: _Child) -> None:
        """Put what a worker says into the queue, until it is gone."""
        last: Gone | None = None
        while last is None and (frame := _frame(child.line)) is not None:
            heard = event(worker, frame)
            if isinstance(heard, Gone):
                last = heard
            elif heard is not None:
                with self._lock:
                    if self._children.get(worker) is child:
                        self.events.put(heard)
        with self._lock:
            if self._children.get(worker) is not child:
                return  # its user ended it, and lets go of it
            del self._children[worker]
        if last is not None:
            child.process.kill()
        status = _ended(child)
        self.events.put(last or Gone(worker, _reason(status)))


def main() -> NoReturn:
    """A worker: standard input is its line."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    try:
        socket_line = socket.socket(fileno=os.dup(0))
        socket_line.getpeername()
    except OSError:
        raise EngineError("workers are started by a head, and by nobody else") from None
    with open(os.devnull, "rb") as nowhere:
        os.dup2(nowhere.fileno(), 0)
    first = _frame(socket_line)
    if first is None:
        os._exit(0)
    # Frames have one writer at a time: the line that a role speaks on sees to it.
    line = QueuedLine(lambda frame: _leave_unless_sent(socket_line, frame))
    threading.Thread(target=_hear, args=(socket_line, line), daemon=True).start()
    live(pickle.loads(first), line)  # noqa: S301 - of our own head, over a line that only it has
    os._exit(0)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _hear(source: socket.socket, line: QueuedLine) -> None:
    """Take commands; when the head is gone, so is the worker."""
    while (frame := _frame(source)) is not None:
        line.put(frame)
    os._exit(0)


def _leave_unless_sent(target: socket.socket, frame: bytes) -> None:
    try:
        target.sendall(_LENGTH.pack(len(frame)))
        target.sendall(frame)
    except OSError:
        os._exit(0)


def _write(child: _Child, frame: bytes) -> None:
    with child.sending, suppress(OSError):  # that it is gone is said by its reader
        child.line.sendall(_LENGTH.pack(len(frame)))
        child.line.sendall(frame)


def _frame(source: socket.socket) -> bytearray | None:
    """The next frame; ``None`` at the end of the line, also in the middle of a frame."""
    head = _exactly(source, _LENGTH.size)
    return None if head is None else _exactly(source, _LENGTH.unpack(head)[0])


def _exactly(source: socket.socket, size: int) -> bytearray | None:
    found = bytearray(size)
    left = memoryview(found)
    while left:
        try:
            count = source.recv_into(left)
        except OSError:
            return None
        if not count:
            return None
        left = left[count:]
    return found


def _end(children: Sequence[_Child]) -> None:
    for child in children:
        child.process.kill()
    for child in children:
        _ended(child)
        if child.reader is not None:
            child.reader.join(_GRACE_SECONDS)


def _ended(child: _Child) -> int | None:
    """The exit status, once it has ended; its line is closed then."""
    status = None
    try:
        status = child.process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.process.kill()
        with suppress(subprocess.TimeoutExpired):
            status = child.process.wait(_GRACE_SECONDS)
    with suppress(OSError):
        child.line.shutdown(socket.SHUT_RDWR)
    child.line.close()
    return status


def _reason(status: int | None) -> str:
    if status == -signal.SIGKILL:
        return "its process was killed, by somebody or by the system for want of memory"
    if status is not None and status < 0:
        with suppress(ValueError):
            return f"its process was ended by {signal.Signals(-status).name}"
    return "its process has ended"
