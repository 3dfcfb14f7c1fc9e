"""Is this number the inner product of those two shared vectors? Folding makes the question smaller until it is opened.

Two shared vectors a, b and a number c of the degree of an input are given, modulo every prime and once for every
repetition. The vectors are cut into m parts, which are taken as values at 1 to m of polynomials a(z), b(z). Then
H(z) = <a(z), b(z)> has degree 2m - 2. The seats compute H at 2m - 2 points and lower its degree; one more value follows
from c. A coin chooses z, and what is left is whether <a(z), b(z)> = H(z), with vectors m times shorter. In the last
step the parts are single numbers, and one more part, at 0, is random: so a(z) and b(z) tell nothing and are opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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
"""A wrong claim is accepted at most so often."""
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


def repetitions(length: int, losses: int = 0, times: int = 1) -> int:
    """The fewest repetitions with a chance of at most :data:`ERROR`."""
    count = 1
    while error_chance(length, count, losses, times) > ERROR:
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
    def of(cls, sides: Sequence[Residues], product: Residues) -> InnerProductQuestion:
        """From both vectors, or the only one."""
        return cls(sides[0], sides[-1], product)

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
    return InnerProductQuestion.of(new, system.reduce((all_values * there).sum(axis=2)))


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
