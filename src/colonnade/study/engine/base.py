"""An engine starts workers, wherever they run; a worker runs its role, and says how it ended without any data.

A worker is a process that keeps what it has learned from one command to the next. It runs a *role*: a function that is
named by its import path, and that gets a ``WorkerLine`` and the arguments given to ``start``. Commands and what workers
say are pickled, so both ends are of one party, which trusts both. Loss of a worker is an event, and nothing is repeated
by itself: what a lost worker did is asked again by whoever asked first, under a new name.

Keys and coins are never arguments, commands or events: a worker draws its own. Identities and streams of coins refuse
to be pickled, and so does everything that holds one.

Without Ray, workers are processes of this machine, forked from one that has imported everything
(``study/fork_server.py``).

A worker's standard input is one end of a pair of sockets, on which pickles go both ways, as the standard library frames
them. When the head is gone, however it ended, that line closes and the worker leaves at once, whatever it computes.
When a worker is gone, the head reads the end of its line. What a worker prints goes nowhere: it might hold data.
"""

from __future__ import annotations

import os
import pickle
import queue
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, Generic, Literal, NoReturn, TypeVar

from colonnade.errors import ColonnadeError, EngineError
from colonnade.sanitize import sanitize
from colonnade.study.fork_server import ForkServer, ProcessHandle, ProcessRequest
from colonnade.versions import own_version

LossCause = Literal["lost", "memory", "raised"]


@dataclass(frozen=True)
class WorkerMessage:
    """What a worker said."""

    worker: int
    value: Any


@dataclass(frozen=True)
class WorkerLoss:
    """The last event of a worker.

    ``lost``: killed, or its machine is gone; another worker can do the same. ``memory``: it needed more than it may
    have. ``raised``: its role ended, or raised an error; another worker would most likely do so too.
    """

    worker: int
    why: str
    """One sentence without data."""
    cause: LossCause = "lost"


WorkerEvent = WorkerMessage | WorkerLoss


class WorkerHandle(ABC):
    """A worker as its engine holds it."""

    reader: threading.Thread | None = None
    """Hears what it says."""

    @abstractmethod
    def send(self, frame: bytes) -> None:
        """Send a command; that the worker is gone is said by its reader."""


Handle = TypeVar("Handle", bound=WorkerHandle)


