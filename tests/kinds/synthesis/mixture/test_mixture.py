"""Fitting a mixture on shares: every round equals its reference within the stated units, and its noise is paid for.

Also where seats check each other.
"""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
from scipy.stats import binom

from colonnade.audit import registry
from colonnade.errors import CapacityError, ColonnadeError, PrivacyError, ProtocolError, StudyError
from colonnade.kinds.synthesis.mixture import programs
from colonnade.kinds.synthesis.mixture.responsibilities import weigh_in_clear
from colonnade.kinds.synthesis.mixture.task import OVERFLOW_CHANCE, MixtureTask
from colonnade.mpc import ShareEngine, Shares
from colonnade.privacy import Observer, PoissonSampled, RepeatedRelease, epsilon, parse_budgets
from colonnade.privacy.events import views
from colonnade.protocols import roles
from colonnade.protocols.iteration import iterate_batches
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import check_complete
from colonnade.randomness import Stream
from colonnade.tables.slots import RowSlots
from colonnade.wire import codec
from tests.kinds.synthesis.mixture import learners
from tests.kinds.synthesis.mixture.learners import Flags, clipping_error, dealt_in, error, flags, mixture_task
from tests.support import protocols as kit
from tests.support.errors import raises, refused

execute = partial(kit.execute, learners)
KEY = bytes(range(32))
UNSEATED = ("o0", "o1", "o2")


def apart(task, dealt):
    """By how much each opened integer may differ from the reference: responsibilities times vectors."""
    densities = [dealt[name][0] for name in task.owners]
    units = error(densities, task.precision)
    if task.joint is not None:
        plain = weigh_in_clear(densities, task.precision)
        units = clipping_error(plain, programs.joint_square_norms(dealt, task), units, task.joint)
    counts = (units.sum(axis=0) * 2**task.vector_bits)[:, None]
    how = "nk,nq->kq" if task.vectors == "statistics" else "nk,nkq->kq"
    return np.hstack([counts, *(np.einsum(how, units, np.abs(dealt[name][1])) for name in task.owners)]).reshape(-1)


def check_rounds(task, found, tables, secret):
    """Every round that somebody heard equals its reference, and everybody ends alike."""
    rows = len(tables["o0"])
    for name in task.hearers:
        learner = Flags(task)
        assert len(found[name].seen) == task.rounds
        for batch, state, sums in zip(
            iterate_batches(task, rows, secret), found[name].states, found[name].seen, strict=True
        ):
            learner.restore(state)
            dealt = dealt_in(task, learner, tables, batch)
            difference = np.abs(sums.reshape(-1) * task.gamma - programs.reference_sums(dealt, task))
            assert (difference <= apart(task, dealt)).all()
    assert set(found) == set(task.everyone)
    assert all(np.array_equal(each.state, found["o0"].state) for each in found.values())


SHAPES = (
    ((2, 3), None, 1, {"rows": 1, "batch": 1}),
    ((2, 3), None, 1, {"vectors": "linear", "rounds": 2}),
    ((2, 3, 1), None, 1, {"components": 7, "vectors": "derivatives", "sampling": "disjoint", "rounds": 5}),
    ((1, 2, 1, 2), None, 1, {"sampling": "all", "rounds": 2}),
    ((2, 3, 1), None, 1, {"joint_clip": 0.8, "rounds": 2}),
    ((2, 3), None, 1, {"joint_clip": 0.5, "vectors": "linear", "rounds": 2}),
    ((1, 1, 1, 1, 1), None, 2, {"joint_clip": 1.0, "vectors": "derivatives", "rounds": 1}),
    ((1, 1, 2, 1), ("o3", "o1", COORDINATOR), 1, {"fraction": 20, "bits": 16, "rounds": 2}),
)


