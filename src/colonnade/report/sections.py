"""The parts of a page that depend on the kind of a model, and what several kinds show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from colonnade.drawing.canvas import Html, figure, join, table, tag
from colonnade.drawing.charts import Axis, Curve, LineChart
from colonnade.models import Estimator
from colonnade.privacy.observers import Trust
from colonnade.report import wording
from colonnade.report.privacy import who_saw_what
from colonnade.report.wording import count_noun, mapping, number, percent

if TYPE_CHECKING:
    from colonnade.models.estimates import Estimate
    from colonnade.models.linear_model import LinearModel
    from colonnade.models.score_result import ScoreQuestion

Model = TypeVar("Model", bound=Estimator)
Run = Mapping[str, Any]
"""What ``run.json`` holds; anything may be missing."""


def seen_on_shares(model: Estimator, run: Run, trust: Trust) -> Html:
    """Who saw what, where a committee computes on shares."""
    found = mapping(run.get("alignment"))
    return who_saw_what(trust, model.recipient, aligned=bool(found), hidden=found.get("hidden") is True)


@dataclass(frozen=True)
class ReportSection(Generic[Model]):
    """The parts of a page that depend on the kind of the model.

    ``title`` says in a few words what was computed, from the model and the number of its columns (0: not known).
    ``result`` shows what a fitted model learned; its last argument is the names of the parties.
    ``columns`` counts the encoded columns of a fitted model.
    ``seen`` says who saw what during the run.
    ``noise`` is the name of the noise that ``run.json`` records.
    """

    title: Callable[[Model, int], str]
    result: Callable[[Model, Run, Sequence[str]], Html]
    columns: Callable[[Model], int]
    seen: Callable[[Model, Run, Trust], Html] = seen_on_shares
    noise: str = "Noise in all, on the grid"


def coefficients(model: LinearModel, owners: Sequence[str]) -> Html:
    """The published weights of encoded columns, by party; a row for each class."""
    chart = model.weights_chart()
    caption = "Blue with + raises the score, orange with \N{MINUS SIGN} lowers it, for one step of the encoded column."
    if model.coef_deviations_ is not None:
        places = range(len(model.feature_names_in_))
        rows = [[model.estimate(row, place) for place in places] for row in range(len(model.coef_))]
        caption += f" {_explain_intervals(model, rows)}"
    return join(tag("h3", "Coefficients"), figure("coefficients", chart, f"{caption} {chart.note}".rstrip()))


def _explain_intervals(model: LinearModel, rows: Sequence[Sequence[Estimate]]) -> str:
    """What the error bars are, in words, and how many weights they leave in doubt."""
    doubtful, all_of_them = sum(not value.clear for row in rows for value in row), len(rows) * len(rows[0])
    return f"Intervals are for {model.estimand}; {doubtful:,} of {all_of_them:,} numbers cannot be told from zero."


def counts(model: ScoreQuestion, run: Run, owners: Sequence[str]) -> Html:
    """How many answers there are and who has them; it shows no answer."""
    to, how = model.recipient, "exact" if model.exact else "noisy"
    how_many = count_noun(len(model.ids_), "person", "people") if model.ids_ else "the people of this study"
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


def evaluation(given: Mapping[str, Any]) -> Html | None:
    """A chart and a table of the captured variance at each epsilon; None where there is no line to draw."""
    lines = [line for line in map(_line(given), wording.sequence(given.get("lines"))) if line.points]
    if not lines:
        return None
    level = number(given.get("ceiling"))
    count, runs = number(given.get("n_components")), number(given.get("runs"))
    what = "Variance captured" + (f" by {count_noun(int(count), 'component')}" if count else "")
    chart = LineChart(
        lines,
        Axis("epsilon (logarithmic)", "log"),
        Axis(what, text=lambda y: percent(y, 0)),
        {} if level is None else {"no privacy": level},
        title=f"{what} against epsilon",
        description="; ".join(
            f"{line.label}: {percent(line.points[-1][1])} at {line.points[-1][0]:g}" for line in lines
        ),
    )
    about = [str(given["note"])] if given.get("note") else []
    if any(d for line in lines for d in line.deviations):
        about.append("Bands are one standard deviation" + (f" over {count_noun(int(runs), 'run')}." if runs else "."))
    return join(
        tag("h2", "Does it work?"),
        tag("p", tag("strong", str(given["title"]))) if given.get("title") else None,
        figure("evaluation", chart, " ".join(about) or None),
        _numbers(lines, level, what),
    )


def _line(given: Mapping[str, Any]) -> Any:
    xs = wording.sequence(given.get("epsilons"))

    def read(value: object) -> Curve:
        entry = wording.mapping(value)
        means, spreads = wording.sequence(entry.get("mean")), wording.sequence(entry.get("std"))
        points = []
        for k, (x, y) in enumerate(zip(map(number, xs), map(number, means), strict=False)):
            if x is not None and x > 0 and y is not None:
                points.append((x, y, number(spreads[k]) if k < len(spreads) else None))
        points.sort()
        known = [deviation for _, _, deviation in points]
        return Curve(str(entry.get("name", "unnamed")), [(x, y) for x, y, _ in points], known, marked=True)

    return read


def _numbers(lines: Sequence[Curve], level: float | None, what: str) -> Html:
    xs = sorted({x for line in lines for x, _ in line.points})
    found = [{x: _spread(y, d) for (x, y), d in zip(line.points, line.deviations, strict=True)} for line in lines]
    heads = ["Privacy", *(line.label for line in lines)]
    rows = [[f"epsilon {x:g}", *(column.get(x, "–") for column in found)] for x in xs]
    if level is not None:
        heads.append("no privacy")
        rows = [[*row, percent(level)] for row in rows]
    return table(heads, rows, caption=f"{what}, in numbers.", numeric=range(1, len(heads)))


def _spread(mean: float, deviation: float | None) -> str:
    return percent(mean) if not deviation else f"{100 * mean:.1f} ± {100 * deviation:.1f} %"
