"""The published weights of a linear model, by party, with what noise leaves in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from colonnade.report import charts
from colonnade.report.canvas import figure
from colonnade.report.charts import grouped, spoken
from colonnade.report.markup import Html, join, tag

if TYPE_CHECKING:
    from colonnade.models.estimates import Estimate
    from colonnade.models.linear_model import LinearModel

_MOST_COLUMNS, _MOST_CLASSES = 20, 4


def coefficients(model: LinearModel, owners: Sequence[str]) -> Html:
    """The published weights of encoded columns, by party; a row for each class."""
    names = model.feature_names_in_
    rows = [[model.estimate(row, place) for place in range(len(names))] for row in range(len(model.coef_))]
    shown = rows[:_MOST_CLASSES]
    groups, count = grouped(names, shown, owners, _MOST_COLUMNS)
    heads = model.row_names[: len(shown)]
    draw = charts.balance if len(rows) == 1 else charts.heat
    title = "Coefficients of the columns, by party"
    caption = "Blue with + raises the score, orange with \N{MINUS SIGN} lowers it, for one step of the encoded column."
    if model.coef_deviations_ is not None:
        caption += f" {_explained(model, rows)}"
    if count < len(names):
        caption += f" The {count} strongest of {len(names)} columns are shown; the others are in model.json."
    if len(shown) < len(rows):
        caption += f" The first {len(shown)} of {len(rows)} classes are shown."
    text = spoken(groups)
    return join(
        tag("h3", "Coefficients"),
        figure(
            "coefficients",
            lambda key, width: draw(key, width, groups, heads, title=title, description=text),
            caption,
        ),
    )


def _explained(model: LinearModel, rows: Sequence[Sequence[Estimate]]) -> str:
    """What the error bars are, in words, and how many weights they leave in doubt."""
    doubtful, all_of_them = sum(not value.clear for row in rows for value in row), len(rows) * len(rows[0])
    line = "a thin line is its 95 % interval for " if len(rows) == 1 else "95 % intervals, in model.json, are for "
    return (
        f"After ±, the deviation that noise gives a number; {line}{model.estimand}. Grey ones cannot be told from "
        f"zero: {doubtful:,} of {all_of_them:,}."
    )
