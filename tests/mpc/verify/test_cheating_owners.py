from __future__ import annotations

import numpy as np
import pytest

from colonnade.mpc import PRIMES
from colonnade.mpc.verify.prover import Prover
from colonnade.mpc.verify.ranges import Ranges, exactly, one_high, smallest_idempotent, two_values, within
from colonnade.testing.seeded import seeded

from .clear import AnyRows, caught, centred, crt

BOUND = 10_000
MODULUS = int(np.prod(PRIMES[:3], dtype=object))
NORM = (within(2, BOUND),)
FULL = Ranges(NORM, 5)


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
    "modulo one prime": crt([1, 0, 0], PRIMES[:3]),
}


class OtherSquares(AnyRows):
    """It fills the norm up to another bound, by small squares."""

    def four(self, value):
        return [3, 2, 1, 0]


class OtherSums(Prover):
    """It says a sum that is one off."""

    def bits_of(self, sums):
        sums[2, 1] += 1
        return super().bits_of(sums)


class OtherCoins(Prover):
    """It takes other signs than the coins said, as if it had known them before it dealt."""

    def digits(self, drawn):
        return super().digits(np.roll(drawn, 1, axis=1))


class OtherHelp(AnyRows):
    """Its row is a unit too long, and it deals the values that an honest owner would, so that nothing else differs."""

    def four(self, value):
        return [0, 0, 0, 0]

    def help(self):
        honest = AnyRows.__new__(AnyRows)
        honest.window, honest.system = self.window, self.system
        honest.whole = np.where(self.whole == 101, 100, self.whole)
        return AnyRows.help(honest)


class NoHelp(Prover):
    """It deals zeros where it should help."""

    def help(self):
        return np.zeros((len(self.window.system.primes), *self.window.shapes["help"]))


class WideBits(AnyRows):
    """It says sums that are too large by a highest bit that is none."""

    def said(self, sums):
        self.dealt = super().said(sums)
        bits = self.window.ranges.bits
        digits = self.dealt.astype(np.int64).astype(object)
        shifted = sums + (1 << (bits - 1))
        for place in range(bits - 1):
            digits[place::bits] = shifted >> place & 1
        digits[bits - 1 :: bits] = shifted >> (bits - 1)
        return digits


class SplitBits(AnyRows):
    """It says sums that are too large by bits that are bits modulo every prime, but other ones modulo each."""

    def said(self, sums):
        bits, primes = self.window.ranges.bits, self.system.primes
        assert 2**bits > max(primes)
        shifted = sums + (1 << (bits - 1))
        by_prime = [
            [[int(value) % prime >> place & 1 for value in row] for row in shifted for place in range(bits)]
            for prime in primes
        ]
        residues = np.array(by_prime, dtype=np.float64)
        self.residues = residues.reshape(len(primes), -1, 1)
        return self.system.join(residues, self.system.modulus // 2)

    def help_bits(self):
        found = [self.window.bits.helped([rows]) for rows in self.residues]
        return np.stack([one[index] for index, one in enumerate(found)])


@pytest.mark.parametrize("cell", LARGE.values(), ids=LARGE.keys())
def test_a_cell_beyond_its_bound_is_caught(cell):
    """The rest of the norm is filled up modulo every prime, so only the size of numbers is wrong."""
    for column in range(2):
        row = [0, 0]
        row[column] = cell
        assert caught(FULL, table(row), AnyRows, seeded(column)) == ["zero"]


@pytest.mark.parametrize("row", [[100, 0], [0, 0], [60, -80], [57, -57]])
def test_what_is_within_the_bounds_passes_however_it_is_proven(row):
    assert caught(FULL, table(row), AnyRows, seeded(6)) == []
    assert caught(FULL, table(row), Prover, seeded(6)) == []


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
    for seed in range(3):
        found = caught(FULL, table(row), prover, seeded(seed))
        assert found
        assert set(found) <= seen, found


def test_bits_that_differ_between_primes_are_seen_by_their_size_alone():
    ranges = Ranges((within(2, 2**40),), 5)
    rows = table([LARGE["half"], 0])
    assert caught(ranges, rows, AnyRows, seeded(1)) == ["zero"]
    for seed in range(3):
        assert caught(ranges, rows, SplitBits, seeded(seed)) == ["window"]


FLAGS = {
    "two": (two_values(2), [2, 0]),
    "minus one": (two_values(2), [0, -1]),
    "a half": (two_values(2), [fraction(1, 2), 0]),
    "one that is one modulo one prime": (two_values(2), [crt([1, 0, 0], PRIMES[:3]), 1]),
    "none of them": (one_high(3, -1, 2), [-1, -1, -1]),
    "two of them": (one_high(3, -1, 2), [2, 2, -1]),
    "the norm of a code": (one_high(3, -1, 2), [1, 1, -2]),
    "the negative": (one_high(4, -1, 3), [-3, 1, 1, 1]),
    "a longer row": (exactly(2, 25), [3, 5]),
    "a shorter row": (exactly(2, 25), [0, 4]),
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
    good = [3, 4] if not group.flags else [group.offset + group.scale, *[group.offset] * (group.columns - 1)]
    rows = [good] * 5
    ranges = Ranges((group,), 5)
    assert caught(ranges, rows, Read, seeded(3)) == []
    assert caught(ranges, rows, Prover, seeded(3)) == []
    rows = [*rows[:4], row]
    for seed in range(2):
        assert caught(ranges, rows, Read, seeded(seed))


def passes(projections, trials):
    """How often a cell of half the modulus passes: all numbers of a row get the same sign, which must always be 0."""
    ranges, coins = Ranges(NORM, 5, projections=projections), seeded(7)
    return sum(not caught(ranges, table([LARGE["half"], 0]), AnyRows, coins) for _ in range(trials))


def within_chance(passed, trials, chance):
    """Whether a count is as a chance says; a right one is refused less than once in 10^6."""
    return abs(passed - trials * chance) <= 5.2 * np.sqrt(trials * chance * (1 - chance)) + 1


def test_a_cell_of_half_the_modulus_passes_one_projection_half_of_the_times():
    assert within_chance(passes(1, 60), 60, 1 / 2)


@pytest.mark.slow
@pytest.mark.parametrize(("projections", "trials"), [(1, 400), (2, 400), (4, 600)])
def test_a_large_cell_passes_exactly_as_often_as_the_theorem_says(projections, trials):
    assert within_chance(passes(projections, trials), trials, 2.0**-projections)


@pytest.mark.slow
def test_a_large_cell_never_passes_all_projections():
    assert passes(43, 600) == 0


@pytest.mark.slow
def test_covert_proofs_look_at_one_row_in_eight():
    ranges, coins, trials = Ranges(NORM, 40, covert=True), seeded(8), 300
    seen = sum(bool(caught(ranges, table([101, 0], 40), OtherSquares, coins)) for _ in range(trials))
    assert within_chance(seen, trials, 1 / 8)
    assert all(caught(ranges, table([100_000, 0], 40), OtherSquares, coins) for _ in range(30))


def test_the_smallest_number_that_is_a_bit_modulo_every_prime_and_no_bit():
    assert [smallest_idempotent(PRIMES[:count]).bit_length() - 1 for count in (2, 3, 4, 5)] == [40, 61, 81, 104]
    assert smallest_idempotent((3, 5)) == 5  # 6 = 1 modulo 5, 0 modulo 3; 10 = -5
