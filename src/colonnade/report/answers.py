"""What sums of polynomials and predictions have to show: values with their deviations, or only how many there are."""

from __future__ import annotations

from typing import Any

from colonnade.report import exchange
from colonnade.report.markup import Html, join, table, tag
from colonnade.report.words import counted, number

KINDS = ("prediction", "glm-scores")
"""What is told to one party alone."""
_MOST_VALUES = 60


def values(model: Any) -> Html | None:
    """Each sum beside the deviation of its noise; nothing where there are none."""
    found = [number(float(value)) for value in getattr(model, "values_", ())]
    spread = [number(float(value)) for value in getattr(model, "deviations_", ())]
    names = [str(text) for text in getattr(model, "expressions_", ())]
    if not found or len(found) != len(names):
        return None
    spread += [None] * (len(found) - len(spread))
    rows = [
        (name, _plain(value), _plain(deviation))
        for name, value, deviation in zip(names, found, spread[: len(found)], strict=True)
    ]
    more = f" The first {_MOST_VALUES} of {len(rows)}; model.json has all." if len(rows) > _MOST_VALUES else ""
    caption = f"Sums over all people, with the standard deviation of the noise in each.{more}"
    heads = ("Expression", "Sum", "Deviation")
    shown = rows[:_MOST_VALUES]
    return join([tag("h2", "The result"), table(heads, shown, caption=caption, numeric=(1, 2))])


def counts(model: Any) -> Html | None:
    """How many answers there are and who has them; never an answer."""
    to = getattr(model, "to", None)
    if not to:
        return None
    ids = getattr(model, "ids_", None)
    how_many = counted(len(ids), "person", "people") if ids else "the people of this study"
    exact = "exact" if getattr(model, "exact", False) else "noisy"
    text = (
        f"{to} was told the {exact} scores of {how_many}. They are in the model.json of {to} and nowhere else: this "
        "report and everybody else's files hold none of them."
    )
    return join([tag("h2", "The result"), tag("p", text)])


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}".replace("-", "\N{MINUS SIGN}")


def title(model: Any, columns: int) -> str:
    """What was computed, in a few words."""
    kind = getattr(model, "kind", "pca")
    on = f" of {counted(columns, 'column')}" if columns else ""
    if kind == "polynomial":
        return f"{counted(len(getattr(model, 'expressions_', ())), 'sum')} over the columns of all parties"
    if kind in KINDS:
        how = " by weights that each of them keeps" if kind == "glm-scores" else ""
        return f"predictions for {getattr(model, 'to', 'one of them')}{how}"
    if kind == exchange.KIND:
        return exchange.title(model, columns)
    if kind in ("linear", "logistic"):
        return f"one {kind} regression{on.replace(' of ', ' on ')}"
    return f"one PCA{on}"
