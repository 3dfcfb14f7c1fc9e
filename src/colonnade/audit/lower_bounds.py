"""From samples of two neighbouring tables to a verdict on a claimed curve delta(epsilon).

A claim says that no event is likelier than ``e^epsilon`` times its chance under the neighbour, plus
``delta(epsilon)``. An attacker looks for an event that breaks it. The event is chosen on one half of the
samples and measured on the other half, so that the choice does not bias the measurement
(``docs/theory/audits.md``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtri

from colonnade.errors import PrivacyError
from colonnade.privacy.accounting.loss_distributions import log_gaussian_deltas

Floats = NDArray[np.float64]
Claim = Callable[[Floats], Floats]

EPSILONS: tuple[float, ...] = tuple(round(0.05 * k, 2) for k in range(121))
CONFIDENCE = 0.999
DELTA = 1e-5
_FEWEST = 100
_FURTHEST = 700.0  # beyond it e^epsilon is no float
_SPREAD, _TAIL = 2048, 256  # how many thresholds are tried over the whole range, and towards each end


@dataclass(frozen=True)
class AuditResult:
    """What one game showed: the claim, a lower bound on the truth, and by how much the second exceeds the first.

    ``margin`` is the largest ``lower - claimed``, and ``epsilon`` is where it is reached; above zero the claim is
    refuted. A small margin does not mean that the claim is nearly refuted, as all deltas may be small; ``reach``
    measures that. ``order`` says whether the event was likelier under the first neighbour (0) or the second (1).
    """

    margin: float
    epsilon: float
    order: int
    epsilons: tuple[float, ...]
    claimed: tuple[float, ...]
    lower: tuple[float, ...]
    delta: float
    epsilon_lower_bound: float
    samples: tuple[int, int]
    confidence: float

    @property
    def caught(self) -> bool:
        """Whether the claim is refuted."""
        return self.margin > 0

    @cached_property
    def reach(self) -> float:
        """How much of the promise was shown: above 1 it is refuted, and near 0 this game could hardly see anything.

        At each epsilon, both curves are compared with Gaussian noise: which sensitivity, in deviations, has the shown
        delta, and which has the promised delta? Reach is the largest ratio of these two. If the noise were smaller than
        the promised noise times this ratio, the game would have refuted the promise.
        """
        shown, claimed, grid = map(np.array, (self.lower, self.claimed, self.epsilons))
        some = shown > 0
        if not some.any():
            return 0.0
        if (claimed[some] <= 0).any():
            return math.inf
        shift = (_gaussian_shift(curve[some], grid[some]) for curve in (shown, claimed))
        return float(np.divide(*shift).max())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite lower bound or reach is ``null``."""
        limits = {"epsilon_lower_bound": self.epsilon_lower_bound, "reach": self.reach}
        finite = {name: value if math.isfinite(value) else None for name, value in limits.items()}
        return {"caught": self.caught} | asdict(self) | finite


def profile_audit(
    claim: Claim,
    p: ArrayLike,
    q: ArrayLike,
    *,
    epsilons: ArrayLike = EPSILONS,
    confidence: float = CONFIDENCE,
    delta: float = DELTA,
) -> AuditResult:
    """Compare a claimed curve with samples of a statistic under two neighbours.

    If the claim is right, the chance that it is ever caught, at any epsilon and in either order, is at most
    ``1 - confidence``. The result also has a lower bound on epsilon at ``delta``, with the same confidence.
    """
    grid = np.asarray(epsilons, dtype=np.float64)
    if not np.isfinite(grid).all() or np.any(np.abs(grid) > _FURTHEST):
        raise PrivacyError(f"the epsilons of an audit must be finite numbers of at most {_FURTHEST:g} [PR002]")
    claimed = np.asarray(claim(grid), dtype=np.float64)
    if grid.ndim != 1 or not grid.size or claimed.shape != grid.shape or np.isnan(claimed).any():
        raise PrivacyError("a claim gives one delta for each epsilon of the audit, and this one does not [PR003]")
    halves = _Halves.of(p, q, confidence)
    level = (1 - confidence) / (4 * grid.size)  # two bounds for each epsilon and order
    curves = np.array([halves.lower_curve(order, grid, level) for order in (0, 1)])
    margins = curves - claimed
    order, worst = divmod(int(margins.argmax()), grid.size)
    return AuditResult(
        margin=float(margins[order, worst]),
        epsilon=float(grid[worst]),
        order=order,
        epsilons=tuple(grid.tolist()),
        claimed=tuple(claimed.tolist()),
        lower=tuple(curves.max(axis=0).tolist()),
        delta=delta,
        epsilon_lower_bound=halves.epsilon(delta, (1 - confidence) / 4),
        samples=halves.samples,
        confidence=confidence,
    )


