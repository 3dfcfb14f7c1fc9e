"""The expected error of a private regression, from public numbers alone: rows, columns, bounds and noise.

The error is the deviation of a predicted probability that the noise alone causes, for a typical person, if the
features have half of the variance that their bounds allow, spread evenly over d encoded columns: v = |x|^2 / (2 d).
Noise of deviation s on each of d coefficients then moves a prediction by s sqrt(d / v).

* From second moments: s = noise of an entry / rows, for the entries with the label and, times the norm of the weights,
  for those between features. The weights are taken to have norm 1/2.
* From gradients: s = noise of a round's mean gradient, over the root of half the rounds, which are averaged. What is
  left to learn after so many steps is added: it shrinks by learning rate x v / 4 a round.

The assumptions are rough and the same for all methods: the figures rank them, and show when there are too few rows.

What linear and logistic regression share: the label, the joint computation, weights by party, predictions.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self, cast

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.regression.gradient_descent import LearnedWeights
from colonnade.kinds.regression.least_squares import FittedWeights, MomentReading, check_ridge
from colonnade.kinds.regression.score_parts import PartLaw, part_laws, read_laws
from colonnade.kinds.regression.task import GradientTask
from colonnade.models.design import LabelDesign, label_weight, split_label, weighted_rows
from colonnade.models.linear_model import LinearModel
from colonnade.models.new_rows import Matrix
from colonnade.models.parameters import FINITE, at_least, check_whole
from colonnade.models.planner import PlanDetails, Roster
from colonnade.models.sample_size import ENOUGH_OF_A_PREDICTION, SampleSizeForecast
from colonnade.models.serialization import read_array, read_epsilons, read_size, read_size_if_any, read_text, read_texts
from colonnade.privacy import Statement, parse_budgets
from colonnade.privacy.noise_laws import FUNCTIONAL, NORMAL_LAWS, LawName, NormalLawName
from colonnade.privacy.observers import Budget, largest_known_noise
from colonnade.protocols.moments.task import Moments, NoisyMoments, with_own_budgets
from colonnade.protocols.roles import Owner
from colonnade.protocols.rows import Rows
from colonnade.randomness import Stream
from colonnade.tables import Column, Schema, Table
from colonnade.tables.centring import ColumnCentring, Norm

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
    if task.scheme is None:
        error = moments_error(task, declared) * math.sqrt(columns / variance) / (rows or 1)
    else:
        error = gradients_error(cast("GradientTask", task), columns, variance)
    return Forecast(method, task, error, rows)


def moments_error(task: Moments, declared: Column) -> float:
    """The deviation of a coefficient's noise in the least squares problem, times the number of rows."""
    norm: Norm = "l1" if task.pure else "l2"
    weight = float(label_weight(declared, norm, task.constant, task.gamma))
    # Off the diagonal there are two copies of each entry, except with Laplace noise.
    entry = task.noise_std if task.pure else task.noise_std / math.sqrt(2)
    return entry * math.hypot(1 / weight, WEIGHTS)


def gradients_error(task: GradientTask, columns: int, variance: float) -> float:
    """The error of a probability: by noise in the averaged weights, and because learning stops early."""
    scaled = variance * task.scale**2
    averaged = max(1, task.rounds - task.rounds // 2)
    noise = task.noise_std / math.sqrt(averaged) * math.sqrt(columns / scaled)
    unlearned = LEARNABLE * math.exp(-task.learning_rate * scaled / 4 * 0.75 * task.rounds)
    return math.hypot(noise, unlearned)


Task = Moments | GradientTask
Published = NoisyMoments | LearnedWeights
GRADIENTS = GradientTask.scheme
PURE = 1e-30  # too small to help any accountant, and far above the distance of the samplers from their laws
Ridge = Literal["auto"] | Annotated[float, at_least(0), FINITE]


class Regression(LinearModel[Task, Published]):
    """A regression of one party's column on all other columns of all parties.

    After fitting, ``coef_`` has a row for each class (one for numbers and for two classes) and a column for each of
    ``feature_names_in_``, the encoded columns; with ``intercept_`` it gives the scores.
    """

    method: str
    epsilon: float | Mapping[str, float] | None
    delta: float
    noise: str
    ridge: float | str
    epsilon_by_party: Mapping[str, float] | None
    intercept: bool
    rows_at_most: int

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
    noise_std_: float
    count_: float | None = None
    clipped_: int | None = None
    parts_: dict[str, PartLaw] | None = None
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
        self.protection_ = protection_of(task, self.delta)
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
        for law in NORMAL_LAWS:
            if law == self.noise:
                return law
        hint = '; Laplace noise is method="functional"' if self.noise == FUNCTIONAL else ""
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

    def remember(self, found: FittedWeights, published: NoisyMoments, reading: MomentReading) -> None:
        """Store how the weights were computed: rows, ridge, clipped eigenvalues; and the parts of scores."""
        self.parts_ = part_laws(published, reading, self.coef_, tuple(self.schemas_))
        self.count_, self.ridge_, self.clipped_ = found.rows, found.solution.ridge, found.solution.clipped

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


def protection_of(task: Task, delta: float) -> dict[str, float]:
    """The epsilon of the published result for each party's columns alone; for gradients, for a whole person."""
    return dict(_protected(task, delta))


@lru_cache(maxsize=16)
def _protected(task: Task, delta: float) -> Mapping[str, float]:
    return task.protection(delta)
