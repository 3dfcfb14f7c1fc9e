"""Linear and logistic regression on columns that nobody holds together: in one noisy release, or by noisy gradients.

The expected error of a fit follows from public numbers alone: it is the deviation of a predicted probability that the
noise alone causes, for a typical person, if the features have half of the variance that their bounds allow, spread
evenly over d encoded columns: v = |x|^2 / (2 d). Noise of deviation s on each of d coefficients then moves a prediction
by s sqrt(d / v).

* From second moments: s = noise of an entry / rows, for the entries with the label and, times the norm of the weights,
  for those between features. The weights are taken to have norm 1/2.
* From gradients: s = noise of a round's mean gradient, over the root of half the rounds, which are averaged. What is
  left to learn after so many steps is added: it shrinks by learning rate x v / 4 a round.

The assumptions are rough and the same for all methods: the figures rank them, and show when there are too few rows.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.regression import least_squares, least_squares as error_bars
from colonnade.kinds.regression.least_squares import (
    FittedWeights,
    LearnedWeights,
    MomentReading,
    PartLaw,
    check_ridge,
    part_laws,
    read_laws,
)
from colonnade.kinds.regression.task import GradientTask
from colonnade.models.assessment import accuracy
from colonnade.models.base import Matrix, People, ReadingOptions
from colonnade.models.classifier_mixin import ClassifierMixin, Threshold, check_threshold, shares_of
from colonnade.models.design import LabelDesign, label_weight, split_label, weighted_rows
from colonnade.models.estimates import ErrorBars
from colonnade.models.linear_model import LinearModel
from colonnade.models.planner import (
    ENOUGH_OF_A_PREDICTION,
    FINITE,
    Count,
    EpsilonByParty,
    Label,
    PlanDetails,
    Positive,
    Roster,
    RowsAtMost,
    SampleSizeForecast,
    above,
    at_least,
    at_most,
    check_positive,
    check_whole,
    one_of,
)
from colonnade.models.serialization import read_array, read_epsilons, read_size, read_size_if_any, read_text, read_texts
from colonnade.privacy import Statement, parse_budgets
from colonnade.privacy.noise_laws import DEFAULT_LAW, FUNCTIONAL, NORMAL_LAWS, LawName, NormalLawName
from colonnade.privacy.observers import Budget, largest_known_noise
from colonnade.protocols.moments.task import Moments, NoisyMoments, with_own_budgets
from colonnade.protocols.roles import Owner
from colonnade.protocols.rows import Rows
from colonnade.randomness import Stream
from colonnade.tables import Column, Schema, Table
from colonnade.tables.table import ColumnCentring, Norm

WEIGHTS = 0.5
LEARNABLE = 0.35
"""The deviation of predicted probabilities when about half of the label's variance is explained."""


@dataclass(frozen=True)
class Forecast:
    """A method, the task that would carry it out, and the expected error of a predicted probability.

    Without a number of rows ``error`` is that of a single row, which is enough to rank methods.
    """

    method: str
    task: Moments | GradientTask
    error: float
    rows: int | None

    def __str__(self) -> str:
        return f"{self.method}: expected error {self.error:.3g}" + ("" if self.rows else " / rows")


