"""Is a model that learned from made-up people good for real ones? Trained on each table, tested on people held out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.kinds.synthesis.comparable import Comparable, Side
from colonnade.models.assessment import accuracy, area

MOST_CLASSES = 50
_MOST_CATEGORIES = 255
"""Values of a category that boosting takes as such; codes of longer lists are taken as numbers."""


@dataclass(frozen=True)
class Usefulness:
    """Scores on people held out, after training on the synthetic and on the real table.

    ``accuracy`` and ``auc`` of a label of classes (of several classes, the mean of each against the others); ``r2`` of
    a number.
    """

    model: str
    synthetic: dict[str, float]
    real: dict[str, float]


def usefulness(common: Comparable, real: Side, synthetic: Side, held_out: Side, label: int) -> tuple[Usefulness, ...]:
    """Gradient boosting and a linear model (logistic where the label has classes), trained on either table."""
    learned, ideal = (scores(common, side, held_out, label) for side in (synthetic, real))
    return tuple(Usefulness(name, learned[name], ideal[name]) for name in learned)


def scores(common: Comparable, train: Side, held_out: Side, label: int) -> dict[str, dict[str, float]]:
    """What each model that learned from one table scores on people held out."""
    if len(common.names) < 2:
        raise DataError("a model needs a column beside the label [DA103]")
    classes = not common.numeric[label] or common.sizes[label] <= 2
    if classes and common.sizes[label] > MOST_CLASSES:
        raise DataError(f"the label has more than {MOST_CLASSES} values; choose another label, or none [DA104]")
    learners = {"gradient boosting": _Boosting, "logistic regression" if classes else "linear regression": _Linear}
    return {name: learner(common, label, classes).score(train, held_out) for name, learner in learners.items()}


@dataclass(frozen=True)
class _Learner(ABC):
    """A model of the label by all other columns."""

    common: Comparable
    label: int
    classes: bool

    def score(self, train: Side, test: Side) -> dict[str, float]:
        """Learn from one table, and score on another."""
        learned, known = self._target(train), self._target(test)
        # A missing number is not a target.
        rows, kept = np.flatnonzero(~np.isnan(learned)), np.flatnonzero(~np.isnan(known))
        train, test, learned, known = train.take(rows), test.take(kept), learned[rows], known[kept]
        if not len(learned) or not len(known):
            raise DataError("the label is missing everywhere in one of the tables [DA105]")
        if self.classes:
            return self._class_scores(train, test, learned, known)
        predicted = self.regressor().fit(self.features(train), learned).predict(self.features(test))
        total = float(((known - known.mean()) ** 2).sum())
        return {"r2": 1.0 - float(((known - predicted) ** 2).sum()) / total if total > 0 else 0.0}

    def _target(self, side: Side) -> NDArray[np.float64]:
        return side.codes[:, self.label].astype(np.float64) if self.classes else side.values[:, self.label]

    def _class_scores(
        self, train: Side, test: Side, learned: NDArray[np.float64], known: NDArray[np.float64]
    ) -> dict[str, float]:
        found = np.unique(learned)
        if len(found) == 1:  # nothing to learn from: everybody is of the one class
            return {"accuracy": accuracy(known, np.full_like(known, found[0])), "auc": 0.5}
        model = self.classifier().fit(self.features(train), learned)
        chances = model.predict_proba(self.features(test))
        predicted = found[chances.argmax(axis=1)]
        present = [value for value in np.unique(known) if 0 < np.sum(known == value) < len(known)]
        if self.common.sizes[self.label] == 2:
            present = present[-1:]
        areas = [
            area(known == value, chances[:, list(found).index(value)]) if value in found else 0.5 for value in present
        ]
        return {"accuracy": accuracy(known, predicted), "auc": float(np.mean(areas)) if areas else 0.5}

    def _others(self) -> list[int]:
        return [place for place in range(len(self.common.names)) if place != self.label]

    @abstractmethod
    def features(self, side: Side) -> Any:
        """The columns beside the label, as the model takes them."""

    @abstractmethod
    def classifier(self) -> Any:
        """A model of classes."""

    @abstractmethod
    def regressor(self) -> Any:
        """A model of a number."""


class _Boosting(_Learner):
    def features(self, side: Side) -> Any:
        return side.values[:, self._others()]

    def classifier(self) -> Any:
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(random_state=0, categorical_features=self._categories())

    def regressor(self) -> Any:
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(random_state=0, categorical_features=self._categories())

    def _categories(self) -> NDArray[np.bool_]:
        sizes = self.common.sizes
        return np.array([not self.common.numeric[k] and sizes[k] <= _MOST_CATEGORIES for k in self._others()])


class _Linear(_Learner):
    """One weight for every code of every column."""

    def features(self, side: Side) -> Any:
        from scipy.sparse import csr_matrix

        others = self._others()
        starts = np.concatenate([[0], np.cumsum([self.common.sizes[place] for place in others])])
        columns = (side.codes[:, others] + starts[:-1]).ravel()
        rows = np.arange(0, len(columns) + 1, len(others))
        return csr_matrix((np.ones(len(columns)), columns, rows), shape=(len(side), int(starts[-1])))

    def classifier(self) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=1000, tol=1e-3)

    def regressor(self) -> Any:
        from sklearn.linear_model import Ridge

        return Ridge(alpha=1.0)
