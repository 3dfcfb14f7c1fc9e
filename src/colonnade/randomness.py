"""The one source of randomness: a stream cipher keyed by the operating system.

Shares, masks, keys, noise and rounding coins all come from a :class:`Stream`. Two holders of the same key
read the same stream, which is how a share travels as a 32-byte seed.
"""

from __future__ import annotations

import os
from math import prod

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

KEY_BYTES = 32
_CHUNK = 1 << 20
_ZEROS = memoryview(bytes(_CHUNK))


class Stream:
    """An endless stream of uniform bits: AES-256 in counter mode under one key."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a stream key has {KEY_BYTES} bytes, not {len(key)}")
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    @classmethod
    def fresh(cls) -> Stream:
        """A stream under a new key from the operating system."""
        return cls(new_key())

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        return self._fill(count).tobytes()

    def uint32(self, shape: int | tuple[int, ...]) -> NDArray[np.uint32]:
        """Uniform 32-bit integers."""
        return self._fill(4 * _size(shape)).view("<u4").reshape(shape)

    def uint64(self, shape: int | tuple[int, ...]) -> NDArray[np.uint64]:
        """Uniform 64-bit integers."""
        return self._fill(8 * _size(shape)).view("<u8").reshape(shape)

    def _fill(self, count: int) -> NDArray[np.uint8]:
        out = np.empty(count, dtype=np.uint8)
        view = out.data
        for start in range(0, count, _CHUNK):
            size = min(_CHUNK, count - start)
            self._cipher.update_into(_ZEROS[:size], view[start : start + size])
        return out


def new_key() -> bytes:
    """A fresh key from the operating system."""
    return os.urandom(KEY_BYTES)


def _size(shape: int | tuple[int, ...]) -> int:
    return shape if isinstance(shape, int) else prod(shape)
