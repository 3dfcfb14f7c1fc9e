"""Second moments where participants may deviate: the same integers, and what deviates ends the study."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import ColonnadeError
from colonnade.mpc import Hand, Shares, vocabulary
from colonnade.protocols import roles
from colonnade.protocols.moments import programs as moments, task as task_module
from colonnade.protocols.roles import COORDINATOR
from colonnade.received import received
from tests.support import protocols as kit
from tests.support.protocols import active, integers, moments_task, tables_of

execute = partial(kit.execute, moments)


@settings(max_examples=20, deadline=None)
@given(
    seating=st.sampled_from(kit.SEATINGS),
    rows=st.integers(1, 40),
    block=st.integers(1, 50),
    window=st.integers(1, 3),
    inputs=st.sampled_from(["unproven", "covert", "proven"]),
    seed=st.integers(0, 2**31),
)
def test_the_checked_sums_equal_the_plaintext_reference_exactly(seating, rows, block, window, inputs, seed):
    owners, seats, threshold = seating
    task = active(moments_task([1 + i % 3 for i in range(owners)], seats, threshold, block_rows=block), inputs=inputs)
    tables = tables_of(task, rows, seed)
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        kit.nearest(patch)
        patch.setattr(task_module.Moments, "blocks_per_window", property(lambda self: window))
        results = execute(task, tables)
    want = moments.reference(integers(task, tables), task)
    assert set(results) == {*task.owners, COORDINATOR}
    for result in results.values():
        assert np.array_equal(result.opened, want)


@pytest.mark.parametrize("law", kit.LAWS)
def test_all_laws_of_noise_are_opened_after_the_checks(law, exact):
    task = active(kit.grouped_moments_task(law=law))
    rng = np.random.default_rng(3)
    tables = {owner: kit.grouped_rows(rng, 30) for owner in task.owners}
    opened = execute(task, tables)[COORDINATOR].opened
    assert np.array_equal(opened, moments.reference(integers(task, tables), task))


class DealsNoiseLate(Hand):
    """It deals its noise to the last seat only when another one has opened, so that it would choose the result."""

    entries = 0

    def deal(self, values, *, degree=None):
        if self.name != "o0" or values.shape != (self.entries,):
            return super().deal(values, degree=degree)
        self.drawn = self.system.uniform(values.shape, self.common.pair_stream("o0", "o1"))
        return Shares(np.zeros_like(self.drawn), 1)

    def send_opening(self, shares, to):
        if self.name == "o0" and hasattr(self, "drawn"):
            received(self.links["o1"], "o1", vocabulary.opening(shares.shape, len(self.system.primes)))
            raise AssertionError("it has seen the release before it dealt its noise")
        super().send_opening(shares, to)


def test_nobody_sees_the_release_before_it_has_dealt_its_noise(monkeypatch):
    task = active(moments_task())
    monkeypatch.setattr(DealsNoiseLate, "entries", task.entries)
    monkeypatch.setattr(roles, "Hand", DealsNoiseLate)
    with pytest.raises((ColonnadeError, ExceptionGroup)) as caught:
        execute(task, tables_of(task, 30, 1))
    assert "it has seen the release" not in str(caught.value)
