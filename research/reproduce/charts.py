"""The charts of a reproduction: one for each group of rows, for a page or as one picture on its own."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.drawing.canvas import Picture
from colonnade.drawing.charts import Axis, Curve, LineChart
from research.reproduce.results import NONE, PUBLISHED, Row, groups

_MOST_LINES = 7
_WIDE_RANGE = 30.0  # from here on a straight axis would show one line and hide the rest


def chart(rows: Sequence[Row]) -> LineChart | None:
    """Lines over the axis; what the paper prints about others than its own method stays in the table."""
    shown = [row for row in rows if row.promise != NONE and (row.promise != PUBLISHED or "functional" in row.method)]
    # Ours first: the first line is the bold one.
    methods = sorted(dict.fromkeys(row.method for row in shown), key=lambda name: not name.startswith("Colonnade"))
    places = {row.at for row in shown}
    if len(methods) < 2 or len(places) < 2 or min(places) <= 0:
        return None
    values = [row.mean for row in rows if row.mean > 0]
    steep = max(values, default=1.0) > _WIDE_RANGE * min(values, default=1.0)
    best = next((row for row in rows if row.promise == NONE), None)
    first = rows[0]
    return LineChart(
        [_line(method, shown, steep) for method in methods[:_MOST_LINES]],
        Axis(first.axis, "log"),
        Axis(first.measure, "log", "{:.2g}".format) if steep else Axis(first.measure, text="{:.4g}".format),
        {best.method: best.mean} if best else {},
        title=", ".join(filter(None, (first.part, first.data, first.setting))) + f": {first.measure}",
        note="Bands are one deviation." if not steep else "The upright axis is logarithmic.",
        description=f"{min(len(methods), _MOST_LINES)} methods over {first.axis}; every number is in the table below.",
    )


def _line(method: str, rows: Sequence[Row], steep: bool) -> Curve:
    own = sorted((row for row in rows if row.method == method), key=lambda row: row.at)
    return Curve(
        method, [(row.at, row.mean) for row in own], [] if steep else [row.deviation for row in own], marked=True
    )


def picture(rows: Sequence[Row]) -> Picture:
    """All charts, one below the other."""
    return Picture([one for found in groups(rows) if (one := chart(found)) is not None])
