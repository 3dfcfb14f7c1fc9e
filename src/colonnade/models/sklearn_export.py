"""Linear weights as scikit-learn estimators and pipelines; imported late, as scikit-learn takes long to load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, LabelBinarizer

from colonnade.models.design import without_label
from colonnade.models.new_rows import Matrix, gather_people
from colonnade.tables.centring import ColumnCentring, Norm
from colonnade.tables.encoding import InvalidValues
from colonnade.tables.schema import Schema

if TYPE_CHECKING:
    from colonnade.models.linear_model import LinearWeights


def sklearn_classifier(weights: LinearWeights, classes: NDArray[Any]) -> Any:
    """A fitted ``LogisticRegression`` for two classes, and a ``OneVsRestClassifier`` of them for more."""
    if len(classes) == 2:
        return _binary(weights, 0, classes)
    several = OneVsRestClassifier(LogisticRegression())
    several.classes_ = np.array(classes)
    several.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(classes)
    several.estimators_ = [_binary(weights, row, np.array([0, 1])) for row in range(len(classes))]
    return weights.with_names(several)


def _binary(weights: LinearWeights, row: int, classes: NDArray[Any]) -> Any:
    made = weights.copy_into(LogisticRegression(), row)
    made.classes_ = np.array(classes)
    made.n_iter_ = np.zeros(1, dtype=np.int32)
    return made


def sklearn_regressor(weights: LinearWeights, ridge: float | None, *, logarithmic: bool) -> Any:
    """A fitted ``LinearRegression`` or, with a ridge, a ``Ridge``; wrapped where the label has a logarithmic scale."""
    made = weights.copy_into_regressor(Ridge(alpha=ridge) if ridge else LinearRegression())
    if not logarithmic:
        return made
    outer = TransformedTargetRegressor(made, func=np.log1p, inverse_func=np.expm1, check_inverse=False)
    outer.regressor_ = made
    outer.transformer_ = FunctionTransformer(np.log1p, np.expm1, check_inverse=False).fit(np.zeros((1, 1)))
    outer._training_dim = 1
    return weights.with_names(outer)


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
