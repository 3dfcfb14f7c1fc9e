"""What a pre-flight says about models over messages with noise, and about scores by them: figures and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from colonnade.kinds.glm.exchange.bounds import Side
from colonnade.kinds.glm.exchange.task import Exchange
from colonnade.kinds.glm.guarantees import Guarantees
from colonnade.kinds.glm.plan import multiplier
from colonnade.kinds.glm.tuning import suggest
from colonnade.models.outlook import ENOUGH_OF_A_PART, Outlook, two_digits
from colonnade.models.planner import Details
from colonnade.privacy import Statement

if TYPE_CHECKING:
    from colonnade.kinds.glm.kept_scores.task import KeptScoresTask

_MOST_PEOPLE = 2**34
_HEADS = ("party", "sends", "noise", "ridge", "weights within", "scores within", "expected agreement")


def messages(task: Exchange, statement: Statement, *, guessed: bool) -> Details:
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
        *_table([_HEADS, *(_row(side, task.active) for side in sides)]),
        "noise is its deviation on each number sent; agreement is the squared correlation of a party's scores with",
        "what its columns add, under a public guess of the signal: no promise, and no data was looked at",
        "in the end all weights are published with noise, which is charged besides"
        if task.release
        else "each party keeps its own weights, in its kept.json and nowhere else",
        "",
        *str(guarantees.besides(statement)).splitlines(),
    ]
    return Details(task.method, facts, section=tuple(lines))


def scores(task: KeptScoresTask) -> Details:
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
    return Details(None, facts, section=tuple(lines))


def _steps(task: Exchange) -> str:
    steps = f", steps of {task.learning_rate:g}" if task.method == "gradient" else ""
    batches = "" if task.batches == 1 else f" of {task.batches} batches"
    return f"{task.epochs} epoch{'s' if task.epochs > 1 else ''}{batches}{steps}"


def _side(task: Exchange, side: Side, agreement: float | None) -> dict[str, Any]:
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


def outlook(task: Exchange) -> Outlook:
    """How much of what the others' columns add is lost in noise, and with how many people it is half of it."""

    def lost(rows: int) -> float:
        return 1 - min(_agreement(task, rows).values())

    people = task.rows
    while lost(people) > ENOUGH_OF_A_PART and people < _MOST_PEOPLE:
        people *= 2
    while people > 1 and lost(people // 2) <= ENOUGH_OF_A_PART:
        people //= 2
    of = "what the other parties' columns add, as a share of it,"
    return Outlook(
        of, ENOUGH_OF_A_PART, task.rows, lost(task.rows), two_digits(people) if people < _MOST_PEOPLE else None
    )


def _agreement(task: Exchange, rows: int | None = None) -> dict[str, float]:
    """What is expected of the others' scores, with as many people as the study says, or with others."""
    found = suggest(
        task.blocks,
        task.active,
        task.family,
        rows or task.rows,
        multiplier(task),
        intercept=task.intercept,
        epochs=task.epochs,
        message_clip=task.message_clip,
    )
    return found.agreement


def _row(side: Mapping[str, Any], active: str) -> tuple[str, ...]:
    what = "slopes" if side["party"] == active else "scores"
    figures = (side[name] for name in ("noise_std", "ridge", "weight_bound", "score_clip", "agreement"))
    return (side["party"], what, *("-" if value is None else f"{value:.2g}" for value in figures))


def _table(lines: Sequence[Sequence[str]]) -> list[str]:
    wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [f"  {'  '.join(map(str.ljust, line, wide))}".rstrip() for line in lines]
