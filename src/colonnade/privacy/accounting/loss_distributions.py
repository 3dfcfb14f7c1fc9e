"""Privacy loss distributions: the losses of all rounds added up, on a grid, by fast Fourier transforms.

Each piece of one round's loss between two grid points is pushed to its two ends, which keeps the mass under both laws
and only makes the two tables easier to tell apart. The losses are tilted first (each mass is multiplied by
e^(tilt loss)), so that the transform is accurate where delta is read off. ``docs/theory/privacy-loss-distributions.md``
bounds all errors; they are added to the result.

The Gaussian mechanism has an exact privacy profile, evaluated without cancellation (docs/theory/gaussian-transfer.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.privacy.accounting import special
from colonnade.privacy.observers import check_delta

HAIR = 1e-12
"""Results are pushed to the safe side by this much, which is far more than the rounding error."""
Array = NDArray[np.float64]
_LEGENDRE_NODES, _LEGENDRE_WEIGHTS = np.polynomial.legendre.leggauss(20)


def _mills(t: Array) -> Array:
    return np.asarray(math.sqrt(math.pi / 2) * special.erfcx(t / math.sqrt(2)))


def _mills_drop(t: Array) -> Array:
    """Minus the derivative of the Mills ratio, ``1 - t M(t)``, without cancellation for large ``t``."""
    near = np.minimum(t, 25.0)
    plain = 1 - near * math.sqrt(math.pi / 2) * special.erfcx(near / math.sqrt(2))
    if t.size and t.max() < 25.0:
        return np.asarray(plain)
    far = np.maximum(t, 25.0) ** -2.0
    series = np.zeros_like(t)
    for odd in range(19, 1, -2):
        series = far * odd * (1 - series)
    return np.asarray(np.where(t < 25.0, plain, far * (1 - series)))


def log_gaussian_deltas(mus: Array, epsilon: Array | float) -> Array:
    """The same as :func:`log_gaussian_delta`, for many pairs at once."""
    mu, eps = (np.asarray(given, dtype=np.float64).ravel() for given in np.broadcast_arrays(mus, epsilon))
    found = np.full(mu.shape, -np.inf)
    found[np.isinf(mu)] = 0.0
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        low, high = eps / mu - mu / 2, eps / mu + mu / 2
        square = low * low
    open_ = (mu > 0) & np.isfinite(high)
    # With phi the normal density and M its Mills ratio, delta = phi(low) (M(low) - M(high)), because
    # e^epsilon phi(high) = phi(low). Close arguments are not subtracted but integrated.
    density = np.full(mu.shape, -np.inf)
    density[open_] = -square[open_] / 2 - math.log(2 * math.pi) / 2
    far = open_ & (low > 1e6)
    small = open_ & ~far & (mu < 0.5)
    right = open_ & ~far & ~small & (low > 0)
    left = open_ & ~far & ~small & ~right
    found[far] = density[far]
    points = ((low[small] + high[small]) / 2)[:, None] + mu[small, None] / 2 * _LEGENDRE_NODES
    found[small] = density[small] + np.log(mu[small] / 2 * (_mills_drop(points) @ _LEGENDRE_WEIGHTS))
    found[right] = density[right] + np.log(_mills(low[right]) - _mills(high[right]))
    found[left] = np.log(special.ndtr(-low[left]) - np.exp(density[left]) * _mills(high[left]))
    return found


def log_gaussian_delta(mu: float, epsilon: float) -> float:
    """Logarithm of the exact delta at ``epsilon`` of the Gaussian mechanism of sensitivity ``mu`` deviations."""
    return float(log_gaussian_deltas(np.array([mu]), epsilon)[0])


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Exact epsilon at ``delta`` of the Gaussian mechanism, rounded up."""
    check_delta(delta)
    if math.isinf(mu):
        return math.inf
    target = math.log(delta) - HAIR

    def excess(epsilon: float) -> float:
        return log_gaussian_delta(mu, epsilon) - target

    if mu <= 0 or excess(0.0) <= 0:
        return 0.0
    # P(loss > eps) bounds delta, and the loss is normal with mean mu^2/2 and standard deviation mu.
    high = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta)) + mu
    return find_last_nonpositive(excess, 0.0, high) * (1 + HAIR)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest sensitivity, in standard deviations, that is (epsilon, delta)-private; rounded down."""
    check_delta(delta)
    if not 0 <= epsilon < math.inf:
        raise PrivacyError(f"epsilon must be a finite number, not negative: {epsilon} [PR084]")
    target = math.log(delta) - HAIR

    def excess(mu: float) -> float:
        return log_gaussian_delta(mu, epsilon) - target

    low, high = 1.0, 1.0
    while excess(low) > 0:
        low /= 2
    while excess(high) <= 0:
        high *= 2
    return find_last_nonpositive(excess, high, low) * (1 - HAIR)


def find_last_nonpositive(excess: Callable[[float], float], bad: float, good: float) -> float:
    """A point where a monotone excess is not positive, next to its change of sign (Illinois rule)."""
    at_bad, at_good, last = excess(bad), excess(good), 0
    for _ in range(300):
        if abs(good - bad) <= 1e-13 * abs(good):
            break
        middle = good - at_good * (good - bad) / (at_good - at_bad)
        if not min(good, bad) < middle < max(good, bad):
            middle = (good + bad) / 2
        value = excess(middle)
        if not value <= 0:
            bad, at_bad, at_good, last = middle, value, at_good / (2 if last > 0 else 1), 1
        else:
            good, at_good, at_bad, last = middle, value, at_bad / (2 if last < 0 else 1), -1
        if value == 0:
            break
    return good


UNIT = 2.0**-53
LOSS_ERROR = 2.0**-40
"""Error of one round's loss in float64, at most."""
_REACH = 11.0  # deviations; the mass beyond is below 2^-90 and goes to infinity or to the lowest point
_NODES = 301


