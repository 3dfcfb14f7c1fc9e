"""What a PCA learned: how much of the variance each component holds, and what the components are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from colonnade.drawing.canvas import figure
from colonnade.drawing.markup import Html, join, table, tag
from colonnade.kinds.pca.pictures import loadings_chart, variance_chart
from colonnade.models.estimates import Estimate
from colonnade.report.sections import ReportSection, Run
from colonnade.report.wording import count_noun, percent

if TYPE_CHECKING:
    from colonnade.kinds.pca.model import PCA


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
