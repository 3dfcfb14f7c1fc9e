"""Tables of people for regression: the census data sets of both papers, or what stands in for them.

Every method of a table learns from the same people. Ours get each party's columns under a public schema; the paper's
formula gets one matrix in its box: numbers in [-1, 1], categories as one column less than they have values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from colonnade.models import Roster
from colonnade.tables import Category, Column, Dataset, Flag, Number, Table, category, flag, number
from colonnade.tables.datasets import PERSON_ID, person_ids
from research.datasets import load_dataset, sources as files
from research.datasets.catalog import Layout
from research.datasets.named import assembled
from research.reproduce.chance import Matrix, Places
from research.reproduce.options import Options


@dataclass(frozen=True)
class People:
    """A data set for a regression, with what each kind of method needs of it."""

    name: str
    dataset: Dataset

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Everyone's table, rows in the order of the ids."""
        return {party: table.sorted_by_id() for party, table in self.dataset.tables().items()}

    @cached_property
    def roster(self) -> Roster:
        """Who takes part."""
        return Roster.of(self.dataset.schemas)

    @cached_property
    def features(self) -> Matrix:
        """All encoded columns but the label, party by party."""
        schemas = self.dataset.feature_schemas
        return np.hstack([self.tables[party].select(schema.names).matrix() for party, schema in schemas.items()])

    @cached_property
    def label(self) -> Matrix:
        """The label: 0 or 1 of a flag, a number in [-1, 1] of a number."""
        found: Matrix = self.tables[self.dataset.label_party].column(self.dataset.label_column)[:, 0]
        return found

    @cached_property
    def box(self) -> Matrix:
        """The paper's encoding of the features: every column in [-1, 1], no constant column."""
        columns = []
        for party, schema in self.dataset.feature_schemas.items():
            whole = self.tables[party].select(schema.names).matrix()
            for name, place in schema.encoded_slices.items():
                columns.append(_boxed(schema.columns[name], whole[:, place]))
        return np.hstack(columns)

    @cached_property
    def unit(self) -> Matrix:
        """Centred features of norm at most 1 and a constant: what a curator's gradient method works on."""
        columns = [c for schema in self.dataset.feature_schemas.values() for c in schema.columns.values()]
        middle = np.concatenate([_middle(column) for column in columns])
        reach = math.sqrt(sum(_reach(column) for column in columns) + 0.25)
        centred = np.hstack([self.features - middle, np.full((len(self.features), 1), 0.5)])
        found: Matrix = centred / reach
        return found

    def part(self, rows: Places) -> dict[str, Table]:
        """The tables of some of the people."""
        return {party: table.take_rows(rows) for party, table in self.tables.items()}


def _boxed(column: Column, encoded: Matrix) -> Matrix:
    if isinstance(column, Category):
        return encoded[:, 1:]
    return 2 * encoded - 1 if isinstance(column, Number) and column.scale == "unit" else encoded


def _middle(column: Column) -> Matrix:
    if isinstance(column, Category):
        return np.full(len(column.parts), 1 / len(column.parts))
    return np.array([0.0 if isinstance(column, Number) and column.scale == "signed" else 0.5])


def _reach(column: Column) -> float:
    """The largest squared norm of a column's centred encoding, a missing category included."""
    if isinstance(column, Category):
        return max(1 - 1 / len(column.parts), 1 / len(column.parts))
    return 1.0 if isinstance(column, Number) and column.scale == "signed" else 0.25


def adult(options: Options) -> People:
    """The 45,222 people without a missing cell, as in the paper; four parties."""
    found = load_dataset("adult", folder=options.folder, parties=4, rows=2000 if options.quick else None)
    whole = np.ones(found.rows, dtype=np.bool_)
    for table in found.arrow.values():
        for name in table.column_names:
            whole &= pc.is_valid(table[name]).to_numpy()
    return People("Adult", _kept(found, np.flatnonzero(whole)))


def adult_box(people: People) -> Matrix:
    """The paper's 41 columns: the country of birth is one of two, and nobody left never worked."""
    home, never = "native-country=United-States", "workclass=Never-worked"
    schemas = people.dataset.feature_schemas
    names = [name for schema in schemas.values() for name in _box_names(schema.columns)]
    kept = [k for k, name in enumerate(names) if not name.startswith("native-country=") or name == home]
    return people.box[:, [k for k in kept if names[k] != never]]


