"""``colonnade predict``: a model and files of people in, a CSV file and an assessment out."""

from __future__ import annotations

import csv
import re
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest

from colonnade.errors import DataError, SchemaError, StorageError, StudyError
from colonnade.models import Estimator
from colonnade.models.predicted import Beside
from tests.support.pages import Page
from tests.support.studies import check_words

FIXTURES = Path(__file__).parents[1] / "fixtures"
PARTIES = ("bank", "shop", "clinic")


def model_at(name: str) -> str:
    return str(FIXTURES / "models" / f"{name}.json")


def file_of(party: str) -> Path:
    return FIXTURES / "people" / f"{party}.csv"


def tables(**instead: Path) -> list[str]:
    return [word for party in PARTIES for word in ("--table", f"{party}={instead.get(party, file_of(party))}")]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def rewritten(tmp_path: Path, party: str, change) -> Path:
    """A party's file with other rows; the first line is its header."""
    header, *rows = file_of(party).read_text(encoding="utf-8").splitlines()
    target = tmp_path / f"{party}.csv"
    target.write_text("\n".join([header, *change(rows)]) + "\n", encoding="utf-8")
    return target


LOGISTIC = ("predict", model_at("logistic"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "predictions.csv"


@pytest.fixture
def expected(colonnade, tmp_path: Path) -> list[dict[str, str]]:
    """What the model predicts from everybody's own files."""
    path = tmp_path / "expected.csv"
    colonnade(*LOGISTIC, *tables(), "--out", path)
    return rows_of(path)


def test_a_file_of_predictions_holds_ids_classes_and_chances(colonnade, tmp_path, out) -> None:
    turned = rewritten(tmp_path, "shop", lambda rows: rows[::-1])
    told = colonnade(*LOGISTIC, *tables(shop=turned), "--out", out, "--json")
    found, model = rows_of(out), Estimator.load(model_at("logistic"))
    people = {party: file_of(party) for party in PARTIES}
    assert told == {"model": model_at("logistic"), "people": len(found), "out": str(out)}
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert list(found[0]) == ["person_id", "prediction", "probability_false", "probability_true"]
    assert found[0]["person_id"] == "P0000"
    chances = [float(row["probability_true"]) for row in found]
    np.testing.assert_allclose(chances, model.predict_proba(people, id="person_id")[:, 1])
    assert [row["prediction"] for row in found] == ["true" if chance > 0.5 else "false" for chance in chances]


def test_an_assessment_is_printed_and_drawn_where_labels_are_known(colonnade, tmp_path, out) -> None:
    page = tmp_path / "page.html"
    given = [*LOGISTIC, *tables(), "--out", out, "--threshold", "0.3"]
    told = colonnade(*given, "--page", page, "--json")
    model = Estimator.load(model_at("logistic"))
    expected = model.assess({party: file_of(party) for party in PARTIES}, id="person_id")
    assert told["assessment"]["auc"] == pytest.approx(expected.auc)
    assert told["at_threshold"]["accuracy"] == pytest.approx(expected.at(0.3).accuracy)
    assert [row["prediction"] == "true" for row in rows_of(out)] == [
        float(row["probability_true"]) > 0.3 for row in rows_of(out)
    ]
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    read = Page(page.read_text(encoding="utf-8"))
    assert {"reliability-wide-title", "roc-narrow-title"} <= {attrs.get("id") for attrs in read.all("title")}
    assert "not for publication" in " ".join(read.text)
    assert "P0000" not in page.read_text(encoding="utf-8")
    text = colonnade(*given, "--assess", "--force")
    assert f"AUC                {expected.auc:.3f}" in text
    assert "at the threshold 0.3" in text


def test_one_file_of_all_columns_and_other_names_of_ids(colonnade, tmp_path, out, expected) -> None:
    joined, names = [], []
    for party in PARTIES:
        header, *rows = csv.reader(file_of(party).read_text(encoding="utf-8").splitlines())
        names += header[1 if names else 0 :]
        joined = [[*before, *row[1:]] for before, row in zip(joined, rows, strict=True)] if joined else rows
    whole = tmp_path / "all.csv"
    with whole.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *joined])
    colonnade(*LOGISTIC, "--table", whole, "--out", out, "--force")
    assert rows_of(out) == expected
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(file_of("shop").read_text(encoding="utf-8").replace("person_id", "customer"), encoding="utf-8")
    given = (*LOGISTIC, *tables(shop=renamed), "--out", out, "--force")
    told = " ".join(colonnade(*given, code=DataError.exit_code).split())
    columns = ["customer", *next(csv.reader(file_of("shop").read_text(encoding="utf-8").splitlines()))[1:]]
    check_words(told, *map(repr, columns), "name the one that holds ids with --id shop=COLUMN")
    colonnade(*given, "--id", "shop=customer")
    assert [row["prediction"] for row in rows_of(out)] == [row["prediction"] for row in expected]
    assert [row["id"] for row in rows_of(out)] == [row["person_id"] for row in expected]
    colonnade(*LOGISTIC, *tables(), "--same-order", "--out", out, "--force")
    assert list(rows_of(out)[0]) == ["prediction", "probability_false", "probability_true"]


