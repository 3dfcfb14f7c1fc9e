"""Text files as people have them: other separators, encodings and decimal signs, read once, counted and surveyed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from colonnade import Party, Schema, category, date, flag, number, read_table
from colonnade.errors import DataError, SchemaError
from colonnade.tables import draft_schema, files
from colonnade.tables.cell_parsing import TextFormat
from colonnade.tables.files import TextStream
from colonnade.tables.profiling import MAX_BARS, TableProfile, profile_table
from colonnade.tables.sources.factory import open_source as source_of, read_columns
from tests.support.errors import refused
from tests.support.tables import put

GERMAN = "person_id;größe;stadt;neu\r\nä1;1,75;Köln;ja ist\r\nß2;1,8;Ulm;nein\r\nü3;-2,5e-1;Köln;nein\r\n"
COLUMNS = {"größe": number(-1, 3), "stadt": category(["Köln", "Ulm"])}


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """A file with this text."""

    def write(text: str | bytes, encoding: str = "utf-8", name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return path

    return write


@pytest.mark.parametrize("encoding", ["latin-1", "windows-1252", "utf-16", "utf-16-le", "utf-8", "utf-8-sig", "cp850"])
def test_the_same_table_in_any_encoding(written: Callable[..., Path], encoding: str) -> None:
    schema = Schema(COLUMNS, separator=";", encoding=encoding, decimal=",")
    for on_disk in (False, True):
        table = read_table(written(GERMAN, encoding), schema, on_disk=on_disk)
        assert list(table.ids) == ["ä1", "ß2", "ü3"]
        assert table.matrix()[:, 0] == pytest.approx(np.array([0.375, 0.4, -0.625]))
        assert table.matrix()[:, 1].tolist() == [1, 0, 1]
        assert table.column("größe")[:, 0] == pytest.approx(table.matrix()[:, 0])


def test_a_party_says_otherwise_than_the_schema_and_decimal_signs_are_for_numbers_alone(
    written: Callable[..., Path],
) -> None:
    path, schema = written(GERMAN, "latin-1"), Schema(COLUMNS, separator="|")
    said: Any = {"separator": ";", "encoding": "latin-1", "decimal": ","}
    assert read_table(path, schema, **said).rows == 3
    party = Party("a", path, schema=schema, id="person_id", **said)
    assert party.table.check().rows == 3
    assert party.schema.text.separator == "|"  # what everybody sees is the schema's
    schema = Schema({"a": category(["1,5", "2"]), "b": flag()}, separator=";", decimal=",")
    assert read_table(written("a;b\n1,5;yes\n2;no\n"), schema, id=None).matrix().tolist() == [[1, 0, 1], [0, 1, 0]]


def test_what_a_schema_says_of_a_file_is_part_of_the_digest_and_what_its_party_says_is_not(tmp_path: Path) -> None:
    plain, other = Schema(COLUMNS), Schema(COLUMNS, separator=";", encoding="latin-1", decimal=",")
    each = [Schema(COLUMNS, **{key: said}) for key, said in other.text.stated.items()]
    assert len({schema.digest for schema in (plain, other, *each)}) == 5
    assert plain == other  # the encoded numbers mean the same
    own = plain.with_text_format(other.text)
    assert own.text == own.select(["größe"]).text == other.text
    assert (own.digest, own.to_toml()) == (plain.digest, plain.to_toml())
    point = other.with_text_format(TextFormat(decimal="."))
    assert (point.text.stated, point.digest) == ({**other.text.stated, "decimal": "."}, other.digest)
    loaded = Schema.load(other.save(tmp_path / "s.toml"))
    assert (loaded.text, loaded.digest) == (other.text, other.digest)
    assert other.select(["größe"]).text == other.without(["größe"]).text == other.with_clip(1).text == other.text
    wrong = other.to_toml().replace('decimal = ","', 'decimal = "x"')
    refused(SchemaError, ("SC049", "s.toml"), Schema.from_toml, wrong, name="s.toml")
    for given_, said in (
        ({"separator": ";;"}, "SC048"),
        ({"separator": "\n"}, "SC048"),
        ({"separator": 5}, "SC048"),
        ({"encoding": "latin1x"}, "SC050"),
        ({"encoding": "rot13"}, "SC050"),
        ({"decimal": "'"}, "SC049"),
    ):
        refused(SchemaError, said, Schema, COLUMNS, **given_)


WORKBOOK, SEMICOLONS = "PK\x03\x04rest of a workbook", {"separator": ";"}


def checked(path: Path, schema: Schema, **said: Any) -> None:
    read_table(path, schema, **said).check()


@pytest.mark.parametrize(
    ("name", "text", "encoding", "said", "cure"),
    [
        ("t.csv", GERMAN, "latin-1", SEMICOLONS, 'looks like LATIN-1; write encoding = "latin-1"'),
        ("t.csv", GERMAN.replace("Köln", "„Köln"), "windows-1252", SEMICOLONS, 'encoding = "windows-1252"'),
        ("t.csv", GERMAN, "utf-16", SEMICOLONS, 'encoding = "utf-16"'),
        ("t.csv", GERMAN, "utf-16-le", SEMICOLONS, 'encoding = "utf-16-le"'),
        ("t.csv", GERMAN, "utf-8", {**SEMICOLONS, "encoding": "utf-16"}, "UTF-16 but looks like UTF-8; write encoding"),
        ("t.csv", GERMAN, "utf-8", {**SEMICOLONS, "encoding": "latin-1"}, "not LATIN-1 but looks like UTF-8; write"),
        ("t.csv", GERMAN, "utf-8", {}, 'by semicolons; write separator = ";"'),
        ("t.csv", GERMAN.replace(";", "\t"), "utf-8", {}, r'by tabs; write separator = "\t"'),
        ("t.csv", GERMAN.replace(",", ".").replace(";", ","), "utf-8", SEMICOLONS, 'write separator = ","'),
        ("t.csv", GERMAN, "utf-8", SEMICOLONS, 'has a comma: say thousands = "," if it stands between'),
        ("t.csv", "", "utf-8", {}, "the file is empty"),
        ("t.csv", WORKBOOK, "latin-1", {}, "spreadsheet (.xlsx, .ods) or a zip archive, which is not read; save"),
        ("t.xls", "\xd0\xcf\x11\xe0rest", "latin-1", {}, "the spreadsheet cannot be read"),
        ("t.csv", GERMAN.replace("person_id", "personid"), "utf-8", SEMICOLONS, "did you mean 'personid'?"),
        ("t.csv", GERMAN.replace("neu", "stadt"), "utf-8", SEMICOLONS, "column 'stadt' appears more than once"),
    ],
)
def test_an_error_names_the_cure(
    written: Callable[..., Path], name: str, text: str, encoding: str, said: dict[str, Any], cure: str
) -> None:
    message = refused(DataError, cure, checked, written(text, encoding, name), Schema(COLUMNS), **said)
    assert "Köln" not in message
    assert "1,75" not in message


@pytest.mark.parametrize(
    ("cells", "decimal", "said"),
    [
        (["1.234.567,5"], ",", 'signs between its thousands; write decimal = "," and thousands = "." in'),
        (["1 234,5"], ",", 'write decimal = "," and thousands = " " in'),
        (["1.5"], ",", "has a point, but decimal"),
        (["2,580"], ".", 'if it is the decimal sign, write decimal = ","'),
        (["1,234,567"], ".", 'signs between its thousands; write thousands = "," in'),
        (["1,234.5"], ".", 'write thousands = "," in'),
        (["1.234,00"], ".", 'write decimal = "," and thousands = "." in'),
        (["1\u202f234"], ".", 'write thousands = " " in'),
        (["1\u2019234"], ".", 'write thousands = "\'" in'),
        (["31.12.2020"], ".", 'looks like a date; declare the column with type = "date"'),
        (["2020-12-31 10:00"], ",", "looks like a date"),
        (["x", "1,5"], ".", "not a number; write it with digits and a decimal point"),
        (["x"], ",", "decimal comma"),
    ],
)
def test_numbers_that_cannot_be_read(written: Callable[..., Path], cells: list[str], decimal: str, said: str) -> None:
    path = written("x\n" + "".join(f'"{cell}"\n' for cell in cells))
    message = refused(DataError, said, checked, path, Schema({"x": number(0, 10)}, decimal=decimal), id=None)
    assert not any(cell in message for cell in cells if cell != "x")


@pytest.mark.parametrize(
    ("cells", "drafted", "value"),
    [
        (["2,580", "1,5"], {"decimal": ","}, 2.58),
        (["2,580", "1,234,567"], {"thousands": ","}, 2580),
        (["2,580", "7.5"], {"thousands": ","}, 2580),
        (["2.580", "0.123"], {}, 2.58),
        (["1.234,00", "7,5"], {"decimal": ",", "thousands": "."}, 1234),
        (["1.234", "1.234.567"], {"decimal": ",", "thousands": "."}, 1234),
        (["1 234", "12"], {"thousands": " "}, 1234),
        (["1\u202f234", "12.5"], {"thousands": " "}, 1234),
        (["1'234", "12"], {"thousands": "'"}, 1234),
        (["-1\u2019234,5", "12"], {"decimal": ",", "thousands": "'"}, -1234.5),
    ],
)
def test_a_draft_finds_signs_between_thousands(
    written: Callable[..., Path], cells: list[str], drafted: dict[str, str], value: float
) -> None:
    path = written("person_id;x\n" + "".join(f"p{row};{cell}\n" for row, cell in enumerate(cells)))
    found = Schema.from_toml(draft_schema(path, id="person_id"), drafts=True)
    assert found.text.stated == {"separator": ";", **drafted}
    wide = Schema({"x": number(-5000, 5000)}, **found.text.stated)
    assert read_table(path, wide).matrix()[0, 0] * 5000 == pytest.approx(value)


@pytest.mark.parametrize(
    ("sign", "fractions", "thousands"),
    [
        (",", {"decimal": ","}, {"thousands": ","}),
        (".", {"decimal": "."}, {"decimal": ",", "thousands": "."}),
    ],
)
def test_a_draft_asks_where_a_sign_can_mean_two_things(
    written: Callable[..., Path], sign: str, fractions: dict[str, str], thousands: dict[str, str]
) -> None:
    cells = [f"{start}{sign}{rest}" for start, rest in ((2, 580), (1, 234), (70, 125))]
    path = written("person_id;y;x\n" + "".join(f"p{row};7;{cell}\n" for row, cell in enumerate(cells)))
    said = [" and ".join(f'{key} = "{each}"' for key, each in one.items()) for one in (fractions, thousands)]
    message = refused(DataError, ("DA740", "t.csv", "'x'", *said), draft_schema, path, id="person_id")
    assert not any(cell in message for cell in cells)
    for meant, high in ((fractions, 71), (thousands, 71_000)):
        found = Schema.from_toml(draft_schema(path, id="person_id", **meant), drafts=True)
        assert found.columns["x"].high == high
        assert read_table(path, found).check().total_clipped == 0


def test_signs_of_numbers_are_one_choice(written: Callable[..., Path]) -> None:
    for said, code in (
        ({"thousands": ";"}, "SC740"),
        ({"thousands": ",", "decimal": ","}, "SC741"),
        ({"thousands": ".", "decimal": "."}, "SC741"),
    ):
        refused(SchemaError, code, Schema, COLUMNS, **said)
    wrong = written('x\n"1,23"\n"0,123"\n"1234,567"\n"12,3456"\n')
    message = refused(DataError, "DA200", checked, wrong, Schema({"x": number(0, 10)}, thousands=","), id=None)
    assert "rows 1, 2, 3, 4" in message


@pytest.mark.parametrize(
    ("cells", "drafted"),
    [
        (["2024-02-28 10:00", "2024-03-01 23:59:59"], 'type = "date"'),
        (["2024-02-28T10:00:00.123456", "2024-03-01"], 'type = "date"'),
        (["28.02.2024 8:00", "31.03.2024 9:00"], 'format = "%d.%m.%Y"'),
        (["2024-02-28T10:00:00Z", "2024-03-01T10:00:00Z"], "x (it has times of a time zone"),
        (["2024-02-28 10:00+01:00", "2024-03-01 10:00+01:00"], "x (it has times of a time zone"),
        (pa.array([0, 86_400_000_001], pa.timestamp("us")), 'type = "date"'),
        (pa.array([0, 86_400_000_001], pa.timestamp("us", "UTC")), "x (it has times of a time zone"),
    ],
)
def test_times_are_drafted_as_dates_and_read_as_days(cells: Any, drafted: str) -> None:
    table = pa.table({"person_id": ["a", "b"], "x": cells})
    draft = draft_schema(table, id="person_id")
    assert drafted in draft
    if "time zone" in drafted:
        return
    assert "times of day as well, which are not read" in draft
    schema = Schema.from_toml(draft, drafts=True)
    first, second = read_table(table, schema).matrix()[:, 0] * (schema.columns["x"].high / 2)
    assert round(second - first) in (1, 2, 32)
    words = pa.table({"person_id": ["a"], "x": ["2024-02-28T10:00:00Z"]})
    refused(DataError, "DA741", read_table(words, Schema({"x": date("2024-01-01", "2024-12-31")})).check)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8"])
def test_a_draft_states_how_the_file_is_written(written: Callable[..., Path], encoding: str) -> None:
    path = written(GERMAN + "x4;1,75;Ulm;nein\r\n", encoding)
    reviewed = Schema.from_toml(draft_schema(path, id="person_id").replace("drafted = true\n", ""))
    assert (reviewed.text.separator, reviewed.text.decimal) == (";", ",")
    assert reviewed.text.encoding == (None if encoding == "utf-8" else encoding)
    assert read_table(path, reviewed).check().rows == 4
    refused(DataError, ("DA154", "person_id"), draft_schema, path, id="personid")
    usual = written("person_id,x,y\na,1.5,u\nb,2,v\nc,3,u\n")
    assert "[table]" not in draft_schema(usual, id="person_id")


# --- a file is read once, after its header: its encoding and its cells come from the same bytes


AGE = Schema({"age": number(0, 100)})
ROWS = "person_id,age\n1,40\n2,50\n"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The text files that were opened, and how often."""
    found: list[Path] = []
    monkeypatch.setattr(files, "TextStream", lambda path, text: found.append(path) or TextStream(path, text))
    return found


