"""How many levels, and where they begin: the choice that tells most of a normal part for a given epsilon.

A part of mean m and deviation s is cut at m + s z, where z are quantiles of the standard normal law, stretched. The
share of its variance that an answer tells is known in closed form (``docs/theory/levels-of-scores.md``), and the best
of a few choices is taken. Only public numbers are used, so a part that is not normal costs accuracy and no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist

_MOST_LEVELS = 16
_STRETCHES = (1.0, 1.1, 1.2, 1.3, 1.4)
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Choice:
    """Cuts of the standard normal law, and the share of the variance that an answer tells."""

    cuts: tuple[float, ...]
    heard: float

    def whole(self, mean: float, deviation: float, gamma: int) -> tuple[int, ...]:
        """The cuts of a part of this mean and deviation, in steps of ``1 / gamma`` and one above the other."""
        found: list[int] = []
        for cut in self.cuts:
            at = round(gamma * (mean + deviation * cut))
            found.append(max(at, found[-1] + 1) if found else at)
        return tuple(found)


@lru_cache(maxsize=256)
def best(epsilon: float) -> Choice:
    """The choice under which an answer tells the largest share of the variance."""
    many = [
        Choice(cuts, told(cuts, math.exp(epsilon)))
        for levels in range(2, _MOST_LEVELS + 1)
        for stretch in (_STRETCHES if levels > 2 else _STRETCHES[:1])
        for cuts in [tuple(stretch * _NORMAL.inv_cdf(k / levels) for k in range(1, levels))]
    ]
    return max(many, key=lambda choice: choice.heard)


def told(cuts: tuple[float, ...], odds: float) -> float:
    """The share of the variance of a standard normal number that is told by its level, answered with these odds.

    Of level k let P be the probability and A the first moment within it. With w the odds and K the number of levels,
    answer k has the probability ((w - 1) P + 1) / (w + K - 1), and given it the mean is (w - 1) A / ((w - 1) P + 1).
    """
    levels, more = len(cuts) + 1, odds - 1
    share = 0.0
    for low, high in pairwise((-math.inf, *cuts, math.inf)):
        inside = _NORMAL.cdf(high) - _NORMAL.cdf(low)
        moment = _height(low) - _height(high)
        share += (more * moment) ** 2 / ((more * inside + 1) * (more + levels))
    return share


def _height(at: float) -> float:
    return 0.0 if math.isinf(at) else _NORMAL.pdf(at)
