"""A bank with the label and a shop, whose columns say more together than apart."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from colonnade import Federation, Party, Schema, category, flag, number
from colonnade.models import Roster
from colonnade.tables import Table

SCHEMAS = {
    "bank": Schema(
        {
            "a": number(-3, 3),
            "b": number(-3, 3),
            "kind": category(["low", "middle", "high"]),
            "default": flag(),
            "amount": number(-3, 3),
        }
    ),
    "shop": Schema({"c": number(-3, 3), "d": number(-3, 3, scale="unit")}),
}


def arrow(rows: int, seed: int = 0) -> dict[str, pa.Table]:
    """Made-up people: the label follows from columns of both."""
    random = np.random.default_rng(seed)
    a, b, c, d = np.clip(random.normal(size=(4, rows)), -3, 3)
    total = b + d + 0.5 * a * c
    kind = np.array(["low", "middle", "high"])[(total > -1).astype(int) + (total > 1)]
    ids = [f"P{place:06}" for place in range(rows)]
    held = {"a": a, "b": b, "kind": kind, "default": total > 0, "amount": np.clip(total, -3, 3)}
    return {"bank": pa.table({"id": ids, **held}), "shop": pa.table({"id": ids, "c": c, "d": d})}


def federation(rows: int, label: str, seed: int = 0, **how: object) -> Federation:
    """The two of them; of the bank's labels only this one is brought."""
    tables, schemas = arrow(rows, seed), schemas_for(label)
    return Federation([Party(name, tables[name], schema=schemas[name], id="id") for name in schemas], **how)


def schemas_for(label: str) -> dict[str, Schema]:
    wanted = {"bank": ["a", "b", label], "shop": ["c", "d"]}
    return {name: SCHEMAS[name].select(columns) for name, columns in wanted.items()}


def roster(label: str) -> Roster:
    return Roster.of(schemas_for(label))


def tables(rows: int, label: str, seed: int = 0) -> dict[str, Table]:
    return federation(rows, label, seed).tables()