def test_how_often_a_file_is_opened(written: Callable[..., Path], opened: list[Path]) -> None:
    path = written(ROWS)
    read_table(path, AGE, misfits="map").check()
    assert opened == [path, path], "the header first, so that a column that is missing costs nothing"
    read_table(path, AGE, misfits="map", on_disk=True).check()
    assert len(opened) == 5
    opened.clear()
    paths = [written(f"person_id,age\n{name},40\n", name=f"d/{name}.csv") for name in ("a", "b")]
    read_table(path.parent / "d", AGE).check()
    assert opened == [*paths, *paths], "the headers first, so that files that differ are found before any row is read"


def test_counting_reads_lines_once_or_rows_where_cells_are_quoted(
    written: Callable[..., Path], opened: list[Path]
) -> None:
    plain = written(ROWS, name="d/plain.csv")
    assert source_of(plain).count() == 2
    assert opened == [plain]
    quoted = written('person_id,age\n"3\n",40\n', name="d/quoted.csv")
    opened.clear()
    assert source_of(plain.parent).count() == 3
    assert opened == [plain, quoted, quoted, quoted], "its lines, its header and its rows"
    assert files.count_rows(written(gzip.compress(ROWS.encode()), name="bank.csv.gz"), "x") == 2
    assert files.count_rows(put(pa.table({"a": [1, 2, 3]}), plain.with_suffix(".parquet")), "x") == 3


