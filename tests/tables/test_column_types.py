"""A new type of column is one class and one row: this one is defined here, and nowhere else is a word of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from colonnade import Synthesizer
from colonnade.errors import DataError, SchemaError
from colonnade.models.onnx_export import OnnxGraph, encode_columns
from colonnade.tables import (
    Schema,
    build_coding,
    cell_parsing,
    data_dictionary,
    decode,
    decode_codes,
    number,
    read_table,
    schema as toml,
)
from colonnade.tables.columns import REFUSE, Column
from colonnade.tables.profiling import profile_table
from colonnade.tables.table import ColumnCentring
from colonnade.testing import seeded
from tests.support.errors import refused
from tests.support.federations import federation

ROWS = 400
TOML = """
[table]
impossible = ["school = A and age < 20"]

[columns.age]
type = "number"
low = 0
high = 100

[columns.school]
type = "grade"
grades = ["F", "D", "C", "B", "A"]
"""


@dataclass(frozen=True, slots=True)
class Grade(Column):
    """One of a few grades, from the worst to the best, encoded to one number from 0 to 1."""

    grades: tuple[str, ...]
    missing: str = REFUSE

    kind = "grade"

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {"type": self.kind, "grades": list(self.grades)}
        return found if self.missing == REFUSE else found | {"missing": self.missing}

    @property
    def classes(self) -> tuple[str, ...]:
        return self.grades

    def read(self, cells: Any, place: cell_parsing.CellLocation) -> tuple[Any, cell_parsing.Mask]:
        return cell_parsing.parse_codes(cells, self.grades, place)

    def write(self, values: Any, gone: cell_parsing.Mask, out: Any) -> int:
        values[gone] = 0 if self.missing == REFUSE else self.grades.index(self.missing)
        out[:, 0] = values / (len(self.grades) - 1)
        return 0

    def decode(self, encoded: Any, place: cell_parsing.CellLocation, stream: Any) -> Any:
        return self.cells(self.codes(encoded))

    def describe_values(self) -> str:
        return f"a grade from {self.grades[0]} to {self.grades[-1]}"

    def to_onnx(self, graph: Any, name: str) -> Any:
        keys = {"keys_strings": list(self.grades), "values_floats": np.linspace(0, 1, len(self.grades)).tolist()}
        return graph.double(graph.add("LabelEncoder", graph.input(name, text=True), domain="ai.onnx.ml", **keys))


def grade(grades: Sequence[str], *, missing: str = REFUSE) -> Grade:
    return Grade(tuple(grades), missing)


@pytest.fixture(autouse=True)
def row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(toml.COLUMN_TYPES, "grade", grade)


def people(rows: int = ROWS) -> pa.Table:
    random = np.random.default_rng(1)
    age = random.integers(20, 90, rows)
    school = np.array(["F", "D", "C", "B", "A"])[np.clip((age - 20) // 14 + random.integers(-1, 2, rows), 0, 4)]
    return pa.table({"person_id": [f"p{n:04d}" for n in range(rows)], "age": age, "school": school})


def written(folder: Path) -> Path:
    path = folder / "school.csv"
    pa.csv.write_csv(people(), path)
    return path


def test_it_is_read_from_toml_and_written_back_and_its_keys_are_those_of_its_maker() -> None:
    schema = Schema.from_toml(TOML)
    assert schema.columns["school"] == grade("FDCBA")
    assert Schema.from_toml(schema.to_toml()) == schema
    assert schema.encoded_names == ("age", "school")
    for wrong, said in ((TOML.replace("grades", "marks"), "SC086"), (TOML.replace("grades =", "missing ="), "SC080")):
        refused(SchemaError, said, Schema.from_toml, wrong)


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_file_is_read_encoded_and_decoded(tmp_path: Path, on_disk: bool) -> None:
    schema = Schema.from_toml(TOML)
    table = read_table(written(tmp_path), schema, on_disk=on_disk)
    matrix = table.matrix()
    back = decode(schema, matrix)
    assert back["school"].to_pylist() == people()["school"].to_pylist()
    assert set(matrix[:, 1]) == {0, 0.25, 0.5, 0.75, 1}
    assert table.sorted_by_id().report.rows == ROWS


def test_cells_that_it_does_not_know_are_refused_or_mapped() -> None:
    cells = pa.table({"person_id": ["a", "b", "c"], "age": [1, 2, 3], "school": ["A", "Z", ""]})
    schema = Schema.from_toml(TOML)
    refused(DataError, "DA193", read_table(cells, schema).matrix)
    found = read_table(cells, schema, misfits="map")
    assert found.matrix()[:, 1].tolist() == [1, 0, 0]
    assert (found.report.misfits, found.report.missing) == ({"school": 2}, {})
    stated = Schema.from_toml(TOML + 'missing = "C"\n')
    assert read_table(cells, stated, misfits="map").matrix()[:, 1].tolist() == [1, 0.5, 0.5]


def test_it_has_codes_words_bars_and_rules(tmp_path: Path) -> None:
    schema = Schema.from_toml(TOML)
    coding = build_coding(schema, {"age": 4})
    assert coding.sizes == (4, 5)
    codes = coding.code_rows(read_table(people(), schema)).matrix()
    table = decode_codes({"school": coding}, codes, seeded(1))
    assert table["school"].to_pylist() == people()["school"].to_pylist()
    assert data_dictionary({"school": coding})[1]["values"] == ["F", "D", "C", "B", "A"]
    refused(SchemaError, ("SC015", "grade"), build_coding, schema, {"school": 3})
    found = profile_table(written(tmp_path), schema).columns[1]
    assert found.summary == "a grade from F to A; a missing cell is mapped"
    assert (found.labels, sum(found.bars)) == (("F", "D", "C", "B", "A"), ROWS)
    (rule,) = schema.impossible
    assert rule.find_violations(pa.table({"age": [10, 10, 30], "school": ["A", "B", "A"]})).tolist() == [
        True,
        False,
        False,
    ]
    assert rule.is_satisfiable("school", schema.columns["school"])
    refused(SchemaError, ("SC063", "grade"), Schema.from_toml, TOML.replace("school = A", "school = Z"))


def test_it_is_centred_bounded_and_exported() -> None:
    schema = Schema.from_toml(TOML)
    centred = ColumnCentring(schema)
    rows = centred.centre_rows(read_table(people(), schema)).matrix()
    assert (np.linalg.norm(rows, axis=1) <= centred.clip).all()
    assert centred.middle.tolist() == [0.0, 0.5]
    pytest.importorskip("onnx")
    graph = OnnxGraph()
    graph.output(encode_columns(graph, "school", schema), "rows", ["rows", 2])
    assert graph.pack("rows", {})


def test_models_learn_from_it_without_a_word_about_it() -> None:
    school = Schema.from_toml(TOML.replace('impossible = ["school = A and age < 20"]', "")).without(["age"])
    arrow = {"town": people().select(["person_id", "age"]), "school": people().select(["person_id", "school"])}
    joined = federation(arrow, {"town": Schema({"age": number(0, 100)}), "school": school}, id="person_id")
    drawn = Synthesizer(epsilon=20.0, delta=1e-6).simulate(joined.tables(), joined.roster, seeded(2)).sample(ROWS)
    assert set(drawn["school"].to_pylist()) <= set("FDCBA")
    best = np.array([cell in "AB" for cell in drawn["school"].to_pylist()])
    age = drawn["age"].to_numpy()
    assert age[best].mean() > age[~best].mean() + 10
