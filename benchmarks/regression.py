"""Whole fits of private logistic regression on Adult and Dutch, 2 and 4 parties over TLS, beside MPyC.

A fit is timed from a bell that rings when every process has loaded its program, until the last participant holds
the fitted model: planning the noise, reading CSV files, connecting with TLS handshakes, encoding, dealing,
multiplying, opening, solving, and the privacy statement. Starting the interpreter and loading the program are in
the figure for `colonnade run`, which also writes records, ledgers and a report.

MPyC does only the secure part of the published method, on the same integers: inner products of columns of different
parties. It takes minutes, so it gets two small parts of the rows, one twice the other, and the time for all rows is
the smaller of the proportional one and the line through both. `--full` gives it all rows.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `research` lies beside this folder

import numpy as np
from numpy.typing import NDArray

from colonnade.cli.demo import write_study
from colonnade.errors import DatasetError
from colonnade.kinds.regression.model import LogisticRegression
from colonnade.models.design import weighted_rows
from colonnade.models.planner import Roster
from colonnade.protocols.moments.programs import OwnMoments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import run_role
from colonnade.randomness import Stream
from colonnade.tables import Schema, read_table
from colonnade.tables.datasets import PERSON_ID, Dataset
from harness import PATIENCE, Act, Stage, in_processes, mpyc_processes
from research.datasets import load_dataset

PUBLISHED = {"adult": {2: 122.7, 4: 350.7}, "dutch-census": {2: 106.3, 4: 302.5}}
"""Seconds by data set and parties, as the paper on the functional mechanism printed them."""
NAMES = {"adult": "Adult", "dutch-census": "Dutch"}
MPYC = {
    "vectors": "MPyC here, the paper's program: a vector product for each pair of columns",
    "arrays": "MPyC here, its fastest: one product of arrays in the smallest prime field",
}
PARTS = {"vectors": (128, 64), "arrays": (32, 16)}
"""Which parts of the rows MPyC gets."""
ALLOWED, REQUIRED = 3.0, 30.0
BUDGET = {"analyst": 1.0}
_PROGRAM = Path(__file__).with_name("mpyc_regression.py")
_STUDY = """\
name = "benchmark"

[task]
kind = "logistic"
label = "LABEL"
method = "one-shot"

[budget]
epsilon = {{ analyst = 1.0 }}
delta = 1e-5

[coordinator]
address = "127.0.0.1:{port}"
{parties}"""


@dataclass(frozen=True)
class Fit:
    """What every participant knows: where the files are, and what to fit."""

    folder: Path
    parties: tuple[str, ...]
    label: str
    method: str

    def model(self) -> LogisticRegression:
        return LogisticRegression(epsilon=BUDGET, label=self.label, method=self.method)  # type: ignore[arg-type]

    def prepare(self, name: str) -> Act:
        return partial(take_part, self)


def take_part(fit: Fit, stage: Stage) -> dict[str, Any]:
    """One participant's whole fit, its steps timed."""
    clock, cpu = [time.perf_counter()], time.process_time()

    def mark() -> None:
        clock.append(time.perf_counter())

    roster = Roster.of({party: Schema.load(fit.folder / f"{party}.toml") for party in fit.parties})
    model = fit.model()
    task = model.plan(roster)
    mark()
    if stage.name == COORDINATOR:
        program = partial(_coordinator, model, task)
    else:
        table = read_table(fit.folder / f"{stage.name}.csv", roster.schemas[stage.name], id=PERSON_ID)
        program = partial(_owner, model, task, table)
    mark()
    place = stage.join()
    played = run_role(place, task, program, wait=PATIENCE)
    mark()
    model.conclude(roster, task, played.result)
    mark()
    steps = dict(zip(("plan", "read", "compute", "solve"), np.diff(clock).tolist(), strict=True))
    return {
        "started": clock[0],
        "ended": clock[-1],
        "steps": steps,
        "cpu": time.process_time() - cpu,
        "sent": place.counters.total.sealed_sent,
        "model": model,
    }


def _owner(model: LogisticRegression, task: Any, table: Any, me: Any) -> Any:
    return model.owner(me, table, task)


