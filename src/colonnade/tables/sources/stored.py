"""One file of an object store or another file system that Arrow reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any


@dataclass(frozen=True)
class StoredFile:
    """A file in a store, as its listing told of it."""

    store: Any
    path: str
    size: int
    changed: int
    """When, in nanoseconds, as the store says."""

    @property
    def suffix(self) -> str:
        """The last ending of the name."""
        return PurePosixPath(self.path).suffix

    @property
    def suffixes(self) -> list[str]:
        """All endings of the name."""
        return PurePosixPath(self.path).suffixes

    def stream(self) -> Any:
        """The content from its beginning, decompressed as the name's ending says."""
        return self.store.open_input_stream(self.path)

    def file(self) -> Any:
        """The content, read at any place."""
        return self.store.open_input_file(self.path)

    def start(self, size: int) -> bytes:
        """The first bytes as they are stored."""
        with self.file() as opened:
            found: bytes = opened.read(min(size, self.size))
        return found
