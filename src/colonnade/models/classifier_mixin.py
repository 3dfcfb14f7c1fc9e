"""What fitted models that predict a label share: people as they are passed, predictions, thresholds, assessments.

How good predictions are: shares of correct classes, curves, deviance, and whether chances are right.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.errors import DataError, StudyError
from colonnade.models.base import (
    Estimator,
    MatchedPeople,
    Matrix,
    People,
    ReadingOptions,
    Result,
    RunTask,
    gather_people,
    labels_of,
)
from colonnade.models.design import LabelDesign, without_label
from colonnade.models.planner import CheckedBy
from colonnade.models.score_result import by_class
from colonnade.tables.cell_parsing import itemise, pa

if TYPE_CHECKING:
    from colonnade.drawing.canvas import Picture

Vector = NDArray[np.float64]
_SMALLEST = 1e-15  # a probability of 0 that turned out wrong costs no more than this one
_SUREST = 1e-12  # log-odds are finite: those of this chance and of its opposite are the ends
_BINS, _MOST_POINTS, _MOST_STEPS = 10, 201, 100


@dataclass(frozen=True)
class ReliabilityBin:
    """Some people with similar probabilities: their mean probability, and the share of them who have the label."""

    probability: float
    share: float
    count: int


@dataclass(frozen=True)
class ThresholdDecision:
    """What a threshold makes of probabilities: those above it are predicted. ``None`` where nobody is counted."""

    threshold: float
    predicted: float
    accuracy: float
    balanced_accuracy: float | None
    precision: float | None
    recall: float | None
    specificity: float | None


@dataclass(frozen=True)
class Assessment:
    """How good the probabilities of a label are for people whose labels are known.

    ``auc`` is the chance that somebody with the label has a larger probability than somebody without; a tie counts
    half. ``slope`` and ``intercept`` are those of the logistic recalibration ``truth ~ sigmoid(intercept + slope *
    logit(probability))``: 1 and 0 for probabilities that are right, a slope below 1 for those that are too sure.
    What cannot be computed is ``None``, and ``lacking`` says why.
    """

    count: int
    prevalence: float
    auc: float | None
    log_loss: float
    brier: float
    slope: float | None
    intercept: float | None
    lacking: str | None
    roc: tuple[tuple[float, float], ...]
    """Points from (0, 0) to (1, 1): the share of people without the label above a threshold, and of those with it."""
    reliability: tuple[ReliabilityBin, ...]
    _truth: NDArray[np.bool_] = field(repr=False, compare=False)
    _probability: Vector = field(repr=False, compare=False)

    def at(self, threshold: float) -> ThresholdDecision:
        """What is decided if those whose probability is above this threshold are predicted to have the label."""
        if not 0 <= threshold <= 1:
            raise DataError(f"a threshold lies between 0 and 1, and {threshold:g} does not [DA050]")
        chosen, truth = self._probability > threshold, self._truth
        hit, missed = float(np.mean(chosen & truth)), float(np.mean(~chosen & truth))
        alarm, passed = float(np.mean(chosen & ~truth)), float(np.mean(~chosen & ~truth))
        recall, specificity = _part(hit, missed), _part(passed, alarm)
        both = None if recall is None or specificity is None else (recall + specificity) / 2
        return ThresholdDecision(threshold, hit + alarm, hit + passed, both, _part(hit, alarm), recall, specificity)

    def to_dict(self) -> dict[str, Any]:
        """Everything that was computed, as plain values; nothing about single people."""
        plain = ("count", "prevalence", "auc", "log_loss", "brier", "slope", "intercept", "lacking")
        found: dict[str, Any] = {name: getattr(self, name) for name in plain}
        return found | {
            "roc": [list(point) for point in self.roc],
            "reliability": [asdict(b) for b in self.reliability],
        }

    def plot(self) -> Picture:
        """Draw ranking, where somebody has the label and somebody lacks it, and calibration."""
        from colonnade.drawing.canvas import Picture
        from colonnade.models.pictures import calibration_chart, ranking_chart

        ranking = [] if self.auc is None else [ranking_chart(self.roc, self.auc)]
        return Picture([*ranking, calibration_chart(self.points, self.count, self.slope)])

    @property
    def points(self) -> list[tuple[float, float]]:
        """Of each group of people the mean probability, and the share who have the label."""
        return [(each.probability, each.share) for each in self.reliability]

    def __str__(self) -> str:
        lines = [
            f"{self.count:,} people, of whom {self.prevalence:.1%} have the label",
            f"AUC                {_shown(self.auc)}",
            f"log-loss           {self.log_loss:.4f}",
            f"Brier score        {self.brier:.4f}",
            f"calibration slope  {_shown(self.slope)}",
            f"      and intercept  {_shown(self.intercept, '+')}",
        ]
        return "\n".join(lines + ([f"not computed: {self.lacking}"] if self.lacking else []))


def assess_chances(truth: ArrayLike, probability: ArrayLike) -> Assessment:
    """Judge probabilities by the truth: flags of who has the label."""
    known, chance = np.asarray(truth), np.asarray(probability, dtype=np.float64)
    _check(known, chance)
    known = known.astype(np.bool_)
    roc, auc, lacking = _ranking(known, chance)
    intercept, slope, lacking = (None, None, lacking) if lacking else _recalibrated(known, chance)
    return Assessment(
        count=len(known),
        prevalence=float(np.mean(known)),
        auc=auc,
        log_loss=float(np.mean(-np.log(np.clip(np.where(known, chance, 1 - chance), _SMALLEST, None)))),
        brier=float(np.mean((chance - known) ** 2)),
        slope=slope,
        intercept=intercept,
        lacking=lacking,
        roc=roc,
        reliability=_bins(known, chance),
        _truth=known,
        _probability=chance,
    )


def _check(truth: NDArray[Any], chance: Vector) -> None:
    refused = (
        (
            chance.ndim != 1 or truth.shape != chance.shape,
            f"labels of shape {truth.shape} and probabilities of shape {chance.shape} are no pairs [DA051]",
        ),
        (not chance.size, "there are no people to assess the probabilities by [DA052]"),
        (
            truth.dtype.kind not in "biuf" or not np.isin(truth, (0, 1)).all(),
            "the truth is True or False for each person; compare the labels with the class that is meant [DA053]",
        ),
        (
            not ((chance >= 0) & (chance <= 1)).all(),
            "probabilities lie between 0 and 1, and some of these do not [DA054]",
        ),
    )
    for wrong, why in refused:
        if wrong:
            raise DataError(why)


def _ranking(
    truth: NDArray[np.bool_], chance: Vector
) -> tuple[tuple[tuple[float, float], ...], float | None, str | None]:
    """The curve of all thresholds, the area under it, and why there is none."""
    _, place = np.unique(-chance, return_inverse=True)
    found, alarms = (np.concatenate([[0.0], np.bincount(place, who).cumsum()]) for who in (truth, ~truth))
    if not (found[-1] and alarms[-1]):
        return (), None, "everybody has the label" if found[-1] else "nobody has the label"
    across, up = alarms / alarms[-1], found / found[-1]
    area = float(np.sum(np.diff(across) * (up[1:] + up[:-1])) / 2)
    kept = np.unique(np.linspace(0, len(across) - 1, _MOST_POINTS).round().astype(np.intp))
    return tuple(zip(across[kept].tolist(), up[kept].tolist(), strict=True)), area, None


def _recalibrated(truth: NDArray[np.bool_], chance: Vector) -> tuple[float | None, float | None, str | None]:
    """Intercept and slope of the logistic regression of the truth on log-odds, or why there are none."""
    weights = np.full(len(truth), 1 / len(truth))
    sure = np.clip(chance, _SUREST, 1 - _SUREST)
    odds = np.log(sure / (1 - sure))
    middle = float(weights @ odds)
    spread = float(np.sqrt(weights @ (odds - middle) ** 2))
    if not spread > 1e-9:
        return None, None, "all probabilities are the same, so they have no slope"
    if odds[truth].min() >= odds[~truth].max() or odds[truth].max() <= odds[~truth].min():
        return None, None, "the probabilities separate all labels, so no slope is large enough"
    design = np.column_stack([np.ones_like(odds), (odds - middle) / spread])
    found, loss = np.zeros(2), np.log(2.0)
    for _ in range(_MOST_STEPS):
        fitted = 0.5 + 0.5 * np.tanh(design @ found / 2)
        downhill = design.T @ (weights * (truth - fitted))
        curvature = (design * (weights * fitted * (1 - fitted))[:, None]).T @ design
        step = np.linalg.solve(curvature + 1e-15 * np.eye(2), downhill)
        while (after := _loss(design @ (found + step), truth, weights)) > loss and np.abs(step).max() > 1e-12:
            step /= 2
        found, loss = found + step, min(loss, after)
        if np.abs(step).max() < 1e-10:
            break
    slope = float(found[1] / spread)
    return float(found[0] - slope * middle), slope, None


def _loss(scores: Vector, truth: NDArray[np.bool_], weights: Vector) -> float:
    return float(weights @ (np.logaddexp(0, scores) - truth * scores))


def _bins(truth: NDArray[np.bool_], chance: Vector) -> tuple[ReliabilityBin, ...]:
    """People in about ten groups of the same size by their probabilities; equal probabilities stay together."""
    cuts = np.unique(np.quantile(chance, np.arange(1, _BINS) / _BINS))
    group = np.searchsorted(cuts, chance, side="left")
    members = [group == k for k in range(len(cuts) + 1)]
    return tuple(
        ReliabilityBin(float(np.mean(chance[who])), float(np.mean(truth[who])), int(who.sum()))
        for who in members
        if who.any()
    )


def _part(counted: float, others: float) -> float | None:
    return counted / (counted + others) if counted + others > 0 else None


def _shown(value: float | None, sign: str = "") -> str:
    return "none" if value is None else f"{value:{sign}.3f}"


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


def _in_a_file(threshold: object) -> None:
    try:
        check_threshold(threshold)
    except StudyError as error:
        raise ValueError(str(error).removeprefix("threshold ")) from None


Threshold = Annotated[float | Literal["balanced"], CheckedBy(_in_a_file)]
NO_SHARE = (
    'threshold="balanced" needs the share of each class, which this model does not release: give the '
    "share as a number [ST171]"
)
_RAREST = 1e-3  # no class counts as rarer than this, whatever noise made of its share


class PredictionMixin(Estimator[RunTask, Result]):
    """A model that predicts one party's column from all others."""

    @property
    @abstractmethod
    def label_(self) -> str | None:
        """The label that the model was fitted with."""

    @property
    @abstractmethod
    def design_(self) -> LabelDesign:
        """The columns that the model was fitted with, and who holds the label."""

    @abstractmethod
    def scores(self, X: People, **given: Unpack[ReadingOptions]) -> Matrix:
        """The scores, of shape (rows, classes)."""

    @abstractmethod
    def answers(self, scores: Matrix) -> NDArray[Any]:
        """What scores of shape (rows, classes) predict."""

    def true_of(self, X: People) -> NDArray[Any]:
        """The labels of people, where X has a table with the label column: classes, or numbers in their unit."""
        encoded, declared = self.label_of(X), self.design_.declared
        if declared.quantity:
            return declared.quantity.decode_values(encoded[:, 0])
        chosen = encoded[:, 0].astype(np.intp) if encoded.shape[1] == 1 else encoded.argmax(axis=1)
        return np.asarray(np.array(declared.classes)[chosen])

    def predict(self, X: People, **given: Unpack[ReadingOptions]) -> NDArray[Any]:
        """Predictions for people of whom the caller has all columns; the label's column is not needed.

        X is raw: a federation, a mapping from party to table, or one table with all parties' columns, named
        ``party.column`` or as only one party names them. The rows of a mapping are matched by the column ``id`` (a
        name, or one for each party) in the order of the first table; ``same_order=True`` says instead that the same row
        is the same person in every table. A federation's answers come in the order of its ids. With ``encoded=True`` X
        is a matrix that is encoded already, with the columns of ``feature_names_in_``.
        """
        return self.answers(self.scores(X, **given))

    def predictions(
        self, X: People = None, threshold: float | str | None = None, **given: Unpack[ReadingOptions]
    ) -> Any:
        """Who is predicted what, as an Arrow table: a column of ids, predictions and, of classes, their chances.

        The column of ids is named as ``id`` says, and left out where nothing says who the rows are.
        """
        self._check_fitted()
        people = self.people(X, **given)
        called = given.get("id")
        columns = {} if people.ids is None else {called if isinstance(called, str) else "id": people.ids}
        return pa.table(columns | self.columns_of(self.scores(people), threshold))

    def people(self, X: People, *, labelled: bool = False, **given: Unpack[ReadingOptions]) -> MatchedPeople:
        """The tables that a prediction needs, with the same people in each row; ``labelled`` ones have the label."""
        self._check_fitted()
        found = {party: self._needed(party, labelled) for party in self.schemas_}
        wanted = {party: schema for party, schema in found.items() if schema is not None}
        return gather_people(X, wanted, self.schemas_, "a prediction", **given)

    def compare_labels(
        self, X: People, y: NDArray[Any] | None, **given: Unpack[ReadingOptions]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The true labels and the predictions of people; ``y`` only where the label is not in X."""
        if y is not None:
            true, predicted = np.asarray(y), self.predict(X, **given)
        elif given.get("encoded"):
            raise DataError("an encoded matrix has no label: pass y [DA079]")
        else:
            people = self.people(X, labelled=True, **given)
            true, predicted = self.true_of(people), self.predict(people)
        if true.shape != predicted.shape:
            raise DataError(f"there are {len(true) if true.ndim else 0} labels for {len(predicted)} people [DA080]")
        return true, predicted

    def label_of(self, X: People) -> Matrix:
        """The encoded label of people, where X has a table with the label column."""
        self._check_fitted()
        return labels_of(X, self.schemas_, self.label_)

    def _needed(self, party: str, labelled: bool) -> Any:
        return self.schemas_[party] if labelled else without_label(self.schemas_, self.label_, party)

    def columns_of(self, scores: Matrix, threshold: float | str | None = None) -> dict[str, Any]:
        """Columns of what scores predict, and of the chances of classes."""
        if threshold is not None:
            raise StudyError("a threshold is for classes, and this model predicts numbers [ST172]")
        return {"prediction": self.answers(scores)}


class ClassifierMixin(PredictionMixin[RunTask, Result]):
    """A classifier: a threshold turns chances into classes, and chances can be assessed where labels are known.

    Of two classes the second is predicted where its chance is above the threshold; ``"balanced"`` takes the released
    share of that class, as if both classes counted the same. Of more classes the likeliest is predicted, or with
    ``"balanced"`` the one whose chance is largest compared with its share.
    """

    later: ClassVar = frozenset({"threshold"})
    threshold: float | str
    shares_: Matrix | None = None
    """The released share of each class, where the fit released one."""

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of their chances."""
        if not hasattr(self, "schemas_"):
            raise AttributeError("classes_")
        return np.array(self.design_.declared.classes)

    @property
    def threshold_(self) -> float:
        """The chance of the second of two classes above which it is predicted."""
        self._check_fitted()
        return self.limit()

    def decision_function(self, X: People, **given: Unpack[ReadingOptions]) -> Matrix:
        """Scores: one for each person, such as the log-odds of the second class, or a column for each class."""
        scores = self.scores(X, **given)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @abstractmethod
    def chances(self, scores: Matrix) -> Matrix:
        """The chance of each class, (rows, classes), by scores as :meth:`scores` gives them."""

    def predict(self, X: People, threshold: float | str | None = None, **given: Unpack[ReadingOptions]) -> NDArray[Any]:
        """The predicted classes, by the threshold of the fit or by another one; for X see :class:`PredictionMixin`."""
        return self.answers(self.scores(X, **given), threshold)

    def predict_proba(self, X: People, **given: Unpack[ReadingOptions]) -> Matrix:
        """The chance of each class."""
        return self.chances(self.scores(X, **given))

    def answers(self, scores: Matrix, threshold: float | str | None = None) -> NDArray[Any]:
        """The class that each row of scores predicts."""
        scores = np.asarray(scores, dtype=np.float64)
        wanted = self.parameters_.get("threshold", 0.5) if threshold is None else threshold
        if len(self.classes_) == 2:
            chosen = (self.chances(scores)[:, 1] > self.limit(wanted)).astype(np.intp)
        else:
            check_threshold(wanted, len(self.classes_))
            compared = self.chances(scores) / self._shares() if wanted == "balanced" else scores
            chosen = compared.argmax(axis=1)
        answers: NDArray[Any] = self.classes_[chosen]
        return answers

    def assess(self, X: People, y: Any = None, *, of: Any = None, **given: Unpack[ReadingOptions]) -> Assessment:
        """How good the chances are for people whose labels the caller has: ROC, AUC, log-loss, calibration.

        ``y`` only where the label is not in X. ``of`` is the class that is meant, by default the second of two. The
        figures are exact figures about these people: they are for whoever holds the labels.
        """
        self._check_fitted()
        if not hasattr(self, "classes_"):
            raise StudyError("only chances of classes are assessed, and this model predicts numbers: use score [ST173]")
        if y is None and given.get("encoded"):
            raise DataError("an encoded matrix has no label: pass y [DA081]")
        if y is None:
            people = self.people(X, labelled=True, **given)
            return self.assess_chances(self.true_of(people), self.predict_proba(people), of)
        return self.assess_chances(np.asarray(y), self.predict_proba(X, **given), of)

    def assess_chances(self, true: NDArray[Any], chances: Matrix, of: Any = None) -> Assessment:
        """How good these chances are for people with these labels."""
        classes = self.classes_.tolist()
        named = [str(each) for each in classes]
        if of is None and len(classes) > 2:
            raise DataError(f"there are {len(classes)} classes, so say which one is meant: {itemise(named)} [DA082]")
        if of is not None and str(of) not in named:
            raise DataError(f"the class that is meant must be one of {itemise(named)} [DA083]")
        place = 1 if of is None else named.index(str(of))
        return assess_chances(true == classes[place], chances[:, place])

    def columns_of(self, scores: Matrix, threshold: float | str | None = None) -> dict[str, Any]:
        """Columns of what scores predict, and of the chances of classes."""
        if not hasattr(self, "classes_"):
            return super().columns_of(scores, threshold)
        named = by_class("probability", self.chances(scores), self.classes_.tolist())
        return {"prediction": self.answers(scores, threshold)} | named

    def limit(self, threshold: float | str | None = None) -> float:
        """The chance of the second of two classes that a threshold asks for; without one, that of the fit."""
        wanted = self.parameters_.get("threshold", 0.5) if threshold is None else threshold
        check_threshold(wanted)
        return float(self._shares()[1] if wanted == "balanced" else wanted)

    def _shares(self) -> Matrix:
        if self.shares_ is None:
            raise StudyError(NO_SHARE)
        return self.shares_


def check_threshold(threshold: object, classes: int = 2, *, released: bool = True) -> None:
    """Raise an error unless this is a threshold for so many classes; ``released`` says whether their shares are."""
    if threshold == "balanced":
        if not released:
            raise StudyError(NO_SHARE)
    elif isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold < 1:
        raise StudyError(f'threshold must lie between 0 and 1, or be "balanced", not {threshold!r} [ST174]')
    elif classes > 2 and threshold != 0.5:
        raise StudyError(f'a threshold is for two classes; with {classes} it can be "balanced" [ST175]')


def shares_of(means: Matrix) -> Matrix:
    """The share of each class from noisy means of the label: of two classes one mean, else one for each class."""
    both = np.array([1 - means[0], means[0]]) if len(means) == 1 else np.asarray(means)
    found = np.clip(both, _RAREST, 1 - _RAREST)
    return np.asarray(found / found.sum())
