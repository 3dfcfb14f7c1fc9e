"""Weights of encoded columns: bars by party for one row of them, a table of colours for several."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.models.design import owner_of
from colonnade.models.estimates import Estimate
from colonnade.models.pictures.estimated import bar, cell, digits, strongest, with_minus
from colonnade.pictures.bars import Bars
from colonnade.pictures.cells import Cells
from colonnade.pictures.look import Panel, Sheet

_MOST_COLUMNS, _MOST_CLASSES = 20, 6


def weights(
    label: str, names: Sequence[str], rows: Sequence[Sequence[Estimate]], classes: Sequence[str], owners: Sequence[str]
) -> Sheet:
    """The strongest weights, by party; ``classes`` names the rows."""
    order = strongest(rows[:_MOST_CLASSES], _MOST_COLUMNS)
    parties = [owner_of(names[place], owners) for place in order]
    ranked = sorted(range(len(order)), key=lambda k: owners.index(parties[k][0]) if parties[k][0] in owners else -1)
    shown = [(order[k], parties[k][0] or "", parties[k][1]) for k in ranked]
    few = digits(value for row in rows for value in row)
    notes = _notes(rows, len(order), len(names))
    panel: Panel
    if len(rows) == 1:
        values = rows[0]
        bars = [bar(name, values[at], with_minus(values[at].text(few)), party) for at, party, name in shown]
        axis = "what one step of an encoded column adds to the score"
        panel = Bars(f"Weights for {label}", bars, axis, "; ".join(notes))
    else:
        kept = range(min(len(rows), _MOST_CLASSES))
        if len(rows) > len(kept):
            notes.append(f"the first {len(kept)} of {len(rows)} classes")
        table = [(names[at], [cell(rows[k][at], few) for k in kept]) for at, _, _ in shown]
        panel = Cells(f"Weights for {label}, by class", [classes[k] for k in kept], table, "; ".join(notes))
    return Sheet([panel])


def _notes(rows: Sequence[Sequence[Estimate]], shown: int, columns: int) -> list[str]:
    known = any(value.deviation is not None for row in rows for value in row)
    line = "thin line: 95 % interval; " if len(rows) == 1 else ""
    found = [f"{line}after ±: the deviation of the noise; grey: cannot be told from zero"] if known else []
    return found + ([f"the {shown} strongest of {columns} columns"] if shown < columns else [])
