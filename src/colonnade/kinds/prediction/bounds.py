"""How small and how large each party's part of a score can be, for any row: what questions about new people rest on."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from colonnade.kinds.prediction.scores.task import Part
from colonnade.models.scorer import Scorer, features


def part_of(scorer: Scorer, party: str, gamma: int) -> Part:
    """The least and the largest whole number that a party's part of each score can be, for any row."""
    used = features(scorer, party)
    schema = scorer.schemas_[party].select(used) if used else None
    place = {name: index for index, name in enumerate(scorer.feature_names_in_)}
    shrinks = schema is not None and schema.clip < schema.max_norm  # rows that are too long are scaled down
    ends: list[tuple[Fraction, Fraction]] = []
    for weights in np.atleast_2d(scorer.coef_).tolist():
        low = high = Fraction(0)
        for name, column in schema.columns.items() if schema else ():
            exact = [Fraction(weights[place[f"{party}.{name}{part}"]]) for part in column.parts]
            least, most = column.score_bounds(exact, shrinks)
            low, high = low + least, high + most
        ends.append((low, high))
    return Part(
        party, tuple(math.floor(gamma * low) for low, _ in ends), tuple(math.ceil(gamma * high) for _, high in ends)
    )
