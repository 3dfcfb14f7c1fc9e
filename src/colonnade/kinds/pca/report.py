"""What a PCA learned: how much of the variance each component holds, and what the components are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from colonnade.models.estimates import Estimate
from colonnade.report import charts
from colonnade.report.canvas import figure
from colonnade.report.charts import Bar, grouped, spoken
from colonnade.report.markup import Html, join, table, tag
from colonnade.report.section import Run, Section
from colonnade.report.words import counted, percent

if TYPE_CHECKING:
    from colonnade.kinds.pca.model import PCA

_MOST_COLUMNS, _MOST_COMPONENTS, _MOST_BARS = 15, 4, 10


def title(model: PCA, columns: int) -> str:
    """What was computed, in a few words."""
    return f"one PCA of {counted(columns, 'column')}" if columns else "one PCA"


def components(model: PCA, run: Run, owners: Sequence[str]) -> Html:
    """Explained variance and loadings."""
    kept = len(model.components_)
    rows = [list(model.loadings(k + 1).values()) for k in range(min(kept, _MOST_COMPONENTS))]
    return join(
        tag("h2", "The result"),
        _variance(model),
        _loadings(model.feature_names_in_, rows, owners, kept),
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
        tag("p", f"{sum(clear)} of {counted(len(clear), 'component')} can be told apart from all others."),
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


def noise_edge(noise_std: float, columns: int, count: float) -> float:
    """About the largest eigenvalue that noise alone would have.

    The noise is a symmetric matrix with deviation ``noise_std`` on the diagonal and ``noise_std / sqrt(2)``
    off it, so its spectrum ends near ``2 sqrt(columns) noise_std / sqrt(2)``; the count divides both.
    """
    return math.sqrt(2 * columns) * noise_std / max(count, 1.0)


def _variance(model: PCA) -> Html | None:
    """A bar for each component; nothing where noise left no finite number."""
    ratios = [float(value) for value in model.explained_variance_ratio_]
    values = [float(value) for value in model.explained_variance_]
    if not all(map(math.isfinite, [*ratios, *values])):
        return None
    columns, noise, count = len(model.feature_names_in_), model.noise_std_, model.count_
    total = values[0] / ratios[0] if ratios[0] > 0 else 0.0
    band, said = None, ""
    if noise and count and total > 0:
        edge = noise_edge(noise, columns, count) / total
        band = (edge, f"shaded: what noise alone would show, up to about {percent(min(edge, 9.99))}")
        above = sum(ratio > edge for ratio in ratios)
        said = f" {_above(above, len(ratios))} above what the noise alone would show."
    shown = ratios[:_MOST_BARS]
    items = [Bar(f"component {k + 1}", ratio, percent(ratio)) for k, ratio in enumerate(shown)]
    high = max([*shown, min(band[0], 1.0) if band else 0.0]) or 1.0
    people = f"From about {round(count):,} people (a noisy count), " if count else "Together "
    verb = "holds" if len(ratios) == 1 else "hold"
    lead = f"{people}{counted(len(ratios), 'component')} of {counted(columns, 'column')} {verb} "
    lead += f"{percent(sum(ratios))} of the variance, as far as the noisy result can tell."
    more = f" The first {len(shown)} are drawn." if len(shown) < len(ratios) else ""
    spoken = "; ".join(f"{bar.label}: {bar.text}" for bar in items) + (f"; {band[1]}" if band else "")
    return join(
        tag("p", f"{lead}{said}{more}"),
        tag("h3", "Explained variance"),
        figure(
            "variance",
            lambda key, width: charts.bars(
                key,
                width,
                items,
                title="Explained variance of each component",
                description=spoken,
                high=high,
                band=band,
            ),
        ),
    )


def _above(above: int, of: int) -> str:
    if above == of:
        return "It stands" if of == 1 else f"All {of} stand"
    return (
        ("None stands" if of > 1 else "It does not stand")
        if not above
        else (f"{above} of them stand{'s' if above == 1 else ''}")
    )


def _loadings(names: list[str], components: list[list[Estimate]], owners: Sequence[str], kept: int) -> Html:
    groups, count = grouped(names, components, owners, _MOST_COLUMNS)
    word = "component" if len(components) < 4 else "comp."
    heads = [f"{word} {k + 1}" for k in range(len(components))]
    text = spoken(groups)
    known = any(value.deviation is not None for row in components for value in row)
    caption = "Blue with + and orange with \N{MINUS SIGN} pull in opposite directions; stronger is larger."
    if known:
        caption += " After ±, the deviation that noise gives a number; grey ones cannot be told from zero."
    if count < len(names):
        caption += f" The {count} strongest of {len(names)} columns are shown; the others are in model.json."
    if kept > len(components):
        caption += f" The first {len(components)} of {kept} components are shown."
    return join(
        tag("h3", "What the components are made of"),
        figure(
            "loadings",
            lambda key, width: charts.heat(
                key, width, groups, heads, title="Loadings of the components, by party", description=text
            ),
            caption,
        ),
    )


SECTION: Section[PCA] = Section(title, components, columns=lambda model: len(model.feature_names_in_))
