"""Proofs of bounds played in the clear, thousands of times: one owner, and a seat that sees the numbers themselves.

What seats do with shares is linear until they make claims. So the same code, given the numbers instead of shares,
makes the same claims, and here they are looked at directly. What passes here passes a committee whose settlement makes
no error.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from colonnade.errors import ShareError
from colonnade.mpc import PRIMES, ResidueSystem, Shares
from colonnade.mpc.verify.folding import lagrange
from colonnade.mpc.verify.four_squares import LARGEST, four_squares
from colonnade.mpc.verify.inputs import InputProofs
from colonnade.mpc.verify.prover import Prover
from colonnade.mpc.verify.ranges import FOLDS
from colonnade.randomness import Stream


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


class OpenHand:
    """The owner ``a``, and a seat that is dealt every number itself."""

    def __init__(self, system, coins: Stream):
        self.name, self.seated, self.system, self._coins = "a", True, system, coins
        self.committee = SimpleNamespace(seats=("a",))
        self.claims = Looked(system)

    def coin(self, tell=()):
        return Stream(self._coins.bytes(32))

    def deal(self, values):
        return Shares(self.system.split(values), 1)

    def open_residues(self, values):
        return values


def caught(ranges, rows, prover, coins) -> list[str]:
    """Which claims of one window are wrong; ``rows`` are what is dealt, whole numbers of any size."""
    system = ResidueSystem(PRIMES[: ranges.primes])
    hand = OpenHand(system, coins)
    proofs = InputProofs(hand, {"a": ranges})
    proofs.prover = prover
    rows = np.array(rows, dtype=object)
    try:
        proofs.window([len(rows)], own=[rows], dealt={"a": [Shares(system.split(rows), 1)]})
    except ShareError as error:
        return [*hand.claims.wrong, "window" if "dealt bits that are none" in str(error) else str(error)]
    return hand.claims.wrong


def roots(value, modulus_primes, rng):
    """Four residues whose squares add up to a value, modulo every prime: as small as nobody asks them to be."""
    found = []
    for prime in modulus_primes:
        while True:
            others = [int(rng.integers(0, prime)) for _ in range(3)]
            rest = (value - sum(other**2 for other in others)) % prime
            root = pow(rest, (prime + 1) // 4, prime) if prime % 4 == 3 else _root(rest, prime)
            if root is not None and root**2 % prime == rest:
                found.append([root, *others])
                break
    return [crt([row[i] for row in found], modulus_primes) for i in range(4)]


def _root(value, prime):
    """A square root by Cipolla's way, or None."""
    if value == 0:
        return 0
    if pow(value, (prime - 1) // 2, prime) != 1:
        return None
    shift = next(a for a in range(prime) if pow(a * a - value, (prime - 1) // 2, prime) == prime - 1)
    square, result, base, power = shift * shift - value, (1, 0), (shift, 1), (prime + 1) // 2

    def times(x, y):
        return ((x[0] * y[0] + x[1] * y[1] * square) % prime, (x[0] * y[1] + x[1] * y[0]) % prime)

    while power:
        result = times(result, base) if power & 1 else result
        base, power = times(base, base), power >> 1
    return result[0]


def crt(residues, primes):
    """The number between -M/2 and M/2 with these residues."""
    modulus = int(np.prod([int(prime) for prime in primes], dtype=object))
    total = sum(int(r) * (modulus // p) * pow(modulus // p, -1, p) for r, p in zip(residues, primes, strict=True))
    return centred(total, modulus)


def centred(value, modulus):
    value %= modulus
    return value - modulus if value > modulus // 2 else value


class AnyRows(Prover):
    """An owner that proves any rows, also modulo the primes, as well as that can be done.

    It fills norms up modulo every prime if it cannot with small squares; a sum that fits no bits is said as one that
    does; everything else is as the equations want it.
    """

    def __init__(self, window, blocks):
        self.window, self.system = window, window.system
        self.every = np.vstack(blocks)
        self.whole = self.every if window.chosen is None else self.every[window.chosen]
        self.rng = np.random.default_rng(11)
        self.slack = self.squares()
        self.whole = self.whole if self.slack is None else np.hstack([self.whole, self.slack])

    def squares(self):
        ranges, columns = self.window.ranges, []
        for group, span in zip(ranges.groups, ranges.spans, strict=True):
            if group.slack:
                rests = [group.squared - sum(int(x) ** 2 for x in row[span]) for row in self.whole]
                small = np.array([float(rest) if 0 <= rest < LARGEST else 0.0 for rest in rests])
                found = four_squares(small, group.squared + 1).astype(np.int64).astype(object)
                for at, rest in enumerate(rests):
                    if not 0 <= rest < LARGEST:
                        found[at] = self.four(rest)
                columns.append(found)
        return np.hstack(columns) if columns else None

    def four(self, value):
        return roots(value, self.system.primes, self.rng)

    def digits(self, drawn):
        chosen = drawn if self.window.chosen is None else drawn[:, self.window.chosen]
        parts = [drawn.astype(object) @ self.every]
        if self.slack is not None:
            parts.append(chosen.astype(object) @ self.slack)
        sums = np.hstack(parts)
        return self.said(np.vectorize(lambda value: centred(int(value), self.system.modulus), otypes=[object])(sums))

    def said(self, sums):
        half = 1 << (self.window.ranges.bits - 1)
        return self.bits_of(np.array(np.clip(sums, -half, half - 1), dtype=np.int64))

    def help(self):
        """The form of what every group is at each point; its owner may take any residues for whole numbers."""
        equations, m = self.window.equations, FOLDS[0]
        padded = np.zeros((len(self.system.primes), equations.groups * m, self.whole.shape[1]))
        padded[:, : len(self.whole)] = self.system.split(self.whole)
        ahead = lagrange(self.system.primes, tuple(range(1, m + 1)), tuple(range(m + 1, 2 * m)))
        at = self.system.reduce(ahead @ padded.reshape(len(padded), m, -1))
        folded = at.reshape(len(at), m - 1, equations.groups, -1)
        return np.stack(
            [
                self.added(np.repeat(folded[:, None, point], equations.repeated, axis=1), equations.alpha, equations)
                for point in range(m - 1)
            ],
            axis=2,
        )

    def added(self, rows, weights, equations):
        system = self.system
        first = system.reduce(system.reduce(rows * equations.quad[:, :, None]) + equations.linear[:, :, None])
        values = system.reduce(system.reduce(first * rows).sum(axis=3))
        return system.reduce(system.reduce(values * weights).sum(axis=2))

    def help_again(self):
        equations = self.window.equations
        self.left = equations.folded([[self.system.split(self.whole)]], self.window.point, None)
        return np.concatenate([equations.helped_again(self.left), self.help_bits()], axis=2)

    def help_bits(self):
        return self.window.bits.helped([self.dealt.reshape(-1, 1)])
