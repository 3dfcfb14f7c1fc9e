"""What a seat claims of its shares; :meth:`ShareClaims.settle` checks all claims at once.

Random combinations turn every claim into one question about an inner product (:mod:`inner_products`), and every
number that must be zero into one number. Claims are kept until they are settled, so memory is bounded by settling in
time. All seats make the same claims in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import NO_RESULT, ShareError
from colonnade.mpc.committee import Shares
from colonnade.mpc.residues import Residues, ResidueSystem
from colonnade.mpc.verification.inner_products import InnerProductQuestion, fold_question, inner_products, repetitions
from colonnade.randomness import Stream

if TYPE_CHECKING:
    from colonnade.mpc.engine import ShareEngine

MOST_HELD = 192 << 20
"""Settle when claims hold more bytes than this."""
COMBINED_LENGTH, COMBINED_TIMES = 1 << 18, 16
"""At most how long vectors are, and how many claims there are, that were combined before they are settled."""
CLAIMED_ROWS = 1 << 14
"""After so many rows protocols make claims about them: new memory for more costs more than the messages of a claim."""
LONGEST_COMBINED = 1 << 16
"""At most how long the vectors of one of them are; up to ASKED_LENGTH no length has more degrees than this one."""
_COLUMNS = 256
"""A row of numbers is combined as a matrix with so many columns."""
_EXACT = 512
_ROWS = 2048
"""Rows that are multiplied at a time: what becomes of them fits in the cache."""
HeldResidues = NDArray[np.float32]
"""Residues have 22 bits, and a float of 32 bits holds 24."""


class ProductClaim(Protocol):
    """What is asked about an inner product, once there are coins."""

    @property
    def length(self) -> int:
        """How long its vectors are; the same at all seats, and messages may show it."""

    def ask_question(self, system: ResidueSystem, coin: Stream, repeated: int) -> InnerProductQuestion:
        """The question: in each repetition, a wrong claim gives a polynomial of degree 2 in the coins that is not 0."""


ClaimBlock = Shares | Sequence[Shares]
"""A block of rows: one shared matrix, or several side by side."""


@dataclass(frozen=True)
class _InnerClaim:
    """The sum over blocks of left' right is the product; every block is a list of matrices side by side."""

    lefts: Sequence[Sequence[Residues]]
    rights: Sequence[Sequence[Residues]]
    product: Residues

    @property
    def length(self) -> int:
        return sum(block[0].shape[1] for block in self.lefts)

    def ask_question(self, system: ResidueSystem, coin: Stream, repeated: int) -> InnerProductQuestion:
        """Multiply columns by random numbers: <left u, right v> = u' product v.

        Of a matrix with itself, u = v: a symmetric matrix that is not zero is no zero form either.
        """
        u = v = system.uniform((self.product.shape[1], repeated), coin)
        left = right = self._combined(system, self.lefts, u)
        if self.lefts is not self.rights:
            v = system.uniform((self.product.shape[2], repeated), coin)
            right = self._combined(system, self.rights, v)
        product = _multiply_columns(system, [self.product], v)  # (primes, a, repetitions)
        return InnerProductQuestion(left, right, inner_products(system, _transpose(u), _transpose(product)))

    def _combined(self, system: ResidueSystem, blocks: Sequence[Sequence[Residues]], by: Residues) -> Residues:
        """Every block times these factors of its columns, as (primes, repetitions, rows of all blocks)."""
        out = np.empty((len(by), by.shape[2], self.length))
        start = 0
        for block in blocks:
            rows = block[0].shape[1]
            out[:, :, start : start + rows] = _multiply_columns(system, block, by).transpose(0, 2, 1)
            start += rows
        return out


