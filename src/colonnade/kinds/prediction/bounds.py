"""How small and how large each party's part of a score can be, for any row: what questions about new people rest on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from colonnade.kinds.prediction.scores.task import Part
from colonnade.models.scorer import Scorer, features
from colonnade.tables.columns import NOWHERE, Category, Column, Number

_Ends = tuple[Fraction, Fraction]


def part_of(scorer: Scorer, party: str, gamma: int) -> Part:
    """The least and the largest whole number that a party's part of each score can be, for any row."""
    used = features(scorer, party)
    schema = scorer.schemas_[party].select(used) if used else None
    place = {name: index for index, name in enumerate(scorer.feature_names_in_)}
    shrinks = schema is not None and schema.clip < schema.max_norm  # rows that are too long are scaled down
    ends: list[_Ends] = []
    for weights in np.atleast_2d(scorer.coef_).tolist():
        low = high = Fraction(0)
        for name, column in schema.columns.items() if schema else ():
            exact = [Fraction(weights[place[f"{party}.{name}{part}"]]) for part in column.parts]
            least, most = _ends(column, exact, shrinks)
            low, high = low + least, high + most
        ends.append((low, high))
    return Part(
        party, tuple(math.floor(gamma * low) for low, _ in ends), tuple(math.ceil(gamma * high) for _, high in ends)
    )


def _ends(column: Column, weights: Sequence[Fraction], shrinks: bool) -> _Ends:
    """The least and the largest that one encoded column adds to a score."""
    if isinstance(column, Category):
        reached = [*weights, *([Fraction(0)] if shrinks or column.missing == NOWHERE else [])]
        return min(reached), max(reached)
    weight, *marked = weights  # a number that may be missing has a second weight, for that case alone
    signed = isinstance(column, Number) and column.scale == "signed"
    reached = [weight, -weight if signed else Fraction(0), *marked]
    return min(reached), max(reached)
