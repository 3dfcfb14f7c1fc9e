"""What the party that receives scores may believe of the others' parts: before it hears anything, and after.

Before, it knows its own columns and the public model; what it hears has a known law. The best estimate of a part is its
expectation given both, whose mean squared error is never above that of the expectation by own columns alone
(``docs/theory/levels-of-scores.md``). The receiver computes it from what it has, so it costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.tables.columns import Column

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Integers = NDArray[np.int64]

PUBLISHED, GUESSED = 0.1, 1.0
_PEOPLE = 50  # a guess counts as much as what this many people would tell if they told everything
_LEARNING = 20_000
_STEPS = 40
_STILL = 1e-3  # of the deviation of a part


@dataclass(frozen=True)
class PartPrior:
    """The public law of one party's part of the scores, for each class: its mean and its variance.

    ``doubt`` is how far the mean of new people may be from it, in deviations: little where it was published.
    """

    mean: Vector
    variance: Vector
    doubt: float


@dataclass(frozen=True)
class ScorePosterior:
    """A part of the scores, (rows, classes): a mean for each person, and how far the truth may be, as a variance."""

    mean: Matrix
    variance: Matrix
    doubt: float = PUBLISHED

    def plus(self, other: ScorePosterior) -> ScorePosterior:
        """The sum of two parts, which are taken to be independent given the receiver's columns."""
        return ScorePosterior(self.mean + other.mean, self.variance + other.variance, max(self.doubt, other.doubt))


def guess_prior(columns: Mapping[str, Column], weights: Mapping[str, Vector], classes: int) -> PartPrior:
    """The law of a part if nothing but schemas and weights are known.

    Columns are taken to be independent, numbers as spread evenly over their range, categories as equally frequent.
    """
    mean, variance = np.zeros(classes), np.zeros(classes)
    for name, column in columns.items():
        middle, spread = column.uniform_moments(np.array([weights[f"{name}{part}"] for part in column.parts]))
        mean, variance = mean + middle, variance + spread
    return PartPrior(mean, variance, GUESSED)


def posterior_of_prior(law: PartPrior, rows: int) -> ScorePosterior:
    """The same for everybody, where own columns foretell nothing."""
    ones = np.ones((rows, 1))
    return ScorePosterior(ones * law.mean, ones * law.variance, law.doubt)


def update_by_noisy_sums(before: ScorePosterior, own: Matrix, heard: Matrix, deviation: float) -> ScorePosterior:
    """What is believed of parts whose sum was heard with noise of this deviation.

    First the batch as a whole corrects what was believed before. Then each person's sum counts as much as the variance
    of a part is of that of a part with its noise.
    """
    blur = deviation**2
    corrected = [
        _by_sums(before.mean[:, k], before.variance[:, k], before.doubt, own[:, k], heard[:, k], blur)
        for k in range(heard.shape[1])
    ]
    mean, variance = (np.stack(each, axis=1) for each in zip(*corrected, strict=True))
    total = variance + blur
    share = np.divide(variance, total, out=np.zeros_like(total), where=total > 0)
    return ScorePosterior(mean + share * (heard - mean), share * blur, before.doubt)


def _by_sums(
    mean: Vector, variance: Vector, doubt: float, own: Vector, heard: Vector, blur: float
) -> tuple[Vector, Vector]:
    """Mean and variance of a part, corrected by numbers with noise: an offset, slopes, a spread.

    Each correction is weighed by how well the batch knows it, and by how much is left to doubt without the batch.
    """
    spread, rows = float(variance.mean()), len(heard)
    if not spread or not rows:
        return mean, variance
    design = _design(own, mean)
    normal = design.T @ design + np.eye(design.shape[1]) * (spread + blur) / (spread * doubt**2)
    news = heard - mean
    shift = design @ np.linalg.solve(normal, design.T @ news)
    surplus = float(np.mean(np.square(news - shift))) - blur
    trust = (spread * doubt) ** -2
    told = rows / (2 * (spread + blur) ** 2)
    return mean + shift, np.full(rows, max(0.0, (trust * spread + told * surplus) / (trust + told)))


