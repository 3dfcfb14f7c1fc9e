"""Made-up people from a fitted model: drawn, given values, and drawn again where they cannot be."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.randomness import Stream
from colonnade.tables.arrow import pa

TRIES = 30
"""How often a person who cannot be is drawn again; whoever still cannot be is left out."""

Draw = Callable[[int, Stream], Any]
"""From a number of people and a stream to an Arrow table of them."""
Impossible = Callable[[Any], NDArray[np.bool_]]
"""From a table to whether each of its rows cannot be."""


@dataclass(frozen=True)
class Drawn:
    """A table of made-up people, and how many were left out because nobody can be so."""

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


def draw(people: Draw, rows: int, stream: Stream, impossible: Impossible | None) -> Drawn:
    """A table of so many people of whom each is possible; fewer, where the model makes possible ones too rarely."""
    table = people(rows, stream)
    if impossible is None or not rows:
        return Drawn(table)
    wrong = impossible(table)
    first = int(wrong.sum())
    for _ in range(TRIES):
        missing = int(wrong.sum())
        if not missing:
            break
        again = people(missing, stream)
        # The new ones take the places of the wrong ones, so that the order tells nothing about who was drawn again.
        order = np.arange(rows)
        order[wrong] = rows + np.arange(missing)
        table = pa.concat_tables([table, again]).unify_dictionaries().combine_chunks().take(pa.array(order))
        still = impossible(again)
        places = np.flatnonzero(wrong)
        wrong = np.zeros(rows, dtype=np.bool_)
        wrong[places] = still
    dropped = int(wrong.sum())
    return Drawn(table.filter(pa.array(~wrong)) if dropped else table, first, dropped)
