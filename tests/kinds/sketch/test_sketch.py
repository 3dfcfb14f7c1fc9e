"""A sketch costs every observer what the real task costs that does what it describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from colonnade.kinds.sketch.model import SketchTask
from colonnade.privacy import Sensitivity, epsilon, views
from colonnade.privacy.events import unwrap
from colonnade.protocols.roles import COORDINATOR
from tests.support import protocols as kit

COMMITTEES = {
    "two owners and the coordinator": (2, None),
    "three owners": (3, None),
    "three owners, the coordinator in a seat": (3, ("o0", "o1", COORDINATOR)),
    "five owners, three seats": (5, ("o0", "o1", "o2")),
}


def _sketch(real: Any, rounds: int, sampling: Any, rows: int, batch: int, dimension: int) -> SketchTask:
    """The description of a real task with its noise, and a person that moves a sum as far as there.

    A sketch knows the norm of a contribution alone; the real bound for a person who is replaced may be smaller.
    """
    given = (real.trust, rounds, sampling, rows, batch, dimension, 1.0, 2**30, real.additive.law, real.noise)
    sketch = SketchTask(*given)
    vars(sketch)["sensitivity"] = _moved(real)
    return sketch


def _moved(real: Any) -> Sensitivity:
    """How far one person moves what the real task opens at once."""
    once: Any = unwrap(real.events[0])
    return Sensitivity(once.l1, once.l2_squared, once.replace_l1, once.replace_l2_squared)


def _prices(task: Any) -> dict[str, float]:
    """Epsilon of every observer within the threshold."""
    seen = [who for who in task.trust.standard_observers() if task.trust.broken(who) is None]
    return {who.label: epsilon(views(task.events, who, task.trust), 1e-5).epsilon for who in seen}


@pytest.mark.parametrize("law", ["skellam", "discrete-gaussian"])
@pytest.mark.parametrize("sampling", ["poisson", "disjoint"])
@pytest.mark.parametrize(("owners", "seats"), COMMITTEES.values(), ids=COMMITTEES)
def test_a_sketch_of_gradients_costs_what_gradients_cost(
    owners: int, seats: Sequence[str] | None, sampling: str, law: str
) -> None:
    real = kit.gradients_task((1,) * owners, seats, sampling=sampling, law=law, gamma=2**14, rows=4000, batch=100)
    real = real.with_noise(real.additive.least_scale(8.0, _moved(real)))
    sketch = _sketch(real, real.rounds, sampling, real.rows, real.batch, real.entries)
    assert _prices(sketch) == pytest.approx(_prices(real), rel=0.01)
    assert {getattr(event.event, "coins", None) for event in sketch.events} == {
        getattr(event.event, "coins", None) for event in real.events
    }


@pytest.mark.parametrize(("owners", "seats"), COMMITTEES.values(), ids=COMMITTEES)
def test_a_sketch_of_one_full_round_costs_what_second_moments_cost(owners: int, seats: Sequence[str] | None) -> None:
    real = kit.moments_task((2,) * owners, seats, gamma=2**14, constant=2**13)
    real = real.with_noise(real.additive.least_scale(8.0, _moved(real)))
    sketch = _sketch(real, 1, "full", 1000, 1000, unwrap(real.events[0]).dimension)
    assert _prices(sketch) == pytest.approx(_prices(real), rel=0.01)
