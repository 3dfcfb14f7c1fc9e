"""Proofs of bounds played in the clear, thousands of times: one owner, and a seat that sees the numbers themselves.

What seats do with shares is linear until they make claims. So the same code, given the numbers instead of shares,
makes the same claims, and here they are looked at directly. What passes here passes a committee whose settlement makes
no error.
"""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import isqrt, prod
from types import SimpleNamespace

import flint
import numpy as np
import pytest
from flint.utils.flint_exceptions import DomainError
from hypothesis import given, strategies as st
from scipy import stats

from colonnade.errors import CapacityError, ShareError
from colonnade.mpc import PRIMES, Committee, ResidueSystem, ShareEngine, Shares
from colonnade.mpc.residues import centred
from colonnade.mpc.verification import three_squares
from colonnade.mpc.verification.claims import lagrange
from colonnade.mpc.verification.input_proofs import (
    FALSE_ALARM,
    FOLDS,
    MASK_BITS,
    MASK_SETS,
    MOST_PROOFS,
    SHORTEST_WINDOW,
    InputProofs,
    InputProver,
    InputRanges,
    ProofWindow,
    binary_columns,
    bounded_norm,
    draw_signs,
    longest_window,
    smallest_idempotent,
)
from colonnade.mpc.verification.three_squares import LARGEST, NEAR, count_squares, take_apart
from colonnade.randomness import Stream
from colonnade.testing import seeded
from tests.support.errors import refused


class Looked:
    """Claims about numbers that lie open."""

    def __init__(self, system):
        self.system, self.wrong = system, []

    def zero(self, shares):
        if self.system.reduce(shares.values.copy()).any():
            self.wrong.append("zero")

    def inner(self, lefts, rights, product):
        found = sum(self.system.inner(left.values, right.values) for left, right in zip(lefts, rights, strict=True))
        if self.system.reduce(found - product.values).any():
            self.wrong.append("inner")

    def pairs(self, left, right, product):
        found = (left.values * right.values % self.system.prime_column[..., None]).sum(axis=2)
        if self.system.reduce(found - product.values).any():
            self.wrong.append("pairs")


class OpenHand:
    """The owner ``a``, and a seat that is dealt every number itself."""

    def __init__(self, system, coins: Stream):
        self.name, self.has_seat, self.system, self._coins = "a", True, system, coins
        self.committee = SimpleNamespace(seats=("a",))
        self.claims = Looked(system)

    def coin(self, tell=()):
        return Stream(self._coins.bytes(32))

    def deal(self, values):
        return Shares(self.system.to_residues(values), 1)

    def open_residues(self, values):
        return values

    def record_public(self, *values):
        pass


def caught(ranges, rows, prover, coins, sizes=()) -> list[str]:
    """Which claims are wrong; ``rows`` are what is dealt, whole numbers of any size, in one block unless said."""
    system = ResidueSystem(PRIMES[: ranges.primes])
    hand = OpenHand(system, coins)
    proofs = InputProofs(hand, {"a": ranges})
    proofs.prover = prover
    rows = np.array(rows, dtype=object)
    try:
        blocks = np.split(rows, np.cumsum(sizes)[:-1]) if sizes else [rows]
        dealt = [Shares(system.to_residues(block), 1) for block in blocks]
        proofs.window([len(block) for block in blocks], own=blocks, dealt={"a": dealt})
    except ShareError as error:
        return [*hand.claims.wrong, "window" if "dealt bits that are none" in str(error) else str(error)]
    return hand.claims.wrong


def roots(value, modulus_primes, rng):
    """Residues that fill a norm up to a value, modulo every prime: as small as nobody asks them to be."""
    found = []
    for prime in modulus_primes:
        while True:
            a, b = (int(rng.integers(0, prime)) for _ in range(2))
            with suppress(DomainError):  # not every number is a square
                found.append([a, b, int(flint.fmpz((value - a * (a + 1) - b * b) % prime).sqrtmod(prime))])
                break
    return [crt([row[i] for row in found], modulus_primes) for i in range(3)]


