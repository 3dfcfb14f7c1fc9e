"""The data of the VFL-AFE paper: Adult, and halves of MNIST and CIFAR-10; the active party has the label alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from colonnade.models.planner import Roster
from colonnade.privacy import Trust
from colonnade.tables import Category, Dataset, Schema, Table, category, number
from colonnade.tables.datasets import PERSON_ID, person_ids
from colonnade.tables.table import ColumnCentring
from research.datasets import load_dataset, load_halves
from research.datasets.catalog import ADULT, Layout
from research.datasets.pictures import CLASSES, Halves
from research.reproduce.options import Options

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]
Places = NDArray[np.int64]
ACTIVE = "active"


@dataclass(frozen=True)
class People:
    """Some people: what each passive party's encoder reads of them, and their classes."""

    tables: Mapping[str, Table]
    label: str

    @property
    def passives(self) -> tuple[str, ...]:
        """Who has columns."""
        return tuple(party for party in self.tables if party != ACTIVE)

    @cached_property
    def parts(self) -> dict[str, Matrix]:
        """The encoded columns of each passive party, around their public middles."""
        tables = {party: self.tables[party] for party in self.passives}
        return {party: ColumnCentring(table.schema).centre_features(table).matrix() for party, table in tables.items()}

    @cached_property
    def labels(self) -> Labels:
        """Everybody's class."""
        found = self.tables[ACTIVE].column(self.label)
        return (found.argmax(axis=1) if found.shape[1] > 1 else found[:, 0] > 0).astype(np.int64)

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.tables[ACTIVE].rows

    def take(self, places: Places) -> People:
        """Some of them."""
        return People({party: table.take_rows(places) for party, table in self.tables.items()}, self.label)


@dataclass(frozen=True)
class Case:
    """One data set: people to learn from, and others to test on; ``shapes`` say how columns make a picture."""

    name: str
    train: People
    test: People
    schemas: Mapping[str, Schema]
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def label(self) -> str:
        """The label, with its party."""
        return f"{ACTIVE}.{self.train.label}"

    @property
    def classes(self) -> int:
        """How many classes there are."""
        declared = self.schemas[ACTIVE].columns[self.train.label]
        return len(declared.values) if isinstance(declared, Category) else 2

    @property
    def passives(self) -> tuple[str, ...]:
        """Who has columns."""
        return self.train.passives

    def roster(self, *, committee: bool) -> Roster:
        """All parties under their schemas; with a committee of them, or with nobody who holds shares."""
        owners = tuple(self.schemas)
        trust = Trust(owners, owners, 1) if committee else Trust(owners, (), 0)
        return Roster(dict(self.schemas), trust)

    def fewer(self, rows: int) -> Case:
        """The first of the people to learn from, and everybody to test on."""
        return Case(self.name, self.train.take(np.arange(rows)), self.test, self.schemas, self.shapes)


@dataclass(frozen=True)
class Parted:
    """One data set as it is stored: rows to learn from and to test on, and how columns make a picture."""

    train: Dataset
    test: Dataset
    shapes: Mapping[str, tuple[int, ...]]

    def labelled(self, party: str) -> Parted:
        """The same where a party has the label beside its own columns."""
        return Parted(_labelled(self.train, party), _labelled(self.test, party), self.shapes)

    def case(self, name: str) -> Case:
        """The people of it."""
        people = [
            People({p: t.unclipped() for p, t in part.tables().items()}, part.label_column)
            for part in (self.train, self.test)
        ]
        return Case(name, people[0], people[1], self.train.schemas, self.shapes)


def parted(name: str, options: Options) -> Parted:
    """A data set by its name in the tables."""
    if name == "Adult":
        return _adult(options)
    stored = "mnist" if name == "MNIST" else "cifar-10"
    train, test = load_halves(stored, folder=options.folder, rows=800 if options.quick else None)
    return Parted(_dataset(name, train), _dataset(name, test), train.shapes)


def adult(options: Options) -> Case:
    """Two passive parties: a registry, and an employer who also knows capital gains and losses."""
    return parted("Adult", options).case("Adult")


def mnist(options: Options) -> Case:
    """Left and right halves of digits."""
    return parted("MNIST", options).case("MNIST")


def cifar(options: Options) -> Case:
    """Upper and lower halves of 10,000 colour pictures."""
    return parted("CIFAR-10", options).case("CIFAR-10")


def _adult(options: Options) -> Parted:
    held = ADULT.parties
    gains = {name: column for name, column in held["tax-office"].items() if name != "high-income"}
    parties = {
        "registry": held["registry"],
        "employer": {**held["employer"], **gains},
        ACTIVE: {"high-income": held["tax-office"]["high-income"]},
    }
    layout = Layout(ADULT.description, parties, f"{ACTIVE}.high-income")
    few = {"rows": 1_500} if options.quick else {}
    parts = [load_dataset("adult", folder=options.folder, split=s, layout=layout, **few) for s in ("train", "test")]
    return Parted(parts[0], parts[1], {})


def _labelled(data: Dataset, party: str) -> Dataset:
    column = data.label_column
    arrow = {name: table for name, table in data.arrow.items() if name != ACTIVE}
    arrow[party] = arrow[party].append_column(column, data.arrow[ACTIVE].column(column))
    schemas = {name: schema for name, schema in data.schemas.items() if name != ACTIVE}
    schemas[party] = Schema({**schemas[party].columns, column: data.schemas[ACTIVE].columns[column]})
    return Dataset(data.name, data.description, arrow, schemas, f"{party}.{column}")


def _dataset(title: str, halves: Halves) -> Dataset:
    ids = person_ids(np.arange(len(halves.labels)))
    schemas = {
        party: Schema({f"p{k}": number(0, 1, scale="unit") for k in range(part.shape[1])})
        for party, part in halves.parts.items()
    } | {ACTIVE: Schema({"class": category([str(k) for k in range(CLASSES)])})}
    arrow = {
        party: pa.table({PERSON_ID: ids, **{f"p{k}": column for k, column in enumerate(np.ascontiguousarray(part.T))}})
        for party, part in halves.parts.items()
    } | {ACTIVE: pa.table({PERSON_ID: ids, "class": pa.array([str(label) for label in halves.labels])})}
    return Dataset(title, f"{title} in halves", arrow, schemas, f"{ACTIVE}.class")
