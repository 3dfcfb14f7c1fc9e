"""Partitions on disk: every row that has a key is in exactly one, as the whole table has it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.tables import Key, KeyPlan, Schema, Table, category, date, files, flag, number, read_table
from colonnade.tables.cells import InMemory, OnDisk
from colonnade.tables.encode import Misfits
from colonnade.tables.keys import Duplicates
from colonnade.tables.spool import Gathered, Spool, copying, gather, partitions, room, split
from tests.support.errors import raises

SCHEMA = Schema(
    {
        "age": number(0, 100, missing="none"),
        "income": number(0, 5, whole=True, missing="middle"),
        "city": category(["A", "B", "NA"], missing="none"),
        "code": category(["1", "2"], missing="1"),
        "smoker": flag(missing=False),
        "born": date("1950-01-01", "2000-12-31", parts=["days", "month"], format="%d.%m.%Y", missing="none"),
        "since": date("2000-01-01", "2020-12-31", missing="middle"),
    },
    clip=1.5,
)
PLAN = KeyPlan((Key("person_id"),))


def spread(count: int) -> partitions.PartitionOf:
    def of(values: Sequence[bytes]) -> NDArray[np.int64]:
        return np.array([hashlib.sha256(value).digest()[0] % count for value in values], dtype=np.int64)

    return of


def cells(rows: int, seed: int, *, text: bool) -> pa.Table:
    """Typed cells with nulls, dictionaries and values out of bounds, or the same as text."""
    draw = np.random.default_rng(seed)
    days = draw.integers(-8000, 12000, rows).astype("M8[D]")
    found: dict[str, Any] = {
        "person_id": [f"p{i}" for i in draw.permutation(rows)],
        "age": pa.array(draw.uniform(-5, 105, rows).round(3), mask=draw.random(rows) < 0.2),
        "income": pa.array(draw.integers(-1, 7, rows)),
        "city": pa.array(draw.choice(["A", "B", "NA"], rows), mask=draw.random(rows) < 0.2).dictionary_encode(),
        "code": pa.array(draw.integers(1, 3, rows), pa.int8()),
        "smoker": pa.array(draw.integers(0, 2, rows).astype(bool), mask=draw.random(rows) < 0.2),
        "born": pa.array([f"{d.day:02}.{d.month:02}.{d.year}" for d in days.tolist()], mask=draw.random(rows) < 0.2),
        "since": pa.array(draw.integers(11000, 18000, rows).astype("M8[D]"), mask=draw.random(rows) < 0.2),
    }
    table = pa.table(found)
    if not text:
        return table
    return pa.table({name: pa.array([_said(v) for v in table[name].to_pylist()]) for name in table.column_names})


def _said(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def check_same(spool: Spool, whole: Table) -> None:
    """All partitions together are the rows of the table that have keys, each once."""
    assert whole.keys is not None
    keys, rows = whole.keys.values, whole.keys.rows
    matrix, ids, unclipped = whole.matrix(), whole.own_ids, whole.unclipped().select(["age", "born"]).matrix()
    city = whole.column("city")
    seen = list[int]()
    of = spread(spool.count)(keys) if keys else np.empty(0, np.int64)
    for place in range(spool.count):
        part = spool.partition(place)
        mine = rows[of == place]
        assert part.row_numbers.tolist() == (mine + 1).tolist()
        assert part.keys is not None
        assert part.keys.values == [key for key, at in zip(keys, of, strict=True) if at == place]
        assert part.keys.rows.tolist() == list(range(part.rows))
        assert part.keys.names == whole.keys.names
        assert list(part.own_ids) == [ids[int(row)] for row in mine]
        assert (part.source, part.misfits, part.schema, part.named) == (
            whole.source,
            whole.misfits,
            whole.schema,
            whole.named,
        )
        assert spool.lengths[place] == part.rows == len(part)
        np.testing.assert_array_equal(part.matrix(), matrix[mine])
        np.testing.assert_array_equal(part.unclipped().select(["age", "born"]).matrix(), unclipped[mine])
        np.testing.assert_array_equal(part.column("city"), city[mine])
        mixed = np.random.default_rng(place).permutation(part.rows)
        aligned = part.aligned(mixed, [str(i) for i in range(part.rows)])
        np.testing.assert_array_equal(aligned.matrix(), matrix[mine][mixed])
        assert aligned.row_numbers.tolist() == (mine[mixed] + 1).tolist()
        assert part.take_rows(mixed[:3]).row_numbers.tolist() == (mine[mixed[:3]] + 1).tolist()
        seen += mine.tolist()
    assert sorted(seen) == rows.tolist()


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 40), st.integers(0, 2**20), st.sampled_from([1, 2, 3, 8]), st.booleans(), st.data())
def test_partitions_are_the_table(
    tmp_path: Path, rows: int, seed: int, count: int, text: bool, data: st.DataObject
) -> None:
    held = cells(rows, seed, text=text)
    drawn = data.draw(st.lists(st.sampled_from(["", " a ", "a", "b", "é", "c"]), min_size=rows, max_size=rows))
    duplicates = data.draw(st.sampled_from(["first", "drop"]))
    plan = KeyPlan((Key("person_id"), Key("mark", blanks="trim")), cast("Duplicates", duplicates))
    held = held.append_column("mark", pa.array(drawn)).set_column(
        0, "person_id", pa.array([f"p{i % 7}" for i in range(rows)])
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "_BLOCK_ROWS", data.draw(st.sampled_from([1, 7, 1000])))
        patch.setattr(partitions, "_RUN_BYTES", data.draw(st.sampled_from([1, 700, 1 << 20])))
        patch.setattr(partitions, "_LARGE", data.draw(st.sampled_from([0, 1 << 28])))
        whole = read_table(held, SCHEMA, id=None, keys=plan, misfits="map")
        found = gather(held, SCHEMA, plan, tmp_path, id=None, misfits="map")
        assert found.report == whole.check()
        assert whole.keys is not None
        assert (found.rows, found.keys) == (whole.rows, len(whole.keys))
        assert (found.missing, found.repeated) == (whole.keys.missing, whole.keys.repeated)
        if data.draw(st.booleans()):
            spool = found.split(spread(count), count)
        else:
            found.remove()
            spool = split(whole, spread(count), count, tmp_path)
        check_same(Spool.open(spool.folder, SCHEMA), whole)
        spool.remove()
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder"])
def test_files_of_every_kind(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BATCH_ROWS", 64)
    monkeypatch.setattr(copying, "_BLOCK_ROWS", 50)
    monkeypatch.setattr(partitions, "_RUN_BYTES", 10_000)
    held = cells(500, 3, text=kind == "csv")
    path = tmp_path / f"table.{kind}"
    if kind == "csv":
        pa.csv.write_csv(held, path)
    elif kind == "parquet":
        pq.write_table(held, path, row_group_size=77)
    else:
        path.mkdir()
        for part in range(3):
            pq.write_table(held.slice(part * 200, 200), path / f"{part}.parquet")
    whole = read_table(path, SCHEMA, keys=PLAN)
    with removed(gather(path, SCHEMA, PLAN, tmp_path)) as found:
        spool = found.split(spread(8), 8)
        assert len(list(spool.folder.glob("run-*"))) > 2
        assert not list(spool.folder.glob("rows-*")) + list(spool.folder.glob("keys-*"))
        check_same(spool, whole)
        assert found.report == whole.check()


def test_a_large_table_has_larger_runs_instead_of_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert partitions.run_bytes(0) == partitions.run_bytes(1 << 34) == 1 << 26
    assert partitions.run_bytes(1 << 36) == 1 << 28
    assert partitions.run_bytes(1 << 50) == 1 << 28
    assert partitions.run_bytes(1 << 50, 1 << 34) == 1 << 30
    assert 1 << 27 < partitions.run_bytes(1 << 50, 10**9) < 1 << 28
    assert partitions.run_bytes(0, 3 * 10**8) == 1 << 24
    monkeypatch.setattr(copying, "_BLOCK_ROWS", 5)
    monkeypatch.setattr(partitions, "_RUN_BYTES", 1)
    held = cells(500, 3, text=False)
    found = []
    for most in (4, 1000):
        monkeypatch.setattr(partitions, "_RUNS", most)
        with removed(gather(held, SCHEMA, PLAN, tmp_path)) as gathered:
            spool = gathered.split(spread(8), 8)
            found.append(len(list(spool.folder.glob("run-*"))))
            check_same(spool, read_table(held, SCHEMA, keys=PLAN))
    assert 2 <= found[0] <= 4 < found[1] <= 100


class removed:  # noqa: N801 - used as a function
    """The folder is gone at the end."""

    def __init__(self, found: Gathered | Spool) -> None:
        self.found = found

    def __enter__(self) -> Any:
        return self.found

    def __exit__(self, *args: object) -> None:
        self.found.remove()


def test_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "table.csv", files.read_batches
    pa.csv.write_csv(cells(50, 1, text=True), path)
    calls = list[Any]()
    monkeypatch.setattr(files, "read_batches", lambda *given: calls.append(given) or read(*given))
    with removed(gather(path, SCHEMA, PLAN, tmp_path)) as found:
        spool = found.split(spread(4), 4)
        assert sum(len(spool.partition(place).matrix()) for place in range(4)) == 50
    assert len(calls) == 1


BAD = cells(40, 2, text=True).to_pydict()
BAD["age"][20] = "old"
BAD["income"][30] = "much"
BAD["born"][7] = "31.02.1990"
BAD["city"][8] = "Z"
BAD["code"][9] = "7"
BAD["smoker"][10] = "maybe"


@pytest.mark.parametrize("column", ["age", "income", "born", "city", "code", "smoker"])
def test_misfits_are_counted_or_refused_as_in_the_table(tmp_path: Path, column: str) -> None:
    held = pa.table(cells(40, 2, text=True).to_pydict() | {column: BAD[column]})
    with pytest.raises(DataError) as caught:
        gather(held, SCHEMA, PLAN, tmp_path)
    with pytest.raises(DataError) as expected:
        read_table(held, SCHEMA, keys=PLAN).check()
    assert str(caught.value) == str(expected.value)
    assert list(tmp_path.iterdir()) == []
    whole = read_table(held, SCHEMA, keys=PLAN, misfits="map")
    with removed(gather(held, SCHEMA, PLAN, tmp_path, misfits="map")) as found:
        assert found.report == whole.check()
        assert found.report.misfits
        check_same(found.split(spread(4), 4), whole)


def test_missing_cells_that_the_schema_refuses(tmp_path: Path) -> None:
    schema = Schema({"age": number(0, 9), "city": category(["A"]), "smoker": flag()})
    held = pa.table(
        {"person_id": ["a", "b", "c"], "age": ["1", "x", ""], "city": ["", "B", "A"], "smoker": ["yes", "", "2"]}
    )
    for misfits in ("refuse", "map"):
        options: dict[str, Any] = {"misfits": misfits}
        whole = read_table(held, schema, keys=PLAN, **options)
        if misfits == "refuse":
            for raising in (lambda: gather(held, schema, PLAN, tmp_path), whole.check):
                with raises(DataError, "DA200", "age", "2"):
                    raising()
            continue
        with removed(gather(held, schema, PLAN, tmp_path, **options)) as found:
            assert found.report == whole.check()
            spool = found.split(spread(2), 2)
            matrix = np.zeros((3, 3))
            for place in range(2):
                part = spool.partition(place)
                matrix[part.row_numbers - 1] = part.matrix()
            np.testing.assert_array_equal(matrix, whole.matrix())


@pytest.mark.parametrize(
    ("ids", "misfits"),
    [
        (["a", "b", "a", "c", "b", "a"], "refuse"),
        (["a", "a"], "refuse"),
        (["", None], "refuse"),
        (["x"] * 9, "refuse"),
    ],
)
@pytest.mark.parametrize("duplicates", ["refuse", "drop"])
def test_keys_are_refused_in_the_same_words(
    tmp_path: Path, ids: list[str | None], misfits: Misfits, duplicates: Duplicates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_BLOCK_ROWS", 2)
    held = pa.table({"person_id": pa.array(ids, pa.string()), "age": [1.0] * len(ids)})
    schema, plan = Schema({"age": number(0, 9)}), KeyPlan((Key("person_id"),), duplicates)
    said = []
    for read in (
        lambda: gather(held, schema, plan, tmp_path, misfits=misfits).remove(),
        lambda: read_table(held, schema, keys=plan, misfits=misfits),
    ):
        try:
            read()
            said.append("")
        except DataError as error:
            said.append(str(error))
    assert said[0] == said[1]
    assert said[0] or duplicates == "drop"
    assert list(tmp_path.iterdir()) == []


def test_different_keys_of_which_one_number_is_the_same_are_no_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alike(self: object, keys: Any) -> NDArray[np.uint64]:
        last = np.array([key[-1] for key in keys.to_pylist()], np.uint64)
        return np.array([last % 2, np.arange(len(keys))], np.uint64)

    monkeypatch.setattr(copying.Fingerprints, "of", alike)
    held = cells(30, 4, text=False)
    with removed(gather(held, SCHEMA, PLAN, tmp_path)) as found:
        assert (found.keys, found.repeated) == (30, 0)
        check_same(found.split(spread(4), 4), read_table(held, SCHEMA, keys=PLAN))


def test_nobody_has_a_key(tmp_path: Path) -> None:
    held = pa.table({"person_id": ["", ""], "age": [1.0, 2.0]})
    schema = Schema({"age": number(0, 9)})
    with removed(gather(held, schema, PLAN, tmp_path, misfits="map")) as found:
        spool = found.split(spread(2), 2)
        assert spool.lengths.tolist() == [0, 0]
        part = Spool.open(spool.folder, schema).partition(1)
        assert (part.rows, part.matrix().shape, part.row_numbers.tolist(), list(part.own_ids)) == (0, (0, 1), [], [])
        assert part.aligned([], []).matrix().shape == (0, 1)


OPEN = """
import json, sys
from colonnade.tables import Schema
from colonnade.tables.spool import Spool
part = Spool.open(sys.argv[1], Schema.load(sys.argv[2])).partition(int(sys.argv[3]))
print(json.dumps([part.keys.names, [v.hex() for v in part.keys.values], part.row_numbers.tolist(), list(part.own_ids),
    part.source, part.misfits, part.matrix().tolist()]))
