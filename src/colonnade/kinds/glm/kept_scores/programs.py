"""Scores of new people by weights that every party keeps; only the party with the label receives them.

Each other party blurs its own weights, makes the scores of its own columns with them, clips these, adds its own noise
on a grid and sends them. The active party adds its own scores, which it never sends.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from colonnade.errors import DataError
from colonnade.kinds.glm.kept_scores.answers import Answers, New, noised
from colonnade.kinds.glm.kept_scores.task import KeptScoresTask
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.rows import agree_on_rows, compare_rows
from colonnade.randomness import Stream

__all__ = ["Answers", "New", "coordinator", "owner", "simulate"]


def owner(me: Owner, new: New, task: KeptScoresTask) -> Answers | None:
    """An owner's program; it returns the scores at the active party and ``None`` at the others."""
    if new.rows.shape != (len(new.ids), len(new.weights)) or not np.isfinite(new.scores).all():
        raise DataError(f"{me.name} must have one finite score for each of its rows [DA126]")
    told = None
    if me.name != task.active:
        with me.meter.phase("noise"):
            told = noised(new, me.name, task, Stream.fresh())
    rows = agree_on_rows(me, task, new)
    me.progress("scores", 0, 1)
    if told is not None:
        me.tell((task.active,), "scores", told, event=task.score_event(me.name))
        me.progress("scores", 1, 1)
        return None
    received = {name: task.grid.real(me.receive_told(name, "scores", rows, task.bound)) for name in task.passives}
    me.progress("scores", 1, 1)
    return Answers(task, new, received)


def coordinator(me: Coordinator, task: KeptScoresTask) -> None:
    """The coordinator's program: it compares digests of ids."""
    compare_rows(me, task)


def simulate(new: Mapping[str, New], task: KeptScoresTask, stream: Stream) -> Answers:
    """What the active party would hold, computed in one place: the same rounding and noise.

    It is for evaluation on data that may be in one place; a study never calls it.
    """
    told = {name: task.grid.real(noised(new[name], name, task, stream)) for name in task.passives}
    return Answers(task, new[task.active], told)
