"""Tables in files of several kinds, for tests of tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq


def put(table: pa.Table, path: Path, groups: int | None = None) -> Path:
    """A table in a file of the kind that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=groups)
    else:
        pa.csv.write_csv(table, path)
    return path


def in_folder(table: pa.Table, folder: Path, edges: Sequence[int], kind: str = "parquet", groups: int = 7) -> Path:
    """A table in several files, which are cut at these rows."""
    for place, (start, stop) in enumerate(zip([0, *edges], [*edges, table.num_rows], strict=True)):
        put(table.slice(start, stop - start), folder / f"{place}.{kind}", groups)
    return folder