class Engine(ABC, Generic[Handle]):
    """Workers of one role."""

    def __init__(self, memory: int | None) -> None:
        self.events: queue.SimpleQueue[WorkerEvent] = queue.SimpleQueue()
        """All events of all workers; whoever takes them may put others in."""
        self._memory = memory
        self._lock = threading.Lock()
        """Never held while a worker is asked, which may not answer."""
        self._workers: dict[int, Handle] = {}
        self._birth: WorkerStart | None = None
        self._next = 0
        self._stopped = False

    def start(self, role: str, arguments: Sequence[Any] = (), workers: int | None = None) -> list[int]:
        """Start workers, and do not wait for them; as many as there are cores, if no number is given.

        ``role`` is ``"package.module:function"``. Commands can be sent at once. An engine is started once.
        """
        if self._birth is not None:
            raise EngineError("an engine is started once [EN008]")
        birth = WorkerStart.of(role, tuple(arguments), self._memory)
        try:
            count = self._open(workers)
            self._birth = birth
            return [self._begin(birth) for _ in range(count)]
        except BaseException:
            self.stop()
            raise

    def send(self, worker: int, command: Any) -> None:
        """Send a command; to a worker that is gone, nothing. What cannot be pickled is an ``EngineError``."""
        frame = pickle_value(command, "a command")
        with self._lock:
            handle = self._workers.get(worker)
        if handle is not None:
            handle.send(frame)

    def replace(self, worker: int) -> int:
        """End a worker if it still runs, and start another one of the same role; numbers are never used twice.

        From then on the old one causes no event; those that wait in the queue stay there. An engine that was stopped
        starts nobody: an ``EngineError``.
        """
        if self._birth is None:
            raise EngineError("an engine without workers has none to replace [EN009]")
        with self._lock:
            handle = self._workers.pop(worker, None)
        if handle is not None:
            self._end([handle])
        return self._begin(self._birth)

    def stop(self) -> None:
        """End all workers at once; from then on there are no events. May be called twice."""
        with self._lock:
            self._stopped = True
            handles = list(self._workers.values())
            self._workers.clear()
        self._end(handles)

    def __enter__(self) -> Engine[Handle]:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def _open(self, workers: int | None) -> int:
        """Make ready for workers; how many there will be."""

    @abstractmethod
    def _make(self, birth: WorkerStart) -> Handle:
        """One worker, to whom nobody listens yet."""

    @abstractmethod
    def _listen(self, worker: int, handle: Handle) -> None:
        """Put what a worker says into the queue, until it is gone."""

    @abstractmethod
    def _end(self, handles: Sequence[Handle]) -> None:
        """End workers that this engine has let go of, and after ``stop`` what they needed."""

    def _begin(self, birth: WorkerStart) -> int:
        handle = self._make(birth)
        with self._lock:
            worker, self._next = self._next, self._next + 1
            if not self._stopped:
                handle.reader = threading.Thread(target=self._listen, args=(worker, handle), daemon=True)
                handle.reader.start()
                self._workers[worker] = handle
        if handle.reader is None:
            self._end([handle])
            raise EngineError("an engine that was stopped starts no worker [EN011]")
        return worker

    def _has(self, worker: int, handle: Handle) -> bool:
        with self._lock:
            return self._workers.get(worker) is handle

    def _take(self, worker: int, handle: Handle, frame: Frame) -> WorkerLoss | None:
        """Put what a worker said into the queue; its last word is for whoever listens."""
        heard = decode_event(worker, frame)
        if isinstance(heard, WorkerLoss):
            return heard
        with self._lock:
            if heard is not None and self._workers.get(worker) is handle:
                self.events.put(heard)
        return None

    def _lose(self, worker: int, handle: Handle, last: WorkerLoss) -> None:
        """The end of a worker; its user, who may end it meanwhile, hears nothing of it afterwards."""
        with self._lock:
            if self._workers.get(worker) is handle:
                del self._workers[worker]
                self.events.put(last)


def pickle_value(value: Any, what: str) -> bytes:
    """A value as bytes; an ``EngineError`` that names its type, and not what it holds, if it cannot be pickled."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception as error:
        raise EngineError(
            f"{what} cannot be sent between a head and its workers: a {type(value).__name__} here cannot be pickled "
            f"({type(error).__name__}). Keys and coins are drawn by whoever uses them, and never sent [EN001]"
        ) from None


Frame = bytes | bytearray
_LOOK_SECONDS = 0.1
_FAREWELL_SECONDS = 5.0
_LONGEST_SENTENCE = 500


@dataclass(frozen=True)
class WorkerStart:
    """What a worker is told first. It holds nothing secret."""

    role: str
    arguments: bytes
    memory: int | None
    """Bytes of its own that it may have; ``None`` for no limit."""
    path: tuple[str, ...]
    """Where the head finds modules."""
    version: str = field(default_factory=own_version)
    python: tuple[int, int] = sys.version_info[:2]

    @classmethod
    def of(cls, role: str, arguments: tuple[Any, ...], memory: int | None) -> WorkerStart:
        """For a role and its arguments, which must be picklable."""
        module, _, function = role.partition(":")
        if not module or not function:
            raise EngineError(f"{role!r} is no role: it must be package.module:function [EN025]")
        return cls(role, pickle_value(arguments, "an argument"), memory, tuple(sys.path))


@dataclass(frozen=True)
class WorkerStarted:
    """The first thing that a worker says."""


@dataclass(frozen=True)
class WorkerEnd:
    """The last thing that a worker says."""

    why: str
    cause: LossCause


class WorkerLine:
    """A worker's end of its line to the head; commands are put into a queue as they come."""

    def __init__(self, out: Callable[[bytes], None], host: str | None = None) -> None:
        self.host = host
        """The address of this worker's machine, where it may be another one than the head's."""
        self._commands: queue.SimpleQueue[Frame] = queue.SimpleQueue()
        self._out = out
        self._lock = threading.Lock()
        self._over = False

    def put(self, command: Frame) -> None:
        """A command has come."""
        self._commands.put(command)

    def receive(self, seconds: float | None = None) -> Any:
        """The next command, in the order in which they were sent; a ``TimeoutError`` if none comes in time."""
        try:
            return pickle.loads(self._commands.get(timeout=seconds))  # noqa: S301 - of our own head
        except queue.Empty:
            raise TimeoutError("no command came in time") from None

    def say(self, value: Any) -> None:
        """Tell the head something; it comes before the news that the worker is gone.

        On Ray, a worker that is killed may take its last words along.
        """
        self._send(pickle_value(WorkerMessage(0, value), "what a worker says"))

    def say_started(self) -> None:
        """Say that the worker runs."""
        self._send(pickle_value(WorkerStarted(), "a word"))

    def say_end(self, why: str, cause: LossCause) -> None:
        """Say how the worker ended, once; what is said afterwards is not heard."""
        self._send(pickle_value(WorkerEnd(why, cause), "a word"), last=True)

    def _send(self, frame: bytes, last: bool = False) -> None:
        with self._lock:
            if not self._over:
                self._over = last
                self._out(frame)


