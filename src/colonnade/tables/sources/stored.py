"""One file of an object store or another file system that Arrow reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

_VERSIONS = ("etag", "generation", "versionid")


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

    def version(self) -> tuple[bytes, ...]:
        """What the store says of this very content, such as an ETag; nothing where it says nothing, or has no file."""
        try:
            with self.store.open_input_stream(self.path, compression=None) as opened:
                said = opened.metadata() or {}
        except OSError:
            return ()
        return tuple(bytes(value) for name, value in sorted(said.items()) if name.lower() in _VERSIONS)

    def state(self) -> tuple[int, int, tuple[bytes, ...]] | None:
        """Size, time and version as the store says them now; ``None`` if it has no such file, or does not answer."""
        try:
            found = self.store.get_file_info(self.path)
        except OSError:
            return None
        return int(found.size or 0), int(found.mtime_ns or 0), self.version()

    def start(self, size: int) -> bytes:
        """The first bytes as they are stored."""
        with self.file() as opened:
            found: bytes = opened.read(min(size, self.size))
        return found
