"""Games of sums that are opened once: polynomials of the columns, and joint scores of one person.

Both add nearly Gaussian noise to a few integers, so the observer weighs each by how much it differs between the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.registry import Game, observers, register, two_tables
from colonnade.models import Roster
from colonnade.models.polynomial import PolynomialSum
from colonnade.privacy import Observer, Trust, least_noise, parse_budgets
from colonnade.protocols.polynomial import integers
from colonnade.protocols.polynomial.programs import reference
from colonnade.protocols.polynomial.task import Polynomials
from colonnade.protocols.scores import integers as scores
from colonnade.protocols.scores.task import Part, Scores
from colonnade.randomness import Stream
from colonnade.tables import Schema, number

Draw = Callable[[int, Stream], NDArray[np.int64]]
_MOST_COLUMNS = 10


@dataclass(frozen=True)
class Weighed:
    """A few opened integers, those of the first or the second table, weighed by their difference.

    ``share`` draws one owner's noise for a number of runs, as the protocol does; ``noisy`` are the owners whose noise
    the observer cannot subtract.
    """

    values: tuple[tuple[int, ...], tuple[int, ...]]
    share: Draw
    noisy: tuple[str, ...]

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The weighed sums of ``count`` runs."""
        first, second = (np.array(values, dtype=np.float64) for values in self.values)
        moved = second - first
        weights = moved / max(1.0, float(np.abs(moved).max()))
        seen = np.tile(second if neighbour else first, (count, 1))
        for _ in self.noisy:
            seen += self.share(count, stream)
        return np.asarray(seen @ weights)


# --- polynomials


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
    task = model.plan(Roster.of(schemas))
    assert isinstance(task, Polynomials)  # noqa: S101 - for the type checker
    return task


@register("polynomial", "sums of a polynomial, opened once", _polynomial_example, plays=Polynomials)
def polynomial_games(task: Polynomials) -> Iterator[Game]:
    """Every observer within the threshold, one for all who are in the same position."""

    def share(count: int, stream: Stream) -> NDArray[np.int64]:
        return integers.noise_share(task, stream, (count,))

    for observer, noisy in observers(task):
        sampler = Weighed(_polynomial_neighbours(task, observer), share, noisy)
        story = f"{two_tables(observer)} at its bounds; the {len(task.polynomials)} opened sums"
        yield Game("polynomial", observer, story, task.events, task.trust, sampler)


# --- joint scores


def _scores_example() -> Scores:
    """The scores of people that three parties know, for the bank; epsilon 1 against it."""
    owners = ("bank", "shop", "clinic")
    trust, parts = Trust(owners, owners, 1), tuple(Part(owner, (-1000,), (1000,)) for owner in owners)

    def task(noise: int) -> Scores:
        return Scores(parts, trust, to="bank", gamma=1000, rows_at_most=1000, noise=noise)

    budgets = parse_budgets({"bank": 1.0}, 1e-5, trust)
    return task(least_noise(lambda noise: task(noise).events, trust, budgets, owners=2))


@register(
    "prediction",
    "one person's joint score, opened to one party",
    _scores_example,
    plays=lambda task: isinstance(task, Scores) and not task.exact,
)
def prediction_games(task: Scores) -> Iterator[Game]:
    """The party that gets the score, alone and with the coordinator: one end of the others' scores, or the other."""
    values = tuple(
        tuple(sum(ends) for ends in zip(*sides, strict=True))
        for sides in ([part.low for part in task.dealt], [part.high for part in task.dealt])
    )
    for observer in (Observer.party(task.to), Observer.coalition(task.to, "coordinator")):
        if task.trust.broken(observer) is None:
            sampler = Weighed((values[0], values[1]), partial(scores.noise_share, task), task.dealers)
            story = "the others' columns at one end or the other; the opened score"
            yield Game("prediction", observer, story, task.events, task.trust, sampler)
