"""From a public model to what is asked of the others, and from what is heard to what is believed of a person."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from colonnade.kinds.prediction.beliefs import PUBLISHED, Belief, Law, guessed
from colonnade.kinds.prediction.levels.choice import best as best_cuts
from colonnade.kinds.prediction.levels.programs import Answered
from colonnade.kinds.prediction.levels.task import Levels, Respondent
from colonnade.kinds.prediction.scores.programs import OpenedScores
from colonnade.kinds.prediction.scores.task import Scores
from colonnade.models.scorer import Scorer, features
from colonnade.privacy import Budget, Trust
from colonnade.privacy.calibrate import with_least_noise

_MOST_ASKED = 6
_PURE = 1e-30  # answers need no delta, and so small a one buys none


@dataclass(frozen=True)
class Heard:
    """What the entitled party has in the end: what was opened or told, and what its own columns foretell of it."""

    told: OpenedScores | Answered
    foreseen: Mapping[str, Belief]


def law_of(scorer: Scorer, party: str) -> Law:
    """The public law of a party's part of the scores: as published with the model, or as its columns suggest."""
    published = (getattr(scorer, "parts_", None) or {}).get(party)
    if published is not None:
        return Law(np.array([published.mean]), np.array([published.variance]), PUBLISHED)
    used, coef = features(scorer, party), np.atleast_2d(scorer.coef_)
    columns = {name: scorer.schemas_[party].columns[name] for name in used}
    place = {name: index for index, name in enumerate(scorer.feature_names_in_)}
    names = [f"{name}{part}" for name, column in columns.items() for part in column.parts]
    return guessed(columns, {name: coef[:, place[f"{party}.{name}"]] for name in names}, len(coef))


def chosen_levels(draft: Scores, laws: Mapping[str, Law], budgets: Sequence[Budget]) -> Levels | None:
    """Who answers with which levels, so that least is expected to stay unknown; ``None`` where nobody can.

    Answers about a person share epsilon, so it may be better to ask only those whose parts vary most.
    """
    if draft.classes > 1:
        return None
    spreads = {name: float(law.variance[0]) for name, law in laws.items() if law.variance[0] > 0}
    order = sorted(spreads, key=lambda name: -spreads[name])
    pure = [replace(budget, delta=_PURE) for budget in budgets]
    trust, best, least = Trust(draft.owners, (), 0), None, math.inf
    for count in range(1, min(len(order), _MOST_ASKED) + 1):
        who = [name for name in draft.dealers if name in order[:count]]
        asked = tuple(Respondent(name, (0,)) for name in who)
        rough = Levels(trust, draft.to, asked, draft.gamma, draft.rows_at_most, names=draft.names, model=draft.model)
        priced = with_least_noise(rough.with_noise, trust, pure, owners=1)
        cut = best_cuts(math.log(priced.odds))
        asked = tuple(
            Respondent(
                name,
                cut.whole(float(laws[name].mean[0]), math.sqrt(spreads[name]), draft.gamma),
                spreads[name] * (1 - cut.heard),
            )
            for name in who
        )
        left = sum(each.left for each in asked) + sum(spreads[name] for name in order[count:])
        if left < least:
            best, least = replace(priced, asked=asked), left
    return best
