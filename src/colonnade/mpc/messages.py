"""Every message of the committee, and shares as they are sent: a residue has 22 bits and is sent in 24.

Four residues make three words of 32 bits. All first words come first, then all second words, then all third words. So
packing takes few operations, and these work on contiguous memory. What is due is declared where sizes are public or
this participant's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.message_schema import ArrayForm, FixedBytes, Integer, ItemList, MessageSchema, TextForm
from colonnade.mpc.residues import CHUNK, Residues, ResidueSystem, words_to_residues
from colonnade.randomness import KEY_BYTES

PackedWords = NDArray[np.uint32] | NDArray[np.int32]
SMALL = 1 << 14
"""At most this many residues are sent unpacked: a third more bytes cost less time than packing."""


def pack(residues: Residues, system: ResidueSystem) -> PackedWords:
    """Residues as words to send, one row for each prime; few residues are not packed."""
    count = prod(residues.shape[1:])
    if is_small(count, system):
        return residues.reshape(len(system.primes), count).astype(np.int32)
    words = np.empty((len(system.primes), 3 * quarter_length(count)), dtype=np.uint32)
    numbers = np.zeros(4 * quarter_length(count), dtype=np.uint32)
    for prime, row, out in zip(system.primes, residues, words, strict=True):
        numbers[:count] = row.reshape(-1) + prime // 2
        pack_words(numbers, out)
    return words


def is_small(count: int, system: ResidueSystem) -> bool:
    """Whether the residues of so many numbers are sent unpacked."""
    return count * len(system.primes) <= SMALL


def pack_words(numbers: NDArray[np.uint32], out: NDArray[np.uint32]) -> None:
    """Pack numbers below 2^24, four times as many as a third of ``out``."""
    quarters, (first, second, third) = numbers.reshape(4, -1), out.reshape(3, -1)
    spare = np.empty(min(CHUNK, len(first)), dtype=np.uint32)
    for start in range(0, len(first), CHUNK):
        here = slice(start, start + CHUNK)
        a, b, c, d = quarters[:, here]
        shifted = spare[: len(a)]
        np.left_shift(b, 24, out=shifted)
        np.bitwise_or(a, shifted, out=first[here])
        np.left_shift(c, 16, out=shifted)
        np.right_shift(b, 8, out=second[here])
        second[here] |= shifted
        np.left_shift(d, 8, out=shifted)
        np.right_shift(c, 16, out=third[here])
        third[here] |= shifted


def packed_form(shape: Sequence[int], primes: int) -> ArrayForm:
    """What :func:`pack` makes of an array of this shape, modulo so many primes."""
    count = prod(shape)
    if primes * count <= SMALL:
        return ArrayForm(np.int32, (primes, count))
    return ArrayForm(np.uint32, (primes, 3 * quarter_length(count)))


def unpack(words: PackedWords, shape: Sequence[int], system: ResidueSystem, sender: str) -> Residues:
    """The residues in words of the form :func:`packed_form`; other numbers are refused, in the name of ``sender``."""
    count = prod(shape)
    quarter = quarter_length(count)
    primes = len(system.primes)
    if is_small(count, system):
        # Nearly always all are below half of the smallest prime, which is fast to check. If not: with half of p added,
        # a residue is a number from 0 to p - 1, and a negative number read as unsigned is larger than that.
        near = not words.size or max(int(words.max()), -int(words.min())) <= system.smallest_half
        if not near and ((words + system.half_primes).view(np.uint32) >= system.prime_column).any():
            raise ProtocolError(f"{sender} sent a number that is no residue [MS008]")
        return words.astype(np.float64).reshape(primes, *shape)
    residues = np.empty((primes, count))
    numbers, spare = np.empty((4, quarter), dtype=np.uint32), np.empty(quarter, dtype=np.uint32)
    flat = numbers.reshape(-1)[:count]
    for index, (prime, out) in enumerate(zip(system.primes, residues, strict=True)):
        unpack_words(words[index], prime, count, numbers, spare, sender)
        words_to_residues(flat, prime, out, flat)
    return residues.reshape(primes, *shape)


def unpack_words(
    words: NDArray[Any], prime: int, count: int, out: NDArray[np.uint32], spare: NDArray[np.uint32], sender: str
) -> None:
    """The numbers in one row of packed words, which must be below the prime, in four rows; ``spare`` is overwritten."""
    first, second, third = words.reshape(3, -1)
    np.bitwise_and(first, 0xFFFFFF, out=out[0])
    np.right_shift(first, 24, out=spare)
    np.bitwise_and(second, 0xFFFF, out=out[1])
    out[1] <<= 8
    out[1] |= spare
    np.right_shift(second, 16, out=spare)
    np.bitwise_and(third, 0xFF, out=out[2])
    out[2] <<= 16
    out[2] |= spare
    np.right_shift(third, 8, out=out[3])
    if count and (int(out.max()) >= prime or out.reshape(-1)[count:].any()):
        raise ProtocolError(f"{sender} sent a number that is no residue [MS007]")


def quarter_length(count: int) -> int:
    """How many words of each kind so many residues take."""
    return -(-count // 4)


_REMEMBERED = 256
"""A protocol has few shapes, and some of them in very many messages."""
BLOCK = 1 << 16
"""Where many numbers are opened under masks, a message has at most this many."""
WAVE = 1 << 21
"""At most about this many of them are on their way at a time."""


_LOST = Integer(0, 2**7 - 1)
COIN_MESSAGE = MessageSchema(
    "coin", secret=FixedBytes(KEY_BYTES), next=FixedBytes(KEY_BYTES), digest=FixedBytes(KEY_BYTES), lost=_LOST
)
"""A secret that was promised, the promise for the next coin, a digest of what the sender has seen, and whom it lost."""
AGREE_MESSAGE = MessageSchema("agree", digest=FixedBytes(KEY_BYTES), lost=_LOST)
"""A digest of what the sender has seen, and which seats it has lost, as bits."""


@lru_cache(_REMEMBERED)
def residues_message(kind: str, shape: tuple[int, ...], primes: int) -> MessageSchema:
    """Residues of an array: a seat's "share", its share in an "opening", or "quotients" of opened numbers."""
    return MessageSchema(kind, words=packed_form(shape, primes))


@lru_cache(_REMEMBERED)
def low_words_message(count: int, bits: int) -> MessageSchema:
    """The lowest bits of opened numbers, for seats that did not open them."""
    return MessageSchema("low-words", words=ArrayForm(word_for(bits), (count,), high=2**bits - 1))


def word_for(bits: int) -> type[np.uint32] | type[np.uint64]:
    """The type of words that hold so many bits."""
    return np.uint32 if bits <= 32 else np.uint64


@lru_cache(_REMEMBERED)
def opened_message(shape: tuple[int, ...], longest: int | None) -> MessageSchema:
    """Opened numbers of 64 bits; or with ``longest`` characters, of more bits, as texts of one length."""
    if longest is None:
        return MessageSchema("opened", values=ArrayForm(np.int64, shape))
    return MessageSchema("opened", values=ItemList(*[TextForm(longest, " *-?[0-9]+")] * prod(shape)))


@lru_cache(_REMEMBERED)
def bits_message(kind: str, shape: tuple[int, ...]) -> MessageSchema:
    """A seat's share of "bits", or its share in an "opening" of bits."""
    return MessageSchema(kind, words=ArrayForm(np.uint64, shape))
