"""Typed binary frames: the messages that participants send each other.

A frame is two bytes of magic and version, and then one value. Every value starts with a tag of one byte; lengths are
little endian. The data of an array starts at a multiple of eight bytes, so that it can be used without a copy. Decoding
never uses more memory than the frame has data for, and raises no other error than :class:`ProtocolError`.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.wire.values import (
    ALIGN,
    ARRAY,
    DICT,
    DTYPE_CODES,
    INLINE,
    LIST,
    MAGIC,
    MAX_FRAME,
    STR,
    U16,
    U32,
    Reader,
    Writer,
)


def encode(value: Any) -> bytes:
    """One frame that holds ``value``."""
    return b"".join(encode_parts(value))


def encode_parts(value: Any) -> list[bytes | memoryview]:
    """The frame of ``value`` in pieces; large arrays and byte strings are not copied."""
    if type(value) is list and len(value) == 2 and type(value[0]) is str and type(value[1]) is dict:
        kind, fields = value
        if len(fields) == 1:
            ((name, array),) = fields.items()
            if type(array) is np.ndarray and array.dtype in DTYPE_CODES and array.flags.c_contiguous:
                return _one_array(kind, name, array)
    writer = Writer()
    writer.value(value, 0)
    return writer.finish()


class Single(NamedTuple):
    """A message with one array, as a thread passes it on: a read-only copy, and how many bytes its frame would have."""

    kind: str
    name: str
    array: NDArray[Any]
    size: int


def single(kind: str, fields: dict[str, Any]) -> Single | None:
    """The message, if it has one array and nothing else, and if all that a frame would check holds already."""
    if len(fields) != 1:
        return None
    ((name, array),) = fields.items()
    if type(array) is not np.ndarray or not array.flags.c_contiguous:
        return None
    size = _size_of(kind, name, array.dtype, array.shape)
    if not 0 < size <= MAX_FRAME:
        return None
    copy = array.copy()
    copy.flags.writeable = False
    return Single(kind, name, copy, size)


def decode(data: bytes | bytearray | memoryview) -> Any:
    """The value in a frame. Arrays are read-only views of ``data``, not copies."""
    view = memoryview(data)
    if view.nbytes > MAX_FRAME:
        raise ProtocolError(f"a frame is larger than the limit of {MAX_FRAME} bytes [MS060]")
    view = view.cast("B").toreadonly()
    head = bytes(view[: _length_of_head(view)])
    known = _HEADS.get(head)
    if known is not None and len(view) == len(head) + known.size:
        array = np.frombuffer(view, known.dtype, offset=len(head)) if known.size else np.empty(0, known.dtype)
        return [known.kind, {known.name: array.reshape(known.shape)}]
    reader = Reader(view)
    value = reader.value(0)
    reader.expect_end()
    if head and known is None:
        _remember(head, value)
    return value


# Most messages are a kind and one array, and few shapes occur: the bytes before the data are made and read only once.


class _Head(NamedTuple):
    """The meaning of the bytes before the data, in a message with one array."""

    kind: str
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int


_HEADS: dict[bytes, _Head] = {}
_MOST_HEADS, _LONGEST_HEAD = 256, 256
_BEGINNING = MAGIC + bytes((LIST, 2, 0, 0, 0, STR))
_MIDDLE = bytes((DICT, 1, 0, 0, 0))


def _one_array(kind: str, name: str, array: NDArray[Any]) -> list[bytes | memoryview]:
    """The frame of a message with one array, whose memory is sent as it is."""
    head = _head_of(kind, name, array.dtype, array.shape)
    if array.nbytes < INLINE:
        return [head + array.tobytes()]
    if len(head) + array.nbytes > MAX_FRAME:
        raise ProtocolError(f"a message has at most {MAX_FRAME} bytes; send it in blocks [MS061]")
    return [head, array.reshape(-1).view(np.uint8).data]


@lru_cache(_MOST_HEADS)
def _size_of(kind: str, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """The bytes of a message with one array, 0 if it must go through a frame: truth values are checked when read."""
    if DTYPE_CODES.get(dtype, 0) == 0:
        return 0
    return len(_head_of(kind, name, dtype, shape)) + prod(shape) * dtype.itemsize


@lru_cache(_MOST_HEADS)
def _head_of(kind: str, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    writer = Writer()
    writer.one_field(kind, name)
    writer.array_head(dtype, shape)
    return b"".join(writer.finish())


def _length_of_head(view: memoryview) -> int:
    """Where the data begins in a message with one array; 0 for all other frames. The frame is not fully checked."""
    start = bytes(view[:_LONGEST_HEAD])
    try:
        if not start.startswith(_BEGINNING):
            return 0
        middle = len(_BEGINNING) + 4 + U32.unpack_from(start, len(_BEGINNING))[0]
        if not start.startswith(_MIDDLE, middle):
            return 0
        at = middle + len(_MIDDLE) + 2 + U16.unpack_from(start, middle + len(_MIDDLE))[0]
        end: int = at + 3 + 8 * start[at + 2]
    except (struct.error, IndexError):
        return 0
    return end + -end % ALIGN if start[at] == ARRAY else 0


def _remember(head: bytes, value: Any) -> None:
    """Keep the head of a message that was read and is valid, for the next message like it."""
    kind, fields = value
    ((name, array),) = fields.items()
    if array.dtype == np.bool_:  # their data must be checked every time
        return
    if len(_HEADS) >= _MOST_HEADS:
        _HEADS.clear()
    _HEADS[head] = _Head(kind, name, array.dtype, array.shape, array.nbytes)
