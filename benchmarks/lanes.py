"""What many rows take: whole studies in lanes, and the model of `colonnade plan --cost` beside what is measured."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import ctypes
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.cli.run_estimates import clock, fit, size
from colonnade.privacy import Trust
from colonnade.protocols.align import AlignmentTask
from colonnade.protocols.moments.task import ColumnBlock, Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.study.scale import BUILT_IN, RunTimeEstimate, WorkerFleet, estimate, work_of_task
from colonnade.tables.keys import Key
from harness import (
    Benchmark,
    alone,
    command,
    table,
    verdict,
    write_marked,
)

OWNERS = ("bank", "clinic", "shop")
COLUMNS = 10
EACH = 1_000_000
SIZES = (1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000)
COMMON = 0.95
FILES, FILE_ROWS = 4, 500_000
"""A table has at least so many files, and none of more rows."""
MOST_RATIO, MOST_MEMORY, LEAST_R2 = 1.15, 10**9, 0.999
LOOK_SECONDS = 0.2
# The tree of `colonnade run`: itself, what forks participants, these, what forks the workers of each, and these.
HEAD, WORKER = 2, 4
STUDY = """\
name = "lanes"
security = "{security}"
[task]
kind = "pca"
n_components = 3
rows_at_most = 33_554_432
[budget]
epsilon = 1.0
delta = 1e-5
[align]
on = "person_id"
mode = "ot"
{lanes}[coordinator]
address = "127.0.0.1:{port}"
links = "{links}"
[limits]
join = 3600
silence = 3600
"""
COMPUTE = """
[compute]
workers = {workers}
spool = "spool"
[network]
listen = "127.0.0.1:20000-29999"
"""


@dataclass(frozen=True)
class LanesStudy:
    """One study; ``partitions`` is 1 where it has no lanes."""

    rows: int
    partitions: int
    columns: int = COLUMNS
    workers: int = 1
    security: str = "semi-honest"
    links: str = "hub"

    @property
    def common(self) -> int:
        return int(self.rows * COMMON)

    @property
    def way(self) -> str:
        return f"{self.partitions} partitions" if self.partitions > 1 else "without lanes"


def power(rows: int, each: int) -> int:
    """The least power of two at which no partition has many more than ``each`` rows."""
    return 1 << max(0, (-(-rows // each) - 1).bit_length())


def write_folders(folder: Path, rows: int, columns: int) -> Path:
    """A folder of Parquet files for each owner; what is there already stays."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    place = folder / f"{rows}x{columns}"
    if (place / "done").exists():
        return place
    common, each = int(rows * COMMON), min(FILE_ROWS, -(-rows // FILES))
    for owner, name in enumerate(OWNERS):
        (place / name).mkdir(parents=True, exist_ok=True)
        people = np.random.default_rng([rows, owner]).permutation(rows)
        people[people >= common] += (1 + owner) * rows  # nobody else has those
        for number, start in enumerate(range(0, rows, each)):
            some = people[start : start + each]
            draw = np.random.default_rng([rows, owner, number])
            text = pc.utf8_lpad(pa.array(some).cast(pa.string()), 11, "0")
            ids = pc.binary_join_element_wise("person-", text, "")
            cells = {f"c{i}": draw.uniform(0, 1, len(some)).round(4) for i in range(columns)}
            pq.write_table(pa.table({"person_id": ids} | cells), place / name / f"part-{number:04d}.parquet")
    (place / "done").touch()
    return place


def write_study(folder: Path, data: Path, case: LanesStudy) -> Path:
    """A study file with keys, schemas and configurations, on one machine."""
    from colonnade.cli import initialise
    from colonnade.tables import Schema, number

    lanes = f"[lanes]\npartitions = {case.partitions}\n" if case.partitions > 1 else ""
    text = STUDY.format(security=case.security, lanes=lanes, port=initialise.free_port(), links=case.links)
    (folder / "schemas").mkdir(parents=True)
    for name in OWNERS:
        Schema({f"c{i}": number(0, 1) for i in range(case.columns)}).save(folder / "schemas" / f"{name}.toml")
        text += f'[parties.{name}]\nschema = "schemas/{name}.toml"\n'
        table = str((data / name).absolute())
        initialise.party(name, folder / name, table, "person_id", "auto-within-budget", tasks=["pca"], cap=100.0)
        with open(folder / name / "party.toml", "a", encoding="utf-8") as file:
            file.write(COMPUTE.format(workers=case.workers))
    path = folder / "STUDY.toml"
    path.write_text(text, encoding="utf-8")
    initialise.trial(path)
    return path


@dataclass
class Watched:
    """What was seen of the processes of a run, and of its spools."""

    root: int
    spools: list[Path]
    parents: dict[int, int] = field(default_factory=dict)
    peak: dict[int, int] = field(default_factory=dict)
    own: dict[int, int] = field(default_factory=dict)
    cpu: dict[int, float] = field(default_factory=dict)
    disk: int = 0

    def look(self) -> None:
        tick = os.sysconf("SC_CLK_TCK")
        now = dict(list_processes())
        for pid, (parent, ticks) in sorted(now.items()):
            if pid == self.root or parent in self.parents or parent == self.root:
                self.parents.setdefault(pid, parent)
                self.cpu[pid] = ticks / tick
                held = memory_of(pid)
                self.peak[pid] = max(self.peak.get(pid, 0), held.get("VmHWM", 0))
                self.own[pid] = max(self.own.get(pid, 0), held.get("RssAnon", 0))
        self.disk = max(self.disk, sum(_on_disk(folder) for folder in self.spools))

    def depth(self, pid: int) -> int:
        found = 0
        while pid != self.root:
            pid, found = self.parents[pid], found + 1
        return found

    def of(self, depth: int) -> list[int]:
        return [pid for pid in self.parents if self.depth(pid) == depth]


def list_processes() -> Iterator[tuple[int, tuple[int, int]]]:
    """All processes of the machine: the parent of each, and its processor time in ticks."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                words = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()
                yield int(name), (int(words[1]), int(words[11]) + int(words[12]))


def _on_disk(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += os.stat(os.path.join(place, name)).st_blocks * 512
    return total


@contextmanager
def watching(watched: Watched) -> Iterator[None]:
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(LOOK_SECONDS):
            watched.look()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


def _check(case: LanesStudy, found: dict[str, Any], runs: dict[str, Any]) -> None:
    """Whether it was the study that was meant, and all of it was seen."""
    for who in OWNERS:
        assert runs[who]["alignment"]["rows"] == case.rows, "a table lost rows"
        assert runs[who]["alignment"]["matched"] == case.common, "not all people were found"
    workers = (len(OWNERS) + 1) * case.workers if case.partitions > 1 else 0
    assert (found["heads"], found["workers"]) == (len(OWNERS) + 1, workers), "processes were not told apart"
    assert found["cpu"] >= found["seen"], "processor time was lost"


def _sent(run: dict[str, Any]) -> Any:
    """Sealed bytes that a participant sent, its workers too."""
    return sum(peer["sealed_sent"] for peer in run["traffic"].values()) + run.get("lanes", {}).get("sent", 0)


def _directly(run: dict[str, Any]) -> Any:
    """Those of them that went by direct links."""
    ways = (*run.get("links", {}).values(), *run.get("lanes", {}).get("links", {}).values())
    return sum(way["direct_sent"] for way in ways)


def _account(run: dict[str, Any]) -> dict[str, float]:
    """Processor seconds of a participant by its own record: its head, and lanes of its workers."""
    return {"head": run["processor_seconds"], "lanes": run.get("lanes", {}).get("processor_seconds", 0.0)}


def foretold(path: Path, case: LanesStudy) -> dict[str, Any]:
    """By the model, of this study on this machine."""
    from colonnade.study import Study
    from colonnade.study.scale import BUILT_IN, WorkerFleet, estimate, work_of_study

    fleet = WorkerFleet(case.workers, bandwidth=1e12, links=case.links)
    guess = estimate(work_of_study(Study.load(path), case.rows, case.partitions), fleet, BUILT_IN)
    return {
        "cpu": 3600 * guess.core_hours,
        "wall": max(guess.seconds, 3600 * guess.core_hours / (os.cpu_count() or 1)),  # all on one machine
        "sent": guess.bytes_total,
        "worker": max(party.worker_memory for party in guess.parties),
        "head": max(party.head_memory for party in guess.parties),
        "disk": sum(party.disk for party in guess.parties),
        "phases": {phase: sum(party.phases[phase] for party in guess.parties) for phase in guess.parties[0].phases},
    }


def memory_of(pid: int) -> dict[str, int]:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(" kB")}
    return {}


def watch_study(path: Path) -> dict[str, Any]:
    """Run a study, in a process of its own, which has no other children."""
    adopt = 36  # PR_SET_CHILD_SUBREAPER: what its parent leaves behind becomes ours, so that no time is lost
    if ctypes.CDLL(None, use_errno=True).prctl(adopt, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    words = [sys.executable, "-m", "colonnade", "run", str(path), "--out", str(path.parent / "run"), "--json"]
    start = time.perf_counter()
    with open(path.parent / "log", "wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        watched = Watched(process.pid, [path.parent / name / "spool" for name in OWNERS])
        with watching(watched):
            status = process.wait()
    wall = time.perf_counter() - start
    if status:
        raise SystemExit((path.parent / "log").read_text(errors="replace")[-2000:])
    adopted = 0
    with suppress(ChildProcessError):
        while True:
            os.wait()
            adopted += 1
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    heads, workers = watched.of(HEAD), watched.of(WORKER)
    return {
        "wall": wall,
        "cpu": used.ru_utime + used.ru_stime,
        "system": used.ru_stime,
        "seen": sum(watched.cpu.values()),
        "adopted": adopted,
        "heads": len(heads),
        "workers": len(workers),
        "head_cpu": sum(watched.cpu[pid] for pid in heads),
        "worker_cpu": sum(watched.cpu[pid] for pid in workers),
        "head_peak": max((watched.peak[pid] for pid in heads), default=0),
        "head_own": max((watched.own[pid] for pid in heads), default=0),
        "worker_peak": max((watched.peak[pid] for pid in workers), default=0),
        "worker_own": max((watched.own[pid] for pid in workers), default=0),
        "disk": watched.disk,
    }


def study_once(case: LanesStudy, keep: Path) -> dict[str, Any]:
    """One run, and what its records say of it."""
    from colonnade.protocols.roles import COORDINATOR
    from colonnade.study.local import folder_of

    data = write_folders(keep, case.rows, case.columns)
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-", dir=keep) as name:
        path = write_study(Path(name) / "study", data, case)
        found = alone(watch_study, path) | {"rows": case.rows, "partitions": case.partitions, "columns": case.columns}
        guess = foretold(path, case)
        runs = {
            who: json.loads((folder_of(path.parent / "run", who) / "run.json").read_text(encoding="utf-8"))
            for who in (*OWNERS, COORDINATOR)
        }
    _check(case, found, runs)
    return found | {
        "sent": sum(_sent(run) for run in runs.values()),
        "sent_directly": sum(_directly(run) for run in runs.values()),
        "guess": guess,
        "participants": {who: _account(run) for who, run in runs.items()},
    }


def measure_lanes(
    compare: int = 0,
    sizes: tuple[int, ...] = (0,),
    each: int = EACH,
    columns: int = COLUMNS,
    workers: int = 1,
    security: str = "semi-honest",
    links: str = "hub",
    keep: str = "",
) -> dict[str, Any]:
    """Whole studies in lanes, as users run them: from Parquet folders at three parties to a published PCA.

    Each measurement is `colonnade run` of a study with `ot` alignment and second moments, every participant and every
    worker a process of its own, over TLS through the hub, or from one to the other. Tables are folders of several
    Parquet files in orders of their own, and 95 % of the people of each are common. Processor time is of all processes
    together: the run is started by a process that adopts what is left behind, and the system adds the time of every
    process to the one that reaps it. A machine that others use too is at times slower and never faster than it is.
    """
    plans = [(compare, 1), (compare, max(2, power(compare, each)))] if compare else []
    plans += [(rows, max(2, power(rows, each))) for rows in sizes if rows]
    if not plans:
        raise SystemExit("say --compare ROWS, --sizes, or both")
    runs = []
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as name:
        folder = Path(keep or name).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        for rows, partitions in plans:
            found = study_once(LanesStudy(rows, partitions, columns, workers, security, links), folder)
            said = f"{found['cpu']:.1f} s, {found['wall']:.1f} s by the clock"
            print(f"{rows:,} rows in {partitions}: {said}", file=sys.stderr)
            runs.append(found)
    return {"runs": runs, "compared": bool(compare)}


def lanes_body(found: dict[str, Any]) -> str:
    """Every run beside the model, and what is required of them together."""
    heads = ("rows", "partitions", "processor time", "a row", "by the model", "clock", "a worker", "a head")
    lines, required = [], []
    for run in found["runs"]:
        guess = run["guess"]
        lines.append(
            (
                f"{run['rows']:,}",
                f"{run['partitions']}" if run["partitions"] > 1 else "without lanes",
                f"**{run['cpu']:.1f} s**",
                f"{run['cpu'] / run['rows'] * 1e6:.1f} us",
                f"{guess['cpu']:.1f} s ({guess['cpu'] / run['cpu'] - 1:+.0%})",
                f"{run['wall']:.0f} s",
                f"{size(run['worker_peak'])}, own {size(run['worker_own'])}",
                f"{size(run['head_peak'])}, own {size(run['head_own'])}",
                size(run["disk"]),
                size(run["sent"]),
            )
        )
    laned = [run for run in found["runs"] if run["partitions"] > 1]
    most = max(run["worker_peak"] for run in laned)
    required.append(
        verdict(most <= MOST_MEMORY, f"a worker at most {size(MOST_MEMORY)}; the largest had {size(most)}.")
    )
    if found["compared"]:
        plain, parts = found["runs"][:2]
        ratio = parts["cpu"] / plain["cpu"]
        told = f"at most {MOST_RATIO} times as much processor time a row in partitions: {ratio:.3f}."
        required.append(verdict(ratio <= MOST_RATIO, told))
    by_rows = laned[1:] if found["compared"] else laned
    if len(by_rows) > 2:
        rows, cpu = (np.array([run[name] for run in by_rows], float) for name in ("rows", "cpu"))
        slope, besides = np.polyfit(rows, cpu, 1)
        left = cpu - (slope * rows + besides)
        explained = 1 - (left @ left) / np.sum((cpu - cpu.mean()) ** 2)
        told = f"processor time is a line in the rows, R^2 at least {LEAST_R2}: {slope * 1e6:.1f} us a row and "
        required.append(verdict(explained >= LEAST_R2, f"{told}{besides:.1f} s, R^2 = {explained:.5f}."))
    return "\n\n".join([table((*heads, "disk", "sent"), lines), *required])


# --- by the model


ROWS = (100_000, 1_000_000, 20_000_000, 100_000_000, 1_000_000_000)
FLEETS = (WorkerFleet(1), WorkerFleet(4), WorkerFleet(64, 4, 1.25e9))
WIDE = 200
CLIP = 3**-0.5


def widths(columns: int) -> dict[str, int]:
    """How many columns each owner has."""
    return {owner: columns // 3 + (place < columns % 3) for place, owner in enumerate(OWNERS)}


def tasks(columns: int) -> tuple[Moments, AlignmentTask]:
    """Second moments, and the alignment before them."""
    trust = Trust(OWNERS, OWNERS, 1)
    blocks = tuple(ColumnBlock(o, tuple(f"c{i}" for i in range(width)), CLIP) for o, width in widths(columns).items())
    task = Moments(blocks, trust, gamma=4096, constant=2048, rows_at_most=2**30, noise=4 * 10**15)
    return task, AlignmentTask(trust, (Key("person_id"),), mode="ot")


def predicted(rows: int, columns: int, fleet: WorkerFleet, kind: Any = "parquet") -> RunTimeEstimate:
    """By the model."""
    task, aligning = tasks(columns)
    count = fit(rows, fleet.workers)
    names = (*OWNERS, COORDINATOR)
    work = work_of_task(task, aligning, names, widths(columns), rows, count, kind)
    return estimate(work, fleet, BUILT_IN)


def predictions() -> str:
    """Predictions as markdown."""
    lines = [
        "| rows | workers | partitions | clock | core-hours | on the wire | a worker | a head | disk | bottleneck |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for rows in ROWS:
        for fleet in FLEETS:
            found = predicted(rows, WIDE, fleet)
            memory = max(party.worker_memory for party in found.parties)
            head = max(party.head_memory for party in found.parties)
            disk = max(party.disk for party in found.parties)
            lines.append(
                f"| {rows:,} | {fleet.workers} | {found.partitions:,} | {clock(found.seconds)} "
                f"| {found.core_hours:.3g} | {size(found.bytes_total)} | {size(memory)} | {size(head)} "
                f"| {size(disk)} | {found.bottleneck} |"
            )
    return "\n".join(lines)


PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "scale.md"


def measure_model(write_docs: bool = False) -> str:
    """What a study of many rows would take, by the model of `colonnade plan --cost`.

    Three parties align their people (mode ot) and compute second moments of 200 columns. Predictions are made with the
    constants that `colonnade plan --cost` has.
    """
    made = predictions()
    if write_docs:
        write_marked(PAGE, {"predictions": made})
    return made


BENCHMARKS = {
    "studies": Benchmark(
        measure_lanes,
        lanes_body,
        page="lanes",
        title="Studies in lanes, the whole way",
        about="`colonnade run` of a PCA on second moments. Three parties have folders of Parquet files, with 95 % of "
        "the people of each in common, which `ot` alignment finds. Every participant and worker is a process of its "
        "own, over TLS. Processor time is of all of them, from the command to its end. The model is that of "
        "`colonnade plan --cost` with its built-in constants, and all people common. Memory is the largest resident "
        f"size of one process, with pages of mapped files; *own* is without them, looked at every {LOOK_SECONDS} s. "
        "Disk is the most that the partitions of all three took at a time.",
        help={
            "compare": "so many rows without lanes, and in partitions",
            "sizes": f"in partitions, such as {' '.join(map(str, SIZES))}",
            "each": "rows a partition, about; two partitions at least",
            "columns": "of each party",
            "workers": "of each participant",
            "security": "semi-honest or active",
            "links": "hub or direct",
            "keep": "a folder where tables stay, for later runs",
        },
    ),
    "model": Benchmark(
        measure_model,
        str,
        help={
            "write_docs": "put the table into docs/explanation/scale.md",
        },
    ),
}

if __name__ == "__main__":
    command(__doc__, BENCHMARKS)
