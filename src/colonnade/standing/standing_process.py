"""What an agent and a hub have in common as standing processes: one in a folder, and a list of members read anew."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from colonnade.disk import writing
from colonnade.errors import FederationError
from colonnade.standing.federation import Members


def stamp(path: Path) -> tuple[int, int]:
    """What changes whenever a file is written anew."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size


class StandingProcess:
    """A process that waits for work in its folder until it is stopped."""

    def __init__(self, federation: Path) -> None:
        self._federation, self._read = federation, stamp(federation)
        self.members = Members.load(federation)
        self.folder: Path
        self._stop = threading.Event()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have the folder for this process alone; an error if another one has it."""
        with ExitStack() as held:
            try:
                held.enter_context(writing.locked(self.folder, wait=False))
            except BlockingIOError:
                raise FederationError(f"another agent or hub works in {self.folder}: stop it first [FE000]") from None
            yield

    def stop(self) -> None:
        """Let it end; studies that run are ended, and can be tried again, and everything that waits is kept."""
        self._stop.set()

    def _members_changed(self) -> bool:
        """Whether the list of members was written since it was last read here."""
        before, self._read = self._read, stamp(self._federation)
        return self._read != before
