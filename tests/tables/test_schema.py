"""Schemas: what they declare, their files and digests, rules that no row may break, and drafts of them."""

from __future__ import annotations

import datetime
import pickle
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, strategies as st

from colonnade.errors import DataError, SchemaError
from colonnade.tables import (
    Column,
    Days,
    Schema,
    build_coding,
    category,
    date,
    decode,
    decode_codes,
    draft_schema,
    encode_columns,
    find_violations,
    flag,
    number,
    read_table,
)
from colonnade.tables.coding import data_dictionary, forbidden_codes, joint_constraints
from colonnade.tables.dates import MONTHS, WEEKDAYS, Date
from colonnade.tables.table import ColumnCentring
from colonnade.testing import seeded
from tests.support import strategies
from tests.support.errors import refused

PEOPLE = Schema(
    {
        "age": number(18, 100, unit="years", missing="middle"),
        "city": category(["Assen", 'Bergen "op" Zoom', "Čáslav"], missing="none"),
        "smoker": flag(missing=False),
        "visits a year": number(0, 1e6, scale="unit", transform="log1p", missing=3),
    },
    clip=1.5,
    description='Says "people"\nand more',
)


def test_toml_round_trip(tmp_path: Path) -> None:
    read = Schema.load(PEOPLE.save(tmp_path / "people.toml"))
    assert (read, hash(read), read.description) == (PEOPLE, hash(PEOPLE), PEOPLE.description)
    assert pickle.loads(pickle.dumps(read)) == PEOPLE  # noqa: S301


names = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=8)
columns = strategies.columns(words=st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), reach=10**9)


@given(st.dictionaries(names, columns, min_size=1, max_size=5), st.none() | st.floats(0.01, 10))
def test_any_schema_survives_its_file(chosen: dict[str, Column], clip: float | None) -> None:
    encoded = [name + part for name, column in chosen.items() for part in column.parts]
    assume(len(set(encoded)) == len(encoded))
    schema = Schema(chosen, clip=clip)
    assert Schema.from_toml(schema.to_toml()).digest == schema.digest


def test_digests_of_earlier_schemas_stay_and_see_meaning_only() -> None:
    assert PEOPLE.digest == "4cee592bc1dd4ca768bc441bac13aeacbf9179cb01d17eca1c9bf66a7184e457"
    plain = Schema({"a": number(0, 1), "b": flag()})
    assert plain.digest == "71816da9c13b1e275844d24ba38311f43e569d8014734b9561db1b82516d08d3"
    assert plain.digest == Schema({"a": number(0, 1, whole=False), "b": flag()}, impossible=[]).digest
    assert plain.digest == Schema({"a": number(0.0, 1.0), "b": flag()}, description="words").digest
    assert plain.digest == Schema({"a": number(0, 1), "b": flag()}, clip=99).digest
    others = [
        Schema({"b": flag(), "a": number(0, 1)}),
        Schema({"a": number(0, 2), "b": flag()}),
        Schema({"a": number(0, 1, unit="m"), "b": flag()}),
        Schema({"a": number(0, 1, missing="low"), "b": flag()}),
        Schema({"a": number(0, 1, missing="none"), "b": flag()}),
        Schema({"a": number(0, 1, whole=True), "b": flag()}),
        Schema({"a": number(0, 1), "b": flag()}, impossible=["a < 1 and b = true"]),
        Schema({"a": number(0, 1), "b": flag()}, impossible=["a < 1 and b = false"]),
        plain.with_clip(0.5),
    ]
    assert len({plain.digest, *(other.digest for other in others)}) == 10


def test_max_norm_is_a_true_upper_bound() -> None:
    for count in range(1, 60):
        schema = Schema({f"c{place}": flag() for place in range(count)})
        assert Fraction(schema.max_norm) ** 2 >= count
        assert schema.clip == schema.max_norm == pytest.approx(count**0.5)


