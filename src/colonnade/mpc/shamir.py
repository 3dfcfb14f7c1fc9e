"""Sharing over a residue system, on polynomials or in parts: computing with shares, and dealing them; sends nothing.

A sharing of degree ``d`` among nodes 1..n is a polynomial that has the secret at 0. The secret and ``d`` of the
shares determine all other shares. So a dealer draws ``d`` shares from seeds, sends the seeds instead of these shares,
and computes the other shares.

The *word* of a residue x modulo p is x + (p - 1) / 2, a number from 0 to p - 1; words are what streams give and what
is sent. Where the polynomials are lines, as with a threshold of 1, the shares of all seats follow from the word of
the secret and the drawn word by additions, halvings and exact divisions of 32-bit integers. That takes half the
memory of floats and no reduction, and gives the same shares (docs/theory/residues.md).

Three seats that follow the protocol take parts, which is less to compute than a share on a line. A dealer splits each
residue X into U + V. The seat that follows it draws U from the stream that both have, and the other seat is sent V.
Each alone is uniform. The dealer knows X, U and V. From what every seat holds of two dealers, the three seats can
compute numbers that add up to a product of theirs (docs/theory/parts.md).

Seats have randomness in common, so that masks and sharings of zero need no message. A *group* is a set of all seats but
``threshold`` of them, and each group has a key. If ``threshold`` seats put together all they know, there is still one
group whose key they do not know; its part makes a sum over all groups uniform to them (pseudorandom secret sharing). A
number that all members of a group know is already shared with degree ``threshold``, by the polynomial that has this
number at 0 and is 0 at the seats outside the group. In addition every two seats have a key in common, for shares that
one of them deals and the other draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cache, cached_property, lru_cache
from hashlib import sha256
from itertools import combinations, count
from math import prod

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import NO_RESULT, ShareError
from colonnade.message_schema import FixedBytes, ItemList, MessageSchema, receive_message
from colonnade.mpc.committee import Committee, PeerLink
from colonnade.mpc.messages import PackedWords, pack, pack_words, quarter_length
from colonnade.mpc.residues import (
    CHUNK,
    FEW,
    Residues,
    ResidueSystem,
    ScratchRows,
    broadcast_shape,
    centred,
    chunks,
    constant_rows,
    fill_uniform,
    inverse,
    reduce,
    uniform_words,
    words_to_residues,
)
from colonnade.randomness import KEY_BYTES, Stream, new_key

Chunk = NDArray[np.float64]


@cache
def lagrange_weights(prime: int, known: tuple[int, ...], at: int) -> list[int]:
    """Lagrange factors: the value at ``at`` is the sum of the values at ``known``, each times its factor."""
    result = []
    for i in known:
        top = bottom = 1
        for j in known:
            if j != i:
                top = top * (at - j) % prime
                bottom = bottom * (i - j) % prime
        result.append(centred(top * pow(bottom, -1, prime), prime))
    return result


def complete_shares(
    system: ResidueSystem, secret: Residues, drawn: Mapping[int, Stream], nodes: Sequence[int]
) -> dict[int, Residues]:
    """The shares of ``nodes``, for the polynomial with ``secret`` at 0 and numbers from streams at ``drawn``."""
    streams = list(drawn.values())
    if secret.size <= FEW:
        known = [secret, *(system.uniform(secret.shape[1:], stream) for stream in streams)]
        return {node: evaluate_at(system, known, (0, *drawn), node) for node in nodes}
    shares = {node: np.empty(secret.shape) for node in nodes}
    scratch = ScratchRows(len(streams) + 1)
    for index, prime in enumerate(system.primes):
        factors = {node: lagrange_weights(prime, (0, *drawn), node) for node in nodes}
        targets = [chunks(share[index]) for share in shares.values()]
        for known, *parts in zip(chunks(secret[index]), *targets, strict=True):
            *values, spare = scratch.of(known.size)
            for value, stream in zip(values, streams, strict=True):
                fill_uniform(
                    prime, value, stream
                )  # chunk by chunk, as the receiving seat draws too: a chunk fits in the cache
            for node, part in zip(nodes, parts, strict=True):
                _weighted_sum(prime, [known, *values], factors[node], part, spare)
    return shares


@lru_cache(maxsize=256)
def _weight_arrays(
    system: ResidueSystem, points: tuple[int, ...], at: int, shape: tuple[int, ...], digits: bool
) -> list[Residues]:
    """For each point, its weights modulo all primes, as one array of this shape."""
    rows = [_point_weights(system, index, points, at, digits) for index in range(len(system.primes))]
    return [constant_rows(column, shape) for column in zip(*rows, strict=True)]


def _point_weights(system: ResidueSystem, index: int, points: tuple[int, ...], at: int, digits: bool) -> list[float]:
    prime, factor = system.primes[index], system.to_digits[index] if digits else 1
    return [float(centred(weight * factor, prime)) for weight in lagrange_weights(prime, points, at)]


def evaluate_at(
    system: ResidueSystem, values: Sequence[Residues], points: Sequence[int], at: int, *, digits: bool = False
) -> Residues:
    """The value at ``at`` of the polynomial that has ``values`` at ``points``, as residues or as digits."""
    if values[0].size <= FEW:
        rows = _weight_arrays(system, tuple(points), at, broadcast_shape(values[0].shape), digits)
        total = values[0] * rows[0]
        for value, row in zip(values[1:], rows[1:], strict=True):
            total += value * row
        return system.reduce(total)
    out, scratch = np.empty(values[0].shape), ScratchRows(1)
    for index, prime in enumerate(system.primes):
        factors = _point_weights(system, index, tuple(points), at, digits)
        parts = [chunks(value[index]) for value in values]
        for target, *sources in zip(chunks(out[index]), *parts, strict=True):
            _weighted_sum(prime, sources, factors, target, *scratch.of(target.size))
    return out


def _weighted_sum(prime: int, sources: Sequence[Chunk], factors: Sequence[float], target: Chunk, spare: Chunk) -> None:
    np.multiply(sources[0], factors[0], out=target)
    for factor, source in zip(factors[1:], sources[1:], strict=True):
        np.multiply(source, factor, out=spare)
        target += spare
    reduce(target, prime, spare)


def reconstruct(
    system: ResidueSystem, shares: Mapping[int, Residues], degree: int, *, digits: bool = False
) -> Residues:
    """The secret, as residues or as digits. All shares, also those beyond ``degree + 1``, must fit one polynomial."""
    points = sorted(shares)
    if len(points) <= degree:
        raise ShareError(f"{len(points)} shares cannot open a sharing of degree {degree} [SH007]")
    base, spare = points[: degree + 1], points[degree + 1 :]
    values = [shares[point] for point in base]
    for point in spare:
        if not np.array_equal(evaluate_at(system, values, base, point), shares[point]):
            raise inconsistent_shares([f"node {point}" for point in points])
    return evaluate_at(system, values, base, 0, digits=digits)


def inconsistent_shares(seats: Sequence[str]) -> ShareError:
    """The error for shares that do not lie on one polynomial."""
    return ShareError(
        f"the shares of {', '.join(seats)} do not lie on one polynomial, as one of them computed or sent something "
        f"else: {NO_RESULT} [SH008]"
    )


Numbers = NDArray[np.uint32]
DealingFunction = Callable[
    [ResidueSystem, Residues, Mapping[int, Stream], int | None, Sequence[int]],
    tuple[Residues | None, dict[int, PackedWords]],
]
"""A way to deal: what :func:`deal_shares` takes and returns."""


def deal_shares(
    system: ResidueSystem, secret: Residues, drawn: Mapping[int, Stream], own: int | None, others: Sequence[int]
) -> tuple[Residues | None, dict[int, PackedWords]]:
    """The share at the dealer's own point, if it has one, and what the seats at ``others`` are sent, by their points.

    The polynomials have ``secret`` at 0 and numbers from streams at ``drawn``.
    """
    if len(drawn) == 1 and secret.size > FEW:
        [(point, stream)] = drawn.items()
        return _LineDealing(system, secret, point, stream, own, others).deal()
    shares = complete_shares(system, secret, drawn, [*others, *([] if own is None else [own])])
    return None if own is None else shares[own], {node: pack(shares[node], system) for node in others}


class _LineDealing:
    """Polynomials of degree 1, one for each number, dealt a chunk at a time."""

    def __init__(
        self,
        system: ResidueSystem,
        secret: Residues,
        point: int,
        stream: Stream,
        own: int | None,
        others: Sequence[int],
    ) -> None:
        self.system, self.secret, self.point, self.stream, self.own = system, secret, point, stream, own
        self.count = prod(secret.shape[1:])
        self.last = max([*others, *([] if own is None else [own])])
        self.mine = None if own is None else np.empty((len(system.primes), self.count))
        self.rows = {node: np.zeros(4 * quarter_length(self.count), dtype=np.uint32) for node in others}
        """The words that each other seat gets, modulo one prime."""
        self.scratch = np.empty((4, CHUNK), dtype=np.uint32)

    def deal(self) -> tuple[Residues | None, dict[int, PackedWords]]:
        """The dealer's own share, and what the others are sent."""
        primes = self.system.primes
        sent = {node: np.empty((len(primes), 3 * quarter_length(self.count)), dtype=np.uint32) for node in self.rows}
        for index, secret in enumerate(to_uint32_rows(self.secret)):
            for start in range(0, self.count, CHUNK):
                known = secret[start : start + CHUNK]
                drawn = uniform_words(primes[index], known.size, self.stream)  # as the receiving seat draws them too
                self._chunk(index, start, known, drawn)
            for node, words in self.rows.items():
                pack_words(words, sent[node][index])
        return None if self.mine is None else self.mine.reshape(self.secret.shape), dict(sent)

    def _chunk(self, index: int, start: int, known: Numbers, drawn: Numbers) -> None:
        """The words of all shares of some numbers, modulo one prime, from node to node along the line."""
        prime, size = np.uint32(self.system.primes[index]), known.size
        secret, slope, mine, spare = (row[:size] for row in self.scratch)
        np.add(known, prime >> 1, out=secret)
        np.subtract(drawn, secret, out=slope)
        np.add(slope, prime, out=spare)
        np.minimum(slope, spare, out=slope)
        _divide(slope, self.point, int(prime), spare)
        at = secret
        for node in range(1, self.last + 1):
            if node == self.point:
                at = drawn
                continue
            here = slice(start, start + size)
            target = self.rows[node][here] if node in self.rows else mine
            np.add(at, slope, out=target)
            np.subtract(target, prime, out=spare)
            at = np.minimum(target, spare, out=target)
            if node == self.own and self.mine is not None:
                words_to_residues(at, int(prime), self.mine[index, here], spare)


