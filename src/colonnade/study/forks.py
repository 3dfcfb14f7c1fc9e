"""Processes of Colonnade, forked from one that has imported everything where the system can; else each starts anew.

Importing takes longer than a small study. So whoever starts several processes keeps a fork server, which imports once
and forks for each command (``colonnade.cli.fork_server``). It has one thread, no keys, no tables and no connection but
the socket to whoever started it, and it ends with that process. It is started again when it has died, and when a file
of Colonnade or the list of installed packages has changed since, so that after an upgrade nothing old is run.

A command that has imported everything itself can fork its server too (``Forks.of_this_process``), as long as it has one
thread and has read nothing but public files.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol

LONGEST_REQUEST = 1 << 16
MOST_DESCRIPTORS = 4
_START_SECONDS = 300.0
_END_SECONDS = 5.0
_UNSEEN = 255
ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals by which a person, or the system, ends a command."""
_ROOM = 1 << 31
"""Bytes of address space below which a process is started anew: a forked one inherits what the server has reserved."""
_PACKAGE = Path(__file__).parents[1]
_NO_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""For the server, which must have one thread alone: an allocator that pyarrow brings, and does not use, starts one."""


class Process(Protocol):
    """What we ask of a process, whichever way it was started."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """The exit status, or ``None`` while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit status when it has ended; ``subprocess.TimeoutExpired`` if that takes too long."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it."""


@dataclass(frozen=True)
class Wanted:
    """A command of Colonnade, such as ``["party", ...]``, and what its process shall have."""

    command: Sequence[str]
    stdin: int
    output: int
    kept: int | None = None
    """A descriptor that it only holds, as long as it lives."""
    limits: Mapping[int, int] = field(default_factory=dict)
    """Limits of the ``resource`` module, by their numbers."""
    own_session: bool = False
    """Whether Ctrl-C at our terminal is not for it."""


class Forks:
    """A fork server, as long as whoever made this object uses it; where there can be none, processes are spawned."""

    def __init__(self, server: _Server | None = None) -> None:
        self._lock = threading.Lock()
        self._server = server

    @classmethod
    def of_this_process(cls, serve: Callable[[socket.socket], NoReturn]) -> Forks:
        """With a copy of this process as the first server; where there can be none, one that is started anew.

        ``serve`` is what the copy does, first of all unblocking ``ENDING``; it never returns. The caller has read no
        key, table or ledger.
        """
        if _can_fork() and threads() == 1:
            with suppress(OSError):
                return cls(_Server.copied(serve))
        return cls()

    def prepare(self) -> None:
        """Start it now, so that it has imported everything when it is needed; does not wait for that."""
        if _can_fork():
            with self._lock, suppress(OSError):
                self._current()

    def start(self, wanted: Wanted) -> Process:
        """Start a process."""
        if _can_fork() and _has_room(wanted.limits):
            with self._lock:
                for _ in range(2):  # one that has died is noticed when it is asked
                    try:
                        return self._current().fork(wanted) or spawned(wanted)
                    except OSError:
                        self._end()
        return spawned(wanted)

    def plan(self, study: Path) -> None:
        """Let the server load a study, which is public, so that its processes need not; does not wait for that."""
        if _can_fork():
            with self._lock, suppress(OSError):
                self._current().plan(study)

    def close(self) -> None:
        """End the server; the processes that it has forked go on."""
        with self._lock:
            self._end()

    @property
    def pid(self) -> int | None:
        """The server's process, if there is one."""
        return None if self._server is None else self._server.process.pid

    def _current(self) -> _Server:
        if self._server is not None and not self._server.fresh:
            self._end()
        if self._server is None:
            self._server = _Server.begun()
        return self._server

    def _end(self) -> None:
        if self._server is not None:
            self._server.end()
        self._server = None


def spawned(wanted: Wanted) -> Process:
    """Start a process that imports for itself."""
    process = subprocess.Popen(  # noqa: S603 - our own interpreter, with paths that we were given
        [sys.executable, "-m", "colonnade", *wanted.command],
        stdin=wanted.stdin,
        stdout=wanted.output,
        stderr=wanted.output,
        env=environment(),
        pass_fds=() if wanted.kept is None else (wanted.kept,),
        start_new_session=wanted.own_session,
    )
    for kind, most in wanted.limits.items():
        limit(kind, most, process.pid)
    return process


