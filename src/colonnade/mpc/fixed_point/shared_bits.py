"""Shared bits: Shamir sharing over GF(4) or GF(8), with 64 numbers in one word; and circuits on them.

The field must have more elements than there are seats: three seats use GF(4), four to seven use GF(8). The elements of
the field are polynomials in x, and there is one *plane* of words for each power of x. In a plane, word ``w`` of row
``j`` holds bit ``j`` of the numbers from ``64 w`` to ``64 w + 63``. A secret is a bit, so 0 or 1 in the field; a share
can be any element. XOR needs no message. AND is a product, and then one round that lowers its degree.

Circuits are sums, comparison and bit length. A secret number is opened under a mask whose bits are shared, so one input
of a circuit is public: ``public`` are the words of opened numbers p, and ``secret`` are shares of the bits of masks s.
Neighbouring stretches of bits are joined in a tree, with one round for each level. The first level needs one AND for
two bits: let d be the shared p XOR s of a bit. Everything about this bit is linear in d, so everything about two bits
is linear in d, d' and d d'.

A network is computed once, as lists of row numbers, because for few numbers the calls cost more than the arithmetic.
An AND is one bit whose degree is lowered, also if it is the sum of two products. It costs as many bytes as
:meth:`BitEngine.reduce_degree` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ShareError
from colonnade.message_schema import receive_message
from colonnade.mpc import messages
from colonnade.mpc.committee import Committee, PeerLink
from colonnade.mpc.shamir import CommonKeys, inconsistent_shares, key_groups
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
    return tuple(reduce(field.times, (field.divide(at ^ j, i ^ j) for j in known if j != i), 1) for i in known)


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

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> BitShares:
        """Some of the bits; the bits in these rows, in this order."""
        chosen = self.planes[:, rows] if isinstance(rows, slice) else self.planes.take(rows, axis=1)
        return BitShares(chosen, self.degree, self.count)

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

    def and_(self, left: BitShares, right: BitShares) -> BitShares:
        """The product at degree ``threshold``: one round (:meth:`reduce_degree`)."""
        if left.count != right.count:
            raise ValueError("only bits of as many numbers can be multiplied [VA090]")
        planes = self.product_planes(left.planes, right.planes, left.degree + right.degree)
        return BitShares(planes, self.committee.threshold, left.count)

    def product_planes(self, left: BitPlanes, right: BitPlanes, degree: int) -> BitPlanes:
        """The product of planes at degree ``threshold``, which is claimed where claims are made: one round."""
        result = self.reduce_degree(self.field.multiply(left, right), degree)
        if self.claims is not None:
            self.claims.product(left, right, result)
        return result

    def reduce_degree(self, planes: BitPlanes, degree: int) -> BitPlanes:
        """The same bits at degree ``threshold`` in a new array: one round.

        The first ``degree + 1`` seats deal their shares. For each dealer, ``threshold`` seats draw their share from a
        stream that they have in common with it. The dealer sends shares to the other ``seats - 1 - threshold`` seats,
        each of m words for 64 bits. With three seats, each seat sends one share.
        """
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


CircuitRow = tuple[str, int]
"""The meaning of a row of the state, and the bit that it belongs to."""
RowNumbers = NDArray[np.intp]

_LENGTH_KINDS = ("Y", "Z", "dY", "dZ", "G")


@dataclass(frozen=True)
class _RowUpdate:
    """Sets a row to the sum of one or two products of rows; with ``onto``, adds one product to the row."""

    row: CircuitRow
    products: tuple[tuple[CircuitRow, CircuitRow], ...]
    onto: bool = False

    @property
    def read(self) -> Iterator[CircuitRow]:
        """The rows that this update reads."""
        yield from (row for pair in self.products for row in pair)
        if self.onto:
            yield self.row


@dataclass(frozen=True)
class _CircuitLevel:
    """One round. The next state has the rows of the products first, then the rows that are kept."""

    left: RowNumbers
    right: RowNumbers
    paired: int
    """How many updates have two products. The second products come last, and are added before the round."""
    added: RowNumbers
    """The rows that are added to the products of the first updates."""
    kept: RowNumbers


@dataclass(frozen=True)
class BooleanCircuit:
    """Rounds of products of rows of shared bits, and the rows of the results after the last round."""

    levels: tuple[_CircuitLevel, ...]
    results: RowNumbers


def _lay_out(
    first: Iterable[CircuitRow], rounds: Sequence[Sequence[_RowUpdate]], results: Sequence[CircuitRow]
) -> BooleanCircuit:
    """The network of these updates, without the rows that no result needs."""
    needed = [set(results)]
    for updates in reversed(rounds):
        used = [update for update in updates if update.row in needed[-1]]
        needed.append((needed[-1] - {update.row for update in used}).union(*(update.read for update in used)))
    rows, levels = list(first), []
    for updates, later in zip(rounds, reversed(needed[:-1]), strict=True):
        used = sorted((u for u in updates if u.row in later), key=lambda u: (not u.onto, len(u.products)))
        made = [update.row for update in used]
        kept = sorted(later.difference(made))
        second = [update.products[1] for update in used if len(update.products) > 1]
        products = [update.products[0] for update in used] + second
        at = {row: number for number, row in enumerate(rows)}
        levels.append(
            _CircuitLevel(
                _row_numbers(at, (left for left, _ in products)),
                _row_numbers(at, (right for _, right in products)),
                len(second),
                _row_numbers(at, (update.row for update in used if update.onto)),
                _row_numbers(at, kept),
            )
        )
        rows = made + kept
    return BooleanCircuit(tuple(levels), _row_numbers({row: number for number, row in enumerate(rows)}, results))


def _row_numbers(at: dict[CircuitRow, int], rows: Iterable[CircuitRow]) -> RowNumbers:
    return np.array([at[row] for row in rows], dtype=np.intp)


def _merges(bits: int, size: int) -> Iterator[list[tuple[int, int, int]]]:
    """For each level, the neighbours that are joined: the first bit of the lower and of the upper one, and the end."""
    while size < bits:
        yield [(low, low + size, min(low + 2 * size, bits)) for low in range(0, bits - size, 2 * size)]
        size *= 2


@cache
def borrow_network(bits: int, size: int, results: tuple[int, ...]) -> BooleanCircuit:
    """For each j in ``results``: whether p < s in the bits up to j. The input has stretches of ``size`` bits.

    For the bits from the start of a stretch to bit j, G tells whether p < s there, and E whether p = s. An upper part
    with G', E' and a lower part with G'', E'' together have G = G' + E' G'' and E = E' E''.
    """
    rounds = []
    for merges in _merges(bits, size):
        updates = []
        for _, middle, end in merges:
            for j in range(middle, end):
                updates.append(_RowUpdate(("G", j), ((("E", j), ("G", middle - 1)),), onto=True))
                updates.append(_RowUpdate(("E", j), ((("E", j), ("E", middle - 1)),)))
        rounds.append(updates)
    return _lay_out(_all_rows("GE", bits), rounds, [("G", j) for j in results])


@cache
def length_network(bits: int) -> BooleanCircuit:
    """For each j: whether x = p - s modulo 2^bits is below 2^j. The input has pairs of bits.

    Let c be the borrow from the bits below j. Read the bits of p and s from j up as two numbers. x is below 2^j if the
    number of p is c more than the number of s, modulo a power of two. Compare these bits from the top. The difference
    stays 0 while the bits are equal, becomes 1 at a bit that is 1 in p only, and then stays 1 only while the bit is 1
    in s only. It may also be 1 at the start, because of the modulus. So a stretch of bits is a matrix M = (a, m; 0, b)
    of bits. The matrix of two stretches is their product, with the upper one on the left. x is below 2^j if
    (1, 1) M (1 - c, c)' = 1 for all bits from j up.

    For bit j in a stretch, (Y + Z, Z)' is M (1 - c, c)' for the bits from j to the end of the stretch, if the stretch
    gets no borrow from below. dY and dZ are the changes of Y and Z if it gets one. A stretch below, with G and E as in
    :func:`borrow_network`, turns Y into Y + G dY and dY into E dY, and does the same with Z and dZ. A stretch above,
    with Y', dY' and dZ' at its first bit, turns Y into Y' Y + dY' Z and Z into dZ' Z, and does the same with dY and dZ.
    At the first bit of a stretch Z = 0 and Y = E. When all stretches are joined, Y is the result.
    """
    rounds = []
    for merges in _merges(bits, 2):
        updates = []
        for low, middle, end in merges:
            equal, less = ("Y", low), ("G", middle - 1)
            for j, kind in product(range(middle, end), "YZ"):
                empty = kind == "Z" and j == middle
                change = ("d" + kind, j)
                updates.append(_RowUpdate((kind, j), ((less, change),), onto=not empty))
                updates.append(_RowUpdate(change, ((equal, change),)))
            updates += [update for j in range(low, middle) for update in _lower_updates(middle, j, first=j == low)]
            updates.append(_RowUpdate(("G", end - 1), ((("Y", middle), less),), onto=True))
        rounds.append(updates)
    return _lay_out(_all_rows(_LENGTH_KINDS, bits), rounds, [("Y", j) for j in range(bits)])


def _lower_updates(above: int, j: int, *, first: bool) -> Iterator[_RowUpdate]:
    """The updates of bit j of a stretch when a stretch that starts at bit ``above`` is joined on top."""
    Y, dY, dZ = ("Y", above), ("dY", above), ("dZ", above)
    yield _RowUpdate(("Y", j), ((Y, ("Y", j)),) if first else ((Y, ("Y", j)), (dY, ("Z", j))))
    yield _RowUpdate(("dY", j), ((Y, ("dY", j)), (dY, ("dZ", j))))
    yield _RowUpdate(("dZ", j), ((dZ, ("dZ", j)),))
    if not first:
        yield _RowUpdate(("Z", j), ((dZ, ("Z", j)),))


def _all_rows(kinds: Iterable[str], bits: int) -> list[CircuitRow]:
    return [(kind, j) for kind in kinds for j in range(bits)]


def _evaluate(engine: BitEngine, network: BooleanCircuit, state: BitPlanes) -> BitPlanes:
    degree = 2 * engine.committee.threshold
    for level in network.levels:
        left, right = state.take(level.left, axis=1), state.take(level.right, axis=1)
        if engine.claims is None:
            lowered = engine.reduce_degree(_add_second_products(engine.field.multiply(left, right), level), degree)
        else:  # each product is claimed by itself, and claims keep what they are given
            lowered = _add_second_products(engine.product_planes(left, right, degree).copy(), level)
        if level.added.size:
            lowered[:, : level.added.size] ^= state.take(level.added, axis=1)
        if level.kept.size:
            lowered = np.concatenate((lowered, state.take(level.kept, axis=1)), axis=1)
        state = lowered
    return state.take(network.results, axis=1)


def _add_second_products(products: BitPlanes, level: _CircuitLevel) -> BitPlanes:
    """One product for each update: the second products are added to the first ones."""
    if not level.paired:
        return products
    made = len(level.left) - level.paired
    products[:, made - level.paired : made] ^= products[:, made:]
    return products[:, :made]


def _join_pairs(engine: BitEngine, different: BitShares) -> tuple[BitPlanes, BitPlanes, BitPlanes]:
    """The first level: the lower and the upper bit of each pair of neighbours, and their product."""
    paired = different.bits - different.bits % 2
    lower, upper = different[0:paired:2], different[1:paired:2]
    return lower.planes, upper.planes, engine.and_(lower, upper).planes if paired else lower.planes


def _compute_borrows(engine: BitEngine, public: BitWords, different: BitShares, results: tuple[int, ...]) -> BitPlanes:
    """For each j in ``results``: whether public < secret in the bits up to j."""
    bits, d = different.bits, different.planes
    zero = ~public
    lower, upper, both = _join_pairs(engine, different)
    state = np.empty((len(d), 2, *d.shape[1:]), dtype=np.uint64)
    less, equal = state[:, 0], state[:, 1]
    np.bitwise_and(d, zero, out=less)
    equal[:, 0::2] = d[:, 0::2]
    np.bitwise_xor(lower, both, out=equal[:, 1::2])
    less[:, 1::2] ^= equal[:, 1::2] & zero[0 : bits - bits % 2 : 2]
    equal[:, 1::2] ^= upper
    np.invert(equal[0], out=equal[0])
    return _evaluate(engine, borrow_network(bits, 2, results), state.reshape(len(d), 2 * bits, -1))


def is_below(engine: BitEngine, public: BitWords, secret: BitShares) -> BitShares:
    """One bit for each number: whether public < secret.

    ceil(log2 bits) rounds; about 1.5 ANDs for each bit (30 for 24 bits, 42 for 32): one to join two bits, and two to
    join two stretches, or one if it is the lowest stretch.
    """
    planes = _compute_borrows(engine, public, engine.xor_public(secret, public), (secret.bits - 1,))
    return BitShares(planes, secret.degree, secret.count)


def top_bit_of_difference(engine: BitEngine, public: BitWords, secret: BitShares) -> BitShares:
    """The top bit of (public - secret) modulo 2^bits.

    As many rounds and ANDs as :func:`is_below` with one bit less; none for a single bit.
    """
    top = engine.xor_public(secret[-1:], public[-1:])
    return engine.xor(top, is_below(engine, public[:-1], secret[:-1])) if secret.bits > 1 else top


def bit_lengths(engine: BitEngine, public: BitWords, secret: BitShares) -> BitShares:
    """As many bits as the numbers have; bit j tells whether (public - secret) modulo 2^bits is below 2^j.

    The sum of these bits is the number of leading zeros. ceil(log2 bits) rounds; about 2 bits log2(bits) ANDs (212 for
    24 bits, 320 for 32).
    """
    bits, different = secret.bits, engine.xor_public(secret, public)
    d, zero, even = different.planes, ~public, bits - bits % 2
    lower, upper, both = _join_pairs(engine, different)
    state = np.empty((len(d), 5, *d.shape[1:]), dtype=np.uint64)
    Y, Z, dY, dZ, G = state.swapaxes(0, 1)
    zero_low, zero_high = zero[0:even:2], zero[1:even:2]
    np.bitwise_and(both, zero_low & zero_high, out=Z[:, 1::2])
    dZ[:, 0:even:2] = Z[:, 1::2]
    np.bitwise_and(d, zero, out=G)  # for single bits; the pairs follow below
    np.bitwise_xor(upper, G[:, 0:even:2], out=Y[:, 1::2])
    dY[:, 0:even:2] = Y[:, 1::2]
    dY[:, 1::2] = lower
    np.bitwise_and(upper ^ both, zero_high, out=dZ[:, 1::2])
    lower_alone = lower ^ both
    np.bitwise_xor(upper, lower_alone, out=Y[:, 0:even:2])
    G[:, 1::2] ^= lower_alone & zero_low
    if bits > even:
        Y[:, -1], dY[:, -1], dZ[:, -1] = d[:, -1], 0, G[:, -1]
    np.invert(state[0, 0:3:2], out=state[0, 0:3:2])
    planes = _evaluate(engine, length_network(bits), state.reshape(len(d), 5 * bits, -1))
    return BitShares(planes, secret.degree, secret.count)


def add_bits(engine: BitEngine, numbers: Sequence[BitShares], *, fast: bool = False) -> BitShares:
    """The sum modulo 2^bits.

    One round turns three numbers into two with the same sum, with ``bits - 1`` ANDs, until two are left: 1 round for 3
    numbers, 2 for 4, 5 for 10, 8 for 35. Adding the last two takes ``bits - 1`` rounds of one AND each. With ``fast``
    it takes 1 + ceil(log2(bits - 1)) rounds and about bits log2(bits) ANDs (97 for 24 bits, 151 for 32).
    """
    rest = list(numbers)
    while len(rest) > 2:
        rest = _carry_save(engine, rest)
    if len(rest) == 1:
        return rest[0]
    return _sum_at_once(engine, *rest) if fast else _sum_bit_by_bit(engine, *rest)


def _carry_save(engine: BitEngine, numbers: Sequence[BitShares]) -> list[BitShares]:
    """Replace each three numbers by two with the same sum: the XORs of their bits, and the carries."""
    threes, one = len(numbers) // 3, numbers[0]
    a, b, c = (BitShares.stack(numbers[i : 3 * threes : 3]) for i in range(3))
    left, right = engine.xor(a, c), engine.xor(b, c)
    m, words, bits = len(c.planes), c.planes.shape[2], one.bits
    low = np.flatnonzero(np.arange(threes * bits) % bits != bits - 1)
    majority = engine.and_(left[low], right[low]).planes ^ c.planes.take(low, axis=1)
    carries = np.zeros((m, threes, bits, words), dtype=np.uint64)
    carries[:, :, 1:] = majority.reshape(m, threes, bits - 1, words)
    sums = engine.xor(left, b).planes.reshape(carries.shape)
    out = [BitShares(part[:, i], one.degree, one.count) for part in (sums, carries) for i in range(threes)]
    return out + list(numbers[3 * threes :])


def _sum_bit_by_bit(engine: BitEngine, a: BitShares, b: BitShares) -> BitShares:
    planes = a.planes ^ b.planes
    carry = a[0:0]
    for j in range(1, a.bits):
        left, right = a[j - 1 : j], b[j - 1 : j]
        if j == 1:
            carry = engine.and_(left, right)
        else:
            carry = engine.xor(engine.and_(engine.xor(left, carry), engine.xor(right, carry)), carry)
        planes[:, j : j + 1] ^= carry.planes
    return BitShares(planes, a.degree, a.count)


def _sum_at_once(engine: BitEngine, a: BitShares, b: BitShares) -> BitShares:
    """A carry starts if both bits are 1, and is passed on if one of them is: the same network as for borrows."""
    planes, bits = a.planes ^ b.planes, a.bits - 1
    if bits:
        state = np.concatenate((engine.and_(a[:-1], b[:-1]).planes, planes[:, :-1]), axis=1)
        planes[:, 1:] ^= _evaluate(engine, borrow_network(bits, 1, tuple(range(bits))), state)
    return BitShares(planes, a.degree, a.count)
