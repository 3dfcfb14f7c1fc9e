"""What is planned before anybody computes: who takes part, and what a study tells about its task beforehand.

Are there enough people? How far noise alone is expected to move a result, from public numbers: no data is read.

The figures are rough, and about a typical table whose columns have half of the variance that their bounds allow
(docs/how-to/planning.md says what each of them means). They say when a result would be mostly noise, not how good it
will be.

Marks on the parameters of models: what study files, too, must know about a parameter.

The keys of ``[task]`` in a study file are the names, defaults and annotations of a model's parameters. These marks
are written in ``Annotated[...]``. A limit may also be one of ``annotated_types``, which takes a while to import.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, NamedTuple, TypeGuard

from typing_extensions import TypeVar

from colonnade.disk.reading import shorten
from colonnade.errors import PrivacyError, StudyError
from colonnade.privacy import Trust
from colonnade.privacy.observers import INPUTS, SECURITIES, Inputs, Security, check_epsilon
from colonnade.privacy.statement import UNMATCHED
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import AdjustableTask, PricedTask
from colonnade.tables import Schema

if TYPE_CHECKING:
    from colonnade.privacy import Statement

REQUIRED: Any = ...


@dataclass(frozen=True)
class InFile:
    """In a study file the parameter has another type and default: these; without a default it must be given."""

    type: Any
    default: Any = REQUIRED


@dataclass(frozen=True)
class CheckedBy:
    """A function that is called with the value as it stands in the file, and raises a ValueError if it is wrong."""

    check: Callable[[Any], None]


class ParameterLimit(NamedTuple):
    """A limit on the value, with the name that ``annotated_types`` has for it."""

    name: str
    value: float


at_least = partial(ParameterLimit, "Ge")
"""The value is this, or more."""
above = partial(ParameterLimit, "Gt")
"""The value is more than this."""
at_most = partial(ParameterLimit, "Le")
"""The value is this, or less."""
not_shorter_than = partial(ParameterLimit, "MinLen")
"""The value has so many characters, or members, or more."""


class ParameterMark:
    """A property of a parameter that has no value of its own."""


NAMES_PARTIES = ParameterMark()
"""The value is the name of a party, or a mapping from such names."""
SETS_PRICE = ParameterMark()
"""If this parameter is given, epsilon must not be: it sets the price of the task instead."""
NAMES_LABEL = ParameterMark()
"""The value is the column to predict, written ``party.column``."""
NAMES_MODEL = ParameterMark()
"""The value is the path of a public model that the study is about."""
LIMITS_ROWS = ParameterMark()
"""The value is the largest number of rows that the study allows."""
FINITE = ParameterMark()
STRICT = ParameterMark()
"""The value must have the right type; a text such as "true" is not converted."""

Count = Annotated[int, at_least(1)]
RowsAtMost = Annotated[int, at_least(1), LIMITS_ROWS]
Positive = Annotated[float, above(0), FINITE]


def check_dotted(label: Any) -> None:
    """Refuse a label that is not written party.column."""
    if isinstance(label, str) and not all(label.rpartition(".")):
        raise ValueError('must be written party.column, such as "bank.default" [VA029]')


def check_each_positive(given: Any) -> None:
    """Refuse a mapping in which an epsilon is no positive number."""
    for value in given.values() if isinstance(given, Mapping) else ():
        try:
            check_epsilon(value)
        except PrivacyError as error:
            raise ValueError(f"- {error} [VA030]") from None


Label = Annotated[str | None, InFile(Annotated[str, CheckedBy(check_dotted)]), NAMES_LABEL]
EpsilonByParty = Annotated[
    Mapping[str, float] | None,
    InFile(Annotated[dict[str, float] | None, not_shorter_than(1), CheckedBy(check_each_positive)], None),
    NAMES_PARTIES,
    SETS_PRICE,
]


def check_whole(name: str, value: object, low: int, high: int) -> int:
    """The value, if it is a whole number within these limits; otherwise an error."""
    import numpy as np

    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise StudyError(f"{name} must be a whole number from {low} to {high}, not {value!r} [ST150]")
    return int(value)


def is_number(value: object) -> TypeGuard[float]:
    """Whether the value is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_positive(name: str, value: object) -> float:
    """The value, if it is a finite number above 0; otherwise an error."""
    if not is_number(value) or not 0 < value < math.inf:
        raise StudyError(f"{name} must be a finite number above 0, not {value!r} [ST137]")
    return float(value)


