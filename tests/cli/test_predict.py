"""``colonnade predict``: a model and files of people in, a CSV file and an assessment out."""

from __future__ import annotations

import csv
import os
import re
import shutil
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from colonnade.errors import DataError, StorageError, StudyError
from colonnade.models import Estimator
from colonnade.models.score_result import ScoreContext
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


def test_a_file_of_predictions_and_an_assessment_where_labels_are_known(colonnade, tmp_path, out) -> None:
    page, turned = tmp_path / "page.html", rewritten(tmp_path, "shop", lambda rows: rows[::-1])
    given = [*LOGISTIC, *tables(shop=turned), "--out", out]
    told = colonnade(*given, "--json")
    found, model = rows_of(out), Estimator.load(model_at("logistic"))
    people = {party: file_of(party) for party in PARTIES}
    assert (told["people"], told["out"]) == (len(found), str(out))
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert list(found[0]) == ["person_id", "prediction", "probability_false", "probability_true"]
    chances = [float(row["probability_true"]) for row in found]
    np.testing.assert_allclose(chances, model.predict_proba(people, id="person_id")[:, 1])
    assert [row["prediction"] for row in found] == ["true" if chance > 0.5 else "false" for chance in chances]
    given += ["--force", "--threshold", "0.3"]
    told = colonnade(*given, "--page", page, "--json")
    expected = model.assess(people, id="person_id")
    assert told["assessment"]["auc"] == pytest.approx(expected.auc)
    assert told["at_threshold"]["accuracy"] == pytest.approx(expected.at(0.3).accuracy)
    assert {(row["prediction"] == "true") == (float(row["probability_true"]) > 0.3) for row in rows_of(out)} == {True}
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    drawn = page.read_text(encoding="utf-8")
    check_words(drawn, "reliability-wide-title", "roc-narrow-title", "not for publication")
    assert "P0000" not in drawn
    check_words(colonnade(*given, "--assess"), f"AUC                {expected.auc:.3f}", "threshold 0.3")


def test_one_file_of_all_columns_and_other_names_of_ids(colonnade, tmp_path, out, expected) -> None:
    lines = [file_of(party).read_text(encoding="utf-8").splitlines() for party in PARTIES]
    joined = [
        ",".join([first, *(each.partition(",")[2] for each in rest)]) for first, *rest in zip(*lines, strict=True)
    ]
    whole = tmp_path / "all.csv"
    whole.write_text("\n".join(joined), encoding="utf-8")
    colonnade(*LOGISTIC, "--table", whole, "--out", out, "--force")
    assert rows_of(out) == expected
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(file_of("shop").read_text(encoding="utf-8").replace("person_id", "customer"), encoding="utf-8")
    given = (*LOGISTIC, *tables(shop=renamed), "--out", out, "--force")
    assert "with --id shop=COLUMN" in " ".join(colonnade(*given, code=DataError.exit_code).split())
    colonnade(*given, "--id", "shop=customer")
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


def test_other_people_are_refused_or_left_out_and_nothing_is_overwritten(colonnade, tmp_path, out, expected) -> None:
    shutil.copyfile(file_of("bank"), out)
    assert "is there already" in colonnade(*LOGISTIC, *tables(), "--out", out, code=StorageError.exit_code)
    assert out.read_bytes() == file_of("bank").read_bytes()
    given = [*LOGISTIC, "--out", out, "--force"]
    given += tables(shop=rewritten(tmp_path, "shop", lambda rows: rows[:1:-1]))
    text = colonnade(*given, code=DataError.exit_code)
    check_words(text, "bank and shop do not hold the same people: of 6 and 4 rows 4 have the same ids", "say --common")
    assert "P0000" not in text
    told = colonnade(*given, "--common", "--json")
    assert told["left_out"] == {"bank": 2, "shop": 0, "clinic": 2}
    assert rows_of(out) == expected[2:]
    assert "2 rows of bank, 0 rows of shop, 2 rows of clinic left out" in colonnade(*given, "--common", "--assess")
    assert "leave --same-order out" in colonnade(*given, "--common", "--same-order", code=DataError.exit_code)


