"""A table that several processes read, check and split is the one that a single process does, or the same error."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from colonnade.errors import DataError
from colonnade.protocols.lanes.partitions import Partitions
from colonnade.study.lanes.helping import SpreadFrom
from colonnade.tables import Key, KeyPlan, Schema, flag, number, read_table
from colonnade.tables.encode import Misfits
from colonnade.tables.formats import TextFormat
from colonnade.tables.keys import Duplicates
from colonnade.tables.sources import pieces
from colonnade.tables.sources.opening import opened
from colonnade.tables.sources.pieces import Part, Piece, Stretch
from colonnade.tables.sources.stored import StoredFile
from colonnade.tables.spool import Spool, copying, gather, repeated
from colonnade.tables.spool.chores import Chore, Hands, all_done
from colonnade.tables.spool.fingerprints import Fingerprints
from colonnade.tables.spool.room import Room, whole
from tests.support.errors import check_said, refused
from tests.support.tables import in_folder, in_texts, put, small_pieces

SCHEMA = Schema({"age": number(0, 99, missing="none"), "ill": flag(missing=False)})
PLAN = KeyPlan((Key("person_id"),))
SPREAD = Partitions(4, bytes(range(32)))


def again(value: Any) -> Any:
    """As another process gets it."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301


class Others:
    """Hands that get chores as other processes do; which one ends first, fails or is done twice is drawn."""

    def __init__(self, seed: int = 0, failing: float = 0.0, at_once: int = 3) -> None:
        self._draw, self._failing, self._at_once = random.Random(seed), failing, at_once  # noqa: S311
        self.done = list[str]()

    def __call__(self, chores: Sequence[Chore]) -> Iterator[tuple[int, Any]]:
        waiting, begun, failed = list(range(len(chores))), list[int](), False
        while begun or (waiting and not failed):
            while waiting and not failed and len(begun) < self._at_once:
                begun.append(waiting.pop(0))
            place = begun.pop(self._draw.randrange(len(begun)))
            try:
                for _ in range(self._draw.choice([1, 1, 2])):
                    found = again(again(chores[place]).done())
                if self._draw.random() < self._failing:
                    raise OSError
            except Exception:
                failed = True
                continue
            self.done.append(type(chores[place]).__name__)
            yield place, found


def in_partitions(source: Any, plan: KeyPlan, folder: Path, hands: Hands, misfits: Misfits = "map") -> Any:
    """Everything about a table in partitions, in the order in which it lies there."""
    found = gather(source, SCHEMA, plan, folder, misfits=misfits, hands=hands)
    spread = SpreadFrom.written(SPREAD, found.folder)
    spool = found.split(spread, spread.count, hands)
    spread.forget()
    assert {path.name.split("-")[0] for path in found.folder.iterdir()} <= {"index", "run", "spool.json"}
    tables = [Spool.open(found.folder, SCHEMA).partition(place) for place in range(spool.count)]
    told = [
        (table.row_numbers.tolist(), table.keys.values, list(table.own_ids), table.matrix().tolist())
        for table in tables
        if table.keys is not None
    ]
    found.remove()
    return told, found.report, (found.rows, found.keys, found.missing, found.repeated)


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 40), st.integers(0, 2**20), st.sampled_from(["csv", "parquet"]), st.data())
def test_whoever_reads_and_splits_it(tmp_path: Path, rows: int, seed: int, kind: str, data: st.DataObject) -> None:
    some = st.sampled_from(["", "a", "b", *(f"p{i}" for i in range(60))])
    table = in_texts(rows, seed, data.draw(st.lists(some, min_size=rows, max_size=rows)))
    edges = sorted(data.draw(st.lists(st.integers(0, rows), max_size=4)))
    duplicates = cast("Duplicates", data.draw(st.sampled_from(["first", "drop"])))
    plan = KeyPlan(PLAN.keys, duplicates)
    folder = in_folder(table, tmp_path / f"{len(list(tmp_path.iterdir()))}", edges, kind)
    read = read_table(folder, SCHEMA, keys=plan, misfits="map")
    expected = in_partitions(whole_of(folder), plan, tmp_path / "spool", lambda chores: iter(()))
    with pytest.MonkeyPatch.context() as patch:
        small_pieces(patch, data.draw(st.sampled_from([1, 300, 1 << 24])), data.draw(st.sampled_from([2, 5, 1000])))
        hands = Others(seed, data.draw(st.sampled_from([0.0, 0.3, 1.0])), data.draw(st.integers(1, 5)))
        assert in_partitions(folder, plan, tmp_path / "spool", hands) == expected
    told, report, counts = expected
    assert report == read.check()
    assert counts == (read.rows, len(read.keys), read.keys.missing, read.keys.repeated)
    assert sorted(row for rows, *_ in told for row in rows) == (read.keys.rows + 1).tolist()


