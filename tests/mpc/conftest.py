from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from colonnade.mpc import PRIMES, Committee, ResidueSystem, ShareEngine, Shares
from colonnade.mpc.fixed_point.shared_bits import BitEngine
from colonnade.mpc.shamir import CommonKeys


def make(size: int, threshold: int, primes: Sequence[int] = PRIMES[:2], *, active: bool = False) -> Committee:
    return Committee(tuple(f"n{i}" for i in range(size)), threshold, ResidueSystem(primes), active=active)


def dealt(hand: ShareEngine, dealer: str, values: Any) -> Any:
    """The share of what one seat deals."""
    return hand.deal(values) if hand.name == dealer else hand.receive(dealer, values.shape)


def opened(hand: ShareEngine, shares: Shares, bound: int = 2**40) -> Any:
    """What all seats open to each other."""
    hand.send_opening(shares, hand.committee.seats)
    return hand.receive_opening(shares.shape, degree=shares.degree, bound=bound, own=shares)


@pytest.fixture(scope="session")
def play(in_threads: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Run one program at all seats, or one a participant; ``hands`` are classes of those that deviate."""

    def run(committee: Committee, programs: Any, hands: Mapping[str, Any] | None = None) -> dict[str, Any]:
        given = programs if isinstance(programs, Mapping) else dict.fromkeys(committee.seats, programs)

        def bind(name: str) -> Callable[..., Any]:
            return lambda links: given[name]((hands or {}).get(name, ShareEngine)(name, committee, links))

        return in_threads({name: bind(name) for name in given})

    return run


@pytest.fixture(scope="session")
def seats(play: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Run one program at every seat, with its hand for bits; it may look at ``hand.links``."""

    def run(size: int, threshold: int, program: Callable[[BitEngine], Any]) -> dict[str, Any]:
        def seat(hand: ShareEngine) -> Any:
            bits = BitEngine(
                hand.name, hand.committee, hand.links, CommonKeys.exchange(hand.name, hand.committee, hand.links)
            )
            for link in hand.links.values():
                link.sent.clear()
            bits.links = hand.links
            return program(bits)

        return play(make(size, threshold, PRIMES[:1]), seat)

    return run


# --- links of a seat that changes what it sends


Change = Callable[[str, dict[str, Any]], dict[str, Any]]
"""What is sent in place of a message, by its kind and its fields."""


class Changing:
    """A link on which messages say something else."""

    def __init__(self, link: Any, change: Change) -> None:
        self._link, self._change = link, change

    def send(self, kind: str, **fields: Any) -> None:
        self._link.send(kind, **self._change(kind, fields))

    def recv(self, kind: str, most: int) -> dict[str, Any]:
        found: dict[str, Any] = self._link.recv(kind, most)
        return found


def listing(sent: list[str], changed: Collection[int] = ()) -> Change:
    """Lists the kinds of all messages of a seat, and changes a bit in the words of some of them."""

    def change(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        sent.append(kind)
        return fields | {"words": one_bit_flipped(fields["words"])} if len(sent) - 1 in changed else fields

    return change


def first_of(kind: str) -> Change:
    """Changes the first message of a kind: a bit of its words, or the bytes in it."""
    left = [kind]

    def change(sent: str, fields: dict[str, Any]) -> dict[str, Any]:
        if sent not in left:
            return fields
        left.clear()
        name = next(field for field in ("words", "secret", "promise") if field in fields)
        return fields | {name: one_bit_flipped(fields[name]) if name == "words" else bytes(32)}

    return change


def one_bit_flipped(words: Any) -> Any:
    """The same words with one bit changed that belongs to a share."""
    flat = np.array(words).reshape(-1)
    flat[flat.size // 2] ^= flat.dtype.type(1 << 5)
    return flat.reshape(np.shape(words))


def tampering(make: Callable[[], Change], to: str | None = None) -> Callable[..., ShareEngine]:
    """The hand of a seat that changes what it sends, to all or to one."""

    def made(name: str, committee: Committee, links: Mapping[str, Any]) -> ShareEngine:
        change = make()
        wrapped = {peer: Changing(link, change) for peer, link in links.items() if to in (None, peer)}
        return ShareEngine(name, committee, {**links, **wrapped})

    return made