def test_select_keeps_the_schema_order_and_clip() -> None:
    part = PEOPLE.select(["smoker", "age"])
    assert part.names == ("age", "smoker")
    assert part.clip == pytest.approx(2**0.5)
    assert PEOPLE.select(["age"]).clip == 1
    assert PEOPLE.without(["city", "visits a year"]) == part
    refused(SchemaError, ("SC071", "smoker"), PEOPLE.select, ["smokr"])


BAD = {
    'type = "number"\nlow = 5\nhigh = 3': "low (5) must be below high (3)",
    'type = "number"\nlow = 5\nhigh = 5': "must be below high",
    'type = "number"\nlow = nan\nhigh = 3': "finite",
    'type = "number"\nlow = 0\nhigh = inf': "finite",
    'type = "number"\nlow = true\nhigh = 3': "low must be a number",
    'type = "number"\nlow = -1e308\nhigh = 1e308': "too far apart",
    'type = "number"\nlow = "0"\nhigh = 3': "low must be a number",
    'type = "number"\nlow = 0': "high must be given",
    'type = "number"\nlow = 0\nhigh = 3\nmissing = 4': "between low and high",
    'type = "number"\nlow = 0\nhigh = 3\nmissing = "mean"': '"middle"',
    'type = "number"\nlow = 0\nhigh = 3\nscale = "log"': "scale",
    'type = "number"\nlow = -5\nhigh = 3\ntransform = "log1p"': "low >= 0",
    'type = "number"\nlow = 0\nhihg = 3': "did you mean 'high'",
    'type = "number"\nlow = 0\nhigh = 3\nwhole = 1': "whole must be true or false",
    'type = "number"\nlow = 0.5\nhigh = 3\nwhole = true': "low (0.5) must be a whole number where whole = true",
    'type = "number"\nlow = 0\nhigh = 3.5\nwhole = true': "high (3.5) must be a whole number",
    'type = "number"\nlow = 0\nhigh = 3\nwhole = true\nmissing = 1.5': "missing (1.5) must be a whole number",
    'type = "number"\nlow = 0\nhigh = 2e12\nwhole = true': "bounds of at most 10^12",
    'type = "category"\nvalues = ["a"]\nwhole = true': "unknown key 'whole'",
    'type = "category"\nvalues = []': "values is empty",
    'type = "category"\nvalues = ["a", "a"]': "'a' twice",
    'type = "category"\nvalues = ["a", ""]': "empty text",
    'type = "category"\nvalues = "abc"': "list of texts",
    'type = "category"\nvalues = [1.5]': "must be a text",
    'type = "category"\nvalues = ["a"]\nmissing = "b"': "one of the values",
    'type = "category"\nvalues = ["none"]\nmissing = "none"': "ambiguous",
    'type = "category"': "values must be given",
    'type = "flag"\nmissing = "yes"': "true or false",
    'type = "flags"': "did you mean 'flag'",
    "low = 1": "type must be",
    'type = "flag"\ndrafted = true': "everybody may know",
}


WRONG_FILES = {
    "[columns.a\n": "not valid TOML",
    "": "no column is declared",
    "[colums.a]\ntype='flag'": "did you mean 'columns'",
    "[table]\nclipp = 1\n[columns.a]\ntype='flag'": "did you mean 'clip'",
    "[table]\nclip = 'x'\n[columns.a]\ntype='flag'": "clip must be a positive finite number",
    "[table]\nclip = 0\n[columns.a]\ntype='flag'": "positive finite",
    "table = 3\n[columns.a]\ntype='flag'": "TOML section",
    "[columns]\na = 3": "TOML section",
    "[table]\nimpossible = 'a = true'\n[columns.a]\ntype='flag'": "impossible must be a list of texts",
    "[table]\nimpossible = [3]\n[columns.a]\ntype='flag'": "a rule is a text of at most 2000 characters, not 3",
    "[table]\nimpossible = ['b = true']\n[columns.a]\ntype='flag'": "'b = true': there is no column 'b'",
    "[table]\ndescription = 3\n[columns.a]\ntype='flag'": "description",
    "[columns.'a=b']\ntype='flag'\n[columns.a]\ntype='category'\nvalues=['b']": "both be called 'a=b'",
}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((f"[columns.income]\n{body}\n", (said, "'income'")) for body, said in BAD.items()),
        *((content, (said,)) for content, said in WRONG_FILES.items()),
    ],
)
def test_errors_name_file_column_and_cure(tmp_path: Path, content: str, said: tuple[str, ...]) -> None:
    path = tmp_path / "bank.toml"
    path.write_text(content)
    refused(SchemaError, (*said, path), Schema.load, path)


