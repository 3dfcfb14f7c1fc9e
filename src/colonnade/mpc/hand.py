"""What one participant does with shares: deal them, receive them, compute with them, and open results.

Every participant has a :class:`Hand`, with a seat in the committee or without. Owners deal. Seats receive and compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from colonnade.errors import PeerLost, ShareError
from colonnade.mpc import vocabulary
from colonnade.mpc.committee import Committee, Link
from colonnade.mpc.common import CommonKeys
from colonnade.mpc.packing import pack, unpack
from colonnade.mpc.residues import Integers, Residues, ResidueSystem
from colonnade.mpc.shamir import combine, complete, differing, interpolate
from colonnade.randomness import Stream, new_key
from colonnade.received import received


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


def beside(*shares: Shares) -> Shares:
    """Shared matrices with the same rows, side by side."""
    if len(shares) == 1:
        return shares[0]
    degree = max(share.degree for share in shares)
    return Shares(np.concatenate([share.values for share in shares], axis=2), degree)


class Hand:
    """What one participant does in the computation of the committee."""

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
        """Seats that were lost, and without which an opening went on."""
        self._common: CommonKeys | None = None
        self._beside: Hand | None = None

    def over(self, system: ResidueSystem) -> Hand:
        """The same participant with other primes: what it may send, whom it lost and its keys are the same.

        Both hands read the same streams, so all seats use them in the same order. Shares modulo many primes are, modulo
        some of them, shares in the arithmetic of these.
        """
        other = Hand(self.name, replace(self.committee, system=system), self.links, self.announce)
        other.lost, other._beside = self.lost, self
        return other

    @property
    def seated(self) -> bool:
        """Whether this participant holds shares."""
        return self.name in self.committee.seats

    @property
    def common(self) -> CommonKeys:
        """The keys that the seats have in common; the first call exchanges them, so all seats make it together."""
        if self._common is None:
            if not self.seated:
                raise ValueError(f"{self.name} has no seat")
            if self._beside is None:
                self._common = CommonKeys.agree(self.name, self.committee, self.links)
            else:
                self._common = self._beside.common.over(self.committee)
        return self._common

    def announce(self) -> None:
        """Call ``before_sharing`` once, before this participant deals anything."""
        begin, self._before_sharing = self._before_sharing, None
        if begin:
            begin()

    def deal(self, values: Integers, *, degree: int | None = None) -> Shares | None:
        """Send each seat its share of an array; returns the dealer's own share if it has a seat."""
        committee = self.committee
        degree = committee.threshold if degree is None else degree
        if not committee.seats:
            raise ValueError(f"{self.name} cannot deal: nobody has a seat")
        self.announce()
        drawing = committee.seeded_by(self.name, degree)
        if self.seated:
            streams = {seat: self.common.pair_stream(self.name, seat) for seat in drawing}
        else:
            streams = {seat: self._seed(seat, values.shape) for seat in drawing}
        shares = self._deal(self.system.split(values), streams)
        return Shares(shares[committee.point(self.name)], degree) if self.seated else None

    def _seed(self, seat: str, shape: Sequence[int]) -> Stream:
        """Send a seed instead of a share; returns the stream of this seed."""
        seed = new_key()
        self.links[seat].send("share", shape=list(shape), seed=seed)
        return Stream(seed)

    def _deal(self, secret: Residues, drawn: Mapping[str, Stream]) -> dict[int, Residues]:
        """Send shares to the seats that cannot draw them; returns these shares by the points of the seats."""
        committee = self.committee
        others = [committee.point(seat) for seat in committee.seats if seat not in drawn]
        streams = {committee.point(seat): stream for seat, stream in drawn.items()}
        shares = complete(self.system, secret, streams, others)
        for seat in committee.seats:
            if seat != self.name and seat not in drawn:
                self.links[seat].send("share", words=pack(shares[committee.point(seat)], self.system))
        return shares

    def receive(self, dealer: str, shape: Sequence[int], *, degree: int | None = None) -> Shares:
        """This seat's share of the array that ``dealer`` dealt, which must have the given shape.

        Some seats draw their share from a stream instead. They have this stream in common with a dealer that has a
        seat; a dealer without a seat sends them its seed.
        """
        degree = self.committee.threshold if degree is None else degree
        drawn = self.name in self.committee.seeded_by(dealer, degree)
        if dealer in self.committee.seats:
            stream = self.common.pair_stream(dealer, self.name)
            if drawn:
                return Shares(self.system.uniform(tuple(shape), stream), degree)
        due, link = tuple(shape), self.links[dealer]
        if drawn:
            seed = received(link, dealer, vocabulary.seed(due))["seed"]
            return Shares(self.system.uniform(due, Stream(seed)), degree)
        words = received(link, dealer, vocabulary.share(due, len(self.system.primes)))["words"]
        return Shares(unpack(words, shape, self.system, dealer), degree)

    def inner(self, left: Shares, right: Shares) -> Shares:
        """Left' right, for two shared matrices with the same rows. Sends nothing; the degrees are added."""
        return Shares(self.system.inner(left.values, right.values), left.degree + right.degree)

    def multiply(self, left: Shares, right: Shares) -> Shares:
        """The elementwise product of two shared arrays. Sends nothing; the degrees are added."""
        return Shares(self.system.reduce(left.values * right.values), left.degree + right.degree)

    def lower(self, shares: Shares) -> Shares:
        """Shares of the same array at degree ``threshold``: one round, in which seats deal the shares they hold.

        The secret is a fixed linear combination of the shares of ``degree + 1`` seats. So the same combination of
        sharings of these shares is a sharing of the secret (BGW). For each dealer, ``threshold`` seats draw their part
        from a stream that they have in common with it. With three seats, each sends one message.
        """
        committee, common = self.committee, self.common
        dealers = committee.seats[: shares.degree + 1]
        if len(dealers) <= shares.degree:
            raise ValueError(f"{len(dealers)} seats cannot lower a sharing of degree {shares.degree}")
        own: dict[int, Residues] = {}
        if self.name in dealers:
            drawing = committee.seeded_by(self.name, committee.threshold)
            own = self._deal(shares.values, {seat: common.pair_stream(self.name, seat) for seat in drawing})
        parts = [
            own[committee.point(dealer)] if dealer == self.name else self.receive(dealer, shares.shape).values
            for dealer in dealers
        ]
        points = [committee.point(dealer) for dealer in dealers]
        return Shares(combine(self.system, parts, points, 0), committee.threshold)

    def add(self, terms: Sequence[Shares]) -> Shares:
        """The sum of the terms; its degree is the highest degree of a term."""
        total = terms[0].values.copy()
        for term in terms[1:]:
            total += term.values
        return Shares(self.system.reduce(total), max(term.degree for term in terms))

    def scale(self, shares: Shares, factor: int) -> Shares:
        """The product with a public integer."""
        residues = self.system.constant(factor, shares.values.ndim)
        return Shares(self.system.reduce(shares.values * residues), shares.degree)

    def shift(self, shares: Shares, amount: int) -> Shares:
        """The sum with a public integer: every seat adds it to its share."""
        residues = self.system.constant(amount, shares.values.ndim)
        return Shares(self.system.reduce(shares.values + residues), shares.degree)

    def zero(self, shape: tuple[int, ...], degree: int) -> Shares:
        """This seat's share in a random sharing of zero that no ``threshold`` seats know.

        For degrees above the threshold and up to twice the threshold, the seats draw it from keys that they have in
        common. For other degrees every seat deals a sharing of zero, and all of them are added.
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
        """Send this seat's share to the participants in ``to``, who may know the value."""
        words = pack(shares.values, self.system)
        for name in to:
            if name != self.name:
                self.links[name].send("opening", words=words)

    def receive_opening(self, shape: Sequence[int], *, degree: int, bound: int, own: Shares | None = None) -> Integers:
        """The opened value, computed from the shares of all seats that are not lost.

        All shares must be values of one polynomial. Two receivers may miss different seats and still get the same
        value, because any ``degree + 1`` shares determine it.
        """
        return self.system.join(self._interpolated(self._gathered(shape, degree, own), degree), bound)

    def open_among_seats(self, shares: Shares) -> Residues:
        """Open numbers that a mask hides to all seats: one round; returns digits (:meth:`ResidueSystem.low_word`).

        Results that may be known are opened by :meth:`send_opening` and :meth:`receive_opening` instead.
        """
        self.send_opening(shares, self.committee.seats)
        found = self._gathered(shares.shape, shares.degree, shares)
        return self._interpolated(found, shares.degree, digits=True)

    def _gathered(self, shape: Sequence[int], degree: int, own: Shares | None) -> dict[str, Residues]:
        """The shares of all seats except those that are lost."""
        shares: dict[str, Residues] = {}
        due = vocabulary.opening(tuple(shape), len(self.system.primes))
        for seat in self.committee.seats:
            if seat == self.name and own is not None:
                shares[seat] = own.values
            elif seat not in self.lost:
                try:
                    # Wait for every seat that is alive, even if fewer are enough: additional shares reveal a wrong one.
                    words = received(self.links[seat], seat, due)["words"]
                except PeerLost as error:
                    self._go_on_without(seat, degree, error)
                else:
                    shares[seat] = unpack(words, shape, self.system, seat)
        self._check_left(degree)
        return shares

    def _go_on_without(self, seat: str, degree: int, error: PeerLost) -> None:
        """Note that a seat is lost; raise the error if the study or this opening needs that seat."""
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
        """Send opened values to the participants in ``to``, who did not take part in the opening."""
        flat = values.reshape(-1)
        plain = values if values.dtype == np.int64 else [str(value).rjust(self._longest_number) for value in flat]
        for name in to:
            if name != self.name:
                self.links[name].send("opened", values=plain)

    @property
    def _longest_number(self) -> int:
        """The length of the longest number as text: all are padded to it, so that no length depends on a value."""
        return len(str(self.system.modulus)) + 1

    def receive_opened(self, opener: str, shape: Sequence[int], bound: int) -> Integers:
        """The values that ``opener`` opened, which must have this shape and be at most ``bound`` in magnitude."""
        narrow, due = bound < 2**63, tuple(shape)
        message = vocabulary.opened(due) if narrow else vocabulary.opened_wide(due, self._longest_number)
        values: Any = received(self.links[opener], opener, message)["values"]
        if not narrow:
            values = np.array([int(value) for value in values], dtype=object).reshape(due)
        if values.size and max(int(values.max()), -int(values.min())) > bound:
            raise ShareError(f"{opener} told an opened value that is larger than any honest one could be")
        opened: Integers = values
        return opened
