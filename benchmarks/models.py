"""What learning takes: regressions, messages with noise, a head of a split network, and synthetic tables.

Needs ``adult.parquet``, ``dutch_census_2001.parquet`` and ``mnist.npz`` in the folder that COLONNADE_DATA names.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from colonnade.cli.demo import write_study
from colonnade.kinds.glm.model import GLM
from colonnade.kinds.regression.model import LogisticRegression
from colonnade.kinds.split.encoders import Encoder, encoder_from
from colonnade.kinds.split.head_strategy import HeadTask, JointEmbeddings, embed_scaled
from colonnade.models import Roster
from colonnade.privacy import Trust, parse_budgets
from colonnade.privacy.noise_laws import AdditiveNoise
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import run_role
from colonnade.report.cost import bytes_sent
from colonnade.tables import Schema, flag, number, read_table
from colonnade.tables.datasets import PERSON_ID, Dataset, person_ids
from gram import Stored
from harness import (
    PATIENCE,
    Act,
    Benchmark,
    Row,
    Stage,
    command,
    data_folder,
    in_processes,
    tabled,
    verdict,
)
from peers import Arbiter, Recipe, in_one_place, in_the_clear
from research.datasets import load_dataset
from research.synthesis.layouts import Bench, bench

# --- regressions

MOST_SECONDS = 3.0
PUBLISHED = {"adult": {2: 122.7, 4: 350.7}, "dutch-census": {2: 106.3, 4: 302.5}}
"""Seconds by data set and parties, as the paper on the functional mechanism printed them."""
TITLES_OF = {"adult": "Adult", "dutch-census": "Dutch"}
BUDGET = {"analyst": 1.0}


@dataclass(frozen=True)
class RegressionFit:
    """What every participant knows: where the files are, and what to fit."""

    folder: Path
    parties: tuple[str, ...]
    label: str
    method: str

    def model(self) -> LogisticRegression:
        return LogisticRegression(epsilon=BUDGET, label=self.label, method=self.method)  # type: ignore[arg-type]

    def prepare(self, name: str) -> Act:
        return partial(take_part_in_fit, self)


def take_part_in_fit(fit: RegressionFit, stage: Stage) -> dict[str, Any]:
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
    fit, found = RegressionFit(folder, data.parties, data.label, method), []
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


def measure_regression(repeats: int = 3, rows: int = 0) -> list[dict[str, Any]]:
    """Whole fits of private logistic regression on Adult and Dutch, 2 and 4 parties over TLS.

    A fit is timed from a bell that rings when every process has loaded its program, until the last participant holds
    the fitted model: planning the noise, reading CSV files, connecting with TLS handshakes, encoding, dealing,
    multiplying, opening, solving, and the privacy statement. Starting the interpreter and loading the program are in
    the figure for `colonnade run`, which also writes records, ledgers and a report.
    """
    cases = []
    for name, seconds in PUBLISHED.items():
        for parties, published in seconds.items():
            data = load_dataset(name, folder=data_folder(), parties=parties, rows=rows or None)
            with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as scratch:
                data.write(scratch)
                folder = Path(scratch)
                cases.append(
                    {
                        "data": name,
                        "parties": parties,
                        "rows": data.rows,
                        "columns": sum(schema.encoded_width for schema in data.feature_schemas.values()),
                        "published": published,
                        "one-shot": fitted(data, folder, "one-shot", repeats),
                        "functional": fitted(data, folder, "functional", 1),
                        "command": whole_command(data, folder),
                    }
                )
    return cases


def regression_rows(cases: list[dict[str, Any]]) -> Iterator[Row]:
    """Rows of a table: what, measured, required."""
    for case in cases:
        ours, short = case["one-shot"], case["functional"]
        title = f"{TITLES_OF[case['data']]}, K = {case['parties']}"
        (low, high), steps = ours["range"], ours["steps"]
        yield (
            f"{title}: one-shot, whole fit of {case['rows']:,} x {case['columns']}",
            f"**{ours['wall']:.2f} s** wall ({low:.2f} to {high:.2f}), {ours['cpu']:.1f} s CPU; accuracy "
            f"{ours['accuracy']:.3f}",
            verdict(ours["wall"] < MOST_SECONDS, f"under {MOST_SECONDS:g} s"),
        )
        parts = ", ".join(f"{step} {seconds:.2f}" for step, seconds in steps.items())
        yield f"{title}: its steps, the slowest participant of each", f"{parts} s; {ours['sent'] / 1e6:.0f} MB", ""
        yield (
            f"{title}: functional (pure epsilon), whole fit",
            f"**{short['wall']:.2f} s** wall; accuracy {short['accuracy']:.3f}",
            verdict(short["wall"] < MOST_SECONDS, f"under {MOST_SECONDS:g} s"),
        )
        yield f"{title}: `colonnade run`, one-shot, from the shell", f"{case['command']:.1f} s wall", ""
        yield (
            f"{title}: MPyC, as published, on other machines",
            f"{case['published'] / ours['wall']:.0f} x the whole fit ({case['published']} s)",
            "",
        )


# --- messages with noise


ACTIVE, PASSIVE = "active", "passive"
WIDTH = 10
PEOPLE, BATCH, EPSILON, DELTA = 100_000, 3200, 1.0, 0.01
ALLOWED, REQUIRED = 1.15, 20.0
FIGURES = ("wall", "exchange", "cpu", "sent")
FEW = (200, 400)
"""How many rows homomorphic encryption gets."""
METHODS: dict[str, dict[str, Any]] = {
    "alternating": {"method": "alternating"},
    "gradient": {"method": "gradient", "epochs": 1},
}
TITLES = {
    "alternating": "alternating fits, as the pre-flight plans them",
    "gradient": f"gradient steps, 1 epoch, batches of {BATCH}",
}
_COLUMNS = {f"x{k}": number(-1, 1) for k in range(WIDTH)}
SCHEMAS = {ACTIVE: Schema({**_COLUMNS, "y": flag()}), PASSIVE: Schema(_COLUMNS)}
LABEL = f"{ACTIVE}.y"


def made_up(rows: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Both parties' columns in [-1, 1], and a label that follows some of each."""
    draws = np.random.default_rng(rows)
    cells = {name: draws.uniform(-1, 1, (rows, WIDTH)) for name in (ACTIVE, PASSIVE)}
    score = 3 * cells[ACTIVE][:, 0] - 2 * cells[PASSIVE][:, 0] + 2 * cells[PASSIVE][:, 1]
    return cells, (draws.logistic(size=rows) < score).astype(np.float64)