@dataclass(frozen=True)
class _Halves:
    """Sorted samples for choosing events, sorted samples for measuring them, and the events to choose from."""

    chosen_on: tuple[NDArray[Any], NDArray[Any]]
    measured_on: tuple[NDArray[Any], NDArray[Any]]
    thresholds: NDArray[Any]
    level: float

    @classmethod
    def of(cls, p: ArrayLike, q: ArrayLike, confidence: float) -> _Halves:
        if not 0 < confidence < 1:
            raise PrivacyError(f"the confidence of an audit lies strictly between 0 and 1, not {confidence} [PR004]")
        both = _samples(p), _samples(q)
        first = tuple(np.sort(x[: x.size // 2]) for x in both)
        second = tuple(np.sort(x[x.size // 2 :]) for x in both)
        return cls((first[0], first[1]), (second[0], second[1]), _thresholds(*first), 1 - confidence)

    @property
    def samples(self) -> tuple[int, int]:
        """How many samples of each neighbour there are."""
        first, second = self.chosen_on, self.measured_on
        return first[0].size + second[0].size, first[1].size + second[1].size

    @cached_property
    def _promising(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Bounds on every event's chance under either neighbour, from the half that events are chosen on.

        Events are "at least t" for each threshold and then "below t". These bounds only rank events, so they need
        not be exact.
        """
        lower = []
        for values in self.chosen_on:
            above = values.size - np.searchsorted(values, self.thresholds)
            counts = np.concatenate([above, values.size - above])
            lower.append(_roughly_at_least(counts, values.size, self.level / 1000))
        # An upper bound is one minus the lower bound of the opposite event, which is in the other half of the list.
        upper = [1 - np.roll(bound, self.thresholds.size) for bound in lower]
        return (lower[0], lower[1]), (upper[0], upper[1])

    def _measured(self, order: int, events: NDArray[np.intp], level: float) -> tuple[Floats, Floats]:
        """A lower bound under one neighbour and an upper bound under the other, from the fresh half."""
        bounds = []
        for values in (self.measured_on[order], self.measured_on[1 - order]):
            above = values.size - np.searchsorted(values, self.thresholds[events % self.thresholds.size])
            bounds.append((np.where(events < self.thresholds.size, above, values.size - above), values.size))
        (hits, size), (others, other_size) = bounds
        return _at_least(hits, size, level), 1 - _at_least(other_size - others, other_size, level)

    def lower_curve(self, order: int, epsilons: Floats, level: float) -> Floats:
        """A lower bound on P(E) - e^epsilon Q(E) at each epsilon, for the event that looked best there."""
        lower, upper = self._promising
        grown = np.exp(epsilons)
        events = (lower[order] - grown[:, None] * upper[1 - order]).argmax(axis=1)
        low, high = self._measured(order, events, level)
        return np.asarray(low - grown * high)

    def epsilon(self, delta: float, level: float) -> float:
        """The larger of the two orders' lower bounds on log((P(E) - delta) / Q(E)), at least zero."""
        if not 0 <= delta < 1:
            raise PrivacyError(f"delta must be a probability below 1, not {delta} [PR005]")
        lower, upper = self._promising
        found = 0.0
        for order in (0, 1):
            best = np.array([((lower[order] - delta) / upper[1 - order]).argmax()])
            low, high = self._measured(order, best, level)
            if low[0] > delta:
                found = max(found, math.log((low[0] - delta) / high[0]))
        return found


def _samples(values: ArrayLike) -> NDArray[Any]:
    found = np.asarray(values)
    if found.ndim != 1 or found.size < _FEWEST:
        raise PrivacyError(f"an audit needs at least {_FEWEST} samples of each neighbour, in one row [PR006]")
    if found.dtype.kind not in "iuf" or not np.isfinite(found).all():
        raise PrivacyError("the samples of an audit must be finite numbers [PR007]")
    return found


def _thresholds(p: NDArray[Any], q: NDArray[Any]) -> NDArray[Any]:
    """Values from all samples together, with more of them near both ends."""
    pooled = np.sort(np.concatenate([p, q]))
    ends = np.geomspace(1, pooled.size, _TAIL).astype(np.int64) - 1
    ranks = np.concatenate([np.linspace(0, pooled.size - 1, _SPREAD).astype(np.int64), ends, pooled.size - 1 - ends])
    return np.unique(pooled[ranks])


def _at_least(hits: NDArray[np.int64], trials: int, level: float) -> Floats:
    """Clopper and Pearson: a bound that is above the true chance of a hit with probability at most ``level``."""
    some = np.maximum(hits, 1)
    return np.where(hits > 0, betaincinv(some, trials - some + 1, level), 0.0)


def _roughly_at_least(hits: NDArray[np.int64], trials: int, level: float) -> Floats:
    """Wilson's approximation to the same bound, which is much faster to compute."""
    reach = float(ndtri(level))
    spread = np.sqrt(hits * (trials - hits) / trials + reach**2 / 4)
    return np.asarray((hits + reach**2 / 2 + reach * spread) / (trials + reach**2))


def _gaussian_shift(deltas: Floats, epsilons: Floats) -> Floats:
    """The sensitivity, in standard deviations, at which Gaussian noise has each delta at its epsilon."""
    wanted = np.log(deltas)
    low, high = np.full(deltas.shape, 1e-9), np.full(deltas.shape, 1e3)
    for _ in range(60):
        middle = np.sqrt(low * high)
        enough = log_gaussian_deltas(middle, epsilons) >= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high
