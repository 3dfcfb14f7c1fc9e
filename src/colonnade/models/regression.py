"""What linear and logistic regression share: the label, the joint computation, weights by party, predictions."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, StudyError
from colonnade.models import export
from colonnade.models.base import Estimator
from colonnade.models.design import Design, label_weight, split_label, weighted_rows
from colonnade.models.federation import Federation, Roster
from colonnade.models.quadratic import Fitted, Reading, check_ridge
from colonnade.privacy import Observer, epsilon, parse_budgets, views
from colonnade.privacy.observers import Budget, most_known
from colonnade.protocols import gradients, moments
from colonnade.protocols.gradients_task import Gradients, Learned
from colonnade.protocols.moments_task import Law, Moments, NoisyMoments, calibrated
from colonnade.protocols.protection import protection, with_own_budgets
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.randomness import Stream
from colonnade.tables import Column, Schema, Table, read_table
from colonnade.tables.centred import Centred, Norm
from colonnade.tables.wording import listed

Matrix = NDArray[np.float64]
People = Federation | Mapping[str, Any] | NDArray[np.float64]
Task = Moments | Gradients
Published = NoisyMoments | Learned
PURE = 1e-30  # no accountant gains anything from such a delta; the samplers' own distance is far below it
NORMAL_LAWS = ("skellam", "discrete-gaussian")


class Regression(Estimator):
    """A regression of one party's column on all other columns of all parties.

    After fitting, ``coef_`` has a row for each class (one for numbers and for two classes) and a column for each of
    ``feature_names_in_``, the encoded columns; with ``intercept_`` it gives the scores.
    """

    label: str | None
    method: str
    epsilon: float | Mapping[str, float] | None
    delta: float
    noise: str
    ridge: float | str
    epsilon_by_party: Mapping[str, float] | None
    intercept: bool
    rows_at_most: int

    coef_: Matrix
    intercept_: Matrix
    feature_names_in_: list[str]
    method_: str
    noise_std_: float
    count_: float | None = None
    ridge_: float | None = None
    clipped_: int | None = None
    protection_: dict[str, float]

    # --- the joint computation

    def fit(self, people: Federation, label: str | None = None) -> Self:
        """Learn from all parties of a federation, each in a thread; ``label`` is written ``party.column``."""
        if label is not None:
            self.label = label
        return super().fit(people)

    def owner(self, me: Owner, table: Table, task: Task) -> Published:
        """An owner's program: second moments once, or gradients round by round."""
        ordered = table.sorted_by_id()
        if isinstance(task, Moments):
            return moments.owner(me, weighted_rows(me.name, ordered, self.label, task), task)
        found, labels = self._for_gradients(me.name, ordered, task)
        return gradients.owner(me, found.features(ordered), labels, task)

    def coordinator(self, me: Coordinator, task: Task) -> Published:
        """The coordinator's program."""
        return moments.coordinator(me, task) if isinstance(task, Moments) else gradients.coordinator(me, task)

    def simulated(self, tables: Mapping[str, Table], task: Task, stream: Stream) -> Published:
        """What the protocol would publish about these tables, whose rows are the same people in the same order."""
        if isinstance(task, Moments):
            rows = {party: weighted_rows(party, tables[party], self.label, task) for party in task.owners}
            whole = {party: np.vstack(list(found.blocks(task.block_rows))) for party, found in rows.items()}
            return moments.simulate(whole, task, stream)
        parts = {party: self._for_gradients(party, tables[party], task) for party in task.owners}
        labels = parts[task.label_owner][1]
        assert labels is not None  # noqa: S101 - for the type checker; the label's owner has them
        matrices = {party: found.features(tables[party]).matrix() for party, (found, _) in parts.items()}
        return gradients.simulate(matrices, labels, task, stream)

    def _for_gradients(self, party: str, table: Table, task: Gradients) -> tuple[Centred, Matrix | None]:
        owner, column = split_label(self.label, task.owners)
        found = Centred(table.schema, column if party == owner else None)
        return found, found.labels(table)[:, -task.classes :] if party == owner else None

    def conclude(self, roster: Roster, task: Task, result: Published) -> Self:
        """Become the fitted model that a published result describes."""
        self.method_ = method_of(task)
        self.noise_std_ = task.noise_std
        self.protection_ = protected(task, self.delta)
        return super().conclude(roster, task, result)

    # --- planning

    @abstractmethod
    def check_label(self, declared: Column) -> None:
        """Refuse a label of the wrong kind."""

    def design(self, schemas: Mapping[str, Schema], task: Task | None = None) -> Design:
        """The columns of this regression; the norm is that of the task's noise."""
        laplace = isinstance(task, Moments) and task.laplace
        return self._design(schemas, "l1" if laplace else "l2")

    def _design(self, schemas: Mapping[str, Schema], norm: Norm) -> Design:
        if self.label is not None and not isinstance(self.label, str):
            raise StudyError(f'label must be a text written "party.column", not {type(self.label).__name__}')
        found = Design.of(schemas, self.label, norm)
        self.check_label(found.declared)
        return found

    def budgets(self, roster: Roster, delta: float) -> tuple[Budget, ...]:
        """What observers may learn; empty where each party names what may be learned about its own columns."""
        if (self.epsilon is None) == (self.epsilon_by_party is None):
            raise StudyError(
                "say what the result may cost, by epsilon (what an observer may learn about a person) or by "
                "epsilon_by_party (what anybody may learn about a person's columns at each party), and not by both"
            )
        if self.epsilon_by_party is not None and not isinstance(self.epsilon_by_party, Mapping):
            raise StudyError(
                'epsilon_by_party must be a mapping from each party to its epsilon, such as {"bank": 1.0, "shop": '
                f"2.0}}, not {type(self.epsilon_by_party).__name__}"
            )
        return () if self.epsilon is None else parse_budgets(self.epsilon, delta, roster.trust)

    def plan_moments(self, roster: Roster, law: Law, gamma: int) -> Moments:
        """One release of second moments, with the least noise that meets the budgets."""
        self.check_common()
        whole("gamma", gamma, 2, 2**26)
        laplace = law == "discrete-laplace"
        budgets = self.budgets(roster, PURE if laplace else self.delta)
        design = self._design(roster.schemas, "l1" if laplace else "l2")
        constant = design.constant(gamma)
        draft = Moments(
            blocks=design.blocks(constant, gamma),
            trust=roster.trust,
            gamma=gamma,
            constant=constant,
            rows_at_most=self.rows_at_most,
            noise=1 if laplace else len(roster.schemas),
            law=law,
            known=most_known(roster.trust, budgets) if laplace else 0,
            hidden=roster.hidden,
        )
        if self.epsilon_by_party is not None:
            return with_own_budgets(draft, dict(self.epsilon_by_party), self.delta)
        return calibrated(draft, budgets)

    def one_shot_law(self) -> Law:
        """The noise of ``method="one-shot"``."""
        if self.noise == "skellam":
            return "skellam"
        if self.noise == "discrete-gaussian":
            return "discrete-gaussian"
        hint = '; Laplace noise is method="functional"' if self.noise == "discrete-laplace" else ""
        raise StudyError(f"noise must be one of {', '.join(NORMAL_LAWS)}, not {self.noise!r}{hint}")

    def check_common(self) -> None:
        """Refuse parameters that make no sense for any method."""
        whole("rows_at_most", self.rows_at_most, 1, 2**40)
        if self.ridge != "auto":
            check_ridge(self.ridge)
        if not isinstance(self.intercept, bool):
            raise StudyError(f"intercept is True or False, not {self.intercept!r}")

    def reading(self, task: Moments, classes: int | None = None) -> Reading:
        """How the published moments of a task are read; of several label columns the last ``classes`` count."""
        design = self.design(self.schemas_, task)
        keep = slice(-classes if classes else None, None)
        weight = label_weight(design.declared, design.norm, task.constant, task.gamma)
        return Reading(design.features, design.labels[keep], design.middles, design.label_middles[keep], float(weight))

    def remember(self, found: Fitted) -> None:
        """What was done to the published moments."""
        self.count_, self.ridge_, self.clipped_ = found.rows, found.solution.ridge, found.solution.clipped

    # --- the fitted model

    @abstractmethod
    def answers(self, scores: Matrix) -> NDArray[Any]:
        """What scores of shape (rows, classes) predict."""

    def predict(self, X: People) -> NDArray[Any]:
        """Predictions for people all of whose columns are at hand.

        A federation is matched on its ids, and the answers come in the order of the ids. Of a mapping from party to
        table, the tables must hold the same people in the same order. Neither needs the label's column. An array is
        an encoded matrix with the columns of ``feature_names_in_``; of a data frame those are taken by their names.
        """
        return self.answers(self.scores(X))

    def scores(self, X: People) -> Matrix:
        """What the parties' parts and the intercept add up to, (rows, classes)."""
        self._check_fitted()
        if isinstance(X, Federation):
            X = X.tables()
        if isinstance(X, Mapping):
            wanted = [party for party in self.schemas_ if self._feature_schema(party)]
            if missing := [party for party in wanted if party not in X]:
                raise DataError(f"no table of {', '.join(missing)}; a prediction needs one of each party")
            parts = [self.partial(party, X[party]) for party in wanted]
            if len({len(part) for part in parts}) > 1:
                raise DataError("the tables have different numbers of rows; a prediction needs the same people in each")
            total: Matrix = np.sum(parts, axis=0) + self.intercept_
            return total
        scores: Matrix = _encoded(X, self.feature_names_in_) @ self.coef_.T + self.intercept_
        return scores

    def partial(self, party: str, source: Any) -> Matrix:
        """One party's part of the scores, (rows, classes), from its own columns alone; the intercept is not in it."""
        self._check_fitted()
        if party not in self.schemas_:
            raise DataError(f"the model knows no party {party}; it knows {', '.join(self.schemas_)}")
        schema = self._feature_schema(party)
        if schema is None:
            raise DataError(f"{party} holds the label and no other column, so it has no part in the scores")
        found = Centred(schema, None, "l1" if self.method_ == "functional" else "l2")
        rows = found.features(_table(source, schema)).matrix() + found.middle
        start = self.feature_names_in_.index(f"{party}.{found.feature_names[0]}")
        part: Matrix = rows @ self.coef_[:, start : start + len(found.feature_names)].T
        return part

    def label_of(self, X: People) -> Matrix:
        """The encoded label of people whose label column is at hand."""
        self._check_fitted()
        owner, column = split_label(self.label, tuple(self.schemas_))
        tables = X.tables() if isinstance(X, Federation) else X
        if not isinstance(tables, Mapping) or owner not in tables:
            raise DataError(f"the true labels are not in what was given: pass y, or a table of {owner}")
        return _table(tables[owner], self.schemas_[owner].select([column])).column(column)

    def coefficients(self) -> dict[str, dict[str, Any]]:
        """The weights by party and encoded column; with several classes, by class below that."""
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
        classes = map(str, getattr(self, "classes_", range(len(self.coef_))))
        return dict(zip(classes, self.coef_[:, place].tolist(), strict=True))

    def to_sklearn(self) -> Any:
        """A fitted scikit-learn estimator that predicts the same from encoded matrices."""
        self._check_fitted()
        return export.to_sklearn(self)

    def to_json(self) -> dict[str, Any]:
        """Everything somebody needs to use the model without this library, as plain values."""
        self._check_fitted()
        return export.to_json(self)

    def learned(self) -> dict[str, Any]:
        """The learned attributes as plain values."""
        return {
            "feature_names_in": self.feature_names_in_,
            "coef": self.coef_.tolist(),
            "intercept": self.intercept_.tolist(),
            "method": self.method_,
            "noise_std": self.noise_std_,
            "count": self.count_,
            "ridge": self.ridge_,
            "clipped": self.clipped_,
            "protection": {party: export.finite(value) for party, value in self.protection_.items()},
        }

    def restore(self, learned: dict[str, Any]) -> None:
        """Set the learned attributes from plain values."""
        self.feature_names_in_ = [str(name) for name in learned["feature_names_in"]]
        self.coef_ = np.array(learned["coef"], dtype=np.float64)
        self.intercept_ = np.array(learned["intercept"], dtype=np.float64)
        self.method_ = str(learned["method"])
        self.noise_std_ = float(learned["noise_std"])
        self.count_, self.ridge_, self.clipped_ = learned["count"], learned["ridge"], learned["clipped"]
        given = learned["protection"].items()
        self.protection_ = {party: math.inf if value is None else float(value) for party, value in given}
        if self.coef_.shape != (len(self.intercept_), len(self.feature_names_in_)):
            raise ValueError("weights and names do not belong together")

    def _feature_schema(self, party: str) -> Schema | None:
        """A party's schema without the label; nothing where the label is all it holds."""
        schema = self.schemas_[party]
        owner, column = split_label(self.label, tuple(self.schemas_))
        if party != owner:
            return schema
        return schema.without([column]) if len(schema.columns) > 1 else None


