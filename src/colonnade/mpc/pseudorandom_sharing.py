"""Randomness that seats have in common, so that masks and sharings of zero need no message.

A *group* is a set of all seats but ``threshold`` of them, and each group has a key. If ``threshold`` seats put together
all they know, there is still one group whose key they do not know; its part makes a sum over all groups uniform to them
(pseudorandom secret sharing). A number that all members of a group know is already shared with degree ``threshold``, by
the polynomial that has this number at 0 and is 0 at the seats outside the group. In addition every two seats have a key
in common, for shares that one of them deals and the other draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from hashlib import sha256
from itertools import combinations, count
from math import prod

import numpy as np

from colonnade.errors import NO_RESULT, ShareError
from colonnade.message_schema import FixedBytes, ItemList, MessageSchema, receive_message
from colonnade.mpc.committee import Committee, PeerLink
from colonnade.mpc.residues import FEW, Residues
from colonnade.mpc.shamir import lagrange_weights
from colonnade.randomness import KEY_BYTES, Stream, new_key

KeyGroup = tuple[str, ...]


def key_groups(committee: Committee) -> list[KeyGroup]:
    """All groups of the committee, in a fixed order."""
    return list(combinations(committee.seats, len(committee.seats) - committee.threshold))


class CommonKeys:
    """The keys of one seat: the keys of its groups, and one key for each other seat."""

    def __init__(
        self, name: str, committee: Committee, keys: Mapping[KeyGroup, bytes], pairs: Mapping[str, bytes]
    ) -> None:
        self.name, self.committee, self.system = name, committee, committee.system
        self._keys = {group: keys[group] for group in key_groups(committee) if name in group}
        self._numbers = count(1)
        self._factors: dict[int, Residues] = {}
        self.streams = [(group, Stream(key)) for group, key in self._keys.items()]
        """The groups of this seat in a fixed order, each with the stream that all its members read."""
        self._between = {
            (dealer, seat): Stream(sha256(pairs[peer] + dealer.encode()).digest())
            for peer in pairs
            for dealer, seat in ((name, peer), (peer, name))
        }

    @classmethod
    def exchange(cls, name: str, committee: Committee, links: Mapping[str, PeerLink]) -> CommonKeys:
        """Exchange the keys: one round, in which every seat sends keys to the seats after it."""
        place = committee.seats.index(name)
        keys = {group: new_key() for group in key_groups(committee) if group[0] == name}
        pairs: dict[str, bytes] = {}
        for peer in committee.seats[place + 1 :]:
            pairs[peer] = new_key()
            links[peer].send("keys", keys=[pairs[peer], *(key for group, key in keys.items() if peer in group)])
        for peer in committee.seats[:place]:
            due = [group for group in key_groups(committee) if group[0] == peer and name in group]
            form = MessageSchema("keys", keys=ItemList(*[FixedBytes(KEY_BYTES)] * (len(due) + 1)))
            pairs[peer], *found = receive_message(links[peer], peer, form)["keys"]
            keys.update(zip(due, found, strict=True))
        return cls(name, committee, keys, pairs)

    def verify(self, links: Mapping[str, PeerLink], promise: bytes) -> dict[str, bytes]:
        """See that all members of a group have the same key, by digests; returns what the others promise: one round."""
        others = [seat for seat in self.committee.seats if seat != self.name]
        shared = {
            peer: [sha256(b"same key" + key).digest() for group, key in self._keys.items() if peer in group]
            for peer in others
        }
        for peer in others:
            links[peer].send("key-digests", digests=shared[peer], promise=promise)
        promises = {}
        for peer in others:
            due = MessageSchema(
                "key-digests",
                digests=ItemList(*[FixedBytes(KEY_BYTES)] * len(shared[peer])),
                promise=FixedBytes(KEY_BYTES),
            )
            told = receive_message(links[peer], peer, due)
            if list(told["digests"]) != shared[peer]:
                raise ShareError(
                    f"{self.name} and {peer} were given different keys where all members of a group must have the "
                    f"same, as a seat does not follow the protocol: {NO_RESULT} [SH001]"
                )
            promises[peer] = told["promise"]
        return promises

    def with_system(self, committee: Committee) -> CommonKeys:
        """The same keys, read by the same streams, for the same seats with another arithmetic."""
        other = copy(self)
        other.committee, other.system = committee, committee.system
        other.__dict__.pop("weights", None)
        other._factors = {}
        return other

    def pair_stream(self, dealer: str, seat: str) -> Stream:
        """The stream of the shares that ``dealer`` deals to ``seat``; this seat is one of the two."""
        return self._between[dealer, seat]

    def share_of_sum(self, parts: Iterator[Residues]) -> Residues:
        """This seat's share of the sum over all groups; ``parts`` are the numbers of this seat's groups, in order."""
        weighted = zip(parts, self.weights, strict=True)
        terms = (part * weight.reshape(-1, *[1] * (part.ndim - 1)) for part, weight in weighted)
        out = next(terms)  # every seat is in a group
        for term in terms:
            out += term
        return self.system.reduce(out)

    def random(self, shape: tuple[int, ...]) -> Residues:
        """This seat's share of uniform random residues."""
        return self.share_of_sum(self.system.uniform(shape, stream) for _, stream in self.streams)

    def zero(self, shape: tuple[int, ...], degree: int, seen: bytes | None = None) -> Residues:
        """This seat's share in a uniform sharing of zero, of a degree above the threshold and at most twice it.

        With ``seen``, seats that give different texts draw independent shares, which are no sharing of zero together.

        The polynomial of a group times x^j is 0 at 0. For the group whose key an observer does not know, these products
        span all polynomials of this degree that are 0 at 0 and at the points of the seats outside the group.
        """
        threshold = self.committee.threshold
        if not threshold < degree <= 2 * threshold:
            raise ValueError(f"no sharing of zero of degree {degree} without messages [VA082]")
        count, streams = degree - threshold, self._read(seen)
        if seen is not None and count * prod(shape) * len(self.system.primes) <= FEW:
            return self._zero_few(shape, count, streams)
        target = np.zeros((len(self.system.primes), prod(shape)))
        self._add_zeros(target, count, streams)
        return self.system.reduce(target).reshape(len(target), *shape)

    def add_zero(self, target: Residues, degree: int) -> None:
        """Add this seat's share in a sharing of zero as :meth:`zero` makes it, for one row of numbers; not reduced.

        The array has two axes, primes and numbers. Products are below 2^42, and a seat has at most 20 groups and 3
        powers: they sum up to less than 2^48.
        """
        self._add_zeros(target, degree - self.committee.threshold, self._read(None))

    def _add_zeros(self, target: Residues, powers: int, streams: Sequence[Stream]) -> None:
        for factors, stream in zip(self._zero_factors(powers), streams, strict=True):
            for factor in factors.T:
                target += self.system.uniform(target.shape[1:], stream) * factor[:, None]

    def _zero_factors(self, powers: int) -> Residues:
        """For each group and prime, the weight of the group times each power of this seat's point, from the first."""
        factors = self._factors.get(powers)
        if factors is None:
            point = self.committee.point(self.name)
            steps = np.array([point**power for power in range(1, powers + 1)], dtype=np.float64)
            found = np.array(self.weights).T[:, :, None] * steps
            factors = self._factors[powers] = self.system.reduce(found).transpose(1, 0, 2)
        return factors

    def _zero_few(self, shape: tuple[int, ...], powers: int, streams: Sequence[Stream]) -> Residues:
        """The same for few numbers, all powers at once: in a protocol with rounds, calls cost more than numbers."""
        system, total = self.system, np.zeros((len(self.system.primes), prod(shape)))
        for factors, stream in zip(self._zero_factors(powers), streams, strict=True):
            drawn = system.uniform((powers, prod(shape)), stream)
            total += np.matmul(factors[:, None, :], drawn)[:, 0]  # as in add_zero, all sum up to less than 2^48
        return system.reduce(total).reshape(len(total), *shape)

    def _read(self, seen: bytes | None) -> list[Stream]:
        """The streams of this seat's groups; with ``seen``, new ones that depend on it."""
        if seen is None:
            return [stream for _, stream in self.streams]
        # Counted over all arithmetics that read the same keys: no two sharings of zero come from one stream.
        number = f"zero {next(self._numbers)}".encode()
        return [Stream(sha256(key + seen + number).digest()) for key in self._keys.values()]

    @cached_property
    def weights(self) -> list[Residues]:
        """For each group, the factor that turns its number into this seat's share, modulo each prime."""
        committee = self.committee
        absent = [[committee.point(s) for s in committee.seats if s not in group] for group, _ in self.streams]
        known, me = [(0, *points) for points in absent], committee.point(self.name)
        return [np.array([float(lagrange_weights(prime, at, me)[0]) for prime in self.system.primes]) for at in known]
