"""A model over noised messages, or scores by it, before anything runs: what follows from public figures."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.models.glm.guarantees import Guarantees
from colonnade.privacy import Statement
from colonnade.report.exchange import besides
from colonnade.study.figures import AskingPreflight, ExchangePreflight, SidePreflight

_HEADS = ("party", "sends", "noise", "ridge", "weights within", "scores within", "expected agreement")


def exchange(answer: ExchangePreflight) -> list[str]:
    """The parameters, each party's part, and every promise that the table of observers does not make."""
    slopes = f"slopes are clipped to {answer.message_clip:g} where they are received"
    steps = "" if answer.learning_rate is None else f", steps of {answer.learning_rate:g}"
    batches = "" if answer.batches == 1 else f" of {answer.batches} batches"
    epochs = f"{answer.epochs} epoch{'s' if answer.epochs > 1 else ''}{batches}"
    lines = [
        f"MODEL, family {answer.family}, over noised messages; the label is at {answer.active}",
        f"what the study leaves open follows from public figures: {epochs}{steps}; {slopes}",
        *_table([_HEADS, *(_side(side, answer.active) for side in answer.sides)]),
        "noise is its deviation on each number sent; agreement is the squared correlation of a party's scores with",
        "what its columns add, under a public guess of the signal: no promise, and no data was looked at",
        _weights(answer.release),
    ]
    return [*lines, "", *promised(answer.statement, answer.guarantees)]


def asking(answer: AskingPreflight) -> list[str]:
    """Who tells which scores to whom, and how noisy they are."""
    senders = [
        (each.party, str(each.weights), *(f"{value:.2g}" for value in (each.score_clip, each.blur, each.noise_std)))
        for each in answer.senders
    ]
    return [
        f"SCORES of new people by kept weights, told to {answer.to} alone",
        f"the kept weights of each party must belong to model {answer.model}",
        *_table([("party", "weights", "scores within", "blur", "noise"), *senders]),
        "blur is what the noise on weights adds to a score, noise what is added to each; about the same people it is",
        "charged anew each time",
    ]


def promised(statement: Statement, guarantees: Guarantees) -> list[str]:
    """What messages and kept weights tell, by what is seen."""
    return str(besides(statement, guarantees)).splitlines()


def _weights(release: bool) -> str:
    if release:
        return "in the end all weights are published with noise, which is charged besides"
    return "each party keeps its own weights, in its kept.json and nowhere else"


def _side(side: SidePreflight, active: str) -> tuple[str, ...]:
    what = "slopes" if side.party == active else "scores"
    figures = (side.noise_std, side.ridge, side.weight_bound, side.score_clip, side.agreement)
    return (side.party, what, *("-" if value is None else f"{value:.2g}" for value in figures))


def _table(lines: Sequence[Sequence[str]]) -> list[str]:
    wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [f"  {'  '.join(map(str.ljust, line, wide))}".rstrip() for line in lines]
