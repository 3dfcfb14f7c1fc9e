"""Noise chosen party by party, from what published second moments tell about each party's columns alone.

The question is about people whose columns with the other parties are known to everybody: one person's columns with
this party are replaced, and whoever sees the published result must not notice it. This costs less than what is promised
about a whole person, because fewer columns change (docs/theory/functional-sensitivity.md, moments-sensitivity.md). If
members are hidden it costs the same: a party's record decides whether a row counts (docs/theory/hidden-members.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil

from colonnade.errors import StudyError
from colonnade.privacy import Budget, Event, least_noise
from colonnade.privacy.observers import check_epsilon
from colonnade.protocols.moments.task import Moments, column_events
from colonnade.protocols.roles import COORDINATOR


def with_own_budgets(draft: Moments, epsilons: Mapping[str, float], delta: float) -> Moments:
    """The task with the least noise under which no party's columns cost more than the epsilon it names.

    With Laplace noise each party gets its own scale, and an entry of two parties the larger of theirs. With the other
    laws, and with hidden members, where each record changes all entries, all entries have the same noise.
    """
    if set(epsilons) != set(draft.owners):
        raise StudyError(
            "every party names an epsilon about its own columns, and nobody else does: "
            f"{', '.join(draft.owners)} [ST504]"
        )
    for value in epsilons.values():
        check_epsilon(value)
    if draft.laplace:
        scales = tuple(_least_scale(draft, owner, epsilons[owner]) for owner in draft.owners)
        return replace(draft, noise=max(scales), own_noise=() if draft.hidden else scales)
    noise = max(_least_noise(draft, owner, Budget(COORDINATOR, epsilons[owner], delta)) for owner in draft.owners)
    return replace(draft, noise=noise)


def _least_scale(draft: Moments, owner: str, allowed: float) -> int:
    """Everything that a party's columns move gets noise of at least this scale, so epsilon is their L1 over it."""
    return max(1, ceil(draft.limits.changed_l1([owner]) / Fraction(allowed)))


def _least_noise(draft: Moments, owner: str, budget: Budget) -> int:
    def events(noise: int) -> Sequence[Event]:
        return column_events(replace(draft, noise=noise), owner)

    return least_noise(events, draft.trust, [budget], owners=draft.additive.parts)
