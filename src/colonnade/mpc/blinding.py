"""Keys hidden in a group of prime order: ristretto255 of libsodium, on all processors.

libsodium does every operation: it maps hashes to the group (RFC 9496), multiplies with a secret scalar in constant
time, and inverts scalars. This module only spreads the operations over threads; libsodium runs without the
interpreter's lock.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import accumulate
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.randomness import Stream

POINT_BYTES = 32
SECONDS_PER_PRODUCT = 0.19e-3
"""Time on one core of an ordinary server, for forecasts; so is the next."""
SECONDS_PER_HASH = 0.05e-3

Points = NDArray[np.uint8]

_DOMAIN = b"colonnade keys to ristretto255, version 1:"
_HASH_BYTES = 64
_PIECE = 128  # operations that a thread does at a time


class Blind:
    """A secret scalar that multiplies any number of group elements."""

    def __init__(self, scalar: bytes) -> None:
        self._scalar = scalar

    @classmethod
    def fresh(cls, stream: Stream) -> Blind:
        """A blind with a uniform scalar from this stream."""
        return cls(sodium().crypto_core_ristretto255_scalar_reduce(stream.bytes(_HASH_BYTES)))

    def on(self, points: Points, source: str = "this participant") -> Points:
        """Every point times the scalar; an error names ``source`` if something is not a point."""
        return _products([self._scalar] * len(points), points, source)

    def __repr__(self) -> str:
        return "Blind(...)"


class Blinds:
    """A secret scalar of its own for each of several group elements; the inverses show the elements again."""

    def __init__(self, scalars: Sequence[bytes]) -> None:
        self._scalars = scalars

    @classmethod
    def fresh(cls, count: int, stream: Stream) -> Blinds:
        """So many blinds with uniform scalars from this stream."""
        reduced = sodium().crypto_core_ristretto255_scalar_reduce
        return cls([reduced(stream.bytes(_HASH_BYTES)) for _ in range(count)])

    def inverse(self) -> Blinds:
        """The blinds that undo these; the inverse of the product of all gives each, at three products a scalar."""
        if not self._scalars:
            return self
        product = sodium().crypto_core_ristretto255_scalar_mul
        before = list(accumulate(self._scalars, product))
        left, found = sodium().crypto_core_ristretto255_scalar_invert(before[-1]), [b""] * len(before)
        for place in range(len(before) - 1, 0, -1):
            found[place] = product(left, before[place - 1])
            left = product(left, self._scalars[place])
        found[0] = left
        return Blinds(found)

    def times(self, other: Blind) -> Blinds:
        """Blinds that do what these and then the other do."""
        multiplied = sodium().crypto_core_ristretto255_scalar_mul
        return Blinds([multiplied(scalar, other._scalar) for scalar in self._scalars])

    def on(self, points: Points, source: str = "this participant") -> Points:
        """Every point times its own scalar; an error names ``source`` if something is not a point."""
        return _products(self._scalars, points, source)

    def __repr__(self) -> str:
        return "Blinds(...)"


def _products(scalars: Sequence[bytes], points: Points, source: str) -> Points:
    product = sodium().crypto_scalarmult_ristretto255
    flat = np.ascontiguousarray(points).tobytes()

    def at(place: int) -> bytes:
        found: bytes = product(scalars[place], flat[place * POINT_BYTES : (place + 1) * POINT_BYTES])
        return found

    try:
        return spread(at, range(len(points)))
    except RuntimeError:
        raise ProtocolError(f"{source} sent something else than elements of the group [MS001]") from None


def hashed(keys: Sequence[bytes]) -> Points:
    """For every key an element of the group, whose logarithm nobody knows."""
    to_group = sodium().crypto_core_ristretto255_from_hash
    return spread(lambda key: to_group(hashlib.sha512(_DOMAIN + key).digest()), keys)


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(operation: Callable[..., bytes], items: Sequence[bytes] | range) -> Points:
    """The results of an operation on every item, computed on all processors."""

    def piece(start: int) -> bytes:
        return b"".join([operation(item) for item in items[start : start + _PIECE]])

    done = b"".join(_pool().map(piece, range(0, len(items), _PIECE)))
    return np.frombuffer(done, np.uint8).reshape(len(items), POINT_BYTES)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(processors(), thread_name_prefix="blinding")


@cache
def sodium() -> ModuleType:
    """The library, which every operation in the group goes through."""
    from colonnade.mpc.sodium import LIBRARY  # not before it is needed: it unpacks its own copy of libsodium

    return LIBRARY
