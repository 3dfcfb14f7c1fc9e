"""Whether a model was allowed more epsilon than can be certified or told, so that it has more noise than was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from colonnade.privacy import Statement, views
from colonnade.privacy.accountant import ceiling
from colonnade.privacy.noise.response import MOST_EPSILON
from colonnade.privacy.releases import RandomisedResponse
from colonnade.privacy.statement import rounded_up


def with_ceiling(found: Statement, epsilon: object) -> Statement:
    """The statement, with a sentence more where a ceiling and not the budget decided."""
    said = _limited(found, epsilon)
    return replace(found, assumptions=(*found.assumptions, said)) if said else found


def ceiling_of(found: Statement, epsilon: object) -> str:
    """That sentence of a statement; empty where there is none."""
    said = _limited(found, epsilon)
    return said if said in found.assumptions else ""


def _limited(found: Statement, epsilon: object) -> str:
    allowed = max(epsilon.values(), default=0.0) if isinstance(epsilon, Mapping) else epsilon
    finite = [row for row in found.rows if 0 < row.epsilon < float("inf")]
    if not isinstance(allowed, int | float) or allowed <= MOST_EPSILON or not finite:
        return ""
    most = max(finite, key=lambda row: row.epsilon)
    if most.epsilon >= allowed:
        return ""
    why = ""
    answers = [event for event in found.events if isinstance(event, RandomisedResponse)]
    if answers and max(float(answer.epsilon) for answer in answers) > MOST_EPSILON - 0.01:
        why = f"randomised response answers with epsilon {MOST_EPSILON} at most"
    limit = ceiling(views(found.events, most.observer, found.trust), found.delta)
    if limit < allowed:
        why = f"no epsilon above {limit:.1f} can be certified at delta {found.delta:g}"
    return f"epsilon {rounded_up(most.epsilon)} is used of {allowed:g} allowed: {why}" if why else ""
