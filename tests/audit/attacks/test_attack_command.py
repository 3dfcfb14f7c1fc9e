"""``colonnade audit membership | inversion | labels``: what they print, what they leave behind, what they refuse."""

from __future__ import annotations

import json
import stat

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from colonnade import LogisticRegression
from colonnade.errors import DataError, StudyError
from colonnade.models.federation import Roster
from colonnade.models.newcomers import same_people
from colonnade.tables import Schema
from tests.support.pages import Page

NUMBER = '[columns.{}]\ntype = "number"\nlow = 0\nhigh = 1\n'
FEW = ("--shadows", 8)


def people(rows: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    cells = {name: np.round(draw.random(rows), 3) for name in ("a", "b", "c")}
    ill = draw.random(rows) < cells["a"]
    return pa.table(
        {"person": [f"{seed}-{k:04d}" for k in range(rows)], **cells, "ill": ["yes" if each else "no" for each in ill]}
    )


@pytest.fixture
def there(tmp_path, monkeypatch, stream):
    """A model, and files of members and others: of both parties side by side, and in different orders."""
    monkeypatch.chdir(tmp_path)
    schemas = {
        "bank": Schema.from_toml("".join(NUMBER.format(name) for name in "ab")),
        "shop": Schema.from_toml(NUMBER.format("c") + '[columns.ill]\ntype = "flag"\n'),
    }
    for group, seed in (("members", 1), ("others", 2)):
        table = people(80, seed)
        pyarrow.csv.write_csv(table, tmp_path / f"{group}.csv")
        pyarrow.csv.write_csv(table.select(["person", "a", "b"]), tmp_path / f"{group}-bank.csv")
        mixed = table.take(pa.array(np.random.default_rng(3).permutation(80)))
        pyarrow.csv.write_csv(mixed.select(["person", "c", "ill"]), tmp_path / f"{group}-shop.csv")
    members = same_people(dict.fromkeys(schemas, tmp_path / "members.csv"), schemas, "person", "a test")
    model = LogisticRegression(epsilon=1.0, label="shop.ill", method="one-shot")
    model.simulate(members, Roster.of(schemas), stream).save(tmp_path / "model.json")
    return tmp_path


def test_members_are_attacked_and_the_promise_stands_beside(colonnade, there):
    text = colonnade("audit", "membership", "model.json", "--members", "members.csv", "--others", "others.csv", *FEW)
    assert "balanced accuracy" in text
    assert "leaves any attack at most" in text
    assert "The attacker needed the model" in text
    page = there / "runs" / "audit" / "membership.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert len(Page(page.read_text(encoding="utf-8")).all("svg")) == 4
    figures = json.loads((there / "runs" / "audit" / "membership.json").read_text(encoding="utf-8"))
    assert figures["attack"] == "membership"
    assert figures["this_model"]["members"] == 80
    assert 0.5 < figures["promise"]["accuracy"] < 0.6


def test_files_of_each_party_are_matched_by_ids(colonnade, there):
    words = [f"{party}={group}-{party}.csv" for group in ("members", "others") for party in ("bank", "shop")]
    given = ("--members", words[0], "--members", words[1], "--others", words[2], "--others", words[3])
    facts = colonnade("audit", "membership", "model.json", *given, "--id", "person", "--offline", *FEW, "--json")
    assert (facts["members"], facts["others"], facts["offline"]) == (80, 80, True)
    whole = ("--members", "members.csv", "--others", "others.csv")
    again = colonnade("audit", "membership", "model.json", *whole, "--offline", *FEW, "--json")
    assert facts["this_model"]["members"] == again["this_model"]["members"]


def test_columns_are_recovered_from_scores(colonnade, there):
    given = ("--party", "bank", "--people", "others.csv", "--auxiliary", "members.csv", "--decoder", "ridge")
    facts = colonnade("audit", "inversion", "model.json", *given, "--shape", "1x2", "--json", code=DataError.exit_code)
    assert "3 by 3" in facts["message"]
    facts = colonnade("audit", "inversion", "model.json", *given, "--json")
    assert facts["seen"] == "exact scores"
    assert facts["people"] == facts["auxiliary"] == 80
    assert facts["found"]["explained"] < 1
    assert "not for publication" in colonnade("audit", "inversion", "model.json", *given)
    assert (there / "runs" / "audit" / "inversion.html").exists()


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["membership", "none.json", "--members", "members.csv", "--others", "others.csv"], "none.json", StudyError),
        (["membership", "model.json", "--members", "bank=members.csv", "--others", "others.csv"], "shop", DataError),
        (["membership", "model.json", "--members", "mill=members.csv", "--others", "others.csv"], "mill", DataError),
        (["membership", "model.json", "--members", "members-bank.csv", "--others", "others.csv"], "'c'", DataError),
        (
            ["membership", "model.json", "--members", "members.csv", "--others", "others.csv", "--kept", "x.npz"],
            "--kept has no use",
            StudyError,
        ),
        (
            ["membership", "model.json", "--members", "members.csv", "--others", "members.csv", "--id", "person"],
            "80 of the people of --others are among those of --members, too",
            DataError,
        ),
        (
            ["membership", "model.json", "--members", "members.csv", "--others", "others.csv", "--id", "name"],
            "no column 'name', which --id names",
            DataError,
        ),
        (
            [
                *("membership", "model.json", "--members", "bank=members-bank.csv", "--members"),
                *("shop=members-shop.csv", "--others", "others.csv"),
            ],
            "in different orders: say --id person",
            DataError,
        ),
        (["labels", "model.json", "--members", "members.csv"], "nobody is told anything", StudyError),
        (["labels", "model.json", "--members", "members.csv", "--known", "80"], "fewer than that", DataError),
        (
            ["inversion", "model.json", "--party", "x", "--people", "others.csv", "--auxiliary", "members.csv"],
            "no party x",
            StudyError,
        ),
        (
            [
                *("inversion", "model.json", "--party", "bank", "--people", "others.csv"),
                *("--auxiliary", "members.csv", "--shape", "2by1"),
            ],
            "--shape",
            StudyError,
        ),
    ],
    ids=["model", "party lacks", "stranger", "column", "kept", "twice", "id", "order", "labels", "known", "party",
        "shape"],
)  # fmt: skip
def test_mistakes_are_one_sentence(colonnade, there, words, said, code):
    text = colonnade("audit", *words, code=code.exit_code)
    assert text.startswith("colonnade: ")
    assert said in text
    assert "Traceback" not in text


