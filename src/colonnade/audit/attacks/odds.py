"""What a model shows of one person: one number, higher if the model fits the person better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from colonnade.errors import StudyError
from colonnade.tables import Table

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


def confidence(model: Any, people: Mapping[str, Table]) -> Vector:
    """How sure a model is of each person's true label.

    Of a classifier, the log-odds of the true class; of other models with scores, the score towards the label: a
    normal law fits these better than it fits probabilities or losses.
    """
    if not (hasattr(model, "scores") and hasattr(model, "label_of")):
        raise StudyError(
            f"a {type(model).__name__} predicts nothing about a person, so there is no confidence to attack: a "
            "membership attack takes a regression, a classifier, a generalised linear model or a split network [ST003]"
        )
    scores, label = np.asarray(model.scores(people)), np.asarray(model.label_of(people))
    if getattr(model, "classes_", None) is None:
        return towards(scores[:, 0], label[:, 0])
    return log_odds(scores, label)


def log_odds(scores: Matrix, label: Matrix) -> Vector:
    """The log-odds of the true class, from scores and labels of one column (two classes) or one for each class."""
    true = label[:, 0] if label.shape[1] == 1 else label.argmax(axis=1)
    chosen = np.rint(true).astype(np.intp)
    if scores.shape[1] == 1:
        odds: Vector = np.where(chosen > 0, scores[:, 0], -scores[:, 0])
        return odds
    rows = np.arange(len(scores))
    others = scores.copy()
    others[rows, chosen] = -np.inf
    found: Vector = scores[rows, chosen] - logsumexp(others, axis=1)
    return found


def nearness(numbers: Matrix, label: Matrix) -> Vector:
    """The log-odds of the true class by distances from the means of the classes, in deviations within classes."""
    true = np.rint(label[:, 0]).astype(np.intp) if label.shape[1] == 1 else label.argmax(axis=1)
    flags = np.eye(max(2, label.shape[1]))[true]
    counts = np.maximum(flags.sum(axis=0), 1.0)[:, None]
    means = flags.T @ numbers / counts
    spread = np.maximum(np.mean((numbers - means[true]) ** 2), np.finfo(np.float64).tiny)
    squares = ((numbers[:, None, :] - means) ** 2).sum(axis=2)
    return log_odds(-squares / (2 * spread), flags)


def towards(scores: Vector, label: Vector) -> Vector:
    """Minus the distance of a score to the label that it predicts."""
    gap: Vector = -np.abs(scores - label)
    return gap
