"""What an exchange tells and promises, before it runs: figures, and every promise for each thing that can be seen."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from colonnade.kinds.glm.planning import GLMSetting, suggest
from colonnade.kinds.glm.task import Exchange, ExchangeSide
from colonnade.models.planner import ENOUGH_OF_A_PART, PlanDetails, SampleSizeForecast, two_digits
from colonnade.privacy import Event, Observer, Statement, epsilon, views
from colonnade.privacy.events import unwrap
from colonnade.privacy.noise_laws import SquaredRelease
from colonnade.privacy.statement import NO_GUARANTEE, PROVEN, format_rounded_up

if TYPE_CHECKING:
    from colonnade.kinds.glm.kept_scores import KeptScoresTask

JOINT = "post-processing"
EAVESDROPPER = "eavesdropper on every channel"
NOTHING = "nothing is released"
_WIDTH = 108
_GUARANTEE_HEADS = ("what is seen", "by whom", "tells about", "epsilon", "delta", "status")
_TEXTS = 3  # the first ones
_NARROW = 12
_NUMBERS = ("epsilon", "delta")


@dataclass(frozen=True)
class Guarantee:
    """One promise: ``what`` the ``observer`` sees tells at most this epsilon and delta ``about`` something."""

    what: str
    observer: str
    about: str
    epsilon: float
    delta: float
    theorem: str
    status: str


class Guarantees(tuple[Guarantee, ...]):
    """All promises of one exchange."""

    __slots__ = ()

    @classmethod
    def of(cls, statement: Statement) -> Guarantees:
        """Everything that the events of an exchange prove; the statement's own observers are among them."""
        return _guarantees(statement)

    def besides(self, statement: Statement) -> Guarantees:
        """The promises that a statement's table of observers does not make; only the analyst is named again."""
        named = {row.who for row in statement.rows} - {"analyst"}
        return Guarantees(row for row in self if row.observer not in named)

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain values for JSON; an infinite epsilon is ``null``."""
        return [asdict(row) | {"epsilon": None if math.isinf(row.epsilon) else row.epsilon} for row in self]

    def __str__(self) -> str:
        lines = [_GUARANTEE_HEADS, *(_cells(row) for row in self)]
        wide = _widths(lines)
        table = [text for line in lines for text in _wrapped(line, wide)]
        table.insert(1, "-" * max(len(text) for text in table))
        for basis in dict.fromkeys(row.theorem for row in self if row.theorem):
            table += textwrap.wrap(f"rests on: {basis}", _WIDTH, subsequent_indent="  ")
        return "\n".join(table)


def protection(statement: Statement) -> dict[str, float]:
    """For each party, the epsilon of everything that leaves it, about its columns of one person."""
    owners = statement.trust.owners
    return {owner: _published(_about(statement, owner), statement) for owner in owners}


@lru_cache(maxsize=16)
def _guarantees(statement: Statement) -> Guarantees:
    rows: list[Guarantee] = []
    for owner in statement.trust.owners:
        rows += _of_party(statement, owner)
    rows.append(_proven(statement, "all messages", EAVESDROPPER, "one whole person", statement.events))
    for row in statement.rows:
        if row.observer == Observer.analyst():
            released = any(event.name.startswith("weights of ") for event in statement.events)
            all_told = "all messages and released weights" if released else "all messages"
            what = all_told if row.theorem else NOTHING
        else:
            what = "all that it receives"
        status = NO_GUARANTEE if math.isinf(row.epsilon) else row.status
        rows.append(Guarantee(what, row.who, row.adjacency.value, row.epsilon, row.delta, row.theorem, status))
    return Guarantees(rows)


def _of_party(statement: Statement, owner: str) -> Iterator[Guarantee]:
    """Promises about its messages, about what others compute from them, and about its released weights."""
    about = f"{owner}'s columns of one person"
    events = _about(statement, owner)
    messages = [event for event in events if not event.name.startswith("weights of ")]
    row = _proven(statement, f"messages of {owner}", f"anybody but {owner}", about, messages)
    yield row
    others = "kept weights of all others"
    yield replace(row, what=others, observer=f"all but {owner}, together", theorem=f"{row.theorem}, {JOINT}")
    if len(events) > len(messages):
        what = f"messages and released weights of {owner}"
        yield _proven(statement, what, "anybody, the analyst too", about, events)


def _proven(statement: Statement, what: str, observer: str, about: str, events: Sequence[Event]) -> Guarantee:
    found = _published(events, statement)
    theorems = sorted({getattr(unwrap(event), "theorem", "") for event in events} - {""})
    status = NO_GUARANTEE if math.isinf(found) else PROVEN
    return Guarantee(what, observer, about, found, statement.delta, ", ".join(theorems), status)


def _about(statement: Statement, owner: str) -> list[Event]:
    return [event for event in statement.events if getattr(unwrap(event), "about", ()) == (owner,)]


def _published(events: Sequence[Event], statement: Statement) -> float:
    """The epsilon of an observer who sees all these events and holds no columns and no noise."""
    told = [replace(event, audience=()) if isinstance(event, SquaredRelease) else event for event in events]
    return epsilon(views(told, Observer.coordinator(), statement.trust), statement.delta).epsilon


def _cells(row: Guarantee) -> tuple[str, ...]:
    return row.what, row.observer, row.about, format_rounded_up(row.epsilon), repr(float(row.delta)), row.status


def _widths(lines: Sequence[tuple[str, ...]]) -> list[int]:
    """The widths of the columns; if the table is too wide, its widest text columns become narrower."""
    wide = [max(len(line[k]) for line in lines) for k in range(len(_GUARANTEE_HEADS))]
    while sum(wide) + 2 * (len(wide) - 1) > _WIDTH and max(wide[:_TEXTS]) > _NARROW:
        wide[max(range(_TEXTS), key=lambda k: wide[k])] -= 1
    return wide


def _wrapped(line: tuple[str, ...], wide: Sequence[int]) -> Iterator[str]:
    """One row as lines of text; numbers are aligned to the right."""
    columns = [textwrap.wrap(cell, width) for cell, width in zip(line, wide, strict=True)]
    for parts in zip_longest(*columns, fillvalue=""):
        yield "  ".join(
            part.rjust(width) if head in _NUMBERS else part.ljust(width)
            for head, part, width in zip(_GUARANTEE_HEADS, parts, wide, strict=True)
        ).rstrip()


_MOST_PEOPLE = 2**34
_PARTY_HEADS = ("party", "sends", "noise", "ridge", "weights within", "scores within", "expected agreement")


def exchange_details(task: Exchange, statement: Statement, *, guessed: bool) -> PlanDetails:
    """The parameters, the figures of each party, and every promise that the table of observers does not make.

    ``guessed`` says whether parameters follow from a public guess of the signal, which is then shown.
    """
    found, guarantees = _agreement(task) if guessed else {}, Guarantees.of(statement)
    sides = [_side(task, side, found.get(side.owner)) for side in task.sides]
    facts = {
        "family": task.family.name,
        "active": task.active,
        "epochs": task.epochs,
        "batches": task.batches,
        "message_clip": task.message_clip,
        "learning_rate": task.learning_rate if task.method == "gradient" else None,
        "release": task.release,
        "sides": sides,
        "guarantees": guarantees.to_dict(),
    }
    lines = [
        f"MODEL, family {task.family.name}, over noised messages; the label is at {task.active}",
        f"what the study leaves open follows from public figures: {_steps(task)}; slopes are clipped to "
        f"{task.message_clip:g} where they are received",
        *_table([_PARTY_HEADS, *(_row(side, task.active) for side in sides)]),
        "noise is its deviation on each number sent; agreement is the squared correlation of a party's scores with",
        "what its columns add, under a public guess of the signal: no promise, and no data was looked at",
        "in the end all weights are published with noise, which is charged besides"
        if task.release
        else "each party keeps its own weights, in its kept.json and nowhere else",
        "",
        *str(guarantees.besides(statement)).splitlines(),
    ]
    return PlanDetails(task.method, facts, section=tuple(lines))


def question_details(task: KeptScoresTask) -> PlanDetails:
    """Which party sends scores to which, and how much noise they have."""
    senders: list[dict[str, Any]] = [
        {
            "party": each.owner,
            "weights": each.weights,
            "score_clip": each.score_clip,
            "blur": task.blur(each.owner),  # about the deviation that its blurred weights give to a score
            "noise_std": task.deviation(each.owner),  # of the noise on each score
        }
        for each in task.senders
    ]
    figures = ("score_clip", "blur", "noise_std")
    rows = [(s["party"], str(s["weights"]), *(f"{s[name]:.2g}" for name in figures)) for s in senders]
    lines = [
        f"SCORES of new people by kept weights, told to {task.active} alone",
        f"the kept weights of each party must belong to model {task.model}",
        *_table([("party", "weights", "scores within", "blur", "noise"), *rows]),
        "blur is what the noise on weights adds to a score, noise what is added to each; about the same people it is",
        "charged anew each time",
    ]
    facts = {"to": task.active, "model": task.model, "senders": senders}
    return PlanDetails(None, facts, section=tuple(lines))


def _steps(task: Exchange) -> str:
    steps = f", steps of {task.learning_rate:g}" if task.method == "gradient" else ""
    batches = "" if task.batches == 1 else f" of {task.batches} batches"
    return f"{task.epochs} epoch{'s' if task.epochs > 1 else ''}{batches}{steps}"


def _side(task: Exchange, side: ExchangeSide, agreement: float | None) -> dict[str, Any]:
    """What one party of an exchange is held to, and what is expected of it; ``None`` where there is no such figure.

    Fits in turns are not held to a ball of weights, and the party with the label sends slopes, not scores.
    ``noise_std`` is that of each number sent. ``agreement`` is the squared correlation of a party's scores with what
    its columns add, under a public guess.
    """
    active = side.owner == task.active
    return {
        "party": side.owner,
        "ridge": side.ridge,
        "weight_bound": None if active and task.method == "alternating" else side.weight_bound,
        "score_clip": None if active else side.score_clip,
        "noise_std": task.message_deviation(side.owner),
        "agreement": agreement,
    }


def outlook(task: Exchange) -> SampleSizeForecast:
    """How much of what the others' columns add is lost in noise, and with how many people it is half of it."""

    def lost(rows: int) -> float:
        return 1 - min(_agreement(task, rows).values())

    people = task.rows
    while lost(people) > ENOUGH_OF_A_PART and people < _MOST_PEOPLE:
        people *= 2
    while people > 1 and lost(people // 2) <= ENOUGH_OF_A_PART:
        people //= 2
    of = "what the other parties' columns add, as a share of it,"
    return SampleSizeForecast(
        of, ENOUGH_OF_A_PART, task.rows, lost(task.rows), two_digits(people) if people < _MOST_PEOPLE else None
    )


def _agreement(task: Exchange, rows: int | None = None) -> dict[str, float]:
    """What is expected of the others' scores, with as many people as the study says, or with others."""
    setting = GLMSetting(task.blocks, task.active, task.family, task.trust, rows or task.rows)
    return suggest(setting, task.multiplier, epochs=task.epochs, message_clip=task.message_clip).agreement


def _row(side: Mapping[str, Any], active: str) -> tuple[str, ...]:
    what = "slopes" if side["party"] == active else "scores"
    figures = (side[name] for name in ("noise_std", "ridge", "weight_bound", "score_clip", "agreement"))
    return (side["party"], what, *("-" if value is None else f"{value:.2g}" for value in figures))


def _table(lines: Sequence[Sequence[str]]) -> list[str]:
    wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [f"  {'  '.join(map(str.ljust, line, wide))}".rstrip() for line in lines]
