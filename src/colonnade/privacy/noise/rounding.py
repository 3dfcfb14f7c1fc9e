"""Rounding by coin: each number goes to one of its two neighbouring integers, right on average."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.randomness import Stream

_CHUNK = 1 << 15


def stochastic_round(values: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
    """Round down, or up with probability the fraction; the result is integers held as float64.

    The result is always less than 1 away and an integer stays as it is: sensitivity bounds rest on that.
    The coins have 32 bits, so an average can be off by up to 2^-32, which no bound rests on.
    """
    flat = np.ascontiguousarray(values, dtype=np.float64).reshape(-1)
    out = np.empty_like(flat)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        if not np.isfinite(part).all():
            raise ValueError("a value to be rounded is not a finite number; clip the data first")
        low = np.floor(part, out=out[start : start + _CHUNK])
        fraction = part - low
        fraction *= 2.0**32
        low += stream.uint32(part.size) < fraction
    return out.reshape(values.shape)
