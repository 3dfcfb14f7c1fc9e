"""Columns of a synthetic table: shares of the people that the model makes, and what was published about each."""

from __future__ import annotations

from colonnade.drawing.charts import Histogram, HistogramChart
from colonnade.kinds.synthesis.population import Population, column_shares
from colonnade.tables.coding import ColumnCoding

_MOST = 24


def marginals_chart(people: Population) -> HistogramChart:
    """One histogram a column."""
    released = column_shares(people)
    layout = people.layout
    panels = []
    for place, (name, found) in enumerate(list(released.items())[:_MOST]):
        coding = layout.columns[layout.free[place]]
        fitted = people.marginal([name]).fitted / people.count
        measured = [(float(each), each.low, each.high) for each in found.values() if each.deviation is not None]
        title = f"{name}, the last bar: missing" if coding.bins is not None and coding.missing is not None else name
        panels.append(Histogram(title, list(found), fitted.tolist(), measured, bin_borders(coding)))
    notes = ["Bars: shares of the people that the model makes."]
    if any(panel.borders for panel in panels):
        notes.append("A bar of a number is a bin, between the values written below; bins may be of different widths.")
    if any(panel.measured for panel in panels):
        notes.append("Orange: the published share, and its 95 % interval.")
    if len(panels) < len(released):
        notes.append(f"The first {len(panels)} of {len(released)} columns are drawn.")
    title = "Shares of the people, column by column"
    return HistogramChart(panels, "{:.1%}".format, title=title, note=" ".join(notes))


def bin_borders(coding: ColumnCoding) -> tuple[str, ...]:
    """What begins with each bin of a number, and where the last one ends; nothing for a category."""
    if coding.bins is None:
        return ()
    ends, column = [*coding.bins.extremes[0], coding.bins.column.high], coding.bins.column
    return tuple(map(column.short_text_of, ends))
