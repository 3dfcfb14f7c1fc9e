"""A small table with every kind of column, for tests of mixtures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.tables.columns import Column, category, flag, number
from colonnade.tables.schema import Schema

SCHEMA = Schema(
    {
        "age": number(0, 100),
        "city": category(list("abcde"), missing="none"),
        "income": number(0, 1e5, scale="unit", transform="log1p"),
        "member": flag(),
        "visits": number(0, 10, scale="unit"),
        "sort": category(["x", "y"]),
        "height": number(100, 200),
    }
)
FAMILIES = {"visits": "bins:4", "height": "gaussian:20"}


def encoded(rng: np.random.Generator, rows: int) -> NDArray[np.float64]:
    """Rows as the encoder would leave them; some have no city."""
    found = np.zeros((rows, SCHEMA.encoded_width))
    places = {name: place.start for name, place in SCHEMA.places.items()}
    found[:, places["age"]] = rng.uniform(-1, 1, rows)
    found[:2, places["age"]] = (-1, 1)[:rows]
    city = rng.integers(0, 6, rows)
    living = np.flatnonzero(city < 5)
    found[living, places["city"] + city[living]] = 1
    found[:, places["income"]] = rng.random(rows)
    found[:, places["member"]] = rng.random(rows) < 0.3
    found[:, places["visits"]] = rng.random(rows)
    found[np.arange(rows), places["sort"] + rng.integers(0, 2, rows)] = 1
    found[:, places["height"]] = rng.uniform(-1, 1, rows)
    return found


def owners() -> tuple[Schema, Schema]:
    """The columns of two owners, for people in two groups."""
    clinic: dict[str, Column] = {"age": number(0, 100), "smokes": flag(), "ward": category(list("abc"), missing="none")}
    return Schema(clinic), Schema({"visits": number(0, 10, scale="unit"), "plan": category(["x", "y"])})


def groups(rng: np.random.Generator, rows: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Old smokers of ward c who come often, with plan y; young people who do the opposite; some without a ward."""
    old = rng.random(rows) < 0.4
    chance = np.where(old, 0.9, 0.1)
    left, right = np.zeros((rows, 5)), np.zeros((rows, 3))
    left[:, 0] = 2 * rng.beta(np.where(old, 8, 2), np.where(old, 2, 8)) - 1
    left[:, 1] = rng.random(rows) < chance
    ward = np.where(rng.random(rows) < chance, 2, rng.integers(0, 2, rows))
    left[np.arange(rows), 2 + ward] = rng.random(rows) < 0.8
    right[:, 0] = rng.beta(np.where(old, 6, 2), np.where(old, 2, 6))
    plan = (rng.random(rows) < chance).astype(int)
    right[np.arange(rows), 1 + plan] = 1
    return left, right
