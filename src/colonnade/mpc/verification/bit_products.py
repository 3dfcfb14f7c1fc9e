"""Claims about shared bits: that every AND was computed as it should be (docs/theory/active-security.md).

A claim says that the elementwise product of two shared arrays is a third one. All claims are checked together in the
field of 2^48 elements, which contains those of shared bits. The claimed products are cut into 2^v parts x_0, x_1, ...,
and each part becomes a coefficient of a polynomial in v variables, x_0 + x_1 z_1 + ..., linear in every variable. A
random combination H(z) of the products x(z) y(z) is quadratic in every variable, so its values where all variables are
0, 1 or infinity determine it. Where none is 1, the value is a combination of claimed results. The others are computed
and lowered: they need nothing but XORs of parts. Then a coin fixes z, and what is left to check is the inner product of
x(z) and y(z), 2^v times shorter; it is folded in the same way. At the end random numbers hide what is opened.

A wrong AND passes with chance at most :func:`error_chance`, and what is opened here tells nothing about bits.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import NO_RESULT, ShareError
from colonnade.message_schema import receive_message
from colonnade.mpc import messages
from colonnade.mpc.fixed_point.shared_bits import WORD, BitEngine, BitPlanes
from colonnade.mpc.shamir import inconsistent_shares
from colonnade.mpc.verification import large_field as field
from colonnade.mpc.verification.large_field import BITS, MASK, ONE, Elements
from colonnade.randomness import Stream

SHORT = 1 << 10
"""Inner products of at most so many elements are opened under random numbers instead of being folded once more."""
_MOST_VARIABLES = 5
_AT_ONCE = 1 << 17
"""Words of products that are computed at a time, so that they stay in the processor's cache."""
_INDEX_BITS = 12


