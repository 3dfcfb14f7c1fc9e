"""Which products give the asked blocks, and who computes them: its owner in the clear, or the seats on shares.

A *factor* is a set of columns whose coordinates are multiplied row by row: none (a one in every row), one column, or a
column and the label. Every block is the inner product of two factors, summed over all rows. A block whose columns
have one owner is computed by that owner. Of the others, the label's owner deals factors of the label and its own
columns, and the seats make those of the label and somebody else's column on shares; as few of both as possible.

The public task of marginals: coded columns, the blocks that are asked for, and what owners prove of them.

A column with n values is dealt as n times its one-hot vector minus one, without the last coordinate. All n add up to
zero, so the seats compute their shares of the last one themselves, and the owner proves that each of the n numbers is
-1 or n - 1. Then exactly one of them is n - 1. A column with two values has one coordinate, -1 or 1.

If members are hidden, coordinates are zero where an owner holds nobody. With its flag added, each is 0 or n, and all of
them add up to n times the flag. A row with a flag of 0 counts for nothing, whatever else it holds. Products with the
label that its owner deals are claimed to be such, so nothing is proven of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError, StudyError
from colonnade.kinds.tables.sensitivity import changed_cells_sensitivity, marginals_sensitivity
from colonnade.mpc.verification.input_proofs import ColumnGroup, binary_columns
from colonnade.privacy import Event, Sensitivity, Trust
from colonnade.privacy.noise_laws import DEFAULT_LAW, NORMAL_LAWS, NormalLawName
from colonnade.protocols.committee_task import LARGEST_MESSAGE, AdjustedSum, JointSumTask
from colonnade.protocols.cost import WORD, ShareCounts
from colonnade.protocols.joint_sum.declaration import MADE, ONES
from colonnade.protocols.task import TaskPrograms

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


MOST_CELLS = 1 << 25
MOST_CELLS_OF_BLOCK = 1 << 22
_MOST_REFINED = 16  # owners


@dataclass(frozen=True)
class CodedColumn:
    """A column of one owner, coded by whole numbers from 0 to ``size - 1``."""

    owner: str
    name: str
    size: int


@dataclass(frozen=True)
class MarginalQuery:
    """A block: the columns, by their places in ascending order, and the weight that makes it more exact than others.

    No columns at all are the number of people.
    """

    columns: tuple[int, ...]
    weight: int


def axes(columns: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """How many numbers are opened along each column of a block: one for a column with two values."""
    return tuple(1 if sizes[column] == 2 else sizes[column] for column in columns)


def cells_of(columns: Sequence[int], sizes: Sequence[int]) -> int:
    """How many numbers are opened of a block."""
    return math.prod(axes(columns, sizes))


def conditions(
    coded: Sequence[CodedColumn], asked: Sequence[MarginalQuery], owners: Sequence[str], label: int | None
) -> Iterator[tuple[bool, str]]:
    """What must hold for columns and for blocks of them, and what is said otherwise."""
    order = [owners.index(column.owner) if column.owner in owners else -1 for column in coded]
    yield (
        -1 not in order and order == sorted(order),
        "coded columns stand owner by owner, in the order of the parties of the study [ST473]",
    )
    for column in coded:
        yield (
            column.size >= 2,
            f"column {column.name!r} of {column.owner} has a single value, so there is nothing to learn: leave it out "
            "[ST474]",
        )
    yield from (
        (
            label is None or 0 <= label < len(coded),
            f"the label is one of {len(coded)} coded columns, not number {label} [ST475]",
        ),
        (bool(asked), "no marginal is asked for: name at least one block of columns [ST476]"),
        (
            len({block.columns for block in asked}) == len(asked),
            "a block of columns is asked for twice: a larger weight makes it more exact instead [ST477]",
        ),
    )
    for columns, weight in ((block.columns, block.weight) for block in asked):
        yield from (
            (
                list(columns) == sorted(set(columns)) and set(columns) <= set(range(len(coded))),
                f"a block names its columns once and in ascending order, by places below {len(coded)} [ST478]",
            ),
            (
                isinstance(weight, int) and not isinstance(weight, bool) and weight >= 1,
                f"the weight of a block is a whole number above zero, not {weight!r} [ST479]",
            ),
            (
                len(columns) < 3 or (len(columns) == 3 and label in columns),
                "a block has at most two columns, or two and the label: ask for the pairs of its columns instead "
                "[ST480]",
            ),
        )


@lru_cache(maxsize=8)
def sensitivity_of(sizes: Any, blocks: Any, holder: Any, hidden: bool) -> Sensitivity:
    """How far one person can move what is opened."""
    moved = marginals_sensitivity(sizes, blocks)
    if not hidden:
        return moved
    # A record of one owner decides whether a whole row counts, so for everybody a row can come, go or be another.
    return replace(
        moved,
        replace_l1=max(moved.l1, moved.replace_l1),
        replace_l2_squared=max(moved.l2_squared, moved.replace_l2_squared),
    )


@lru_cache(maxsize=8)
def sensitivity_to_others(
    sizes: Any, blocks: Any, holder: Any, hidden: bool, owners: tuple[str, ...]
) -> tuple[tuple[str, int, int], ...]:
    """For each owner, how far a change of columns that it does not hold can move what is opened."""
    if hidden or len(owners) > _MOST_REFINED:
        return ()
    whole = sensitivity_of(sizes, blocks, holder, hidden)
    found = []
    for index, owner in enumerate(owners):
        elsewhere = [column for column, held in enumerate(holder) if held != index]
        l1, square = changed_cells_sensitivity(sizes, blocks, elsewhere)
        if square < whole.replace_l2_squared:
            found.append((owner, min(l1, whole.replace_l1), square))
    return tuple(found)


Numbers = NDArray[np.float64]


class CodeProof:
    """Which of an owner's dealt columns are proven, and the last coordinates beside them."""

    def __init__(self, dealt: FactorColumns, hidden: bool) -> None:
        self.hidden = hidden
        self.widths = [width for name, width in zip(dealt.names, dealt.widths, strict=True) if len(name) == 1]
        self.width = sum(self.widths)
        self.several = [place for place, width in enumerate(self.widths) if width > 1]
        column = np.repeat(np.arange(len(self.widths)), self.widths)
        self.added = (column[:, None] == self.several).astype(np.float64)
        """The coordinates that are added up for each last one."""

    @property
    def groups(self) -> tuple[ColumnGroup, ...]:
        """What is proven of the columns of :meth:`completed`."""
        low = 0 if self.hidden else -1
        values = [(low, low + width + 1) for width in self.widths]
        coordinates = [binary_columns(width, *pair) for width, pair in zip(self.widths, values, strict=True)]
        flag = [binary_columns(1)] if self.hidden else []
        return (*coordinates, *flag, *(binary_columns(1, *values[place]) for place in self.several))

    def complete_rows(
        self, dealt: Numbers, reduce: Callable[[Numbers], Numbers] = lambda values: values
    ) -> list[Numbers]:
        """Dealt rows, or shares of them, as the proof is about them, side by side: coordinates; flag and last ones.

        ``reduce`` is the reduction modulo primes, for shares.
        """
        coordinates, beside = dealt[..., : self.width], list[Numbers]()
        if self.hidden:
            beside.append(dealt[..., -1:])
            coordinates = reduce(coordinates + beside[0])
        if self.several:
            last = coordinates @ -self.added
            if self.hidden:
                last += beside[0] * np.array([self.widths[place] + 1.0 for place in self.several])
            beside.append(reduce(last))
        return [coordinates, *beside]


