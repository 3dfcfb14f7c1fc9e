"""Learning over noised messages: what the noise costs in time, and how long homomorphic encryption takes instead.

Two parties and the coordinator are processes over TLS through the hub. A whole fit begins when every process has loaded
its program and ends when the last one holds its weights: planning, reading a Parquet file, connecting, comparing ids,
encoding, the exchange, the last fit. The exchange alone begins when everybody is there. The same code without noise is
the same role programs with the draw replaced by zeros, here and nowhere else; runs with and without take turns.

Homomorphic encryption (`paillier.py`) runs over the same channels on a few hundred rows, once and twice as many. It
would take hours for all rows, so its time for them is scaled: the smaller of the proportional time and the line through
both points, times the epochs.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `research` lies beside this folder

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from colonnade.kinds.glm.model import GLM
from colonnade.models import Roster
from colonnade.privacy.noise_laws import AdditiveNoise
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import run_role
from colonnade.tables import Schema, flag, number, read_table
from colonnade.tables.datasets import PERSON_ID, person_ids
from harness import PATIENCE, Act, Stage, in_processes
from research.reproduce.results import PROVEN, Group, Row, write_csv

ACTIVE, PASSIVE = "active", "passive"
NAMES = (COORDINATOR, ACTIVE, PASSIVE)
COLUMNS = 10
ROWS, BATCH, EPSILON, DELTA = 100_000, 3200, 1.0, 0.01
ALLOWED, REQUIRED = 1.15, 20.0
STEPS = (1, 2, 4, 6, 8, 10)
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
OURS, SILENT = "Colonnade, gradient steps", "the same without noise"
IN_THE_CLEAR, ENCRYPTED = "messages in the clear", "encrypted; the result is not private"
FIGURE = Path(__file__).parent / "results" / "exchange.csv"

_COLUMNS = {f"x{k}": number(-1, 1) for k in range(COLUMNS)}
SCHEMAS = {ACTIVE: Schema({**_COLUMNS, "y": flag()}), PASSIVE: Schema(_COLUMNS)}
LABEL = f"{ACTIVE}.y"


def made_up(rows: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Both parties' columns in [-1, 1], and a label that follows some of each."""
    draws = np.random.default_rng(rows)
    cells = {name: draws.uniform(-1, 1, (rows, COLUMNS)) for name in (ACTIVE, PASSIVE)}
    score = 3 * cells[ACTIVE][:, 0] - 2 * cells[PASSIVE][:, 0] + 2 * cells[PASSIVE][:, 1]
    return cells, (draws.logistic(size=rows) < score).astype(np.float64)


def write_tables(folder: Path, rows: int) -> None:
    """A file for each party."""
    cells, labels = made_up(rows)
    for name, values in cells.items():
        columns = {f"x{k}": values[:, k] for k in range(COLUMNS)} | ({"y": labels > 0} if name == ACTIVE else {})
        arrow = pa.table({PERSON_ID: person_ids(np.arange(rows)), **columns})
        pa.parquet.write_table(arrow, folder / f"{name}.parquet")


@dataclass(frozen=True)
class Fit:
    """One run of ours: how many rows, how, and whether noise is drawn."""

    rows: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    noise: bool = True

    def model(self) -> GLM:
        return GLM(family="logistic", label=LABEL, epsilon=EPSILON, delta=DELTA, rows=self.rows, **self.parameters)

    def prepare(self, name: str, folder: str) -> Act:
        if not self.noise:
            AdditiveNoise.draw = _zeros  # type: ignore[method-assign]
        return partial(_take_part, self, Path(folder))

    def run(self) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
            write_tables(Path(folder), self.rows)
            return _together(in_processes(NAMES, partial(self.prepare, folder=folder)))


def _zeros(noise: AdditiveNoise, shape: tuple[int, ...], stream: Any, copies: int = 1) -> np.ndarray:
    return np.zeros(shape, dtype=np.int64)


