from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from colonnade.errors import SchemaError
from colonnade.tables import Column, Schema, category, flag, number, violations
from tests.support.refusals import refused

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
    with pytest.raises(SchemaError) as caught:
        Schema(COLUMNS, impossible=["age < 3", rule])
    assert str(caught.value).startswith("impossible: ")
    assert said in str(caught.value)


def test_too_many_rules() -> None:
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
