"""Every message of the committee: what is due, where sizes are public or this participant's own."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from colonnade.mpc.packing import packed
from colonnade.randomness import KEY_BYTES
from colonnade.received import Array, Items, Message, Octets, Text, Whole

_REMEMBERED = 256
"""A protocol has few shapes, and some of them in very many messages."""
BLOCK = 1 << 16
"""Where many numbers are opened under masks, a message has at most this many."""
WAVE = 1 << 21
"""At most about this many of them are on their way at a time."""


def keys(count: int) -> Message:
    """Keys that two seats, or the seats of a group, have in common."""
    return Message("keys", keys=Items(*[Octets(KEY_BYTES)] * count))


def key_digests(count: int) -> Message:
    """Digests of the keys of groups that two seats share, and the sender's promise for the first coin."""
    return Message("key-digests", digests=Items(*[Octets(KEY_BYTES)] * count), promise=Octets(KEY_BYTES))


_LOST = Whole(0, 2**7 - 1)
COIN = Message("coin", secret=Octets(KEY_BYTES), next=Octets(KEY_BYTES), digest=Octets(KEY_BYTES), lost=_LOST)
"""A secret that was promised, the promise for the next coin, a digest of what the sender has seen, and whom it lost."""
TOLD_COIN = Message("told-coin", key=Octets(KEY_BYTES))
"""The key of public coins, for a participant without a seat."""
AGREE = Message("agree", digest=Octets(KEY_BYTES), lost=_LOST)
"""A digest of what the sender has seen, and which seats it has lost, as bits."""


@lru_cache(_REMEMBERED)
def residues(kind: str, shape: tuple[int, ...], primes: int) -> Message:
    """Residues of an array: a seat's "share", its share in an "opening", or "quotients" of opened numbers."""
    return Message(kind, words=packed(shape, primes))


def seed(shape: tuple[int, ...]) -> Message:
    """The seed from which a seat draws its share of an array."""
    return Message("share", shape=Items(*(Whole(side, side) for side in shape)), seed=Octets(KEY_BYTES))


@lru_cache(_REMEMBERED)
def low_words(count: int, bits: int) -> Message:
    """The lowest bits of opened numbers, for seats that did not open them."""
    return Message("low-words", words=Array(word_for(bits), (count,), high=2**bits - 1))


def word_for(bits: int) -> type[np.uint32] | type[np.uint64]:
    """The type of words that hold so many bits."""
    return np.uint32 if bits <= 32 else np.uint64


@lru_cache(_REMEMBERED)
def opened(shape: tuple[int, ...]) -> Message:
    """Opened numbers of 64 bits."""
    return Message("opened", values=Array(np.int64, shape))


def opened_wide(shape: tuple[int, ...], longest: int) -> Message:
    """Opened numbers of more bits, as texts of one length."""
    return Message("opened", values=Items(*[Text(longest, " *-?[0-9]+")] * prod(shape)))


@lru_cache(_REMEMBERED)
def bits(kind: str, shape: tuple[int, ...]) -> Message:
    """A seat's share of "bits", or its share in an "opening" of bits."""
    return Message(kind, words=Array(np.uint64, shape))