def crt(residues, primes):
    """The number between -M/2 and M/2 with these residues."""
    modulus = prod(primes)
    total = sum(int(r) * (modulus // p) * pow(modulus // p, -1, p) for r, p in zip(residues, primes, strict=True))
    return centred(total, modulus)


class AnyRows(InputProver):
    """An owner that proves any rows, also modulo the primes, as well as that can be done.

    It fills norms up modulo every prime if it cannot with small squares; a sum that fits no bits is said as one that
    does; everything else is as the equations want it.
    """

    def __init__(self, window, blocks):
        self.window, self.system = window, window.system
        self.whole = np.vstack(blocks)
        self.rng = np.random.default_rng(11)
        self.slack = self.squares()
        self.whole = self.whole if self.slack is None else np.hstack([self.whole, self.slack])

    def squares(self):
        ranges, columns = self.window.ranges, []
        for group, span in zip(ranges.groups, ranges.spans, strict=True):
            if group.slack:
                rests = [group.squared - sum(int(x) ** 2 for x in row[span]) for row in self.whole]
                near = np.array([0 <= rest < NEAR for rest in rests])
                small = np.where(near, np.array(rests, dtype=object), 0).astype(np.float64)
                found = take_apart(small, NEAR).astype(np.int64).astype(object)
                for at in np.flatnonzero(~near):
                    found[at] = self.fill(rests[at])
                columns.append(np.hstack([found, np.zeros((len(found), group.slack - 3), dtype=object)]))
        return np.hstack(columns) if columns else None

    def fill(self, value):
        return roots(value, self.system.primes, self.rng)

    def choose_masks(self, signs):
        try:
            return super().choose_masks(signs)
        except ShareError:
            return 0

    def digits(self, drawn):
        sums = np.vstack([drawn[:, rows].astype(object) @ self.whole[rows] for rows, _ in self.window.windows])
        return self.said(np.vectorize(lambda value: centred(int(value), self.system.modulus), otypes=[object])(sums))

    def said(self, sums):
        ranges = self.window.ranges
        large = np.square(sums >> ranges.dropped).sum(axis=1) > ranges.limit**2
        return self.bits_of(np.where(large[:, None], 0, sums).astype(np.int64))

    def help_values(self):
        """The form of what every group is at each point; its owner may take any residues for whole numbers."""
        equations, m = self.window.equations, FOLDS[0]
        ahead, parts = lagrange(self.system.primes, tuple(range(1, m + 1)), tuple(range(m + 1, 2 * m))), []
        for block in self.dealt_blocks():
            padded = np.pad(block, ((0, 0), (0, -block.shape[1] % m), (0, 0)))
            at = self.system.reduce(ahead @ padded.reshape(len(padded), m, -1))
            parts.append(at.reshape(len(at), m - 1, -1, block.shape[2]))
        folded = np.concatenate(parts, axis=2)
        return np.stack(
            [
                self.added(np.repeat(folded[:, None, point], equations.repeated, axis=1), equations.alpha, equations)
                for point in range(m - 1)
            ],
            axis=2,
        )

    def dealt_blocks(self):
        return np.split(self.system.to_residues(self.whole), self.window.starts[1:-1], axis=1)

    def added(self, rows, weights, equations):
        system = self.system
        first = system.reduce(system.reduce(rows * equations.quad[:, :, None]) + equations.linear[:, :, None])
        values = system.reduce(system.reduce(first * rows).sum(axis=3))
        return system.reduce(system.reduce(values * weights).sum(axis=2))

    def second_help_values(self):
        equations = self.window.equations
        self.left = equations.fold_all([[block] for block in self.dealt_blocks()], self.window.point, None)
        return np.concatenate([equations.second_help_values(self.left), self.help_bits()], axis=2)

    def help_bits(self):
        return self.window.bits.help_values([self.dealt_bits.reshape(-1, 1)])


NORM = (bounded_norm(2, 10_000),)


FULL = InputRanges(NORM, 5)


MODULUS = prod(PRIMES[: FULL.primes])


def table(row, rows=5):
    """One row among those that are zero."""
    found = [[0] * len(row) for _ in range(rows)]
    found[3] = row
    return found


def fraction(top, bottom):
    return centred(top * pow(bottom, -1, MODULUS), MODULUS)


LARGE = {
    "one unit": 101,
    "twice": 200,
    "a thousand times": 100_000,
    "half": (MODULUS - 1) // 2,
    "a third": MODULUS // 3,
    "three sevenths": fraction(3, 7),
    "a half of one": fraction(1, 2),
    "modulo one prime": crt([1, 0], PRIMES[:2]),
}


class OtherSquares(AnyRows):
    """It fills the norm up to another bound, by small squares."""

    def fill(self, value):
        return [3, 2, 1]


class OtherSums(InputProver):
    """It says a sum that is one off."""

    def bits_of(self, sums):
        sums[2, 1] += 1
        return super().bits_of(sums)


class OtherCoins(InputProver):
    """It takes other signs than the coins said, as if it had known them before it dealt."""

    def digits(self, drawn):
        return super().digits(np.roll(drawn, 1, axis=1))


class OtherHelp(AnyRows):
    """Its row is a unit too long, and it deals the values that an honest owner would, so that nothing else differs."""

    def fill(self, value):
        return [0, 0, 0]

    def help_values(self):
        honest = AnyRows.__new__(AnyRows)
        honest.window, honest.system = self.window, self.system
        honest.whole = np.where(self.whole == 101, 100, self.whole)
        return AnyRows.help_values(honest)


class NoHelp(InputProver):
    """It deals zeros where it should help."""

    def help_values(self):
        return np.zeros((len(self.window.system.primes), *self.window.shapes["help"]))


def digits_of(values, bits):
    """All but the highest bit of each number, and what is left in its place; bits before columns."""
    low = [values >> place & 1 for place in range(bits - 1)]
    return np.stack([*low, values >> (bits - 1)], axis=1).reshape(-1)


class WideBits(AnyRows):
    """It says sums that are too large by a highest bit that is none."""

    def said(self, sums):
        self.dealt_bits = super().said(sums)
        ranges = self.window.ranges
        left = ranges.limit**2 - np.square(sums >> ranges.dropped).sum(axis=1)
        return np.concatenate(
            [digits_of(sums + (1 << (ranges.bits - 1)), ranges.bits), digits_of(left, ranges.excess_bits)]
        )


class SplitBits(AnyRows):
    """It says sums that are too large by bits that are bits modulo every prime, but other ones modulo each."""

    def said(self, sums):
        ranges, primes, by_prime = self.window.ranges, self.system.primes, []
        assert 2**ranges.bits > max(primes)
        for prime in primes:
            shifted = (sums + (1 << (ranges.bits - 1))) % prime
            high = (shifted >> ranges.dropped) - (1 << (ranges.bits - 1 - ranges.dropped))
            left = (ranges.limit**2 - np.square(high).sum(axis=1)) % prime
            by_prime.append([*digits_of(shifted, ranges.bits), *digits_of(left, ranges.excess_bits)])
        residues = np.array(by_prime, dtype=np.float64)
        self.residues = residues[:, :, None]
        self.dealt_bits = residues[0]
        return self.system.to_integers(residues, self.system.modulus // 2)

    def help_bits(self):
        found = [self.window.bits.help_values([rows]) for rows in self.residues]
        return np.stack([one[index] for index, one in enumerate(found)])


@pytest.mark.parametrize("cell", LARGE.values(), ids=LARGE.keys())
def test_a_cell_beyond_its_bound_is_caught(cell):
    """The rest of the norm is filled up modulo every prime, so only the size of numbers is wrong."""
    for row in ([cell, 0], [0, cell]):
        assert caught(FULL, table(row), AnyRows, seeded(1)) == ["zero"]


class OtherLastSum(InputProver):
    """It says another sum of the rows of the last window."""

    def bits_of(self, sums):
        sums[-1, 0] += 1
        return super().bits_of(sums)


def test_windows_that_are_proven_together_have_sums_of_their_own():
    """As many rows as all windows have would be too many for one sum, and a long row of any window is caught."""
    sizes = [3, 2, 4, 5, 1]
    window = ProofWindow(ResidueSystem(PRIMES[:2]), FULL, sizes)
    assert window.ends == [5, 9, 14, 15]
    assert window.sums == 4 * FULL.projections
    honest = [[60, -80], [100, 0], [0, 0]] * 5
    for prover in (AnyRows, InputProver):
        assert caught(FULL, honest, prover, seeded(2), sizes) == []
    for place in (0, 4, 5, 8, 9, 13, 14):
        for cell in (LARGE["half"], LARGE["a third"]):
            rows = [*honest[:place], [cell, 0], *honest[place + 1 :]]
            assert caught(FULL, rows, AnyRows, seeded(place), sizes) == ["zero"]
    assert caught(FULL, honest, OtherLastSum, seeded(3), sizes) == ["zero"]


@pytest.mark.parametrize("row", [[100, 0], [0, 0], [60, -80], [57, -57]])
def test_what_is_within_the_bounds_passes_however_it_is_proven(row):
    for prover in (AnyRows, InputProver):
        assert caught(FULL, table(row), prover, seeded(6)) == []


@pytest.mark.parametrize(
    ("prover", "row", "seen"),
    [
        (OtherSquares, [101, 0], {"zero", "inner"}),
        (OtherSums, [100, 0], {"zero"}),
        (OtherCoins, [100, 0], {"zero"}),
        (OtherHelp, [101, 0], {"zero", "inner"}),
        (NoHelp, [100, 0], {"zero", "inner"}),
        (WideBits, [200, 0], {"inner", "window"}),
    ],
)
def test_a_proof_that_is_another_one_is_caught(prover, row, seen):
    found = set(caught(FULL, table(row), prover, seeded(0)))
    assert set() < found <= seen


@pytest.mark.slow
def test_large_cells_pass_exactly_as_often_as_the_theorem_says():
    for projections, trials in ((1, 400), (2, 400), (4, 600)):
        assert within_chance(passes(projections, trials), trials, 2.0**-projections)
    assert passes(46, 600) == 0


def test_bits_that_differ_between_primes_are_seen_by_their_size_alone():
    assert [smallest_idempotent(PRIMES[:count]).bit_length() - 1 for count in (2, 3, 4, 5)] == [40, 61, 81, 104]
    assert smallest_idempotent((3, 5)) == 5  # 6 = 1 modulo 5, 0 modulo 3; 10 = -5
    ranges = InputRanges((bounded_norm(2, 2**40),), 5)
    rows = table([(prod(PRIMES[: ranges.primes]) - 1) // 2, 0])
    assert caught(ranges, rows, AnyRows, seeded(1)) == ["zero"]
    for seed in range(3):
        assert caught(ranges, rows, SplitBits, seeded(seed)) == ["window"]


FLAGS = {
    "two": (binary_columns(2), [2, 0]),
    "minus one": (binary_columns(2), [0, -1]),
    "a half": (binary_columns(2), [fraction(1, 2), 0]),
    "one that is one modulo one prime": (binary_columns(2), [crt([1, 0], PRIMES[:2]), 1]),
    "the norm of a code": (binary_columns(3, -1, 2), [1, 1, -2]),
    "the negative": (binary_columns(4, -1, 3), [-3, 1, 1, 1]),
}


class Read(AnyRows):
    """It reads its numbers as the group says, also where that gives no whole numbers."""

    def __init__(self, window, blocks):
        ranges, modulus = window.ranges, window.system.modulus
        inverses = [pow(scale, -1, modulus) for scale in ranges.scales]
        whole = (np.vstack(blocks) - np.array(ranges.offsets, dtype=object)) * np.array(inverses, dtype=object)
        super().__init__(window, [np.vectorize(lambda value: centred(value, modulus), otypes=[object])(whole)])


@pytest.mark.parametrize(("group", "row"), FLAGS.values(), ids=FLAGS.keys())
def test_what_is_no_flag_and_no_code_is_caught(group, row):
    good = [group.offset + group.scale, *[group.offset] * (group.columns - 1)]
    rows = [good] * 5
    ranges = InputRanges((group,), 5)
    for prover in (Read, InputProver):
        assert caught(ranges, rows, prover, seeded(3)) == []
    assert caught(ranges, [*rows[:4], row], Read, seeded(0))


def passes(projections, trials):
    """How often a cell of half the modulus passes: all numbers of a row get the same sign, which must always be 0."""
    ranges, coins = InputRanges(NORM, 5, projections=projections), seeded(7)
    return sum(not caught(ranges, table([LARGE["half"], 0]), AnyRows, coins) for _ in range(trials))


def within_chance(passed, trials, chance):
    """Whether a count is as a chance says; a right one is refused less than once in 10^6."""
    return abs(passed - trials * chance) <= 5.2 * np.sqrt(trials * chance * (1 - chance)) + 1


def test_a_cell_of_half_the_modulus_passes_one_projection_half_of_the_times():
    assert within_chance(passes(1, 60), 60, 1 / 2)


# --- a whole committee


def rows_of(rng, groups, count):
    """Rows that use their bounds to the end: norms at the bound, beyond which one unit would be, and zero."""
    columns = []
    for group in groups:
        shape = (count, group.columns)
        if group.flags:
            values = rng.integers(0, 2, shape)
        else:
            most = isqrt(group.squared)
            values = np.trunc(rng.uniform(-1, 1, shape) * most / np.sqrt(group.columns)).astype(np.int64)
            values[::3] = 0
            values[1::3, 1:] = 0
            values[1::3, 0] = most
        columns.append(values * group.scale + group.offset)
    return np.hstack(columns)


def play_window(in_threads, groups, sizes, *, seats=(3, 1), owners="abc", seated=True, cheats=None, **how):
    """A window of all owners, who have a seat each if ``seated``; a cheat is a number of ``a`` and its prover."""
    rng = np.random.default_rng(3)
    ranges = {name: InputRanges(tuple(groups), sum(sizes), **how) for name in owners}
    tables = {name: rows_of(rng, groups, sum(sizes)).astype(object) for name in ranges}
    if cheats is not None:
        tables["a"][5] = [0, cheats[0], *[0] * (len(tables["a"][5]) - 2)]
    places = [*owners, *(f"s{i}" for i in range(seats[0]))]
    held = tuple(places[: seats[0]] if seated else places[-seats[0] :])
    primes = PRIMES[: max(each.primes for each in ranges.values())]
    committee = Committee(held, seats[1], ResidueSystem(primes), active=True)
    ends = np.cumsum([0, *sizes]).tolist()

    def program(name, links):
        hand = ShareEngine(name, committee, links)
        mine = [tables[name][a:b] for a, b in pairwise(ends)] if name in ranges else None
        dealt = {owner: [] for owner in owners}
        for at, rows in enumerate(sizes):
            own = hand.deal(mine[at]) if mine else None
            for owner in owners if hand.has_seat else ():
                shape = (rows, ranges[owner].columns)
                dealt[owner].append(own if owner == name else hand.receive(owner, shape))
        proofs = InputProofs(hand, ranges)
        if cheats is not None and name == "a":
            proofs.prover = cheats[1]
        proofs.window(sizes, own=mine, dealt=dealt if hand.has_seat else None)
        if hand.has_seat:
            hand.claims.settle()

    in_threads({name: partial(program, name) for name in dict.fromkeys([*owners, *held])})


GROUPS = {
    "within": [bounded_norm(5, 12_345)],
    "one column": [bounded_norm(1, 7)],
    "no room": [bounded_norm(3, 0)],
    "codes": [binary_columns(4, -1, 3), binary_columns(2, -1, 1), binary_columns(1, -1, 1)],
    "all": [bounded_norm(4, 1 << 20), binary_columns(2), bounded_norm(3, 49), binary_columns(3), bounded_norm(2, 900)],
    "four primes": [bounded_norm(3, 2**51)],
}


OUTSIDE = {"owners": "ab", "seated": False}


@pytest.mark.parametrize(
    ("groups", "sizes", "how"),
    [
        *((groups, sizes, {}) for groups in [*GROUPS][:-1] for sizes in ([1], [40, 23])),
        ("four primes", [130, 70], {}),
        *(("all", [50, 40], OUTSIDE | {"seats": seats}) for seats in ((3, 1), (4, 1), (5, 2))),
    ],
)
def test_honest_owners_are_believed_also_without_a_seat(in_threads, groups, sizes, how):
    play_window(in_threads, GROUPS[groups], sizes, **how)


@pytest.mark.parametrize(
    ("groups", "cheats", "how", "code"),
    [
        ([bounded_norm(5, 12_345)], (112, AnyRows), {}, "SH015"),
        ([bounded_norm(5, 12_345)], (112, AnyRows), {"seats": (5, 2), "owners": "abcde"}, "SH015"),
        ([bounded_norm(5, 12_345)], (MODULUS // 2, AnyRows), {}, "SH015"),
        ([bounded_norm(5, 12_345)], (112, AnyRows), OUTSIDE, "SH015"),
        ([bounded_norm(5, 12_345)], (MODULUS // 2, AnyRows), OUTSIDE | {"seats": (4, 1)}, "SH015"),
        ([bounded_norm(2, 2**40)], (MODULUS // 2, SplitBits), {}, "SH016"),  # it is named
    ],
)
def test_an_owner_that_deals_a_number_beyond_its_bound_or_bits_that_are_none_is_caught(
    in_threads, groups, cheats, how, code
):
    refused(ShareError, code, play_window, in_threads, groups, [20], cheats=cheats, **how)


def test_what_the_proof_was_not_made_for_is_refused():
    for make in (
        partial(binary_columns, 1, 0, 0),
        partial(binary_columns, 1, 0, PRIMES[0]),
        partial(bounded_norm, 3, -1),
    ):
        refused(CapacityError, "CA006", make)
    for primes, sizes in ((2, [11, 5]), (1, [5])):
        ranges = InputRanges((bounded_norm(3, 100),), 10)
        refused(ValueError, "VA106", ProofWindow, ResidueSystem(PRIMES[:primes]), ranges, sizes)
    refused(CapacityError, "CA007", lambda: InputRanges((bounded_norm(2**400, 2**51),), 10).primes)
    window = ProofWindow(ResidueSystem(PRIMES[:3]), InputRanges((bounded_norm(2, 100),), 4), [4])
    refused(ValueError, "VA105", InputProver, window, [np.full((4, 2), 8)])
    for number in (-1.0, float(LARGEST), float("nan")):
        refused(ValueError, "VA105", take_apart, np.array([1.0, number]))


@pytest.mark.parametrize("squared", [1, 2**34, 2**51])
@pytest.mark.parametrize("columns", [1, 3000])
def test_the_arithmetic_has_room_for_what_is_proven(squared, columns):
    ranges = InputRanges((bounded_norm(columns, squared), binary_columns(1)), 65_536)
    system = ResidueSystem.for_bound(ranges.required_bound)
    assert len(system.primes) == ranges.primes >= 2
    # A sum whose numbers have no more bits, and whose norm is within the limit modulo the primes, is a short one.
    high = ranges.bits - 1 - ranges.dropped
    assert ranges.width * 4**high + 2**ranges.excess_bits <= system.modulus
    longest = 2 * ((ranges.limit + isqrt(ranges.width) + 1) << ranges.dropped)
    assert longest * (longest + 1) < system.modulus
    # An honest one is: each number is less than 2^dropped below its high bits.
    assert 2 ** (ranges.bits - 1) > ranges.reach >= isqrt(squared)
    assert ranges.reach / 2**ranges.dropped + np.sqrt(ranges.width) <= ranges.limit
    assert ranges.limit**2 < 2**ranges.excess_bits
    low, above = ProofWindow(system, ranges, [1] * 3).hidden
    assert 0 < above - low < smallest_idempotent(system.primes)
    assert ranges.error < Fraction(1, 2**40)
    proofs = ranges.projections * MOST_PROOFS
    share = ranges.reach**2 / (ranges.rows * (squared + 1))
    assert proofs * np.sqrt(2 * np.e * share) * np.exp(-share) <= 2.0**-FALSE_ALARM
    missed = 1 - (1 - 2 * 4 * ranges.dealt_bits / 2.0**MASK_BITS) ** ranges.projections
    assert MOST_PROOFS * missed**MASK_SETS < 2.0**-FALSE_ALARM


def test_flags_modulo_the_primes_are_flags_as_whole_numbers():
    """No row of this length has a sum of all u^2 - u, which are all alike and below zero, that reaches the modulus."""
    columns, primes = 10**8, 3
    for rows, enough in ((3_413_161_324, True), (3_413_161_325, False)):  # here the last term decides
        ranges = InputRanges((binary_columns(columns),), rows)
        dropped = ranges._dropped(prod(PRIMES[:primes]))
        longest = 2 * ((ranges._limit(dropped) + isqrt(columns) + 1) << dropped)
        assert longest * (longest + 1) < prod(PRIMES[:primes])
        assert (longest * (longest + isqrt(columns)) < prod(PRIMES[:primes])) == enough == ranges.fits(primes)


@pytest.mark.parametrize(("squared", "primes"), [(2**22, 2), (2**24, 2), (2**28, 3), (2**44, 3), (2**50, 4), (3, 2)])
def test_a_window_is_as_long_as_the_primes_of_sums_allow_unless_that_is_short(squared, primes):
    groups = [(bounded_norm(60, squared),), (bounded_norm(57, squared), binary_columns(1)), ()]
    rows = longest_window(groups, 1, 65_536)
    assert SHORTEST_WINDOW <= rows <= 65_536
    for size, fits in ((rows, True), (rows + 1, rows == 65_536)):
        assert (max(InputRanges(tuple(own), size).primes for own in groups if own) <= primes) == fits
    assert longest_window(groups, primes, 100) == 100


def test_no_sum_of_honest_rows_is_longer_than_its_reach_where_all_rows_are_alike():
    """Then a sum is longest; the bound on its chance is no more than ten times too large there."""
    rows, count = 400, 20_000
    signs = draw_signs(seeded(5), count, rows).sum(axis=1).astype(np.float64)
    for share in (1.0, 2.0, 3.0):
        chance = float((signs**2 >= share * rows).mean())
        assert chance <= np.sqrt(2 * np.e * share) * np.exp(-share) <= 40 * chance


def test_signs_are_zero_half_of_the_times_and_as_often_one_as_minus_one(stream):
    found = draw_signs(stream, 50, 4001)
    assert found.shape == (50, 4001)
    counts = [int((found == value).sum()) for value in (-1, 0, 1)]
    assert stats.chisquare(counts, np.array([1, 2, 1]) / 4 * found.size).pvalue > 1e-9


# --- sums of squares


def check(numbers, below=LARGEST):
    numbers = np.asarray(numbers, dtype=np.float64)
    roots = take_apart(numbers, below)
    assert roots.shape == (numbers.size, count_squares(below)) == (numbers.size, 4 if below > NEAR else 3)
    whole = roots.astype(np.int64)
    assert np.array_equal(roots, whole)
    assert whole.min(initial=0) == 0
    assert np.array_equal(np.square(whole).sum(axis=1) + whole[:, 0], numbers.astype(np.int64))


ROOTS = np.arange(2**26 - 2000, 2**26, dtype=np.int64)


NUMBERS = {
    "none": ([], LARGEST),
    "small": (np.arange(30_000), 30_000),
    "small, with a fourth": (np.arange(60_000), 2**30),
    "powers": (2 ** np.arange(52), LARGEST),
    "next to squares": (np.concatenate([ROOTS**2 - 1, ROOTS**2, ROOTS**2 + 1])[:-1], LARGEST),
    "next to pronic numbers": (np.arange(2, 16_000) ** 2 + np.arange(2, 16_000) - 1, NEAR),
    **{
        f"below {scale}": (np.random.default_rng(7).integers(0, scale, 30_000), scale)
        for scale in (1, 2, 2**20, 2**28, 2**44, 2**52)
    },
}


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_is_a_sum_of_such_squares(name):
    check(*NUMBERS[name])


def test_a_number_that_no_place_of_the_table_helps_is_searched(monkeypatch):
    monkeypatch.setattr(three_squares, "_TABLE", 4)
    check(np.random.default_rng(2).integers(0, 2**20, 300), 2**20)


@given(st.lists(st.integers(0, LARGEST - 1), max_size=40))
def test_any_numbers_are_sums_of_such_squares(numbers):
    check(numbers)
    check([number % NEAR for number in numbers], NEAR)
