"""How good predictions are: shares of correct classes, curves, deviance, and whether chances are right."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.errors import DataError

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
