"""Which products give the asked blocks, and who computes them: its owner in the clear, or the seats on shares.

A *factor* is a set of columns whose coordinates are multiplied row by row: none (a one in every row), one column, or a
column and the label. Every block is the inner product of two factors, summed over all rows. A block whose columns
have one owner is computed by that owner. Of the others, the label's owner makes the factors of the label and its own
columns itself; the seats make a factor of the label and somebody else's column on shares, for as few columns as
possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

Columns = tuple[int, ...]
Factor = tuple[int, ...]
ONES, MADE = -1, -2
"""Sources of factors beside owners (by number): ones in every row, and what the seats make on shares."""
_SPARSE = 3


@dataclass(frozen=True)
class Factors:
    """Factors side by side in a matrix, and where each of them stands."""

    names: tuple[Factor, ...]
    widths: tuple[int, ...]

    @property
    def width(self) -> int:
        """How many columns the matrix has."""
        return sum(self.widths)

    def spans(self) -> dict[Factor, slice]:
        """Where each factor stands."""
        stops = accumulate(self.widths)
        return {
            name: slice(stop - width, stop) for name, width, stop in zip(self.names, self.widths, stops, strict=True)
        }


@dataclass(frozen=True)
class Product:
    """Inner products of every left factor with every right one, and which of them are blocks: (block, left, right)."""

    left_source: int
    left: Factors
    right_source: int
    right: Factors
    blocks: tuple[tuple[int, Factor, Factor], ...]


@dataclass(frozen=True)
class Layout:
    """What owners deal, what is made of it on shares, and which products are computed where."""

    dealt: Mapping[int, Factors]
    made: Factors
    own: Mapping[int, tuple[Product, ...]]
    shared: tuple[Product, ...]


Piece = tuple[int, Factor, Factor]
_Group = tuple[int, int, int, int]


class _Layouter:
    def __init__(
        self, asked: Sequence[Columns], sizes: Sequence[int], holder: Sequence[int], label: int | None
    ) -> None:
        self.asked, self.sizes, self.holder, self.label = asked, sizes, holder, label

    def factors(self, names: Sequence[Factor]) -> Factors:
        """The factors with their widths: a column with n values has n - 1 coordinates, as all n add up to zero."""
        return Factors(tuple(names), tuple(self.width(name) for name in names))

    def width(self, name: Factor) -> int:
        found = 1
        for column in name:
            found *= self.sizes[column] - 1
        return found

    def source(self, name: Factor) -> int:
        """Who deals a factor, if somebody does."""
        return self.holder[name[0]] if name else ONES

    def rest(self, columns: Columns) -> Columns:
        """The columns of a block of three without the label; of other blocks all columns."""
        return tuple(c for c in columns if c != self.label) if len(columns) > 2 else columns

    def multiplied(self, pairs: Sequence[tuple[int, int]]) -> set[int]:
        """Columns, as narrow as possible together, of which every pair has one."""
        columns = sorted({column for pair in pairs for column in pair}, key=lambda c: (-self.sizes[c], c))
        holders = sorted({self.holder[column] for column in columns})
        orders = [
            columns,
            *(
                [c for c in columns if self.holder[c] == h] + [c for c in columns if self.holder[c] != h]
                for h in holders
            ),
        ]
        return min(
            (self._without_as_many(pairs, order) for order in orders),
            key=lambda found: (self._weight(found), sorted(found)),
        )

    def _weight(self, columns: set[int]) -> int:
        return sum(self.sizes[column] - 1 for column in columns)

    def _without_as_many(self, pairs: Sequence[tuple[int, int]], order: Sequence[int]) -> set[int]:
        """All columns without those, taken in this order, that have no pair with one that was left out before."""
        beside: dict[int, set[int]] = {column: set() for column in order}
        for one, other in pairs:
            beside[one].add(other)
            beside[other].add(one)
        out: set[int] = set()
        for column in order:
            if not beside[column] & out:
                out.add(column)
        return set(order) - out

    def sides(self, pair: tuple[int, int], multiplied: set[int]) -> tuple[int, int]:
        """Which column of a pair is on the left, among what is made, and which on the right."""
        found = [column for column in pair if column in multiplied]
        left = min(found, key=lambda column: (self.holder[column], column))
        return left, pair[0] if left == pair[1] else pair[1]

    def products(self, pieces: Sequence[Piece], left_of: Callable[[Factor], int]) -> tuple[Product, ...]:
        """As few large products as hold all pieces, unless most of what they would hold is not asked for."""
        groups: dict[_Group, list[Piece]] = {}
        for piece in pieces:
            _, left, right = piece
            groups.setdefault((left_of(left), len(left), self.source(left), self.source(right)), []).append(piece)
        found: list[Product] = []
        for (left_source, _, _, right_source), members in groups.items():
            whole = self.product(left_source, right_source, members)
            needed = sum(self.width(left) * self.width(right) for _, left, right in members)
            if whole.left.width * whole.right.width <= _SPARSE * needed:
                found.append(whole)
                continue
            by_left: dict[Factor, list[Piece]] = {}
            for piece in members:
                by_left.setdefault(piece[1], []).append(piece)
            found += [self.product(left_source, right_source, few) for few in by_left.values()]
        return tuple(found)

    def product(self, left_source: int, right_source: int, pieces: Sequence[Piece]) -> Product:
        left = self.factors(sorted({left for _, left, _ in pieces}, key=in_order))
        right = self.factors(sorted({right for _, _, right in pieces}, key=in_order))
        return Product(left_source, left, right_source, right, tuple(pieces))


def in_order(factor: Factor) -> tuple[int, Factor]:
    """How factors of one source are ordered: single columns first, those with the label behind them."""
    return len(factor), factor


def lay_out(asked: Sequence[Columns], sizes: Sequence[int], holder: Sequence[int], label: int | None) -> Layout:
    """The products of all blocks, where everybody holds the same people."""
    plan = _Layouter(asked, sizes, holder, label)
    labels = () if label is None else (label,)
    own: dict[int, list[Piece]] = {}
    shared: list[Piece] = []
    joint: list[tuple[int, tuple[int, int]]] = []
    for index, columns in enumerate(asked):
        owners, rest = {holder[column] for column in columns}, plan.rest(columns)
        with_label = tuple(set(columns) - set(rest))
        if len(owners) < 2:
            left, right = (*rest[:1], *with_label), rest[1:]
            own.setdefault(min(owners, default=0), []).append((index, left, right))
        elif not with_label:
            shared.append((index, rest[:1], rest[1:]))
        elif held := [column for column in rest if holder[column] == holder[with_label[0]]]:
            other = tuple(column for column in rest if column != held[0])
            shared.append((index, (held[0], *with_label), other))
        else:
            joint.append((index, (rest[0], rest[1])))
    multiplied = plan.multiplied([pair for _, pair in joint])
    for index, pair in joint:
        first, second = plan.sides(pair, multiplied)
        shared.append((index, (first, *labels), (second,)))
    made = {left for index, left, _ in shared[len(shared) - len(joint) :]}
    dealt: dict[int, set[Factor]] = {}
    for _, *sides in shared:
        for factor in sides:
            names = [(column,) for column in factor] if factor in made else [factor]
            for name in names:
                dealt.setdefault(holder[name[0]], set()).add(name)
    by_owner = sorted(made, key=lambda factor: (holder[factor[0]], factor))
    return Layout(
        {owner: plan.factors(sorted(names, key=in_order)) for owner, names in sorted(dealt.items())},
        plan.factors(by_owner),
        {owner: plan.products(pieces, plan.source) for owner, pieces in own.items()},
        plan.products(shared, lambda left: MADE if left in made else plan.source(left)),
    )


def lay_out_hidden(asked: Sequence[Columns], sizes: Sequence[int], holder: Sequence[int], label: int | None) -> Layout:
    """The same where nobody knows whose rows count: every left factor is multiplied, on shares, by whether one does."""
    plan = _Layouter(asked, sizes, holder, label)
    labels = () if label is None else (label,)
    pieces: list[Piece] = []
    for tail in dict.fromkeys(((), labels)):
        pairs = [(i, plan.rest(c)) for i, c in enumerate(asked) if (len(c) > 2) == bool(tail)]
        multiplied = plan.multiplied([(pair[0], pair[1]) for _, pair in pairs if len(pair) == 2])
        for index, columns in pairs:
            if len(columns) < 2:
                pieces.append((index, (), columns))
            else:
                one, other = plan.sides((columns[0], columns[1]), multiplied)
                pieces.append((index, (one, *tail), (other,)))
    made = sorted({left for _, left, _ in pieces} | {()}, key=in_order)
    needed = {column for _, left, right in pieces for column in (*left, *right)}
    dealt: dict[int, list[Factor]] = {}
    for column in sorted(needed):
        dealt.setdefault(holder[column], []).append((column,))
    return Layout(
        {owner: plan.factors(names) for owner, names in dealt.items()},
        plan.factors(made),
        {},
        plan.products(pieces, lambda left: MADE),
    )
