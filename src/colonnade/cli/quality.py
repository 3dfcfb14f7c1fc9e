"""``colonnade quality``: a synthetic table beside the real one, for those who may look at it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from colonnade.cli.output import Json, emit, say
from colonnade.errors import DataError, SchemaError
from colonnade.models import registry
from colonnade.tables import parse
from colonnade.tables.arrow import pa, pc
from colonnade.tables.columns import Category
from colonnade.tables.days import ISO_DATE, days_of, fitting_formats
from colonnade.tables.files import read_columns
from colonnade.tables.wording import listed

_OTHER = "(another value)"


def quality(
    synthetic: Annotated[Path, typer.Argument(metavar="SYNTHETIC.parquet", help="The table of made-up people.")],
    real: Annotated[list[Path], typer.Argument(metavar="REAL...", help="Files of the real people, side by side.")],
    held_out: Annotated[
        list[Path] | None, typer.Option("--held-out", help="A file of other real people; once for each party.")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="The column of ids in files of real people.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="The column that models shall predict.")] = None,
    sdmetrics: Annotated[bool, typer.Option("--sdmetrics", help="Add the score of SDMetrics.")] = False,
    page: Annotated[Path | None, typer.Option("--page", help="Write a page with plots here.")] = None,
    json: Json = False,
) -> None:
    """Compare a synthetic table with the real one."""
    comparison = registry.only("quality")
    made_up = _read(synthetic)
    if all(pa.types.is_string(field.type) for field in made_up.schema):
        raise DataError(
            f"{synthetic} does not say of what type its columns are; give the Parquet file of the table [DA038]"
        )
    people, others = _joined(real, made_up, id, "of real people")
    aside, others_aside = _joined(held_out, made_up, id, "held out") if held_out else (None, 0)
    found = comparison.evaluate(people, made_up, held_out=aside, label=label, sdmetrics=sdmetrics)
    left_out = others + others_aside
    told = found.to_dict() | {"left_out": left_out}
    if page is not None:
        told["page"] = str(comparison.write(page, synthetic.name, found))
    if json:
        emit(told)
        return
    say(str(found))
    if left_out:
        say(f"\n{left_out:,} people were left out, because not all files hold them")
    if page is not None:
        say(f"\n{page}: for those who hold the data, not for publication")


def _read(path: Path) -> Any:
    return read_columns(path, str(path), lambda there: there)


def _joined(paths: list[Path], made_up: Any, id: str | None, which: str) -> tuple[Any, int]:
    """The columns of some files side by side, and how many people not all of them hold.

    Rows belong together by their id or, without one, by their place.
    """
    tables, others = {path: _read(path) for path in paths}, 0
    if id is not None:
        tables, others = _common(tables, id, which)
    elif len({table.num_rows for table in tables.values()}) > 1:
        raise DataError(f"the files {which} have different numbers of rows; name the column of ids by --id [DA039]")
    columns: dict[str, Any] = {}
    for path, table in tables.items():
        for name in table.column_names:
            if name in made_up.column_names and name != id:
                place = parse.Place(str(path), name, range(1, table.num_rows + 1), np.zeros(table.num_rows, np.bool_))
                columns[name] = _typed(table[name], made_up[name], place)
    lacking = [name for name in made_up.column_names if name not in columns]
    if lacking:
        raise DataError(f"the files {which} lack {listed(lacking, 5)}, which the synthetic table has [DA040]")
    return pa.table({name: columns[name] for name in made_up.column_names}), others


def _common(tables: Mapping[Path, Any], id: str, which: str) -> tuple[dict[Path, Any], int]:
    """The rows of the people whom all tables hold, in the same order, and how many other people there are."""
    rows = {path: _rows_by_id(table, path, id) for path, table in tables.items()}
    everybody, common = set[str]().union(*rows.values()), sorted(set.intersection(*map(set, rows.values())))
    if not common:
        raise DataError(f"the files {which} have nobody in common by {id!r}; give files about the same people [DA041]")
    found = {path: table.take([rows[path][person] for person in common]) for path, table in tables.items()}
    return found, len(everybody) - len(common)


def _rows_by_id(table: Any, path: Path, id: str) -> dict[str, int]:
    """The row of each person; rows without an id belong to nobody."""
    if id not in table.column_names:
        raise DataError(f"{path} has no column {id!r}; --id names a column that all files of real people have [DA042]")
    named = [(str(cell), row) for row, cell in enumerate(table[id].to_pylist()) if cell not in (None, "")]
    found = dict(named)
    if len(found) < len(named):
        raise DataError(f"{path} has several rows for one person by {id!r}; keep one of them [DA043]")
    return found


def _typed(cells: Any, like: Any, place: parse.Place) -> Any:
    """Cells of a file as the synthetic table has them; numbers, dates and flags that cannot be read are missing."""
    unfit: Any = place.unfit
    if pa.types.is_boolean(like.type):
        yes, missing = parse.truths(cells, place)
        return pa.array(yes, mask=missing | unfit)
    if pa.types.is_integer(like.type) or pa.types.is_floating(like.type):
        values, missing = parse.numbers(cells, place)
        return pa.array(values, mask=missing | unfit)
    if pa.types.is_date(like.type):
        days, missing = days_of(cells, _format(parse.plain(cells)), place)
        return pa.array(days.astype("M8[D]"), mask=missing | unfit)
    known = _values(like, place)
    found, missing = parse.codes(cells, known.values, place)
    texts = np.array([*known.values, _OTHER], dtype=object)
    return pa.array(texts[found], mask=missing)


def _format(cells: Any) -> str:
    """The format in which all these cells are dates, if there is one."""
    known = fitting_formats(cells.filter(pa.array(~parse.missing_cells(cells)))) if parse.is_text(cells.type) else []
    return known[0] if known else ISO_DATE


def _values(like: Any, place: parse.Place) -> Category:
    """The values of a category, which a synthetic table lists even where nobody has them."""
    try:
        if pa.types.is_dictionary(like.type):
            return Category(tuple(like.unify_dictionaries().chunk(0).dictionary.to_pylist()))
        return Category(tuple(value for value in pc.unique(like).to_pylist() if value is not None))
    except (SchemaError, IndexError):
        raise DataError(
            f"column {place.column!r} of the synthetic table is no category, number or flag [DA044]"
        ) from None
