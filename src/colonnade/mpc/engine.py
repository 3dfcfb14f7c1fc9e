"""What one participant does with shares: deal them, receive them, compute with them, and open results.

Every participant has a :class:`ShareEngine`, with a seat in the committee or without. Owners deal. Seats receive and
compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from colonnade.errors import NO_RESULT, PeerLost, ShareError
from colonnade.message_schema import FixedBytes, Integer, ItemList, MessageSchema, receive_message
from colonnade.mpc import messages
from colonnade.mpc.committee import Committee, PeerLink, Shares
from colonnade.mpc.messages import pack, unpack
from colonnade.mpc.residues import Integers, Residues, ResidueSystem
from colonnade.mpc.shamir import (
    REPLICATED_SEATS,
    CommonKeys,
    DealingFunction,
    deal_shares,
    evaluate_at,
    inconsistent_shares,
    reconstruct,
    split_replicated,
)
from colonnade.mpc.verification.claims import ShareClaims
from colonnade.mpc.verification.transcript import PublicValue, TranscriptAgreement
from colonnade.randomness import KEY_BYTES, Stream, new_key


class ShareEngine:
    """What one participant does in the computation of the committee."""

    def __init__(
        self,
        name: str,
        committee: Committee,
        links: Mapping[str, PeerLink],
        before_sharing: Callable[[], None] | None = None,
        common: CommonKeys | None = None,
    ) -> None:
        self.name = name
        self._before_sharing = before_sharing
        self.committee = committee
        self.system = committee.system
        self.links = links
        self.lost: list[str] = []
        """Seats that were lost, and without which an opening went on."""
        self.replicated_secret: Residues | None = None
        """What this participant has dealt in parts last."""
        self._common = common
        self._agreement: TranscriptAgreement | None = None
        self._claims: ShareClaims | None = None
        self._beside: ShareEngine | None = None
        self._others: list[ShareEngine] = []

    def with_system(self, system: ResidueSystem) -> ShareEngine:
        """The same participant with other primes: what it may send, whom it lost and its keys are the same.

        Both engines read the same streams, so all seats use them in the same order. Shares modulo many primes are,
        modulo some of them, shares in the arithmetic of these.
        """
        other = ShareEngine(self.name, replace(self.committee, system=system), self.links, self.notify_before_sharing)
        other.lost, other._beside = self.lost, self
        self._others.append(other)
        return other

    @property
    def has_seat(self) -> bool:
        """Whether this participant holds shares."""
        return self.name in self.committee.seats

    @property
    def active(self) -> bool:
        """Whether seats check each other's work."""
        return self.committee.active

    @property
    def common(self) -> CommonKeys:
        """The keys that the seats have in common; the first call exchanges them, so all seats make it together."""
        if self._common is None:
            if not self.has_seat:
                raise ValueError(f"{self.name} has no seat [VA094]")
            if self._beside is not None:
                self._common = self._beside.common.with_system(self.committee)
            else:
                self._common = CommonKeys.exchange(self.name, self.committee, self.links)
                if self.active:
                    self._agreement = TranscriptAgreement(
                        self.name, self.committee, self.links, self.lost, self.continue_without
                    )
                    self._agreement.set_promises(self._common.verify(self.links, self._agreement.promise))
        return self._common

    @property
    def agreement(self) -> TranscriptAgreement:
        """What all seats must have seen alike, and their coins; only where seats check each other."""
        if self._beside is not None:
            return self._beside.agreement
        if not self.active:
            raise ValueError("seats that do not check each other have no coins [VA095]")
        self.common  # noqa: B018 - the first call exchanges keys and promises
        assert self._agreement is not None  # noqa: S101 - made with the keys
        return self._agreement

    @property
    def claims(self) -> ShareClaims:
        """What this seat and the others claim of their shares, to be settled before anything is opened."""
        if self._claims is None:
            if not (self.active and self.has_seat):
                raise ValueError(
                    f"{self.name} checks nothing: it has no seat, or seats do not check each other [VA096]"
                )
            self._claims = ShareClaims(self)
        return self._claims

    def settle(self) -> None:
        """Check everything that was claimed, first where rows were dealt, if that is modulo other primes."""
        if self._beside is not None:
            self._beside.claims.settle()
        self.claims.settle()

    @property
    def settled_claims(self) -> int:
        """How many claims this seat and the others have settled, with whichever primes."""
        own = 0 if self._claims is None else self._claims.settled_claims
        return own + sum(other.settled_claims for other in self._others)

    def coin(self, tell: Sequence[str] = ()) -> Stream:
        """Coins that are public among the seats, and that nobody knew before all seats asked for them.

        Every seat tells them to the participants in ``tell``, who have no seat and hear them by :meth:`receive_coin`.
        """
        key = self.agreement.coin()
        for name in tell:
            self.links[name].send("told-coin", key=key)
        return Stream(key)

    def receive_coin(self) -> Stream:
        """The coins that the seats tell a participant without a seat; all seats must tell the same."""
        due = MessageSchema("told-coin", key=FixedBytes(KEY_BYTES))
        keys = {seat: receive_message(self.links[seat], seat, due)["key"] for seat in self.committee.seats}
        if len(set(keys.values())) > 1:
            raise ShareError(
                f"the seats told {self.name} different coins, as one of them does not follow the "
                f"protocol: {NO_RESULT} [SH004]"
            )
        return Stream(keys[self.committee.seats[0]])

    def compare_transcripts(self) -> None:
        """Compare what all seats have seen: one round."""
        self.agreement.agree()

    def record_public(self, *values: PublicValue) -> None:
        """Note what all seats take as public; they compare it before the next coin. Does nothing if none check."""
        if self.active and self.has_seat:
            self.agreement.transcript.record(*values)

    def continue_without(self, seat: str, error: PeerLost) -> None:
        """Note that a seat is lost; raise an error if too few are left."""
        self._drop_seat(seat, 2 * self.committee.threshold, error)

    def notify_before_sharing(self) -> None:
        """Call ``before_sharing`` once, before this participant deals anything or knows who is in a batch."""
        begin, self._before_sharing = self._before_sharing, None
        if begin:
            begin()

    def deal(self, values: Integers, *, degree: int | None = None, parts: bool = False) -> Shares | None:
        """Send each seat its share of an array, or its part; returns the dealer's own share if it has a seat."""
        committee = self.committee
        degree = committee.threshold if degree is None else degree
        if not committee.seats:
            raise ValueError(f"{self.name} cannot deal: nobody has a seat [VA097]")
        if parts and (self.active or not self.has_seat or len(committee.seats) != REPLICATED_SEATS):
            raise ValueError("only one of three seats that are not checked deals in parts [VA098]")
        self.notify_before_sharing()
        drawing = committee.seats_seeded_by(self.name, degree)
        if self.has_seat:
            streams = {seat: self.common.pair_stream(self.name, seat) for seat in drawing}
        else:
            streams = {seat: self._seed(seat, values.shape) for seat in drawing}
        secret = self.system.to_residues(values)
        if parts:
            self.replicated_secret = secret
        own = self._deal(secret, streams, split_replicated if parts else deal_shares)
        return None if own is None else self._claim_dealt(Shares(own, degree), self.name)

    def _claim_dealt(self, shares: Shares, dealer: str) -> Shares:
        """Shares that were dealt; where seats check each other, they will see that they lie on polynomials."""
        if self.active and shares.degree == self.committee.threshold:
            self.claims.consistent(shares, dealer)
        return shares

    def _seed(self, seat: str, shape: Sequence[int]) -> Stream:
        """Send a seed instead of a share; returns the stream of this seed."""
        seed = new_key()
        self.links[seat].send("share", shape=list(shape), seed=seed)
        return Stream(seed)

    def _deal(
        self, secret: Residues, drawn: Mapping[str, Stream], make: DealingFunction = deal_shares
    ) -> Residues | None:
        """Send shares to the seats that cannot draw them; returns the share of this seat, if it has one."""
        committee = self.committee
        points = {seat: committee.point(seat) for seat in committee.seats}
        streams = {points[seat]: stream for seat, stream in drawn.items()}
        others = [seat for seat in committee.seats if seat != self.name and seat not in drawn]
        own, sent = make(self.system, secret, streams, points.get(self.name), [points[seat] for seat in others])
        for seat in others:
            self.links[seat].send("share", words=sent[points[seat]])
        return own

    def receive(self, dealer: str, shape: Sequence[int], *, degree: int | None = None) -> Shares:
        """This seat's share of the array that ``dealer`` dealt, which must have the given shape."""
        return self._claim_dealt(self._receive_share(dealer, shape, degree=degree), dealer)

    def _receive_share(self, dealer: str, shape: Sequence[int], *, degree: int | None = None) -> Shares:
        """A dealt share.

        Some seats draw their share from a stream instead. They have this stream in common with a dealer that has a
        seat; a dealer without a seat sends them its seed.
        """
        degree = self.committee.threshold if degree is None else degree
        drawn = self.name in self.committee.seats_seeded_by(dealer, degree)
        if dealer in self.committee.seats:
            stream = self.common.pair_stream(dealer, self.name)
            if drawn:
                return Shares(self.system.uniform(tuple(shape), stream), degree)
        due, link = tuple(shape), self.links[dealer]
        if drawn:
            seeded = MessageSchema(
                "share", shape=ItemList(*(Integer(side, side) for side in due)), seed=FixedBytes(KEY_BYTES)
            )
            stream = Stream(receive_message(link, dealer, seeded)["seed"])
            return Shares(self.system.uniform(due, stream), degree)
        words = receive_message(link, dealer, messages.residues_message("share", due, len(self.system.primes)))["words"]
        return Shares(unpack(words, shape, self.system, dealer), degree)

    def inner(self, left: Shares, right: Shares) -> Shares:
        """Left' right, for two shared matrices with the same rows. Sends nothing; the degrees are added."""
        return Shares(self.system.inner(left.values, right.values), left.degree + right.degree)

    def inner_products(self, pairs: Sequence[tuple[Shares, Shares]]) -> list[Shares]:
        """The same for several pairs, all with the same rows."""
        products = self.system.inner_products([(left.values, right.values) for left, right in pairs])
        return [Shares(found, a.degree + b.degree) for found, (a, b) in zip(products, pairs, strict=True)]

    def multiply(self, left: Shares, right: Shares) -> Shares:
        """The elementwise product of two shared arrays. Sends nothing; the degrees are added."""
        return Shares(self.system.reduce(left.values * right.values), left.degree + right.degree)

    def reduce_degree(self, shares: Shares) -> Shares:
        """Shares of the same array at degree ``threshold``: one round, in which seats deal the shares they hold.

        The secret is a fixed linear combination of the shares of ``degree + 1`` seats. So the same combination of
        sharings of these shares is a sharing of the secret (BGW). For each dealer, ``threshold`` seats draw their part
        from a stream that they have in common with it. With three seats, each sends one message.
        """
        return self._claim_dealt(self._lowered(shares), "lowered")

    def _lowered(self, shares: Shares) -> Shares:
        committee, common = self.committee, self.common
        there = [seat for seat in committee.seats if seat not in self.lost] if self.active else committee.seats
        dealers = there[: shares.degree + 1]
        if len(dealers) <= shares.degree:
            raise ValueError(f"{len(dealers)} seats cannot lower a sharing of degree {shares.degree} [VA099]")
        own: Residues | None = None
        if self.name in dealers:
            drawing = committee.seats_seeded_by(self.name, committee.threshold)
            own = self._deal(shares.values, {seat: common.pair_stream(self.name, seat) for seat in drawing})
        parts = [
            own if own is not None and dealer == self.name else self._receive_share(dealer, shares.shape).values
            for dealer in dealers
        ]
        points = [committee.point(dealer) for dealer in dealers]
        return Shares(evaluate_at(self.system, parts, points, 0), committee.threshold)

    def product(self, left: Shares, right: Shares) -> Shares:
        """The elementwise product at degree ``threshold``, claimed if seats check each other: one round."""
        lowered = self.reduce_degree(self.multiply(left, right))
        if self.active:
            self.claims.elementwise(left, right, lowered)
        return lowered

    def reduce_degree_residues(self, values: Residues, degree: int) -> Residues:
        """Residues at degree ``threshold``, for a check that shows by itself whether they are right."""
        return self._lowered(Shares(values, degree)).values

    def add(self, terms: Sequence[Shares]) -> Shares:
        """The sum of the terms; its degree is the highest degree of a term."""
        first, *rest = (term.values for term in terms)
        # A term that is larger than the first one is an error, so the sum has its shape.
        total = np.add(first, rest[0], out=np.empty(first.shape)) if rest else first.copy()
        for values in rest[1:]:
            total += values
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
        if self.has_seat and threshold < degree <= 2 * threshold:
            # Seats that were told different numbers have different masks, and open nothing but random numbers.
            seen = self.agreement.transcript.digest if self.active else None
            return Shares(self.common.zero(shape, degree, seen), degree)
        own = self.deal(np.zeros(shape), degree=degree)
        if own is None:
            raise ValueError(f"{self.name} has no seat [VA100]")
        others = [seat for seat in self.committee.seats if seat != self.name]
        return self.add([own, *(self.receive(seat, shape, degree=degree) for seat in others)])

    def random(self, shape: tuple[int, ...]) -> Shares:
        """This seat's share of uniform random numbers that no ``threshold`` seats know; nothing is sent."""
        return Shares(self.common.random(shape), self.committee.threshold)

    def send_opening(self, shares: Shares, to: Sequence[str]) -> None:
        """Send this seat's share to the participants in ``to``, who may know the value."""
        words = pack(shares.values, self.system)
        for name in to:
            if name != self.name:
                self.links[name].send("opening", words=words)

    def receive_opening(
        self, shape: Sequence[int], *, degree: int, bound: int, own: Shares | None = None, cut: bool = False
    ) -> Integers:
        """The opened value, computed from the shares of all seats that are not lost.

        All shares must be values of one polynomial. Two receivers may miss different seats and still get the same
        value, because any ``degree + 1`` shares determine it. A value beyond the bound is refused, or ``cut`` to it.
        """
        return self.system.to_integers(self._interpolated(self._gathered(shape, degree, own), degree), bound, cut=cut)

    def open_among_seats(self, shares: Shares) -> Residues:
        """Open numbers that a mask hides to all seats: one round; returns digits (:meth:`ResidueSystem.low_word`).

        Results that may be known are opened by :meth:`send_opening` and :meth:`receive_opening` instead.
        """
        opened = self._open_to_all(shares, digits=True)
        self.record_public(opened.astype(np.int32))
        return opened

    def open_to_readers(self, shares: Shares, readers: Sequence[str]) -> Residues | None:
        """Open numbers that a mask hides to some seats only; returns digits to these seats and None to the others."""
        self.send_opening(shares, readers)
        if self.name not in readers:
            return None
        return self._interpolated(self._gathered(shares.shape, shares.degree, shares), shares.degree, digits=True)

    def open_residues(self, values: Residues, degree: int | None = None) -> Residues:
        """Open residues to all seats, for a check; by default those of the degree of an input."""
        return self._open_to_all(Shares(values, self.committee.threshold if degree is None else degree))

    def _open_to_all(self, shares: Shares, *, digits: bool = False) -> Residues:
        self.send_opening(shares, self.committee.seats)
        found = self._gathered(shares.shape, shares.degree, shares)
        return self._interpolated(found, shares.degree, digits=digits)

    def _gathered(self, shape: Sequence[int], degree: int, own: Shares | None) -> dict[str, Residues]:
        """The shares of all seats except those that are lost."""
        shares: dict[str, Residues] = {}
        due = messages.residues_message("opening", tuple(shape), len(self.system.primes))
        for seat in self.committee.seats:
            if seat == self.name and own is not None:
                shares[seat] = own.values
            elif seat not in self.lost:
                try:
                    # Wait for every seat that is alive, even if fewer are enough: additional shares reveal a wrong one.
                    words = receive_message(self.links[seat], seat, due)["words"]
                except PeerLost as error:
                    self._drop_seat(seat, degree, error)
                else:
                    shares[seat] = unpack(words, shape, self.system, seat)
        self._check_left(degree)
        return shares

    def _interpolated(self, shares: Mapping[str, Residues], degree: int, *, digits: bool = False) -> Residues:
        points = {self.committee.point(seat): values for seat, values in shares.items()}
        try:
            return reconstruct(self.system, points, degree, digits=digits)
        except ShareError:
            raise inconsistent_shares(list(shares)) from None

    def _drop_seat(self, seat: str, degree: int, error: PeerLost) -> None:
        """Note that a seat is lost; raise the error if the study or this opening needs that seat."""
        if error.spare != seat or len(self.committee.seats) == self.committee.required_seats(degree):
            raise error
        self.lost.append(seat)
        self._check_left(degree)

    def _check_left(self, degree: int) -> None:
        seats, lost = len(self.committee.seats), ", ".join(self.lost)
        enough = self.committee.required_seats(degree)
        if (left := seats - len(self.lost)) < enough:
            raise PeerLost(
                f"{lost} {'are' if len(self.lost) > 1 else 'is'} lost: {left} of {seats} seats are left, and this "
                f"opening takes {enough}; the study cannot go on [PE003]"
            )

    def send_opened(self, values: Integers, to: Sequence[str]) -> None:
        """Send opened values to the participants in ``to``, who did not take part in the opening."""
        longest, flat = self._longest_opened, values.reshape(-1)
        plain = values if values.dtype == np.int64 else [str(value).rjust(longest) for value in flat]
        for name in to:
            if name != self.name:
                self.links[name].send("opened", values=plain)

    def receive_opened(self, opener: str, shape: Sequence[int], bound: int) -> Integers:
        """The values that ``opener`` opened, which must have this shape and be at most ``bound`` in magnitude."""
        narrow, due = bound < 2**63, tuple(shape)
        values: Integers = receive_message(
            self.links[opener], opener, messages.opened_message(due, None if narrow else self._longest_opened)
        )["values"]
        if not narrow:
            values = np.array([int(value) for value in values], dtype=object).reshape(due)
        if values.size and max(int(values.max()), -int(values.min())) > bound:
            raise ShareError(f"{opener} told an opened value that is larger than any honest one could be [SH009]")
        return values

    @property
    def _longest_opened(self) -> int:
        """The length of the longest number as text: all are padded to it, so that no length depends on a value."""
        return len(str(self.system.modulus)) + 1
