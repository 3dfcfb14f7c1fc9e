"""What a card, a dictionary and a report say about a table depends on how the table was made, and is true of it."""

from __future__ import annotations

import json

import pyarrow.csv
import pyarrow.parquet
import pytest

from colonnade import Statement
from colonnade.kinds.synthesis.report import result
from tests.kinds.synthesis.people import BROAD, QUICK, SCHEMAS, WAYS, model, simulated

PUBLISHED = ["synthetic.parquet", "synthetic.csv", "dictionary.json", "dictionary.md", "card.md", "privacy.json"]


def test_files_for_readers(tmp_path):
    fitted = model("products")
    assert [path.name for path in fitted.publish(tmp_path)] == PUBLISHED
    table = pyarrow.parquet.read_table(tmp_path / "synthetic.parquet")
    assert table.num_rows == round(fitted.count_)
    assert table.schema.types == fitted.sample(10).schema.types
    text = pyarrow.csv.read_csv(tmp_path / "synthetic.csv")
    assert (text.column_names, text.num_rows) == (table.column_names, table.num_rows)
    assert text["spent"].null_count == table["spent"].null_count
    assert "spent" in (tmp_path / "dictionary.md").read_text()
    assert Statement.from_dict(json.loads((tmp_path / "privacy.json").read_text())) == fitted.privacy_


def test_several_tables_are_published_with_how_to_combine_them(tmp_path):
    fitted = simulated(400, tables=4, **BROAD, **QUICK)
    names = [path.name for path in fitted.publish(tmp_path)]
    assert names[:8] == [f"synthetic-{k}.{end}" for k in range(1, 5) for end in ("parquet", "csv")]
    assert len({(tmp_path / f"synthetic-{k}.parquet").read_bytes() for k in range(1, 5)}) == 4
    assert "## Intervals" in (tmp_path / "card.md").read_text()


SAID = {
    "products": [
        "how any two columns go together, and for learning to predict `clinic.ill`",
        "as evenly as the counts allow", "`tables = 20`", "Of a number only its bin was counted",
        "One noisy release, a mixture of products", "What it is good for", "What it is not good for", "analyst",
        "`bank.age` with `shop.spent`", "`bank.age < 16 and bank.rich = true`", "people were drawn again",
    ],
    "tree": [
        "keeps some of these pairs and loses what the others say", "Use the error bars of the published counts.",
        "Of a number only its bin was counted", "One noisy release, a tree of pairs",
    ],
    "even bins": ["Two noisy releases: counts of narrow bins", "`tables = 20`"],
    "mixture": [
        "nothing here has an error bar", "takes columns as independent", "**Missing cells.** The table has none",
        "Noisy sums in rounds",
    ],
}  # fmt: skip
ABSENT = {
    "products": ["Two noisy releases", "Missing cells", "loses what the others say"],
    "tree": ["any two columns go together", "for learning to predict", "`tables = 20`", "as evenly as"],
    "even bins": ["One noisy release", "Missing cells"],
    "mixture": [
        "were not counted", "as the counts allow", "error bars of the published counts", "`tables", "its bin",
        "noisy release", "noisy counts about", "bin was counted", "published counts",
    ],
}  # fmt: skip


REPORTED = {
    "products": (["were released once", "all pairs were asked for."], ["by which bins were merged"]),
    "tree": (["were released once", "and the model keeps some of them."], []),
    "even bins": (["both releases are charged", "all pairs were asked for."], ["released once"]),
    "mixture": (
        ["Sums over people were released in rounds", "no pair was counted."],
        ["all pairs", "released once", "than were asked for", "Orange"],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_readers_are_told_what_is_so_and_nothing_else(way):
    fitted = model(way)
    files = {name: content.decode() for name, content in fitted.published().items() if name.endswith((".md", ".json"))}
    said, absent = REPORTED[way]
    for page, there, missing in (
        (files["card.md"], SAID[way], (*ABSENT[way], "does so by chance")),
        (str(result(fitted, {}, list(SCHEMAS))), said, absent),
    ):
        assert [text for text in there if text not in page] == []
        assert [text for text in missing if text in page] == []
    columns = {column["name"]: column for column in json.loads(files["dictionary.json"])["columns"]}
    table = fitted.sample(500)
    assert list(columns) == table.column_names
    for name in ("spent", "town"):
        missing = table[name].null_count > 0
        assert missing == (way != "mixture")
        assert columns[name]["missing"] == ("an empty cell" if missing else "does not occur")
    assert columns["age"]["missing"] == "does not occur"
    assert ("counted in" in files["dictionary.md"]) == (way != "mixture")
    if way == "mixture":
        assert "bins" not in files["dictionary.md"] + files["dictionary.json"]
        assert not any({"bins", "codes"} & set(column) for column in columns.values())
    else:
        assert len(columns["age"]["bins"]) == (5 if way == "even bins" else 6)


def test_uneven_bins_have_their_borders_below_them():
    bins = {"bank.age": [0, 1, 18, 65], "shop.spent": [0, 100, 300]}
    page = str(result(simulated(400, epsilon=20.0, components=5, bins=bins), {}, list(SCHEMAS)))
    for border in ("1", "18", "65", "90", "100", "300", "1,000"):
        assert f">{border}</text>" in page
