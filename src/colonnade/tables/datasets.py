"""Data sets as several organisations would hold them, and a made-up population.

A bank, a shop and a clinic know the population from three sides. Four latent factors (age, affluence, health,
urbanity) move columns in all three organisations, so what they find together is more than each finds alone. Margins are
plausible, not measured.
"""

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
from colonnade.tables.columns import Column, category, flag, number
from colonnade.tables.schema import Schema
from colonnade.tables.table import Table, read_table

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


USUAL_ROWS = 10_000

Values = NDArray[np.float64]

_TIERS = ("none", "bronze", "silver", "gold")
_REGIONS = ("north", "east", "south", "west", "capital")
_WORK = ("employed", "self-employed", "retired", "student", "seeking")

DESCRIPTION = "A made-up population known to a bank, a shop and a clinic"
LABEL = "bank.default"
COLUMNS: dict[str, dict[str, Column]] = {
    "bank": {
        "age": number(18, 95, unit="years"),
        "income": number(0, 120_000, unit="euros a year"),
        "balance": number(0, 500_000, unit="euros", scale="unit", transform="log1p"),
        "utilisation": number(0, 1, scale="unit"),
        "products": number(1, 8),
        "tenure": number(0, 40, unit="years"),
        "arrears": number(0, 12, unit="months", scale="unit"),
        "mortgage": flag(),
        "work": category(_WORK),
        "default": flag(),
    },
    "shop": {
        "visits": number(0, 30, unit="a month"),
        "basket": number(0, 200, unit="euros", scale="unit"),
        "fresh_food": number(0, 1),
        "sweets": number(0, 1),
        "electronics": number(0, 1, scale="unit"),
        "online": number(0, 1),
        "returns": number(0, 10, unit="a year", scale="unit"),
        "discounts": number(0, 1),
        "tier": category(_TIERS),
        "region": category(_REGIONS),
    },
    "clinic": {
        "bmi": number(15, 45, unit="kg/m2"),
        "systolic": number(90, 180, unit="mmHg"),
        "diastolic": number(50, 110, unit="mmHg"),
        "cholesterol": number(2.5, 8, unit="mmol/l"),
        "glucose": number(3, 12, unit="mmol/l"),
        "activity": number(0, 20, unit="hours a week", scale="unit"),
        "conditions": number(0, 6, scale="unit"),
        "appointments": number(0, 24, unit="a year", scale="unit"),
        "smoker": flag(),
    },
}


def population(rows: int = USUAL_ROWS, *, seed: int = 0) -> Dataset:
    """A made-up population of ``rows`` people; the same seed gives the same people.

    The label ``bank.default`` depends on columns of all three organisations.
    """
    table = people(rows, seed=seed)
    schemas = {party: Schema(held, description=DESCRIPTION) for party, held in COLUMNS.items()}
    arrow = {party: table.select([PERSON_ID, *schema.names]) for party, schema in schemas.items()}
    return Dataset("population", DESCRIPTION, arrow, schemas, LABEL)


def people(rows: int = USUAL_ROWS, *, seed: int = 0) -> pa.Table:
    """All columns of the population, and ``person_id``."""
    if rows < 1:
        raise DatasetError(f"a population has at least one person, not {rows} [DS003]")
    # numpy's generator is right here: these people are invented, and no privacy rests on the draw.
    draw = _LatentFactors(np.random.default_rng(seed), rows)
    columns: dict[str, NDArray[np.generic]] = {}
    columns |= _bank(draw) | _shop(draw) | _clinic(draw)
    columns["default"] = _default(draw, columns)
    return pa.table({**columns, PERSON_ID: person_ids(np.arange(rows))})


class _LatentFactors:
    """The hidden factors of each person, and noise around them."""

    def __init__(self, random: np.random.Generator, rows: int) -> None:
        self.random = random
        self.rows = rows
        self.age = np.round(18 + 77 * random.beta(1.7, 2.1, rows))
        self.years = (self.age - 50) / 18
        self.affluence = self.near(0.25 * self.years - 0.15 * self.years**2, 0.95)
        self.urban = self.near(-0.2 * self.years, 1.0)
        self.health = self.near(0.35 * self.affluence - 0.45 * self.years, 0.8)

    def near(self, centre: Values | float, spread: float) -> Values:
        """Normal noise around a centre."""
        return centre + spread * self.random.standard_normal(self.rows)

    def yes(self, score: Values) -> NDArray[np.bool_]:
        """True with the logistic probability of a score."""
        return self.random.random(self.rows) < 1 / (1 + np.exp(-score))

    def times(self, rate: Values, most: int) -> NDArray[np.int64]:
        """A count with a rate, and with more spread than a Poisson count has."""
        return np.minimum(self.random.poisson(rate * self.random.gamma(3, 1 / 3, self.rows)), most)

    def pick(self, names: tuple[str, ...], *scores: Values | float) -> NDArray[np.str_]:
        """One name each, likelier where its score is high."""
        gumbel = self.random.gumbel(size=(len(names), self.rows))
        appeal = gumbel + np.stack([np.broadcast_to(score, self.rows) for score in scores])
        picked: NDArray[np.str_] = np.array(names)[np.argmax(appeal, axis=0)]
        return picked


