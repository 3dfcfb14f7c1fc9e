"""What models have in common in pictures: numbers with the deviation of their noise, scores, and what is public.

Grey is what cannot be told from zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from colonnade.drawing.canvas import Chart, Picture, sentences
from colonnade.drawing.charts import Axis, Bar, BarChart, Curve, HeatMap, HeatMapCell, HeatMapRow, Kind, LineChart
from colonnade.models.design import owner_of
from colonnade.models.estimates import Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_COLUMNS, _MOST_CLASSES, _MOST_SUMS, _BINS = 20, 6, 24, 20


def strongest(rows: Sequence[Sequence[float]], most: int) -> list[int]:
    """The places of the ``most`` columns with the largest numbers.

    First come those that are surely large: an estimate counts as much as the end of its interval next to zero.
    """
    width = len(rows[0]) if rows else 0
    sure = [[value.surely if isinstance(value, Estimate) else 0.0 for value in row] for row in rows]
    strength = [max((surely[k], abs(row[k])) for surely, row in zip(sure, rows, strict=True)) for k in range(width)]
    return sorted(range(width), key=lambda k: (-strength[k][0], -strength[k][1], k))[:most]


def unclear(value: float) -> bool:
    """Whether a number is known not to be told from zero."""
    return isinstance(value, Estimate) and value.deviation is not None and not value.clear


def estimate_bar(name: str, value: Estimate, text: str, group: str = "") -> Bar:
    """A bar with its interval, where one is known."""
    kind: Kind = "grey" if unclear(value) else "signed"
    low, high = (None, None) if value.deviation is None else (value.low, value.high)
    return Bar(name, float(value), text, kind, low, high, group=group)


def estimate_cell(value: Estimate, digits: int) -> HeatMapCell:
    """A cell with the deviation."""
    return HeatMapCell(float(value), with_minus(value.text(digits)), unclear(value))


def digits(values: Iterable[float]) -> int:
    """How many digits after the point show two of the largest number, and at least two."""
    most = max((abs(value) for value in values), default=0.0)
    return max(2, 1 - math.floor(math.log10(most))) if most > 0 and math.isfinite(most) else 2


def with_minus(text: str) -> str:
    """The minus as wide as the plus."""
    return text.replace("-", "\N{MINUS SIGN}")


def columns_by_party(
    names: Sequence[str], rows: Sequence[Sequence[float]], owners: Sequence[str], most: int
) -> list[tuple[int, str, str]]:
    """The ``most`` columns with the largest numbers, by party: their places, their parties and their own names."""
    found = [(place, *owner_of(names[place], owners)) for place in strongest(rows, most)]
    order = {owner: place for place, owner in enumerate(owners)}
    ranked = sorted(found, key=lambda each: order.get(each[1] or "", len(order)))
    return [(place, owner or "", column) for place, owner, column in ranked]


def weights_chart(
    title: str, names: Sequence[str], rows: Sequence[Sequence[Estimate]], classes: Sequence[str], owners: Sequence[str]
) -> Chart:
    """The strongest weights, by party: bars of one row, and a table of those of several ``classes``."""
    shown = rows[:_MOST_CLASSES]
    columns = columns_by_party(names, shown, owners, _MOST_COLUMNS)
    few = digits(value for row in rows for value in row)
    known = any(value.deviation is not None for row in rows for value in row)
    notes = ["after ±: the deviation of the noise", "grey: cannot be told from zero"] if known else []
    notes = ["thin line: 95 % interval", *notes] if known and len(rows) == 1 else notes
    notes += [f"the {len(columns)} strongest of {len(names)} columns"] if len(columns) < len(names) else []
    notes += [f"the first {len(shown)} of {len(rows)} classes"] if len(shown) < len(rows) else []
    note = sentences(notes)
    if len(rows) == 1:
        values = rows[0]
        bars = [estimate_bar(name, values[at], with_minus(values[at].text(few)), party) for at, party, name in columns]
        return BarChart(bars, "what one step of an encoded column adds to the score", title=title, note=note)
    table = [HeatMapRow(name, [estimate_cell(row[at], few) for row in shown], party) for at, party, name in columns]
    return HeatMap(classes[: len(shown)], table, title=f"{title}, by class", note=note)


def sums_picture(found: Mapping[str, Estimate]) -> Picture:
    """A bar for each sum over people."""
    shown = list(found.items())[:_MOST_SUMS]
    notes = ["thin line: 95 % interval for the exact sum"]
    if any(unclear(value) for _, value in shown):
        notes.append("grey: cannot be told from zero")
    if len(shown) < len(found):
        notes.append(f"the first {len(shown)} of {len(found)} sums")
    bars = [estimate_bar(text, value, _sum_text(value)) for text, value in shown]
    return Picture([BarChart(bars, "sum, in encoded units", title="Sums over all people", note=sentences(notes))])


def scores_picture(received: NDArray[Any], own: NDArray[Any] | None, what: str) -> Picture:
    """How received numbers are spread over people, beside those by the receiver's columns alone."""
    import numpy as np

    held = [("all parties' columns", received)] + ([] if own is None else [("own columns alone", own)])
    both = np.concatenate([np.asarray(values, dtype=np.float64) for _, values in held])
    low, high = float(both.min()), float(both.max())
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    lines = []
    for name, values in held:
        counts, _ = np.histogram(np.asarray(values, dtype=np.float64), edges)
        heights = (counts / max(1, len(values))).tolist()
        points = list(zip(edges.tolist(), [*heights, heights[-1]], strict=True))
        lines.append(Curve(name, points, steps=True, filled=True))
    axis = Axis(f"{what}, of {len(received):,} people")
    return Picture([LineChart(lines, axis, Axis("share of the people", text="{:.0%}".format), title="Received scores")])