def test_unreadable_files(tmp_path: Path) -> None:
    refused(SchemaError, "SC074", Schema.load, tmp_path / "none.toml")
    refused(SchemaError, "VA017", Schema.load, tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    refused(SchemaError, "VA007", Schema.load, tmp_path / "latin.toml")


def test_wrong_python_schemas() -> None:
    for wrong, said in (({}, "SC065"), ({"a": "flag"}, "SC068"), ({"a\n": flag()}, "SC067")):
        refused(SchemaError, said, Schema, wrong)
    refused(SchemaError, ("SC027", "10000"), category, [str(value) for value in range(10_001)])
    refused(SchemaError, "SC073", Schema, {"a": flag()}, clip=float("nan"))


# --- rules that no row may break


COLUMNS: dict[str, Column] = {
    "age": number(0, 120, whole=True, missing="none"),
    "marital status": category(["never married", "black and white", "<=50K", "missing"]),
    "city": category(["A", "B"], missing="none"),
    "pays": flag(),
}
TABLE = pa.table(
    {
        "age": pa.array([15, 16, None, 40]),
        "marital status": pa.array(["never married", "<=50K", "black and white", "missing"]).dictionary_encode(),
        "city": ["A", None, "B", "A"],
        "pays": [True, False, True, False],
    }
)


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("age < 16", [True, False, False, False]),
        ("age<=16 and pays=true", [True, False, False, False]),
        ("age >= 16", [False, True, False, True]),
        ("age > 16", [False, False, False, True]),
        ("age = 16", [False, True, False, False]),
        ("age != 16", [True, False, False, True]),
        ("age = missing", [False, False, True, False]),
        ("age != missing and age > 15.5", [False, True, False, True]),
        ("city = A", [True, False, False, True]),
        ("city != A", [False, False, True, False]),
        ("city = missing", [False, True, False, False]),
        ("'marital status' = never married and pays != false", [True, False, False, False]),
        ('marital status = "black and white"', [False, False, True, False]),
        ("marital status = '<=50K' and age < 20", [False, True, False, False]),
        ("marital status = missing", [False, False, False, True]),
        ("pays = false and city = A and age > 3e1", [False, False, False, True]),
    ],
)
def test_rows_that_break_a_rule(rule: str, broken: list[bool]) -> None:
    schema = Schema(COLUMNS, impossible=[rule])
    assert find_violations(schema.impossible, TABLE).tolist() == broken
    again = Schema.from_toml(schema.to_toml())
    assert again == schema
    assert find_violations(again.impossible, TABLE).tolist() == broken


