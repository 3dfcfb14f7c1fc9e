"""The inside of a worker, the same on every engine: find the role, run it, and tell how it ended without any data."""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from colonnade.errors import ColonnadeError, EngineError
from colonnade.harmless import harmless
from colonnade.study.engine.contract import Cause, Event, Gone, Said, pickled
from colonnade.versions import own_version

Frame = bytes | bytearray
_LOOK_SECONDS = 0.1
_FAREWELL_SECONDS = 5.0
_LONGEST_SENTENCE = 500


@dataclass(frozen=True)
class Birth:
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
    def of(cls, role: str, arguments: tuple[Any, ...], memory: int | None) -> Birth:
        """For a role and its arguments, which must be picklable."""
        module, _, function = role.partition(":")
        if not module or not function:
            raise EngineError(f"{role!r} is no role: it must be package.module:function [EN025]")
        return cls(role, pickled(arguments, "an argument"), memory, tuple(sys.path))


@dataclass(frozen=True)
class Here:
    """The first thing that a worker says."""


@dataclass(frozen=True)
class Over:
    """The last thing that a worker says."""

    why: str
    cause: Cause


class QueuedLine:
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
        self._send(pickled(Said(0, value), "what a worker says"))

    def here(self) -> None:
        """Say that the worker runs."""
        self._send(pickled(Here(), "a word"))

    def over(self, why: str, cause: Cause) -> None:
        """Say how the worker ended, once; what is said afterwards is not heard."""
        self._send(pickled(Over(why, cause), "a word"), last=True)

    def _send(self, frame: bytes, last: bool = False) -> None:
        with self._lock:
            if not self._over:
                self._over = last
                self._out(frame)


def live(birth: Birth, line: QueuedLine) -> None:
    """Run the role to its end, and tell how that was."""
    if (birth.version, birth.python) != (own_version(), sys.version_info[:2]):
        theirs = f"Colonnade {own_version()} on Python {_dotted(sys.version_info[:2])}"
        ours = f"Colonnade {birth.version} on Python {_dotted(birth.python)}"
        return line.over(f"it has {theirs}, and its head has {ours}: install the same on all machines", "raised")
    sys.path.extend(place for place in birth.path if place not in sys.path)
    if birth.memory is not None:
        threading.Thread(target=_watch, args=(birth.memory, line), daemon=True).start()
    line.here()
    try:
        role = _found(birth.role)
        arguments = pickle.loads(birth.arguments)  # noqa: S301 - of our own head
        role(line, *arguments)
    except MemoryError:
        return line.over("the system had no memory left for it", "memory")
    except BaseException as error:
        return line.over(without_data(error), "raised")
    return line.over("its role has ended", "raised")


def event(worker: int, frame: Frame) -> Event | None:
    """What a frame of a worker means to its head; ``None`` for its first word."""
    try:
        heard = pickle.loads(frame)  # noqa: S301 - of our own worker
    except Exception as error:  # anything, as any value may be made again
        return Gone(worker, f"what it said cannot be read by its head ({type(error).__name__})", "raised")
    if isinstance(heard, Said):
        return Said(worker, heard.value)
    return Gone(worker, heard.why, heard.cause) if isinstance(heard, Over) else None


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
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _watch(most: int, line: QueuedLine) -> None:
    while own_memory() <= most:
        time.sleep(_LOOK_SECONDS)
    threading.Thread(target=_leave, daemon=True).start()
    line.over(f"it needed more memory than the {most // 10**6} MB that a worker may have", "memory")


def _leave() -> None:
    time.sleep(_FAREWELL_SECONDS)
    os._exit(1)


def _found(role: str) -> Callable[..., object]:
    module, _, function = role.partition(":")
    try:
        found: Callable[..., object] = getattr(import_module(module), function)
    except (ImportError, AttributeError):
        raise EngineError(f"its role {role} cannot be imported there [EN026]") from None
    return found


def without_data(error: BaseException) -> str:
    """What was raised and where; the message only of our own errors, which hold no data."""
    if isinstance(error, ColonnadeError):
        return harmless(error, _LONGEST_SENTENCE)
    place = ""
    with suppress(Exception):
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if trace is not None:
            place = f" in {os.path.basename(trace.tb_frame.f_code.co_filename)}, line {trace.tb_lineno}"
    return f"its role raised {type(error).__name__}{place}"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
