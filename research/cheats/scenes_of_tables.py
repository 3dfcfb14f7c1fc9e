"""The scene of marginals: the protocol in a small run, with the cells that it should open."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from colonnade.kinds.tables import programs as marginals
from colonnade.kinds.tables.programs import OwnMarginals
from colonnade.kinds.tables.task import CodedColumn, MarginalQuery, Marginals
from colonnade.privacy.observers import Inputs
from research.cheats.plays import ROWS, act_of, last_dealt, rows_dealt, trust_of
from research.cheats.scenes import Act, Scene


@lru_cache
def _marginals(size: int, threshold: int, active: bool, inputs: Inputs = "unproven") -> Act:
    trust = trust_of(size, threshold, active, inputs)
    coded = tuple(CodedColumn(owner, "c0", 3 if owner in ("o0", "o1") else 2) for owner in trust.owners)
    blocks = [(), *((column,) for column in range(size)), (0, 1), (1, 2), (0, 2), (0, 1, 2)]
    asked = tuple(MarginalQuery(columns, 1 + index % 3) for index, columns in enumerate(blocks))
    task = Marginals(coded, asked, trust, rows_at_most=100, noise=3 * size, label=0, block_rows=rows_dealt(trust))
    rng = np.random.default_rng(20)
    codes = {one.owner: rng.integers(0, one.size, (ROWS, 1)) for one in coded}
    exact = marginals.reference(codes, task)
    for owner in task.owners:
        own = OwnMarginals(task, owner)
        own.add(own.factors_of(codes[owner].astype(float)))
        exact = exact - own.entries()
    if len(task.parts) > 1:
        raise ValueError("a scene opens everything at once [VA002]")
    return act_of(marginals, task, codes, lambda deals, _: exact + last_dealt(deals, task.owners))


SCENES = (
    Scene("marginals", 2, _marginals, checked=Marginals.why_not_active is None, place=1),
    Scene("proven marginals", 2, partial(_marginals, inputs="proven"), proven=True, place=1),
)
"""By their names; ``depth`` counts products that stand one after the other."""
