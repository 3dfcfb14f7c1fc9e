"""Who holds shares: the seats of the committee, and what they need of a channel.

The wire is not imported: a :class:`Link` is any object with the two methods declared here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from colonnade.mpc.residues import ResidueSystem


class Link(Protocol):
    """What the committee needs of a channel to one peer."""

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message to the peer."""

    def recv(self, kind: str, most: int) -> dict[str, Any]:
        """The fields of the next message, which must be of this kind and of at most so many bytes."""


@dataclass(frozen=True)
class Committee:
    """The seats, how many of them together still learn nothing (``threshold``), and the arithmetic; all public.

    With no seats and threshold 0, nobody holds shares and nothing can be dealt.
    """

    seats: tuple[str, ...]
    threshold: int
    system: ResidueSystem

    def __post_init__(self) -> None:
        size = len(self.seats)
        if not size and not self.threshold:
            return
        if not 3 <= size <= 7 or len(set(self.seats)) != size:
            raise ValueError(f"a committee has 3 to 7 different seats, not {size}")
        if not 1 <= self.threshold < size / 2:
            raise ValueError(f"the threshold of {size} seats lies between 1 and {(size - 1) // 2}")

    def point(self, seat: str) -> int:
        """The point at which the polynomial has the share of this seat."""
        return self.seats.index(seat) + 1

    def seeded_by(self, dealer: str, degree: int) -> tuple[str, ...]:
        """The seats that this dealer sends a seed instead of a share: the ``degree`` seats that follow it."""
        start = self.seats.index(dealer) + 1 if dealer in self.seats else 0
        around = self.seats[start:] + self.seats[:start]
        return tuple(seat for seat in around if seat != dealer)[:degree]
