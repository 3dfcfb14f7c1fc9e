"""Typed binary frames: what one participant may say to another.

A frame is two bytes of magic and version and then one value. Every value starts with a one-byte tag;
lengths are little endian. Array data starts at a multiple of eight bytes so that it can be used in place.
Decoding builds nothing that the frame does not hold, and fails with :class:`ProtocolError` only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError

Value: TypeAlias = "bool | int | float | str | bytes | list[Value] | dict[str, Value] | NDArray[np.generic] | None"

MAX_FRAME = 1 << 28
MAX_DEPTH = 16
MAX_VALUES = 1 << 20
MAX_INT_BYTES = 256
MAX_RANK = 8

_MAGIC = b"\xc0\x01"
_ALIGN = 8
_ZEROS = bytes(_ALIGN)
_INLINE = 1 << 12

_U8, _U16, _U32, _F64 = struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<d")
_NONE, _TRUE, _FALSE, _INT, _FLOAT, _STR, _BYTES, _LIST, _DICT, _ARRAY = b"NTFIDSBLMA"

_SCALARS = (np.bool_, np.integer, np.floating)
_RAW = (bytes, bytearray, memoryview)
_DTYPES = [np.dtype(code) for code in ("?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f4", "<f8")]
_DTYPE_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}


def encode(value: Any) -> bytes:
    """One frame that holds ``value``."""
    return b"".join(encode_parts(value))


def encode_parts(value: Any) -> list[bytes | memoryview]:
    """The frame in pieces; large arrays and byte strings are views of the originals, not copies."""
    writer = _Writer()
    writer.value(value, 0)
    return writer.finish()


def decode(data: bytes | bytearray | memoryview) -> Any:
    """The value in a frame. Arrays are read-only views of ``data``."""
    view = memoryview(data)
    if view.nbytes > MAX_FRAME:
        raise ProtocolError(f"a frame of {view.nbytes} bytes is larger than the limit of {MAX_FRAME}")
    reader = _Reader(view.cast("B").toreadonly())
    value = reader.value(0)
    reader.expect_end()
    return value


class _Writer:
    def __init__(self) -> None:
        self._parts: list[bytes | memoryview] = []
        self._small = bytearray(_MAGIC)
        self._flushed = 0
        self._values = 0

    def finish(self) -> list[bytes | memoryview]:
        self._flush()
        return self._parts

    def value(self, value: Any, depth: int) -> None:
        self._values += 1
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            raise ProtocolError(
                f"a message nests at most {MAX_DEPTH} deep and holds at most {MAX_VALUES} values; "
                "send bulk data as arrays"
            )
        if isinstance(value, _SCALARS):
            value = value.item()
        if value is None:
            self._small.append(_NONE)
        elif isinstance(value, bool):
            self._small.append(_TRUE if value else _FALSE)
        elif isinstance(value, int):
            self._int(value)
        elif isinstance(value, float):
            self._small.append(_FLOAT)
            self._small += _F64.pack(value)
        elif isinstance(value, str):
            self._small.append(_STR)
            self._sized(_utf8(value), _U32)
        elif isinstance(value, _RAW):
            self._small.append(_BYTES)
            self._sized(value, _U32)
        elif isinstance(value, list):
            self._list(value, depth)
        elif isinstance(value, dict):
            self._dict(value, depth)
        elif isinstance(value, np.ndarray):
            self._array(value)
        else:
            raise ProtocolError(f"a message cannot carry a {type(value).__name__}")

    def _int(self, value: int) -> None:
        raw = value.to_bytes(_int_size(value), "little", signed=True)
        if len(raw) > MAX_INT_BYTES:
            raise ProtocolError(f"an integer in a message has at most {MAX_INT_BYTES} bytes, not {len(raw)}")
        self._small.append(_INT)
        self._sized(raw, _U16)

    def _list(self, items: list[Any], depth: int) -> None:
        self._small.append(_LIST)
        self._small += _count(len(items))
        for item in items:
            self.value(item, depth + 1)

    def _dict(self, items: Mapping[Any, Any], depth: int) -> None:
        self._small.append(_DICT)
        self._small += _count(len(items))
        for key, item in items.items():
            if not isinstance(key, str):
                raise ProtocolError(f"keys in a message are strings, not {type(key).__name__}")
            raw = _utf8(key)
            if len(raw) > 0xFFFF:
                raise ProtocolError("a key in a message is too long")
            self._sized(raw, _U16)
            self.value(item, depth + 1)

    def _array(self, array: NDArray[Any]) -> None:
        # A masked array would quietly send what its mask hides.
        if type(array) not in (np.ndarray, np.memmap):
            raise ProtocolError(f"a message carries plain arrays, not {type(array).__name__}")
        code = _DTYPE_CODES.get(array.dtype.newbyteorder("<"))
        if code is None:
            raise ProtocolError(f"a message cannot carry an array of {array.dtype}")
        _check_shape(array.shape, array.dtype.itemsize)
        self._small.append(_ARRAY)
        self._small += bytes((code, array.ndim))
        self._small += struct.pack(f"<{array.ndim}Q", *array.shape)
        self._small += _ZEROS[: -(self._flushed + len(self._small)) % _ALIGN]
        plain = np.asarray(array, dtype=_DTYPES[code], order="C")
        self._raw(plain.reshape(-1).view(np.uint8).data)

    def _sized(self, raw: bytes | bytearray | memoryview, width: struct.Struct) -> None:
        view = memoryview(raw)
        if view.nbytes > MAX_FRAME:
            raise ProtocolError(f"a message has at most {MAX_FRAME} bytes, not {view.nbytes}")
        self._small += width.pack(view.nbytes)
        self._raw(view)

    def _raw(self, view: memoryview) -> None:
        if view.nbytes < _INLINE or not view.c_contiguous:
            self._small += view
        else:
            self._flush()
            self._flushed += view.nbytes
            self._parts.append(view.cast("B"))
        if self._flushed + len(self._small) > MAX_FRAME:
            raise ProtocolError(f"a message has at most {MAX_FRAME} bytes; send it in blocks")

    def _flush(self) -> None:
        if self._small:
            self._flushed += len(self._small)
            self._parts.append(bytes(self._small))
            self._small.clear()


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0
        self._values = 0
        if bytes(self._take(len(_MAGIC))) != _MAGIC:
            raise ProtocolError("this is not a frame of this version")

    def expect_end(self) -> None:
        if self._at != len(self._data):
            raise ProtocolError(f"a frame has {len(self._data) - self._at} bytes after its end")

    def value(self, depth: int) -> Any:
        self._values += 1
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            raise ProtocolError("a frame is nested too deep or holds too many values")
        tag = self._take(1)[0]
        read = _READERS.get(tag)
        if read is None:
            raise ProtocolError(f"a frame holds the unknown tag {tag}")
        return read(self, depth)

    def _int(self, _: int) -> int:
        raw = self._take(self._number(_U16))
        value = int.from_bytes(raw, "little", signed=True)
        if len(raw) > MAX_INT_BYTES or len(raw) != _int_size(value):
            raise ProtocolError("a frame holds an integer that is too long")
        return value

    def _float(self, _: int) -> float:
        return float(_F64.unpack(self._take(8))[0])

    def _str(self, _: int) -> str:
        return self._text(_U32)

    def _bytes(self, _: int) -> bytes:
        return bytes(self._take(self._number(_U32)))

    def _list(self, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(self._number(_U32))]

    def _dict(self, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        for _ in range(self._number(_U32)):
            key = self._text(_U16)
            if key in items:
                raise ProtocolError("a frame holds the same key twice")
            items[key] = self.value(depth + 1)
        return items

    def _array(self, _: int) -> NDArray[Any]:
        code, rank = self._take(2)
        if code >= len(_DTYPES) or rank > MAX_RANK:
            raise ProtocolError("a frame holds an array of unknown type or rank")
        dtype = _DTYPES[code]
        shape = struct.unpack(f"<{rank}Q", self._take(8 * rank))
        _check_shape(shape, dtype.itemsize)
        if any(self._take(-self._at % _ALIGN)):
            raise ProtocolError("a frame holds padding that is not zero")
        raw = self._take(prod(shape) * dtype.itemsize)
        if dtype == np.bool_ and len(raw) and np.frombuffer(raw, np.uint8).max() > 1:
            raise ProtocolError("a frame holds a truth value that is neither 0 nor 1")
        return np.frombuffer(raw, dtype).reshape(shape)

    def _text(self, width: struct.Struct) -> str:
        try:
            return str(self._take(self._number(width)), "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a frame holds text that is not UTF-8") from None

    def _number(self, width: struct.Struct) -> int:
        return int(width.unpack(self._take(width.size))[0])

    def _take(self, count: int) -> memoryview:
        end = self._at + count
        if end > len(self._data):
            raise ProtocolError("a frame is cut short")
        piece = self._data[self._at : end]
        self._at = end
        return piece


_READERS: dict[int, Callable[[_Reader, int], Any]] = {
    _NONE: lambda reader, depth: None,
    _TRUE: lambda reader, depth: True,
    _FALSE: lambda reader, depth: False,
    _INT: _Reader._int,
    _FLOAT: _Reader._float,
    _STR: _Reader._str,
    _BYTES: _Reader._bytes,
    _LIST: _Reader._list,
    _DICT: _Reader._dict,
    _ARRAY: _Reader._array,
}


def _count(length: int) -> bytes:
    if length > MAX_VALUES:
        raise ProtocolError(f"a message holds at most {MAX_VALUES} values; send bulk data as arrays")
    return _U32.pack(length)


def _int_size(value: int) -> int:
    """Bytes of the shortest two's complement form."""
    return (value if value >= 0 else ~value).bit_length() // 8 + 1


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ProtocolError("a message holds text that is not valid Unicode") from None


def _check_shape(shape: tuple[int, ...], itemsize: int) -> None:
    # Zero-size arrays may still have long axes, and NumPy refuses those whose other axes overflow.
    if len(shape) > MAX_RANK or prod(max(side, 1) for side in shape) * itemsize > MAX_FRAME:
        raise ProtocolError(f"an array in a message has at most {MAX_RANK} axes and {MAX_FRAME} bytes")
