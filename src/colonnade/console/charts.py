"""Charts of the console, drawn as those of reports are: beliefs before and after, spending over time, cells of a table.

Each is an SVG with a title and a description, which says in words what it shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

from markupsafe import Markup

from colonnade.drawing.canvas import figure
from colonnade.drawing.charts import Axis, Curve, Histogram, HistogramChart, LineChart
from colonnade.privacy.pictures import spending_chart
from colonnade.privacy.statement import PRIORS, posterior
from colonnade.report import wording
from colonnade.tables.profiling import ColumnProfile

_MOST_PANELS = 60


def draw_beliefs(rise: float, who: str) -> Markup:
    """The belief that somebody may have afterwards, for every belief beforehand."""
    told = "; ".join(f"{wording.percent(p, 0)} before, at most {_up(posterior(p, rise))} after" for p in PRIORS)
    places = [k / 200 for k in range(201)]
    before = Axis("how likely it seemed before", text="{:.0%}".format, ends=(0.0, 1.0))
    after = Axis(f"how likely it may seem afterwards to {who}, at most", text="{:.0%}".format, ends=(0.0, 1.0))
    chart = LineChart(
        [Curve("at most", [(p, posterior(p, rise)) for p in places])],
        before,
        after,
        diagonal="nothing learned",
        square=True,
        title="Beliefs before and after",
        description=f"For {who}: {told}.",
    )
    return Markup(figure("surer", chart, f"In words: {told}."))  # noqa: S704 - made of escaped parts


def draw_spending(
    when: Sequence[datetime], found: Mapping[str, Sequence[float]], now: datetime, delta: float
) -> Markup | None:
    """What each observer had learned over time, until now; those who were told things exactly are left out."""
    if not when or not any(line and all(map(math.isfinite, line)) for line in found.values()):
        return None
    return Markup(figure("spending", spending_chart(when, found, now, delta)))  # noqa: S704 - made of escaped parts


def draw_columns(columns: Sequence[ColumnProfile]) -> Markup | None:
    """A histogram of each column."""
    panels = [
        Histogram(each.name, each.labels, [float(bar) for bar in each.bars], borders=each.ends or ())
        for each in columns[:_MOST_PANELS]
    ]
    if not panels:
        return None
    rest = len(columns) - len(panels)
    more = f" The first {len(panels)} columns; {rest} more are in the table above." if rest > 0 else ""
    chart = HistogramChart(
        panels,
        "{:,.0f} rows".format,
        title="Cells of each column",
        note=f"How the cells lie, as a study would read them.{more}",
        description="; ".join(f"{each.name}: {_peak(each)}" for each in columns[:_MOST_PANELS]),
    )
    return Markup(figure("cells", chart))  # noqa: S704 - made of escaped parts


def share(part: float, whole: float) -> int:
    """Percent of a bar that is full, for a ``progress`` or ``meter`` element."""
    return 100 if not math.isfinite(part) or part >= whole else max(0, round(100 * part / whole))


def _peak(each: ColumnProfile) -> str:
    if not any(each.bars):
        return "no cells"
    most = max(range(len(each.bars)), key=each.bars.__getitem__)
    if each.labels:
        return f"most often {each.labels[most]}, {each.bars[most]:,} times"
    low, high = each.ends or ("", "")
    return f"between {low} and {high}, most in part {most + 1} of {len(each.bars)}"


def _up(belief: float) -> str:
    """A belief in percent, rounded up."""
    return f"{math.ceil(belief * 1000 - 1e-9) / 10:g} %"
