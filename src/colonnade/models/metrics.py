"""How good predictions are: the share of correct classes, the area under the curve, the explained deviance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.models.assessment import Vector


def accuracy(true: NDArray[Any], predicted: NDArray[Any]) -> float:
    """The share of people whose class is predicted."""
    return float(np.mean(true == predicted))


def area(positive: NDArray[np.bool_], scores: Vector) -> float:
    """The chance that a person of the positive class has a larger score than one of the other; a tie counts half."""
    many, few = int(positive.sum()), int((~positive).sum())
    if not many or not few:
        return 0.5
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    total = float(ranks[place][positive].sum())
    return (total - many * (many + 1) / 2) / (many * few)


def explained(family: str, true: Vector, mean: Vector) -> float:
    """The part of the deviance that predictions explain beyond the plain mean: for ``linear`` R^2."""
    worst = deviance(family, true, np.full_like(true, true.mean()))
    return 1.0 - deviance(family, true, mean) / worst if worst > 0 else 0.0


def deviance(family: str, true: Vector, mean: Vector) -> float:
    """The mean deviance of the family for these predicted means; for ``linear`` the mean squared error."""
    if family == "poisson":
        counted = np.where(true > 0, true, 1.0)
        each = np.where(true > 0, true * np.log(counted / mean), 0.0) - true + mean
    elif family == "gamma":
        each = np.log(mean / true) + true / mean - 1
    else:
        each = (true - mean) ** 2 / 2
    return 2 * float(np.mean(each))
