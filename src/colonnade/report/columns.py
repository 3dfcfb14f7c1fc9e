"""The columns with the largest numbers, each under the party that holds it."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.models.regression.design import owner_of
from colonnade.report import words
from colonnade.report.charts import Group


def grouped(
    names: Sequence[str], rows: Sequence[Sequence[float]], owners: Sequence[str], most: int
) -> tuple[list[Group], int]:
    """The ``most`` columns with the largest numbers, grouped by party, and how many they are."""
    strength = [max((abs(row[k]) for row in rows), default=0.0) for k in range(len(names))]
    order = sorted(range(len(names)), key=lambda k: (-strength[k], k))[:most]
    members: dict[str, list[tuple[str, Sequence[float]]]] = {}
    for k in order:
        owner, column = owner_of(names[k], owners)
        members.setdefault(owner or "", []).append((column, [row[k] for row in rows]))
    ranked = [name for name in owners if name in members] + [name for name in members if name not in owners]
    return [Group(name or "columns", members[name]) for name in ranked], len(order)


def spoken(groups: Sequence[Group]) -> str:
    """The groups as text, for a screen reader."""
    return "; ".join(
        f"{group.heading}, {name}: {', '.join(words.signed(value) for value in row)}"
        for group in groups
        for name, row in group.rows
    )
