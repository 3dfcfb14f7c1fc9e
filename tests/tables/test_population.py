from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from colonnade.errors import DatasetError
from colonnade.tables import Schema, population, read_table
from tests.support.refusals import refused


def test_same_seed_same_people() -> None:
    one, two, other = population(500, seed=3), population(500, seed=3), population(500, seed=4)
    assert one.arrow == two.arrow
    assert one.arrow != other.arrow
    assert population(700).rows == 700


def test_people_are_plausible() -> None:
    made = population(20_000)
    assert made.parties == ("bank", "shop", "clinic")
    for table in made.tables().values():
        report = table.check()
        assert all(count < 0.02 * made.rows for count in report.clipped.values())
        assert (table.matrix().std(axis=0) > 0.03).all()
    assert 0.05 < made.table("bank").column("default").mean() < 0.35


def test_factors_cross_the_organisations() -> None:
    parts = [table.matrix() for table in population(10_000).tables().values()]
    whole = np.hstack(parts)
    whole = (whole - whole.mean(0)) / whole.std(0)
    values, vectors = np.linalg.eigh(whole.T @ whole / len(whole))
    assert values[-2] > 3
    edges = np.cumsum([0, *(part.shape[1] for part in parts)])
    health, affluence = (sorted(np.sum(vectors[a:b, place] ** 2) for a, b in pairwise(edges)) for place in (-1, -2))
    assert health[0] > 0.15
    assert affluence[1] > 0.2


def test_files_for_the_demo(tmp_path: Path) -> None:
    made = population(400, seed=1)
    made.write(tmp_path, seed=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{party}.{ending}" for party in made.parties for ending in ("csv", "toml")
    )
    orders = set()
    for party in made.parties:
        table = read_table(tmp_path / f"{party}.csv", Schema.load(tmp_path / f"{party}.toml"))
        orders.add(tuple(table.ids))
        assert table.sorted_by_id().ids[122] == "P000123"
        np.testing.assert_array_equal(table.sorted_by_id().matrix(), made.table(party).matrix())
    assert len(orders) == 3


def test_partial_overlap(tmp_path: Path) -> None:
    made = population(1000)
    made.write(tmp_path, overlap=0.9)
    known = [set(read_table(tmp_path / f"{p}.csv", tmp_path / f"{p}.toml").ids) for p in made.parties]
    assert [len(ids) for ids in known] == [900] * 3
    assert 650 < len(set.intersection(*known)) < 800


def test_nobody() -> None:
    refused(DatasetError, "DS003", population, 0)
    refused(DatasetError, "DS002", population(5).write, "unused", overlap=0)
    refused(DatasetError, "DS001", population(5).write, "unused", kind="xls")
