"""Data sets over a loopback server: what arrives is checked, converted, checked again and kept."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

from colonnade.errors import DatasetError
from research.datasets import FETCHED, convert, fetch_dataset
from research.datasets.fetch import fetch_file
from research.datasets.sources import DataFile, Download, digest, matches, stored
from tests.support.errors import raises

ADULT = b"39, State-gov, 77516, Bachelors, 13, Never-married, ?, Wife, White, Male, 2174, 0, 40, Cuba, %s\n"
NAMES = b"age, workclass, fnlwgt\n"
FLOW = b"0,tcp,http,SF,181,5450" + b",0" * 18 + b",0.5" * 7 + b",9,9" + b",0.25" * 8 + b",%s\n"


class Mirror(BaseHTTPRequestHandler):
    """Serves what it was given, and remembers what it was asked for."""

    content: dict[str, bytes]
    asked: list[str]

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        body = type(self).content.get(self.path)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def mirror() -> Iterator[str]:
    Mirror.content, Mirror.asked = {}, []
    server = HTTPServer(("127.0.0.1", 0), Mirror)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def served(mirror: str, name: str, content: str, make: Any, **files: bytes) -> DataFile:
    """A data set of these files, in this order, at the mirror."""
    downloads = []
    for key, body in files.items():
        Mirror.content[f"/{key}"] = body
        downloads.append(Download(f"{mirror}/{key}", hashlib.sha256(body).hexdigest()))
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
def test_publishers_files_become_tables(name: str, mirror: str, tmp_path: Path) -> None:
    make, files, expected = TABLES[name]
    paths = [tmp_path / key for key in files]
    for path, body in zip(paths, files.values(), strict=True):
        path.write_bytes(body)
    whole = make(paths)
    assert {key: whole[key].to_pylist() for key in expected} == expected
    file = served(mirror, "made.parquet", digest(whole), make, **files)
    path = fetch_file(file, tmp_path / "data", cache=tmp_path / "cache")
    assert pa.parquet.read_table(path).to_pydict() == whole.to_pydict()
    assert Mirror.asked == [f"/{key}" for key in files]


def test_planetoids_files_become_arrays(mirror: str, tmp_path: Path) -> None:
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


def small(mirror: str, content: str | None = None) -> DataFile:
    made = pa.table({"sex": ["male"], "age": [6]})
    return served(mirror, "small.parquet", content or digest(made), convert.dutch_census, all=b"sex,age\nmale,6\n")


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_fetches_once_and_converts_again(mirror: str, tmp_path: Path) -> None:
    file, folder, cache = small(mirror), tmp_path / "new" / "data", tmp_path / "cache"
    for _ in range(2):
        path = fetch_file(file, folder, cache=cache)
        assert path == folder / "small.parquet"
        assert matches(path, file)
    path.unlink()
    fetch_file(file, folder, cache=cache)
    assert Mirror.asked == ["/all"]
    assert left(folder) == ["small.parquet"]


def test_other_bytes_and_other_values_leave_nothing(mirror: str, tmp_path: Path) -> None:
    file = small(mirror)
    Mirror.content["/all"] += b"female,7\n"
    with raises(DatasetError, "DS009"):
        fetch_file(file, tmp_path / "data", cache=tmp_path / "cache")
    with raises(DatasetError, "DS006"):
        fetch_file(small(mirror, "0" * 64), tmp_path / "data", cache=tmp_path / "cache")
    assert left(tmp_path / "data") == []


def test_nothing_nobody_and_no_room(mirror: str, tmp_path: Path) -> None:
    file = small(mirror)
    Mirror.content.clear()
    with raises(DatasetError, "DS008", "404"):
        fetch_file(file, tmp_path, cache=tmp_path / "cache")
    nobody = DataFile("x.parquet", "", "nobody", (Download("http://127.0.0.1:9/x", "0" * 64),), convert.dutch_census)
    with raises(DatasetError, "DS008"):
        fetch_file(nobody, tmp_path, cache=tmp_path / "cache")
    (tmp_path / "file").write_text("")
    with raises(DatasetError, "DS007"):
        fetch_file(file, tmp_path / "file", cache=tmp_path / "cache")


def test_every_data_set_has_public_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in FETCHED.values():
        assert file.downloads
        for one in file.downloads:
            assert one.url.startswith("https://")
            assert len(bytes.fromhex(one.sha256)) == 32
    monkeypatch.delenv("COLONNADE_DATA", raising=False)
    with raises(DatasetError, "DS005"):
        fetch_dataset("adult")
    with raises(DatasetError, "DS004"):
        fetch_dataset("population", tmp_path)
