"""The scene of scores: the protocol in a small run, with the sums that it should open."""

from __future__ import annotations

from functools import lru_cache

from colonnade.kinds.prediction import programs as scores
from colonnade.kinds.prediction.task import ScorePart, Scores
from research.cheats.deviation import Dealt
from research.cheats.plays import GAMMA, act_of, held_by, last_dealt, trust_of
from research.cheats.scenes import Act, Scene


@lru_cache
def _scores(size: int, threshold: int, active: bool) -> Act:
    trust = trust_of(size, threshold, active)
    parts = tuple(ScorePart(owner, (-2 * GAMMA,), (2 * GAMMA,)) for owner in trust.owners)
    task = Scores(parts, trust, to="o1", gamma=GAMMA, rows_at_most=100)
    held = held_by(trust)
    ids = Dealt(held["o0"]).ids
    tables = {owner: scores.OwnScoreParts(ids, values) for owner, values in held.items()}
    return act_of(
        scores, task, tables, lambda deals, _: last_dealt(deals, task.dealers), lambda result: result.others.reshape(-1)
    )


SCENES = (Scene("scores", 0, _scores, checked=Scores.why_not_active is None, place=5),)
"""By its name; ``depth`` counts products that stand one after the other."""