def test_how_new_files_are_written_is_said_by_options(colonnade, tmp_path, out, expected) -> None:
    text = file_of("shop").read_text(encoding="utf-8")
    other = tmp_path / "shop.csv"
    other.write_text(text.replace(",", ";"), encoding="utf-16")
    given = [*LOGISTIC, *tables(shop=other), "--out", out, "--force"]
    utf16 = ("--encoding", "shop=utf-16")
    assert "looks like UTF-16; give --encoding 'shop=utf-16'" in colonnade(*given, code=DataError.exit_code)
    assert "give --separator 'shop=;'" in colonnade(*given, *utf16, code=DataError.exit_code)
    colonnade(*given, *utf16, "--separator", "shop=;")
    assert rows_of(out) == expected
    other.write_text("\n".join(re.sub(r"(\d)\.(\d)", r"\1,\2", line.replace(",", ";")) for line in text.split("\n")))
    colonnade(*given, "--separator", "shop=;", "--decimal", "shop=,")
    assert rows_of(out) == expected
    told = colonnade(*given, "--encoding", "klingon", code=SchemaError.exit_code)
    assert "encoding must be one that Python knows" in told


def test_only_the_people_whom_all_files_hold(colonnade, tmp_path, out, expected) -> None:
    given = [*LOGISTIC, "--out", out, "--force"]
    given += tables(shop=rewritten(tmp_path, "shop", lambda rows: rows[:1:-1]))
    assert "say --common" in colonnade(*given, code=DataError.exit_code)
    told = colonnade(*given, "--common", "--json")
    assert told["left_out"] == {"bank": 2, "shop": 0, "clinic": 2}
    assert rows_of(out) == expected[2:]
    assert "2 rows of bank, 0 rows of shop, 2 rows of clinic left out" in colonnade(*given, "--common")
    colonnade(*given, "--common", "--assess")
    assert "leave --same-order out" in colonnade(*given, "--common", "--same-order", code=DataError.exit_code)


def test_models_of_other_kinds(colonnade, out) -> None:
    colonnade("predict", model_at("linear"), *tables(), "--out", out)
    assert list(rows_of(out)[0]) == ["person_id", "prediction"]
    given = ("predict", model_at("logistic-classes"), *tables(), "--out", out, "--force")
    told = colonnade(*given, "--assess", "--class", "gold", "--json")
    chances = [name for name in rows_of(out)[0] if name.startswith("probability_")]
    assert chances == ["probability_none", "probability_silver", "probability_gold"]
    assert told["at_threshold"] is None
    assert 0 < told["assessment"]["auc"] <= 1
    kept = [word for party in PARTIES for word in ("--kept", FIXTURES / "models" / f"glm.kept.{party}.json")]
    colonnade("predict", model_at("glm"), *tables(), *kept, "--out", out, "--force")
    assert "probability_true" in rows_of(out)[0]


