from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import isqrt, prod

import numpy as np
import pytest
from scipy import stats

from colonnade.errors import CapacityError, ShareError
from colonnade.mpc import PRIMES, Committee, Hand, ResidueSystem
from colonnade.mpc.verify.inputs import InputProofs
from colonnade.mpc.verify.prover import Prover
from colonnade.mpc.verify.ranges import Ranges, exactly, one_high, smallest_idempotent, two_values, within
from colonnade.mpc.verify.window import Window, signs
from tests.support.errors import raises

from .clear import AnyRows
from .test_cheating_owners import SplitBits

COMMITTEES = [(3, 1), (4, 1), (5, 2)]


def rows_of(rng, groups, count):
    """Rows that use their bounds to the end: norms at the bound, beyond which one unit would be, and zero."""
    columns = []
    for group in groups:
        values = np.zeros((count, group.columns), dtype=np.int64)
        if group.flags and group.exact:
            values[np.arange(count), rng.integers(0, group.columns, count)] = 1
        elif group.flags:
            values = rng.integers(0, 2, values.shape)
        elif group.exact:
            values[np.arange(count), rng.integers(0, group.columns, count)] = group.cell * rng.choice([-1, 1], count)
        else:
            values = np.trunc(rng.uniform(-1, 1, values.shape) * group.cell / np.sqrt(group.columns)).astype(np.int64)
            values[::3] = 0
            values[1::3, 1:] = 0
            values[1::3, 0] = group.cell
        columns.append(values * group.scale + group.offset)
    return np.hstack(columns)


def play(in_threads, size, threshold, ranges, tables, sizes, *, seated, provers=None):
    """A window of all owners; owners have a seat each if ``seated``. Every seat opens its rows again at the end."""
    owners = list(ranges)
    names = [*owners, *(f"s{i}" for i in range(size))]
    seats = names[:size] if seated else names[-size:]
    primes = max(each.primes for each in ranges.values())
    committee = Committee(tuple(seats), threshold, ResidueSystem(PRIMES[:primes]), active=True)
    ends = np.cumsum([0, *sizes]).tolist()

    def program(name):
        def run(links):
            hand = Hand(name, committee, links)
            mine = [tables[name][a:b] for a, b in pairwise(ends)] if name in ranges else None
            dealt = {owner: [] for owner in owners}
            for at, rows in enumerate(sizes):
                own = hand.deal(mine[at]) if mine else None
                for owner in owners if hand.seated else ():
                    shape = (rows, ranges[owner].columns)
                    dealt[owner].append(own if owner == name else hand.receive(owner, shape))
            proofs = InputProofs(hand, ranges)
            proofs.prover = (provers or {}).get(name, proofs.prover)
            proofs.window(sizes, own=mine, dealt=dealt if hand.seated else None)
            if hand.seated:
                hand.claims.settle()
                return hand.claims.settled
            return None

        return run

    everybody = dict.fromkeys([*owners, *seats])
    return in_threads({name: program(name) for name in everybody})


GROUPS = {
    "within": [within(5, 12_345)],
    "one column": [within(1, 7)],
    "no room": [within(3, 0)],
    "codes": [one_high(4, -1, 3), one_high(2, -1, 1), two_values(1, -1, 1)],
    "all": [within(4, 1 << 20), two_values(2), exactly(3, 49), one_high(3), within(2, 900)],
}


@pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS.keys())
@pytest.mark.parametrize("sizes", [[1], [40, 23]], ids=str)
def test_honest_owners_are_believed(in_threads, groups, sizes):
    rng = np.random.default_rng(3)
    ranges = {name: Ranges(tuple(groups), sum(sizes)) for name in ("a", "b", "c")}
    tables = {name: rows_of(rng, groups, sum(sizes)) for name in ranges}
    play(in_threads, 3, 1, ranges, tables, sizes, seated=True)


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
@pytest.mark.parametrize("covert", [False, True])
def test_owners_without_a_seat_are_believed(in_threads, size, threshold, covert):
    rng = np.random.default_rng(4)
    groups = GROUPS["all"]
    ranges = {name: Ranges(tuple(groups), 100, covert=covert) for name in ("a", "b")}
    tables = {name: rows_of(rng, groups, 90) for name in ranges}
    play(in_threads, size, threshold, ranges, tables, [50, 40], seated=False)


