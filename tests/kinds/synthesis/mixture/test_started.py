"""A mixture that starts from marginals: both are run and charged as if alone, and everybody starts alike."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from colonnade.audit import games, registry
from colonnade.audit.verdict import judge
from colonnade.errors import ProtocolError, StudyError
from colonnade.kinds.synthesis.mixture import programs
from colonnade.kinds.synthesis.mixture.started import StartedMixture
from colonnade.kinds.synthesis.mixture.task import Mixture
from colonnade.kinds.tables.marginals import programs as marginals
from colonnade.kinds.tables.marginals.published import NoisyMarginals
from colonnade.privacy import Observer, epsilon, parse_budgets, views
from colonnade.protocols.batches import batches
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import check_complete
from colonnade.testing.seeded import seeded
from tests.kinds.synthesis.mixture import starts
from tests.kinds.synthesis.mixture.learners import Flags, dealt_in, flags
from tests.kinds.synthesis.mixture.starts import started_task
from tests.kinds.synthesis.mixture.test_mixture import apart
from tests.support import protocols as kit
from tests.support.errors import raises

KEY = bytes(range(32))


@pytest.mark.parametrize(
    ("widths", "seats", "threshold", "changes"),
    [
        ((2, 3, 1), None, 1, {}),
        ((2, 3), None, 1, {"vectors": "linear"}),
        ((1, 1, 2, 1), ("o3", "o1", "o0"), 1, {"vectors": "derivatives", "sampling": "disjoint"}),
        ((1, 2, 1, 1, 1), None, 2, {"sampling": "all", "rounds": 2}),
    ],
)
def test_rounds_on_shares_are_those_of_the_definition_from_the_start_of_the_definition(
    widths, seats, threshold, changes, monkeypatch
):
    task = started_task(widths, seats, threshold, **changes)
    first, second = task.stages
    tables = flags(second, 50)
    kit.no_noise(monkeypatch)
    monkeypatch.setattr(programs, "new_key", lambda: KEY)
    found = kit.execute(starts, task, tables)
    assert set(found) == set(task.everyone)
    exact = marginals.reference({name: starts.codes_of(rows) for name, rows in tables.items()}, first)
    start = starts.make(second, starts.begin(task, NoisyMarginals(first, exact)))
    assert not np.array_equal(start.state, Flags(second).state)
    drawn = programs.batch_secret(second, KEY, kit.Rows(tables["o0"]).ids)
    for name in second.hearers:
        assert np.array_equal(found[name].states[0], start.state)
        learner = Flags(second)
        for batch, state, sums in zip(batches(second, 50, drawn), found[name].states, found[name].seen, strict=True):
            learner.restore(state)
            dealt = dealt_in(second, learner, tables, batch)
            difference = np.abs(sums.reshape(-1) * second.gamma - programs.reference(dealt, second))
            assert (difference <= apart(second, dealt)).all()
    assert all(np.array_equal(one.state, found["o0"].state) for one in found.values())
    simulated = starts.simulate(tables, task, seeded(4))
    assert np.array_equal(simulated.states[0], start.state)
    assert len(simulated.seen) == second.rounds == len(found["o0"].seen)


def test_everybody_takes_over_one_start_however_floats_differ(monkeypatch):
    real, rng = starts.begin, np.random.default_rng(2)
    monkeypatch.setattr(starts, "begin", lambda task, counted: real(task, counted) + rng.normal(0, 0.1))
    task = started_task((2, 1, 1))
    found = kit.execute(starts, task, flags(task.second, 40))
    assert len({found[name].states[0].tobytes() for name in task.second.hearers}) == 1


@pytest.mark.parametrize("wrong", [np.nan, 13.0])
def test_a_start_out_of_range_is_refused(monkeypatch, wrong):
    real = starts.begin
    monkeypatch.setattr(starts, "begin", lambda task, counted: np.full_like(real(task, counted), wrong))
    task = started_task((1, 1, 1))
    with raises(ProtocolError, "MS049", "o0"):
        kit.execute(starts, task, flags(task.second, 20))


SAMPLED = ({"sampling": "all"}, {"sampling": "disjoint"}, {"sampling": "poisson", "rows": 4000, "batch": 100})


@pytest.mark.parametrize("changes", SAMPLED)
@pytest.mark.parametrize("budget", [{"analyst": 0.5}, {"party": 1.0}])
def test_both_events_are_paid_for_and_calibrated_together(changes, budget):
    draft = started_task(rounds=20, **changes)
    task = draft.calibrated(parse_budgets(budget, 1e-5, draft.trust))
    assert [event.name for event in task.events[:1]] == ["marginals"]
    assert task.events == (task.stages[0].event, task.stages[1].event)
    assert task.openings == {task.events[0]: 1, task.events[1]: 20}
    (who, allowed), trust = *budget.items(), task.trust
    observers = [Observer.analyst()] if who == "analyst" else [Observer.party(name) for name in task.owners]
    learned = [epsilon(views(task.events, each, trust), 1e-5).epsilon for each in observers]
    assert 0.99 * allowed < max(learned) <= allowed
    for each, both in zip(observers, learned, strict=True):
        assert all(epsilon(views((event,), each, trust), 1e-5).epsilon < both for event in task.events)


@pytest.mark.parametrize("share", [Fraction(1, 20), Fraction(1, 4), Fraction(2, 3)])
def test_the_marginals_take_the_share_that_was_asked_for(share):
    draft = replace(started_task(sampling="all", rounds=5), share=share)
    task = draft.calibrated(parse_budgets({"analyst": 1.0}, 1e-5, draft.trust))
    first, second = task.stages
    prices = [first.sensitivity.l2_squared / first.noise, 5 * second.sensitivity.l2_squared / second.noise]
    assert prices[0] / sum(prices) == pytest.approx(float(share), rel=1e-3)
    assert first.noise % 3 == 0
    assert prices[0] / sum(prices) <= share


def test_it_keeps_the_contract():
    check_complete(StartedMixture, "here")
    task = started_task()
    first, second = task.stages
    assert second == task.second
    assert task.facts["start"]["cells"] == first.entries
    assert task.facts["rounds"] == second.rounds
    assert task.noise_std == second.noise_std
    assert task.rows_limit == first.rows_limit == second.rows_limit
    assert len(task.committee.system.primes) == max(len(stage.committee.system.primes) for stage in task.stages)
    assert all(load.seconds > 0 for load in task.loads(task.everyone, 40))
    for name in task.everyone:
        assert task.cells(name, 40).dealt == first.cells(name, 40).dealt + second.cells(name, 40).dealt
    assert task.adjustable(40) is None
    changed = [
        replace(task, share=Fraction(1, 3)),
        task.with_noise(2 * task.noise),
        replace(task, parameters=8),
        started_task(rounds=4),
        replace(task, first=replace(task.first, asked=task.first.asked[:-1])),
    ]
    assert all(found.agreement != task.agreement for found in changed)
    assert task.agreement == started_task().agreement


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"share": Fraction(0)}, ("ST499", "0")),
        ({"share": Fraction(1)}, ("ST499", "1")),
        ({"first": replace(started_task().first, law="discrete-gaussian")}, "ST501"),
        ({"first": started_task((2, 2)).first}, "ST501"),
        ({"first": replace(started_task().first, rows_at_most=9)}, "ST502"),
        ({"first": replace(started_task().first, hidden=True)}, "ST500"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, said):
    with raises(StudyError, said):
        replace(started_task(), **changes)


@pytest.fixture(scope="module")
def priced():
    """Half of the price for either."""
    draft = replace(started_task((1, 1, 1), sampling="all", rounds=2, components=2), share=Fraction(1, 2))
    return draft.calibrated(parse_budgets({"analyst": 1.0}, 1e-5, draft.trust))


def test_an_attacker_who_sees_both_learns_what_both_events_promise(priced):
    assert registry.subject(priced) == "mixture"
    found = games("mixture", priced)
    assert {game.role for game in found} == {"analyst", "coordinator", "party", "coalition"}
    for game in found:
        assert game.events == (priced.events[1:] if game.part else priced.events)  # a part looks at one round alone
        assert judge(game, 20_000, seed=4).good


@pytest.mark.parametrize("left", [slice(0, 1), slice(1, 2)])
def test_an_event_that_is_not_charged_is_seen(priced, left):
    analyst = games("mixture", priced)[0]
    assert analyst.role == "analyst"
    assert judge(replace(analyst, events=analyst.events[left]), 240_000, seed=5).word == "REFUTED"


def test_a_task_without_a_start_is_as_it_was():
    plain = started_task().second
    assert isinstance(plain, Mixture)
    assert "start" not in plain.agreement
    assert "start" not in plain.facts
    assert registry.subject(plain) == "mixture"
    assert COORDINATOR not in plain.owners
