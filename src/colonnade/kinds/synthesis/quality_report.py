"""One HTML file about a synthetic table beside the real one, for those who may look at it."""

from __future__ import annotations

from pathlib import Path

from colonnade.drawing.canvas import figure
from colonnade.drawing.charts import Curve, Histogram, HistogramChart, Matrix, MatrixChart
from colonnade.drawing.markup import Html, join, table, tag
from colonnade.kinds.synthesis.quality import ColumnShares, SyntheticQuality, evaluate_synthetic
from colonnade.models.pictures import rates_chart
from colonnade.report.document import document, write_document
from colonnade.report.wording import percent

_MOST_PANELS, _MOST_COLUMNS = 24, 40
_ORDERS = {1: "One column", 2: "Two columns", 3: "Three columns"}
_NOT_PUBLIC = (
    "This page compares made-up people with real ones. Its numbers were computed from the real table without noise: "
    "it is for those who hold the data, not for publication."
)


def write_quality(target: Path, name: str, found: SyntheticQuality) -> Path:
    """Write the page, so that other users of this machine cannot read it, and return its path."""
    return write_document(target, render_quality(name, found), private=True)


def render_quality(name: str, found: SyntheticQuality) -> str:
    """The evaluation as one HTML document."""
    sections = [_distances(found), _columns(found), _associations(found), _usefulness(found), _attacks(found)]
    header = [
        tag("div", "Colonnade · evaluation", class_="brand"),
        tag("h1", f"{name}, beside the real table"),
        tag("p", _lead(found), class_="lead"),
        tag("p", _NOT_PUBLIC, class_="note"),
    ]
    return document(f"{name}: evaluation", header, [section for section in sections if section is not None])


def _lead(found: SyntheticQuality) -> str:
    pairs = next((each for each in found.distances if each.order == 2), found.distances[0])
    said = f"{found.synthetic_rows:,} made-up people beside {found.rows:,} real ones. "
    said += f"In the average pair of columns, {percent(pairs.mean)} of the people would have to change their values"
    if pairs.held_out is not None:
        said += (
            f"; between the real people and {found.held_out_rows:,} others like them it is {percent(pairs.held_out)}, "
            "by the luck of who was drawn"
        )
    if found.sdmetrics is not None:
        said += f". SDMetrics' quality score is {found.sdmetrics:.3f}"
    return said + "."


def _distances(found: SyntheticQuality) -> Html:
    rows = [
        (
            _ORDERS[each.order] + (" with the label" if each.with_label else ""),
            f"{each.sets:,}",
            percent(each.mean),
            percent(each.worst),
            " × ".join(each.worst_set),
            "–" if each.held_out is None else percent(each.held_out),
        )
        for each in found.distances
    ]
    heads = ("Marginals of", "How many", "Mean", "Worst", "Where", "People held out")
    caption = "Total variation: the share of people who would have to change their values. Numbers are in bins."
    return tag("section", tag("h2", "Marginals"), table(heads, rows, caption=caption, numeric=(1, 2, 3, 5)))


def _columns(found: SyntheticQuality) -> Html:
    panels = [_panel(column) for column in found.columns[:_MOST_PANELS]]
    more = f" The first {len(panels)} of {len(found.columns)} columns." if len(panels) < len(found.columns) else ""
    chart = HistogramChart(
        panels,
        "{:.1%}".format,
        title="Single columns",
        note="Bars: shares of the made-up people. Orange: shares of the real ones. Bins of numbers lie between "
        f"quantiles of the real ones, so they differ in width.{more}",
    )
    return tag("section", tag("h2", "One column at a time"), figure("columns", chart))


def _panel(column: ColumnShares) -> Histogram:
    scale = len(column.labels) > 1 and all(" to " in label for label in column.labels if label != "missing")
    ends = (f"below {column.labels[0].split(' to ')[1]}", f"from {_last(column.labels)}") if scale else ()
    return Histogram(column.name, column.labels, column.synthetic, [(share,) * 3 for share in column.real], ends)


