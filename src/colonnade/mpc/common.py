"""Randomness that seats have in common, so that masks and sharings of zero need no message.

Every group of all but ``threshold`` seats holds a key. Whichever ``threshold`` seats pool what they hold, one group
is left of which they know nothing, and its part makes the sum uniform to them (pseudorandom secret sharing). A group's
number, known to each of its members, is a sharing of degree ``threshold`` without a word: the polynomial that has it
at 0 and 0 at every other seat. Every two seats share a key as well, for shares that one deals and the other can draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from itertools import combinations
from typing import Any

import numpy as np

from colonnade.errors import ProtocolError
from colonnade.mpc.committee import Committee, Link
from colonnade.mpc.residues import Residues
from colonnade.mpc.shamir import weights
from colonnade.randomness import KEY_BYTES, Stream, new_key

Group = tuple[str, ...]


def groups(committee: Committee) -> list[Group]:
    """All sets of all but ``threshold`` seats, in a fixed order."""
    return list(combinations(committee.seats, len(committee.seats) - committee.threshold))


class Common:
    """The keys of one seat: those of its groups, and one with every other seat."""

    def __init__(
        self, name: str, committee: Committee, keys: Mapping[Group, bytes], pairs: Mapping[str, bytes]
    ) -> None:
        self.name, self.committee, self.system = name, committee, committee.system
        self.held = [(group, Stream(keys[group])) for group in groups(committee) if name in group]
        """The groups of this seat in a fixed order, each with the stream that its members read in step."""
        self._between = {
            (dealer, seat): Stream(sha256(pairs[peer] + dealer.encode()).digest())
            for peer in pairs
            for dealer, seat in ((name, peer), (peer, name))
        }

    @classmethod
    def agree(cls, name: str, committee: Committee, links: Mapping[str, Link]) -> Common:
        """Exchange keys: one round, in which every seat writes to those after it."""
        place = committee.seats.index(name)
        keys = {group: new_key() for group in groups(committee) if group[0] == name}
        pairs: dict[str, bytes] = {}
        for peer in committee.seats[place + 1 :]:
            pairs[peer] = new_key()
            links[peer].send("keys", keys=[pairs[peer], *(key for group, key in keys.items() if peer in group)])
        for peer in committee.seats[:place]:
            due = [group for group in groups(committee) if group[0] == peer and name in group]
            pairs[peer], *found = _keys(links[peer].recv("keys").get("keys"), len(due) + 1, peer)
            keys.update(zip(due, found, strict=True))
        return cls(name, committee, keys, pairs)

    def between(self, dealer: str, seat: str) -> Stream:
        """The stream that stands for what ``dealer`` deals to ``seat``; one of them is this seat."""
        return self._between[dealer, seat]

    def total(self, parts: Iterator[Residues]) -> Residues:
        """This seat's share of the sum of what its groups hold, given in the order of the groups."""
        out: Residues | None = None
        for part, weight in zip(parts, self.weights, strict=True):
            term = part * weight.reshape(-1, *[1] * (part.ndim - 1))
            out = term if out is None else np.add(out, term, out=out)
        assert out is not None  # noqa: S101 - every seat is in a group
        return self.system.reduce(out)

    def zero(self, shape: tuple[int, ...], degree: int) -> Residues:
        """This seat's share of zero, uniform among sharings of a degree above the threshold and at most twice it.

        Of each group, x to the j times its polynomial vanishes at 0. Those of the group that the others know nothing of
        span all polynomials of the degree that vanish at 0 and at the others' points.
        """
        threshold = self.committee.threshold
        if not threshold < degree <= 2 * threshold:
            raise ValueError(f"no sharing of zero of degree {degree} without messages")
        point = self.committee.point(self.name)
        powers = [point**power for power in range(1, degree - threshold + 1)]

        def parts() -> Iterator[Residues]:
            for _, stream in self.held:
                out = self.system.uniform(shape, stream) * powers[0]
                for power in powers[1:]:
                    out += self.system.uniform(shape, stream) * power
                yield self.system.reduce(out)

        return self.total(parts())

    @cached_property
    def weights(self) -> list[Residues]:
        """Of each group's number, the factor of this seat for each prime."""
        committee = self.committee
        absent = [[committee.point(s) for s in committee.seats if s not in group] for group, _ in self.held]
        known, me = [(0, *points) for points in absent], committee.point(self.name)
        return [np.array([float(weights(prime, at, me)[0]) for prime in self.system.primes]) for at in known]


def _keys(found: Any, count: int, peer: str) -> list[bytes]:
    if not isinstance(found, list) or len(found) != count:
        raise ProtocolError(f"{peer} sent other keys than were due")
    if not all(isinstance(key, bytes) and len(key) == KEY_BYTES for key in found):
        raise ProtocolError(f"{peer} sent something that is no key")
    return list(found)
