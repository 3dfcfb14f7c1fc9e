"""Mixtures where seats check each other: the same sums within the stated units, and whoever cheats is caught."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import pytest

from colonnade.errors import ColonnadeError
from colonnade.kinds.synthesis.mixture import programs
from colonnade.mpc import Hand, Shares
from colonnade.protocols import roles
from colonnade.protocols.batches import batches
from colonnade.wire import codec
from tests.kinds.synthesis.mixture import learners
from tests.kinds.synthesis.mixture.learners import Flags, dealt_in, flags, mixture_task
from tests.kinds.synthesis.mixture.test_mixture import apart
from tests.support import protocols as kit
from tests.support.errors import raises

execute = partial(kit.execute, learners)
ROWS = 70
UNSEATED = ("o0", "o1", "o2")
SHAPES = (
    ((2, 3), None, 1, {}),
    ((2, 3), None, 1, {"vectors": "derivatives", "sampling": "disjoint"}),
    ((1, 2, 1, 1), UNSEATED, 1, {"vectors": "linear"}),
)
LONGER = (
    ((1, 2, 1, 2), None, 1, {"sampling": "all", "block_rows": 64}),
    ((1, 2, 1, 2), None, 1, {"sampling": "disjoint", "vectors": "linear"}),
    ((2, 3), None, 1, {"joint_clip": 0.5, "vectors": "linear"}),
    ((1, 2, 1, 1, 2), None, 2, {"vectors": "derivatives"}),
    ((1,) * 7, None, 3, {}),
)


def active(widths, seats=None, threshold=1, **changes):
    task = mixture_task(widths, seats, threshold, **{"rounds": 2, **changes})
    return replace(task, trust=replace(task.trust, security="active"))


@pytest.mark.parametrize(
    ("widths", "seats", "threshold", "changes"),
    [*SHAPES, *(pytest.param(*shape, marks=pytest.mark.slow) for shape in LONGER)],
)
def test_every_round_equals_its_reference_within_the_stated_units(widths, seats, threshold, changes, monkeypatch):
    task = active(widths, seats, threshold, **changes)
    tables, drawn = flags(task, ROWS), set()

    def known(task, rows, secret):
        drawn.add(secret)
        return batches(task, rows, secret)

    kit.no_noise(monkeypatch)
    monkeypatch.setattr(programs, "batches", known)
    found = execute(task, tables)
    (secret,) = drawn
    for name in task.hearers:
        learner = Flags(task)
        assert len(found[name].seen) == task.rounds
        for batch, state, sums in zip(batches(task, ROWS, secret), found[name].states, found[name].seen, strict=True):
            learner.restore(state)
            dealt = dealt_in(task, learner, tables, batch)
            difference = np.abs(sums.reshape(-1) * task.gamma - programs.reference(dealt, task))
            assert (difference <= apart(task, dealt)).all()
    assert all(np.array_equal(found[name].state, found["o0"].state) for name in task.everyone)


@pytest.mark.parametrize("vectors", ["statistics", "linear", "derivatives"])
def test_messages_do_not_tell_how_many_people_are_in_a_checked_batch(vectors, monkeypatch):
    sizes = []
    for people in (0, 17, 33):
        monkeypatch.setattr(programs, "batches", lambda task, rows, drawn, n=people: iter([np.arange(n)] * task.rounds))
        log: kit.Log = {}
        task = active((2, 3), vectors=vectors, rounds=1)
        execute(task, flags(task, ROWS), log=log)
        sizes.append({ends: [(kind, len(codec.encode(fields))) for kind, fields in said] for ends, said in log.items()})
    assert sizes[0] == sizes[1] == sizes[2]


class SpendsFirst(Hand):
    """It notes whether the budget was marked as spent when it learned a coin for the first time."""

    spent: ClassVar[dict[str, bool]] = {}

    def coin(self, tell=()):
        self.spent.setdefault(self.name, self._before_sharing is None)
        return super().coin(tell)

    def hear_coin(self):
        self.spent.setdefault(self.name, self._before_sharing is None)
        return super().hear_coin()


@pytest.mark.parametrize(("widths", "seats"), [((2, 3), None), ((1, 2, 1, 1), UNSEATED)])
def test_the_budget_is_spent_before_anybody_knows_the_batches(widths, seats, monkeypatch):
    """Whoever leaves because it dislikes them has not had them drawn for nothing."""
    task = active(widths, seats, rounds=1)
    monkeypatch.setattr(SpendsFirst, "spent", {})
    monkeypatch.setattr(roles, "Hand", SpendsFirst)
    execute(task, flags(task, ROWS))
    assert set(SpendsFirst.spent) == set(task.hearers)
    assert all(SpendsFirst.spent.values())


class Cheats(Hand):
    """The second owner's seat deviates once: in lowering degrees, or in what it tells others of its share."""

    which = 0
    where = ""
    calls = 0

    def _wrong(self, shares, where):
        if self.name != "o1" or where != self.where:
            return shares
        Cheats.calls += 1
        if Cheats.calls != self.which + 1:
            return shares
        values = shares.values.copy()
        values[0].reshape(-1)[0] += 1
        return Shares(self.system.reduce(values), shares.degree)

    def lower(self, shares):
        return super().lower(self._wrong(shares, "lower"))

    def open_among_seats(self, shares):
        return super().open_among_seats(self._wrong(shares, "open"))


@pytest.mark.parametrize(("where", "which"), [("lower", 0), ("lower", 2), ("open", 0), ("open", 4)])
@pytest.mark.parametrize("vectors", ["statistics", pytest.param("linear", marks=pytest.mark.slow)])
def test_a_seat_that_deviates_once_is_caught_before_sums_are_opened(where, which, vectors, monkeypatch):
    task = active((2, 3), vectors=vectors, rounds=1)
    opened = []
    monkeypatch.setattr(Cheats, "calls", 0)
    monkeypatch.setattr(roles, "Hand", type("Cheat", (Cheats,), {"which": which, "where": where}))
    monkeypatch.setattr(programs, "in_people", lambda sums, task: opened.append(sums))
    with raises(ColonnadeError, "SH006|SH015"):
        execute(task, flags(task, ROWS))
    assert Cheats.calls > which
    assert not opened


def test_seats_that_are_told_different_slopes_do_not_open_anything(monkeypatch):
    """An owner tells one seat other slopes: what that seat sums would not lie on one polynomial with the others."""
    task = active((2, 3), vectors="linear", rounds=1)
    opened, told = [], programs.vocabulary.told

    def twisted(slopes):
        fields, twisted.calls = told(slopes), twisted.calls + 1
        return fields | {"slope": fields["slope"] + (twisted.calls == 1)}

    twisted.calls = 0
    monkeypatch.setattr(programs.vocabulary, "told", twisted)
    monkeypatch.setattr(programs, "in_people", lambda sums, task: opened.append(sums))
    with raises(ColonnadeError, "SH006"):
        execute(task, flags(task, ROWS))
    assert not opened
