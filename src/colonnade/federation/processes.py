"""Standing processes and their children: limited, tied to their parent, their output in a file.

A child ends when its parent does: it reads from a pipe that closes then (``--while-open``). It holds a lock on the file
``alive`` in its folder as long as it lives, so that a parent that was started again can tell whether it is still there.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.disk import writing
from colonnade.errors import FederationError, ProposalError, StorageError
from colonnade.federation.members import FederationMembers
from colonnade.study.fork_server import ForkServer, ProcessHandle, ProcessRequest, spawn

OUTPUT = "output.jsonl"
_MOST = 1 << 18
"""Bytes at the end of the file that are read: the last line of each kind counts."""


@dataclass(frozen=True)
class Progress:
    """How far an attempt has come."""

    phase: str
    done: int
    total: int
    rounds: int
    bytes: int
    here: list[str]
    """Participants that are connected."""
    waited_for: list[str]
    """Participants that are not."""


def read_progress(folder: Path) -> Progress | None:
    """The last that a child said about its progress; ``None`` if it has said nothing yet."""
    at: dict[str, Any] = {"phase": "", "done": 0, "total": 0}
    present: dict[str, Any] = {"rounds": 0, "bytes": 0, "here": [], "waited_for": []}
    said = False
    for line in read_last_objects(folder):
        if isinstance(line.get("progress"), str):
            at, said = {"phase": line["progress"], "done": line.get("done", 0), "total": line.get("total", 0)}, True
        elif isinstance(line.get("presence"), dict):
            present, said = present | {name: line["presence"].get(name, present[name]) for name in present}, True
    return Progress(**at, **present) if said else None


def read_last_objects(folder: Path, most: int = _MOST) -> Iterator[dict[str, Any]]:
    """The last objects in the output of a child; other lines are its log, and are left out."""
    try:
        with open(folder / OUTPUT, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            lines = file.read().split(b"\n")
    except OSError:
        return
    for line in lines[1:] if size > most else lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


_ALIVE = "alive"
_GRACE_SECONDS = 15.0
_LOOK_SECONDS = 0.05
_FILES, _FILES_OF_A_WORKER = 1024, 4


@dataclass(frozen=True)
class ProcessLimits:
    """The most that a child may use; ``None`` where there is no limit."""

    memory: int | None = None
    """Bytes of address space; its workers, which inherit all limits, may have as much each."""
    seconds: float | None = None
    """Seconds on the clock; of processor time it may use as many on every processor."""
    files: int = _FILES

    @property
    def by_kind(self) -> dict[int, int]:
        """The numbers of the system's limits, and what they are."""
        found = {resource.RLIMIT_NOFILE: self.files, resource.RLIMIT_CORE: 0}
        if self.memory is not None:
            found[resource.RLIMIT_AS] = self.memory
        if self.seconds is not None:
            found[resource.RLIMIT_CPU] = int(self.seconds * (os.cpu_count() or 1)) + 1
        return found


_USUAL = ProcessLimits()


def file_limit(workers: int) -> int:
    """How many files a participant may have open that has so many workers."""
    return _FILES + _FILES_OF_A_WORKER * workers


