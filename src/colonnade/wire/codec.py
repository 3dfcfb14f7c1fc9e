"""Typed binary frames: the messages that participants send each other.

A frame is two bytes of magic and version, and then one value. Every value starts with a tag of one byte; lengths are
little endian. The data of an array starts at a multiple of eight bytes, so that it can be used without a copy.
Decoding never uses more memory than the frame has data for, and raises no other error than :class:`ProtocolError`. A
frame that is something else than the message that is due is refused, whichever way it came.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.sanitize import sanitize

MAX_FRAME = 1 << 28
MAX_DEPTH = 16
MAX_VALUES = 1 << 20
MAX_INT_BYTES = 256
MAX_RANK = 8

MAGIC = b"\xc0\x01"
ALIGN = 8
_ZEROS = bytes(ALIGN)
INLINE = 1 << 12
"""Smaller pieces are copied together; larger ones are not copied."""

_U8, U16, U32, _F64 = struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<d")
_NONE, _TRUE, _FALSE, _INT, _FLOAT, STR, _BYTES, LIST, DICT, ARRAY = b"NTFIDSBLMA"

_SCALARS = (np.bool_, np.integer, np.floating)
_RAW = (bytes, bytearray, memoryview)
_DTYPES = [np.dtype(code) for code in ("?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f4", "<f8")]
_BOOL = 0
DTYPE_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}


class FrameWriter:
    """Writes one frame."""

    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []
        self._small = bytearray(MAGIC)
        self._flushed = 0
        self._values = 0

    def finish(self) -> list[bytes | memoryview]:
        """The frame, in pieces."""
        self._flush()
        return self._parts

    def value(self, value: Any, depth: int) -> None:
        """Write a value; an error if a message cannot carry it."""
        self._values += 1
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            raise ProtocolError(
                f"a message nests at most {MAX_DEPTH} deep and holds at most {MAX_VALUES} values; "
                "send bulk data as arrays [MS097]"
            )
        if isinstance(value, _SCALARS):
            value = value.item()
        write = _WRITERS.get(type(value)) or _writer_of(value)
        write(self, value, depth)

    def array_head(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Write an array without its data."""
        self._small += _array_head(dtype, shape)
        self._small += _ZEROS[: -(self._flushed + len(self._small)) % ALIGN]

    def one_field(self, kind: str, name: str) -> None:
        """Write a message with one field, up to the value of this field."""
        self._small += bytes((LIST, *U32.pack(2)))
        self.value(kind, 1)
        self._small += bytes((DICT, *U32.pack(1)))
        self._key(name)

    def _none(self, _: None, __: int) -> None:
        self._small.append(_NONE)

    def _bool(self, value: bool, _: int) -> None:
        self._small.append(_TRUE if value else _FALSE)

    def _int(self, value: int, _: int) -> None:
        raw = value.to_bytes(_int_size(value), "little", signed=True)
        if len(raw) > MAX_INT_BYTES:
            raise ProtocolError(f"an integer in a message has at most {MAX_INT_BYTES} bytes [MS098]")
        self._small.append(_INT)
        self._sized(raw, U16)

    def _float(self, value: float, _: int) -> None:
        self._small.append(_FLOAT)
        self._small += _F64.pack(value)

    def _str(self, value: str, _: int) -> None:
        self._small.append(STR)
        self._sized(_utf8(value), U32)

    def _bytes(self, value: bytes | bytearray | memoryview, _: int) -> None:
        self._small.append(_BYTES)
        self._sized(value, U32)

    def _list(self, items: list[Any], depth: int) -> None:
        self._small.append(LIST)
        self._small += _count(len(items))
        for item in items:
            self.value(item, depth + 1)

    def _dict(self, items: dict[Any, Any], depth: int) -> None:
        self._small.append(DICT)
        self._small += _count(len(items))
        for key, item in items.items():
            self._key(key)
            self.value(item, depth + 1)

    def _key(self, key: Any) -> None:
        if not isinstance(key, str):
            raise ProtocolError(f"keys in a message are strings, not {type(key).__name__} [MS099]")
        raw = _utf8(key)
        if len(raw) > 0xFFFF:
            raise ProtocolError("a key in a message is too long [MS100]")
        self._sized(raw, U16)

    def _array(self, array: NDArray[Any], _: int) -> None:
        # A masked array would also send the values that its mask hides.
        if type(array) not in (np.ndarray, np.memmap):
            raise ProtocolError(f"a message carries plain arrays, not {type(array).__name__} [MS101]")
        self.array_head(array.dtype, array.shape)
        plain = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        self._raw(plain.reshape(-1).view(np.uint8).data if plain.nbytes >= INLINE else plain.tobytes())

    def _sized(self, raw: bytes | bytearray | memoryview, width: struct.Struct) -> None:
        size = raw.nbytes if isinstance(raw, memoryview) else len(raw)
        if size > MAX_FRAME:
            raise ProtocolError(f"a message has at most {MAX_FRAME} bytes; send it in blocks [MS102]")
        self._small += width.pack(size)
        self._raw(raw)

    def _raw(self, raw: bytes | bytearray | memoryview) -> None:
        view = memoryview(raw)
        if view.nbytes < INLINE or not view.c_contiguous:
            self._small += raw
        else:
            self._flush()
            self._flushed += view.nbytes
            self._parts.append(view.cast("B"))
        if self._flushed + len(self._small) > MAX_FRAME:
            raise ProtocolError(f"a message has at most {MAX_FRAME} bytes; send it in blocks [MS103]")

    def _flush(self) -> None:
        if self._small:
            self._flushed += len(self._small)
            self._parts.append(bytes(self._small))
            self._small.clear()