def forecast_error(
    method: str, task: Moments | GradientTask, declared: Column, norm: float, columns: int, rows: int | None
) -> Forecast:
    """The forecast for a task about ``columns`` encoded features whose rows have at most this norm."""
    variance = norm * norm / (2 * columns)
    if isinstance(task, GradientTask):
        scaled = variance * task.scale**2
        averaged = max(1, task.rounds - task.rounds // 2)
        noise = task.noise_std / math.sqrt(averaged) * math.sqrt(columns / scaled)
        unlearned = LEARNABLE * math.exp(-task.learning_rate * scaled / 4 * 0.75 * task.rounds)
        return Forecast(method, task, math.hypot(noise, unlearned), rows)
    weight = float(label_weight(declared, "l1" if task.pure else "l2", task.constant, task.gamma))
    # Off the diagonal there are two copies of each entry, except with Laplace noise.
    entry = task.noise_std if task.pure else task.noise_std / math.sqrt(2)
    error = entry * math.hypot(1 / weight, WEIGHTS) * math.sqrt(columns / variance) / (rows or 1)
    return Forecast(method, task, error, rows)


Task = Moments | GradientTask
Published = NoisyMoments | LearnedWeights
GRADIENTS = GradientTask.scheme
PURE = 1e-30  # too small to help any accountant, and far above the distance of the samplers from their laws
Ridge = Literal["auto"] | Annotated[float, at_least(0), FINITE]


@dataclass(kw_only=True, eq=False, repr=False)
class Regression(LinearModel[Task, Published]):
    """A regression of one party's column on all other columns of all parties.

    After fitting, ``coef_`` has a row for each class (one for numbers and for two classes) and a column for each of
    ``feature_names_in_``, the encoded columns; with ``intercept_`` it gives the scores.
    """

    epsilon: float | Mapping[str, float] | None = None
    delta: float = 1e-5
    label: Label = None
    method: str
    noise: NormalLawName = DEFAULT_LAW
    ridge: Ridge = "auto"
    epsilon_by_party: EpsilonByParty = None
    intercept: bool = True
    rows_at_most: RowsAtMost = 2**24

    saved: ClassVar = {
        "feature_names_in": read_texts,
        "coef": read_array,
        "intercept": read_array,
        "method": read_text,
        "noise_std": read_size,
        "count": read_size_if_any,
        "ridge": read_size_if_any,
        "clipped": read_size_if_any,
        "protection": read_epsilons,
    }
    saved_if_known: ClassVar[Mapping[str, Callable[[Any], Any]]] = {**LinearModel.saved_if_known, "parts": read_laws}
    noise_std_: float = field(init=False)
    count_: float | None = field(default=None, init=False)
    clipped_: int | None = field(default=None, init=False)
    parts_: dict[str, PartLaw] | None = field(default=None, init=False)
    """How each party's part of a score is spread; not in models of gradients or several classes."""

    # --- the joint computation

    def owner(self, me: Owner, table: Table, task: Task) -> Published:
        """An owner's program: second moments once, or gradients round by round."""
        found: Published = task.programs.owner(me, *self._dealt(me.name, table.sorted_by_id(), task), task)
        return found

    def summands(self, party: str, table: Table, task: Task) -> Rows:
        """The encoded rows, and the label's."""
        return self._dealt(party, table.sorted_by_id(), task)[0]

    def simulate_result(self, tables: Mapping[str, Table], task: Task, stream: Stream) -> Published:
        """What the protocol would publish about these tables, whose rows are the same people in the same order."""
        dealt = {party: self._dealt(party, tables[party], task) for party in task.owners}
        rows = {party: np.vstack(list(found.blocks(task.block_rows))) for party, (found, *_) in dealt.items()}
        labels = [one for _, *beside in dealt.values() for one in beside if one is not None]
        found: Published = task.programs.simulate(rows, *labels, task, stream)
        return found

    def _dealt(self, party: str, table: Table, task: Any) -> tuple[Rows] | tuple[Rows, Matrix | None]:
        """What a party deals: its rows with the label scaled, or for gradients its features, and the label as it is."""
        if task.scheme != GRADIENTS:
            return (weighted_rows(party, table, self.label, task),)
        owner, column = split_label(self.label, task.owners)
        found = ColumnCentring(table.schema, column if party == owner else None)
        return found.centre_features(table), found.labels(table)[:, -task.classes :] if party == owner else None

    def conclude(self, roster: Roster, task: Task, result: Published) -> Self:
        """Become the fitted model that a published result describes."""
        self.method_ = method_name(task)
        self.noise_std_ = task.noise_std
        self.protection_ = dict(_protection(task, self.delta))
        return super().conclude(roster, task, result)

    # --- planning

    def details(self, task: Task, statement: Statement) -> PlanDetails:
        """The method, and how many batches are opened where there are any."""
        return PlanDetails(method_name(task), task.rounds_figures, brief=task.rounds_in_words)

    def outlook(self, roster: Roster, task: Task, rows: int | None) -> SampleSizeForecast:
        """How far noise moves a predicted probability, or a number in half ranges of the label."""
        design = self.design(roster.schemas)
        known = task.rows_stated or rows
        columns = len(design.features)
        found = forecast_error(method_name(task), task, design.declared, design.feature_norm, columns, known)
        of = "a predicted probability" if self.kind == "logistic" else "a prediction, in half ranges of the label,"
        return SampleSizeForecast.falling(of, ENOUGH_OF_A_PREDICTION, found.error * (known or 1), known)

    @abstractmethod
    def check_label(self, declared: Column) -> None:
        """Raise an error if the label's column is of the wrong kind."""

    @property
    def row_norm(self) -> Norm:
        """Laplace noise is for rows of bounded L1 norm."""
        return "l1" if self.method_ == "functional" else "l2"

    def design_for(self, schemas: Mapping[str, Schema], label: str | None, norm: Norm = "l2") -> LabelDesign:
        """The columns for a label, which must be of the kind that this regression predicts."""
        found = super().design_for(schemas, label, norm)
        self.check_label(found.declared)
        return found

    def budgets(self, roster: Roster, delta: float) -> tuple[Budget, ...]:
        """What observers may learn; empty where ``epsilon_by_party`` is given instead."""
        if (self.epsilon is None) == (self.epsilon_by_party is None):
            raise StudyError(
                "say what the result may cost, by epsilon (what an observer may learn about a person) or by "
                "epsilon_by_party (what anybody may learn about a person's columns at each party), "
                "and not by both [ST183]"
            )
        if self.epsilon_by_party is not None and not isinstance(self.epsilon_by_party, Mapping):
            raise StudyError(
                'epsilon_by_party must be a mapping from each party to its epsilon, such as {"bank": 1.0, "shop": '
                f"2.0}}, not {type(self.epsilon_by_party).__name__} [ST184]"
            )
        return () if self.epsilon is None else parse_budgets(self.epsilon, delta, roster.trust)

    def plan_moments(self, roster: Roster, law: LawName, gamma: int) -> Moments:
        """One release of second moments, with the least noise that meets the budgets."""
        self.check_common()
        check_whole("gamma", gamma, 2, 2**26)
        laplace = law == FUNCTIONAL
        budgets = self.budgets(roster, PURE if laplace else self.delta)
        design = self.design(roster.schemas, "l1" if laplace else "l2")
        constant = design.constant(gamma)
        draft = Moments(
            blocks=design.blocks(constant, gamma),
            trust=roster.trust,
            gamma=gamma,
            constant=constant,
            rows_at_most=self.rows_at_most,
            noise=1 if laplace else len(roster.schemas),
            law=law,
            known=largest_known_noise(roster.trust, budgets) if laplace else 0,
            hidden=roster.hidden,
        )
        if self.epsilon_by_party is not None:
            return with_own_budgets(draft, dict(self.epsilon_by_party), self.delta)
        return draft.calibrate(budgets)

    def normal_law(self) -> NormalLawName:
        """The noise of every method but ``"functional"``."""
        asked: str = self.noise
        for law in NORMAL_LAWS:
            if law == asked:
                return law
        hint = '; Laplace noise is method="functional"' if asked == FUNCTIONAL else ""
        raise StudyError(f"noise must be one of {', '.join(NORMAL_LAWS)}, not {self.noise!r}{hint} [ST185]")

    def check_common(self) -> None:
        """Refuse parameters that make no sense for any method."""
        check_whole("rows_at_most", self.rows_at_most, 1, 2**40)
        if self.ridge != "auto":
            check_ridge(self.ridge)
        if not isinstance(self.intercept, bool):
            raise StudyError(f"intercept is True or False, not {self.intercept!r} [ST186]")

    def reading(self, task: Moments, classes: int | None = None) -> MomentReading:
        """How to read the published moments of a task; only the last ``classes`` columns of the label are used."""
        design = self.design_for(self.schemas_, self.label_, "l1" if task.pure else "l2")
        keep = slice(-classes if classes else None, None)
        weight = label_weight(design.declared, design.norm, task.constant, task.gamma)
        return MomentReading(
            design.features,
            design.labels[keep],
            design.middles,
            design.label_middles[keep],
            float(weight),
            design.columns,
        )

    def set_weights(
        self,
        published: NoisyMoments,
        reading: MomentReading,
        found: FittedWeights,
        weights: tuple[Matrix, Matrix],
        drawn: tuple[Matrix, Matrix],
    ) -> None:
        """Set weights and intercept, what noise may have done to them, and how they were computed.

        ``weights`` are both as scores take them, and ``drawn`` such ones that may be those without noise.
        """
        self.feature_names_in_ = list(reading.features)
        self.coef_, self.intercept_ = weights
        self.parts_ = part_laws(published, reading, self.coef_, tuple(self.schemas_))
        self.count_, self.ridge_, self.clipped_ = found.rows, found.solution.ridge, found.solution.clipped
        self.set_error_bars(*map(error_bars.error_bars_of, weights, drawn))

    def check_restored(self) -> None:
        """Raise an error unless what was read from a file belongs together."""
        super().check_restored()
        if self.intercept_.ndim != 1 or self.coef_.shape != (len(self.intercept_), len(self.feature_names_in_)):
            raise ValueError("weights and names do not belong together [VA038]")
        if self.parts_ is None:
            return
        held = {party: schema for party in self.schemas_ if (schema := self._feature_schema(party)) is not None}
        sizes = {party: len(schema.encoded_names) for party, schema in held.items()}
        others = {party: set(law.foretells) for party, law in self.parts_.items()}
        if others != {party: set(sizes) - {party} for party in sizes}:
            raise ValueError("the parts of scores and the parties do not belong together [VA036]")
        if any(len(each.weights) != sizes[p] for p, law in self.parts_.items() for each in law.foretells.values()):
            raise ValueError("the parts of scores and the columns do not belong together [VA037]")

    def foresee(self, party: str, source: Any) -> dict[str, tuple[Matrix, float]]:
        """What one party's columns foretell of each other party's part of a score, and the variance that is left."""
        self._check_fitted()
        self._check_party(party)
        schema, laws = self._feature_schema(party), self.parts_
        if schema is None or laws is None:
            return {}
        rows = self.encoded_rows(schema, source)
        return {name: (each.of(rows), each.variance) for name, each in laws[party].foretells.items()}

    @property
    def in_short(self) -> str:
        """What was learned, in one line."""
        columns = f"{self.n_features_in_} columns"
        return f"{self.kind} regression of {self.label_} on {columns}, by {self.method_}"

    def summary(self) -> list[str]:
        """The strongest weights, and what the result tells about the columns of each party."""
        self._check_fitted()
        lines = [self.in_short]
        lines += [f"  {text}" for text in self._surest()]
        return [*lines, f"the result tells about the columns of each party alone, epsilon at most: {self._told()}"]


def method_name(task: Task) -> str:
    """The method that a task carries out."""
    return task.scheme or ("functional" if task.law == FUNCTIONAL else "one-shot")


@lru_cache(maxsize=16)
def _protection(task: Task, delta: float) -> Mapping[str, float]:
    """The epsilon of the published result for each party's columns alone; for gradients, for a whole person."""
    return task.protection(delta)


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegression(Regression):
    """Differentially private linear or ridge regression over vertically partitioned columns.

    The label is a number column. ``coef_`` and ``intercept_`` give it in its own unit (its logarithm, log(1 + y),
    where its schema says ``transform = "log1p"``) from encoded columns; ``predict`` gives it in its unit always.

    Args:
        epsilon: one number for everyone, or a mapping such as ``{"analyst": 1.0, "party": 2.0}``.
        delta: the delta of all promises.
        label: the column to predict, written ``"party.column"``; may be given to ``fit`` instead.
        method: ``"one-shot"`` adds Skellam or discrete Gaussian noise, for (epsilon, delta); ``"functional"`` discrete
            Laplace noise, for pure epsilon.
        noise: ``"skellam"`` or ``"discrete-gaussian"``, for ``method="one-shot"``.
        ridge: ``"auto"`` follows from the noise; a number is added to the diagonal of the centred X'X, as ``alpha`` of
            scikit-learn's Ridge.
        epsilon_by_party: instead of ``epsilon``, for each party what the published result may tell anybody about one
            person's columns at that party.
        intercept: without one, predictions are 0 where all encoded columns are.
        gamma: the scale of the integer grid.
        rows_at_most: a public limit on the number of rows.
    """

    kind = "linear"
    _estimator_type = "regressor"
    tasks = (Moments,)

    method: Literal["one-shot", "functional"] = "one-shot"
    gamma: Annotated[int, at_least(2)] = 4096

    def plan(self, roster: Roster) -> Moments:
        """One release of second moments with the least noise that meets the budgets."""
        one_of("method of a linear regression", self.method, ("one-shot", "functional"))
        law = self.normal_law()
        return self.plan_moments(roster, FUNCTIONAL if self.method == "functional" else law, self.gamma)

    def check_label(self, declared: Column) -> None:
        """Raise an error unless the label is a number."""
        if declared.quantity is None:
            raise StudyError(
                f"label {self.label!r} is a {declared.kind}, not a number; use LogisticRegression "
                '(kind = "logistic" in a study file) [ST195]'
            )

    def finish(self, result: Published) -> None:
        """Least squares from the noisy moments, in the label's unit."""
        published = cast("NoisyMoments", result)  # there is no other method
        reading, unit, zero = self.reading(published.task), *self._unit()
        through = None if self.intercept else -zero / unit
        found = least_squares.fit_weights(published, reading, self.ridge, through)
        draws = error_bars.sample_weights(published, reading, self.ridge, through)
        both = [
            zero + unit * each if self.intercept else np.zeros_like(each) for each in (found.offsets, draws.offsets)
        ]
        weights, drawn = (unit * found.weights, both[0]), (unit * draws.weights, both[1])
        self.set_weights(published, reading, found, weights, drawn)

    def answers(self, scores: Matrix) -> NDArray[Any]:
        """The label in its unit."""
        values: Matrix = np.asarray(scores, dtype=np.float64)[:, 0]
        return np.expm1(values) if self.design_.quantity.transform == "log1p" else values

    def score(self, X: People, y: NDArray[Any] | None = None, **given: Unpack[ReadingOptions]) -> float:
        """R^2, the share of the label's variance that is predicted; ``y`` only where the label is not in X."""
        true, predicted = self.compare_labels(X, y, **given)
        true = true.astype(np.float64)
        wrong, total = np.sum(np.square(true - predicted)), np.sum(np.square(true - true.mean()))
        return 1.0 - float(wrong / total) if total > 0 else 0.0

    def _unit(self) -> tuple[float, float]:
        """A factor and an offset: the label (after its transform) is factor times encoded label, plus offset."""
        quantity = self.design_.quantity
        start, end = quantity.ends
        if not quantity.signed:
            return end - start, start
        return (end - start) / 2, (start + end) / 2


_MOMENTS_GAMMA = 4096
_GRADIENTS_GAMMA = {1: 1024, 3: 128}
_WEIGHT_BOUND = {1: 8.0, 3: 4.0}
_INTERCEPT = 0.5
_MOST_ROUNDS = 1_000_000


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(ClassifierMixin[Task, Published], Regression):
    """Differentially private logistic regression over vertically partitioned columns.

    The label is a flag or a category. For a category with more than two values, each value is learned against the
    others, all in one computation.

    Args:
        epsilon: one number for everyone, or a mapping such as ``{"analyst": 1.0, "party": 2.0}``.
        delta: the delta of all promises.
        label: the column to predict, written ``"party.column"``; may be given to ``fit`` instead.
        method: ``"one-shot"`` publishes second moments with Skellam or discrete Gaussian noise; ``"functional"`` with
            discrete Laplace noise, for pure epsilon; ``"sqm"`` publishes noisy gradients of batches, round by round;
            ``"auto"`` takes the one with the least expected error (see :meth:`forecast`).
        rows: about how many people there are, as far as everybody may know it; ``"sqm"`` needs it.
        noise: ``"skellam"`` or ``"discrete-gaussian"``.
        ridge: ``"auto"`` follows from the noise; a number is added to the diagonal of the centred X'X. Not for "sqm".
        epsilon_by_party: instead of ``epsilon``, for each party what the published result may tell anybody about one
            person's columns at that party. Not for "sqm".
        expansion: degree of the polynomial that stands for the sigmoid in "sqm", 1 or 3.
        sampling: batches of "sqm": ``"poisson"`` draws them, which helps against the analyst; ``"disjoint"`` fixes
            them, which is better against parties.
        rate: the share of people in a batch.
        epochs: how often a person is used, on average.
        weight_bound: the largest norm of the weights in "sqm"; 8 for degree 1 and 4 for degree 3.
        learning_rate: the step in "sqm".
        intercept: without one, scores are 0 where all encoded columns are. Not for "sqm".
        gamma: the scale of the integer grid; 4096 for second moments, 1024 and 128 for gradients of degree 1 and 3.
        rows_at_most: a public limit on the number of rows.
        threshold: the second of two classes is predicted where its chance is above this; ``"balanced"`` takes the
            released share of that class (not for "sqm"). It changes no chance and costs nothing.
    """

    kind = "logistic"
    _estimator_type = "classifier"
    tasks = (Moments, GradientTask)
    many_classes = True
    saved_if_known: ClassVar = {**Regression.saved_if_known, "shares": read_array}

    method: Literal["auto", "one-shot", "functional", "sqm"] = "auto"
    rows: Count | None = None
    expansion: Literal[1, 3] = 1
    sampling: Literal["poisson", "disjoint"] = "poisson"
    rate: Annotated[float, above(0), at_most(1)] = 0.01
    epochs: Count = 10
    weight_bound: Positive | None = None
    learning_rate: Positive = 2.0
    gamma: Annotated[int, at_least(2)] | None = None
    threshold: Threshold = 0.5

    # --- planning

    def plan(self, roster: Roster) -> Task:
        """The task of the chosen method, with the least noise that meets the budgets."""
        one_of("method", self.method, ("auto", "one-shot", "functional", "sqm"))
        classes = _columns(self.design(roster.schemas).declared)
        check_threshold(self.threshold, max(2, classes), released=self.method != "sqm" and self.intercept)
        if self.method == "auto":
            self.forecast_ = self.forecast(roster)
            return self.forecast_[0].task
        return self._candidate(self.method, roster)

    def forecast(self, roster: Roster) -> list[Forecast]:
        """The expected error of each method that these parameters allow, the best one first.

        Gradients are left out without ``rows``, and after a hidden alignment. It uses public numbers only; see
        docs/how-to/regression.md.
        """
        methods = ["one-shot", "functional"]
        possible = self.intercept and not roster.hidden and self.threshold != "balanced"
        if possible and self.rows is not None and self.epsilon_by_party is None:
            methods.append("sqm")
        design = self.design(roster.schemas)
        columns = len(design.features)
        found = [
            forecast_error(
                method, self._candidate(method, roster), design.declared, design.feature_norm, columns, self.rows
            )
            for method in methods
        ]
        return sorted(found, key=lambda each: each.error)

    def _candidate(self, method: str, roster: Roster) -> Task:
        law = self.normal_law()
        if method == "sqm":
            return self._plan_gradients(roster)
        return self.plan_moments(roster, FUNCTIONAL if method == "functional" else law, self.gamma or _MOMENTS_GAMMA)

    def _plan_gradients(self, roster: Roster) -> GradientTask:
        """Rounds of noisy gradients; rows are scaled to norm 1 by a public number."""
        roster.require_known_members('method="sqm"')
        self.check_common()
        rows, batch = self._batches()
        design = self.design(roster.schemas)
        blocks = design.feature_blocks
        norm = math.sqrt(math.fsum([_INTERCEPT * _INTERCEPT, *(block.clip * block.clip for block in blocks)]))
        gamma = _GRADIENTS_GAMMA[self.expansion] if self.gamma is None else self.gamma
        check_whole("gamma", gamma, 2, 2**20)
        draft = GradientTask(
            blocks=blocks,
            label_owner=design.owner,
            classes=_columns(design.declared),
            trust=roster.trust,
            gamma=gamma,
            scale=(1 - 2.0**-40) / norm,
            expansion=self.expansion,
            weight_bound=_WEIGHT_BOUND[self.expansion] if self.weight_bound is None else self.weight_bound,
            learning_rate=self.learning_rate,
            sampling=self.sampling,
            rows=rows,
            batch=batch,
            rounds=self._rounds(rows, batch),
            noise=len(blocks),
            law=self.normal_law(),
            rows_at_most=self.rows_at_most,
            intercept=_INTERCEPT,
        )
        return draft.calibrate(self.budgets(roster, self.delta))

    def _batches(self) -> tuple[int, int]:
        """The public number of rows, and how many of them a batch has."""
        if self.rows is None:
            raise StudyError(
                'method="sqm" needs rows, about how many people there are: batches are a part of them [ST197]'
            )
        if self.epsilon_by_party is not None or not self.intercept:
            raise StudyError(
                'method="sqm" takes epsilon and learns an intercept; use "one-shot" for anything else [ST198]'
            )
        check_whole("rows", self.rows, 1, self.rows_at_most)
        check_whole("epochs", self.epochs, 1, 2**20)
        if self.expansion not in (1, 3):
            raise StudyError(f"expansion must be 1 or 3, not {self.expansion!r} [ST199]")
        one_of("sampling", self.sampling, ("poisson", "disjoint"))
        for name in ("rate", "learning_rate", "weight_bound"):
            if (value := getattr(self, name)) is not None:
                check_positive(name, value)
        if self.rate > 1:
            raise StudyError(f"rate is the share of people in a batch and at most 1, not {self.rate} [ST202]")
        return self.rows, max(1, round(self.rate * self.rows))

    def _rounds(self, rows: int, batch: int) -> int:
        """The number of rounds in which each person is used ``epochs`` times: on average, if batches are drawn."""
        turns = Fraction(rows, batch) if self.sampling == "poisson" else -(-rows // batch)
        rounds = round(int(self.epochs) * turns)
        if rounds > _MOST_ROUNDS:
            raise StudyError(
                f"epochs = {self.epochs} in batches of {batch} of {rows} rows are {rounds:,} rounds, and at most "
                f"{_MOST_ROUNDS:,} are possible: raise rate, or lower epochs [ST203]"
            )
        return rounds

    def check_label(self, declared: Column) -> None:
        """Raise an error unless the label is a flag or a category."""
        if declared.quantity:
            raise StudyError(
                f'label {self.label!r} is a number; use LinearRegression (kind = "linear" in a study file), or make '
                "it a flag or category [ST204]"
            )

    # --- the fitted model

    def finish(self, result: Published) -> None:
        """Set the weights: from noisy moments by least squares, or those of the last rounds."""
        if result.task.scheme is None:
            self._from_moments(result)
        else:
            self._from_gradients(cast("LearnedWeights", result))

    def _from_moments(self, result: NoisyMoments) -> None:
        """Least squares on the labels 0 and 1, as in Taylor's expansion; then a slope for probabilities.

        The slope changes no prediction: the second class is predicted where the fitted value is above one half.
        """
        reading = self.reading(result.task, _columns(self.design_.declared))
        through = None if self.intercept else 0.5
        found = least_squares.fit_weights(result, reading, self.ridge, through)
        slope = least_squares.TAYLOR
        if self.intercept:
            known = zip(found.label_means, found.solution.spreads, found.solution.agreements, strict=True)
            slope = math.fsum(least_squares.steepness(0.5, *map(float, each)) for each in known) / len(found.weights)
        self.shares_ = shares_of(found.label_means) if self.intercept else None
        draws = error_bars.sample_weights(result, reading, self.ridge, through)
        slopes = error_bars.slopes(draws, found.label_means) if self.intercept else np.full(len(draws.weights), slope)
        drawn = slopes[:, None, None] * draws.weights, slopes[:, None] * (draws.offsets - 0.5)
        self.set_weights(result, reading, found, (slope * found.weights, slope * (found.offsets - 0.5)), drawn)

    def _from_gradients(self, result: LearnedWeights) -> None:
        design = self.design_
        self.feature_names_in_ = design.features
        self.coef_ = result.slopes
        self.intercept_ = result.offsets - result.slopes @ design.middles
        self.count_ = self.ridge_ = self.clipped_ = self.shares_ = self.parts_ = None
        self.set_error_bars(*self._gradient_bars(result))

    def _gradient_bars(self, result: LearnedWeights) -> tuple[ErrorBars | None, ErrorBars | None]:
        """Weights as far as noise may have moved them in all rounds; that of the intercept is part of all of them."""
        if (deviations := least_squares.weight_deviations(result)) is None:
            return None, None
        slopes, offsets = deviations * result.task.scale, deviations * result.task.constant / result.task.gamma
        moved = np.hypot(offsets, slopes * float(np.linalg.norm(self.design_.middles)))
        return (
            ErrorBars.normal(self.coef_, np.repeat(slopes[:, None], self.coef_.shape[1], axis=1)),
            ErrorBars.normal(self.intercept_, moved),
        )

    def check_restored(self) -> None:
        """Raise an error unless what was read from a file belongs together."""
        super().check_restored()
        if self.shares_ is not None and self.shares_.shape != self.classes_.shape:
            raise ValueError("shares and classes do not belong together [VA039]")
        if len(self.coef_) != (1 if len(self.classes_) == 2 else len(self.classes_)):
            raise ValueError("weights and classes do not belong together [VA040]")

    @property
    def row_names(self) -> list[str]:
        """The classes, where each of them has a row of ``coef_``."""
        return [str(name) for name in self.classes_] if len(self.coef_) > 1 else [""]

    def chances(self, scores: Matrix) -> Matrix:
        """The chance of each class; with several classes, their chances are divided by their sum."""
        found: Matrix = 0.5 + 0.5 * np.tanh(np.asarray(scores, dtype=np.float64) / 2)
        if found.shape[1] == 1:
            return np.hstack([1 - found, found])
        return np.asarray(found / np.maximum(found.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny))

    def score(self, X: People, y: NDArray[Any] | None = None, **given: Unpack[ReadingOptions]) -> float:
        """The share of people whose class is predicted; ``y`` only where the label is not in X."""
        return accuracy(*self.compare_labels(X, y, **given))


def _columns(declared: Column) -> int:
    """The number of regressions: one for two classes, otherwise one for each class."""
    return len(declared.classes) if len(declared.classes) > 2 else 1