def noise_picture(deviations: Mapping[str, float], of: str) -> Picture:
    """The noise on each number that a party told, of a model of which each party keeps its part."""
    bars = [Bar(party, float(value), f"{value:.3g}") for party, value in deviations.items()]
    axis = f"standard deviation of the noise on {of}"
    kept = "What each party learned stays with it, and is not drawn."
    return Picture([BarChart(bars, axis, title="What the parties told, and with how much noise", note=kept)])


def reach_picture(weights: NDArray[Any], widths: Mapping[str, int], length: float) -> Picture:
    """How far the embedding of each party, which has a public length, can move the scores of a public head."""
    parts, start = {}, 0
    for party, width in widths.items():
        if width:
            parts[party] = length * _widest(weights[:, start : start + width])
        start += width
    bars = [Bar(party, value, f"{value:.3g}") for party, value in parts.items()]
    what = "the score" if len(weights) == 1 else "the lead of one class over another"
    note = "The longer a bar, the more of the prediction can come from this party."
    title = "Whose embeddings the head listens to"
    return Picture([BarChart(bars, f"largest change of {what}", title=title, note=note)])


_UNIT = (0.0, 1.0)


def calibration_chart(
    points: Sequence[tuple[float, float]], people: int, slope: float | None, name: str = "these people"
) -> LineChart:
    """The share of people with the label, by the probability that they were given; right ones lie on the diagonal."""
    said = "" if slope is None else f", slope {slope:.2f}"
    return LineChart(
        [Curve(f"{name}{said}", points, marked=True)],
        Axis("the probability that was said", ends=_UNIT),
        Axis("the share of people who have the label", ends=_UNIT),
        diagonal="probabilities that are right",
        square=True,
        title="Calibration",
        note=f"Each point is a group of about {people // max(1, len(points)):,} people. A curve flatter than the "
        "diagonal, with a slope below 1, means probabilities that are too sure.",
        description="; ".join(f"{chance:.0%} said, {share:.0%} have it" for chance, share in points),
    )


def ranking_chart(roc: Sequence[tuple[float, float]], auc: float, name: str = "these people") -> LineChart:
    """The curve of all thresholds: whom each finds, and whom it alarms about in vain."""
    return rates_chart(
        [Curve(f"{name}, AUC {auc:.3f}", roc)],
        "people without the label who are predicted to have it",
        "people with the label who are found",
        title="Ranking: what each threshold finds",
    )


def rates_chart(
    lines: Sequence[Curve], alarms: str, hits: str, *, title: str, note: str = "", low: float = 0.0
) -> LineChart:
    """Curves of two rates; from a rate ``low`` above zero both scales are logarithmic, so that rare alarms are seen."""
    x, y = (Axis(name, "log" if low else "linear", ends=(low, 1.0)) for name in (alarms, hits))
    spoken = "; ".join(line.label for line in lines)
    return LineChart(lines, x, y, diagonal="guessing", square=True, title=title, note=note, description=spoken)


def _sum_text(value: Estimate) -> str:
    shown = f"{float(value):,.4g}" + ("" if value.deviation is None else f" ± {value.deviation:,.2g}")
    return with_minus(shown)


def _widest(rows: NDArray[Any]) -> float:
    """The largest distance between two rows; of one row, its length."""
    import numpy as np

    if len(rows) == 1:
        return float(np.linalg.norm(rows[0]))
    return float(np.linalg.norm(rows[:, None, :] - rows[None, :, :], axis=2).max())
