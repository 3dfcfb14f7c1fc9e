"""The inverse questions of a study: how many rounds fit, how many rows are enough, what would it cost.

The noise is given, either by the error that is wanted or as a multiple of the sensitivity; it is not calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from colonnade.errors import StudyError
from colonnade.models.glm.guarantees import Guarantees
from colonnade.models.sketch import SketchPlanner
from colonnade.privacy import DiscreteLaplaceRelease, Event, NonPrivate, Statement, Trust
from colonnade.privacy.calibrate import Binding, binding, least, most
from colonnade.protocols.directions.task import Directions
from colonnade.protocols.exchange.task import NOISE_UNIT, Exchange
from colonnade.protocols.gradients.task import Gradients
from colonnade.protocols.kept_scores.task import KeptScoresTask
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.sketch import Sketch
from colonnade.study.spec import Study

Question = Literal["rounds", "rows", "epsilon"]
_MOST_ROUNDS = 1 << 30
_MOST_ROWS = 1 << 40
_ONE_RELEASE = ("pca", "linear", "logistic")


@dataclass(frozen=True)
class MomentsOf:
    """Second moments of ``rows`` people; its error is that of an entry of X'X / rows."""

    task: Moments
    rows: int

    @property
    def trust(self) -> Trust:
        """Owners, committee and threshold."""
        return self.task.trust

    @property
    def events(self) -> tuple[Event, ...]:
        """What it reveals."""
        return self.task.events

    @property
    def error(self) -> float:
        """Standard deviation of the noise on an entry of X'X / rows."""
        return self.task.noise_std / self.rows

    @property
    def multiplier(self) -> float:
        """Deviation over L2 sensitivity; for Laplace noise the scale over L1 sensitivity."""
        event = self.task.event
        if isinstance(event, DiscreteLaplaceRelease):
            return float(event.scale / event.l1)
        return math.sqrt(self._each * self.task.noise / event.l2_squared)

    def with_error(self, error: float) -> MomentsOf:
        """The same with the most noise whose error is not above ``error``."""
        deviation = Fraction(error) * self.rows * self.task.gamma**2
        if self.task.laplace:
            # The deviation is at most sqrt(2 x owners x share) times the scale.
            whole = float(2 * len(self.task.owners) * self.task.share)
            most = deviation / Fraction(math.sqrt(whole) * (1 + 1e-12))
        else:
            most = deviation**2 / self._each
        units = int(most / self.task.parts)
        if units < 1:
            raise StudyError(f"noise of deviation {error:g} is finer than this study's integers: raise task.gamma")
        return self._with_noise(units)

    def with_multiplier(self, multiplier: float) -> MomentsOf:
        """The same with the least noise that is not below a multiple of the sensitivity."""
        event = self.task.event
        if isinstance(event, DiscreteLaplaceRelease):
            least = Fraction(multiplier) * event.l1
        else:
            least = Fraction(multiplier) ** 2 * event.l2_squared / self._each
        return self._with_noise(max(1, math.ceil(least / self.task.parts)))

    @property
    def _each(self) -> int:
        """Variance of one unit of the noise parameter."""
        return self.task.additive.unit

    def _with_noise(self, units: int) -> MomentsOf:
        return replace(self, task=replace(self.task, noise=units * self.task.parts))

    def with_rows(self, rows: int) -> MomentsOf:
        """The same about so many people."""
        return replace(self, rows=rows)


