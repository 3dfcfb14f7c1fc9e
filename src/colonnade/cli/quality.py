"""``colonnade quality``: a synthetic table beside the real one, for those who may look at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from colonnade.cli.output import emit, say
from colonnade.errors import DataError, SchemaError
from colonnade.models.synthesis.quality import evaluate_synthetic
from colonnade.report.quality import write_quality
from colonnade.tables import parse
from colonnade.tables.arrow import pa, pc
from colonnade.tables.columns import Category
from colonnade.tables.files import read_columns
from colonnade.tables.wording import listed

_OTHER = "(another value)"


def quality(
    synthetic: Path,
    real: list[Path],
    held_out: list[Path],
    *,
    id: str | None,
    label: str | None,
    sdmetrics: bool,
    page: Path | None,
    json: bool,
) -> None:
    """Read the files, compare, and say what was found."""
    made_up = _read(synthetic)
    if all(pa.types.is_string(field.type) for field in made_up.schema):
        raise DataError(f"{synthetic} does not say of what type its columns are; give the Parquet file of the table")
    people = _joined(real, made_up, id, "of real people")
    aside = _joined(held_out, made_up, id, "held out") if held_out else None
    found = evaluate_synthetic(people, made_up, held_out=aside, label=label, sdmetrics=sdmetrics)
    told = found.to_dict()
    if page is not None:
        told["page"] = str(write_quality(page, synthetic.name, found))
    if json:
        emit(told)
        return
    say(str(found))
    if page is not None:
        say(f"\n{page}: for those who hold the data, not for publication")


def _read(path: Path) -> Any:
    return read_columns(path, str(path), lambda there: there)


def _joined(paths: list[Path], made_up: Any, id: str | None, which: str) -> Any:
    """The columns of some files side by side: the same people, by their id or, without one, row by row."""
    tables = {path: _read(path) for path in paths}
    if id is not None:
        tables = {path: _sorted(table, path, id) for path, table in tables.items()}
        first, *others = ([str(cell) for cell in table[id].to_pylist()] for table in tables.values())
        if any(other != first for other in others):
            raise DataError(f"the files {which} are not about the same people by {id!r}; give those that all hold")
    elif len({table.num_rows for table in tables.values()}) > 1:
        raise DataError(f"the files {which} have different numbers of rows; name the column of ids by --id")
    columns: dict[str, Any] = {}
    for path, table in tables.items():
        for name in table.column_names:
            if name in made_up.column_names and name != id:
                place = parse.Place(str(path), name, range(1, table.num_rows + 1), np.zeros(table.num_rows, np.bool_))
                columns[name] = _typed(table[name], made_up[name], place)
    lacking = [name for name in made_up.column_names if name not in columns]
    if lacking:
        raise DataError(f"the files {which} lack {listed(lacking, 5)}, which the synthetic table has")
    return pa.table({name: columns[name] for name in made_up.column_names})


def _sorted(table: Any, path: Path, id: str) -> Any:
    if id not in table.column_names:
        raise DataError(f"{path} has no column {id!r}; --id names a column that all files of real people have")
    return table.sort_by(id)


def _typed(cells: Any, like: Any, place: parse.Place) -> Any:
    """Cells of a file as the synthetic table has them; numbers and flags that cannot be read are missing."""
    unfit: Any = place.unfit
    if pa.types.is_boolean(like.type):
        yes, missing = parse.truths(cells, place)
        return pa.array(yes, mask=missing | unfit)
    if pa.types.is_integer(like.type) or pa.types.is_floating(like.type):
        values, missing = parse.numbers(cells, place)
        return pa.array(values, mask=missing | unfit)
    known = _values(like, place)
    found, missing = parse.codes(cells, known, place)
    texts = np.array([*known.values, _OTHER], dtype=object)
    return pa.array(texts[found], mask=missing)


def _values(like: Any, place: parse.Place) -> Category:
    """The values of a category, which a synthetic table lists even where nobody has them."""
    try:
        if pa.types.is_dictionary(like.type):
            return Category(tuple(like.unify_dictionaries().chunk(0).dictionary.to_pylist()))
        return Category(tuple(value for value in pc.unique(like).to_pylist() if value is not None))
    except (SchemaError, IndexError):
        raise DataError(f"column {place.column!r} of the synthetic table is no category, number or flag") from None
