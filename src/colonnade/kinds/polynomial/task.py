"""The public task of polynomial sums: the integer program, who multiplies what, and the published result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.polynomial.expressions import Monomial, Terms, degree, format_terms
from colonnade.kinds.polynomial.sensitivity import (
    Domain,
    IndexedMonomial,
    monomial_maximum,
    monomials_sensitivity,
    others_sensitivity,
    polynomial_maxima,
)
from colonnade.mpc.verification.input_proofs import ColumnGroup, bounded_norm
from colonnade.mpc.verification.three_squares import LARGEST
from colonnade.privacy import Event, Sensitivity, Trust
from colonnade.privacy.noise.local_mechanisms import MODES, RoundingMode
from colonnade.privacy.noise_laws import DEFAULT_LAW, NORMAL_LAWS, NormalLawName
from colonnade.privacy.observers import Inputs
from colonnade.privacy.sensitivity import enforced_norm_squared
from colonnade.protocols.committee_task import LARGEST_MESSAGE, JointSumTask
from colonnade.protocols.cost import WORD, ShareCounts
from colonnade.protocols.task import TaskPrograms

Node = int
"""A column of shares: first the factors that owners deal, then products at a lowered degree."""


@dataclass(frozen=True)
class IntegerProgram:
    """Integer coefficients for integer columns; ``scale`` is what the result is divided by."""

    outputs: tuple[Mapping[IndexedMonomial, int], ...]
    scale: int
    degree: int


def integer_program(polynomials: Sequence[Terms], names: Sequence[str], gamma: int) -> IntegerProgram:
    """Algorithm 3, lines 1 to 3: every monomial at the scale gamma^L times D, whatever its own degree.

    L is the largest degree. D is the common denominator of all coefficients, so that nothing is rounded; where that
    is above gamma, D is gamma and coefficients are rounded to the nearest integer.
    """
    place = {name: index for index, name in enumerate(names)}
    largest = max(degree(terms) for terms in polynomials)
    common = math.lcm(*(a.denominator for terms in polynomials for a in terms.values()))
    finest = common if common <= gamma else gamma
    outputs = []
    for terms in polynomials:
        output: dict[IndexedMonomial, int] = {}
        for monomial, a in terms.items():
            whole = round(a * finest * gamma ** (largest - degree([monomial])))
            if not whole:
                raise StudyError(
                    f"the coefficient of {_monomial_text(monomial)} is too small for gamma = {gamma}: multiply the "
                    "expression by a public number, or raise gamma [ST506]"
                )
            output[tuple(sorted((place[name], power) for name, power in monomial))] = whole
        outputs.append(output)
    return IntegerProgram(tuple(outputs), gamma**largest * finest, largest)


def _monomial_text(monomial: tuple[tuple[str, int], ...]) -> str:
    return " * ".join(name if power == 1 else f"{name}^{power}" for name, power in monomial) or "the constant"


@dataclass(frozen=True)
class MonomialLayout:
    """Who computes which part.

    ``own`` are the monomials of one owner's columns alone. The other monomials are products over owners of
    sub-monomials that an owner computes in the clear. ``factors`` are all monomials that it deals, each as a column:
    these, and where owners prove their bounds, before them what they are products of. ``cross`` lists the monomials
    between owners, and ``products`` the nodes to be multiplied for each.
    """

    own: Mapping[int, tuple[IndexedMonomial, ...]]
    factors: Mapping[int, tuple[IndexedMonomial, ...]]
    cross: tuple[IndexedMonomial, ...]
    products: tuple[tuple[Node, ...], ...]

    @property
    def dealt(self) -> int:
        """How many columns are dealt, by all owners."""
        return sum(map(len, self.factors.values()))


def split_factor(factor: IndexedMonomial) -> tuple[IndexedMonomial, int]:
    """A factor as a shorter one times a variable; the shorter one is empty if it is a variable itself."""
    *before, (variable, power) = factor
    return (*before, (variable, power - 1)) if power > 1 else tuple(before), variable


def multiplied_up(factors: Iterable[IndexedMonomial]) -> tuple[IndexedMonomial, ...]:
    """Factors and all that they are products of, variables first: any other is another one times a variable."""
    found = set()
    for factor in factors:
        left = factor
        while left:
            found.add(left)
            left, variable = split_factor(left)
            found.add(((variable, 1),))
    return tuple(sorted(found, key=lambda one: (sum(power for _, power in one), one)))


def split_monomials(program: IntegerProgram, holder: Sequence[int], *, proven: bool) -> MonomialLayout:
    """Split monomials by the owners of their variables; ``holder`` gives the owner of each variable."""
    own: dict[int, dict[IndexedMonomial, None]] = {}
    cross: dict[IndexedMonomial, dict[int, IndexedMonomial]] = {}
    for monomial in (m for output in program.outputs for m in output if m):
        split: dict[int, IndexedMonomial] = {}
        for variable, power in monomial:
            split[holder[variable]] = (*split.get(holder[variable], ()), (variable, power))
        if len(split) == 1:
            own.setdefault(next(iter(split)), {})[monomial] = None
        else:
            cross[monomial] = dict(sorted(split.items()))
    factors: dict[int, dict[IndexedMonomial, None]] = {}
    for split in cross.values():
        for owner, factor in split.items():
            factors.setdefault(owner, {})[factor] = None
    ordered = {o: multiplied_up(factors[o]) if proven else tuple(factors[o]) for o in sorted(factors)}
    nodes = {(o, f): i for i, (o, f) in enumerate((o, f) for o, fs in ordered.items() for f in fs)}
    products = tuple(tuple(nodes[part] for part in split.items()) for split in cross.values())
    return MonomialLayout({owner: tuple(found) for owner, found in own.items()}, ordered, tuple(cross), products)


@dataclass(frozen=True)
class ProductSchedule:
    """Products in rounds: in each of ``levels``, groups of nodes are multiplied, and the degree is lowered.

    The nodes of a level follow those before it, in the order of its groups. ``last`` are the products that are
    only summed over rows and opened, so their degree need not be lowered.
    """

    levels: tuple[tuple[tuple[Node, ...], ...], ...]
    last: tuple[tuple[Node, ...], ...]

    @property
    def longest(self) -> int:
        """How many nodes the longest last product has."""
        return max(map(len, self.last), default=1)


def schedule_products(products: Sequence[tuple[Node, ...]], dealt: int, at_once: int) -> ProductSchedule:
    """Multiply at most ``at_once`` nodes before a lowering; products that begin with the same nodes share these."""
    levels, current, nodes = [], list(products), dealt
    while any(len(product) > at_once for product in current):
        made: dict[tuple[Node, ...], Node] = {}
        for index, product in enumerate(current):
            if len(product) > at_once:
                groups = [product[start : start + at_once] for start in range(0, len(product), at_once)]
                current[index] = tuple(
                    group[0] if len(group) == 1 else made.setdefault(group, nodes + len(made)) for group in groups
                )
        levels.append(tuple(made))
        nodes += len(made)
    return ProductSchedule(tuple(levels), tuple(current))


THEOREM = "polynomial-sensitivity"
PROTOCOL = "polynomial sums 1"
Polynomial = tuple[tuple[Monomial, Fraction], ...]
_BLOCK_CELLS = 2**22
_MOST_TERMS = 20_000
_FEW_OWNERS = 8


@dataclass(frozen=True)
class NamedColumns:
    """The columns of one owner that the polynomials name, and the bounds that the owner enforces on a row of them.

    ``sources`` counts the table columns they are encoded from: the parts of a category are one. ``unsigned`` says
    which of them are never negative.
    """

    owner: str
    columns: tuple[str, ...]
    clip: float
    sources: int
    unsigned: tuple[bool, ...]


@dataclass(frozen=True)
class DealtColumns:
    """Columns that an owner deals and of which it proves that they lie in the domain, and which groups say so."""

    unsigned: tuple[bool, ...]
    norm_squared: int
    reach: int

    @cached_property
    def alone(self) -> tuple[int, ...]:
        """Columns that need a bound of their own: those that are never negative, or that the norm leaves too free."""
        free = self.norm_squared > self.reach**2
        return tuple(column for column, never in enumerate(self.unsigned) if never or free)

    @property
    def together(self) -> bool:
        """Whether the bounds of single columns leave anything to the norm."""
        count = len(self.unsigned)
        return len(self.alone) < count or self.norm_squared < count * self.reach**2

    @property
    def groups(self) -> tuple[ColumnGroup, ...]:
        """What is proven of :meth:`of_rows`."""
        norm = [bounded_norm(len(self.unsigned), self.norm_squared)] if self.together else []
        return (*norm, *(bounded_norm(1, self.reach**2) for _ in self.alone))

    def of_rows(self, dealt: NDArray[Any], reduce: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[Any]:
        """Dealt rows, or shares of them: x, and beside it x alone, or 2 x - reach, which says that 0 <= x <= reach."""
        columns = dealt[..., : len(self.unsigned)].astype(np.float64)
        never = np.array([self.unsigned[column] for column in self.alone], dtype=bool)
        single = reduce(columns[..., self.alone] * (1.0 + never) - float(self.reach) * never)
        return np.concatenate([columns, single], axis=-1) if self.together else single


def freeze_terms(terms: Terms) -> Polynomial:
    """A polynomial as a value, its terms in order."""
    return tuple(sorted(terms.items()))


@dataclass(frozen=True)
class Polynomials(JointSumTask):
    """The public task. All owners and the coordinator hold an equal one.

    ``noise`` is mu of Skellam noise or the variance of discrete Gaussian noise, all owners' shares together, on
    every sum alike.
    """

    holdings: tuple[NamedColumns, ...]
    trust: Trust
    polynomials: tuple[Polynomial, ...]
    gamma: int
    rows_at_most: int
    noise: int
    rounding: RoundingMode = "stochastic"
    law: NormalLawName = DEFAULT_LAW
    block_rows: int = 8192

    programs = TaskPrograms("colonnade.kinds.polynomial.programs")
    games = "polynomial"
    noise_on = "a sum"
    proofs = ("proven", "unproven")

    def __post_init__(self) -> None:
        if self.rounding not in MODES:
            raise StudyError(f"unknown rounding {self.rounding!r}; choose from {', '.join(MODES)} [ST525]")
        if self.law not in NORMAL_LAWS:
            raise StudyError(
                f"unknown noise {self.law!r} for polynomial sums; choose from {', '.join(NORMAL_LAWS)} [ST526]"
            )
        if (terms := sum(map(len, self.polynomials))) > _MOST_TERMS:
            raise StudyError(f"the expressions have {terms} terms together; the limit is {_MOST_TERMS} [ST528]")

    @property
    def owners(self) -> tuple[str, ...]:
        """Who takes part with columns and noise, in order."""
        return tuple(holding.owner for holding in self.holdings)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns that the polynomials name, owner by owner."""
        return tuple(f"{holding.owner}.{column}" for holding in self.holdings for column in holding.columns)

    @property
    def expressions(self) -> tuple[str, ...]:
        """The polynomials as text, always in the same way."""
        return tuple(format_terms(dict(polynomial)) for polynomial in self.polynomials)

    def span(self, owner: str) -> slice:
        """Where an owner's columns lie."""
        index = self.owners.index(owner)
        start = sum(len(holding.columns) for holding in self.holdings[:index])
        return slice(start, start + len(self.holdings[index].columns))

    # --- the integer program

    @cached_property
    def program(self) -> IntegerProgram:
        """Integer coefficients at one scale."""
        return integer_program([dict(polynomial) for polynomial in self.polynomials], self.names, self.gamma)

    @cached_property
    def holder(self) -> tuple[int, ...]:
        """The owner of each column, by number."""
        return tuple(index for index, holding in enumerate(self.holdings) for _ in holding.columns)

    @cached_property
    def layout(self) -> MonomialLayout:
        """What each owner computes alone, and what is multiplied on shares."""
        return split_monomials(self.program, self.holder, proven=self.trust.proven)

    @cached_property
    def schedule(self) -> ProductSchedule:
        """The products on shares, in rounds; each multiplies as many factors as the seats can still open.

        In active mode, it multiplies two: every product of two is lowered and checked.
        """
        at_once = 2 if self.trust.active else (len(self.trust.committee) - 1) // self.trust.threshold
        return schedule_products(self.layout.products, self.layout.dealt, at_once)

    @property
    def entries(self) -> int:
        """How many sums there are."""
        return len(self.polynomials)

    @property
    def width(self) -> int:
        """How many numbers of a row a seat holds: factors, products of them, and what proofs add."""
        groups = [group for own in self.proof_groups.values() for group in own]
        added = sum(group.columns + group.slack for group in groups)
        return self.layout.dealt + sum(map(len, self.schedule.levels)) + len(self.layout.cross) + added

    @property
    def opened_degree(self) -> int:
        """The degree of the sharing that is opened."""
        return (1 if self.trust.active else self.schedule.longest) * self.trust.threshold

    # --- bounds and noise

    def norm_squared(self, index: int) -> int:
        """The largest squared norm of one owner's integer row; the owner enforces it."""
        held = self.holdings[index]
        return enforced_norm_squared(self.gamma, held.clip, len(held.columns), held.sources, self.rounding)

    @cached_property
    def domain(self) -> Domain:
        """Which integer rows there can be."""
        unsigned = [never for holding in self.holdings for never in holding.unsigned]
        norms = tuple(self.norm_squared(index) for index in range(len(self.holdings)))
        return Domain(self.holder, norms, self.gamma, frozenset(i for i, never in enumerate(unsigned) if never))

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """How far one person can move the sums."""
        return _sensitivity(replace(self, noise=0))  # cached without the noise, on which it does not depend

    @cached_property
    def event(self) -> Event:
        """What the one opening reveals."""
        name, sums = "polynomial sums", len(self.polynomials)
        lost = self.shown_by_proofs if self.dealt_columns else 0.0
        return self.additive.release(name, sums, self.sensitivity, theorem=THEOREM, others=self.others, lost=lost)

    @cached_property
    def others(self) -> tuple[tuple[str, int, int], ...]:
        """For owners with monomials of only their own columns, how far a change of other columns can move the sums."""
        return _others(replace(self, noise=0))

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on a published number."""
        variance = self.additive.unit * self.noise
        return float(Fraction(math.isqrt(variance << 64), 1 << 32) / self.program.scale)

    @cached_property
    def largest(self) -> int:
        """The largest number that can occur without noise: a sum over all rows, or a factor of one row."""
        factors = [factor for own in self.layout.factors.values() for factor in own]
        single = max((monomial_maximum(factor, self.domain) for factor in factors), default=0)
        return max(single, self.rows_at_most * max(polynomial_maxima(self.program.outputs, self.domain)))

    @cached_property
    def bound(self) -> int:
        """The largest magnitude an opened sum can have, with its noise."""
        also = f", rows_at_most ({self.rows_at_most}) or the degree ({self.program.degree})"
        return self.within_63_bits(self.largest + self.additive.reach(), also)

    @property
    def rows_per_block(self) -> int:
        """How many rows are dealt at a time: as many as fit a message and the memory of a seat."""
        wide = max([*map(len, self.layout.factors.values()), *map(len, self.schedule.levels), 1])
        primes = len(self.committee.system.primes)
        fitting = LARGEST_MESSAGE // (WORD * wide * primes)
        return self.block_of(min(self.block_rows, fitting, _BLOCK_CELLS // max(1, self.width)))

    @property
    def rows_at_once(self) -> int:
        """How many rows a seat holds at a time: a block is multiplied and forgotten, or kept until it is checked."""
        return self.rows_per_block * (self.blocks_per_window if self.trust.active else 1)

    # --- proofs

    @property
    def rests_on_bounds(self) -> bool:
        """Only where columns of different owners are multiplied."""
        return bool(self.layout.cross)

    @property
    def possible_proofs(self) -> tuple[Inputs, ...]:
        """Proofs are about numbers whose squares are short."""
        norms = max(self.norm_squared(index) for index in range(len(self.holdings)))
        return self.proofs if max(norms, self.gamma**2) < LARGEST else ("unproven",)

    @cached_property
    def dealt_columns(self) -> Mapping[str, DealtColumns]:
        """For each owner that proves something of its rows, the columns of which it does."""
        if not self.trust.proven:
            return {}
        found = {}
        for index, factors in self.layout.factors.items():
            start, held = self.span(self.owners[index]).start, self.holdings[index]
            here = [factor[0][0] - start for factor in factors if sum(power for _, power in factor) == 1]
            unsigned = tuple(held.unsigned[column] for column in here)
            found[held.owner] = DealtColumns(unsigned, self.norm_squared(index), self.gamma)
        return found

    @cached_property
    def proof_groups(self) -> Mapping[str, Sequence[ColumnGroup]]:
        """For each owner that deals factors: that their columns lie in the domain."""
        return {owner: columns.groups for owner, columns in self.dealt_columns.items()}

    # --- what others want to know

    @property
    def message_rounds(self) -> int:
        """How often participants wait for each other, in a study of one block of rows."""
        return 8 + len(self.schedule.levels)  # ready, go; salt, digests, verdict; shares; zero; opening

    def cells(self, name: str, rows: int) -> ShareCounts:
        """How many numbers a participant shares, holds and sends when opening; lowering a degree is sharing too."""
        sums, lowered = len(self.polynomials), rows * sum(map(len, self.schedule.levels))
        seats, dealt = self.trust.committee, 0
        if name in self.owners:
            dealt = rows * len(self.layout.factors.get(self.owners.index(name), ())) + sums
        if name not in seats:
            return ShareCounts(dealt, 0, 0)
        held = rows * self.layout.dealt + sums * len(self.owners) + lowered * len(seats)
        return ShareCounts(dealt + lowered, held, sums * (len(self.everyone) - (name in self.everyone)))

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return self.shares_agreement | {
            "protocol": PROTOCOL,
            "holdings": [[h.owner, list(h.columns), h.clip.hex(), h.sources, list(h.unsigned)] for h in self.holdings],
            "polynomials": list(self.expressions),
            "rounding": self.rounding,
            "law": self.law,
            "rows_per_block": self.rows_per_block,
        }

    @property
    def facts(self) -> dict[str, Any]:
        """What a record of a run says about the task."""
        return self.shares_facts | {
            "rounding": self.rounding,
            "expressions": len(self.polynomials),
            "degree": self.program.degree,
            "products": len(self.layout.cross),
            "lowerings": len(self.schedule.levels),
        }


@lru_cache(maxsize=8)
def _sensitivity(task: Polynomials) -> Sensitivity:
    return monomials_sensitivity(task.program.outputs, task.domain)


@lru_cache(maxsize=8)
def _others(task: Polynomials) -> tuple[tuple[str, int, int], ...]:
    if len(task.owners) > _FEW_OWNERS:
        return ()
    found = [
        (task.owners[index], *others_sensitivity(task.program.outputs, task.domain, index))
        for index in sorted(task.layout.own)
    ]
    whole = task.sensitivity
    return tuple(
        (owner, min(l1, whole.replace_l1), min(square, whole.replace_l2_squared)) for owner, l1, square in found
    )


@dataclass(frozen=True)
class NoisySums:
    """The published result: integers as opened, and the sums they stand for."""

    task: Polynomials
    opened: NDArray[np.int64]

    @property
    def values(self) -> NDArray[np.float64]:
        """The noisy sums, in encoded units."""
        return np.array([float(Fraction(int(value), self.task.program.scale)) for value in self.opened])

    @property
    def deviations(self) -> NDArray[np.float64]:
        """The standard deviation of the noise on each."""
        return np.full(len(self.opened), self.task.noise_std)