def update_by_levels(
    before: ScorePosterior, own: Matrix, levels: Integers, cuts: Vector, odds: float
) -> ScorePosterior:
    """What is believed of one party's part after its level was answered at random; the batch corrects first.

    The true level is ``odds`` times as likely to be answered as any other one.
    """
    mean, spread = before.mean[:, 0], float(before.variance.mean())
    if not spread:
        return before
    ends = np.concatenate([[-math.inf], cuts, [math.inf]])
    told, design = _Told(ends[levels], ends[levels + 1], odds), _design(own[:, 0], mean)
    some = slice(0, _LEARNING)
    few = _Told(told.low[some], told.high[some], odds)
    found, spread = _by_levels(mean[some], spread, before.doubt, design[some], few)
    mean = mean + design @ found
    news, square = told.moments(mean, spread)
    return ScorePosterior((mean + news)[:, None], (square - np.square(news))[:, None], before.doubt)


@dataclass(frozen=True)
class _Told:
    """For each person the ends of the level that was answered, and how much likelier the true one is."""

    low: Vector
    high: Vector
    odds: float

    def moments(self, mean: Vector, variance: float) -> tuple[Vector, Vector]:
        """The first two moments of a normal part around its mean, given the answer.

        With P, A and B the probability of the answered level and the moments within it, and w the odds, they are
        (w - 1) A / (1 + (w - 1) P) and (variance + (w - 1) B) / (1 + (w - 1) P).
        """
        from scipy.special import ndtr

        deviation, more = math.sqrt(variance), self.odds - 1
        low, high = (self.low - mean) / deviation, (self.high - mean) / deviation
        heights = [np.exp(-np.square(end) / 2) / math.sqrt(2 * math.pi) for end in (low, high)]
        inside = ndtr(high) - ndtr(low)
        with np.errstate(invalid="ignore"):
            tails = [
                np.where(np.isfinite(end), end * height, 0.0) for end, height in zip((low, high), heights, strict=True)
            ]
        whole = 1 + more * inside
        first = deviation * more * (heights[0] - heights[1]) / whole
        second = variance * (1 + more * (inside + tails[0] - tails[1])) / whole
        return first, second


def _by_levels(mean: Vector, spread: float, doubt: float, design: Matrix, told: _Told) -> tuple[Vector, float]:
    """What the answers of many people tell of all of them: an offset and slopes, and the variance around them.

    Expectation maximisation, in which what was believed before counts as some people of whom everything is known. A
    variance that was published stays, and a guessed one changes at most fourfold: a part need not be normal, and few
    levels of other parts can speak for absurd variances.
    """
    weight, rows = _PEOPLE / doubt**2, len(mean)
    normal = design.T @ design + np.eye(design.shape[1]) * weight
    most = 1.0 if doubt < GUESSED else 4.0
    found: Vector = np.zeros(design.shape[1])
    variance = spread
    for _ in range(_STEPS):
        shift = design @ found
        news, square = told.moments(mean + shift, variance)
        left = float(np.sum(square - np.square(news)))
        earlier, found = found, np.asarray(np.linalg.solve(normal, design.T @ (shift + news)), dtype=np.float64)
        missed = float(np.sum(np.square(shift + news - design @ found)) + weight * found @ found)
        variance = min(max((left + missed + weight * spread) / (rows + weight), spread / most), spread * most)
        if np.abs(found - earlier).max() < _STILL * math.sqrt(spread):
            break
    return found, variance


def _design(own: Vector, foreseen: Vector) -> Matrix:
    """A constant, the receiver's own scores, and what its columns foretell; both of mean 0 and deviation 1."""
    return np.stack([np.ones(len(own)), _standardise(own), _standardise(foreseen)], axis=1)


def _standardise(own: Vector) -> Vector:
    deviation = float(own.std()) if len(own) else 0.0
    return (own - own.mean()) / deviation if deviation > 1e-9 else np.zeros_like(own)


def flatten_scores(scores: Matrix, variances: Matrix) -> Matrix:
    """Log-odds whose chances are those of scores that are known up to these variances.

    Averaged over a normal law, a logistic function is about one whose slope is divided by sqrt(1 + pi/8 variance).
    """
    found: Matrix = scores / np.sqrt(1 + math.pi / 8 * variances)
    return found
