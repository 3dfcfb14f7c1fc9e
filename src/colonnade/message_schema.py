"""The one door for what other participants send: a message is as it was declared, or it is refused.

A protocol declares its messages as values: the kind of each, and the form of every field. A form says the type, the
size and the range of a value, and with these the most bytes that the message takes, so a transport refuses a longer
one before it is decoded. An error names who sent what, and neither a value nor a limit: limits may tell the length of
a list.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from colonnade.errors import ProtocolError

_HEAD = 512
"""Room for the kind and the names of fields; more than needed, so that a message of another kind is called that."""
_TAG = 16
"""Room for a value's tag and length."""


class MessageSource(Protocol):
    """What the door needs of a channel."""

    def recv(self, kind: str, most: int) -> dict[str, Any]:
        """The fields of the next message, which must be of this kind and of at most so many bytes."""


class ValueForm(Protocol):
    """What a field may hold."""

    @property
    def max_bytes(self) -> int:
        """The most bytes that such a value takes in a message."""

    def accepts(self, value: Any) -> bool:
        """Whether a received value, which may be anything, is of this form."""


class UpTo(int):
    """A side of an array that may be shorter."""


@dataclass(frozen=True)
class ArrayForm:
    """An array of one type and shape, its numbers from ``low`` to ``high`` and always finite."""

    dtype: np.dtype[Any] | type[np.generic]
    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None

    @property
    def max_bytes(self) -> int:
        """The data, the shape, and the padding before the data."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize + 8 * len(self.shape) + _TAG

    def accepts(self, value: Any) -> bool:
        """Whether it is such an array."""
        if not isinstance(value, np.ndarray) or value.dtype != self.dtype:
            return False
        if value.shape != self.shape and not self._is_shorter(value.shape):
            return False
        if not value.size:
            return True
        # What is not a number is neither above nor below anything, so it is within no range.
        if self.low is not None and not value.min() >= self.low:
            return False
        if self.high is not None and not value.max() <= self.high:
            return False
        return value.dtype.kind != "f" or bool(np.isfinite(value).all())

    def _is_shorter(self, shape: Sequence[int]) -> bool:
        return len(shape) == len(self.shape) and all(
            here <= due if isinstance(due, UpTo) else here == due for here, due in zip(shape, self.shape, strict=True)
        )


@dataclass(frozen=True)
class Integer:
    """A whole number from ``low`` to ``high``."""

    low: int
    high: int

    @property
    def max_bytes(self) -> int:
        """The bytes of the longer of both ends."""
        return max(self.low.bit_length(), self.high.bit_length()) // 8 + _TAG

    def accepts(self, value: Any) -> bool:
        """Whether it is such a number; a truth value is none."""
        return type(value) is int and self.low <= value <= self.high


@dataclass(frozen=True)
class FiniteFloat:
    """A finite number of this magnitude at most."""

    most: float
    max_bytes = _TAG

    def accepts(self, value: Any) -> bool:
        """Whether it is such a number."""
        return type(value) is float and math.isfinite(value) and abs(value) <= self.most


@dataclass(frozen=True)
class Boolean:
    """True or false, or only one of them."""

    only: bool | None = None
    max_bytes = _TAG

    def accepts(self, value: Any) -> bool:
        """Whether it is one of both, and the right one."""
        return type(value) is bool and self.only in (None, value)


@dataclass(frozen=True)
class FixedBytes:
    """A byte string of one of these lengths."""

    sizes: tuple[int, ...]

    def __init__(self, *sizes: int) -> None:
        object.__setattr__(self, "sizes", sizes)

    @property
    def max_bytes(self) -> int:
        """The longest."""
        return max(self.sizes) + _TAG

    def accepts(self, value: Any) -> bool:
        """Whether it is such a string."""
        return type(value) is bytes and len(value) in self.sizes


@dataclass(frozen=True)
class BoundedBytes:
    """A byte string of at most ``longest`` bytes."""

    longest: int

    @property
    def max_bytes(self) -> int:
        """The longest."""
        return self.longest + _TAG

    def accepts(self, value: Any) -> bool:
        """Whether it is such a string."""
        return type(value) is bytes and len(value) <= self.longest


@dataclass(frozen=True)
class TextForm:
    """Text of at most ``longest`` characters, all of it as ``pattern`` says if there is one."""

    longest: int
    pattern: str | None = None

    @property
    def max_bytes(self) -> int:
        """A character takes at most four bytes."""
        return 4 * self.longest + _TAG

    def accepts(self, value: Any) -> bool:
        """Whether it is such a text."""
        if type(value) is not str or len(value) > self.longest:
            return False
        return self.pattern is None or re.fullmatch(self.pattern, value) is not None


@dataclass(frozen=True)
class TextChoice:
    """One of these texts."""

    values: tuple[str, ...]

    @property
    def max_bytes(self) -> int:
        """The longest."""
        return 4 * max(map(len, self.values)) + _TAG

    def accepts(self, value: Any) -> bool:
        """Whether it is one of them."""
        return type(value) is str and value in self.values


@dataclass(frozen=True)
class ItemList:
    """A list with a value of each of these forms, in this order."""

    forms: tuple[ValueForm, ...]

    def __init__(self, *forms: ValueForm) -> None:
        object.__setattr__(self, "forms", forms)

    @property
    def max_bytes(self) -> int:
        """All of them."""
        return sum(form.max_bytes for form in self.forms) + _TAG

    def accepts(self, value: Any) -> bool:
        """Whether it is such a list."""
        if type(value) is not list or len(value) != len(self.forms):
            return False
        return all(form.accepts(item) for form, item in zip(self.forms, value, strict=True))


class MessageSchema:
    """One message of a protocol: its kind, and the form of each of its fields."""

    __slots__ = ("fields", "kind", "max_bytes")

    def __init__(self, kind: str, /, **fields: ValueForm) -> None:
        self.kind, self.fields = kind, fields
        self.max_bytes = _HEAD + sum(form.max_bytes for form in fields.values())
        """No message of this kind has more bytes."""

    def check(self, fields: Mapping[str, Any], peer: str) -> None:
        """Refuse fields that are not as declared, in the name of ``peer``."""
        if fields.keys() != self.fields.keys():
            raise ProtocolError(f"{peer} sent a message {self.kind!r} with other fields than were due [MS048]")
        for name, form in self.fields.items():
            if not form.accepts(fields[name]):
                raise ProtocolError(
                    f"{peer} sent a message {self.kind!r} in which {name!r} is not of the form or range due [MS049]"
                )


def receive_message(link: MessageSource, peer: str, due: MessageSchema) -> dict[str, Any]:
    """The fields of the next message from a peer, which must be this one."""
    fields = link.recv(due.kind, due.max_bytes)
    due.check(fields, peer)
    return fields
