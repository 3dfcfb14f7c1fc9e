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


def keys(count: int) -> Message:
    """Keys that two seats, or the seats of a group, have in common."""
    return Message("keys", keys=Items(*[Octets(KEY_BYTES)] * count))


@lru_cache(_REMEMBERED)
def share(shape: tuple[int, ...], primes: int) -> Message:
    """A seat's share of an array."""
    return Message("share", words=packed(shape, primes))


def seed(shape: tuple[int, ...]) -> Message:
    """The seed from which a seat draws its share of an array."""
    return Message("share", shape=Items(*(Whole(side, side) for side in shape)), seed=Octets(KEY_BYTES))


@lru_cache(_REMEMBERED)
def opening(shape: tuple[int, ...], primes: int) -> Message:
    """A seat's share of an array that is opened."""
    return Message("opening", words=packed(shape, primes))


@lru_cache(_REMEMBERED)
def opened(shape: tuple[int, ...]) -> Message:
    """Opened numbers of 64 bits."""
    return Message("opened", values=Array(np.int64, shape))


def opened_wide(shape: tuple[int, ...], longest: int) -> Message:
    """Opened numbers of more bits, as texts of one length."""
    return Message("opened", values=Items(*[Text(longest, " *-?[0-9]+")] * prod(shape)))


@lru_cache(_REMEMBERED)
def bits(shape: tuple[int, ...]) -> Message:
    """A seat's share of bits."""
    return Message("bits", words=Array(np.uint64, shape))


@lru_cache(_REMEMBERED)
def opening_of_bits(shape: tuple[int, ...]) -> Message:
    """A seat's share of bits that are opened."""
    return Message("opening", words=Array(np.uint64, shape))
