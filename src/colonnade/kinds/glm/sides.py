"""A passive party's fit over a ball. Its steps are as many for all rows: others see how long it takes.

The active party's last fit: nothing of it is sent, so it costs nothing.

Scores were received with noise that is often larger than they are. What comes of the fit is a model of the scores
themselves, as probabilities need it (docs/theory/alternating-fits.md, section 7).

What each side of an exchange computes by itself: from its rows and received numbers to the numbers that it sends.

Nothing here sends or sees another party's columns; noise is drawn by a function that the caller passes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.kinds.glm.losses import (
    Family,
    FitObjective,
    Vector,
    certified_fit,
    estimate_scores,
    free_fit,
    sparse_fit,
)
from colonnade.kinds.glm.task import RECEIVED_CLIP, Exchange, ExchangeSide
from colonnade.privacy.sensitivity import float_up
from colonnade.protocols.iteration import NoiseSampler
from colonnade.tables.bins import Matrix

_EXACT = 52  # halvings after which the norm of the weights is known as exactly as floats can be


@dataclass(frozen=True)
class BallFit:
    """Minimises ``mean of a x(w - v) + curvature/2 (x(w - v))^2`` and ``ridge/2 |w|^2`` over a ball, for many a and v.

    The second moments of the rows do not change, so their eigenvectors are computed once.
    """

    gram: Matrix
    sizes: Vector
    axes: Matrix
    curvature: float
    ridge: float
    radius: float
    steps: int

    @classmethod
    def of(cls, rows: Matrix, curvature: float, ridge: float, radius: float, pull: float) -> BallFit:
        """For the rows of one party; ``pull`` bounds the gradient at zero weights, whatever the rows are."""
        gram = rows.T @ rows / len(rows)
        sizes, axes = np.linalg.eigh(gram)
        steps = _EXACT + max(0, math.ceil(math.log2(pull / (radius * ridge))))
        return cls(gram, np.maximum(sizes, 0.0), axes, curvature, ridge, radius, steps)

    def minimise(self, gradient: Vector, before: Vector) -> Vector:
        """The new weights; ``gradient`` is the mean of a x, ``before`` are the weights v of the present scores."""
        along = self.axes.T @ (self.curvature * (self.gram @ before) - gradient)
        tall = self.curvature * self.sizes + self.ridge
        weights: Vector = self.axes @ (along / (tall + self._held(along, tall)))
        norm = math.sqrt(float(weights @ weights))
        return weights * (self.radius / norm * (1 - 2.0**-50) if norm > self.radius else 1.0)

    def _held(self, along: Vector, tall: Vector) -> float:
        """The multiplier that keeps the weights within the ball; 0 if they are within it anyway.

        Each step halves where it can be, which is proven to be enough. Newton's step on the inverse of the norm, which
        is concave, never goes too far, and is enough long before.
        """
        low, high = 0.0, math.sqrt(float(along @ along)) / self.radius
        for _ in range(self.steps):
            middle = (low + high) / 2
            norm, _ = _curve(along, tall + middle)
            low, high = (middle, high) if norm > self.radius else (low, middle)
            norm, slope = _curve(along, tall + low)
            further = norm * norm / slope * (norm / self.radius - 1) if slope else 0.0
            low = min(max(low, low + further), high)
        return low


def _curve(along: Vector, tall: Vector) -> tuple[float, float]:
    """The norm of the weights for one multiplier, and how fast the half of its square falls as that grows."""
    parts = along / tall
    squares = parts * parts
    return math.sqrt(float(squares.sum())), float((squares / tall).sum())


BELIEF = 0.5  # of the expected factor: data may double it, and a party without signal does little harm
FILLED = 0.3  # mean square of a row, as part of the square of its bound: a guess
_BLUR = 0.393  # pi / 8: a logistic curve averaged over normal scores is nearly one of a smaller slope
_STEEPEST = 0.5
_DOUBT = 0.15  # relative error of a guess by slopes
_LEAST = 0.3  # as part of a guess by slopes: the least variance that is believed
_LEAN = 1.5  # skewness of what own columns do not foretell, for a label that nearly nobody has; none for an even one
_EXACT_POINTS = 6  # parties; for more of them some points of the joint law stand for all
_POINTS = 64
_STEPS, _STILL = 50, 1e-9


@dataclass(frozen=True)
class VarianceGuess:
    """What the variance of a party's scores should be, before their own variance is looked at, and its error."""

    variance: float
    error: float
    least: float

    @classmethod
    def by_clip(cls, clip: float) -> VarianceGuess:
        """By nothing but the public clip of scores."""
        expected = (clip / 2) ** 2
        return cls(expected, 0.7 * expected, 0.1 * expected)

    @classmethod
    def by_slopes(cls, slopes: Vector, step: Vector, owner: str, task: Exchange, noise: float) -> VarianceGuess:
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

    def plus(self, step: VarianceGuess) -> VarianceGuess:
        """After one more step, which goes the same way."""
        grown = (math.sqrt(self.variance) + math.sqrt(step.variance)) ** 2
        relative = max(each.error / each.variance for each in (self, step))
        return VarianceGuess(grown, relative * grown, _LEAST * grown)


