from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import SchemaError, StudyError
from colonnade.randomness import Stream
from colonnade.tables import (
    Schema,
    category,
    coding_of,
    decode_codes,
    dictionary,
    flag,
    impossible_codes,
    joint_names,
    joint_rules,
    number,
    violations,
)
from tests.support.refusals import refused

SCHEMAS = {
    "bank": Schema(
        {"age": number(0, 99, whole=True, unit="years", missing="none"), "loan": flag()},
        impossible=["age < 18 and loan = true"],
    ),
    "shop": Schema({"age": number(0, 99), "city": category(["A", "B"], missing="none")}),
}
RULES = ["bank.loan = true and shop.city = missing", "shop.age < 50 and bank.age >= 60"]
BINS = {"bank": {"age": [10, 18, 60]}, "shop": {"age": [0, 0, 50]}}
CODINGS = {party: coding_of(schema, BINS[party]) for party, schema in SCHEMAS.items()}


def test_rules_within_and_across_parties_name_the_columns_of_the_joint_table() -> None:
    rules = joint_rules(SCHEMAS, RULES)
    assert list(map(str, rules)) == [
        "bank.age < 18 and loan = true",
        "loan = true and city = missing",
        "shop.age < 50 and bank.age >= 60",
    ]
    cells = {"bank.age": [17, 18, 70], "loan": [True, True, False], "shop.age": [0.0, 9.0, 20.0]}
    table = pa.table({**cells, "city": ["A", None, "B"]})
    assert [rule.broken(table).tolist() for rule in rules] == np.eye(3, dtype=bool).tolist()
    assert violations(rules, table).all()


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("age < 3", ("SC056", "age")),
        ("bnak.age < 3", ("SC056", "bank.age")),
        ("bank.loan = 3", ("SC063", "bank.loan")),
    ],
)
def test_rules_across_parties_that_cannot_be_used(rule: str, said: str) -> None:
    refused(StudyError, said, joint_rules, SCHEMAS, [rule])


def test_codes_that_are_impossible_as_a_whole() -> None:
    boxes = impossible_codes(joint_rules(SCHEMAS, RULES), CODINGS)
    assert [box.columns for box in boxes] == [(0, 1), (1, 3), (0, 2)]
    assert [[mask.astype(int).tolist() for mask in box.marked] for box in boxes] == [
        [[1, 1, 0, 0, 0], [0, 1]],
        [[0, 1], [0, 0, 1]],
        [[0, 0, 0, 1, 0], [1, 1, 0]],
    ]
    codes = np.array([[1, 1, 0, 0], [2, 1, 0, 2], [3, 0, 1, 0], [3, 0, 2, 0]])
    assert [box.holds(codes).tolist() for box in boxes] == np.eye(3, 4, dtype=bool).tolist()
    # A rule that cuts through the only bin that it could hold in makes no code impossible as a whole.
    assert impossible_codes(joint_rules(SCHEMAS, ["bank.age < 5 and bank.loan = false"])[1:], CODINGS) == ()


OPERATORS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.tuples(st.sampled_from(["bank.age", "shop.age"]), OPERATORS, st.integers(0, 99)), min_size=1, max_size=3
    ),
    st.sampled_from(["", " and bank.loan = true", " and shop.city != A", " and shop.city = missing"]),
    st.integers(0, 255),
)
def test_every_row_of_an_impossible_code_breaks_the_rule(
    comparisons: list[tuple[str, str, int]], more: str, seed: int
) -> None:
    text = " and ".join(f"{name} {operator} {value}" for name, operator, value in comparisons) + more
    rules = joint_rules(SCHEMAS, [text])[1:]
    chance = np.random.default_rng(seed)
    sizes = [size for coding in CODINGS.values() for size in coding.sizes]
    codes = np.column_stack([chance.integers(0, size, 200) for size in sizes])
    broken = violations(rules, decode_codes(CODINGS, codes, Stream(bytes([seed] * 32))))
    for box in impossible_codes(rules, CODINGS):
        assert broken[box.holds(codes)].all()


def test_the_dictionary_describes_every_column_in_plain_values() -> None:
    found = json.loads(json.dumps(dictionary(CODINGS)))
    assert found[0] == {
        "name": "bank.age",
        "party": "bank",
        "column": "age",
        "type": "whole number",
        "unit": "years",
        "low": 0,
        "high": 99,
        "bins": ["0 to 9", "10 to 17", "18 to 59", "60 to 99"],
        "codes": 5,
        "missing": "an empty cell",
    }
    assert found[1] == {
        "name": "loan",
        "party": "bank",
        "column": "loan",
        "type": "flag",
        "values": [False, True],
        "codes": 2,
        "missing": "does not occur",
    }
    assert (found[2]["type"], found[2]["low"], found[2]["bins"]) == ("number", 0.0, ["0", "0 to below 50", "50 to 99"])
    assert (found[3]["values"], found[3]["codes"], found[3]["missing"]) == (["A", "B"], 3, "an empty cell")


def test_names_in_a_table_of_all_parties_differ_whatever_the_parties_call_their_columns() -> None:
    schemas = {
        "a": Schema({"x": flag(), "y": flag()}),
        "b": Schema({"x": flag()}),
        "c": Schema({"a.x": flag(), "c.a.x": flag()}),
    }
    assert joint_names(schemas) == ("a.x", "y", "b.x", "c.a.x", "c.c.a.x")
    alike = {"a": Schema({"b.x": flag(), "x": flag()}), "a.b": Schema({"x": flag()}), "c": Schema({"b.x": flag()})}
    refused(SchemaError, "SC014", joint_names, alike)
