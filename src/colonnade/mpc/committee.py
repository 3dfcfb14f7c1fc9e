"""Who holds shares: the seats of the committee, what they need of a channel, and what each of them holds.

The wire is not imported: a :class:`PeerLink` is any object with the two methods declared here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from colonnade.message_schema import MessageSource
from colonnade.mpc.residues import Residues, ResidueSystem


class PeerLink(MessageSource, Protocol):
    """What the committee needs of a channel to one peer."""

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message to the peer."""


@dataclass(frozen=True)
class Committee:
    """The seats, how many of them together still learn nothing (``threshold``), and the arithmetic; all public.

    With no seats and threshold 0, nobody holds shares and nothing can be dealt.
    """

    seats: tuple[str, ...]
    threshold: int
    system: ResidueSystem
    active: bool = False
    """Whether the seats check each other's work before anything is opened."""
    tries: int = 1
    """How often somebody may cheat before the study ends, so that each time it passes with a smaller chance."""

    def __post_init__(self) -> None:
        size = len(self.seats)
        if not size and not self.threshold:
            return
        if not 3 <= size <= 7 or len(set(self.seats)) != size:
            raise ValueError(f"a committee has 3 to 7 different seats, not {size} [VA080]")
        if not 1 <= self.threshold < size / 2:
            raise ValueError(f"the threshold of {size} seats lies between 1 and {(size - 1) // 2} [VA081]")

    @property
    def spare(self) -> bool:
        """Whether there are more seats than a product of two inputs needs, so that shares may fit no polynomial."""
        return len(self.seats) > 2 * self.threshold + 1

    @property
    def can_split(self) -> bool:
        """Whether honest seats could open two values, if two halves of them had been told different numbers."""
        return len(self.seats) - self.threshold >= 2 * (self.threshold + 1)

    def required_seats(self, degree: int) -> int:
        """How many seats must be left to open a sharing of this degree.

        Where seats check each other, more than half of the honest ones must be: otherwise two halves that lost each
        other could both go on, and open two results under the same noise.
        """
        if not self.active:
            return degree + 1
        return max(degree, 2 * self.threshold, (len(self.seats) + self.threshold) // 2) + 1

    @property
    def max_losses(self) -> int:
        """How many seats may be lost."""
        return len(self.seats) - self.required_seats(2 * self.threshold)

    def point(self, seat: str) -> int:
        """The point at which the polynomial has the share of this seat."""
        return self.seats.index(seat) + 1

    def seats_seeded_by(self, dealer: str, degree: int) -> tuple[str, ...]:
        """The seats that this dealer sends a seed instead of a share: the ``degree`` seats that follow it."""
        start = self.seats.index(dealer) + 1 if dealer in self.seats else 0
        around = self.seats[start:] + self.seats[:start]
        return tuple(seat for seat in around if seat != dealer)[:degree]


@dataclass(frozen=True)
class Shares:
    """One seat's shares of an integer array, as residues, and the degree of the polynomials that they are values of."""

    values: Residues
    degree: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the shared array."""
        return self.values.shape[1:]

    def columns(self, which: slice | Sequence[int]) -> Shares:
        """Some columns of a shared matrix."""
        return Shares(self.values[:, :, which], self.degree)


def concatenate_columns(*shares: Shares) -> Shares:
    """Shared matrices with the same rows, side by side."""
    if len(shares) == 1:
        return shares[0]
    degree = max(share.degree for share in shares)
    return Shares(np.concatenate([share.values for share in shares], axis=2), degree)