def _bank(draw: _LatentFactors) -> dict[str, NDArray[np.generic]]:
    rich, years = draw.affluence, draw.years
    retired = np.where(draw.age >= 66, 4.0, -4.0)
    student = np.where(draw.age <= 26, 2.0, -4.0)
    work = draw.pick(_WORK, 2.0, 0.2 + 0.2 * rich, retired, student, -0.8 - 0.7 * rich)
    off_work = np.isin(work, ("student", "seeking")) * 0.9 + (work == "retired") * 0.35
    income = np.exp(10.45 + 0.45 * rich - off_work + draw.near(0, 0.2))
    return {
        "age": draw.age,
        "income": np.round(np.clip(income, 3_000, 250_000), -2),
        "balance": np.round(np.clip(np.exp(8.2 + 1.0 * rich + 0.45 * years + draw.near(0, 0.7)), 0, 500_000)),
        "utilisation": _logistic_share(-0.7 - 0.9 * rich - 0.2 * years + draw.near(0, 0.8)),
        "products": 1 + draw.times(np.exp(0.4 + 0.35 * rich + 0.15 * years), 7),
        "tenure": np.round(np.clip((draw.age - 18) * draw.random.beta(2, 2.5, draw.rows), 0, 40)),
        "arrears": draw.times(np.exp(-1.6 - 0.9 * rich - 0.35 * draw.health), 12),
        "mortgage": draw.yes(-0.6 + 0.9 * rich - 0.9 * years**2 - 0.3 * draw.urban),
        "work": work,
    }


def _shop(draw: _LatentFactors) -> dict[str, NDArray[np.generic]]:
    rich, well, urban = draw.affluence, draw.health, draw.urban
    visits = draw.times(np.exp(1.9 + 0.3 * urban + 0.1 * draw.years), 30)
    online = _logistic_share(-0.5 - 0.8 * draw.years + 0.4 * urban + 0.2 * rich + draw.near(0, 0.7))
    loyal = 0.5 * rich + 0.12 * (visits - 7)
    return {
        "visits": visits,
        "basket": np.round(np.clip(np.exp(3.6 + 0.35 * rich - 0.25 * urban + draw.near(0, 0.35)), 2, 400), 2),
        "fresh_food": _logistic_share(-0.6 + 0.6 * well + 0.3 * rich + draw.near(0, 0.6)),
        "sweets": _logistic_share(-1.2 - 0.6 * well + draw.near(0, 0.6)),
        "electronics": _logistic_share(-2.2 - 0.4 * draw.years + 0.3 * rich + draw.near(0, 0.6)),
        "online": online,
        "returns": draw.times(np.exp(2.0 * online - 0.2), 10),
        "discounts": _logistic_share(-0.9 - 0.8 * rich + draw.near(0, 0.7)),
        "tier": draw.pick(_TIERS, 0.8, 0.4 + 0.5 * loyal, 0.8 * loyal, -0.8 + 1.2 * loyal),
        "region": draw.pick(_REGIONS, -0.4 * urban, -0.3 * urban, 0.1, 0.2 * urban, 0.9 * urban),
    }


def _clinic(draw: _LatentFactors) -> dict[str, NDArray[np.generic]]:
    well, years = draw.health, draw.years
    smoker = draw.yes(-1.5 - 0.7 * well - 0.3 * draw.affluence)
    bmi = np.clip(26 - 2.4 * well + draw.near(0, 2.8), 15, 50)
    strain = draw.near(0, 1)
    systolic = 126 + 8 * years - 5 * well + 0.6 * (bmi - 26) + 6 * strain + draw.near(0, 5)
    glucose = np.exp(1.68 - 0.09 * well + 0.012 * (bmi - 26) + draw.near(0, 0.1))
    ill = draw.times(np.exp(-0.7 - 0.6 * well + 0.35 * years + 0.3 * smoker), 6)
    return {
        "bmi": np.round(bmi, 1),
        "systolic": np.round(np.clip(systolic, 80, 220)),
        "diastolic": np.round(np.clip(78 + 0.35 * (systolic - 126) + 3 * strain + draw.near(0, 4), 40, 130)),
        "cholesterol": np.round(np.clip(5.1 - 0.35 * well + 0.2 * years + draw.near(0, 0.7), 2, 10), 1),
        "glucose": np.round(np.clip(glucose, 3, 20), 1),
        "activity": np.round(np.clip(np.exp(1.1 + 0.45 * well + draw.near(0, 0.5)) - 0.5, 0, 20), 1),
        "conditions": ill,
        "appointments": draw.times(1.6 * ill.astype(np.float64) + 1.0, 24),
        "smoker": smoker,
    }


def _default(draw: _LatentFactors, columns: dict[str, NDArray[np.generic]]) -> NDArray[np.bool_]:
    score = -5.2 - 0.2 * draw.affluence
    for name, weight in (("utilisation", 1.8), ("arrears", 0.6), ("discounts", 4.0), ("conditions", 0.7)):
        score += weight * columns[name].astype(np.float64)
    return draw.yes(score)


def _logistic_share(score: Values) -> Values:
    return np.round(1 / (1 + np.exp(-score)), 3)
