"""Files as people have them: other separators, encodings and decimal signs, and what is said where none is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade import Party, Schema, category, flag, number, read_table
from colonnade.errors import DataError, SchemaError
from colonnade.tables import draft_schema
from colonnade.tables.formats import TextFormat
from tests.support.refusals import refused

GERMAN = "person_id;größe;stadt;neu\r\nä1;1,75;Köln;ja ist\r\nß2;1,8;Ulm;nein\r\nü3;-2,5e-1;Köln;nein\r\n"
COLUMNS = {"größe": number(-1, 3), "stadt": category(["Köln", "Ulm"])}
ENCODINGS = ["latin-1", "windows-1252", "utf-16", "utf-16-le", "utf-8", "utf-8-sig", "cp850"]


def written(folder: Path, text: str, encoding: str = "utf-8", name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("on_disk", [False, True])
def test_the_same_table_in_any_encoding(tmp_path: Path, encoding: str, on_disk: bool) -> None:
    path = written(tmp_path, GERMAN, encoding)
    schema = Schema(COLUMNS, separator=";", encoding=encoding, decimal=",")
    table = read_table(path, schema, on_disk=on_disk)
    assert list(table.ids) == ["ä1", "ß2", "ü3"]
    assert table.matrix()[:, 0] == pytest.approx(np.array([0.375, 0.4, -0.625]))
    assert table.matrix()[:, 1].tolist() == [1, 0, 1]
    assert table.column("größe")[:, 0] == pytest.approx(table.matrix()[:, 0])


def test_many_rows_across_blocks_keep_their_line_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.tables.files.BLOCK", 4096)
    rows = [f'é{place};"{place % 7},5";"a\r\nö"\r\n' for place in range(3000)]
    path = written(tmp_path, "person_id;x;text\r\n" + "".join(rows), "utf-16")
    schema = Schema({"x": number(0, 8), "text": category(["a\r\nö"])}, separator=";", encoding="utf-16", decimal=",")
    for on_disk in (False, True):
        table = read_table(path, schema, on_disk=on_disk)
        assert table.matrix()[:, 1].all()
        assert table.matrix()[:, 0] == pytest.approx((np.arange(3000) % 7 + 0.5) / 4 - 1)


def test_a_party_and_read_table_say_otherwise_than_the_schema(tmp_path: Path) -> None:
    path = written(tmp_path, GERMAN, "latin-1")
    schema = Schema(COLUMNS, separator="|")
    assert read_table(path, schema, separator=";", encoding="latin-1", decimal=",").rows == 3
    party = Party("a", path, schema=schema, id="person_id", separator=";", encoding="latin-1", decimal=",")
    assert party.table.check().rows == 3
    assert party.schema.text.separator == "|"  # what everybody sees is the schema's


def test_what_a_schema_says_of_a_file_is_part_of_the_digest_and_what_its_party_says_is_not(tmp_path: Path) -> None:
    plain, other = Schema(COLUMNS), Schema(COLUMNS, separator=";", encoding="latin-1", decimal=",")
    each = [Schema(COLUMNS, **{key: said}) for key, said in other.text.stated.items()]
    assert len({schema.digest for schema in (plain, other, *each)}) == 5
    assert plain == other  # the encoded numbers mean the same
    own = plain.written(other.text)
    assert own.text == own.select(["größe"]).text == other.text
    assert own.digest == plain.digest
    assert own.select(["größe"]).digest == plain.select(["größe"]).digest
    assert other.written(TextFormat(decimal=".")).text.stated == {
        "separator": ";",
        "encoding": "latin-1",
        "decimal": ".",
    }
    assert other.written(TextFormat(decimal=".")).digest == other.digest
    assert own.to_toml() == plain.to_toml()
    assert Schema.load(other.save(tmp_path / "s.toml")).text == other.text
    assert Schema.load(other.save(tmp_path / "s.toml")).digest == other.digest
    assert other.select(["größe"]).text == other.without(["größe"]).text == other.with_clip(1).text == other.text
    assert "[table]" not in plain.to_toml()


FOUND: list[tuple[str, str, str, dict[str, Any], str]] = [
    ("t.csv", GERMAN, "latin-1", {"separator": ";"}, 'looks like LATIN-1; write encoding = "latin-1"'),
    ("t.csv", GERMAN.replace("Köln", "„Köln"), "windows-1252", {"separator": ";"}, 'encoding = "windows-1252"'),
    ("t.csv", GERMAN, "utf-16", {"separator": ";"}, 'encoding = "utf-16"'),
    ("t.csv", GERMAN, "utf-16-le", {"separator": ";"}, 'encoding = "utf-16-le"'),
    ("t.csv", GERMAN, "utf-8", {"separator": ";", "encoding": "utf-16"}, "UTF-16 but looks like UTF-8; write encoding"),
    ("t.csv", GERMAN, "utf-8", {"separator": ";", "encoding": "latin-1"}, "not LATIN-1 but looks like UTF-8; write"),
    ("t.csv", GERMAN, "utf-8", {}, 'by semicolons; write separator = ";"'),
    ("t.csv", GERMAN.replace(";", "\t"), "utf-8", {}, r'by tabs; write separator = "\t"'),
    ("t.csv", GERMAN.replace(",", ".").replace(";", ","), "utf-8", {"separator": ";"}, 'write separator = ","'),
    (
        "t.csv",
        GERMAN,
        "utf-8",
        {"separator": ";"},
        "has a comma: remove it if it stands between",
    ),
    ("t.csv", "", "utf-8", {}, "the file is empty"),
    (
        "t.csv",
        "PK\x03\x04rest of a workbook",
        "latin-1",
        {},
        "spreadsheet (.xlsx, .ods) or a zip archive, which is not read; save",
    ),
    ("t.xls", "\xd0\xcf\x11\xe0rest", "latin-1", {}, "the spreadsheet cannot be read"),
    ("t.csv", GERMAN.replace("person_id", "personid"), "utf-8", {"separator": ";"}, "did you mean 'personid'?"),
    ("t.csv", GERMAN.replace("neu", "stadt"), "utf-8", {"separator": ";"}, "column 'stadt' appears more than once"),
]


@pytest.mark.parametrize(("name", "text", "encoding", "said", "cure"), FOUND)
def test_an_error_names_the_cure(
    tmp_path: Path, name: str, text: str, encoding: str, said: dict[str, Any], cure: str
) -> None:
    path = written(tmp_path, text, encoding, name)
    with pytest.raises(DataError) as caught:
        read_table(path, Schema(COLUMNS), **said).check()
    message = str(caught.value)
    assert cure in message
    assert "Köln" not in message
    assert "1,75" not in message


NUMBERS = [
    (["1.234.567,5"], ",", "signs between its thousands"),
    (["1 234,5"], ",", "signs between its thousands"),
    (["1.5"], ",", "has a point, but decimal"),
    (["1,234,567"], ".", "signs between its thousands"),
    (["1,234.5"], ".", "signs between its thousands"),
    (["1\u202f234"], ".", "signs between its thousands"),
    (["31.12.2020"], ".", 'looks like a date; declare the column with type = "date"'),
    (["2020-12-31 10:00"], ",", "looks like a date"),
    (["x", "1,5"], ".", "not a number; write it with digits and a decimal point"),
    (["x"], ",", "decimal comma"),
]


@pytest.mark.parametrize(("cells", "decimal", "said"), NUMBERS)
def test_numbers_that_cannot_be_read(tmp_path: Path, cells: list[str], decimal: str, said: str) -> None:
    path = written(tmp_path, "x\n" + "".join(f'"{cell}"\n' for cell in cells))
    with pytest.raises(DataError) as caught:
        read_table(path, Schema({"x": number(0, 10)}, decimal=decimal), id=None).check()
    assert said in str(caught.value)
    assert not any(cell in str(caught.value) for cell in cells if cell != "x")


def test_decimal_signs_are_for_numbers_alone(tmp_path: Path) -> None:
    path = written(tmp_path, "a;b\n1,5;yes\n2;no\n")
    schema = Schema({"a": category(["1,5", "2"]), "b": flag()}, separator=";", decimal=",")
    assert read_table(path, schema, id=None).matrix().tolist() == [[1, 0, 1], [0, 1, 0]]


WRONG = [
    ({"separator": ";;"}, "SC048"),
    ({"separator": "\n"}, "SC048"),
    ({"separator": 5}, "SC048"),
    ({"encoding": "latin1x"}, "SC050"),
    ({"encoding": "rot13"}, "SC050"),
    ({"decimal": "'"}, "SC049"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_what_a_format_cannot_be(given: dict[str, Any], said: str) -> None:
    refused(SchemaError, said, Schema, COLUMNS, **given)


def test_a_file_may_state_it_and_is_checked() -> None:
    text = '[table]\nseparator = ";"\ndecimal = ","\n[columns.x]\ntype = "number"\nlow = 0\nhigh = 1\n'
    assert Schema.from_toml(text).text.stated == {"separator": ";", "decimal": ","}
    refused(
        SchemaError,
        ("SC049", "s.toml"),
        Schema.from_toml,
        text.replace('decimal = ","', 'decimal = "x"'),
        name="s.toml",
    )
    refused(SchemaError, ("SC086", "separator"), Schema.from_toml, text.replace("separator", "seperator"))


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8"])
def test_a_draft_states_how_the_file_is_written(tmp_path: Path, encoding: str) -> None:
    path = written(tmp_path, GERMAN + "x4;1,75;Ulm;nein\r\n", encoding)
    text = draft_schema(path, id="person_id")
    reviewed = Schema.from_toml(text.replace("drafted = true\n", ""))
    assert reviewed.text.separator == ";"
    assert reviewed.text.decimal == ","
    assert reviewed.text.encoding == (None if encoding == "utf-8" else encoding)
    assert read_table(path, reviewed).check().rows == 4
    refused(DataError, ("DA154", "person_id"), draft_schema, path, id="personid")


def test_a_draft_of_a_usual_file_states_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, "person_id,x,y\na,1.5,u\nb,2,v\nc,3,u\n")
    assert "[table]" not in draft_schema(path, id="person_id")