@dataclass(frozen=True)
class RoundGroup:
    """``times`` equal rounds: a Gaussian release of sensitivity ``mu`` deviations, or one of pure epsilon.

    ``rate`` is the chance that a person is in a round's batch, ``known`` whether the observer sees who is.
    """

    times: int
    mu: float = 0.0
    pure: float = 0.0
    rate: float = 1.0
    known: bool = True


@dataclass(frozen=True)
class LossMasses:
    """Masses at ``(first + k) step``, and at infinity."""

    first: int
    masses: Array
    infinite: float


def loss_range(part: RoundGroup, added: bool) -> tuple[float, float]:
    """The smallest and the largest loss of one round that get a grid point of their own."""
    if part.pure:
        return -part.pure, part.pure
    top = part.mu * part.mu / 2 + _REACH * part.mu
    if part.rate >= 1 or part.known:
        return -_REACH * part.mu + part.mu * part.mu / 2, top
    high = float(np.logaddexp(math.log1p(-part.rate), math.log(part.rate) + top))
    low = float(np.logaddexp(math.log1p(-part.rate), math.log(part.rate) - _REACH * part.mu - part.mu * part.mu / 2))
    return (-high, -low) if added else (low, high)


def loss_nodes(part: RoundGroup, added: bool) -> tuple[Array, Array]:
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


def round_losses(part: RoundGroup, added: bool, step: float, window: tuple[int, int]) -> LossMasses:
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


def _within(one: LossMasses, window: tuple[int, int]) -> LossMasses:
    low, high = max(window[0] - one.first, 0), window[1] - one.first + 1
    masses = one.masses[low:high].copy()
    masses[0] += one.masses[:low].sum()
    return LossMasses(one.first + low, masses, one.infinite + float(one.masses[high:].sum()))


def _grid(ends: tuple[float, float], step: float, window: tuple[int, int]) -> tuple[int, Array]:
    first = min(max(math.floor(ends[0] / step), window[0]), window[1] - 1)
    last = max(min(math.ceil(ends[1] / step), window[1]), first + 1)
    return first, np.arange(first, last + 1, dtype=np.float64) * step


def _sometimes(one: LossMasses, rate: float) -> LossMasses:
    """A round that happens with probability ``rate``, where everybody sees whether it does."""
    first = min(one.first, 0)
    masses = np.zeros(max(one.first + len(one.masses), 1) - first)
    masses[one.first - first : one.first - first + len(one.masses)] = rate * one.masses
    masses[-first] += (1 - rate) * (1 + 1e-12)
    return LossMasses(first, masses, rate * one.infinite)


def _pure_round(epsilon: float, step: float) -> LossMasses:
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
    return LossMasses(-last, masses * (1 + 1e-12), 0.0)


def _gaussian_round(mu: float, step: float, window: tuple[int, int]) -> LossMasses:
    first, losses = _grid((mu * mu / 2 - _REACH * mu, mu * mu / 2 + _REACH * mu), step, window)
    points = losses / mu - mu / 2  # the loss of x under N(mu, 1) against N(0, 1) is mu x - mu^2/2, seen from mu
    outside = float(special.ndtr(points[0])), float(special.ndtr(-points[-1]))
    return _assemble(mu, first, losses, _between(points), _between(points + mu), outside)


def _secret_round(part: RoundGroup, added: bool, step: float, window: tuple[int, int]) -> LossMasses:
    """A mixture against its first part; in reverse when a person is added."""
    mu, rate = part.mu, part.rate
    first, losses = _grid(loss_range(part, added), step, window)
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