@dataclass(frozen=True)
class _ElementwiseClaim:
    """Left times right is the product, number by number; a factor may have one column for all of the other's."""

    left: HeldResidues
    right: HeldResidues
    product: HeldResidues

    @property
    def length(self) -> int:
        wide = self.left.shape[2] > 1 and self.right.shape[2] > 1
        return prod(self.product.shape[1:]) if wide else self.product.shape[1]

    def ask_question(self, system: ResidueSystem, coin: Stream, repeated: int) -> InnerProductQuestion:
        """Multiply rows and columns by random numbers, and add up."""
        _, rows, columns = self.product.shape
        by_row, by_column = (system.uniform((count, repeated), coin) for count in (rows, columns))
        product = inner_products(
            system, _transpose(by_row), _transpose(_multiply_columns(system, [self.product], by_column))
        )
        left, right = self.left, self.right
        if left.shape[2] == 1:
            left, right = right, left
        if right.shape[2] == 1:
            combined = system.reduce(_multiply_columns(system, [left], by_column) * by_row)
            other = np.broadcast_to(right.astype(np.float64), combined.shape)
            return InnerProductQuestion(_transpose(combined), _transpose(other), product)
        both = [np.empty((len(system.primes), repeated, rows * columns)) for _ in range(2)]
        for index in range(repeated):
            factors = system.reduce(by_row[:, :, index, None] * by_column[:, None, :, index])
            both[0][:, index] = system.reduce(factors * left).reshape(len(factors), -1)
            both[1][:, index] = right.reshape(len(factors), -1)
        return InnerProductQuestion(both[0], both[1], product)


