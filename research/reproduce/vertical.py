"""The data of the HDP-VFL paper: Breast, Credit and Adult, split between an active and a passive party.

The paper counts the columns of each party and names none. The published example files of its platform fit these
counts: the label and the last columns of the file with the active party, the first ones with the passive party.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from colonnade.tables import Column, category, number
from colonnade.tables.datasets import PERSON_ID, person_ids
from research.datasets import builders, catalog, sources as files
from research.datasets.builders import Built
from research.datasets.catalog import Layout
from research.datasets.named import assembled
from research.datasets.sources import DataFile
from research.reproduce.census import People
from research.reproduce.options import Options

ACTIVE, PASSIVE = "active", "passive"
_QUICK_ROWS = 2000

_EDUCATION = (
    *("10th", "11th", "12th", "1st-4th", "5th-6th", "7th-8th", "9th", "Assoc-acdm", "Assoc-voc", "Bachelors"),
    *("Doctorate", "HS-grad", "Masters", "Preschool", "Prof-school", "Some-college"),
)
_MONTHS = range(1, 7)
_STATUSES = ("PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6")


@dataclass(frozen=True)
class Split:
    """A data set of the paper: where it comes from, and whose each column is."""

    title: str
    name: str
    file: DataFile | None
    build: Callable[[Path], Built]
    columns: Mapping[str, Column]
    label: str
    active: tuple[str, ...]
    passive: tuple[str, ...]

    @property
    def layout(self) -> Layout:
        """The columns by party, the label with the active one."""
        parties = {
            ACTIVE: {key: self.columns[key] for key in (*self.active, self.label)},
            PASSIVE: {key: self.columns[key] for key in self.passive},
        }
        return Layout(f"{self.title}, as the HDP-VFL paper splits it", parties, f"{ACTIVE}.{self.label}")

    def people(self, options: Options) -> People:
        """The rows: all of them, or the publisher's training rows where it set some aside."""
        path = files.located(self.file, self.name, options.folder) if self.file else Path()
        table, tests = self.build(path)
        kept = np.arange(table.num_rows) if tests is None else np.flatnonzero(~tests)
        kept = kept[:_QUICK_ROWS] if options.quick else kept
        table = table.take(pa.array(kept)).append_column(PERSON_ID, person_ids(kept))
        return People(self.title, assembled(self.name, self.layout, table))


def _everything(layout: Layout, **more: Column) -> dict[str, Column]:
    return {**{key: column for held in layout.parties.values() for key, column in held.items()}, **more}


def _starting(words: Iterable[str], start: str) -> tuple[str, ...]:
    return tuple(word for word in words if word.startswith(start))


def _ending(words: Iterable[str], end: str) -> tuple[str, ...]:
    return tuple(word for word in words if word.endswith(end))


_CELLS = _everything(catalog.BREAST_CANCER)
BREAST = Split(
    "Breast",
    "breast-cancer",
    None,
    builders.breast_cancer,
    _CELLS,
    "malignant",
    _starting(_CELLS, "worst "),
    (*_starting(_CELLS, "mean "), *_ending(_CELLS, " error")),
)

# A payment status is -2 or -1 (nothing owed, paid duly), 0 (revolving), or months late. Two months late and more are
# one case to a bank, so are the two ways of owing nothing: values outside the bounds are clipped to them.
_CLIENTS = _everything(
    catalog.CREDIT_DEFAULT,
    **{name: number(-1, 2, unit="months late") for name in _STATUSES},
    LIMIT_BAL=number(0, 500_000, unit="NT dollars"),
    AGE=number(20, 70, unit="years"),
)
CREDIT = Split(
    "Credit",
    "credit-default",
    files.CREDIT,
    builders.credit_default,
    _CLIENTS,
    "default",
    ("PAY_6", *(f"BILL_AMT{month}" for month in _MONTHS), *(f"PAY_AMT{month}" for month in _MONTHS)),
    ("LIMIT_BAL", "female", "EDUCATION", "MARRIAGE", "AGE", *_STATUSES[:-1]),
)

ADULT = Split(
    "Adult",
    "adult",
    files.ADULT,
    builders.adult,
    _everything(catalog.ADULT, education=category(_EDUCATION), fnlwgt=number(0, 1_500_000)),
    "high-income",
    ("race", "female", "capital-gain", "capital-loss", "hours-per-week", "native-country"),
    (
        *("age", "workclass", "fnlwgt", "education"),
        *("education-num", "marital-status", "occupation", "relationship"),
    ),
)

SPLITS = (BREAST, CREDIT, ADULT)