def run_worker(birth: WorkerStart, line: WorkerLine) -> None:
    """Run the role to its end, and tell how that was."""
    if (birth.version, birth.python) != (own_version(), sys.version_info[:2]):
        theirs = f"Colonnade {own_version()} on Python {_version_text(sys.version_info[:2])}"
        ours = f"Colonnade {birth.version} on Python {_version_text(birth.python)}"
        return line.say_end(f"it has {theirs}, and its head has {ours}: install the same on all machines", "raised")
    sys.path.extend(place for place in birth.path if place not in sys.path)
    if birth.memory is not None:
        threading.Thread(target=_watch, args=(birth.memory, line), daemon=True).start()
    line.say_started()
    try:
        role = _import_role(birth.role)
        arguments = pickle.loads(birth.arguments)  # noqa: S301 - of our own head
        role(line, *arguments)
    except MemoryError:
        return line.say_end("the system had no memory left for it", "memory")
    except BaseException as error:
        return line.say_end(describe_error(error), "raised")
    return line.say_end("its role has ended", "raised")


def decode_event(worker: int, frame: Frame) -> WorkerEvent | None:
    """What a frame of a worker means to its head; ``None`` for its first word."""
    try:
        heard = pickle.loads(frame)  # noqa: S301 - of our own worker
    except Exception as error:  # anything, as any value may be made again
        return WorkerLoss(worker, f"what it said cannot be read by its head ({type(error).__name__})", "raised")
    if isinstance(heard, WorkerMessage):
        return WorkerMessage(worker, heard.value)
    return WorkerLoss(worker, heard.why, heard.cause) if isinstance(heard, WorkerEnd) else None


def own_memory() -> int:
    """Bytes that this process alone has in memory: pages of files do not count, since the system may drop them.

    A limit of the system (``RLIMIT_AS``, ``RLIMIT_DATA``) counts what is reserved, and pyarrow's allocator reserves a
    gigabyte before its first row.
    """
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            resident, shared = (int(word) for word in file.read().split()[1:3])
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no Linux: the most that it ever had
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _watch(most: int, line: WorkerLine) -> None:
    while own_memory() <= most:
        time.sleep(_LOOK_SECONDS)
    threading.Thread(target=_leave, daemon=True).start()
    line.say_end(f"it needed more memory than the {most // 10**6} MB that a worker may have", "memory")


def _leave() -> None:
    time.sleep(_FAREWELL_SECONDS)
    os._exit(1)


def _import_role(role: str) -> Callable[..., object]:
    module, _, function = role.partition(":")
    try:
        found: Callable[..., object] = getattr(import_module(module), function)
    except (ImportError, AttributeError):
        raise EngineError(f"its role {role} cannot be imported there [EN026]") from None
    return found


def describe_error(error: BaseException) -> str:
    """What was raised and where; the message only of our own errors, which hold no data."""
    if isinstance(error, ColonnadeError):
        return sanitize(error, _LONGEST_SENTENCE)
    place = ""
    with suppress(Exception):
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if trace is not None:
            place = f" in {os.path.basename(trace.tb_frame.f_code.co_filename)}, line {trace.tb_lineno}"
    return f"its role raised {type(error).__name__}{place}"


def _version_text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


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
