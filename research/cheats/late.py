"""Participants that hold messages back until they know more than they should, or have things exchanged again.

Of what a seat deals, the ``threshold`` seats that follow it draw their parts, so they wait for nothing of it. If they
opened the next number at once, the dealer would know the polynomial before the others have their parts, and could
choose these so that the number is what it likes. And whoever hears all secrets of a coin before it sends its own knows
the coin, and could say that somebody is lost until it likes one.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np

from colonnade.message_schema import receive_message
from colonnade.mpc import ShareEngine, Shares, messages
from colonnade.mpc.fixed_point.masks import MaskSource
from colonnade.mpc.fixed_point.shared_bits import BitPlanes
from colonnade.mpc.messages import pack, unpack
from colonnade.mpc.residues import Residues
from colonnade.mpc.shamir import evaluate_at, lagrange_weights
from colonnade.mpc.verification import large_field as field
from colonnade.mpc.verification.bit_products import BitProductClaims
from colonnade.mpc.verification.large_field import MASK, Elements
from research.cheats.deviation import Array, replace_method
from research.cheats.stage import Message
from research.cheats.tamper import LAST_CHECK, Tamper

_CHOSEN = 4242
_LIKED = 8
"""Of 256 coins, so many are liked."""


class Holding:
    """What a participant holds back from those seats that cannot draw their part of what it deals."""

    def __init__(self, tamper: Tamper) -> None:
        self._tamper, hand = tamper, tamper.hand
        self.drawing = hand.committee.seats_seeded_by(hand.name, hand.committee.threshold)
        """Those who wait for no part."""
        self._queues: dict[str, list[Message]] = {}
        self._waiting = [seat for seat in hand.committee.seats if seat not in (hand.name, *self.drawing)]
        tamper.on_outgoing(self._outgoing)

    @classmethod
    def of(cls, tamper: Tamper) -> Holding:
        """The one of all hands of a participant."""
        if "holding" not in tamper.common:
            tamper.common["holding"] = cls(tamper)
        found: Holding = tamper.common["holding"]
        return found

    def _outgoing(self, peer: str, kind: str, fields: dict[str, Any]) -> tuple[Message, ...]:
        if peer not in self._queues:
            return ((kind, fields),)
        self._queues[peer].append((kind, dict(fields)))
        return ()

    def begin(self) -> None:
        """Hold back what is sent from now on."""
        self._queues = {seat: [] for seat in self._waiting}

    @property
    def begun(self) -> bool:
        """Whether something is held back."""
        return bool(self._queues)

    def opened(self) -> list[Any] | None:
        """What the seats that draw their parts have opened meanwhile; ``None`` if one of them has not."""
        heads = [self._tamper.place.peek(seat) for seat in self.drawing]
        found = [head[1]["words"] for head in heads if head is not None and head[0] == "opening"]
        return found if len(found) == len(heads) else None

    def release(self, change: Callable[[str, Any], Any] = lambda seat, words: words) -> None:
        """Send everything, with the first message to each seat changed."""
        queues, self._queues = self._queues, {}
        for seat, queue in queues.items():
            for number, (kind, fields) in enumerate(queue):
                if number == 0 and "words" in fields:
                    fields = fields | {"words": change(seat, fields["words"])}
                self._tamper.place.channel(seat).send(kind, **fields)


def _chosen(hand: ShareEngine, holding: Holding, shares: Shares, aim: int, factors: list[int]) -> Shares:
    """Send held parts that make the opened numbers what they should be; returns the participant's share of these.

    ``factors`` are those with which its dealing enters the opened polynomial, one for each prime.
    """
    system, point = hand.system, hand.committee.point
    found = holding.opened() if shares.degree == hand.committee.threshold else None
    if found is None:
        holding.release()
        return shares
    drawing = [point(seat) for seat in holding.drawing]
    theirs = [unpack(words, shares.shape, system, seat) for words, seat in zip(found, holding.drawing, strict=True)]
    opened = evaluate_at(system, [shares.values, *theirs], (point(hand.name), *drawing), 0)
    wanted = system.reduce(np.broadcast_to(system.constant(aim, opened.ndim), opened.shape) - opened)
    nothing = np.zeros_like(wanted)
    inverse = [pow(factor, -1, prime) for factor, prime in zip(factors, system.primes, strict=True)]
    column = np.array(inverse, dtype=np.float64).reshape(-1, *[1] * (wanted.ndim - 1))

    def added(seat: str) -> Residues:
        return evaluate_at(system, [wanted, *(nothing for _ in drawing)], (0, *drawing), point(seat))

    def change(seat: str, words: Any) -> Any:
        part = unpack(words, shares.shape, system, hand.name)
        return pack(system.reduce(part + system.reduce(added(seat) * column)), system)

    holding.release(change)
    return Shares(system.reduce(shares.values + added(hand.name)), shares.degree)


def part_after_opening(tamper: Tamper) -> None:
    """A wrong product; when it is checked, the part of the last number is sent after others have opened that number."""
    hand, holding, wrong = tamper.hand, Holding.of(tamper), tamper.one_wrong_product()

    def last(real: Callable[..., Residues]) -> Callable[..., Residues]:
        def changed(values: Residues, degree: int) -> Residues:
            if wrong() and LAST_CHECK in tamper.within:
                holding.begin()
            return real(values, degree)

        return changed

    def opening(real: Callable[..., Residues]) -> Callable[..., Residues]:
        def changed(values: Residues, degree: int | None = None) -> Residues:
            if holding.begun:
                t = hand.committee.threshold
                dealers = tuple(hand.committee.point(seat) for seat in hand.committee.seats[: 2 * t + 1])
                mine = dealers.index(hand.committee.point(hand.name))
                factors = [lagrange_weights(prime, dealers, 0)[mine] for prime in hand.system.primes]
                values = _chosen(hand, holding, Shares(values, t), 0, factors).values
            return real(values, degree)

        return changed

    replace_method(hand, "reduce_degree_residues", last)
    replace_method(hand, "open_residues", opening)


def noise_after_opening(tamper: Tamper) -> None:
    """Own numbers, such as noise, dealt after others have opened what they are added to."""
    hand, holding = tamper.hand, Holding.of(tamper)
    chosen: dict[tuple[int, ...], Shares] = {}

    def deal(real: Callable[..., Any]) -> Callable[..., Any]:
        def changed(values: Array, **how: Any) -> Any:
            if not how and values.dtype == np.int64 and values.size and tamper.now():
                holding.begin()
            return real(values, **how)

        return changed

    def send(real: Callable[..., None]) -> Callable[..., None]:
        def changed(shares: Shares, to: Any) -> None:
            if holding.begun and hand.name in to:
                shares = chosen[shares.shape] = _chosen(hand, holding, shares, _CHOSEN, [1] * len(hand.system.primes))
            elif holding.begun:
                holding.release()
            real(shares, to)

        return changed

    def gathered(real: Callable[..., Any]) -> Callable[..., Any]:
        def changed(shape: Any, degree: int, own: Shares | None) -> Any:
            return real(shape, degree, chosen.pop(tuple(shape), own))

        return changed

    replace_method(hand, "deal", deal)
    replace_method(hand, "send_opening", send)
    replace_method(hand, "_gathered", gathered)


def bits_after_opening(tamper: Tamper) -> None:
    """A wrong AND; when it is checked, the part of the last number is sent after others have opened that number."""
    holding, wrong = Holding.of(tamper), False

    def prepare(masks: MaskSource) -> None:
        bits = masks.bits

        def product(real: Callable[..., BitPlanes]) -> Callable[..., BitPlanes]:
            def changed(left: BitPlanes, right: BitPlanes, degree: int) -> BitPlanes:
                nonlocal wrong
                if not tamper.now():
                    return real(left, right, degree)
                wrong = True
                found = bits.field.multiply(left, right)
                error = bits.field.divide(1, (bits._reductions.get(degree) or bits._plan(degree)).weight)
                where = tamper.rng.integers(found.shape[1]), 0
                flipped = np.uint64(1) << np.uint64(tamper.rng.integers(8))
                for power in range(bits.field.m):
                    found[power][where] ^= flipped * np.uint64(error >> power & 1)
                result = bits.reduce_degree(found, degree)
                if bits.claims is not None:
                    bits.claims.product(left, right, result)
                return result

            return changed

        replace_method(bits, "product_planes", product)
        if masks.claims is not None:
            _hold_last_bits(masks.claims, bits.name, holding, lambda: wrong)

    setattr(tamper.hand, "on_bits", prepare)  # noqa: B010 - read by the scenes with shared bits


def _hold_last_bits(claims: BitProductClaims, name: str, holding: Holding, wanted: Callable[[], bool]) -> None:
    """Hold the part of the last number of a check back, and send one that makes it zero."""
    drawing = [claims._point(seat) for seat in holding.drawing]

    def lower(real: Callable[..., Elements]) -> Callable[..., Elements]:
        def changed(values: Elements) -> Elements:
            if wanted() and values.size == 1:
                holding.begin()
            return real(values)

        return changed

    def opening(real: Callable[..., Elements]) -> Callable[..., Elements]:
        def changed(values: Elements) -> Elements:
            found = holding.opened() if holding.begun else None
            if found is None:
                return real(values)
            points = (claims._point(name), *drawing)
            opened = field.combine([values, *(words & MASK for words in found)], field.weights(points, 0))

            def added(seat: str) -> Elements:
                return field.multiply(opened, field.weights((0, *drawing), claims._point(seat))[0])

            holding.release(lambda seat, words: words ^ added(seat))
            return real(values ^ added(name))

        return changed

    replace_method(claims, "_lower", lower)
    replace_method(claims, "_open", opening)


def asks_again(kind: str) -> Callable[[Tamper], None]:
    """Say that a seat is lost, whenever the secrets of all others are not liked."""

    def install(tamper: Tamper) -> None:
        hand, asking, times = tamper.hand, False, 0

        def exchanged(real: Callable[..., Any]) -> Callable[..., Any]:
            def changed(given: str, told: dict[str, bytes]) -> Any:
                nonlocal asking, times
                if given != kind or not (asking or tamper.now()):
                    return real(given, told)
                due = messages.COIN_MESSAGE if kind == "coin" else messages.AGREE_MESSAGE
                others = [seat for seat in hand.committee.seats if seat != hand.name]
                answers = {seat: receive_message(hand.links[seat], seat, due) for seat in others}
                drawn = sha256(b"%d" % times + b"".join(answers[seat].get("secret", b"") for seat in others)).digest()
                asking = drawn[0] >= _LIKED
                times += asking
                tamper.won |= not asking and times > hand.committee.max_losses
                for seat in others:
                    hand.links[seat].send(kind, **told, lost=int(asking))
                return answers, not asking

            return changed

        def ready(real: Callable[..., Any]) -> Callable[..., Any]:
            def changed(*given: Any, **named: Any) -> Any:
                if "asking" not in tamper.common:
                    tamper.common["asking"] = True
                    replace_method(hand.agreement, "_exchanged", exchanged)
                return real(*given, **named)

            return changed

        for name in ("coin", "compare_transcripts"):
            replace_method(hand, name, ready)

    return install
