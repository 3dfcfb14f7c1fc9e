"""Whose label is which? Labels from the slopes that the party with the label returns to the others.

A slope says how the loss falls with a person's embedding, and points towards the person's class. So slopes fall into as
many directions as there are classes; a few people whose labels are known say which direction is which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from colonnade.audit.attacks.membership import Interval, clopper_pearson, label_accuracy
from colonnade.errors import DataError

Matrix = NDArray[np.float64]
Codes = NDArray[np.intp]
_TRIES = 10


@dataclass(frozen=True)
class ReturnedGradients:
    """What was returned about each person, and the true labels as codes from 0.

    ``slopes`` is (people, numbers), or (rounds, people, numbers) where several rounds were seen. ``known`` are the
    places of people whose labels the attacker knows; it is judged by the others. ``epsilon`` is the promise about one
    label; ``None`` where labels are not protected. ``prior`` holds what anybody may believe without the slopes: a
    chance of each class for each person, by default how often each class occurs. ``labels_told`` where no slopes came
    back but labels themselves, one column for each class.
    """

    slopes: Matrix
    labels: Codes
    known: NDArray[np.intp]
    classes: int
    epsilon: float | None = None
    prior: Matrix | None = None
    labels_told: bool = False

    def __post_init__(self) -> None:
        if self.slopes.ndim not in (2, 3) or self.slopes.shape[-2] != len(self.labels):
            raise DataError("there is one slope for each person, in each round [DA005]")
        if not np.isfinite(self.slopes).all():
            raise DataError("slopes must be finite numbers [DA006]")
        if not (len(self.known) and len(np.unique(self.known)) == len(self.known) < len(self.labels)):
            raise DataError(
                "an attack on labels needs a few people whose labels are known, and others to be judged by [DA007]"
            )
        if self.labels.min() < 0 or self.labels.max() >= self.classes:
            raise DataError("labels are codes from 0, below the number of classes [DA008]")


@dataclass(frozen=True)
class LabelGuesses:
    """How often labels were guessed: by the directions of slopes alone, and by learning from the known people."""

    clusters: float
    learned: float | None
    interval: Interval
    base_rate: float
    most: float | None
    people: int
    known: int
    rounds: int
    labels_told: bool = False

    @property
    def accuracy(self) -> float:
        """That of the better attack."""
        return max(self.clusters, self.learned or 0.0)

    @property
    def needed(self) -> str:
        """What the attacker needed, in one sentence."""
        rounds = "of one round" if self.rounds == 1 else f"of {self.rounds} rounds"
        received = (
            "labels as they were told to it" if self.labels_told else f"the slopes {rounds} that it received anyway"
        )
        return f"the attacker needed {received}, and the labels of {self.known:,} people."

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"attack": "labels", "needed": self.needed, **vars(self), "accuracy": self.accuracy}


def infer_labels(returned: ReturnedGradients, *, seed: int = 0) -> LabelGuesses:
    """Guess the labels of everybody else, in two ways."""
    features = directions(returned.slopes)
    asked = np.setdiff1d(np.arange(len(returned.labels)), returned.known)
    truth = returned.labels[asked]
    by_direction = match_clusters(
        cluster_directions(features, returned.classes, seed), returned.labels, returned.known, returned.classes
    )
    right = [int(np.sum(by_direction[asked] == truth))]
    learned = _learn_labels(features, returned)
    if learned is not None:
        right.append(int(np.sum(learned[asked] == truth)))
    shares = np.bincount(truth, minlength=returned.classes) / len(truth)
    prior = shares if returned.prior is None else returned.prior[asked]
    rounds = 1 if returned.slopes.ndim == 2 else len(returned.slopes)
    return LabelGuesses(
        right[0] / len(truth),
        None if learned is None else right[1] / len(truth),
        # The better of two is reported, so each interval must hold more often.
        clopper_pearson(max(right), len(truth), 0.975),
        float(shares.max()),
        None if returned.epsilon is None else label_accuracy(prior, returned.epsilon),
        len(truth),
        len(returned.known),
        rounds,
        returned.labels_told,
    )


def directions(slopes: Matrix) -> Matrix:
    """Slopes without their length, those of all rounds side by side, and for what they are worth their lengths."""
    rounds: Sequence[Matrix] = [slopes] if slopes.ndim == 2 else list(slopes)
    parts = []
    for each in rounds:
        length = np.linalg.norm(each, axis=1, keepdims=True)
        parts.append(each / np.where(length > 0, length, 1.0))
    return np.hstack(parts)


def cluster_directions(features: Matrix, classes: int, seed: int = 0) -> Codes:
    """Groups of similar directions, as many as there are classes."""
    found = KMeans(classes, n_init=_TRIES, random_state=seed).fit_predict(features)
    return np.asarray(found, dtype=np.intp)


def match_clusters(groups: Codes, labels: Codes, known: NDArray[np.intp], classes: int) -> Codes:
    """The label of each group, one to one, that agrees with most of the known people (Hungarian method)."""
    agree = np.zeros((classes, classes))
    np.add.at(agree, (groups[known], labels[known]), 1)
    _, label = linear_sum_assignment(-agree)
    return np.asarray(label, dtype=np.intp)[groups]


def _learn_labels(features: Matrix, returned: ReturnedGradients) -> Codes | None:
    """What a classifier of directions says, learned from the known people; ``None`` if these are all of one class."""
    labels = returned.labels[returned.known]
    if len(np.unique(labels)) < 2:
        return None
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    model.fit(features[returned.known], labels)
    return np.asarray(model.predict(features), dtype=np.intp)
