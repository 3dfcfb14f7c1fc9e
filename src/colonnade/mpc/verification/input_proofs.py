"""Proofs that an owner's rows are within their bounds, given to the seats that hold shares of them.

A group is a run of columns. Of every row it is proven that the squared norm of these columns is within a bound, or that
every number is one of two; why the proofs hold stands in docs/theory/active-security.md. All participants of a task
hold the same :class:`InputRanges` of every owner: its groups, and the public sizes of its proofs.

Rows are dealt block by block as always; a window is some blocks together (:class:`ProofWindow`). After the last block
of a window everybody who deals or holds shares calls :meth:`InputProofs.window`, and seats settle their claims before
anything is opened::

    ranges = {owner: InputRanges((bounded_norm(columns, squared),), rows_in_a_window) for owner in owners}
    system = ResidueSystem.for_bound(max(bound, *(each.required_bound for each in ranges.values())))
    proofs = InputProofs(engine, ranges)
    proofs.window(sizes, own=blocks_of_integers, dealt={owner: blocks_of_shares for owner in owners})
    engine.claims.settle()

``own`` is None where a participant deals nothing, ``dealt`` where it has no seat. A window takes three coins, and four
if proofs are covert:

1. The owner deals four squares for each norm, which fill it up to its bound, and masks.
2. A coin gives ternary signs. The owner deals the bits of K sums of each column with these signs. If a number is beyond
   2^b, each sum is beyond what b bits can say with a chance of at least one half. It also helps to fold the equations
   of all rows (:mod:`row_equations`).
3. A coin: the seats check that the bits are those of the sums, and open K sums of all bits with signs, under the
   owner's masks: a bit that is 0 modulo one prime and 1 modulo another makes them too large.
4. A coin: what is left of the equations, and that bits are their own squares, is claimed.

What holds modulo all primes then holds for whole numbers, because these are small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from hashlib import sha256
from itertools import pairwise, product
from math import ceil, isqrt, log, prod

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import NO_RESULT, CapacityError, ShareError
from colonnade.mpc.committee import Shares
from colonnade.mpc.engine import ShareEngine
from colonnade.mpc.residues import PRIMES, Integers, Residues, ResidueSystem
from colonnade.mpc.verification.claims import ShareClaims
from colonnade.mpc.verification.four_squares import LARGEST, four_squares
from colonnade.mpc.verification.row_equations import AffineReading, EvaluationPoints, RowEquations, RowIdentity
from colonnade.randomness import Stream

PROJECTIONS = 43
"""How often a number that is too large has a chance of one half to stay unseen."""
CHECK_REPETITIONS = 2
"""Repetitions of checks that are random combinations: each is wrong with a chance of one in p."""
HIDDEN = 40
"""What masks let through of all honest rows together is a statistical distance of at most 2^-40."""
FALSE_ALARM = 64
"""An honest owner is refused with a chance of at most 2^-64 in a study."""
FEWEST_PRIMES = 3
SAMPLED = 8
"""With covert proofs, one row in so many is looked at."""
WINDOW_ROWS = 65_536
FOLDS = (32, 16)
"""Into how many parts rows are cut, the first and the second time."""
BIT_FOLD = 32
"""Into how many parts bits are cut."""


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
        """How many more columns are dealt: four squares that fill the norm up to the bound."""
        return 0 if self.flags else 4

    @property
    def cell(self) -> int:
        """The largest magnitude of a number."""
        return isqrt(self.squared)


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
    """The sizes of the proofs of one owner: its groups, the most rows of a window, and the most windows of a study."""

    groups: tuple[ColumnGroup, ...]
    rows: int
    proofs: int = 64
    covert: bool = False
    projections: int = PROJECTIONS

    @property
    def columns(self) -> int:
        """How many columns the owner deals as its rows."""
        return sum(group.columns for group in self.groups)

    @property
    def slack(self) -> int:
        """How many columns of squares it deals besides."""
        return sum(group.slack for group in self.groups)

    @property
    def width(self) -> int:
        """All columns."""
        return self.columns + self.slack

    @cached_property
    def spans(self) -> tuple[slice, ...]:
        """Where the columns of each group are."""
        ends = np.cumsum([0, *(group.columns for group in self.groups)]).tolist()
        return tuple(slice(*pair) for pair in pairwise(ends))

    @property
    def cell(self) -> int:
        """The largest magnitude of an honest number."""
        return max(group.cell for group in self.groups)

    @cached_property
    def reach(self) -> int:
        """No honest projection is larger, but with a chance of at most 2^-64 in all proofs of the study.

        A number that is 0 with chance 1/2 and 1 or -1 with 1/4 has E exp(s sigma) = cosh(s/2)^2 <= exp(s^2/4). So a
        projection of n numbers of at most c is above r with a chance of at most exp(-r^2 / (n c^2)), either way.
        """
        alarms = log(2) * (FALSE_ALARM + 1) + log(self.projections * self.width * self.proofs)
        return min(self.rows * self.cell, isqrt(self.rows * self.cell**2 * ceil(alarms)) + 1)

    @property
    def bits(self) -> int:
        """With how many bits a projection is dealt; numbers beyond 2^bits are seen."""
        return self.reach.bit_length() + 1

    @property
    def dealt_bits(self) -> int:
        """How many bits are dealt for a window."""
        return self.projections * self.bits * self.width

    @cached_property
    def mask_bits(self) -> int:
        """With how many bits sums of bits are hidden: a sum of n bits, each with sigma, is sqrt(n/2) on average."""
        average = isqrt(self.dealt_bits // 2) + 1
        return HIDDEN + (self.projections * self.proofs * average).bit_length()

    @property
    def window(self) -> tuple[int, int]:
        """From where to where hidden sums of bits lie."""
        return -self.dealt_bits, (1 << self.mask_bits) + self.dealt_bits

    @cached_property
    def primes(self) -> int:
        """With how many primes what holds modulo their product holds for whole numbers."""
        flags = sum(group.columns for group in self.groups if group.flags)
        widest = max([flags, *(group.columns + group.slack for group in self.groups)])
        low, high = self.window
        for count in range(FEWEST_PRIMES, len(PRIMES) + 1):
            room = prod(PRIMES[:count]) - max(group.squared for group in self.groups)
            if widest * 4**self.bits <= room and high - low <= smallest_idempotent(PRIMES[:count]):
                return count
        raise CapacityError("numbers are too large for a proof that they are within their bounds: lower gamma [CA007]")

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
            after += group.slack
            rows.append((here, np.zeros(self.width), group.squared))
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
        """How often equations are folded: the fewest times that keep the chance of an error below 2^-43."""
        count = 1
        while self._folding_error**count > Fraction(1, 2**43):
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

        A number that is too large stays within all projections; a bit that is none does; bits do not add up to the
        projections; bits are not their own squares; rows do not fulfil their equations.
        """
        seen = 2 * Fraction(1, 2**self.projections) + Fraction(1, PRIMES[-1] ** CHECK_REPETITIONS)
        return seen + 2 * self._folding_error**self.repetitions


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
    """What is public about one window of one owner: its blocks, the rows that are looked at, and the equations."""

    def __init__(
        self, system: ResidueSystem, ranges: InputRanges, sizes: Sequence[int], coins: ProofCoins | None
    ) -> None:
        self.system, self.ranges, self.sizes, self.rows = system, ranges, list(sizes), sum(sizes)
        if self.rows > ranges.rows or len(system.primes) < ranges.primes:
            raise ValueError(
                "a window has more rows, or the arithmetic fewer primes, than the proof was made for [VA106]"
            )
        self.chosen: NDArray[np.int64] | None = None
        if coins is not None:
            order = np.argsort(coins.stream("rows").uint64(self.rows), kind="stable")
            self.chosen = np.sort(order[: -(-self.rows // SAMPLED)])
        looked = self.sizes if self.chosen is None else [len(self.chosen)]
        again = ranges.repetitions
        self.equations = RowEquations(system, ranges.identity, looked, FOLDS, again)
        self.checked_count = sum(looked)
        self.bits = RowEquations(system, BIT_IDENTITY, [ranges.dealt_bits], [BIT_FOLD], again)
        self.read = None if ranges.plain else AffineReading(ranges.scales, ranges.offsets)

    @property
    def starts(self) -> list[int]:
        """Where each block starts."""
        return [0, *np.cumsum(self.sizes).tolist()]

    def checked_rows(
        self, blocks: Sequence[WholeNumbers], slack: WholeNumbers | None, axis: int
    ) -> list[list[WholeNumbers]]:
        """The rows whose equations are checked, block by block, each beside its squares; rows are this axis."""
        if self.chosen is not None:
            where = [self.chosen[(self.chosen >= a) & (self.chosen < b)] - a for a, b in pairwise(self.starts)]
            parts = [np.take(block, rows, axis=axis) for block, rows in zip(blocks, where, strict=True)]
            blocks = [np.concatenate(parts, axis=axis)]
        if slack is None:
            return [[block] for block in blocks]
        ends = np.cumsum([block.shape[axis] for block in blocks])[:-1]
        return [[block, part] for block, part in zip(blocks, np.split(slack, ends, axis=axis), strict=True)]

    def draw(self, coins: ProofCoins, owner: str) -> None:
        """The coins by which rows are combined."""
        self.equations.combine(coins.stream(f"equations {owner}"))

    def draw_second(self, coins: ProofCoins, owner: str) -> None:
        """The point of the first fold, and the coins by which bits are combined."""
        self.point = self.equations.point(coins.stream("point"), FOLDS[0])
        self.bits.combine(coins.stream(f"bits {owner}"))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Everything that the owner deals for the proof, in this order."""
        ranges, again = self.ranges, self.ranges.repetitions
        squares = {"squares": (self.checked_count, ranges.slack)} if ranges.slack else {}
        return squares | {
            "masks": (ranges.projections,),
            "bits": (ranges.projections * ranges.bits, ranges.width),
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
        looked = window.checked_rows(self.blocks, self.slack, 0)
        self.rows = [block[0] if len(block) == 1 else np.hstack(block) for block in looked]
        """The rows whose equations are checked, beside their squares."""

    def squares(self) -> WholeNumbers | None:
        """For every row that is looked at and every norm, four numbers whose squares fill it up to the bound."""
        window, columns = self.window, []
        for group, span in zip(window.ranges.groups, window.ranges.spans, strict=True):
            if group.slack:
                rows = [block[0][:, span] for block in window.checked_rows(self.blocks, None, 0)]
                lengths = np.concatenate([np.einsum("ij,ij->i", part, part) for part in rows])
                columns.append(four_squares(group.squared - lengths, group.squared + 1))
        return np.hstack(columns) if columns else None

    def masks(self) -> Integers:
        """Uniform numbers that hide sums of bits."""
        bits = self.window.ranges.mask_bits
        stream, size = Stream.fresh(), -(-bits // 8)
        drawn = [
            int.from_bytes(stream.bytes(size), "little") >> (8 * size - bits)
            for _ in range(self.window.ranges.projections)
        ]
        return np.array(drawn, dtype=object)

    def digits(self, drawn: SignMatrix) -> WholeNumbers:
        """The bits of the sums of all columns with signs: a matrix with rows for each sum and bit."""
        ranges, chosen = self.window.ranges, self.window.chosen
        if chosen is None:
            return self.bits_of(self._sums(drawn, self.rows))
        sums = [self._sums(drawn, self.blocks)]
        if self.slack is not None:
            sums.append(self._sums(np.ascontiguousarray(drawn[:, chosen]), [self.slack]))
        return self.bits_of(np.hstack(sums).reshape(ranges.projections, ranges.width))

    def _sums(self, drawn: SignMatrix, blocks: Sequence[WholeNumbers]) -> WholeNumbers:
        """Sums of columns with signs."""
        # Short floats hold whole numbers below 2^24, and are multiplied twice as fast.
        step = (1 << 24) // max(1, self.window.ranges.cell)
        short = step >= _FEWEST_ROWS
        kind, step = np.dtype("f4" if short else "f8"), min(step, _ROWS) if short else _ROWS
        sums, done = np.zeros((len(drawn), blocks[0].shape[1])), 0
        for block in blocks:
            for start in range(0, len(block), step):
                part = block[start : start + step].astype(kind)
                found: WholeNumbers = drawn[:, done : done + len(part)].astype(kind) @ part
                sums += found
                done += len(part)
        return sums

    def bits_of(self, sums: WholeNumbers) -> WholeNumbers:
        """Sums as bits, the lowest first."""
        ranges = self.window.ranges
        shifted = sums.astype(np.int64) + (1 << (ranges.bits - 1))
        if shifted.min() < 0 or shifted.max() >> ranges.bits:
            raise ShareError(
                "a proof that numbers are within their bounds could not be made; run the study again [SH017]"
            )
        self.dealt_bits = (shifted[:, None] >> np.arange(ranges.bits)[:, None] & 1).astype(np.float64)
        return self.dealt_bits.reshape(-1, ranges.width)

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


_PART = 1 << 13
"""Bits for which signs are drawn at a time."""


class InputVerifier:
    """What a seat computes from its shares of one owner's window."""

    def __init__(
        self,
        window: ProofWindow,
        blocks: Sequence[Shares],
        slack: Shares | None,
        masks: Shares,
        bits: Shares,
        first: Shares,
    ) -> None:
        self.window, self.system = window, window.system
        self.blocks, self.degree = [block.values for block in blocks], masks.degree
        self.slack = None if slack is None else slack.values
        self.masks, self.bits, self.first = masks.values, bits.values, first.values

    def sum_difference(self, factors: Residues, combined: Residues) -> Shares:
        """What must be zero: the sums that bits say, less those of the rows.

        ``factors`` (primes, repetitions, sums) combine the sums, and ``combined`` (primes, repetitions, rows) are the
        numbers by which rows are then multiplied.
        """
        window, system, ranges = self.window, self.system, self.window.ranges
        total = np.zeros((len(system.primes), CHECK_REPETITIONS, ranges.width))
        for block, start in zip(self.blocks, window.starts, strict=False):
            part = combined[:, :, start : start + block.shape[1]].transpose(0, 2, 1)
            total[:, :, : ranges.columns] += system.inner(part, block)
        if window.read is not None:
            ones = system.reduce(combined.sum(axis=2))
            for index, prime in enumerate(system.primes):
                part = total[index, :, : ranges.columns]
                part[...] = window.read.apply(prime, part, ones[index])
        if self.slack is not None:
            chosen = combined if window.chosen is None else combined[:, :, window.chosen]
            total[:, :, ranges.columns :] = system.inner(chosen.transpose(0, 2, 1), self.slack)
        powers = system.to_residues(np.array([1 << bit for bit in range(ranges.bits)], dtype=object))
        places = system.reduce(factors[..., None] * powers[:, None, None]).reshape(*factors.shape[:2], -1)
        said = system.inner(places.transpose(0, 2, 1), self.bits)
        half = system.reduce(factors.sum(axis=2)) * system.constant(1 << (ranges.bits - 1), 3)[:, :, 0]
        return Shares(system.reduce(said - system.reduce(half)[..., None] - system.reduce(total)), self.degree)

    def fold(self, second: Shares) -> Shares:
        """Fold the rows at the first point; what must be zero then."""
        window = self.window
        rows = window.checked_rows(self.blocks, self.slack, 1)
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
        for again in range(product.shape[1]):
            left, right = ([Shares(side[:, again, :, None], self.degree)] for side in sides)
            claims.inner(left, right, Shares(product[:, again, None, None], self.degree))


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
        dealt: Mapping[str, Sequence[Shares]] | None = None,
    ) -> None:
        """Prove and verify one window; its rows were dealt before in blocks of these sizes."""
        engine, system = self.engine, self.engine.system
        covert = any(ranges.covert for ranges in self.ranges.values())
        sampled = self._coins() if covert else None
        windows = {
            owner: ProofWindow(system, ranges, sizes, sampled if ranges.covert else None)
            for owner, ranges in self.ranges.items()
        }
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
        held: dict[str, InputVerifier] = {}
        if dealt is not None:
            held = {
                owner: InputVerifier(window, dealt[owner], slack.get(owner), masks[owner], bits[owner], first[owner])
                for owner, window in windows.items()
            }
            self._check_sums(held, coins, drawn)
            for owner, verifier in held.items():
                engine.claims.zero(verifier.fold(second[owner]))

        coins = self._coins()
        for owner, verifier in held.items():
            equations = windows[owner].equations
            points, bit_points = (
                equations.point(coins.stream(name), fold) for name, fold in (("point", FOLDS[1]), ("bits", BIT_FOLD))
            )
            verifier.claim(engine.claims, points, bit_points)

    def _check_sums(self, held: Mapping[str, InputVerifier], coins: ProofCoins, drawn: SignMatrix) -> None:
        """Claim that bits add up to the sums of rows, and see that no bit is large."""
        engine, system = self.engine, self.engine.system
        factors = system.uniform((CHECK_REPETITIONS, len(drawn)), coins.stream("sums"))
        combined: dict[int, Residues] = {}
        for verifier in held.values():
            count = verifier.window.ranges.projections
            if count not in combined:
                combined[count] = _combine_signs(system, factors[:, :, :count], drawn[:count])
            engine.claims.zero(verifier.sum_difference(factors[:, :, :count], combined[count]))
        hidden = _signed_bit_sums(list(held.values()), coins.stream("signs of bits"))
        opened = system.to_integers(engine.open_residues(np.concatenate(hidden, axis=1)), system.modulus // 2)
        for owner, verifier in held.items():
            count = verifier.window.ranges.projections
            mine, opened = opened[:count], opened[count:]
            low, high = verifier.window.ranges.window
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
    out = np.empty((len(system.primes), drawn.shape[1], CHECK_REPETITIONS))
    for start in range(0, drawn.shape[1], _PART):
        part = drawn[:, start : start + _PART].T.astype(np.float64)
        for found, combined in zip(out, factors, strict=True):
            np.matmul(part, combined.T, out=found[start : start + _PART])
    return system.reduce(out).transpose(0, 2, 1)


def _signed_bit_sums(held: Sequence[InputVerifier], stream: Stream) -> list[Residues]:
    """For each owner sums of all its bits with signs, under its masks: (primes, sums)."""
    flat = [verifier.bits.reshape(len(verifier.system.primes), -1) for verifier in held]
    totals = [verifier.masks.copy() for verifier in held]
    most = max(total.shape[1] for total in totals)
    for start in range(0, max(bits.shape[1] for bits in flat), _PART):
        drawn = draw_signs(stream, most, _PART).T.astype(np.float64)
        for bits, total in zip(flat, totals, strict=True):
            part = bits[:, start : start + _PART]
            total += part @ drawn[: part.shape[1], : total.shape[1]]
    return [verifier.system.reduce(total) for verifier, total in zip(held, totals, strict=True)]