def write_pair(folder: Path, rows: int) -> None:
    """A file for each party."""
    cells, labels = made_up(rows)
    for name, values in cells.items():
        columns = {f"x{k}": values[:, k] for k in range(WIDTH)} | ({"y": labels > 0} if name == ACTIVE else {})
        arrow = pa.table({PERSON_ID: person_ids(np.arange(rows)), **columns})
        pa.parquet.write_table(arrow, folder / f"{name}.parquet")


@dataclass(frozen=True)
class MessageFit:
    """One run of ours: how many rows, how, and whether noise is drawn."""

    rows: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    noise: bool = True

    def model(self) -> GLM:
        return GLM(family="logistic", label=LABEL, epsilon=EPSILON, delta=DELTA, rows=self.rows, **self.parameters)

    def prepare(self, name: str, folder: str) -> Act:
        if not self.noise:
            AdditiveNoise.draw = _no_noise  # type: ignore[method-assign]
        return partial(_learn, self, Path(folder))

    def run(self) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
            write_pair(Path(folder), self.rows)
            return _together(in_processes((COORDINATOR, ACTIVE, PASSIVE), partial(self.prepare, folder=folder)))


def _no_noise(noise: AdditiveNoise, shape: tuple[int, ...], stream: Any, copies: int = 1) -> np.ndarray:
    return np.zeros(shape, dtype=np.int64)


