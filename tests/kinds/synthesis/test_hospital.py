"""The hospital's example, from three CSV files to a published table, as its page says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

from colonnade import Schema, Statement, Synthesizer
from colonnade.errors import BudgetError
from tests.support.ports import free_port
from tools.pages import blocks

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