class ShareClaims:
    """The claims of one seat that are not settled yet."""

    def __init__(self, engine: ShareEngine) -> None:
        self._engine, self._system = engine, engine.system
        self._products: list[ProductClaim] = []
        self._asked: list[InnerProductQuestion] = []
        self._zeros: list[HeldResidues] = []
        self._dealt: dict[str, HeldResidues] = {}
        self.held = 0
        """Bytes that claims hold; the same at all seats."""
        self.settled_claims = 0
        """How many claims have been settled."""
        self._counted: dict[str, int] = {}

    def inner(self, lefts: Sequence[ClaimBlock], rights: Sequence[ClaimBlock], product: Shares) -> None:
        """Claim that the sum of left' right, over blocks of rows, is the product; all have the degree of an input.

        If ``lefts`` and ``rights`` are the same object, this seat's shares of the product are a symmetric matrix.
        """
        if lefts is rights and not np.array_equal(product.values, product.values.transpose(0, 2, 1)):
            raise ValueError("the product of a matrix with itself is symmetric [VA103]")
        left = [self._parts(block) for block in lefts]
        right = left if rights is lefts else [self._parts(block) for block in rights]
        self.add_product(_InnerClaim(left, right, self._parts(product)[0]))

    def elementwise(self, left: Shares, right: Shares, product: Shares) -> None:
        """Claim that left times right is the product, number by number; factors are broadcast."""
        sides = [self._keep(one, product.shape) for one in (left, right, product)]
        self.add_product(_ElementwiseClaim(*sides))

    def add_product(self, claim: ProductClaim) -> None:
        """Make a claim that keeps its shares itself, and combines them when there are coins."""
        self._products.append(claim)

    def zero(self, shares: Shares) -> None:
        """Claim that all numbers are zero."""
        self._zeros.append(self._keep(shares, shares.shape))

    def consistent(self, shares: Shares, source: str) -> None:
        """Claim that these shares lie on polynomials of the degree of an input.

        ``source`` names who made them: seats take in the arrays of one source in one order, but not those of several.
        """
        if not self._engine.committee.spare:
            return  # any shares of the honest seats do
        number = self._counted[source] = self._counted.get(source, 0) + 1
        self._dealt[f"{source} {number}"] = self._keep(shares, shares.shape)

    def _parts(self, block: ClaimBlock) -> list[Residues]:
        """The matrices of a block as they are: they must not change until they are settled."""
        parts = [block] if isinstance(block, Shares) else block
        for part in parts:
            self._check(part)
            self.held += part.values.nbytes
        return [part.values for part in parts]

    def _keep(self, shares: Shares, shape: tuple[int, ...]) -> HeldResidues:
        """The residues in half the memory, as matrices that are broadcast to an array of this shape."""
        self._check(shares)
        values = shares.values.astype(np.float32)
        self.held += values.nbytes
        return _as_matrix(values, shape)

    def _check(self, shares: Shares) -> None:
        if shares.degree > self._engine.committee.threshold:
            raise ValueError(f"nothing is claimed about shares of degree {shares.degree} [VA104]")

    def ask(self) -> bool:
        """Draw a coin for all claims about products so far, so that only random combinations of them are kept.

        One round. What is claimed is fixed, as for any coin. Returns whether more can be claimed before all is settled;
        if there is too much to ask at a time, nothing else happens.
        """
        if self._length > LONGEST_COMBINED:
            return False
        if self._products:
            repeated = repetitions(LONGEST_COMBINED, self._engine.committee.max_losses, COMBINED_TIMES)
            coin = self._engine.coin()
            asked = [claim.ask_question(self._system, coin, repeated) for claim in self._products]
            self._asked.append(InnerProductQuestion.concatenate(self._system, asked))
            self.settled_claims += len(asked) - 1
            self._products = []
            kept: list[Residues | HeldResidues] = [*self._zeros, *self._dealt.values()]
            kept += [side for one in self._asked for side in one.sides]
            self.held = sum(one.nbytes for one in kept)
        length = sum(one.left.shape[2] for one in self._asked)
        return len(self._asked) < COMBINED_TIMES and length <= COMBINED_LENGTH - LONGEST_COMBINED and not self.is_full

    def settle_if_full(self) -> None:
        """Settle if too much memory is held."""
        if self.is_full:
            self.settle()

    @property
    def is_full(self) -> bool:
        """Whether :meth:`relieve` would settle; the same at all seats."""
        return self.held > MOST_HELD

    @property
    def _length(self) -> int:
        return sum(claim.length for claim in self._products)

    def settle(self) -> None:
        """Check all claims with the other seats; a wrong one ends the study, with a chance of at most 2^-40 that not.

        One round for a coin, two for every step of folding, and three at the end; a few more where seats are spare.
        """
        if self._asked and self._products:  # their repetitions may differ
            products, self._products = self._products, []
            self._settle()
            self._products = products
        if self._products or self._asked or self._zeros or self._dealt:
            self._settle()

    def _settle(self) -> None:
        engine, system, asked = self._engine, self._system, list(self._asked)
        repeated = asked[0].left.shape[1] if asked else repetitions(max(1, self._length), engine.committee.max_losses)
        tests: list[Residues] = []
        lowered: list[Residues] = []
        if self._products or self._zeros or self._dealt:
            coin = engine.coin()
            if self._dealt:
                self._check_consistent([self._dealt[name] for name in sorted(self._dealt)], coin, repeated)
            if self._zeros:
                combined = [self._combine_random(one, coin, repeated) for one in self._zeros]
                tests.append(system.reduce(np.sum(combined, axis=0)))
            asked += [claim.ask_question(system, coin, repeated) for claim in self._products]
        if asked:
            test, lowered = fold_question(engine, InnerProductQuestion.concatenate(system, asked))
            tests.append(test)
        if tests:
            self._test_zero(np.stack(tests, axis=1), lowered, repeated)
        self.settled_claims += len(asked) + len(self._zeros) + len(self._dealt)
        self._products, self._asked, self._zeros, self._dealt, self.held = [], [], [], {}, 0

    def _combine_random(self, values: Residues | HeldResidues, coin: Stream, repeated: int) -> Residues:
        """Random combinations (primes, repetitions) of a matrix."""
        by_row, by_column = (self._system.uniform((count, repeated), coin) for count in values.shape[1:])
        return inner_products(
            self._system, _transpose(by_row), _transpose(_multiply_columns(self._system, [values], by_column))
        )

    def _check_consistent(self, arrays: Sequence[Residues | HeldResidues], coin: Stream, repeated: int) -> None:
        """Open random combinations of shares under a mask: they lie on a polynomial, or all stop.

        Nothing is multiplied in them, so what they show of a wrong sharing is what its dealer made wrong.
        """
        total = self._engine.random((repeated,)).values
        for values in arrays:
            total += self._combine_random(values, coin, repeated)
        try:
            self._engine.open_residues(self._system.reduce(total))
        except ShareError:
            raise ShareError(
                "shares that were dealt do not lie on polynomials of one degree, as an owner or a seat dealt something "
                f"else: {NO_RESULT} [SH014]"
            ) from None

    def _test_zero(self, values: Residues, lowered: Sequence[Residues], repeated: int) -> None:
        """Open numbers that must be zero, each times a random secret, so that a number that is not tells nothing.

        Their degree is lowered before: whoever adds something does so before it knows the secret.
        """
        engine, t = self._engine, self._engine.committee.threshold
        product = engine.multiply(engine.random(values.shape[1:]), Shares(values, t))
        tested = engine.reduce_degree_residues(product.values, 2 * t)
        # Nobody opens before all have received: whoever still holds a part back would know what to send.
        if lowered and engine.committee.spare:
            self._check_consistent(lowered, engine.coin(), repeated)
        else:
            engine.compare_transcripts()
        if engine.open_residues(tested).any():
            raise ShareError(
                "a check of products of shares failed, as a seat computed or sent something else or an owner dealt "
                f"numbers that it may not deal: {NO_RESULT} [SH015]"
            )


