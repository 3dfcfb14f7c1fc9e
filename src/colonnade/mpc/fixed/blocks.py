"""What a seat computes of a block of products that is opened under masks, from its shares to packed words and back.

It is the arithmetic of :mod:`colonnade.mpc.fixed.cutting` for blocks that are sent as packed words and are opened at
twice the degree of inputs, where no share is spare. Messages and results have the same bits as there; fewer passes over
the numbers make them. Words become residues only where they are multiplied: the weights of the shares at 1, .. n in the
value at 0 are small integers, so a sum over seats is one of 32-bit words (docs/theory/residues.md). Results are written
over the masks, which nobody needs again: new memory costs more time than the arithmetic in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc.packing import Words, pack_words, quarter_of, unpack_words
from colonnade.mpc.residues import Residues, ResidueSystem, centred, reduce
from colonnade.mpc.shamir import weights

Numbers = NDArray[np.uint32]


class Block:
    """Some of the numbers of one array, as one seat holds them: factors, and the two forms of their masks."""

    def __init__(
        self, system: ResidueSystem, factors: Sequence[Residues], whole: Residues, high: Residues, part: slice
    ) -> None:
        self.system, self.count = system, int(part.stop - part.start)
        self._factors = [factor[:, part] for factor in factors]
        self._whole, self._high = whole[:, part], high[:, part]
        self._spare, self._shifted = np.empty(self.count), np.empty(quarter_of(self.count), dtype=np.uint32)

    def share(self, offset: int) -> Words:
        """This seat's share of the numbers under their masks plus an offset, as it is sent."""
        words, numbers, value = self._packed(), self._numbers(), np.empty(self.count)
        for place, prime in enumerate(self.system.primes):
            self._under_mask(place, value)
            # Half a unit above a word: so the quotient is never an integer, and its floor is right.
            value += centred(offset, prime) + prime // 2 + 0.5
            np.multiply(value, 1.0 / prime, out=self._spare)
            np.floor(self._spare, out=self._spare)
            self._spare *= prime
            value -= self._spare
            np.copyto(numbers.view(np.int32)[: self.count], value, casting="unsafe")
            pack_words(numbers, words[place])
        return words

    def open(
        self, offset: int, cut: int, bits: int, own: int, told: Mapping[int, tuple[str, Words]], factors: Sequence[int]
    ) -> Words:
        """Open the numbers at the seat with point ``own``; returns the quotients, as they are sent to other readers.

        ``told`` are the shares of all others, by their points, with their names. The shares of the result take the
        place of the masks; ``factors`` turn quotients into this seat's shares.
        """
        primes, shape = self.system.primes, (len(self.system.primes), self.count)
        values, digits, rows = np.empty(shape), np.empty(shape), (self._numbers(), self._numbers())
        for place, prime in enumerate(primes):
            value, digit = values[place], digits[place]
            self._under_mask(place, value)
            value *= self._told(place, offset, own, told, rows)
            value += self._spare
            reduce(value, prime, self._spare)
            np.multiply(value, float(self.system.to_digits[place]), out=digit)
            reduce(digit, prime, self._spare)
        low = self.system.low_bits(digits, cut)
        words, numbers = self._packed(), self._numbers()
        for place, (prime, value) in enumerate(zip(primes, values, strict=True)):
            value -= low
            value *= float(centred(pow(2, -cut, prime), prime))
            value -= float(centred(1 << bits >> cut, prime))
            reduce(value, prime, self._spare)
            np.copyto(numbers.view(np.int32)[: self.count], value, casting="unsafe")
            numbers[: self.count] += np.uint32(prime // 2)
            pack_words(numbers, words[place])
            self._unmask(place, value, factors[place])
        return words

    def hear(self, words: Words, sender: str, factors: Sequence[int]) -> None:
        """Quotients that another seat has told: a reader's shares of the result take the place of the masks."""
        value, numbers = np.empty(self.count), self._numbers()
        for place, prime in enumerate(self.system.primes):
            unpack_words(words[place], prime, self.count, numbers.reshape(4, -1), self._shifted, sender)
            numbers -= np.uint32(prime // 2)
            np.copyto(value, numbers.view(np.int32)[: self.count])
            self._unmask(place, value, factors[place])

    def _told(
        self, place: int, offset: int, own: int, told: Mapping[int, tuple[str, Words]], rows: tuple[Numbers, Numbers]
    ) -> float:
        """Put the weighted sum of all others' shares, and all constants, in ``_spare``; returns this seat's weight."""
        prime, points = self.system.primes[place], tuple(sorted((own, *told)))
        of = dict(zip(points, weights(prime, points, 0), strict=True))
        total = rows[0].view(np.int32)
        for index, (point, (sender, words)) in enumerate(told.items()):
            numbers = rows[1 if index else 0]
            unpack_words(words[place], prime, self.count, numbers.reshape(4, -1), self._shifted, sender)
            signed = numbers.view(np.int32)
            if of[point] != 1:
                signed *= np.int32(of[point])
            if index:
                total += signed
        # A word is larger than its residue by half of the prime. The others have added the offset to their shares.
        constant = offset * of[own] - prime // 2 * (sum(of.values()) - of[own])
        total += np.int32(centred(constant, prime))
        np.copyto(self._spare, total[: self.count])
        return float(of[own])

    def _under_mask(self, place: int, out: NDArray[np.float64]) -> None:
        """Numbers under their masks, not reduced, but below 2^43."""
        first, *second = (factor[place] for factor in self._factors)
        if second:
            np.multiply(first, second[0], out=out)
            out += self._whole[place]
        else:
            np.add(first, self._whole[place], out=out)

    def _unmask(self, place: int, quotients: NDArray[np.float64], factor: int) -> None:
        """A reader's share of public quotients, less its share of the mask, in the place of the mask."""
        quotients *= float(factor)
        out = self._high[place]
        np.subtract(quotients, out, out=out)
        reduce(out, self.system.primes[place], quotients)

    def _packed(self) -> Numbers:
        return np.empty((len(self.system.primes), 3 * quarter_of(self.count)), dtype=np.uint32)

    def _numbers(self) -> Numbers:
        """Memory for one row of words, with the zeros that fill the last four."""
        return np.zeros(4 * quarter_of(self.count), dtype=np.uint32)
