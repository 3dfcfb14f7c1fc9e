"""Proofs that an owner's rows are within their bounds, given to the seats that hold shares of them.

A group is a run of columns. Of every row it is proven that the squared norm of these columns is within a bound, or that
every number is one of two; why the proofs hold stands in docs/theory/active-security.md. All participants of a task
hold the same :class:`InputRanges` of every owner: its groups, and the public sizes of its proofs.

Rows are dealt block by block as always. A window is so many rows as can be added up; some windows are proven together
(:class:`ProofWindow`): each has sums of its own, and all else is done once for all of them. After the last block of
these everybody who deals or holds shares calls :meth:`InputProofs.window`, and seats settle their claims before
anything is opened::

    ranges = {owner: InputRanges((bounded_norm(columns, squared),), rows_in_a_window) for owner in owners}
    system = ResidueSystem.for_bound(max(bound, *(each.required_bound for each in ranges.values())))
    proofs = InputProofs(engine, ranges)
    proofs.window(sizes, own=blocks_of_integers, dealt={owner: blocks_of_shares for owner in owners})
    engine.claims.settle()

``own`` is None where a participant deals nothing, ``dealt`` where it has no seat. A window takes three coins:

1. The owner deals three squares for each norm, which fill it up to its bound, and some sets of masks.
2. A coin gives ternary signs. The owner deals the bits of K sums of rows with these signs, and of what their norms
   leave of a bound. If a row is long, each sum is longer than that with a chance of at least one half. It also helps to
   fold the equations of all rows (:mod:`row_equations`).
3. A coin: the seats check that the bits are those of the sums and of their norms. They open K sums of all bits with
   signs, under a set of masks with which these are uniform, as the owner says: a bit that is 0 modulo one prime and 1
   modulo another makes them too large.
4. A coin: what is left of the equations, and that bits are their own squares, is claimed.

What holds modulo all primes then holds for whole numbers, because rows are short.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from hashlib import sha256
from itertools import pairwise, product
from math import ceil, isqrt, log, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import NO_RESULT, CapacityError, ShareError
from colonnade.message_schema import Integer, MessageSchema, receive_message
from colonnade.mpc.committee import Shares
from colonnade.mpc.engine import ShareEngine
from colonnade.mpc.residues import PRIMES, Integers, Residues, ResidueSystem
from colonnade.mpc.verification.claims import ClaimBlock, ShareClaims, parts_of
from colonnade.mpc.verification.row_equations import AffineReading, EvaluationPoints, RowEquations, RowIdentity
from colonnade.mpc.verification.three_squares import LARGEST, count_squares, take_apart
from colonnade.randomness import Stream

PROJECTIONS = 46
"""How often a row that is too long has a chance of one half to stay unseen."""
_CLOSER_BITS = 3
"""The other checks are repeated until each lets less pass than all projections, with which masks count too."""
MASK_BITS = 40
"""Sums of bits are hidden by numbers below 2^40: an idempotent modulo two primes is larger."""
MASK_SETS = 8
"""A set of masks is right for nearly all bits; the owner takes the first that is."""
FALSE_ALARM = 40
"""An honest owner cannot prove its bounds with a chance of at most 2^-40 in a task, in whatever lanes it runs."""
MOST_PROOFS = 1 << 22
"""As many windows may an owner prove in a task."""
FEWEST_PRIMES = 2
WINDOW_ROWS = 65_536
SHORTEST_WINDOW = 2048
"""Where windows would be shorter, there are more primes."""
FOLDS = (32, 16)
"""Into how many parts rows are cut, the first and the second time."""
BIT_FOLD = 32
"""Into how many parts bits are cut."""


def projections_for(tries: int) -> int:
    """How many projections a proof has where somebody may cheat so often before the study ends."""
    return PROJECTIONS + (tries - 1).bit_length()


@dataclass(frozen=True)
class ColumnGroup:
    """A run of columns x, all of which are read as u = (x - offset) / scale.

    Without ``flags``, the squares of u add up to at most ``squared``. With ``flags``, every u is 0 or 1.
    """

    columns: int
    squared: int = 1
    flags: bool = False
    scale: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        if self.columns < 1 or not 0 <= self.squared < LARGEST or not 0 < abs(self.scale) < PRIMES[-1]:
            raise CapacityError("a bound that is to be proven is for at least one column, and below 2^52 [CA006]")

    @property
    def slack(self) -> int:
        """How many more columns are dealt: squares that fill the norm up to the bound."""
        return 0 if self.flags else count_squares(self.squared + 1)

    @property
    def norm_squared(self) -> int:
        """The largest squared norm of an honest row, with what fills it up."""
        return self.columns if self.flags else self.squared


def bounded_norm(columns: int, squared: int) -> ColumnGroup:
    """Columns whose squares add up to at most ``squared`` in every row."""
    return ColumnGroup(columns, squared)


def binary_columns(columns: int, low: int = 0, high: int = 1) -> ColumnGroup:
    """Columns in which every number is one of two: presence, labels."""
    return ColumnGroup(columns, flags=True, scale=high - low, offset=low)


BIT_IDENTITY = RowIdentity(np.ones((1, 1)), -np.ones((1, 1)), (0,))
"""Every number is its own square."""


@dataclass(frozen=True)
class InputRanges:
    """The sizes of the proofs of one owner: its groups, and the most rows of a window, which are added up."""

    groups: tuple[ColumnGroup, ...]
    rows: int
    projections: int = PROJECTIONS

    @cached_property
    def columns(self) -> int:
        """How many columns the owner deals as its rows."""
        return sum(group.columns for group in self.groups)

    @cached_property
    def slack(self) -> int:
        """How many columns of squares it deals besides."""
        return sum(group.slack for group in self.groups)

    @cached_property
    def width(self) -> int:
        """All columns."""
        return self.columns + self.slack

    @cached_property
    def spans(self) -> tuple[slice, ...]:
        """Where the columns of each group are."""
        ends = np.cumsum([0, *(group.columns for group in self.groups)]).tolist()
        return tuple(slice(*pair) for pair in pairwise(ends))

    @cached_property
    def norm_squared(self) -> int:
        """The largest squared norm of an honest row, with what fills it up."""
        return sum(group.norm_squared for group in self.groups)

    @cached_property
    def reach(self) -> int:
        """No honest sum of rows is longer, but with a chance of at most 2^-40 in all proofs of a study.

        If T is the sum of all squared norms, the squared norm of a sum is above x T with a chance of at most
        sqrt(2 e x) exp(-x) (theory: active-security, Lemma 15).
        """
        alarms = log(2) * FALSE_ALARM + log(self.projections * MOST_PROOFS)
        factor = alarms
        for _ in range(8):
            factor = alarms + (1 + log(2 * factor)) / 2
        return isqrt(self.rows * self.norm_squared * min(self.rows, ceil(factor))) + 1

    @property
    def bits(self) -> int:
        """With how many bits a number of a sum is dealt."""
        return self.reach.bit_length() + 1

    def _limit(self, dropped: int) -> int:
        """No sum is longer if the lowest bits of all its numbers are dropped."""
        return (self.reach >> dropped) + isqrt(self.width) + 2

    def _dropped(self, modulus: int) -> int:
        """How many of the lowest bits norms leave out, so that they are whole numbers modulo the primes."""
        for dropped in range(self.bits):
            if self.width * 4 ** (self.bits - 1 - dropped) + 2 * self._limit(dropped) ** 2 < modulus:
                return dropped
        return self.bits

    def fits(self, primes: int) -> bool:
        """Whether with so many primes what holds modulo their product holds for whole numbers."""
        modulus = prod(PRIMES[:primes])
        dropped = self._dropped(modulus)
        longest = 2 * ((self._limit(dropped) + isqrt(self.width) + 1) << dropped)
        return longest * (longest + isqrt(self.width) + 1) < modulus and self.norm_squared < modulus

    @cached_property
    def primes(self) -> int:
        """The fewest primes that do."""
        for count in range(FEWEST_PRIMES, len(PRIMES) + 1):
            if self.fits(count):
                return count
        raise CapacityError("numbers are too large for a proof that they are within their bounds: lower gamma [CA007]")

    @cached_property
    def dropped(self) -> int:
        """How many of the lowest bits norms leave out."""
        return self._dropped(prod(PRIMES[: self.primes]))

    @property
    def limit(self) -> int:
        """Without these bits, no sum is longer."""
        return self._limit(self.dropped)

    @property
    def excess_bits(self) -> int:
        """With how many bits it is dealt what a norm leaves of the square of this limit."""
        return (self.limit**2).bit_length()

    @property
    def dealt_bits(self) -> int:
        """How many bits are dealt for the sums of a window."""
        return self.projections * (self.bits * self.width + self.excess_bits)

    @property
    def required_bound(self) -> int:
        """A bound for :meth:`ResidueSystem.for_bound` that gives enough primes."""
        return prod(PRIMES[: self.primes - 1]) // 2 + 1

    @cached_property
    def identity(self) -> RowIdentity:
        """What holds in every row of all columns, those of squares last.

        For whole numbers u^2 - u is never negative, so all flags are right if the sum over all of them is zero.
        """
        rows: list[tuple[NDArray[np.float64], NDArray[np.float64], int]] = []
        flags, after = np.zeros(self.width), self.columns
        for group, span in zip(self.groups, self.spans, strict=True):
            here = np.zeros(self.width)
            here[span] = 1.0
            if group.flags:
                flags += here
                continue
            here[after : after + group.slack] = 1.0
            linear = np.zeros(self.width)
            linear[after] = 1.0  # a (a + 1)
            after += group.slack
            rows.append((here, linear, group.squared))
        if flags.any():
            rows.append((flags, -flags, 0))
        return RowIdentity(
            np.array([row[0] for row in rows]), np.array([row[1] for row in rows]), tuple(r[2] for r in rows)
        )

    @cached_property
    def scales(self) -> tuple[int, ...]:
        """For each dealt column, the number by which u is multiplied."""
        return tuple(group.scale for group in self.groups for _ in range(group.columns))

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """For each dealt column, the number that is then added."""
        return tuple(group.offset for group in self.groups for _ in range(group.columns))

    @property
    def plain(self) -> bool:
        """Whether all columns are read as they are."""
        return set(self.scales) == {1} and set(self.offsets) == {0}

    @property
    def repetitions(self) -> int:
        """How often equations are folded."""
        return self._often_enough(self._folding_error)

    @property
    def check_repetitions(self) -> int:
        """How often a random combination is checked, which is wrong with a chance of one in p."""
        return self._often_enough(Fraction(1, PRIMES[-1]))

    def _often_enough(self, error: Fraction) -> int:
        """The fewest repetitions that keep the chance of an error below 2^-43, with as many projections as usual."""
        count = 1
        while error**count * 2**self.projections > 2**_CLOSER_BITS:
            count += 1
        return count

    @property
    def _folding_error(self) -> Fraction:
        """The chance that one repetition does not see a wrong equation: the degrees of all that coins must not hit."""
        first, second = FOLDS
        return Fraction(3 + 2 * (first - 1) + 2 * (second - 1), PRIMES[-1] - 2 * max(*FOLDS, BIT_FOLD))

    @property
    def error(self) -> Fraction:
        """The largest chance that rows beyond their bounds pass, besides what the claims' own settlement lets pass.

        A row that is too long stays within all sums; a bit that is none does, with any set of masks; bits do not add up
        to the sums, or to their norms; bits are not their own squares; rows do not fulfil their equations.
        """
        seen = Fraction(1 + MASK_SETS, 2**self.projections) + 2 * Fraction(1, PRIMES[-1] ** self.check_repetitions)
        return seen + 2 * self._folding_error**self.repetitions


def longest_window(
    groups: Collection[Sequence[ColumnGroup]], primes: int, rows: int, projections: int = PROJECTIONS
) -> int:
    """How many of so many rows fit a window of all owners, in arithmetic modulo so many primes.

    If that is few, of more primes, for proofs of short windows cost more than primes.
    """
    return _longest_window(frozenset(tuple(own) for own in groups if own), primes, rows, projections)


@cache
def _longest_window(groups: frozenset[tuple[ColumnGroup, ...]], primes: int, rows: int, projections: int) -> int:
    for count in range(max(FEWEST_PRIMES, primes), len(PRIMES) + 1):

        def too_many(size: int, count: int = count) -> bool:
            return not all(InputRanges(own, size, projections).fits(count) for own in groups)

        fitting = bisect_left(range(1, rows + 1), True, key=too_many)
        if fitting >= min(rows, SHORTEST_WINDOW):
            return fitting
    raise CapacityError("numbers are too large for a proof that they are within their bounds: lower gamma [CA035]")


@cache
def smallest_idempotent(primes: tuple[int, ...]) -> int:
    """The smallest magnitude of a number that is 0 modulo some of the primes and 1 modulo the others."""
    modulus = prod(primes)
    units = [modulus // prime * pow(modulus // prime, -1, prime) for prime in primes]
    some_and_not_all = list(product((0, 1), repeat=len(primes)))[1:-1]
    sums = [
        sum(unit for unit, here in zip(units, chosen, strict=True) if here) % modulus for chosen in some_and_not_all
    ]
    return min(min(value, modulus - value) for value in sums)


WholeNumbers = NDArray[np.float64]
SignMatrix = NDArray[np.int8]


_PART = 1 << 13
"""Bits for which signs are drawn at a time."""


class ProofCoins:
    """Public coins of one step: streams by name, so that an owner reads those of its own proof alone."""

    def __init__(self, stream: Stream) -> None:
        self._key = stream.bytes(32)

    def stream(self, name: str) -> Stream:
        """The stream of this name."""
        return Stream(sha256(self._key + name.encode()).digest())


def draw_signs(stream: Stream, count: int, length: int) -> SignMatrix:
    """Numbers that are 0 with chance 1/2 and 1 or -1 with chance 1/4."""
    size = -(-length // 8)
    drawn = np.frombuffer(stream.bytes(2 * count * size), dtype=np.uint8).reshape(2, count, size)
    first, second = np.unpackbits(drawn, axis=2, count=length).view(np.int8)
    found: SignMatrix = first - second
    return found


class ProofWindow:
    """What is public about windows of one owner that are proven together: their blocks, and the equations of all rows.

    A window ends where the next block is too long for it.
    """

    def __init__(self, system: ResidueSystem, ranges: InputRanges, sizes: Sequence[int]) -> None:
        self.system, self.ranges, self.sizes, self.rows = system, ranges, list(sizes), sum(sizes)
        if max(sizes) > ranges.rows or len(system.primes) < ranges.primes:
            raise ValueError(
                "a window has more rows, or the arithmetic fewer primes, than the proof was made for [VA106]"
            )
        ends = [0]
        for start, stop in pairwise(self.starts):
            if stop - ends[-1] > ranges.rows:
                ends.append(start)
        self.ends = [*ends[1:], self.rows]
        """After how many rows each window ends."""
        self.sums, self.dealt_bits = (len(self.ends) * each for each in (ranges.projections, ranges.dealt_bits))
        """How many sums of rows there are in all windows, and how many bits are dealt for them."""
        again = ranges.repetitions
        self.equations = RowEquations(system, ranges.identity, self.sizes, FOLDS, again)
        self.bits = RowEquations(system, BIT_IDENTITY, [self.dealt_bits], [BIT_FOLD], again)
        self.read = None if ranges.plain else AffineReading(ranges.scales, ranges.offsets)

    @property
    def starts(self) -> list[int]:
        """Where each block starts."""
        return [0, *np.cumsum(self.sizes).tolist()]

    @property
    def windows(self) -> list[tuple[slice, slice]]:
        """The rows of each window, and which sums are those of its rows."""
        rows, count = pairwise([0, *self.ends]), self.ranges.projections
        return [(slice(*pair), slice(place * count, (place + 1) * count)) for place, pair in enumerate(rows)]

    @property
    def hidden(self) -> tuple[int, int]:
        """From where to where hidden sums of bits lie: there every number is as likely as every other."""
        return self.dealt_bits, (1 << MASK_BITS) - self.dealt_bits

    def whole_rows(
        self, blocks: Sequence[Sequence[WholeNumbers]], slack: WholeNumbers | None, axis: int
    ) -> list[list[WholeNumbers]]:
        """The rows, block by block, each beside its squares; rows are this axis."""
        if slack is None:
            return [[*block] for block in blocks]
        parts = np.split(slack, self.starts[1:-1], axis=axis)
        return [[*block, part] for block, part in zip(blocks, parts, strict=True)]

    def draw(self, coins: ProofCoins, owner: str) -> None:
        """The coins by which rows are combined."""
        self.equations.combine(coins.stream(f"equations {owner}"))

    def draw_second(self, coins: ProofCoins, owner: str) -> None:
        """The point of the first fold, and the coins by which bits are combined."""
        self.point = self.equations.point(coins.stream("point"), FOLDS[0])
        self.bits.combine(coins.stream(f"bits {owner}"))

    def draw_bit_signs(self, coins: ProofCoins) -> Iterator[SignMatrix]:
        """Signs for all bits, in parts of equal length: an owner with fewer bits reads the beginning of the same."""
        stream = coins.stream("signs of bits")
        return (draw_signs(stream, self.ranges.projections, _PART) for _ in range(0, self.dealt_bits, _PART))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Everything that the owner deals for the proof, in this order."""
        ranges, again = self.ranges, self.ranges.repetitions
        squares = {"squares": (self.rows, ranges.slack)} if ranges.slack else {}
        return squares | {
            "masks": (MASK_SETS, ranges.projections),
            "bits": (self.dealt_bits,),
            "help": (again, FOLDS[0] - 1),
            "help again": (again, 2 * FOLDS[1] - 1 + BIT_FOLD - 1),
        }


