from __future__ import annotations

import pickle
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

from colonnade.errors import SchemaError
from colonnade.tables import Column, Schema, category, flag, number
from tests.support.refusals import refused

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
columns = st.one_of(
    st.builds(
        lambda low, span, scale, missing: number(low, low + span, scale=scale, missing=missing),
        st.floats(-1e9, 1e9),
        st.floats(1e-3, 1e9),
        st.sampled_from(["signed", "unit"]),
        st.sampled_from(["refuse", "none"]),
    ),
    st.builds(lambda low, span: number(low, low + span, whole=True), st.integers(-99, 99), st.integers(1, 10**9)),
    st.builds(
        category,
        st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=4, unique=True),
    ),
    st.builds(flag, missing=st.sampled_from(["refuse", True, False])),
)


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


@pytest.mark.parametrize("count", range(1, 60))
def test_max_norm_is_a_true_upper_bound(count: int) -> None:
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


def test_columns_are_values() -> None:
    assert number(1, 2) == number(1.0, 2.0)
    assert category([1, "b"]).values == ("1", "b")
    with pytest.raises(AttributeError):
        number(1, 2).low = 0  # type: ignore[misc]
    with pytest.raises(TypeError):
        PEOPLE.columns["age"] = flag()  # type: ignore[index]


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


def not_loaded(path: Path, content: str, said: str) -> str:
    """What is said of a schema that is refused: its path and this."""
    path.write_text(content)
    with pytest.raises(SchemaError) as caught:
        Schema.load(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("body", "said"), BAD.items())
def test_errors_name_file_column_and_cure(tmp_path: Path, body: str, said: str) -> None:
    assert "'income'" in not_loaded(tmp_path / "bank.toml", f"[columns.income]\n{body}\n", said)


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
    assert not_loaded(tmp_path / "shop.toml", content, said)


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
