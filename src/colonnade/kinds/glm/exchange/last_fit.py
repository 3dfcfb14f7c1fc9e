"""The active party's last fit: nothing of it is sent, so it costs nothing.

Scores were received with noise that is often larger than they are. What comes of the fit is a model of the scores
themselves, as probabilities need it (docs/theory/alternating-fits.md, section 7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from colonnade.kinds.glm.exchange.bounds import RECEIVED_CLIP, Side
from colonnade.kinds.glm.exchange.fits import Matrix, Objective, Vector, believed, free_fit, sparse_fit
from colonnade.kinds.glm.exchange.task import Exchange
from colonnade.kinds.glm.losses.labels import Family

BELIEF = 0.5  # of the expected factor: data may double it, and a party without signal does little harm
FILLED = 0.3  # mean square of a row, as part of the square of its bound: a guess
_BLUR = 0.393  # pi / 8: a logistic curve averaged over normal scores is nearly one of a smaller slope
_STEEPEST = 0.5
_DOUBT = 0.15  # relative error of a guess by slopes
_LEAST = 0.3  # as part of a guess by slopes: the least variance that is believed
_LEAN = 1.5  # skewness of what own columns do not foretell, for a label that nearly nobody has; none for an even one
_EXACT = 6  # parties; for more of them some points of the joint law stand for all
_POINTS = 64
_STEPS, _STILL = 50, 1e-9


@dataclass(frozen=True)
class Guess:
    """What the variance of a party's scores should be, before their own variance is looked at, and its error."""

    variance: float
    error: float
    least: float

    @classmethod
    def by_clip(cls, clip: float) -> Guess:
        """By nothing but the public clip of scores."""
        expected = (clip / 2) ** 2
        return cls(expected, 0.7 * expected, 0.1 * expected)

    @classmethod
    def by_slopes(cls, slopes: Vector, step: Vector, owner: str, task: Exchange, noise: float) -> Guess:
        """By the slopes that a party answered: its fit makes the square of its step what the slopes have in common.

        ``step`` is what it added to its scores, received with this variance of noise.
        """
        side, bent, spread = task.side(owner), task.family.curvature, float(slopes.std())
        columns, rows = len(task.block(owner).columns) + 1, len(slopes)
        size = bent * FILLED * task.row_norm(owner) ** 2 / columns
        kept = size / (size + side.ridge)
        passed, blurred = clipped_normal(task.message_clip, math.hypot(task.message_deviation(task.active), spread))
        common = -float(np.mean((slopes - slopes.mean()) * step))
        found = blurred**2 * columns / rows * (kept / bent) ** 2 + kept * passed / bent * max(common, 0.0)
        error = math.hypot(passed * spread * math.sqrt(noise / rows) / bent, _DOUBT * found)
        return cls(found, error, _LEAST * found)

    def plus(self, step: Guess) -> Guess:
        """After one more step, which goes the same way."""
        grown = (math.sqrt(self.variance) + math.sqrt(step.variance)) ** 2
        relative = max(each.error / each.variance for each in (self, step))
        return Guess(grown, relative * grown, _LEAST * grown)


