"""The data sets: their sizes and schemas, their files over a loopback server, and halves of pictures."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import shutil
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

from colonnade.errors import DatasetError
from colonnade.tables import Dataset, read_table
from research.datasets import FETCHED, convert, dataset_names, fetch_dataset, load_dataset, load_halves, picture_files
from research.datasets.fetch import fetch_file
from research.datasets.sources import DataFile, Download, digest, matches, stored
from tests.support.errors import refused

SLOW = pytest.mark.slow
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


def width_of(people: Dataset) -> int:
    """How many encoded feature columns there are, over all parties."""
    return sum(schema.encoded_width for schema in people.feature_schemas.values())


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW if name == "kdd-99" else ()) for name in SIZES])
def test_sizes_schemas_and_rows_are_those_that_are_said(name: str, data_dir: Path) -> None:
    dataset = load_dataset(name, folder=data_dir)
    assert (dataset.rows, width_of(dataset), len(dataset.parties)) == SIZES[name]
    assert dataset.label_column in dataset.schemas[dataset.label_party].columns
    sample = load_dataset(name, folder=data_dir, rows=300).tables().values()
    assert len({tuple(table.sorted_by_id().ids) for table in sample}) == 1
    assert {table.check().rows for table in sample} == {300}
    label = dataset.table(dataset.label_party).column(dataset.label_column)
    assert set(np.unique(label)) == {0, 1}
    assert label.mean() == pytest.approx(RATES.get(name, label.mean()), abs=1e-4)
    if name not in ("kdd-99", "citeseer", "population"):
        for report in (table.check() for table in dataset.tables().values()):  # every row fits, and bounds bind rarely
            assert all(count < 0.025 * report.rows for count in report.clipped.values())


def test_splits_schemas_and_arguments(data_dir: Path) -> None:
    assert set(SIZES) == set(dataset_names())
    publishers = [load_dataset("adult", folder=data_dir, split=part).rows for part in ("train", "test")]
    own = [load_dataset("breast-cancer", split=part) for part in ("train", "test")]
    assert (publishers, [part.rows for part in own]) == ([32_561, 16_281], [456, 113])
    assert not set(own[0].table("clinic").ids) & set(own[1].table("clinic").ids)
    refused(DatasetError, "DS010", "adult", load_dataset, "adlut")
    for wrong, *said in (
        ({"split": "half"}, "DS012"),
        ({"rows": 570}, "DS013", "569"),
        ({"parties": 31}, "DS011", "30"),
    ):
        refused(DatasetError, said, load_dataset, "breast-cancer", **wrong)


def test_any_number_of_parties_whose_files_read_back(tmp_path: Path) -> None:
    natural = load_dataset("breast-cancer")
    for parties in (1, 4, 30):
        dealt = load_dataset("breast-cancer", parties=parties, clip=0.75)
        assert (len(dealt.parties), dealt.label, width_of(dealt)) == (parties, "party1.malignant", width_of(natural))
        widths = [len(schema.columns) for schema in dealt.feature_schemas.values()]
        assert max(widths) - min(widths) <= 1
        assert {schema.clip for schema in dealt.feature_schemas.values()} == {0.75}
    for kind in ("csv", "parquet"):
        for party, (path, schema) in natural.write(tmp_path / kind, kind=kind).items():
            table = read_table(path, schema)
            assert table.ids != natural.table(party).ids
            np.testing.assert_array_equal(table.sorted_by_id().matrix(), natural.table(party).matrix())


def test_missing_files_name_both_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLONNADE_DATA", raising=False)
    said = ("adult.parquet", "COLONNADE_DATA", "python -m research fetch adult")
    for folder in (None, tmp_path):
        refused(DatasetError, said, load_dataset, "adult", folder=folder)


def test_damaged_files_are_refused(tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "adult.parquet"
    shutil.copyfile(data_dir / "adult.parquet", path)
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    assert load_dataset("adult", rows=5).rows == 5
    content = path.read_bytes()
    path.write_bytes(content[:1000] + bytes([content[1000] ^ 1]) + content[1001:])
    os.utime(path, ns=(1, 1))
    refused(DatasetError, "DS017", load_dataset, "adult")


# --- over a loopback server: what arrives is checked, converted, checked again and kept


ADULT = b"39, State-gov, 77516, Bachelors, 13, Never-married, ?, Wife, White, Male, 2174, 0, 40, Cuba, %s\n"


NAMES = b"age, workclass, fnlwgt\n"


FLOW = b"0,tcp,http,SF,181,5450" + b",0" * 18 + b",0.5" * 7 + b",9,9" + b",0.25" * 8 + b",%s\n"


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Path]:
    """What lies in this folder is served at the address in the folder's file ``address``."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    server = HTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder))
    (folder / "address").write_text(f"http://127.0.0.1:{server.server_port}", encoding="utf-8")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()