def test_force_replaces_regular_files_alone(colonnade, tmp_path, out) -> None:
    out.symlink_to(os.devnull)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for words in (
        (*LOGISTIC, *tables(), "--out", out, "--force"),
        (*LOGISTIC, *tables(), "--out", pipe, "--force"),
        (*LOGISTIC, *tables(), "--out", tmp_path / "new.csv", "--page", pipe, "--force"),
        ("export", model_at("logistic"), "--to", "json", "--out", pipe, "--force"),
    ):
        text = colonnade(*words, code=StorageError.exit_code)
        check_words(text, "cannot be written: it is no regular file, and only those are replaced")
    assert out.is_symlink()
    assert pipe.is_fifo()


def test_models_of_other_kinds(colonnade, out) -> None:
    colonnade("predict", model_at("linear"), *tables(), "--out", out)
    assert list(rows_of(out)[0]) == ["person_id", "prediction"]
    given = ("predict", model_at("logistic-classes"), *tables(), "--out", out, "--force")
    told = colonnade(*given, "--assess", "--class", "gold", "--json")
    chances = [name for name in rows_of(out)[0] if name.startswith("probability_")]
    assert chances == ["probability_none", "probability_silver", "probability_gold"]
    assert 0 < told["assessment"]["auc"] <= 1
    kept = [word for party in PARTIES for word in ("--kept", FIXTURES / "models" / f"glm.kept.{party}.json")]
    colonnade("predict", model_at("glm"), *tables(), *kept, "--out", out, "--force")
    assert "probability_true" in rows_of(out)[0]


@pytest.mark.parametrize("name", ["prediction", "glm-scores"])
def test_received_scores_become_a_file(colonnade, out, name) -> None:
    told = colonnade("predict", model_at(name), "--out", out, "--json")
    joint, found = Estimator.load(model_at(name)).joint, rows_of(out)
    assert told["people"] == len(found) == len(joint.ids)
    assert [row["id"] for row in found] == joint.ids
    np.testing.assert_allclose([float(row["score"]) for row in found], joint.scores[:, 0])


def test_received_scores_stand_beside_a_model_of_ones_own(colonnade, tmp_path, out) -> None:
    asked = Estimator.load(model_at("prediction"))
    rows = len(asked.ids_)
    told, before = np.linspace(0.2, 0.7, rows), np.linspace(0.6, 0.3, rows)
    both, own_both = (np.stack([1 - each, each], axis=1) for each in (told, before))
    beside = ScoreContext(probabilities=both, own_probabilities=own_both, classes=[False, True])
    asked.store_answers(asked.ids_, asked.scores_, told > 0.5, beside)
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
    assert not out.exists()


def people(rows: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    age, job = draw.integers(18, 90, rows), draw.integers(1, 5, rows)
    smoker = draw.random(rows) < 0.1 + 0.1 * job
    return pa.table(
        {
            "person": [f"{seed}-{k:05d}" for k in range(rows)],
            "age": age,
            "job": pa.array([str(k) for k in job]),
            "income": pa.array(np.round(1000 * draw.gamma(1 + job), 2), mask=draw.random(rows) < 0.05),
            "smoker": smoker,
        }
    )


def write(folder: Path, name: str, table: pa.Table) -> list[str]:
    """The table as two parties hold it, in different orders."""
    first, second = folder / f"{name}-bank.csv", folder / f"{name}-clinic.csv"
    pyarrow.csv.write_csv(table.select(["person", "age", "income"]), first)
    mixed = table.take(pa.array(np.random.default_rng(0).permutation(table.num_rows)))
    cells = mixed.set_column(4, "smoker", pa.array(["yes" if cell else "no" for cell in mixed["smoker"].to_pylist()]))
    pyarrow.csv.write_csv(cells.select(["person", "job", "smoker"]), second)
    return [str(first), str(second)]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list[str]]:
    made_up = people(400, 1).drop_columns(["person"])
    made_up = made_up.set_column(1, "job", made_up["job"].combine_chunks().dictionary_encode())
    pyarrow.parquet.write_table(made_up, tmp_path / "synthetic.parquet")
    pyarrow.csv.write_csv(made_up, tmp_path / "synthetic.csv")
    real = write(tmp_path, "real", people(500, 2))
    return {
        "synthetic": [str(tmp_path / "synthetic.parquet")],
        "text": [str(tmp_path / "synthetic.csv")],
        "real": real,
        "part": real[:1],
        "aside": write(tmp_path, "aside", people(500, 3)),
        "twice": write(tmp_path, "twice", pa.concat_tables([people(5, 4), people(5, 4)])),
        "page": [str(tmp_path / "page.html")],
    }