def whole_of(folder: Path) -> pa.Table:
    """The same rows in memory, which are read by the head alone."""
    return opened(folder, str(folder)).whole(list)


@pytest.mark.parametrize(("kind", "copies"), [("csv", 3), ("parquet", 15), ("one file", 7)])
def test_workers_have_all_of_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, copies: int) -> None:
    table, hands = in_texts(50 if kind == "one file" else 90, 3), Others()
    if kind == "one file":
        put(table, tmp_path / "table.parquet", 8)
    source = Path("table.parquet") if kind == "one file" else in_folder(table, tmp_path / "t", [30, 60], kind)
    expected, *_ = in_partitions(table, PLAN, tmp_path, lambda chores: iter(()))
    small_pieces(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert in_partitions(source, PLAN, tmp_path, hands)[0] == expected
    assert {"Copy", "Seek", "Place"} == set(hands.done)
    assert hands.done.count("Copy") == copies


def test_pieces_of_about_the_same_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = in_folder(in_texts(1000, 1), tmp_path / "t", [10, 20, 500], groups=100)
    source = opened(folder)
    assert len(source.pieces(["age"])) == 1
    monkeypatch.setattr(pieces, "_PIECE_BYTES", 3000)
    found = source.pieces(["age"])
    assert 1 < len(found) < 12
    ages = [age for piece in found for batch in piece.batches(["age"]) for age in batch["age"].to_pylist()]
    assert ages == in_texts(1000, 1)["age"].to_pylist()
    assert pieces.piece_bytes(1 << 50) == 1 << 28
    assert opened(in_texts(9, 1)).pieces(["age"]) == []


def refusals(folder: Path, place: Path, plan: KeyPlan = PLAN) -> set[str]:
    """What is said if the head reads alone, with hands, with hands that fail, and without partitions."""
    reads: list[Callable[[], Any]] = [
        lambda: gather(folder, SCHEMA, plan, place, hands=Others(3)),
        lambda: gather(folder, SCHEMA, plan, place, hands=Others(4, failing=0.5, at_once=9)),
        lambda: gather(folder, SCHEMA, plan, place),
        lambda: gather(whole_of(folder), SCHEMA, plan, place, name=str(folder)),
        lambda: read_table(folder, SCHEMA, keys=plan).check(),
    ]
    said = {refused(DataError, (), read) for read in reads}
    assert list(place.iterdir()) == []
    return said


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_bad_cell_in_the_third_file_and_files_that_are_broken_or_lack_a_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    table = in_texts(60, 2).to_pydict()
    table["age"][47], table["ill"][58] = "old", "perhaps"
    folder = in_folder(pa.table(table), tmp_path / "t", [20, 40], kind)
    small_pieces(monkeypatch)
    (said,) = refusals(folder, tmp_path / "spool")
    assert said.startswith(f"{folder}: column 'age', row 48: the cell is not a number; write it with digits")
    in_folder(in_texts(60, 2).drop_columns(["age"]), folder, [20, 40], kind)
    (said,) = refusals(folder, tmp_path / "spool")
    assert "column 'age' is not there" in said
    if kind == "csv":
        in_folder(in_texts(60, 2), folder, [20, 40], kind)
        with (folder / "1.csv").open("a") as file:
            file.write('"x","1"\n')
        (said,) = refusals(folder, tmp_path / "spool")
        check_said(said, "DA163", f"{folder}/1.csv: ", "21")


IDS = [f"p{i}" for i in range(60)]
REPEATED = {
    "rows 8, 45: the key in 'person_id' occurs more than once": ([*IDS[:44], IDS[7], *IDS[45:]], "refuse"),
    "rows 8, 11, 12, 13, 14 and 17 more: the key in": (
        [*IDS[:44], IDS[7], *IDS[45:50], *IDS[10:20]],
        "refuse",
    ),
    "no row has a key": ([""] * 60, "refuse"),
    "no row is left, because every key": (["a"] * 60, "drop"),
}


@pytest.mark.parametrize("said", REPEATED)
def test_keys_that_are_repeated_in_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    ids, rule = REPEATED[said]
    folder = in_folder(in_texts(60, 2, ids), tmp_path / "t", [20, 40])
    small_pieces(monkeypatch)
    (found,) = refusals(folder, tmp_path / "spool", KeyPlan(PLAN.keys, rule))
    assert f"{folder}: {said}" in found


@pytest.mark.parametrize("rule", ["refuse", "first", "drop"])
def test_a_key_that_most_rows_have_takes_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: Duplicates
) -> None:
    ids = [f"p{i}" if i % 10 == 0 else "none" for i in range(4000)]
    folder = in_folder(in_texts(4000, 2, ids), tmp_path / "t", [1000, 3000], groups=4000)
    monkeypatch.setattr(pieces, "_PIECE_BYTES", 1)
    monkeypatch.setattr(copying, "_BLOCK_ROWS", 100)
    monkeypatch.setattr(copying, "_RUN_KEYS", 100)
    monkeypatch.setattr(repeated, "_ROWS", 100)
    sorts, sort = list[int](), np.sort

    def noted(some: Any) -> Any:
        sorts.append(len(some))
        return sort(some)

    monkeypatch.setattr(np, "sort", noted)
    plan = KeyPlan(PLAN.keys, rule)
    if rule == "refuse":
        refused(
            DataError,
            ("DA181", "2, 3, 4, 5, 6 and 3595"),
            gather,
            folder,
            SCHEMA,
            plan,
            tmp_path / "spool",
            hands=Others(1),
            misfits="map",
        )
    else:
        read = read_table(folder, SCHEMA, keys=plan, misfits="map")
        told, _, counts = in_partitions(folder, plan, tmp_path / "spool", Others(1))
        assert sorted(row for rows, *_ in told for row in rows) == (read.keys.rows + 1).tolist()
        assert counts[2:] == (0, 3600 - (rule == "first"))
    assert sorts
    assert max(sorts) < 1000