def test_what_is_not_text_is_found_anywhere(written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK", 64)
    rows = b"person_id,age\n" + b"".join(b"%d,40\n" % row for row in range(100, 160))
    bad = [(rows[:place] + b"\xff" + rows[place:], ("DA270", "LATIN-1")) for place in range(90, 200, 7)]
    bad += [(b"person_id,age\n1\n2,\xe4\n", ("DA270", "LATIN-1"))]  # said before that a row is too short
    bad += [(b"person_id,age\n1\n2,40\n", ("DA163", "1")), ("person_id,age\n1,4é".encode()[:-1], "DA269")]
    for content, said in bad:
        for on_disk in (False, True):
            refused(DataError, said, read_table, written(content), AGE, on_disk=on_disk)


@settings(max_examples=100)
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
            assert stream.undecodable is None
        assert b"".join(parts) == text.encode()
        for one, other in pairwise(parts):
            assert not (len(one) > 1 and one.endswith(b"\r") and other.startswith(b"\n"))


CELLS = st.text(st.sampled_from('ab"\n\r,; é😀'), max_size=4)


@settings(max_examples=150)
@given(
    rows=st.lists(st.tuples(CELLS, CELLS), max_size=6), end=st.sampled_from(["\n", "\r\n", "\r"]), last=st.booleans()
)
def test_rows_are_counted_as_they_are_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], end: str, last: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "counted.csv"
    lines = ["a,b", *(",".join(row) for row in rows)]
    path.write_text(end.join(lines) + end * last, encoding="utf-8", newline="")
    try:
        read = read_columns(path, "x", lambda there: there[:1]).num_rows
    except DataError:
        return
    assert files.count_rows(path, "x") == read