def test_any_of_several_rules_and_none_and_they_go_with_their_columns() -> None:
    schema = Schema(COLUMNS, impossible=["age < 16", "city = missing", "age  <  16"])
    assert list(map(str, schema.impossible)) == ["age < 16", "city = missing"]
    assert find_violations(schema.impossible, TABLE).tolist() == [True, True, False, False]
    assert find_violations((), TABLE).tolist() == [False] * 4
    assert find_violations(schema.impossible, TABLE.slice(0, 0)).tolist() == []
    schema = Schema(COLUMNS, impossible=["age < 16 and pays = true", "city = A and age > 100"])
    assert list(map(str, schema.select(["age", "city"]).impossible)) == ["city = A and age > 100"]
    assert schema.without(["age"]).impossible == ()
    assert schema.with_clip(0.5).impossible == schema.impossible


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("age", "cannot be read from 'age' on; write comparisons such as age < 16, joined by and"),
        ("age < 16 and", "'age' is a number and cannot be compared with '16 and'"),
        ("age < 16 and pays", "cannot be read from 'pays' on"),
        ("age < 16 or pays = true", "cannot be read"),
        ("", "cannot be read"),
        ("marital status = black and white", "'marital status' has no value 'black'"),
        ("marital status = never maried", "did you mean 'never married'?"),
        ("marital status < <=50K", "put names and values with unusual characters in quotes"),
        ("city < A", "'city' is a category, which can only be compared by = and !=, not by <"),
        ("pays = yes", "'pays' is a flag, which is true or false and not 'yes'"),
        ("pays > false", "'pays' is a flag, which can only be compared by = and !=, not by >"),
        ("pays = missing", 'only a column with missing = "none" can be compared with missing'),
        ("age < missing", 'only a column with missing = "none" can be compared with missing, by = or !='),
        ("age < 121", "121 lies outside the bounds of 'age', 0 and 120"),
        ("age < old", "'age' is a number and cannot be compared with 'old'"),
        ("age < 1e999", "'age' is a number and cannot be compared with '1e999'"),
        ("agee < 3", "there is no column 'agee'; did you mean 'age'?"),
        ("age < " + "1" * 2000, "a rule is a text of at most 2000 characters, not one of 2006 characters"),
    ],
)
def test_rules_that_cannot_be_used(rule: str, said: str) -> None:
    assert refused(SchemaError, said, Schema, COLUMNS, impossible=["age < 3", rule]).startswith("impossible: ")
    refused(SchemaError, ("SC052", "1001", "1000"), Schema, COLUMNS, impossible=["age < 3"] * 1001)


texts = st.text("ab =<>!.'and ", min_size=1, max_size=8).filter(
    lambda text: text.strip() == text and not ("'" in text and '"' in text)
)


@given(texts, texts, st.sampled_from(["=", "!="]))
def test_any_name_and_value_can_be_quoted_and_is_written_back(name: str, value: str, operator: str) -> None:
    columns: dict[str, Column] = {
        name: category([value, "else"]) if value != "else" else category(["else"]),
        "x": number(0, 9),
    }
    rule = f'"{name}" {operator} "{value}" and x >= 2.5'
    schema = Schema(columns, impossible=[rule])
    (found,) = schema.impossible
    assert (found.comparisons[0].name, found.comparisons[0].value) == (name, value)
    assert Schema.from_toml(schema.to_toml()).impossible == schema.impossible


# --- drafts


CSV = """person_id,income,city,smoker,note,empty,ratio
007,73519,A,yes,one,,0.25
008,12004,B,no,two,,0.5
009,,A,no,three,,0.75
010,12004,A,no,three,,0.125
"""


def test_draft_is_refused_until_reviewed(tmp_path: Path) -> None:
    path = tmp_path / "bank.csv"
    path.write_text(CSV)
    text = draft_schema(path)
    columns = tomllib.loads(text)["columns"]
    assert columns["income"] == {"type": "number", "low": 12000, "high": 74000, "whole": True, "drafted": True}
    assert columns["city"] == {"type": "category", "values": ["A", "B"], "drafted": True}
    assert columns["smoker"] == {"type": "flag"}
    assert "whole" not in columns["ratio"]
    assert "[table]" not in text, "nobody writes commas there"
    for said in ("# Left out: person_id (every cell differs", "# Left out: empty (no cell is filled"):
        assert said in text
    refused(SchemaError, ("'income', 'city'", "delete the line `drafted = true`"), Schema.from_toml, text)
    reviewed = text.replace("drafted = true\n", "").replace('"number"\n', '"number"\nmissing = "middle"\n')
    table = read_table(path, Schema.from_toml(reviewed))
    assert table.check().rows == 4


