"""Sensitivity of sums of any integer polynomials, from the monomials they are made of.

``docs/theory/polynomial-sensitivity.md`` has the proofs. A row is a row of integers; each owner's part of it lies in
a ball, and every coordinate in a box. Two ways to take a polynomial map apart (by degree, and by degree in each
owner's columns) give two sets of bounds, and the least of every figure is kept.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from colonnade.errors import PrivacyError
from colonnade.privacy.sensitivity import Exact, Sensitivity, checked_whole, integer_l1, root_up

IndexedMonomial = tuple[tuple[int, int], ...]
"""Variables and their powers, the variables rising: ``((0, 2), (3, 1))`` is x0^2 x3."""
Terms = Mapping[IndexedMonomial, int]
"""One output: its monomials and their integer coefficients."""


_MOST_PAIRS = 1_000_000


@dataclass(frozen=True)
class Domain:
    """Which integer rows there are.

    ``holder`` names the owner of each variable, by number; ``norms`` bounds the squared norm of each owner's part;
    every coordinate lies in [-reach, reach], and the ``unsigned`` ones in [0, reach].
    """

    holder: tuple[int, ...]
    norms: tuple[int, ...]
    reach: int
    unsigned: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        checked_whole(self.reach, "the largest coordinate")
        for norm in self.norms:
            checked_whole(norm, "a squared norm")

    def by_owner(self, monomial: IndexedMonomial) -> dict[int, list[int]]:
        """The powers of a monomial, owner by owner."""
        found: dict[int, list[int]] = defaultdict(list)
        for variable, power in monomial:
            found[self.holder[variable]].append(checked_whole(power, "a power", 1))
        return found

    def signed(self, monomial: IndexedMonomial) -> bool:
        """Whether a monomial can be negative."""
        return any(power % 2 and variable not in self.unsigned for variable, power in monomial)


def monomial_maximum(monomial: IndexedMonomial, domain: Domain) -> int:
    """The largest absolute value of a monomial: an integer, so the exact maximum over real rows is rounded down."""
    return math.prod(
        math.isqrt(math.floor(_largest_square(powers, domain.norms[owner], domain.reach)))
        for owner, powers in domain.by_owner(monomial).items()
    )


def _largest_square(powers: Sequence[int], norm_squared: int, reach: int) -> Fraction:
    """The maximum of ``prod u_j^{b_j}`` over ``sum u_j <= norm_squared`` and ``0 <= u_j <= reach^2``."""
    rest, room, cap = list(powers), Fraction(norm_squared), reach * reach
    square = Fraction(1)
    while rest:
        degree = sum(rest)
        over = [power for power in rest if power * room > cap * degree]
        if not over:
            return square * math.prod((power * room / degree) ** power for power in rest)
        square *= cap ** sum(over)
        room -= cap * len(over)
        rest = [power for power in rest if power not in over]
    return square


def polynomial_maxima(outputs: Sequence[Terms], domain: Domain) -> list[int]:
    """The largest absolute value of each output on one row."""
    ways = [_Way(outputs, domain, taken) for taken in (_by_degree, _by_owners)]
    return [min(bounds) for bounds in zip(*(way.maxima for way in ways), strict=True)]


def monomials_sensitivity(outputs: Sequence[Terms], domain: Domain) -> Sensitivity:
    """Sensitivity of the sum over rows of a polynomial map."""
    if not outputs:
        raise PrivacyError("a release needs at least one polynomial [PR096]")
    ways = [_Way(outputs, domain, taken) for taken in (_by_degree, _by_owners)]
    l2_squared = math.floor(min(way.l2_squared for way in ways))
    replaced = math.floor(min(way.replace_l2_squared for way in ways))
    l1 = min(sum(way.maxima) for way in ways)
    replaced_l1 = min(sum(way.moves) for way in ways)
    return Sensitivity(
        min(l1, integer_l1(l2_squared, len(outputs))),
        l2_squared,
        min(replaced_l1, integer_l1(replaced, len(outputs))),
        replaced,
    )


def others_sensitivity(outputs: Sequence[Terms], domain: Domain, owner: int) -> tuple[int, int]:
    """L1 and squared L2 of the change when only columns that ``owner`` does not hold are replaced.

    Monomials of that owner's columns alone do not move.
    """
    foreign = [
        {monomial: a for monomial, a in terms.items() if any(domain.holder[v] != owner for v, _ in monomial)}
        for terms in outputs
    ]
    found = monomials_sensitivity(foreign, domain)
    return found.replace_l1, found.replace_l2_squared


Split = Callable[[IndexedMonomial, Domain], Hashable]


def _by_degree(monomial: IndexedMonomial, _: Domain) -> Hashable:
    return sum(power for _, power in monomial)


def _by_owners(monomial: IndexedMonomial, domain: Domain) -> Hashable:
    return tuple(sorted((owner, sum(powers)) for owner, powers in domain.by_owner(monomial).items()))


@dataclass
class _MonomialsOfDegree:
    """The monomials of one degree, or of one degree in each owner's columns, in all outputs."""

    domain: Domain
    split: bool
    terms: dict[int, dict[IndexedMonomial, int]] = field(default_factory=lambda: defaultdict(dict))
    below: dict[int, int] = field(default_factory=dict)
    above: dict[int, int] = field(default_factory=dict)
    moves: dict[int, int] = field(default_factory=dict)
    square: Fraction = Fraction(0)
    replaced: Fraction = Fraction(0)

    def measure(self) -> None:
        """Bound the part: each output from below and above, and all of them together."""
        volume, factor = self._volume()
        squares = {t: sum(a * a * _factorials(m) for m, a in own.items()) for t, own in self.terms.items()}
        for output, own in self.terms.items():
            bombieri = squares[output] * volume
            self._range(output, own, math.isqrt(math.floor(bombieri)))
            alike = math.isqrt(math.floor(factor * bombieri))
            self.moves[output] = min(self.below[output] + self.above[output], alike)
        together = min([sum(squares.values()), *self._largest_row()]) * volume
        reach = sum(max(self.below[t], self.above[t]) ** 2 for t in self.terms)
        self.square = min(together, Fraction(reach))
        self.replaced = min(factor * together, Fraction(sum(move * move for move in self.moves.values())))

    def _range(self, output: int, own: Mapping[IndexedMonomial, int], bombieri: int) -> None:
        below = above = 0
        for monomial, a in own.items():
            size = abs(a) * monomial_maximum(monomial, self.domain)
            signed = self.domain.signed(monomial)
            below += size if signed or a < 0 else 0
            above += size if signed or a > 0 else 0
        self.below[output], self.above[output] = min(below, bombieri), min(above, bombieri)

    def _volume(self) -> tuple[Fraction, int]:
        """The squared length of all monomials, over factorials of degrees, and 2 or 4: what replacing makes of it."""
        variables = {v for own in self.terms.values() for m in own for v, _ in m}
        example = next(iter(next(iter(self.terms.values()))))
        held: dict[int, list[int]] = defaultdict(list)
        for variable in variables:
            held[self.domain.holder[variable]].append(variable)
        norms = {o: min(self.domain.norms[o], len(vs) * self.domain.reach**2) for o, vs in held.items()}
        if not self.split:
            degree = sum(power for _, power in example)
            together = degree % 2 == 0 or variables <= self.domain.unsigned
            return Fraction(sum(norms.values()) ** degree, math.factorial(degree)), 2 if together else 4
        degrees = {owner: sum(powers) for owner, powers in self.domain.by_owner(example).items()}
        together = all(d % 2 == 0 or set(held[owner]) <= self.domain.unsigned for owner, d in degrees.items())
        volume = Fraction(1)
        for owner, d in degrees.items():
            volume *= Fraction(norms[owner] ** d, math.factorial(d))
        return volume, 2 if together else 4

    def _largest_row(self) -> list[int]:
        """The largest absolute row sum of A A', for the matrix A of weighted coefficients; empty if A is large."""
        columns: dict[IndexedMonomial, list[tuple[int, int]]] = defaultdict(list)
        for output, own in self.terms.items():
            for monomial, a in own.items():
                columns[monomial].append((output, a))
        if sum(len(column) ** 2 for column in columns.values()) > _MOST_PAIRS:
            return []
        gram: dict[tuple[int, int], int] = defaultdict(int)
        for monomial, column in columns.items():
            weight = _factorials(monomial)
            for one, a in column:
                for other, b in column:
                    gram[one, other] += a * b * weight
        rows: dict[int, int] = defaultdict(int)
        for (one, _), entry in gram.items():
            rows[one] += abs(entry)
        return [max(rows.values())]


