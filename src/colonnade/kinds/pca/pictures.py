"""Principal components: how much variance each has, and what it is made of."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.models.estimates import Estimate
from colonnade.models.pictures.estimated import cell, strongest
from colonnade.pictures.bars import Bar, Bars, Kind
from colonnade.pictures.cells import Cells
from colonnade.pictures.look import Sheet

_MOST_COLUMNS, _MOST_COMPONENTS, _MOST_BARS = 15, 4, 10
_DIGITS = 2


def components(
    variances: Sequence[Estimate],
    ratios: Sequence[float],
    clear: Sequence[bool] | None,
    names: Sequence[str],
    loadings: Sequence[Sequence[Estimate]],
) -> Sheet:
    """Variances with their intervals, and the loadings of the first components."""
    return Sheet([_variances(variances, ratios, clear), _loadings(names, loadings)])


def _variances(variances: Sequence[Estimate], ratios: Sequence[float], clear: Sequence[bool] | None) -> Bars:
    bars = []
    for k, (value, ratio) in enumerate(list(zip(variances, ratios, strict=True))[:_MOST_BARS]):
        kind: Kind = "grey" if clear is not None and not clear[k] else "plain"
        ends = (None, None) if value.deviation is None else (value.low, value.high)
        bars.append(Bar(f"component {k + 1}", float(value), f"{100 * ratio:.1f} %", kind, *ends))
    notes = ["beside each bar: its share of all variance"]
    if any(bar.low is not None for bar in bars):
        notes.append("thin line: 95 % interval")
    if any(bar.kind == "grey" for bar in bars):
        notes.append("grey: cannot be told apart from another component")
    if len(bars) < len(variances):
        notes.append(f"the first {len(bars)} of {len(variances)} components")
    return Bars("Explained variance", bars, "variance of the encoded columns", "; ".join(notes))


def _loadings(names: Sequence[str], loadings: Sequence[Sequence[Estimate]]) -> Cells:
    shown = loadings[:_MOST_COMPONENTS]
    places = sorted(strongest(shown, _MOST_COLUMNS))
    rows = [(names[place], [cell(row[place], _DIGITS) for row in shown]) for place in places]
    notes = ["blue and orange pull in opposite directions"]
    if any(value.deviation is not None for row in shown for value in row):
        notes.append("after ±: the deviation of the noise; grey: cannot be told from zero")
    if len(places) < len(names):
        notes.append(f"the {len(places)} strongest of {len(names)} columns")
    if len(shown) < len(loadings):
        notes.append(f"the first {len(shown)} of {len(loadings)} components")
    heads = [f"component {k + 1}" for k in range(len(shown))]
    return Cells("What the components are made of", heads, rows, "; ".join(notes))
