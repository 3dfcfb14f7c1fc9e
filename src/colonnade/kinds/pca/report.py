"""What a PCA learned: how much of the variance each component holds, and what the components are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from colonnade.drawing.canvas import Html, figure, join, sentences, table, tag
from colonnade.drawing.charts import Bar, BarChart, HeatMap, HeatMapRow
from colonnade.models.estimates import Estimate
from colonnade.models.pictures import columns_by_party, estimate_cell
from colonnade.report.sections import ReportSection, Run
from colonnade.report.wording import count_noun, percent

if TYPE_CHECKING:
    from colonnade.kinds.pca.model import PCA


_MOST_COLUMNS, _MOST_COMPONENTS, _MOST_BARS = 15, 4, 10
_DIGITS = 2


def noise_edge(noise_std: float, columns: int, count: float) -> float:
    """About the largest eigenvalue that noise alone would have.

    The noise is a symmetric matrix with deviation ``noise_std`` on the diagonal and ``noise_std / sqrt(2)``
    off it, so its spectrum ends near ``2 sqrt(columns) noise_std / sqrt(2)``; the count divides both.
    """
    return math.sqrt(2 * columns) * noise_std / max(count, 1.0)


def variance_chart(model: Any) -> BarChart:
    """A bar for each component, with its interval, beside what noise alone would show."""
    variances, ratios, clear = model.variances(), model.explained_variance_ratio_.tolist(), model.clear
    bars = []
    for k, (value, ratio) in enumerate(list(zip(variances, ratios, strict=True))[:_MOST_BARS]):
        low, high = (None, None) if value.deviation is None else (value.low, value.high)
        grey = clear is not None and not clear[k]
        share = f"{100 * ratio:.1f} %"
        bars.append(Bar(f"component {k + 1}", float(value), share, "grey" if grey else "plain", low, high))
    notes = ["beside each bar: its share of all variance"]
    if any(bar.low is not None for bar in bars):
        notes.append("thin line: 95 % interval")
    if any(bar.kind == "grey" for bar in bars):
        notes.append("grey: cannot be told apart from another component")
    if len(bars) < len(variances):
        notes.append(f"the first {len(bars)} of {len(variances)} components")
    return BarChart(
        bars,
        "variance of the encoded columns",
        _noise_band(model),
        title="Explained variance of each component",
        note=sentences(notes),
    )


def _noise_band(model: Any) -> tuple[float, str] | None:
    """What noise alone would show, where that is known, as a variance and in words."""
    if not (model.noise_std_ and model.count_):
        return None
    edge = noise_edge(model.noise_std_, len(model.feature_names_in_), model.count_)
    return edge, f"shaded: what noise alone would show, up to about {edge:.2g}"


def loadings_chart(model: Any, owners: Sequence[str]) -> HeatMap:
    """What the first components are made of: the strongest columns, by party."""
    names, kept = model.feature_names_in_, len(model.components_)
    loadings = [list(model.loadings(k + 1).values()) for k in range(min(kept, _MOST_COMPONENTS))]
    rows = [
        HeatMapRow(column, [estimate_cell(each[place], _DIGITS) for each in loadings], party)
        for place, party, column in columns_by_party(names, loadings, owners, _MOST_COLUMNS)
    ]
    notes = ["blue with + and orange with \N{MINUS SIGN} pull in opposite directions", "stronger is larger"]
    if any(value.deviation is not None for each in loadings for value in each):
        notes.append("after ±: the deviation that noise gives a number; grey: cannot be told from zero")
    if len(rows) < len(names):
        notes.append(f"the {len(rows)} strongest of {len(names)} columns; the others are in model.json")
    if len(loadings) < kept:
        notes.append(f"the first {len(loadings)} of {kept} components")
    heads = [f"{'component' if len(loadings) < 4 else 'comp.'} {k + 1}" for k in range(len(loadings))]
    return HeatMap(heads, rows, title="What the components are made of", note=sentences(notes))


def title(model: PCA, columns: int) -> str:
    """What was computed, in a few words."""
    return f"one PCA of {count_noun(columns, 'column')}" if columns else "one PCA"


def components(model: PCA, run: Run, owners: Sequence[str]) -> Html:
    """Explained variance and loadings."""
    return join(
        tag("h2", "The result"),
        _variance(model),
        tag("h3", "What the components are made of"),
        figure("loadings", loadings_chart(model, owners)),
        _apart(model),
    )


def _apart(model: PCA) -> Html | None:
    """Which components the noise leaves apart from others, and how far it may have turned them."""
    if (clear := model.clear) is None:
        return None
    found = [
        [f"component {k + 1}", _interval(each), f"{math.ceil(model.angles_[k])}°" if clear[k] else "any"]
        for k, each in enumerate(model.variances())
    ]
    told = "; ".join(model.unclear())
    return join(
        tag("h3", "What the noise leaves unknown"),
        tag("p", f"{sum(clear)} of {count_noun(len(clear), 'component')} can be told apart from all others."),
        tag("p", f"{told[0].upper()}{told[1:]}.") if told else None,
        table(
            ["component", "variance, and where it may lie", "turned by at most"],
            found,
            caption="95 of 100 runs leave the result without noise within these intervals and angles.",
            numeric=(1, 2),
            marks=["" if each else "unclear" for each in clear],
        ),
    )


def _interval(value: Estimate) -> str:
    return f"{value:.3g} ({value.low:.3g} to {value.high:.3g})"


def _variance(model: PCA) -> Html | None:
    """What share of the variance is held; nothing where noise left no finite number."""
    ratios = [float(value) for value in model.explained_variance_ratio_]
    values = [float(value) for value in model.explained_variance_]
    if not all(map(math.isfinite, [*ratios, *values])):
        return None
    chart = variance_chart(model)
    count, columns = model.count_, len(model.feature_names_in_)
    people = f"From about {round(count):,} people (a noisy count), " if count else "Together "
    verb = "holds" if len(ratios) == 1 else "hold"
    lead = f"{people}{count_noun(len(ratios), 'component')} of {count_noun(columns, 'column')} {verb} "
    lead += f"{percent(sum(ratios))} of the variance, as far as the noisy result can tell."
    if chart.band:
        above = sum(value > chart.band[0] for value in values)
        lead += f" {_above(above, len(ratios))} above what the noise alone would show."
    return join(tag("p", lead), tag("h3", "Explained variance"), figure("variance", chart))


def _above(above: int, of: int) -> str:
    if above == of:
        return "It stands" if of == 1 else f"All {of} stand"
    return (
        ("None stands" if of > 1 else "It does not stand")
        if not above
        else (f"{above} of them stand{'s' if above == 1 else ''}")
    )


SECTION: ReportSection[PCA] = ReportSection(title, components, columns=lambda model: len(model.feature_names_in_))
