"""What each side of an exchange computes by itself: from its rows and received numbers to the numbers that it sends.

Nothing here sends or sees another party's columns; noise is drawn by a function that the caller passes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.kinds.glm.exchange.ball import BallFit
from colonnade.kinds.glm.exchange.bounds import RECEIVED_CLIP, Side
from colonnade.kinds.glm.exchange.fits import Matrix, Objective, Vector, believed, certified_fit, free_fit
from colonnade.kinds.glm.exchange.last_fit import (
    BELIEF,
    FILLED,
    Foreseen,
    Guess,
    blurred,
    corrected_fit,
    estimated_fit,
    unblurred,
)
from colonnade.kinds.glm.exchange.task import Exchange
from colonnade.privacy.sensitivity import float_up
from colonnade.protocols.rounds import Draw


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


class Passive(ABC):
    """A passive party: from slopes that it receives to weights, and to the scores that it sends."""

    def __init__(self, rows: Matrix, owner: str, task: Exchange) -> None:
        self.rows, self.task, self.side = rows, task, task.side(owner)
        self.weights = np.zeros(rows.shape[1])

    def take(self, batch: int, slopes: Vector) -> None:
        """Learn from one batch's slopes, with their noise; those beyond the clip are clipped first."""
        clipped = np.clip(slopes, -self.task.message_clip, self.task.message_clip)
        self.weights = self._learned(self.rows[batch :: self.task.batches], clipped)

    @abstractmethod
    def _learned(self, rows: Matrix, slopes: Vector) -> Vector:
        """The next weights, from the slopes of these rows."""

    def scores(self, batch: int) -> Vector:
        """The scores of one batch, within their clip."""
        found = self.rows[batch :: self.task.batches] @ self.weights
        return np.clip(found, -self.side.score_clip, self.side.score_clip)

    def kept(self) -> KeptWeights:
        """The final weights, which it tells nobody."""
        return KeptWeights(self.side.owner, self.weights)


class PassiveFit(Passive):
    """A passive party of an alternating exchange, where the one batch is all rows."""

    def __init__(self, rows: Matrix, owner: str, task: Exchange) -> None:
        super().__init__(rows, owner, task)
        bounds = (task.family.curvature, self.side.ridge, self.side.weight_bound, float_up(task.pull(owner)))
        self._fit = BallFit.of(rows, *bounds)

    def _learned(self, rows: Matrix, slopes: Vector) -> Vector:
        return self._fit.minimise(rows.T @ slopes / len(rows), self.weights)


class PassiveDescent(Passive):
    """A passive party of gradient descent."""

    def _learned(self, rows: Matrix, slopes: Vector) -> Vector:
        return stepped(self.weights, slopes @ rows, self.side, self.task)


def stepped(weights: Vector, total: Vector, side: Side, task: Exchange) -> Vector:
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
    def of(cls, received: Vector, deviation: float, side: Side) -> ReceivedScores:
        """The column for some received scores, whose noise has this deviation."""
        found = believed(received, side.score_clip, deviation**2)
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

    def refit(self, ridge: float, *, certified: bool = True) -> Fit:
        """Fit own columns and one factor for each party's scores to the labels, given what was received.

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
        objective = Objective(rows, self.labels, self.family, penalties, centre)
        if certified:
            weights = certified_fit(objective, self.task.active_norm, self.task.slack(self.task.active))
        else:
            weights = free_fit(objective)
        return Fit(weights, rows @ weights, heard)

    def guess(self, party: str) -> Guess:
        """What the variance of a party's scores should be, by what is known without looking at it."""
        return Guess.by_clip(self.task.side(party).score_clip)

    def kept(self) -> KeptWeights:
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

    def expected(self, kept: KeptWeights) -> Vector:
        """The scores whose means are what the final model expects of the people it was fitted to.

        They follow from own rows and received scores, so this party alone can compute them, and nothing is sent.
        """
        scores, hidden = self.rows @ kept.weights, 0.0
        for party, factor in kept.factors.items():
            heard = self._foreseen(party)
            scores, hidden = scores + factor * heard.estimated, hidden + factor**2 * heard.hidden
        return blurred(self.family, scores, hidden)

    def _last_fit(self, heard: Mapping[str, Foreseen]) -> tuple[Vector, float]:
        """Weights of own columns and factors, and how much the constant must be raised."""
        own, ridge, scores = self.rows.shape[1], _gentle(self), list(heard.values())
        if self.family.name == "logistic" and not self.task.l1:
            return corrected_fit(self.rows, self.labels, scores, ridge), 0.0
        sparse = np.where(np.arange(own + len(heard)) < own - 1, self.task.l1, 0.0)  # no constant, no factors
        return estimated_fit(self.rows, self.labels, self.family, scores, ridge, sparse if self.task.l1 else None)

    def _foreseen(self, party: str) -> Foreseen:
        noise = self.task.message_deviation(party) ** 2
        return Foreseen.of(self.rows, _whole(self.received[party]), noise, self.task.side(party), self.guess(party))