@dataclass(frozen=True)
class ToldOf:
    """Noised numbers that parties tell each other; its error is that of a slope, or of a score by kept weights."""

    task: Exchange | KeptScoresTask

    @property
    def trust(self) -> Trust:
        """Owners, and nobody who holds shares."""
        return self.task.trust

    @property
    def events(self) -> tuple[Event, ...]:
        """What it reveals."""
        return self.task.events

    @property
    def rows(self) -> int:
        """How many people there are; of scores, how many at most."""
        return self.task.rows_at_most if isinstance(self.task, KeptScoresTask) else self.task.rows

    @property
    def rounds(self) -> int:
        """How often slopes are told; scores are told once."""
        return 1 if isinstance(self.task, KeptScoresTask) else len(self.task.steps)

    @property
    def error(self) -> float:
        """Standard deviation of the noise on a slope, or on a score besides the blur of its weights."""
        return self.task.noise_std

    @property
    def error_on(self) -> str:
        """Which number the error is about."""
        return "score" if isinstance(self.task, KeptScoresTask) else "slope"

    @property
    def multiplier(self) -> float:
        """Deviation over L2 sensitivity: of all messages of a party, or of a score."""
        return math.sqrt(self.task.noise / NOISE_UNIT)

    def with_error(self, error: float) -> ToldOf:
        """The same with noise of about this deviation."""
        unit = self._with_noise(NOISE_UNIT)
        return self._with_noise(math.floor(Fraction(error) ** 2 / Fraction(unit.error) ** 2 * NOISE_UNIT))

    def with_multiplier(self, multiplier: float) -> ToldOf:
        """The same with the least noise that is not below a multiple of the sensitivity."""
        return self._with_noise(math.ceil(Fraction(multiplier) ** 2 * NOISE_UNIT))

    def _with_noise(self, noise: int) -> ToldOf:
        return replace(self, task=replace(self.task, noise=max(1, noise)))


Noised = Sketch | MomentsOf | ToldOf


@dataclass(frozen=True)
class Amount:
    """How much noise: the deviation wanted on a mean, or a multiple of the sensitivity."""

    error: float | None = None
    multiplier: float | None = None

    def __post_init__(self) -> None:
        if (self.error is None) == (self.multiplier is None):
            raise StudyError("say how much noise there is, by --error or by --noise-multiplier, and not by both")
        if not 0 < (self.error or self.multiplier or 0) < math.inf:
            raise StudyError("--error and --noise-multiplier take a positive number")

    def on(self, task: Noised) -> Noised:
        """The task with this noise."""
        return task.with_multiplier(self.multiplier) if self.multiplier else task.with_error(self.error or 0.0)


