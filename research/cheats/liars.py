"""Owners that lie in proofs of their rows: whatever must hold modulo a prime they make true modulo every prime.

A liar fills norms by numbers whose squares are right modulo every prime, and are large; and it deals "bits" that are 0
modulo some primes and 1 modulo others, so that they add up to any sum. Every equation that seats check then holds. What
is left against it is that whole numbers must be small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from colonnade.mpc import ShareEngine, Shares
from colonnade.mpc.residues import Integers, Residues, ResidueSystem
from colonnade.mpc.verification.claims import lagrange
from colonnade.mpc.verification.input_proofs import (
    InputProofs,
    InputProver,
    InputRanges,
    ProofWindow,
    SignMatrix,
    binary_columns,
    bounded_norm,
)
from colonnade.mpc.verification.three_squares import take_apart
from research.cheats.deviation import Array
from research.cheats.scenes import Scene, opened, operation
from research.cheats.tamper import Tamper

_BOUND = 1 << 18
_ROWS = np.array(
    [[200_000, -3, 0, 1, 0], [0, 0, 1, 0, 1], [-130_000, 140_000, 1, 0, 1], [17, 262_000, 0, 1, 0]], dtype=object
)
"""Two numbers of bounded norm, and three flags."""
_RANGES = InputRanges((bounded_norm(2, _BOUND**2), binary_columns(3)), len(_ROWS))


class Liar(InputProver):
    """A prover whose numbers are residues: all equations hold modulo every prime."""

    several = True
    """Whether its bits may differ from prime to prime."""

    def __init__(self, window: ProofWindow, blocks: Sequence[Integers]) -> None:
        self.window, self.system = window, window.system
        rows = self._read(np.concatenate([np.asarray(block, dtype=object) for block in blocks]))
        filled = self._filled(rows)
        self.slack = self._joined(filled) if window.ranges.slack else None
        self.residues = np.concatenate([rows, filled], axis=2)

    def _read(self, whole: Array) -> Residues:
        """The residues of rows as the proof reads them."""
        ranges = self.window.ranges
        less = self.system.to_residues(whole - np.array(ranges.offsets, dtype=object))
        inverses = [[pow(scale, -1, prime) for scale in ranges.scales] for prime in self.system.primes]
        return self.system.reduce(less * np.array(inverses, dtype=np.float64)[:, None])

    def _joined(self, residues: Residues) -> Any:
        return self.system.to_integers(residues, self.system.modulus // 2)

    def _filled(self, rows: Residues) -> Residues:
        """For each row and norm, numbers whose squares fill it up to the bound: modulo every prime, if it is too long.

        Of rows that are not they are an honest owner's.
        """
        ranges, whole = self.window.ranges, np.asarray(self._joined(rows), dtype=object)
        columns = [np.zeros((*rows.shape[:2], 0))]
        for group, span in zip(ranges.groups, ranges.spans, strict=True):
            if not group.slack:
                continue
            rests = group.squared - np.square(whole[:, span]).sum(axis=1)
            short = np.array([rest >= 0 for rest in rests])
            found = take_apart(np.where(short, rests, 0).astype(np.float64), group.squared + 1)
            out = np.array(self.system.to_residues(found))
            for place in np.flatnonzero(~short):
                for index, prime in enumerate(self.system.primes):
                    out[index, place] = 0
                    roots = _squares(int(rests[place]) % prime, prime)
                    out[index, place, :3] = [_centred(one, prime) for one in roots]
            columns.append(out)
        return np.concatenate(columns, axis=2)

    def digits(self, drawn: SignMatrix) -> Any:
        """The bits of the sums, modulo every prime of its own; or the lowest bits of the sum modulo the first."""
        ranges = self.window.ranges
        sums = self.system.reduce(np.matmul(drawn.astype(np.float64), self.residues))
        primes = np.array(self.system.primes, dtype=np.int64)[:, None, None]
        shifted = (sums.astype(np.int64) + (1 << (ranges.bits - 1))) % primes
        if not self.several:
            shifted[:] = shifted[:1]
        said = shifted & ((1 << ranges.bits) - 1)
        high = (said >> ranges.dropped) - (1 << (ranges.bits - 1 - ranges.dropped))
        left = ranges.limit**2 - np.square(high).sum(axis=2)
        left = left % (primes[:, 0] if self.several else self.system.modulus)
        bits = said[:, :, None] >> np.arange(ranges.bits)[:, None] & 1
        more = left[:, :, None] >> np.arange(ranges.excess_bits) & 1
        flat = [each.reshape(len(primes), -1) for each in (bits, more)]
        self.bits_dealt = np.concatenate(flat, axis=1).astype(np.float64)
        return self._joined(self.bits_dealt)

    def choose_masks(self, signs: Iterable[SignMatrix]) -> int:
        """Any: sums of its bits fit none."""
        return 0

    def _by_block(self) -> list[Residues]:
        return np.split(self.residues, self.window.starts[1:-1], axis=1)

    def help_values(self) -> Residues:
        """The first values: of what every group of rows is at each point, modulo each prime."""
        equations, system, m = self.window.equations, self.system, self.window.equations.first
        ahead = lagrange(system.primes, tuple(range(1, m + 1)), tuple(range(m + 1, 2 * m)))
        folded = []
        for rows in self._by_block():
            padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % m), (0, 0))).reshape(len(rows), m, -1)
            at = system.reduce(np.matmul(ahead, padded))
            folded.append(at.reshape(*at.shape[:2], -1, rows.shape[2]))
        points = np.concatenate(folded, axis=2)[:, None]
        first = system.reduce(points * equations.quad[:, :, None, None]) + equations.linear[:, :, None, None]
        values = system.reduce(system.reduce(system.reduce(first) * points).sum(axis=4))
        return system.reduce(system.reduce(values * equations.alpha[:, :, None]).sum(axis=3))

    def second_help_values(self) -> Residues:
        """The second values, likewise."""
        equations, bits = self.window.equations, self.window.bits
        folded = equations.fold_all([[rows] for rows in self._by_block()], self.window.point, None)
        again = equations.second_help_values(folded)
        helped = [bits.help_values([one.reshape(-1, 1)])[index] for index, one in enumerate(self.bits_dealt)]
        return np.concatenate([again, np.stack(helped)], axis=2)


class LiarWithBits(Liar):
    """The same, but its bits are bits."""

    several = False


class CutShort(InputProver):
    """An honest prover but for rows that are hardly too long: it fills their norms up by nothing."""

    def squares(self) -> Any:
        """For every row and every norm, numbers whose squares fill it up to the bound if they can."""
        ranges, columns = self.window.ranges, []
        for group, span in zip(ranges.groups, ranges.spans, strict=True):
            if group.slack:
                lengths = np.concatenate([np.square(block[:, span]).sum(axis=1) for block in self.blocks])
                columns.append(take_apart(np.maximum(group.squared - lengths, 0), group.squared + 1))
        return np.hstack(columns) if columns else None


def _centred(value: int, prime: int) -> int:
    return value - prime if value > prime // 2 else value


@cache
def _two_for_minus_one(prime: int) -> tuple[int, int]:
    """Two numbers whose squares add up to -1 modulo the prime."""
    if prime % 4 == 1:
        base = next(g for g in range(2, prime) if pow(g, (prime - 1) // 2, prime) == prime - 1)
        return pow(base, (prime - 1) // 4, prime), 0
    for first in range(1, prime):
        rest = (-1 - first * first) % prime
        if pow(rest, (prime - 1) // 2, prime) == 1:
            return first, pow(rest, (prime + 1) // 4, prime)
    raise ValueError("every prime has two such numbers [VA001]")


def _squares(value: int, prime: int) -> tuple[int, int, int]:
    """Numbers with a (a + 1) + b^2 + c^2 = value modulo the prime: u^2 - v^2 = (u + v) (u - v), with u = a + 1/2."""
    half, quarter = pow(2, -1, prime), pow(4, -1, prime)
    one, other = (value + quarter + 1) * half % prime, (value + quarter - 1) * half % prime
    first, second = _two_for_minus_one(prime)
    return (one - half) % prime, first * other % prime, second * other % prime


# --- the scene


def _proof(hand: ShareEngine) -> Array:
    """Two owners prove their rows, and the seats open the sums of these."""
    owners = hand.committee.seats[:2]
    rows, proven, prover = getattr(hand, "lie", (_ROWS, _ROWS, InputProver))
    dealt: dict[str, list[Shares]] = {}
    for owner in owners:
        mine = hand.deal(rows) if owner == hand.name else None
        dealt[owner] = [hand.receive(owner, _ROWS.shape) if mine is None else mine]
    if hand.active:
        proofs = InputProofs(hand, dict.fromkeys(owners, _RANGES))
        proofs.prover = prover
        proofs.window([len(_ROWS)], own=[proven] if hand.name in owners else None, dealt=dealt)
    total = hand.add([dealt[owner][0] for owner in owners])
    return opened(hand, Shares(hand.system.reduce(total.values.sum(axis=1)), total.degree))


def _lying(change: Callable[[Array, ResidueSystem], None], prover: type[InputProver]) -> Callable[[Tamper], None]:
    def install(tamper: Tamper) -> None:
        rows = _ROWS.copy()
        if tamper.now():
            change(rows, tamper.hand.system)
            proven = rows if issubclass(prover, Liar) else _ROWS
            setattr(tamper.hand, "lie", (rows, proven, prover))  # noqa: B010 - read by the scene alone

    return install


def _cell(number: Callable[[ResidueSystem], int], column: int = 0) -> Callable[[Array, ResidueSystem], None]:
    def change(rows: Array, system: ResidueSystem) -> None:
        found = number(system) % system.modulus
        rows[1, column] = found - system.modulus if found > system.modulus // 2 else found

    return change


def idempotent(system: ResidueSystem) -> int:
    """0 modulo the first prime, 1 modulo all others."""
    rest = system.modulus // system.primes[0]
    return 1 - rest * pow(rest, -1, system.primes[0])


LIES: dict[str, Callable[[Array, ResidueSystem], None]] = {
    "a number one beyond its bound": _cell(lambda system: _BOUND + 1),
    "a number twice its bound": _cell(lambda system: 2 * _BOUND),
    "a number a thousand times its bound": _cell(lambda system: 1000 * _BOUND),
    "a number of half the modulus": _cell(lambda system: system.modulus // 2),
    "a third, which is no whole number": _cell(lambda system: pow(3, -1, system.modulus)),
    "a flag of 2": _cell(lambda system: 2, column=2),
    "a flag that is 0 and 1": _cell(idempotent, column=2),
    "a code with two ones": _cell(lambda system: 1, column=3),
}
"""Rows that an owner may not deal, by their names."""

PROOF = Scene("proof of bounds", 1, operation(_proof, lambda deals: 2 * _ROWS.sum(axis=0), primes=_RANGES.primes), True)


def liars() -> list[tuple[str, Callable[[Tamper], None]]]:
    """Every lie with the proof of an honest owner, of one whose bits are bits, and of one whose bits are none."""
    ways = (
        (", proven as if it were none", InputProver),
        (", with squares modulo every prime", LiarWithBits),
        (", with squares and bits modulo every prime", Liar),
    )
    return [(lie + way, _lying(change, prover)) for lie, change in LIES.items() for way, prover in ways]