def test_drafts_of_frames_and_dates_and_bounds_of_whole_numbers_are_whole() -> None:
    arrow = pa.table({"day": pa.array([1, 1, 2], pa.date32()), "key": [3, 4, 5], "few": [1.5, 1.5, 1.5]})
    columns = tomllib.loads(draft_schema(arrow, id="key"))["columns"]
    assert columns["day"] == {"type": "date", "from": "1970-01-01", "until": "1970-12-31", "drafted": True}
    assert columns["few"]["low"] < columns["few"]["high"]
    refused(DataError, "DA151", draft_schema, arrow.slice(0, 0))
    text = draft_schema(pa.table({"few": [3, 3, 3], "more": [1.0, 7.0, 1.0], "huge": [1e13, 2e13, 1e13]}))
    columns = tomllib.loads(text)["columns"]
    assert [(columns[name]["low"], columns[name]["high"]) for name in ("few", "more")] == [(3, 4), (1, 7)]
    assert "whole" not in columns["huge"]
    assert Schema.from_toml(text.replace("drafted = true", "")).names == ("few", "more", "huge")


def test_missing_cells_become_something_in_the_columns_that_are_chosen() -> None:
    columns = {"age": ["40", "", "50", "50"], "kind": ["a", "b", "", "b"], "member": ["yes", "", "no", "no"]}
    frame = pa.table(columns | {"y": ["1", "2", "", "2"]})
    assert "missing =" not in draft_schema(frame).replace("`missing =", "")
    schema = Schema.from_toml(draft_schema(frame, fill=lambda column: column != "y"), drafts=True)
    assert {name: column.missing for name, column in schema.columns.items()} == {
        "age": "none", "kind": "none", "member": False, "y": "refuse",
    }  # fmt: skip


def test_drafts_of_dates_as_text(tmp_path: Path) -> None:
    rows = ["01.02.2019,03/04/2020,2020-01-01 10:00,2020-12-31", "31.12.2021,05/06/2021,2020-01-02 11:00,", ",,,NA"]
    path = tmp_path / "t.csv"
    path.write_text("german,either,timed,iso\n" + "\n".join(rows) + "\n")
    text = draft_schema(path)
    columns = tomllib.loads(text)["columns"]
    german = {"format": "%d.%m.%Y", "from": "2019-01-01", "until": "2021-12-31"}
    assert columns["german"] | german == columns["german"]
    assert columns["either"]["format"] == "%d/%m/%Y"
    assert "can also be read as %m/%d/%Y" in text
    assert "format" not in columns["iso"]
    reviewed = Schema.from_toml(text.replace("drafted = true", 'missing = "none"'))
    assert read_table(path, reviewed, id=None).check().rows == 3


FIRST, LAST = "2015-01-01", "2024-12-31"
SPAN = (datetime.date(2024, 12, 31) - datetime.date(2015, 1, 1)).days
ALL = ["days", "month", "weekday"]
EVERY_DAY = [datetime.date(2015, 1, 1) + datetime.timedelta(days=day) for day in range(SPAN + 1)]


