"""Linear regression on columns that nobody holds together, from one noisy release of second moments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.regression import error_bars, least_squares
from colonnade.kinds.regression.base import Published, Regression, Ridge
from colonnade.models.new_rows import Matrix, People, ReadingOptions
from colonnade.models.parameters import EpsilonByParty, Label, RowsAtMost, at_least
from colonnade.models.planner import Roster
from colonnade.privacy.noise_laws import DEFAULT_LAW, FUNCTIONAL, NormalLawName
from colonnade.protocols.moments.task import Moments, NoisyMoments
from colonnade.tables import Column

METHODS = ("one-shot", "functional")


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegression(Regression):
    """Differentially private linear or ridge regression over vertically partitioned columns.

    The label is a number column. ``coef_`` and ``intercept_`` give it in its own unit (its logarithm, log(1 + y),
    where its schema says ``transform = "log1p"``) from encoded columns; ``predict`` gives it in its unit always.

    Args:
        epsilon: one number for everyone, or a mapping such as ``{"analyst": 1.0, "party": 2.0}``.
        delta: the delta of all promises.
        label: the column to predict, written ``"party.column"``; may be given to ``fit`` instead.
        method: ``"one-shot"`` adds Skellam or discrete Gaussian noise, for (epsilon, delta); ``"functional"`` discrete
            Laplace noise, for pure epsilon.
        noise: ``"skellam"`` or ``"discrete-gaussian"``, for ``method="one-shot"``.
        ridge: ``"auto"`` follows from the noise; a number is added to the diagonal of the centred X'X, as ``alpha`` of
            scikit-learn's Ridge.
        epsilon_by_party: instead of ``epsilon``, for each party what the published result may tell anybody about one
            person's columns at that party.
        intercept: without one, predictions are 0 where all encoded columns are.
        gamma: the scale of the integer grid.
        rows_at_most: a public limit on the number of rows.
    """

    kind = "linear"
    tasks = (Moments,)

    epsilon: float | Mapping[str, float] | None = None
    delta: float = 1e-5
    label: Label = None
    method: Literal["one-shot", "functional"] = "one-shot"
    noise: NormalLawName = DEFAULT_LAW
    ridge: Ridge = "auto"
    epsilon_by_party: EpsilonByParty = None
    intercept: bool = True
    gamma: Annotated[int, at_least(2)] = 4096
    rows_at_most: RowsAtMost = 2**24

    @property
    def _estimator_type(self) -> str:
        return "regressor"

    def plan(self, roster: Roster) -> Moments:
        """One release of second moments with the least noise that meets the budgets."""
        if self.method not in METHODS:
            raise StudyError(
                f"method of a linear regression must be one of {', '.join(METHODS)}, not {self.method!r} [ST194]"
            )
        law = self.normal_law()
        return self.plan_moments(roster, FUNCTIONAL if self.method == "functional" else law, self.gamma)

    def check_label(self, declared: Column) -> None:
        """Raise an error unless the label is a number."""
        if declared.quantity is None:
            raise StudyError(
                f"label {self.label!r} is a {declared.kind}, not a number; use LogisticRegression "
                '(kind = "logistic" in a study file) [ST195]'
            )

    def finish(self, result: Published) -> None:
        """Least squares from the noisy moments, in the label's unit."""
        published = cast("NoisyMoments", result)  # there is no other method
        reading, unit, zero = self.reading(published.task), *self._unit()
        through = None if self.intercept else -zero / unit
        found = least_squares.fit_weights(published, reading, self.ridge, through)
        self.feature_names_in_ = list(reading.features)
        self.coef_ = unit * found.weights
        self.intercept_ = zero + unit * found.offsets if self.intercept else np.zeros(1)
        self.remember(found, published, reading)
        draws = error_bars.sample_weights(published, reading, self.ridge, through)
        offsets = zero + unit * draws.offsets if self.intercept else np.zeros_like(draws.offsets)
        self.set_error_bars(
            error_bars.error_bars_of(self.coef_, unit * draws.weights),
            error_bars.error_bars_of(self.intercept_, offsets),
        )

    def answers(self, scores: Matrix) -> NDArray[Any]:
        """The label in its unit."""
        values: Matrix = np.asarray(scores, dtype=np.float64)[:, 0]
        return np.expm1(values) if self.design_.quantity.transform == "log1p" else values

    def score(self, X: People, y: NDArray[Any] | None = None, **given: Unpack[ReadingOptions]) -> float:
        """R^2, the share of the label's variance that is predicted; ``y`` only where the label is not in X."""
        true, predicted = self.compare_labels(X, y, **given)
        true = true.astype(np.float64)
        wrong, total = np.sum(np.square(true - predicted)), np.sum(np.square(true - true.mean()))
        return 1.0 - float(wrong / total) if total > 0 else 0.0

    def true_of(self, X: People) -> NDArray[Any]:
        """The labels of people in their unit, where X has a table with the label column."""
        return self.design_.quantity.decode_values(self.label_of(X)[:, 0])

    def _unit(self) -> tuple[float, float]:
        """A factor and an offset: the label (after its transform) is factor times encoded label, plus offset."""
        quantity = self.design_.quantity
        start, end = quantity.ends
        if not quantity.signed:
            return end - start, start
        return (end - start) / 2, (start + end) / 2
