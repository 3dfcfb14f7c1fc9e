"""Logistic regression on columns that nobody holds together: in one noisy release, or by noisy gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.regression import base, error_bars, gradient_descent, least_squares
from colonnade.kinds.regression.base import Forecast, Published, Regression, Ridge, Task
from colonnade.kinds.regression.gradient_descent import LearnedWeights
from colonnade.kinds.regression.task import GradientTask
from colonnade.models.classifier_mixin import ClassifierMixin, Threshold, check_threshold, shares_of
from colonnade.models.estimates import ErrorBars
from colonnade.models.new_rows import Matrix, People, ReadingOptions
from colonnade.models.parameters import (
    Count,
    EpsilonByParty,
    Label,
    Positive,
    RowsAtMost,
    above,
    at_least,
    at_most,
    check_whole,
)
from colonnade.models.planner import Roster
from colonnade.models.serialization import read_array
from colonnade.privacy.noise_laws import DEFAULT_LAW, FUNCTIONAL, NormalLawName
from colonnade.protocols.moments.task import Moments, NoisyMoments
from colonnade.tables import Column

METHODS = ("auto", "one-shot", "functional", "sqm")
_MOMENTS_GAMMA = 4096
_GRADIENTS_GAMMA = {1: 1024, 3: 128}
_WEIGHT_BOUND = {1: 8.0, 3: 4.0}
_INTERCEPT = 0.5
_MOST_ROUNDS = 1_000_000


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(ClassifierMixin[Task, Published], Regression):
    """Differentially private logistic regression over vertically partitioned columns.

    The label is a flag or a category. For a category with more than two values, each value is learned against the
    others, all in one computation.

    Args:
        epsilon: one number for everyone, or a mapping such as ``{"analyst": 1.0, "party": 2.0}``.
        delta: the delta of all promises.
        label: the column to predict, written ``"party.column"``; may be given to ``fit`` instead.
        method: ``"one-shot"`` publishes second moments with Skellam or discrete Gaussian noise; ``"functional"`` with
            discrete Laplace noise, for pure epsilon; ``"sqm"`` publishes noisy gradients of batches, round by round;
            ``"auto"`` takes the one with the least expected error (see :meth:`forecast`).
        rows: about how many people there are, as far as everybody may know it; ``"sqm"`` needs it.
        noise: ``"skellam"`` or ``"discrete-gaussian"``.
        ridge: ``"auto"`` follows from the noise; a number is added to the diagonal of the centred X'X. Not for "sqm".
        epsilon_by_party: instead of ``epsilon``, for each party what the published result may tell anybody about one
            person's columns at that party. Not for "sqm".
        expansion: degree of the polynomial that stands for the sigmoid in "sqm", 1 or 3.
        sampling: batches of "sqm": ``"poisson"`` draws them, which helps against the analyst; ``"disjoint"`` fixes
            them, which is better against parties.
        rate: the share of people in a batch.
        epochs: how often a person is used, on average.
        weight_bound: the largest norm of the weights in "sqm"; 8 for degree 1 and 4 for degree 3.
        learning_rate: the step in "sqm".
        intercept: without one, scores are 0 where all encoded columns are. Not for "sqm".
        gamma: the scale of the integer grid; 4096 for second moments, 1024 and 128 for gradients of degree 1 and 3.
        rows_at_most: a public limit on the number of rows.
        threshold: the second of two classes is predicted where its chance is above this; ``"balanced"`` takes the
            released share of that class (not for "sqm"). It changes no chance and costs nothing.
    """

    kind = "logistic"
    tasks = (Moments, GradientTask)
    many_classes = True
    saved_if_known: ClassVar = {**Regression.saved_if_known, "shares": read_array}

    epsilon: float | Mapping[str, float] | None = None
    delta: float = 1e-5
    label: Label = None
    method: Literal["auto", "one-shot", "functional", "sqm"] = "auto"
    rows: Count | None = None
    noise: NormalLawName = DEFAULT_LAW
    ridge: Ridge = "auto"
    epsilon_by_party: EpsilonByParty = None
    expansion: Literal[1, 3] = 1
    sampling: Literal["poisson", "disjoint"] = "poisson"
    rate: Annotated[float, above(0), at_most(1)] = 0.01
    epochs: Count = 10
    weight_bound: Positive | None = None
    learning_rate: Positive = 2.0
    intercept: bool = True
    gamma: Annotated[int, at_least(2)] | None = None
    rows_at_most: RowsAtMost = 2**24
    threshold: Threshold = 0.5

    @property
    def _estimator_type(self) -> str:
        return "classifier"

    # --- planning

    def plan(self, roster: Roster) -> Task:
        """The task of the chosen method, with the least noise that meets the budgets."""
        if self.method not in METHODS:
            raise StudyError(f"method must be one of {', '.join(METHODS)}, not {self.method!r} [ST196]")
        classes = _columns(self.design(roster.schemas).declared)
        check_threshold(self.threshold, max(2, classes), released=self.method != "sqm" and self.intercept)
        if self.method == "auto":
            self.forecast_ = self.forecast(roster)
            return self.forecast_[0].task
        return self._candidate(self.method, roster)

    def forecast(self, roster: Roster) -> list[Forecast]:
        """The expected error of each method that these parameters allow, the best one first.

        Gradients are left out without ``rows``, and after a hidden alignment. It uses public numbers only; see
        docs/how-to/regression.md.
        """
        methods = ["one-shot", "functional"]
        possible = self.intercept and not roster.hidden and self.threshold != "balanced"
        if possible and self.rows is not None and self.epsilon_by_party is None:
            methods.append("sqm")
        design = self.design(roster.schemas)
        columns = len(design.features)
        found = [
            base.forecast_error(
                method, self._candidate(method, roster), design.declared, design.feature_norm, columns, self.rows
            )
            for method in methods
        ]
        return sorted(found, key=lambda each: each.error)

    def _candidate(self, method: str, roster: Roster) -> Task:
        law = self.normal_law()
        if method == "sqm":
            return self._plan_gradients(roster)
        return self.plan_moments(roster, FUNCTIONAL if method == "functional" else law, self.gamma or _MOMENTS_GAMMA)

    def _plan_gradients(self, roster: Roster) -> GradientTask:
        """Rounds of noisy gradients; rows are scaled to norm 1 by a public number."""
        roster.require_known_members('method="sqm"')
        self.check_common()
        rows, batch = self._batches()
        design = self.design(roster.schemas)
        blocks = design.feature_blocks
        norm = math.sqrt(math.fsum([_INTERCEPT * _INTERCEPT, *(block.clip * block.clip for block in blocks)]))
        gamma = _GRADIENTS_GAMMA[self.expansion] if self.gamma is None else self.gamma
        check_whole("gamma", gamma, 2, 2**20)
        draft = GradientTask(
            blocks=blocks,
            label_owner=design.owner,
            classes=_columns(design.declared),
            trust=roster.trust,
            gamma=gamma,
            scale=(1 - 2.0**-40) / norm,
            expansion=self.expansion,
            weight_bound=_WEIGHT_BOUND[self.expansion] if self.weight_bound is None else self.weight_bound,
            learning_rate=self.learning_rate,
            sampling=self.sampling,
            rows=rows,
            batch=batch,
            rounds=self._rounds(rows, batch),
            noise=len(blocks),
            law=self.normal_law(),
            rows_at_most=self.rows_at_most,
            intercept=_INTERCEPT,
        )
        return draft.calibrate(self.budgets(roster, self.delta))

    def _batches(self) -> tuple[int, int]:
        """The public number of rows, and how many of them a batch has."""
        if self.rows is None:
            raise StudyError(
                'method="sqm" needs rows, about how many people there are: batches are a part of them [ST197]'
            )
        if self.epsilon_by_party is not None or not self.intercept:
            raise StudyError(
                'method="sqm" takes epsilon and learns an intercept; use "one-shot" for anything else [ST198]'
            )
        check_whole("rows", self.rows, 1, self.rows_at_most)
        check_whole("epochs", self.epochs, 1, 2**20)
        if self.expansion not in (1, 3):
            raise StudyError(f"expansion must be 1 or 3, not {self.expansion!r} [ST199]")
        if self.sampling not in ("poisson", "disjoint"):
            raise StudyError(f'sampling must be "poisson" or "disjoint", not {self.sampling!r} [ST200]')
        for name in ("rate", "learning_rate", "weight_bound"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise StudyError(f"{name} must be a positive number, not {value!r} [ST201]")
        if self.rate > 1:
            raise StudyError(f"rate is the share of people in a batch and at most 1, not {self.rate} [ST202]")
        return self.rows, max(1, round(self.rate * self.rows))

    def _rounds(self, rows: int, batch: int) -> int:
        """The number of rounds in which each person is used ``epochs`` times: on average, if batches are drawn."""
        turns = Fraction(rows, batch) if self.sampling == "poisson" else -(-rows // batch)
        rounds = round(int(self.epochs) * turns)
        if rounds > _MOST_ROUNDS:
            raise StudyError(
                f"epochs = {self.epochs} in batches of {batch} of {rows} rows are {rounds:,} rounds, and at most "
                f"{_MOST_ROUNDS:,} are possible: raise rate, or lower epochs [ST203]"
            )
        return rounds

    def check_label(self, declared: Column) -> None:
        """Raise an error unless the label is a flag or a category."""
        if declared.quantity:
            raise StudyError(
                f'label {self.label!r} is a number; use LinearRegression (kind = "linear" in a study file), or make '
                "it a flag or category [ST204]"
            )

    # --- the fitted model

    def finish(self, result: Published) -> None:
        """Set the weights: from noisy moments by least squares, or those of the last rounds."""
        if result.task.scheme is None:
            self._from_moments(result)
        else:
            self._from_gradients(cast("LearnedWeights", result))

    def _from_moments(self, result: NoisyMoments) -> None:
        """Least squares on the labels 0 and 1, as in Taylor's expansion; then a slope for probabilities.

        The slope changes no prediction: the second class is predicted where the fitted value is above one half.
        """
        reading = self.reading(result.task, _columns(self.design_.declared))
        through = None if self.intercept else 0.5
        found = least_squares.fit_weights(result, reading, self.ridge, through)
        slope = least_squares.TAYLOR
        if self.intercept:
            known = zip(found.label_means, found.solution.spreads, found.solution.agreements, strict=True)
            slope = math.fsum(least_squares.steepness(0.5, *map(float, each)) for each in known) / len(found.weights)
        self.shares_ = shares_of(found.label_means) if self.intercept else None
        self.feature_names_in_ = list(reading.features)
        self.coef_ = slope * found.weights
        self.intercept_ = slope * (found.offsets - 0.5)
        self.remember(found, result, reading)
        draws = error_bars.sample_weights(result, reading, self.ridge, through)
        slopes = error_bars.slopes(draws, found.label_means) if self.intercept else np.full(len(draws.weights), slope)
        self.set_error_bars(
            error_bars.error_bars_of(self.coef_, slopes[:, None, None] * draws.weights),
            error_bars.error_bars_of(self.intercept_, slopes[:, None] * (draws.offsets - 0.5)),
        )

    def _from_gradients(self, result: LearnedWeights) -> None:
        design = self.design_
        self.feature_names_in_ = design.features
        self.coef_ = result.slopes
        self.intercept_ = result.offsets - result.slopes @ design.middles
        self.count_ = self.ridge_ = self.clipped_ = self.shares_ = self.parts_ = None
        self.set_error_bars(*self._gradient_bars(result))

    def _gradient_bars(self, result: LearnedWeights) -> tuple[ErrorBars | None, ErrorBars | None]:
        """Weights as far as noise may have moved them in all rounds; that of the intercept is part of all of them."""
        if (deviations := gradient_descent.weight_deviations(result)) is None:
            return None, None
        slopes, offsets = deviations * result.task.scale, deviations * result.task.constant / result.task.gamma
        moved = np.hypot(offsets, slopes * float(np.linalg.norm(self.design_.middles)))
        return (
            ErrorBars.normal(self.coef_, np.repeat(slopes[:, None], self.coef_.shape[1], axis=1)),
            ErrorBars.normal(self.intercept_, moved),
        )

    def check_restored(self) -> None:
        """Raise an error unless what was read from a file belongs together."""
        super().check_restored()
        if self.shares_ is not None and self.shares_.shape != self.classes_.shape:
            raise ValueError("shares and classes do not belong together [VA039]")
        if len(self.coef_) != (1 if len(self.classes_) == 2 else len(self.classes_)):
            raise ValueError("weights and classes do not belong together [VA040]")

    @property
    def row_names(self) -> list[str]:
        """The classes, where each of them has a row of ``coef_``."""
        return [str(name) for name in self.classes_] if len(self.coef_) > 1 else [""]

    def decision_function(self, X: People, **given: Unpack[ReadingOptions]) -> Matrix:
        """Scores: log-odds of the second class, or a column for each class."""
        scores = self.scores(X, **given)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def chances(self, scores: Matrix) -> Matrix:
        """The chance of each class; with several classes, their chances are divided by their sum."""
        found: Matrix = 0.5 + 0.5 * np.tanh(np.asarray(scores, dtype=np.float64) / 2)
        if found.shape[1] == 1:
            return np.hstack([1 - found, found])
        return np.asarray(found / np.maximum(found.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny))

    def score(self, X: People, y: NDArray[Any] | None = None, **given: Unpack[ReadingOptions]) -> float:
        """The share of people whose class is predicted; ``y`` only where the label is not in X."""
        true, predicted = self.compare_labels(X, y, **given)
        return float(np.mean(true == predicted))

    def true_of(self, X: People) -> NDArray[Any]:
        """The classes of people, where X has a table with the label column."""
        encoded = self.label_of(X)
        chosen = encoded[:, 0].astype(np.intp) if encoded.shape[1] == 1 else encoded.argmax(axis=1)
        true: NDArray[Any] = self.classes_[chosen]
        return true


def _columns(declared: Column) -> int:
    """The number of regressions: one for two classes, otherwise one for each class."""
    return len(declared.classes) if len(declared.classes) > 2 else 1
