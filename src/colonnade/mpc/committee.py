"""The committee: who holds shares, and the few moves it makes with them.

Everyone, seated or not, has a :class:`Hand`. Owners deal; seats receive, compute locally, add up, and open.
The wire is not imported: a :class:`Link` is anything with the two methods declared here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from colonnade.errors import PeerLost, ProtocolError, ShareError
from colonnade.mpc.common import Common
from colonnade.mpc.packing import pack, unpack
from colonnade.mpc.residues import Integers, Residues, ResidueSystem
from colonnade.mpc.shamir import combine, complete, differing, interpolate
from colonnade.randomness import Stream, new_key


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

    def columns(self, which: slice | Sequence[int]) -> Shares:
        """Some columns of a shared matrix."""
        return Shares(self.values[:, :, which], self.degree)


def beside(*shares: Shares) -> Shares:
    """Shared matrices with the same rows, side by side."""
    if len(shares) == 1:
        return shares[0]
    degree = max(share.degree for share in shares)
    return Shares(np.concatenate([share.values for share in shares], axis=2), degree)


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
        self.links = links
        self.lost: list[str] = []
        """Seats whose shares did not come to an opening that went on without them."""
        self._common: Common | None = None

    @property
    def seated(self) -> bool:
        """Whether this participant holds shares."""
        return self.name in self.committee.seats

    @property
    def common(self) -> Common:
        """Keys that the seats have in common; all of them come here together, and first exchange the keys."""
        if self._common is None:
            if not self.seated:
                raise ValueError(f"{self.name} has no seat")
            self._common = Common.agree(self.name, self.committee, self.links)
        return self._common

    def announce(self) -> None:
        """Say that something is about to leave; once, before the first thing does."""
        begin, self._before_sharing = self._before_sharing, None
        if begin:
            begin()

    def deal(self, values: Integers, *, degree: int | None = None) -> Shares | None:
        """Share an array among the seats; the dealer's own share comes back if it has a seat."""
        committee = self.committee
        degree = committee.threshold if degree is None else degree
        if not committee.seats:
            raise ValueError(f"{self.name} cannot deal: nobody has a seat")
        self.announce()
        drawing = committee.seeded(self.name, degree)
        if self.seated:
            streams = {seat: self.common.between(self.name, seat) for seat in drawing}
        else:
            streams = {seat: self._seed(seat, values.shape) for seat in drawing}
        shares = self._deal(self.system.split(values), streams)
        return Shares(shares[committee.point(self.name)], degree) if self.seated else None

    def _seed(self, seat: str, shape: Sequence[int]) -> Stream:
        """Send a seed in place of a share."""
        seed = new_key()
        self.links[seat].send("share", shape=list(shape), seed=seed)
        return Stream(seed)

    def _deal(self, secret: Residues, drawn: Mapping[str, Stream]) -> dict[int, Residues]:
        """Send their shares to the seats that cannot draw them; all these shares, by the seats' points."""
        committee = self.committee
        others = [committee.point(seat) for seat in committee.seats if seat not in drawn]
        streams = {committee.point(seat): stream for seat, stream in drawn.items()}
        shares = complete(self.system, secret, streams, others)
        for seat in committee.seats:
            if seat != self.name and seat not in drawn:
                self.links[seat].send("share", words=pack(shares[committee.point(seat)], self.system))
        return shares

    def receive(self, dealer: str, shape: Sequence[int], *, degree: int | None = None) -> Shares:
        """The share of this seat in what ``dealer`` dealt, which must have the expected shape.

        What a seat deals, some of the others draw from a stream that they have in common with it; whoever has no seat
        sends them a seed.
        """
        degree = self.committee.threshold if degree is None else degree
        drawn = self.name in self.committee.seeded(dealer, degree)
        if dealer in self.committee.seats:
            stream = self.common.between(dealer, self.name)
            if drawn:
                return Shares(self.system.uniform(tuple(shape), stream), degree)
        message = self.links[dealer].recv("share")
        if drawn:
            seed = message.get("seed")
            if not isinstance(seed, bytes) or message.get("shape") != list(shape):
                raise ProtocolError(f"{dealer} dealt something else than the array that was due")
            return Shares(self.system.uniform(tuple(shape), Stream(seed)), degree)
        return Shares(unpack(message.get("words"), shape, self.system, dealer), degree)

    def inner(self, left: Shares, right: Shares) -> Shares:
        """Left' right of two shared matrices with the same rows: local, and the degrees add up."""
        return Shares(self.system.inner(left.values, right.values), left.degree + right.degree)

    def multiply(self, left: Shares, right: Shares) -> Shares:
        """The elementwise product of two shared arrays: local, and the degrees add up."""
        return Shares(self.system.reduce(left.values * right.values), left.degree + right.degree)

    def lower(self, shares: Shares) -> Shares:
        """The same array at the degree of a fresh input: one round, in which seats deal what they hold.

        The shares of ``degree + 1`` seats determine the secret as a fixed linear combination, so the same
        combination of sharings of these shares is a sharing of the secret (BGW). ``threshold`` of the seats draw their
        part from a stream that they have in common with the dealer; with three seats each sends one message.
        """
        committee, common = self.committee, self.common
        dealers = committee.seats[: shares.degree + 1]
        if len(dealers) <= shares.degree:
            raise ValueError(f"{len(dealers)} seats cannot lower a sharing of degree {shares.degree}")
        own: dict[int, Residues] = {}
        if self.name in dealers:
            drawing = committee.seeded(self.name, committee.threshold)
            own = self._deal(shares.values, {seat: common.between(self.name, seat) for seat in drawing})
        parts = [
            own[committee.point(dealer)] if dealer == self.name else self.receive(dealer, shares.shape).values
            for dealer in dealers
        ]
        points = [committee.point(dealer) for dealer in dealers]
        return Shares(combine(self.system, parts, points, 0), committee.threshold)

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
        """A random sharing of zero that no ``threshold`` seats know.

        Above the threshold and up to twice it, seats draw it from keys that they have in common. Else every seat deals
        one, and they are added up.
        """
        threshold = self.committee.threshold
        if self.seated and threshold < degree <= 2 * threshold:
            return Shares(self.common.zero(shape, degree), degree)
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
                self.links[name].send("opening", words=words)

    def receive_opening(self, shape: Sequence[int], *, degree: int, bound: int, own: Shares | None = None) -> Integers:
        """The opened value, from the shares of all seats that are not lost; spare shares must agree.

        Recipients need not agree on who is lost: any ``degree + 1`` shares of one polynomial give the same value.
        """
        return self.system.join(self._interpolated(self._gathered(shape, degree, own), degree), bound)

    def open_among_seats(self, shares: Shares) -> Residues:
        """The opened value at every seat, as digits (:meth:`ResidueSystem.low`): one round. Spare shares must agree.

        For numbers that a mask hides. What may be known is opened by :meth:`send_opening` and :meth:`receive_opening`.
        """
        self.send_opening(shares, self.committee.seats)
        found = self._gathered(shares.shape, shares.degree, shares)
        return self._interpolated(found, shares.degree, digits=True)

    def _gathered(self, shape: Sequence[int], degree: int, own: Shares | None) -> dict[str, Residues]:
        """The shares of all seats, less those that are lost for good."""
        shares: dict[str, Residues] = {}
        for seat in self.committee.seats:
            if seat == self.name and own is not None:
                shares[seat] = own.values
            elif seat not in self.lost:
                try:
                    # Whoever is alive is waited for, though others might do: by spare shares a wrong one is noticed.
                    message = self.links[seat].recv("opening")
                except PeerLost as error:
                    self._go_on_without(seat, degree, error)
                else:
                    shares[seat] = unpack(message.get("words"), shape, self.system, seat)
        self._check_left(degree)
        return shares

    def _go_on_without(self, seat: str, degree: int, error: PeerLost) -> None:
        """Note that a seat is lost, unless it was needed: whether by the study as a whole, or by this opening."""
        if error.spare != seat or len(self.committee.seats) == degree + 1:
            raise error
        self.lost.append(seat)
        self._check_left(degree)

    def _check_left(self, degree: int) -> None:
        seats, lost = len(self.committee.seats), ", ".join(self.lost)
        if (left := seats - len(self.lost)) <= degree:
            raise PeerLost(
                f"{lost} {'are' if len(self.lost) > 1 else 'is'} lost: {left} of {seats} seats are left, and this "
                f"opening takes {degree + 1}; the study cannot go on"
            )

    def _interpolated(self, shares: Mapping[str, Residues], degree: int, *, digits: bool = False) -> Residues:
        points = {self.committee.point(seat): values for seat, values in shares.items()}
        try:
            return interpolate(self.system, points, degree, digits=digits)
        except ShareError:
            raise differing(list(shares)) from None

    def tell_opened(self, values: Integers, to: Sequence[str]) -> None:
        """Pass on what was opened, where the others leave the opening to this seat."""
        flat = values.reshape(-1)
        plain = values if values.dtype == np.int64 else [str(value).rjust(self._digits) for value in flat]
        for name in to:
            if name != self.name:
                self.links[name].send("opened", values=plain)

    @property
    def _digits(self) -> int:
        """Room for any number, so that the length of a message tells nothing about it."""
        return len(str(self.system.modulus)) + 1

    def receive_opened(self, opener: str, shape: Sequence[int], bound: int) -> Integers:
        """What another seat opened, which must have the expected shape and size."""
        values: Any = self.links[opener].recv("opened").get("values")
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
