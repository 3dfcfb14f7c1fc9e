"""Scenes: small runs of the committee's operations and of every protocol on shares, whose honest results are known.

All randomness of a run is fresh. What an owner deals is noted where it deals it, noise included, so the value that an
honest run would open is known exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from colonnade.mpc import PRIMES, Committee, ResidueSystem, ShareEngine, Shares
from colonnade.mpc.fixed_point.arithmetic import FixedPointEngine, FixedPointShares
from research.cheats.deviation import Array, on_every_hand, replace_method
from research.cheats.stage import Part, Stage, StagePlace

Deals = Mapping[str, list[Array]]
"""What every owner dealt, in order."""
Prepare = Callable[[ShareEngine, StagePlace], None]
"""Called for every participant with its hand, before its program, and with hands that it makes for other primes."""
COMMITTEES = ((3, 1), (4, 1), (5, 2), (7, 3))


def seats_of(size: int) -> tuple[str, ...]:
    """The names of the seats; the first ones deviate."""
    return tuple(f"o{index}" for index in range(size))


@dataclass(frozen=True)
class Act:
    """A scene with one committee: everybody's part, and the value that everybody should have in the end."""

    names: tuple[str, ...]
    part: Callable[[StagePlace, Prepare], Any]
    value: Callable[[Any], Array | None]
    """What a participant's result says; ``None`` if it is not told."""
    expected: Callable[[Deals, Any], Array]
    """From what was dealt, and one result (for public choices in it), the honest value."""

    def run(self, cheaters: Sequence[str], prepare: Prepare) -> tuple[dict[str, Any], dict[str, list[Array]]]:
        """Everybody's result or error, and what everybody dealt; cheaters come last in every round."""
        deals: dict[str, list[Array]] = {name: [] for name in self.names}

        def noted(hand: ShareEngine, place: StagePlace) -> None:
            def change(one: ShareEngine) -> None:
                # Noted below any cheat: the result must be the honest one for the noise that was dealt.
                replace_method(one, "deal", lambda real: _noting(real, deals[place.name]))
                prepare(one, place)

            on_every_hand(hand, change)

        def part(name: str) -> Part:
            def play(place: StagePlace) -> Any:
                place.silent = name in cheaters
                return self.part(place, noted)

            return play

        order = sorted(self.names, key=lambda name: name in cheaters)
        return Stage(order).run({name: part(name) for name in order}), deals


def _noting(real: Callable[..., Any], into: list[Array]) -> Callable[..., Any]:
    def deal(values: Array, **how: Any) -> Any:
        if not how:  # sharings of zero are dealt with a degree
            into.append(np.array(values))
        return real(values, **how)

    return deal


@dataclass(frozen=True)
class Scene:
    """A scene, by its name; ``depth`` is how many products stand one after the other in it."""

    name: str
    depth: int
    act: Callable[[int, int, bool], Act]
    """Makes it for so many seats, a threshold, and seats that check each other or not."""
    proven: bool = False
    """Whether owners prove what they deal."""
    checked: bool = True
    """Whether its seats can check each other."""
    place: int = 100
    """Where it is listed among whole protocols, the lowest first; those with proofs come after all others."""


# --- operations of the committee


def operation(
    program: Callable[[ShareEngine], Array], expected: Callable[[Deals], Array], primes: int = 3
) -> Callable[[int, int, bool], Act]:
    """A scene in which every participant has a seat and runs the same program."""

    @lru_cache
    def act(size: int, threshold: int, active: bool) -> Act:
        committee = Committee(seats_of(size), threshold, ResidueSystem(PRIMES[:primes]), active)

        def part(place: StagePlace, prepare: Prepare) -> Array:
            place.tolerate(committee.seats if committee.spare else ())
            hand = ShareEngine(place.name, committee, {peer: place.channel(peer) for peer in place.peers})
            prepare(hand, place)
            return program(hand)

        return Act(committee.seats, part, lambda result: result, lambda deals, _: expected(deals))

    return act


def _dealt(hand: ShareEngine, dealer: str, values: Array) -> Shares:
    """A matrix that one seat deals; the others know its shape."""
    if hand.name != dealer:
        return hand.receive(dealer, values.shape)
    mine = hand.deal(values)
    assert mine is not None
    return mine


