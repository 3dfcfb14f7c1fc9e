"""Studies of synthetic tables: planned, run over TLS in threads, refused; and the hospital's example."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from colonnade import Schema, Statement, Synthesizer
from colonnade.errors import BudgetError, ColonnadeError, StudyError
from colonnade.study import preflight
from colonnade.study.local import folder_of
from colonnade.study.record import RunRecord
from tests.support.places import Place
from tests.support.ports import free_port
from tools.pages import blocks

ROWS = 200


COLUMNS = {"bank": ["age", "default"], "shop": ["tier", "visits"], "clinic": ["smoker", "bmi"]}


TASK = 'kind = "synthetic"\nlabel = "bank.default"\nbins = 5\ncomponents = 20\nrows_at_most = 10_000\n'


BROAD = "[budget]\nepsilon = { analyst = 8.0 }\n"


READERS = {"synthetic.parquet", "synthetic.csv", "dictionary.json", "dictionary.md", "card.md"}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    folder = tmp_path_factory.mktemp("synthetic") / "s"
    return Place(folder, COLUMNS, '"synthetic"', "analyst = 500.0", TASK, ROWS, align=True)


def test_everybody_ends_with_the_same_table_and_the_same_card(place):
    out, models = place.run(place.study("plain", TASK, BROAD))
    for name in READERS:
        assert len({(folder_of(out, who) / name).read_bytes() for who in models}) == 1, name
        assert (out / name).stat().st_mode & 0o044, name  # published files are for everybody, and the record is not
    assert not (out / "run.json").stat().st_mode & 0o077
    table = pyarrow.parquet.read_table(out / "synthetic.parquet")
    assert table.column_names == ["age", "default", "visits", "tier", "bmi", "smoker"]
    assert abs(table.num_rows - 0.85 * ROWS) < 60
    assert 18 <= table["age"].to_numpy().min() <= table["age"].to_numpy().max() <= 95
    assert set(json.loads((out / "run.json").read_text())["published"]) == READERS | {"privacy.json"}
    assert "a synthetic table of 6 columns" in (out / "report.html").read_text()


def test_a_model_that_cannot_be_published_says_that_it_is_whole(place):
    study = place.study("full", TASK.replace("bins = 5", "bins = 4"), BROAD)
    taken = place.folder / "runs" / "full" / "card.md"
    taken.mkdir(parents=True)
    with pytest.raises(ColonnadeError) as caught:
        place.run(study)
    for said in ("the study ended well", "card.md cannot be written"):
        assert said in str(caught.value)
    assert Synthesizer.load(taken.parent / "model.json").publish(place.folder)


def test_what_it_costs_and_how_many_people_an_error_needs_is_known_before(place, colonnade):
    study = place.study("priced", TASK, BROAD)
    facts = preflight(study, 400).to_dict()
    assert (facts["method"], facts["marginals"]) == ("marginals", {"0": 1, "1": 6, "2": 15, "3": 10})
    assert facts["binding"]["epsilon"] <= 8
    more, fewer = (colonnade("plan", study.path, "--rows", "--error", error, "--json") for error in (0.001, 0.01))
    assert more["rows"] > 5 * fewer["rows"]


MIXTURE = 'kind = "synthetic"\nmethod = "mixture"\nrows = 170\ncomponents = 2\niterations = 2\nrows_at_most = 10_000\n'
NINE = 'method = "mixture"\nrows = 9\n'


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('label = "x"', 'task.label must be written party.column, such as "bank.default"'),
        ('label = "c.x"', "task.label names 'c.x', and no party of the study begins it"),
        ('focus = [["bank.age", "shop.z"]]', "focus names 'shop.z', and shop has no such column"),
        ('focus = ["bank.age"]', "task.focus.0 must be a list, in brackets"),
        ("bins = true", "task.bins"),
        ('bins = { "shop.tier" = 3 }', "shop: bins of column 'tier': it is a category, and only numbers have bins"),
        ('impossible = ["bank.age > clinic.bmi"]', "impossible: 'bank.age > clinic.bmi'"),
        ('impossible = "bank.age > 3"', "task.impossible must be a list, in brackets"),
        ("size = 0", "task.size"),
        ("gamma = 4", "task.gamma is not a key that is known here"),
        ("iterations = 5", 'iterations is for method = "mixture" alone'),
        (NINE + 'families = { "shop.tier" = "beta" }', "families: shop: column 'tier' cannot be"),
    ],
)
def test_bad_input_is_one_sentence_that_names_the_file_and_the_key(place, colonnade, keys, said):
    path = place.folder / "wrong.toml"
    with suppress(StudyError):  # which the command says then
        place.study("wrong", f'kind = "synthetic"\n{keys}\n', BROAD)
    text = colonnade("privacy", path, code=StudyError.exit_code)
    assert said in text
    assert str(path) in text
    assert text.count("\n") == 1


@pytest.mark.system
def test_a_mixture_over_tls_gives_everybody_the_same_table(place):
    study = place.study("mixture", MIXTURE, "[budget]\nepsilon = { analyst = 2.0 }\n")
    assert "2 openings of sums for 2 components, each about all people" in preflight(study).details.brief
    out, models = place.run(study)
    assert len({(folder_of(out, who) / "synthetic.parquet").read_bytes() for who in models}) == 1
    assert pyarrow.parquet.read_table(out / "synthetic.parquet").num_rows == 170
    assert "Sums over people were released in rounds" in (out / "report.html").read_text()


def test_a_new_run_puts_away_what_an_earlier_one_published(tmp_path):
    record = RunRecord(tmp_path, participant="hospital", study="hospital", digest="0")
    for name in ("synthetic-1.csv", "notes.txt", "../elsewhere.csv"):
        (tmp_path / name).write_text("earlier")
    record.add(published=["synthetic-1.csv", "../elsewhere.csv"])
    RunRecord(tmp_path, participant="hospital", study="hospital", digest="0")
    assert {path.name for path in (tmp_path / "earlier" / "1").iterdir()} == {"synthetic-1.csv", "run.json"}
    assert (tmp_path / "notes.txt").is_file()
    assert (tmp_path.parent / "elsewhere.csv").is_file()


EXAMPLE = Path(__file__).parents[3] / "examples" / "hospital"


QUALITY = EXAMPLE.parents[1] / "docs" / "how-to" / "synthetic-quality.md"


PARTIES = ("hospital", "insurer", "pharmacy")


@pytest.mark.system
def test_three_files_become_a_published_table(colonnade, tmp_path, monkeypatch):
    folder = tmp_path / "hospital"
    made = shutil.ignore_patterns("certs", "runs", "coordinator", "*.key", "*.crt", "ledger.sqlite*", "alignments")
    shutil.copytree(EXAMPLE, folder, ignore=made)
    study = folder / "synth.toml"
    study.write_text(study.read_text().replace(":7450", f":{free_port()}"))
    shown = "".join(block.text for block in blocks(EXAMPLE / "README.md") if block.language == "console")
    init, privacy, run = "init trial synth.toml", "privacy synth.toml --rows 6000", "run synth.toml --out runs/hospital"
    assert shown.splitlines() == [f"$ colonnade {words}" for words in (init, privacy, run)]
    monkeypatch.chdir(folder)
    colonnade(*init.split())
    assert "the count, 13 columns, 78 pairs and 66 triples with the label" in colonnade(*privacy.split())
    assert "made-up people with 13 columns" in colonnade(*run.split())

    out = folder / "runs" / "hospital"
    table = pyarrow.parquet.read_table(out / "synthetic.parquet")
    schemas = {name: Schema.load(folder / "schemas" / f"{name}.toml") for name in PARTIES}
    assert table.column_names == [column for schema in schemas.values() for column in schema.names]
    for name in PARTIES:
        assert (out / "parties" / name / "synthetic.parquet").read_bytes() == (out / "synthetic.parquet").read_bytes()
    age, plan = table["age"].to_numpy(), np.array(table["plan"].to_pylist())
    assert not ((plan == "student") & (age > 40)).any()  # nobody is who cannot be
    statement = Statement.from_dict(json.loads((out / "privacy.json").read_text()))
    assert str(statement) in (out / "card.md").read_text()
    model = Synthesizer.load(out / "model.json")
    real = pyarrow.csv.read_csv(folder / "hospital" / "hospital.csv")
    for name in PARTIES[1:]:
        real = real.join(pyarrow.csv.read_csv(folder / name / f"{name}.csv"), "person_id", join_type="inner")
    assert abs(table.num_rows - real.num_rows) < 250
    back, plans = (real[name].to_numpy(zero_copy_only=False) for name in ("readmitted", "plan"))
    found = model.marginal("hospital.readmitted", "insurer.plan")
    truth = [[((back == flag) & (plans == plan)).sum() for plan in found.labels[1]] for flag in (False, True)]
    assert (abs(found.counts - truth) < 8 * found.deviations).all()
    assert model.sample().equals(table.cast(model.sample(1).schema))

    files = [f"{name}/{name}.csv" for name in PARTIES]
    given = ["runs/hospital/synthetic.parquet", *files, "--id", "person_id", "--label", "readmitted"]
    compared = colonnade("quality", *given, "--page", "quality.html", "--json")
    assert compared["distances"][1]["mean"] < 0.15
    shown = next(block.text for block in blocks(QUALITY) if "colonnade quality" in block.text)
    assert shown.replace("\\", "").split() == ["colonnade", "quality", *given, "--page", "quality.html"]

    for name in PARTIES:
        words = ["party", "synth.toml", f"{name}/party.toml", "--out", f"runs/{name}"]
        assert "epsilon" in colonnade(*words, code=BudgetError.exit_code)