def with_large(tables, cell):
    """The same tables, but one number of owner ``a`` is another one."""
    changed = tables["a"].astype(object)
    changed[5] = 0
    changed[5, 1] = cell
    return tables | {"a": changed}


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
@pytest.mark.parametrize("seated", [True, False])
@pytest.mark.parametrize("cell", [112, prod(PRIMES[:3]) // 2])
def test_an_owner_that_deals_a_number_beyond_its_bound_is_caught(in_threads, size, threshold, seated, cell):
    rng = np.random.default_rng(5)
    groups = GROUPS["within"]
    ranges = {name: Ranges(tuple(groups), 40) for name in ("a", "b", "c", "d", "e")[: size if seated else 2]}
    tables = {name: rows_of(rng, groups, 40) for name in ranges}
    with raises(ShareError, "SH015"):
        play(
            in_threads,
            size,
            threshold,
            ranges,
            with_large(tables, cell),
            [40],
            seated=seated,
            provers={"a": AnyRows},
        )


def test_an_owner_whose_bits_are_none_is_named(in_threads):
    rng = np.random.default_rng(6)
    groups = [within(2, 2**40)]
    ranges = {name: Ranges(tuple(groups), 20) for name in ("a", "b", "c")}
    tables = with_large({name: rows_of(rng, groups, 20) for name in ranges}, prod(PRIMES[:3]) // 2)
    with raises(ShareError, "SH016"):
        play(in_threads, 3, 1, ranges, tables, [20], seated=True, provers={"a": SplitBits})


@pytest.mark.parametrize("factor", [0, -1, PRIMES[0]])
def test_groups_that_cannot_be_proven_are_refused(factor):
    with raises(CapacityError, "CA006"):
        two_values(1, 0, factor) if factor != -1 else within(3, -1)


def test_sizes_are_refused_that_the_proof_was_not_made_for():
    ranges = Ranges((within(3, 100),), 10)
    with raises(ValueError, "VA106"):
        Window(ResidueSystem(PRIMES[:3]), ranges, [6, 5], None)
    with raises(ValueError, "VA106"):
        Window(ResidueSystem(PRIMES[:2]), ranges, [5], None)
    with raises(CapacityError, "CA007"):
        Ranges((within(2**300, 2**51),), 10).primes  # noqa: B018


@pytest.mark.parametrize("squared", [1, 2**20, 2**34, 2**44, 2**51])
@pytest.mark.parametrize("columns", [1, 40, 3000])
def test_the_arithmetic_has_room_for_what_is_proven(squared, columns):
    ranges = Ranges.fitting([within(columns, squared), two_values(1)], 10**6)
    system = ResidueSystem.for_bound(ranges.required_bound)
    assert len(system.primes) == ranges.primes >= 3
    assert (columns + 4) * 4**ranges.bits < system.modulus - squared
    low, high = ranges.window
    assert high - low < smallest_idempotent(system.primes)
    assert 2 ** (ranges.bits - 1) > ranges.reach >= isqrt(squared)
    assert ranges.error < Fraction(1, 2**41)
    alarms = 2 * ranges.projections * ranges.width * ranges.proofs
    if ranges.reach < ranges.rows * ranges.cell:
        assert alarms * np.exp(-(ranges.reach**2) / (ranges.rows * ranges.cell**2)) < 2.0**-64


def test_signs_are_zero_half_of_the_times_and_as_often_one_as_minus_one(stream):
    found = signs(stream, 50, 4001)
    assert found.shape == (50, 4001)
    counts = [int((found == value).sum()) for value in (-1, 0, 1)]
    assert stats.chisquare(counts, np.array([1, 2, 1]) / 4 * found.size).pvalue > 1e-5


def test_numbers_without_a_bound_of_one_row_are_refused_by_their_owner():
    window = Window(ResidueSystem(PRIMES[:3]), Ranges((within(2, 100),), 4), [4], None)
    with raises(ValueError, "VA105"):
        Prover(window, [np.full((4, 2), 8)])