@dataclass(frozen=True)
class ForecastScores:
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
    def of(
        cls, rows: Matrix, received: Vector, noise: float, side: ExchangeSide, guess: VarianceGuess
    ) -> ForecastScores:
        """By a ridge regression on own rows, whose last column is the constant."""
        count, middle = len(rows), estimate_scores(received, side.score_clip, noise).middle
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
        rest = VarianceGuess(max(guess.variance - known, guess.variance / 2), guess.error, guess.least)
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


def _weighed(seen: float, error: float, guess: VarianceGuess) -> float:
    return (seen * guess.error**2 + guess.variance * error**2) / (guess.error**2 + error**2)


def fit_corrected(rows: Matrix, labels: Vector, heard: Sequence[ForecastScores], ridge: float) -> Vector:
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


def fit_estimated(
    rows: Matrix, labels: Vector, family: Family, heard: Sequence[ForecastScores], ridge: float, sparse: Vector | None
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
    objective = FitObjective(columns, labels, family, penalties, centre)
    weights = free_fit(objective) if sparse is None else sparse_fit(objective, sparse)
    hidden = sum(float(f) ** 2 * each.hidden for f, each in zip(weights[own:], heard, strict=True))
    steepness, moved = unblur_scores(family, hidden)
    return weights * steepness, moved


def unblur_scores(family: Family, hidden: float) -> tuple[float, float]:
    """The factor and the shift that turn weights fitted to noisy scores into weights for scores without noise.

    ``hidden`` is the variance that the noise hides. Averaged over hidden scores, a logistic curve is flatter and an
    exponential curve is higher.
    """
    if family.name == "logistic":
        return 1 / math.sqrt(max(1 - _BLUR * hidden, _STEEPEST)), 0.0
    return (1.0, -hidden / 2) if family.name in ("poisson", "gamma") else (1.0, 0.0)


def blur_scores(family: Family, scores: Vector, hidden: float) -> Vector:
    """The scores whose means are those of scores that are only known up to this variance."""
    if family.name == "logistic":
        return scores / math.sqrt(1 + _BLUR * hidden)
    return scores + hidden / 2 if family.name in ("poisson", "gamma") else scores


def _points(parties: int, skewness: float) -> list[tuple[float, Vector]]:
    """A law of mean 0, variance 1 and this skewness for each party, independently: probabilities and points."""
    half = math.sqrt(1 + skewness**2 / 4)
    high, low = skewness / 2 + half, skewness / 2 - half
    chance = -low / (high - low)
    if parties <= _EXACT_POINTS:
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


@dataclass(frozen=True)
class KeptWeights:
    """One party's own part of the model, which it tells nobody: weights of its centred columns, then the constant.

    The active party also has ``factors``, by which it multiplies the scores of each other party, and ``expected``, the
    weights of its own row with which it predicts those scores before it receives them; ``spreads`` are the variances
    of the true scores around that.
    """

    party: str
    weights: Vector
    factors: Mapping[str, float] = field(default_factory=dict)
    expected: Mapping[str, Vector] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)


