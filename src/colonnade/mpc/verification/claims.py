"""What a seat claims of its shares; :meth:`ShareClaims.settle` checks all claims at once.

Random combinations turn every claim into one question about an inner product, and every number that must be zero into
one number. Claims are kept until they are settled, so memory is bounded by settling in time. All seats make the same
claims in the same order.

A question is: is this number the inner product of those two shared vectors? Folding makes it smaller until it is
opened. Two shared vectors a, b and a number c of the degree of an input are given, modulo every prime and once for
every repetition. The vectors are cut into m parts, which are taken as values at 1 to m of polynomials a(z), b(z). Then
H(z) = <a(z), b(z)> has degree 2m - 2. The seats compute H at 2m - 2 points and lower its degree; one more value follows
from c. A coin chooses z, and what is left is whether <a(z), b(z)> = H(z), with vectors m times shorter. In the last
step the parts are single numbers, and one more part, at 0, is random: so a(z) and b(z) tell nothing and are opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import NO_RESULT, ShareError
from colonnade.mpc.committee import Shares
from colonnade.mpc.residues import PRIMES, Residues, ResidueSystem, reduce
from colonnade.randomness import Stream

if TYPE_CHECKING:
    from colonnade.mpc.engine import ShareEngine


PARTS = 64
"""Into how many parts long vectors are cut: more parts take fewer rounds and more arithmetic."""
FEWER = 16
"""Into how many parts short ones are cut: more would make a wrong claim likelier to pass."""
SHORT = 4096
STUDY_ERROR = Fraction(1, 2**40)
"""The most that all checks of a study let pass, proofs of inputs included (docs/theory/active-security.md)."""
ERROR = Fraction(1, 2**41)
"""A wrong claim is accepted at most so often in a study."""
COMBINATION_DEGREE = 2
"""The degree of the random polynomials by which claims are combined into one."""
_EXACT = 512
"""A sum of so many products of residues is below 2^51, and is reduced once."""


def steps(length: int) -> list[int]:
    """Into how many parts vectors of this length are cut, step by step; the last step leaves single numbers."""
    found = []
    while length > FEWER:
        found.append(PARTS if length > SHORT else -(-length // FEWER) if length <= PARTS * FEWER else FEWER)
        length = -(-length // found[-1])
    return [*found, max(1, length)]


def degrees(length: int) -> int:
    """The sum of the degrees of all polynomials that a coin must not hit, in one repetition."""
    *folded, last = steps(length)
    return COMBINATION_DEGREE + sum(2 * parts - 2 for parts in folded) + 2 * last


def error_chance(length: int, repetitions: int, losses: int = 0, times: int = 1) -> Fraction:
    """The largest chance that a wrong claim about vectors of this length is accepted, modulo whichever prime.

    Where seats may be lost, whoever is lost at a coin has seen it, and another is drawn; and shares that lie on no
    polynomial may pass as well. Claims that were combined one after the other, so many ``times``, are as many attempts.
    """
    hit = degrees(length) + 1 + COMBINATION_DEGREE * (times - 1)
    if losses:
        hit += COMBINATION_DEGREE + losses * max(2 * parts for parts in steps(length))
    # Coins avoid up to 2 PARTS + 1 points, at which values are known.
    return Fraction(hit, PRIMES[-1] - 2 * PARTS - 1) ** repetitions


def repetitions(length: int, losses: int = 0, times: int = 1, tries: int = 1) -> int:
    """The fewest repetitions with a chance of at most :data:`ERROR` in all ``tries`` together."""
    count = 1
    while error_chance(length, count, losses, times) * tries > ERROR:
        count += 1
    return count


@dataclass(frozen=True)
class InnerProductQuestion:
    """Shares of vectors (primes, repetitions, length), and of the numbers (primes, repetitions) they should give.

    A vector that is multiplied with itself is the same object on both sides, and is folded once.
    """

    left: Residues
    right: Residues
    product: Residues

    @property
    def sides(self) -> list[Residues]:
        """Both vectors, or the only one."""
        return [self.left] if self.left is self.right else [self.left, self.right]

    @classmethod
    def concatenate(cls, system: ResidueSystem, asked: Sequence[InnerProductQuestion]) -> InnerProductQuestion:
        """Several questions as one, about their vectors one after the other."""
        if len(asked) == 1:
            return asked[0]
        product = system.reduce(np.sum([one.product for one in asked], axis=0))
        left = right = np.concatenate([one.left for one in asked], axis=2)
        if any(one.left is not one.right for one in asked):
            right = np.concatenate([one.right for one in asked], axis=2)
        return cls(left, right, product)


def fold_question(engine: ShareEngine, question: InnerProductQuestion) -> tuple[Residues, list[Residues]]:
    """This seat's shares of H(z) - a(z) b(z) at the end, for each prime and repetition: zero if the claim is true.

    Also gives what was lowered on the way: where seats are spare, the claim counts only if all of it is consistent.
    """
    *first, last = steps(question.left.shape[2])
    lowered: list[Residues] = []
    for parts in first:
        question = _fold(engine, question, parts, lowered)
    question = _fold(engine, question, last, lowered, hidden=True)
    opened = engine.open_residues(np.stack([side[:, :, 0] for side in question.sides], axis=1))
    return engine.system.reduce(question.product - opened[:, 0] * opened[:, -1]), lowered


def _fold(
    engine: ShareEngine, question: InnerProductQuestion, parts: int, kept: list[Residues], *, hidden: bool = False
) -> InnerProductQuestion:
    """A question about vectors that are ``parts`` times shorter; with ``hidden``, they tell nothing when opened."""
    system, t = engine.system, engine.committee.threshold
    sides = [_cut(values, parts) for values in question.sides]
    start, (_, repeated, count, size) = 1, sides[0].shape
    if hidden:
        start, count = 0, count + 1
        sides = [np.concatenate([engine.random((repeated, 1, size)).values, side], axis=2) for side in sides]
    known = tuple(range(start, start + count))
    later = tuple(range(known[-1] + 1, known[-1] + count))
    ahead = lagrange(system.primes, known, later)[:, None]
    values = [inner_products(system, sides[0], sides[-1])]
    if later:
        further = [system.reduce(np.matmul(ahead, side)) for side in sides]  # below 2^42 PARTS
        values.append(inner_products(system, further[0], further[-1]))
    # The value at ``parts`` follows from the product, which is the sum of the values at 1 to ``parts``.
    found = np.concatenate([values[0][:, :, :-1], *values[1:]], axis=2)
    lowered = engine.reduce_degree_residues(found, 2 * t) if found.shape[2] else found
    kept.append(lowered)
    among = lowered[:, :, 1 - start : count - 1]
    rest = system.reduce(question.product - among.sum(axis=2))[:, :, None]
    all_values = np.concatenate([lowered[:, :, : count - 1], rest, lowered[:, :, count - 1 :]], axis=2)
    points = random_points(engine.coin(), system, repeated, later[-1] if later else known[-1])
    here = lagrange_at(system.primes, known, points)
    there = lagrange_at(system.primes, (*known, *later), points)
    new = [system.reduce(np.matmul(here[:, :, None], side))[:, :, 0] for side in sides]
    return InnerProductQuestion(new[0], new[-1], system.reduce((all_values * there).sum(axis=2)))


def _cut(values: Residues, parts: int) -> Residues:
    """Vectors (primes, repetitions, length) as (primes, repetitions, parts, length of a part), filled with zeros.

    Vectors without numbers become one zero: what is claimed of them, that their product is zero, is checked too.
    """
    primes, repeated, length = values.shape
    size = max(1, -(-length // parts))
    if parts * size != length:
        values = np.concatenate([values, np.zeros((primes, repeated, parts * size - length))], axis=2)
    return values.reshape(primes, repeated, parts, size)


def inner_products(system: ResidueSystem, left: Residues, right: Residues) -> Residues:
    """Inner products along the last axis, modulo each prime."""
    *shape, length = left.shape
    whole = length - length % _EXACT
    total = np.zeros(shape)
    if whole:
        blocks = [side[..., :whole].reshape(*shape, -1, _EXACT) for side in (left, right)]
        total += system.reduce(np.einsum("...i,...i->...", *blocks)).sum(axis=-1)
    if whole != length:
        total += system.reduce(np.einsum("...i,...i->...", left[..., whole:], right[..., whole:]))
    return system.reduce(total)


def random_points(coin: Stream, system: ResidueSystem, repeated: int, above: int) -> NDArray[np.int64]:
    """For each prime and repetition a uniform point modulo the prime that is not among 0 to ``above``."""
    return np.array(
        [[_point(coin, prime - 1 - above) + above + 1 for _ in range(repeated)] for prime in system.primes],
        dtype=np.int64,
    )


def _point(coin: Stream, below: int) -> int:
    """A uniform number below a limit of at most 22 bits."""
    while (drawn := int(coin.uint32(1)[0]) & (2**22 - 1)) >= below:
        pass
    return drawn


@lru_cache(maxsize=64)
def lagrange(primes: tuple[int, ...], known: tuple[int, ...], later: tuple[int, ...]) -> Residues:
    """For each prime the matrix that takes values at ``known``, which follow each other, to those at ``later``."""
    distances = np.array(later, dtype=np.int64)[:, None] - np.array(known, dtype=np.int64)
    found = np.empty((len(primes), *distances.shape))
    for prime, out in zip(primes, found, strict=True):
        whole = np.ones(len(later), dtype=np.int64)
        for distance in distances.T:
            whole = whole * distance % prime
        inverses = np.array([0, *(pow(value, -1, prime) for value in range(1, int(distances.max()) + 1))])
        scaled = whole[:, None] * np.array(_barycentric(prime, len(known))) % prime
        out[...] = scaled * inverses[distances] % prime
        reduce(out, prime)
    return found


def lagrange_at(primes: tuple[int, ...], known: tuple[int, ...], points: NDArray[np.int64]) -> Residues:
    """For each prime and repetition the factors of the values at ``known`` in the value at a point."""
    return np.array(
        [[_factors(prime, known, int(point)) for point in row] for prime, row in zip(primes, points, strict=True)],
        dtype=np.float64,
    )


def _factors(prime: int, known: tuple[int, ...], at: int) -> list[int]:
    """Lagrange factors for successive points, at a point that is none of them; not kept, as points are random."""
    before = [1]
    for point in known:
        before.append(before[-1] * (at - point) % prime)
    # The products of all distances before and behind a point, so that nothing is inverted.
    found, behind, half, scales = [], 1, prime // 2, _barycentric(prime, len(known))
    for index in range(len(known) - 1, -1, -1):
        value = before[index] * behind % prime * scales[index] % prime
        found.append(value - prime if value > half else value)
        behind = behind * (at - known[index]) % prime
    return found[::-1]


@lru_cache(maxsize=256)
def _barycentric(prime: int, count: int) -> list[int]:
    """For successive points, the inverse of the product of each one's distances to the others."""
    factorials = [1]
    for value in range(1, count):
        factorials.append(factorials[-1] * value % prime)
    # Point i has i points before it, and those behind it are at negative distances.
    products = (factorials[i] * factorials[-1 - i] * (-1) ** (count - 1 - i) for i in range(count))
    return [pow(product, -1, prime) for product in products]


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


