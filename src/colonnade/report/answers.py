"""The result of predictions for one party: only how many there are, and how levels of scores were answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from colonnade.report.markup import Html, join, table, tag
from colonnade.report.section import Run
from colonnade.report.words import counted, number

if TYPE_CHECKING:
    from colonnade.models.predicted import Predicted


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
