"""A party's text file is read once: its header, its encoding and its cells come from the same bytes."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import DataError
from colonnade.tables import Schema, files, number, read_table
from colonnade.tables.formats import TextFormat
from colonnade.tables.sources.opening import opened as source_of
from colonnade.tables.stream import TextStream
from tests.support.refusals import refused

SCHEMA = Schema({"age": number(0, 100)})
CELLS = st.text(st.sampled_from('ab"\n\r,; é😀'), max_size=4)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The text files that were opened, and how often."""
    found: list[Path] = []

    class Noted(TextStream):
        def __init__(self, path: Path, text: TextFormat) -> None:
            found.append(path)
            super().__init__(path, text)

    monkeypatch.setattr(files, "TextStream", Noted)
    return found


def test_a_table_is_read_once(tmp_path: Path, opened: list[Path]) -> None:
    path = tmp_path / "bank.csv"
    path.write_text("person_id,age\n1,40\n2,50\n")
    table = read_table(path, SCHEMA, misfits="map")
    table.check()
    assert table.matrix().shape == (2, 1)
    assert opened == [path]


def test_a_table_on_disk_is_read_once_for_its_ids_and_once_for_its_cells(tmp_path: Path, opened: list[Path]) -> None:
    path = tmp_path / "bank.csv"
    path.write_text("person_id,age\n1,40\n2,50\n")
    table = read_table(path, SCHEMA, misfits="map", on_disk=True)
    assert len(opened) == 2, "the header first, so that a column that is missing costs nothing"
    table.check()
    assert len(opened) == 3


def test_files_of_a_folder_are_read_once_after_their_headers(tmp_path: Path, opened: list[Path]) -> None:
    paths = [tmp_path / "d" / name for name in ("a.csv", "b.csv")]
    paths[0].parent.mkdir()
    for path in paths:
        path.write_text(f"person_id,age\n{path.stem},40\n")
    table = read_table(tmp_path / "d", SCHEMA)
    table.check()
    assert opened == [*paths, *paths], "the headers first, so that files that differ are found before any row is read"


def test_counting_reads_lines_once_or_rows_where_cells_are_quoted(tmp_path: Path, opened: list[Path]) -> None:
    plain, quoted = tmp_path / "d" / "plain.csv", tmp_path / "d" / "quoted.csv"
    plain.parent.mkdir()
    plain.write_text("person_id,age\n1,40\n2,50\n")
    assert source_of(plain).count() == 2
    assert opened == [plain]
    quoted.write_text('person_id,age\n"3\n",40\n')
    opened.clear()
    assert source_of(plain.parent).count() == 3
    assert opened == [plain, quoted, quoted, quoted], "its lines, its header and its rows"


def test_what_is_not_text_is_found_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK", 64)
    for place in range(90, 200, 7):
        path = tmp_path / "bank.csv"
        rows = b"person_id,age\n" + b"".join(b"%d,40\n" % row for row in range(100, 160))
        path.write_bytes(rows[:place] + b"\xff" + rows[place:])
        for on_disk in (False, True):
            refused(DataError, ("DA270", "LATIN-1"), read_table, path, SCHEMA, on_disk=on_disk)


def test_the_encoding_is_said_before_a_row_that_is_too_short(tmp_path: Path) -> None:
    path = tmp_path / "bank.csv"
    path.write_bytes(b"person_id,age\n1\n2,\xe4\n")
    for on_disk in (False, True):
        refused(DataError, ("DA270", "LATIN-1"), read_table, path, SCHEMA, on_disk=on_disk)
    path.write_bytes(b"person_id,age\n1\n2,40\n")
    for on_disk in (False, True):
        refused(DataError, ("DA163", "1"), read_table, path, SCHEMA, on_disk=on_disk)


def test_a_file_that_ends_within_a_character_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bank.csv"
    path.write_bytes("person_id,age\n1,4é".encode()[:-1])
    refused(DataError, "DA269", read_table, path, SCHEMA)


@settings(max_examples=200)
@given(
    text=st.text(st.sampled_from("aé😀\r\n"), max_size=30), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5)
)
def test_parts_are_whole_and_together_the_text(
    tmp_path_factory: pytest.TempPathFactory, text: str, sizes: list[int]
) -> None:
    for encoding in ("utf-8", "utf-16"):
        path = tmp_path_factory.getbasetemp() / f"text.{encoding}.csv"
        path.write_bytes(text.encode(encoding))
        parts = []
        with TextStream(path, TextFormat(encoding=encoding)) as stream:
            while part := stream.read(most := sizes[len(parts) % len(sizes)]):
                assert len(part) <= most, "Arrow has room for no more"
                parts.append(part)
            assert stream.other is None
        assert b"".join(parts) == text.encode()
        for one, other in pairwise(parts):
            assert not (len(one) > 1 and one.endswith(b"\r") and other.startswith(b"\n"))


@settings(max_examples=300)
@given(
    rows=st.lists(st.tuples(CELLS, CELLS), max_size=6),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    last=st.booleans(),
)
def test_rows_are_counted_as_they_are_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], end: str, last: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "counted.csv"
    lines = ["a,b", *(",".join(row) for row in rows)]
    path.write_text(end.join(lines) + end * last, encoding="utf-8", newline="")
    try:
        read = files.read_columns(path, "x", lambda there: there[:1]).num_rows
    except DataError:
        return
    assert files.count_rows(path, "x") == read


def test_compressed_rows_and_those_of_parquet_are_counted(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    packed = tmp_path / "bank.csv.gz"
    packed.write_bytes(gzip.compress(b"a,b\n1,2\n3,4\n"))
    assert files.count_rows(packed, "x") == 2
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "bank.parquet")
    assert files.count_rows(tmp_path / "bank.parquet", "x") == 3