def to_uint32_rows(secret: Residues) -> Iterator[Numbers]:
    """For each prime the residues as integers, negative ones modulo 2^32."""
    if secret.strides[0] == 0 and len(secret):  # small integers have the same residues modulo all primes
        whole = _integers(secret[0])
        yield from (whole for _ in secret)
    else:
        yield from map(_integers, secret)


def _integers(values: Residues) -> Numbers:
    return values.reshape(-1).astype(np.int32).view(np.uint32)


def _divide(values: Numbers, divisor: int, prime: int, spare: Numbers) -> None:
    """Divide numbers below an odd prime by a small integer modulo this prime, in place."""
    while divisor % 2 == 0:
        np.bitwise_and(values, np.uint32(1), out=spare)
        np.multiply(spare, np.uint32(prime), out=spare)
        values += spare  # an odd number plus the prime is even
        values >>= np.uint32(1)
        divisor //= 2
    if divisor == 1:
        return
    # One of v, v + p, .. v + (divisor - 1) p is a multiple of the divisor. Times the divisor's inverse modulo 2^32, it
    # gives the quotient, which is below p; any other gives at least 2^32 / divisor.
    reciprocal = pow(divisor, -1, 2**32)
    values *= np.uint32(reciprocal)
    step = np.uint32(prime * reciprocal % 2**32)
    np.copyto(spare, values)
    for _ in range(divisor - 1):
        spare += step
        np.minimum(values, spare, out=values)


