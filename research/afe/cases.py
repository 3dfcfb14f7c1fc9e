"""The data of the VFL-AFE paper: Adult, and halves of MNIST and CIFAR-10; the active party has the label alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from colonnade.models.federation import Roster
from colonnade.privacy import Trust
from colonnade.tables import Category, Dataset, Schema, Table, category, number
from colonnade.tables.centred import Centred
from colonnade.tables.dataset import PERSON_ID, person_ids
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
        return {party: Centred(table.schema).features(table).matrix() for party, table in tables.items()}

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


def adult(options: Options) -> Case:
    """Two passive parties: a registry, and an employer who also knows capital gains and losses."""
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
    return _case("Adult", parts[0], parts[1], {})


def mnist(options: Options) -> Case:
    """Left and right halves of digits."""
    return _pictures("MNIST", "mnist", options)


def cifar(options: Options) -> Case:
    """Upper and lower halves of 10,000 colour pictures."""
    return _pictures("CIFAR-10", "cifar-10", options)


def _pictures(title: str, name: str, options: Options) -> Case:
    train, test = load_halves(name, folder=options.folder, rows=800 if options.quick else None)
    return _case(title, _dataset(title, train), _dataset(title, test), train.shapes)


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


def _case(name: str, train: Dataset, test: Dataset, shapes: Mapping[str, tuple[int, ...]]) -> Case:
    people = [People({p: t.unclipped() for p, t in part.tables().items()}, part.label_column) for part in (train, test)]
    return Case(name, people[0], people[1], train.schemas, shapes)
