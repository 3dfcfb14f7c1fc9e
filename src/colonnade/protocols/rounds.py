"""What protocols with rounds have in common: progress, an early end, and noise that is drawn before it is needed.

Noise and masks do not depend on what a round computes. So tasks on shares deal them for many rounds at a time, and
parties that send messages draw the noise of the next message while others compute.
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
"""A function that draws noise: it gets an owner, a variance and how many numbers."""
Drawn = Callable[[int], Integers]
"""A function that draws one owner's noise: it gets the number of rounds."""


class Rounds(Generic[Turn]):
    """Gives one round after the other and reports progress after ``every`` rounds; :meth:`end` stops early."""

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
        """Make the present round the last one."""
        self._ended = True


def masks_ahead(
    me: Role, owners: Sequence[str], entries: int, rounds: Rounds[int], ahead: int, draw: Drawn | None
) -> Iterator[Shares | None]:
    """For each round the shares that a seat adds to the opened numbers; ``None`` for a participant without a seat.

    They are the noise of every owner and a fresh sharing of zero, dealt for ``ahead`` rounds at a time. ``draw`` makes
    this owner's own noise. In active mode they are noise alone: a sharing of zero then follows from what was opened in
    all rounds before.
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
        if not me.hand.active:
            return me.hand.add([*noise, me.hand.zero(shape, me.opening_degree)])
        me.hand.agree()  # nobody chooses its noise after it has seen what it is added to
        return me.hand.add(noise)


class NextNoise:
    """Noise for an owner's next message, drawn while others compute; it is used once."""

    def __init__(self, name: str, variance: int, draw: Draw) -> None:
        self._one = (name, variance)
        self._draw, self._ready = draw, np.zeros(0, dtype=np.int64)

    def prepare(self, count: int) -> None:
        """Draw noise for a message of ``count`` numbers."""
        self._ready = self._draw(*self._one, count)

    def __call__(self, name: str, variance: int, count: int) -> NDArray[np.int64]:
        """The noise that was drawn, if it was drawn for such a message."""
        if (name, variance) != self._one or len(self._ready) != count:
            raise ProtocolError("noise was drawn for another message than the one that is sent [MS041]")
        ready, self._ready = self._ready, np.zeros(0, dtype=np.int64)
        return ready
