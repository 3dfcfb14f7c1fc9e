"""What a head hears from several sides, in one line: threads wait, and one thread takes what they heard."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

BEAT = 20.0
"""Seconds after which a head gives a sign of life."""
Heard = TypeVar("Heard")


@dataclass(frozen=True)
class _Broken:
    """A thread ended with this error."""

    error: BaseException


class Inbox:
    """Items with their source, in the order in which they came; ``still`` is called at least every ``beat`` seconds."""

    def __init__(self, still: Callable[[], None], beat: float = BEAT) -> None:
        self._still, self._beat = still, beat
        self._items: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._broken: BaseException | None = None
        self._due = time.monotonic() + beat

    def listen(
        self, source: str, hear: Callable[[], Heard], last: Callable[[Heard], bool], name: str
    ) -> threading.Thread:
        """Take in what ``hear`` gives until the last of it, in a thread of this name; its error is raised in `take`."""

        def loop() -> None:
            try:
                ended = False
                while not ended:
                    item = hear()
                    self._items.put((source, item))
                    ended = last(item)
            except BaseException as error:
                self._broken = self._broken or error
                self._items.put((source, _Broken(error)))

        thread = threading.Thread(target=loop, name=name, daemon=True)
        thread.start()
        return thread

    def take(self) -> tuple[str, Any]:
        """The next item and where it came from; waits for it."""
        while True:
            self._live()
            try:
                source, item = self._items.get(timeout=max(0.0, self._due - time.monotonic()))
            except Empty:
                continue
            if isinstance(item, _Broken):
                raise item.error
            return source, item

    def pulse(self) -> None:
        """Give a sign of life if it is due, and raise the error of a thread that failed: for long work of one's own."""
        self._live()
        if self._broken is not None:
            raise self._broken

    def _live(self) -> None:
        if time.monotonic() >= self._due:
            self._still()
            self._due = time.monotonic() + self._beat
