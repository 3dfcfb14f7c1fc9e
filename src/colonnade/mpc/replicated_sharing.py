"""Residues in two parts, for three seats that follow the protocol: less to compute than a share on a line.

A dealer splits each residue X into U + V. The seat that follows it draws U from the stream that both have, and the
other seat is sent V. Each alone is uniform. The dealer knows X, U and V. From what every seat holds of two dealers, the
three seats can compute numbers that add up to a product of theirs (docs/theory/parts.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from colonnade.mpc.committee import Committee
from colonnade.mpc.messages import PackedWords, pack, pack_words, quarter_length
from colonnade.mpc.residues import CHUNK, FEW, Residues, ResidueSystem, inverse, uniform_words, words_to_residues
from colonnade.mpc.shamir import lagrange_weights, to_uint32_rows
from colonnade.randomness import Stream

REPLICATED_SEATS = 3


def neighbours(committee: Committee, seat: str) -> tuple[str, str]:
    """The seat before this one, which it draws U from, and the seat after it, which sends it V."""
    seats, place = committee.seats, committee.seats.index(seat)
    return seats[place - 1], seats[(place + 1) % REPLICATED_SEATS]


def split_replicated(
    system: ResidueSystem, secret: Residues, drawn: Mapping[int, Stream], own: int | None, others: Sequence[int]
) -> tuple[Residues | None, dict[int, PackedWords]]:
    """V as residues, and as words for the one seat in ``others``; ``drawn`` has the stream of U."""
    [stream], [other] = drawn.values(), others
    if secret.size <= FEW:
        rest = system.reduce(secret - system.uniform(secret.shape[1:], stream))
        return rest, {other: pack(rest, system)}
    count, primes = prod(secret.shape[1:]), system.primes
    mine, sent = np.empty((len(primes), count)), np.empty((len(primes), 3 * quarter_length(count)), dtype=np.uint32)
    row, scratch = np.zeros(4 * quarter_length(count), dtype=np.uint32), np.empty(CHUNK, dtype=np.uint32)
    for prime, known, out, words in zip(primes, to_uint32_rows(secret), mine, sent, strict=True):
        for start in range(0, count, CHUNK):
            here = slice(start, min(count, start + CHUNK))
            target = row[here]
            spare = scratch[: target.size]
            np.subtract(known[here], uniform_words(prime, target.size, stream), out=target)
            # The word of V is X - 1 less the word of U, plus p once or twice if that is negative: then it is smallest.
            target -= np.uint32(1)
            np.add(target, np.uint32(prime), out=spare)
            np.minimum(target, spare, out=target)
            spare += np.uint32(prime)
            np.minimum(target, spare, out=target)
            words_to_residues(target, prime, out[here], spare)
        pack_words(row, words)
    return mine.reshape(secret.shape), {other: sent}


def to_polynomial_share(system: ResidueSystem, values: Residues, point: int) -> Residues:
    """A seat's part of a sum over three seats, as its share in a polynomial of degree 2 that has the sum at 0."""
    out = np.empty(values.shape)
    for prime, part, found in zip(system.primes, values, out, strict=True):
        np.multiply(part, inverse(lagrange_weights(prime, (1, 2, 3), 0)[point - 1], prime), out=found)
    return system.reduce(out)
