"""The text of a party's file on its one way to the parser: decompressed, its encoding checked, turned into UTF-8."""

from __future__ import annotations

import codecs
import io
from pathlib import Path
from threading import Lock

from colonnade.tables.arrow import pa
from colonnade.tables.formats import UTF_8, TextFormat
from colonnade.tables.sources.stored import StoredFile

BLOCK = 1 << 23
"""Bytes that Arrow parses at a time; it wants every row to fit in a block."""
_START = 1 << 20
_WIDEST = 3  # the most bytes of UTF-8 that a byte of another encoding becomes
_RETURN = ord("\r")


class TextStream(io.RawIOBase):
    """The text of a file in UTF-8, in parts that never end between the two bytes of a line break, nor in a character.

    If a line break is split between two parts, Arrow keeps only its first byte, even inside a quoted cell. And if Arrow
    gets a row that is too short and no UTF-8, it prints a traceback of its own. So the text ends before the first part
    that is not in its encoding, which is kept as ``other``; whoever reads looks at it when the text has ended.
    """

    def __init__(self, path: Path | StoredFile, text: TextFormat) -> None:
        self._stream = path.stream() if isinstance(path, StoredFile) else pa.input_stream(str(path))
        self.start: bytes = self._stream.read(_START)
        """The first bytes of the file, as they are."""
        self.other: bytes | None = None
        """The first part that is not text in the encoding; empty if the file ends within a character."""
        self._at, self._held, self._broken = 0, b"", b""
        self._decoder = None if text.utf_8 else codecs.getincrementaldecoder(text.encoding or UTF_8)()
        self._in_utf_8: codecs.IncrementalDecoder | None = codecs.getincrementaldecoder(UTF_8)()
        self._beyond_ascii: bytes | None = None
        self._reading = Lock()  # Arrow reads ahead in a thread of its own

    def readable(self) -> bool:
        """As for any stream."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """At most so many bytes; none at the end."""
        with self._reading:
            part = self._held + (self._next(None) if size < 0 else self._next(max(1, size - len(self._held))))
            end = len(part) if size < 0 else min(size, len(part))
            end -= end > 1 and part[end - 1] == _RETURN
            self._held = part[end:]
            return part[:end]

    def drain(self) -> None:
        """Check what is left, and throw it away."""
        while self.read(BLOCK):
            pass

    def close(self) -> None:
        """Close the file."""
        with self._reading:
            self._stream.close()
            super().close()

    def _next(self, size: int | None) -> bytes:
        """About so many bytes of UTF-8 that are checked; none only at the end."""
        while self.other is None:
            raw = self._raw(size if self._decoder is None or size is None else max(1, size // _WIDEST))
            try:
                part = self._checked(raw) if self._decoder is None else self._turned(raw, self._decoder)
            except UnicodeError:
                self.other = self._broken + raw
                break
            if part or not raw:
                return part
        return b""

    def _raw(self, size: int | None) -> bytes:
        first = self.start[self._at : None if size is None else self._at + size]
        self._at += len(first)
        # A block that is not full would have less room for a long row.
        return first + bytes(self._stream.read(None if size is None else size - len(first)))

    def _checked(self, raw: bytes) -> bytes:
        """UTF-8 without the last character, if that is not whole yet."""
        if not self._broken and raw.isascii():
            return raw
        whole = self._broken + raw
        _, end = codecs.utf_8_decode(whole, "strict", not raw)
        self._broken = whole[end:]
        return whole[:end]

    def _turned(self, raw: bytes, decoder: codecs.IncrementalDecoder) -> bytes:
        """The same from another encoding; a byte for a letter reads anything, and names would be matched in vain."""
        part = decoder.decode(raw, final=not raw).encode()
        if self._beyond_ascii is None and not raw.isascii():
            self._beyond_ascii = raw
        if self._in_utf_8 is not None:
            try:
                self._in_utf_8.decode(raw, final=not raw)
            except UnicodeError:
                self._in_utf_8 = None
            else:
                self.other = self._beyond_ascii if not raw else None
        return part
