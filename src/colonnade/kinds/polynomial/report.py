"""The result of sums of polynomials: each value, and its noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from colonnade.drawing.canvas import Html, join, table, tag
from colonnade.report.sections import ReportSection, Run
from colonnade.report.wording import count_noun, number

if TYPE_CHECKING:
    from colonnade.kinds.polynomial.model import PolynomialSum

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


def _plain(value: float) -> str:
    return "–" if number(value) is None else f"{value:,.4g}".replace("-", "\N{MINUS SIGN}")


SECTION: ReportSection[PolynomialSum] = ReportSection(
    title=lambda model, columns: f"{count_noun(len(model.expressions), 'sum')} over the columns of all parties",
    result=values,
    columns=lambda model: len(model.feature_names_in_),
)
