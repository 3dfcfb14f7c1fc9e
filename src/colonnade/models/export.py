"""Fitted regressions for people who do not have this library: a plain scikit-learn estimator, or plain values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade.tables import Number, Schema

if TYPE_CHECKING:
    from colonnade.models.linear_model import LinearModel

FORMAT = "colonnade regression 1"


def to_sklearn(model: LinearModel) -> Any:
    """A fitted estimator of scikit-learn that gives the same predictions for a frame of encoded columns.

    Two classes become a ``LogisticRegression``, more a ``OneVsRestClassifier`` of them; a number becomes a
    ``LinearRegression`` or, with a ridge, a ``Ridge``, wrapped where the label has a logarithmic scale.
    """
    # Here and below, because importing scikit-learn takes as long as many a study.
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import LabelBinarizer

    classes = getattr(model, "classes_", None)
    if classes is None:
        return _regressor(model)
    if len(classes) == 2:
        return _binary(model, 0, classes)
    several = OneVsRestClassifier(LogisticRegression())
    several.classes_ = np.array(classes)
    several.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(classes)
    several.estimators_ = [_binary(model, k, np.array([0, 1])) for k in range(len(classes))]
    return _named(several, model)


def _binary(model: LinearModel, row: int, classes: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    made = LogisticRegression()
    made.classes_ = np.array(classes)
    made.n_iter_ = np.zeros(1, dtype=np.int32)
    made.coef_, made.intercept_ = model.coef_[row : row + 1].copy(), model.intercept_[row : row + 1].copy()
    made.n_features_in_ = model.coef_.shape[1]
    return _named(made, model)


def _regressor(model: LinearModel) -> Any:
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.linear_model import LinearRegression, Ridge
    from sklearn.preprocessing import FunctionTransformer

    made = Ridge(alpha=model.ridge_) if model.ridge_ else LinearRegression()
    made.coef_, made.intercept_ = model.coef_[0].copy(), float(model.intercept_[0])
    made.n_features_in_ = model.coef_.shape[1]
    _named(made, model)
    if label_column(model).transform == "none":
        return made
    outer = TransformedTargetRegressor(made, func=np.log1p, inverse_func=np.expm1, check_inverse=False)
    outer.regressor_ = made
    outer.transformer_ = FunctionTransformer(np.log1p, np.expm1, check_inverse=False).fit(np.zeros((1, 1)))
    outer._training_dim = 1
    return _named(outer, model)


def _named(made: Any, model: LinearModel) -> Any:
    made.feature_names_in_ = np.array(model.feature_names_in_, dtype=object)
    return made


def label_column(model: LinearModel) -> Number:
    """The label's column, where it is a number."""
    declared = model.design_.declared
    assert isinstance(declared, Number)  # noqa: S101 - for the type checker; a linear regression has such a label
    return declared


def to_json(model: LinearModel) -> dict[str, Any]:
    """Names, weights, the rules by which columns are encoded, and what the model may have told about whom."""
    classes = getattr(model, "classes_", None)
    return {
        "format": FORMAT,
        "kind": model.kind,
        "label": model.label_,
        "method": model.method_,
        "classes": None if classes is None else classes.tolist(),
        "features": list(model.feature_names_in_),
        "coefficients": model.coefficients(),
        "intercept": model.intercept_.tolist(),
        "columns": {party: _columns(schema) for party, schema in model.schemas_.items()},
        "row_clips": {party: schema.clip for party, schema in model.schemas_.items() if schema.clip < schema.max_norm},
        "how_to_score": model.how_to_score,
        "protection": {party: finite(value) for party, value in model.protection_.items()},
        "privacy": model.privacy_.to_dict(),
    }


HOW = {
    "linear": (
        "score = intercept + sum of coefficient x encoded column; that is the label in its unit, or log(1 + label) "
        "where the label has transform log1p. A number is encoded to [-1, 1], or to [0, 1] with scale unit, between "
        "low and high (after its transform); a category one-hot; a flag 0 or 1."
    ),
    "logistic": (
        "score = intercept + sum of coefficient x encoded column, for each class; with two classes the second one is "
        "predicted where the score is positive, with chance 1 / (1 + exp(-score)), otherwise the class of the largest "
        "score. A number is encoded to [-1, 1], or to [0, 1] with scale unit, between low and high (after its "
        "transform); a category one-hot; a flag 0 or 1."
    ),
}


def _columns(schema: Schema) -> dict[str, Any]:
    return {name: column.fields() for name, column in schema.columns.items()}


def finite(value: float) -> float | None:
    """A number for JSON, which has no infinity."""
    return None if math.isinf(value) else value
