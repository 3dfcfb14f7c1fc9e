"""Protocols that go in rounds: what they have in common is progress, an early end, and noise that is made ahead.

Noise and masks do not depend on what a round asks, so they are ready before they are needed: on shares for many rounds
at a time, and between parties for the next message, while others are at work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.mpc import Shares
from colonnade.mpc.residues import Integers
from colonnade.protocols.roles import Progress, Role

Turn = TypeVar("Turn")
Draw = Callable[[str, int, int], NDArray[np.int64]]
"""Noise for an owner: of a variance, so many numbers."""
Drawn = Callable[[int], Integers]
"""An owner's noise for so many rounds."""


class Rounds(Generic[Turn]):
    """All rounds in turn, reported as they are over, some at a time; any of them can be made the last."""

    def __init__(self, turns: Sequence[Turn], progress: Progress, phase: str, every: int = 1) -> None:
        self._turns, self._progress, self._phase, self._every = turns, progress, phase, every
        self._ended = False

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[Turn]:
        total = len(self)
        for done, turn in enumerate(self._turns, start=1):
            yield turn
            if done % self._every == 0 or done == total or self._ended:
                self._progress(self._phase, done, total)
            if self._ended:
                return

    def end(self) -> None:
        """No round follows the one that is under way."""
        self._ended = True


def masks_ahead(
    me: Role, owners: Sequence[str], entries: int, rounds: Rounds[int], ahead: int, draw: Drawn | None
) -> Iterator[Shares | None]:
    """For each round what a seat adds to the numbers that are opened in it; whoever has no seat gets nothing.

    That is every owner's noise and a fresh sharing of zero, dealt so many rounds ahead; an owner draws its own part.
    """
    masks = None
    for number in rounds:
        if number % ahead == 0:
            masks = _dealt(me, owners, (min(ahead, len(rounds) - number), entries), draw)
        yield None if masks is None else Shares(masks.values[:, number % ahead], masks.degree)


def _dealt(me: Role, owners: Sequence[str], shape: tuple[int, int], draw: Drawn | None) -> Shares | None:
    mine = None
    if draw is not None:
        with me.meter.phase("noise"):
            drawn = draw(shape[0])
        with me.meter.phase("deal"):
            mine = me.hand.deal(drawn)
    if not me.hand.seated:
        return None
    with me.meter.phase("receive"):
        noise = [me.dealt_by(name, shape, mine) for name in owners]
        return me.hand.add([*noise, me.hand.zero(shape, me.opening_degree)])


class NextNoise:
    """Noise for an owner's next message, drawn while others are at work; each is used once."""

    def __init__(self, name: str, variance: int, draw: Draw) -> None:
        self._one = (name, variance)
        self._draw, self._ready = draw, np.zeros(0, dtype=np.int64)

    def prepare(self, count: int) -> None:
        """Draw for a message of so many numbers."""
        self._ready = self._draw(*self._one, count)

    def __call__(self, name: str, variance: int, count: int) -> NDArray[np.int64]:
        """What was drawn ahead, if it is for such a message."""
        if (name, variance) != self._one or len(self._ready) != count:
            raise ProtocolError("noise was drawn for another message than the one that is sent")
        ready, self._ready = self._ready, np.zeros(0, dtype=np.int64)
        return ready


class EarlyStop:
    """Early stopping by what was sent anyway: noised numbers that get no smaller for some epochs.

    It sees nothing else, so the moment of stopping tells nothing that the messages did not; but whoever relays them
    sees that moment, so with patience they count as published.
    """

    def __init__(self, patience: int | None, steps: int) -> None:
        self._patience, self._steps, self._taken = patience, steps, 0
        self._best, self._since, self._energy = float("inf"), 0, 0.0

    def after(self, sent: NDArray[np.float64]) -> bool:
        """Whether to stop; asked after every one of the ``steps`` of an epoch, answered with yes at its end only."""
        if self._patience is None:
            return False
        self._taken += 1
        self._energy += float(sent @ sent)
        if self._taken % self._steps:
            return False
        improved = self._energy < self._best
        self._best, self._since = min(self._best, self._energy), 0 if improved else self._since + 1
        self._energy = 0.0
        return self._since >= self._patience