def _assemble(
    mu: float, first: int, losses: Array, ours: Array, theirs: Array, outside: tuple[float, float]
) -> LossMasses:
    """Cells pushed to their ends; what lies outside goes to the lowest point and to infinity."""
    step = float(losses[1] - losses[0])
    # A cell is at least step/mu wide, so cancellation leaves this much relative error in its masses.
    error = 64 * UNIT * (1 + mu / step)
    ends = _spread(losses, ours, theirs, (4 * error + 2 * LOSS_ERROR) / -math.expm1(-step))
    masses = np.zeros(len(losses))
    masses[:-1] += ends[:, 0]
    masses[1:] += ends[:, 1]
    masses[0] += outside[0]
    return LossMasses(first, masses * (1 + error), outside[1] * (1 + error))


def _spread(losses: Array, ours: Array, theirs: Array, slack: float) -> Array:
    """Masses at the two ends of each cell: they add up to ``ours``, and to ``theirs`` under the other law."""
    low, high = losses[:-1], losses[1:]
    upper = (ours - theirs * np.exp(low)) / -np.expm1(low - high)
    upper = np.minimum(np.maximum(upper, 0.0) + slack * ours, ours)
    return np.stack([ours - upper, upper], axis=1)


CELLS = 1 << 16
_ROUGH = 1 << 13
MOST_ROUNDS = 1 << 36  # beyond, the errors of the transform are no longer bounded by what is added
_WIDEST = 600.0  # losses; beyond, e^loss comes near what a float can hold
_LOST = 1e-9
_FAINT = math.log(1e-15)
_PLAIN = 1e-9
_NEGLIGIBLE = 1e-2
_SUMS = 4 * CELLS * UNIT  # relative error of two running sums
_SIMILAR = math.log(30)
_TILTS = np.geomspace(1e-3, 1e4, 64)


class LossDistribution:
    """The profile of rounds that are composed: the larger of adding and removing a person."""

    name = "privacy loss distribution"

    def __init__(self, rounds: Sequence[RoundGroup]) -> None:
        self.too_many = sum(part.times for part in rounds) > MOST_ROUNDS
        lopsided = any(part.rate < 1 and not part.known for part in rounds)
        self.sides = [_Direction(rounds, side) for side in ((False, True) if lopsided else (False,))]

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
class _ComposedLosses:
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


class _Direction:
    """One direction: a person is removed, or (``added``) the same pair of tables in reverse."""

    def __init__(self, rounds: Sequence[RoundGroup], added: bool) -> None:
        self.rounds, self.added = rounds, added
        self.total = sum(part.times for part in rounds)
        self._kept: list[tuple[float, _ComposedLosses]] = []

    def epsilon(self, delta: float) -> float:
        if math.isinf(self._support[1]):
            return math.inf
        for kept, composed in self._kept:
            if abs(math.log(kept / delta)) < _SIMILAR:
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
    def _plain(self) -> _ComposedLosses:
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
        ends = [loss_range(part, self.added) for part in self.rounds]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        return low, high if high < _WIDEST else math.inf

    @cached_property
    def _nodes(self) -> list[tuple[int, Array, Array]]:
        return [(part.times, *loss_nodes(part, self.added)) for part in self.rounds]

    def _growth(self, tilts: Array) -> Array:
        """Logarithm of the moment generating function of all losses, near enough to choose a tilt and a window."""
        found = np.zeros_like(tilts)
        for times, losses, logs in self._nodes:
            found += times * _log_sum(logs[:, None] + np.multiply.outer(losses, tilts))
        return found

    @cached_property
    def _grown(self) -> Array:
        return self._growth(_TILTS)

    def _composed(self, tilt: float, delta: float, cells: int = CELLS) -> _ComposedLosses:
        tilt, low, high, steepest = self._window(tilt, delta)
        step = (high - low) / (cells - 8)
        start = math.floor(low / step)
        values = (start + np.arange(cells, dtype=np.float64)) * step
        spectrum, offset, last = np.ones(cells // 2 + 1, dtype=np.complex128), 0, 0
        log_scale = log_lost = infinite = 0.0
        for part in self.rounds:
            one = round_losses(part, self.added, step, (start, start + cells - 1))
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
        return _ComposedLosses(values[used], masses, infinite + above, math.log(error) + log_scale, tilt, shift)

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


def _log_moments(one: LossMasses, step: float, tilts: Array) -> Array:
    values = (one.first + np.arange(len(one.masses))) * step
    with np.errstate(divide="ignore"):
        return _log_sum(np.log(one.masses)[:, None] + np.multiply.outer(values, tilts))