_ROWS = 2048
_FEWEST_ROWS = 256
"""Rows that are multiplied by signs at a time."""


class InputProver:
    """What an owner computes from its own whole numbers; it deals all that it returns."""

    def __init__(self, window: ProofWindow, blocks: Sequence[Integers]) -> None:
        self.window, ranges = window, window.ranges
        self.blocks = [np.ascontiguousarray(block, dtype=np.float64) for block in blocks]
        if not ranges.plain:
            scales, offsets = np.array(ranges.scales), np.array(ranges.offsets)
            self.blocks = [(block - offsets) / scales for block in self.blocks]
        self.slack = self.squares()
        whole = window.whole_rows([[block] for block in self.blocks], self.slack, 0)
        self.rows = [block[0] if len(block) == 1 else np.hstack(block) for block in whole]
        """The rows, beside their squares."""

    def squares(self) -> WholeNumbers | None:
        """For every row and every norm, numbers whose squares fill it up to the bound."""
        ranges, columns = self.window.ranges, []
        for group, span in zip(ranges.groups, ranges.spans, strict=True):
            if group.slack:
                lengths = [np.einsum("ij,ij->i", block[:, span], block[:, span]) for block in self.blocks]
                columns.append(take_apart(group.squared - np.concatenate(lengths), group.squared + 1))
        return np.hstack(columns) if columns else None

    def masks(self) -> Integers:
        """Uniform numbers that hide sums of bits, some of which will be taken."""
        drawn = Stream.fresh().uint64(MASK_SETS * self.window.ranges.projections) >> np.uint64(64 - MASK_BITS)
        self.drawn_masks = drawn.astype(np.int64).reshape(MASK_SETS, -1)
        return self.drawn_masks

    def choose_masks(self, signs: Iterable[SignMatrix]) -> int:
        """Which masks to take: the first with which all sums of bits are where every number is as likely."""
        # A part has few bits, so short floats hold their sums.
        [sums] = _signed_sums([self.dealt_bits.astype(np.float32)], signs, self.window.ranges.projections)
        hidden = self.drawn_masks + sums
        low, high = self.window.hidden
        right = ((hidden >= low) & (hidden < high)).all(axis=1)
        if not right.any():
            raise self._unproven()
        return int(right.argmax())

    def _unproven(self) -> ShareError:
        return ShareError("a proof that numbers are within their bounds could not be made; run the study again [SH017]")

    def digits(self, drawn: SignMatrix) -> WholeNumbers:
        """The bits of the sums of all rows with signs, and of what their norms leave of the limit."""
        return self.bits_of(self._sums(drawn, self.rows))

    def _sums(self, drawn: SignMatrix, blocks: Sequence[WholeNumbers]) -> WholeNumbers:
        """Sums of the rows of each window with signs."""
        # Short floats hold whole numbers below 2^24, and are multiplied twice as fast.
        step = (1 << 24) // max(1, isqrt(self.window.ranges.norm_squared))
        short = step >= _FEWEST_ROWS
        kind, step = np.dtype("f4" if short else "f8"), min(step, _ROWS) if short else _ROWS
        sums, done = np.zeros((len(self.window.ends), len(drawn), blocks[0].shape[1])), 0
        for block in blocks:
            total = sums[bisect_right(self.window.ends, done)]
            for start in range(0, len(block), step):
                part = block[start : start + step].astype(kind)
                found: WholeNumbers = drawn[:, done : done + len(part)].astype(kind) @ part
                total += found
                done += len(part)
        return sums.reshape(-1, sums.shape[2])

    def bits_of(self, sums: WholeNumbers) -> WholeNumbers:
        """Sums as bits, the lowest first, and then what their norms leave of the limit."""
        ranges = self.window.ranges
        whole = sums.astype(np.int64)
        shifted = whole + (1 << (ranges.bits - 1))
        words = object if ranges.limit >> 31 else np.int64  # with four primes norms are longer than a machine word
        excess = ranges.limit**2 - np.square((whole >> ranges.dropped).astype(words)).sum(axis=1)
        if shifted.min() < 0 or shifted.max() >> ranges.bits or excess.min() < 0:
            raise self._unproven()
        said = (
            (shifted[:, None] >> np.arange(ranges.bits)[:, None] & 1).reshape(-1),
            (excess[:, None] >> np.arange(ranges.excess_bits) & 1).reshape(-1),
        )
        self.dealt_bits = np.concatenate(said).astype(np.float64)
        return self.dealt_bits

    def help_values(self) -> Residues:
        """The first values that help to fold the equations of rows."""
        return self.window.equations.help_values(self.rows)

    def second_help_values(self) -> Residues:
        """The second values, and those that help to fold the equations of bits."""
        window, equations, primes = self.window, self.window.equations, len(self.window.system.primes)
        # Below 2^26 in magnitude: the same numbers modulo every prime, without a reduction.
        alike = [[np.broadcast_to(block, (primes, *block.shape))] for block in self.rows]
        folded = equations.fold_all(alike, window.point, None)
        return np.concatenate(
            [equations.second_help_values(folded), window.bits.help_values([self.dealt_bits.reshape(-1, 1)])], axis=2
        )


