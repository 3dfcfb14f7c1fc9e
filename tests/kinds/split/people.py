"""A bank with the label and a shop, whose columns say more together than apart."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

from colonnade import Federation, Schema, number
from colonnade.models import Roster
from colonnade.tables import Table
from tests.support import federations

SHOP = Schema({"c": number(-3, 3), "d": number(-3, 3, scale="unit")})


@cache
def arrow(rows: int, seed: int = 0) -> dict[str, pa.Table]:
    """Made-up people: the label follows from columns of both."""
    random = np.random.default_rng(seed)
    a, b, c, d = np.clip(random.normal(size=(4, rows)), -3, 3)
    total = b + d + 0.5 * a * c
    kind = np.array(["low", "middle", "high"])[(total > -1).astype(int) + (total > 1)]
    ids = [f"P{place:06}" for place in range(rows)]
    held = {"a": a, "b": b, "kind": kind, "default": total > 0, "amount": np.clip(total, -3, 3)}
    return {"bank": pa.table({"id": ids, **held}), "shop": pa.table({"id": ids, "c": c, "d": d})}


def schemas_for(label: str) -> dict[str, Schema]:
    return {"bank": federations.HELD["bank"].select(["a", "b", label]), "shop": SHOP}


@cache
def roster(label: str) -> Roster:
    return Roster.of(schemas_for(label))


def federation(rows: int, label: str, seed: int = 0) -> Federation:
    """The two of them; of the bank's labels only this one is brought."""
    return federations.federation(arrow(rows, seed), schemas_for(label))


@cache
def tables(rows: int, label: str, seed: int = 0) -> dict[str, Table]:
    return federation(rows, label, seed).tables()
