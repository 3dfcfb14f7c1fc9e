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
        """Hand over one message."""

    def recv(self, kind: str) -> dict[str, Any]:
        """The next message, which must be of this kind."""


@dataclass(frozen=True)
class Committee:
    """Public: the seats, how many of them may pool what they hold, and the arithmetic.

    Without seats, and with threshold 0, nobody holds shares and nothing can be dealt.
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
        """Where a seat's share lies on the polynomial."""
        return self.seats.index(seat) + 1

    def seeded(self, dealer: str, degree: int) -> tuple[str, ...]:
        """The seats to which this dealer sends seeds: the ``degree`` next ones after itself."""
        start = self.seats.index(dealer) + 1 if dealer in self.seats else 0
        around = self.seats[start:] + self.seats[:start]
        return tuple(seat for seat in around if seat != dealer)[:degree]