class InputVerifier:
    """What a seat computes from its shares of one owner's window."""

    def __init__(
        self,
        window: ProofWindow,
        blocks: Sequence[ClaimBlock],
        slack: Shares | None,
        masks: Shares,
        bits: Shares,
        first: Shares,
    ) -> None:
        self.window, self.system = window, window.system
        self.blocks = [[part.values for part in parts_of(block)] for block in blocks]
        self.degree = masks.degree
        self.slack = None if slack is None else slack.values
        self.masks, self.bits, self.first = masks.values, bits.values, first.values
        ranges, primes = window.ranges, len(self.system.primes)
        said = window.sums * ranges.bits * ranges.width
        self.said = self.bits[:, :said].reshape(primes, -1, ranges.width)
        self.excess = self.bits[:, said:].reshape(primes, window.sums, ranges.excess_bits)

    def sum_difference(self, factors: Residues, combined: Residues) -> Shares:
        """What must be zero: the sums that bits say, less those of the rows.

        ``factors`` (primes, repetitions, sums) combine the sums, and ``combined`` (primes, repetitions, rows) are the
        numbers by which rows are then multiplied.
        """
        window, system, ranges = self.window, self.system, self.window.ranges
        total = np.zeros((*factors.shape[:2], ranges.width))
        for block, start in zip(self.blocks, window.starts, strict=False):
            part = combined[:, :, start : start + block[0].shape[1]].transpose(0, 2, 1)
            sums = np.concatenate([system.inner(part, columns) for columns in block], axis=2)
            total[:, :, : ranges.columns] += sums
        if window.read is not None:
            ones = system.reduce(combined.sum(axis=2))
            for index, prime in enumerate(system.primes):
                part = total[index, :, : ranges.columns]
                part[...] = window.read.apply(prime, part, ones[index])
        if self.slack is not None:
            total[:, :, ranges.columns :] = system.inner(combined.transpose(0, 2, 1), self.slack)
        powers = system.to_residues(np.array([1 << bit for bit in range(ranges.bits)], dtype=object))
        places = system.reduce(factors[..., None] * powers[:, None, None]).reshape(*factors.shape[:2], -1)
        said = system.inner(places.transpose(0, 2, 1), self.said)
        half = system.reduce(factors.sum(axis=2)) * system.constant(1 << (ranges.bits - 1), 3)[:, :, 0]
        return Shares(system.reduce(said - system.reduce(half)[..., None] - system.reduce(total)), self.degree)

    def claim_norms(self, claims: ShareClaims, factors: Residues) -> None:
        """Claim that the norms of all sums, without their lowest bits, and what is left add up to the limit.

        ``factors`` (primes, repetitions, sums) combine them.
        """
        system, ranges = self.system, self.window.ranges
        primes, sums, high = len(system.primes), self.window.sums, ranges.bits - ranges.dropped
        powers = system.to_residues(np.array([1 << bit for bit in range(max(high, ranges.excess_bits))], dtype=object))
        bits = self.said.reshape(primes, sums, ranges.bits, ranges.width)[:, :, ranges.dropped :]
        numbers = system.reduce((bits * powers[:, None, :high, None]).sum(axis=2))
        numbers = system.reduce(numbers - system.constant(1 << (high - 1), 3))
        left = system.reduce((self.excess * powers[:, None, : ranges.excess_bits]).sum(axis=2))
        left = system.reduce(system.constant(ranges.limit**2 % system.modulus, 2) - left)
        weighted = system.reduce(numbers.reshape(primes, sums, 1, -1) * factors.transpose(0, 2, 1)[..., None])
        weighted = weighted.transpose(0, 1, 3, 2).reshape(primes, -1, factors.shape[1])
        products = system.reduce((left[:, None] * factors).sum(axis=2))[..., None]
        lefts, rights = ([Shares(side, self.degree)] for side in (weighted, numbers.reshape(primes, -1, 1)))
        claims.inner(lefts, rights, Shares(products, self.degree))

    def fold(self, second: Shares) -> Shares:
        """Fold the rows at the first point; what must be zero then."""
        window = self.window
        rows = window.whole_rows(self.blocks, self.slack, 1)
        self.left = window.equations.fold_all(rows, window.point, window.read)
        cut = 2 * FOLDS[1] - 1
        self.second, self.of_bits = second.values[:, :, :cut], second.values[:, :, cut:]
        before = window.equations.interpolate_help(self.first, window.point)
        return Shares(window.equations.linked_difference(self.second, before), self.degree)

    def claim(self, claims: ShareClaims, points: EvaluationPoints, bit_points: EvaluationPoints) -> None:
        """Claim what is left of all equations."""
        window = self.window
        rows = window.equations.fold_again(self.left, points)
        self._claim(claims, window.equations.sides(rows), window.equations.evaluate(self.second, points))
        flat = self.bits.reshape(len(self.system.primes), -1, 1)
        bits = window.bits.fold_all([[flat]], bit_points, None)
        self._claim(claims, window.bits.sides(bits), window.bits.interpolate_help(self.of_bits, bit_points))

    def _claim(self, claims: ShareClaims, sides: tuple[Residues, Residues], product: Residues) -> None:
        claims.pairs(*(Shares(each, self.degree) for each in (*sides, product)))