class PassiveParty:
    """A passive party: from slopes that it receives to weights, and to the scores that it sends.

    In an alternating exchange it fits all its rows anew, the one batch; otherwise it takes a step for each batch.
    """

    def __init__(self, rows: Matrix, owner: str, task: Exchange) -> None:
        self.rows, self.task, self.side = rows, task, task.side(owner)
        self.weights = np.zeros(rows.shape[1])
        self._fit: BallFit | None = None
        if task.method == "alternating":
            bounds = (task.family.curvature, self.side.ridge, self.side.weight_bound, float_up(task.pull(owner)))
            self._fit = BallFit.of(rows, *bounds)

    def take(self, batch: int, slopes: Vector) -> None:
        """Learn from one batch's slopes, with their noise; those beyond the clip are clipped first."""
        clipped = np.clip(slopes, -self.task.message_clip, self.task.message_clip)
        rows = self.rows[batch :: self.task.batches]
        if self._fit is None:
            self.weights = descent_step(self.weights, clipped @ rows, self.side, self.task)
        else:
            self.weights = self._fit.minimise(rows.T @ clipped / len(rows), self.weights)

    def scores(self, batch: int) -> Vector:
        """The scores of one batch, within their clip."""
        found = self.rows[batch :: self.task.batches] @ self.weights
        return np.clip(found, -self.side.score_clip, self.side.score_clip)

    def keep_weights(self) -> KeptWeights:
        """The final weights, which it tells nobody."""
        return KeptWeights(self.side.owner, self.weights)


def descent_step(weights: Vector, total: Vector, side: ExchangeSide, task: Exchange) -> Vector:
    """A proximal step against a batch's summed gradient, and back into the ball."""
    rate = task.learning_rate
    moved = weights - rate * (total / task.batch_size + side.ridge * weights)
    if task.l1:
        moved[:-1] = np.sign(moved[:-1]) * np.maximum(0.0, np.abs(moved[:-1]) - rate * task.l1)  # not the constant
    moved /= 1 + rate * task.prox_ridge
    norm = math.sqrt(float(moved @ moved))
    return moved if norm <= side.weight_bound else moved * (side.weight_bound / norm * (1 - 2.0**-50))


@dataclass(frozen=True)
class ReceivedScores:
    """One passive party's received scores, scaled to deviation 1: a column for the active party's fit.

    ``signal`` is the variance of the true scores. A weight of this column times ``factor`` is a weight of the scores
    themselves. All of it follows from what was received.
    """

    column: Vector
    middle: float
    signal: float
    share: float
    factor: float
    prior: float

    @classmethod
    def of(cls, received: Vector, deviation: float, side: ExchangeSide) -> ReceivedScores:
        """The column for some received scores, whose noise has this deviation."""
        found = estimate_scores(received, side.score_clip, deviation**2)
        whole = math.sqrt(found.signal + found.noise)
        column = np.clip((received - found.middle) / whole, -RECEIVED_CLIP, RECEIVED_CLIP)
        return cls(column, found.middle, found.signal, found.share, whole / found.signal, side.factor)