def _take_part(fit: Fit, folder: Path, stage: Stage) -> dict[str, Any]:
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
        found[name].append(Fit(rows, parameters, noise=name == "noise").run())
    typical = {
        name: {key: median(one[key] for one in runs) for key in FIGURES}
        | {"all": {key: [one[key] for one in runs] for key in ("wall", "exchange")}, "phases": runs[-1]["phases"]}
        for name, runs in found.items()
    }
    ratios = {key: typical["noise"][key] / typical["silent"][key] for key in FIGURES}
    return typical | {"ratios": ratios, "rows": rows}


# --- homomorphic encryption


@dataclass(frozen=True)
class Encrypted:
    """One epoch under homomorphic encryption, over the same channels."""

    rows: int

    def prepare(self, name: str) -> Act:
        import paillier

        recipe = paillier.Recipe(batch=min(BATCH, self.rows))
        act = _arbiter if name == COORDINATOR else _active if name == ACTIVE else _passive
        return partial(_encrypted_part, act, self.rows, recipe)

    def run(self) -> dict[str, Any]:
        import paillier

        reports = in_processes(NAMES, self.prepare)
        cells, labels = made_up(self.rows)
        recipe = paillier.Recipe(batch=min(BATCH, self.rows))
        clear = paillier.in_the_clear(_with_constant(cells[ACTIVE]), cells[PASSIVE], labels, recipe)
        for name, weights in zip((ACTIVE, PASSIVE), clear, strict=True):
            assert np.allclose(reports[name]["weights"], weights, atol=1e-5), "the ciphertexts come to something else"
        return _together(reports) | {"rows": self.rows}


def _with_constant(cells: np.ndarray) -> np.ndarray:
    return np.hstack([cells, np.ones((len(cells), 1))])


def _encrypted_part(act: Any, rows: int, recipe: Any, stage: Stage) -> dict[str, Any]:
    with stage.join() as place:
        others = {name: place.channel(name) for name in NAMES if name != stage.name}
        place.wait_for_peers(timeout=PATIENCE)
        return act(others, rows, recipe) | {"sent": place.counters.total.sealed_sent}


def _timed(work: Any) -> dict[str, Any]:
    started, cpu = time.perf_counter(), time.process_time()
    weights = work()
    clock = {"began": started, "started": started, "ended": time.perf_counter()}
    return clock | {"cpu": time.process_time() - cpu, "weights": weights}


def _arbiter(others: dict[str, Any], rows: int, recipe: Any) -> dict[str, Any]:
    from paillier import Arbiter

    arbiter = Arbiter()  # once for all time, so it does not count
    for link in others.values():
        link.send("key", n=int(arbiter.public.n).to_bytes(512, "little"))

    def work() -> None:
        for _ in recipe.batches(rows):
            for link in (others[ACTIVE], others[PASSIVE]):
                opened = arbiter.opened(bytes(link.recv("masked")["ciphers"]))
                link.send("opened", values=[value.to_bytes(256, "little") for value in opened])

    return _timed(work)


def _public(others: dict[str, Any]) -> Any:
    from phe import PaillierPublicKey

    return PaillierPublicKey(int.from_bytes(others[COORDINATOR].recv("key")["n"], "little"))


def _moved(party: Any, batch: slice, slopes: Any, arbiter: Any) -> None:
    arbiter.send("masked", ciphers=party.masked_gradient(batch, slopes))
    party.step(batch, [int.from_bytes(value, "little") for value in arbiter.recv("opened")["values"]])


def _active(others: dict[str, Any], rows: int, recipe: Any) -> dict[str, Any]:
    from paillier import Active, packed

    cells, labels = made_up(rows)
    party = Active(_with_constant(cells[ACTIVE]), _public(others), recipe, labels=labels)

    def work() -> np.ndarray:
        for batch in recipe.batches(rows):
            slopes = party.slopes(batch, bytes(others[PASSIVE].recv("scores")["ciphers"]))
            others[PASSIVE].send("slopes", ciphers=packed(slopes))
            _moved(party, batch, slopes, others[COORDINATOR])
        return party.weights

    return _timed(work)


