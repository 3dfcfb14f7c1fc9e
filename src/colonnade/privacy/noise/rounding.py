"""Rounding to integers: at random (correct on average) or by a fixed rule (errors of one sign may add up)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.randomness import Stream

RoundingMode = Literal["stochastic", "nearest", "toward-zero", "conditional"]
MODES: tuple[RoundingMode, ...] = ("stochastic", "nearest", "toward-zero", "conditional")
_CHUNK = 1 << 15
_PATIENCE = 400


def stochastic_round(values: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
    """Round each value down, or up with a probability equal to its fraction; the result is integers as float64.

    The result is always less than 1 away and an integer stays as it is: sensitivity bounds rest on that.
    The coins have 32 bits, so an average can be off by up to 2^-32, which no bound rests on.
    """
    flat = np.ascontiguousarray(values, dtype=np.float64).reshape(-1)
    out = np.empty_like(flat)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        if not np.isfinite(part).all():
            raise ValueError("a value to be rounded is not a finite number; clip the data first [VA118]")
        low = np.floor(part, out=out[start : start + _CHUNK])
        fraction = part - low
        fraction *= 2.0**32
        low += stream.uint32(part.size) < fraction
    return out.reshape(values.shape)


def bounded_round(values: NDArray[np.float64], limit: int, stream: Stream) -> NDArray[np.float64]:
    """Rows rounded by coin; only a row that its owner failed to clip is longer than ``limit`` allows, and becomes zero.

    ``limit`` bounds the squared norm of the integers themselves, so what rests on it holds whatever the rows were.
    """
    whole = stochastic_round(values, stream)
    over = np.einsum("ij,ij->i", whole, whole) > limit
    if over.any():
        whole[over] = 0.0
    return whole


def conditional_round(values: NDArray[np.float64], limit: int, stream: Stream) -> NDArray[np.float64]:
    """Rows rounded at random; each is rounded again until its squared norm is at most ``limit``.

    A row that fails 400 times is rounded toward zero. If the limit rejects a draw with a chance of at most e^-1/2, this
    has a chance below 2^-288. The row before rounding never leaves its owner.
    """
    out = stochastic_round(values, stream)
    for _ in range(_PATIENCE):
        over = beyond(out, limit)
        if not over.size:
            return out
        out[over] = stochastic_round(values[over], stream)
    over = beyond(out, limit)
    out[over] = np.trunc(values[over])
    return out


def round_rows(values: NDArray[np.float64], mode: RoundingMode, limit: int, stream: Stream) -> NDArray[np.float64]:
    """Rows of integers held as float64; ``limit`` on the squared norm is for conditional rounding only."""
    if mode == "stochastic":
        return stochastic_round(values, stream)
    if mode == "conditional":
        return conditional_round(values, limit, stream)
    if not np.isfinite(values).all():
        raise ValueError("a value to be rounded is not a finite number; clip the data first [VA119]")
    if mode not in MODES:
        raise PrivacyError(f"unknown rounding {mode!r}; choose from {', '.join(MODES)} [PR048]")
    return np.rint(values) if mode == "nearest" else np.trunc(values)


def beyond(rows: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    """Which rows of integers have a squared norm above ``limit``, exactly while that is below 2^62."""
    exact = rows.astype(np.int64)
    return np.flatnonzero(np.einsum("ij,ij->i", exact, exact) > limit)
