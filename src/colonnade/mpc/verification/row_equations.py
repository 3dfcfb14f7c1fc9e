"""Equations that hold in every row of a shared matrix, checked with the help of the owner who knows it.

An equation says that a quadratic form q of a row is a public target. Random numbers gamma make one form of several
equations. Rows are cut into groups of m; the rows of group l are the values at 1 to m of a polynomial F_l(z), and
H(z) = sum of alpha_l q(F_l(z)), with random alpha, has degree 2m - 2. If all equations hold, H is public at 1 to m. The
owner deals H at m - 1 more points. Then a coin chooses z, and what is left is whether the sum of alpha_l q(F_l(z)) is
H(z): m times fewer rows. The same is done a second time; there the owner deals all of H, and alpha, which is a product
of two vectors, adds its first values up to the number before. What is left of that is claimed as an inner product.

The owner gets H from the products of every two rows of a group, which are whole numbers and the same for all primes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc.residues import Residues, ResidueSystem, centred, inverse, reduce
from colonnade.mpc.verification.claims import lagrange, lagrange_at, random_points
from colonnade.randomness import Stream

RowBlock = Sequence[Residues]
"""Shares of some rows, as matrices that stand side by side."""
EvaluationPoints = NDArray[np.int64]
"""For each prime and repetition a point at which polynomials are taken."""
_LIMB = 18
_EXACT = 512
_AT_ONCE = 1 << 15
"""Products of rows that are formed at a time: they fit in the cache."""


@dataclass(frozen=True)
class RowIdentity:
    """Quadratic equations that hold in every row: the sum of quad u^2 + linear u over the columns is the target.

    ``quad`` and ``linear`` have a row for each equation.
    """

    quad: NDArray[np.float64]
    linear: NDArray[np.float64]
    targets: tuple[int, ...]

    @property
    def width(self) -> int:
        """How many columns there are."""
        return int(self.quad.shape[1])

    def most(self, equation: int) -> int:
        """The largest inner product of two honest rows, over the columns of this equation: of norms, or of flags."""
        return max(self.targets[equation], self.width)


@dataclass(frozen=True)
class AffineReading:
    """How columns are read: u = (x - offset) / scale, for the first columns of a matrix."""

    scales: tuple[int, ...]
    offsets: tuple[int, ...]

    def apply(self, prime: int, combined: Residues, ones: Residues) -> Residues:
        """Combinations of x modulo a prime as the same combinations of u; ``ones`` are the sums of their factors."""
        one = ResidueSystem((prime,))
        offsets = np.array([centred(offset, prime) for offset in self.offsets], dtype=np.float64)
        scales = np.array([inverse(scale % prime, prime) for scale in self.scales], dtype=np.float64)
        less = one.reduce(combined[None] - one.reduce((ones[..., None] * offsets)[None]))
        found: Residues = one.reduce(less * scales)[0]
        return found


class RowEquations:
    """The equations of the rows of one owner in one window, on either side.

    ``sizes`` are the rows of every block. ``folds`` say how many rows are taken together, once or twice.
    """

    def __init__(
        self, system: ResidueSystem, identity: RowIdentity, sizes: Sequence[int], folds: Sequence[int], repeated: int
    ) -> None:
        self.system, self.identity, self.sizes, self.repeated = system, identity, sizes, repeated
        self.first, self.second = folds[0], folds[1] if len(folds) > 1 else 0
        self.groups = sum(-(-size // self.first) for size in sizes)
        self.left = -(-self.groups // self.second) if self.second else self.groups
        """How many rows are left at the end."""

    # --- coins

    def combine(self, coin: Stream) -> None:
        """Draw the random numbers by which equations and groups are combined."""
        system, repeated = self.system, self.repeated
        self.gamma = system.uniform((repeated, len(self.identity.targets)), coin)
        self.beta = system.uniform((repeated, self.left), coin)
        self.delta = system.uniform((repeated, self.second), coin) if self.second else None
        alpha = self.beta
        if self.delta is not None:  # group l = (l // second, l % second)
            alpha = system.reduce(self.beta[..., None] * self.delta[:, :, None, :]).reshape(*self.beta.shape[:2], -1)
        self.alpha = alpha[:, :, : self.groups]
        quad, linear = ((self.gamma @ form) for form in (self.identity.quad, self.identity.linear))
        self.quad, self.linear = system.reduce(quad), system.reduce(linear)

    def point(self, coin: Stream, fold: int) -> EvaluationPoints:
        """For each prime and repetition a uniform point at which nothing is known before."""
        return random_points(coin, self.system, self.repeated, 2 * fold - 1)

    # --- the owner

    def help_values(self, blocks: Sequence[NDArray[np.float64]]) -> Residues:
        """H at m + 1 to 2m - 1: residues (primes, repetitions, m - 1), of whole numbers below 2^25 in magnitude."""
        m, system = self.first, self.system
        shape = (len(system.primes), self.repeated, m)
        if self.identity.width == 1 and len(blocks) == 1:
            products, sums = self._bit_products(_group_rows(blocks[0], m)[:, :, 0])
        else:
            products, sums = np.zeros((*shape, m)), np.zeros(shape)
            for equation, (quad, linear) in enumerate(zip(self.identity.quad, self.identity.linear, strict=True)):
                gamma = self.gamma[:, :, equation]
                if quad.any():
                    found = self._weighted_products(blocks, self.identity.most(equation), _chosen_columns(quad), None)
                    products += system.reduce(found.reshape(*shape, m) * gamma[..., None, None])
                if linear.any():
                    some = _chosen_columns(linear)
                    found = self._weighted_products(blocks, self.identity.most(equation), some, linear[some])
                    sums += system.reduce(found.reshape(shape) * gamma[..., None])
        ahead = lagrange(system.primes, _first_points(m), tuple(range(m + 1, 2 * m)))
        return self._forms(products, sums, ahead[:, None])

    def _weighted_products(
        self,
        blocks: Sequence[NDArray[np.float64]],
        most: int,
        columns: slice | NDArray[np.int64],
        linear: NDArray[np.float64] | None,
    ) -> Residues:
        """Products of every two rows of a group over these columns, or ``linear`` sums of rows, weighted by alpha.

        No such number is beyond ``most``. Where sums over the groups of a block are not exact as floats, they are cut
        into limbs of 18 bits: as a block has at most 2^13 groups, these sums are below 2^52.
        """
        system, m, done = self.system, self.first, 0
        shape, flat = (len(system.primes), self.repeated, -1), self.alpha.reshape(-1, self.groups)
        groups = 1 + max(-(-len(block) // m) for block in blocks)
        exact = most * (system.primes[0] // 2) * groups < 2**53 - system.primes[0]
        totals = [
            np.zeros((len(flat), m if linear is not None else m * m))
            for _ in range(0, 1 if exact else most.bit_length() + 1, _LIMB)
        ]
        step = max(1, _AT_ONCE // m**2)
        for block in blocks:
            grouped = _group_rows(block, m).transpose(1, 0, 2)
            for start in range(0, len(grouped), step):
                rows = grouped[start : start + step, :, columns]
                whole = rows @ linear if linear is not None else np.matmul(rows, rows.transpose(0, 2, 1))
                left, alpha = whole.reshape(len(rows), -1), flat[:, done : done + len(rows)]
                for total in totals[:-1]:
                    high = np.rint(left * 2.0**-_LIMB)
                    left -= high * 2.0**_LIMB
                    total += alpha @ left
                    left = high
                totals[-1] += alpha @ left
                done += len(rows)
            for total in totals:
                system.reduce(total.reshape(shape), passes=2)
        found = np.zeros((len(system.primes), self.repeated, totals[0].shape[1]))
        for limb, total in enumerate(totals):
            found += system.reduce(total.reshape(shape) * system.constant(1 << (_LIMB * limb), 3))
        return system.reduce(found)

    def _bit_products(self, rows: NDArray[np.float64]) -> tuple[Residues, Residues]:
        """The same for bits (m, groups): products of rows are not formed for every group."""
        system, shape = self.system, (len(self.system.primes), self.repeated, self.first)
        products, sums = np.empty((*shape, self.first)), np.empty(shape)
        for index in np.ndindex(shape[:2]):
            weighted = rows * self.alpha[index]
            products[index] = weighted @ rows.T
            sums[index] = weighted.sum(axis=1)
        quad, linear = self.quad[..., None], self.linear
        return system.reduce(system.reduce(products) * quad), system.reduce(system.reduce(sums) * linear)

    def second_help_values(self, rows: Residues) -> Residues:
        """The second H at 1 to 2m - 1, of what is left of the rows after the first fold."""
        m, system = self.second, self.system
        grouped = self._regroup(rows)
        products = np.empty((len(system.primes), self.repeated, m, m))
        for index, again in np.ndindex(products.shape[:2]):
            products[index, again] = self._second_products(index, again, grouped[index, again])  # (left, m, width)
        linear = np.zeros(grouped.shape[:4])
        for some in _spans(grouped.shape[4]) if self.identity.linear.any() else ():
            linear += system.reduce(np.matmul(grouped[..., some], self.linear[:, :, None, some, None])[..., 0])
        sums = system.reduce(np.matmul(self.beta[:, :, None], system.reduce(linear))[:, :, 0], passes=2)
        here = np.broadcast_to(np.eye(m), (len(system.primes), 1, m, m))
        ahead = lagrange(system.primes, _first_points(m), tuple(range(m + 1, 2 * m)))[:, None]
        return self._forms(products, sums, np.concatenate([here, ahead], axis=2))

    def _second_products(self, index: int, again: int, part: Residues) -> Residues:
        prime = ResidueSystem((self.system.primes[index],))
        total = np.zeros((self.second, self.second))
        beta = self.beta[index, again]
        for equation, quad in enumerate(self.identity.quad):
            if not quad.any():
                continue
            chosen = part[:, :, _chosen_columns(quad)]
            products = np.zeros((1, len(part), self.second, self.second))
            for some in _spans(chosen.shape[2]):
                columns = chosen[:, :, some]
                products += prime.reduce(np.matmul(columns, columns.transpose(0, 2, 1))[None])
            prime.reduce(products)
            found = prime.reduce(np.tensordot(beta, products[0], axes=1)[None], passes=2)
            total += prime.reduce(found * self.gamma[index, again, equation])[0]
        prime.reduce(total[None])
        return total

    def _forms(self, products: Residues, sums: Residues, factors: Residues) -> Residues:
        """For each row e of the factors, e' products e + e' sums."""
        system = self.system
        system.reduce(products)
        system.reduce(sums)
        half = system.reduce(np.matmul(factors, products))
        return system.reduce((half * factors).sum(axis=3) + np.matmul(factors, sums[..., None])[..., 0])

    # --- both sides

    def fold_all(self, blocks: Sequence[RowBlock], points: EvaluationPoints, read: AffineReading | None) -> Residues:
        """The polynomials of all groups at the points: residues (primes, repetitions, groups, width)."""
        factors = self.factors(points)
        out, done = np.empty((len(self.system.primes), self.repeated, self.groups, self.identity.width)), 0
        for block in blocks:
            done = self.fold(out, done, block, factors)
        if read is None:
            return out
        # Polynomials through x become those through u; rows that only fill a group are zero in both.
        real = np.concatenate([_is_row(size, self.first) for size in self.sizes])
        ones = self.system.reduce(np.matmul(factors, real.T))  # (primes, repetitions, groups)
        for prime, part, one in zip(self.system.primes, out[..., : len(read.scales)], ones, strict=True):
            part[...] = read.apply(prime, part, one)
        return out

    def factors(self, points: EvaluationPoints) -> Residues:
        """By what the rows of a group are multiplied: (primes, repetitions, m)."""
        return _fold_factors(self.system.primes, self.first, points.tobytes())

    def fold(self, out: Residues, done: int, block: RowBlock, factors: Residues) -> int:
        """Fold one block, whose groups follow on those that are done; says how many are done then."""
        at = 0
        for part in block:
            if part.strides[0]:
                grouped = [_group_rows(rows, self.first) for rows in part]
                found = [by @ rows.reshape(self.first, -1) for by, rows in zip(factors, grouped, strict=True)]
            else:  # the owner's whole numbers, which are the same for all primes
                grouped = [_group_rows(part[0], self.first)]
                found = np.vsplit(factors.reshape(-1, self.first) @ grouped[0].reshape(self.first, -1), len(part))
            groups, width = int(grouped[0].shape[1]), int(grouped[0].shape[2])
            for prime, here, one in zip(self.system.primes, out, found, strict=True):
                reduce(one, prime)
                here[:, done : done + groups, at : at + width] = one.reshape(-1, groups, width)
            at += width
        return done + groups

    def fold_again(self, rows: Residues, points: EvaluationPoints) -> Residues:
        """What is left after the second fold: (primes, repetitions, left, width)."""
        factors = _fold_factors(self.system.primes, self.second, points.tobytes())
        return self.system.reduce(np.matmul(factors[:, :, None, None], self._regroup(rows))[:, :, :, 0])

    def _regroup(self, rows: Residues) -> Residues:
        primes, repeated, groups, width = rows.shape
        if more := self.left * self.second - groups:
            rows = np.concatenate([rows, np.zeros((primes, repeated, more, width))], axis=2)
        return rows.reshape(primes, repeated, self.left, self.second, width)

    # --- the seats

    def interpolate_help(self, dealt: Residues, points: EvaluationPoints) -> Residues:
        """The shares of H at the points, from those dealt (primes, repetitions, m - 1) and what is public."""
        system, m = self.system, self.first
        target = np.array([[centred(target, prime) for target in self.identity.targets] for prime in system.primes])
        due = system.reduce(system.reduce(self.gamma * target[:, None].astype(np.float64)).sum(axis=2))
        real = np.concatenate([_is_row(size, m) for size in self.sizes])
        public = system.reduce(system.reduce(np.matmul(self.alpha, real), passes=2) * due[..., None])
        return self.evaluate(np.concatenate([public, dealt], axis=2), points)

    def evaluate(self, values: Residues, points: EvaluationPoints) -> Residues:
        """The shares of H at the points, from those of its values at 1, 2 and so on."""
        factors = _fold_factors(self.system.primes, values.shape[2], points.tobytes())
        return self.system.reduce((values * factors).sum(axis=2))

    def linked_difference(self, dealt: Residues, before: Residues) -> Residues:
        """What must be zero: the second H, its first values added up by delta, less the first H at its point."""
        assert self.delta is not None  # noqa: S101 - only where rows are folded twice
        first = dealt[:, :, : self.second]
        return self.system.reduce((first * self.delta).sum(axis=2) - before)

    def sides(self, rows: Residues) -> tuple[Residues, Residues]:
        """Vectors (primes, repetitions, length) whose inner product is the sum of alpha q, for what is left of rows."""
        system = self.system
        first = system.reduce(rows * self.quad[:, :, None]) + self.linear[:, :, None]
        left = system.reduce(system.reduce(first) * self.beta[..., None])
        shape = (*rows.shape[:2], -1)
        return left.reshape(shape), rows.reshape(shape)


def _group_rows(block: NDArray[np.float64], m: int) -> NDArray[np.float64]:
    """Rows of a block as (m, groups, width): the first rows of all groups come first; zeros fill the end."""
    size, width = block.shape
    if more := -size % m:
        block = np.concatenate([block, np.zeros((more, width))])
    return block.reshape(m, -1, width)


def _spans(width: int) -> list[slice]:
    """Columns in runs so short that sums of products of residues are below 2^51."""
    return [slice(start, start + _EXACT) for start in range(0, width, _EXACT)]


def _chosen_columns(chosen: NDArray[np.float64]) -> slice | NDArray[np.int64]:
    """The columns that are chosen, as a slice where they stand together."""
    where = np.flatnonzero(chosen)
    together = where[-1] - where[0] + 1 == where.size
    return slice(int(where[0]), int(where[-1]) + 1) if together else where


def _is_row(size: int, m: int) -> NDArray[np.float64]:
    """For each group of a block, 1 for rows and 0 for what fills the end."""
    return (np.arange(-(-size // m) * m) < size).astype(np.float64).reshape(m, -1).T


def _first_points(count: int) -> tuple[int, ...]:
    return tuple(range(1, count + 1))


@lru_cache(maxsize=32)
def _fold_factors(primes: tuple[int, ...], count: int, points: bytes) -> Residues:
    """The factors of the values at 1 to ``count`` in those at the points, which are the same for all owners."""
    return lagrange_at(primes, _first_points(count), np.frombuffer(points, dtype=np.int64).reshape(len(primes), -1))
