"""What several kinds show of a result: published weights by party, and how many scores somebody has received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from colonnade.drawing.canvas import figure
from colonnade.drawing.markup import Html, join, table, tag
from colonnade.report.section import Run
from colonnade.report.words import counted, number

if TYPE_CHECKING:
    from colonnade.models.estimates import Estimate
    from colonnade.models.linear_model import LinearModel
    from colonnade.models.predicted import Predicted


def coefficients(model: LinearModel, owners: Sequence[str]) -> Html:
    """The published weights of encoded columns, by party; a row for each class."""
    chart = model.weights_chart()
    caption = "Blue with + raises the score, orange with \N{MINUS SIGN} lowers it, for one step of the encoded column."
    if model.coef_deviations_ is not None:
        places = range(len(model.feature_names_in_))
        rows = [[model.estimate(row, place) for place in places] for row in range(len(model.coef_))]
        caption += f" {_explained(model, rows)}"
    return join(tag("h3", "Coefficients"), figure("coefficients", chart, f"{caption} {chart.note}".rstrip()))


def _explained(model: LinearModel, rows: Sequence[Sequence[Estimate]]) -> str:
    """What the error bars are, in words, and how many weights they leave in doubt."""
    doubtful, all_of_them = sum(not value.clear for row in rows for value in row), len(rows) * len(rows[0])
    return f"Intervals are for {model.estimand}; {doubtful:,} of {all_of_them:,} numbers cannot be told from zero."


def counts(model: Predicted, run: Run, owners: Sequence[str]) -> Html:
    """How many answers there are and who has them; it shows no answer."""
    to, how = model.recipient, "exact" if model.exact else "noisy"
    how_many = counted(len(model.ids_), "person", "people") if model.ids_ else "the people of this study"
    text = (
        f"{to} was told the {how} scores of {how_many}. They are in the model.json of {to} and nowhere else: this "
        "report and everybody else's files hold none of them."
    )
    return join(tag("h2", "The result"), tag("p", text), *_levels(run))


def _levels(run: Run) -> list[Html]:
    """How the levels of scores were answered, where they were."""
    levels, odds = run.get("task", {}).get("levels"), number(run.get("task", {}).get("odds"))
    if not levels or odds is None:
        return []
    rows = [(owner, f"{count}", f"{odds / (odds + count - 1):.3f}") for owner, count in levels.items()]
    caption = "For each person a party told one level of its part of the score, answered at random."
    heads = ("Party", "Levels", "Probability of the true one")
    return [table(heads, rows, caption=caption, numeric=(1, 2))]
