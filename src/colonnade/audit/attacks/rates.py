"""What the scores of an attack are worth: the whole curve of rates, and how often it is right, with intervals."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from colonnade.errors import DataError

Vector = NDArray[np.float64]
Interval = tuple[float, float]

CONFIDENCE = 0.95
RARE = 0.001
"""The rate of false alarms at which true ones are counted: an attack matters if it is sure of a few."""
_NORMAL_95 = 1.959964
_POINTS = 400


@dataclass(frozen=True)
class Rates:
    """An attack that tells members from others by a score, which is higher for members.

    ``accuracy`` is balanced, at a threshold that was chosen on other people. ``hits`` are the members found with at
    most ``rare`` of the others taken for members; with few others, that is none of them. Intervals hold 95 % of the
    time over the people who were drawn; they say nothing about the luck of one model.
    """

    members: int
    others: int
    auc: float
    auc_interval: Interval
    accuracy: float
    accuracy_interval: Interval
    rare: float
    false_alarms: int
    hits: float
    hits_interval: Interval
    roc: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, members: Vector, others: Vector, *, rare: float = RARE, seed: int = 0) -> Rates:
        """The rates of these scores."""
        if min(len(members), len(others)) < 4:
            raise DataError("an attack needs at least four members and four other people to be judged by [DA019]")
        if not (np.isfinite(members).all() and np.isfinite(others).all()):
            raise DataError("the scores of an attack must be finite numbers [DA020]")
        area, deviation = area_and_deviation(members, others)
        right = _right(members, others, np.random.default_rng(seed))
        allowed = math.floor(rare * len(others))
        found = int(np.sum(members > np.sort(others)[::-1][allowed])) if allowed < len(others) else len(members)
        return cls(
            len(members),
            len(others),
            area,
            (max(0.0, area - _NORMAL_95 * deviation), min(1.0, area + _NORMAL_95 * deviation)),
            (right[0] / len(members) + right[1] / len(others)) / 2,
            _balanced(right, (len(members), len(others))),
            rare,
            allowed,
            found / len(members),
            clopper_pearson(found, len(members)),
            _thinned(*curve(members, others)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def clopper_pearson(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """An interval that holds the true rate with this confidence, whatever it is."""
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, tail))
    high = 1.0 if successes == trials else float(betaincinv(successes + 1, trials - successes, 1 - tail))
    return low, high


def curve(members: Vector, others: Vector) -> tuple[Vector, Vector]:
    """Rates of false and of true alarms at every threshold, from (0, 0) to (1, 1); both only rise."""
    cuts = np.unique(np.concatenate([members, others]))[::-1]
    hits = 1 - np.searchsorted(np.sort(members), cuts, "left") / len(members)
    alarms = 1 - np.searchsorted(np.sort(others), cuts, "left") / len(others)
    return np.concatenate([[0.0], alarms]), np.concatenate([[0.0], hits])


def _right(members: Vector, others: Vector, draw: np.random.Generator) -> tuple[int, int]:
    """How many members and others are told rightly, each half at the best threshold of the other half."""
    halves = [np.array_split(scores[draw.permutation(len(scores))], 2) for scores in (members, others)]
    right = [0, 0]
    for tested in (0, 1):
        cut = _threshold(*(half[1 - tested] for half in halves))
        right[0] += int(np.sum(halves[0][tested] >= cut))
        right[1] += int(np.sum(halves[1][tested] < cut))
    return right[0], right[1]


def _threshold(members: Vector, others: Vector) -> float:
    alarms, hits = curve(members, others)
    cuts = np.unique(np.concatenate([members, others]))[::-1]
    best = int(np.argmax(hits - alarms))
    if best == 0:
        return math.inf
    return float(cuts[best - 1] if best == len(cuts) else (cuts[best - 1] + cuts[best]) / 2)


def _balanced(right: tuple[int, int], of: tuple[int, int]) -> Interval:
    """Both rates are within their intervals at once, so their mean is within the mean of the intervals."""
    each = [clopper_pearson(count, total, (1 + CONFIDENCE) / 2) for count, total in zip(right, of, strict=True)]
    return (each[0][0] + each[1][0]) / 2, (each[0][1] + each[1][1]) / 2


def _thinned(alarms: Vector, hits: Vector) -> tuple[tuple[float, float], ...]:
    """At most some hundred points of a curve, half of them evenly spaced and half towards rare false alarms."""
    if len(alarms) > _POINTS:
        low = max(float(alarms[alarms > 0].min()), 1e-9)
        wanted = np.concatenate([np.linspace(0, 1, _POINTS // 2), np.geomspace(low, 1, _POINTS // 2)])
        kept = np.unique(np.concatenate([[0], np.searchsorted(alarms, wanted, "right") - 1, [len(alarms) - 1]]))
        alarms, hits = alarms[kept], hits[kept]
    return tuple(zip(alarms.tolist(), hits.tolist(), strict=True))


def area_and_deviation(positive: Vector, negative: Vector) -> tuple[float, float]:
    """The area under the curve and its standard deviation (DeLong et al. 1988); ties count half."""
    above, below = np.sort(positive), np.sort(negative)
    won = (np.searchsorted(below, positive, "left") + np.searchsorted(below, positive, "right")) / (2 * len(below))
    lost = 1 - (np.searchsorted(above, negative, "left") + np.searchsorted(above, negative, "right")) / (2 * len(above))
    variance = won.var(ddof=1) / len(won) + lost.var(ddof=1) / len(lost)
    return float(won.mean()), math.sqrt(max(float(variance), 0.25 / (len(won) * len(lost))))
