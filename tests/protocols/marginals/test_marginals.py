"""All marginals in one release: the secure integers are those of the definition, whoever holds what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from colonnade.protocols.marginals import programs as marginals
from colonnade.protocols.roles import COORDINATOR

from .. import kit
from ..kit import codes_of, marginals_task as make_task


def without_noise(task, tables, **how):
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        return kit.execute(marginals, task, tables, **how)


@st.composite
def tasks(draw):
    """Some blocks of the columns of some owners, on a committee, with a label anywhere or nowhere."""
    owners, seats, threshold = draw(st.sampled_from(kit.SEATINGS))
    most = 3 if owners < 5 else 2
    sizes = [draw(st.lists(st.integers(2, 5), min_size=0, max_size=most)) for _ in range(owners)]
    if not any(sizes):
        sizes[-1] = [3]
    columns = sum(map(len, sizes))
    label = draw(st.none() | st.integers(0, columns - 1))
    task = make_task(sizes, seats, threshold, label, block_rows=draw(st.integers(1, 30)))
    chosen = draw(st.sets(st.integers(0, len(task.asked) - 1), min_size=1))
    return replace(task, asked=tuple(task.asked[place] for place in sorted(chosen))) if draw(st.booleans()) else task


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(task=tasks(), rows=st.integers(1, 40), seed=st.integers(0, 999))
def test_the_secure_sums_equal_the_plaintext_reference_exactly(task, rows, seed):
    tables = codes_of(task, rows, seed)
    results = without_noise(task, tables)
    want = marginals.reference(tables, task)
    assert set(results) == {*task.owners, COORDINATOR}
    for result in results.values():
        assert np.array_equal(result.opened, want)


def by_definition(task, tables):
    """Sum over people of the tensor product of their coordinates, person by person."""
    joint = np.hstack([tables[owner] for owner in task.owners])
    found = []
    for block in task.asked:
        total = 0
        for row in joint:
            cell = np.array(block.weight)
            for column in block.columns:
                own = task.sizes[column] * np.eye(task.sizes[column], dtype=int)[row[column]] - 1
                cell = np.multiply.outer(cell, own[:1] if len(own) == 2 else own)
            total = total + cell
        found.append(np.asarray(total).reshape(-1))
    return np.concatenate(found)


def test_the_reference_is_the_definition():
    task = make_task(label=3)
    tables = codes_of(task, 23, 1)
    assert np.array_equal(marginals.reference(tables, task), by_definition(task, tables))