def _last(labels: tuple[str, ...]) -> str:
    bins = [label for label in labels if label != "missing"]
    return bins[-1].split(" to ")[0] + (", then missing" if labels[-1] == "missing" else "")


def _associations(found: SyntheticQuality) -> Html | None:
    given = found.associations
    count = min(len(given.names), _MOST_COLUMNS)
    if count < 2:
        return None
    real, made_up, gap = (values[:count, :count].tolist() for values in (given.real, given.synthetic, given.difference))
    most = max(0.1, given.worst_difference)
    items = [
        Matrix("real", real, 1.0),
        Matrix("made up", made_up, 1.0),
        Matrix(f"difference, up to {most:.2f}", gap, most),
    ]
    spoken = f"Mean absolute difference {given.mean_difference:.3f}, largest {given.worst_difference:.3f}."
    cut = f" The first {count} of {len(given.names)} columns." if count < len(given.names) else ""
    note = f"Correlation of two numbers, otherwise Cramér's V; blue is positive, orange negative. {spoken}{cut}"
    chart = MatrixChart(items, given.names[:count], title="Associations of pairs", note=note, description=spoken)
    drawn = figure("associations", chart)
    return tag("section", tag("h2", "Which columns go together"), drawn)


def _usefulness(found: SyntheticQuality) -> Html | None:
    if not found.usefulness:
        return None
    rows = [
        (each.model, score, f"{each.synthetic[score]:.3f}", f"{each.real[score]:.3f}")
        for each in found.usefulness
        for score in each.synthetic
    ]
    heads = ("Model", "Score", "Trained on made-up people", "Trained on real people")
    caption = f"Prediction of {found.label} for people held out."
    return tag("section", tag("h2", "Is it useful?"), table(heads, rows, caption=caption, numeric=(2, 3)))


def _attacks(found: SyntheticQuality) -> Html | None:
    if found.closeness is None:
        return None
    near = found.closeness
    said = (
        f"{percent(near.closer_to_real)} of the made-up people are closer to somebody the table was learned from than "
        f"to any of as many people held out ({percent(near.interval[0])} to {percent(near.interval[1])}): 50 % means "
        f"that nobody was copied. {percent(near.copies)} equal somebody learned from in every column, and "
        f"{percent(near.copies_held_out)} somebody held out."
    )
    return tag("section", tag("h2", "Does it give people away?"), tag("p", said), _curves(found), _table(found))


def _curves(found: SyntheticQuality) -> Html | None:
    if not found.attacks:
        return None
    lines = [Curve(f"attack by {each.name}, AUC {each.auc:.3f}", each.roc) for each in found.attacks]
    alarms, hits = "false alarms: people held out who are taken for members", "members who are found"
    return figure("attacks", rates_chart(lines, alarms, hits, title="Membership attacks"))


def _table(found: SyntheticQuality) -> Html | None:
    if not found.attacks:
        return None
    rows = [
        (
            f"by {each.name}",
            f"{each.auc:.3f} ({each.auc_interval[0]:.3f} to {each.auc_interval[1]:.3f})",
            f"{each.baseline:.3f}",
            f"{each.advantage:.3f} ({each.advantage_interval[0]:.3f} to {each.advantage_interval[1]:.3f})",
        )
        for each in found.attacks
    ]
    heads = ("Attack", "AUC", "On a table without them", "Advantage")
    caption = (
        "An attacker with the table and reference people scores members and people held out; 0.5 and 0 are guessing. "
        "Intervals hold 95 % of the time. What an attack does not find may still be there: the promise is the privacy "
        "statement's."
    )
    return join(table(heads, rows, caption=caption, numeric=(1, 2, 3)))


evaluate, write = evaluate_synthetic, write_quality
"""What ``colonnade quality`` asks for: the figures, and a page of them."""