_MASKS = MessageSchema("masks", number=Integer(0, MASK_SETS - 1))


class InputProofs:
    """The proofs of all owners in one task; every participant that deals or has a seat holds one."""

    def __init__(self, engine: ShareEngine, ranges: Mapping[str, InputRanges]) -> None:
        self.engine, self.ranges = engine, ranges
        self.prover = InputProver

    def window(
        self,
        sizes: Sequence[int],
        *,
        own: Sequence[Integers] | None = None,
        dealt: Mapping[str, Sequence[ClaimBlock]] | None = None,
    ) -> None:
        """Prove and verify one window; its rows were dealt before in blocks of these sizes."""
        engine, system = self.engine, self.engine.system
        windows = {owner: ProofWindow(system, ranges, sizes) for owner, ranges in self.ranges.items()}
        prover = None if own is None else self.prover(windows[engine.name], own)
        slack = self._deal_all("squares", windows, prover, lambda me: me.slack)
        masks = self._deal_all("masks", windows, prover, lambda me: me.masks())

        coins = self._coins()
        for owner, window in windows.items():
            window.draw(coins, owner)
        most = max(window.ranges.projections for window in windows.values())
        drawn = draw_signs(coins.stream("signs"), most, sum(sizes))
        bits = self._deal_all("bits", windows, prover, lambda me: me.digits(drawn[: me.window.ranges.projections]))
        first = self._deal_all("help", windows, prover, lambda me: self._to_integers(me.help_values()))

        coins = self._coins()
        for owner, window in windows.items():
            window.draw_second(coins, owner)
        second = self._deal_all("help again", windows, prover, lambda me: self._to_integers(me.second_help_values()))
        chosen = self._choose_masks(windows, prover, coins)
        held: dict[str, InputVerifier] = {}
        if dealt is not None:
            for owner, window in windows.items():
                taken = Shares(masks[owner].values[:, chosen[owner]], masks[owner].degree)
                held[owner] = InputVerifier(window, dealt[owner], slack.get(owner), taken, bits[owner], first[owner])
            self._check_sums(held, coins, drawn)
            self._check_bits(held, coins)
            for owner, verifier in held.items():
                engine.claims.zero(verifier.fold(second[owner]))

        coins = self._coins()
        for owner, verifier in held.items():
            equations = windows[owner].equations
            points, bit_points = (
                equations.point(coins.stream(name), fold) for name, fold in (("point", FOLDS[1]), ("bits", BIT_FOLD))
            )
            verifier.claim(engine.claims, points, bit_points)

    def _choose_masks(
        self, windows: Mapping[str, ProofWindow], prover: InputProver | None, coins: ProofCoins
    ) -> dict[str, int]:
        """Which masks each owner takes; it tells all seats, which compare it before the next coin."""
        engine, chosen = self.engine, dict[str, int]()
        if prover is not None:
            chosen[engine.name] = prover.choose_masks(prover.window.draw_bit_signs(coins))
            for seat in engine.committee.seats:
                if seat != engine.name:
                    engine.links[seat].send("masks", number=chosen[engine.name])
        if not engine.has_seat:
            return {}
        for owner in windows:
            if owner not in chosen:
                chosen[owner] = receive_message(engine.links[owner], owner, _MASKS)["number"]
            engine.record_public(owner, chosen[owner])
        return chosen

    def _check_sums(self, held: Mapping[str, InputVerifier], coins: ProofCoins, drawn: SignMatrix) -> None:
        """Claim that bits add up to the sums of rows."""
        engine, system = self.engine, self.engine.system
        again = max(one.window.ranges.check_repetitions for one in held.values())
        factors = system.uniform((again, max(one.window.sums for one in held.values())), coins.stream("sums"))
        combined: dict[tuple[int, ...], Residues] = {}
        for owner, verifier in held.items():
            window = verifier.window
            alike = window.ranges.projections, *window.ends
            if alike not in combined:
                combined[alike] = np.concatenate(
                    [
                        _combine_signs(system, factors[:, :, own], drawn[: window.ranges.projections, rows])
                        for rows, own in window.windows
                    ],
                    axis=2,
                )
            engine.claims.zero(verifier.sum_difference(factors[:, :, : window.sums], combined[alike]))
            norms = system.uniform((again, window.sums), coins.stream(f"norms {owner}"))
            verifier.claim_norms(engine.claims, norms)

    def _check_bits(self, held: Mapping[str, InputVerifier], coins: ProofCoins) -> None:
        """See that no bit is large."""
        engine, system = self.engine, self.engine.system
        most = max((verifier.window for verifier in held.values()), key=lambda window: window.dealt_bits)
        sums = _signed_sums([one.bits for one in held.values()], most.draw_bit_signs(coins), most.ranges.projections)
        hidden = np.concatenate([one.masks + found for one, found in zip(held.values(), sums, strict=True)], axis=1)
        opened = system.to_integers(engine.open_residues(system.reduce(hidden)), system.modulus // 2)
        for owner, verifier in held.items():
            count = verifier.window.ranges.projections
            mine, opened = opened[:count], opened[count:]
            low, high = verifier.window.hidden
            if not all(low <= value < high for value in mine.tolist()):
                raise ShareError(
                    f"the proof of {owner} that its numbers are within their bounds is wrong, as it dealt bits that "
                    f"are none: {NO_RESULT} [SH016]"
                )

    def _coins(self) -> ProofCoins:
        """Coins for seats and owners; owners without a seat hear them from all seats."""
        engine = self.engine
        if not engine.has_seat:
            return ProofCoins(engine.receive_coin())
        return ProofCoins(engine.coin([owner for owner in self.ranges if owner not in engine.committee.seats]))

    def _deal_all(
        self,
        what: str,
        windows: Mapping[str, ProofWindow],
        prover: InputProver | None,
        make: Callable[[InputProver], Integers | None],
    ) -> dict[str, Shares]:
        """Deal one's own numbers and take those of all owners; empty without a seat."""
        engine = self.engine
        mine = None if prover is None else make(prover)
        own = None if mine is None else engine.deal(mine)
        if not engine.has_seat:
            return {}
        shapes = {owner: window.shapes[what] for owner, window in windows.items() if what in window.shapes}
        return {
            owner: own if owner == engine.name and own is not None else engine.receive(owner, shape)
            for owner, shape in shapes.items()
        }

    def _to_integers(self, residues: Residues) -> Integers:
        """Numbers that have these residues, for dealing."""
        return self.engine.system.to_integers(residues, self.engine.system.modulus // 2)


def _combine_signs(system: ResidueSystem, factors: Residues, drawn: SignMatrix) -> Residues:
    """Signs combined by factors: (primes, repetitions, rows), and in memory rows of (rows, repetitions)."""
    out = np.empty((len(system.primes), drawn.shape[1], factors.shape[1]))
    for start in range(0, drawn.shape[1], _PART):
        part = drawn[:, start : start + _PART].T.astype(np.float64)
        for found, combined in zip(out, factors, strict=True):
            np.matmul(part, combined.T, out=found[start : start + _PART])
    return system.reduce(out).transpose(0, 2, 1)


def _signed_sums(many: Sequence[NDArray[Any]], signs: Iterable[SignMatrix], count: int) -> list[WholeNumbers]:
    """Sums of all bits (..., bits) of each with signs: (..., count)."""
    totals = [np.zeros((*bits.shape[:-1], count)) for bits in many]
    for place, part in enumerate(signs):
        here, turned = slice(place * _PART, (place + 1) * _PART), part.astype(many[0].dtype).T
        for bits, total in zip(many, totals, strict=True):
            total += bits[..., here] @ turned[: max(0, bits.shape[-1] - here.start)]
    return totals