PROTOCOL = "marginals 1"
NAME = "marginals"
THEOREM = "marginals"
HIDDEN_THEOREM = "hidden-members"
_CELLS_AT_ONCE = 1 << 22
_BLOCK_CELLS = 1 << 22


@dataclass(frozen=True)
class Marginals(JointSumTask):
    """The public task. All owners and the coordinator hold an equal one.

    ``coded`` are the columns, owner by owner in the order of ``trust.owners``; ``label`` is the place of one of them,
    which every block of three columns holds. ``noise`` is mu of Skellam noise or the variance of discrete Gaussian
    noise, all owners' shares together, on every opened number alike. With ``hidden`` nobody knows which people all
    owners hold: rows are dealt for every slot of a common universe. ``called`` is the name of the event.
    """

    coded: tuple[CodedColumn, ...]
    asked: tuple[MarginalQuery, ...]
    trust: Trust
    rows_at_most: int
    noise: int
    law: NormalLawName = DEFAULT_LAW
    block_rows: int = 8192
    hidden: bool = False
    label: int | None = None
    called: str = NAME

    programs = TaskPrograms("colonnade.kinds.tables.programs")
    games = "marginals"
    gamma = 1  # coordinates are integers already
    noise_on = "a cell of the least exact marginal, in people"
    proofs = ("proven", "unproven")

    def __post_init__(self) -> None:
        if self.law not in NORMAL_LAWS:
            raise StudyError(f"unknown noise {self.law!r} for marginals; choose from {', '.join(NORMAL_LAWS)} [ST489]")
        for kept, otherwise in conditions(self.coded, self.asked, self.trust.owners, self.label):
            if not kept:
                raise StudyError(otherwise)
        cells = [cells_of(block.columns, self.sizes) for block in self.asked]
        if max(cells) > MOST_CELLS_OF_BLOCK:
            raise CapacityError(
                f"a block has {max(cells)} cells and at most {MOST_CELLS_OF_BLOCK} can be asked for: use fewer bins "
                "[CA022]"
            )
        if sum(cells) > MOST_CELLS:
            raise CapacityError(
                f"all blocks together have {sum(cells)} cells and at most {MOST_CELLS} can be opened: ask for fewer "
                "blocks or use fewer bins [CA021]"
            )

    # --- columns and cells

    merged_columns = 0
    """Of how many columns narrow bins are counted first, and merged."""

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many values each column has."""
        return tuple(column.size for column in self.coded)

    @cached_property
    def holder(self) -> tuple[int, ...]:
        """The owner of each column, by number."""
        places = {owner: place for place, owner in enumerate(self.owners)}
        return tuple(places[column.owner] for column in self.coded)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The coded columns."""
        return tuple(f"{column.owner}.{column.name}" for column in self.coded)

    def held_by(self, owner: str) -> tuple[int, ...]:
        """The places of an owner's columns."""
        return tuple(place for place, column in enumerate(self.coded) if column.owner == owner)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where the numbers of each block begin among all that are opened; the last one is where they end."""
        found = [0]
        for block in self.asked:
            found.append(found[-1] + cells_of(block.columns, self.sizes))
        return tuple(found)

    @property
    def entries(self) -> int:
        """How many numbers are opened."""
        return self.starts[-1]

    @cached_property
    def parts(self) -> tuple[range, ...]:
        """Runs of blocks, each of which is opened by one message of every seat."""
        found, begin = [], 0
        for index in range(len(self.asked)):
            if self.starts[index + 1] - self.starts[begin] > _CELLS_AT_ONCE:
                found.append(range(begin, index))
                begin = index
        return (*found, range(begin, len(self.asked)))

    @cached_property
    def layout(self) -> ProductLayout:
        """What is computed where."""
        blocks = [block.columns for block in self.asked]
        if self.hidden:
            return plan_hidden_products(blocks, self.sizes, self.holder, self.label)
        # 2t + 1 seats deal when a degree is lowered, and each puts together what all of them dealt.
        making = 2 * (2 * self.trust.threshold + 1) if self._few_seats else 0
        proven = self.trust.proven
        return plan_products(blocks, self.sizes, self.holder, self.label, making, proven)

    @property
    def _few_seats(self) -> bool:
        """Whether a product of three cannot be opened, or checked, without lowering the degree first."""
        return self.trust.active or len(self.trust.committee) <= 3 * self.trust.threshold

    @property
    def lowered(self) -> bool:
        """Whether the degree of shares is lowered: there are products of three, and too few seats to open them."""
        return bool(self.layout.made.names) and (self.hidden or self._few_seats)

    @property
    def opened_degree(self) -> int:
        """The degree of the sharing that is opened: checked sums are lowered to that of an input."""
        if self.trust.active:
            return self.trust.threshold
        return (3 if self.layout.made.names and not self.lowered else 2) * self.trust.threshold

    # --- bounds and noise

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """How far one person can move what is opened."""
        return sensitivity_of(*self._moved_by)

    @cached_property
    def others(self) -> tuple[tuple[str, int, int], ...]:
        """For each owner, how far a change of columns that it does not hold can move what is opened."""
        return sensitivity_to_others(*self._moved_by, self.owners)

    @property
    def _moved_by(self) -> tuple[Any, ...]:
        """What sensitivities depend on: not on the noise, so they are computed once for a study."""
        return self.sizes, tuple((block.columns, block.weight) for block in self.asked), self.holder, self.hidden

    @cached_property
    def event(self) -> Event:
        """What all openings together reveal."""
        theorem = f"{THEOREM}, {HIDDEN_THEOREM}" if self.hidden else THEOREM
        return self.additive.release(
            self.called,
            self.entries,
            self.sensitivity,
            theorem=theorem,
            others=self.others,
            lost=self.shown_by_proofs if self.codes else 0.0,
        )

    def with_noise(self, noise: int) -> Self:
        """The same with other noise; blocks are not checked again, and what the noise does not change is kept."""
        found = copy(self)
        for name in ("event", "bound", "committee", "for_sums"):
            found.__dict__.pop(name, None)
        object.__setattr__(found, "noise", noise)
        return found

    @property
    def openings(self) -> Mapping[Event, int]:
        """Each part is one opening, and all of them are one event."""
        return {self.event: len(self.parts)}

    def scale_squared(self, block: MarginalQuery) -> int:
        """The square of the scale of a block: noise of an opened number over it is that of a cell, in people."""
        return block.weight**2 * math.prod(2 if self.sizes[c] == 2 else self.sizes[c] ** 2 for c in block.columns)

    def deviation(self, block: MarginalQuery) -> float:
        """The standard deviation of the noise of a cell, in people, before it is projected to sum to zero."""
        return float(self.additive.deviation / math.sqrt(self.scale_squared(block)))

    @cached_property
    def coarseness(self) -> Fraction:
        """The variance of a cell of the least exact marginal, in people, for noise of variance one.

        The marginal of a set of columns is the sum of the blocks of its subsets, each spread evenly over the columns
        that it does not name (docs/theory/fitting-marginals.md, section 2). Different blocks have independent noise.
        """
        kept = {block.columns: self._kept(block) for block in self.asked}

        def variance(columns: tuple[int, ...]) -> Fraction:
            whole = math.prod(self.sizes[column] for column in columns)
            subsets = (each for order in range(len(columns) + 1) for each in combinations(columns, order))
            named = (each for each in subsets if each in kept)
            return (
                sum((kept[each] * math.prod(self.sizes[c] ** 2 for c in each) for each in named), Fraction()) / whole**2
            )

        return max(variance(columns) for columns in kept)

    def _kept(self, block: MarginalQuery) -> Fraction:
        """The variance of a block's cell in people, projected to sum to zero, for noise of variance one."""
        part = Fraction(1, self.scale_squared(block))
        return part * math.prod(Fraction(self.sizes[column] - 1, self.sizes[column]) for column in block.columns)

    @property
    def error_scale(self) -> Fraction:
        """An opened number over this is a cell of the least exact marginal, in people, rounded down."""
        return Fraction(math.isqrt(int((1 << 64) / self.coarseness)), 1 << 32)

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise on a cell of the least exact marginal, in people."""
        return float(self.additive.deviation) * math.sqrt(self.coarseness)

    @cached_property
    def bound(self) -> int:
        """The largest magnitude an opened number can have, noise included."""
        person = max(b.weight * math.prod(self.sizes[column] - 1 for column in b.columns) for b in self.asked)
        bound = self.rows_at_most * person + self.additive.reach()
        if bound >= 2**62:
            raise CapacityError(
                f"sums of marginals may need {bound.bit_length() + 1} bits and 63 are available: lower the weights or "
                f"the row limit ({self.rows_at_most}) [CA023]"
            )
        return bound

    # --- what it takes

    @cached_property
    def width(self) -> int:
        """How many numbers of a row a seat holds: what owners deal, and what is made of it."""
        return sum(factors.width for factors in self.layout.dealt.values()) + self.layout.made.width

    @property
    def rows_per_block(self) -> int:
        """How many rows are dealt at a time: as many as fit a message and the memory of a seat."""
        widest = max([*(factors.width for factors in self.layout.dealt.values()), self.layout.made.width, 1]) + 1
        fitting = LARGEST_MESSAGE // (WORD * widest * len(self.committee.system.primes))
        return self.block_of(min(self.block_rows, fitting, _BLOCK_CELLS // max(1, self.width)))

    @property
    def rows_at_once(self) -> int:
        """How many rows a seat holds at a time: a block is multiplied and forgotten, or kept until it is checked."""
        return self.rows_per_block * (self.blocks_per_window if self.trust.active else 1)

    @cached_property
    def codes(self) -> Mapping[str, CodeProof]:
        """For each owner that proves something of what it deals, which numbers these are."""
        if not self.trust.proven:
            return {}
        dealt, none = self.layout.dealt, FactorColumns((), ())
        return {
            owner: CodeProof(dealt.get(number, none), self.hidden)
            for number, owner in enumerate(self.owners)
            if self.hidden or number in dealt
        }

    @cached_property
    def proof_groups(self) -> Mapping[str, Sequence[ColumnGroup]]:
        """For each owner that deals coordinates: that they are those of codes, and flags if members are hidden."""
        return {owner: codes.groups for owner, codes in self.codes.items()}

    @property
    def rests_on_bounds(self) -> bool:
        """Only where something of rows is dealt."""
        return self.hidden or bool(self.layout.dealt)

    @property
    def message_rounds(self) -> int:
        """How often participants wait for each other, in a study of one block of rows."""
        lowered = int(self.lowered)
        if self.hidden:  # flags, two at a time; the label; then all other factors
            lowered = (len(self.owners) - 1).bit_length() + 1 + any(len(name) > 1 for name in self.layout.made.names)
        # ready, go; salt, digests, verdict; shares; then, for each part, noise and opening
        return 6 + lowered + self.trust.active + 2 * len(self.parts)

    def cells(self, name: str, rows: int) -> ShareCounts:
        """How many numbers a participant shares, holds and sends when opening; lowering a degree is sharing too."""
        layout, seats, flags = self.layout, self.trust.committee, len(self.owners) if self.hidden else 0
        lowered = rows * (layout.made.width + max(0, flags - 1)) if self.lowered else 0
        if self.trust.active:
            sums = sum(product.left.width * product.right.width for product in layout.shared)
            lowered += sums * -(-rows // (self.rows_per_block * self.blocks_per_window))
        dealers = seats[: 2 * self.trust.threshold + 1]
        dealt = 0
        if name in self.owners:
            own = layout.dealt.get(self.owners.index(name))
            dealt = rows * ((own.width if own else 0) + self.hidden) + self.entries
        if name not in seats:
            return ShareCounts(dealt, 0, 0)
        inputs = sum(factors.width for factors in layout.dealt.values()) + flags
        return ShareCounts(
            dealt=dealt + lowered * (name in dealers),
            held=rows * inputs + lowered * len(dealers) + self.entries * len(self.owners),
            opened=self.entries * (len(self.everyone) - (name in self.everyone)),
        )

    def products(self, rows: int) -> int:
        """Of codes of two columns that are asked for together."""
        return rows * sum(product.left.width * product.right.width for product in self.layout.shared)

    def adjustable(self, rows: int | None) -> AdjustedMarginals:
        """The task with given noise."""
        return AdjustedMarginals(self, rows, "the weights")

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return self.shares_agreement | {
            "protocol": PROTOCOL,
            "coded": [[column.owner, column.name, column.size] for column in self.coded],
            "asked": [[list(block.columns), str(block.weight)] for block in self.asked],
            "label": self.label,
            "law": self.law,
            "rows_per_block": self.rows_per_block,
            "called": self.called,
            **({"hidden": True} if self.hidden else {}),
        }

    @property
    def facts(self) -> dict[str, Any]:
        """What a record of a run says about the task."""
        return self.shares_facts | {
            "blocks": len(self.asked),
            "cells": self.entries,
            "openings": len(self.parts),
            **({"hidden": True} if self.hidden else {}),
        }


@dataclass(frozen=True)
class AdjustedMarginals(AdjustedSum):
    """Marginals with given noise; the error is that of a cell of the least exact marginal, as a share of all people."""

    error_on = "share of people in a cell of the least exact marginal"
