"""Fitting a mixture on shares: every round equals its reference within the stated units, and its noise is paid for."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.protocols.batches import batches
from colonnade.protocols.mixture import programs
from colonnade.protocols.mixture.responsibilities import error
from colonnade.protocols.roles import COORDINATOR

from .. import kit
from . import learners
from .learners import Flags, dealt_in, flags, mixture_task

execute = partial(kit.execute, learners)
KEY = bytes(range(32))


def apart(task, dealt):
    """By how much each opened integer may differ from the reference: responsibilities times vectors."""
    units = error([dealt[name][0] for name in task.owners], task.precision)
    counts = (units.sum(axis=0) * 2**task.vector_bits)[:, None]
    how = "nk,nq->kq" if task.vectors == "statistics" else "nk,nkq->kq"
    return np.hstack([counts, *(np.einsum(how, units, np.abs(dealt[name][1])) for name in task.owners)]).reshape(-1)


shapes = st.sampled_from(
    [
        ((2, 3), None, 1, {}),
        ((2, 3), None, 1, {"vectors": "derivatives"}),
        ((2, 3), None, 1, {"vectors": "linear"}),
        ((1, 2, 1, 1, 2), None, 2, {"vectors": "linear", "sampling": "disjoint"}),
        ((2, 3, 1), None, 1, {"components": 7}),
        ((2, 3, 1), None, 1, {"vectors": "derivatives", "sampling": "disjoint", "rounds": 5}),
        ((1, 2, 1, 2), None, 1, {"sampling": "all", "block_rows": 64}),
        ((1, 2, 1, 1, 2), None, 2, {"components": 3}),
        ((1, 1, 2, 1), ("o3", "o1", COORDINATOR), 1, {"fraction": 20, "bits": 16}),
        ((1,) * 9, ("o0", "o1", "o2", "o3", "o4"), 2, {"vectors": "derivatives", "rounds": 2}),
    ]
)


@settings(max_examples=12, deadline=None)
@given(shape=shapes, rows=st.integers(1, 100), seed=st.integers(0, 2**31))
def test_every_round_equals_its_reference_within_the_stated_units(shape, rows, seed):
    widths, seats, threshold, changes = shape
    task = mixture_task(widths, seats, threshold, **changes)
    tables = flags(task, rows, seed)
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        patch.setattr(programs, "new_key", lambda: KEY)
        found = execute(task, tables)
    ids = kit.Rows(tables["o0"]).ids
    drawn = programs.batch_secret(task, KEY, ids)
    for name in task.hearers:
        learner = Flags(task)
        assert len(found[name].seen) == task.rounds
        for batch, state, sums in zip(batches(task, rows, drawn), found[name].states, found[name].seen, strict=True):
            learner.restore(state)
            dealt = dealt_in(task, learner, tables, batch)
            difference = np.abs(sums.reshape(-1) * task.gamma - programs.reference(dealt, task))
            assert (difference <= apart(task, dealt)).all()
    assert set(found) == set(task.everyone)
    assert all(np.array_equal(found[name].state, found["o0"].state) for name in found)
