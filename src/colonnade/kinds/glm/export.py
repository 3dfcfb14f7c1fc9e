"""Released generalised linear models for people who do not have this library."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from colonnade.kinds.glm.losses.labels import Family
from colonnade.models.export import ENCODED, SCORE, UNIT, Weights

_WITHIN = "where a score counts as {low!r} at least and {high!r} at most"
HOW = {
    "logistic": "the second class has chance 1 / (1 + exp(-score))",
    "svm": "the second class is predicted where the score is positive",
    "linear": f"{UNIT}, cut off at its bounds",
    "poisson": f"the expected count is exp(score), {_WITHIN}",
    "gamma": f"the expected amount is exp(score), {_WITHIN}",
}


def how_to_score(family: Family) -> str:
    """In words, how predictions follow from released weights; logarithms of means stay within a region."""
    low, high = _region(family)
    return f"{SCORE}; {HOW[family.name].format(low=low, high=high)}. {ENCODED}"


def described(family: Family) -> dict[str, Any]:
    """The loss as plain values: its slopes are divided by ``scale``, and ``region`` is where a predictor counts."""
    names = ("slope_bound", "reach", "low", "high", "centre", "scale")
    region = list(_region(family)) if family.name in ("poisson", "gamma") else None
    return {"name": family.name, "region": region} | {name: getattr(family, name) for name in names}


def _region(family: Family) -> tuple[float, float]:
    return family.centre - family.reach, family.centre + family.reach


def margins(weights: Weights, classes: NDArray[Any]) -> Any:
    """A fitted ``LinearSVC`` of scikit-learn with these weights."""
    # Imported here because importing scikit-learn is slow.
    from sklearn.svm import LinearSVC

    made = weights.into(LinearSVC())
    made.classes_ = classes
    return made


def positive_mean(weights: Weights, family: str) -> Any:
    """A fitted ``PoissonRegressor`` or ``GammaRegressor``; predictions are not cut off at the label's bounds."""
    from sklearn.linear_model import GammaRegressor, PoissonRegressor

    made = weights.into_regressor(PoissonRegressor() if family == "poisson" else GammaRegressor())
    made._base_loss = made._get_loss()  # what fit would have chosen: predict takes the inverse link from it
    return made
