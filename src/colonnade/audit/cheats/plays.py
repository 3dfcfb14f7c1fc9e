"""Scenes of whole protocols: every protocol on shares in a small run, with the value that it should open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from colonnade.audit.cheats.deviation import Array, Dealt
from colonnade.audit.cheats.scenes import Act, Deals, Prepare, Scene, seats_of
from colonnade.audit.cheats.stage import StagePlace
from colonnade.privacy import Trust
from colonnade.privacy.observers import Inputs
from colonnade.protocols.directions import programs as directions
from colonnade.protocols.directions.task import Directions
from colonnade.protocols.gradients import programs as gradients
from colonnade.protocols.gradients.descent import Descent
from colonnade.protocols.gradients.task import Gradients
from colonnade.protocols.marginals import programs as marginals
from colonnade.protocols.marginals.integers import OwnColumns
from colonnade.protocols.marginals.task import Asked, Coded, Marginals
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.integers import OwnBlock
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.polynomial import programs as polynomial
from colonnade.protocols.polynomial.expressions import parse
from colonnade.protocols.polynomial.task import Holding, Polynomials, frozen
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.rows import Block
from colonnade.protocols.scores import programs as scores
from colonnade.protocols.scores.task import Part, Scores
from colonnade.protocols.session import play
from colonnade.tables.places import Places

_GAMMA, _ROWS = 16, 4
Held = Mapping[str, Array]


def _trust(size: int, threshold: int, active: bool, inputs: Inputs = "unproven") -> Trust:
    names = seats_of(size)
    if not active:
        return Trust(names, names, threshold)
    return Trust(names, names, threshold, security="active", inputs=inputs)


def _blocks(trust: Trust) -> tuple[Block, ...]:
    return tuple(Block(owner, ("c0",), 1.0) for owner in trust.owners)


def _held(trust: Trust, rows: int = _ROWS) -> dict[str, Array]:
    """One column of each owner, in multiples of 1 / gamma, so that nothing is rounded."""
    rng = np.random.default_rng(20)
    return {owner: rng.integers(-_GAMMA, _GAMMA + 1, (rows, 1)) / _GAMMA for owner in trust.owners}


def _whole(held: Held) -> dict[str, Array]:
    return {owner: np.rint(values * _GAMMA).astype(np.int64) for owner, values in held.items()}


def _act(
    module: Any,
    task: Any,
    held: Mapping[str, Any],
    expected: Callable[[Deals, Any], Any],
    value: Callable[[Any], Any] = lambda result: result.opened,
    labels: Array | None = None,
) -> Act:
    """The scene of one protocol: everybody's program, played as in a study."""

    def program(name: str, me: Any) -> Any:
        if name == COORDINATOR:
            return module.coordinator(me, task)
        rows = Dealt(held[name]) if isinstance(held[name], np.ndarray) else held[name]
        if labels is None:
            return module.owner(me, rows, task)
        return module.owner(me, rows, labels if name == task.label_owner else None, task)

    def part(place: StagePlace, prepare: Prepare) -> Any:
        def prepared(me: Any) -> Any:
            prepare(me.hand, place)
            return program(place.name, me)

        return play(place, task, prepared).result

    def due(deals: Deals, result: Any) -> Array:
        return np.asarray(expected(deals, result))

    return Act((*task.owners, COORDINATOR), part, lambda result: None if result is None else value(result), due)


def _last(deals: Deals, owners: tuple[str, ...]) -> Array:
    """The sum of what owners dealt last: their own sums with noise, or noise alone."""
    return np.asarray(sum(deals[owner][-1].astype(object) for owner in owners))