@pytest.mark.parametrize(("widths", "seats", "threshold", "changes"), SHAPES)
def test_every_round_equals_its_reference_within_the_stated_units(widths, seats, threshold, changes, monkeypatch):
    task = mixture_task(widths, seats, threshold, **changes)
    kit.no_noise(monkeypatch)
    monkeypatch.setattr(programs, "new_key", lambda: KEY)
    tables = flags(task, 1 if task.rows == 1 else 90)
    found = execute(task, tables)
    check_rounds(task, found, tables, programs.batch_secret(task, KEY, kit.Rows(tables["o0"]).ids))


def test_the_noise_of_all_owners_is_in_every_round(monkeypatch):
    task = mixture_task(rounds=3)
    drawn = kit.noise_drawn(monkeypatch, programs)
    monkeypatch.setattr(programs, "iterate_batches", lambda task, rows, drawn: iter([np.arange(0)] * task.rounds))
    found = execute(task, flags(task, 20))
    assert len(drawn) == len(task.owners)
    opened = np.array(found["o0"].seen).reshape(task.rounds, -1) * task.gamma
    assert np.array_equal(opened, sum(drawn))
    assert np.any(sum(drawn))


@pytest.mark.parametrize("vectors", ["statistics", "derivatives", "linear"])
def test_a_simulation_takes_the_steps_of_the_reference(vectors, monkeypatch):
    kit.no_noise(monkeypatch)
    task = mixture_task(vectors=vectors, rounds=4)
    tables, again = flags(task, 40), Flags(task)
    learner = programs.simulate(tables, task, Flags(task), Stream(bytes(32)))
    for batch in iterate_batches(task, 40, Stream(bytes(32)).bytes(32)):
        again.step(programs.scale_to_people(programs.reference_sums(dealt_in(task, again, tables, batch), task), task))
    assert np.array_equal(learner.state, again.state)
    assert len(learner.seen) == 4


def test_a_simulation_has_the_noise_of_all_owners():
    task = mixture_task(rounds=200, noise=3 * 10**23)
    seen = np.array(programs.simulate(flags(task, 40), task, Flags(task), Stream(bytes(32))).seen)
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
    assert (type(event), task.openings) == (RepeatedRelease, {event: 8})
    assert event.times == {"poisson": 8, "disjoint": 2, "all": 8}[sampling]
    if sampling == "poisson":
        assert (type(event.event), event.event.rate, event.event.coins) == (PoissonSampled, Fraction(1, 4), task.owners)
    calibrated = task.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, task.trust))
    assert calibrated.noise > task.noise
    observers = (Observer.analyst(), Observer.party("o0"))
    analyst, party = (epsilon(views(calibrated.events, each, task.trust), 1e-5).epsilon for each in observers)
    assert 0.99 < analyst <= 1
    assert party > 1.5


def test_a_drawn_batch_has_room_and_one_beyond_it_ends_the_study(monkeypatch):
    for rows, batch in ((30_162, 100), (400, 100), (64, 3), (10**6, 2000), (50, 50)):
        task = mixture_task(rows=rows, batch=batch)
        room = task.batch_places(rows)
        assert room % 64 == 0
        assert binom.sf(room, rows, task.threshold / 2**32) <= OVERFLOW_CHANCE
        assert room < 2 * batch + 128
    monkeypatch.setattr(programs, "iterate_batches", lambda task, rows, drawn: iter([np.arange(rows)] * task.rounds))
    task = mixture_task(rows=400, batch=3)
    refused(ProtocolError, "MS039", execute, task, flags(task, 400))


