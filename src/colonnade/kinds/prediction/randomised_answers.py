"""Levels of the scores of new people, told to one party: each other party answers once for each person, at random.

Every owner that is asked cuts its own part of a score at public places, keeps the level or replaces it by another one
as randomised response says, and tells the answer to the entitled party. That party sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.kinds.prediction.programs import OwnScoreParts
from colonnade.kinds.prediction.score_posterior import Integers, ScorePosterior, update_by_levels
from colonnade.kinds.prediction.task import QuantisedAnswers, Respondent
from colonnade.message_schema import ArrayForm, MessageSchema, receive_message
from colonnade.privacy.noise.local_mechanisms import randomised_response
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.rows import agree_on_rows, compare_rows
from colonnade.randomness import Stream


@dataclass(frozen=True)
class ReceivedAnswers:
    """What the entitled party has in the end: each asked party's answers, and its own part, with its own ids."""

    task: QuantisedAnswers
    ids: tuple[str, ...]
    levels: Mapping[str, Integers]
    own: NDArray[np.float64]

    def posterior(self, before: Mapping[str, ScorePosterior]) -> ScorePosterior:
        """What is believed of the others' parts together, after it was believed of each before."""
        found = dict(before)
        for each in self.task.asked:
            cuts = (np.array(each.cuts) - 0.5) / float(self.task.gamma)
            levels, odds = self.levels[each.owner], float(self.task.odds)
            found[each.owner] = update_by_levels(before[each.owner], self.own, levels, cuts, odds)
        return reduce(ScorePosterior.plus, found.values())


def levels_message(asked: Respondent, rows: int) -> MessageSchema:
    """One party's answers: a level for each person."""
    return MessageSchema("levels", values=ArrayForm(np.int64, (rows,), 0, asked.levels - 1))


def owner(me: Owner, parts: OwnScoreParts, task: QuantisedAnswers) -> ReceivedAnswers | None:
    """An owner's program; it returns the answers at the entitled party and ``None`` at the others."""
    check_finite(me, parts)
    asked, told = task.part(me.name), None
    if asked is not None:
        with me.meter.phase("noise"):
            told = answer_at_random(parts.values[:, 0], asked, task, Stream.fresh())
    rows = agree_on_rows(me, task, parts)
    me.progress("levels", 0, 1)
    if asked is not None and told is not None:
        tell_levels(me, asked, told, task)
    found = None
    if me.name == task.to:
        with me.meter.phase("receive"):
            heard = {each.owner: receive_levels(me, each, rows) for each in task.asked}
        found = ReceivedAnswers(task, parts.called, heard, parts.values)
    me.progress("levels", 1, 1)
    return found


def tell_levels(me: Owner, asked: Respondent, told: Integers, task: QuantisedAnswers) -> None:
    """Tell the entitled party the answers of this owner, one a person."""
    me.tell((task.to,), "levels", told, event=task.event_of(asked))


def receive_levels(me: Owner, asked: Respondent, rows: int) -> Integers:
    """What one of those who are asked told of so many people."""
    values: Integers = receive_message(me.link(asked.owner), asked.owner, levels_message(asked, rows))["values"]
    return values


def check_finite(me: Owner, parts: OwnScoreParts) -> None:
    """Refuse parts that are no numbers, which have no level."""
    if parts.values.shape != (len(parts.ids), 1) or not np.isfinite(parts.values).all():
        raise DataError(f"{me.name} must have one finite score for each of its rows [DA127]")


def coordinator(me: Coordinator, task: QuantisedAnswers) -> None:
    """The coordinator's program: it compares digests of ids."""
    compare_rows(me, task)


def reference(values: NDArray[np.float64], asked: Respondent, task: QuantisedAnswers) -> Integers:
    """The true levels of a part: how many cuts each value reaches, after it was rounded to the grid."""
    whole = np.rint(values * float(task.gamma))
    return np.searchsorted(np.array(asked.cuts, dtype=np.float64), whole, side="right").astype(np.int64)


def answer_at_random(
    values: NDArray[np.float64], asked: Respondent, task: QuantisedAnswers, stream: Stream
) -> Integers:
    """One owner's message: its levels by randomised response."""
    return randomised_response(reference(values, asked, task), asked.levels, task.odds, stream)


def simulate(parts: Mapping[str, OwnScoreParts], task: QuantisedAnswers, stream: Stream) -> ReceivedAnswers:
    """What the entitled party would hold, computed in one place: the same levels and the same law of answers.

    It is for evaluation on data that may be in one place; a study never calls it.
    """
    own = parts[task.to]
    heard = {each.owner: answer_at_random(parts[each.owner].values[:, 0], each, task, stream) for each in task.asked}
    return ReceivedAnswers(task, own.called, heard, own.values)