@lru_cache
def _moments(size: int, threshold: int, active: bool, inputs: Inputs = "unproven") -> Act:
    trust = _trust(size, threshold, active, inputs)
    task = Moments(_blocks(trust), trust, _GAMMA, _GAMMA // 2, rows_at_most=100, noise=3 * size)
    held = _held(trust)
    exact = moments.reference(_whole(held), task)
    for owner in () if active else task.owners:  # where seats check them, own products are dealt without noise
        own = OwnBlock(task, owner)
        own.add(held[owner] * _GAMMA)
        exact = exact - own.entries()
    return _act(moments, task, held, lambda deals, _: exact + _last(deals, task.owners))


@lru_cache
def _hidden(size: int, threshold: int, active: bool, inputs: Inputs = "unproven") -> Act:
    trust = _trust(size, threshold, active, inputs)
    task = Moments(_blocks(trust), trust, _GAMMA, _GAMMA // 2, rows_at_most=100, noise=3 * size, hidden=True)
    held = _held(trust)
    tables, dealt = {}, {}
    for number, owner in enumerate(task.owners):
        slots = np.delete(np.arange(_ROWS + 2), [number % 2, _ROWS + 1])
        tables[owner] = Dealt(held[owner], Places(slots, _ROWS + 2, bytes(16)))
        dealt[owner] = np.zeros((_ROWS + 2, 2), dtype=np.int64)
        dealt[owner][slots] = np.column_stack([_whole(held)[owner], np.ones(_ROWS, dtype=np.int64)])
    exact = moments.reference(dealt, task)
    return _act(moments, task, tables, lambda deals, _: exact + _last(deals, task.owners))


@lru_cache
def _marginals(size: int, threshold: int, active: bool, inputs: Inputs = "unproven") -> Act:
    trust = _trust(size, threshold, active, inputs)
    coded = tuple(Coded(owner, "c0", 3 if owner == "o1" else 2) for owner in trust.owners)
    blocks = [(), *((column,) for column in range(size)), (0, 1), (1, 2), (0, 2), (0, 1, 2)]
    asked = tuple(Asked(columns, 1 + index % 3) for index, columns in enumerate(blocks))
    task = Marginals(coded, asked, trust, rows_at_most=100, noise=3 * size, label=0)
    rng = np.random.default_rng(20)
    codes = {one.owner: rng.integers(0, one.size, (_ROWS, 1)) for one in coded}
    exact = marginals.reference(codes, task)
    for owner in task.owners:
        own = OwnColumns(task, owner)
        own.add(own.factors_of(codes[owner].astype(float)))
        exact = exact - np.concatenate([own.cells(part) for part in task.parts])
    if len(task.parts) > 1:
        raise ValueError("a scene opens everything at once [VA002]")
    return _act(marginals, task, codes, lambda deals, _: exact + _last(deals, task.owners))


@lru_cache
def _polynomial(size: int, threshold: int, active: bool) -> Act:
    trust = _trust(size, threshold, active)
    holdings = tuple(Holding(block.owner, block.columns, 1.0, 1, (False,)) for block in _blocks(trust))
    names = [f"{owner}.c0" for owner in trust.owners]
    asked = tuple(frozen(parse(text, names)) for text in ("o0.c0 * o1.c0 * o2.c0", "o1.c0 * o2.c0"))
    task = Polynomials(holdings, trust, asked, gamma=_GAMMA, rows_at_most=100, noise=4 * size)
    held = _held(trust)
    exact = np.array(polynomial.reference(_whole(held), task), dtype=object)
    return _act(polynomial, task, held, lambda deals, _: exact + _last(deals, task.owners))


def _rounds(expansion: int, inputs: Inputs = "unproven") -> Callable[[int, int, bool], Act]:
    @lru_cache
    def act(size: int, threshold: int, active: bool) -> Act:
        trust = _trust(size, threshold, active, inputs)
        task = Gradients(
            _blocks(trust), label_owner="o1", classes=1, trust=trust, gamma=_GAMMA, scale=1.0,
            expansion=1 if expansion == 1 else 3, weight_bound=4.0, learning_rate=2.0, sampling="disjoint",
            rows=_ROWS, batch=_ROWS, rounds=2, noise=3 * size, rows_at_most=100, block_rows=_ROWS,
        )  # fmt: skip
        held, labels = _held(trust), np.array([[0.0], [1.0], [1.0], [0.0]])
        parts = [_whole(held)[owner] for owner in task.owners]
        joint = np.hstack([*parts, np.full((_ROWS, 1), task.constant)])

        def expected(deals: Deals, _: Any) -> Array:
            descent, noise = Descent(task), _last(deals, task.owners)
            for number in range(task.rounds):
                exact = gradients.reference(joint, labels.astype(np.int64), descent.integer_weights, task)
                descent.step(exact + noise[number])
            return descent.learned.weights

        return _act(gradients, task, held, expected, lambda result: result.weights, labels)

    return act


@lru_cache
def _directions(size: int, threshold: int, active: bool, inputs: Inputs = "unproven") -> Act:
    trust = _trust(size, threshold, active, inputs)
    task = Directions(
        _blocks(trust), trust, gamma=_GAMMA, constant=_GAMMA // 2, rows_at_most=100, directions=2, rounds=2,
        noise=3 * size, reach=256,
    )  # fmt: skip
    held = _held(trust)

    def expected(deals: Deals, result: Any) -> Array:
        exact = np.array(directions.reference(_whole(held), result.asked, task))
        if active:  # owners deal the squared norms of their own columns together with noise
            exact[0, -1] = task.total_weight * task.constant**2 * _ROWS
        return np.asarray(exact + _last(deals, task.owners))

    return _act(directions, task, held, expected, lambda result: np.array(result.opened))


@lru_cache
def _scores(size: int, threshold: int, active: bool) -> Act:
    trust = _trust(size, threshold, active)
    parts = tuple(Part(owner, (-2 * _GAMMA,), (2 * _GAMMA,)) for owner in trust.owners)
    task = Scores(parts, trust, to="o1", gamma=_GAMMA, rows_at_most=100)
    held = _held(trust)
    ids = Dealt(held["o0"]).ids
    tables = {owner: scores.Parts(ids, values) for owner, values in held.items()}
    return _act(scores, task, tables, lambda deals, _: _last(deals, task.dealers), lambda result: result.others)


_CAN_BE_CHECKED = {
    task: task.why_not_active is None for task in (Moments, Marginals, Polynomials, Gradients, Directions, Scores)
}
PLAYS = (
    Scene("moments", 1, _moments, checked=_CAN_BE_CHECKED[Moments]),
    Scene("hidden members", 3, _hidden, checked=_CAN_BE_CHECKED[Moments]),
    Scene("marginals", 2, _marginals, checked=_CAN_BE_CHECKED[Marginals]),
    Scene("polynomial", 2, _polynomial, checked=_CAN_BE_CHECKED[Polynomials]),
    Scene("gradients", 1, _rounds(1), checked=_CAN_BE_CHECKED[Gradients]),
    Scene("cubic gradients", 3, _rounds(3), checked=_CAN_BE_CHECKED[Gradients]),
    Scene("directions", 1, _directions, checked=_CAN_BE_CHECKED[Directions]),
    Scene("scores", 0, _scores, checked=_CAN_BE_CHECKED[Scores]),
    Scene("proven moments", 1, partial(_moments, inputs="proven"), proven=True),
    Scene("proven hidden members", 3, partial(_hidden, inputs="proven"), proven=True),
    Scene("proven marginals", 2, partial(_marginals, inputs="proven"), proven=True),
    Scene("proven gradients", 1, _rounds(1, "proven"), proven=True),
    Scene("proven directions", 1, partial(_directions, inputs="proven"), proven=True),
)
"""The protocols, by their names; ``depth`` counts products that stand one after the other."""