@pytest.mark.parametrize(
    ("security", "vectors"),
    [("passive", "linear"), ("active", "statistics")],
)
def test_messages_do_not_tell_how_many_people_are_in_a_batch(security, vectors, monkeypatch):
    task = mixture_task((2, 3), vectors=vectors, rounds=1)
    task = kit.active(task) if security == "active" else task
    sizes = []
    for people in (0, 33):
        monkeypatch.setattr(
            programs, "iterate_batches", lambda task, rows, drawn, n=people: iter([np.arange(n)] * task.rounds)
        )
        log: kit.Log = {}
        execute(task, flags(task, 70), log=log)
        sizes.append({ends: [(kind, len(codec.encode(fields))) for kind, fields in said] for ends, said in log.items()})
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("changes", [{}, {"vectors": "linear", "joint_clip": 1.0}])
def test_statistics_are_computed_once(changes, monkeypatch):
    """What an owner bounds are the integers that it dealt; computed again, floats could be rounded otherwise."""
    asked = []
    real = Flags.vectors

    def vectors(self, owner, rows):
        asked.append((owner, len(rows)))
        return real(self, owner, rows)

    monkeypatch.setattr(Flags, "vectors", vectors)
    task = mixture_task(rounds=2, **changes)
    execute(task, flags(task, 70))
    assert sorted(asked) == sorted((name, size) for name in task.owners for size in (64, 6))


@pytest.mark.parametrize("joint_clip", [None, 1.0])
def test_the_distance_of_masks_is_what_the_arithmetic_adds_up(joint_clip, monkeypatch):
    """For one row; the arithmetic counts all places of a batch. Of joint clipping it is a bound."""
    engines = []
    real = programs.FixedPointEngine

    def made(*given):
        engines.append(real(*given))
        return engines[-1]

    monkeypatch.setattr(programs, "FixedPointEngine", made)
    task = mixture_task(joint_clip=joint_clip)
    execute(task, flags(task, 40))
    places = task.batch_places(40) * task.rounds
    (found,) = {engine.distance for engine in engines}
    exact = float(task.distance) * places
    assert found == exact if joint_clip is None else exact / 30 < found < exact


# --- what is refused


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
    refused(PrivacyError, said, mixture_task, **changes)


def test_rows_that_a_task_does_not_take_are_refused():
    for changes, raised in (({}, "rows, of which"), ({"rows_at_most": 50}, "rows_at_most")):
        task = mixture_task(rounds=1, **changes)
        refused(CapacityError, "CA030", task.rows_limit, raised, execute, task, flags(task, 200))
    places = RowSlots(np.arange(20), 30, bytes(16))
    hidden = {owner: kit.Rows(rows, places=places) for owner, rows in flags(task, 20).items()}
    refused(StudyError, "ST531", execute, task, hidden)
    with raises(CapacityError, "CA025"):
        _ = mixture_task(noise=3 * 2**120).committee


def test_what_must_be_equal_is_in_the_agreement_and_who_knows_coins_in_the_price():
    task = mixture_task()
    assert json.loads(json.dumps(task.agreement)) == task.agreement
    different = [
        replace(task, components=5), replace(task, floor=8.0), replace(task, plan="other"), replace(task, bits=18),
        replace(task, parts=(replace(task.parts[0], clip=2.0), *task.parts[1:])), replace(task, rounds=4),
    ]  # fmt: skip
    assert len({json.dumps(other.agreement) for other in (task, *different)}) == 7
    assert registry.subject(task) == "mixture"
    check_complete(MixtureTask, "here")
    assert mixture_task((1, 1)).coins == ("o0", "o1", COORDINATOR)  # the coordinator has a seat
    assert COORDINATOR not in mixture_task((1, 1, 1)).coins


# --- where seats check each other


LONGER = (
    ((2, 3), None, 1, {}),
    ((1, 2, 1, 2), None, 1, {"sampling": "all", "block_rows": 64}),
    ((1, 2, 1, 2), None, 1, {"sampling": "disjoint", "vectors": "linear"}),
    ((2, 3), None, 1, {"joint_clip": 0.5, "vectors": "linear"}),
    ((1, 2, 1, 1, 2), None, 2, {"vectors": "derivatives"}),
    ((1,) * 7, None, 3, {}),
)
CHECKED = (
    ((2, 3), None, 1, {"vectors": "derivatives", "sampling": "disjoint"}),
    ((1, 2, 1, 1), UNSEATED, 1, {"vectors": "linear", "rounds": 1}),
    *(pytest.param(*shape, marks=pytest.mark.slow) for shape in LONGER),
)


