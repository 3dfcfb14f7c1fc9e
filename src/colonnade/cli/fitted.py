"""A fitted model in a few lines, for a person at a terminal."""

from __future__ import annotations

from typing import Any

from colonnade.models import Estimator
from colonnade.privacy.statement import rounded_up

_MOST = 8


def summary(model: Estimator) -> list[str]:
    """The lines that fit the kind of the model."""
    kinds = {
        "pca": _components,
        "linear": _regression,
        "logistic": _regression,
        "glm": _messages,
        "polynomial": _sums,
        "prediction": _answers,
        "glm-scores": _answers,
    }
    return kinds[model.kind](model)


def _components(model: Any) -> list[str]:
    ratios = ", ".join(f"{ratio:.3f}" for ratio in model.explained_variance_ratio_)
    lines = [f"explained variance of the {model.n_components} components: {ratios}"]
    for index, component in enumerate(model.components_[:3]):
        strongest = abs(component).argsort()[::-1][:4]
        loadings = ", ".join(f"{model.feature_names_in_[i]} {component[i]:+.2f}" for i in strongest)
        lines.append(f"  component {index + 1}: {loadings}")
    return lines


def _regression(model: Any) -> list[str]:
    lines = [model.in_short]
    names = [str(name) for name in getattr(model, "classes_", ())] if len(model.coef_) > 1 else [""]
    for name, weights, intercept in list(zip(names, model.coef_, model.intercept_, strict=True))[:3]:
        strongest = abs(weights).argsort()[::-1][:_MOST]
        shown = ", ".join(f"{model.feature_names_in_[i]} {weights[i]:+.2f}" for i in strongest)
        lines.append(f"  {name + ': ' if name else ''}{shown}; intercept {intercept:+.2f}")
    told = ", ".join(f"{party} {rounded_up(epsilon)}" for party, epsilon in model.protection_.items())
    return [*lines, f"the result tells about the columns of each party alone, epsilon at most: {told}"]


def _messages(model: Any) -> list[str]:
    """A model over noised messages; weights that parties keep are not at hand here, and would not be shown."""
    lines = [model.in_short]
    if model.release:
        (weights,), (intercept,) = model.coef_, model.intercept_
        strongest = abs(weights).argsort()[::-1][:_MOST]
        shown = ", ".join(f"{model.feature_names_in_[i]} {weights[i]:+.2f}" for i in strongest)
        lines.append(f"  released: {shown}; intercept {intercept:+.2f}")
    lines.append("each party keeps its own weights, in its kept.json and nowhere else")
    told = ", ".join(f"{party} {rounded_up(epsilon)}" for party, epsilon in model.protection_.items())
    return [*lines, f"all that leaves a party tells about its columns alone, epsilon at most: {told}"]


def _sums(model: Any) -> list[str]:
    pairs = list(zip(model.expressions_, model.values_, model.deviations_, strict=True))
    lines = [f"  {text}: {value:.6g}, noise of deviation {spread:.3g}" for text, value, spread in pairs[:_MOST]]
    rest = [f"  and {len(pairs) - _MOST} more in model.json"] if len(pairs) > _MOST else []
    return ["sums over all people:", *lines, *rest]


def _answers(model: Any) -> list[str]:
    how = "exact" if getattr(model, "exact", False) else "noisy"
    if model.ids_ is None:
        return [f"{model.to} was told the {how} scores; they are in its model.json and nowhere else"]
    return [f"{how} scores of {len(model.ids_):,} people, told to {model.to} alone: see model.json"]
