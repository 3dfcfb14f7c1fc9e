"""Fitting a mixture on shares: every round equals its reference within the stated units, and its noise is paid for."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy.stats import binom

from colonnade.errors import CapacityError, PrivacyError, ProtocolError, StudyError
from colonnade.kinds.synthesis.mixture import programs, seat
from colonnade.kinds.synthesis.mixture.clipping import clipping_error
from colonnade.kinds.synthesis.mixture.responsibilities import error, in_the_clear
from colonnade.kinds.synthesis.mixture.sizes import OVERFLOW
from colonnade.kinds.synthesis.mixture.task import Mixture
from colonnade.privacy import Observer, PoissonSampled, Repeated, accountant, parse_budgets
from colonnade.privacy.events import views
from colonnade.protocols.batches import batches
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import check_complete
from colonnade.randomness import Stream
from colonnade.tables.places import Places
from colonnade.wire import codec
from tests.kinds.synthesis.mixture import learners
from tests.kinds.synthesis.mixture.learners import Flags, dealt_in, flags, mixture_task
from tests.support import protocols as kit
from tests.support.errors import raises

execute = partial(kit.execute, learners)
KEY = bytes(range(32))


def apart(task, dealt):
    """By how much each opened integer may differ from the reference: responsibilities times vectors."""
    densities = [dealt[name][0] for name in task.owners]
    units = error(densities, task.precision)
    if task.joint is not None:
        plain = in_the_clear(densities, task.precision)
        units = clipping_error(plain, programs.dealt_squares(dealt, task), units, task.joint)
    counts = (units.sum(axis=0) * 2**task.vector_bits)[:, None]
    how = "nk,nq->kq" if task.vectors == "statistics" else "nk,nkq->kq"
    return np.hstack([counts, *(np.einsum(how, units, np.abs(dealt[name][1])) for name in task.owners)]).reshape(-1)


SHAPES = (
    ((2, 3), None, 1, {}),
    ((2, 3), None, 1, {"vectors": "derivatives"}),
    ((2, 3), None, 1, {"vectors": "linear"}),
    ((1, 2, 1, 1, 2), None, 2, {"vectors": "linear", "sampling": "disjoint"}),
    ((2, 3, 1), None, 1, {"components": 7}),
    ((2, 3, 1), None, 1, {"vectors": "derivatives", "sampling": "disjoint", "rounds": 5}),
    ((1, 2, 1, 2), None, 1, {"sampling": "all", "block_rows": 64}),
    ((1, 2, 1, 1, 2), None, 2, {"components": 3}),
    ((2, 3, 1), None, 1, {"joint_clip": 0.8}),
    ((2, 3), None, 1, {"joint_clip": 0.5, "vectors": "linear"}),
    ((1, 2, 1, 1, 2), None, 2, {"joint_clip": 1.0, "vectors": "derivatives"}),
    ((1, 1, 2, 1), ("o3", "o1", COORDINATOR), 1, {"fraction": 20, "bits": 16}),
    ((1,) * 9, ("o0", "o1", "o2", "o3", "o4"), 2, {"vectors": "derivatives", "rounds": 2}),
)


@pytest.mark.parametrize(("widths", "seats", "threshold", "changes"), SHAPES)
@pytest.mark.parametrize("rows", [1, 90])
def test_every_round_equals_its_reference_within_the_stated_units(widths, seats, threshold, changes, rows):
    task = mixture_task(widths, seats, threshold, **changes)
    tables = flags(task, rows)
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


def test_the_noise_of_all_owners_is_in_every_round(monkeypatch):
    task = mixture_task(rounds=3)
    drawn = kit.noise_drawn(monkeypatch, programs)
    monkeypatch.setattr(programs, "batches", lambda task, rows, drawn: iter([np.arange(0)] * task.rounds))
    found = execute(task, flags(task, 20))
    assert len(drawn) == len(task.owners)
    opened = np.array(found["o0"].seen).reshape(task.rounds, -1) * task.gamma
    assert np.array_equal(opened, sum(drawn))
    assert np.any(sum(drawn))


@pytest.mark.parametrize("vectors", ["statistics", "derivatives", "linear"])
def test_a_simulation_takes_the_steps_of_the_reference(vectors, monkeypatch):
    kit.no_noise(monkeypatch)
    task = mixture_task(vectors=vectors, rounds=4)
    tables = flags(task, 40)
    learner = programs.simulate(tables, task, Flags(task), Stream(bytes(32)))
    again, key = Flags(task), Stream(bytes(32)).bytes(32)
    for batch in batches(task, 40, key):
        again.step(programs.in_people(programs.reference(dealt_in(task, again, tables, batch), task), task))
    assert np.array_equal(learner.state, again.state)
    assert len(learner.seen) == 4


def test_a_simulation_has_the_noise_of_all_owners():
    task = mixture_task(rounds=200, noise=3 * 10**23)
    learner = programs.simulate(flags(task, 40), task, Flags(task), Stream(bytes(32)))
    seen = np.array(learner.seen)
    assert seen[:, :, 1:].std() == pytest.approx(task.noise_std, rel=0.05)  # about seven deviations


def test_without_renormalisation_small_densities_are_lost(monkeypatch):
    """Forty columns of one owner: densities near 2^-40 become zero, and all components look alike."""
    kit.no_noise(monkeypatch)
    task = mixture_task((40, 40), rounds=1, sampling="all")
    tables = flags(task, 40)
    right, lost = (
        programs.simulate(tables, task, Flags(task), Stream(bytes(32)), renormalised=kept).seen[0]
        for kept in (True, False)
    )
    logs = sum(Flags(task).log_densities(name, tables[name]) for name in task.owners) + Flags(task).log_weights
    exact = np.exp(logs - logs.max(axis=1, keepdims=True))
    counts = (exact / exact.sum(axis=1, keepdims=True)).sum(axis=0)
    assert np.abs(right[:, 0] - counts).max() < 0.5
    assert np.abs(lost[:, 0] - counts).max() > 3
    assert np.ptp(lost[:, 0]) < 1e-3  # a quarter of everybody is said to be in each component


@pytest.mark.parametrize("sampling", ["poisson", "disjoint", "all"])
def test_what_is_revealed_is_priced_for_every_observer(sampling):
    task = mixture_task(sampling=sampling, rounds=8)
    (event,) = task.events
    assert isinstance(event, Repeated)
    assert task.openings == {event: 8}
    if sampling == "poisson":
        assert isinstance(event.event, PoissonSampled)
        assert (event.times, event.event.rate, event.event.coins) == (8, Fraction(1, 4), task.owners)
    else:
        assert event.times == {"disjoint": 2, "all": 8}[sampling]
    budgets = parse_budgets({"analyst": 1.0}, 1e-5, task.trust)
    calibrated = task.calibrated(budgets)
    assert calibrated.noise > task.noise
    figures = {
        observer: accountant.epsilon(views(calibrated.events, observer, task.trust), 1e-5).epsilon
        for observer in (Observer.analyst(), Observer.party("o0"))
    }
    assert 0.99 < figures[Observer.analyst()] <= 1
    assert figures[Observer.party("o0")] > 1.5


def test_the_coordinator_knows_the_coins_if_it_has_a_seat():
    assert mixture_task((1, 1)).coins == ("o0", "o1", COORDINATOR)
    assert COORDINATOR not in mixture_task((1, 1, 1)).coins


@pytest.mark.parametrize(("rows", "batch"), [(30_162, 100), (400, 100), (64, 3), (10**6, 2000), (50, 50)])
def test_a_drawn_batch_has_room(rows, batch):
    task = mixture_task(rows=rows, batch=batch)
    room = task.room(rows)
    assert room % 64 == 0
    assert binom.sf(room, rows, task.threshold / 2**32) <= OVERFLOW
    assert room < 2 * batch + 128


def test_a_batch_beyond_its_room_ends_the_study(monkeypatch):
    monkeypatch.setattr(programs, "batches", lambda task, rows, drawn: iter([np.arange(rows)] * task.rounds))
    task = mixture_task(rows=400, batch=3)
    with raises(ProtocolError, "MS039"):
        execute(task, flags(task, 400))


def test_messages_do_not_tell_how_many_people_are_in_a_batch(monkeypatch):
    sizes = []
    for people in (0, 33):
        monkeypatch.setattr(programs, "batches", lambda task, rows, drawn, n=people: iter([np.arange(n)] * task.rounds))
        log: kit.Log = {}
        task = mixture_task(vectors="linear")
        execute(task, flags(task, 40), log=log)
        sizes.append({ends: [(kind, len(codec.encode(fields))) for kind, fields in said] for ends, said in log.items()})
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("changes", [{}, {"vectors": "linear"}, {"vectors": "linear", "joint_clip": 1.0}])
def test_statistics_are_computed_once(changes, monkeypatch):
    """What an owner bounds are the integers that it dealt; computed again, floats could be rounded otherwise."""
    asked = []
    real = Flags.vectors

    def vectors(self, owner, rows):
        asked.append((owner, len(rows)))
        return real(self, owner, rows)

    monkeypatch.setattr(Flags, "vectors", vectors)
    task = mixture_task(**changes)
    execute(task, flags(task, 70))
    assert sorted(asked) == sorted((name, size) for name in task.owners for size in (64, 6))


@pytest.mark.parametrize("joint_clip", [None, 1.0])
def test_the_distance_of_masks_is_what_the_arithmetic_adds_up(joint_clip, monkeypatch):
    """For one row; the arithmetic counts all places of a batch. Of joint clipping it is a bound."""
    engines = []
    real = seat.FixedPoint

    def made(*given):
        engines.append(real(*given))
        return engines[-1]

    monkeypatch.setattr(seat, "FixedPoint", made)
    task = mixture_task(joint_clip=joint_clip)
    execute(task, flags(task, 40))
    places = task.room(40) * task.rounds
    (found,) = {engine.distance for engine in engines}
    exact = float(task.distance) * places
    assert found == exact if joint_clip is None else exact / 30 < found < exact


WRONG = [
    ({"batch": 41}, ("PR124", "40")),
    ({"rounds": 0}, "PR125"),
    ({"components": 0}, "PR125"),
    ({"sampling": "some"}, "PR122"),
    ({"vectors": "moments"}, "PR122"),
    ({"bits": 27}, "PR126"),
    ({"vectors": "linear", "vector_bits": 20}, "PR123"),
    ({"floor": 0.0}, "PR129"),
    ({"fraction": 16, "bits": 8, "components": 5000}, "PR127"),
    ({"parts": ()}, "PR121"),
    ({"joint_clip": -1.0}, "PR129"),
    ({"bits": 8, "components": 20}, "PR128"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG)
def test_tasks_that_make_no_sense_are_refused(changes, said):
    with raises(PrivacyError, said):
        mixture_task(**changes)


@pytest.mark.parametrize(("changes", "raised"), [({}, "rows, of which"), ({"rows_at_most": 50}, "rows_at_most")])
def test_more_rows_than_allowed_name_what_to_raise(changes, raised):
    task = mixture_task(rounds=1, **changes)
    with raises(CapacityError, "CA030", task.rows_limit, raised):
        execute(task, flags(task, 200))


def test_tables_with_hidden_members_are_refused():
    task = mixture_task(rounds=1)
    tables = {
        owner: kit.Rows(rows, places=Places(np.arange(20), 30, bytes(16))) for owner, rows in flags(task, 20).items()
    }
    with raises(StudyError, "ST531"):
        execute(task, tables)


def test_sums_that_do_not_fit_are_refused():
    with raises(CapacityError, "CA025"):
        _ = mixture_task(noise=3 * 2**120).committee


def test_what_must_be_equal_is_in_the_agreement():
    task = mixture_task()
    assert json.loads(json.dumps(task.agreement)) == task.agreement
    different = [
        replace(task, components=5), replace(task, floor=8.0), replace(task, plan="other"), replace(task, bits=18),
        replace(task, parts=(replace(task.parts[0], clip=2.0), *task.parts[1:])), replace(task, rounds=4),
    ]  # fmt: skip
    assert len({json.dumps(other.agreement) for other in (task, *different)}) == 7
    check_complete(Mixture, "here")
