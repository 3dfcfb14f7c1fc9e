"""How a party's text file is written: what separates its cells, its encoding, its decimal sign.

None of it is learned silently: a schema or a party's own file says it, and what a file looks like stands in the error
or in the draft of a schema.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from colonnade.errors import SchemaError

UTF_8 = "utf-8"
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
FORMAT_KEYS = ("separator", "encoding", "decimal")

WHERE_TO_SAY = "in the party's own file or in [table] of the schema, or pass it to Party or read_table"
_SAMPLE = 1 << 16
_LINES = 50
_ONLY_IN_WINDOWS = frozenset(range(0x80, 0xA0))


@dataclass(frozen=True, slots=True)
class TextFormat:
    """How a text file is written; what is ``None`` is not said: commas (tabs in ``.tsv``), UTF-8, a decimal point."""

    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None

    def __post_init__(self) -> None:
        separator, decimal = self.separator, self.decimal
        if separator is not None and (
            not isinstance(separator, str) or len(separator) != 1 or not separator.isascii() or separator in '"\r\n\0'
        ):
            raise SchemaError(f'separator must be one sign such as ";" or "\\t", not {separator!r} [SC048]')
        if decimal is not None and decimal not in (".", ","):
            raise SchemaError(f'decimal must be "." or ",", not {decimal!r} [SC049]')
        if self.encoding is not None:
            _check_encoding(self.encoding)

    def merge_over(self, other: TextFormat) -> TextFormat:
        """This format, and what it does not say as the other one says it."""
        return replace(other, **self.stated)

    @property
    def stated(self) -> dict[str, str]:
        """What is said, by key."""
        return {key: said for key in FORMAT_KEYS if (said := getattr(self, key)) is not None}

    @property
    def utf_8(self) -> bool:
        """Whether the text is UTF-8, with a byte order mark or without."""
        return codecs.lookup(self.encoding or UTF_8).name in (UTF_8, "utf-8-sig")

    def separator_in(self, suffixes: Sequence[str]) -> str:
        """What separates the cells of a file whose name has these endings."""
        return self.separator or ("\t" if ".tsv" in suffixes else ",")


def guess_encoding(start: bytes) -> str | None:
    """The encoding that bytes look like, of a few that are common; ``None`` if they look like none."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in start:
        at = start.index(b"\0") % 2
        return ("utf-16-be", "utf-16-le")[at] if start[at::2].count(0) * 4 > len(start) else None
    if _can_decode(start, UTF_8):
        return UTF_8
    if not _ONLY_IN_WINDOWS & set(start):
        return "latin-1"
    return "windows-1252" if _can_decode(start, "windows-1252") else None


def guess_separator(text: str) -> str:
    """What separates the cells of a text: the sign that splits most of its lines into as many cells, else a comma."""
    lines = [line for line in text.splitlines()[:_LINES] if line]

    def rating(separator: str) -> tuple[int, int]:
        cells, lines_alike = Counter(line.count(separator) for line in lines).most_common(1)[0]
        return (lines_alike, cells) if cells else (0, 0)

    return max(SEPARATORS, key=rating) if lines else ","


def decode_sample(start: bytes, encoding: str, size: int = _SAMPLE) -> str:
    """The first bytes of a file as text; a character that is cut off at the end is left out."""
    try:
        return codecs.getincrementaldecoder(encoding)("replace").decode(start[:size])
    except UnicodeError:  # of UTF-16 without the mark that it begins with
        return "\ufffd"


def advise_format(said: Mapping[str, str]) -> str:
    """What to write so that a file is read: ``'separator = ";"'``, and where."""
    return f"write {format_as_toml(said)} {WHERE_TO_SAY}"


def format_as_toml(said: Mapping[str, str]) -> str:
    """Keys and values as a file has them, in one line."""
    return " and ".join(f"{key} = {json.dumps(value)}" for key, value in said.items())


def _can_decode(start: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(start)
    except UnicodeDecodeError:
        return False
    return True


def _check_encoding(encoding: object) -> None:
    try:
        if not isinstance(encoding, str) or "a;1\n".encode(encoding).decode(encoding) != "a;1\n":
            raise LookupError
        codecs.getincrementaldecoder(encoding)
    except (LookupError, UnicodeError, ValueError):
        raise SchemaError(
            f'encoding must be one that Python knows, such as "utf-8", "latin-1", "windows-1252" or "utf-16", not '
            f"{encoding!r} [SC050]"
        ) from None