_WRITERS: dict[type, Callable[[FrameWriter, Any, int], None]] = {
    type(None): FrameWriter._none,
    bool: FrameWriter._bool,
    int: FrameWriter._int,
    float: FrameWriter._float,
    str: FrameWriter._str,
    **dict.fromkeys(_RAW, FrameWriter._bytes),
    list: FrameWriter._list,
    dict: FrameWriter._dict,
    np.ndarray: FrameWriter._array,
}


def _writer_of(value: Any) -> Callable[[FrameWriter, Any, int], None]:
    """How to write a value whose type is derived from a known type."""
    for kind, write in _WRITERS.items():
        if isinstance(value, kind):
            return write
    raise ProtocolError(f"a message cannot carry a {type(value).__name__} [MS104]")


class FrameReader:
    """Reads one frame, and checks everything in it."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0
        self._values = 0
        if bytes(self._take(len(MAGIC))) != MAGIC:
            raise ProtocolError("this is not a frame of this version [MS105]")

    def expect_end(self) -> None:
        """Raise an error if there are bytes after the value."""
        if self._at != len(self._data):
            raise ProtocolError("a frame has bytes after its end [MS106]")

    def value(self, depth: int) -> Any:
        """The next value."""
        self._values += 1
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            raise ProtocolError("a frame is nested too deep or holds too many values [MS107]")
        tag = self._number(_U8)
        read = _READERS.get(tag)
        if read is None:
            raise ProtocolError(f"a frame holds the unknown tag {tag} [MS108]")
        return read(self, depth)

    def _int(self, _: int) -> int:
        raw = self._take(self._number(U16))
        value = int.from_bytes(raw, "little", signed=True)
        if len(raw) > MAX_INT_BYTES or len(raw) != _int_size(value):
            raise ProtocolError("a frame holds an integer that is too long [MS109]")
        return value

    def _float(self, _: int) -> float:
        return float(self._number(_F64))

    def _str(self, _: int) -> str:
        return self._text(U32)

    def _bytes(self, _: int) -> bytes:
        return bytes(self._take(self._number(U32)))

    def _list(self, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(self._number(U32))]

    def _dict(self, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        for _ in range(self._number(U32)):
            key = self._text(U16)
            if key in items:
                raise ProtocolError("a frame holds the same key twice [MS110]")
            items[key] = self.value(depth + 1)
        return items

    def _array(self, _: int) -> NDArray[Any]:
        code, rank = self._take(2)
        if code >= len(_DTYPES) or rank > MAX_RANK:
            raise ProtocolError("a frame holds an array of unknown type or rank [MS111]")
        dtype = _DTYPES[code]
        shape = struct.unpack(f"<{rank}Q", self._take(8 * rank))
        _check_shape(shape, dtype.itemsize)
        padding = -self._at % ALIGN
        if padding and any(self._take(padding)):
            raise ProtocolError("a frame holds padding that is not zero [MS112]")
        raw = self._take(prod(shape) * dtype.itemsize)
        if code == _BOOL and len(raw) and np.frombuffer(raw, np.uint8).max() > 1:
            raise ProtocolError("a frame holds a truth value that is neither 0 nor 1 [MS113]")
        return np.frombuffer(raw, dtype).reshape(shape)

    def _text(self, width: struct.Struct) -> str:
        try:
            return str(self._take(self._number(width)), "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a frame holds text that is not UTF-8 [MS114]") from None

    def _number(self, width: struct.Struct) -> Any:
        at = self._at
        self._at = at + width.size
        try:
            return width.unpack_from(self._data, at)[0]
        except struct.error:
            raise ProtocolError("a frame is cut short [MS115]") from None

    def _take(self, count: int) -> memoryview:
        end = self._at + count
        if end > len(self._data):
            raise ProtocolError("a frame is cut short [MS116]")
        piece = self._data[self._at : end]
        self._at = end
        return piece


_READERS: dict[int, Callable[[FrameReader, int], Any]] = {
    _NONE: lambda reader, depth: None,
    _TRUE: lambda reader, depth: True,
    _FALSE: lambda reader, depth: False,
    _INT: FrameReader._int,
    _FLOAT: FrameReader._float,
    STR: FrameReader._str,
    _BYTES: FrameReader._bytes,
    LIST: FrameReader._list,
    DICT: FrameReader._dict,
    ARRAY: FrameReader._array,
}


@lru_cache(256)
def _array_head(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    code = DTYPE_CODES.get(dtype.newbyteorder("<"))
    if code is None:
        raise ProtocolError(f"a message cannot carry an array of {dtype} [MS117]")
    _check_shape(shape, dtype.itemsize)
    return bytes((ARRAY, code, len(shape))) + struct.pack(f"<{len(shape)}Q", *shape)


def _count(length: int) -> bytes:
    if length > MAX_VALUES:
        raise ProtocolError(f"a message holds at most {MAX_VALUES} values; send bulk data as arrays [MS118]")
    return U32.pack(length)


def _int_size(value: int) -> int:
    """How many bytes the shortest two's complement form has."""
    return (value if value >= 0 else ~value).bit_length() // 8 + 1


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ProtocolError("a message holds text that is not valid Unicode [MS119]") from None


