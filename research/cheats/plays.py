"""Scenes of whole protocols: a protocol on shares in a small run, with the value that it should open.

Here are what all such scenes share, and those of moments; a kind that has a protocol of its own has its scenes beside
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from math import isqrt
from typing import Any

import numpy as np

from colonnade.privacy import Trust
from colonnade.privacy.observers import Inputs
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.programs import OwnMoments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.rows import ColumnBlock
from colonnade.protocols.session import run_role
from colonnade.tables.slots import RowSlots
from research.cheats.deviation import Array, Dealt
from research.cheats.scenes import Act, Deals, Prepare, Scene, seats_of
from research.cheats.stage import StagePlace

GAMMA, ROWS = 16, 4
"""What values are scaled by, and how many people there are."""
Held = Mapping[str, Array]


def trust_of(size: int, threshold: int, active: bool, inputs: Inputs = "unproven") -> Trust:
    """So many owners, all with a seat, that check each other or not."""
    names = seats_of(size)
    if not active:
        return Trust(names, names, threshold)
    return Trust(names, names, threshold, security="active", inputs=inputs)


def columns_of(trust: Trust) -> int:
    """Of how many columns an owner's rows are: of several where their norms are proven."""
    return 1 if trust.inputs == "unproven" else 2


def rows_dealt(trust: Trust) -> int:
    """How many rows are dealt at a time: a few where they are proven, so that proofs are of several blocks."""
    return ROWS + 2 if trust.inputs == "unproven" else 2


def blocks_of(trust: Trust) -> tuple[ColumnBlock, ...]:
    """The columns of each owner."""
    names = tuple(f"c{column}" for column in range(columns_of(trust)))
    return tuple(ColumnBlock(owner, names, 1.0) for owner in trust.owners)


def held_by(trust: Trust, rows: int = ROWS) -> dict[str, Array]:
    """The columns of each owner, in multiples of 1 / gamma, so that nothing is rounded."""
    rng, width = np.random.default_rng(20), columns_of(trust)
    most = isqrt(GAMMA**2 // width)
    return {owner: rng.integers(-most, most + 1, (rows, width)) / GAMMA for owner in trust.owners}


def whole(held: Held) -> dict[str, Array]:
    """The integers that owners deal of such columns."""
    return {owner: np.rint(values * GAMMA).astype(np.int64) for owner, values in held.items()}


def act_of(
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
        owner = getattr(me.engine, "overdeals", lambda module: module.owner)(module)
        if labels is None:
            return owner(me, rows, task)
        return owner(me, rows, labels if name == task.label_owner else None, task)

    def part(place: StagePlace, prepare: Prepare) -> Any:
        def prepared(me: Any) -> Any:
            prepare(me.engine, place)
            return program(place.name, me)

        return run_role(place, task, prepared).result

    def due(deals: Deals, result: Any) -> Array:
        return np.asarray(expected(deals, result))

    return Act((*task.owners, COORDINATOR), part, lambda result: None if result is None else value(result), due)


def last_dealt(deals: Deals, owners: tuple[str, ...]) -> Array:
    """The sum of what owners dealt last: their own sums with noise, or noise alone."""
    return np.asarray(sum(deals[owner][-1].astype(object) for owner in owners))


# --- moments


@lru_cache
def _moments(size: int, threshold: int, active: bool, inputs: Inputs = "unproven") -> Act:
    trust = trust_of(size, threshold, active, inputs)
    task = Moments(
        blocks_of(trust), trust, GAMMA, GAMMA // 2, rows_at_most=100, noise=3 * size, block_rows=rows_dealt(trust)
    )
    held = held_by(trust)
    exact = moments.reference(whole(held), task)
    for owner in () if active else task.owners:  # where seats check them, own products are dealt without noise
        own = OwnMoments(task, owner)
        own.add(held[owner] * GAMMA)
        exact = exact - own.entries()
    return act_of(moments, task, held, lambda deals, _: exact + last_dealt(deals, task.owners))


@lru_cache
def _hidden(size: int, threshold: int, active: bool, inputs: Inputs = "unproven") -> Act:
    trust = trust_of(size, threshold, active, inputs)
    task = Moments(
        blocks_of(trust), trust, GAMMA, GAMMA // 2, rows_at_most=100, noise=3 * size, hidden=True,
        block_rows=rows_dealt(trust),
    )  # fmt: skip
    held = held_by(trust)
    tables, dealt = {}, {}
    for number, owner in enumerate(task.owners):
        slots = np.delete(np.arange(ROWS + 2), [number % 2, ROWS + 1])
        tables[owner] = Dealt(held[owner], RowSlots(slots, ROWS + 2, bytes(16)))
        dealt[owner] = np.zeros((ROWS + 2, 1 + held[owner].shape[1]), dtype=np.int64)
        dealt[owner][slots] = np.column_stack([whole(held)[owner], np.ones(ROWS, dtype=np.int64)])
    exact = moments.reference(dealt, task)
    return act_of(moments, task, tables, lambda deals, _: exact + last_dealt(deals, task.owners))


_CHECKED = Moments.why_not_active is None
PLAYS = (
    Scene("moments", 1, _moments, checked=_CHECKED, place=0),
    Scene("hidden members", 3, _hidden, checked=_CHECKED, place=0),
    Scene("proven moments", 1, partial(_moments, inputs="proven"), proven=True, place=0),
    Scene("proven hidden members", 3, partial(_hidden, inputs="proven"), proven=True, place=0),
)
"""Those of moments, by their names; ``depth`` counts products that stand one after the other."""
