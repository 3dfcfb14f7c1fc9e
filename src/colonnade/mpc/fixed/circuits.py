"""Circuits on shared bits: sums, comparison, bit length and the bits of a difference.

A secret number is opened under a mask whose bits are shared, so one side of a circuit is public: ``public`` are the
words of opened numbers p, and ``secret`` are shares of the bits of masks s. Neighbouring stretches of bits are composed
in a tree, one round a level. The first level costs one AND for two bits whatever it computes: with d the shared
p XOR s, all there is to say about one bit is linear in d, and so all about two bits is linear in d, d' and d d'.

A network is laid out once as lists of row numbers, because for few numbers the calls cost more than the arithmetic.
An AND is one bit whose degree is lowered: a sum of two products counts once. It costs the wire what
:meth:`BitHand.lower` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc.fixed.binary import BitHand, BitShares, Planes, Words

Row = tuple[str, int]
"""What a row of the state says, and of which bit."""
Rows = NDArray[np.intp]

_LENGTH_KINDS = ("Y", "Z", "dY", "dZ", "G")


@dataclass(frozen=True)
class _Update:
    """A row becomes the sum of one or two products of rows; with ``onto``, one product is added to it."""

    row: Row
    products: tuple[tuple[Row, Row], ...]
    onto: bool = False

    @property
    def read(self) -> Iterator[Row]:
        """The rows it needs."""
        yield from (row for pair in self.products for row in pair)
        if self.onto:
            yield self.row


@dataclass(frozen=True)
class _Level:
    """One round. The next state is the products, then the rows that are kept."""

    left: Rows
    right: Rows
    paired: int
    """So many products are second ones: each is added to one of the last first ones before that is lowered."""
    added: Rows
    """The rows that are added to the first products."""
    kept: Rows


@dataclass(frozen=True)
class Network:
    """Rounds of products on rows of shared bits."""

    levels: tuple[_Level, ...]
    results: Rows


def _lay_out(first: Iterable[Row], rounds: Sequence[Sequence[_Update]], results: Sequence[Row]) -> Network:
    """Number the rows, leaving out what no result depends on."""
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
            _Level(
                _numbers(at, (left for left, _ in products)),
                _numbers(at, (right for _, right in products)),
                len(second),
                _numbers(at, (update.row for update in used if update.onto)),
                _numbers(at, kept),
            )
        )
        rows = made + kept
    return Network(tuple(levels), _numbers({row: number for number, row in enumerate(rows)}, results))


def _numbers(at: dict[Row, int], rows: Iterable[Row]) -> Rows:
    return np.array([at[row] for row in rows], dtype=np.intp)


def _merges(bits: int, size: int) -> Iterator[list[tuple[int, int, int]]]:
    """Level by level, which neighbouring stretches become one: the first bit of each, and the end of the upper one."""
    while size < bits:
        yield [(low, low + size, min(low + 2 * size, bits)) for low in range(0, bits - size, 2 * size)]
        size *= 2


@cache
def borrow_network(bits: int, size: int, results: tuple[int, ...]) -> Network:
    """Whether p < s, in the bits up to each of ``results``; stretches of ``size`` bits are known at the start.

    Of each stretch from its first bit to bit j: G says that p < s there, E that p = s. Upper over lower is
    G = G' + E' G'' and E = E' E''.
    """
    rounds = []
    for merges in _merges(bits, size):
        updates = []
        for _, middle, end in merges:
            for j in range(middle, end):
                updates.append(_Update(("G", j), ((("E", j), ("G", middle - 1)),), onto=True))
                updates.append(_Update(("E", j), ((("E", j), ("E", middle - 1)),)))
        rounds.append(updates)
    return _lay_out(_all("GE", bits), rounds, [("G", j) for j in results])


@cache
def length_network(bits: int) -> Network:
    """Whether x = p - s modulo 2^bits is below 2^j, for each j; pairs of bits are known at the start.

    Let c be the borrow of the bits below j. x is below 2^j if bits j and up of p, as a number, have just c more than
    those of s, modulo a power of two. Read them from the top. Their difference stays 0 while they are equal, goes from
    0 to 1 where p has the 1, and then stays 1 only where s has the 1, as it does from the start where it is 1 because
    it wraps round. So a stretch is a matrix M = (a, m; 0, b) of bits, that of two stretches is the product with the
    upper one on the left, and x is below 2^j if (1, 1) M (1 - c, c)' = 1 for all bits from j up.

    Of bit j in a stretch we keep (Y + Z, Z)' = M (1 - c, c)' for the bits from j to the end of the stretch, as if
    nothing were borrowed from it, and by how much these change if something is, dY and dZ. A stretch below, with G and
    E as in :func:`borrow_network`, turns Y into Y + G dY and dY into E dY; Z likewise. A stretch above turns Y into
    Y' Y + dY' Z and Z into dZ' Z, with Y', dY' and dZ' of its first bit; dY and dZ likewise. At the first bit of a
    stretch Z = 0 and Y = E. For all bits together, Y is the answer.
    """
    rounds = []
    for merges in _merges(bits, 2):
        updates = []
        for low, middle, end in merges:
            equal, less = ("Y", low), ("G", middle - 1)
            for j, kind in product(range(middle, end), "YZ"):
                empty = kind == "Z" and j == middle
                change = ("d" + kind, j)
                updates.append(_Update((kind, j), ((less, change),), onto=not empty))
                updates.append(_Update(change, ((equal, change),)))
            updates += [update for j in range(low, middle) for update in _under(middle, j, first=j == low)]
            updates.append(_Update(("G", end - 1), ((("Y", middle), less),), onto=True))
        rounds.append(updates)
    return _lay_out(_all(_LENGTH_KINDS, bits), rounds, [("Y", j) for j in range(bits)])


def _under(above: int, j: int, *, first: bool) -> Iterator[_Update]:
    """What a stretch that starts at bit ``above`` does to bit j of the one below it."""
    Y, dY, dZ = ("Y", above), ("dY", above), ("dZ", above)
    yield _Update(("Y", j), ((Y, ("Y", j)),) if first else ((Y, ("Y", j)), (dY, ("Z", j))))
    yield _Update(("dY", j), ((Y, ("dY", j)), (dY, ("dZ", j))))
    yield _Update(("dZ", j), ((dZ, ("dZ", j)),))
    if not first:
        yield _Update(("Z", j), ((dZ, ("Z", j)),))


def _all(kinds: Iterable[str], bits: int) -> list[Row]:
    return [(kind, j) for kind in kinds for j in range(bits)]


def _run(hand: BitHand, network: Network, state: Planes) -> Planes:
    multiply, lower, degree = hand.field.multiply, hand.lower_planes, 2 * hand.committee.threshold
    for level in network.levels:
        products = multiply(state.take(level.left, axis=1), state.take(level.right, axis=1))
        if level.paired:
            made = len(level.left) - level.paired
            products[:, made - level.paired : made] ^= products[:, made:]
            products = products[:, :made]
        lowered = lower(products, degree)
        if level.added.size:
            lowered[:, : level.added.size] ^= state.take(level.added, axis=1)
        if level.kept.size:
            lowered = np.concatenate((lowered, state.take(level.kept, axis=1)), axis=1)
        state = lowered
    return state.take(network.results, axis=1)


def _pairs(hand: BitHand, different: BitShares) -> tuple[Planes, Planes, Planes]:
    """The lower and the upper bit of each two neighbours, and their product: the first level."""
    paired = different.bits - different.bits % 2
    lower, upper = different[0:paired:2], different[1:paired:2]
    return lower.planes, upper.planes, hand.and_(lower, upper).planes if paired else lower.planes


def _borrows(hand: BitHand, public: Words, different: BitShares, results: tuple[int, ...]) -> Planes:
    """Whether public < secret in the bits up to each of ``results``."""
    bits, d = different.bits, different.planes
    zero = ~public
    lower, upper, both = _pairs(hand, different)
    state = np.empty((len(d), 2, *d.shape[1:]), dtype=np.uint64)
    less, equal = state[:, 0], state[:, 1]
    np.bitwise_and(d, zero, out=less)
    equal[:, 0::2] = d[:, 0::2]
    np.bitwise_xor(lower, both, out=equal[:, 1::2])
    less[:, 1::2] ^= equal[:, 1::2] & zero[0 : bits - bits % 2 : 2]
    equal[:, 1::2] ^= upper
    np.invert(equal[0], out=equal[0])
    return _run(hand, borrow_network(bits, 2, results), state.reshape(len(d), 2 * bits, -1))


def below(hand: BitHand, public: Words, secret: BitShares) -> BitShares:
    """Whether public < secret, as one bit.

    ceil(log2 bits) rounds; about 1.5 ANDs a bit (30 for 24 bits, 42 for 32): one for two bits, then two for two
    stretches, of which one is not needed at the bottom.
    """
    planes = _borrows(hand, public, hand.flip(secret, public), (secret.bits - 1,))
    return BitShares(planes, secret.degree, secret.count)


def top_bit_of_difference(hand: BitHand, public: Words, secret: BitShares) -> BitShares:
    """The top bit of (public - secret) modulo 2^bits.

    The rounds and ANDs of :func:`below` for one bit less; none for a single bit.
    """
    top = hand.flip(secret[-1:], public[-1:])
    return hand.xor(top, below(hand, public[:-1], secret[:-1])) if secret.bits > 1 else top


def bits_of_difference(hand: BitHand, public: Words, secret: BitShares) -> BitShares:
    """All bits of (public - secret) modulo 2^bits.

    ceil(log2(bits - 1)) rounds; about 2/3 bits log2(bits) ANDs (64 for 24 bits, 106 for 32).
    """
    different = hand.flip(secret, public)
    if secret.bits == 1:
        return different
    planes = different.planes.copy()
    planes[:, 1:] ^= _borrows(hand, public[:-1], different[:-1], tuple(range(secret.bits - 1)))
    return BitShares(planes, different.degree, different.count)


def lengths(hand: BitHand, public: Words, secret: BitShares) -> BitShares:
    """Bit j, of as many as the numbers have: whether (public - secret) modulo 2^bits is below 2^j.

    The sum of these bits is how many leading zeros the number has. ceil(log2 bits) rounds; about 2 bits log2(bits) ANDs
    (212 for 24 bits, 320 for 32).
    """
    bits, different = secret.bits, hand.flip(secret, public)
    d, zero, even = different.planes, ~public, bits - bits % 2
    lower, upper, both = _pairs(hand, different)
    state = np.empty((len(d), 5, *d.shape[1:]), dtype=np.uint64)
    Y, Z, dY, dZ, G = state.swapaxes(0, 1)
    zero_low, zero_high = zero[0:even:2], zero[1:even:2]
    np.bitwise_and(both, zero_low & zero_high, out=Z[:, 1::2])
    dZ[:, 0:even:2] = Z[:, 1::2]
    np.bitwise_and(d, zero, out=G)  # of the single bits, until the pairs are known
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
    planes = _run(hand, length_network(bits), state.reshape(len(d), 5 * bits, -1))
    return BitShares(planes, secret.degree, secret.count)


def add(hand: BitHand, numbers: Sequence[BitShares], *, fast: bool = False) -> BitShares:
    """The sum modulo 2^bits.

    Three numbers become two in one round, with ``bits - 1`` ANDs, until two are left: 1 round for 3 numbers, 2 for 4,
    5 for 10, 8 for 35. The last two take ``bits - 1`` rounds of one AND; if ``fast``, 1 + ceil(log2(bits - 1)) rounds,
    with about bits log2(bits) ANDs in all (97 for 24 bits, 151 for 32).
    """
    rest = list(numbers)
    while len(rest) > 2:
        rest = _carry_save(hand, rest)
    if len(rest) == 1:
        return rest[0]
    return _sum_at_once(hand, *rest) if fast else _sum_bit_by_bit(hand, *rest)


def _carry_save(hand: BitHand, numbers: Sequence[BitShares]) -> list[BitShares]:
    """Two numbers in place of every three, with the same sum: the bits that differ from two, and the majorities."""
    threes, one = len(numbers) // 3, numbers[0]
    a, b, c = (BitShares.stack(numbers[i : 3 * threes : 3]) for i in range(3))
    left, right = hand.xor(a, c), hand.xor(b, c)
    m, words, bits = len(c.planes), c.planes.shape[2], one.bits
    low = np.flatnonzero(np.arange(threes * bits) % bits != bits - 1)
    majority = hand.and_(left.take(low), right.take(low)).planes ^ c.planes.take(low, axis=1)
    carries = np.zeros((m, threes, bits, words), dtype=np.uint64)
    carries[:, :, 1:] = majority.reshape(m, threes, bits - 1, words)
    sums = hand.xor(left, b).planes.reshape(carries.shape)
    out = [BitShares(part[:, i], one.degree, one.count) for part in (sums, carries) for i in range(threes)]
    return out + list(numbers[3 * threes :])


def _sum_bit_by_bit(hand: BitHand, a: BitShares, b: BitShares) -> BitShares:
    planes = a.planes ^ b.planes
    carry = a[0:0]
    for j in range(1, a.bits):
        left, right = a[j - 1 : j], b[j - 1 : j]
        if j == 1:
            carry = hand.and_(left, right)
        else:
            carry = hand.xor(hand.and_(hand.xor(left, carry), hand.xor(right, carry)), carry)
        planes[:, j : j + 1] ^= carry.planes
    return BitShares(planes, a.degree, a.count)


def _sum_at_once(hand: BitHand, a: BitShares, b: BitShares) -> BitShares:
    """A carry is made where both bits are 1, and passed on where one is: the same network as for borrows."""
    planes, bits = a.planes ^ b.planes, a.bits - 1
    if bits:
        state = np.concatenate((hand.and_(a[:-1], b[:-1]).planes, planes[:, :-1]), axis=1)
        planes[:, 1:] ^= _run(hand, borrow_network(bits, 1, tuple(range(bits))), state)
    return BitShares(planes, a.degree, a.count)
