"""What a regression learned: its coefficients by party, how it was fitted, and what it tells about each party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from colonnade.drawing.canvas import Html, join, named_values, table, tag
from colonnade.report import wording
from colonnade.report.sections import ReportSection, Run, coefficients
from colonnade.report.wording import count_noun, mapping, number

if TYPE_CHECKING:
    from colonnade.kinds.regression.model import Regression


def title(model: Regression, columns: int) -> str:
    """What was computed, in a few words."""
    on = f" on {count_noun(columns, 'column')}" if columns else ""
    return f"one {model.kind} regression{on}"


def regression(model: Regression, run: Run, owners: Sequence[str]) -> Html:
    """Coefficients, facts and protection."""
    return join(
        tag("h2", "The result"),
        _lead(model),
        _facts(model, mapping(run.get("task"))),
        coefficients(model, owners),
        _protection(model.protection_),
    )


def _lead(model: Regression) -> Html:
    people = f"From about {round(model.count_):,} people (a noisy count), a" if model.count_ else "A"
    columns = count_noun(len(model.feature_names_in_), "column")
    return tag(
        "p",
        f"{people} {model.kind} regression of {model.label_} on {columns}. How well it predicts is not shown: that "
        "needs data, and data about new people is best.",
    )


def _facts(model: Regression, task: Mapping[str, Any]) -> Html | None:
    intercepts = [model.estimate(row, None).text(3) for row in range(len(model.intercept_))]
    ridge, noise = number(model.ridge_), number(task.get("noise_std"))
    steps, batch = number(task.get("rounds")), number(task.get("batch"))
    found = [
        ("Method", model.method_),
        ("Intercept", ", ".join(intercepts).replace("-", "\N{MINUS SIGN}")),
        ("Ridge", None if ridge is None else f"{ridge:.4g}"),
        ("Noise", None if noise is None else f"{task.get('law', 'noise')}, deviation {noise:.4g}"),
        ("Rounds", None if steps is None else f"{steps:,.0f}"),
        ("Batches", None if batch is None else f"{task.get('sampling')}, {batch:,.0f} people"),
    ]
    return named_values(found)


def _protection(found: Mapping[str, float]) -> Html:
    """What the published result tells about each party's columns alone."""
    rows = [(name, tag("strong", wording.epsilon(value))) for name, value in found.items()]
    caption = (
        "How much the published result can tell about one person's columns at this party, if all other columns of the "
        "person were known. Epsilon is rounded up."
    )
    return join(
        tag("h3", "What the result tells about each party's columns"),
        table(("Party", "Epsilon"), rows, caption=caption, numeric=(1,)),
    )


SECTION: ReportSection[Regression] = ReportSection(
    title, regression, columns=lambda model: len(model.feature_names_in_)
)
