"""Chance in a reproduction: repeatable splits of public data, and the library's own exact noise as real numbers.

Everything here is keyed by a seed that anybody may know: the data are public and nobody's privacy rests on it.
"""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from colonnade.privacy.noise import discrete_gaussian, discrete_laplace, skellam
from colonnade.randomness import Stream

Matrix = NDArray[np.float64]
Places = NDArray[np.int64]

_FINE = 2**20


def stream(seed: int, *names: object) -> Stream:
    """A stream of its own for each purpose."""
    words = " ".join(map(str, (seed, *names)))
    return Stream(hashlib.sha256(f"colonnade reproduce {words}".encode()).digest())


def split(rows: int, run: int, seed: int, train: float = 0.8) -> tuple[Places, Places]:
    """Row numbers to learn from and to test on; the same for every method of a run."""
    # A split of public data: no privacy rests on it, and a script outside this package must find the same one.
    order = np.random.default_rng([seed, run]).permutation(rows)
    cut = round(train * rows) if train < 1 else int(train)
    return np.sort(order[:cut]), np.sort(order[cut:])


def gaussian(deviation: float, shape: int | tuple[int, ...], source: Stream) -> Matrix:
    """Gaussian noise on a grid a million times finer than its deviation."""
    return np.asarray(discrete_gaussian(Fraction(_FINE**2), shape, source) * (deviation / _FINE), dtype=np.float64)


def laplace(scale: float, shape: int | tuple[int, ...], source: Stream) -> Matrix:
    """Laplace noise on a grid a million times finer than its scale."""
    return np.asarray(discrete_laplace(Fraction(_FINE), shape, source) * (scale / _FINE), dtype=np.float64)


def skellam_real(mu: float, unit: float, shape: int | tuple[int, ...], source: Stream) -> Matrix:
    """Skellam noise of parameter ``mu`` on integers, in released units of ``unit`` steps."""
    return skellam(Fraction(round(mu)), shape, source) / unit


def uniform(count: int, source: Stream) -> Matrix:
    """Numbers strictly between 0 and 1."""
    return (source.uint32(count).astype(np.float64) + 0.5) / 2**32


class Batches:
    """Poisson batches of some rounds: every row joins every batch with probability ``rate``."""

    def __init__(self, rows: int, rate: float, rounds: int, source: Stream) -> None:
        trials, places = rows * rounds, []
        expected = trials * rate
        # Gaps between successes are geometric; far fewer numbers than one a row and round.
        last, scale = -1.0, 1 / math.log1p(-rate) if rate < 1 else 0.0
        while last < trials:
            count = int(expected + 6 * math.sqrt(expected)) + 16
            gaps = np.floor(np.log(uniform(count, source)) * scale) + 1
            places.append(last + np.cumsum(gaps))
            last = float(places[-1][-1])
        joined = np.concatenate(places)
        positions = joined[joined < trials].astype(np.int64)
        self.members = positions % rows
        self.ends = np.searchsorted(positions, np.arange(1, rounds + 1) * rows)

    def __getitem__(self, index: int) -> Places:
        start = self.ends[index - 1] if index else 0
        return self.members[start : self.ends[index]]
