"""What all fitted models with public linear weights share: scores by party, predictions, export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np

from colonnade.drawing.canvas import Chart, Picture
from colonnade.errors import DataError, StudyError
from colonnade.models.base import Matrix, People, ReadingOptions, Result, RunTask, encoded_matrix, table_of
from colonnade.models.classifier_mixin import ClassifierMixin, PredictionMixin
from colonnade.models.design import LabelDesign, without_label
from colonnade.models.estimates import ErrorBars, Estimate
from colonnade.models.onnx_export import (
    OnnxGraph,
    add_classes,
    add_numbers,
    linear_to_onnx,
    onnx_metadata,
    write_export,
)
from colonnade.models.pictures import weights_chart
from colonnade.models.serialization import finite_or_null, plain_value, read_array
from colonnade.privacy.statement import format_rounded_up
from colonnade.tables import Schema
from colonnade.tables.encoding import InvalidValues
from colonnade.tables.table import ColumnCentring, Norm

if TYPE_CHECKING:
    from colonnade.models.federation import Federation

EXPORT_FORMAT = "colonnade regression 1"
SCORE = "score = intercept + sum of coefficient x encoded column"
UNIT = "that is the label in its unit, or log(1 + label) where the label has transform log1p"
ENCODED = (
    "A number is encoded to [-1, 1], or to [0, 1] with scale unit, between low and high (after its transform); a "
    "category one-hot; a flag 0 or 1."
)
HOW = {
    "linear": f"{SCORE}; {UNIT}. {ENCODED}",
    "logistic": (
        f"{SCORE}, for each class; with two classes the second one is predicted where the score is positive, with "
        f"chance 1 / (1 + exp(-score)), otherwise the class of the largest score. {ENCODED}"
    ),
}
ESTIMANDS = {
    "one-shot": "what the same fit would give without noise and without a ridge that is only there for the noise",
    "sqm": "what the same rounds over the same batches would give without noise",
    "alternating": "the weights that the parties held before the noise of the release; the noise of messages, which "
    "is already in those, is not part of it",
}
ESTIMANDS |= {"functional": ESTIMANDS["one-shot"], "gradient": ESTIMANDS["alternating"]}
"""What intervals are for, by method."""


def rarer_rules(schemas: Iterable[Schema]) -> str:
    """What else there is to say of how these schemas encode columns, with a blank before it; mostly nothing."""
    columns = (column for schema in schemas for column in schema.columns.values())
    return "".join(f" {note}" for note in dict.fromkeys(note for column in columns for note in column.notes))


class LinearModel(PredictionMixin[RunTask, Result]):
    """A model whose scores are a weighted sum of all parties' encoded columns, and an intercept."""

    label: str | None
    coef_: Matrix
    intercept_: Matrix
    feature_names_in_: list[str]
    method_: str
    ridge_: float | None = None
    protection_: dict[str, float]
    coef_deviations_: Matrix | None = None
    coef_low_: Matrix | None = None
    coef_high_: Matrix | None = None
    intercept_deviations_: Matrix | None = None
    intercept_low_: Matrix | None = None
    intercept_high_: Matrix | None = None
    barred: ClassVar = tuple(
        f"{what}_{part}" for what in ("coef", "intercept") for part in ("deviations", "low", "high")
    )
    """What noise does to the weights, as files name it; ``None`` where it is not known."""
    saved_if_known: ClassVar[Mapping[str, Callable[[Any], Any]]] = dict.fromkeys(barred, read_array)

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
            raise ValueError("the model and its columns do not belong together [VA026]")
        for name in self.barred:
            given, value = getattr(self, f"{name}_"), name.partition("_")[0]
            if (given is None) is not (self.coef_deviations_ is None):
                raise ValueError("error bars are there for all weights or for none [VA027]")
            if given is not None and given.shape != getattr(self, f"{value}_").shape:
                raise ValueError("weights and their error bars do not belong together [VA028]")

    def set_error_bars(self, coef: ErrorBars | None, intercept: ErrorBars | None) -> None:
        """Set how far noise may have moved the weights and the intercept; ``None`` if it is not known."""
        for what, bars in (("coef", coef), ("intercept", intercept)):
            for part in ("deviations", "low", "high"):
                setattr(self, f"{what}_{part}_", None if bars is None else getattr(bars, part))

    @property
    def label_(self) -> str | None:
        """The label that the model was fitted with."""
        found: str | None = self.parameters_["label"]
        return found

    def design(self, schemas: Mapping[str, Schema], norm: Norm = "l2") -> LabelDesign:
        """The columns that the next fit will use, and who holds the label."""
        return self.design_for(schemas, self.label, norm)

    @property
    def design_(self) -> LabelDesign:
        """The columns that the model was fitted with, and who holds the label."""
        return self.design_for(self.schemas_, self.label_)

    def design_for(self, schemas: Mapping[str, Schema], label: str | None, norm: Norm = "l2") -> LabelDesign:
        """The columns for a label, which must be one of them."""
        if label is not None and not isinstance(label, str):
            raise StudyError(f'label must be a text written "party.column", not {type(label).__name__} [ST147]')
        return LabelDesign.of(schemas, label, norm)

    def linear(self) -> tuple[Matrix, Matrix]:
        """The weights and the intercept that scores are made of."""
        return self.coef_, self.intercept_

    @property
    def has_public_weights(self) -> bool:
        """Whether everybody may see the weights."""
        return True

    @property
    def estimand(self) -> str:
        """In words, what the intervals of the weights are for."""
        return ESTIMANDS.get(self.method_, ESTIMANDS["one-shot"])

    @property
    def how_to_score(self) -> str:
        """In words, how scores follow from the weights, for somebody who has nothing but the weights."""
        return HOW[self.kind]

    @property
    def row_norm(self) -> Norm:
        """The norm in which rows are clipped."""
        return "l2"

    @property
    def row_names(self) -> list[str]:
        """The class of each row of ``coef_``; an empty name where there is only one row."""
        return [""]

    def scores(self, X: People, **given: Unpack[ReadingOptions]) -> Matrix:
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
            raise DataError(f"{party} holds the label and no other column, so it has no part in the scores [DA059]")
        rows = self.encoded_rows(schema, source)
        start = self.feature_names_in_.index(f"{party}.{schema.encoded_names[0]}")
        part: Matrix = rows @ self.linear()[0][:, start : start + rows.shape[1]].T
        return part

    def encoded_rows(self, schema: Schema, source: Any) -> Matrix:
        """The encoded columns of this schema, clipped as in the fit."""
        found = ColumnCentring(schema, None, self.row_norm)
        rows: Matrix = found.centre_features(table_of(source, schema)).matrix() + found.middle
        return rows

    def coefficients(self) -> dict[str, dict[str, Any]]:
        """The weight of each encoded column, by party; with several classes, one weight for each class.

        Each is an :class:`~colonnade.Estimate`: a float with the deviation and the interval that noise gives it.
        """
        self._check_fitted()
        found: dict[str, dict[str, Any]] = {}
        for party in self.schemas_:
            schema = self._feature_schema(party)
            names = schema.encoded_names if schema else ()
            places = {name: self.feature_names_in_.index(f"{party}.{name}") for name in names}
            rows = [
                {name: self.estimate(row, place) for name, place in places.items()} for row in range(len(self.coef_))
            ]
            by_class = {name: dict(zip(self.row_names, [row[name] for row in rows], strict=True)) for name in places}
            found[party] = dict(rows[0]) if len(rows) == 1 else by_class
        return found

    def estimate(self, row: int, place: int | None) -> Estimate:
        """One weight of a row of ``coef_``, or without a place its intercept, with what noise does to it."""
        what, where = ("intercept", (row,)) if place is None else ("coef", (row, place))
        value, deviations = (getattr(self, f"{what}_{part}") for part in ("", "deviations_"))
        if deviations is None:
            return Estimate(float(value[where]))
        ends = float(getattr(self, f"{what}_low_")[where]), float(getattr(self, f"{what}_high_")[where])
        return Estimate(float(value[where]), float(deviations[where]), ends)

    def picture(self) -> Picture:
        """The weights by party, with their intervals."""
        return Picture([self.weights_chart()])

    def weights_chart(self) -> Chart:
        """The strongest weights, by party."""
        places = range(len(self.feature_names_in_))
        rows = [[self.estimate(row, place) for place in places] for row in range(len(self.coef_))]
        title = f"Weights for {self.label_}"
        return weights_chart(title, self.feature_names_in_, rows, self.row_names, list(self.schemas_))

    def to_pipeline(self, misfits: InvalidValues = "map") -> Any:
        """A scikit-learn pipeline that predicts the same from raw tables: our encoder, then :meth:`to_sklearn`'s.

        ``misfits`` says whether cells that a schema has no place for are mapped, as in a study, or refused.
        """
        from colonnade.models.sklearn_export import RawEncoder, pipeline

        estimator = self.to_sklearn()
        return pipeline(RawEncoder(self.schemas_, self.label_, self.row_norm, misfits), estimator)

    def to_onnx(self, path: str | Path) -> Path:
        """Write the model with its encoder as an ONNX file: raw columns in, predictions out."""
        self._check_fitted()
        if not self.has_public_weights:
            raise StudyError(
                "this model has no public weights, so there is nothing to export: fit with release=True [ST148]"
            )
        told = onnx_metadata(self.kind, self.label_)
        graph = linear_to_onnx(told, self.schemas_, self.label_, self.row_norm, self.linear(), self.scored_in_graph)
        return write_export(graph, path)

    def scored_in_graph(self, graph: OnnxGraph, scores: str) -> None:
        """Give out, in an ONNX graph, what scores predict."""
        if isinstance(self, ClassifierMixin):
            classes = self.classes_
            wanted = self.parameters_.get("threshold", 0.5)
            limit = self.limit() if len(classes) == 2 else None
            add_classes(graph, scores, classes, limit, self.shares_ if wanted == "balanced" else None)
            return
        add_numbers(graph, scores, logarithmic=self._logarithmic)

    def to_sklearn(self) -> Any:
        """A fitted scikit-learn estimator that predicts the same from encoded matrices."""
        self._check_fitted()
        from colonnade.models.sklearn_export import sklearn_classifier, sklearn_regressor

        if (classes := getattr(self, "classes_", None)) is not None:
            return sklearn_classifier(self, classes)
        return sklearn_regressor(self, logarithmic=self._logarithmic)

    @property
    def _logarithmic(self) -> bool:
        quantity = self.design_.declared.quantity
        return quantity is not None and quantity.transform != "none"

    def to_json(self) -> dict[str, Any]:
        """Everything somebody needs to use the model without this library, as plain values.

        Names, weights, the rules by which columns are encoded, and what the model may have told about whom.
        """
        self._check_fitted()
        classes, schemas = getattr(self, "classes_", None), self.schemas_
        known = {name: plain_value(value) for name in self.barred if (value := getattr(self, f"{name}_")) is not None}
        return {
            "format": EXPORT_FORMAT,
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
            "how_to_score": self.how_to_score + rarer_rules(schemas.values()),
            "protection": {party: finite_or_null(value) for party, value in self.protection_.items()},
            "privacy": self.privacy_.to_dict(),
        } | ({"error_bars": known} if known else {})

    def _strongest(self, row: int) -> str:
        """The strongest weights of a row of ``coef_`` and its intercept, as text: the surest first.

        Where error bars are known, those that cannot be told from zero are counted and not shown.
        """
        found = {name: self.estimate(row, place) for place, name in enumerate(self.feature_names_in_)}
        clear = found if self.coef_deviations_ is None else {name: each for name, each in found.items() if each.clear}
        first = sorted(clear, key=lambda name: (clear[name].surely, abs(clear[name])), reverse=True)[:8]
        parts = [f"{name} {clear[name].text()}" for name in first]
        shown = "; ".join([*filter(None, [", ".join(parts)]), f"intercept {self.estimate(row, None).text()}"])
        left = len(found) - len(clear)
        return shown + (f"; {left} of {len(found)} columns cannot be told from zero" if left else "")

    @property
    def in_notebook(self) -> list[str]:
        """What was learned, with the surest weights where error bars are known."""
        return [self.in_short, *([] if self.coef_deviations_ is None else self._surest())]

    def _surest(self) -> list[str]:
        """The strongest weights of the first classes, a text for each."""
        return [f"{name}: " * bool(name) + self._strongest(k) for k, name in enumerate(self.row_names[:3])]

    def _told(self) -> str:
        """How much can be learned about the columns of each party, as text."""
        return ", ".join(f"{party} {format_rounded_up(epsilon)}" for party, epsilon in self.protection_.items())

    def _feature_schema(self, party: str) -> Schema | None:
        """A party's schema without the label; ``None`` where the label is its only column."""
        return without_label(self.schemas_, self.label_, party)
