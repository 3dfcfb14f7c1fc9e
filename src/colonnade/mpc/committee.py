"""The committee: who holds shares, and the few moves it makes with them.

Everyone, seated or not, has a :class:`Hand`. Owners deal; seats receive, compute locally, add up, and open.
The wire is not imported: a :class:`Link` is anything with the two methods declared here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from colonnade.errors import ProtocolError, ShareError
from colonnade.mpc.packing import pack, unpack
from colonnade.mpc.residues import Integers, Residues, ResidueSystem
from colonnade.mpc.shamir import combine, complete, expand, interpolate
from colonnade.randomness import new_key


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


@dataclass(frozen=True)
class Shares:
    """One seat's shares of an integer array: residues, and the degree of the polynomial they lie on."""

    values: Residues
    degree: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the shared array."""
        return self.values.shape[1:]


class Hand:
    """One participant's part in the committee's work."""

    def __init__(
        self,
        name: str,
        committee: Committee,
        links: Mapping[str, Link],
        before_sharing: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._before_sharing = before_sharing
        self.committee = committee
        self.system = committee.system
        self._links = links

    @property
    def seated(self) -> bool:
        """Whether this participant holds shares."""
        return self.name in self.committee.seats

    def announce(self) -> None:
        """Say that something is about to leave; once, before the first thing does."""
        begin, self._before_sharing = self._before_sharing, None
        if begin:
            begin()

    def deal(self, values: Integers, *, degree: int | None = None) -> Shares | None:
        """Share an array among the seats; the dealer's own share comes back if it has a seat."""
        return self._deal(self.system.split(values), self.committee.threshold if degree is None else degree)

    def _deal(self, secret: Residues, degree: int) -> Shares | None:
        committee = self.committee
        if not committee.seats:
            raise ValueError(f"{self.name} cannot deal: nobody has a seat")
        self.announce()
        seeds = {seat: new_key() for seat in committee.seeded(self.name, degree)}
        points = {committee.point(seat): seed for seat, seed in seeds.items()}
        others = [committee.point(seat) for seat in committee.seats if seat not in seeds]
        shares = complete(self.system, secret, points, others)
        for seat in committee.seats:
            if seat in seeds:
                self._links[seat].send("share", shape=list(secret.shape[1:]), seed=seeds[seat])
            elif seat != self.name:
                self._links[seat].send("share", words=pack(shares[committee.point(seat)], self.system))
        return Shares(shares[committee.point(self.name)], degree) if self.seated else None

    def receive(self, dealer: str, shape: Sequence[int], *, degree: int | None = None) -> Shares:
        """The share of this seat in what ``dealer`` dealt, which must have the expected shape."""
        degree = self.committee.threshold if degree is None else degree
        message = self._links[dealer].recv("share")
        if self.name in self.committee.seeded(dealer, degree):
            seed = message.get("seed")
            if not isinstance(seed, bytes) or message.get("shape") != list(shape):
                raise ProtocolError(f"{dealer} dealt something else than the array that was due")
            return Shares(expand(self.system, seed, tuple(shape)), degree)
        return Shares(unpack(message.get("words"), shape, self.system, dealer), degree)

    def inner(self, left: Shares, right: Shares) -> Shares:
        """Left' right of two shared matrices with the same rows: local, and the degrees add up."""
        return Shares(self.system.inner(left.values, right.values), left.degree + right.degree)

    def multiply(self, left: Shares, right: Shares) -> Shares:
        """The elementwise product of two shared arrays: local, and the degrees add up."""
        return Shares(self.system.reduce(left.values * right.values), left.degree + right.degree)

    def lower(self, shares: Shares) -> Shares:
        """The same array at the degree of a fresh input: one round, in which every seat deals what it holds.

        The shares of ``degree + 1`` seats determine the secret as a fixed linear combination, so the same
        combination of sharings of these shares is a sharing of the secret (BGW).
        """
        threshold, dealers = self.committee.threshold, self.committee.seats[: shares.degree + 1]
        if len(dealers) <= shares.degree:
            raise ValueError(f"{len(dealers)} seats cannot lower a sharing of degree {shares.degree}")
        mine = self._deal(shares.values, threshold) if self.name in dealers else None
        parts = [mine if seat == self.name and mine else self.receive(seat, shares.shape) for seat in dealers]
        points = [self.committee.point(seat) for seat in dealers]
        return Shares(combine(self.system, [part.values for part in parts], points, 0), threshold)

    def add(self, terms: Sequence[Shares]) -> Shares:
        """The sum, of the highest degree among the terms."""
        total = terms[0].values.copy()
        for term in terms[1:]:
            total += term.values
        return Shares(self.system.reduce(total), max(term.degree for term in terms))

    def scale(self, shares: Shares, factor: int) -> Shares:
        """The product with a public integer."""
        residues = self.system.constant(factor, shares.values.ndim)
        return Shares(self.system.reduce(shares.values * residues), shares.degree)

    def shift(self, shares: Shares, amount: int) -> Shares:
        """The sum with a public integer, which every seat adds to its share."""
        residues = self.system.constant(amount, shares.values.ndim)
        return Shares(self.system.reduce(shares.values + residues), shares.degree)

    def zero(self, shape: tuple[int, ...], degree: int) -> Shares:
        """A joint random sharing of zero: every seat deals one, nobody knows the sum."""
        own = self.deal(np.zeros(shape), degree=degree)
        if own is None:
            raise ValueError(f"{self.name} has no seat")
        others = [seat for seat in self.committee.seats if seat != self.name]
        return self.add([own, *(self.receive(seat, shape, degree=degree) for seat in others)])

    def send_opening(self, shares: Shares, to: Sequence[str]) -> None:
        """Send this seat's share to those who may know the value."""
        words = pack(shares.values, self.system)
        for name in to:
            if name != self.name:
                self._links[name].send("opening", words=words)

    def receive_opening(self, shape: Sequence[int], *, degree: int, bound: int, own: Shares | None = None) -> Integers:
        """The opened value, from the shares of all seats; spare shares must agree."""
        shares = {}
        for seat in self.committee.seats:
            if seat == self.name and own is not None:
                values = own.values
            else:
                values = unpack(self._links[seat].recv("opening").get("words"), shape, self.system, seat)
            shares[self.committee.point(seat)] = values
        return self.system.join(interpolate(self.system, shares, degree), bound)

    def tell_opened(self, values: Integers, to: Sequence[str]) -> None:
        """Pass on what was opened, where the others leave the opening to this seat."""
        flat = values.reshape(-1)
        plain = values if values.dtype == np.int64 else [str(value).rjust(self._digits) for value in flat]
        for name in to:
            if name != self.name:
                self._links[name].send("opened", values=plain)

    @property
    def _digits(self) -> int:
        """Room for any number, so that the length of a message tells nothing about it."""
        return len(str(self.system.modulus)) + 1

    def receive_opened(self, opener: str, shape: Sequence[int], bound: int) -> Integers:
        """What another seat opened, which must have the expected shape and size."""
        values: Any = self._links[opener].recv("opened").get("values")
        try:
            if not isinstance(values, np.ndarray):
                values = np.array([int(value) for value in values], dtype=object).reshape(shape)
        except (TypeError, ValueError):
            raise ProtocolError(f"{opener} sent something else than the opened array") from None
        if values.shape != tuple(shape) or values.dtype not in (np.int64, object):
            raise ProtocolError(f"{opener} sent something else than the opened array")
        if values.size and max(int(values.max()), -int(values.min())) > bound:
            raise ShareError("an opened value is larger than any honest one could be: somebody computed something else")
        opened: Integers = values
        return opened
