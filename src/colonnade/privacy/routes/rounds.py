"""One round's privacy loss on a grid: each piece between two grid points is pushed to its two ends.

That keeps the mass under both laws and only makes the two tables easier to tell apart.
``docs/theory/privacy-loss-distributions.md`` proves it, and that each rounding here goes the safe way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.privacy.routes import special

Array = NDArray[np.float64]

UNIT = 2.0**-53
LOSS_ERROR = 2.0**-40
"""Error of one round's loss in float64, at most."""
_REACH = 11.0  # deviations; the mass beyond is below 2^-90 and goes to infinity or to the lowest point
_NODES = 301


@dataclass(frozen=True)
class Rounds:
    """``times`` equal rounds: a Gaussian release of sensitivity ``mu`` deviations, or one of pure epsilon.

    ``rate`` is the chance that a person is in a round's batch, ``known`` whether the observer sees who is.
    """

    times: int
    mu: float = 0.0
    pure: float = 0.0
    rate: float = 1.0
    known: bool = True


def rounds_of(parts: Sequence[Rounds]) -> Iterator[Rounds]:
    """Equal rounds counted together."""
    counted: dict[tuple[float, float, float, bool], int] = {}
    for part in parts:
        key = (part.mu, part.pure, part.rate, part.known)
        counted[key] = counted.get(key, 0) + part.times
    for (mu, pure, rate, known), times in counted.items():
        yield Rounds(times, mu, pure, rate, known)


@dataclass(frozen=True)
class Masses:
    """Masses at ``(first + k) step``, and at infinity."""

    first: int
    masses: Array
    infinite: float


def ends_of(part: Rounds, added: bool) -> tuple[float, float]:
    """The smallest and the largest loss of one round that get a grid point of their own."""
    if part.pure:
        return -part.pure, part.pure
    top = part.mu * part.mu / 2 + _REACH * part.mu
    if part.rate >= 1 or part.known:
        return -_REACH * part.mu + part.mu * part.mu / 2, top
    high = float(np.logaddexp(math.log1p(-part.rate), math.log(part.rate) + top))
    low = float(np.logaddexp(math.log1p(-part.rate), math.log(part.rate) - _REACH * part.mu - part.mu * part.mu / 2))
    return (-high, -low) if added else (low, high)


def nodes(part: Rounds, added: bool) -> tuple[Array, Array]:
    """One round's losses at a few hundred points, with the logarithms of their weights."""
    if part.pure:
        kept = -math.log1p(math.exp(-part.pure))
        return np.array([part.pure, -part.pure]), np.array([kept, kept - part.pure])
    x = np.linspace(-_REACH, part.mu + _REACH, _NODES)
    width = math.log((x[1] - x[0]) / math.sqrt(2 * math.pi))
    plain, moved = (width - (x - centre) ** 2 / 2 for centre in (0, part.mu))
    exponents = part.mu * x - part.mu**2 / 2
    if part.rate >= 1:
        return exponents, moved
    stay, join = math.log1p(-part.rate), math.log(part.rate)
    if part.known:
        return np.append(exponents, 0.0), np.append(join + moved, stay)
    losses = np.logaddexp(stay, join + exponents)
    return (-losses, plain) if added else (losses, np.logaddexp(stay + plain, join + moved))


def one_round(part: Rounds, added: bool, step: float, window: tuple[int, int]) -> Masses:
    """One round's losses on the points of the grid inside a window around 0.

    What lies below the window goes to its lowest point, what lies above to infinity.
    """
    if part.pure:
        found = _pure_round(part.pure, step)
    elif part.rate < 1 and not part.known:
        found = _secret_round(part, added, step, window)
    else:
        found = _gaussian_round(part.mu, step, window)
    return _within(_sometimes(found, part.rate) if part.rate < 1 and part.known else found, window)


def _within(one: Masses, window: tuple[int, int]) -> Masses:
    low, high = max(window[0] - one.first, 0), window[1] - one.first + 1
    masses = one.masses[low:high].copy()
    masses[0] += one.masses[:low].sum()
    return Masses(one.first + low, masses, one.infinite + float(one.masses[high:].sum()))


def _grid(ends: tuple[float, float], step: float, window: tuple[int, int]) -> tuple[int, Array]:
    first = min(max(math.floor(ends[0] / step), window[0]), window[1] - 1)
    last = max(min(math.ceil(ends[1] / step), window[1]), first + 1)
    return first, np.arange(first, last + 1, dtype=np.float64) * step