def test_files_of_parties_are_joined_by_their_ids_and_whom_not_all_hold_is_counted(colonnade, files, tmp_path) -> None:
    aside = [word for path in files["aside"] for word in ("--held-out", path)]
    given = [*files["synthetic"], *files["real"], *aside, "--id", "person", "--label", "smoker"]
    text = colonnade("quality", *files["synthetic"], *files["real"], "--id", "person")
    assert "400 made-up people beside 500 real ones" in text
    assert "attack" not in text
    told = colonnade("quality", *given, "--page", *files["page"], "--json")
    assert (told["rows"], told["synthetic_rows"], told["held_out_rows"]) == (500, 400, 500)
    assert told["associations"]["names"] == ["age", "job", "income", "smoker"]
    assert told["associations"]["real"][1][2] > 0.2, "rows are joined by id, not by place"
    page = Path(files["page"][0])
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    drawn = ("not for publication", "attack by density", "columns-wide-title", "attacks-wide-title")
    check_words(page.read_text(encoding="utf-8"), *drawn)
    bank, clinic = files["real"]
    pyarrow.csv.write_csv(pyarrow.csv.read_csv(bank).slice(0, 450), tmp_path / "fewer.csv")
    given = ["quality", *files["synthetic"], tmp_path / "fewer.csv", clinic, "--id", "person"]
    told = colonnade(*given, "--json")
    assert (told["rows"], told["left_out"]) == (450, 50)
    assert "50 people were left out, because not all files hold them" in colonnade(*given)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["text", "real", "--id", "person"], "give the Parquet file"),
        (["synthetic", "real", "--id", "nobody"], "has no column 'nobody'"),
        (["synthetic", "synthetic", "--id", "person"], "has no column 'person'"),
        (["synthetic", "real", "aside", "--id", "person"], "have nobody in common by 'person'"),
        (["synthetic", "part", "--id", "person"], "lack 'job', 'smoker', which the synthetic table has"),
        (["synthetic", "twice", "--id", "person"], "has several rows for one person by 'person'"),
    ],
)
def test_mistakes_are_told_in_one_sentence(colonnade, files, arguments, sentence) -> None:
    given = [word for name in arguments for word in files.get(name, [name])]
    assert sentence in colonnade("quality", *given, code=DataError.exit_code)


def test_dates_are_compared_as_days(colonnade, tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    days = np.datetime64("2020-01-01") + draw.integers(0, 1000, (2, 300)).astype("m8[D]")
    made_up = pa.table({"seen": days[0], "x": draw.random(300)})
    pyarrow.parquet.write_table(made_up, tmp_path / "made.parquet")
    written = pa.array([f"{day.astype(object):%d.%m.%Y}" for day in days[1]])
    pyarrow.csv.write_csv(pa.table({"seen": written, "x": draw.random(300)}), tmp_path / "real.csv")
    found = colonnade("quality", tmp_path / "made.parquet", tmp_path / "real.csv", "--json")
    assert found["distances"][0]["mean"] < 0.3
