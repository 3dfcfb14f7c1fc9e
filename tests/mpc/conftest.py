from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from colonnade.mpc import PRIMES, Committee, Hand, ResidueSystem, Shares
from colonnade.mpc.common import CommonKeys
from colonnade.mpc.fixed.binary import BitHand


def make(size: int, threshold: int, primes: Sequence[int] = PRIMES[:2], *, active: bool = False) -> Committee:
    return Committee(tuple(f"n{i}" for i in range(size)), threshold, ResidueSystem(primes), active=active)


def dealt(hand: Hand, dealer: str, values: Any) -> Any:
    """The share of what one seat deals."""
    return hand.deal(values) if hand.name == dealer else hand.receive(dealer, values.shape)


def opened(hand: Hand, shares: Shares, bound: int = 2**40) -> Any:
    """What all seats open to each other."""
    hand.send_opening(shares, hand.committee.seats)
    return hand.receive_opening(shares.shape, degree=shares.degree, bound=bound, own=shares)


@pytest.fixture(scope="session")
def play(in_threads: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Run one program at all seats, or one a participant; ``hands`` are classes of those that deviate."""

    def run(committee: Committee, programs: Any, hands: Mapping[str, Any] | None = None) -> dict[str, Any]:
        given = programs if isinstance(programs, Mapping) else dict.fromkeys(committee.seats, programs)

        def bind(name: str) -> Callable[..., Any]:
            return lambda links: given[name]((hands or {}).get(name, Hand)(name, committee, links))

        return in_threads({name: bind(name) for name in given})

    return run


@pytest.fixture(scope="session")
def seats(play: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Run one program at every seat, with its hand for bits; it may look at ``hand.links``."""

    def run(size: int, threshold: int, program: Callable[[BitHand], Any]) -> dict[str, Any]:
        def seat(hand: Hand) -> Any:
            bits = BitHand(
                hand.name, hand.committee, hand.links, CommonKeys.agree(hand.name, hand.committee, hand.links)
            )
            for link in hand.links.values():
                link.sent.clear()
            bits.links = hand.links
            return program(bits)

        return play(make(size, threshold, PRIMES[:1]), seat)

    return run
