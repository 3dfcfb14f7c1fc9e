from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from colonnade.errors import DatasetError
from colonnade.tables import read_table
from research.datasets import dataset_names, load_dataset
from tests.support.errors import raises
from tests.support.people import width_of

SIZES = {
    "breast-cancer": (569, 30, 3),
    "adult": (48_842, 87, 3),
    "credit-default": (30_000, 32, 3),
    "dutch-census": (60_420, 44, 3),
    "nsl-kdd": (148_517, 122, 3),
    "kdd-99": (805_050, 122, 3),
    "citeseer": (3_312, 3_703, 3),
    "acs-income": (42_091, 80, 3),
    "population": (10_000, 39, 3),
}
RATES = {
    "adult": 11_687 / 48_842,
    "credit-default": 0.2212,
    "dutch-census": 28_763 / 60_420,
    "nsl-kdd": 71_463 / 148_517,
}


def test_all_are_measured() -> None:
    assert set(SIZES) == set(dataset_names())


@pytest.mark.parametrize("name", SIZES)
def test_sizes_and_schemas(name: str, data_dir: Path) -> None:
    dataset = load_dataset(name, folder=data_dir)
    assert (dataset.rows, width_of(dataset), len(dataset.parties)) == SIZES[name]
    assert dataset.label_column in dataset.schemas[dataset.label_party].columns
    sample = load_dataset(name, folder=data_dir, rows=300)
    ids = {party: table.sorted_by_id().ids for party, table in sample.tables().items()}
    assert len({tuple(found) for found in ids.values()}) == 1
    for table in sample.tables().values():
        assert table.check().rows == 300
    label = dataset.table(dataset.label_party).column(dataset.label_column)
    assert set(np.unique(label)) == {0, 1}
    if name in RATES:
        assert label.mean() == pytest.approx(RATES[name], abs=1e-4)


@pytest.mark.parametrize("name", ["adult", "credit-default", "dutch-census", "nsl-kdd", "acs-income", "breast-cancer"])
def test_every_row_fits_and_bounds_bind_rarely(name: str, data_dir: Path) -> None:
    for table in load_dataset(name, folder=data_dir).tables().values():
        report = table.check()
        assert all(count < 0.025 * report.rows for count in report.clipped.values())


def test_kdd_schemas_are_shared(data_dir: Path) -> None:
    one, two = (load_dataset(name, folder=data_dir, rows=5) for name in ("nsl-kdd", "kdd-99"))
    assert one.schemas == two.schemas


def test_publishers_and_own_splits(data_dir: Path) -> None:
    train = load_dataset("adult", folder=data_dir, split="train")
    test = load_dataset("adult", folder=data_dir, split="test")
    assert (train.rows, test.rows) == (32_561, 16_281)
    own = [load_dataset("breast-cancer", split=part) for part in ("train", "test")]
    assert [part.rows for part in own] == [456, 113]
    assert not set(own[0].table("clinic").ids) & set(own[1].table("clinic").ids)


def test_any_number_of_parties() -> None:
    natural = load_dataset("breast-cancer")
    for parties in (1, 2, 4, 30):
        dealt = load_dataset("breast-cancer", parties=parties, clip=0.75)
        assert len(dealt.parties) == parties
        assert dealt.label == "party1.malignant"
        assert width_of(dealt) == width_of(natural)
        widths = [len(schema.columns) for schema in dealt.feature_schemas.values()]
        assert max(widths) - min(widths) <= 1
        assert {schema.clip for schema in dealt.feature_schemas.values()} == {0.75}
    with raises(DatasetError, "DS011", "30"):
        load_dataset("breast-cancer", parties=31)


def test_written_files_read_back(tmp_path: Path) -> None:
    dataset = load_dataset("breast-cancer")
    for kind in ("csv", "parquet"):
        for party, (path, schema) in dataset.write(tmp_path / kind, kind=kind).items():
            table = read_table(path, schema)
            assert table.ids != dataset.table(party).ids
            np.testing.assert_array_equal(table.sorted_by_id().matrix(), dataset.table(party).matrix())


def test_unknown_names_and_arguments() -> None:
    with raises(DatasetError, "DS010", "adult"):
        load_dataset("adlut")
    with raises(DatasetError, "DS010"):
        load_dataset("???")
    with raises(DatasetError, "DS012"):
        load_dataset("breast-cancer", split="half")  # type: ignore[arg-type]
    with raises(DatasetError, "DS013", "569"):
        load_dataset("breast-cancer", rows=570)


def test_missing_files_name_both_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLONNADE_DATA", raising=False)
    for folder in (None, tmp_path):
        with pytest.raises(DatasetError) as caught:
            load_dataset("adult", folder=folder)
        for said in ("adult.parquet", "COLONNADE_DATA", "python -m research fetch adult"):
            assert said in str(caught.value)


def test_damaged_files_are_refused(tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "adult.parquet"
    shutil.copyfile(data_dir / "adult.parquet", path)
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    assert load_dataset("adult", rows=5).rows == 5
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    with raises(DatasetError, "DS017"):
        load_dataset("adult")