class BitProductClaims:
    """What one seat claims about its shares of bits since they were last checked.

    ``coin`` gives a public stream that is the same at all seats and that nobody could foresee.
    """

    def __init__(self, engine: BitEngine, coin: Callable[[], Stream]) -> None:
        self._engine, self._coin, self._committee = engine, coin, engine.committee
        self._claims: list[tuple[BitPlanes, BitPlanes, BitPlanes]] = []
        self._small = field.embedding(engine.field.m)
        self.held = 0
        """Bytes that claims hold; the same at all seats."""

    def product(self, left: BitPlanes, right: BitPlanes, result: BitPlanes) -> None:
        """Claim that ``result`` is the elementwise product; none of the arrays is changed after this."""
        shape = np.broadcast_shapes(left.shape, right.shape)
        if result.size:
            self.held += 3 * result.nbytes
            self._claims.append((np.broadcast_to(left, shape), np.broadcast_to(right, shape), result))

    def settle(self) -> None:
        """Check all claims, or stop with an error: 10 rounds for up to a million ANDs, a few more with spare seats."""
        claims, self._claims, self.held = self._claims, [], 0
        if not claims:
            return
        flat = [[np.ascontiguousarray(planes).reshape(len(planes), -1) for planes in claim] for claim in claims]
        factors = [np.concatenate(planes, axis=1) for planes in zip(*flat, strict=True)]
        variables = _variables(factors[0].shape[1] * WORD)
        left, right, result = (_split_in_parts(planes, 1 << variables) for planes in factors)
        coin = self._coin()
        rows, lanes = _draw(coin, left.shape[2]), _draw(coin, WORD)
        known = self._weighted_sum(result.swapaxes(0, 1), rows, lanes)
        if self._committee.spare:
            self._check_consistent(known, coin)
        values = self._first_values(left, right, known, rows, lanes)
        point = _draw(self._coin(), variables) if variables else np.empty(0, dtype=np.uint64)
        monomials = _monomials(point)
        a, b = (self._combine_parts(parts, monomials) for parts in (left, right))
        a = field.multiply(a, field.multiply(rows[:, None], lanes).reshape(-1))
        self._inner_product(a, b, _contract(values, point))

    # One inner product

    def _inner_product(self, a: Elements, b: Elements, claimed: Elements) -> None:
        """Check that the inner product of two shared vectors is ``claimed``."""
        while a.size > SHORT:
            variables = _variables(a.size)
            a, b = (_pad(one, 1 << variables).reshape(1 << variables, -1) for one in (a, b))
            found = field.inner(_extend(a, variables), _extend(b, variables))
            lowered = self._lower(found[:-1])
            ends = lowered[_is_end(variables)[:-1]]
            values = np.append(lowered, claimed ^ field.total(ends))
            point = _draw(self._coin(), variables)
            a, b = (_evaluate_at(one, point) for one in (a, b))
            claimed = _contract(values, point)
        hidden = [self._random(a.size) for _ in range(2)]
        both = field.inner(a ^ hidden[0], b ^ hidden[1]), field.inner(*hidden)
        values = np.append(claimed, self._lower(np.array(both, dtype=np.uint64)))
        point = _draw(self._coin(), 1, nonzero=True)
        masked = np.concatenate([one ^ field.multiply(point, mask) for one, mask in zip((a, b), hidden, strict=True)])
        opened = self._open(masked)
        rest = _contract(values, point) ^ field.inner(opened[: a.size], opened[a.size :])
        # At twice the degree whoever speaks last could make it zero; while it is lowered, nobody knows what it is.
        # With spare seats, lowered values may lie on no polynomial: then their combination that is lowered here counts,
        # which is the same for all of them, and the claimed values were checked to lie on one.
        tested = self._lower(field.multiply(self._random(1), rest))
        # Nobody opens before all have received: whoever still holds a part back would know what to send.
        self._coin()
        if self._open(tested).any():
            raise ShareError(
                f"a product of shared bits was computed wrongly, or somebody sent something else: {NO_RESULT} [SH013]"
            )

    def _check_consistent(self, values: Elements, coin: Stream) -> None:
        """Open a random combination of shares under a mask: all must lie on one polynomial.

        Nothing is multiplied in it, so what it shows of a wrong sharing is what its dealer made wrong.
        """
        self._open(field.inner(values, _draw(coin, values.size)).reshape(1) ^ self._random(1))

    # From words of bits to elements of the large field

    def _first_values(
        self, left: BitPlanes, right: BitPlanes, known: Elements, rows: Elements, lanes: Elements
    ) -> Elements:
        """H at all points: claimed where no variable is 1, else computed and lowered."""
        variables = (left.shape[1] - 1).bit_length()
        ends = _is_end(variables)
        values = np.empty(len(ends), dtype=np.uint64)
        values[ends] = known
        inside = np.flatnonzero(~ends)
        if inside.size:
            total = np.zeros((BITS, inside.size * len(left)), dtype=np.uint64)
            step = max(1, _AT_ONCE // (len(ends) * len(left)))
            for start in range(0, left.shape[2], step):
                here = slice(start, start + step)
                a, b = (
                    _extend(parts[:, :, here].swapaxes(0, 1), variables)[inside].swapaxes(0, 1)
                    for parts in (left, right)
                )
                products = self._engine.field.multiply(a, b).swapaxes(0, 1)
                total ^= _select_rows(products.reshape(inside.size * len(left), -1), rows[here])
            values[inside] = self._lower(self._combine_lanes(total, lanes))
        return values

    def _weighted_sum(self, planes: BitPlanes, rows: Elements, lanes: Elements) -> Elements:
        """For planes (count, powers of x, words): the sum of all elements, each times the factors of its row and lane.

        The word of a row holds one bit for each lane.
        """
        flat = np.ascontiguousarray(planes).reshape(-1, planes.shape[2])
        return self._combine_lanes(_select_rows(flat, rows), lanes)

    def _combine_lanes(self, selected: BitPlanes, lanes: Elements) -> Elements:
        """Elements from the words of their bits, (bits, count), each times the factor of its lane, added up."""
        single = np.unpackbits(np.ascontiguousarray(selected, dtype="<u8").view(np.uint8), axis=1, bitorder="little")
        octets = np.zeros((single.shape[1], 8), dtype=np.uint8)
        octets[:, : BITS // 8] = np.packbits(single, axis=0, bitorder="little").T
        by_lane = octets.view("<u8").reshape(-1, WORD)
        sums = field.inner(by_lane, lanes).reshape(-1, self._engine.field.m)
        return field.inner(sums, self._powers)

    @property
    def _powers(self) -> Elements:
        return self._small[[1 << power for power in range(self._engine.field.m)]]

    def _combine_parts(self, parts: BitPlanes, monomials: Elements) -> Elements:
        """The sum of parts (powers of x, parts, words), each times its monomial, as one element for each bit."""
        together = min(len(monomials), _INDEX_BITS // len(parts))
        total = np.zeros(parts.shape[2] * WORD, dtype=np.uint64)
        for start in range(0, len(monomials), together):
            factors = field.multiply(monomials[start : start + together, None], self._powers).reshape(-1)
            table = np.zeros(1, dtype=np.uint64)
            index = np.zeros(total.size, dtype=np.uint16)
            some = parts[:, start : start + together].swapaxes(0, 1).reshape(factors.size, -1)
            for place, (factor, words) in enumerate(zip(factors, some, strict=True)):
                table = np.concatenate([table, table ^ factor])
                single = np.unpackbits(np.ascontiguousarray(words, dtype="<u8").view(np.uint8), bitorder="little")
                index |= single.astype(np.uint16) << np.uint16(place)
            total ^= table[index]
        return total

    # Shares in the large field: the points of the seats are those of shared bits

    def _point(self, seat: str) -> int:
        return int(self._small[self._committee.point(seat)])

    def _lower(self, values: Elements) -> Elements:
        """Products of two shares as shares of degree ``threshold``, as in :meth:`BitEngine.lower`."""
        committee, common, name = self._committee, self._engine.common, self._engine.name
        dealers, threshold = committee.seats[: 2 * committee.threshold + 1], committee.threshold
        links = self._engine.links
        total = np.zeros(values.size, dtype=np.uint64)
        for place, dealer in enumerate(dealers):
            seeded = committee.seats_seeded_by(dealer, threshold)
            if dealer != name:
                if name in seeded:
                    total ^= _draw(common.pair_stream(dealer, name), values.size)
                else:
                    total ^= (
                        receive_message(links[dealer], dealer, messages.bits_message("bits", values.shape))["words"]
                        & MASK
                    )
                continue
            weights = field.weights(tuple(self._point(seat) for seat in dealers), 0)
            secret = field.multiply(values, weights[place])
            drawn = [_draw(common.pair_stream(name, seat), values.size) for seat in seeded]
            known = (0, *(self._point(seat) for seat in seeded))
            for seat in committee.seats:
                if seat not in seeded:
                    share = field.combine([secret, *drawn], field.weights(known, self._point(seat)))
                    if seat == name:
                        total ^= share
                    else:
                        links[seat].send("bits", words=share)
        return total

    def _open(self, values: Elements) -> Elements:
        """Open elements of degree ``threshold`` to all seats; all shares must lie on one polynomial."""
        committee, name = self._committee, self._engine.name
        others = [seat for seat in committee.seats if seat != name]
        for seat in others:
            self._engine.links[seat].send("opening", words=values)
        found = {name: values}
        for seat in others:
            due = messages.bits_message("opening", values.shape)
            found[seat] = receive_message(self._engine.links[seat], seat, due)["words"] & MASK
        base, further = committee.seats[: committee.threshold + 1], committee.seats[committee.threshold + 1 :]
        points, shares = tuple(self._point(seat) for seat in base), [found[seat] for seat in base]
        secret, *spare = (
            field.combine(shares, field.weights(points, at)) for at in (0, *(self._point(seat) for seat in further))
        )
        if any(not np.array_equal(share, found[seat]) for share, seat in zip(spare, further, strict=True)):
            raise inconsistent_shares(committee.seats)
        return secret

    def _random(self, count: int) -> Elements:
        """Shares of random elements that no ``threshold`` seats know; nothing is sent."""
        drawn = [_draw(stream, count) for _, stream in self._engine.common.streams]
        return field.combine(drawn, self._small[self._engine.factors])


def error_chance(ands: int, *, spare: bool = False) -> Fraction:
    """The largest chance that one check of so many ANDs passes although one of them is wrong.

    It counts the degrees of what coins are put into: 2 for the factors of rows and lanes, 2 for each variable, 1 for
    the random factor of what must be zero at the end; with spare seats 3 for a random combination of shares.
    """
    length, degrees = -(-ands // WORD) * WORD, 2 + 1 + (3 if spare else 0)
    variables = _variables(length)
    degrees, length = degrees + 2 * variables, -(-(length // WORD) // (1 << variables)) * WORD
    while length > SHORT:
        variables = _variables(length)
        degrees, length = degrees + 2 * variables, -(-length // (1 << variables))
    return Fraction(degrees + 2, (1 << BITS) - 1)


def _variables(length: int) -> int:
    """In how many variables a vector is folded, so that few rounds make it short."""
    return min(_MOST_VARIABLES, max(0, (-(-length // SHORT) - 1).bit_length()))


def _split_in_parts(planes: BitPlanes, parts: int) -> BitPlanes:
    """Words as an array (powers of x, parts, words of a part); the last part is filled up with zeros."""
    size = -(-planes.shape[1] // parts)
    out = np.zeros((len(planes), parts * size), dtype=np.uint64)
    out[:, : planes.shape[1]] = planes
    return out.reshape(len(planes), parts, size)


def _pad(values: Elements, parts: int) -> Elements:
    return np.append(values, np.zeros(-values.size % parts, dtype=np.uint64))


def _draw(stream: Stream, count: int, *, nonzero: bool = False) -> Elements:
    found: Elements = stream.uint64(count) & MASK
    while nonzero and not found.all():
        found = stream.uint64(count) & MASK
    return found


def _extend(parts: Elements, variables: int) -> Elements:
    """From coefficients, (2^variables, ...), to values where each variable is 0, 1 or infinity, (3^variables, ...)."""
    for _ in range(variables):
        # The first axis has one more digit of base 2 to be replaced; the digit of base 3 goes to the end of the index.
        halves = parts.reshape(2, parts.shape[0] // 2, *parts.shape[1:])
        parts = np.stack([halves[0], halves[0] ^ halves[1], halves[1]], axis=1)
        parts = parts.reshape(-1, *parts.shape[2:])
    return parts


def _is_end(variables: int) -> NDArray[np.bool_]:
    """Which of the points have no variable that is 1; they stand in the order of the coefficients."""
    inside = np.zeros(1, dtype=np.bool_)
    for _ in range(variables):
        inside = np.concatenate([inside, np.ones_like(inside), inside])
    return ~inside


def _contract(values: Elements, point: Elements) -> Elements:
    """The value at a point of the polynomial that is quadratic in each variable and has these values."""
    for variable in point:
        zero, one, infinite = values.reshape(3, -1)
        values = zero ^ field.multiply(variable, zero ^ one ^ infinite ^ field.multiply(variable, infinite))
    return values.reshape(())


def _evaluate_at(parts: Elements, point: Elements) -> Elements:
    """The value at a point of the polynomial with these coefficients, linear in each variable."""
    for variable in point:
        half = len(parts) // 2
        parts = parts[:half] ^ field.multiply(variable, parts[half:])
    found: Elements = parts[0]
    return found


def _monomials(point: Elements) -> Elements:
    """For each coefficient, the product of the variables that it belongs to."""
    found = np.ones(1, dtype=np.uint64)
    for variable in point[::-1]:
        found = np.concatenate([found, field.multiply(found, variable)])
    return found


def _select_rows(words: BitPlanes, rows: Elements) -> BitPlanes:
    """For each bit of the factors of rows: the sum of the words, (count, rows), in whose rows it is set."""
    found = np.empty((BITS, len(words)), dtype=np.uint64)
    for place in range(BITS):
        chosen = np.flatnonzero(rows >> np.uint64(place) & ONE)
        found[place] = np.bitwise_xor.reduce(words.take(chosen, axis=1), axis=1)
    return found
