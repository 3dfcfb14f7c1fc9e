"""The hospital's example, from three CSV files to a published table, as its page says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

from colonnade import PartyConfig, Schema, Statement, Study, Synthesizer
from colonnade.errors import BudgetError
from tests.support.ports import free_port
from tools.pages import blocks

EXAMPLE = Path(__file__).parents[3] / "examples" / "hospital"


QUALITY = EXAMPLE.parents[1] / "docs" / "how-to" / "synthetic-quality.md"


PARTIES = ("hospital", "insurer", "pharmacy")


@pytest.fixture
def folder(tmp_path) -> Path:
    made = shutil.ignore_patterns("certs", "runs", "coordinator", "*.key", "*.crt", "ledger.sqlite*", "alignments")
    place = tmp_path / "hospital"
    shutil.copytree(EXAMPLE, place, ignore=made)
    study = place / "synth.toml"
    study.write_text(study.read_text().replace(":7450", f":{free_port()}"))
    return place


@pytest.mark.system
def test_three_files_become_a_published_table(colonnade, folder, monkeypatch):
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
    _check_values(table)
    text = pyarrow.csv.read_csv(out / "synthetic.csv")
    assert (text.column_names, text.num_rows) == (table.column_names, table.num_rows)
    texts = ("dictionary.json", "privacy.json", "run.json", "card.md", "report.html")
    told = {name: (out / name).read_text() for name in texts}
    assert [column["name"] for column in json.loads(told["dictionary.json"])["columns"]] == table.column_names
    assert str(Statement.from_dict(json.loads(told["privacy.json"]))) in told["card.md"]
    published = {"synthetic.parquet", "synthetic.csv", "dictionary.json", "dictionary.md", "card.md", "privacy.json"}
    assert set(json.loads(told["run.json"])["published"]) == published
    assert "One column at a time" in told["report.html"]
    model = Synthesizer.load(out / "model.json")
    _check_counts(model, table, folder)
    assert model.sample().equals(table.cast(model.sample(1).schema))

    files = [f"{name}/{name}.csv" for name in PARTIES]
    given = ["runs/hospital/synthetic.parquet", *files, "--id", "person_id", "--label", "readmitted"]
    compared = colonnade("quality", *given, "--page", "quality.html", "--json")
    held = [set(pyarrow.csv.read_csv(file)["person_id"].to_pylist()) for file in files]
    assert compared["rows"] == len(set.intersection(*held))
    assert compared["left_out"] == len(set.union(*held)) - compared["rows"]
    assert compared["distances"][1]["mean"] < 0.15
    shown = next(block.text for block in blocks(QUALITY) if "colonnade quality" in block.text)
    assert shown.replace("\\", "").split() == ["colonnade", "quality", *given, "--page", "quality.html"]

    for name in PARTIES:
        words = ["party", "synth.toml", f"{name}/party.toml", "--out", f"runs/{name}"]
        assert "epsilon" in colonnade(*words, code=BudgetError.exit_code)


def _check_values(table) -> None:
    """Types, categories, bounds, and that nobody is who cannot be."""
    age, nights = table["age"].to_numpy(), table["nights"].to_numpy()
    assert (age.dtype, nights.dtype) == (np.int64, np.int64)
    assert 0 <= age.min() <= age.max() <= 95
    marital, plan = (np.array(table[name].to_pylist()) for name in ("marital", "plan"))
    assert set(marital) <= {"single", "married", "divorced", "widowed"}
    assert not ((marital != "single") & (age < 16)).any()
    assert not ((plan == "student") & (age > 40)).any()
    assert 0 < table["adherence"].null_count < table.num_rows
    assert 0 <= table["cost"].to_numpy().min() <= table["cost"].to_numpy().max() <= 100_000


def _check_counts(model: Synthesizer, table, folder: Path) -> None:
    """Published counts across parties are the real ones but for their noise, and the table goes the same way."""
    held = {name: pyarrow.csv.read_csv(folder / name / f"{name}.csv") for name in PARTIES}
    real = held["hospital"]
    for name in PARTIES[1:]:
        real = real.join(held[name], "person_id", join_type="inner")
    assert abs(table.num_rows - real.num_rows) < 250
    back = real["readmitted"].to_numpy(zero_copy_only=False)
    plans = real["plan"].to_numpy(zero_copy_only=False)
    found = model.marginal("hospital.readmitted", "insurer.plan")
    truth = [[((back == flag) & (plans == plan)).sum() for plan in found.labels[1]] for flag in (False, True)]
    assert (abs(found.counts - truth) < 8 * found.deviations).all()
    for name in ("nights", "medicines"):
        gaps = []
        for rows in (real, table):
            flag, value = rows["readmitted"].to_numpy(zero_copy_only=False), rows[name].to_numpy()
            gaps.append(value[flag].mean() - value[~flag].mean())
        assert 0.3 * gaps[0] < gaps[1] < 2 * gaps[0]


def test_everybodys_policy_allows_it_once(folder):
    study = Study.load(folder / "synth.toml")
    for name in PARTIES:
        config = PartyConfig.load(folder / name / "party.toml")
        config.check(study)
        config.check_budget(study)
        assert config.table(study.roster.schemas[name]).rows == 5760


@pytest.mark.system
def test_the_tables_are_those_of_the_script(folder):
    written = {name: (folder / name / f"{name}.csv").read_bytes() for name in PARTIES}
    for name in PARTIES:
        (folder / name / f"{name}.csv").unlink()
    subprocess.run([sys.executable, "make.py"], cwd=folder, check=True)
    for name in PARTIES:
        assert (folder / name / f"{name}.csv").read_bytes() == written[name]
        head = (folder / name / f"{name}.csv").read_text().splitlines()[0].split(",")
        assert head == ["person_id", *Schema.load(folder / "schemas" / f"{name}.toml").names]
