"""From a secret to what seats are sent: shares that are computed and packed as words.

The *word* of a residue x modulo p is x + (p - 1) / 2, a number from 0 to p - 1; words are what streams give and what is
sent. Where the polynomials are lines, as with a threshold of 1, the shares of all seats follow from the word of the
secret and the drawn word by additions, halvings and exact divisions of 32-bit integers. That takes half the memory of
floats and no reduction, and gives the same shares (docs/theory/residues.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc.packing import Words, pack, pack_words, quarter_of
from colonnade.mpc.residues import CHUNK, FEW, Residues, ResidueSystem, draw_words, from_words
from colonnade.mpc.shamir import complete
from colonnade.randomness import Stream

Numbers = NDArray[np.uint32]
Dealing = Callable[
    [ResidueSystem, Residues, Mapping[int, Stream], int | None, Sequence[int]], tuple[Residues | None, dict[int, Words]]
]
"""A way to deal: what :func:`dealt` takes and returns."""


def dealt(
    system: ResidueSystem, secret: Residues, drawn: Mapping[int, Stream], own: int | None, others: Sequence[int]
) -> tuple[Residues | None, dict[int, Words]]:
    """The share at the dealer's own point, if it has one, and what the seats at ``others`` are sent, by their points.

    The polynomials have ``secret`` at 0 and numbers from streams at ``drawn``.
    """
    if len(drawn) == 1 and secret.size > FEW:
        [(point, stream)] = drawn.items()
        return _Lines(system, secret, point, stream, own, others).deal()
    shares = complete(system, secret, drawn, [*others, *([] if own is None else [own])])
    return None if own is None else shares[own], {node: pack(shares[node], system) for node in others}


class _Lines:
    """Polynomials of degree 1, one for each number, dealt a chunk at a time."""

    def __init__(
        self,
        system: ResidueSystem,
        secret: Residues,
        point: int,
        stream: Stream,
        own: int | None,
        others: Sequence[int],
    ) -> None:
        self.system, self.secret, self.point, self.stream, self.own = system, secret, point, stream, own
        self.count = prod(secret.shape[1:])
        self.last = max([*others, *([] if own is None else [own])])
        self.mine = None if own is None else np.empty((len(system.primes), self.count))
        self.rows = {node: np.zeros(4 * quarter_of(self.count), dtype=np.uint32) for node in others}
        """The words that each other seat gets, modulo one prime."""
        self.scratch = np.empty((4, CHUNK), dtype=np.uint32)

    def deal(self) -> tuple[Residues | None, dict[int, Words]]:
        """The dealer's own share, and what the others are sent."""
        primes = self.system.primes
        sent = {node: np.empty((len(primes), 3 * quarter_of(self.count)), dtype=np.uint32) for node in self.rows}
        for index, secret in enumerate(integers_of(self.secret)):
            for start in range(0, self.count, CHUNK):
                known = secret[start : start + CHUNK]
                drawn = draw_words(primes[index], known.size, self.stream)  # as the receiving seat draws them too
                self._chunk(index, start, known, drawn)
            for node, words in self.rows.items():
                pack_words(words, sent[node][index])
        return None if self.mine is None else self.mine.reshape(self.secret.shape), dict(sent)

    def _chunk(self, index: int, start: int, known: Numbers, drawn: Numbers) -> None:
        """The words of all shares of some numbers, modulo one prime, from node to node along the line."""
        prime, size = np.uint32(self.system.primes[index]), known.size
        secret, slope, mine, spare = (row[:size] for row in self.scratch)
        np.add(known, prime >> 1, out=secret)
        np.subtract(drawn, secret, out=slope)
        np.add(slope, prime, out=spare)
        np.minimum(slope, spare, out=slope)
        _divide(slope, self.point, int(prime), spare)
        at = secret
        for node in range(1, self.last + 1):
            if node == self.point:
                at = drawn
                continue
            here = slice(start, start + size)
            target = self.rows[node][here] if node in self.rows else mine
            np.add(at, slope, out=target)
            np.subtract(target, prime, out=spare)
            at = np.minimum(target, spare, out=target)
            if node == self.own and self.mine is not None:
                from_words(at, int(prime), self.mine[index, here], spare)


def integers_of(secret: Residues) -> Iterator[Numbers]:
    """For each prime the residues as integers, negative ones modulo 2^32."""
    if secret.strides[0] == 0 and len(secret):  # small integers have the same residues modulo all primes
        whole = _integers(secret[0])
        yield from (whole for _ in secret)
    else:
        yield from map(_integers, secret)


def _integers(values: Residues) -> Numbers:
    return values.reshape(-1).astype(np.int32).view(np.uint32)


def _divide(values: Numbers, divisor: int, prime: int, spare: Numbers) -> None:
    """Divide numbers below an odd prime by a small integer modulo this prime, in place."""
    while divisor % 2 == 0:
        np.bitwise_and(values, np.uint32(1), out=spare)
        np.multiply(spare, np.uint32(prime), out=spare)
        values += spare  # an odd number plus the prime is even
        values >>= np.uint32(1)
        divisor //= 2
    if divisor == 1:
        return
    # One of v, v + p, .. v + (divisor - 1) p is a multiple of the divisor. Times the divisor's inverse modulo 2^32, it
    # gives the quotient, which is below p; any other gives at least 2^32 / divisor.
    reciprocal = pow(divisor, -1, 2**32)
    values *= np.uint32(reciprocal)
    step = np.uint32(prime * reciprocal % 2**32)
    np.copyto(spare, values)
    for _ in range(divisor - 1):
        spare += step
        np.minimum(values, spare, out=values)