@pytest.mark.parametrize("format", ["%Y-%m-%d", "%m/%d/%Y", "%Y%m%d", "%d (%m) %Y"])
def test_every_day_of_ten_years_from_text_agrees_with_python(format: str) -> None:
    schema = Schema({"at": date(FIRST, LAST, parts=ALL, format=format)})
    matrix, report = encode_columns({"at": pa.array([day.strftime(format) for day in EVERY_DAY])}, schema)
    assert report.total_clipped == 0
    assert matrix[:, 0] == pytest.approx(2 * np.arange(SPAN + 1) / SPAN - 1)
    assert matrix[:, 1:13].argmax(axis=1).tolist() == [day.month - 1 for day in EVERY_DAY]
    assert matrix[:, 13:].argmax(axis=1).tolist() == [day.weekday() for day in EVERY_DAY]
    assert (matrix[:, 1:].sum(axis=1) == 2).all()
    assert schema.encoded_names[:2] == ("at.days", "at.month=January")
    for kind in (pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns")):  # as frames and files have it
        found, _ = encode_columns({"at": pa.array(EVERY_DAY, pa.date32()).cast(kind)}, schema)
        assert np.array_equal(found, matrix)


def test_one_part_keeps_the_name_and_days_outside_are_clipped_and_counted() -> None:
    schema = Schema({"at": date(FIRST, LAST), "on": date(parts="weekday")})
    assert (schema.names, schema.encoded_names[1]) == (("at", "on"), "on=Monday")
    single = Schema({"at": date(parts=["month"])})
    assert (single.names, single.sources) == (("at.month",), ("at",))
    schema = Schema({"at": date(FIRST, LAST, parts=["days", "month"])})
    matrix, report = encode_columns({"at": pa.array(["1999-03-01", "2050-02-28", "2015-01-01"])}, schema)
    assert matrix[:, 0].tolist() == [-1, 1, -1]
    assert matrix[:, 1:].argmax(axis=1).tolist() == [2, 1, 0]
    assert report.clipped == {"at.days": 2}


@pytest.mark.parametrize(
    ("missing", "encoded"),
    [
        ("none", [0, 1]),
        ("middle", [0]),
        ("from", [-1]),
        ("until", [1]),
        ("2015-01-01", [-1]),
        (datetime.date(2024, 12, 31), [1]),
    ],
)
def test_what_a_missing_date_becomes(missing: Any, encoded: list[float]) -> None:
    schema = Schema({"at": date(FIRST, LAST, missing=missing)})
    matrix, report = encode_columns({"at": pa.array(["", None])}, schema)
    assert matrix.tolist() == [encoded, encoded]
    assert report.missing == {"at": 2}
    assert Schema.from_toml(schema.to_toml()) == schema


def test_what_a_missing_month_becomes() -> None:
    def months(missing: str, *bounds: str) -> list[int]:
        schema = Schema({"at": date(*bounds, parts="month", missing=missing)})
        return np.flatnonzero(encode_columns({"at": pa.array([None], pa.date32())}, schema)[0]).tolist()

    assert [months(missing) for missing in ("none", "March", "2020-05-01")] == [[], [2], [4]]
    assert months("until", FIRST, LAST) == [11]
    refused(DataError, ("DA152", "at"), months, "refuse")


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["2020-02-30"], "the cell is not a date as format"),
        (["31.12.2020"], 'the schema can say format = "%d.%m.%Y"'),
        (["2020-01-01T00:00:00Z"], "has a time of a time zone"),
        (["2020-01-01 25h"], "not a date"),
        (["5 May 2020"], "not a date"),
        (["20-01-01"], "not a date"),
        (pa.array([1, 2]), "holds int64 cells, but the schema declares a date"),
        (pa.array([0], pa.timestamp("s", "Europe/Berlin")), "time zone"),
    ],
)
def test_cells_that_are_no_dates(cells: Any, said: str) -> None:
    schema = Schema({"at": date(FIRST, LAST)})
    held = {"at": pa.array(cells) if isinstance(cells, list) else cells}
    message = refused(DataError, (said, "column 'at'"), encode_columns, held, schema, source="bank.csv")
    assert "12" not in message.replace("%", "")


