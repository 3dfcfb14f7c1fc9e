"""What a synthetic table is worth, for those who may look at the real one: :func:`evaluate_synthetic`.

Is a model that learned from made-up people good for real ones? Trained on each table, tested on people held out.

Does the table give away who was in the real one? Are made-up people closer to those whom the model learned from than to
others like them? And can an attacker who holds the table tell the ones from the others? The attack weighs how dense the
made-up people are around a person against how dense people are there anyway, known from a reference (van Breugel et al.
2023, DOMIAS); beside it the plain distance to the closest made-up person. A success bounds what is protected from
below; failure proves nothing: the promise is the privacy statement's.

One HTML file about a synthetic table beside the real one, for those who may look at it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.attacks.membership import area_and_deviation
from colonnade.drawing.canvas import Html, figure, join, table, tag
from colonnade.drawing.charts import Curve, Histogram, HistogramChart, Matrix, MatrixChart
from colonnade.errors import DataError
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
from colonnade.models.assessment import Vector, accuracy, area
from colonnade.models.estimates import NORMAL_95
from colonnade.models.pictures import rates_chart
from colonnade.report.page import document, write_document
from colonnade.report.wording import percent

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
        predicted = self.model().fit(self.features(train), learned).predict(self.features(test))
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
        model = self.model().fit(self.features(train), learned)
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
    def model(self) -> Any:
        """A model of classes, or of a number, that has not learned yet."""


class _Boosting(_Learner):
    def features(self, side: ComparedTable) -> Any:
        return side.values[:, self._others()]

    def model(self) -> Any:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        common = self.common
        few = np.array([not common.numeric[k] and common.sizes[k] <= _MAX_CATEGORIES for k in self._others()])
        boosting = HistGradientBoostingClassifier if self.classes else HistGradientBoostingRegressor
        return boosting(random_state=0, categorical_features=few)


class _Linear(_Learner):
    """One weight for every code of every column."""

    def features(self, side: ComparedTable) -> Any:
        from scipy.sparse import csr_matrix

        others = self._others()
        starts = np.concatenate([[0], np.cumsum([self.common.sizes[place] for place in others])])
        columns = (side.codes[:, others] + starts[:-1]).ravel()
        rows = np.arange(0, len(columns) + 1, len(others))
        return csr_matrix((np.ones(len(columns)), columns, rows), shape=(len(side), int(starts[-1])))

    def model(self) -> Any:
        from sklearn.linear_model import LogisticRegression, Ridge

        return LogisticRegression(max_iter=1000, tol=1e-3) if self.classes else Ridge(alpha=1.0)


MAX_PEOPLE = 2000
"""People of each kind that are attacked at most."""
MIN_PEOPLE = 60
_MAX_NEIGHBOURS = 20_000
"""People among whom the closest are looked for, at most."""
_BLOCK = 256
_NEIGHBOURS = 5


@dataclass(frozen=True)
class NearestPeople:
    """Distances from made-up people to the closest real person, among as many learned from as held out.

    A distance is the share of columns in which two people differ, where numbers differ by parts. ``closer_to_real`` is
    the share of made-up people who are closer to somebody learned from (ties count half): 0.5 if nothing was copied.
    """

    to_real: float
    to_held_out: float
    closer_to_real: float
    interval: tuple[float, float]
    copies: float
    """The share of made-up people who equal somebody learned from in every column, numbers to 1/1000 of a range."""
    copies_held_out: float


@dataclass(frozen=True)
class MembershipAttack:
    """How well an attacker tells those learned from and those held out apart.

    ``auc`` is the chance that a score orders one of each rightly: 0.5 is guessing. ``advantage`` is the true minus the
    false positive rate at a threshold that was chosen on other people. Intervals hold 95 % of the time.
    """

    name: str
    auc: float
    auc_interval: tuple[float, float]
    advantage: float
    advantage_interval: tuple[float, float]
    baseline: float
    """The AUC of the same attack on a table that holds nobody learned from: what the two groups differ in anyway."""
    roc: tuple[tuple[float, float], ...]
    """Some points of the curve: false and true positive rates."""


def compare_nearest(
    common: CommonColumns, real: ComparedTable, synthetic: ComparedTable, held_out: ComparedTable
) -> NearestPeople:
    """Compare the distances from made-up people to people learned from and to people held out."""
    draw = np.random.default_rng(1)  # which people are looked at
    number = min(len(real), len(held_out), _MAX_NEIGHBOURS)
    people = _RowDistances.of(common, real, held_out)
    asked = synthetic.take(_choose_rows(draw, len(synthetic), MAX_PEOPLE))
    first = people.closest(asked, real.take(_choose_rows(draw, len(real), number)))
    second = people.closest(asked, held_out.take(_choose_rows(draw, len(held_out), number)))
    wins = (first < second) + 0.5 * (first == second)
    share = float(wins.mean())
    half = NORMAL_95 * math.sqrt(max(float(wins.var(ddof=1)), 1 / len(wins)) / len(wins))
    same = 1e-3 / len(common.names)
    return NearestPeople(
        float(np.median(first)),
        float(np.median(second)),
        share,
        (max(0.0, share - half), min(1.0, share + half)),
        float(np.mean(first <= same)),
        float(np.mean(second <= same)),
    )


def attack_membership(
    common: CommonColumns, real: ComparedTable, synthetic: ComparedTable, held_out: ComparedTable
) -> tuple[MembershipAttack, ...]:
    """Attack by density and by distance.

    The people held out are dealt into three: those who are attacked beside as many of the real ones, the reference,
    and those who stand in for the table in the baseline.
    """
    if len(held_out) < 3 * MIN_PEOPLE or len(real) < MIN_PEOPLE:
        raise DataError(f"a membership attack needs {MIN_PEOPLE} people, and {3 * MIN_PEOPLE} held out [DA090]")
    draw = np.random.default_rng(2)
    third = len(held_out) // 3
    dealt = draw.permutation(len(held_out))
    outsiders = held_out.take(dealt[: min(third, MAX_PEOPLE)])
    reference, other = (held_out.take(dealt[begin:][: min(third, _MAX_NEIGHBOURS)]) for begin in (third, 2 * third))
    members = real.take(_choose_rows(draw, len(real), len(outsiders)))
    table = synthetic.take(_choose_rows(draw, len(synthetic), _MAX_NEIGHBOURS))
    people = _RowDistances.of(common, real, held_out)
    anyway = [people.nearness(group, reference) for group in (members, outsiders)]
    found = {}
    for name, against in (("table", table), ("other", other)):
        near = [people.nearness(group, against) for group in (members, outsiders)]
        found["density", name] = [_density_ratio(*pair) for pair in zip(near, anyway, strict=True)]
        found["distance", name] = [-group.closest for group in near]
    return tuple(
        _assess_attack(kind, found[kind, "table"], found[kind, "other"], draw) for kind in ("density", "distance")
    )


@dataclass(frozen=True)
class _Nearness:
    """To how near people some others are: the distance of the closest, and that of the fifth closest."""

    closest: Vector
    fifth: Vector


def _density_ratio(table: _Nearness, reference: _Nearness) -> Vector:
    """The logarithm of how much denser the table is around a person than people are: a ratio of neighbour distances."""
    floor = 1e-3
    dense = -np.log(table.fifth + floor) - np.log(table.closest + floor)
    return np.asarray(dense + np.log(reference.fifth + floor) + np.log(reference.closest + floor))


@dataclass(frozen=True)
class _RowDistances:
    """Distances by all columns: numbers by their difference over the range of most people, others by being unequal."""

    common: CommonColumns
    low: Vector
    span: Vector

    @classmethod
    def of(cls, common: CommonColumns, *sides: ComparedTable) -> _RowDistances:
        numbers = np.vstack([side.values[:, common.numbers] for side in sides])
        if not numbers.shape[1]:
            return cls(common, np.empty(0), np.empty(0))
        numbers = np.where(np.isfinite(numbers), numbers, np.nan)
        empty = np.isnan(numbers).all(axis=0)
        numbers[:, empty] = 0.0
        low, high = np.nanquantile(numbers, [0.01, 0.99], axis=0)
        wide = np.where(high > low, high - low, np.nanmax(numbers, axis=0) - np.nanmin(numbers, axis=0))
        return cls(common, low, np.where(wide > 0, wide, 1.0))

    def closest(self, asked: ComparedTable, among: ComparedTable) -> Vector:
        return np.concatenate([block.min(axis=1) for block in self._blocks(asked, among)])

    def nearness(self, asked: ComparedTable, among: ComparedTable) -> _Nearness:
        several = min(_NEIGHBOURS, len(among))
        nearest = np.vstack(
            [np.partition(block, several - 1, axis=1)[:, :several] for block in self._blocks(asked, among)]
        )
        return _Nearness(nearest.min(axis=1), nearest.max(axis=1))

    def _blocks(self, asked: ComparedTable, among: ComparedTable) -> Iterator[Vector]:
        """The distances of some people to all of others, a few people at a time."""
        numbers = self.common.numbers
        others = [place for place in range(len(self.common.names)) if place not in numbers]
        mine, theirs = self._scaled(asked), self._scaled(among)
        small = np.uint16 if max(self.common.sizes) < 1 << 16 else np.int64
        codes, their_codes = asked.codes[:, others].astype(small), among.codes[:, others].astype(small).T.copy()
        for begin in range(0, len(asked), _BLOCK):
            rows = slice(begin, begin + _BLOCK)
            found = np.zeros((len(mine[rows]), len(among)), dtype=np.float32)
            for place in range(len(others)):
                found += codes[rows, place, None] != their_codes[place]
            for place in range(len(numbers)):
                gap = np.abs(mine[rows, place, None] - theirs[:, place])
                # A missing number is as far as possible from one that is there, and equal to another missing one.
                missing = np.isnan(mine[rows, place, None]), np.isnan(theirs[:, place])
                gap = np.where(np.isnan(gap), missing[0] != missing[1], np.minimum(gap, 1))
                found += gap
            yield (found / len(self.common.names)).astype(np.float64)

    def _scaled(self, side: ComparedTable) -> NDArray[np.float32]:
        values = side.values[:, self.common.numbers]
        return np.asarray((np.where(np.isfinite(values), values, np.nan) - self.low) / self.span, dtype=np.float32)


def _assess_attack(
    name: str, scores: list[Vector], before: list[Vector], draw: np.random.Generator
) -> MembershipAttack:
    """What scores of members and of outsiders are worth, beside those that a table without members gives."""
    members, outsiders = scores
    auc, deviation = area_and_deviation(members, outsiders)
    gained, interval = _advantage(members, outsiders, draw)
    return MembershipAttack(
        name,
        auc,
        (max(0.0, auc - NORMAL_95 * deviation), min(1.0, auc + NORMAL_95 * deviation)),
        gained,
        interval,
        area_and_deviation(*before)[0],
        _roc_curve(members, outsiders),
    )


def _advantage(members: Vector, outsiders: Vector, draw: np.random.Generator) -> tuple[float, tuple[float, float]]:
    """True minus false positives on one half, at the best threshold of the other half."""
    chosen, tested = [], []
    for scores in (members, outsiders):
        order = draw.permutation(len(scores))
        chosen.append(scores[order[: len(order) // 2]])
        tested.append(scores[order[len(order) // 2 :]])
    cuts = np.unique(np.concatenate(chosen))
    rates = [1 - np.searchsorted(np.sort(scores), cuts, "left") / len(scores) for scores in chosen]
    cut = cuts[int(np.argmax(rates[0] - rates[1]))]
    hits, alarms = (float(np.mean(scores >= cut)) for scores in tested)
    # Agresti and Caffo: two successes and two failures more, one of each on either side.
    smooth = [
        ((rate * len(scores) + 1) / (len(scores) + 2), len(scores) + 2)
        for rate, scores in zip((hits, alarms), tested, strict=True)
    ]
    middle = smooth[0][0] - smooth[1][0]
    half = NORMAL_95 * math.sqrt(sum(rate * (1 - rate) / count for rate, count in smooth))
    return hits - alarms, (max(-1.0, middle - half), min(1.0, middle + half))


def _roc_curve(members: Vector, outsiders: Vector, points: int = 41) -> tuple[tuple[float, float], ...]:
    """True positive rates at evenly spaced false positive rates."""
    cuts = np.unique(np.concatenate([members, outsiders]))[::-1]
    hits = 1 - np.searchsorted(np.sort(members), cuts, "left") / len(members)
    alarms = 1 - np.searchsorted(np.sort(outsiders), cuts, "left") / len(outsiders)
    grid = np.linspace(0, 1, points)
    return tuple(zip(grid.tolist(), np.interp(grid, [0.0, *alarms], [0.0, *hits]).tolist(), strict=True))


def _choose_rows(draw: np.random.Generator, people: int, number: int) -> NDArray[np.int64]:
    return np.asarray(draw.choice(people, number, replace=False) if people > number else np.arange(people))


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


_MOST_PANELS, _MOST_COLUMNS = 24, 40
_ORDERS = {1: "One column", 2: "Two columns", 3: "Three columns"}
_NOT_PUBLIC = (
    "This page compares made-up people with real ones. Its numbers were computed from the real table without noise: "
    "it is for those who hold the data, not for publication."
)


def write_quality(target: Path, name: str, found: SyntheticQuality) -> Path:
    """Write the page, so that other users of this machine cannot read it, and return its path."""
    return write_document(target, render_quality(name, found), private=True)


def render_quality(name: str, found: SyntheticQuality) -> str:
    """The evaluation as one HTML document."""
    sections = [_distances(found), _columns(found), _associations(found), _usefulness(found), _attacks(found)]
    header = [
        tag("div", "Colonnade · evaluation", class_="brand"),
        tag("h1", f"{name}, beside the real table"),
        tag("p", _lead(found), class_="lead"),
        tag("p", _NOT_PUBLIC, class_="note"),
    ]
    return document(f"{name}: evaluation", header, [section for section in sections if section is not None])


def _lead(found: SyntheticQuality) -> str:
    pairs = next((each for each in found.distances if each.order == 2), found.distances[0])
    said = f"{found.synthetic_rows:,} made-up people beside {found.rows:,} real ones. "
    said += f"In the average pair of columns, {percent(pairs.mean)} of the people would have to change their values"
    if pairs.held_out is not None:
        said += (
            f"; between the real people and {found.held_out_rows:,} others like them it is {percent(pairs.held_out)}, "
            "by the luck of who was drawn"
        )
    if found.sdmetrics is not None:
        said += f". SDMetrics' quality score is {found.sdmetrics:.3f}"
    return said + "."


def _distances(found: SyntheticQuality) -> Html:
    rows = [
        (
            _ORDERS[each.order] + (" with the label" if each.with_label else ""),
            f"{each.sets:,}",
            percent(each.mean),
            percent(each.worst),
            " × ".join(each.worst_set),
            "–" if each.held_out is None else percent(each.held_out),
        )
        for each in found.distances
    ]
    heads = ("Marginals of", "How many", "Mean", "Worst", "Where", "People held out")
    caption = "Total variation: the share of people who would have to change their values. Numbers are in bins."
    return tag("section", tag("h2", "Marginals"), table(heads, rows, caption=caption, numeric=(1, 2, 3, 5)))


def _columns(found: SyntheticQuality) -> Html:
    panels = [_panel(column) for column in found.columns[:_MOST_PANELS]]
    more = f" The first {len(panels)} of {len(found.columns)} columns." if len(panels) < len(found.columns) else ""
    chart = HistogramChart(
        panels,
        "{:.1%}".format,
        title="Single columns",
        note="Bars: shares of the made-up people. Orange: shares of the real ones. Bins of numbers lie between "
        f"quantiles of the real ones, so they differ in width.{more}",
    )
    return tag("section", tag("h2", "One column at a time"), figure("columns", chart))


def _panel(column: ColumnShares) -> Histogram:
    scale = len(column.labels) > 1 and all(" to " in label for label in column.labels if label != "missing")
    ends = (f"below {column.labels[0].split(' to ')[1]}", f"from {_last(column.labels)}") if scale else ()
    return Histogram(column.name, column.labels, column.synthetic, [(share,) * 3 for share in column.real], ends)


def _last(labels: tuple[str, ...]) -> str:
    bins = [label for label in labels if label != "missing"]
    return bins[-1].split(" to ")[0] + (", then missing" if labels[-1] == "missing" else "")


def _associations(found: SyntheticQuality) -> Html | None:
    given = found.associations
    count = min(len(given.names), _MOST_COLUMNS)
    if count < 2:
        return None
    real, made_up, gap = (values[:count, :count].tolist() for values in (given.real, given.synthetic, given.difference))
    most = max(0.1, given.worst_difference)
    items = [
        Matrix("real", real, 1.0),
        Matrix("made up", made_up, 1.0),
        Matrix(f"difference, up to {most:.2f}", gap, most),
    ]
    spoken = f"Mean absolute difference {given.mean_difference:.3f}, largest {given.worst_difference:.3f}."
    cut = f" The first {count} of {len(given.names)} columns." if count < len(given.names) else ""
    note = f"Correlation of two numbers, otherwise Cramér's V; blue is positive, orange negative. {spoken}{cut}"
    chart = MatrixChart(items, given.names[:count], title="Associations of pairs", note=note, description=spoken)
    drawn = figure("associations", chart)
    return tag("section", tag("h2", "Which columns go together"), drawn)


def _usefulness(found: SyntheticQuality) -> Html | None:
    if not found.usefulness:
        return None
    rows = [
        (each.model, score, f"{each.synthetic[score]:.3f}", f"{each.real[score]:.3f}")
        for each in found.usefulness
        for score in each.synthetic
    ]
    heads = ("Model", "Score", "Trained on made-up people", "Trained on real people")
    caption = f"Prediction of {found.label} for people held out."
    return tag("section", tag("h2", "Is it useful?"), table(heads, rows, caption=caption, numeric=(2, 3)))


def _attacks(found: SyntheticQuality) -> Html | None:
    if found.closeness is None:
        return None
    near = found.closeness
    said = (
        f"{percent(near.closer_to_real)} of the made-up people are closer to somebody the table was learned from than "
        f"to any of as many people held out ({percent(near.interval[0])} to {percent(near.interval[1])}): 50 % means "
        f"that nobody was copied. {percent(near.copies)} equal somebody learned from in every column, and "
        f"{percent(near.copies_held_out)} somebody held out."
    )
    return tag("section", tag("h2", "Does it give people away?"), tag("p", said), _curves(found), _table(found))


def _curves(found: SyntheticQuality) -> Html | None:
    if not found.attacks:
        return None
    lines = [Curve(f"attack by {each.name}, AUC {each.auc:.3f}", each.roc) for each in found.attacks]
    alarms, hits = "false alarms: people held out who are taken for members", "members who are found"
    return figure("attacks", rates_chart(lines, alarms, hits, title="Membership attacks"))


def _table(found: SyntheticQuality) -> Html | None:
    if not found.attacks:
        return None
    rows = [
        (
            f"by {each.name}",
            f"{each.auc:.3f} ({each.auc_interval[0]:.3f} to {each.auc_interval[1]:.3f})",
            f"{each.baseline:.3f}",
            f"{each.advantage:.3f} ({each.advantage_interval[0]:.3f} to {each.advantage_interval[1]:.3f})",
        )
        for each in found.attacks
    ]
    heads = ("Attack", "AUC", "On a table without them", "Advantage")
    caption = (
        "An attacker with the table and reference people scores members and people held out; 0.5 and 0 are guessing. "
        "Intervals hold 95 % of the time. What an attack does not find may still be there: the promise is the privacy "
        "statement's."
    )
    return join(table(heads, rows, caption=caption, numeric=(1, 2, 3)))


evaluate, write = evaluate_synthetic, write_quality
"""What ``colonnade quality`` asks for: the figures, and a page of them."""
