"""Games of sums of polynomials of the columns, opened once: the observer weighs each by how much it differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.mechanisms import WeightedSumSampler
from colonnade.audit.registry import Game, describe_neighbours, observers, register
from colonnade.kinds.polynomial.model import PolynomialSum
from colonnade.kinds.polynomial.programs import reference
from colonnade.kinds.polynomial.task import Polynomials
from colonnade.models import Roster
from colonnade.privacy import Observer
from colonnade.randomness import Stream
from colonnade.tables import Schema, number

_MOST_COLUMNS = 10


def _sums(task: Polynomials, person: Sequence[int]) -> tuple[int, ...]:
    row = np.array([person], dtype=np.int64)
    return tuple(reference({owner: row[:, task.span(owner)] for owner in task.owners}, task))


def _people(task: Polynomials) -> list[tuple[int, ...]]:
    """Some rows at the bounds: each owner's first column as large as its clip allows, with either sign."""
    ends = []
    for holding in task.holdings:
        reach = int(min(1.0, holding.clip) * task.gamma)
        rest = (0,) * (len(holding.columns) - 1)
        signs = (1,) if not holding.columns or holding.unsigned[0] else (1, -1)
        ends.append([(sign * reach, *rest) if holding.columns else () for sign in signs])
    return [sum(parts, ()) for parts in product(*ends[:_MOST_COLUMNS], *([e[0]] for e in ends[_MOST_COLUMNS:]))]


def _distance(first: Sequence[int], second: Sequence[int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(first, second, strict=True))


def _polynomial_neighbours(task: Polynomials, observer: Observer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of some pairs that the observer must not tell apart, the one that moves the sums furthest."""
    people = _people(task)
    if observer == Observer.analyst():
        nobody = (0,) * len(task.polynomials)
        return nobody, max((_sums(task, person) for person in people), key=lambda sums: _distance(nobody, sums))
    own = [index for name in observer.names if name in task.owners for index in range(*task.span(name).indices(999))]
    base = people[0]
    others = [person for person in people if all(person[index] == base[index] for index in own)]
    others.append(tuple(base[index] if index in own else 0 for index in range(len(base))))
    start = _sums(task, base)
    return start, max((_sums(task, person) for person in others), key=lambda sums: _distance(start, sums))


def _polynomial_example() -> Polynomials:
    """A product between three parties and a sum of one; epsilon 1 against the analyst."""
    schemas = {name: Schema({"x": number(-1, 1)}) for name in ("bank", "shop", "clinic")}
    model = PolynomialSum(
        ["bank.x * shop.x * clinic.x"], epsilon={"analyst": 1.0}, gamma=64, rounding="nearest", rows_at_most=2**20
    )
    return model.plan(Roster.of(schemas))


@register("polynomial", "sums of a polynomial, opened once", _polynomial_example)
def polynomial_games(task: Polynomials) -> Iterator[Game]:
    """Every observer within the threshold, one for all who are in the same position."""

    def share(count: int, stream: Stream) -> NDArray[np.int64]:
        return task.additive.draw((count, task.entries), stream)

    for observer, noisy in observers(task):
        sampler = WeightedSumSampler(_polynomial_neighbours(task, observer), share, noisy)
        story = f"{describe_neighbours(observer)} at its bounds; the {len(task.polynomials)} opened sums"
        yield Game("polynomial", observer, story, task.events, task.trust, sampler)
