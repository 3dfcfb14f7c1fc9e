"""What tests ask of made-up and named data sets."""

from __future__ import annotations

from colonnade.tables import Dataset


def width_of(people: Dataset) -> int:
    """How many encoded feature columns there are, over all parties."""
    return sum(schema.encoded_width for schema in people.feature_schemas.values())
