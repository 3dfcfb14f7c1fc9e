"""The result of a synthetic table: what was asked, how well the model agrees with it, and which columns go together.

Columns of a synthetic table: shares of the people that the model makes, and what was published about each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from colonnade.drawing.canvas import Html, figure, join, table, tag
from colonnade.drawing.charts import Histogram, HistogramChart
from colonnade.kinds.synthesis.card import format_count
from colonnade.kinds.synthesis.population import Population, column_shares
from colonnade.report.sections import ReportSection, Run
from colonnade.report.wording import count_noun
from colonnade.tables.coding import ColumnCoding

if TYPE_CHECKING:
    from colonnade.kinds.synthesis.model import Synthesizer


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


_MOST_PAIRS = 12
_ORDERS = {1: "single columns", 2: "pairs", 3: "triples with the label"}


def title(model: Synthesizer, columns: int) -> str:
    """What was computed, in a few words."""
    return "a synthetic table" + (f" of {count_noun(columns, 'column')}" if columns else "")


def result(model: Synthesizer, run: Run, owners: Sequence[str]) -> Html:
    """What was released, how the model agrees with it, and the distributions."""
    return join(
        tag("h2", "The result"),
        tag("p", _lead(model)),
        _agreement(model),
        tag("h3", "One column at a time"),
        figure("columns", marginals_chart(model.population_)),
        _pairs(model),
        tag("h3", "What it is not good for"),
        tag("p", _limits(model)),
    )


def _lead(model: Synthesizer) -> str:
    if _mixture(model):
        asked = "Sums over people were released in rounds, with noise; a mixture of groups of people follows from them"
    else:
        asked = "Counts by all single columns and all pairs"
        if label := model.parameters_["label"]:
            asked += f", and by all triples with {label},"
        if model.merged_ is None:
            asked += " were released once, with noise; a model was fitted to them"
        else:
            asked += " were released with noise, after those of narrow bins, by which bins were merged; both releases "
            asked += "are charged. A model was fitted to the second"
    return (
        f"{count_noun(model.usual_size, 'made-up person', 'made-up people')} with "
        f"{count_noun(len(model.population_.layout.names), 'column')}, from about {round(model.count_):,} real ones. "
        f"{asked}, and the people were drawn from it, which costs no privacy. The table, its data dictionary and a "
        "card that says what it is good for lie beside this report."
    )


def _mixture(model: Synthesizer) -> bool:
    """Whether the table comes from a mixture that was learned in rounds, and not from counts."""
    return bool(model.parameters_["method"] == "mixture")


def _agreement(model: Synthesizer) -> Html | None:
    if not model.population_.agreements:
        return None
    rows = [
        (
            _ORDERS[each.order],
            f"{each.sets:,}",
            format_count(each.deviation),
            format_count(each.largest),
            f"{each.chi_squared:,.0f} of {each.degrees:,}",
            f"{each.ratio:.2f}",
        )
        for each in model.population_.agreements
    ]
    heads = ("Counts by", "How many", "Noise of a count", "At most", "Chi-squared of the fit", "Ratio")
    caption = (
        "Noise is the standard deviation of one published count, in people. Where the model is as close to the counts "
        "as the truth is, chi-squared is about its degrees of freedom and the ratio about 1; below, it repeats some "
        "noise."
    )
    return join(tag("h3", "What was asked for"), table(heads, rows, caption=caption, numeric=(1, 2, 3, 4, 5)))


def _pairs(model: Synthesizer) -> Html | None:
    found = model.population_.strongest_pairs(_MOST_PAIRS)
    if not found:
        return None
    rows = [(first, second, f"{value:.2f}") for (first, second), value in found]
    caption = "Cramér's V of the model, from 0 (independent) to 1 (one follows from the other)"
    caption += "; no pair was counted." if _mixture(model) else "; all pairs were asked for."
    return join(
        tag("h3", "Which columns go together"),
        table(("Column", "With", "Cramér's V"), rows, caption=caption, numeric=(2,)),
    )


def _limits(model: Synthesizer) -> str:
    pair = next((each for each in model.population_.agreements if each.order == 2), None)
    small = f" of fewer than about {round(3 * pair.deviation):,} people" if pair else ""
    rare = "rare combinations" + ("" if _mixture(model) else ", more columns together than were asked for")
    return (
        f"Small groups{small}, {rare}, and confidence intervals computed as if these were real people: they would "
        "leave the noise out. card.md says more."
    )


def _columns(model: Synthesizer) -> int:
    return len(model.population_.layout.names)


SECTION: ReportSection[Synthesizer] = ReportSection(title, result, columns=_columns)
