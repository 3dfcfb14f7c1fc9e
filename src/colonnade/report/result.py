"""What was learned, first of all the components, and how they compare with what others could have computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.report import answers, charts, exchange, words
from colonnade.report.canvas import figure
from colonnade.report.charts import Bar
from colonnade.report.columns import grouped, spoken
from colonnade.report.curves import Line, Lines
from colonnade.report.markup import Html, join, table, tag
from colonnade.report.regression import REGRESSIONS, regression
from colonnade.report.words import counted, number, percent

_MOST_COLUMNS, _MOST_COMPONENTS, _MOST_BARS = 15, 4, 10


def result(model: Any, run: Mapping[str, Any], owners: Sequence[str]) -> Html | None:
    """What a model of any kind has to show; nothing where it was never fitted."""
    kind = getattr(model, "kind", "pca")
    if kind in REGRESSIONS:
        return regression(model, run, owners)
    if kind == exchange.KIND:
        return exchange.exchange(model, run, owners)
    if kind == "polynomial":
        return answers.values(model)
    return answers.counts(model) if kind in answers.KINDS else components(model, owners)


def components(model: Any, owners: Sequence[str]) -> Html | None:
    """Explained variance and loadings."""
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    rows = [[float(value) for value in row] for row in getattr(model, "components_", ())]
    if not names or not rows or any(len(row) != len(names) for row in rows):
        return None
    return join(
        [
            tag("h2", "The result"),
            _variance(model, len(names)),
            _loadings(names, rows[:_MOST_COMPONENTS], owners, len(rows)),
        ]
    )


def evaluation(given: Mapping[str, Any]) -> Html | None:
    """Variance captured against epsilon; nothing where no line can be drawn."""
    lines = [line for line in map(_line(given), words.sequence(given.get("lines"))) if line.points]
    if not lines:
        return None
    level = number(given.get("ceiling"))
    chart = Lines(
        lines,
        ceiling=None if level is None else (level, "no privacy"),
        x_name="epsilon (logarithmic)",
        y_text=lambda y: percent(y, 0),
    )
    count, runs = number(given.get("n_components")), number(given.get("runs"))
    what = "Variance captured" + (f" by {counted(int(count), 'component')}" if count else "")
    ends = "; ".join(f"{line.name}: {percent(line.points[-1][1])} at {line.points[-1][0]:g}" for line in lines)
    about = [str(given["note"])] if given.get("note") else []
    if any(d for line in lines for _, _, d in line.points):
        about.append("Bands are one standard deviation" + (f" over {counted(int(runs), 'run')}." if runs else "."))
    return join(
        [
            tag("h2", "Does it work?"),
            tag("p", tag("strong", str(given["title"]))) if given.get("title") else None,
            figure(
                "evaluation",
                lambda key, width: chart.draw(key, width, title=f"{what} against epsilon", description=ends),
                " ".join(about) or None,
            ),
            _numbers(lines, level, what),
        ]
    )


def noise_edge(noise_std: float, columns: int, count: float) -> float:
    """The largest eigenvalue that noise alone would show, about.

    The noise is a symmetric matrix with deviation ``noise_std`` on the diagonal and ``noise_std / sqrt(2)``
    off it, so its spectrum ends near ``2 sqrt(columns) noise_std / sqrt(2)``; the count divides both.
    """
    return math.sqrt(2 * columns) * noise_std / max(count, 1.0)


def _variance(model: Any, columns: int) -> Html | None:
    ratios = [float(value) for value in getattr(model, "explained_variance_ratio_", ())]
    values = [float(value) for value in getattr(model, "explained_variance_", ())]
    if not ratios or len(values) != len(ratios) or not all(map(math.isfinite, [*ratios, *values])):
        return None
    noise, count = number(getattr(model, "noise_std_", None)), number(getattr(model, "count_", None))
    total = values[0] / ratios[0] if ratios[0] > 0 else 0.0
    band, said = None, ""
    if noise and count and total > 0:
        edge = noise_edge(noise, columns, count) / total
        band = (edge, f"shaded: what noise alone would show, up to about {percent(min(edge, 9.99))}")
        above = sum(ratio > edge for ratio in ratios)
        said = f" {_above(above, len(ratios))} above what the noise alone would show."
    shown = ratios[:_MOST_BARS]
    items = [Bar(f"component {k + 1}", ratio, percent(ratio)) for k, ratio in enumerate(shown)]
    high = max([*shown, min(band[0], 1.0) if band else 0.0]) or 1.0
    people = f"From about {round(count):,} people (a noisy count), " if count else "Together "
    verb = "holds" if len(ratios) == 1 else "hold"
    lead = f"{people}{counted(len(ratios), 'component')} of {counted(columns, 'column')} {verb} "
    lead += f"{percent(sum(ratios))} of the variance, as far as the noisy result can tell."
    more = f" The first {len(shown)} are drawn." if len(shown) < len(ratios) else ""
    spoken = "; ".join(f"{bar.label}: {bar.text}" for bar in items) + (f"; {band[1]}" if band else "")
    return join(
        [
            tag("p", f"{lead}{said}{more}"),
            tag("h3", "Explained variance"),
            figure(
                "variance",
                lambda key, width: charts.bars(
                    key,
                    width,
                    items,
                    title="Explained variance of each component",
                    description=spoken,
                    high=high,
                    band=band,
                ),
            ),
        ]
    )


def _above(above: int, of: int) -> str:
    if above == of:
        return "It stands" if of == 1 else f"All {of} stand"
    return (
        ("None stands" if of > 1 else "It does not stand")
        if not above
        else (f"{above} of them stand{'s' if above == 1 else ''}")
    )


def _loadings(names: list[str], components: list[list[float]], owners: Sequence[str], kept: int) -> Html:
    groups, count = grouped(names, components, owners, _MOST_COLUMNS)
    word = "component" if len(components) < 4 else "comp."
    heads = [f"{word} {k + 1}" for k in range(len(components))]
    text = spoken(groups)
    caption = "Blue with + and orange with \N{MINUS SIGN} pull in opposite directions; stronger is larger."
    if count < len(names):
        caption += f" The {count} strongest of {len(names)} columns are shown; the others are in model.json."
    if kept > len(components):
        caption += f" The first {len(components)} of {kept} components are shown."
    return join(
        [
            tag("h3", "What the components are made of"),
            figure(
                "loadings",
                lambda key, width: charts.heat(
                    key,
                    width,
                    groups,
                    heads,
                    title="Loadings of the components, by party",
                    description=text,
                ),
                caption,
            ),
        ]
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
        return Line(str(entry.get("name", "unnamed")), sorted(points))

    return read


def _numbers(lines: Sequence[Line], level: float | None, what: str) -> Html:
    xs = sorted({x for line in lines for x, _, _ in line.points})
    found = [{x: _spread(y, d) for x, y, d in line.points} for line in lines]
    heads = ["Privacy", *(line.name for line in lines)]
    rows = [[f"epsilon {x:g}", *(column.get(x, "–") for column in found)] for x in xs]
    if level is not None:
        heads.append("no privacy")
        rows = [[*row, percent(level)] for row in rows]
    return table(heads, rows, caption=f"{what}, in numbers.", numeric=range(1, len(heads)))


def _spread(mean: float, deviation: float | None) -> str:
    return percent(mean) if not deviation else f"{100 * mean:.1f} ± {100 * deviation:.1f} %"
