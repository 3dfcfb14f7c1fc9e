"""Polynomials as an integer program: coefficients on a common scale, own factors, and the order of products.

All of it is public and follows from the expressions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from colonnade.errors import StudyError
from colonnade.kinds.polynomial.expressions import Terms, degree
from colonnade.kinds.polynomial.sensitivity import Monomial

Node = int
"""A column of shares: first the factors that owners deal, then products at a lowered degree."""


@dataclass(frozen=True)
class Program:
    """Integer coefficients for integer columns; ``scale`` is what the result is divided by."""

    outputs: tuple[Mapping[Monomial, int], ...]
    scale: int
    degree: int


def integer_program(polynomials: Sequence[Terms], names: Sequence[str], gamma: int) -> Program:
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
        output: dict[Monomial, int] = {}
        for monomial, a in terms.items():
            whole = round(a * finest * gamma ** (largest - degree([monomial])))
            if not whole:
                raise StudyError(
                    f"the coefficient of {_shown(monomial)} is too small for gamma = {gamma}: multiply the expression "
                    "by a public number, or raise gamma [ST506]"
                )
            output[tuple(sorted((place[name], power) for name, power in monomial))] = whole
        outputs.append(output)
    return Program(tuple(outputs), gamma**largest * finest, largest)


def _shown(monomial: tuple[tuple[str, int], ...]) -> str:
    return " * ".join(name if power == 1 else f"{name}^{power}" for name, power in monomial) or "the constant"


@dataclass(frozen=True)
class Layout:
    """Who computes which part.

    ``own`` are the monomials of one owner's columns alone. The other monomials are products over owners of
    ``factors``, the sub-monomials that an owner computes in the clear and deals as a column. ``cross`` lists these
    monomials, and ``products`` the nodes to be multiplied for each.
    """

    own: Mapping[int, tuple[Monomial, ...]]
    factors: Mapping[int, tuple[Monomial, ...]]
    cross: tuple[Monomial, ...]
    products: tuple[tuple[Node, ...], ...]

    @property
    def dealt(self) -> int:
        """How many columns are dealt, by all owners."""
        return sum(map(len, self.factors.values()))


def lay_out(program: Program, holder: Sequence[int]) -> Layout:
    """Split monomials by the owners of their variables; ``holder`` gives the owner of each variable."""
    own: dict[int, dict[Monomial, None]] = {}
    cross: dict[Monomial, dict[int, Monomial]] = {}
    for monomial in (m for output in program.outputs for m in output if m):
        split: dict[int, Monomial] = {}
        for variable, power in monomial:
            split[holder[variable]] = (*split.get(holder[variable], ()), (variable, power))
        if len(split) == 1:
            own.setdefault(next(iter(split)), {})[monomial] = None
        else:
            cross[monomial] = dict(sorted(split.items()))
    factors: dict[int, dict[Monomial, None]] = {}
    for split in cross.values():
        for owner, factor in split.items():
            factors.setdefault(owner, {})[factor] = None
    ordered = {owner: tuple(factors[owner]) for owner in sorted(factors)}
    nodes = {(o, f): i for i, (o, f) in enumerate((o, f) for o, fs in ordered.items() for f in fs)}
    products = tuple(tuple(nodes[part] for part in split.items()) for split in cross.values())
    return Layout({owner: tuple(found) for owner, found in own.items()}, ordered, tuple(cross), products)


@dataclass(frozen=True)
class Schedule:
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


def schedule(products: Sequence[tuple[Node, ...]], dealt: int, at_once: int) -> Schedule:
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
    return Schedule(tuple(levels), tuple(current))
