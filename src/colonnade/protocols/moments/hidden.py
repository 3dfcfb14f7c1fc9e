"""Second moments of the people whom all owners hold, when nobody knows who these people are.

Alignment has given every row of every owner a place in one universe of slots; the rows of one person have the same
slot, and an owner knows the slots of its own rows only. For one block of slots after the other:

1. each owner deals its integer rows x_p, zeros where it holds nobody, and its bit whether it holds somebody;
2. the seats multiply the bits, two at a time: m = 1 where all owners hold the same person, else 0;
3. they multiply the rows x = (x_1 .. x_P) by m, and lower the degree of the shares again: y = m x;
4. with the public constant k as a last column they add (y, k m) (x, k)' to the sums, which is m (x, k) (x, k)'.

At the end every owner deals its noise, and sums and noise are opened together. An owner cannot add up its own products
in the clear, as it does not know which of its rows count. What is sent depends only on the size of the universe.
docs/theory/hidden-members.md says what this hides, and from whom.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from colonnade.mpc import Hand, Shares, beside
from colonnade.protocols.moments.checked import Checked
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import Role

Dealt = Callable[[int, Shares | None], list[Shares]]


class HiddenSeat:
    """A committee member's work: who is held by all owners, the rows of these people, and their products.

    ``dealt`` takes in what every owner dealt for a block of slots.
    """

    def __init__(self, me: Role, task: Moments, dealt: Dealt | None = None) -> None:
        self.me, self.task, self.hand = me, task, me.hand
        self.dealt = dealt or self._dealt
        primes = len(self.hand.system.primes)
        self.products = Shares(np.zeros((primes, task.width, task.width)), 2 * task.trust.threshold)

    def multiply(self, slots: int, mine: Shares | None) -> tuple[Shares, Shares]:
        """Take in one block of slots of every owner and add the products of the rows that all of them hold.

        Returns the two matrices whose product was added.
        """
        with self.me.meter.phase("receive"):
            rows, bits = self._received(slots, mine)
        with self.me.meter.phase("match"):
            flag = held_by_all(self.hand, bits)
        with self.me.meter.phase("mask"):
            masked = self.hand.product(rows, flag)
        with self.me.meter.phase("multiply"):
            left = beside(masked, self.hand.scale(flag, self.task.constant))
            right = beside(rows, self._constant(slots))
            self.products = self.hand.add([self.products, self.hand.inner(left, right)])
        return left, right

    def _received(self, slots: int, mine: Shares | None) -> tuple[Shares, Shares]:
        """The rows of all owners side by side, and their bits."""
        shares = self.dealt(slots, mine)
        rows, bits = ([share.columns(part) for share in shares] for part in (slice(0, -1), slice(-1, None)))
        return beside(*rows), beside(*bits)

    def _dealt(self, slots: int, mine: Shares | None) -> list[Shares]:
        return [self.me.dealt_by(block.owner, (slots, len(block.columns) + 1), mine) for block in self.task.blocks]

    def _constant(self, slots: int) -> Shares:
        """The public constant as a shared column: the polynomial that has this value everywhere."""
        residues = self.hand.system.constant(self.task.constant, 3)
        return Shares(np.broadcast_to(residues, (len(residues), slots, 1)), 0)

    @property
    def sums(self) -> Shares:
        """The upper triangle of the products, as often as the task opens each."""
        task, hand = self.task, self.hand
        rows, columns = np.triu_indices(task.width)
        upper = Shares(self.products.values[:, rows, columns], self.products.degree)
        return hand.multiply(upper, Shares(hand.system.split(task.weights), 0))


class CheckedHiddenSeat(Checked):
    """The same where participants may deviate: flags, masked rows and sums are checked, a window at a time."""

    def __init__(self, me: Role, summing: Role, task: Moments) -> None:
        super().__init__(me, summing, task)
        self.unchecked = HiddenSeat(summing, task, lambda slots, mine: self.received(slots, 1, mine))
        self.masked: list[Shares] = []

    def multiply(self, slots: int, mine: Shares | None) -> None:
        """Take in one block of slots of every owner and add the products of the rows that all of them hold."""
        left, right = self.unchecked.multiply(slots, mine)
        self.masked.append(left)
        self.rows.append((right,))

    def close(self, mine: Shares | None) -> None:
        """Check the flags, the masked rows and the products of the window."""
        del mine  # owners cannot compute any products themselves
        with self.me.meter.phase("lower degree"):
            product = self.hand.lower(self.unchecked.products)
        self.claim(self.masked, self.rows, product)
        self.unchecked.products = Shares(np.zeros_like(product.values), 2 * product.degree)
        self.masked = []


def held_by_all(hand: Hand, bits: Shares) -> Shares:
    """The product of all columns: multiply one half of them by the other half until one column is left."""
    while (count := bits.shape[1]) > 1:
        half = count // 2
        pairs = hand.product(bits.columns(slice(0, half)), bits.columns(slice(half, 2 * half)))
        bits = beside(pairs, bits.columns(slice(2 * half, count)))
    return bits
