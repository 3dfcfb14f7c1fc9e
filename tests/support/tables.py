"""Tables that tests of tables share: people in files of several kinds, and partitions that are small on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from colonnade.tables.sources import pieces
from colonnade.tables.spool import copying, partitions, repeated


def put(table: pa.Table, path: Path, groups: int | None = None) -> Path:
    """A table in a file of the kind that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=groups)
    else:
        pa.csv.write_csv(table, path)
    return path


def in_texts(rows: int, seed: int, ids: Sequence[str] | None = None) -> pa.Table:
    """People with an age and whether they are ill, as text, in any order."""
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "person_id": ids or [f"p{i}" for i in draw.permutation(rows)],
            "age": [f"{each:.3f}" for each in draw.uniform(-3, 110, rows)],
            "ill": draw.choice(["yes", "no", ""], rows),
        }
    )


def in_folder(table: pa.Table, folder: Path, edges: Sequence[int], kind: str = "parquet", groups: int = 7) -> Path:
    """A table in several files, which are cut at these rows."""
    for place, (start, stop) in enumerate(zip([0, *edges], [*edges, table.num_rows], strict=True)):
        put(table.slice(start, stop - start), folder / f"{place}.{kind}", groups)
    return folder


def small_pieces(patch: pytest.MonkeyPatch, piece: int = 1, block: int = 5) -> None:
    """Few rows are many pieces, blocks, runs and groups of buckets."""
    patch.setattr(pieces, "_PIECE_BYTES", piece)
    patch.setattr(copying, "_BLOCK_ROWS", block)
    patch.setattr(copying, "_RUN_KEYS", 4)
    patch.setattr(repeated, "_ROWS", 6)
    patch.setattr(partitions, "_RUN_BYTES", 900)