def test_a_cell_that_does_not_fit_is_found_in_its_party(colonnade, there):
    wrong = (there / "others.csv").read_text(encoding="utf-8").replace('"no"', '"perhaps"', 1)
    (there / "others.csv").write_text(wrong, encoding="utf-8")
    words = ("--members", "members.csv", "--others", "others.csv")
    text = colonnade("audit", "membership", "model.json", *words, *FEW, code=DataError.exit_code)
    assert "the files of shop" in text
    assert "perhaps" not in text


def test_too_few_models_are_refused_before_the_first_is_fitted(colonnade, there, monkeypatch):
    monkeypatch.setattr(LogisticRegression, "simulate", lambda *_, **__: pytest.fail("a model was fitted"))
    rows = (there / "others.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (there / "few.csv").write_text("".join(rows[:21]), encoding="utf-8")
    given = ("--members", "members.csv", "--others", "few.csv")
    text = colonnade("audit", "membership", "model.json", *given, "--shadows", 8, code=DataError.exit_code)
    assert "at least 16 shadow models" in text  # 3 of them without each person, who is in four of five
    assert "at least 8, and more" in " ".join(colonnade("audit", "membership", "--help").split())


def test_every_attack_has_help(colonnade):
    for name in ("membership", "inversion", "labels"):
        assert "--json" in colonnade("audit", name, "--help")
        assert name in colonnade("audit", "--help")
