"""What only tests do with shared bits."""

from __future__ import annotations

import numpy as np

from colonnade.mpc.fixed.binary import BitHand, BitShares, words_for


def random_bits(hand: BitHand, bits: int, count: int) -> BitShares:
    """Uniform bits that nobody knows: each group's own, added up."""
    drawn = [stream.uint64((bits, words_for(count))) for _, stream in hand.common.streams]
    first, *rest = hand.group_bits(drawn, count)
    for more in rest:
        first = hand.xor(first, more)
    return first


def join_bits(words, count):
    """The numbers whose bits ``slice_bits`` took apart."""
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, count=count, bitorder="little")
    places = np.uint64(1) << np.arange(len(bits), dtype=np.uint64)
    return np.bitwise_or.reduce(bits * places[:, None], axis=0)
