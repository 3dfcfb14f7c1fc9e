"""Questions about a study whose noise is given: how many rounds fit, how many rows are enough, what does it cost.

The noise is given by the error that is wanted, or as a multiple of the sensitivity; it is not calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from colonnade.errors import StudyError
from colonnade.privacy import Event, NonPrivate, Statement
from colonnade.privacy.calibrate import BindingBudget, binding_budget, largest_number, smallest_number
from colonnade.protocols.task import AdjustableTask
from colonnade.study.spec import Study

PlanQuestion = Literal["rounds", "rows", "epsilon"]
_MOST_ROUNDS = 1 << 30


@dataclass(frozen=True)
class NoiseAmount:
    """How much noise: the deviation wanted on a mean, or a multiple of the sensitivity."""

    error: float | None = None
    multiplier: float | None = None

    def __post_init__(self) -> None:
        if (self.error is None) == (self.multiplier is None):
            raise StudyError(
                "say how much noise there is, by --error or by --noise-multiplier, and not by both [ST564]"
            )
        if not 0 < (self.error or self.multiplier or 0) < math.inf:
            raise StudyError("--error and --noise-multiplier take a positive number [ST565]")

    def on(self, task: AdjustableTask) -> AdjustableTask:
        """The task with this noise."""
        return task.with_multiplier(self.multiplier) if self.multiplier else task.with_error(self.error or 0.0)


@dataclass(frozen=True)
class PlanAnswer:
    """An answer, and what it would cost."""

    study: str
    question: PlanQuestion
    rounds: int
    rows: int
    error: float
    noise_multiplier: float
    statement: Statement
    binding: BindingBudget | None
    error_on: str = "mean"
    """Which number the error is about."""
    guarantees: Any = None
    """Promises in addition to those of the statement; ``None`` where the kind makes none."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        deciding = None if self.binding is None else self.binding.to_dict()
        promised = None if self.guarantees is None else self.guarantees.to_dict()
        return vars(self) | {"statement": self.statement.to_dict(), "binding": deciding, "guarantees": promised}


def most_rounds(study: Study, amount: NoiseAmount, rows: int | None = None) -> PlanAnswer:
    """How many rounds of a sketch fit its budget."""
    _check_budget(study)
    task = _with_rows(study, rows)
    if task.why_no_rounds is not None:
        raise StudyError(f"study {study.name!r} {task.why_no_rounds}; only a sketch has rounds to count [ST566]")
    noisy = amount.on(task)
    found = largest_number(
        lambda rounds: noisy.with_rounds(rounds).priced.events,
        noisy.priced.trust,
        study.budgets,
        at_most=_MOST_ROUNDS,
        name="rounds",
    )
    return _plan(study, "rounds", noisy.with_rounds(found))


def least_rows(study: Study, amount: NoiseAmount) -> PlanAnswer:
    """The least number of rows with which this noise meets the budget of a study."""
    _check_budget(study)
    task = _adjustable(study, None)
    if task.why_no_rows is not None:
        raise StudyError(task.why_no_rows.format(study=repr(study.name)))
    if task.about_all and amount.error is None:
        raise StudyError("where a release is about all rows, their number only matters to a mean: give --error [ST567]")
    at_least, at_most = task.rows_between
    task = task.with_rows(at_least)  # refused here where it cannot be asked
    found = smallest_number(
        _price_function(lambda rows: amount.on(task.with_rows(rows))),
        task.priced.trust,
        study.budgets,
        at_least=at_least,
        at_most=at_most,
        name="rows",
    )
    return _plan(study, "rows", amount.on(task.with_rows(found)))


def epsilons(study: Study, amount: NoiseAmount, rows: int | None = None) -> PlanAnswer:
    """What each observer would learn at this noise, whether the study states a budget or not."""
    return _plan(study, "epsilon", amount.on(_with_rows(study, rows)))


def _check_budget(study: Study) -> None:
    if not study.budgets:
        raise StudyError(
            f"study {study.name!r} states no epsilon in [budget] that rounds or rows could be counted against: ask "
            "--epsilon, which needs none [ST568]"
        )


def _adjustable(study: Study, rows: int | None) -> AdjustableTask:
    """The task as one whose noise can be set freely; an error if this kind has none."""
    task = study.planner.adjustable(study.roster, rows)
    if task is None:
        chosen = ' (method "auto" chose it)' if study.content.task.parameters.get("method") == "auto" else ""
        raise StudyError(
            f"study {study.name!r} of kind {study.content.task.kind} {study.task.released}{chosen}; a plan is for one "
            'release of second moments, which is kind pca with method "moments", or linear or logistic with method '
            '"one-shot" or "functional", for a sketch, and for kinds glm and glm-scores [ST570]'
        )
    return task


def _with_rows(study: Study, rows: int | None) -> AdjustableTask:
    """The same, with a number of rows, which the study states or the user gives."""
    task = _adjustable(study, rows)
    if task.number_of_rows is None:
        raise StudyError(f"study {study.name!r} does not say how many rows there are: add --rows-given [ST569]")
    return task


def _price_function(make: Callable[[int], AdjustableTask]) -> Callable[[int], tuple[Event, ...]]:
    """A function that gives the events; noise that is too fine for the integers counts as no protection."""

    def events(number: int) -> tuple[Event, ...]:
        try:
            return make(number).priced.events
        except StudyError as error:
            return (NonPrivate(str(error)),)

    return events


def _plan(study: Study, question: PlanQuestion, task: AdjustableTask) -> PlanAnswer:
    priced, budgets = task.priced, study.budgets
    statement = study.statement_of(priced)
    return PlanAnswer(
        study=study.name,
        question=question,
        rounds=task.number_of_rounds,
        rows=task.number_of_rows or 0,
        error=task.error,
        noise_multiplier=task.multiplier,
        statement=statement,
        binding=binding_budget(priced.events, priced.trust, budgets) if budgets else None,
        error_on=task.error_on,
        guarantees=study.planner.promises(statement),
    )