def _factorials(monomial: IndexedMonomial) -> int:
    """The product of the factorials of the powers."""
    return math.prod(math.factorial(power) for _, power in monomial)


class _Way:
    """One way to take the map apart, and the bounds it gives."""

    def __init__(self, outputs: Sequence[Terms], domain: Domain, split: Split) -> None:
        self.constants = [int(terms.get((), 0)) for terms in outputs]
        parts: dict[Hashable, _MonomialsOfDegree] = {}
        for output, terms in enumerate(outputs):
            for monomial, a in terms.items():
                if monomial and a:
                    key = split(monomial, domain)
                    part = parts.setdefault(key, _MonomialsOfDegree(domain, split is _by_owners))
                    part.terms[output][monomial] = a
        self.parts = list(parts.values())
        for part in self.parts:
            part.measure()
        self.maxima = [self._maximum(output) for output in range(len(outputs))]
        self.moves = [sum(part.moves.get(output, 0) for part in self.parts) for output in range(len(outputs))]
        self._together()

    def _maximum(self, output: int) -> int:
        low = self.constants[output] - sum(part.below.get(output, 0) for part in self.parts)
        high = self.constants[output] + sum(part.above.get(output, 0) for part in self.parts)
        return max(abs(low), abs(high))

    def _together(self) -> None:
        """Outputs that share no part add up in squares; parts of the same outputs add up in lengths."""
        self.l2_squared: Exact = 0
        self.replace_l2_squared: Exact = 0
        for outputs, parts in self._groups():
            constant = sum(self.constants[t] ** 2 for t in outputs)
            added = _squared_sum([part.square for part in parts] + ([constant] if constant else []))
            moved = _squared_sum([part.replaced for part in parts])
            self.l2_squared += min(added, sum(self.maxima[t] ** 2 for t in outputs))
            self.replace_l2_squared += min(moved, sum(self.moves[t] ** 2 for t in outputs))

    def _groups(self) -> list[tuple[list[int], list[_MonomialsOfDegree]]]:
        leader = list(range(len(self.constants)))

        def find(output: int) -> int:
            while leader[output] != output:
                leader[output] = output = leader[leader[output]]
            return output

        for part in self.parts:
            first, *rest = part.terms
            for output in rest:
                leader[find(output)] = find(first)
        groups: dict[int, tuple[list[int], list[_MonomialsOfDegree]]] = defaultdict(lambda: ([], []))
        for output in range(len(leader)):
            groups[find(output)][0].append(output)
        for part in self.parts:
            groups[find(next(iter(part.terms)))][1].append(part)
        return list(groups.values())


def _squared_sum(squares: Sequence[Exact]) -> Exact:
    """The square of a sum of lengths that are given by their squares."""
    if len(squares) <= 1:
        return sum(squares, 0)
    return sum((root_up(square) for square in squares), Fraction(0)) ** 2