def _sometimes(one: Masses, rate: float) -> Masses:
    """A round that happens with probability ``rate``, where everybody sees whether it does."""
    first = min(one.first, 0)
    masses = np.zeros(max(one.first + len(one.masses), 1) - first)
    masses[one.first - first : one.first - first + len(one.masses)] = rate * one.masses
    masses[-first] += (1 - rate) * (1 + 1e-12)
    return Masses(first, masses, rate * one.infinite)


def _pure_round(epsilon: float, step: float) -> Masses:
    """Binary randomised response, which no mechanism of the same pure epsilon exceeds."""
    last = math.ceil(epsilon / step * (1 + 1e-12))
    masses = np.zeros(2 * last + 1)
    # Rounding epsilon up to the grid would cost a step; the two atoms are spread to their neighbours instead.
    kept = 1 / (1 + math.exp(-epsilon))
    for loss, mass, other in ((epsilon, kept, 1 - kept), (-epsilon, 1 - kept, kept)):
        cell = min(max(math.floor(loss / step), -last), last - 1)
        ends = np.array([cell, cell + 1]) * step
        slack = (64 * UNIT + 2 * LOSS_ERROR) / -math.expm1(-step)
        masses[cell + last : cell + last + 2] += _spread(ends, np.array([mass]), np.array([other]), slack)[0]
    return Masses(-last, masses * (1 + 1e-12), 0.0)


def _gaussian_round(mu: float, step: float, window: tuple[int, int]) -> Masses:
    first, losses = _grid((mu * mu / 2 - _REACH * mu, mu * mu / 2 + _REACH * mu), step, window)
    points = losses / mu - mu / 2  # the loss of x under N(mu, 1) against N(0, 1) is mu x - mu^2/2, seen from mu
    outside = float(special.ndtr(points[0])), float(special.ndtr(-points[-1]))
    return _assemble(mu, first, losses, _between(points), _between(points + mu), outside)


def _secret_round(part: Rounds, added: bool, step: float, window: tuple[int, int]) -> Masses:
    """A mixture against its first part; in reverse when a person is added."""
    mu, rate = part.mu, part.rate
    first, losses = _grid(ends_of(part, added), step, window)
    points = _points(-losses[::-1] if added else losses, mu, rate)
    plain, moved = _between(points), _between(points - mu)
    mixed = (1 - rate) * plain + rate * moved
    below, above = float(special.ndtr(points[0])), float(special.ndtr(-points[-1]))
    if added:
        return _assemble(mu, first, losses, plain[::-1], mixed[::-1], (above, below))
    above = (1 - rate) * above + rate * float(special.ndtr(mu - points[-1]))
    return _assemble(mu, first, losses, mixed, plain, (below, above))


def _points(losses: Array, mu: float, rate: float) -> Array:
    """Where log(1 - q + q e^(mu x - mu^2/2)) takes these values; minus infinity where it is always larger."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inner = np.where(losses < 1, np.log((np.expm1(losses) + rate) / rate), 0.0)
        large = losses >= 1
        inner[large] = losses[large] + np.log1p(-(1 - rate) * np.exp(-losses[large])) - math.log(rate)
        return np.asarray(np.where(np.isnan(inner), -np.inf, (inner + mu * mu / 2) / mu))


def _between(points: Array) -> Array:
    """Normal mass between neighbouring points, taken from the nearer tail."""
    below, above = special.ndtr(points), special.ndtr(-points)
    return np.asarray(np.where(points[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1]))


def _assemble(mu: float, first: int, losses: Array, ours: Array, theirs: Array, outside: tuple[float, float]) -> Masses:
    """Cells pushed to their ends; what lies outside goes to the lowest point and to infinity."""
    step = float(losses[1] - losses[0])
    # A cell is at least step/mu wide, so cancellation leaves this much relative error in its masses.
    error = 64 * UNIT * (1 + mu / step)
    ends = _spread(losses, ours, theirs, (4 * error + 2 * LOSS_ERROR) / -math.expm1(-step))
    masses = np.zeros(len(losses))
    masses[:-1] += ends[:, 0]
    masses[1:] += ends[:, 1]
    masses[0] += outside[0]
    return Masses(first, masses * (1 + error), outside[1] * (1 + error))


def _spread(losses: Array, ours: Array, theirs: Array, slack: float) -> Array:
    """Masses at the two ends of each cell: they add up to ``ours``, and to ``theirs`` under the other law."""
    low, high = losses[:-1], losses[1:]
    upper = (ours - theirs * np.exp(low)) / -np.expm1(low - high)
    upper = np.minimum(np.maximum(upper, 0.0) + slack * ours, ours)
    return np.stack([ours - upper, upper], axis=1)
