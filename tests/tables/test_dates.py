"""Columns of dates: as days, month and weekday, from text and from dates, and back."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from colonnade import Schema, category, date, number, read_table
from colonnade.errors import DataError, SchemaError
from colonnade.tables import Days, coding_of, decode, decode_codes, encode_columns
from colonnade.tables.centred import Centred
from colonnade.tables.dates import MONTHS, WEEKDAYS, Date
from colonnade.tables.joint import dictionary, impossible_codes, joint_rules
from colonnade.testing.seeded import seeded
from tests.support.errors import refused

FIRST, LAST = "2015-01-01", "2024-12-31"
SPAN = (datetime.date(2024, 12, 31) - datetime.date(2015, 1, 1)).days
ALL = ["days", "month", "weekday"]


def every_day() -> list[datetime.date]:
    return [datetime.date(2015, 1, 1) + datetime.timedelta(days=day) for day in range(SPAN + 1)]


def written(days: list[datetime.date], format: str) -> Any:
    return pa.array([day.strftime(format) for day in days])


@pytest.mark.parametrize("format", ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d (%m) %Y"])
def test_every_day_of_ten_years_from_text_agrees_with_python(format: str) -> None:
    days = every_day()
    schema = Schema({"at": date(FIRST, LAST, parts=ALL, format=format)})
    matrix, report = encode_columns({"at": written(days, format)}, schema)
    assert report.total_clipped == 0
    assert matrix[:, 0] == pytest.approx(2 * np.arange(SPAN + 1) / SPAN - 1)
    assert matrix[:, 1:13].argmax(axis=1).tolist() == [day.month - 1 for day in days]
    assert matrix[:, 13:].argmax(axis=1).tolist() == [day.weekday() for day in days]
    assert (matrix[:, 1:].sum(axis=1) == 2).all()
    assert schema.encoded_names[:2] == ("at.days", "at.month=January")
    for kind in (
        pa.date32(),
        pa.date64(),
        pa.timestamp("s"),
        pa.timestamp("ns"),
    ):  # as frames and Parquet files have it
        found, _ = encode_columns({"at": pa.array(days, pa.date32()).cast(kind)}, schema)
        assert np.array_equal(found, matrix)


def test_one_part_keeps_the_name_and_days_outside_are_clipped_and_counted() -> None:
    schema = Schema({"at": date(FIRST, LAST), "on": date(parts="weekday")})
    assert (schema.names, schema.encoded_names[1]) == (("at", "on"), "on=Monday")
    assert schema.columns["on"].parts == tuple(f"={name}" for name in WEEKDAYS)
    single = Schema({"at": date(parts=["month"])})
    assert (single.names, single.sources) == (("at.month",), ("at",))
    schema = Schema({"at": date(FIRST, LAST, parts=["days", "month"])})
    matrix, report = encode_columns({"at": pa.array(["1999-03-01", "2050-02-28", "2015-01-01"])}, schema)
    assert matrix[:, 0].tolist() == [-1, 1, -1]
    assert matrix[:, 1:].argmax(axis=1).tolist() == [2, 1, 0]
    assert report.clipped == {"at.days": 2}


MISSING: list[tuple[Any, list[float]]] = [
    ("none", [0, 1]),
    ("middle", [0]),
    ("from", [-1]),
    ("until", [1]),
    ("2015-01-01", [-1]),
    (datetime.date(2024, 12, 31), [1]),
]


@pytest.mark.parametrize(("missing", "encoded"), MISSING)
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


REFUSED: list[tuple[Any, str]] = [
    (["2020-02-30"], "the cell is not a date as format"),
    (["31.12.2020"], 'the schema can say format = "%d.%m.%Y"'),
    (["2020-01-01 12:00"], "has a time of day; keep the date alone"),
    (["2020-01-01T00:00:00Z"], "has a time of day"),
    (["5 May 2020"], "not a date"),
    (["20-01-01"], "not a date"),
    (pa.array([1, 2]), "holds int64 cells, but the schema declares a date"),
    (pa.array([0], pa.timestamp("s", "Europe/Berlin")), "time zone"),
    (pa.array([3600], pa.timestamp("s")), "time of day"),
]


@pytest.mark.parametrize(("cells", "said"), REFUSED)
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


WRONG: list[tuple[dict[str, Any], str]] = [
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
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_what_a_date_cannot_be(given: dict[str, Any], said: str) -> None:
    refused(SchemaError, said, date, **given)


def test_dates_in_a_file(tmp_path: Path) -> None:
    text = '[columns.at]\ntype = "date"\nfrom = 2015-01-01\nuntil = "2024-12-31"\nas = ["days", "weekday"]\n'
    schema = Schema.from_toml(text)
    assert schema == Schema({"at": date(FIRST, LAST, parts=["days", "weekday"])})
    assert Schema.load(schema.save(tmp_path / "s.toml")) == schema
    refused(SchemaError, ("SC086", "until"), Schema.from_toml, text.replace("until", "untill"))
    refused(SchemaError, ("SC038", "at"), Schema.from_toml, text.replace("weekday", "weekdays"))
    refused(SchemaError, ("SC084", "at"), Schema.from_toml, text + "drafted = true\n")


def test_whatever_decides_the_day_of_a_cell_and_its_column_are_part_of_the_digest() -> None:
    plain = Schema({"at": date(FIRST, LAST)})
    assert plain.digest == "f5851fa99add4706db8b3b22df01a19f1d64e8633d4a7f9b53a2f2cc3eb7d6ff"
    assert plain.digest != Schema({"at": date(FIRST, "2025-01-01")}).digest
    assert plain.digest != Schema({"at": number(0, SPAN, whole=True)}).digest
    assert Schema({"at": date(parts="month")}).digest != Schema({"at": category(MONTHS)}).digest
    day_first, month_first = (Schema({"at": date(FIRST, LAST, format=each)}) for each in ("%d/%m/%Y", "%m/%d/%Y"))
    assert len({plain.digest, day_first.digest, month_first.digest}) == 3
    assert plain == day_first == month_first  # the encoded numbers mean the same days
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
    assert schema.select(["at.month", "x"]).names == ("at.month", "x")
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
        one, other = Centred(dated, None, norm), Centred(plain, None, norm)  # type: ignore[arg-type]
        assert one.clip == other.clip
        assert [radius for _, radius in one.groups] == [radius for _, radius in other.groups]


def test_decoding_gives_dates_back() -> None:
    days = every_day()
    schema = Schema({"at": date(FIRST, LAST, parts=["days", "month"], missing="none")})
    cells = pa.array([*days, None], pa.date32())
    found = decode(schema, encode_columns({"at": cells}, schema)[0])
    assert found["at.days"].to_pylist() == [*days, None]
    assert found["at.month"].to_pylist() == [*(MONTHS[day.month - 1] for day in days), None]
    again = read_table(found, schema.decoded(), id=None)
    assert np.array_equal(again.matrix(), encode_columns({"at": cells}, schema)[0])


def test_codes_are_bins_of_days_and_become_dates_within_them() -> None:
    days = every_day()
    schema = Schema({"at": date(FIRST, LAST), "x": number(0, 1)}, impossible=["at < 2016-01-01 and x > 0.5"])
    coding = coding_of(schema, {"at": 10, "x": 2})
    assert coding.columns[0].labels[0] == "2015-01-01 to 2016-01-01"
    edges = coding_of(schema, {"at": ["2016-01-01", "2020-01-01"]}).columns[0].labels
    assert edges == ("2015-01-01 to 2015-12-31", "2016-01-01 to 2019-12-31", "2020-01-01 to 2024-12-31")
    refused(SchemaError, ("SC047", "at"), coding_of, schema, {"at": ["January"]})
    table = read_table(pa.table({"at": pa.array(days), "x": np.zeros(len(days))}), schema, id=None)
    codes = coding.rows(table).matrix()
    made = decode_codes({"a": coding}, codes, seeded(3))
    assert made["at"].type == pa.date32()
    again = coding.rows(read_table(made, schema, id=None)).matrix()
    assert np.array_equal(again[:, 0], codes[:, 0])
    assert dictionary({"a": coding})[0] | {"bins": 0} == {
        "name": "at",
        "party": "a",
        "column": "at",
        "type": "date",
        "from": FIRST,
        "until": LAST,
        "bins": 0,
        "codes": 10,
        "missing": "does not occur",
    }


def test_rules_about_dates_and_a_column_that_knows_its_days() -> None:
    columns = {"at": date(FIRST, LAST), "x": number(0, 1)}
    schema = Schema(columns, impossible=["at < 2018-01-01 and x >= 0.5"])
    (rule,) = joint_rules({"a": schema})
    cells = pa.table({"at": pa.array([datetime.date(2017, 1, 1), datetime.date(2019, 1, 1)]), "x": [1.0, 1.0]})
    assert rule.broken(cells).tolist() == [True, False]
    (box,) = impossible_codes([rule], {"a": coding_of(schema, {"at": 10, "x": 2})})
    assert box.marked[0].tolist() == [True] * 3 + [False] * 7
    assert Schema.from_toml(schema.to_toml()) == schema
    refused(SchemaError, "SC059", Schema, columns, impossible=["at < 1999-01-01"])
    refused(SchemaError, "SC047", Schema, columns, impossible=["at < 5"])
    (column,) = Date(FIRST, LAST).columns("at").values()
    assert isinstance(column, Days)
    assert column.day_of(column.number_of(datetime.date(2020, 2, 29))) == "2020-02-29"
    assert column.unit == "days since 2015-01-01"
