from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from colonnade.errors import DataError
from colonnade.tables import Schema, category, date, flag, number, read_table
from colonnade.tables.survey import BARS, Survey, says, survey
from tests.support.refusals import refused

SCHEMA = Schema(
    {
        "age": number(0, 100, missing="middle"),
        "rooms": number(1, 5, whole=True, missing="none"),
        "income": number(0, 1e6, transform="log1p", scale="unit", missing=0),
        "city": category(["Ede", "Urk"], missing="none"),
        "member": flag(missing=False),
        "since": date("2000-01-01", "2000-01-11", parts=["days", "month"], missing="until"),
    }
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [
        "person_id,age,rooms,income,city,member,since,secret",
        "1,10,1,0,Ede,true,2000-01-01,a",
        "2,150,5,999999,Urk,false,1999-01-01,b",
        "3,,,,Oss,,,c",
        "4,old,3,10,Ede,yes,2000-01-05,d",
    ]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_survey_counts_what_a_study_would_map(table: Path) -> None:
    found = survey(table, SCHEMA, ["person_id"])
    known = read_table(table, SCHEMA, misfits="map")
    known.check()
    assert found.rows == known.rows == 4
    assert {each.name: each.missing for each in found.columns if each.missing} == known.report.missing
    assert {each.name: each.clipped for each in found.columns if each.clipped} == known.report.clipped
    assert {each.name: each.unknown for each in found.columns if each.unknown} == known.report.misfits
    assert found.unread == ("secret",)


def test_every_cell_that_counts_is_in_one_bar(table: Path) -> None:
    bars = {each.name: each for each in survey(table, SCHEMA).columns}
    assert sum(bars["age"].bars) == 4
    assert len(bars["age"].bars) == BARS
    assert bars["rooms"].bars == (1, 0, 1, 0, 1)
    assert bars["rooms"].ends == ("1", "5")
    assert dict(zip(bars["city"].labels, bars["city"].bars, strict=True)) == {"Ede": 2, "Urk": 1, "none of these": 1}
    assert bars["member"].bars == (2, 2)
    assert bars["since.days"].ends == ("2000-01-01", "2000-01-11")
    assert bars["since.days"].bars == (2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1)
    assert bars["income"].bars[0] == 2
    assert bars["income"].bars[-1] == 1


def test_of_many_values_the_most_frequent_are_drawn(tmp_path: Path) -> None:
    values = [f"v{k:03}" for k in range(60)]
    path = tmp_path / "many.csv"
    path.write_text("c\n" + "\n".join(value for k, value in enumerate(values) for _ in range(k + 1)) + "\n")
    (found,) = survey(path, Schema({"c": category(values)})).columns
    assert len(found.bars) == BARS
    assert found.labels[-2:] == ("v059", "none of these")
    assert sum(found.bars) == 60 * 61 // 2
    assert found.bars[-2] == 60


def test_a_survey_is_written_and_read_back(table: Path) -> None:
    found = survey(table, SCHEMA)
    assert Survey.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_column_that_is_not_there_is_named(table: Path) -> None:
    refused(DataError, ("DA154", "height"), survey, table, Schema({"height": number(0, 3)}))


def test_numbers_at_random_lie_in_the_bars_of_their_values(tmp_path: Path) -> None:
    values = np.random.default_rng(3).uniform(-1, 4, 5000)
    path = tmp_path / "numbers.csv"
    path.write_text("x\n" + "\n".join(map(repr, values.tolist())) + "\n")
    (found,) = survey(path, Schema({"x": number(0, 3)})).columns
    expected, _ = np.histogram(np.clip(values, 0, 3), bins=BARS, range=(0, 3))
    assert np.abs(np.array(found.bars) - expected).max() <= 2
    assert found.clipped == int(((values < 0) | (values > 3)).sum())


def test_what_a_schema_says_is_one_line() -> None:
    told = {name: says(column) for name, column in SCHEMA.columns.items()}
    assert told["age"] == "number from 0 to 100; a missing cell counts as middle"
    assert told["rooms"] == "whole number from 1 to 5; a missing cell has a place of its own"
    assert told["income"] == "number from 0 to 1e+06, by its logarithm; a missing cell counts as 0"
    assert told["city"] == "one of Ede, Urk; a missing cell has a place of its own"
    assert told["since.days"] == "days from 2000-01-01 to 2000-01-11; a missing cell counts as 2000-01-11"
    assert told["member"] == "true or false; a missing cell counts as false"
