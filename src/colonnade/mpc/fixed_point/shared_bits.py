"""Shared bits: Shamir sharing over GF(4) or GF(8), with 64 numbers in one word.

The field must have more elements than there are seats: three seats use GF(4), four to seven use GF(8). The elements of
the field are polynomials in x, and there is one *plane* of words for each power of x. In a plane, word ``w`` of row
``j`` holds bit ``j`` of the numbers from ``64 w`` to ``64 w + 63``. A secret is a bit, so 0 or 1 in the field; a share
can be any element. XOR needs no message. AND is a product, and then one round that lowers its degree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ShareError
from colonnade.message_schema import receive_message
from colonnade.mpc import messages
from colonnade.mpc.committee import Committee, PeerLink
from colonnade.mpc.pseudorandom_sharing import CommonKeys, key_groups
from colonnade.mpc.shamir import inconsistent_shares
from colonnade.randomness import Stream

if TYPE_CHECKING:
    from colonnade.mpc.verification.bit_products import BitProductClaims

BitWords = NDArray[np.uint64]
"""Public bits: an array (bits, words)."""
BitPlanes = NDArray[np.uint64]
"""Elements of the field: an array (powers of x, bits, words)."""

WORD = 64
_PLACES = np.uint64(1) << np.arange(WORD, dtype=np.uint64).reshape(-1, 1)
_PLACES_OF_BYTE = np.uint8(1) << np.arange(8, dtype=np.uint8).reshape(-1, 1)
_FEW = 1 << 11
"""For at most this many numbers all bits are moved in a few calls; for more numbers, byte by byte."""


@dataclass(frozen=True)
class BinaryField:
    """The field of 2^m elements. The bits of an element are the coefficients of a polynomial: 6 is x^2 + x."""

    m: int

    @cached_property
    def _products(self) -> list[list[int]]:
        size, modulus = 1 << self.m, {2: 0b111, 3: 0b1011}[self.m]

        def product(a: int, b: int) -> int:
            out = 0
            for power in range(self.m):
                out ^= (a << power) * (b >> power & 1)
            for power in range(2 * self.m - 2, self.m - 1, -1):
                out ^= (modulus << power - self.m) * (out >> power & 1)
            return out

        return [[product(a, b) for b in range(size)] for a in range(size)]

    def times(self, a: int, b: int) -> int:
        """The product of two elements."""
        return self._products[a][b]

    def divide(self, a: int, b: int) -> int:
        """The quotient of two elements."""
        return self._products[a][self._products[b].index(1)]

    def weights(self, known: tuple[int, ...], at: int) -> tuple[int, ...]:
        """Lagrange factors, as in :func:`colonnade.mpc.shamir.lagrange_weights`; their sum is 1."""
        return _field_weights(self, known, at)

    @cached_property
    def _recipes(self) -> list[tuple[NDArray[np.intp], list[tuple[int, int]]]]:
        """For each constant: the first plane of each plane of the product, and pairs (plane, plane to add to it)."""
        recipes = [(np.zeros(self.m, dtype=np.intp), [(plane, 0) for plane in range(self.m)])]
        for constant in range(1, 1 << self.m):
            images = [self.times(1 << source, constant) for source in range(self.m)]
            sources = [[i for i, image in enumerate(images) if image >> plane & 1] for plane in range(self.m)]
            rest = [(plane, source) for plane, several in enumerate(sources) for source in several[1:]]
            recipes.append((np.array([several[0] for several in sources], dtype=np.intp), rest))
        return recipes

    def multiply(self, a: BitPlanes, b: BitPlanes) -> BitPlanes:
        """The elementwise product, in a new array."""
        all_pairs = a[:, None] & b
        out: BitPlanes = all_pairs[0]
        if self.m == 2:  # x^2 = x + 1
            out ^= all_pairs[1, ::-1]
            out[1] ^= all_pairs[1, 1]
            return out
        out[1:] ^= all_pairs[1, :2]  # x^3 = x + 1 and x^4 = x^2 + x
        out[2] ^= all_pairs[2, 0]
        out[:2] ^= all_pairs[1, 2] ^ all_pairs[2, 1]
        out[1:] ^= all_pairs[2, 2]
        return out

    def scale(self, a: BitPlanes, constant: int) -> BitPlanes:
        """The product with a constant, by XORs only; if the constant is 1, the array itself."""
        if constant == 1:
            return a
        start, rest = self._recipes[constant]
        out = a.take(start, axis=0)
        for plane, source in rest:
            out[plane] ^= a[source]
        return out

    def combine(self, values: Sequence[BitPlanes], factors: Sequence[int]) -> BitPlanes:
        """The sum of the values, each times its factor."""
        total = self.scale(values[0], factors[0])
        for value, factor in zip(values[1:], factors[1:], strict=True):
            total = total ^ self.scale(value, factor)
        return total

    def interpolate(
        self, shares: Mapping[int, BitPlanes], degree: int, seats: Sequence[str], *, veiled: bool = False
    ) -> BitWords:
        """The secret bits. All shares must fit one polynomial of this degree, and its value at 0 must be 0 or 1.

        Of a ``veiled`` value only the first plane is a bit; the others are random.
        """
        points = sorted(shares)
        if len(points) <= degree:
            raise ShareError(f"{len(points)} shares cannot open a sharing of degree {degree} [SH002]")
        base, spare = tuple(points[: degree + 1]), points[degree + 1 :]
        values = [shares[point] for point in base]
        for point in spare:
            if not np.array_equal(self.combine(values, self.weights(base, point)), shares[point]):
                raise inconsistent_shares(seats)
        secret = self.combine(values, self.weights(base, 0))
        if not veiled and secret[1:].any():
            raise ShareError("an opened value is no bit: somebody computed something else [SH003]")
        opened: BitWords = secret[0]
        return opened


@cache
def _field_weights(field: BinaryField, known: tuple[int, ...], at: int) -> tuple[int, ...]:
    result = []
    for i in known:
        factor = 1
        for j in known:
            if j != i:
                factor = field.times(factor, field.divide(at ^ j, i ^ j))
        result.append(factor)
    return tuple(result)


@cache
def field_for(seats: int) -> BinaryField:
    """The smallest field in which this many seats have different points, none of them 0."""
    if not 3 <= seats <= 7:
        raise ValueError(f"a committee has 3 to 7 seats, not {seats} [VA087]")
    return BinaryField(2 if seats == 3 else 3)


def word_count(count: int) -> int:
    """How many words hold one bit of each of ``count`` numbers."""
    return -(-count // WORD)


def slice_bits(values: NDArray[np.uint64], bits: int) -> BitWords:
    """The lowest bits of the numbers as words: bit j of number i becomes bit i % 64 of word i // 64 of row j."""
    count, length = len(values), 8 * word_count(len(values))
    whole = -(-count // 8)
    out = np.zeros((bits, length), dtype=np.uint8)
    if count <= _FEW:
        out[:, :whole] = np.packbits((values & _PLACES[:bits]) != 0, axis=-1, bitorder="little")
        return out.view(np.uint64)
    bytes_of_each = np.ascontiguousarray(values, dtype="<u8").view(np.uint8).reshape(count, 8)
    for start in range(0, bits, 8):
        plane = np.ascontiguousarray(bytes_of_each[:, start // 8])
        for row, place in zip(out[start:], _PLACES_OF_BYTE, strict=False):
            row[:whole] = np.packbits(plane & place, bitorder="little")
    return out.view(np.uint64)


@dataclass(frozen=True)
class BitShares:
    """One seat's shares of the bits of ``count`` numbers, and the degree of the polynomials that they are values of.

    The planes are never changed, because they may still be waiting to be sent. The last word may have room for more
    than ``count`` numbers. These additional numbers are computed too, and tell nothing about the others.
    """

    planes: BitPlanes
    degree: int
    count: int

    @property
    def bits(self) -> int:
        """How many bits of each number are shared."""
        return int(self.planes.shape[1])

    def __getitem__(self, rows: slice) -> BitShares:
        """Some of the bits."""
        return BitShares(self.planes[:, rows], self.degree, self.count)

    def take(self, rows: NDArray[np.intp]) -> BitShares:
        """The bits in these rows, in this order."""
        return BitShares(self.planes.take(rows, axis=1), self.degree, self.count)

    @staticmethod
    def stack(parts: Sequence[BitShares]) -> BitShares:
        """The bits of all parts, one after the other, so that they are sent in one message."""
        first = parts[0]
        if any(part.count != first.count for part in parts):
            raise ValueError("only bits of as many numbers can be stacked [VA088]")
        degree = max(part.degree for part in parts)
        return BitShares(np.concatenate([part.planes for part in parts], axis=1), degree, first.count)


@dataclass(frozen=True)
class _DegreeReduction:
    """What one seat does to lower a degree; it is the same every time."""

    weight: int
    """The factor of this seat's share before it is dealt; 0 if only other seats deal."""
    seeds: list[Stream]
    steps: list[tuple[str, tuple[int, ...]]]
    """Who gets a share, this seat last, and the factors of the masks that turn the share before into this one."""
    drawn_streams: list[Stream]
    senders: list[str]


class BitEngine:
    """What one seat does with shared bits; :attr:`claims` is set where the seats check each other's work."""

    def __init__(self, name: str, committee: Committee, links: Mapping[str, PeerLink], common: CommonKeys) -> None:
        self.name, self.committee, self.common = name, committee, common
        self.field = field_for(len(committee.seats))
        self.links = links
        self._others = [seat for seat in committee.seats if seat != name]
        self._reductions: dict[int, _DegreeReduction] = {}
        self.claims: BitProductClaims | None = None

    def group_bits(self, known: Sequence[BitWords], count: int) -> list[BitShares]:
        """For every group, this seat's shares of the words that the members of the group know; nothing is sent.

        ``known`` are the words of the groups of this seat, in the order of ``common.streams``. For the other groups its
        share is zero.
        """
        mine, out = iter(zip(known, self.factors, strict=True)), []
        for group in key_groups(self.committee):
            planes = np.zeros((self.field.m, *known[0].shape), dtype=np.uint64)
            if self.name in group:
                words, factor = next(mine)
                planes[[power for power in range(self.field.m) if factor >> power & 1]] = words
            out.append(BitShares(planes, self.committee.threshold, count))
        return out

    def random_elements(self, known: Sequence[BitPlanes], count: int) -> BitShares:
        """This seat's share of the sum of the elements that each group knows, given as planes; nothing is sent."""
        return BitShares(self.field.combine(known, self.factors), self.committee.threshold, count)

    def xor(self, left: BitShares, right: BitShares) -> BitShares:
        """The exclusive or; nothing is sent."""
        return BitShares(left.planes ^ right.planes, max(left.degree, right.degree), left.count)

    def xor_public(self, shares: BitShares, words: BitWords) -> BitShares:
        """The exclusive or with public bits, which every seat adds to its share; nothing is sent."""
        planes = shares.planes.copy()
        planes[0] ^= words
        return BitShares(planes, shares.degree, shares.count)

    def multiply(self, left: BitShares, right: BitShares) -> BitShares:
        """The product; nothing is sent, and the degrees are added."""
        if left.count != right.count:
            raise ValueError("only bits of as many numbers can be multiplied [VA089]")
        planes = self.field.multiply(left.planes, right.planes)
        return BitShares(planes, left.degree + right.degree, left.count)

    def and_(self, left: BitShares, right: BitShares) -> BitShares:
        """The product at degree ``threshold``: one round (:meth:`reduce_degree`)."""
        if left.count != right.count:
            raise ValueError("only bits of as many numbers can be multiplied [VA090]")
        planes = self.product_planes(left.planes, right.planes, left.degree + right.degree)
        return BitShares(planes, self.committee.threshold, left.count)

    def product_planes(self, left: BitPlanes, right: BitPlanes, degree: int) -> BitPlanes:
        """The product of planes at degree ``threshold``, which is claimed where claims are made: one round."""
        result = self.reduce_degree_planes(self.field.multiply(left, right), degree)
        if self.claims is not None:
            self.claims.product(left, right, result)
        return result

    def reduce_degree(self, shares: BitShares) -> BitShares:
        """The same bits at degree ``threshold``: one round, in which the first ``degree + 1`` seats deal their shares.

        For each dealer, ``threshold`` seats draw their share from a stream that they have in common with it. The dealer
        sends shares to the other ``seats - 1 - threshold`` seats, each of m words for 64 bits. With three seats, each
        seat sends one share.
        """
        planes = self.reduce_degree_planes(shares.planes, shares.degree)
        return BitShares(planes, self.committee.threshold, shares.count)

    def reduce_degree_planes(self, planes: BitPlanes, degree: int) -> BitPlanes:
        """Like :meth:`reduce_degree`, for planes; the result is a new array."""
        plan = self._reductions.get(degree) or self._plan(degree)
        total = self._deal(planes, plan) if plan.weight else np.zeros(planes.shape, dtype=np.uint64)
        for stream in plan.drawn_streams:
            total ^= stream.uint64(planes.shape)
        for dealer in plan.senders:
            total ^= receive_message(self.links[dealer], dealer, messages.bits_message("bits", planes.shape))["words"]
        return total

    def _deal(self, planes: BitPlanes, plan: _DegreeReduction) -> BitPlanes:
        """Send the other seats shares of this seat's share; returns the share that this seat keeps."""
        share = secret = self.field.scale(planes, plan.weight)
        masks = [stream.uint64(planes.shape) for stream in plan.seeds]
        for mask in masks:
            mask ^= secret
        for seat, factors in plan.steps:
            for mask, factor in zip(masks, factors, strict=True):
                if factor:
                    share = share ^ self.field.scale(mask, factor)
            if seat != self.name:
                self.links[seat].send("bits", words=share)
        return share

    def _plan(self, degree: int) -> _DegreeReduction:
        committee, name = self.committee, self.name
        threshold, dealers = committee.threshold, committee.seats[: degree + 1]
        if len(dealers) <= degree:
            raise ValueError(f"{len(dealers)} seats cannot lower a sharing of degree {degree} [VA091]")
        points = tuple(committee.point(seat) for seat in dealers)
        weights = dict(zip(dealers, self.field.weights(points, 0), strict=True))
        seeded = committee.seats_seeded_by(name, threshold)
        known = (0, *(committee.point(seat) for seat in seeded))
        # The factors sum to 1, so a share is the secret plus multiples of (mask - secret). Each share is computed from
        # the one before it: with three seats, the second of two shares is the first plus one mask.
        steps, before = [], (0,) * threshold
        for seat in [seat for seat in self._others if seat not in seeded] + [name]:
            factors = self.field.weights(known, committee.point(seat))[1:]
            steps.append((seat, tuple(a ^ b for a, b in zip(factors, before, strict=True))))
            before = factors
        drawing = {dealer: name in committee.seats_seeded_by(dealer, threshold) for dealer in dealers if dealer != name}
        plan = self._reductions[degree] = _DegreeReduction(
            weights.get(name, 0),
            [self.common.pair_stream(name, seat) for seat in seeded],
            steps,
            [self.common.pair_stream(dealer, name) for dealer, draws in drawing.items() if draws],
            [dealer for dealer, draws in drawing.items() if not draws],
        )
        return plan

    def open(self, shares: BitShares, *, veiled: bool = False) -> BitWords:
        """Open bits to all seats: one round, in which every seat sends its share to every other seat.

        A share has m words for 64 bits. All shares must fit one polynomial. They tell a coalition nothing but the bits,
        because the bits and the coalition's own shares determine all other shares. With ``veiled``, random elements of
        the whole field were added, of which the first plane is a coin: whatever is opened then is uniform, also where
        somebody made it something else than a bit.
        """
        if shares.degree != self.committee.threshold:
            raise ValueError(f"bits of degree {shares.degree} must be lowered before they are opened [VA092]")
        planes = np.ascontiguousarray(shares.planes)
        for seat in self._others:
            self.links[seat].send("opening", words=planes)
        found = {self.committee.point(self.name): planes}
        for seat in self._others:
            words = receive_message(self.links[seat], seat, messages.bits_message("opening", planes.shape))["words"]
            found[self.committee.point(seat)] = words
        opened = self.field.interpolate(found, shares.degree, self.committee.seats, veiled=veiled)
        if shares.count % WORD:
            opened[:, -1] &= np.uint64((1 << shares.count % WORD) - 1)
        return opened

    @cached_property
    def factors(self) -> list[int]:
        """For each group, the value at this seat of the polynomial that is 1 at 0 and 0 at seats outside the group."""
        committee = self.committee
        absent = [[committee.point(s) for s in committee.seats if s not in group] for group, _ in self.common.streams]
        return [self.field.weights((0, *points), committee.point(self.name))[0] for points in absent]