@lru_cache(256)
def _check_shape(shape: tuple[int, ...], itemsize: int) -> None:
    # An array without elements may still have long axes; NumPy refuses it if their product is too large.
    if len(shape) > MAX_RANK or prod(max(side, 1) for side in shape) * itemsize > MAX_FRAME:
        raise ProtocolError(f"an array in a message has at most {MAX_RANK} axes and {MAX_FRAME} bytes [MS120]")


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
                return _encode_array(kind, name, array)
    writer = FrameWriter()
    writer.value(value, 0)
    return writer.finish()


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
    reader = FrameReader(view)
    value = reader.value(0)
    reader.expect_end()
    if head and known is None:
        _remember(head, value)
    return value


# Most messages are a kind and one array, and few shapes occur: the bytes before the data are made and read only once.


class _ArrayHead(NamedTuple):
    """The meaning of the bytes before the data, in a message with one array."""

    kind: str
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int


_HEADS: dict[bytes, _ArrayHead] = {}
_MOST_HEADS, _LONGEST_HEAD = 256, 256
_BEGINNING = MAGIC + bytes((LIST, 2, 0, 0, 0, STR))
_MIDDLE = bytes((DICT, 1, 0, 0, 0))


def _encode_array(kind: str, name: str, array: NDArray[Any]) -> list[bytes | memoryview]:
    """The frame of a message with one array, whose memory is sent as it is."""
    head = _head_of(kind, name, array.dtype, array.shape)
    if array.nbytes < INLINE:
        return [head + array.tobytes()]
    if len(head) + array.nbytes > MAX_FRAME:
        raise ProtocolError(f"a message has at most {MAX_FRAME} bytes; send it in blocks [MS061]")
    return [head, array.reshape(-1).view(np.uint8).data]


@lru_cache(_MOST_HEADS)
def _head_of(kind: str, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    writer = FrameWriter()
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
    _HEADS[head] = _ArrayHead(kind, name, array.dtype, array.shape, array.nbytes)


_LONGEST_KIND = 40


def check_size(size: int, kind: str, peer: str, most: int) -> None:
    """Refuse a frame that is longer than the message that is due."""
    if size > min(most, MAX_FRAME):
        raise ProtocolError(f"{peer} sent something longer than the message {kind!r} that was due can be [MS055]")


def decode_message(frame: bytes | memoryview, kind: str, peer: str) -> dict[str, Any]:
    """The fields of the message in a frame from this peer, which must be of this kind."""
    try:
        value = decode(frame)
    except ProtocolError as error:
        raise ProtocolError(f"{peer} sent something else than the message {kind!r}: {error} [MS056]") from None
    if type(value) is not list or len(value) != 2 or type(value[0]) is not str or type(value[1]) is not dict:
        raise ProtocolError(f"{peer} sent something that is not a message, and {kind!r} was due [MS057]")
    got: str = value[0]
    fields: dict[str, Any] = value[1]
    if got != kind:
        raise ProtocolError(f"expected {kind!r} from {peer}, got {sanitize(got, _LONGEST_KIND)!r} [MS058]")
    return fields
