"""Processes of Colonnade, forked from one that has imported everything where the system can; else each starts anew.

Importing takes longer than a small study. So whoever starts several processes keeps a fork server, that of the standard
library: it imports once and forks for each command. It has one thread, no keys, no tables and no connection but a
socket in a private folder, and it ends with whoever started it. One that has died is started again; once a file of
Colonnade or the list of installed packages has changed, processes start anew, so that after an upgrade nothing old and
nothing mixed is run.

A command that has imported everything itself can fork its server too (``ForkServer.of_this_process``), as long as it
has one thread and has read nothing but public files.
"""

from __future__ import annotations

import atexit
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any

_PRELOADED = "colonnade.cli.preloaded"
_UNSEEN = 255
_ROOM = 1 << 31
"""Bytes of address space below which a process is started anew: a forked one inherits what the server has reserved."""
_PACKAGE = Path(__file__).parents[1]
_ALONE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
"""One thread for each process, which says at once what it has to say."""


@dataclass(frozen=True)
class ProcessRequest:
    """A command of Colonnade, such as ``["party", ...]``, and what its process shall have."""

    command: Sequence[str]
    stdin: int
    output: int
    held: int | None = None
    """A descriptor that it only holds, as long as it lives."""
    limits: Mapping[int, int] = field(default_factory=dict)
    """Limits of the ``resource`` module, by their numbers."""
    own_session: bool = False
    """Whether Ctrl-C at our terminal is not for it."""


class ForkServer:
    """A fork server, as long as whoever made this object uses it; where there can be none, processes are spawned."""

    def __init__(self) -> None:
        self._server: Any = forkserver.ForkServer()
        self._server.set_forkserver_preload([_PRELOADED])
        self._stamp: int | None = _stamp()
        """Of the files that it imports; ``None`` for a copy of this process, which is as old as we are."""

    @classmethod
    def of_this_process(cls, prepare: Callable[[], object]) -> ForkServer:
        """With a copy of this process as the first server; where there can be none, one that is started anew.

        ``prepare`` is what the copy does before it serves. The caller has read no key, table or ledger.
        """
        found = cls()
        if (
            _can_fork() and count_threads() == 1 and sys.version_info < (3, 14)
        ):  # where a server asks for a key of its own
            with suppress(OSError):
                found._copy(prepare)
        return found

    def prepare(self) -> None:
        """Start it now, so that it has imported everything when it is needed; does not wait for that."""
        if _can_fork():
            with suppress(OSError):
                self._server.ensure_running()

    def start(self, wanted: ProcessRequest) -> ProcessHandle:
        """Start a process."""
        if _can_fork() and _has_room(wanted.limits) and self._stamp in (None, _stamp()):
            for _ in range(2):  # one that has died is noticed when it is asked
                try:
                    return self._fork(wanted)
                except (OSError, EOFError):
                    self.close()
        return spawn(wanted)

    def close(self) -> None:
        """End the server; the processes that it has forked go on."""
        with suppress(OSError):
            if self.pid is not None:
                os.kill(self.pid, signal.SIGKILL)  # one that is stuck would be waited for
            self._server._stop()

    @property
    def pid(self) -> int | None:
        """The server's process, if there is one."""
        found: int | None = self._server._forkserver_pid
        return found

    def _fork(self, wanted: ProcessRequest) -> ForkedProcess:
        kept = [] if wanted.held is None else [wanted.held]
        status, writing = self._server.connect_to_new_process([wanted.stdin, wanted.output, *kept])
        try:
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump({}, pipe)  # nothing of our own ``__main__`` is wanted there
                pickle.dump(
                    _CommandStart(tuple(wanted.command), os.getcwd(), dict(wanted.limits), wanted.own_session), pipe
                )
            return ForkedProcess(forkserver.read_signed(status), status)
        except BaseException:
            os.close(status)
            raise

    def _copy(self, prepare: Callable[[], object]) -> None:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()  # or the copy has what we have not written yet, too
        address = connection.arbitrary_address("AF_UNIX")  # type: ignore[attr-defined]
        with socket(AF_UNIX) as listener:
            listener.bind(address)
            os.chmod(address, 0o600)
            listener.listen()
            alive, ours = os.pipe()
            # Ctrl-C in its first moments is for us: the copy would take it for the end of the command that we run.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
            try:
                pid = os.fork()
                if pid == 0:
                    try:
                        signal.signal(signal.SIGINT, signal.SIG_IGN)
                        signal.signal(signal.SIGTERM, signal.SIG_DFL)
                        signal.pthread_sigmask(signal.SIG_SETMASK, before)
                        _close_all_but(listener.fileno(), alive)
                        os.environ.update(_ALONE)
                        prepare()
                        forkserver.main(listener.detach(), alive, [])
                    finally:  # the command that was copied must not go on in the copy
                        os._exit(0)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                os.close(alive)
        self._server._forkserver_address, self._server._forkserver_alive_fd = address, ours
        self._server._forkserver_pid, self._stamp = pid, None


