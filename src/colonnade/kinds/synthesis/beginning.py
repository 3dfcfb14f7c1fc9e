"""Where a mixture may begin: a part of the price buys marginals, and the rounds start from what is fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.synthesis import mixing
from colonnade.kinds.synthesis.fit import COMPONENTS, fit
from colonnade.kinds.synthesis.mixture.learners import Learner
from colonnade.kinds.synthesis.mixture.started import Begin, Make, StartedMixture
from colonnade.kinds.synthesis.mixture.starting import start_from
from colonnade.kinds.synthesis.mixture.task import Mixture
from colonnade.kinds.tables import queries
from colonnade.kinds.tables.layout import Binning, TableLayout
from colonnade.kinds.tables.release import MarginalsRelease, NoisyMarginals
from colonnade.kinds.tables.task import Marginals
from colonnade.models.planner import PlanDetails, Roster

Start = Literal["none", "marginals"]
SHARE = Fraction(1, 4)
"""What the marginals take of the price: alone they would have about half of epsilon."""


def draft(
    settings: mixing.Settings, layout: TableLayout, roster: Roster, *, label: str | None, focus: Sequence[Sequence[str]]
) -> StartedMixture:
    """The task, before its noise is set."""
    second = mixing.draft(settings, roster)
    first = queries.draft(layout, roster, label=label, focus=focus, law=settings.law, rows_at_most=second.rows_limit)
    if not isinstance(first, Marginals):
        raise StudyError("a mixture starts from marginals in one release; leave even_bins out [ST343]")
    return StartedMixture(first, second, mixing.model_of(second).width, SHARE, second.noise)


def ways(task: StartedMixture, bins: Binning | None) -> tuple[Begin, Make[Learner]]:
    """How the start follows from the marginals, and the learner of the rounds from the start."""
    second = task.stages[1]
    layout = TableLayout.of(mixing.schemas_of(second), bins)
    return partial(start_of, second, layout), partial(mixing.learner_of, second)


def start_of(task: Mixture, layout: TableLayout, published: NoisyMarginals) -> NDArray[np.float64]:
    """The parameters of a mixture that is close to what the marginals say; of nothing else."""
    release = MarginalsRelease.of(published)
    found = fit(layout.sizes, release.count, release.parts, components=max(COMPONENTS, task.components))
    tables = [np.ones((len(found.weights), 1)) for _ in layout.columns]  # columns with one code were not asked about
    for place, table in zip(layout.free, found.tables, strict=True):
        tables[place] = table
    return start_from(mixing.model_of(task), found.weights, tables, layout.columns)


def details(task: StartedMixture) -> PlanDetails:
    """What is released before the rounds, and how many there are."""
    rounds, counts = mixing.details(task.second), queries.details(task.first)
    before = f"first, {counts.brief[0]}; the rounds start from a fit to them"
    return PlanDetails("mixture", {**rounds.facts, "start": dict(counts.facts)}, brief=(before, *rounds.brief))
