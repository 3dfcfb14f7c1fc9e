"""What lies beside a synthetic table: a card that says what it is good for and what not, and what its columns mean."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.kinds.synthesis.population import Population, SyntheticTable, column_means
from colonnade.models.estimates import Estimate
from colonnade.privacy import Statement
from colonnade.tables import Schema
from colonnade.tables.cell_parsing import pa
from colonnade.tables.coding import data_dictionary

_ORDERS = {1: "one column", 2: "two columns", 3: "three columns, one of them the label"}
_MOST_COLUMNS, _MOST_VALUES = 200, 12


@dataclass(frozen=True)
class CardContext:
    """What a card is about."""

    people: Population
    schemas: Mapping[str, Schema]
    parameters: Mapping[str, Any]
    privacy: Statement
    releases: int = 1
    """Of counts: 2, where the bins were merged by a first one."""

    @property
    def mixture(self) -> bool:
        """Whether the table comes from a mixture that was learned in rounds, and not from counts."""
        return bool(self.parameters["method"] == "mixture")


def table_files(about: CardContext, drawn: Sequence[SyntheticTable]) -> dict[str, bytes]:
    """All files for the readers of a table, by name."""
    names = ["synthetic"] if len(drawn) == 1 else [f"synthetic-{number}" for number in range(1, len(drawn) + 1)]
    found: dict[str, bytes] = {}
    for name, each in zip(names, drawn, strict=True):
        found |= {f"{name}.parquet": parquet_bytes(each.table), f"{name}.csv": csv_bytes(each.table)}
    columns = data_dictionary(about.people.layout.codings, counted=not about.mixture)
    found["dictionary.json"] = (json.dumps({"columns": columns}, indent=1, ensure_ascii=False) + "\n").encode()
    found["dictionary.md"] = _render_dictionary(columns).encode()
    found["card.md"] = render_card(about, drawn).encode()
    found["privacy.json"] = (json.dumps(about.privacy.to_dict(), indent=1) + "\n").encode()
    return found


def parquet_bytes(table: Any) -> bytes:
    """A table as the content of a Parquet file; categories keep their lists of values."""
    import pyarrow.parquet

    sink = io.BytesIO()
    pyarrow.parquet.write_table(table, sink)
    return sink.getvalue()


def csv_bytes(table: Any) -> bytes:
    """A table as the content of a CSV file; a missing cell is empty."""
    import pyarrow.csv

    plain = [column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for column in table.columns]
    sink = io.BytesIO()
    pyarrow.csv.write_csv(pa.table(plain, names=table.column_names), sink)
    return sink.getvalue()


def summary_lines(people: Population, rows: int) -> list[str]:
    """The result in a few lines, for the terminal."""
    columns = len(people.layout.names)
    lines = [f"{rows:,} made-up people with {columns} columns; the real ones are about {people.count:,.0f}"]
    for each in people.agreements:
        lines.append(
            f"  {each.sets:,} marginals of {_ORDERS[each.order]}: the noise of a count is "
            f"{format_count(each.deviation)} people, and chi-squared of the model is {each.ratio:.2f} of its degrees "
            "of freedom"
        )
    for names, value in [] if people.agreements else people.strongest_pairs(3):
        lines.append(f"  {' and '.join(names)} go together (Cramér's V {value:.2f} by the model)")
    return lines


def render_card(about: CardContext, drawn: Sequence[SyntheticTable]) -> str:
    """What a table is good for and what not, as Markdown."""
    return (
        "\n\n".join(
            [
                *_introduction(about, drawn),
                "## Privacy",
                "What each observer can learn about one person, at most, from all that was published. Whoever has only "
                "this table is the analyst. Drawing people, and whatever readers do with them, adds nothing.",
                f"```text\n{about.privacy}\n```",
                "## What it is good for",
                *(_uses_of_mixture(about) if about.mixture else _uses_of_counts(about, drawn[0])),
                *_limits(about),
                *_intervals(drawn),
                *_provenance(about, drawn),
            ]
        )
        + "\n"
    )


def _introduction(about: CardContext, drawn: Sequence[SyntheticTable]) -> list[str]:
    several = f" There are {len(drawn)} such tables, for intervals." if len(drawn) > 1 else ""
    rows, columns, parties = drawn[0].table.num_rows, len(about.people.layout.names), ", ".join(about.schemas)
    published = "noisy sums over" if about.mixture else "noisy counts about"
    return [
        "# About this table",
        f"{rows:,} made-up people with {columns} columns. Nobody in it is a real person, and no row stands for one."
        f"{several}",
        f"The columns are those of {parties}, who hold them apart, about the same people. They published {published} "
        f"all of these people together, about {about.people.count:,.0f} of them; the made-up people were drawn from a "
        "model that was fitted to what was published. `dictionary.md` says what the columns mean.",
    ]


def _uses_of_counts(about: CardContext, drawn: SyntheticTable) -> list[str]:
    """What counts that were published are good for."""
    label, focus = about.parameters["label"], about.parameters["focus"]
    asked = "Counts were published by every column and by every pair of columns"
    asked += f", and by every three columns of which one is `{label}`." if label else "."
    if focus:
        pairs = [" with ".join(f"`{name}`" for name in pair) for pair in focus]
        asked += f" More exact than other pairs: {', '.join(pairs)}."
    of_table = about.people.agreement_of(drawn.table)
    return [
        f"{asked} So the table is good for the distribution of each column and for how any two columns go together"
        f"{f', and for learning to predict `{label}`' if label else ''}.",
        _table(
            ("counts by", "how many", "noise of one count", "at most", "chi-squared of the model", "of the table"),
            [
                (
                    _ORDERS[each.order],
                    f"{each.sets:,}",
                    f"{format_count(each.deviation)} people",
                    f"{format_count(each.largest)} people",
                    f"{each.ratio:.2f}",
                    f"{of_table[each.order]:.2f}",
                )
                for each in about.people.agreements
            ],
        ),
        "The noise is the standard deviation of a published count, and exact. Chi-squared is shown by its degrees of "
        "freedom; that of the table has the luck of drawing people in it too. A chi-squared of about 1 means that the "
        "model says what the counts say, as far as their noise allows; below 1, it repeats some of the noise. Where "
        "you need one number rather than a table, "
        'use the published counts themselves: `Synthesizer.load("model.json").marginal(...)` has each of them with its '
        "error bar.",
        "Each column with its most frequent value, by the published counts, and twice the standard deviation of the "
        "noise:",
        _table(("column", "most frequent", "share of the people"), _column_rows(about.people)),
        *_table_of_means(about.people),
    ]


def _table_of_means(people: Population) -> list[str]:
    """The means of numbers, by the bins that were counted."""
    found = list(column_means(people).items())[:_MOST_COLUMNS]
    if not found:
        return []
    rows = [(f"`{name}`", _with_error(mean)) for name, mean in found]
    said = "The mean of each number, where everybody counts as the middle of its bin, and twice its deviation:"
    return [said, _table(("column", "mean"), rows)]


def _with_error(mean: Estimate) -> str:
    return f"{mean:.4g}" if mean.deviation is None else f"{mean:.4g} ± {2 * mean.deviation:.2g}"


def _uses_of_mixture(about: CardContext) -> list[str]:
    """What a mixture that was learned in rounds is good for."""
    return [
        "A mixture was learned in rounds, from sums over people. It describes which columns go together in groups of "
        "people, and each column by a simple law within a group. So the table is good for developing and testing an "
        "analysis, and for a first impression. How far a share in it is from the truth is not known: no counts were "
        'published, and nothing here has an error bar. Where that matters, use `method = "marginals"`.',
        "By the model, these go together most:",
        _table(
            ("column", "with", "Cramér's V"),
            [(*(f"`{name}`" for name in names), f"{value:.2f}") for names, value in about.people.strongest_pairs(10)],
        ),
    ]


def _column_rows(people: Population) -> list[tuple[str, ...]]:
    names = people.layout.column_names(range(len(people.layout.free)))
    rows = []
    for name in names[:_MOST_COLUMNS]:
        found = people.marginal([name])
        top = int(found.counts.argmax())
        error = 0.0 if found.deviations is None else 2 * float(found.deviations[top])
        share = f"{100 * found.counts[top] / people.count:.1f} ± {100 * error / people.count:.1f} %"
        rows.append((f"`{name}`", _escape_cell(found.labels[0][top]), share))
    return [*rows, *([(f"and {len(names) - len(rows):,} more", "", "")] if len(names) > len(rows) else [])]


def _intervals(drawn: Sequence[SyntheticTable]) -> list[str]:
    """How several tables are combined."""
    if len(drawn) == 1:
        return []
    return [
        "## Intervals",
        f"`synthetic-1` was drawn from the model of what was published. `synthetic-2` to `synthetic-{len(drawn)}` were "
        "drawn after noise of the same size was drawn again, so they differ from the first as the first differs from "
        "the truth. Compute a figure and its usual variance in each table, as if it held real people. The estimate is "
        "that of the first table. Its variance is the mean of the usual variances plus the mean of the squared "
        "differences of the others from the first; twice its root to both sides is an interval of about 95 %. "
        '`Synthesizer.load("model.json").interval(...)` does all of it.',
    ]


def _limits(about: CardContext) -> list[str]:
    pair, few = next((each for each in about.people.agreements if each.order == 2), None), ""
    if pair is not None:
        few = f"Where a pair of values has fewer than about {3 * pair.deviation:,.0f} people, the count is hardly more "
        few += "than noise. "
    points = [
        f"**Small groups.** {few}A group that is small in the table may be smaller or larger in "
        "truth, or not be there.",
        *(_limits_of_mixture() if about.mixture else _limits_of_counts(about)),
        "**Anybody in particular.** No row stands for a person. How far the table can depend on one person is what the "
        "figures above bound.",
    ]
    return ["## What it is not good for", "\n".join(f"- {point}" for point in points)]


def _limits_of_counts(about: CardContext) -> list[str]:
    """What counts do not tell, and the model makes up."""
    points = [
        "**Rare combinations.** More columns together than said above were not counted. The model fills them in as "
        "evenly as the counts allow: a combination that the table has may not exist, and one that exists may be "
        "missing.",
        "**Confidence intervals as if these were real people.** The usual formulas leave the noise out and come out "
        "too narrow. Use the error bars of the published counts, or several tables (`tables = 20` in the study), "
        "combined.",
    ]
    if any(column.bins is not None for column in about.people.layout.columns):
        inside = "Of a number only its bin was counted; where in the bin a value lies was made up."
        points.append(f"**Values within a bin.** {inside}")
    return points


def _limits_of_mixture() -> list[str]:
    """What a mixture does not tell."""
    return [
        "**Rare combinations.** Within a group of people the mixture takes columns as independent: a combination that "
        "the table has may not exist, and one that exists may be missing.",
        "**Confidence intervals as if these were real people.** The usual formulas leave out the noise and how far the "
        "mixture is from the truth, and come out too narrow. Nothing here makes up for that.",
        "**Details of a number.** Within a group a number follows a simple law, so values that many people share, and "
        "gaps, may be lost.",
        "**Missing cells.** The table has none, also where the real columns do: the mixture was learned from the cells "
        "that are there, and makes a value for everybody.",
    ]


def _provenance(about: CardContext, drawn: Sequence[SyntheticTable]) -> list[str]:
    rules = [*about.parameters["impossible"]]
    rules += [f"{party}: {rule}" for party, schema in about.schemas.items() for rule in schema.impossible]
    model = "a mixture of products of the columns"
    how = f"One noisy release, {model} fitted to it"
    if about.releases > 1:
        how = "Two noisy releases: counts of narrow bins, by which they were merged, and counts of all that is said "
        how += f"above; {model} fitted to the second"
    if about.mixture:
        how = "Noisy sums in rounds, a mixture that follows from them"
    parts = [
        "## How it was made",
        f"{how}, and people drawn from that. What was drawn follows from what was published, by public randomness: "
        "whoever has `model.json` and `model.npz` can draw the same table again.",
    ]
    if rules:
        redrawn, dropped = sum(each.redrawn for each in drawn), sum(each.dropped for each in drawn)
        left = f" {dropped:,} were left out, because the model hardly makes others." if dropped else ""
        listed = "\n".join(f"- `{_escape_cell(rule)}`" for rule in rules)
        parts += [
            f"Nobody can be so, and nobody in the table is:\n\n{listed}",
            f"{redrawn:,} people were drawn again for that, or exchanged a value with somebody.{left}",
        ]
    return parts


def _render_dictionary(columns: Sequence[Mapping[str, Any]]) -> str:
    """The data dictionary for people, from the one for programs."""
    counted = any("codes" in column for column in columns)
    heads = ("column", "of", "type", "values", *(["counted in"] if counted else []), "missing")
    rows = []
    for column in columns:
        unit = f" {column['unit']}" if column.get("unit") else ""
        numeric = "low" in column
        values = (
            f"{column['low']:.12g} to {column['high']:.12g}{unit}"
            if numeric
            else ", ".join(map(_format_value, column["values"]))
        )
        bins = column.get("bins", ())
        shown = f"{len(bins)} bins: {', '.join(bins[:_MOST_VALUES])}{', …' if len(bins) > _MOST_VALUES else ''}"
        described = [column["name"], column["party"], column["type"], values]
        described += [shown if numeric else ""] if counted else []
        rows.append(tuple(map(_escape_cell, [*described, column["missing"]])))
    return f"# Columns\n\n{_table(heads, rows)}\n"


def _format_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_count(value: float) -> str:
    """A number of people, which need not be whole."""
    return f"{value:,.0f}" if value >= 9.5 else f"{value:.1f}"


def _escape_cell(text: str) -> str:
    """A text that may stand in a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")
