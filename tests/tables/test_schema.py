"""Schemas: what they declare, their files and digests, rules that no row may break, and drafts of them."""

from __future__ import annotations

import pickle
import tomllib
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import assume, given, strategies as st

from colonnade.errors import DataError, SchemaError
from colonnade.tables import Column, Schema, category, draft_schema, flag, number, read_table, violations
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


def test_order_names_and_width() -> None:
    assert PEOPLE.names == ("age", "city", "smoker", "visits a year")
    assert PEOPLE.encoded_names == (
        *("age", "city=Assen", 'city=Bergen "op" Zoom', "city=Čáslav", "smoker", "visits a year"),
    )
    assert PEOPLE.encoded_width == 6
    assert PEOPLE.places["smoker"] == slice(4, 5)


def test_toml_round_trip(tmp_path: Path) -> None:
    path = PEOPLE.save(tmp_path / "people.toml")
    read = Schema.load(path)
    assert read == PEOPLE
    assert hash(read) == hash(PEOPLE)
    assert read.to_toml() == PEOPLE.to_toml() == path.read_text(encoding="utf-8")
    assert read.description == PEOPLE.description
    assert pickle.loads(pickle.dumps(read)) == PEOPLE  # noqa: S301


names = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=8)
columns = strategies.columns(words=st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), reach=10**9)


@given(st.dictionaries(names, columns, min_size=1, max_size=5), st.none() | st.floats(0.01, 10))
def test_any_schema_survives_its_file(chosen: dict[str, Column], clip: float | None) -> None:
    encoded = [name + part for name, column in chosen.items() for part in column.parts]
    assume(len(set(encoded)) == len(encoded))
    schema = Schema(chosen, clip=clip)
    assert Schema.from_toml(schema.to_toml()).digest == schema.digest


def test_digests_of_earlier_schemas_stay() -> None:
    assert PEOPLE.digest == "4cee592bc1dd4ca768bc441bac13aeacbf9179cb01d17eca1c9bf66a7184e457"
    plain = Schema({"a": number(0, 1), "b": flag()})
    assert plain.digest == "71816da9c13b1e275844d24ba38311f43e569d8014734b9561db1b82516d08d3"
    assert plain.digest == Schema({"a": number(0, 1, whole=False), "b": flag()}, impossible=[]).digest
    assert "whole" not in PEOPLE.to_toml()
    assert "impossible" not in PEOPLE.to_toml()


def test_digest_sees_meaning_only() -> None:
    plain = Schema({"a": number(0, 1), "b": flag()})
    assert plain.digest == Schema({"a": number(0.0, 1.0), "b": flag()}, description="words").digest
    assert plain.digest == Schema({"a": number(0, 1), "b": flag()}, clip=99).digest
    assert len(plain.digest) == 64
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


def not_loaded(path: Path, content: str, *said: str) -> None:
    """What is said of a schema that is refused: its path and this."""
    path.write_text(content)
    refused(SchemaError, (*said, path), Schema.load, path)


@pytest.mark.parametrize(("body", "said"), BAD.items())
def test_errors_name_file_column_and_cure(tmp_path: Path, body: str, said: str) -> None:
    not_loaded(tmp_path / "bank.toml", f"[columns.income]\n{body}\n", said, "'income'")


WRONG_FILES = {
    "[columns.a\n": "not valid TOML",
    "": "no column is declared",
    "[colums.a]\ntype='flag'": "did you mean 'columns'",
    "[table]\nclipp = 1\n[columns.a]\ntype='flag'": "did you mean 'clip'",
    "[table]\nclip = 'x'\n[columns.a]\ntype='flag'": "clip must be a number",
    "[table]\nclip = 0\n[columns.a]\ntype='flag'": "positive finite",
    "table = 3\n[columns.a]\ntype='flag'": "TOML section",
    "[columns]\na = 3": "TOML section",
    "[table]\nimpossible = 'a = true'\n[columns.a]\ntype='flag'": "impossible must be a list of texts",
    "[table]\nimpossible = [3]\n[columns.a]\ntype='flag'": "a rule is a text of at most 2000 characters, not 3",
    "[table]\nimpossible = ['b = true']\n[columns.a]\ntype='flag'": "'b = true': there is no column 'b'",
    "[table]\ndescription = 3\n[columns.a]\ntype='flag'": "description",
    "[columns.'a=b']\ntype='flag'\n[columns.a]\ntype='category'\nvalues=['b']": "both be called 'a=b'",
}


@pytest.mark.parametrize(("content", "said"), WRONG_FILES.items())
def test_wrong_files(tmp_path: Path, content: str, said: str) -> None:
    not_loaded(tmp_path / "shop.toml", content, said)