def _learn(fit: MessageFit, folder: Path, stage: Stage) -> dict[str, Any]:
    clock: dict[str, Any] = {"began": time.perf_counter()}
    cpu = time.process_time()
    model = fit.model()
    task = model.plan(Roster.of(SCHEMAS))
    table = None
    if stage.name != COORDINATOR:
        table = read_table(folder / f"{stage.name}.parquet", SCHEMAS[stage.name], id=PERSON_ID)
    place = stage.join()

    def program(me: Any) -> Any:
        clock["started"] = time.perf_counter()
        outcome = model.coordinator(me, task) if table is None else model.owner(me, table, task)
        clock["ended"] = time.perf_counter()
        return outcome

    played = run_role(place, task, program, wait=PATIENCE)
    phases = {name: phase.wall for name, phase in played.phases.items()}
    cpu = time.process_time() - cpu
    return clock | {"cpu": cpu, "sent": place.counters.total.sealed_sent, "phases": phases}


def _together(reports: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The clock is the same for all processes of a machine."""
    ended = max(report["ended"] for report in reports.values())
    return {
        "wall": ended - min(report["began"] for report in reports.values()),
        "exchange": ended - min(report["started"] for report in reports.values()),
        "cpu": sum(report["cpu"] for report in reports.values()),
        "sent": sum(report["sent"] for report in reports.values()),
        "phases": {name: report.get("phases", {}) for name, report in reports.items()},
    }


def in_turns(rows: int, parameters: Mapping[str, Any], repeats: int) -> dict[str, Any]:
    """Runs with and without noise, one after the other; ratios are of medians."""
    found: dict[str, list[dict[str, Any]]] = {"silent": [], "noise": []}
    for turn in range(2 * repeats):
        name = tuple(found)[turn % 2]
        found[name].append(MessageFit(rows, parameters, noise=name == "noise").run())
    typical = {
        name: {key: median(one[key] for one in runs) for key in FIGURES}
        | {"all": {key: [one[key] for one in runs] for key in ("wall", "exchange")}, "phases": runs[-1]["phases"]}
        for name, runs in found.items()
    }
    ratios = {key: typical["noise"][key] / typical["silent"][key] for key in FIGURES}
    return typical | {"ratios": ratios, "rows": rows}


def encrypted(few: tuple[int, ...] = FEW) -> list[dict[str, Any]]:
    """Seconds of one epoch under homomorphic encryption on few rows, all roles one after the other in this process."""
    found = []
    for rows in few:
        cells, labels = made_up(rows)
        active = np.hstack([cells[ACTIVE], np.ones((rows, 1))])
        recipe, arbiter = Recipe(batch=min(BATCH, rows)), Arbiter()
        begun = time.perf_counter()
        weights = in_one_place(active, cells[PASSIVE], labels, recipe, arbiter)
        wall = time.perf_counter() - begun
        for ours, clear in zip(weights, in_the_clear(active, cells[PASSIVE], labels, recipe), strict=True):
            assert np.allclose(ours, clear, atol=1e-5), "the ciphertexts come to something else"
        found.append({"rows": rows, "wall": wall})
    return found


def scaled(points: list[dict[str, Any]], rows: int, epochs: int = 1) -> float:
    """Seconds for so many rows and epochs."""
    (few, short), (more, long) = ((point["rows"], point["wall"]) for point in points)
    line = long + (long - short) / (more - few) * (rows - more)
    return epochs * min(long * rows / more, line)


def measure_exchange(repeats: int = 7, rows: int = PEOPLE) -> dict[str, Any]:
    """Learning over noised messages: what the noise costs in time, and how long homomorphic encryption takes instead.

    Two parties and the coordinator are processes over TLS through the hub. A whole fit begins when every process has
    loaded its program and ends when the last one holds its weights: planning, reading a Parquet file, connecting,
    comparing ids, encoding, the exchange, the last fit. The exchange alone begins when everybody is there. The same
    code without noise is the same role programs with the draw replaced by zeros, here and nowhere else; runs with and
    without take turns. Homomorphic encryption gets a few hundred rows, once and twice as many, without any messages. It
    would take hours for all rows, so its time for them is scaled: the smaller of the proportional time and the line
    through both points.
    """
    points = encrypted() if find_spec("phe") else []
    ours = {name: in_turns(rows, parameters, repeats) for name, parameters in METHODS.items()}
    found = {"repeats": repeats, "rows": rows, "ours": ours, "encrypted": points}
    return found | ({"scaled": scaled(points, rows)} if points else {})


def exchange_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Rows of a table: what, measured, required."""
    points = ", ".join(f"{point['wall']:.1f} s for {point['rows']} rows" for point in found["encrypted"])
    size = f"{found['rows']:,} rows, 2 x {WIDTH} columns"
    for name, line in found["ours"].items():
        ours, silent, ratios = line["noise"], line["silent"], line["ratios"]
        low, high = min(ours["all"]["wall"]), max(ours["all"]["wall"])
        yield (
            f"{size}: {TITLES[name]}, whole fit",
            f"**{ours['wall']:.2f} s** wall ({low:.2f} to {high:.2f}), {ours['cpu']:.1f} s CPU, of which the exchange "
            f"{ours['exchange']:.2f} s; {ours['sent'] / 1e6:.1f} MB",
            "",
        )
        yield (
            "the same without noise",
            f"{silent['wall']:.2f} s wall, {silent['cpu']:.1f} s CPU; noise costs **{ratios['wall']:.2f} x** "
            f"({ratios['exchange']:.2f} x of the exchange alone, {ratios['cpu']:.2f} x of CPU)",
            f"whole fit {verdict(ratios['wall'] <= ALLOWED, f'at most {ALLOWED:g} x')}; "
            f"exchange alone {verdict(ratios['exchange'] <= ALLOWED, f'at most {ALLOWED:g} x')}",
        )
        if points:
            slower = found["scaled"] / ours["wall"]
            yield (
                "Paillier (phe, 2048 bits), 1 epoch, in one process",
                f"**{slower:,.0f} x** as long (about {found['scaled']:,.0f} s, scaled from {points})",
                verdict(slower >= REQUIRED, f"at least {REQUIRED:g} x"),
            )


# --- a head that a committee learns


SIDES = ("left", "right")
HEAD_TRUST = Trust(SIDES, (*SIDES, COORDINATOR), 1)
HEADS = {"all moments": (250, False, 60_000), "products with directions": (1000, True, 20_000)}
"""How wide each party's embeddings are, whether directions are asked for, and how many digits there are."""
Pixels = NDArray[np.float64]


def halves(split: str, rows: int | None = None) -> tuple[dict[str, Pixels], NDArray[np.int64]]:
    """Each party's half of every image, as centred pixels row by row, and the digits."""
    with np.load(Path(os.environ["COLONNADE_DATA"]) / "mnist.npz", allow_pickle=False) as data:
        images, labels = data[f"x_{split}"][:rows], data[f"y_{split}"][:rows].astype(np.int64)
    sides = {"left": images[:, :, :14], "right": images[:, :, 14:]}
    return {name: side.reshape(len(side), -1) / 255 - 0.5 for name, side in sides.items()}, labels


def encoder(name: str, width: int) -> Encoder:
    """A party's encoder; a party would draw it and keep it."""
    return encoder_from({"kind": "edges", "shape": [28, 14], "width": width}, 28 * 14, seed=SIDES.index(name))


def layout(width: int) -> JointEmbeddings:
    """Two parties with embeddings of this width; the left one has the label."""
    return JointEmbeddings(tuple((name, width) for name in SIDES), "left", 10)


def head_task(width: int, wide: bool) -> HeadTask:
    """As a study plans it, epsilon 1 for the analyst."""
    joint, budgets = layout(width), parse_budgets({"analyst": 1.0}, 1e-5, HEAD_TRUST)
    return joint.directions(HEAD_TRUST, budgets) if wide else joint.moments(HEAD_TRUST, budgets)


def prepare_head(width: int, wide: bool, rows: int, name: str) -> Act:
    """A participant that has read its data."""
    task = head_task(width, wide)
    if name == COORDINATOR:
        return partial(_learn_head, task, width, None, None)
    sides, labels = halves("train", rows)
    table = Stored([f"P{i:06d}" for i in range(len(labels))], sides[name])
    return partial(_learn_head, task, width, table, labels if name == "left" else None)


def _learn_head(
    task: HeadTask, width: int, table: Stored | None, labels: NDArray[np.int64] | None, stage: Stage
) -> dict[str, Any]:
    started, cpu = time.perf_counter(), time.process_time()
    place, joint = stage.join(), layout(width)
    meters = []

    def program(me: Any) -> Any:
        meters.append(me.meter)
        if table is None:
            return task.programs.coordinator(me, task)
        return task.programs.owner(me, joint.rows(stage.name, table, encoder(stage.name, width), labels), task)

    found = run_role(place, task, program, wait=PATIENCE)
    head = joint.finish(found.result)
    phases = {name: phase.wall for name, phase in meters[0].phases.items()}
    return {
        "weights": head.weights,
        "intercept": head.intercept,
        "kind": head.kind,
        "seconds": time.perf_counter() - started,
        "cpu": time.process_time() - cpu,
        "payload": meters[0].tally.payload,
        "messages": meters[0].tally.messages,
        "phases": phases,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def head_once(width: int, wide: bool, rows: int) -> dict[str, Any]:
    """One run: seconds, bytes, memory, and the accuracy of the head on the test images."""
    reports = in_processes((COORDINATOR, *SIDES), partial(prepare_head, width, wide, rows))
    first = reports[COORDINATOR]
    assert all(np.allclose(first["weights"], report["weights"]) for report in reports.values()), "heads differ"
    sides, digits = halves("test")
    new = np.hstack([embed_scaled(encoder(name, width), sides[name]) for name in SIDES])
    scores = new @ first["weights"].T + first["intercept"]
    task = head_task(width, wide)
    opened = task.entries if isinstance(task, Moments) else task.rounds * task.entries
    return {
        "rows": rows,
        "width": width,
        "opened": opened,
        "seconds": max(report["seconds"] for report in reports.values()),
        "cpu": sum(report["cpu"] for report in reports.values()),
        "sent": {name: report["payload"] for name, report in reports.items()},
        "memory": max(report["memory"] for report in reports.values()),
        "accuracy": float((scores.argmax(axis=1) == digits).mean()),
        "phases": reports["left"]["phases"],
    }


def measure_head(rows: int = 60_000) -> dict[str, dict[str, Any]]:
    """A head that a committee learns: the halves of 60,000 digits at two parties, in processes over TLS.

    Each party embeds its halves by edges and cosines, and the committee learns the head from one release of second
    moments at epsilon 1 for the analyst; then the same from products with directions, with wider embeddings. A run
    begins when all processes have read their data, and ends when the last participant has the head.
    """
    if "COLONNADE_DATA" not in os.environ:
        raise SystemExit("COLONNADE_DATA must name the folder with mnist.npz (python -m research fetch mnist)")
    return {name: head_once(width, wide, min(most, rows)) for name, (width, wide, most) in HEADS.items()}


def head_rows(found: dict[str, dict[str, Any]]) -> Iterator[Row]:
    """A row for each way."""
    for name, run in found.items():
        sent = ", ".join(f"{run['sent'][who] / 1e6:,.0f} MB" for who in (*SIDES, COORDINATOR))
        sizes = [f"{run[key]:,}" for key in ("rows", "width", "opened")]
        memory = f"{run['memory'] / 1e6:,.0f} MB"
        yield [name, *sizes, f"**{run['seconds']:.1f}**", f"{run['cpu']:.1f}", sent, memory, f"{run['accuracy']:.3f}"]


# --- made-up people


TABLE_EPSILON, TABLE_DELTA = 1.0, 1e-5
MOST_CROWD = {None: 60.0, 1_000_000: 180.0}
TABLE_STUDY = """\
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
    text = TABLE_STUDY.format(label=data.label, bins=bins, epsilon=TABLE_EPSILON, delta=TABLE_DELTA)
    for party in data.parties:
        (folder / party).mkdir(parents=True)
        (folder / party / "party.toml").write_text(PARTY.format(name=party))
    study = write_study(folder, dict(data.schemas), text)
    with tempfile.TemporaryDirectory() as place:
        for party, (table, _) in data.write(place).items():
            shutil.copyfile(table, folder / party / table.name)
    return study


def table_once(of: Bench, rows: int | None) -> dict[str, Any]:
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
        "required": MOST_CROWD.get(rows),
    }


def measure_synthetic(rows: tuple[int, ...] = (0, 1_000_000)) -> list[dict[str, Any]]:
    """From three CSV files to a published synthetic table: all of `colonnade run`, of Adult and of a million rows.

    Three parties and the coordinator are processes over TLS through the hub, as in any study. Time counts from the
    command to its end: starting processes, planning the noise, reading CSV files of different orders, comparing ids,
    the secure computation, the fit, the table as Parquet and CSV, its card, the record and the report. A million people
    are Adult's training rows drawn with replacement, each with an id of its own.
    """
    of = bench("adult", data_folder())
    return [table_once(of, count or None) for count in rows]


def synthetic_rows(found: list[dict[str, Any]]) -> Iterator[Row]:
    """A row for each number of people."""
    for run in found:
        required = run["required"]
        said = f"**{run['wall']:.1f} s**, {run['cpu']:.1f} s CPU", f"{run['sent'] / 1e6:,.1f} MB", f"{run['made_up']:,}"
        limit = verdict(run["wall"] < required, f"under {required:g} s") if required else ""
        yield f"{run['rows']:,} x {run['columns']}", *said, limit


PROCESSES = "and the coordinator are processes on this machine, over TLS through the hub."
BENCHMARKS = {
    "regression": Benchmark(
        measure_regression, tabled(regression_rows), help={"rows": "a sample of the data sets, to try this out"}
    ),
    "exchange": Benchmark(
        measure_exchange,
        tabled(exchange_rows),
        page="exchange",
        title="Speed of learning over noised messages",
        about=f"Two parties {PROCESSES} A whole fit lasts from the moment all programs are loaded until the last one "
        "holds its weights; what is in it, and what the peer does, is said in [the list of benchmarks](../README.md). "
        "Epsilon 1, delta 0.01.",
    ),
    "head": Benchmark(
        measure_head,
        tabled(
            head_rows,
            (
                "sums",
                "people",
                "numbers a party",
                "numbers opened",
                "seconds",
                "of processor time",
                "sent by left, right, coordinator",
                "memory of a process",
                "accuracy",
            ),
        ),
        page="split",
        title="A head that a committee learns",
        about="Halves of digits at two parties, edges and cosines as encoders, epsilon 1 for the analyst, delta 1e-5. "
        f"Two owners {PROCESSES} The coordinator keeps a seat. From connecting to the head at everybody; embedding the "
        "images, noise and handshakes included, reading the data not. Sent are bytes before sealing.",
        help={"rows": "of the digits, only so many"},
    ),
    "synthetic": Benchmark(
        measure_synthetic,
        tabled(synthetic_rows, ("people", "whole run", "sent by all", "made-up people", "required")),
        page="synthetic",
        title="Synthetic tables, the whole way",
        about="`colonnade run` from three CSV files to `synthetic.parquet`, each participant in its own process, over "
        f"TLS through the hub; epsilon {TABLE_EPSILON:g} for the analyst, delta {TABLE_DELTA:g}, all pairs and all "
        "triples with the label.",
        help={"rows": "how many people; 0 for Adult's own"},
    ),
}

if __name__ == "__main__":
    command(__doc__, BENCHMARKS)
