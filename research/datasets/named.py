"""Named data sets, split by columns between organisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from colonnade.errors import DatasetError
from colonnade.tables import datasets
from colonnade.tables.cell_parsing import itemise, suggest_name
from colonnade.tables.columns import Column
from colonnade.tables.datasets import PERSON_ID, Dataset, person_ids
from colonnade.tables.schema import Schema
from research.datasets import builders, catalog, sources
from research.datasets.builders import Built
from research.datasets.catalog import Layout
from research.datasets.sources import DataFile

Split = Literal["all", "train", "test"]
_HELD_OUT = 5


@dataclass(frozen=True)
class _Entry:
    """A data set: its file (none where a package or a generator brings it), how to build it, its layout."""

    file: DataFile | None
    build: Callable[[Path], Built]
    layout: Callable[[], Layout]


def _made_up(path: Path, rows: int = datasets.USUAL_ROWS) -> Built:
    return datasets.people(rows).drop_columns([PERSON_ID]), None


_ENTRIES: dict[str, _Entry] = {
    "breast-cancer": _Entry(None, builders.breast_cancer, lambda: catalog.BREAST_CANCER),
    "adult": _Entry(sources.ADULT, builders.adult, lambda: catalog.ADULT),
    "credit-default": _Entry(sources.CREDIT, builders.credit_default, lambda: catalog.CREDIT_DEFAULT),
    "dutch-census": _Entry(sources.DUTCH, builders.dutch_census, lambda: catalog.DUTCH_CENSUS),
    "nsl-kdd": _Entry(sources.NSL_KDD, builders.kdd, lambda: catalog.NSL_KDD),
    "kdd-99": _Entry(sources.KDD_99, builders.kdd, lambda: catalog.KDD_99),
    "citeseer": _Entry(sources.CITESEER, builders.citeseer, catalog.citeseer),
    "acs-income": _Entry(sources.ACS_INCOME, builders.acs_income, lambda: catalog.ACS_INCOME),
    "population": _Entry(None, _made_up, lambda: Layout(datasets.DESCRIPTION, datasets.COLUMNS, datasets.LABEL)),
}


def dataset_names() -> tuple[str, ...]:
    """The data sets that :func:`load_dataset` knows."""
    return tuple(_ENTRIES)


def load_dataset(
    name: str,
    *,
    folder: str | Path | None = None,
    parties: int | None = None,
    split: Split = "all",
    rows: int | None = None,
    clip: float | None = None,
    layout: Layout | None = None,
) -> Dataset:
    """A named data set, split by columns between parties.

    ``folder`` (or COLONNADE_DATA) holds the files; what they hold is verified. ``parties`` replaces the
    data set's own organisations by that many, each with a run of whole columns and the label with the first.
    ``split`` picks the publisher's training or test rows; where there are none, every fifth row is a test
    row. ``rows`` keeps a fixed sample of that size; a population is made with that many. ``clip`` is put
    into every party's schema. ``layout`` says who holds which columns, instead of the data set's own.
    """
    entry = _entry(name)
    path = sources.located(entry.file, name, folder) if entry.file else Path()
    layout = layout or entry.layout()
    if name == "population" and rows is not None:
        (table, tests), rows = _made_up(path, rows), None
    else:
        table, tests = entry.build(path)
    kept = _kept(table.num_rows, tests, split, rows)
    if len(kept) < table.num_rows:
        table = table.take(pa.array(kept))
    return assembled(name, layout, table.append_column(PERSON_ID, person_ids(kept)), parties, clip)


def assembled(
    name: str, layout: Layout, table: pa.Table, parties: int | None = None, clip: float | None = None
) -> Dataset:
    """Deal a table's columns to the parties of a layout, or to ``parties`` equal ones."""
    columns, label = layout.parties, layout.label
    if parties is not None:
        columns, label = _dealt(name, layout, parties)
    schemas = {party: Schema(held, clip=clip, description=layout.description) for party, held in columns.items()}
    arrow = {party: table.select([PERSON_ID, *schema.names]) for party, schema in schemas.items()}
    return Dataset(name, layout.description, arrow, schemas, label)


def _entry(name: str) -> _Entry:
    if name not in _ENTRIES:
        hint = suggest_name(name, _ENTRIES) or f"; the data sets are {itemise(_ENTRIES, 20)}"
        raise DatasetError(f"there is no data set {name!r}{hint} [DS010]")
    return _ENTRIES[name]


def _dealt(name: str, layout: Layout, parties: int) -> tuple[Mapping[str, Mapping[str, Column]], str]:
    label = layout.label.partition(".")[2]
    everything = {key: column for held in layout.parties.values() for key, column in held.items()}
    features = [key for key in everything if key != label]
    if not 1 <= parties <= len(features):
        raise DatasetError(f"data set {name!r} has {len(features)} columns; parties must be 1 to that many [DS011]")
    dealt: dict[str, dict[str, Column]] = {}
    for place, run in enumerate(np.array_split(np.arange(len(features)), parties), start=1):
        dealt[f"party{place}"] = {features[key]: everything[features[key]] for key in run}
    dealt["party1"][label] = everything[label]
    return dealt, f"party1.{label}"


def _kept(count: int, tests: NDArray[np.bool_] | None, split: Split, rows: int | None) -> NDArray[np.int64]:
    if split not in ("all", "train", "test"):
        raise DatasetError(f'split must be "all", "train" or "test", not {split!r} [DS012]')
    held_out = np.arange(count) % _HELD_OUT == _HELD_OUT - 1 if tests is None else tests
    wanted = np.ones(count, bool) if split == "all" else held_out == (split == "test")
    kept = np.flatnonzero(wanted)
    if rows is None:
        return kept
    if not 1 <= rows <= len(kept):
        raise DatasetError(f"rows must be 1 to {len(kept)}, not {rows} [DS013]")
    # A sample of public data, the same each time: not a source of privacy.
    return np.sort(np.random.default_rng(0).choice(kept, rows, replace=False))
