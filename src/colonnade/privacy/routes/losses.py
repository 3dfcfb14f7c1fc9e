"""Privacy loss distributions: the losses of all rounds added up, on a grid, by fast Fourier transforms.

The losses are tilted first (each mass is multiplied by e^(tilt loss)), so that the transform is accurate where
delta is read off. ``docs/theory/privacy-loss-distributions.md`` bounds all errors; they are added to the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.privacy.routes.rounds import LOSS_ERROR, UNIT, Masses, Rounds, ends_of, nodes, one_round

Array = NDArray[np.float64]

CELLS = 1 << 16
_ROUGH = 1 << 13
MOST_ROUNDS = 1 << 36  # beyond, the errors of the transform are no longer bounded by what is added
_WIDEST = 600.0  # losses; beyond, e^loss comes near what a float can hold
_LOST = 1e-9
_FAINT = math.log(1e-15)
_PLAIN = 1e-9
_NEGLIGIBLE = 1e-2
_SUMS = 4 * CELLS * UNIT  # relative error of two running sums
_ALIKE = math.log(30)
_TILTS = np.geomspace(1e-3, 1e4, 64)


class LossDistribution:
    """The profile of rounds that are composed: the larger of adding and removing a person."""

    name = "privacy loss distribution"

    def __init__(self, rounds: Sequence[Rounds]) -> None:
        self.too_many = sum(part.times for part in rounds) > MOST_ROUNDS
        lopsided = any(part.rate < 1 and not part.known for part in rounds)
        self.sides = [_Side(rounds, side) for side in ((False, True) if lopsided else (False,))]

    def epsilon(self, delta: float) -> float:
        """The least epsilon at ``delta``."""
        if self.too_many:
            return math.inf
        first, *rest = self.sides
        found = first.epsilon(delta)
        return max([found, *(side.epsilon(delta) for side in rest if not side.covers(found, delta))])

    def deltas(self, epsilons: Array) -> Array:
        """Delta at many epsilons."""
        if self.too_many:
            return np.ones_like(epsilons)
        return np.asarray(np.max([side.deltas(epsilons) for side in self.sides], axis=0))


@dataclass(frozen=True)
class _Sum:
    """The composed losses above some point: values, masses, and the part of delta that is always added."""

    values: Array
    masses: Array
    always: float
    log_fuzz: float  # errors of the transform at values above v add up to at most e^(log_fuzz - tilt v)
    tilt: float
    shift: float

    @cached_property
    def _above(self) -> tuple[Array, Array]:
        """Mass under either law at and above each value."""
        both = (self.masses, self.masses * np.exp(-self.values))
        above, scaled = (np.append(np.cumsum(masses[::-1])[::-1], 0.0) for masses in both)
        return above, scaled

    def deltas(self, epsilons: Array) -> Array:
        eps = epsilons - self.shift
        above, scaled = self._above
        place = np.searchsorted(self.values, eps, side="right")
        found = above[place] * (1 + _SUMS) - np.exp(np.minimum(eps, _WIDEST)) * scaled[place]
        return np.asarray(np.maximum(found, 0.0) + self.always + np.exp(np.minimum(self.log_fuzz - self.tilt * eps, 0)))

    def blur(self, epsilon: float) -> float:
        """How much of delta at ``epsilon`` may be error of the transform."""
        return math.exp(min(0.0, self.log_fuzz - self.tilt * (epsilon - self.shift)))

    def epsilon(self, delta: float) -> float:
        low, high = 0.0, float(self.values[-1]) + self.shift
        if self.deltas(np.array([high]))[0] > delta:
            return math.inf
        if self.deltas(np.array([low]))[0] <= delta:
            return 0.0
        while high - low > 1e-10 * high:  # delta falls with epsilon
            middle = (low + high) / 2
            good = self.deltas(np.array([middle]))[0] <= delta
            low, high = (low, middle) if good else (middle, high)
        return high


class _Side:
    """One direction: a person is removed, or (``added``) the same pair of tables in reverse."""

    def __init__(self, rounds: Sequence[Rounds], added: bool) -> None:
        self.rounds, self.added = rounds, added
        self.total = sum(part.times for part in rounds)
        self._kept: list[tuple[float, _Sum]] = []

    def epsilon(self, delta: float) -> float:
        if math.isinf(self._support[1]):
            return math.inf
        for kept, composed in self._kept:
            if abs(math.log(kept / delta)) < _ALIKE:
                return composed.epsilon(delta)
        found, at = math.inf, float(np.min((self._grown - math.log(delta)) / _TILTS))
        for _ in range(3):
            # The transform is accurate in absolute terms; tilted, it is so relative to delta at one epsilon.
            composed = self._composed(_best(self._grown - _TILTS * at)[0], delta)
            found = composed.epsilon(delta)
            if found < math.inf and composed.blur(found) <= _NEGLIGIBLE * delta:
                break
            at = min(found, 0.8 * at)
        else:
            composed = min(composed, self._plain, key=lambda one: one.epsilon(delta))
        self._kept.append((delta, composed))
        return composed.epsilon(delta)

    def covers(self, epsilon: float, delta: float) -> bool:
        """Whether a rough grid already shows that delta is not exceeded at ``epsilon``."""
        if math.isinf(self._support[1]) or math.isinf(epsilon):
            return False
        tilt, _ = _best(self._grown - _TILTS * epsilon)
        return bool(self._composed(tilt, delta, _ROUGH).deltas(np.array([epsilon]))[0] <= delta)

    @cached_property
    def _plain(self) -> _Sum:
        return self._composed(float(_TILTS[0]), _PLAIN)

    def deltas(self, epsilons: Array) -> Array:
        if math.isinf(self._support[1]):
            return np.ones_like(epsilons)
        found = self._plain.deltas(epsilons)
        order = np.argsort(epsilons)
        for few in np.array_split(order, max(1, len(order) // 8)):
            tilt, _ = _best(self._grown - _TILTS * np.median(epsilons[few]))
            least = _best(self._grown - _TILTS * np.max(epsilons[few]))[1]
            close = self._composed(tilt, math.exp(min(0.0, least))).deltas(epsilons[few])
            found[few] = np.minimum(found[few], close)
        return np.minimum(found, 1.0)

    @cached_property
    def _support(self) -> tuple[float, float]:
        ends = [ends_of(part, self.added) for part in self.rounds]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        return low, high if high < _WIDEST else math.inf

    @cached_property
    def _nodes(self) -> list[tuple[int, Array, Array]]:
        return [(part.times, *nodes(part, self.added)) for part in self.rounds]

    def _growth(self, tilts: Array) -> Array:
        """Logarithm of the moment generating function of all losses, near enough to choose a tilt and a window."""
        found = np.zeros_like(tilts)
        for times, losses, logs in self._nodes:
            found += times * _log_sum(logs[:, None] + np.multiply.outer(losses, tilts))
        return found

    @cached_property
    def _grown(self) -> Array:
        return self._growth(_TILTS)

    def _composed(self, tilt: float, delta: float, cells: int = CELLS) -> _Sum:
        tilt, low, high, steepest = self._window(tilt, delta)
        step = (high - low) / (cells - 8)
        start = math.floor(low / step)
        values = (start + np.arange(cells, dtype=np.float64)) * step
        spectrum, offset, last = np.ones(cells // 2 + 1, dtype=np.complex128), 0, 0
        log_scale = log_lost = infinite = 0.0
        for part in self.rounds:
            one = one_round(part, self.added, step, (start, start + cells - 1))
            with np.errstate(divide="ignore"):
                logs = np.log(one.masses) + tilt * step * (one.first + np.arange(len(one.masses)))
            scale = float(_log_sum(logs))
            spectrum *= np.fft.rfft(np.exp(logs - scale), cells) ** part.times
            log_scale += part.times * scale
            log_lost += part.times * float(_log_moments(one, step, np.array([steepest]))[0])
            infinite += part.times * one.infinite
            offset += part.times * one.first
            last += part.times * (one.first + len(one.masses) - 1)
        tilted = np.roll(np.fft.irfft(spectrum, cells), (offset - start) % cells)
        shift = self.total * LOSS_ERROR
        used = values > -shift
        with np.errstate(divide="ignore"):
            logs = np.log(np.maximum(tilted[used], 0.0)) + log_scale - tilt * values[used]
        # What left the window at its top.
        above = math.exp(min(0.0, log_lost - steepest * float(values[-1]))) if last >= start + cells else 0.0
        error = 16 * UNIT * self.total * math.log2(cells) * math.sqrt(cells)
        # The tilted masses are right to 2^-42 each, and a sum of rounds is a product of them.
        masses = np.exp(np.minimum(logs, 0.0)) * math.exp(self.total * 2.0**-42)
        return _Sum(values[used], masses, infinite + above, math.log(error) + log_scale, tilt, shift)

    def _window(self, tilt: float, delta: float) -> tuple[float, float, float, float]:
        """A tilt, where the tilted losses lie up to a part that does not matter, and a tilt that bounds the rest.

        The best tilt may depend on losses that almost never occur; then a smaller one keeps the window small.
        """
        floor, limit = (end * self.total for end in self._support)
        tops = (self._grown - math.log(max(delta * _LOST, 1e-300))) / _TILTS
        best = int(np.argmin(tops))
        for _ in range(40):
            here = float(self._growth(np.array([tilt]))[0])
            reach = float(np.min((self._growth(tilt + _TILTS) - here - _FAINT) / _TILTS))
            if min(reach, limit) <= 1.25 * float(tops[best]):
                break
            tilt *= 0.7
        low = float(np.max((_FAINT - self._growth(tilt - _TILTS) + here) / _TILTS))
        high = min(max(float(tops[best]), reach), limit)
        return tilt, min(max(low, floor), 0.0), max(high, 1e-9), float(_TILTS[best])


def _best(costs: Array) -> tuple[float, float]:
    """The tilt of the least cost, and that cost."""
    best = int(np.argmin(costs))
    return float(_TILTS[best]), float(costs[best])


def _log_sum(logs: Array) -> Array:
    top = np.max(logs, axis=0)
    return np.asarray(np.log(np.sum(np.exp(logs - top), axis=0)) + top)


def _log_moments(one: Masses, step: float, tilts: Array) -> Array:
    values = (one.first + np.arange(len(one.masses))) * step
    with np.errstate(divide="ignore"):
        return _log_sum(np.log(one.masses)[:, None] + np.multiply.outer(values, tilts))
