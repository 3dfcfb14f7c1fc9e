from __future__ import annotations

import tomllib
from pathlib import Path

import pyarrow as pa
import pytest

from colonnade.errors import DataError, SchemaError
from colonnade.tables import Schema, draft_schema, read_table
from tests.support.refusals import refused

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
    assert "# Left out: person_id (every cell differs" in text
    assert "# Left out: empty (no cell is filled" in text
    assert "Some cells are missing" in text
    (tmp_path / "bank.toml").write_text(text)
    with pytest.raises(SchemaError) as caught:
        Schema.load(tmp_path / "bank.toml")
    assert "'income', 'city'" in str(caught.value)
    assert "delete the line `drafted = true`" in str(caught.value)

    reviewed = text.replace("drafted = true\n", "").replace('"number"\n', '"number"\nmissing = "middle"\n')
    table = read_table(path, Schema.from_toml(reviewed))
    assert table.check().rows == 4


def test_frames_and_dates() -> None:
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


def test_dates_as_text(tmp_path: Path) -> None:
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