def parts_of(block: ClaimBlock) -> Sequence[Shares]:
    """The matrices that stand side by side."""
    return [block] if isinstance(block, Shares) else block


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
        return InnerProductQuestion(left, right, _combine(system, self.product, u, v))

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
class _PairsClaim:
    """The inner products of rows of two matrices, each row with the same row of the other, are the products."""

    left: Residues
    right: Residues
    product: Residues

    @property
    def length(self) -> int:
        return prod(self.left.shape[1:])

    def ask_question(self, system: ResidueSystem, coin: Stream, repeated: int) -> InnerProductQuestion:
        """Multiply each pair by a random number, and put all of them side by side."""
        factors = system.uniform((repeated, self.left.shape[1]), coin)
        left = system.reduce(self.left[:, None] * factors[..., None]).reshape(*factors.shape[:2], -1)
        right = np.broadcast_to(self.right.reshape(len(left), 1, -1), left.shape)
        return InnerProductQuestion(
            left, right, inner_products(system, factors, np.broadcast_to(self.product[:, None], factors.shape))
        )


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
        product = _combine(system, self.product, by_row, by_column)
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
            combined = _multiply_columns(system, [part.values for part in self.lefts], by_column[:, column::columns])
            here = slice(column * rows, (column + 1) * rows)
            left[:, :, here] = _transpose(system.reduce(combined * by_row))
            right[:, :, here] = self.right.values[:, None, :, column]
        return InnerProductQuestion(left, right, _combine(system, self.product.values, by_row, by_column))


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

    def pairs(self, left: Shares, right: Shares, product: Shares) -> None:
        """Claim that the inner products of rows of two matrices, row by row, are the numbers of a vector.

        All have the degree of an input. They are kept as they are, and must not change until they are settled.
        """
        self.add_product(_PairsClaim(*(self._parts(side)[0] for side in (left, right, product))))

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
        parts = parts_of(block)
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
            repeated = self._repetitions(LONGEST_COMBINED, COMBINED_TIMES)
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
        """Whether :meth:`settle_if_full` would settle; the same at all seats."""
        return self.held > MOST_HELD

    @property
    def _length(self) -> int:
        return sum(claim.length for claim in self._products)

    def _repetitions(self, length: int, times: int = 1) -> int:
        committee = self._engine.committee
        return repetitions(length, committee.max_losses, times, committee.tries)

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
        repeated = asked[0].left.shape[1] if asked else self._repetitions(max(1, self._length))
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
        return _combine(self._system, values, by_row, by_column)

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


def _combine(system: ResidueSystem, values: Residues | HeldResidues, by_row: Residues, by_column: Residues) -> Residues:
    """Sums (primes, repetitions) of all numbers of a matrix, each times the factors of its row and its column."""
    return inner_products(system, _transpose(by_row), _transpose(_multiply_columns(system, [values], by_column)))


def _transpose(values: Residues) -> Residues:
    """(primes, length, repetitions) as (primes, repetitions, length)."""
    return np.ascontiguousarray(values.transpose(0, 2, 1))
