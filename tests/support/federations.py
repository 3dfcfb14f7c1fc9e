"""Parties with made-up people: from columns, in a federation that had to find them first, from one population for all.

What one kind needs of people is what most kinds need: a label of each sort that follows from columns of every party.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from colonnade import Federation, Party, Schema, category, flag, number

EXTRA = 8


def unaligned(tables: Mapping[str, Any], id: str = "person_id", seed: int = 0) -> dict[str, pa.Table]:
    """The tables with more people: each party alone holds some, and all parties but one hold some others.

    The strangers' cells are other people's, so that a model that took them in would be another one.
    """
    rng = np.random.default_rng(seed)
    found = {}
    for name, table in tables.items():
        held = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
        without = [other for other in tables if other != name]
        ids = [f"only {name} {k}" for k in range(EXTRA)]
        ids += [f"not {other} {k}" for other in without for k in range(EXTRA) if len(tables) > 2]
        strangers = held.take(rng.integers(0, held.num_rows, len(ids)))
        place = held.schema.get_field_index(id)
        strangers = strangers.set_column(place, held.schema.field(id), pa.array(ids, held.schema.field(id).type))
        whole = pa.concat_tables([held, strangers])
        found[name] = whole.take(rng.permutation(whole.num_rows))
    return found


def aligned(
    tables: Mapping[str, Any],
    schemas: Mapping[str, Schema],
    id: str = "person_id",
    *,
    mode: str = "helper",
    seed: int = 0,
    **arrangement: Any,
) -> Federation:
    """A federation of these people that had to find them first: nobody but they is common to all parties."""
    apart = unaligned({name: tables[name] for name in schemas}, id, seed)
    parties = [Party(name, apart[name], schema=schema, id=id) for name, schema in schemas.items()]
    return Federation(parties, **arrangement).align(on=id, mode=mode)


def numbers(names: Iterable[str], lower: float = -1, upper: float = 1, **more: Any) -> Schema:
    """A schema of numbers between the same bounds, and of the columns named besides: ``numbers("ab", y=flag())``."""
    return Schema({name: number(lower, upper) for name in names} | more)


def federation(
    columns: Mapping[str, Mapping[str, Any] | pa.Table], schemas: Mapping[str, Schema], id: str = "id", **how: Any
) -> Federation:
    """Parties with these columns about the same people, in the same order; ids are made up where there are none."""
    parties = []
    for name, schema in schemas.items():
        held = columns[name]
        if not isinstance(held, pa.Table):
            rows = len(next(iter(held.values())))
            held = pa.table({id: [f"P{place:06}" for place in range(rows)], **held})
        parties.append(Party(name, held, schema=schema, id=id))
    return Federation(parties, **how)


HELD = {
    "bank": numbers("ab", -3, 3, kind=category(["low", "middle", "high"]), default=flag(), amount=number(-3, 3)),
    "shop": numbers("cd", -3, 3),
    "clinic": numbers("e", -3, 3, ill=flag()),
}
"""What each party holds about the people of ``people``; the bank has the labels, one of each sort."""


def people(rows: int, seed: int = 0) -> dict[str, pa.Table]:
    """Made-up people whose labels follow from columns of all parties together."""
    rng = np.random.default_rng(seed)
    a, b, c, d, e = np.clip(rng.normal(size=(5, rows)), -3, 3)
    total = (b + d + e + 0.5 * a * c) / 1.5
    kind = np.array(["low", "middle", "high"])[(total > -1).astype(int) + (total > 1)]
    held = {
        "bank": {"a": a, "b": b, "kind": kind, "default": total > 0, "amount": np.clip(total, -3, 3)},
        "shop": {"c": c, "d": d},
        "clinic": {"e": e, "ill": rng.random(rows) < 1 / (1 + np.exp(-e))},
    }
    ids = [f"P{place:06}" for place in range(rows)]
    return {name: pa.table({"id": ids, **columns}) for name, columns in held.items()}


def made_up(
    rows: int, label: str = "default", parties: Sequence[str] = ("bank", "shop"), seed: int = 0, **how: Any
) -> Federation:
    """These parties with their numbers; of the bank's labels only this one is brought."""
    wanted = {"bank": ["a", "b", label], "shop": ["c", "d"], "clinic": ["e", "ill"]}
    return federation(people(rows, seed), {name: HELD[name].select(wanted[name]) for name in parties}, **how)