class _Active:
    """What both kinds of active party share: the scores of all rows as last received, and the fit to them."""

    def __init__(self, rows: Matrix, labels: Vector, task: Exchange) -> None:
        self.rows, self.labels, self.task = rows, labels, task
        self.side, self.family = task.side(task.active), task.family
        self.received: dict[str, Vector] = {}

    def hear(self, party: str, batch: int, scores: Vector) -> None:
        """Keep the received scores of a batch, with their noise."""
        kept = self.received.setdefault(party, np.full(len(self.rows), np.nan))
        kept[batch :: self.task.batches] = scores

    def refit(self, ridge: float, *, certified: bool = True) -> tuple[Vector, Vector]:
        """Fit own columns and one factor for each party's scores to the labels: the weights, and the scores they give.

        A penalty holds each factor near the expected one. Numbers made from a fit may be sent only if it is
        ``certified``: its gradient is then as short as the proofs need, after as many steps for all rows.
        """
        heard = _received_scores(self)
        rows = np.column_stack([self.rows, *(each.column for each in heard.values())])
        penalties, centre, own = np.full(rows.shape[1], ridge), np.zeros(rows.shape[1]), self.rows.shape[1]
        for place, each in enumerate(heard.values(), start=own):
            spread = max(each.prior / each.factor, 1e-6)
            penalties[place] = max(ridge, 1 / (len(rows) * spread**2))
            centre[place] = BELIEF * each.prior / each.factor
        objective = FitObjective(rows, self.labels, self.family, penalties, centre)
        if certified:
            weights = certified_fit(objective, self.task.active_norm, self.task.slack(self.task.active))
        else:
            weights = free_fit(objective)
        return weights, rows @ weights

    def guess(self, party: str) -> VarianceGuess:
        """What the variance of a party's scores should be, by what is known without looking at it."""
        return VarianceGuess.by_clip(self.task.side(party).score_clip)

    def keep_weights(self) -> KeptWeights:
        """The final model of the active party; it costs no privacy, as it is not sent.

        Others fit their scores to lower the loss, so a factor below 0 can only be noise: such scores are left out.
        """
        heard = {party: self._foreseen(party) for party in self.task.passives if party in self.received}
        used, own = dict(heard), self.rows.shape[1]
        found, moved = self._last_fit(used)
        while (found[own:] < 0).any():
            used = {party: each for (party, each), f in zip(used.items(), found[own:], strict=True) if f >= 0}
            found, moved = self._last_fit(used)
        weights = found[:own].copy()
        weights[-1] += moved / self.task.intercept
        factors = dict.fromkeys(heard, 0.0) | dict(zip(used, found[own:].tolist(), strict=True))
        expected = {party: each.weights for party, each in heard.items()}
        return KeptWeights(
            self.task.active, weights, factors, expected, {party: each.spread for party, each in heard.items()}
        )

    def expected_scores(self, kept: KeptWeights) -> Vector:
        """The scores whose means are what the final model expects of the people it was fitted to.

        They follow from own rows and received scores, so this party alone can compute them, and nothing is sent.
        """
        scores, hidden = self.rows @ kept.weights, 0.0
        for party, factor in kept.factors.items():
            heard = self._foreseen(party)
            scores, hidden = scores + factor * heard.estimated, hidden + factor**2 * heard.hidden
        return blur_scores(self.family, scores, hidden)

    def _last_fit(self, heard: Mapping[str, ForecastScores]) -> tuple[Vector, float]:
        """Weights of own columns and factors, and how much the constant must be raised."""
        # Nobody else sees this fit: its penalty is that of the steps, or a small one that makes it unique.
        steps = self.side.ridge + self.task.prox_ridge if self.task.method == "gradient" else 0.0
        own, ridge, scores = self.rows.shape[1], max(steps, 1.0 / len(self.rows)), list(heard.values())
        if self.family.name == "logistic" and not self.task.l1:
            return fit_corrected(self.rows, self.labels, scores, ridge), 0.0
        sparse = np.where(np.arange(own + len(heard)) < own - 1, self.task.l1, 0.0)  # no constant, no factors
        return fit_estimated(self.rows, self.labels, self.family, scores, ridge, sparse if self.task.l1 else None)

    def _foreseen(self, party: str) -> ForecastScores:
        noise = self.task.message_deviation(party) ** 2
        return ForecastScores.of(
            self.rows, _whole(self.received[party]), noise, self.task.side(party), self.guess(party)
        )


class ActiveFit(_Active):
    """The active party of an alternating exchange."""

    def __init__(self, rows: Matrix, labels: Vector, task: Exchange) -> None:
        super().__init__(rows, labels, task)
        self._told = np.zeros(len(rows))
        self._guesses: dict[str, VarianceGuess] = {}

    def slopes(self, batch: int) -> Vector:
        """The slopes of all rows at the best fit so far."""
        self._told = self.family.clip_slopes(self.refit(self.side.ridge)[1], self.labels)
        return self._told

    def hear(self, party: str, batch: int, scores: Vector) -> None:
        """Keep the received scores, and what the answered slopes tell of how much they grew."""
        before, noise = self.received.get(party), self.task.message_deviation(party) ** 2
        step, noisy = (scores, noise) if before is None else (scores - before, 2 * noise)
        grown = VarianceGuess.by_slopes(self._told, step, party, self.task, noisy)
        self._guesses[party] = grown if before is None else self._guesses[party].plus(grown)
        super().hear(party, batch, scores)

    def guess(self, party: str) -> VarianceGuess:
        """By the slopes that the party answered."""
        return self._guesses[party]

    def learn(self, following: int | None) -> None:
        """Do nothing: the next fit starts anew."""

    def release_weights(self) -> Vector:
        """The weights to be released: of own columns, the constant, and each party's column of scores."""
        return self.refit(self.task.release_ridge)[0]

    def unfold(self, weights: Vector) -> KeptWeights:
        """Released weights as a model of the scores themselves, by what was received alone.

        The other parties' weights have noise now, so their scores get smaller factors.
        """
        task, heard = self.task, _received_scores(self)
        blurs = {p: FILLED * (task.row_norm(p) * task.weights_deviation(p)) ** 2 for p in heard}
        left = [each.signal / (each.signal + blurs[party]) for party, each in heard.items()]
        own = weights[: len(weights) - len(left)].copy()
        told = zip(heard.items(), weights[len(own) :] * left, strict=True)
        factors = {party: float(weight) * each.factor for (party, each), weight in told}
        hidden = sum(f**2 * heard[p].signal * (1 - heard[p].share) for p, f in factors.items())
        steepness, moved = unblur_scores(self.family, hidden)
        shift = moved - steepness * sum(f * heard[p].middle for p, f in factors.items())
        own *= steepness
        own[-1] += shift / task.intercept
        return KeptWeights(task.active, own, {party: steepness * factor for party, factor in factors.items()})


