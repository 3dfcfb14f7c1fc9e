"""Rows that come and go: what the protocol of second moments holds does not grow with their number."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from colonnade.protocols import rows
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.rows import digest
from colonnade.tables import Schema, Table, number, read_table
from colonnade.tables.ids import Ids
from tests.support.protocols import execute, integers, moments_task

SALT = bytes(range(32))
MANY = [f"p{i:06d}" for i in range(40_000)]
OWNERS = ("o0", "o1", "o2")
SCHEMA = Schema({"x": number(-1, 1), "y": number(-1, 1)}, clip=1.0)


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ([], "630dcd2966c4336691125448bbb25b4ff412a49c732db2c8abc1b8581bd710dd"),
        (["a", "é", "😀x", ""], "144c80d726f4d6b245b07a2306735d637d8fafecf8b3c7c64c38fe9ab7d0d37a"),
        (MANY, "4c652930f4d6451db5b2425e4a688e19eea88cf5e5182d1034bec964901d29b9"),
    ],
    ids=["none", "few", "many"],
)
def test_the_digest_is_what_it_always_was(ids: list[str], found: str) -> None:
    assert digest(SALT, ids).hex() == found
    assert digest(SALT, Ids(pa.array(ids, pa.large_string()))).hex() == found
    back = np.arange(len(ids))[::-1].copy()
    assert digest(SALT, Ids(pa.array(ids[::-1], pa.large_string()), back)).hex() == found


class Watched(Sequence[str]):
    """Ids that exist only while they are asked for; it remembers how many that was at a time."""

    def __init__(self, count: int) -> None:
        self.count, self.asked = count, list[int]()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> Any:
        found = [f"p{i:06d}" for i in range(self.count)[index]]
        self.asked.append(len(found))
        return found


def test_the_digest_looks_at_a_few_ids_at_a_time() -> None:
    ids = Watched(len(MANY))
    assert digest(SALT, ids) == digest(SALT, MANY)
    assert sum(ids.asked) == len(MANY)
    assert max(ids.asked) == rows._CHUNK


class Passing:
    """Rows of which it counts those that are still alive when the next block is made."""

    places = None

    def __init__(self, count: int) -> None:
        self.ids, self.made, self.most = Watched(count), list[Any](), 0

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        for start in range(0, len(self.ids), rows):
            block = np.full((min(rows, len(self.ids) - start), 2), 0.5)
            self.made.append(weakref.ref(block))
            self.most = max(self.most, sum(made() is not None for made in self.made))
            yield block
            del block


def test_an_owner_holds_a_block_at_a_time() -> None:
    task, count = moments_task(block_rows=50, rows_at_most=10_000, noise=9), 2000
    tables = {owner: Passing(count) for owner in OWNERS}
    execute(moments, task, tables)
    for table in tables.values():
        assert len(table.made) == 40
        assert table.most <= 2
        assert max(table.ids.asked) <= rows._CHUNK


@pytest.mark.usefixtures("exact")
def test_a_file_gives_the_same_moments_as_memory(tmp_path: Path) -> None:
    """The owners' files are in different orders; one of them has to be sorted on disk, one does not."""
    draws, count, task = np.random.default_rng(3), 430, moments_task(block_rows=50, rows_at_most=10_000, noise=9)
    tables: dict[bool, dict[str, Table]] = {True: {}, False: {}}
    for owner in OWNERS:
        people = np.arange(count) if owner == "o0" else draws.permutation(count)
        cells = {name: draws.uniform(-1, 1, count) for name in SCHEMA.names}
        path = tmp_path / f"{owner}.parquet"
        pq.write_table(pa.table({"person_id": [f"p{i:04d}" for i in people], **cells}), path, row_group_size=100)
        for on_disk, found in tables.items():
            found[owner] = read_table(path, SCHEMA, on_disk=on_disk).sorted_by_id()
    disk, memory = (execute(moments, task, found)[COORDINATOR].opened for found in tables.values())
    assert np.array_equal(disk, memory)
    whole = integers(task, {owner: table.matrix() for owner, table in tables[False].items()})
    assert np.array_equal(disk, moments.reference(whole, task))
