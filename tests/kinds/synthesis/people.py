"""Made-up people whose columns depend on each other across the parties, and models of them that tests only read."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from colonnade import Federation, Schema, Synthesizer, category, flag, number
from colonnade.models import Roster
from colonnade.tables import Table
from colonnade.testing import seeded
from tests.support import federations

ROWS = 3_000
SCHEMAS = {
    "bank": Schema({"age": number(0, 90, whole=True), "rich": flag(), "same": number(0, 1)}),
    "shop": Schema(
        {
            "spent": number(0, 1000, transform="log1p", missing="none"),
            "tier": category(["none", "silver", "gold"]),
            "same": flag(),
            "only": category(["x"]),
        }
    ),
    "clinic": Schema({"ill": flag(), "town": category(["a", "b"], missing="none")}),
}
ROSTER = Roster.of(SCHEMAS)
BROAD = {"epsilon": 20.0, "rows_at_most": 10_000}
QUICK = {"components": 20, "bins": 6}
RULE = "bank.age < 16 and bank.rich = true"
MIXTURE = {"method": "mixture", "rows": ROWS, "components": 3, "iterations": 8, "epsilon": {"analyst": 5.0}}
WAYS: dict[str, dict[str, Any]] = {
    "products": {"label": "clinic.ill", "focus": [("bank.age", "shop.spent")], "impossible": [RULE], **BROAD, **QUICK},
    "even bins": {"label": "clinic.ill", "bins": 40, "even_bins": 5, "components": 20, **BROAD},
    "mixture": {"impossible": [RULE], "bins": 6, "rows_at_most": 10_000, **MIXTURE},
}


@cache
def arrow(rows: int = ROWS, seed: int = 5) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    ids = [f"p{k:06}" for k in range(rows)]
    age, rich = rng.integers(0, 91, rows), rng.random(rows) < 0.4
    ill = rng.random(rows) < 0.1 + 0.6 * (age > 60)
    spent = np.round(np.exp(rng.normal(3 + 2 * rich, 0.6)), 2).clip(0, 1000)
    tier = np.array(["none", "silver", "gold"])[rich.astype(int) + (rng.random(rows) < 0.3)]
    town = np.where(rng.random(rows) < 0.2, None, np.where(rng.random(rows) < 0.7, "a", "b"))
    shop = {"spent": pa.array(spent, mask=rng.random(rows) < 0.1), "tier": tier, "same": ill, "only": ["x"] * rows}
    held = {
        "bank": {"age": age, "rich": rich, "same": rng.random(rows)},
        "shop": shop,
        "clinic": {"ill": ill, "town": pa.array(town.tolist(), pa.string())},
    }
    return {name: pa.table({"id": ids, **columns}) for name, columns in held.items()}


def federation(rows: int = ROWS, **how: Any) -> Federation:
    return federations.federation(arrow(rows), SCHEMAS, **how)


@cache
def tables(rows: int = ROWS) -> dict[str, Table]:
    return federation(rows).tables()


def simulated(people: int = ROWS, seed: int = 3, **given: Any) -> Synthesizer:
    """A model of so many people, made in one place."""
    return Synthesizer(**given).simulate(tables(people), ROSTER, seeded(seed))


@cache
def model(way: str) -> Synthesizer:
    """A fitted model of this way, which no test may change."""
    return simulated(**WAYS[way])


def flags(table: pa.Table, name: str) -> np.ndarray:
    return table[name].to_numpy(zero_copy_only=False)