"""


def test_another_process_opens_one_partition(tmp_path: Path) -> None:
    schema = SCHEMA.save(tmp_path / "schema.toml")
    whole = read_table(cells(40, 8, text=True), SCHEMA, keys=PLAN, name="table of ours")
    with removed(split(whole, spread(4), 4, tmp_path)) as spool:
        command = [sys.executable, "-c", OPEN, str(spool.folder), str(schema), "2"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        part = spool.partition(2)
        assert part.rows > 0
        assert json.loads(said) == [
            ["person_id"],
            [value.hex() for value in part.keys.values],
            part.row_numbers.tolist(),
            list(part.own_ids),
            "table of ours",
            "refuse",
            part.matrix().tolist(),
        ]
        assert spool.folder.exists()


def test_errors_of_a_partition_name_rows_of_the_file(tmp_path: Path) -> None:
    whole = read_table(cells(40, 8, text=False), SCHEMA, keys=PLAN)
    with removed(split(whole, spread(4), 4, tmp_path)) as spool:
        narrow = Schema({"income": number(0, 5), "city": category(["A"])})
        part = spool.partition(1)
        part.schema = narrow
        row = next(n for n in part.row_numbers.tolist() if cells(40, 8, text=False)["city"][n - 1].as_py() == "B")
        with raises(DataError, "DA193", "city", row):
            part.check()


def test_the_folder_is_private_and_goes_away(tmp_path: Path) -> None:
    parent = tmp_path / "made" / "for it"
    found = gather(cells(9, 1, text=False), SCHEMA, PLAN, parent)
    spool = found.split(spread(4), 4)
    assert stat.S_IMODE(spool.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in spool.folder.iterdir()} == {0o600}
    other = split(read_table(cells(9, 1, text=False), SCHEMA, keys=PLAN), spread(4), 4, parent)
    assert spool.folder.exists()  # another spool deletes none that is in use
    assert other.folder != spool.folder
    if (child := os.fork()) == 0:  # a child that ends leaves its parent's folder alone
        spool.remove()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert spool.folder.exists()
    other.remove()
    folder = spool.folder
    del found, spool
    assert not folder.exists()
    assert list(parent.iterdir()) == []


def test_no_mask_opens_the_folder_to_others_and_none_is_made_where_others_can_rename_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        parent = tmp_path / "made" / "for it"
        with removed(gather(cells(9, 1, text=False), SCHEMA, PLAN, parent)) as found:
            spool = found.split(spread(2), 2)
            inside = [parent.parent, parent, spool.folder, *spool.folder.iterdir()]
            assert {stat.S_IMODE(path.stat().st_mode) & 0o77 for path in inside} == {0}
    finally:
        os.umask(before)
    parent.chmod(0o777)
    with raises(DataError, "DA267"):
        gather(cells(9, 1, text=False), SCHEMA, PLAN, parent)
    parent.chmod(0o1777)  # as /tmp has it
    gather(cells(9, 1, text=False), SCHEMA, PLAN, parent).remove()
    assert list(parent.iterdir()) == []


def test_links_among_what_was_left_are_not_followed(tmp_path: Path) -> None:
    parent, precious = tmp_path / "spool", tmp_path / "precious"
    left = parent / ".colonnade-spool.abcdefgh.new"
    left.mkdir(parents=True)
    precious.mkdir()
    (precious / "file").write_text("kept")
    (parent / ".colonnade-spool.hgfedcba.new").symlink_to(precious)
    (left / "inside").symlink_to(precious)
    gather(cells(9, 1, text=False), SCHEMA, PLAN, parent).remove()
    assert not left.exists()
    assert (precious / "file").read_text() == "kept"


FULL = """
import resource, sys, pyarrow as pa
from colonnade.errors import DataError
from colonnade.tables import Key, KeyPlan, Schema, number
from colonnade.tables.spool import gather
people = pa.table({"person_id": [str(i) for i in range(20000)], "x": [0.5] * 20000})
schema, plan = Schema({"x": number(0, 1)}), KeyPlan((Key("person_id"),))
found = gather(people, schema, plan, sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for made in (lambda: gather(people, schema, plan, sys.argv[1]), lambda: found.split(lambda keys: [0] * len(keys), 1)):
    try:
        made()
    except DataError as error:
        print(error)
"""


def test_the_system_allows_no_larger_file(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], check=True, capture_output=True, text=True)
    assert done.stdout.count(f"cannot be written to {tmp_path}") == 2
    assert done.stdout.count("File too large") == 2
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys, pyarrow as pa
from colonnade.tables import Key, KeyPlan, Schema, number
from colonnade.tables.spool import gather
people = pa.table({"person_id": ["a"], "x": [0.5]})
found = gather(people, Schema({"x": number(0, 1)}), KeyPlan((Key("person_id"),)), sys.argv[1])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    (tmp_path / "mine").mkdir()
    with removed(gather(cells(9, 1, text=False), SCHEMA, PLAN, tmp_path)):
        assert not left.exists()
        assert (tmp_path / "mine").exists()


class _Full:
    """A file on a full disk."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.closed = False

    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Full:
        return self

    def __exit__(self, *args: object) -> None:
        self._file.close()


@pytest.mark.parametrize(
    "which",
    [
        "rows-000000.arrow",
        "seed",
        "keys-000000",
        "dropped-000000",
        "run-000000.arrow",
        "run-000000.index",
        "index",
        "spool.json",
    ],
)
def test_a_full_disk_is_a_sentence_that_names_the_folder(
    tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, held = room._create, cells(9, 1, text=False)
    twice, plan = pa.concat_tables([held, held]), KeyPlan(PLAN.keys, "first")

    def full(path: Path) -> Any:
        return _Full(create(path)) if path.name.startswith(f".{which}.") else create(path)

    monkeypatch.setattr(room, "_create", full)
    with raises(DataError, "DA266", "No space left on device") as caught:
        gather(twice, SCHEMA, plan, tmp_path).split(spread(2), 2)
    assert str(tmp_path) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with raises(DataError, "DA266", tmp_path):
        gather(cells(9, 1, text=False), SCHEMA, PLAN, tmp_path / "file" / "inside")


def test_folders_that_hold_something_else(tmp_path: Path) -> None:
    with raises(DataError, "DA262"):
        Spool.open(tmp_path, SCHEMA)
    for text in ("[]", "{}", '{"format": "colonnade spool 1"}', "x"):
        (tmp_path / "spool.json").write_text(text)
        with raises(DataError, "DA262|VA245"):
            Spool.open(tmp_path, SCHEMA)
    with removed(gather(cells(9, 1, text=False), SCHEMA, PLAN, tmp_path)) as found:
        spool = found.split(spread(2), 2)
        with raises(DataError, "DA263"):
            Spool.open(spool.folder, SCHEMA.without(["age"]))
        with pytest.raises(IndexError):
            spool.partition(2)
        (spool.folder / "run-000000.arrow").write_bytes(b"x")
        with raises(DataError, "DA264"):
            spool.partition(0)


def test_partitions_that_are_none_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    whole = read_table(cells(9, 1, text=False), SCHEMA, keys=PLAN)
    for of, count in ((spread(9), 2), (spread(1), 0), (spread(1), 1 << 17)):
        with raises(ValueError, "VA247|VA248"):
            split(whole, of, count, tmp_path)
    with raises(ValueError, "VA244"):
        split(read_table(cells(9, 1, text=False), SCHEMA), spread(2), 2, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_large_partitions_stay_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_table(cells(50, 1, text=False), SCHEMA, keys=PLAN)
    spool = split(whole, spread(2), 2, tmp_path)
    assert isinstance(spool.partition(0)._cells, InMemory)
    monkeypatch.setattr(partitions, "_LARGE", 100)
    part = spool.partition(0)
    assert isinstance(part._cells, OnDisk)
    del spool  # the folder stays until nobody reads from it
    assert len(part.matrix()) == part.rows > 0
    del part
    assert list(tmp_path.iterdir()) == []


def test_how_numbers_are_written_matters_only_to_the_head(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("person_id;age;none;city\na;1,5;;A\nb;;;B\nc;9,25;;A\n")
    schema = Schema(
        {"age": number(0, 9, missing="low"), "none": number(0, 1, missing="low"), "city": category(["A", "B"])}
    )
    written: dict[str, Any] = {"separator": ";", "decimal": ","}
    whole = read_table(path, schema, keys=PLAN, **written)
    with removed(gather(path, schema, PLAN, tmp_path, **written)) as found:
        assert found.report == whole.check()
        part = Spool.open(found.split(spread(1), 1).folder, schema).partition(0)
        np.testing.assert_array_equal(part.matrix(), whole.matrix())


def test_columns_without_a_type_and_of_unusual_types(tmp_path: Path) -> None:
    schema = Schema(
        {
            "none": number(0, 1, missing="low"),
            "some": category(["A", "B"], missing="none"),
            "no": flag(missing=True),
            "exact": number(0, 9),
            "coded": number(0, 9),
            "born": date("1950-01-01", "2000-12-31", parts=["days", "weekday"]),
        }
    )
    nothing = pa.nulls(3)
    held = pa.table(
        {
            "person_id": pa.array(["a", "b", "c"], pa.string_view()),
            "none": nothing,
            "some": nothing,
            "no": nothing,
            "exact": pa.array([1, 2, 3]).cast(pa.decimal128(21, 2)),
            "coded": pa.array([4, 5, 4]).dictionary_encode(),
            "born": pa.array([0, 86_400, 172_800], pa.timestamp("s")),
        }
    )
    whole = read_table(held, schema, keys=PLAN)
    with removed(gather(held, schema, PLAN, tmp_path)) as found:
        assert found.report == whole.check()
        part = found.split(spread(1), 1).partition(0)
        np.testing.assert_array_equal(part.matrix(), whole.matrix())
        assert list(part.own_ids) == ["a", "b", "c"]


def test_many_partitions_take_few_files(tmp_path: Path) -> None:
    held = cells(200, 1, text=False)

    def of(values: Sequence[bytes]) -> NDArray[np.int64]:
        return np.array([int.from_bytes(hashlib.sha256(value).digest()[:2], "big") for value in values])

    with removed(gather(held, SCHEMA, PLAN, tmp_path)) as found:
        spool = found.split(of, partitions.MOST)
        assert len(list(spool.folder.iterdir())) == 3
        assert spool.lengths.sum() == 200
        (last,) = (int(np.flatnonzero(spool.lengths)[-1]),)
        assert spool.partition(last).rows == spool.lengths[last]


def test_a_source_that_gives_its_rows_once(tmp_path: Path) -> None:
    held = cells(30, 5, text=False)

    class Once:
        columns = held.column_names
        taken = 0

        def __arrow_c_stream__(self, requested: object = None) -> Any:
            self.taken += 1
            return held.__arrow_c_stream__(requested)

    once = Once()
    with removed(gather(once, SCHEMA, PLAN, tmp_path)) as found:
        check_same(found.split(spread(4), 4), read_table(held, SCHEMA, keys=PLAN))
    assert once.taken == 1


def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = tmp_path / "table.csv", files.read_batches
    pa.csv.write_csv(cells(50, 1, text=True), path)

    def touched(*given: Any) -> Iterator[pa.RecordBatch]:
        yield from read(*given)
        os.utime(path, ns=(1, 1))

    monkeypatch.setattr(files, "read_batches", touched)
    with raises(DataError, "DA203"):
        gather(path, SCHEMA, PLAN, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["table.csv"]
