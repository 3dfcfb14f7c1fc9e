"""Formulas by which tasks make events, each against a value that is found by other means."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from colonnade.privacy import DiscreteGaussianRelease, Repeated
from colonnade.privacy.events import innermost
from colonnade.protocols.messages import told_event
from colonnade.protocols.on_shares import OnShares
from tests.support.protocols import active, directions_task, gradients_task, marginals_task, moments_task


@pytest.mark.parametrize(("numbers", "square"), [(1, 1), (3, 7), (10, 4), (1000, 10**12)])
def test_a_told_event_has_the_sensitivity_and_noise_it_is_given(numbers: int, square: int) -> None:
    event = told_event("scores of bank", "bank", numbers, square, 17, "exchange-sensitivity", ("shop",))
    assert isinstance(event, DiscreteGaussianRelease)
    assert event.shares == (("bank", Fraction(17)),)
    assert (event.audience, event.about, event.theorem) == (("shop",), ("bank",), "exchange-sensitivity")
    assert event.l2_squared == event.replace_l2_squared == square
    # The longest integer vector of this length: l1 is at most its square, and at most sqrt(numbers) times its length.
    assert event.l1 == event.replace_l1 == min(square, math.isqrt(numbers * square))


def _lost_in_all(task: OnShares) -> float:
    (event,) = task.events
    times = event.times if isinstance(event, Repeated) else 1
    return times * float(getattr(innermost(event), "lost", 0.0))


TASKS = {
    "moments": moments_task,
    "directions": directions_task,
    "batches": gradients_task,
    "disjoint batches": partial(gradients_task, sampling="disjoint"),
    "marginals": marginals_task,
}


@pytest.mark.parametrize("inputs", ["covert", "proven"])
@pytest.mark.parametrize("name", TASKS)
def test_proofs_of_bounds_are_charged_once_for_a_study(name: str, inputs: str) -> None:
    make: Any = TASKS[name]
    assert _lost_in_all(active(make())) == 0
    task = active(make(), inputs=inputs)
    # Section 10 of docs/theory/active-security.md: below 2^-38 an owner, once in a study.
    assert task.shown_by_proofs == Fraction(len(task.owners), 2**38)
    assert _lost_in_all(task) == pytest.approx(len(task.owners) / 2**38, rel=1e-12)
    assert Fraction(_lost_in_all(task)) >= task.shown_by_proofs * (1 - Fraction(1, 2**50))