def active(widths, seats=None, threshold=1, **changes):
    return kit.active(mixture_task(widths, seats, threshold, **{"rounds": 2, **changes}))


@pytest.mark.parametrize(("widths", "seats", "threshold", "changes"), CHECKED)
def test_every_checked_round_equals_its_reference(widths, seats, threshold, changes, monkeypatch):
    task = active(widths, seats, threshold, **changes)
    tables, drawn = flags(task, 70), set()

    def known(task, rows, secret):
        drawn.add(secret)
        return iterate_batches(task, rows, secret)

    kit.no_noise(monkeypatch)
    monkeypatch.setattr(programs, "iterate_batches", known)
    found = execute(task, tables)
    (secret,) = drawn
    check_rounds(task, found, tables, secret)


class SpendsFirst(ShareEngine):
    """It notes whether the budget was marked as spent when it learned a coin for the first time."""

    spent: ClassVar[dict[str, bool]] = {}

    def coin(self, tell=()):
        self.spent.setdefault(self.name, self._before_sharing is None)
        return super().coin(tell)

    def receive_coin(self):
        self.spent.setdefault(self.name, self._before_sharing is None)
        return super().receive_coin()


def test_the_budget_is_spent_before_anybody_knows_the_batches(monkeypatch):
    """Whoever leaves because it dislikes them has not had them drawn for nothing."""
    task = active((1, 1, 1, 1), UNSEATED, rounds=1)
    monkeypatch.setattr(SpendsFirst, "spent", {})
    monkeypatch.setattr(roles, "ShareEngine", SpendsFirst)
    execute(task, flags(task, 70))
    assert SpendsFirst.spent == dict.fromkeys(task.hearers, True)


def deviating(where, which, calls):
    """The second owner's seat deviates once, at this call: in lowering degrees, or in what it tells of its share."""
    real = getattr(ShareEngine, where)

    def wrong(self, shares):
        if self.name == "o1":
            calls.append(where)
            if len(calls) == which + 1:
                values = shares.values.copy()
                values[0].reshape(-1)[0] += 1
                shares = Shares(self.system.reduce(values), shares.degree)
        return real(self, shares)

    return wrong


@pytest.fixture
def opened(monkeypatch):
    """The sums that anybody opens."""
    found = []
    monkeypatch.setattr(programs, "scale_to_people", lambda sums, task: found.append(sums))
    return found


@pytest.mark.parametrize(
    ("where", "which"), [("reduce_degree", 0), ("reduce_degree", 2), ("open_among_seats", 0), ("open_among_seats", 4)]
)
@pytest.mark.parametrize("vectors", ["statistics", pytest.param("linear", marks=pytest.mark.slow)])
def test_a_seat_that_deviates_once_is_caught_before_sums_are_opened(where, which, vectors, opened, monkeypatch):
    task, calls = active((2, 3), vectors=vectors, rounds=1), []
    monkeypatch.setattr(ShareEngine, where, deviating(where, which, calls))
    refused(ColonnadeError, "SH006|SH015", execute, task, flags(task, 70))
    assert len(calls) > which
    assert not opened


def test_seats_that_are_told_different_slopes_do_not_open_anything(opened, monkeypatch):
    """An owner tells one seat other slopes: what that seat sums would not lie on one polynomial with the others."""
    task, told, calls = active((2, 3), vectors="linear", rounds=1), programs.slopes_fields, []

    def twisted(slopes):
        calls.append(slopes)
        fields = told(slopes)
        return fields | {"slope": fields["slope"] + (len(calls) == 1)}

    monkeypatch.setattr(programs, "slopes_fields", twisted)
    refused(ColonnadeError, "SH006", execute, task, flags(task, 70))
    assert not opened
