"""Circuits on shared bits: sums, comparison and bit length.

A secret number is opened under a mask whose bits are shared, so one input of a circuit is public: ``public`` are the
words of opened numbers p, and ``secret`` are shares of the bits of masks s. Neighbouring stretches of bits are joined
in a tree, with one round for each level. The first level needs one AND for two bits: let d be the shared p XOR s of a
bit. Everything about this bit is linear in d, so everything about two bits is linear in d, d' and d d'.

A network is computed once, as lists of row numbers, because for few numbers the calls cost more than the arithmetic.
An AND is one bit whose degree is lowered, also if it is the sum of two products. It costs as many bytes as
:meth:`BitEngine.lower` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc.fixed_point.shared_bits import BitEngine, BitPlanes, BitShares, BitWords

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
            lowered = engine.reduce_degree_planes(
                _add_second_products(engine.field.multiply(left, right), level), degree
            )
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


def add(engine: BitEngine, numbers: Sequence[BitShares], *, fast: bool = False) -> BitShares:
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
    majority = engine.and_(left.take(low), right.take(low)).planes ^ c.planes.take(low, axis=1)
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
