"""Proofs that an owner's rows are within their bounds, given to the seats that hold shares of them.

All participants of a task hold the same :class:`~colonnade.mpc.verify.ranges.Ranges` of every owner. Rows are dealt
block by block as always; a window is some blocks together. After the last block of a window everybody who deals or
holds shares calls :meth:`InputProofs.window`, and seats settle their claims before anything is opened::

    ranges = {owner: Ranges.fitting([within(columns, norm_squared)], rows_at_most) for owner in owners}
    system = ResidueSystem.for_bound(max(bound, *(each.required_bound for each in ranges.values())))
    proofs = InputProofs(engine, ranges)
    proofs.window(sizes, own=blocks_of_integers, dealt={owner: blocks_of_shares for owner in owners})
    engine.claims.settle()

``own`` is None where a participant deals nothing, ``dealt`` where it has no seat. A window takes three coins, and four
if proofs are covert:

1. The owner deals four squares for each norm, which fill it up to its bound, and masks.
2. A coin gives ternary signs. The owner deals the bits of K sums of each column with these signs. If a number is beyond
   2^b, each sum is beyond what b bits can say with a chance of at least one half. It also helps to fold the equations
   of all rows (:mod:`identities`).
3. A coin: the seats check that the bits are those of the sums, and open K sums of all bits with signs, under the
   owner's masks: a bit that is 0 modulo one prime and 1 modulo another makes them too large.
4. A coin: what is left of the equations, and that bits are their own squares, is claimed.

What holds modulo all primes then holds for whole numbers, because these are small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from colonnade.errors import NO_RESULT, ShareError
from colonnade.mpc.hand import Hand
from colonnade.mpc.residues import Integers, Residues, ResidueSystem
from colonnade.mpc.shares import Shares
from colonnade.mpc.verify.claims import Claims
from colonnade.mpc.verify.identities import Points
from colonnade.mpc.verify.prover import Prover
from colonnade.mpc.verify.ranges import BIT_FOLD, COMBINED, FOLDS, Ranges
from colonnade.mpc.verify.window import Coins, Signs, Window, signs
from colonnade.randomness import Stream

_PART = 1 << 13
"""Bits for which signs are drawn at a time."""


class Verifier:
    """What a seat computes from its shares of one owner's window."""

    def __init__(self, window: Window, blocks: Sequence[Shares], slack: Shares | None, masks: Shares) -> None:
        self.window, self.system = window, window.system
        self.blocks, self.degree = [block.values for block in blocks], masks.degree
        self.slack = None if slack is None else slack.values
        self.masks = masks.values

    def takes(self, bits: Shares, first: Shares) -> None:
        """Take what the owner dealt after the first coin."""
        self.bits, self.first = bits.values, first.values

    def added_up(self, factors: Residues, combined: Residues) -> Shares:
        """What must be zero: the sums that bits say, less those of the rows.

        ``factors`` (primes, repetitions, sums) combine the sums, and ``combined`` (primes, repetitions, rows) are the
        numbers by which rows are then multiplied.
        """
        window, system, ranges = self.window, self.system, self.window.ranges
        total = np.zeros((len(system.primes), COMBINED, ranges.width))
        for block, start in zip(self.blocks, window.starts, strict=False):
            part = combined[:, :, start : start + block.shape[1]].transpose(0, 2, 1)
            total[:, :, : ranges.columns] += system.inner(part, block)
        if window.read is not None:
            ones = system.reduce(combined.sum(axis=2))
            for index, prime in enumerate(system.primes):
                part = total[index, :, : ranges.columns]
                part[...] = window.read.read(prime, part, ones[index])
        if self.slack is not None:
            chosen = combined if window.chosen is None else combined[:, :, window.chosen]
            total[:, :, ranges.columns :] = system.inner(chosen.transpose(0, 2, 1), self.slack)
        powers = system.split(np.array([1 << bit for bit in range(ranges.bits)], dtype=object))
        places = system.reduce(factors[..., None] * powers[:, None, None]).reshape(*factors.shape[:2], -1)
        said = system.inner(places.transpose(0, 2, 1), self.bits)
        half = system.reduce(factors.sum(axis=2)) * system.constant(1 << (ranges.bits - 1), 3)[:, :, 0]
        return Shares(system.reduce(said - system.reduce(half)[..., None] - system.reduce(total)), self.degree)

    def fold(self, second: Shares) -> Shares:
        """Fold the rows at the first point; what must be zero then."""
        window = self.window
        rows = window.looked_at(self.blocks, self.slack, 1)
        self.left = window.equations.folded(rows, window.point, window.read)
        cut = 2 * FOLDS[1] - 1
        self.second, self.of_bits = second.values[:, :, :cut], second.values[:, :, cut:]
        before = window.equations.known(self.first, window.point)
        return Shares(window.equations.joined(self.second, before), self.degree)

    def claim(self, claims: Claims, points: Points, bit_points: Points) -> None:
        """Claim what is left of all equations."""
        window = self.window
        rows = window.equations.folded_again(self.left, points)
        self._claim(claims, window.equations.sides(rows), window.equations.at(self.second, points))
        flat = self.bits.reshape(len(self.system.primes), -1, 1)
        bits = window.bits.folded([[flat]], bit_points, None)
        self._claim(claims, window.bits.sides(bits), window.bits.known(self.of_bits, bit_points))

    def _claim(self, claims: Claims, sides: tuple[Residues, Residues], product: Residues) -> None:
        for again in range(product.shape[1]):
            left, right = ([Shares(side[:, again, :, None], self.degree)] for side in sides)
            claims.inner(left, right, Shares(product[:, again, None, None], self.degree))


