"""Federations as they are in earnest: every party holds people whom others lack, in an order of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from colonnade import Federation, Party, Schema
from colonnade.models import registry

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


@pytest.fixture
def new_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Writes a module ``new_kinds`` that can be imported; afterwards the list of kinds is as before."""

    def write(text: str) -> Path:
        (tmp_path / "new_kinds.py").write_text(text)
        return tmp_path

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "new_kinds", raising=False)
    registry.rows()
    monkeypatch.setattr(registry, "_KNOWN", dict(registry._KNOWN))
    yield write
    sys.modules.pop("new_kinds", None)
    registry._installed.cache_clear()


@pytest.fixture(name="unaligned", scope="session")
def _unaligned() -> Callable[..., dict[str, pa.Table]]:
    return unaligned


@pytest.fixture(name="aligned", scope="session")
def _aligned() -> Callable[..., Federation]:
    return aligned