class ChildProcess:
    """A process that this one has started."""

    def __init__(self, process: ProcessHandle, stdin: int, folder: Path, limits: ProcessLimits) -> None:
        self._process, self.folder, self._limits = process, folder, limits
        self._stdin: int | None = stdin
        self._started = time.monotonic()
        self.pid = process.pid

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        folder: Path,
        limits: ProcessLimits = _USUAL,
        forks: ForkServer | None = None,
    ) -> ChildProcess:
        """Start a command of Colonnade, such as ``["party", ...]``; an error if its folder cannot be written.

        What it prints is added to ``output.jsonl`` in the folder. With ``forks`` it need not import anything.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            output = os.open(folder / OUTPUT, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise StorageError(f"{error.filename or folder} cannot be written: {error.strerror} [SO022]") from None
        try:
            alive = _lock_folder(folder)
            try:
                reading, stdin = os.pipe()
                try:
                    wanted = ProcessRequest(command, reading, output, alive, limits.by_kind, own_session=True)
                    process = spawn(wanted) if forks is None else forks.start(wanted)
                except BaseException:
                    os.close(stdin)
                    raise
                finally:
                    os.close(reading)
                os.pwrite(alive, f"{process.pid:<20}".encode(), 0)
            finally:
                os.close(alive)
        finally:
            os.close(output)
        return cls(process, stdin, folder, limits)

    def poll(self) -> int | None:
        """The exit status, or ``None`` while it runs; a child that has run for too long is stopped."""
        if self.overran and self._process.poll() is None:
            self.stop()
        status = self._process.poll()
        if status is not None:
            self._let_go()
        return status

    @property
    def seconds(self) -> float:
        """For how long it has run."""
        return time.monotonic() - self._started

    @property
    def overran(self) -> bool:
        """Whether it has had more seconds than it may have."""
        return self._limits.seconds is not None and self.seconds > self._limits.seconds

    def ask_to_stop(self) -> None:
        """Ask it to end, and do not wait."""
        self._let_go()
        with suppress(ProcessLookupError):
            self._process.terminate()

    def stop(self, grace: float = _GRACE_SECONDS) -> int:
        """End it, and return its exit status; it may take some seconds to tell its peers."""
        self.ask_to_stop()
        try:
            return self._process.wait(timeout=grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _let_go(self) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None


def is_alive(folder: Path) -> bool:
    """Whether the child whose folder this is still runs, whoever started it."""
    try:
        descriptor = os.open(folder / _ALIVE, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def wait_for_end(folder: Path, seconds: float = 2 * _GRACE_SECONDS) -> bool:
    """Wait until the child of an earlier parent has ended, as it does by itself; returns whether it has."""
    until = time.monotonic() + seconds
    while is_alive(folder):
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def end_by_force(folder: Path) -> None:
    """Kill the child of an earlier parent; while it holds the lock, the number in the file is its own."""
    if is_alive(folder):
        with suppress(OSError, ValueError):
            os.kill(int((folder / _ALIVE).read_text()), signal.SIGKILL)
        wait_for_end(folder)


def _lock_folder(folder: Path) -> int:
    """A locked file that the child inherits, so that the lock ends with it."""
    descriptor = os.open(folder / _ALIVE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ProposalError(f"a process still works in {folder}: wait until it has ended [OF005]") from None
    writing.sync_folder(folder)
    return descriptor


def end_with_parent(grace: float = _GRACE_SECONDS) -> None:
    """In a child: end in order when standard input closes, and by force when that takes too long."""

    def watch() -> None:
        with suppress(OSError, ValueError):
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
        os._exit(128 + signal.SIGKILL)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def file_stamp(path: Path) -> tuple[int, int]:
    """What changes whenever a file is written anew."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size


class StandingProcess:
    """A process that waits for work in its folder until it is stopped."""

    def __init__(self, federation: Path) -> None:
        self._federation, self._read = federation, file_stamp(federation)
        self.members = FederationMembers.load(federation)
        self.folder: Path
        self._stop = threading.Event()
        self._not_before: dict[str, float] = {}  # what is done again later, and when

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have the folder for this process alone; an error if another one has it."""
        with ExitStack() as held:
            try:
                held.enter_context(writing.lock_folder(self.folder, wait=False))
            except BlockingIOError:
                raise FederationError(f"another agent or hub works in {self.folder}: stop it first [FE109]") from None
            yield

    def stop(self) -> None:
        """Let it end; studies that run are ended, and can be tried again, and everything that waits is kept."""
        self._stop.set()

    def _changed_members(self) -> FederationMembers | None:
        """The list of members, if it was written since it was last read here; an error if it cannot be used."""
        before, self._read = self._read, file_stamp(self._federation)
        return None if self._read == before else FederationMembers.load(self._federation)

    def _later(self, what: str, seconds: float) -> None:
        """Let something be due after so many seconds."""
        self._not_before[what] = time.monotonic() + seconds

    def _due(self, what: str) -> bool:
        """Whether it is time for something."""
        return time.monotonic() >= self._not_before.get(what, 0.0)
