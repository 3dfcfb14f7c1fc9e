"""What owners prove of the coordinates that they deal: that they are those of codes.

A column with n values is dealt as n times its one-hot vector minus one, without the last coordinate. All n add up to
zero, so the seats compute their shares of the last one themselves, and the owner proves that each of the n numbers is
-1 or n - 1. Then exactly one of them is n - 1. A column with two values has one coordinate, -1 or 1.

If members are hidden, coordinates are zero where an owner holds nobody. With its flag added, each is 0 or n, and all of
them add up to n times the flag. A row with a flag of 0 counts for nothing, whatever else it holds.

Products with the label that its owner deals are claimed to be such (:mod:`checked`), so nothing is proven of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.tables.marginals.layout import Factors
from colonnade.mpc.verify.ranges import Group, two_values

Numbers = NDArray[np.float64]


class Codes:
    """Which of an owner's dealt columns are proven, and the last coordinates beside them."""

    def __init__(self, dealt: Factors, hidden: bool) -> None:
        self.hidden = hidden
        self.widths = [width for name, width in zip(dealt.names, dealt.widths, strict=True) if len(name) == 1]
        self.width = sum(self.widths)
        self.several = [place for place, width in enumerate(self.widths) if width > 1]
        column = np.repeat(np.arange(len(self.widths)), self.widths)
        self.added = (column[:, None] == self.several).astype(np.float64)
        """The coordinates that are added up for each last one."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """What is proven of the columns of :meth:`completed`."""
        low = 0 if self.hidden else -1
        values = [(low, low + width + 1) for width in self.widths]
        coordinates = [two_values(width, *pair) for width, pair in zip(self.widths, values, strict=True)]
        flag = [two_values(1)] if self.hidden else []
        return (*coordinates, *flag, *(two_values(1, *values[place]) for place in self.several))

    def completed(self, dealt: Numbers, reduce: Callable[[Numbers], Numbers] = lambda values: values) -> Numbers:
        """Dealt rows, or shares of them, as the proof is about them: coordinates, flag, and last coordinates.

        ``reduce`` is the reduction modulo primes, for shares.
        """
        found = np.empty((*dealt.shape[:-1], self.width + self.hidden + len(self.several)))
        coordinates, rest = found[..., : self.width], found[..., self.width :]
        coordinates[...] = dealt[..., : self.width]
        sizes = np.array([self.widths[place] + 1.0 for place in self.several])
        last = np.zeros((*dealt.shape[:-1], len(self.several)))
        if self.hidden:
            flag = dealt[..., -1:]
            coordinates += flag
            reduce(coordinates)
            rest[..., :1] = flag
            last += flag * sizes
        if self.several:
            last -= coordinates @ self.added
            rest[..., self.hidden :] = reduce(last)
        return found
