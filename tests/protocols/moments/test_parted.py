from __future__ import annotations

from functools import partial
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from colonnade.mpc import Hand
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.parted import PartedSeat
from colonnade.protocols.roles import COORDINATOR
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import integers, moments_task as make_task, tables_of

execute = partial(kit.execute, moments)


@pytest.mark.parametrize("seats", [*permutations(("o0", "o1", "o2"))])
@pytest.mark.parametrize("block", [7, 50])
def test_parts_give_the_plaintext_sums_in_every_order_of_seats(exact, seats, block):
    task = make_task([3, 1, 2], seats, block_rows=block)
    assert task.in_parts
    tables = tables_of(task, 40, 3)
    want = moments.reference(integers(task, tables), task)
    assert all(np.array_equal(result.opened, want) for result in execute(task, tables).values())


@pytest.mark.parametrize("seats", [*permutations(("o0", "o1", COORDINATOR))])
def test_two_owners_and_the_coordinator(exact, seats):
    task = make_task([3, 2], seats)
    assert task.in_parts
    tables = tables_of(task, 40, 3)
    want = moments.reference(integers(task, tables), task)
    assert all(np.array_equal(result.opened, want) for result in execute(task, tables).values())


def test_blocks_of_many_numbers_and_values_of_three_primes(exact):
    """Words and not floats, several blocks of rows, and integers that are no residues of their own."""
    task = make_task([9, 8, 10], gamma=2**23, constant=2**10, rows_at_most=4000)
    rows = 3100
    assert rows * 8 * len(task.committee.system.primes) > 1 << 16
    tables = tables_of(task, rows, 11)
    assert max(np.abs(one).max() for one in integers(task, tables).values()) > 2**21
    opened = execute(task, tables)[COORDINATOR].opened
    assert np.array_equal(opened, moments.reference(integers(task, tables), task))


@pytest.mark.parametrize(
    "task",
    [
        kit.active(make_task([2, 2, 2])),
        make_task([2, 2, 2, 2]),
        make_task([2, 2, 2, 2], ("o0", "o1", "o2")),
        kit.hidden_moments_task(3),
    ],
    ids=["active", "four seats", "an owner without a seat", "hidden"],
)
def test_others_deal_on_polynomials(task):
    assert not task.in_parts


def test_a_seat_is_told_uniform_numbers(exact, monkeypatch):
    """The same rows many times: what a seat receives of them is uniform, and the parts of two seats are the rows."""
    task = make_task([1, 1, 1], block_rows=5000, rows_at_most=10_000, gamma=64)
    rows = {name: np.full((4000, 1), 0.5) for name in task.owners}
    seen: dict[tuple[str, str], np.ndarray] = {}
    receive = Hand.receive

    def watched(hand, dealer, shape, **how):
        found = receive(hand, dealer, shape, **how)
        if len(shape) == 2:
            seen[hand.name, dealer] = found.values
        return found

    monkeypatch.setattr(Hand, "receive", watched)
    execute(task, rows)
    system = task.committee.system
    assert len(seen) == 6
    for values in seen.values():
        for prime, row in zip(system.primes, values, strict=True):
            counts = np.histogram(row, np.linspace(-prime / 2, prime / 2, 17))[0]
            assert stats.chisquare(counts).pvalue > 1e-5
    for dealer in task.owners:
        one, other = (values for (_, who), values in seen.items() if who == dealer)
        assert np.all(system.reduce(one + other) == 32)


def test_no_seat_is_idle(exact, monkeypatch):
    """Without what one seat adds, the opened numbers are others."""
    task = make_task([2, 2, 2])
    tables = tables_of(task, 30, 1)
    want = moments.reference(integers(task, tables), task)
    add = PartedSeat._add
    for lazy in task.owners:
        monkeypatch.setattr(PartedSeat, "_add", lambda seat, due, lazy=lazy: seat.me.name == lazy or add(seat, due))
        with raises(Exception, "SH005"):
            execute(task, tables)
    monkeypatch.setattr(PartedSeat, "_add", add)
    assert np.array_equal(execute(task, tables)[COORDINATOR].opened, want)
