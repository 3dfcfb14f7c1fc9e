"""A data set as several organisations would hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from colonnade.errors import DatasetError
from colonnade.tables.reading import read_table
from colonnade.tables.schema import Schema
from colonnade.tables.table import Table

PERSON_ID = "person_id"


@dataclass(frozen=True)
class Dataset:
    """One Arrow table and one schema for each party, about the same people.

    ``label`` is written ``party.column``. Every table has the column ``person_id``; in memory the rows of all
    tables are in the same order.
    """

    name: str
    description: str
    arrow: Mapping[str, pa.Table]
    schemas: Mapping[str, Schema]
    label: str

    @property
    def parties(self) -> tuple[str, ...]:
        """The parties' names."""
        return tuple(self.schemas)

    @property
    def rows(self) -> int:
        """How many people there are."""
        return int(self.arrow[self.parties[0]].num_rows)

    @property
    def label_party(self) -> str:
        """Who holds the label."""
        return self.label.split(".", 1)[0]

    @property
    def label_column(self) -> str:
        """The label's column in that party's table."""
        return self.label.split(".", 1)[1]

    @property
    def feature_schemas(self) -> dict[str, Schema]:
        """The schemas without the label; a party that holds nothing else is left out."""
        found = dict(self.schemas)
        holder = found.pop(self.label_party)
        if len(holder.columns) > 1:
            found[self.label_party] = holder.without([self.label_column])
        return {party: found[party] for party in self.schemas if party in found}

    def table(self, party: str) -> Table:
        """One party's table, under its schema."""
        return read_table(self.arrow[party], self.schemas[party], id=PERSON_ID, name=f"{self.name}/{party}")

    def tables(self) -> dict[str, Table]:
        """All parties' tables."""
        return {party: self.table(party) for party in self.parties}

    def write(
        self, folder: str | Path, *, kind: str = "csv", seed: int = 0, overlap: float = 1.0
    ) -> dict[str, tuple[Path, Path]]:
        """Write ``PARTY.csv`` (or ``.parquet``) and ``PARTY.toml`` for each party; return the paths.

        Each file has its own row order, as files of separate organisations would. With ``overlap`` below 1
        each organisation knows only that share of the people, drawn independently.
        """
        if kind not in ("csv", "parquet"):
            raise DatasetError(f'kind must be "csv" or "parquet", not {kind!r} [DS001]')
        if not 0 < overlap <= 1:
            raise DatasetError(f"overlap must lie above 0 and at most 1, not {overlap} [DS002]")
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        # The row order of a demonstration's files: no privacy rests on it.
        shuffles = np.random.default_rng(seed)
        written = {}
        for party in self.parties:
            order = shuffles.permutation(self.rows)[: max(1, round(overlap * self.rows))]
            table = self.arrow[party].take(pa.array(order))
            path = place / f"{party}.{kind}"
            if kind == "csv":
                pa.csv.write_csv(table, path, pa.csv.WriteOptions(quoting_style="needed"))
            else:
                pa.parquet.write_table(table, path)
            written[party] = (path, self.schemas[party].save(place / f"{party}.toml"))
        return written


def person_ids(positions: NDArray[np.int64]) -> pa.Array:
    """Ids such as P000123 for the rows at these positions, counted from zero."""
    numbers = pc.cast(pa.array(positions + 1), pa.string())
    return pc.binary_join_element_wise("P", pc.utf8_lpad(numbers, width=6, padding="0"), "")
