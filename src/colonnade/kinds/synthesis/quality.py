"""What a synthetic table is worth, for those who may look at the real one: :func:`evaluate_synthetic`.

Is a model that learned from made-up people good for real ones? Trained on each table, tested on people held out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.kinds.synthesis.membership_attack import (
    MIN_PEOPLE,
    MembershipAttack,
    NearestPeople,
    attack_membership,
    compare_nearest,
)
from colonnade.kinds.synthesis.table_comparison import (
    AssociationMatrices,
    CommonColumns,
    ComparedTable,
    MarginalDistance,
    cell_shares,
    make_comparable,
    measure_associations,
    measure_distance,
)
from colonnade.models.assessment import accuracy, area

MAX_CLASSES = 50
_MAX_CATEGORIES = 255
"""Values of a category that boosting takes as such; codes of longer lists are taken as numbers."""


@dataclass(frozen=True)
class PredictionScores:
    """Scores on people held out, after training on the synthetic and on the real table.

    ``accuracy`` and ``auc`` of a label of classes (of several classes, the mean of each against the others); ``r2`` of
    a number.
    """

    model: str
    synthetic: dict[str, float]
    real: dict[str, float]


def score_usefulness(
    common: CommonColumns, real: ComparedTable, synthetic: ComparedTable, held_out: ComparedTable, label: int
) -> tuple[PredictionScores, ...]:
    """Gradient boosting and a linear model (logistic where the label has classes), trained on either table."""
    learned, ideal = (score_learners(common, side, held_out, label) for side in (synthetic, real))
    return tuple(PredictionScores(name, learned[name], ideal[name]) for name in learned)


def score_learners(
    common: CommonColumns, train: ComparedTable, held_out: ComparedTable, label: int
) -> dict[str, dict[str, float]]:
    """What each model that learned from one table scores on people held out."""
    if len(common.names) < 2:
        raise DataError("a model needs a column beside the label [DA103]")
    classes = not common.numeric[label] or common.sizes[label] <= 2
    if classes and common.sizes[label] > MAX_CLASSES:
        raise DataError(f"the label has more than {MAX_CLASSES} values; choose another label, or none [DA104]")
    learners = {"gradient boosting": _Boosting, "logistic regression" if classes else "linear regression": _Linear}
    return {name: learner(common, label, classes).score(train, held_out) for name, learner in learners.items()}


@dataclass(frozen=True)
class _Learner(ABC):
    """A model of the label by all other columns."""

    common: CommonColumns
    label: int
    classes: bool

    def score(self, train: ComparedTable, test: ComparedTable) -> dict[str, float]:
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

    def _target(self, side: ComparedTable) -> NDArray[np.float64]:
        return side.codes[:, self.label].astype(np.float64) if self.classes else side.values[:, self.label]

    def _class_scores(
        self, train: ComparedTable, test: ComparedTable, learned: NDArray[np.float64], known: NDArray[np.float64]
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
    def features(self, side: ComparedTable) -> Any:
        """The columns beside the label, as the model takes them."""

    @abstractmethod
    def classifier(self) -> Any:
        """A model of classes."""

    @abstractmethod
    def regressor(self) -> Any:
        """A model of a number."""


class _Boosting(_Learner):
    def features(self, side: ComparedTable) -> Any:
        return side.values[:, self._others()]

    def classifier(self) -> Any:
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(random_state=0, categorical_features=self._categories())

    def regressor(self) -> Any:
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(random_state=0, categorical_features=self._categories())

    def _categories(self) -> NDArray[np.bool_]:
        sizes = self.common.sizes
        return np.array([not self.common.numeric[k] and sizes[k] <= _MAX_CATEGORIES for k in self._others()])


class _Linear(_Learner):
    """One weight for every code of every column."""

    def features(self, side: ComparedTable) -> Any:
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


_WORDS = {1: "one column", 2: "two columns", 3: "three columns"}


@dataclass(frozen=True)
class ColumnShares:
    """One column: a text for each of its codes, and the share of people with it in both tables."""

    name: str
    labels: tuple[str, ...]
    real: tuple[float, ...]
    synthetic: tuple[float, ...]


@dataclass(frozen=True)
class SyntheticQuality:
    """What :func:`evaluate_synthetic` found; it holds numbers about real people and is not private."""

    rows: int
    synthetic_rows: int
    held_out_rows: int | None
    label: str | None
    distances: tuple[MarginalDistance, ...]
    associations: AssociationMatrices
    columns: tuple[ColumnShares, ...]
    usefulness: tuple[PredictionScores, ...] = ()
    closeness: NearestPeople | None = None
    attacks: tuple[MembershipAttack, ...] = ()
    sdmetrics: float | None = None
    """The overall score of SDMetrics' quality report, if it was asked for."""

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {
            **{key: _plain_value(value) for key, value in vars(self).items() if key != "associations"},
            "associations": {
                "names": list(self.associations.names),
                "real": np.round(self.associations.real, 6).tolist(),
                "synthetic": np.round(self.associations.synthetic, 6).tolist(),
                "mean_difference": self.associations.mean_difference,
                "worst_difference": self.associations.worst_difference,
            },
        }

    def __str__(self) -> str:
        aside = "" if self.held_out_rows is None else f", {self.held_out_rows:,} held out"
        lines = [f"{self.synthetic_rows:,} made-up people beside {self.rows:,} real ones{aside}"]
        lines += ["", "share of people who would have to change (total variation)"]
        lines += [_distance_line(each) for each in self.distances]
        found = self.associations
        lines.append(
            f"  associations of pairs differ by {found.mean_difference:.3f}, at most {found.worst_difference:.3f}"
        )
        if self.usefulness:
            lines += ["", f"{self.label!r} predicted for people held out, after training on"]
            lines += [_scores_line(each) for each in self.usefulness]
        if self.closeness is not None:
            lines += ["", *_nearest_lines(self.closeness)]
        lines += [_attack_line(each) for each in self.attacks]
        if self.sdmetrics is not None:
            lines += ["", f"SDMetrics' quality score: {self.sdmetrics:.3f}"]
        return "\n".join(lines)