def _box_names(columns: Mapping[str, Column]) -> list[str]:
    return [name + part for name, column in columns.items() for part in column.parts[isinstance(column, Category) :]]


def dutch(options: Options) -> People:
    """All 60,420 people, four parties."""
    rows = 2000 if options.quick else None
    return People("Dutch census", load_dataset("dutch-census", folder=options.folder, parties=4, rows=rows))


def _kept(dataset: Dataset, rows: Places) -> Dataset:
    arrow = {party: table.take(pa.array(rows)) for party, table in dataset.arrow.items()}
    return Dataset(dataset.name, dataset.description, arrow, dataset.schemas, dataset.label)


# --- American Community Survey


def _acs(options: Options, rows: int) -> pa.Table:
    path = files.located(files.ACS_INCOME, "acs-income", options.folder)
    table = pa.parquet.read_table(path)
    table = table.append_column(PERSON_ID, person_ids(np.arange(table.num_rows)))
    return table.slice(0, rows) if options.quick else table


def working_hours(options: Options) -> People:
    """Hours worked a week from 14 features, as the US and Brazil censuses of the paper have; in place of those."""
    table = _acs(options, 2000)
    told = {
        "female": _one_of(table, "SEX", 2),
        "married": _one_of(table, "MAR", 1),
        "never-married": _one_of(table, "MAR", 5),
        "white": _one_of(table, "RAC1P", 1),
        "born-here": pc.less(table["POBP"], 60),
        "householder": _one_of(table, "RELP", 0),
        "spouse": _one_of(table, "RELP", 1),
        "child": _one_of(table, "RELP", 2, 3, 4),
        "professional": pc.less(table["OCCP"], 3600),
        "government": _one_of(table, "COW", 3, 4, 5),
        "self-employed": _one_of(table, "COW", 6, 7),
        "high-income": _one_of(table, "PINCP_gt_50k", 1),
    }
    for name, truth in told.items():
        table = table.append_column(name, truth)
    home = ("female", "married", "never-married", "householder", "spouse", "child")
    layout = Layout(
        "ACS 2018, Colorado and Nebraska: how many hours does somebody work a week?",
        {
            "registry": {"AGEP": number(17, 99), **{name: flag() for name in home}},
            "immigration": {"white": flag(), "born-here": flag()},
            "school": {"SCHL": number(1, 24), "professional": flag()},
            "employer": {"government": flag(), "self-employed": flag(), "high-income": flag(), "WKHP": number(0, 99)},
        },
        "employer.WKHP",
    )
    return People("ACS hours (in place of the US and Brazil censuses)", assembled("acs-hours", layout, table))


def _one_of(table: pa.Table, name: str, *values: int) -> pa.ChunkedArray:
    return pc.is_in(table[name], pa.array(values, table[name].type))


def income_by_code(options: Options) -> People:
    """Income above 50,000 dollars from about 800 columns: every occupation and birthplace code its own.

    The codes are those of the public file; a study would write the bureau's whole list into its schema.
    """
    table = _acs(options, 3000)
    table = table.append_column("female", _one_of(table, "SEX", 2))
    table = table.append_column("high-income", _one_of(table, "PINCP_gt_50k", 1))
    codes: dict[str, Column] = {
        name: category(sorted(pc.unique(table[name]).to_pylist()))
        for name in ("COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "RAC1P")
    }
    layout = Layout(
        "ACSIncome 2018, Colorado and Nebraska, one column a code",
        {
            "registry": {
                "AGEP": number(17, 99),
                "female": Flag(),
                **{name: codes[name] for name in ("MAR", "RELP", "RAC1P", "POBP")},
            },
            "school": {"SCHL": codes["SCHL"]},
            "employer": {"COW": codes["COW"], "OCCP": codes["OCCP"], "WKHP": number(0, 99), "high-income": Flag()},
        },
        "employer.high-income",
    )
    return People("ACSIncome", assembled("acs-income-codes", layout, table))