def served(mirror: Path, name: str, content: str, make: Any, **files: bytes) -> DataFile:
    """A data set of these files, in this order, at the mirror."""
    address, downloads = (mirror / "address").read_text(encoding="utf-8"), []
    for key, body in files.items():
        (mirror / key).write_bytes(body)
        downloads.append(Download(f"{address}/{key}", hashlib.sha256(body).hexdigest()))
    return DataFile(name, content, "nobody", tuple(downloads), make)


def zipped(**files: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, body in files.items():
            archive.writestr(f"{name}+.txt", body)
    return made.getvalue()


def old_pickle(value: Any) -> bytes:
    """With the module names of the time when these files were written."""
    made = pickle.dumps(value, protocol=3).replace(b"scipy.sparse._csr", b"scipy.sparse.csr")
    return made.replace(b"numpy._core", b"numpy.core")


TABLES: dict[str, tuple[Any, dict[str, bytes], dict[str, list[Any]]]] = {
    "adult": (
        convert.adult,
        {"train": ADULT % b"<=50K", "test": NAMES + ADULT % b">50K"},
        {"age": [39, 39], "workclass": ["State-gov"] * 2, "occupation": ["?"] * 2, "income": ["<=50K", ">50K"]},
    ),
    "credit": (
        convert.credit_default,
        {"all": b"ID;SEX;default payment next month\n1;2;1\n2;1;0\n"},
        {"ID": [1, 2], "SEX": [2, 1], "default payment next month": [1, 0]},
    ),
    "dutch": (convert.dutch_census, {"all": b"sex,age\nmale,6\n"}, {"sex": ["male"], "age": [6]}),
    "nsl-kdd": (
        convert.nsl_kdd,
        {"all": zipped(KDDTrain=FLOW % b"normal,20", KDDTest=FLOW % b"smurf,5")},
        {"label": ["normal", "smurf"], "difficulty": [20, 5], "split": ["train", "test"], "serror_rate": [0.5] * 2},
    ),
    "kdd-99": (
        convert.kdd_99,
        {"train.gz": gzip.compress(FLOW % b"normal."), "test.gz": gzip.compress(FLOW % b"smurf.")},
        {"label": ["normal", "smurf"], "split": ["train", "test"], "service": ["http"] * 2, "src_bytes": [181] * 2},
    ),
    "acs": (
        convert.acs_income,
        {"co": b"AGEP,COW\n19.0,2.0\n", "co1": b"PINCP\n0\n", "ne": b"AGEP,COW\n24.0,5.0\n", "ne1": b"PINCP\n1\n"},
        {"AGEP": [19, 24], "COW": [2, 5], "PINCP_gt_50k": [0, 1], "state": ["CO", "NE"]},
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_publishers_files_become_tables(name: str, mirror: Path, tmp_path: Path) -> None:
    make, files, expected = TABLES[name]
    served(mirror, "made.parquet", "", make, **files)
    whole = make([mirror / key for key in files])
    assert {key: whole[key].to_pylist() for key in expected} == expected
    file = served(mirror, "made.parquet", digest(whole), make, **files)
    path = fetch_file(file, tmp_path / "data", cache=tmp_path / "cache")
    assert pa.parquet.read_table(path).to_pydict() == whole.to_pydict()


def test_planetoids_files_become_arrays(mirror: Path, tmp_path: Path) -> None:
    words = sparse.csr_matrix(np.array([[1, 0, 1], [0, 1, 0]], dtype=np.float32))
    topics = np.eye(2, dtype=np.int32)
    files = {
        "allx": old_pickle(words),
        "ally": old_pickle(topics),
        "graph": old_pickle({0: [1, 0, 4], 1: [0], 4: [0], 2: []}),
        "index": b"4\n2\n",
        "tx": old_pickle(words[::-1]),
        "ty": old_pickle(np.array([[0, 1], [0, 0]], dtype=np.int32)),
        "y": old_pickle(topics[:1]),
    }
    for key, body in files.items():
        (tmp_path / key).write_bytes(body)
    made = convert.citeseer([tmp_path / key for key in files])
    file = served(mirror, "made.npz", digest(made), convert.citeseer, **files)
    path = fetch_file(file, tmp_path, cache=tmp_path / "cache")
    found = stored(path)
    assert sparse.load_npz(path).toarray().tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert found["y"].tolist() == [0, 1, -1, -1, 1]
    assert found["edges"].tolist() == [[0, 1], [0, 4]]
    assert (found["train_idx"].tolist(), found["test_idx"].tolist()) == ([0], [2, 4])


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(pickle.dumps(print))
    with pytest.raises(pickle.UnpicklingError, match="no place"):
        convert.citeseer([tmp_path / "x"] * 7)


def small(mirror: Path, content: str | None = None) -> DataFile:
    made = pa.table({"sex": ["male"], "age": [6]})
    return served(mirror, "small.parquet", content or digest(made), convert.dutch_census, all=b"sex,age\nmale,6\n")


def test_fetches_once_converts_again_and_leaves_nothing_of_other_bytes_and_values(mirror: Path, tmp_path: Path) -> None:
    file, folder, cache = small(mirror), tmp_path / "new" / "data", tmp_path / "cache"
    for _ in range(2):
        path = fetch_file(file, folder, cache=cache)
        assert path == folder / "small.parquet"
        assert matches(path, file)
    path.unlink()
    (mirror / "all").write_bytes(b"sex,age\nmale,6\nfemale,7\n")
    fetch_file(file, folder, cache=cache)  # what was fetched before is converted again
    assert list(folder.iterdir()) == [path]
    empty = tmp_path / "data"
    refused(DatasetError, "DS009", fetch_file, file, empty, cache=tmp_path / "other")
    refused(DatasetError, "DS006", fetch_file, small(mirror, "0" * 64), empty, cache=tmp_path / "other")
    assert list(empty.iterdir()) == []


def test_nothing_there_and_no_room(mirror: Path, tmp_path: Path) -> None:
    file = small(mirror)
    (mirror / "all").unlink()
    (tmp_path / "file").write_text("")
    refused(DatasetError, "DS008", "404", fetch_file, file, tmp_path, cache=tmp_path / "cache")
    refused(DatasetError, "DS007", fetch_file, file, tmp_path / "file", cache=tmp_path / "cache")


def test_every_data_set_has_public_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in FETCHED.values():
        assert all(one.url.startswith("https://") and len(one.sha256) == 64 for one in file.downloads)
    monkeypatch.delenv("COLONNADE_DATA", raising=False)
    refused(DatasetError, "DS005", fetch_dataset, "adult")
    refused(DatasetError, "DS004", fetch_dataset, "population", tmp_path)


# --- pictures: what the packages hold, line by line, and how it is cut between two parties


def _png(pixels: np.ndarray, kinds: list[int]) -> bytes:
    """A PNG whose lines are filtered as asked; the filters are those of the format's specification."""
    height, width, _ = pixels.shape
    lines = pixels.reshape(height, -1).astype(int)
    coded = b""
    for row, kind in enumerate(kinds):
        line, above = lines[row], lines[row - 1] if row else np.zeros_like(lines[0])
        left, corner = (np.concatenate([np.zeros(3, int), other[:-3]]) for other in (line, above))
        ends = np.stack([left, above, corner])
        nearest = np.abs(left + above - corner - ends).argmin(axis=0)
        guess = [0 * line, left, above, (left + above) // 2, np.take_along_axis(ends, nearest[None], 0)[0]][kind]
        coded += bytes([kind]) + ((line - guess) % 256).astype(np.uint8).tobytes()
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(coded)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I4s", len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def test_every_filter_of_a_png_is_undone() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (10, 7, 3)).astype(np.uint8)
    data = _png(pixels, [4, 1, 2, 3, 4, 0, 4, 3, 1, 2])
    assert np.array_equal(picture_files.png(data, 10), pixels)
    assert np.array_equal(picture_files.png(data, 4), pixels[:4])
    refused(ValueError, "VA274", picture_files.png, data, 11)


def _archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, body in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return path


def test_pictures_come_out_of_their_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    idx = b"\0\0\x08\x03" + struct.pack(">III", 2, 3, 4) + digits.tobytes(), b"\0\0\x08\x01\0\0\0\x02\x07\x01"
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    files = {f"data/{name}": body for name, body in zip(names, idx * 2, strict=True)}
    found = picture_files.mnist([_archive(tmp_path / "m.tgz", files)])
    for part in ("train", "test"):
        assert np.array_equal(found[f"x_{part}"], digits)
        assert found[f"y_{part}"].tolist() == [7, 1]
    monkeypatch.setattr(picture_files, "_CIFAR_TRAIN", 2)
    monkeypatch.setattr(picture_files, "_CIFAR_TEST", 1)
    pixels = np.random.default_rng(2).integers(0, 256, (3, 1024, 3)).astype(np.uint8)
    png, told = _png(pixels, [0, 4, 3]), json.dumps([3, 8, 5]).encode()
    files = {"data_batch_1.png": png, "test_batch.png": png, "train_lables.json": told, "test_lables.json": told}
    colours = picture_files.cifar([_archive(tmp_path / "c.tgz", files)])
    assert np.array_equal(colours["x_train"], pixels[:2].reshape(2, 32, 32, 3))
    assert colours["y_train"].tolist() == [3, 8]


@SLOW
@pytest.mark.parametrize(
    ("name", "parties", "shape"),
    [("mnist", ["left", "right"], (28, 14)), ("cifar-10", ["upper", "lower"], (16, 32, 3))],
)
def test_two_parties_hold_a_half_each(name: str, parties: list[str], shape: tuple[int, ...], data_dir: Path) -> None:
    train, test = load_halves(name, folder=data_dir, rows=300)
    assert list(train.parts) == parties
    for halves in (train, test):
        assert all(halves.shapes[party] == shape for party in parties)
        assert all(part.shape == (300, np.prod(shape)) for part in halves.parts.values())
        assert sorted(set(halves.labels.tolist())) == list(range(10))
    refused(DatasetError, "DS014", "mnist", "cifar-10", load_halves, "nus-wide", folder=data_dir)