@dataclass(frozen=True)
class Plan:
    """An answer, and what it would cost."""

    study: str
    question: Question
    rounds: int
    rows: int
    error: float
    noise_multiplier: float
    statement: Statement
    binding: Binding | None
    error_on: str = "mean"
    """Which number the error is about."""
    guarantees: Guarantees | None = None
    """Of a model over noised messages: every promise, by what is looked at."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        deciding = None if self.binding is None else self.binding.to_dict()
        promised = None if self.guarantees is None else self.guarantees.to_dict()
        return vars(self) | {"statement": self.statement.to_dict(), "binding": deciding, "guarantees": promised}


def most_rounds(study: Study, amount: Amount, rows: int | None = None) -> Plan:
    """How many rounds of a sketch fit its budget."""
    _check_budget(study)
    task = _task(study, rows)
    if not isinstance(task, Sketch):
        once = isinstance(task, MomentsOf) or isinstance(task.task, KeptScoresTask)
        what = "makes one release" if once else "has as many rounds as suit its noise"
        raise StudyError(f"study {study.name!r} {what}; only a sketch has rounds to count")
    noisy = amount.on(task)
    assert isinstance(noisy, Sketch)  # noqa: S101 - for the type checker
    found = most(
        lambda rounds: noisy.with_rounds(rounds).events,
        noisy.trust,
        study.budgets,
        at_most=_MOST_ROUNDS,
        name="rounds",
    )
    return _plan(study, "rounds", noisy.with_rounds(found))


def least_rows(study: Study, amount: Amount) -> Plan:
    """How many rows a study needs until this noise meets its budget."""
    _check_budget(study)
    task = _task(study, 1 if study.content.task.kind in _ONE_RELEASE else None)
    if isinstance(task, ToldOf):
        raise StudyError(f"the noise in messages of study {study.name!r} hardly depends on its rows: ask --epsilon")
    everybody = isinstance(task, MomentsOf) or task.sampling == "full"
    if everybody and amount.error is None:
        raise StudyError("where a release is about all rows, their number only matters to a mean: give --error")
    least_possible = 1 if isinstance(task, MomentsOf) or task.sampling == "full" else task.batch
    most_possible = task.task.rows_at_most if isinstance(task, MomentsOf) else _MOST_ROWS
    found = least(
        _priced(lambda rows: amount.on(task.with_rows(rows))),
        task.trust,
        study.budgets,
        at_least=least_possible,
        at_most=most_possible,
        name="rows",
    )
    return _plan(study, "rows", amount.on(task.with_rows(found)))


def epsilons(study: Study, amount: Amount, rows: int | None = None) -> Plan:
    """What each observer would learn at this noise, whether the study states a budget or not."""
    return _plan(study, "epsilon", amount.on(_task(study, rows)))


def _check_budget(study: Study) -> None:
    if not study.budgets:
        raise StudyError(
            f"study {study.name!r} states no epsilon in [budget] that rounds or rows could be counted against: ask "
            "--epsilon, which needs none"
        )


def _task(study: Study, rows: int | None) -> Noised:
    """The task, with whatever noise."""
    planner = study.planner()
    if isinstance(study.task, Exchange | KeptScoresTask):
        told = ToldOf(study.task)
        if rows not in (None, told.rows):
            key = "rows" if isinstance(study.task, Exchange) else "rows_at_most"
            raise StudyError(f"the number of rows stands in the study file, where bounds rest on it: change task.{key}")
        return told
    if isinstance(planner, SketchPlanner):
        draft = planner.draft(study.roster)
        if rows is not None and rows < draft.batch and draft.sampling != "full":
            raise StudyError(f"{rows} rows are fewer than a batch of this study has ({draft.batch})")
        return draft if rows is None else draft.with_rows(rows)
    if not isinstance(study.task, Moments):
        raise StudyError(_not_planned(study))
    if rows is None:
        raise StudyError(f"study {study.name!r} does not say how many rows there are: add --rows-given")
    # The noise that parties named for themselves gives way to the one that is asked about, the same for all.
    return MomentsOf(replace(study.task, own_noise=()), rows)


def _not_planned(study: Study) -> str:
    """What this study is, and what it would have to be."""
    kind, what = study.content.task.kind, "releases no second moments"
    if isinstance(study.task, Gradients):
        what = 'has method "sqm", which releases gradients in rounds'
        if getattr(study.content.task, "method", "") == "auto":
            what += ' (method "auto" chose it)'
    if isinstance(study.task, Directions):
        what = 'has method "power", which releases products with directions in rounds'
    return (
        f"study {study.name!r} of kind {kind} {what}; a plan is for one release of second moments, which is kind "
        'pca with method "moments", or linear or logistic with method "one-shot" or "functional", for a sketch, and '
        "for kinds glm and glm-scores"
    )


def _priced(make: Callable[[int], Noised]) -> Callable[[int], tuple[Event, ...]]:
    """Events, where noise that is too fine for the integers protects nobody."""

    def events(number: int) -> tuple[Event, ...]:
        try:
            return make(number).events
        except StudyError as error:
            return (NonPrivate(str(error)),)

    return events


def _plan(study: Study, question: Question, task: Noised) -> Plan:
    statement = study.stated(task.events, task.trust)
    return Plan(
        study=study.name,
        question=question,
        rounds=1 if isinstance(task, MomentsOf) else task.rounds,
        rows=task.rows,
        error=task.error,
        noise_multiplier=task.multiplier,
        statement=statement,
        binding=binding(task.events, task.trust, study.budgets) if study.budgets else None,
        error_on=task.error_on if isinstance(task, ToldOf) else "mean",
        guarantees=Guarantees.of(statement) if isinstance(study.task, Exchange) else None,
    )
