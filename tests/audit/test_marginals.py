"""Games of marginals: the integers are those of the protocol, and the two people are as far apart as the bound says."""

from __future__ import annotations

import numpy as np

from colonnade.audit import games
from colonnade.audit.marginals import Cells, furthest
from colonnade.privacy import Observer
from colonnade.protocols.marginals.programs import reference

from ..protocols.kit import marginals_task


def alone(task, person):
    """The tables of all owners in which this person is the only one."""
    return {owner: np.array([[person[place] for place in task.held_by(owner)]]) for owner in task.owners}


def test_games_play_with_the_integers_of_the_protocol():
    rng = np.random.default_rng(3)
    for task in (marginals_task(), games("marginals")[0].sampler.task):
        for _ in range(20):
            person = tuple(rng.integers(0, task.sizes).tolist())
            assert np.array_equal(Cells(task, (None, person), ()).added(person), reference(alone(task, person), task))


def test_the_two_people_are_as_far_apart_as_the_event_says():
    task = marginals_task(((3, 2), (4,), (2, 3)), label=3)
    figures = {owner: square for owner, _, square in task.others}
    for observer, square in [
        (Observer.analyst(), task.event.l2_squared),
        (Observer.coordinator(), task.event.replace_l2_squared),
        *((Observer.party(owner), figures.get(owner, task.event.replace_l2_squared)) for owner in task.owners),
    ]:
        first, second = Cells(task, furthest(task, observer), ()).sums
        assert int(((second - first) ** 2).sum()) == square