# --- what a survey counts


SURVEYED = Schema(
    {
        "age": number(0, 100, missing="middle"),
        "rooms": number(1, 5, whole=True, missing="none"),
        "income": number(0, 1e6, transform="log1p", scale="unit", missing=0),
        "city": category(["Ede", "Urk"], missing="none"),
        "member": flag(missing=False),
        "since": date("2000-01-01", "2000-01-11", parts=["days", "month"], missing="until"),
    }
)
PEOPLE = (
    "person_id,age,rooms,income,city,member,since,secret\n1,10,1,0,Ede,true,2000-01-01,a\n"
    "2,150,5,999999,Urk,false,1999-01-01,b\n3,,,,Oss,,,c\n4,old,3,10,Ede,yes,2000-01-05,d\n"
)


def test_a_survey_counts_what_a_study_would_map_and_every_cell_is_in_one_bar(written: Callable[..., Path]) -> None:
    path = written(PEOPLE)
    found, known = profile_table(path, SURVEYED, ["person_id"]), read_table(path, SURVEYED, misfits="map")
    known.check()
    assert found.rows == known.rows == 4
    told = known.report
    for field, expected in (("missing", told.missing), ("clipped", told.clipped), ("unknown", told.misfits)):
        counted = {each.name: getattr(each, field) for each in found.columns}
        assert {name: count for name, count in counted.items() if count} == expected
    assert found.unread_columns == ("secret",)
    assert TableProfile.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    bars = {each.name: each for each in found.columns}
    assert (sum(bars["age"].bars), len(bars["age"].bars)) == (4, MAX_BARS)
    assert (bars["rooms"].bars, bars["rooms"].ends) == ((1, 0, 1, 0, 1), ("1", "5"))
    assert dict(zip(bars["city"].labels, bars["city"].bars, strict=True)) == {"Ede": 2, "Urk": 1, "none of these": 1}
    assert (bars["member"].bars, bars["income"].bars[0], bars["income"].bars[-1]) == ((2, 2), 2, 1)
    assert bars["since.days"].bars == (2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1)
    refused(DataError, ("DA154", "height"), profile_table, path, Schema({"height": number(0, 3)}))


