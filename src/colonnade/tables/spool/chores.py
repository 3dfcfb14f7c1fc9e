"""Work on one table that any process of its party can do, and who does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol


class Chore(Protocol):
    """A part of the work. It can be pickled; done twice, also at the same time, it leaves the same files."""

    def done(self) -> Any:
        """Do it."""

    def after(self, before: Sequence[Any]) -> Chore:
        """The same, when the results of all chores before it are known."""
        return self


Hands = Callable[[Sequence[Chore]], Iterator[tuple[int, Any]]]
"""Does chores, begun in their order, and gives their places and results as they come.

When one has failed, those that were begun are ended and no other is begun.
"""


def nobody(chores: Sequence[Chore]) -> Iterator[tuple[int, Any]]:
    """No hands but our own."""
    return iter(())


def all_done(chores: Sequence[Chore], hands: Hands = nobody) -> list[Any]:
    """The results of all chores, in their order.

    What a hand has failed at is done here, after all that comes before it: so its error is the one that is told, and
    the same as without hands. A single chore is not worth a hand.
    """
    found, left = dict[int, Any](), list(range(len(chores)))
    while left:
        if len(left) > 1:
            places = left
            found |= {places[place]: result for place, result in hands([chores[number] for number in places])}
            left = [number for number in places if number not in found]
        if left:
            first = left.pop(0)
            found[first] = chores[first].after([found[number] for number in range(first)]).done()
    return [found[number] for number in range(len(chores))]
