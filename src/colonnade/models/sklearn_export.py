"""Linear weights as scikit-learn estimators and pipelines; imported late, as scikit-learn takes long to load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import GammaRegressor, LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, LabelBinarizer
from sklearn.svm import LinearSVC

from colonnade.models.base import Matrix, gather_people
from colonnade.models.design import without_label
from colonnade.tables.encoding import InvalidValues
from colonnade.tables.schema import Schema
from colonnade.tables.table import ColumnCentring, Norm

if TYPE_CHECKING:
    from colonnade.models.linear_model import LinearModel


def _with_weights(made: Any, model: LinearModel, weights: Any, intercept: Any) -> Any:
    """A scikit-learn estimator with these weights of a model's columns, as a fit would have left it."""
    made.coef_, made.intercept_ = weights.copy(), intercept
    made.n_features_in_ = len(model.feature_names_in_)
    return _with_names(made, model)


def _with_names(made: Any, model: LinearModel) -> Any:
    made.feature_names_in_ = np.array(model.feature_names_in_, dtype=object)
    return made


def sklearn_classifier(model: LinearModel, classes: NDArray[Any]) -> Any:
    """A fitted ``LogisticRegression`` for two classes, and a ``OneVsRestClassifier`` of them for more."""
    if len(classes) == 2:
        return _binary(model, 0, classes)
    several = OneVsRestClassifier(LogisticRegression())
    several.classes_ = np.array(classes)
    several.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(classes)
    several.estimators_ = [_binary(model, row, np.array([0, 1])) for row in range(len(classes))]
    return _with_names(several, model)


def _binary(model: LinearModel, row: int, classes: NDArray[Any]) -> Any:
    rows = slice(row, row + 1)
    made = _with_weights(LogisticRegression(), model, model.coef_[rows], model.intercept_[rows].copy())
    made.classes_ = np.array(classes)
    made.n_iter_ = np.zeros(1, dtype=np.int32)
    return made


def sklearn_margins(model: LinearModel, classes: NDArray[Any]) -> Any:
    """A fitted ``LinearSVC``."""
    made = _with_weights(LinearSVC(), model, model.coef_, model.intercept_.copy())
    made.classes_ = classes
    return made


def sklearn_means(model: LinearModel, family: str) -> Any:
    """A fitted ``PoissonRegressor`` or ``GammaRegressor``; predictions are not cut off at the label's bounds."""
    plain = PoissonRegressor() if family == "poisson" else GammaRegressor()
    made = _with_weights(plain, model, model.coef_[0], float(model.intercept_[0]))
    made._base_loss = made._get_loss()  # what fit would have chosen: predict takes the inverse link from it
    return made


def sklearn_regressor(model: LinearModel, *, logarithmic: bool) -> Any:
    """A fitted ``LinearRegression`` or, with a ridge, a ``Ridge``; wrapped where the label has a logarithmic scale."""
    plain = Ridge(alpha=model.ridge_) if model.ridge_ else LinearRegression()
    made = _with_weights(plain, model, model.coef_[0], float(model.intercept_[0]))
    if not logarithmic:
        return made
    outer = TransformedTargetRegressor(made, func=np.log1p, inverse_func=np.expm1, check_inverse=False)
    outer.regressor_ = made
    outer.transformer_ = FunctionTransformer(np.log1p, np.expm1, check_inverse=False).fit(np.zeros((1, 1)))
    outer._training_dim = 1
    return _with_names(outer, model)


class RawEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The first step of a pipeline: raw rows of all parties to the encoded columns that a model was fitted with.

    It learns nothing: schemas say everything. X is one table with all parties' columns, named ``party.column`` or as
    only one party names them, or a mapping from party to table in the same order. ``misfits`` says what becomes of
    cells that a schema has no place for: ``"refuse"`` raises an error, ``"map"`` does with them what a study does.
    """

    def __init__(
        self,
        schemas: Mapping[str, Schema],
        label: str | None = None,
        norm: Norm | None = "l2",
        misfits: InvalidValues = "map",
    ) -> None:
        self.schemas, self.label, self.norm, self.misfits = schemas, label, norm, misfits

    def fit(self, X: Any = None, y: Any = None) -> RawEncoder:
        """Nothing is learned."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    @property
    def wanted(self) -> dict[str, Schema]:
        """The columns that are read, by party."""
        if self.label is None:
            return dict(self.schemas)
        found = {party: without_label(self.schemas, self.label, party) for party in self.schemas}
        return {party: schema for party, schema in found.items() if schema is not None}

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the encoded columns."""
        names = [f"{party}.{name}" for party, schema in self.wanted.items() for name in schema.encoded_names]
        return np.array(names, dtype=object)

    def transform(self, X: Any) -> Any:
        """The encoded rows, as a data frame where the estimator after it wants names."""
        return pd.DataFrame(self.matrix(X), columns=self.get_feature_names_out())

    def matrix(self, X: Any) -> Matrix:
        """The encoded rows."""
        wanted, same_order = self.wanted, isinstance(X, Mapping)
        people = gather_people(X, wanted, self.schemas, "a prediction", same_order=same_order, misfits=self.misfits)
        return np.hstack([self._rows(schema, people[party]) for party, schema in wanted.items()])

    def _rows(self, schema: Schema, table: Any) -> Matrix:
        if self.norm is None:
            return np.asarray(table.matrix())
        found = ColumnCentring(schema, None, self.norm)
        return np.asarray(found.centre_features(table).matrix() + found.middle)


def pipeline(encoder: RawEncoder, estimator: Any) -> Any:
    """Both as a scikit-learn pipeline."""
    return Pipeline([("encode", encoder), ("predict", estimator)])