def one_of(what: str, value: object, known: Iterable[str]) -> None:
    """Raise an error if the value is not one of the known words; it suggests a similar word."""
    names = tuple(known)
    if value not in names:
        from colonnade.tables.cell_parsing import suggest_name

        hint = suggest_name(value, names) if isinstance(value, str) else ""
        raise StudyError(f"{what} must be one of {', '.join(names)}, not {value!r}{hint} [ST136]")


AnyTask = TypeVar("AnyTask", bound=PricedTask, default=Any)
"""The type of the tasks that a kind plans."""


@dataclass(frozen=True)
class PlanDetails:
    """What a pre-flight says about one kind of study, in addition to what it says about every kind."""

    method: str | None = None
    """The name of the method, where a kind has several."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Plain values for JSON."""
    brief: tuple[str, ...] = ()
    """Lines for a person, below the costs."""
    section: tuple[str, ...] = ()
    """Lines of a separate section, which a party reads before it approves the study."""


class Planner(ABC, Generic[AnyTask]):
    """Public parameters, given to the constructor, and the public task that is computed from them."""

    kind: ClassVar[str]
    tasks: ClassVar[tuple[type[PricedTask], ...]] = ()
    """The classes of the tasks that it plans."""
    shares: ClassVar[bool] = True
    """Whether the task computes on shares; only then are a committee and a hidden alignment possible."""
    later: ClassVar[frozenset[str]] = frozenset()
    """Parameters that came later: with their defaults they are not written, so files and studies stay as they were."""
    why_not_run: ClassVar[str | None] = None
    """Why such studies cannot be run, as the end of a sentence that begins with the study; ``None``: they can."""

    @abstractmethod
    def plan(self, roster: Roster) -> AnyTask:
        """The public task, with the least noise that meets the budgets."""

    def plan_as_requested(self, roster: Roster, plan: Callable[[Roster], AnyTask] | None = None) -> AnyTask:
        """The task with the security that was asked for, or that such a task usually has; ``plan`` is by default ours.

        Whether participants may deviate bears on the noise, so that a task is planned with it, and not changed later.
        """
        make = self.plan if plan is None else plan
        if roster.security == "semi-honest":
            return make(roster)
        if roster.security is None and not any(task.active_by_default for task in self.tasks):
            return self._unasked(make(roster), roster)
        usual = next((task.proofs[0] for task in self.tasks if task.active_by_default), self.tasks[0].proofs[0])
        task = make(roster.with_checks(roster.inputs or usual))
        if roster.security is None and not (task.trust.active and task.usually_active):
            return self._unasked(make(roster), roster)
        self.check_request(roster, task)
        if (roster.inputs is None or not task.rests_on_bounds) and task.trust.inputs != task.usual_inputs:
            return make(roster.with_checks(task.usual_inputs))
        return task

    def check_request(self, roster: Roster, task: AnyTask) -> None:
        """Refuse a task that cannot have the security that was asked for."""
        if roster.security != "active" and not task.trust.active:
            return
        if not task.trust.committee:
            raise StudyError(
                f"nobody holds shares in this study of kind {self.kind}, so no seats can check each other: leave "
                "security out [ST153]"
            )
        if task.why_not_active is not None:
            raise StudyError(
                f'this study of kind {self.kind} {task.why_not_active}: say security = "semi-honest" [ST154]'
            )
        if task.rests_on_bounds and (roster.inputs or task.usual_inputs) not in task.possible_proofs:
            known = " or ".join(f'"{way}"' for way in task.possible_proofs)
            raise StudyError(
                f"owners cannot prove bounds so in this study of kind {self.kind}: say inputs = {known} [ST155]"
            )

    def _unasked(self, task: AnyTask, roster: Roster) -> AnyTask:
        """A task that is not checked, because nobody asked for that; an error if proofs were asked for all the same."""
        if roster.inputs == "proven":
            raise StudyError(
                f"owners prove bounds only to seats that check, which this study of kind {self.kind} does not have "
                'by default: say security = "active" as well [ST156]'
            )
        return task

    @property
    def rows_expected(self) -> int | None:
        """About how many rows the tables have, where a parameter says so that does not decide the price."""
        return None

    def adjustable(self, roster: Roster, rows: int | None) -> AdjustableTask | None:
        """The task as one whose noise can be set freely; ``None`` where this is not possible."""
        return self.plan_as_requested(roster).adjustable(rows)

    def suppositions(self, roster: Roster) -> tuple[str, ...]:
        """Sentences about what the promises of such a study rest on, besides what every statement says."""
        return ()

    def assumptions(self, roster: Roster) -> tuple[str, ...]:
        """All sentences that a privacy statement adds: how people were matched, and what the kind supposes."""
        supposed = self.suppositions(roster)
        return (*(roster.assumptions or (UNMATCHED,)), *supposed) if supposed else roster.assumptions

    def details(self, task: AnyTask, statement: Statement) -> PlanDetails:
        """What a pre-flight says about this task in particular."""
        return PlanDetails(task.scheme, task.rounds_figures, brief=task.rounds_in_words)

    def outlook(self, roster: Roster, task: AnyTask, rows: int | None) -> SampleSizeForecast | None:
        """Whether so many people are enough, from public numbers alone; ``None`` where there is no such figure."""
        return None

    def promises(self, statement: Statement) -> Any:
        """Promises that the statement's table of observers does not make; ``None`` where there are none.

        ``to_dict`` gives them as plain values, and ``besides`` those that a statement lacks; ``str`` is a table.
        """
        return None

    @classmethod
    def lacking(cls) -> list[str]:
        """Members that a complete kind has and this one lacks."""
        return sorted(cls.__abstractmethods__)

    @classmethod
    def why_not_about(cls, model: Any) -> str | None:
        """Why such a study cannot use this public model, as the end of a sentence that begins with the model."""
        return "is of no use to this kind of study"


