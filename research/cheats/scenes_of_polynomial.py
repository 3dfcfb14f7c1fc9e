"""The scene of polynomial sums: the protocol in a small run, with the sums that it should open."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.polynomial.expressions import parse
from colonnade.kinds.polynomial.task import NamedColumns, Polynomials, freeze_terms
from research.cheats.plays import GAMMA, act_of, blocks_of, held_by, last_dealt, trust_of, whole
from research.cheats.scenes import Act, Scene


@lru_cache
def _polynomial(size: int, threshold: int, active: bool) -> Act:
    trust = trust_of(size, threshold, active)
    holdings = tuple(NamedColumns(block.owner, block.columns, 1.0, 1, (False,)) for block in blocks_of(trust))
    names = [f"{owner}.c0" for owner in trust.owners]
    asked = tuple(freeze_terms(parse(text, names)) for text in ("o0.c0 * o1.c0 * o2.c0", "o1.c0 * o2.c0"))
    task = Polynomials(holdings, trust, asked, gamma=GAMMA, rows_at_most=100, noise=4 * size)
    held = held_by(trust)
    exact = np.array(polynomial.reference(whole(held), task), dtype=object)
    return act_of(polynomial, task, held, lambda deals, _: exact + last_dealt(deals, task.owners))


SCENES = (Scene("polynomial", 2, _polynomial, checked=Polynomials.why_not_active is None, place=2),)
"""By its name; ``depth`` counts products that stand one after the other."""
