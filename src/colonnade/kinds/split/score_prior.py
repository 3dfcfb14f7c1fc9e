"""What one party's embeddings alone say of the scores, and what answers with noise add to that.

The moments that a committee opened give a head over the embeddings of each party alone, too: it follows from the same
release and costs nothing more. Whoever is told sums with noise weighs them against its own head's scores
(docs/theory/levels-of-scores.md), because noise that hides one person is mostly larger than all that the sums say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.prediction.score_posterior import GUESSED, PUBLISHED, ScorePosterior, update_by_noisy_sums
from colonnade.kinds.regression import least_squares
from colonnade.kinds.split.heads import LinearHead

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]

WEIGHTS, INTERCEPTS, SPREADS = "own_weights", "own_intercepts", "own_spreads"
_STEPS = 30


def centre_classes(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights or scores without what all classes have in common, which no chance depends on; the first axis is theirs.

    One number stays as it is.
    """
    return weights - weights.mean(axis=0) if len(weights) > 1 else weights


def prior_arrays(
    given: least_squares.LeastSquaresProblem, deviations: Matrix, head: LinearHead, own: Mapping[str, LinearHead]
) -> Arrays:
    """The heads of single parties, and how far exact scores are from theirs, from noisy moments.

    ``own_weights`` are those of all parties side by side, ``own_intercepts`` one row a party, and ``own_spreads`` the
    covariances of what each party's own embeddings do not say.
    """
    spreads, start = [], 0
    for each in own.values():
        at = slice(start, start + each.weights.shape[1])
        spreads.append(_unexplained_covariance(given, deviations, head, each, at))
        start = at.stop
    return {
        WEIGHTS: np.hstack([each.weights for each in own.values()]),
        INTERCEPTS: np.array([each.intercept for each in own.values()]),
        SPREADS: np.array(spreads),
    }


def label_only_head(kind: str, means: Vector) -> LinearHead:
    """The head of a party with nothing but the label: the same scores for everybody, by the means of the label."""
    shares = np.clip(means, 1e-3, 1 - 1e-3)
    found = {"discriminant": np.log(shares), "logistic": np.log(shares / (1 - shares))}.get(kind, means)
    return LinearHead(np.zeros((len(means), 0)), found, kind)


@dataclass(frozen=True)
class ScorePrior:
    """The scores as one party's own embeddings foretell them, and the covariance of what these do not say."""

    weights: Matrix
    intercept: Vector
    spread: Matrix
    doubt: float = PUBLISHED

    @classmethod
    def read(cls, public: Arrays, widths: Mapping[str, int], party: str) -> ScorePrior:
        """What was learned with the head; in models of earlier releases, a guess.

        There the others' embeddings are taken to point anywhere, so that they add nothing that one could foretell.
        """
        ends = dict(zip(widths, np.cumsum(list(widths.values())).tolist(), strict=True))
        parts = {name: slice(end - widths[name], end) for name, end in ends.items()}
        if WEIGHTS in public:
            place = list(widths).index(party)
            return cls(public[WEIGHTS][:, parts[party]], public[INTERCEPTS][place], public[SPREADS][place])
        weights = centre_classes(public["weights"])
        others = [weights[:, at] / math.sqrt(widths[name]) for name, at in parts.items() if name != party]
        spread = sum((each @ each.T for each in others), start=np.zeros((len(weights),) * 2))
        slope = flattening_factor(spread)
        return cls(public["weights"][:, parts[party]] / slope, public["intercept"] / slope, spread, GUESSED)

    def scores(self, embeddings: Matrix) -> Matrix:
        """What is expected of the exact scores; their chances are those of the party's own head, once flattened."""
        found = embeddings @ self.weights.T + self.intercept
        return np.asarray(flattening_factor(self.spread) * centre_classes(found.T).T)

    def update(self, foreseen: Matrix, own: Matrix, heard: Matrix, deviation: float) -> tuple[Matrix, Matrix]:
        """The others' part as it is believed after it was heard with noise, and the covariance of what is not known.

        Noise of one deviation on every output is such noise along any axes, so along those in which the parts do not
        go together each is weighed by itself.
        """
        variances, axes = np.linalg.eigh(self.spread)
        rows = len(heard)
        before = ScorePosterior(foreseen @ axes, np.tile(np.maximum(variances, 0.0), (rows, 1)), self.doubt)
        after = update_by_noisy_sums(before, own @ axes, heard @ axes, deviation)
        left = after.variance[0] if rows else np.zeros(len(axes))
        return after.mean @ axes.T, np.asarray((axes * left) @ axes.T)


def flattening_factor(unknown: Matrix) -> float:
    """By how much to divide scores of classes that are known up to an error of this covariance; 1 for a number.

    A lead over another class, as a logarithm of odds, is divided by sqrt(1 + pi/8 variance); of several classes all
    pairs count alike.
    """
    outputs = len(unknown)
    if outputs < 2:
        return 1.0
    between = 2 * (np.trace(unknown) / outputs - (unknown.sum() - np.trace(unknown)) / (outputs * (outputs - 1)))
    return math.sqrt(1 + math.pi / 8 * max(0.0, float(between)))


def check_prior(public: Arrays, outputs: int, parties: int) -> None:
    """Raise an error unless single parties' heads belong to that of all; earlier releases had none."""
    if not {WEIGHTS, INTERCEPTS, SPREADS} & set(public):
        return
    shapes = {WEIGHTS: public["weights"].shape, INTERCEPTS: (parties, outputs), SPREADS: (parties, outputs, outputs)}
    if any(name not in public or public[name].shape != shape for name, shape in shapes.items()):
        raise ValueError("heads of single parties do not belong to that of all [VA064]")
    if not np.allclose(public[SPREADS], public[SPREADS].transpose(0, 2, 1)):
        raise ValueError("a covariance is symmetric [VA065]")


def _unexplained_covariance(
    given: least_squares.LeastSquaresProblem, deviations: Matrix, head: LinearHead, own: LinearHead, at: slice
) -> Matrix:
    """The covariance of exact scores around what a party expects of them; never below what noise gives it.

    What it expects is its own head's scores, made steeper by as much as this covariance asks for.
    """
    spread, slope = np.zeros((len(head.weights),) * 2), 1.0
    for _ in range(_STEPS):
        missed = head.weights.copy()
        missed[:, at] -= slope * own.weights
        missed = centre_classes(missed)
        squares = np.square(missed)
        blur = np.sqrt(2 * np.diag(squares @ np.square(deviations) @ squares.T)) / given.rows
        variances, axes = np.linalg.eigh(missed @ given.gram @ missed.T / given.rows)
        spread = (axes * np.maximum(variances, np.square(axes).T @ blur)) @ axes.T
        slope = flattening_factor(spread)
    found = centre_classes(centre_classes(spread).T)  # what noise gives all classes in common says nothing
    return np.asarray((found + found.T) / 2)
