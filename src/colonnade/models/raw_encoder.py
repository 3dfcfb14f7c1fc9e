"""Our encoder as the first step of a scikit-learn pipeline: raw tables of all parties in, encoded columns out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from colonnade.models.design import without_label
from colonnade.models.newcomers import Matrix, gathered
from colonnade.tables.centred import Centred, Norm
from colonnade.tables.encode import Misfits
from colonnade.tables.schema import Schema


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
        misfits: Misfits = "map",
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
        import pandas as pd

        return pd.DataFrame(self.matrix(X), columns=self.get_feature_names_out())

    def matrix(self, X: Any) -> Matrix:
        """The encoded rows."""
        wanted, same_order = self.wanted, isinstance(X, Mapping)
        people = gathered(X, wanted, self.schemas, "a prediction", same_order=same_order, misfits=self.misfits)
        return np.hstack([self._rows(schema, people[party]) for party, schema in wanted.items()])

    def _rows(self, schema: Schema, table: Any) -> Matrix:
        if self.norm is None:
            return np.asarray(table.matrix())
        found = Centred(schema, None, self.norm)
        return np.asarray(found.features(table).matrix() + found.middle)


def pipeline(encoder: RawEncoder, estimator: Any) -> Any:
    """Both as a scikit-learn pipeline."""
    from sklearn.pipeline import Pipeline

    return Pipeline([("encode", encoder), ("predict", estimator)])
