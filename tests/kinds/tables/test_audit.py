"""Games of marginals: the integers are those of the protocol, and the two people are as far apart as the bound says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from colonnade.audit import games, registry
from colonnade.audit.verdict import judge
from colonnade.kinds.tables.audit_marginals import Cells, furthest
from colonnade.kinds.tables.marginals.merging import Merge
from colonnade.kinds.tables.marginals.programs import reference
from colonnade.kinds.tables.marginals.stages import StagedMarginals
from colonnade.privacy import Observer, parse_budgets
from tests.support.protocols import marginals_task


@pytest.fixture(scope="module")
def staged():
    """Two of the columns are merged from twice as many codes; the first stage takes most of the price."""
    second = marginals_task(((2, 3), (3,), (2,)), label=0)
    second = replace(second, asked=tuple(replace(block, weight=50 * block.weight) for block in second.asked))
    fine = tuple(replace(column, size=size) for column, size in zip(second.coded, (2, 6, 6, 2), strict=True))
    task = StagedMarginals(fine, (Merge(2), Merge(3), Merge(3), Merge(2)), (900, 2000, 400, 400, 2000), second, 3)
    return task.calibrated(parse_budgets({"analyst": 1.0}, 1e-5, task.trust))


def test_two_stages_keep_what_both_events_promise(staged):
    assert registry.subject(staged) == "marginals"
    found = games("marginals", staged)
    assert {game.role for game in found} == {"analyst", "coordinator", "party", "coalition"}
    for game in found:
        assert judge(game, 20_000, seed=4).good


def test_a_first_stage_that_is_not_charged_is_seen(staged):
    analyst = games("marginals", staged)[0]
    assert analyst.role == "analyst"
    assert judge(replace(analyst, events=analyst.events[1:]), 60_000, seed=5).word == "REFUTED"


def test_with_hidden_members_whether_somebody_is_one_is_played_too():
    shape = marginals_task(((2, 3), (3,), (2,)), label=0, hidden=True)
    # The count is by far the most exact, so that a member more or less moves more than a replaced one.
    asked = tuple(replace(block, weight=(50 if block.columns else 10_000) * block.weight) for block in shape.asked)
    draft = replace(shape, asked=asked)
    task = draft.calibrated(parse_budgets({"party": 1.0}, 1e-5, draft.trust))
    found = games("marginals", task)
    assert [game.part for game in found if game.role == "party"] == ["membership", ""]
    for game in found:
        assert judge(game, 20_000, seed=6).good
    member, other = (game.sampler for game in found if game.role == "party")
    assert int((member.sums[1] ** 2).sum()) == task.event.l2_squared
    assert not member.sums[0].any()
    known = replace(task, hidden=False)  # the figures of this task leave out that somebody may not be a member
    assert int(((other.sums[1] - other.sums[0]) ** 2).sum()) == known.event.replace_l2_squared < task.event.l2_squared
    (game,) = (game for game in found if game.sampler is member)
    assert judge(replace(game, events=known.events), 60_000, seed=7).word == "REFUTED"


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