@dataclass(frozen=True)
class Roster:
    """The public description of who takes part: each owner's schema, and the committee.

    With ``hidden`` no owner knows which of its people the others hold too; only some protocols allow this.
    ``assumptions`` are sentences for the privacy statement, such as what an alignment told. ``security`` and ``inputs``
    are what was asked for, if anything was: ``None`` means what the task usually has
    (:meth:`Planner.plan_as_requested`).
    """

    schemas: Mapping[str, Schema]
    trust: Trust
    hidden: bool = False
    assumptions: tuple[str, ...] = ()
    security: Security | None = "semi-honest"
    inputs: Inputs | None = None

    @classmethod
    def of(
        cls,
        schemas: Mapping[str, Schema],
        committee: Sequence[str] = (),
        threshold: int | None = None,
        hidden: bool = False,
        *,
        security: Security | None = "semi-honest",
        inputs: Inputs | None = None,
        noise_missing: int | None = None,
    ) -> Roster:
        """A roster; if no committee is given, it is the first seven owners, or two owners and the coordinator."""
        owners = tuple(schemas)
        refused = (
            (
                security not in (None, *SECURITIES),
                f"security is {' or '.join(map(repr, SECURITIES))}, not {shorten(repr(security), 40)} [ST078]",
            ),
            (
                inputs not in (None, *INPUTS),
                f"inputs is one of {', '.join(map(repr, INPUTS))}, not {shorten(repr(inputs), 40)} [ST079]",
            ),
            (
                inputs == "proven" and security == "semi-honest",
                f'inputs = "{inputs}" means that owners prove their bounds to seats that check: it needs '
                'security = "active" [ST080]',
            ),
            (len(owners) < 2, "a study needs at least two parties: one alone has nothing to compute together [ST081]"),
        )
        for wrong, why in refused:
            if wrong:
                raise StudyError(why)
        seats = tuple(committee) or (owners[:7] if len(owners) > 2 else (*owners, COORDINATOR))
        most = max(1, (len(seats) - 1) // 2)
        trust = Trust(owners, seats, most if threshold is None else threshold, noise_missing=noise_missing)
        return cls(dict(schemas), trust, hidden, security=security, inputs=inputs)

    def with_checks(self, inputs: Inputs) -> Roster:
        """The same with seats that check each other."""
        return replace(self, trust=replace(self.trust, security="active", inputs=inputs))

    def require_known_members(self, what: str) -> None:
        """Raise an error if the alignment was hidden: ``what`` needs to know which rows all parties hold."""
        if self.hidden:
            raise StudyError(
                f"{what} does not work after a hidden alignment, in which nobody learns whom all parties hold: hidden "
                "alignment works with pca, linear and logistic (one-shot, functional) and synthetic (marginals); use "
                "one of those, or hidden = false [ST082]"
            )


ENOUGH_OF_A_PREDICTION = 0.1
ENOUGH_OF_A_SHARE = 0.5
ENOUGH_OF_A_MARGINAL = 0.1
ENOUGH_OF_A_PART = 0.5


@dataclass(frozen=True)
class SampleSizeForecast:
    """The expected error of one number of a result, and from how many people on it is small enough."""

    of: str
    """The number that errs, in words."""
    enough: float
    """An error up to which a result is of use."""
    rows: int | None
    """For how many people the error is meant; ``None``: the study does not say how many there are."""
    error: float | None
    """The expected error with so many people."""
    people: int | None
    """From about how many people on the error is small enough; ``None``: not known."""

    @classmethod
    def falling(cls, of: str, enough: float, scale: float, rows: int | None) -> SampleSizeForecast:
        """Of an error that is ``scale`` divided by the number of people."""
        return cls(of, enough, rows, None if rows is None else scale / rows, two_digits(scale / enough))

    @property
    def too_few(self) -> bool:
        """Whether the result is expected to be mostly noise."""
        return self.error is not None and self.error > self.enough

    @property
    def forecast(self) -> str:
        """A sentence: how much the noise does."""
        if self.error is None or self.rows is None:
            needed = "many people" if self.people is None else f"about {self.people:,} people"
            return f"FORECAST: it takes {needed} until noise moves {self.of} by no more than {self.enough:g}"
        least = "" if self.people is None else f"; {self.enough:g} takes about {self.people:,} people"
        return f"FORECAST for {self.rows:,} people: noise moves {self.of} by about {self.error:.2g}{least}"

    @property
    def warning(self) -> str | None:
        """A sentence where there are too few people, with what would do; ``None`` where there are enough."""
        if self.error is None or not self.too_few:
            return None
        if self.people is None or self.rows is None:
            return "TOO FEW PEOPLE: noise would hide most of it; it takes many more people, or a larger epsilon"
        times = f"about {self.people:,} people, or about {self.people / self.rows:.1f} times the epsilon"
        return f"TOO FEW PEOPLE: noise would hide most of it; it takes {times}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"too_few": self.too_few}


def two_digits(people: float) -> int:
    """The number rounded up to two digits: more of them would promise what nobody knows."""
    step: int = 10 ** max(0, math.floor(math.log10(max(people, 1.0))) - 1)
    return max(1, math.ceil(people / step) * step)


def operator_norm(entry: float, columns: int) -> float:
    """About the largest factor by which symmetric noise of this deviation on each entry stretches a vector."""
    return 2 * entry * math.sqrt(columns)
