"""The results of sums of polynomials (each value and its noise) and of predictions (only how many there are)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from colonnade.report.markup import Html, join, table, tag
from colonnade.report.section import Run, Section
from colonnade.report.words import counted, number

if TYPE_CHECKING:
    from colonnade.models.polynomial import PolynomialSum
    from colonnade.models.predicted import Predicted

_MOST_VALUES = 60


def values(model: PolynomialSum, run: Run, owners: Sequence[str]) -> Html:
    """A table of the sums, each with the standard deviation of its noise."""
    found = zip(model.expressions_, model.values_, model.deviations_, strict=True)
    rows = [(name, _plain(float(value)), _plain(float(deviation))) for name, value, deviation in found]
    more = f" The first {_MOST_VALUES} of {len(rows)}; model.json has all." if len(rows) > _MOST_VALUES else ""
    caption = f"Sums over all people, with the standard deviation of the noise in each.{more}"
    heads = ("Expression", "Sum", "Deviation")
    shown = rows[:_MOST_VALUES]
    return join(tag("h2", "The result"), table(heads, shown, caption=caption, numeric=(1, 2)))


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


def _plain(value: float) -> str:
    return "–" if number(value) is None else f"{value:,.4g}".replace("-", "\N{MINUS SIGN}")


SUMS: Section[PolynomialSum] = Section(
    title=lambda model, columns: f"{counted(len(model.expressions), 'sum')} over the columns of all parties",
    result=values,
    columns=lambda model: len(model.feature_names_in_),
)
PREDICTIONS: Section[Predicted] = Section(
    title=lambda model, columns: f"predictions for {model.recipient}", result=counts, columns=lambda model: 0
)