@dataclass(frozen=True)
class Foreseen:
    """One party's received scores, and what own columns foretell of the true ones: ``mean``, by ``weights``.

    ``spread`` is the variance of true scores around it, ``noise`` that of the noise on received ones.
    """

    received: Vector
    mean: Vector
    weights: Vector
    spread: float
    noise: float
    factor: float

    @classmethod
    def of(cls, rows: Matrix, received: Vector, noise: float, side: Side, guess: Guess) -> Foreseen:
        """By a ridge regression on own rows, whose last column is the constant."""
        count, middle = len(rows), believed(received, side.score_clip, noise).middle
        around, news = rows - rows.mean(axis=0), received - received.mean()
        gram = around.T @ around / count
        doubt = math.sqrt(2 / count) * (noise + guess.variance)
        whole = max(_weighed(float(news.var()) - noise, doubt, guess), guess.least)
        ridge = max(1.0, 2 * (noise + whole) * float(np.trace(gram)) / whole) / count
        weights = np.linalg.solve(gram + ridge * np.eye(len(gram)), around.T @ news / count)
        used = float(np.trace(np.linalg.solve(gram + ridge * np.eye(len(gram)), gram)))
        foretold = around @ weights
        left = float(np.mean((news - foretold) ** 2)) * count / max(count - used, 1.0) - noise
        known = max(float(foretold.var()) - 0.5 * noise * used / count, 0.0)
        rest = Guess(max(guess.variance - known, guess.variance / 2), guess.error, guess.least)
        weights[-1] += (middle - float(rows.mean(axis=0) @ weights)) / rows[0, -1]
        spread = max(_weighed(left, doubt, rest), guess.least)
        return cls(received, rows @ weights, weights, spread, noise, side.factor)

    @property
    def share(self) -> float:
        """The part of the variance around the mean that is no noise."""
        return self.spread / (self.spread + self.noise)

    @property
    def hidden(self) -> float:
        """The variance of true scores around the best estimate."""
        return self.spread * (1 - self.share)

    @property
    def estimated(self) -> Vector:
        """The best estimate of each true score."""
        most = RECEIVED_CLIP * math.sqrt(self.spread + self.noise)
        found: Vector = self.mean + self.share * np.clip(self.received - self.mean, -most, most)
        return found


def _weighed(seen: float, error: float, guess: Guess) -> float:
    return (seen * guess.error**2 + guess.variance * error**2) / (guess.error**2 + error**2)


def corrected_fit(rows: Matrix, labels: Vector, heard: Sequence[Foreseen], ridge: float) -> Vector:
    """The best weights of own rows and factors of true scores for logistic chances, from scores with noise.

    The loss of true scores is the mean of log(1 + e^t) - y t. Noise on t leaves the mean of y t as it is, and the first
    term does not depend on labels: only on how true scores lie around the best estimate of them.
    """
    count, own = rows.shape
    penalties, centre = np.full(own + len(heard), ridge), np.zeros(own + len(heard))
    for place, each in enumerate(heard, start=own):
        expected = max(each.factor, 1e-6)
        penalties[place] = max(ridge, 1 / (count * expected**2 * each.share))
        centre[place] = BELIEF * each.factor
    along = np.concatenate([rows.T @ labels, [each.received @ labels for each in heard]]) / count
    spreads = np.array([math.sqrt(each.hidden) for each in heard])
    means = np.column_stack([np.zeros((count, 0)), *(each.estimated for each in heard)])
    points = _points(len(heard), _LEAN * (1 - 2 * float(labels.mean())))

    def loss(weights: Vector) -> float:
        known = rows @ weights[:own] + means @ weights[own:]
        bent = sum(p * np.logaddexp(0.0, known + weights[own:] @ (spreads * e)).mean() for p, e in points)
        return float(bent - along @ weights + (penalties * (weights - centre) ** 2).sum() / 2)

    weights = centre.copy()
    reached = loss(weights)
    for _ in range(_STEPS):
        gradient, curved = penalties * (weights - centre) - along, np.diag(penalties)
        known, flat = rows @ weights[:own] + means @ weights[own:], np.zeros(count)
        steep, tilted, pulled = np.zeros(count), np.zeros((count, len(heard))), np.zeros(len(heard))
        for p, e in points:
            scores = means + spreads * e
            chance = 0.5 + 0.5 * np.tanh((known + weights[own:] @ (spreads * e)) / 2)
            bend = p * chance * (1 - chance)
            flat, steep, tilted = flat + p * chance, steep + bend, tilted + bend[:, None] * scores
            pulled = pulled + p * (chance @ scores) / count
            curved[own:, own:] += (scores * bend[:, None]).T @ scores / count
        gradient[:own] += rows.T @ flat / count
        gradient[own:] += pulled
        curved[:own, :own] += (rows * steep[:, None]).T @ rows / count
        curved[:own, own:] += rows.T @ tilted / count
        curved[own:, :own] = curved[:own, own:].T
        step = np.linalg.solve(curved, gradient)
        while (after := loss(weights - step)) > reached and float(step @ step) > _STILL**2:
            step = step / 2
        weights, reached = weights - step, min(after, reached)
        if float(step @ step) <= _STILL**2 * (1 + float(weights @ weights)):
            break
    return weights