class ActiveDescent(_Active):
    """The active party of gradient descent."""

    def __init__(self, rows: Matrix, labels: Vector, task: Exchange) -> None:
        super().__init__(rows, labels, task)
        self.weights = np.zeros(rows.shape[1])
        self._total = np.zeros(rows.shape[1])
        self._own = np.zeros(len(rows[:: task.batches]))

    def slopes(self, batch: int) -> Vector:
        """The slopes of one batch at the present weights; :meth:`learn` takes the own step after they are sent."""
        some = slice(batch, None, self.task.batches)
        rows, labels = self.rows[some], self.labels[some]
        scores = self._own + sum(np.nan_to_num(kept[some]) for kept in self.received.values())
        self._total = self.family.slopes(scores, labels) @ rows
        return self.family.clip_slopes(scores, labels)

    def learn(self, following: int | None) -> None:
        """Take the own step for the batch of the last slopes, and make the own scores of the following batch."""
        self.weights = descent_step(self.weights, self._total, self.side, self.task)
        if following is not None:
            self._own = self.rows[following :: self.task.batches] @ self.weights

    def release_weights(self) -> Vector:
        """The weights after the last step."""
        return self.weights

    def unfold(self, weights: Vector) -> KeptWeights:
        """Released weights as a model: the steps give every party's scores the factor 1."""
        return KeptWeights(self.task.active, weights, dict.fromkeys(self.task.passives, 1.0))


def active_side(rows: Matrix, labels: Vector, task: Exchange) -> ActiveFit | ActiveDescent:
    """The active party of the task's method."""
    return ActiveFit(rows, labels, task) if task.method == "alternating" else ActiveDescent(rows, labels, task)


def _whole(received: Vector) -> Vector:
    """The received scores, with their mean where none came: the first batch of a single epoch is never sent."""
    missing = np.isnan(received)
    return np.where(missing, received[~missing].mean(), received) if missing.any() else received


def _received_scores(side: _Active) -> dict[str, ReceivedScores]:
    return {
        party: ReceivedScores.of(
            _whole(side.received[party]), side.task.message_deviation(party), side.task.side(party)
        )
        for party in side.task.passives
        if party in side.received
    }


def with_constant(rows: Matrix, name: str, task: Exchange) -> Matrix:
    """An owner's rows with the constant as last column; a row that the encoder failed to clip becomes zero."""
    block = task.block(name)
    if rows.shape != (task.rows, len(block.columns)):
        raise DataError(f"the rows of {name} must be {task.rows} of {len(block.columns)} columns [DA124]")
    over = np.einsum("ij,ij->i", rows, rows) > block.clip**2 * (1 + 2.0**-40)
    return np.hstack([np.where(over[:, None], 0.0, rows), np.full((len(rows), 1), task.intercept)])


def add_noise(values: Vector, name: str, task: Exchange, draw: NoiseSampler) -> NDArray[np.int64]:
    """One owner's message: values on the grid, with its noise; audits attack this function."""
    return task.grid.quantise(values) + draw(name, task.message_variance(name), len(values))


def add_weight_noise(values: Vector, name: str, task: Exchange, draw: NoiseSampler) -> NDArray[np.int64]:
    """One owner's released weights: on the grid, with its noise."""
    return task.grid.quantise(values) + draw(name, task.weights_variance(name), len(values))
