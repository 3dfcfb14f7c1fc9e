"""How one participant deviates at one moment: hooks on what it sends, and on what its hand computes.

A cheat has as many *occasions* as there are messages or results that it could change. A trial changes one of them,
chosen at random; a run in which none is chosen counts them. Where several participants deviate, each has hooks of its
own, and they are honest to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from colonnade.errors import ShareError
from colonnade.mpc import PRIMES, ShareEngine, Shares
from colonnade.mpc.residues import Residues, ResidueSystem
from research.cheats.deviation import Array, replace_method
from research.cheats.stage import Message, Outgoing, StagePlace

OPERATIONS = (
    "deal", "reduce_degree", "product", "zero", "send_opening", "send_opened", "coin", "open_among_seats",
    "open_residues", "reduce_degree_residues",
)  # fmt: skip
"""Methods of a hand by which its messages are told apart."""
CHECK, LAST_CHECK = "settle", "_test_zero"


class Tamper:
    """One deviating participant of a run; ``allies`` deviate too."""

    def __init__(self, place: StagePlace, rng: np.random.Generator, target: int, allies: Sequence[str] = ()) -> None:
        self.place, self.rng, self._target, self._allies = place, rng, target, allies
        self.occasions = 0
        """How many there were so far."""
        self.within: list[str] = []
        """The operations that the participant is in, the outermost first."""
        self.common: dict[str, Any] = {}
        """What a cheat keeps for all hands of the participant."""
        self.won = False
        """Whether it had what it may never have, although every result may be the honest one."""

    def adopt(self, hand: ShareEngine) -> None:
        """Follow what a hand of the participant does; its cheat is installed next."""
        self.hand = hand
        for name in OPERATIONS:
            self._follow(hand, name)
        if hand.active and hand.has_seat:
            self._follow(hand.claims, CHECK)
            replace_method(hand.claims, LAST_CHECK, self._unmoved)
            self._follow(hand.claims, LAST_CHECK)
        replace_method(hand, "receive_opening", self._unmoved)
        replace_method(hand, "_interpolated", self._from_first)

    @property
    def happened(self) -> bool:
        """Whether the cheat took place."""
        return 0 <= self._target < self.occasions

    @property
    def checking(self) -> bool:
        """Whether the participant is settling claims."""
        return CHECK in self.within

    def now(self) -> bool:
        """Note an occasion; whether it is the one to use."""
        self.occasions += 1
        return self.occasions - 1 == self._target

    def _unmoved(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Go on when the participant's own check fails, as one that cheats would; what it opened is then zeros."""

        def changed(*given: Any, **named: Any) -> Any:
            try:
                return real(*given, **named)
            except ShareError:
                return np.zeros(tuple(given[0]), dtype=np.int64) if "degree" in named else None

        return changed

    def _from_first(self, real: Callable[..., Residues]) -> Callable[..., Residues]:
        """Take as opened what the first shares say, whether or not the others fit."""

        def changed(shares: Mapping[str, Residues], degree: int, **named: Any) -> Residues:
            return real(dict(list(shares.items())[: degree + 1]), degree, **named)

        return changed

    def _follow(self, thing: object, name: str) -> None:
        def follow(real: Callable[..., Any]) -> Callable[..., Any]:
            def followed(*given: Any, **named: Any) -> Any:
                self.within.append(name)
                try:
                    return real(*given, **named)
                finally:
                    self.within.pop()

            return followed

        replace_method(thing, name, follow)

    def on_messages(
        self,
        kinds: Sequence[str],
        change: Callable[[str, str, dict[str, Any]], dict[str, Any]],
        where: Callable[[], bool] = lambda: True,
    ) -> None:
        """Change one message of these kinds; ``change`` gets the receiver, the kind and the fields."""

        def outgoing(peer: str, kind: str, fields: dict[str, Any]) -> tuple[Message, ...]:
            if kind in kinds and where() and self.now():
                fields = change(peer, kind, dict(fields))
            return ((kind, fields),)

        self.on_outgoing(outgoing)

    def on_outgoing(self, change: Outgoing) -> None:
        """Send other messages than the participant should, but to its allies."""

        def outgoing(peer: str, kind: str, fields: dict[str, Any]) -> Iterable[Message]:
            return ((kind, fields),) if peer in self._allies else change(peer, kind, fields)

        self.place.outgoing = outgoing

    def leave_out(self) -> None:
        """Leave out one message of any kind."""

        def outgoing(peer: str, kind: str, fields: dict[str, Any]) -> tuple[Message, ...]:
            return () if self.now() else ((kind, fields),)

        self.on_outgoing(outgoing)

    def one_wrong_product(self) -> Callable[[], bool]:
        """Compute one product of the hand wrongly, outside of checks; returns whether that has happened."""
        done = False

        def lowered(real: Callable[..., Shares]) -> Callable[..., Shares]:
            def changed(shares: Shares) -> Shares:
                nonlocal done
                if not self.checking and self.now():
                    done = True
                    shares = Shares(self.off(shares.values, whole=True), shares.degree)
                return real(shares)

            return changed

        replace_method(self.hand, "_lowered", lowered)
        return lambda: done

    def on_results(self, names: Sequence[str], *, checks: bool = False) -> None:
        """Add an error to one number in one result of these methods, in checks or outside of them."""

        def wrong(real: Callable[..., Shares]) -> Callable[..., Shares]:
            def changed(*given: Any, **named: Any) -> Shares:
                found = real(*given, **named)
                if self.checking == checks and found.values.size and self.now():
                    whole = bool(self.rng.integers(2))
                    return Shares(self.off(found.values, whole=whole), found.degree)
                return found

            return changed

        for name in names:
            replace_method(self.hand, name, wrong)

    def off(self, values: Residues, *, whole: bool = False) -> Residues:
        """The residues with an error in one number: modulo one prime, or the same small integer modulo all."""
        system = ResidueSystem(PRIMES[: len(values)])
        out = np.array(values, dtype=np.float64)
        flat = out.reshape(len(system.primes), -1)
        place = int(self.rng.integers(flat.shape[1]))
        if whole:
            flat[:, place] += 1
        else:
            index = int(self.rng.integers(len(system.primes)))
            flat[index, place] += int(self.rng.integers(1, system.primes[index] // 2))
        return system.reduce(out)

    def off_words(self, words: Array, *, whole: bool = False) -> Array:
        """The same for residues as they are sent, unpacked."""
        return self.off(words.astype(np.float64), whole=whole).astype(words.dtype)