def test_unreadable_files(tmp_path: Path) -> None:
    refused(SchemaError, "SC074", Schema.load, tmp_path / "none.toml")
    refused(SchemaError, "VA017", Schema.load, tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")
    refused(SchemaError, "VA007", Schema.load, tmp_path / "latin.toml")


def test_wrong_python_schemas() -> None:
    refused(SchemaError, "SC065", Schema, {})
    refused(SchemaError, "SC068", Schema, {"a": "flag"})
    refused(SchemaError, "SC067", Schema, {"a\n": flag()})
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

BROKEN = {
    "age < 16": [True, False, False, False],
    "age<=16 and pays=true": [True, False, False, False],
    "age >= 16": [False, True, False, True],
    "age > 16": [False, False, False, True],
    "age = 16": [False, True, False, False],
    "age != 16": [True, False, False, True],
    "age = missing": [False, False, True, False],
    "age != missing and age > 15.5": [False, True, False, True],
    "city = A": [True, False, False, True],
    "city != A": [False, False, True, False],
    "city = missing": [False, True, False, False],
    "'marital status' = never married and pays != false": [True, False, False, False],
    'marital status = "black and white"': [False, False, True, False],
    "marital status = '<=50K' and age < 20": [False, True, False, False],
    "marital status = missing": [False, False, False, True],
    "pays = false and city = A and age > 3e1": [False, False, False, True],
}


@pytest.mark.parametrize(("rule", "broken"), BROKEN.items())
def test_rows_that_break_a_rule(rule: str, broken: list[bool]) -> None:
    schema = Schema(COLUMNS, impossible=[rule])
    assert violations(schema.impossible, TABLE).tolist() == broken
    again = Schema.from_toml(schema.to_toml())
    assert again == schema
    assert violations(again.impossible, TABLE).tolist() == broken


def test_any_of_several_rules_and_none() -> None:
    schema = Schema(COLUMNS, impossible=["age < 16", "city = missing", "age  <  16"])
    assert list(map(str, schema.impossible)) == ["age < 16", "city = missing"]
    assert violations(schema.impossible, TABLE).tolist() == [True, True, False, False]
    assert violations((), TABLE).tolist() == [False] * 4
    assert violations(schema.impossible, TABLE.slice(0, 0)).tolist() == []


def test_rules_go_with_their_columns() -> None:
    schema = Schema(COLUMNS, impossible=["age < 16 and pays = true", "city = A and age > 100"])
    assert list(map(str, schema.select(["age", "city"]).impossible)) == ["city = A and age > 100"]
    assert schema.without(["age"]).impossible == ()
    assert schema.with_clip(0.5).impossible == schema.impossible


REFUSED = {
    "age": "cannot be read from 'age' on; write comparisons such as age < 16, joined by and",
    "age < 16 and": "'age' is a number and cannot be compared with '16 and'",
    "age < 16 and pays": "cannot be read from 'pays' on",
    "age < 16 or pays = true": "cannot be read",
    "": "cannot be read",
    "marital status = black and white": "'marital status' has no value 'black'",
    "marital status = never maried": "did you mean 'never married'?",
    "marital status < <=50K": "put names and values with unusual characters in quotes",
    "city < A": "'city' is a category, which can only be compared by = and !=, not by <",
    "pays = yes": "'pays' is a flag, which is true or false and not 'yes'",
    "pays > false": "'pays' is a flag, which can only be compared by = and !=, not by >",
    "pays = missing": 'only a column with missing = "none" can be compared with missing',
    "age < missing": 'only a column with missing = "none" can be compared with missing, by = or !=',
    "age < 121": "121 lies outside the bounds of 'age', 0 and 120",
    "age < old": "'age' is a number and cannot be compared with 'old'",
    "age < 1e999": "'age' is a number and cannot be compared with '1e999'",
    "agee < 3": "there is no column 'agee'; did you mean 'age'?",
    "age < " + "1" * 2000: "a rule is a text of at most 2000 characters, not one of 2006 characters",
}


@pytest.mark.parametrize(("rule", "said"), REFUSED.items())
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
    assert columns["ratio"]["type"] == "number"
    assert "whole" not in columns["ratio"]
    for said in (
        "# Left out: person_id (every cell differs",
        "# Left out: empty (no cell is filled",
        "Some cells are missing",
    ):
        assert said in text
    (tmp_path / "bank.toml").write_text(text)
    said = ("'income', 'city'", "delete the line `drafted = true`")
    refused(SchemaError, said, Schema.load, tmp_path / "bank.toml")
    reviewed = text.replace("drafted = true\n", "").replace('"number"\n', '"number"\nmissing = "middle"\n')
    table = read_table(path, Schema.from_toml(reviewed))
    assert table.check().rows == 4


def test_drafts_of_frames_and_dates() -> None:
    arrow = pa.table({"day": pa.array([1, 1, 2], pa.date32()), "key": [3, 4, 5], "few": [1.5, 1.5, 1.5]})
    text = draft_schema(arrow, id="key")
    assert "Left out: key (the id)" in text
    assert tomllib.loads(text)["columns"]["day"] == {
        "type": "date",
        "from": "1970-01-01",
        "until": "1970-12-31",
        "drafted": True,
    }
    few = tomllib.loads(text)["columns"]["few"]
    assert few["low"] < few["high"]


def test_nothing_to_draft(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n")
    refused(DataError, "DA151", draft_schema, tmp_path / "t.csv")
    refused(DataError, "DA160", draft_schema, tmp_path / "none.csv")


def test_bounds_of_whole_numbers_are_whole() -> None:
    text = draft_schema(pa.table({"few": [3, 3, 3], "more": [1.0, 7.0, 1.0], "huge": [1e13, 2e13, 1e13]}))
    columns = tomllib.loads(text)["columns"]
    assert columns["few"] == {"type": "number", "low": 3, "high": 4, "whole": True, "drafted": True}
    assert columns["more"] == {"type": "number", "low": 1, "high": 7, "whole": True, "drafted": True}
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
    assert columns["german"] | {"format": "%d.%m.%Y"} == columns["german"]
    assert (columns["german"]["from"], columns["german"]["until"]) == ("2019-01-01", "2021-12-31")
    assert columns["either"]["format"] == "%d/%m/%Y"
    assert "can also be read as %m/%d/%Y" in text
    assert "format" not in columns["iso"]
    assert columns.get("timed", {}).get("type") != "date"
    reviewed = Schema.from_toml(text.replace("drafted = true", 'missing = "none"'))
    assert read_table(path, reviewed, id=None).check().rows == 3