@pytest.mark.parametrize("which", ["touched", "added", "removed"])
def test_files_that_change_meanwhile_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    folder = in_folder(in_texts(60, 2), tmp_path / "t", [20, 40])
    small_pieces(monkeypatch)
    others = Others()

    def hands(chores: Sequence[Chore]) -> Iterator[tuple[int, Any]]:
        for found in others(chores):
            yield found
            if which == "touched":
                os.utime(folder / "2.parquet", ns=(1, 1))
            elif which == "removed":
                (folder / "2.parquet").unlink(missing_ok=True)
            else:
                pq.write_table(in_texts(5, 1), folder / "3.parquet")

    refused(DataError, "DA203", gather, folder, SCHEMA, PLAN, tmp_path / "spool", hands=hands)
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_file_that_was_not_written_whole_has_no_name(tmp_path: Path) -> None:
    def fail(file: Any) -> None:
        file.write(b"half")
        raise KeyError

    with pytest.raises(KeyError), whole(tmp_path, "run") as file:
        fail(file)
    assert list(tmp_path.iterdir()) == []
    for text in (b"one", b"one"):
        with whole(tmp_path, "run") as file:
            file.write(text)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"one"]


def test_a_folder_to_which_a_late_worker_writes_is_removed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, rmdir, late = Room(tmp_path), os.rmdir, ["rows-000003.arrow", "keys-000003"]

    def interrupted(path: Any, **named: Any) -> None:
        if late:
            (found.path / late.pop()).write_bytes(b"of somebody who was told to end")
        rmdir(path, **named)

    monkeypatch.setattr(os, "rmdir", interrupted)
    found.remove()
    assert not late
    assert list(tmp_path.iterdir()) == []