def opened(hand: ShareEngine, shares: Shares) -> Array:
    """Settle what was claimed, then open a value of the degree of an input to all seats."""
    if hand.active:
        hand.claims.settle()
    hand.send_opening(shares, hand.committee.seats)
    return hand.receive_opening(shares.shape, degree=shares.degree, bound=2**40, own=shares)


_LEFT = np.arange(-6.0, 6.0).reshape(4, 3)
_RIGHT = np.arange(8.0).reshape(4, 2) ** 2 - 20


def _dealing(hand: ShareEngine) -> Array:
    """The sum of what two seats dealt."""
    parts = [_dealt(hand, dealer, _LEFT) for dealer in hand.committee.seats[:2]]
    return opened(hand, hand.add(parts))


def _inner(hand: ShareEngine) -> Array:
    """An inner product of two matrices."""
    first, second = hand.committee.seats[:2]
    left, right = _dealt(hand, first, _LEFT), _dealt(hand, second, _RIGHT)
    product = hand.reduce_degree(hand.inner(left, right))
    if hand.active:
        hand.claims.inner([left], [right], product)
    return opened(hand, product)


def _products(hand: ShareEngine) -> Array:
    """A product of three factors, one after the other."""
    first, second = hand.committee.seats[:2]
    left, right = _dealt(hand, first, _LEFT), _dealt(hand, second, _RIGHT)
    both = hand.product(left, right.columns(slice(0, 1)))
    return opened(hand, hand.product(both, left))


def _relation(hand: ShareEngine) -> Array:
    """Two numbers that must be equal, and are opened once."""
    first, second = hand.committee.seats[:2]
    parts = [_dealt(hand, dealer, _LEFT) for dealer in (first, second)]
    square = [hand.product(part, part) for part in parts]
    if hand.active:
        hand.claims.zero(hand.add([square[0], hand.scale(square[1], -1)]))
    return opened(hand, square[1])


_FRACTION = 8


def _fixed_point(hand: ShareEngine) -> tuple[FixedPointEngine, FixedPointShares, FixedPointShares]:
    """Two matrices as fixed-point numbers."""
    engine = FixedPointEngine(hand, _FRACTION)
    getattr(hand, "on_bits", lambda masks: None)(engine.masks)
    dealt = [_dealt(hand, seat, _LEFT * 2**_FRACTION) for seat in hand.committee.seats[:2]]
    left, right = (engine.from_shares(one, 2**12) for one in dealt)
    return engine, left, engine.shift(right, 3 * 2**_FRACTION)


def _comparison(hand: ShareEngine) -> Array:
    """Whether numbers are below others, by shared bits."""
    engine, left, right = _fixed_point(hand)
    found = engine.negative(engine.subtract(engine.scale(right, 2), left))
    engine.settle()
    return opened(hand, found.shares)


def _truncation(hand: ShareEngine) -> Array:
    """A product of fixed-point numbers; its last bits, which depend on chance, are left out."""
    engine, left, right = _fixed_point(hand)
    found = engine.multiply(left, right)
    engine.settle()
    return np.asarray(np.rint(opened(hand, found.shares).astype(np.float64) / 2**_FRACTION))


SCENES = (
    Scene("dealing", 0, operation(_dealing, lambda deals: 2 * _LEFT)),
    Scene("inner product", 1, operation(_inner, lambda deals: _LEFT.T @ _RIGHT)),
    Scene("products in a row", 2, operation(_products, lambda deals: _LEFT * _RIGHT[:, :1] * _LEFT)),
    Scene("relation", 1, operation(_relation, lambda deals: _LEFT**2)),
    Scene("fixed-point product", 1, operation(_truncation, lambda deals: _LEFT * (_LEFT + 3), primes=5)),
    Scene("comparison", 1, operation(_comparison, lambda deals: 1.0 * (2 * _LEFT + 6 < _LEFT), primes=5)),
)
"""Operations of the committee; whole protocols are in :mod:`plays` and beside the kinds that have them."""
