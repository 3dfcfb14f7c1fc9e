"""How well the result does at each epsilon, compared with other methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.drawing.canvas import figure
from colonnade.drawing.charts import Axis, Line, Lines
from colonnade.drawing.markup import Html, join, table, tag
from colonnade.report import words
from colonnade.report.words import counted, number, percent


def evaluation(given: Mapping[str, Any]) -> Html | None:
    """A chart and a table of the captured variance at each epsilon; None where there is no line to draw."""
    lines = [line for line in map(_line(given), words.sequence(given.get("lines"))) if line.points]
    if not lines:
        return None
    level = number(given.get("ceiling"))
    count, runs = number(given.get("n_components")), number(given.get("runs"))
    what = "Variance captured" + (f" by {counted(int(count), 'component')}" if count else "")
    chart = Lines(
        lines,
        Axis("epsilon (logarithmic)", "log"),
        Axis(what, text=lambda y: percent(y, 0)),
        {} if level is None else {"no privacy": level},
        title=f"{what} against epsilon",
        spoken="; ".join(f"{line.label}: {percent(line.points[-1][1])} at {line.points[-1][0]:g}" for line in lines),
    )
    about = [str(given["note"])] if given.get("note") else []
    if any(d for line in lines for d in line.deviations):
        about.append("Bands are one standard deviation" + (f" over {counted(int(runs), 'run')}." if runs else "."))
    return join(
        tag("h2", "Does it work?"),
        tag("p", tag("strong", str(given["title"]))) if given.get("title") else None,
        figure("evaluation", chart, " ".join(about) or None),
        _numbers(lines, level, what),
    )


def _line(given: Mapping[str, Any]) -> Any:
    xs = words.sequence(given.get("epsilons"))

    def read(value: object) -> Line:
        entry = words.mapping(value)
        means, spreads = words.sequence(entry.get("mean")), words.sequence(entry.get("std"))
        points = []
        for k, (x, y) in enumerate(zip(map(number, xs), map(number, means), strict=False)):
            if x is not None and x > 0 and y is not None:
                points.append((x, y, number(spreads[k]) if k < len(spreads) else None))
        points.sort()
        known = [deviation for _, _, deviation in points]
        return Line(str(entry.get("name", "unnamed")), [(x, y) for x, y, _ in points], known, marked=True)

    return read


def _numbers(lines: Sequence[Line], level: float | None, what: str) -> Html:
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