class InputProofs:
    """The proofs of all owners in one task; every participant that deals or has a seat holds one."""

    def __init__(self, engine: Hand, ranges: Mapping[str, Ranges]) -> None:
        self.hand, self.ranges = engine, ranges
        self.prover = Prover

    def window(
        self,
        sizes: Sequence[int],
        *,
        own: Sequence[Integers] | None = None,
        dealt: Mapping[str, Sequence[Shares]] | None = None,
    ) -> None:
        """Prove and verify one window; its rows were dealt before in blocks of these sizes."""
        engine, system = self.hand, self.hand.system
        covert = any(ranges.covert for ranges in self.ranges.values())
        sampled = self._coins() if covert else None
        windows = {
            owner: Window(system, ranges, sizes, sampled if ranges.covert else None)
            for owner, ranges in self.ranges.items()
        }
        prover = None if own is None else self.prover(windows[engine.name], own)
        slack = self._dealt("squares", windows, prover, lambda me: me.slack)
        masks = self._dealt("masks", windows, prover, lambda me: me.masks())

        coins = self._coins()
        for owner, window in windows.items():
            window.draw(coins, owner)
        most = max(window.ranges.projections for window in windows.values())
        drawn = signs(coins.of("signs"), most, sum(sizes))
        bits = self._dealt("bits", windows, prover, lambda me: me.digits(drawn[: me.window.ranges.projections]))
        first = self._dealt("help", windows, prover, lambda me: self._joined(me.help()))

        coins = self._coins()
        for owner, window in windows.items():
            window.draw_again(coins, owner)
        second = self._dealt("help again", windows, prover, lambda me: self._joined(me.help_again()))
        held: dict[str, Verifier] = {}
        if dealt is not None:
            for owner, window in windows.items():
                held[owner] = Verifier(window, dealt[owner], slack.get(owner), masks[owner])
                held[owner].takes(bits[owner], first[owner])
            self._check_sums(held, coins, drawn)
            for owner, verifier in held.items():
                engine.claims.zero(verifier.fold(second[owner]))

        coins = self._coins()
        for owner, verifier in held.items():
            equations = windows[owner].equations
            points, bit_points = (
                equations.point(coins.of(name), fold) for name, fold in (("point", FOLDS[1]), ("bits", BIT_FOLD))
            )
            verifier.claim(engine.claims, points, bit_points)

    def _check_sums(self, held: Mapping[str, Verifier], coins: Coins, drawn: Signs) -> None:
        """Claim that bits add up to the sums of rows, and see that no bit is large."""
        engine, system = self.hand, self.hand.system
        factors = system.uniform((COMBINED, len(drawn)), coins.of("sums"))
        combined: dict[int, Residues] = {}
        for verifier in held.values():
            count = verifier.window.ranges.projections
            if count not in combined:
                combined[count] = _times(system, factors[:, :, :count], drawn[:count])
            engine.claims.zero(verifier.added_up(factors[:, :, :count], combined[count]))
        hidden = _sums_of_bits(list(held.values()), coins.of("signs of bits"))
        opened = system.join(engine.open_residues(np.concatenate(hidden, axis=1)), system.modulus // 2)
        for owner, verifier in held.items():
            count = verifier.window.ranges.projections
            mine, opened = opened[:count], opened[count:]
            low, high = verifier.window.ranges.window
            if not all(low <= value < high for value in mine.tolist()):
                raise ShareError(
                    f"the proof of {owner} that its numbers are within their bounds is wrong, as it dealt bits that "
                    f"are none: {NO_RESULT} [SH016]"
                )

    def _coins(self) -> Coins:
        """Coins for seats and owners; owners without a seat hear them from all seats."""
        engine = self.hand
        if not engine.seated:
            return Coins(engine.hear_coin())
        return Coins(engine.coin([owner for owner in self.ranges if owner not in engine.committee.seats]))

    def _dealt(
        self,
        what: str,
        windows: Mapping[str, Window],
        prover: Prover | None,
        make: Callable[[Prover], Integers | None],
    ) -> dict[str, Shares]:
        """Deal one's own numbers and take those of all owners; empty without a seat."""
        engine = self.hand
        mine = None if prover is None else make(prover)
        own = None if mine is None else engine.deal(mine)
        if not engine.seated:
            return {}
        shapes = {owner: window.shapes[what] for owner, window in windows.items() if what in window.shapes}
        return {
            owner: own if owner == engine.name and own is not None else engine.receive(owner, shape)
            for owner, shape in shapes.items()
        }

    def _joined(self, residues: Residues) -> Integers:
        """Numbers that have these residues, for dealing."""
        return self.hand.system.join(residues, self.hand.system.modulus // 2)


def _times(system: ResidueSystem, factors: Residues, drawn: Signs) -> Residues:
    """Signs combined by factors: (primes, repetitions, rows), and in memory rows of (rows, repetitions)."""
    out = np.empty((len(system.primes), drawn.shape[1], COMBINED))
    for start in range(0, drawn.shape[1], _PART):
        part = drawn[:, start : start + _PART].T.astype(np.float64)
        for found, combined in zip(out, factors, strict=True):
            np.matmul(part, combined.T, out=found[start : start + _PART])
    return system.reduce(out).transpose(0, 2, 1)


def _sums_of_bits(held: Sequence[Verifier], stream: Stream) -> list[Residues]:
    """For each owner sums of all its bits with signs, under its masks: (primes, sums)."""
    flat = [verifier.bits.reshape(len(verifier.system.primes), -1) for verifier in held]
    totals = [verifier.masks.copy() for verifier in held]
    most = max(total.shape[1] for total in totals)
    for start in range(0, max(bits.shape[1] for bits in flat), _PART):
        drawn = signs(stream, most, _PART).T.astype(np.float64)
        for bits, total in zip(flat, totals, strict=True):
            part = bits[:, start : start + _PART]
            total += part @ drawn[: part.shape[1], : total.shape[1]]
    return [verifier.system.reduce(total) for verifier, total in zip(held, totals, strict=True)]
