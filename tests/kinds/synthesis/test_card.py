"""What a card, a dictionary and a report say about a table depends on how the table was made, and is true of it."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from colonnade import Federation, Party, Schema, Synthesizer, category, flag, number
from colonnade.kinds.synthesis.report import result
from colonnade.testing.seeded import seeded

ROWS = 1_000
SCHEMAS = {
    "bank": Schema({"age": number(0, 90, whole=True), "rich": flag()}),
    "shop": Schema({"spent": number(0, 1000, missing="none"), "tier": category(["tin", "gold"], missing="none")}),
    "clinic": Schema({"ill": flag()}),
}
WAYS = {
    "products": {"label": "clinic.ill", "components": 10, "bins": 6},
    "tree": {"model": "tree", "label": "clinic.ill", "bins": 6},
    "even bins": {"components": 10, "bins": 30, "even_bins": 5},
    "mixture": {"method": "mixture", "rows": ROWS, "components": 3, "iterations": 5},
}


@pytest.fixture(scope="module")
def people() -> Federation:
    rng = np.random.default_rng(5)
    ids = [f"p{k:06}" for k in range(ROWS)]
    rich, ill = rng.random(ROWS) < 0.4, rng.random(ROWS) < 0.3
    spent = pa.array(rng.random(ROWS) * 500 + 400 * rich, mask=rng.random(ROWS) < 0.2)
    tier = pa.array(np.where(rich, "gold", "tin"), mask=rng.random(ROWS) < 0.2)
    tables = {
        "bank": pa.table({"id": ids, "age": rng.integers(0, 91, ROWS), "rich": rich}),
        "shop": pa.table({"id": ids, "spent": spent, "tier": tier}),
        "clinic": pa.table({"id": ids, "ill": ill}),
    }
    return Federation([Party(name, table, schema=SCHEMAS[name], id="id") for name, table in tables.items()])


@pytest.fixture(scope="module")
def made(people) -> dict[str, tuple[dict[str, bytes], str, Synthesizer]]:
    """By way: the files for readers, what the report says, and the model."""
    found = {}
    for way, given in WAYS.items():
        model = Synthesizer(epsilon=20.0, rows_at_most=10_000, **given)
        model.simulate(people.tables(), people.roster, seeded(3))
        found[way] = (model.published(), str(result(model, {}, list(SCHEMAS))), model)
    return found


SAID = {
    "products": [
        "how any two columns go together, and for learning to predict `clinic.ill`",
        "as evenly as the counts allow", "`tables = 20`", "Of a number only its bin was counted",
        "One noisy release, a mixture of products",
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
        "noisy release", "noisy counts about",
    ],
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_card_says_what_is_so_and_nothing_else(made, way):
    card = made[way][0]["card.md"].decode()
    for text in SAID[way]:
        assert text in card
    for text in (*ABSENT[way], "does so by chance"):
        assert text not in card


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
def test_a_report_says_what_is_so_and_nothing_else(made, way):
    said, absent = REPORTED[way]
    page = made[way][1]
    for text in said:
        assert text in page
    for text in absent:
        assert text not in page


@pytest.mark.parametrize("way", WAYS)
def test_a_dictionary_says_which_cells_are_missing_and_what_was_counted(made, way):
    files, _, model = made[way]
    columns = {column["name"]: column for column in json.loads(files["dictionary.json"])["columns"]}
    table, page = model.sample(500), files["dictionary.md"].decode()
    for name in ("spent", "tier"):
        missing = table[name].null_count > 0
        assert missing == (way != "mixture")
        assert columns[name]["missing"] == ("an empty cell" if missing else "does not occur")
    assert columns["age"]["missing"] == "does not occur"
    assert ("counted in" in page) == (way != "mixture")
    if way == "mixture":
        assert not any({"bins", "codes"} & set(column) for column in columns.values())
    else:
        assert len(columns["age"]["bins"]) == (5 if way == "even bins" else 6)


def test_uneven_bins_have_their_borders_below_them(people):
    model = Synthesizer(epsilon=20.0, components=5, bins={"bank.age": [0, 1, 18, 65], "shop.spent": [0, 100, 300]})
    model.simulate(people.tables(), people.roster, seeded(3))
    page = str(result(model, {}, list(SCHEMAS)))
    for border in ("1", "18", "65", "90", "100", "300", "1,000"):
        assert f">{border}</text>" in page