REPLICATED_SEATS = 3


def neighbours(committee: Committee, seat: str) -> tuple[str, str]:
    """The seat before this one, which it draws U from, and the seat after it, which sends it V."""
    seats, place = committee.seats, committee.seats.index(seat)
    return seats[place - 1], seats[(place + 1) % REPLICATED_SEATS]


def split_replicated(
    system: ResidueSystem, secret: Residues, drawn: Mapping[int, Stream], own: int | None, others: Sequence[int]
) -> tuple[Residues | None, dict[int, PackedWords]]:
    """V as residues, and as words for the one seat in ``others``; ``drawn`` has the stream of U."""
    [stream], [other] = drawn.values(), others
    if secret.size <= FEW:
        rest = system.reduce(secret - system.uniform(secret.shape[1:], stream))
        return rest, {other: pack(rest, system)}
    count, primes = prod(secret.shape[1:]), system.primes
    mine, sent = np.empty((len(primes), count)), np.empty((len(primes), 3 * quarter_length(count)), dtype=np.uint32)
    row, scratch = np.zeros(4 * quarter_length(count), dtype=np.uint32), np.empty(CHUNK, dtype=np.uint32)
    for prime, known, out, words in zip(primes, to_uint32_rows(secret), mine, sent, strict=True):
        for start in range(0, count, CHUNK):
            here = slice(start, min(count, start + CHUNK))
            target = row[here]
            spare = scratch[: target.size]
            np.subtract(known[here], uniform_words(prime, target.size, stream), out=target)
            # The word of V is X - 1 less the word of U, plus p once or twice if that is negative: then it is smallest.
            target -= np.uint32(1)
            np.add(target, np.uint32(prime), out=spare)
            np.minimum(target, spare, out=target)
            spare += np.uint32(prime)
            np.minimum(target, spare, out=target)
            words_to_residues(target, prime, out[here], spare)
        pack_words(row, words)
    return mine.reshape(secret.shape), {other: sent}


def to_polynomial_share(system: ResidueSystem, values: Residues, point: int) -> Residues:
    """A seat's part of a sum over three seats, as its share in a polynomial of degree 2 that has the sum at 0."""
    out = np.empty(values.shape)
    for prime, part, found in zip(system.primes, values, out, strict=True):
        np.multiply(part, inverse(lagrange_weights(prime, (1, 2, 3), 0)[point - 1], prime), out=found)
    return system.reduce(out)


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
