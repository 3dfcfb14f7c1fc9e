"""Which products give the asked blocks, and who computes them: its owner in the clear, or the seats on shares.

A *factor* is a set of columns whose coordinates are multiplied row by row: none (a one in every row), one column, or a
column and the label. Every block is the inner product of two factors, summed over all rows. A block whose columns
have one owner is computed by that owner. Of the others, the label's owner deals factors of the label and its own
columns, and the seats make those of the label and somebody else's column on shares; as few of both as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from colonnade.protocols.joint_sum.declaration import MADE, ONES

Columns = tuple[int, ...]
Factor = tuple[int, ...]
_SPARSE = 3


@dataclass(frozen=True)
class FactorColumns:
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
class FactorProduct:
    """Inner products of every left factor with every right one, and which of them are blocks: (block, left, right)."""

    left_source: int
    left: FactorColumns
    right_source: int
    right: FactorColumns
    blocks: tuple[tuple[int, Factor, Factor], ...]


@dataclass(frozen=True)
class ProductLayout:
    """What owners deal, what is made of it on shares, and which products are computed where."""

    dealt: Mapping[int, FactorColumns]
    made: FactorColumns
    own: Mapping[int, tuple[FactorProduct, ...]]
    shared: tuple[FactorProduct, ...]


Piece = tuple[int, Factor, Factor]
_Group = tuple[int, int, int, int]


class _ProductPlan:
    """What both layouts need: the columns, who holds them, and how blocks are put together to large products."""

    def __init__(self, sizes: Sequence[int], holder: Sequence[int], label: int | None) -> None:
        self.sizes, self.holder = sizes, holder
        self.label: Factor = () if label is None else (label,)

    def factors(self, names: Sequence[Factor]) -> FactorColumns:
        """The factors with their widths: a column with n values has n - 1 coordinates, as all n add up to zero."""
        return FactorColumns(tuple(names), tuple(self.width(name) for name in names))

    def width(self, name: Factor) -> int:
        found = 1
        for column in name:
            found *= self.sizes[column] - 1
        return found

    def source(self, name: Factor) -> int:
        """Who deals a factor, if somebody does."""
        return self.holder[name[0]] if name else ONES

    def split(self, columns: Columns) -> tuple[Columns, Factor]:
        """The columns of a block, and the label behind them if it is a block of three."""
        if len(columns) < 3:
            return columns, ()
        return tuple(column for column in columns if column not in self.label), self.label

    def sides(self, pair: tuple[int, int], multiplied: set[int]) -> tuple[int, int]:
        """Which column of a pair is on the left, among what is made, and which on the right."""
        found = [column for column in pair if column in multiplied]
        left = min(found, key=lambda column: (self.holder[column], column))
        return left, pair[0] if left == pair[1] else pair[1]

    def products(self, pieces: Sequence[Piece], left_of: Callable[[Factor], int]) -> tuple[FactorProduct, ...]:
        """As few large products as hold all pieces, unless most of what they would hold is not asked for."""
        groups: dict[_Group, list[Piece]] = {}
        for piece in pieces:
            _, left, right = piece
            groups.setdefault((left_of(left), len(left), self.source(left), self.source(right)), []).append(piece)
        found: list[FactorProduct] = []
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

    def product(self, left_source: int, right_source: int, pieces: Sequence[Piece]) -> FactorProduct:
        left = self.factors(sorted({left for _, left, _ in pieces}, key=factor_order))
        right = self.factors(sorted({right for _, _, right in pieces}, key=factor_order))
        return FactorProduct(left_source, left, right_source, right, tuple(pieces))


def factor_order(factor: Factor) -> tuple[int, Factor]:
    """How factors of one source are ordered: single columns first, those with the label behind them."""
    return len(factor), factor


def plan_products(
    asked: Sequence[Columns],
    sizes: Sequence[int],
    holder: Sequence[int],
    label: int | None,
    making: int,
    proven: bool = False,
) -> ProductLayout:
    """The products of all blocks, where everybody holds the same people.

    ``making`` is how much dearer it is to multiply a column with the label on shares than to deal the product. Where
    owners prove what they deal (``proven``), the label's owner deals both factors of a product too.
    """
    plan = _ProductPlan(sizes, holder, label)
    own: dict[int, list[Piece]] = {}
    shared: list[Piece] = []
    joint: list[tuple[int, tuple[int, int]]] = []
    for index, columns in enumerate(asked):
        owners, (rest, with_label) = {holder[column] for column in columns}, plan.split(columns)
        if len(owners) < 2:
            own.setdefault(min(owners, default=0), []).append((index, (*rest[:1], *with_label), rest[1:]))
        elif with_label:
            joint.append((index, (rest[0], rest[1])))
        else:
            shared.append((index, rest[:1], rest[1:]))
    at_home = {column for column, owner in enumerate(holder) if label is not None and owner == holder[label]}
    cost = [(size - 1) * (1 if column in at_home else making) for column, size in enumerate(sizes)]
    multiplied = cover([pair for _, pair in joint], cost, holder)
    for index, pair in joint:
        first, second = plan.sides(pair, multiplied)
        shared.append((index, (first, *plan.label), (second,)))
    made = {left for _, left, _ in shared if len(left) > 1 and left[0] not in at_home}
    dealt: dict[int, set[Factor]] = {}
    for _, *sides in shared:
        for factor in sides:
            alone = [(column,) for column in factor] if factor in made or proven else []
            for name in alone if factor in made else [*alone, factor]:
                dealt.setdefault(holder[name[0]], set()).add(name)
    return ProductLayout(
        {owner: plan.factors(sorted(names, key=factor_order)) for owner, names in sorted(dealt.items())},
        plan.factors(sorted(made, key=lambda factor: (holder[factor[0]], factor))),
        {owner: plan.products(pieces, plan.source) for owner, pieces in own.items()},
        plan.products(shared, lambda left: MADE if left in made else plan.source(left)),
    )


def plan_hidden_products(
    asked: Sequence[Columns], sizes: Sequence[int], holder: Sequence[int], label: int | None
) -> ProductLayout:
    """The same where nobody knows whose rows count: every left factor is multiplied, on shares, by whether one does."""
    plan = _ProductPlan(sizes, holder, label)
    pieces: list[Piece] = []
    joint: dict[Factor, list[tuple[int, tuple[int, int]]]] = {}
    for index, columns in enumerate(asked):
        rest, with_label = plan.split(columns)
        if len(rest) < 2:
            pieces.append((index, (), rest))
        else:
            joint.setdefault(with_label, []).append((index, (rest[0], rest[1])))
    for with_label, blocks in joint.items():
        multiplied = cover([pair for _, pair in blocks], [size - 1 for size in sizes], holder)
        for index, pair in blocks:
            first, second = plan.sides(pair, multiplied)
            pieces.append((index, (first, *with_label), (second,)))
    dealt: dict[int, list[Factor]] = {}
    for column in sorted({column for _, left, right in pieces for column in (*left, *right)}):
        dealt.setdefault(holder[column], []).append((column,))
    return ProductLayout(
        {owner: plan.factors(names) for owner, names in dealt.items()},
        plan.factors(sorted({left for _, left, _ in pieces} | {()}, key=factor_order)),
        {},
        plan.products(pieces, lambda left: MADE),
    )


def cover(pairs: Sequence[tuple[int, int]], cost: Sequence[int], holder: Sequence[int]) -> set[int]:
    """Columns, as cheap as possible together, of which every pair has one.

    Columns are left out as long as every pair keeps one: the dearest first, or first those of one owner. The cheapest
    of these ways is taken; to find the best of all can take long.
    """
    beside: dict[int, set[int]] = {}
    for one, other in pairs:
        beside.setdefault(one, set()).add(other)
        beside.setdefault(other, set()).add(one)
    columns = sorted(beside, key=lambda column: (-cost[column], column))
    found = []
    for first in (None, *sorted({holder[column] for column in columns})):
        out: set[int] = set()
        for column in sorted(columns, key=lambda column: holder[column] != first):
            if not beside[column] & out:
                out.add(column)
        found.append(set(columns) - out)
    return min(found, key=lambda kept: (sum(cost[column] for column in kept), sorted(kept)))