def test_what_is_sent_to_workers_holds_neither_the_store_nor_the_key(tmp_path: Path) -> None:
    class Store:
        holds = "hunter2"

        def __reduce__(self) -> Any:
            raise TypeError("with its credentials")

    file = StoredFile(Store(), "bucket/a.parquet", 1, 2)
    piece = Piece(
        opened(in_texts(1, 1), "t"), [Stretch(Part(file, "a", None), ("age",))], TextFormat(), address="s3://b/"
    )
    sent = pickle.dumps(piece)
    assert b"hunter2" not in sent
    assert again(piece)._stretches[0].part.at.store is None
    spread = SpreadFrom.written(SPREAD, tmp_path)
    assert spread([b"a", b"b"]).tolist() == SPREAD.of([b"a", b"b"]).tolist()
    assert SPREAD.key not in pickle.dumps(spread)
    assert again(spread)([b"a"]).tolist() == SPREAD.of([b"a"]).tolist()
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]
    spread.forget()
    assert list(tmp_path.iterdir()) == []


def test_what_hands_fail_at_is_done_here_in_order() -> None:
    class Told:
        def __init__(self, number: int, before: int = -1) -> None:
            self.number, self.before = number, before

        def after(self, before: Sequence[Any]) -> Told:
            assert [each[0] for each in before] == list(range(self.number))
            return Told(self.number, len(before))

        def done(self) -> tuple[int, int]:
            return self.number, self.before

    def even(chores: Sequence[Chore]) -> Iterator[tuple[int, Any]]:
        first = cast("Told", chores[0]).number
        return iter([(place, chores[place].done()) for place in (0, 2) if first % 2 == 0 and place < len(chores)])

    assert all_done([Told(number) for number in range(6)], even) == [(0, -1), (1, 1), (2, -1), (3, 3), (4, -1), (5, 5)]
    assert all_done([Told(0)], even) == [(0, 0)]
    assert all_done([], even) == []


def test_fingerprints_are_equal_where_keys_are_and_their_seeds_are_drawn(tmp_path: Path) -> None:
    found = set()
    for _ in range(2):
        Fingerprints.begin(tmp_path)
        found.add((tmp_path / "seed").read_bytes())
    assert [len(seed) for seed in found] == [32, 32]
    Fingerprints.end(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "seed").write_bytes(bytes(32))  # by chance, a few thousand keys may be spread less evenly than below
    keys = [
        f"{len(text):04}{text}".encode() for text in ("a", "b", "ab", "ba", "", "x" * 500, "a", "x" * 500, "y" * 70)
    ]
    found = Fingerprints(tmp_path).of(pa.array(keys, pa.large_binary())).T.tolist()
    for one, key in zip(found, keys, strict=True):
        for other, another in zip(found, keys, strict=True):
            assert (one == other) == (key == another)
            assert (one[0] == other[0]) == (one[1] == other[1]) == (key == another)
    sliced = pa.array([b"begin", *keys, b"end"], pa.large_binary()).slice(1, len(keys))
    assert Fingerprints(tmp_path).of(sliced).T.tolist() == found
    many = Fingerprints(tmp_path).of(pa.array([f"{i:09}".encode() for i in range(20_000)], pa.large_binary()))
    assert len(np.unique(many[0])) == 20_000
    assert np.bincount((many[0] >> np.uint64(60)).astype(int), minlength=16).max() < 2 * 20_000 / 16