def environment() -> dict[str, str]:
    """Our own, with one thread for each process, which says at once what it has to say."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def limit(kind: int, most: int, pid: int = 0) -> None:
    """Set a limit of a process that has just begun; where the system cannot, it has none."""
    try:
        from resource import prlimit
    except ImportError:
        return
    with suppress(ProcessLookupError, PermissionError, ValueError):  # it has ended, or has a lower one already
        prlimit(pid, kind, (most, most))


class Forked:
    """A process that was forked: a handle for signals, and what tells its exit status once it has ended."""

    def __init__(self, pid: int, handle: int, status: Callable[[], int]) -> None:
        self.pid, self.returncode = pid, None
        self._handle, self._status = handle, status
        self._lock = threading.Lock()

    returncode: int | None

    def poll(self) -> int | None:
        """The exit status, or ``None`` while it runs."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status when it has ended; one that cannot be known, because the server has died, is 255."""
        found = self._look(timeout)
        if found is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return found

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with self._lock:
            if self.returncode is None:
                with suppress(ProcessLookupError):  # it has ended, and nobody has looked yet
                    signal.pidfd_send_signal(self._handle, number)

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and _readable(self._handle, seconds):
            with self._lock:
                if self.returncode is None:
                    self.returncode = self._status()
                    os.close(self._handle)
        return self.returncode


@dataclass(frozen=True)
class _Server:
    process: subprocess.Popen[bytes] | Forked
    control: socket.socket
    stamp: int | None
    """Of the files that it has imported; ``None`` for a copy of this process, which is as old as we are."""

    @property
    def fresh(self) -> bool:
        """Whether it runs, and runs what is installed."""
        return self.process.poll() is None and (self.stamp is None or self.stamp == _stamp())

    @classmethod
    def copied(cls, serve: Callable[[socket.socket], NoReturn]) -> _Server:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_START_SECONDS)
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()  # or the copy has what we have not written yet, too
        # Ctrl-C in its first moments is for us: the copy would take it for the end of the command that we run.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    ours.close()
                    _alone_with(its)
                except BaseException:  # the command must not go on in the copy
                    os._exit(1)
                serve(its)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            its.close()
        return cls(Forked(pid, os.pidfd_open(pid), partial(_status_of_child, pid)), ours, None)

    @classmethod
    def begun(cls) -> _Server:
        stamp = _stamp()
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_START_SECONDS)
        with its:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-m", "colonnade.cli.fork_server", str(its.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment() | _NO_THREADS,
                pass_fds=(its.fileno(),),
            )
        return cls(process, ours, stamp)

    def fork(self, wanted: Wanted) -> Forked | None:
        """A process that does what is wanted; ``None`` if the system has none now, ``OSError`` without a server."""
        reading, writing = os.pipe()
        try:
            request = {
                "command": list(wanted.command),
                "folder": os.getcwd(),
                "limits": list(wanted.limits.items()),
                "own_session": wanted.own_session,
            }
            kept = () if wanted.kept is None else (wanted.kept,)
            given = [json.dumps(request).encode()]
            socket.send_fds(self.control, given, [wanted.stdin, wanted.output, writing, *kept])
            said, handles, *_ = socket.recv_fds(self.control, 32, 1)
            if not said:
                raise ConnectionError("the fork server has died")
            if handles:
                status, reading = reading, -1
                return Forked(int(said), handles[0], partial(_told, status))
            return None
        finally:
            os.close(writing)
            if reading >= 0:
                os.close(reading)

    def plan(self, study: Path) -> None:
        self.control.send(json.dumps({"study": str(study.absolute())}).encode())

    def end(self) -> None:
        self.control.close()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _told(pipe: int) -> int:
    """The exit status of the server's child, by the server."""
    said = os.read(pipe, 16)
    os.close(pipe)
    return int(said) if said else _UNSEEN


def _status_of_child(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def threads() -> int:
    """How many threads this process has, on Linux; a lock of one that was not forked would stay closed for ever."""
    return len(os.listdir("/proc/self/task"))


def _alone_with(control: socket.socket) -> None:
    """In a new process: nothing that the forked one had open stays open, neither its terminal nor a file.

    Numbers stay taken, since objects that were copied may close theirs at any time.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (nowhere, control.fileno()):
            with suppress(OSError):  # that of the listing itself
                os.fstat(int(name))
                os.dup2(nowhere, int(name), inheritable=int(name) < 3)
    os.close(nowhere)


def _can_fork() -> bool:
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


def _has_room(limits: Mapping[int, int]) -> bool:
    import resource  # not there on Windows, where nothing is forked

    return limits.get(resource.RLIMIT_AS, _ROOM) >= _ROOM


def _readable(descriptor: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def _stamp() -> int:
    """Changes when a file of Colonnade does, or when a package is installed, upgraded or removed."""
    homes = sorted({Path(place) for place in sys.path if place.endswith("-packages")})
    files = [*homes, *sorted(_PACKAGE.rglob("*.py"))]
    found = []
    for path in files:
        with suppress(OSError):
            seen = path.stat()
            found.append((str(path), seen.st_mtime_ns, seen.st_size if path.suffix else 0))
    return hash(tuple(found))