def _coordinator(model: LogisticRegression, task: Any, me: Any) -> Any:
    return model.coordinator(me, task)


def fitted(data: Dataset, folder: Path, method: str, repeats: int) -> dict[str, Any]:
    """The median of some fits, each by fresh processes."""
    fit, found = Fit(folder, data.parties, data.label, method), []
    for _ in range(repeats):
        reports = in_processes((COORDINATOR, *data.parties), fit.prepare)
        models = [report["model"] for report in reports.values()]
        assert all(np.array_equal(models[0].coef_, model.coef_) for model in models), "the models differ"
        begun = min(report["started"] for report in reports.values())
        found.append(
            {
                "wall": max(report["ended"] for report in reports.values()) - begun,
                "cpu": sum(report["cpu"] for report in reports.values()),
                "sent": sum(report["sent"] for report in reports.values()),
                "accuracy": models[0].score(data.tables()),
                "steps": {
                    step: max(report["steps"][step] for report in reports.values())
                    for step in reports[COORDINATOR]["steps"]
                },
            }
        )
    typical = sorted(found, key=lambda each: each["wall"])[len(found) // 2]
    walls = [each["wall"] for each in found]
    return typical | {"wall": median(walls), "range": [min(walls), max(walls)]}


def whole_command(data: Dataset, folder: Path) -> float:
    """Seconds of `colonnade run` on a study of this data, from the shell's point of view."""
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as scratch:
        study = write_study(Path(scratch) / "study", dict(data.schemas), _STUDY.replace("LABEL", data.label))
        for party in data.parties:
            place = study.parent / party
            (place / f"{party}.csv").write_bytes((folder / f"{party}.csv").read_bytes())
            config = place / "party.toml"
            config.write_text(config.read_text().replace('tasks = ["pca"]', 'tasks = ["logistic"]'))
        command = [sys.executable, "-m", "colonnade", "run", str(study), "--out", str(Path(scratch) / "run")]
        begun = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        took = time.perf_counter() - begun
    assert done.returncode == 0, done.stderr
    return took


def integers(data: Dataset, task: Moments) -> list[NDArray[np.int64]]:
    """Everyone's rounded columns, as the parties would deal them."""
    found, stream = [], Stream.fresh()
    for party in data.parties:
        rows = weighted_rows(party, data.table(party).sorted_by_id(), data.label, task)
        own = OwnMoments(task, party)
        parts = [own.quantise(block, stream) for block in rows.blocks(task.rows_per_block)]
        found.append(np.vstack(parts).astype(np.int64))
    return found


def mpyc(tables: list[NDArray[np.int64]], variant: str, rows: int) -> dict[str, Any]:
    """One run of MPyC on the first rows; its result must be exact. As many processes as Colonnade has seats."""
    parts = [table[:rows] for table in tables]
    floats = [part.astype(np.float64) for part in parts]
    expected = [mine.T @ np.hstack(floats[place + 1 :]) for place, mine in enumerate(floats[:-1])]
    largest = sorted(int(np.abs(part).max()) for part in parts)
    order = 2 * rows * largest[-1] * largest[-2] + 1
    assert order < 2**53
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        source = Path(folder) / "tables.npz"
        named = {f"x{place}": part for place, part in enumerate(parts)}
        np.savez(source, widths=[part.shape[1] for part in parts], rows=rows, order=order, **named)
        targets = [Path(folder) / f"result{place}.npz" for place in range(max(3, len(parts)))]
        report = mpyc_processes(_PROGRAM, [variant, source], targets)
        for target in targets:
            result = np.load(target)
            assert all(np.array_equal(result[f"block{place}"], block) for place, block in enumerate(expected))
    return report | {"rows": rows}


def beside(tables: list[NDArray[np.int64]], variant: str, full: bool) -> dict[str, Any]:
    """MPyC's time for all rows, measured, or from two smaller runs."""
    rows = len(tables[0])
    if full:
        run = mpyc(tables, variant, rows)
        return {"points": [run], "wall": run["wall"], "measured": True}
    points = [mpyc(tables, variant, rows // part) for part in PARTS[variant]]
    (few, short), (more, long) = ((point["rows"], point["wall"]) for point in points)
    line = long + (long - short) / (more - few) * (rows - more)
    return {"points": points, "wall": min(long * rows / more, line), "measured": False}


def measure(repeats: int = 3, full: bool = False, rows: int | None = None) -> dict[str, Any]:
    """All figures; ``rows`` keeps a sample of the data sets, to try this out."""
    cases = []
    for name, seconds in PUBLISHED.items():
        for parties, published in seconds.items():
            data = load_dataset(name, folder=data_folder(), parties=parties, rows=rows)
            with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as scratch:
                data.write(scratch)
                folder = Path(scratch)
                case = {
                    "data": name,
                    "parties": parties,
                    "rows": data.rows,
                    "columns": sum(schema.encoded_width for schema in data.feature_schemas.values()),
                    "published": published,
                    "one-shot": fitted(data, folder, "one-shot", repeats),
                    "functional": fitted(data, folder, "functional", 1),
                    "command": whole_command(data, folder),
                }
            task = Fit(Path(), data.parties, data.label, "one-shot").model().plan(Roster.of(data.schemas))
            assert isinstance(task, Moments)
            tables = integers(data, task)
            cases.append(case | {variant: beside(tables, variant, full) for variant in MPYC})
    return {"repeats": repeats, "cases": cases}


def data_folder() -> Path | None:
    """COLONNADE_DATA, or shared/data beside the repository."""
    beside_us = Path(__file__).resolve().parents[2] / "shared" / "data"
    return None if os.environ.get("COLONNADE_DATA") or not beside_us.is_dir() else beside_us


def rows(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Rows of a table: what, measured, required."""
    for case in found["cases"]:
        ours, short = case["one-shot"], case["functional"]
        title = f"{NAMES[case['data']]}, K = {case['parties']}"
        (low, high), steps = ours["range"], ours["steps"]
        yield (
            f"{title}: one-shot, whole fit of {case['rows']:,} x {case['columns']}",
            f"**{ours['wall']:.2f} s** wall ({low:.2f} to {high:.2f}), {ours['cpu']:.1f} s CPU; accuracy "
            f"{ours['accuracy']:.3f}",
            _verdict(ours["wall"] < ALLOWED, f"under {ALLOWED:g} s"),
        )
        parts = ", ".join(f"{step} {seconds:.2f}" for step, seconds in steps.items())
        yield f"{title}: its steps, the slowest participant of each", f"{parts} s; {ours['sent'] / 1e6:.0f} MB", ""
        yield (
            f"{title}: functional (pure epsilon), whole fit",
            f"**{short['wall']:.2f} s** wall; accuracy {short['accuracy']:.3f}",
            _verdict(short["wall"] < ALLOWED, f"under {ALLOWED:g} s"),
        )
        yield f"{title}: `colonnade run`, one-shot, from the shell", f"{case['command']:.1f} s wall", ""
        yield (
            f"{title}: MPyC, as published, on other machines",
            f"{case['published'] / ours['wall']:.0f} x the whole fit ({case['published']} s)",
            "",
        )
        for variant, words in MPYC.items():
            yield _peer(f"{title}: {words}", case[variant], ours["wall"])


def _peer(title: str, peer: dict[str, Any], ours: float) -> tuple[str, str, str]:
    ratio = peer["wall"] / ours
    points = ", ".join(f"{point['wall']:.1f} s for {point['rows']:,} rows" for point in peer["points"])
    words = f"{peer['wall']:.1f} s" if peer["measured"] else f"about {peer['wall']:.0f} s, from {points}"
    return title, f"**{ratio:.0f} x** the whole fit ({words})", _verdict(ratio >= REQUIRED, f"at least {REQUIRED:g} x")


def _verdict(good: bool, words: str) -> str:
    return f"{'PASS' if good else 'FAIL'}: {words}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--full", action="store_true", help="give MPyC all rows, which takes minutes")
    parser.add_argument("--rows", type=int, help="keep a sample of the data sets, to try this out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        found = measure(options.repeats, options.full, options.rows)
    except DatasetError as error:
        sys.exit(f"Nothing was measured, since the data is not here: {error}")
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for what, measured, required in rows(found):
        print(f"{what:<72} {measured.replace('**', ''):<76} {required}")


if __name__ == "__main__":
    main()