def test_misfits_are_mapped_and_counted() -> None:
    schema = Schema({"at": date(FIRST, LAST, parts=ALL), "on": date(FIRST, LAST, missing="until")})
    cells = pa.array(["2020-13-01", "2024-12-31"])
    matrix, report = encode_columns({"at": cells, "on": cells}, schema, misfits="map")
    assert matrix[0].tolist() == [0.0] * 20 + [1.0]
    assert report.misfits == {"at.days": 1, "at.month": 1, "at.weekday": 1, "on": 1}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "from and until"),
        ({"first": FIRST}, "from and until"),
        ({"first": LAST, "last": FIRST}, "must be before until"),
        ({"first": "1.1.2020", "last": LAST}, "from must be a day such as"),
        ({"first": datetime.datetime(2020, 1, 1), "last": LAST}, "from must be a day such as"),
        ({"first": FIRST, "last": LAST, "parts": ["days", "days"]}, "each once"),
        ({"first": FIRST, "last": LAST, "parts": "year"}, 'as must be "days"'),
        ({"first": FIRST, "last": LAST, "format": "%d. %b %Y"}, "names of months"),
        ({"first": FIRST, "last": LAST, "format": "%d.%m.%y"}, "years of two digits"),
        ({"first": FIRST, "last": LAST, "format": "dd.mm.yyyy"}, "cannot be read"),
        ({"first": FIRST, "last": LAST, "format": "%Y-%m-%d %H"}, "times of day"),
        ({"first": FIRST, "last": LAST, "missing": "2050-01-01"}, "between from and until"),
        ({"first": FIRST, "last": LAST, "missing": "March"}, "missing must be"),
        ({"parts": "month", "missing": "from"}, "needs from and until"),
    ],
)
def test_what_a_date_cannot_be(given: dict[str, Any], said: str) -> None:
    refused(SchemaError, said, date, **given)


def test_dates_in_a_file(tmp_path: Path) -> None:
    text = '[columns.at]\ntype = "date"\nfrom = 2015-01-01\nuntil = "2024-12-31"\nas = ["days", "weekday"]\n'
    schema = Schema.from_toml(text)
    assert schema == Schema({"at": date(FIRST, LAST, parts=["days", "weekday"])})
    assert Schema.load(schema.save(tmp_path / "s.toml")) == schema
    for old, new, *said in (("until", "untill", "SC086", "until"), ("weekday", "weekdays", "SC038", "at")):
        refused(SchemaError, said, Schema.from_toml, text.replace(old, new))


def test_whatever_decides_the_day_of_a_cell_and_its_column_are_part_of_the_digest() -> None:
    plain = Schema({"at": date(FIRST, LAST)})
    assert plain.digest == "f5851fa99add4706db8b3b22df01a19f1d64e8633d4a7f9b53a2f2cc3eb7d6ff"
    day_first, month_first = (date(FIRST, LAST, format=each) for each in ("%d/%m/%Y", "%m/%d/%Y"))
    others = (day_first, month_first, date(FIRST, "2025-01-01"), number(0, SPAN, whole=True))
    others = (*others, date(parts="month"), category(MONTHS))
    assert len({plain.digest, *(Schema({"at": other}).digest for other in others)}) == 7
    assert plain == Schema({"at": day_first}) == Schema({"at": month_first})  # the numbers mean the same days
    for parts in ("days", "month", ["days"], ["month", "weekday"]):
        plain, other = (Schema({"at": date(FIRST, LAST, parts=parts, column=name)}) for name in ("at", "born"))
        assert plain.digest == Schema({"at": date(FIRST, LAST, parts=parts)}).digest
        assert plain.digest != other.digest
        assert plain != other
        assert Schema.from_toml(other.to_toml()).digest == other.digest


def test_names_of_dates_stand_for_all_their_columns() -> None:
    schema = Schema({"at": date(FIRST, LAST, parts=ALL), "x": number(0, 1)})
    assert schema.select(["at"]).names == ("at.days", "at.month", "at.weekday")
    assert schema.without("at").names == ("x",)
    renamed = Schema({"at": date(FIRST, LAST, parts=ALL, column="born"), "x": date(FIRST, LAST, column="at")})
    assert renamed.sources == ("born", "at")
    assert renamed.select(["at"]).names == renamed.without(["x"]).names == ("at.days", "at.month", "at.weekday")
    refused(SchemaError, ("SC071", "born"), renamed.select, ["born"])  # a schema's columns go by its own names
    refused(SchemaError, ("SC072", "at.days"), Schema, {"at": date(FIRST, LAST, parts=ALL), "at.days": number(0, 1)})
    refused(SchemaError, "SC064", read_table, pa.table({"at": ["2020-01-01"], "x": [1]}), schema, id="at")


