"""The tables of the comparison: who holds which columns, and the public bins of numbers.

Bins come from documentation and habit (round numbers, a bin for nobody's gain, one for the full-time week), never from
data. All methods get the same codes, and their tables are decoded in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from colonnade.errors import DatasetError
from colonnade.kinds.synthesis.table_comparison import CommonColumns, ComparedTable, make_comparable
from colonnade.tables.coding import Coding, build_coding
from colonnade.tables.columns import Column, Number, category, number
from colonnade.tables.datasets import Dataset
from colonnade.tables.table import Table
from research.datasets.catalog import ACS_INCOME, ADULT, CREDIT_DEFAULT, Layout
from research.datasets.named import Split, load_dataset

Edges = Sequence[float]

_AGES = (17, 19, 21, 23, 25, 27, 30, 33, 36, 39, 42, 45, 48, 51, 54, 57, 60, 63, 66, 70, 75, 80)
_HOURS = (0, 10, 15, 20, 25, 30, 35, 36, 40, 41, 45, 46, 50, 51, 55, 56, 60, 61, 70, 71, 80)
_GAINS = (0, 1, *range(1000, 10_001, 1000), 15_000, 20_000, 30_000, 50_000)
_LOSSES = (0, 1, *range(250, 3001, 250), 3500, 4000, 4500)
_WEIGHTS = (10_000, 50_000, *range(100_000, 400_001, 50_000), 500_000)
_BILLS = (0, 1, 1000, 2000, 5000, *(1000 * k for k in (10, 20, 30, 50, 75, 100, 150, 200, 300, 500)))
_PAID = (0, 1, 500, 1000, 1500, 2000, 3000, 4000, 5000, 7500, 10_000, 20_000, 50_000, 100_000)
_LIMITS = tuple(1000 * k for k in (0, 20, 50, 80, 100, 150, 200, 250, 300, 350, 400, 500, 600))
_CLIENTS = (18, 21, 24, 27, 30, 33, 36, 39, 42, 45, 50, 55, 60, 65)

_EDUCATION = (
    *("Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad", "Some-college"),
    *("Assoc-voc", "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate"),
)


def _steps(low: int, high: int) -> tuple[int, ...]:
    """A bin for each whole number."""
    return tuple(range(low, high + 2))


def _all_of_adult() -> Layout:
    """Adult with the survey weight and the name of the education: all 15 columns."""
    parties: dict[str, dict[str, Column]] = {party: dict(held) for party, held in ADULT.parties.items()}
    parties["registry"]["fnlwgt"] = number(10_000, 1_500_000)
    work = parties["employer"]
    parties["employer"] = {"workclass": work.pop("workclass"), "education": category(_EDUCATION), **work}
    return Layout(ADULT.description, parties, ADULT.label)


_LAYOUTS: dict[str, Layout] = {"adult": _all_of_adult(), "credit-default": CREDIT_DEFAULT, "acs-income": ACS_INCOME}
_BINS: dict[str, dict[str, Edges]] = {
    "adult": {
        **{"age": _AGES, "fnlwgt": _WEIGHTS, "education-num": _steps(1, 16), "hours-per-week": _HOURS},
        **{"capital-gain": _GAINS, "capital-loss": _LOSSES},
    },
    "credit-default": {
        **{"AGE": _CLIENTS, "LIMIT_BAL": _LIMITS},
        **{f"BILL_AMT{month}": _BILLS for month in range(1, 7)},
        **{f"PAY_AMT{month}": _PAID for month in range(1, 7)},
        **{f"PAY_{month}": _steps(-2, 8) for month in (0, 2, 3, 4, 5, 6)},
    },
    "acs-income": {"AGEP": _AGES, "SCHL": _steps(1, 24), "WKHP": _HOURS},
}
DATA = tuple(_LAYOUTS)


@dataclass(frozen=True)
class Bench:
    """A data set with its training and test people, and the public bins of its numbers (by ``party.column``)."""

    name: str
    train: Dataset
    test: Dataset
    bins: Mapping[str, Edges]

    @property
    def label(self) -> str:
        """The label's column in a joint table."""
        return self.train.label_column

    @cached_property
    def codings(self) -> dict[str, Coding]:
        """How each party's columns are coded."""
        return {
            party: build_coding(
                schema, {name: self.bins[f"{party}.{name}"] for name in schema.names if f"{party}.{name}" in self.bins}
            )
            for party, schema in self.train.schemas.items()
        }

    @property
    def names(self) -> list[str]:
        """All columns, party by party."""
        return [name for schema in self.train.schemas.values() for name in schema.names]

    @property
    def sizes(self) -> list[int]:
        """How many codes each has."""
        return [size for coding in self.codings.values() for size in coding.sizes]

    @cached_property
    def tables(self) -> dict[str, Table]:
        """The training tables of all parties."""
        return self.train.tables()

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """The codes of all columns of the training people."""
        return np.hstack([self.codings[party].code_rows(table).matrix() for party, table in self.tables.items()])

    @cached_property
    def real(self) -> tuple[pa.Table, pa.Table]:
        """All columns of the training and of the test people side by side, as published: for the evaluation."""
        return _joined(self.train), _joined(self.test)

    def compared(self, synthetic: Any) -> tuple[CommonColumns, tuple[ComparedTable, ...]]:
        """The training people, a synthetic table and the test people, by the public bins."""
        edges = {
            column.name: column.edges
            for coding in self.codings.values()
            for column in coding.columns
            if column.edges is not None
        }
        return make_comparable(self.real[0], synthetic, self.real[1], edges=edges)


def bench(name: str, folder: Path | None = None, rows: int | None = None) -> Bench:
    """A data set of the comparison; with ``rows``, that many training and test people at most."""
    if name not in _LAYOUTS:
        raise DatasetError(f"there is no comparison on {name!r}; choose from {', '.join(DATA)} [DS018]")
    layout = _LAYOUTS[name]
    parties = {party: {key: _whole(column) for key, column in held.items()} for party, held in layout.parties.items()}
    whole = replace(layout, parties=parties)
    kinds: tuple[Split, Split] = ("train", "test")
    train, test = (load_dataset(name, folder=folder, split=split, rows=rows, layout=whole) for split in kinds)
    owner = {column: party for party, held in parties.items() for column in held}
    return Bench(name, train, test, {f"{owner[column]}.{column}": edges for column, edges in _BINS[name].items()})


def _whole(column: Column) -> Column:
    """All numbers of these data sets are whole."""
    return replace(column, whole=True) if isinstance(column, Number) else column


def _joined(data: Dataset) -> pa.Table:
    columns: dict[str, Any] = {}
    for party, table in data.arrow.items():
        schema = data.schemas[party]
        for name in schema.names:
            cells = table[name]
            # A category whose list holds whole numbers is one of texts in a synthetic table.
            columns[name] = cells if isinstance(schema.columns[name], Number) else _texts(cells)
    return pa.table(columns)


def _texts(cells: Any) -> Any:
    return cells if pa.types.is_boolean(cells.type) else cells.cast(pa.string())