def method_of(task: Task) -> str:
    """The method that a task carries out."""
    if isinstance(task, Gradients):
        return "sqm"
    return "functional" if task.laplace else "one-shot"


def protected(task: Task, delta: float) -> dict[str, float]:
    """What the published result tells about each party's columns alone; of gradients, about a whole person."""
    return dict(_protected(task, delta))


@lru_cache(maxsize=16)
def _protected(task: Task, delta: float) -> Mapping[str, float]:
    if isinstance(task, Moments):
        return protection(task, delta)
    found = epsilon(views(task.events, Observer.coordinator(), task.trust), delta).epsilon
    return dict.fromkeys(task.owners, found)


def whole(name: str, value: object, low: int, high: int) -> None:
    """Refuse what is no whole number within these bounds."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise StudyError(f"{name} must be a whole number from {low} to {high}, not {value!r}")


def _encoded(source: Any, names: Sequence[str]) -> Matrix:
    """An encoded matrix with these columns; where columns have names, those decide and not their order."""
    try:
        if hasattr(source, "columns"):
            source = np.column_stack([np.asarray(source[name]) for name in _named(source, names)])
        found: Matrix = np.asarray(source, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(
            "these are no people to predict: pass a Federation, a mapping from party to table, or an encoded matrix of "
            "numbers"
        ) from None
    if found.ndim != 2 or found.shape[1] != len(names):
        raise DataError(f"an encoded matrix has rows of {len(names)} columns; this array has shape {found.shape}")
    if not np.isfinite(found).all():
        raise DataError("an encoded matrix holds finite numbers only; this one has missing or infinite entries")
    return found


def _named(source: Any, names: Sequence[str]) -> Sequence[str]:
    """The names, if all of them are columns of a data frame or an Arrow table."""
    there = set(getattr(source, "column_names", source.columns))
    if missing := [name for name in names if name not in there]:
        raise DataError(
            f"the encoded matrix has no column {listed(missing)}; its columns are named as in feature_names_in_, and "
            "tables as the parties hold them are passed in a mapping from party to table"
        )
    return names


def _table(source: Any, schema: Schema) -> Table:
    """The columns of a schema, from a table or whatever one can be read from."""
    if not isinstance(source, Table):
        return read_table(source, schema, id=None)
    if missing := [name for name in schema.names if name not in source.schema.columns]:
        raise DataError(f"{source.source} has no column {missing[0]!r}, which the model needs")
    view = source.select(schema.names)
    if view.schema != schema:
        raise DataError(f"{source.source} was read under another schema than the model was fitted with")
    return view