def estimated_fit(
    rows: Matrix, labels: Vector, family: Family, heard: Sequence[Foreseen], ridge: float, sparse: Vector | None
) -> tuple[Vector, float]:
    """Own weights and factors by the best estimate of each true score, and how much the constant must be raised.

    It is for losses whose expectation is not known in closed form, and for weights many of which shall be zero.
    """
    columns = np.column_stack([rows, *(each.estimated for each in heard)])
    own, count = rows.shape[1], len(rows)
    penalties, centre = np.full(columns.shape[1], ridge), np.zeros(columns.shape[1])
    for place, each in enumerate(heard, start=own):
        penalties[place] = max(ridge, 1 / (count * max(each.factor, 1e-6) ** 2))
        centre[place] = BELIEF * each.factor
    objective = Objective(columns, labels, family, penalties, centre)
    weights = free_fit(objective) if sparse is None else sparse_fit(objective, sparse)
    hidden = sum(float(f) ** 2 * each.hidden for f, each in zip(weights[own:], heard, strict=True))
    steepness, moved = unblurred(family, hidden)
    return weights * steepness, moved


def unblurred(family: Family, hidden: float) -> tuple[float, float]:
    """The factor and the shift that turn weights fitted to noisy scores into weights for scores without noise.

    ``hidden`` is the variance that the noise hides. Averaged over hidden scores, a logistic curve is flatter and an
    exponential curve is higher.
    """
    if family.name == "logistic":
        return 1 / math.sqrt(max(1 - _BLUR * hidden, _STEEPEST)), 0.0
    return (1.0, -hidden / 2) if family.name in ("poisson", "gamma") else (1.0, 0.0)


def blurred(family: Family, scores: Vector, hidden: float) -> Vector:
    """The scores whose means are those of scores that are only known up to this variance."""
    if family.name == "logistic":
        return scores / math.sqrt(1 + _BLUR * hidden)
    return scores + hidden / 2 if family.name in ("poisson", "gamma") else scores


def _points(parties: int, skewness: float) -> list[tuple[float, Vector]]:
    """A law of mean 0, variance 1 and this skewness for each party, independently: probabilities and points."""
    half = math.sqrt(1 + skewness**2 / 4)
    high, low = skewness / 2 + half, skewness / 2 - half
    chance = -low / (high - low)
    if parties <= _EXACT:
        every = product((high, low), repeat=parties)
        return [(math.prod(chance if x > 0 else 1 - chance for x in each), np.array(each)) for each in every]
    count = max(_POINTS, 4 * parties)
    drawn = np.where(np.random.default_rng(parties).random((count, parties)) < chance, high, low)
    drawn -= drawn.mean(axis=0)
    apart = np.linalg.solve(np.linalg.cholesky(drawn.T @ drawn / count), drawn.T).T  # as independent as they should be
    return [(1 / count, each) for each in apart]


def clipped_normal(clip: float, deviation: float) -> tuple[float, float]:
    """For normal values that are clipped: the part of a small shift that remains, and their deviation."""
    cut = clip / deviation
    inside = math.erf(cut / math.sqrt(2))
    density = math.exp(-cut * cut / 2) / math.sqrt(2 * math.pi)
    return inside, deviation * math.sqrt(inside - 2 * cut * density + cut * cut * (1 - inside))