def spawn(wanted: ProcessRequest) -> ProcessHandle:
    """Start a process that imports for itself."""
    process = subprocess.Popen(  # noqa: S603 - our own interpreter, with paths that we were given
        [sys.executable, "-m", "colonnade", *wanted.command],
        stdin=wanted.stdin,
        stdout=wanted.output,
        stderr=wanted.output,
        env={**os.environ, **_ALONE},
        pass_fds=() if wanted.held is None else (wanted.held,),
        start_new_session=wanted.own_session,
    )
    for kind, most in wanted.limits.items():
        _limit(kind, most, process.pid)
    return process


class ForkedProcess:
    """A process that was forked: a handle for its signals and its end, and what the server says of how that was."""

    returncode: int | None = None

    def __init__(self, pid: int, status: int) -> None:
        self.pid, self._status = pid, status
        try:
            self._handle = os.pidfd_open(pid)
        except ProcessLookupError:  # it has ended already
            self._handle = os.dup(status)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit status, or ``None`` while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit status when it has ended; one that cannot be known, because the server has died, is 255."""
        if self.returncode is None and not connection.wait([self._handle], timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        with self._lock:
            if self.returncode is None:
                try:
                    self.returncode = forkserver.read_signed(self._status)
                except (EOFError, OSError):
                    self.returncode = _UNSEEN
                os.close(self._status)
                os.close(self._handle)
        return self.returncode

    def terminate(self) -> None:
        """Ask it to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        with self._lock, suppress(OSError):  # it has ended, and nobody has looked yet
            if self.returncode is None:
                signal.pidfd_send_signal(self._handle, number)


ProcessHandle = ForkedProcess | subprocess.Popen[bytes]
"""A process, whichever way it was started."""


@dataclass(frozen=True)
class _CommandStart:
    """What the standard library runs in a forked process: it becomes what a new process would be."""

    command: tuple[str, ...]
    folder: str
    limits: dict[int, int]
    own_session: bool

    def _bootstrap(self, parent_sentinel: int) -> int:
        """Run the command; the exit status. The name is the standard library's."""
        import numpy as np

        stdin, output, *kept = forkserver.get_inherited_fds() or [0, 1]
        for place, source in enumerate((stdin, output, output)):
            os.dup2(source, place)
        # What is left of the server must not reach for descriptors that are closed now.
        vars(resource_tracker._resource_tracker)["_fd"] = None
        vars(forkserver._forkserver).update(_forkserver_address=None, _forkserver_alive_fd=None)
        _close_all_but(*kept, nowhere=False)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process lives
        for name, place in (("stdout", 1), ("stderr", 2)):
            setattr(sys, name, open(place, "w", 1, "utf-8", "backslashreplace", closefd=False))  # noqa: SIM115
        if self.own_session:
            os.setsid()
        os.chdir(self.folder)
        for kind, most in self.limits.items():
            _limit(kind, most)
        np.random.seed()  # noqa: NPY002 - numpy's own generator, which libraries may use, is copied by a fork
        sys.argv = ["colonnade", *self.command]
        try:
            import_module("colonnade.cli").main()
        except SystemExit as ended:  # whoever traces this process wants its last word
            atexit._run_exitfuncs()
            return ended.code if isinstance(ended.code, int) else 0
        return 0


def count_threads() -> int:
    """How many threads this process has, on Linux; a lock of one that was not forked would stay closed for ever."""
    return len(os.listdir("/proc/self/task"))


def _limit(kind: int, most: int, pid: int = 0) -> None:
    """Set a limit of a process that has just begun; where the system cannot, it has none."""
    try:
        from resource import prlimit
    except ImportError:
        return
    with suppress(ProcessLookupError, PermissionError, ValueError):  # it has ended, or has a lower one already
        prlimit(pid, kind, (most, most))


def _close_all_but(*needed: int, nowhere: bool = True) -> None:
    """In a new process: nothing that the forked one had open stays open.

    With ``nowhere`` also its terminal is replaced, and numbers stay taken, since objects that were copied may close
    theirs at any time.
    """
    empty = os.open(os.devnull, os.O_RDWR)
    for name in map(int, os.listdir("/proc/self/fd")):
        if name not in (empty, *needed) and (nowhere or name > 2):
            with suppress(OSError):  # that of the listing itself
                os.fstat(name)
                os.dup2(empty, name, inheritable=name < 3) if nowhere else os.close(name)
    os.close(empty)


def _can_fork() -> bool:
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


def _has_room(limits: Mapping[int, int]) -> bool:
    return limits.get(resource.RLIMIT_AS, _ROOM) >= _ROOM


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