def evaluate_synthetic(
    real: Any,
    synthetic: Any,
    *,
    held_out: Any = None,
    label: str | None = None,
    sdmetrics: bool = False,
) -> SyntheticQuality:
    """Compare a synthetic table with the real one, which the caller must be allowed to look at.

    Tables are those of Arrow, or data frames, with the same columns. ``held_out`` are other real people, whom the
    synthesis did not learn from: with them it is tested whether models of ``label`` that are trained on made-up people
    are good for real ones, and whether the table gives away whom it was learned from. The result is not private: it is
    for those who hold the data, not for publication. ``sdmetrics`` adds the score of that library.
    """
    extra = [] if held_out is None else [held_out]
    common, sides = make_comparable(real, synthetic, *extra)
    people, made_up = sides[:2]
    aside = sides[2] if extra else None
    place = None if label is None else common.index_of(label)
    several = [order for order in (1, 2, 3) if order <= len(common.names)]
    distances = [measure_distance(common, people, made_up, order, held_out=aside) for order in several]
    if place is not None:
        distances += [
            measure_distance(common, people, made_up, order, label=place, held_out=aside)
            for order in several
            if order > 1
        ]
    attacked = aside is not None and len(aside) >= 3 * MIN_PEOPLE and len(people) >= MIN_PEOPLE
    return SyntheticQuality(
        len(people),
        len(made_up),
        None if aside is None else len(aside),
        label,
        tuple(distances),
        measure_associations(common, people, made_up),
        _share_columns(common, people, made_up),
        () if place is None or aside is None else score_usefulness(common, people, made_up, aside, place),
        None if aside is None else compare_nearest(common, people, made_up, aside),
        attack_membership(common, people, made_up, aside) if attacked and aside is not None else (),
        _score_sdmetrics(common, people, made_up) if sdmetrics else None,
    )


def _share_columns(common: CommonColumns, real: ComparedTable, synthetic: ComparedTable) -> tuple[ColumnShares, ...]:
    return tuple(
        ColumnShares(
            name,
            common.labels[place],
            *(tuple(cell_shares(side.codes, (place,), common.sizes).tolist()) for side in (real, synthetic)),
        )
        for place, name in enumerate(common.names)
    )


def _score_sdmetrics(common: CommonColumns, real: ComparedTable, synthetic: ComparedTable) -> float:
    try:
        import pandas
        from sdmetrics.reports import QualityReport
    except ImportError:
        raise DataError(
            "the score of SDMetrics needs its package; install it with pip install 'colonnade[quality]' [DA102]"
        ) from None
    frames = [
        pandas.DataFrame(
            {
                name: side.values[:, place]
                if common.numeric[place]
                else np.array(common.labels[place], dtype=object)[side.codes[:, place]]
                for place, name in enumerate(common.names)
            }
        )
        for side in (real, synthetic)
    ]
    kinds = {
        name: {"sdtype": "numerical" if numeric else "categorical"}
        for name, numeric in zip(common.names, common.numeric, strict=True)
    }
    report = QualityReport()
    report.generate(*({"people": frame} for frame in frames), {"tables": {"people": {"columns": kinds}}}, verbose=False)
    return float(report.get_score())


def _plain_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain_value(each) for each in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


def _distance_line(found: MarginalDistance) -> str:
    which = _WORDS[found.order] + (" with the label" if found.with_label else "")
    aside = "" if found.held_out is None else f"; people held out: {found.held_out:.3f}"
    worst = " x ".join(found.worst_set)
    return f"  {which}: {found.mean:.3f} on average, {found.worst:.3f} at worst ({worst}){aside}"


def _scores_line(found: PredictionScores) -> str:
    told = [
        f"{name} {found.synthetic[name]:.3f} on made-up people, {found.real[name]:.3f} on real ones"
        for name in found.synthetic
    ]
    return f"  {found.model}: " + "; ".join(told)


def _nearest_lines(found: NearestPeople) -> list[str]:
    low, high = found.interval
    return [
        "does the table give away whom it was learned from?",
        f"  {found.closer_to_real:.3f} of made-up people are closer to those learned from than to those held out "
        f"({low:.3f} to {high:.3f}; 0.5 if nothing was copied)",
    ]


def _attack_line(found: MembershipAttack) -> str:
    low, high = found.auc_interval
    return (
        f"  attack by {found.name}: AUC {found.auc:.3f} ({low:.3f} to {high:.3f}; baseline {found.baseline:.3f}), "
        f"advantage {found.advantage:.3f} (at most {found.advantage_interval[1]:.3f})"
    )
