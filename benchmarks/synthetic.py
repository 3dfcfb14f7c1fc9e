"""From three CSV files to a published synthetic table: all of `colonnade run`, by default of Adult and a million rows.

Three parties and the coordinator are processes over TLS through the hub, as in any study. Time counts from the command
to its end: starting processes, planning the noise, reading CSV files of different orders, comparing ids, the secure
computation, the fit, the table as Parquet and CSV, its card, the record and the report. A million people are Adult's
training rows drawn with replacement, each with an id of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `research` lies beside this folder

import numpy as np
import pyarrow as pa

from colonnade.cli.demo import write_study
from colonnade.report.cost import bytes_sent
from colonnade.tables.datasets import PERSON_ID, Dataset, person_ids
from research.synthesis.layouts import Bench, bench

EPSILON, DELTA = 1.0, 1e-5
ROWS = (None, 1_000_000)
REQUIRED = {None: 60.0, 1_000_000: 180.0}
PAGE = Path(__file__).parent / "results" / "synthetic.md"
STUDY = """\
name = "adult"

[task]
kind = "synthetic"
label = "{label}"
rows_at_most = 2_000_000

[task.bins]
{bins}

[budget]
epsilon = {{{{ analyst = {epsilon} }}}}
delta = {delta}

[committee]
threshold = 1

[coordinator]
address = "127.0.0.1:{{port}}"
{{parties}}"""


PARTY = """\
name = "{name}"
data = "{name}.csv"
id = "person_id"
key = "{name}.key"
ledger = "ledger.sqlite"

[policy]
approval = "auto-within-budget"
tasks = ["synthetic"]
columns = "all"

[policy.budget]
delta = 1e-5
epsilon = {{ analyst = 1.0, coordinator = 100.0, party = 100.0 }}
"""


def repeated(data: Dataset, rows: int) -> Dataset:
    """So many people, drawn with replacement."""
    chosen = pa.array(np.random.default_rng(rows).integers(0, data.rows, rows))
    ids = person_ids(np.arange(rows))
    tables = {
        party: table.take(chosen).drop_columns([PERSON_ID]).append_column(PERSON_ID, ids)
        for party, table in data.arrow.items()
    }
    return replace(data, arrow=tables)


def written(folder: Path, of: Bench, data: Dataset) -> Path:
    """A study folder with the files of all parties."""
    bins = "\n".join(f'"{name}" = {json.dumps(list(edges))}' for name, edges in of.bins.items())
    text = STUDY.format(label=data.label, bins=bins, epsilon=EPSILON, delta=DELTA)
    for party in data.parties:
        (folder / party).mkdir(parents=True)
        (folder / party / "party.toml").write_text(PARTY.format(name=party))
    study = write_study(folder, dict(data.schemas), text)
    with tempfile.TemporaryDirectory() as place:
        for party, (table, _) in data.write(place).items():
            shutil.copyfile(table, folder / party / table.name)
    return study


def measured(of: Bench, rows: int | None) -> dict[str, Any]:
    """One whole run."""
    data = of.train if rows is None else repeated(of.train, rows)
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as place:
        study = written(Path(place) / "study", of, data)
        out = Path(place) / "run"
        words = [sys.executable, "-m", "colonnade", "run", str(study), "--out", str(out), "--json"]
        one = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        ended = subprocess.run(words, capture_output=True, text=True, env=os.environ | one)
        wall = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if ended.returncode:
            raise SystemExit(ended.stderr)
        run = json.loads((out / "run.json").read_text())
        table = pa.parquet.read_table(out / "synthetic.parquet")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert table.num_columns == len(of.names)
    return {
        "rows": data.rows,
        "made_up": table.num_rows,
        "columns": table.num_columns,
        "wall": wall,
        "cpu": cpu,
        "sent": bytes_sent(run) or 0.0,
        "required": REQUIRED.get(rows),
    }


def line(found: dict[str, Any]) -> str:
    required = found["required"]
    verdict = "" if required is None else f"{'PASS' if found['wall'] < required else 'FAIL'}: under {required:g} s"
    return (
        f"| {found['rows']:,} x {found['columns']} | **{found['wall']:.1f} s**, {found['cpu']:.1f} s CPU | "
        f"{found['sent'] / 1e6:,.1f} MB | {found['made_up']:,} | {verdict} |"
    )


def page(lines: list[str]) -> str:
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    head = (
        f"{date.today().isoformat()}; {machine}. Made by `python benchmarks/synthetic.py --write`: `colonnade run` "
        f"from three CSV files to `synthetic.parquet`, each participant in its own process, over TLS through the hub; "
        f"epsilon {EPSILON:g} for the analyst, delta {DELTA:g}, all pairs and all triples with the label.\n"
    )
    heads = "| people | whole run | sent by all | made-up people | required |\n|---|---|---|---|---|"
    return "\n".join(["# Synthetic tables, the whole way", "", head, heads, *lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", help="people instead of Adult's own and a million")
    parser.add_argument("--data", type=Path, default=None, help="the folder of the data sets")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    of = bench("adult", given.data)
    found = [measured(of, rows) for rows in (given.rows or ROWS)]
    lines = [line(each) for each in found]
    print(json.dumps(found) if given.json else "\n".join(lines))
    if given.write:
        PAGE.write_text(page(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
