"""Scores of people whose columns are held by several parties; only one party learns them.

Every owner computes its part of each person's scores from its own columns and the public weights. All but the
entitled party round their parts to a grid, add their share of the noise (if any) and deal them to the
committee, which adds up what it holds and opens the sum to the entitled party alone. That party adds its own part
in the clear, so nothing about its columns is sent.

In active mode the seats check that what was dealt lies on polynomials, and a seat that sends a wrong share is found.
That a part is within the bounds that its owner agreed to is not proven: a part beyond them changes the sum by as much,
and tells nobody anything about the parts of others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.kinds.prediction.scores.integers import noise_share, quantise
from colonnade.kinds.prediction.scores.task import Scores
from colonnade.mpc import Shares
from colonnade.protocols.roles import Coordinator, Owner, Role
from colonnade.protocols.rows import KnownPeople, agree_on_rows, compare_rows
from colonnade.randomness import Stream


@dataclass(frozen=True)
class Parts(KnownPeople):
    """One owner's parts of the scores: for each of the common ids, one number per class."""

    ids: Sequence[str]
    values: NDArray[np.float64]
    own_ids: Sequence[str] | None = None


@dataclass(frozen=True)
class OpenedScores:
    """What the entitled party has in the end: the opened sum of the others, and its own part, with its own ids."""

    task: Scores
    ids: tuple[str, ...]
    others: NDArray[np.int64]
    own: NDArray[np.float64]

    @property
    def scores(self) -> NDArray[np.float64]:
        """The scores in the units of the model, without its intercept."""
        total: NDArray[np.float64] = self.own + self.others / float(self.task.gamma)
        return total


def owner(me: Owner, parts: Parts, task: Scores) -> OpenedScores | None:
    """An owner's program; it returns the scores at the entitled party and ``None`` at the others."""
    if parts.values.shape != (len(parts.ids), task.classes):
        raise DataError(f"the scores of {me.name} must have {task.classes} numbers for each of its rows [DA132]")
    whole = None
    if me.name in task.dealers:
        with me.meter.phase("encode"):
            whole = quantise(parts.values, task, me.name)
        with me.meter.phase("noise"):
            whole += noise_share(task, len(whole), Stream.fresh())
    rows = agree_on_rows(me, task, parts)
    mine = None
    if whole is not None:
        with me.meter.phase("deal"):
            mine = me.hand.deal(whole)
    opened = _open(me, rows, mine, task)
    return None if opened is None else OpenedScores(task, parts.called, opened, parts.values)


def coordinator(me: Coordinator, task: Scores) -> None:
    """The coordinator's program: it compares digests of ids and, with two owners, keeps the third seat."""
    _open(me, compare_rows(me, task), None, task)


def reference(parts: Mapping[str, NDArray[np.float64]], task: Scores) -> NDArray[np.int64]:
    """The same integers in the clear, before noise."""
    whole = [quantise(parts[name], task, name).astype(object) for name in task.dealers]
    return np.array(sum(whole[1:], start=whole[0]), dtype=np.int64)


def simulate(parts: Mapping[str, Parts], task: Scores, stream: Stream) -> OpenedScores:
    """What the entitled party would hold, computed in one place: the same rounding, integers and noise.

    It is for evaluation on data that may be in one place; a study never calls it.
    """
    own = parts[task.to]
    opened = reference({name: parts[name].values for name in task.dealers}, task)
    for _ in task.dealers:
        opened += noise_share(task, len(opened), stream)
    return OpenedScores(task, own.called, opened, own.values)


def _open(me: Role, rows: int, mine: Shares | None, task: Scores) -> NDArray[np.int64] | None:
    shape, total = (rows, task.classes), None
    if me.hand.seated:
        with me.meter.phase("receive"):
            total = me.hand.add([me.dealt_by(name, shape, mine) for name in task.dealers])
            if me.hand.active:
                me.hand.claims.settle()  # what was dealt lies on polynomials
    me.progress("open", 0, 1)
    with me.meter.phase("open"):
        opened = me.reveal(
            total, to=(task.to,), event=task.event, shape=shape, bound=task.bound, degree=task.trust.threshold
        )
    me.progress("open", 1, 1)
    return None if opened is None else opened.astype(np.int64)
