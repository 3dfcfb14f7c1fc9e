"""Shadow models: models of the same kind and with the same noise, fitted to other draws of the same people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.attacks.membership import Flags, Shadows, check_inside
from colonnade.audit.attacks.odds import confidence
from colonnade.audit.attacks.views import See, views_of
from colonnade.errors import DataError, StudyError
from colonnade.models.base import Estimator
from colonnade.models.roster import Roster
from colonnade.protocols.roles import Progress, silent
from colonnade.randomness import Stream
from colonnade.tables import Table

Array = NDArray[np.float64]
Places = NDArray[np.int64]


def drawn(people: int, size: int, models: int, draw: np.random.Generator) -> Flags:
    """Who is inside each model: ``size`` of the people, everybody nearly equally often.

    Whoever was inside least often comes first, by lot. So with twice as many people as a model has, who is in one is
    not in the next.
    """
    if not 0 < size < people:
        raise DataError(
            "a membership attack needs people who were not among the members, to fit models without each member [DA021]"
        )
    inside = np.zeros((models, people), dtype=np.bool_)
    often = np.zeros(people)
    for model in inside:
        chosen = np.argsort(often + draw.random(people))[:size]
        model[chosen] = True
        often[chosen] += 1
    return inside


def shadow_models(fit: Callable[[Places], Array], inside: Flags, progress: Progress = silent) -> Shadows:
    """What models show of everybody; ``fit`` gets the places of the people inside, and answers with what it sees.

    Whether there are models enough for an attack is found out before the first is fitted.
    """
    check_inside(inside)
    seen = []
    for number, model in enumerate(inside):
        progress("shadows", number, len(inside))
        seen.append(fit(np.flatnonzero(model)))
    progress("shadows", len(inside), len(inside))
    return Shadows(np.stack(seen), inside)


def shadows_of(
    model: Estimator,
    pool: Mapping[str, Table],
    size: int,
    models: int,
    *,
    seed: int,
    see: See = confidence,
    progress: Progress = silent,
    stream: Stream | None = None,
) -> Shadows:
    """Shadow models of a fitted model, each simulated with ``size`` people of the pool, and what they show of all.

    The rows of the pool's tables must be the same people in the same order. ``seed`` says who is in which model; noise
    comes from ``stream``, a fresh one unless it is given.
    """
    roster = Roster(dict(model.schemas_), model.privacy_.trust)
    task, noise = planned(model, roster), stream or Stream.fresh()
    draw = np.random.default_rng(seed)
    inside = drawn(next(iter(pool.values())).rows, size, models, draw)

    def fit(places: Places) -> Array:
        order = draw.permutation(places)  # batches may follow the order, which must not tell who was left out
        some = {party: table.take_rows(order) for party, table in pool.items()}
        return see(views_of(model).fresh(model).simulate(some, roster, noise, task=task), pool)

    return shadow_models(fit, inside, progress)


def planned(model: Estimator, roster: Roster) -> Any:
    """The task of a model, planned once for all; ``None`` where it depends on the number of rows of a table."""
    try:
        return views_of(model).fresh(model).plan(roster)
    except StudyError:
        return None  # a model that really cannot be planned says so when it is simulated