def _as_matrix(values: HeldResidues, shape: tuple[int, ...]) -> HeldResidues:
    """Values to be broadcast to ``shape``, as (primes, rows, columns) to be broadcast to a matrix of that size."""
    primes, own = len(values), values.shape[1:]
    if own != shape:
        if own == (*shape[:-1], 1):
            return values.reshape(primes, prod(shape[:-1]), 1)
        values = np.broadcast_to(values.reshape(primes, *[1] * (len(shape) - len(own)), *own), (primes, *shape))
    if len(shape) > 1:
        return values.reshape(primes, prod(shape[:-1]), shape[-1])
    count = prod(shape)
    columns = min(_COLUMNS, max(1, count))
    rows = -(-count // columns)
    if rows * columns != count:
        values = np.concatenate(
            [values.reshape(primes, count), np.zeros((primes, rows * columns - count), dtype=np.float32)], axis=1
        )
    return values.reshape(primes, rows, columns)


def _multiply_columns(system: ResidueSystem, parts: Sequence[Residues | HeldResidues], factors: Residues) -> Residues:
    """Matrices (primes, rows, columns), side by side, times matrices (primes, all columns, few)."""
    found = np.empty((*parts[0].shape[:2], factors.shape[2]))
    for begin in range(0, found.shape[1], _ROWS):
        rows = slice(begin, begin + _ROWS)
        total, first, unreduced = np.zeros_like(found[:, rows]), 0, 0
        for part in parts:
            for start in range(0, part.shape[2], _EXACT):
                some = part[:, rows, start : start + _EXACT]
                width = some.shape[2]
                if unreduced + width > _EXACT:
                    system.reduce(total)
                    unreduced = 1
                total += np.matmul(some.astype(np.float64, copy=False), factors[:, first : first + width])
                first, unreduced = first + width, unreduced + width
        found[:, rows] = system.reduce(total)
    return found


def _transpose(values: Residues) -> Residues:
    """(primes, length, repetitions) as (primes, repetitions, length)."""
    return np.ascontiguousarray(values.transpose(0, 2, 1))


times = _multiply_columns

turned = _transpose


@dataclass(frozen=True)
class OuterProductClaim:
    """The matrices ``lefts`` stand side by side, and the columns of ``right`` count fastest in the product.

    All have the degree of an input. They are kept as they are, and must not change until they are settled.
    """

    lefts: Sequence[Shares]
    right: Shares
    product: Shares

    @property
    def length(self) -> int:
        """An entry for every number of the right matrix."""
        rows, columns = self.right.shape
        return rows * columns

    def ask_question(self, system: ResidueSystem, coin: Stream, repeated: int) -> InnerProductQuestion:
        """Columns of the product, and rows, are multiplied by random numbers and added up."""
        rows, columns = self.right.shape
        by_row = system.uniform((rows, repeated), coin)
        by_column = system.uniform((self.product.shape[1], repeated), coin)
        left = np.empty((len(system.primes), repeated, rows * columns))
        right = np.empty_like(left)
        for column in range(columns):
            combined = times(system, [part.values for part in self.lefts], by_column[:, column::columns])
            here = slice(column * rows, (column + 1) * rows)
            left[:, :, here] = turned(system.reduce(combined * by_row))
            right[:, :, here] = self.right.values[:, None, :, column]
        product: Residues = times(system, [self.product.values], by_column)
        return InnerProductQuestion(left, right, inner_products(system, turned(by_row), turned(product)))
