"""What all fitted models with public linear weights share: scores by party, predictions, export."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Self, Unpack

import numpy as np

from colonnade.errors import DataError, StudyError
from colonnade.models import export
from colonnade.models.base import Result, RunTask
from colonnade.models.federation import Federation
from colonnade.models.newcomers import Given, Matrix, People, encoded_matrix, table_of
from colonnade.models.predicting import Predicting
from colonnade.models.regression.design import Design, without_label
from colonnade.models.saved import finite
from colonnade.privacy.statement import rounded_up
from colonnade.tables import Number, Schema
from colonnade.tables.centred import Centred, Norm


class LinearModel(Predicting[RunTask, Result]):
    """A model whose scores are a weighted sum of all parties' encoded columns, and an intercept."""

    label: str | None
    coef_: Matrix
    intercept_: Matrix
    feature_names_in_: list[str]
    method_: str
    ridge_: float | None = None
    protection_: dict[str, float]

    def fit(self, people: Federation, label: str | None = None) -> Self:
        """Learn from all parties of a federation, each in a thread; ``label`` is written ``party.column``.

        A label given here is that of this fit alone, and is found in ``label_``; the parameter stays as it was.
        """
        if label is None:
            return super().fit(people)
        asked = copy(self)
        asked.label = label
        vars(self).update(vars(asked.fit(people)), label=self.label)
        return self

    def check_restored(self) -> None:
        """Raise an error unless what was read from a file belongs together."""
        if self.feature_names_in_ != self.design_.features or set(self.protection_) != set(self.schemas_):
            raise ValueError("the model and its columns do not belong together")

    @property
    def label_(self) -> str | None:
        """The label that the model was fitted with."""
        found: str | None = self.parameters_["label"]
        return found

    def design(self, schemas: Mapping[str, Schema], norm: Norm = "l2") -> Design:
        """The columns that the next fit will use, and who holds the label."""
        return self.designed(schemas, self.label, norm)

    @property
    def design_(self) -> Design:
        """The columns that the model was fitted with, and who holds the label."""
        return self.designed(self.schemas_, self.label_)

    def designed(self, schemas: Mapping[str, Schema], label: str | None, norm: Norm = "l2") -> Design:
        """The columns for a label, which must be one of them."""
        if label is not None and not isinstance(label, str):
            raise StudyError(f'label must be a text written "party.column", not {type(label).__name__}')
        return Design.of(schemas, label, norm)

    def linear(self) -> tuple[Matrix, Matrix]:
        """The weights and the intercept that scores are made of."""
        return self.coef_, self.intercept_

    @property
    def has_public_weights(self) -> bool:
        """Whether everybody may see the weights."""
        return True

    @property
    def how_to_score(self) -> str:
        """In words, how scores follow from the weights, for somebody who has nothing but the weights."""
        return export.HOW[self.kind]

    @property
    def row_norm(self) -> Norm:
        """The norm in which rows are clipped."""
        return "l2"

    @property
    def row_names(self) -> list[str]:
        """The class of each row of ``coef_``; an empty name where there is only one row."""
        return [""]

    def scores(self, X: People, **given: Unpack[Given]) -> Matrix:
        """The scores, of shape (rows, classes): the sum of the parties' parts and the intercept."""
        self._check_fitted()
        slopes, offsets = self.linear()
        if given.get("encoded"):
            return encoded_matrix(X, self.feature_names_in_) @ slopes.T + offsets
        people = self.people(X, **given)
        wanted = [party for party in self.schemas_ if self._feature_schema(party)]
        total: Matrix = np.sum([self.partial(party, people[party]) for party in wanted], axis=0)
        return total + offsets

    def partial(self, party: str, source: Any) -> Matrix:
        """One party's part of the scores, (rows, classes), from its own columns alone, without the intercept."""
        self._check_fitted()
        self._check_party(party)
        schema = self._feature_schema(party)
        if schema is None:
            raise DataError(f"{party} holds the label and no other column, so it has no part in the scores")
        rows = self.encoded_rows(schema, source)
        start = self.feature_names_in_.index(f"{party}.{schema.encoded_names[0]}")
        part: Matrix = rows @ self.linear()[0][:, start : start + rows.shape[1]].T
        return part

    def encoded_rows(self, schema: Schema, source: Any) -> Matrix:
        """The encoded columns of this schema, clipped as in the fit."""
        found = Centred(schema, None, self.row_norm)
        rows: Matrix = found.features(table_of(source, schema)).matrix() + found.middle
        return rows

    def coefficients(self) -> dict[str, dict[str, Any]]:
        """The weight of each encoded column, by party; with several classes, one weight for each class."""
        self._check_fitted()
        found: dict[str, dict[str, Any]] = {}
        for party in self.schemas_:
            schema = self._feature_schema(party)
            names = schema.encoded_names if schema else ()
            places = {name: self.feature_names_in_.index(f"{party}.{name}") for name in names}
            found[party] = {name: self._weight(place) for name, place in places.items()}
        return found

    def _weight(self, place: int) -> Any:
        if len(self.coef_) == 1:
            return float(self.coef_[0, place])
        return dict(zip(self.row_names, self.coef_[:, place].tolist(), strict=True))

    def to_sklearn(self) -> Any:
        """A fitted scikit-learn estimator that predicts the same from encoded matrices."""
        self._check_fitted()
        weights, classes = self.weights, getattr(self, "classes_", None)
        if classes is not None:
            return export.classifier(weights, classes)
        declared = self.design_.declared
        logarithmic = isinstance(declared, Number) and declared.transform != "none"
        return export.regressor(weights, self.ridge_, logarithmic=logarithmic)

    @property
    def weights(self) -> export.Weights:
        """The public weights by themselves."""
        return export.Weights(self.feature_names_in_, self.coef_, self.intercept_)

    def to_json(self) -> dict[str, Any]:
        """Everything somebody needs to use the model without this library, as plain values.

        Names, weights, the rules by which columns are encoded, and what the model may have told about whom.
        """
        self._check_fitted()
        classes, schemas = getattr(self, "classes_", None), self.schemas_
        return {
            "format": export.FORMAT,
            "kind": self.kind,
            "label": self.label_,
            "method": self.method_,
            "classes": None if classes is None else classes.tolist(),
            "features": list(self.feature_names_in_),
            "coefficients": self.coefficients(),
            "intercept": self.intercept_.tolist(),
            "columns": {
                party: {name: column.fields() for name, column in schema.columns.items()}
                for party, schema in schemas.items()
            },
            "row_clips": {party: schema.clip for party, schema in schemas.items() if schema.clip < schema.max_norm},
            "how_to_score": self.how_to_score + export.rarer_rules(schemas.values()),
            "protection": {party: finite(value) for party, value in self.protection_.items()},
            "privacy": self.privacy_.to_dict(),
        }

    def _strongest(self, weights: Matrix, intercept: float) -> str:
        """The strongest weights of a row of ``coef_`` and its intercept, as text."""
        first = abs(weights).argsort()[::-1][:8]
        shown = ", ".join(f"{self.feature_names_in_[i]} {weights[i]:+.2f}" for i in first)
        return f"{shown}; intercept {intercept:+.2f}"

    def _told(self) -> str:
        """How much can be learned about the columns of each party, as text."""
        return ", ".join(f"{party} {rounded_up(epsilon)}" for party, epsilon in self.protection_.items())

    def _feature_schema(self, party: str) -> Schema | None:
        """A party's schema without the label; ``None`` where the label is its only column."""
        return without_label(self.schemas_, self.label_, party)
