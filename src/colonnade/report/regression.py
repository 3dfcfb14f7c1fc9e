"""What a regression learned: its coefficients by party, how they came about, and what they tell about each party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.report import charts, words
from colonnade.report.canvas import figure
from colonnade.report.columns import grouped, spoken
from colonnade.report.markup import Html, join, table, tag
from colonnade.report.words import counted, mapping, number

_MOST_COLUMNS, _MOST_CLASSES = 20, 4
REGRESSIONS = ("linear", "logistic")


def regression(model: Any, run: Mapping[str, Any], owners: Sequence[str]) -> Html | None:
    """Coefficients, facts and protection; nothing where the model was never fitted."""
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    rows = [[float(value) for value in row] for row in getattr(model, "coef_", ())]
    if not names or not rows or any(len(row) != len(names) for row in rows):
        return None
    return join(
        [
            tag("h2", "The result"),
            _lead(model, len(names)),
            _facts(model, mapping(run.get("task"))),
            coefficients(model, names, rows, owners),
            _protection(getattr(model, "protection_", None)),
        ]
    )


def _lead(model: Any, columns: int) -> Html:
    label = getattr(model, "label_", None)
    count = number(getattr(model, "count_", None))
    people = f"From about {round(count):,} people (a noisy count), a" if count else "A"
    what = f"{getattr(model, 'kind', '')} regression"
    about = f" of {label}" if label else ""
    return tag(
        "p",
        f"{people} {what}{about} on {counted(columns, 'column')}. How well it predicts is not shown: that needs data, "
        "and data about new people is best.",
    )


def _facts(model: Any, task: Mapping[str, Any]) -> Html | None:
    intercepts = [
        f"{float(value):+.3f}".replace("-", "\N{MINUS SIGN}")
        for value in words.sequence(_listed(getattr(model, "intercept_", ())))
    ]
    ridge, noise = number(getattr(model, "ridge_", None)), number(task.get("noise_std"))
    steps, batch = number(task.get("rounds")), number(task.get("batch"))
    facts = [
        ("Method", getattr(model, "method_", None) or getattr(model, "method", None)),
        ("Intercept", ", ".join(intercepts)),
        ("Ridge", None if ridge is None else f"{ridge:.4g}"),
        ("Noise", None if noise is None else f"{task.get('law', 'noise')}, deviation {noise:.4g}"),
        ("Rounds", None if steps is None else f"{steps:,.0f}"),
        ("Batches", None if batch is None else f"{task.get('sampling')}, {batch:,.0f} people"),
    ]
    listed = [join([tag("dt", name), tag("dd", value)]) for name, value in facts if value not in (None, "")]
    return tag("dl", *listed, class_="facts") if listed else None


def coefficients(model: Any, names: Sequence[str], rows: Sequence[Sequence[float]], owners: Sequence[str]) -> Html:
    """The published weights of encoded columns, by party; a row for each class."""
    shown = rows[:_MOST_CLASSES]
    groups, count = grouped(names, shown, owners, _MOST_COLUMNS)
    classes = [str(name) for name in words.sequence(_listed(getattr(model, "classes_", ())))]
    heads = (classes if len(classes) == len(rows) else [f"{k + 1}" for k in range(len(rows))])[: len(shown)]
    draw = charts.balance if len(rows) == 1 else charts.heat
    title = "Coefficients of the columns, by party"
    caption = "Blue with + raises the score, orange with \N{MINUS SIGN} lowers it, for one step of the encoded column."
    if count < len(names):
        caption += f" The {count} strongest of {len(names)} columns are shown; the others are in model.json."
    if len(shown) < len(rows):
        caption += f" The first {len(shown)} of {len(rows)} classes are shown."
    text = spoken(groups)
    return join(
        [
            tag("h3", "Coefficients"),
            figure(
                "coefficients",
                lambda key, width: draw(key, width, groups, heads, title=title, description=text),
                caption,
            ),
        ]
    )


def _protection(given: object) -> Html | None:
    """What the published result tells about each party's columns alone."""
    found = {str(name): value for name, value in mapping(given).items() if isinstance(value, float) and value >= 0}
    if not found:
        return None
    rows = [(name, tag("strong", words.epsilon(value))) for name, value in found.items()]
    caption = (
        "How much the published result can tell about one person's columns at this party, if all other columns of the "
        "person were known. Epsilon is rounded up."
    )
    return join(
        [
            tag("h3", "What the result tells about each party's columns"),
            table(("Party", "Epsilon"), rows, caption=caption, numeric=(1,)),
        ]
    )


def _listed(value: object) -> object:
    """Plain values of an array."""
    return value.tolist() if hasattr(value, "tolist") else value
