"""Made-up people from a fitted model: drawn, given values, and mended or drawn again where they cannot be."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.synthesis.mending import Source, mended, put
from colonnade.randomness import Stream
from colonnade.tables.cell_parsing import pa
from colonnade.tables.constraints import Constraint, find_violations

TRIES = 30
"""How often a person who cannot be is drawn again; whoever still cannot be is left out."""


@dataclass(frozen=True)
class Drawn:
    """A table of made-up people.

    ``redrawn`` is how many could not be when they were first drawn, and ``dropped`` how many were left out for it.
    """

    table: Any
    redrawn: int = 0
    dropped: int = 0


def seeded(released: Mapping[str, NDArray[Any]], *also: object) -> Stream:
    """A stream that follows from what was published: whoever has the release draws the same people.

    This is public randomness, and need not be secret: the release has its noise already, and whatever is computed from
    it, by any rule, tells no more than it does.
    """
    state = hashlib.sha256(b"colonnade synthetic people 1")
    for name in sorted(released):
        state.update(f"{name}:{released[name].dtype.str}:{released[name].shape}:".encode())
        state.update(np.ascontiguousarray(released[name]).tobytes())
    state.update(repr(also).encode())
    return Stream(state.digest())


def draw(source: Source, rows: int, stream: Stream, rules: Sequence[Constraint]) -> Drawn:
    """A table of so many people of whom each is possible; fewer, where the model makes possible ones too rarely.

    People who cannot be are mended so that single columns stay as they are. Only whoever cannot be mended is drawn
    again from the whole model.
    """
    made = source.people(rows, stream)
    wrong = find_violations(rules, made.table)
    first = int(wrong.sum())
    if not first:
        return Drawn(made.table)
    table = mended(made, source, rules, stream).table
    wrong = find_violations(rules, table)
    for _ in range(TRIES):
        places = np.flatnonzero(wrong)
        if not len(places):
            break
        # The new ones take the places of the wrong ones, so that the order tells nothing about who was drawn again.
        again = source.people(len(places), stream).table
        table = put(table, places, again)
        wrong[places] = find_violations(rules, again)
    dropped = int(wrong.sum())
    return Drawn(table.filter(pa.array(~wrong)) if dropped else table, first, dropped)