class ActiveFit(_Active):
    """The active party of an alternating exchange."""

    def __init__(self, rows: Matrix, labels: Vector, task: Exchange) -> None:
        super().__init__(rows, labels, task)
        self._told = np.zeros(len(rows))
        self._guesses: dict[str, Guess] = {}

    def slopes(self, batch: int) -> Vector:
        """The slopes of all rows at the best fit so far."""
        self._told = self.family.sent(self.refit(self.side.ridge).scores, self.labels)
        return self._told

    def hear(self, party: str, batch: int, scores: Vector) -> None:
        """Keep the received scores, and what the answered slopes tell of how much they grew."""
        before, noise = self.received.get(party), self.task.message_deviation(party) ** 2
        step, noisy = (scores, noise) if before is None else (scores - before, 2 * noise)
        grown = Guess.by_slopes(self._told, step, party, self.task, noisy)
        self._guesses[party] = grown if before is None else self._guesses[party].plus(grown)
        super().hear(party, batch, scores)

    def guess(self, party: str) -> Guess:
        """By the slopes that the party answered."""
        return self._guesses[party]

    def learn(self, following: int | None) -> None:
        """Do nothing: the next fit starts anew."""

    def released(self) -> Vector:
        """The weights to be released: of own columns, the constant, and each party's column of scores."""
        return self.refit(self.task.release_ridge).weights

    def unfolded(self, weights: Vector) -> KeptWeights:
        """Released weights as a model of the scores themselves, by what was received alone.

        The other parties' weights have noise now, so their scores get smaller factors.
        """
        found = Fit(weights, np.zeros(0), _received_scores(self))
        blurs = {p: FILLED * (self.task.row_norm(p) * self.task.weights_deviation(p)) ** 2 for p in found.heard}
        left = [each.signal / (each.signal + blurs[party]) for party, each in found.heard.items()]
        own = len(weights) - len(left)
        return replace(found, weights=np.append(weights[:own], weights[own:] * left)).kept(self)


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
        return self.family.sent(scores, labels)

    def learn(self, following: int | None) -> None:
        """Take the own step for the batch of the last slopes, and make the own scores of the following batch."""
        self.weights = stepped(self.weights, self._total, self.side, self.task)
        if following is not None:
            self._own = self.rows[following :: self.task.batches] @ self.weights

    def released(self) -> Vector:
        """The weights after the last step."""
        return self.weights

    def unfolded(self, weights: Vector) -> KeptWeights:
        """Released weights as a model: the steps give every party's scores the factor 1."""
        return KeptWeights(self.task.active, weights, dict.fromkeys(self.task.passives, 1.0))


def active_side(rows: Matrix, labels: Vector, task: Exchange) -> ActiveFit | ActiveDescent:
    """The active party of the task's method."""
    return ActiveFit(rows, labels, task) if task.method == "alternating" else ActiveDescent(rows, labels, task)


def passive_side(rows: Matrix, name: str, task: Exchange) -> Passive:
    """A passive party of the task's method."""
    return PassiveFit(rows, name, task) if task.method == "alternating" else PassiveDescent(rows, name, task)


def _gentle(side: _Active) -> float:
    """The penalty of a fit that nobody else sees: that of the steps, or a small one that makes it unique."""
    steps = side.side.ridge + side.task.prox_ridge if side.task.method == "gradient" else 0.0
    return max(steps, 1.0 / len(side.rows))


@dataclass(frozen=True)
class Fit:
    """Weights of the own columns, the constant and the received columns, with the scores they give."""

    weights: Vector
    scores: Vector
    heard: Mapping[str, ReceivedScores]

    def kept(self, side: _Active) -> KeptWeights:
        """The fit as a model of the true scores, which have no noise."""
        own = len(self.weights) - len(self.heard)
        weights = self.weights[:own].copy()
        found = dict(zip(self.heard, self.weights[own:], strict=True))
        factors = {party: float(weight) * self.heard[party].factor for party, weight in found.items()}
        hidden = sum(f**2 * self.heard[p].signal * (1 - self.heard[p].share) for p, f in factors.items())
        steepness, moved = unblurred(side.family, hidden)
        shift = moved - steepness * sum(f * self.heard[p].middle for p, f in factors.items())
        weights *= steepness
        weights[-1] += shift / side.task.intercept
        return KeptWeights(side.task.active, weights, {party: steepness * factor for party, factor in factors.items()})


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


def noised(values: Vector, name: str, task: Exchange, draw: Draw) -> NDArray[np.int64]:
    """One owner's message: values on the grid, with its noise; audits attack this function."""
    return task.grid.quantise(values) + draw(name, task.message_variance(name), len(values))


def noised_weights(values: Vector, name: str, task: Exchange, draw: Draw) -> NDArray[np.int64]:
    """One owner's released weights: on the grid, with its noise."""
    return task.grid.quantise(values) + draw(name, task.weights_variance(name), len(values))
