"""The one source of randomness: a stream cipher keyed by the operating system.

Shares, masks, keys, noise and rounding coins all come from a :class:`Stream`. Two holders of the same key
read the same stream, which is how a share travels as a 32-byte seed.
"""

from __future__ import annotations

import os
from math import prod
from typing import Any, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

KEY_BYTES = 32
_CHUNK = 1 << 20
_AHEAD = 1 << 14
_FIRST = 1 << 11
"""Bytes drawn ahead: few at first, as many streams are read once, then twice as many each time, up to the most."""
_FROM_ZERO = modes.CTR(bytes(16))
_ZEROS = memoryview(bytes(_CHUNK))
_NOTHING = np.empty(0, dtype=np.uint8)


class Stream:
    """An endless stream of uniform bits: AES-256 in counter mode under one key."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a stream key has {KEY_BYTES} bytes, not {len(key)} [VA155]")
        self._cipher = Cipher(algorithms.AES(key), _FROM_ZERO).encryptor()
        self._ahead, self._at, self._reach = _NOTHING, 0, _FIRST

    @classmethod
    def fresh(cls) -> Stream:
        """A stream under a new key from the operating system."""
        return cls(new_key())

    def __reduce__(self) -> NoReturn:
        """Refused: a copy would give the same bits again, and one in another process would leave this one with them."""
        raise TypeError("a stream of random bits is neither copied nor sent: draw a new key where it is needed [VA156]")

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        return self._fill(count).tobytes()

    def uint32(self, shape: int | tuple[int, ...]) -> NDArray[np.uint32]:
        """Uniform 32-bit integers."""
        return self._fill(4 * _size(shape)).view("<u4").reshape(shape)

    def uint64(self, shape: int | tuple[int, ...]) -> NDArray[np.uint64]:
        """Uniform 64-bit integers."""
        return self._fill(8 * _size(shape)).view("<u8").reshape(shape)

    def into(self, out: NDArray[np.integer[Any]]) -> None:
        """Write the next bits over an array without gaps: new memory for them would take longer than they do."""
        flat = out.view(np.uint8)
        held = self._ahead.size - self._at
        if flat.size - held <= _AHEAD // 2:
            flat[:] = self._fill(flat.size)
        else:
            flat[:held] = self._ahead[self._at :]
            self._at = self._ahead.size
            self._encrypt(flat[held:])

    def _fill(self, count: int) -> NDArray[np.uint8]:
        """The next bytes, in memory that nobody else is given."""
        start = self._at
        self._at += count
        if self._at <= self._ahead.size:
            return self._ahead[start : self._at]
        left = self._ahead[start:]
        missing = count - left.size
        # A call of the cipher costs more than a few bytes do, so small draws share one.
        fresh = np.empty(max(self._reach, missing) if missing <= _AHEAD // 2 else missing, dtype=np.uint8)
        self._reach = min(2 * self._reach, _AHEAD)
        self._encrypt(fresh)
        self._ahead, self._at = fresh, missing
        return np.concatenate((left, fresh[:missing])) if left.size else fresh[:missing]

    def _encrypt(self, out: NDArray[np.uint8]) -> None:
        view = out.data
        for begin in range(0, out.size, _CHUNK):
            size = min(_CHUNK, out.size - begin)
            self._cipher.update_into(_ZEROS[:size], view[begin : begin + size])


def new_key() -> bytes:
    """A fresh key from the operating system."""
    return os.urandom(KEY_BYTES)


def _size(shape: int | tuple[int, ...]) -> int:
    return shape if isinstance(shape, int) else prod(shape)