def test_bars_of_many_values_and_of_numbers_at_random(written: Callable[..., Path]) -> None:
    values = [f"v{k:03}" for k in range(60)]
    path = written("c\n" + "\n".join(value for k, value in enumerate(values) for _ in range(k + 1)) + "\n")
    (found,) = profile_table(path, Schema({"c": category(values)})).columns
    assert found.labels[-2:] == ("v059", "none of these")
    assert (len(found.bars), sum(found.bars), found.bars[-2]) == (MAX_BARS, 60 * 61 // 2, 60)
    drawn = np.random.default_rng(3).uniform(-1, 4, 5000)
    path = written("x\n" + "\n".join(map(repr, drawn.tolist())) + "\n")
    (found,) = profile_table(path, Schema({"x": number(0, 3)})).columns
    expected, _ = np.histogram(np.clip(drawn, 0, 3), bins=MAX_BARS, range=(0, 3))
    assert np.abs(np.array(found.bars) - expected).max() <= 2
    assert found.clipped == int(((drawn < 0) | (drawn > 3)).sum())


def test_what_a_schema_says_is_one_line() -> None:
    told = {name: column.summary() for name, column in SURVEYED.columns.items() if name != "since.month"}
    assert told == {
        "age": "number from 0 to 100; a missing cell counts as middle",
        "rooms": "whole number from 1 to 5; a missing cell has a place of its own",
        "income": "number from 0 to 1000000, by its logarithm; a missing cell counts as 0",
        "city": "one of Ede, Urk; a missing cell has a place of its own",
        "since.days": "days from 2000-01-01 to 2000-01-11; a missing cell counts as 2000-01-11",
        "member": "true or false; a missing cell counts as false",
    }