def test_bounds_are_those_of_numbers_and_categories() -> None:
    dated = Schema({"at": date(FIRST, LAST, parts=ALL)})
    plain = Schema({"d": number(0, SPAN, whole=True), "m": category(MONTHS), "w": category(WEEKDAYS)})
    assert dated.max_norm == plain.max_norm
    for norm in ("l2", "l1"):
        one, other = ColumnCentring(dated, None, norm), ColumnCentring(plain, None, norm)  # type: ignore[arg-type]
        assert one.clip == other.clip
        assert [radius for _, radius in one.groups] == [radius for _, radius in other.groups]


def test_decoding_gives_dates_back() -> None:
    schema = Schema({"at": date(FIRST, LAST, parts=["days", "month"], missing="none")})
    cells = pa.array([*EVERY_DAY, None], pa.date32())
    found = decode(schema, encode_columns({"at": cells}, schema)[0])
    assert found["at.days"].to_pylist() == [*EVERY_DAY, None]
    again = read_table(found, schema.decoded_schema(), id=None)
    assert np.array_equal(again.matrix(), encode_columns({"at": cells}, schema)[0])


def test_codes_are_bins_of_days_and_become_dates_within_them() -> None:
    schema = Schema({"at": date(FIRST, LAST), "x": number(0, 1)}, impossible=["at < 2016-01-01 and x > 0.5"])
    coding = build_coding(schema, {"at": 10, "x": 2})
    assert coding.columns[0].labels[0] == "2015-01-01 to 2016-01-01"
    edges = build_coding(schema, {"at": ["2016-01-01", "2020-01-01"]}).columns[0].labels
    assert edges == ("2015-01-01 to 2015-12-31", "2016-01-01 to 2019-12-31", "2020-01-01 to 2024-12-31")
    refused(SchemaError, ("SC047", "at"), build_coding, schema, {"at": ["January"]})
    table = read_table(pa.table({"at": pa.array(EVERY_DAY), "x": np.zeros(len(EVERY_DAY))}), schema, id=None)
    codes = coding.code_rows(table).matrix()
    made = decode_codes({"a": coding}, codes, seeded(3))
    assert made["at"].type == pa.date32()
    again = coding.code_rows(read_table(made, schema, id=None)).matrix()
    assert np.array_equal(again[:, 0], codes[:, 0])
    said = data_dictionary({"a": coding})[0]
    assert (said["type"], said["from"], said["until"], said["codes"]) == ("date", FIRST, LAST, 10)


def test_rules_about_dates_and_a_column_that_knows_its_days() -> None:
    columns = {"at": date(FIRST, LAST), "x": number(0, 1)}
    schema = Schema(columns, impossible=["at < 2018-01-01 and x >= 0.5"])
    (rule,) = joint_constraints({"a": schema})
    cells = pa.table({"at": pa.array([datetime.date(2017, 1, 1), datetime.date(2019, 1, 1)]), "x": [1.0, 1.0]})
    assert rule.find_violations(cells).tolist() == [True, False]
    (box,) = forbidden_codes([rule], {"a": build_coding(schema, {"at": 10, "x": 2})})
    assert box.marked[0].tolist() == [True] * 3 + [False] * 7
    assert Schema.from_toml(schema.to_toml()) == schema
    for rule, said in (("at < 1999-01-01", "SC059"), ("at < 5", "SC047")):
        refused(SchemaError, said, Schema, columns, impossible=[rule])
    (column,) = Date(FIRST, LAST).columns("at").values()
    assert isinstance(column, Days)
    assert column.text_of(column.value_of(datetime.date(2020, 2, 29))) == "2020-02-29"
