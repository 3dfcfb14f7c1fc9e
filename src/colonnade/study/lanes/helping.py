"""Workers help their head with the party's table before the first lane: they read, check and split it in parts.

A worker that is lost is replaced, and another does what it had. What a worker fails at is left to the head: it may see
files that workers do not, and if it fails too, its error is the one that is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.protocols.lanes.partitions import Partitions
from colonnade.study.lanes.words import Help, Helped
from colonnade.tables.spool.room import whole

_KEY = "partitions"


def helped(command: Help) -> Helped:
    """A worker's part."""
    try:
        return Helped(command.number, command.chore.done())
    except Exception:  # whatever it is, its head meets it again
        return Helped(command.number, failed=True)


@dataclass(frozen=True)
class SpreadFrom:
    """Finds the partition of each key as the owners have agreed; pickled, it says where their key lies.

    That is the private folder of the table, which tells all that the key does.
    """

    folder: Path
    count: int

    @classmethod
    def written(cls, spread: Partitions, folder: Path) -> SpreadFrom:
        """Lay the key there."""
        with whole(folder, _KEY) as file:
            file.write(spread.key)
        return cls(folder, spread.count)

    def forget(self) -> None:
        """Delete the key."""
        (self.folder / _KEY).unlink(missing_ok=True)

    @cached_property
    def _spread(self) -> Partitions:
        return Partitions(self.count, (self.folder / _KEY).read_bytes())

    def __call__(self, keys: Sequence[bytes]) -> NDArray[np.int64]:
        """The partition of each key."""
        return self._spread.of(keys)

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "count": self.count}
