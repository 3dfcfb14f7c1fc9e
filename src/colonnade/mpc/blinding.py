"""Keys hidden in a group of prime order: the points of Curve25519 up to their sign, on all processors.

An element is the u-coordinate of a point in the subgroup of prime order, 32 bytes. libsodium multiplies it with a
secret scalar in constant time by X25519, whose scalars are multiples of the cofactor. What a peer sends must be the
coordinate of a point of the curve, not of its twist and not of small order; then the product is in the subgroup. Up to
its sign, every scalar has a form that X25519 takes (docs/theory/alignment.md, section 1). This module spreads the
operations over threads; libsodium runs without the interpreter's lock.
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

from colonnade.errors import EngineError, ProtocolError
from colonnade.lazy import LazyModule
from colonnade.randomness import Stream

POINT_BYTES = 32
SECONDS_PER_PRODUCT = 0.15e-3
"""Time on one core of an ordinary server, for forecasts; so is the next."""
SECONDS_PER_HASH = 0.08e-3

GroupPoints = NDArray[np.uint8]

FIELD = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
_DOMAIN = b"colonnade keys to curve25519, version 2:"
flint = LazyModule("flint")
_PIECE = 128  # operations that a thread does at a time
_POINT_OUTSIDE_SUBGROUP = bytes.fromhex("95" + 31 * "99")
"""The base point of Ed25519 plus the point of order two: on the curve, and not in the subgroup."""


class BlindingScalar:
    """A secret scalar that multiplies any number of group elements."""

    def __init__(self, scalar: bytes) -> None:
        self._scalar = scalar

    @classmethod
    def generate(cls, stream: Stream) -> BlindingScalar:
        """A blind with a uniform scalar from this stream."""
        return cls(random_scalar(stream))

    def multiply(self, points: GroupPoints, source: str | None = None) -> GroupPoints:
        """Every point times the scalar; points that a peer sent, the ``source``, are checked, and an error names it."""
        return _multiply_points([_for_x25519(self._scalar)] * len(points), points, source)


class BlindingScalars:
    """A secret scalar of its own for each of several group elements; the inverses show the elements again."""

    def __init__(self, scalars: Sequence[bytes]) -> None:
        self._scalars = scalars

    @classmethod
    def generate(cls, count: int, stream: Stream) -> BlindingScalars:
        """So many blinds with uniform scalars from this stream."""
        return cls([random_scalar(stream) for _ in range(count)])

    def inverse(self) -> BlindingScalars:
        """The blinds that undo these; the inverse of the product of all gives each, at three products a scalar."""
        if not self._scalars:
            return self
        product = sodium().crypto_core_ed25519_scalar_mul
        before = list(accumulate(self._scalars, product))
        left, found = sodium().crypto_core_ed25519_scalar_invert(before[-1]), [b""] * len(before)
        for place in range(len(before) - 1, 0, -1):
            found[place] = product(left, before[place - 1])
            left = product(left, self._scalars[place])
        found[0] = left
        return BlindingScalars(found)

    def compose(self, other: BlindingScalar) -> BlindingScalars:
        """Blinds that do what these and then the other do."""
        multiplied = sodium().crypto_core_ed25519_scalar_mul
        return BlindingScalars([multiplied(scalar, other._scalar) for scalar in self._scalars])

    def multiply(self, points: GroupPoints, source: str | None = None) -> GroupPoints:
        """Every point times its own scalar; points of a ``source`` are checked as above."""
        return _multiply_points([_for_x25519(scalar) for scalar in self._scalars], points, source)


def random_scalar(stream: Stream) -> bytes:
    """A uniform scalar from this stream."""
    found: bytes = sodium().crypto_core_ed25519_scalar_reduce(stream.bytes(64))
    return found


def _for_x25519(scalar: bytes) -> bytes:
    """The scalar or its negative as a multiple of 8 between 2^254 and 2^255, which is what X25519 multiplies by.

    One of the two has such a form: the order is 5 modulo 8, and of eight numbers that differ by multiples of it, four
    are in that range. (At the upper end it misses 2^128 of the 2^252 scalars.)
    """
    number = int.from_bytes(scalar, "little")
    times = -number * 5 % 8
    if times < 4:
        number, times = ORDER - number, 7 - times
    return (number + times * ORDER).to_bytes(POINT_BYTES, "little")


def _multiply_points(scalars: Sequence[bytes], points: GroupPoints, source: str | None) -> GroupPoints:
    # The library reads 32 bytes wherever they end, and takes a number that is too large for its remainder.
    if points.shape[1:] != (POINT_BYTES,) or not _is_canonical(points).all():
        raise _no_element(source)
    product, flat = sodium().crypto_scalarmult, np.ascontiguousarray(points).tobytes()

    def at(place: int) -> bytes:
        point = flat[place * POINT_BYTES : (place + 1) * POINT_BYTES]
        if source is not None and _is_on_twist(point):
            raise _no_element(source)
        try:
            found: bytes = product(scalars[place], point)
        except RuntimeError:  # of small order
            raise _no_element(source) from None
        return found

    return map_points(at, range(len(points)))


def _no_element(source: str | None) -> ProtocolError:
    sender = source or "this participant"
    return ProtocolError(f"{sender} sent something else than elements of the group [MS001]")


def _is_on_twist(point: bytes) -> bool:
    """Whether no point of the curve has this coordinate: u^3 + 486662 u^2 + u is no square."""
    u = int.from_bytes(point, "little")
    return bool(flint.fmpz((u * u + 486662 * u + 1) * u % FIELD).jacobi(FIELD) < 0)


def _is_canonical(points: GroupPoints) -> NDArray[np.bool_]:
    """Which of them are numbers below that of the field."""
    words = np.ascontiguousarray(points).view("<u8")
    most = np.array([FIELD >> (64 * place) & (2**64 - 1) for place in range(4)], dtype=np.uint64)
    middle = (words[:, 1:3] != most[1:3]).any(axis=1)
    found: NDArray[np.bool_] = (words[:, 3] < most[3]) | ((words[:, 3] == most[3]) & (middle | (words[:, 0] < most[0])))
    return found


def hash_to_group(keys: Sequence[bytes]) -> GroupPoints:
    """For every key an element of the group, whose logarithm nobody knows."""
    to_group = sodium().crypto_core_ed25519_from_uniform

    def piece(start: int) -> bytes:
        digests = (hashlib.sha512(_DOMAIN + key).digest() for key in keys[start : start + _PIECE])
        return to_elements([to_group(digest[:POINT_BYTES]) for digest in digests])

    return _run_pieces(piece, len(keys))


def to_elements(points: Sequence[bytes]) -> bytes:
    """Points of Ed25519, none of them neutral, as elements: u = (1 + y) / (1 - y)."""
    ys = [int.from_bytes(point, "little") & (2**255 - 1) for point in points]
    before = list(accumulate((1 - y for y in ys), lambda one, other: one * other % FIELD, initial=1))
    left, found = pow(before[-1], -1, FIELD), [b""] * len(ys)
    for place in range(len(ys) - 1, -1, -1):
        u = (1 + ys[place]) * left * before[place] % FIELD
        found[place] = u.to_bytes(POINT_BYTES, "little")
        left = left * (1 - ys[place]) % FIELD
    return b"".join(found)


def processor_count() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_points(operation: Callable[..., bytes], items: Sequence[bytes] | range) -> GroupPoints:
    """The results of an operation on every item, computed on all processors."""

    def piece(start: int) -> bytes:
        return b"".join([operation(item) for item in items[start : start + _PIECE]])

    return _run_pieces(piece, len(items))


def _run_pieces(piece: Callable[[int], bytes], count: int) -> GroupPoints:
    done = b"".join(_pool().map(piece, range(0, count, _PIECE)))
    return np.frombuffer(done, np.uint8).reshape(count, POINT_BYTES)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(processor_count(), thread_name_prefix="blinding")


@cache
def sodium() -> ModuleType:
    """libsodium, which every operation on points goes through; not loaded before it is needed."""
    from nacl import bindings

    lacking = not (bindings.has_crypto_core_ed25519 and bindings.has_crypto_scalarmult_ed25519)
    if lacking or bindings.crypto_core_ed25519_is_valid_point(_POINT_OUTSIDE_SUBGROUP):  # CVE-2025-69277
        raise EngineError(
            "the libsodium that PyNaCl uses here cannot tell which points are in the group: install PyNaCl 1.6.2 or "
            "later from its wheel [EN030]"
        )
    return bindings