@pytest.mark.parametrize("name", ["prediction", "prediction-exact", "glm-scores"])
def test_received_scores_become_a_file(colonnade, out, name) -> None:
    told = colonnade("predict", model_at(name), "--out", out, "--json")
    joint, found = Estimator.load(model_at(name)).joint, rows_of(out)
    assert told["people"] == len(found) == len(joint.ids)
    assert [row["id"] for row in found] == joint.ids
    np.testing.assert_allclose([float(row["score"]) for row in found], joint.scores[:, 0])
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_received_scores_stand_beside_a_model_of_ones_own(colonnade, tmp_path, out) -> None:
    asked = Estimator.load(model_at("prediction"))
    rows = len(asked.ids_)
    told, before = np.linspace(0.2, 0.7, rows), np.linspace(0.6, 0.3, rows)
    chances = {"probabilities": np.stack([1 - told, told], axis=1)}
    chances["own_probabilities"] = np.stack([1 - before, before], axis=1)
    asked.received(asked.ids_, asked.scores_, told > 0.5, Beside(**chances, classes=[False, True]))
    asked.save(tmp_path / "scores.json")
    mine, own = tmp_path / "own.csv", np.linspace(0.1, 0.8, rows)
    lines = [f"{person},{chance!r}\n" for person, chance in zip(asked.ids_, own.tolist(), strict=True)]
    mine.write_text("id,probability\n" + "".join(reversed(lines)), encoding="utf-8")
    colonnade("predict", tmp_path / "scores.json", "--own", mine, "--out", out)
    odds = own / (1 - own) * told / (1 - told) * (1 - before) / before
    np.testing.assert_allclose([float(row["probability_true"]) for row in rows_of(out)], odds / (1 + odds))
    for text, sentence in (
        ("id,chance\n", "'probability' is not there"),
        ("id,probability\np,much\n", "a number in every row"),
        ("id,probability\np,0.5\np,0.6\n", "more than once"),
        ("id,probability\np,0.5\n", "says nothing of"),
    ):
        mine.write_text(text, encoding="utf-8")
        code = StudyError.exit_code if "nothing" in sentence else DataError.exit_code
        said = colonnade("predict", tmp_path / "scores.json", "--own", mine, "--out", out, "--force", code=code)
        assert sentence in " ".join(said.split())


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "sentence"),
    [
        ("logistic", [*tables(), "--own", "x.csv"], StudyError, "leave --own out"),
        ("logistic", [], DataError, "--table PARTY=FILE for each of bank, shop, clinic"),
        ("logistic", ["--table", "bank=nowhere.csv"], DataError, "no table of shop, clinic"),
        ("logistic", ["--table", "bnk=nowhere.csv"], DataError, "and no bnk.*bank"),
        ("logistic", ["--table", "a.csv", "--table", "b.csv"], DataError, "each party's file once"),
        ("logistic", [*tables(), "--id", "a", "--id", "b"], DataError, "give one --id COLUMN"),
        ("logistic", [*tables(), "--id", "nobody"], DataError, "'nobody' is not there"),
        ("logistic", [*tables(), "--threshold", "2"], StudyError, "between 0 and 1"),
        ("logistic", [*tables(), "--threshold", "much"], StudyError, "between 0 and 1"),
        ("logistic", [*tables(), "--threshold", "balanced"], StudyError, "does not release"),
        ("logistic", [*tables(), "--assess", "--class", "x"], DataError, "must be one of 'False', 'True'"),
        ("logistic", [*tables(), "--kept", "x.json"], StudyError, "leave --kept out"),
        ("linear", [*tables(), "--assess"], StudyError, "only chances of classes"),
        ("linear", [*tables(), "--threshold", "0.3"], StudyError, "predicts numbers"),
        ("pca", tables(), StudyError, "predicts nothing about a person"),
        ("glm", tables(), StudyError, "are kept there"),
        ("prediction", tables(), StudyError, "leave --table out"),
        ("prediction", ["--threshold", "0.3"], StudyError, "these scores have none"),
        ("prediction-untold", [], StudyError, "with the party that received them"),
    ],
)
def test_what_cannot_be_predicted_is_one_sentence_and_no_file(colonnade, out, name, arguments, kind, sentence) -> None:
    text = colonnade("predict", model_at(name), *arguments, "--out", out, code=kind.exit_code)
    assert re.search(sentence, text)
    assert "Traceback" not in text
    assert not out.exists()


def test_other_people_are_refused_and_nothing_is_overwritten(colonnade, tmp_path, out) -> None:
    fewer = rewritten(tmp_path, "clinic", lambda rows: rows[2:])
    given = [*LOGISTIC, "--out", out]
    text = colonnade(*given, *tables(clinic=fewer), code=DataError.exit_code)
    assert "bank and clinic do not hold the same people: of 6 and 4 rows 4 have the same ids" in text
    assert "P0000" not in text
    shutil.copyfile(file_of("bank"), out)
    assert "is there already" in colonnade(*given, *tables(), code=StorageError.exit_code)
    assert out.read_bytes() == file_of("bank").read_bytes()