def _passive(others: dict[str, Any], rows: int, recipe: Any) -> dict[str, Any]:
    from paillier import Passive, unpacked_scores

    cells, _ = made_up(rows)
    party = Passive(cells[PASSIVE], _public(others), recipe)

    def work() -> np.ndarray:
        for batch in recipe.batches(rows):
            others[ACTIVE].send("scores", ciphers=party.scores(batch))
            slopes = unpacked_scores(party.public, bytes(others[ACTIVE].recv("slopes")["ciphers"]))
            _moved(party, batch, slopes, others[COORDINATOR])
        return party.weights

    return _timed(work)


def encrypted(few: tuple[int, int] = FEW) -> list[dict[str, Any]]:
    """Both small runs."""
    return [Encrypted(rows).run() for rows in few]


def scaled(points: list[dict[str, Any]], rows: int, epochs: int = 1) -> float:
    """Seconds for so many rows and epochs."""
    (few, short), (more, long) = ((point["rows"], point["wall"]) for point in points)
    line = long + (long - short) / (more - few) * (rows - more)
    return epochs * min(long * rows / more, line)


# --- figures


def measure(repeats: int, rows: int = ROWS, few: tuple[int, int] = FEW) -> dict[str, Any]:
    """Both methods with and without noise, and encryption, all in one run."""
    points = encrypted(few)
    ours = {name: in_turns(rows, parameters, repeats) for name, parameters in METHODS.items()}
    return {"repeats": repeats, "rows": rows, "ours": ours, "encrypted": points, "scaled": scaled(points, rows)}


def rows(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Rows of a table: what, measured, required."""
    points = ", ".join(f"{point['wall']:.1f} s for {point['rows']} rows" for point in found["encrypted"])
    size = f"{found['rows']:,} rows, 2 x {COLUMNS} columns"
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
            f"whole fit {_verdict(ratios['wall'] <= ALLOWED, f'at most {ALLOWED:g} x')}; "
            f"exchange alone {_verdict(ratios['exchange'] <= ALLOWED, f'at most {ALLOWED:g} x')}",
        )
        faster = found["scaled"] / ours["wall"]
        yield (
            "Paillier (phe, 2048 bits), 1 epoch, the same channels",
            f"**{faster:,.0f} x** as long (about {found['scaled']:,.0f} s, scaled from {points})",
            _verdict(faster >= REQUIRED, f"at least {REQUIRED:g} x"),
        )


def _verdict(good: bool, words: str) -> str:
    return f"{'PASS' if good else 'FAIL'}: {words}"


def figure_3(repeats: int) -> Iterator[Row]:
    """Both panels of the paper's figure: epochs at 10,000 rows, and rows at one epoch; the exchange alone."""
    points = encrypted()
    slow = f"Paillier (phe, 2048 bits), scaled from {points[-1]['rows']} rows"
    few = ROWS // 10
    panels = (
        (Group("HDP Fig. 3", "made up", f"{few:,} rows", "epochs", "seconds"), [(few, k) for k in STEPS]),
        (Group("HDP Fig. 3", "made up", "1 epoch", "rows", "seconds"), [(few * k, 1) for k in STEPS]),
    )
    for group, places in panels:
        for count, epochs in places:
            at = epochs if group.axis == "epochs" else count
            line = in_turns(count, {"method": "gradient", "epochs": epochs}, repeats)
            yield group.row(at, OURS, PROVEN, line["noise"]["all"]["exchange"])
            yield group.row(at, SILENT, IN_THE_CLEAR, line["silent"]["all"]["exchange"])
            yield group.known(at, slow, ENCRYPTED, scaled(points, count, epochs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, help="runs of each kind; 7, or 10 for the figure")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--figure", action="store_true", help=f"both panels of Fig. 3 to {FIGURE.name}; takes long")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.figure:
        print(write_csv(FIGURE, list(figure_3(options.repeats or 10))))
        return
    found = measure(options.repeats or 7, options.rows)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for what, measured, required in rows(found):
        print(f"{what:<72} {measured.replace('**', ''):<76} {required}")


if __name__ == "__main__":
    main()
