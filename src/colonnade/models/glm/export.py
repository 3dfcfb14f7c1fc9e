"""Released generalised linear models for people who do not have this library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade.models import export
from colonnade.protocols.losses.labels import Family

if TYPE_CHECKING:
    from colonnade.models.glm.fitted import FittedGLM

_ENCODED = (
    " A number is encoded to [-1, 1], or to [0, 1] with scale unit, between low and high (after its transform); a "
    "category one-hot; a flag 0 or 1."
)
_SCORE = "score = intercept + sum of coefficient x encoded column; "
HOW = {
    "logistic": _SCORE + "the second class has chance 1 / (1 + exp(-score))." + _ENCODED,
    "svm": _SCORE + "the second class is predicted where the score is positive." + _ENCODED,
    "linear": _SCORE
    + "that is the label in its unit, or log(1 + label) where the label has transform log1p, cut off at its bounds."
    + _ENCODED,
    "poisson": _SCORE
    + "the expected count is exp(score), where a score counts as {low!r} at least and {high!r} at most."
    + _ENCODED,
    "gamma": _SCORE
    + "the expected amount is exp(score), where a score counts as {low!r} at least and {high!r} at most."
    + _ENCODED,
}


def how_to_score(family: Family) -> str:
    """How predictions follow from released weights, in words; logarithms of means stay within a region."""
    low, high = _region(family)
    return HOW[family.name].format(low=low, high=high)


def described(family: Family) -> dict[str, Any]:
    """The loss as plain values: its slopes are divided by ``scale``, and ``region`` is where a predictor counts."""
    names = ("slope_bound", "reach", "low", "high", "centre", "scale")
    region = list(_region(family)) if family.name in ("poisson", "gamma") else None
    return {"name": family.name, "region": region} | {name: getattr(family, name) for name in names}


def _region(family: Family) -> tuple[float, float]:
    return family.centre - family.reach, family.centre + family.reach


def to_sklearn(model: FittedGLM) -> Any:
    """A fitted estimator of scikit-learn with the same weights; predictions are not cut off at the label's bounds.

    It is a ``LogisticRegression``, a ``LinearSVC``, a ``LinearRegression`` (wrapped where the label has a logarithmic
    scale), a ``PoissonRegressor`` or a ``GammaRegressor``.
    """
    # Imported here because that takes as long as many a study.
    from sklearn.linear_model import GammaRegressor, PoissonRegressor
    from sklearn.svm import LinearSVC

    family = model.family_.name
    if family in ("logistic", "linear"):
        return export.to_sklearn(model)
    made = {"svm": LinearSVC, "poisson": PoissonRegressor, "gamma": GammaRegressor}[family]()
    made.n_features_in_ = model.coef_.shape[1]
    made.feature_names_in_ = np.array(model.feature_names_in_, dtype=object)
    if family == "svm":
        made.classes_, made.coef_, made.intercept_ = model.classes_, model.coef_.copy(), model.intercept_.copy()
        return made
    made.coef_, made.intercept_ = model.coef_[0].copy(), float(model.intercept_[0])
    made._base_loss = made._get_loss()  # what fit would have chosen: predict takes the inverse link from it
    return made
