"""Whole studies in lanes, as users run them: from Parquet folders at three parties to a published PCA.

Each measurement is `colonnade run` of a study with `ot` alignment and second moments, every participant and every
worker a process of its own, over TLS through the hub, or with `--links direct` from one to the other. Tables are
folders of several Parquet files in orders of their own, and 95 % of the people of each are common. Processor time is of
all processes together: the run is started by a process that adopts what is left behind, and the system adds the time of
every process to the one that reaps it.

`--compare ROWS` measures the same rows without lanes and in partitions. `--sizes` measures in partitions alone, and
says how near to a line the processor time is, beside the model of `colonnade plan --cost`. A machine that others use
too is at times slower and never faster than it is: with `--log FILE` every run of a size is kept there, later calls add
to it, and the least processor time of each size counts.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import ctypes
import json
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

OWNERS = ("bank", "clinic", "shop")
COLUMNS = 10
EACH = 1_000_000
SIZES = (1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000)
COMMON = 0.95
FILES, FILE_ROWS = 4, 500_000
"""A table has at least so many files, and none of more rows."""
MOST_RATIO, MOST_MEMORY, LEAST_R2 = 1.15, 10**9, 0.999
LOOK_SECONDS = 0.2
TARGET = Path(__file__).parent / "results" / "lanes.md"
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


PAGE = f"""# Studies in lanes, the whole way

Made by `python benchmarks/lanes.py --write`: `colonnade run` of a PCA on second moments. Three parties have folders of
Parquet files, with {COMMON:.0%} of the people of each in common, which `ot` alignment finds. Every participant and
worker is a process of its own, over TLS through the hub. Processor time is of all of them, from the command to its end.
The model is that of `colonnade plan --cost` with its built-in constants, and all people common. Memory is the largest
resident size of one process, with pages of mapped files; *own* is without them, looked at every {LOOK_SECONDS} s. Disk
is the most that the partitions of all three took at a time. Where a size was measured more than once, the run of least
processor time is shown, and all of them are named below the table: what else a machine does can only add to it.
"""


@dataclass(frozen=True)
class Case:
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


# --- tables and files


def tables(folder: Path, rows: int, columns: int) -> Path:
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


def study(folder: Path, data: Path, case: Case) -> Path:
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


# --- measuring


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
        now = dict(_processes())
        for pid, (parent, ticks) in sorted(now.items()):
            if pid == self.root or parent in self.parents or parent == self.root:
                self.parents.setdefault(pid, parent)
                self.cpu[pid] = ticks / tick
                held = _memory(pid)
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


def _processes() -> Iterator[tuple[int, tuple[int, int]]]:
    """All processes of the machine: the parent of each, and its processor time in ticks."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                words = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()
                yield int(name), (int(words[1]), int(words[11]) + int(words[12]))


def _memory(pid: int) -> dict[str, int]:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(" kB")}
    return {}


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


def child(path: Path) -> dict[str, Any]:
    """Run a study; called in a process of its own, which has no other children."""
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


def measure(case: Case, keep: Path) -> dict[str, Any]:
    """One run, and what its records say of it."""
    from colonnade.protocols.roles import COORDINATOR
    from colonnade.study.local import folder_of

    data = tables(keep, case.rows, case.columns)
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-", dir=keep) as name:
        path = study(Path(name) / "study", data, case)
        words = [sys.executable, __file__, "--child", str(path)]
        made = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(made) | {"rows": case.rows, "partitions": case.partitions, "columns": case.columns}
        guess = predicted(path, case)
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


def _check(case: Case, found: dict[str, Any], runs: dict[str, Any]) -> None:
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


def predicted(path: Path, case: Case) -> dict[str, Any]:
    """By the model, of this study on this machine."""
    from colonnade.study import Study
    from colonnade.study.scale import BUILT_IN, WorkerFleet, estimate, work_of_study

    fleet = WorkerFleet(case.workers, bandwidth=1e12, cores=os.cpu_count(), links=case.links)
    guess = estimate(work_of_study(Study.load(path), case.rows, case.partitions), fleet, BUILT_IN)
    return {
        "cpu": 3600 * guess.core_hours,
        "wall": guess.seconds,
        "sent": guess.bytes_total,
        "worker": max(party.worker_memory for party in guess.parties),
        "head": max(party.head_memory for party in guess.parties),
        "disk": sum(party.disk for party in guess.parties),
        "phases": {phase: sum(party.phases[phase] for party in guess.parties) for phase in guess.parties[0].phases},
    }


def billion(columns: int = 200) -> str:
    """The prediction for the size that cannot be measured here."""
    from colonnade.cli.run_estimates import clock, size
    from colonnade.study.scale import BUILT_IN, WorkerFleet
    from scale import predicted as by_model

    found = by_model(10**9, columns, WorkerFleet(64, 4, 1.25e9), BUILT_IN)
    worker = max(party.worker_memory for party in found.parties)
    head = max(party.head_memory for party in found.parties)
    return (
        f"1,000,000,000 rows x {columns} columns, 64 workers of each participant, 4 hubs of 10 Gbit/s: "
        f"{found.partitions:,} partitions, {clock(found.seconds)} by the clock, {found.core_hours:.3g} core-hours, "
        f"{size(found.bytes_total)} on the wire, {size(worker)} a worker, {size(head)} a head. An estimate; the "
        f"bottleneck is {found.bottleneck}."
    )


# --- pages


def line_of(runs: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Seconds a row, seconds besides, and R^2 of a line through processor time by rows."""
    rows, cpu = (np.array([run[name] for run in runs], float) for name in ("rows", "cpu"))
    slope, besides = np.polyfit(rows, cpu, 1)
    left = cpu - (slope * rows + besides)
    return float(slope), float(besides), float(1 - (left @ left) / np.sum((cpu - cpu.mean()) ** 2))


def logged(path: Path, runs: list[dict[str, Any]], how: dict[str, Any]) -> list[dict[str, Any]]:
    """Add runs to those of a file; all that were measured in the same way, by size and then in order."""
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(json.dumps(run | {"how": how}) + "\n" for run in runs)
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return sorted((run for run in lines if run["how"] == how), key=lambda run: run["rows"])


def least(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every size the run that took least processor time."""
    found: dict[int, dict[str, Any]] = {}
    for run in sorted(runs, key=lambda run: (run["rows"], run["cpu"])):
        found.setdefault(run["rows"], run)
    return list(found.values())


def sizes_page(every: list[dict[str, Any]]) -> list[str]:
    from colonnade.cli.run_estimates import size

    runs = least(every)

    lines = [
        "| rows | partitions | processor time | a row | by the model | clock | a worker | a head | disk | sent |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        guess = run["guess"]
        lines.append(
            f"| {run['rows']:,} | {run['partitions']} | **{run['cpu']:.1f} s** "
            f"| {run['cpu'] / run['rows'] * 1e6:.1f} us "
            f"| {guess['cpu']:.1f} s ({guess['cpu'] / run['cpu'] - 1:+.0%}) | {run['wall']:.0f} s "
            f"| {size(run['worker_peak'])}, own {size(run['worker_own'])} "
            f"| {size(run['head_peak'])}, own {size(run['head_own'])} | {size(run['disk'])} | {size(run['sent'])} |"
        )
    most = max(max(run["worker_peak"] for run in runs), 1)
    lines += [
        "",
        f"{_verdict(most <= MOST_MEMORY)}: a worker at most {size(MOST_MEMORY)}; the largest had {size(most)}.",
    ]
    if len(runs) > 2:
        slope, besides, fit = line_of(runs)
        lines[-1] += (
            f" {_verdict(fit >= LEAST_R2)}: processor time is a line in the rows, R^2 at least {LEAST_R2}: "
            f"{slope * 1e6:.1f} us a row and {besides:.1f} s, R^2 = {fit:.5f}."
        )
    if len(every) > len(runs):
        taken = ((run["rows"], [f"{one['cpu']:.1f}" for one in every if one["rows"] == run["rows"]]) for run in runs)
        lines += ["", "Every run: " + "; ".join(f"{rows:,} rows {', '.join(all_)} s" for rows, all_ in taken) + "."]
    return [*lines, "", billion()]


def compare_page(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    from colonnade.cli.run_estimates import size

    lines = [
        "| rows | | processor time | a row | heads | workers in lanes | all else | clock | largest process | disk |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run in (run for pair in pairs for run in pair):
        heads = sum(one["head"] for one in run["participants"].values())
        lanes = sum(one["lanes"] for one in run["participants"].values())
        way = f"{run['partitions']} partitions" if run["partitions"] > 1 else "without lanes"
        lines.append(
            f"| {run['rows']:,} | {way} | **{run['cpu']:.1f} s** | {run['cpu'] / run['rows'] * 1e6:.1f} us "
            f"| {heads:.1f} s | {lanes:.1f} s | {run['cpu'] - heads - lanes:.1f} s | {run['wall']:.0f} s "
            f"| {size(max(run['worker_peak'], run['head_peak']))} | {size(run['disk'])} |"
        )
    ratio = statistics.median(laned["cpu"] / plain["cpu"] for plain, laned in pairs)
    told = f"at most {MOST_RATIO} times as much processor time a row in partitions: {ratio:.3f}"
    return [*lines, "", f"{_verdict(ratio <= MOST_RATIO)}: {told}{', the median' if len(pairs) > 1 else ''}."]


def _verdict(good: bool) -> str:
    return "PASS" if good else "FAIL"


def section(title: str, lines: list[str], case: Case) -> str:
    """A part of the page, with where and how it was measured."""
    where = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    how = (
        f"{datetime.now(UTC).date()}; {where}. {case.columns} columns of each party, {case.security}, {case.workers} "
        f"worker{'s' if case.workers > 1 else ''} of each participant, links = {case.links}."
    )
    return "\n".join([f"## {title}", "", how, "", *lines, ""])


def write(sections: list[str]) -> None:
    """Put sections into the page, in place of earlier ones of the same titles."""
    text = TARGET.read_text(encoding="utf-8") if TARGET.exists() else PAGE
    _, *earlier = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    there = {one.splitlines()[0]: one.rstrip() + "\n" for one in [*earlier, *sections]}
    TARGET.write_text("\n".join([PAGE, *(there[title] for title in sorted(there))]), encoding="utf-8")


@contextmanager
def kept(folder: Path | None) -> Iterator[Path]:
    """Where tables lie."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as name:
            yield Path(name)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.absolute()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", type=int, metavar="ROWS", help="so many rows without lanes, and in partitions")
    parser.add_argument("--sizes", type=int, nargs="*", metavar="ROWS", help=f"in partitions; {SIZES} if none is given")
    parser.add_argument("--each", type=int, default=EACH, help="rows a partition, about; two partitions at least")
    parser.add_argument("--columns", type=int, default=COLUMNS, help="of each party")
    parser.add_argument("--workers", type=int, default=1, help="of each participant")
    parser.add_argument("--security", choices=("semi-honest", "active"), default="semi-honest")
    parser.add_argument("--links", choices=("hub", "direct"), default="hub")
    parser.add_argument("--repeats", type=int, default=1, help="of a comparison, in turn; the median counts")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where tables stay, for later runs")
    parser.add_argument("--log", type=Path, metavar="FILE", help="add every run of a size, and count earlier ones")
    parser.add_argument("--write", action="store_true", help=f"write {TARGET.name} beside the other results")
    parser.add_argument("--json", action="store_true", help="every figure")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(child(given.child)))
        return
    if given.compare is None and given.sizes is None:
        parser.error("say --compare ROWS, --sizes, or both")
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    runs: list[dict[str, Any]] = []
    how = {"columns": given.columns, "workers": given.workers, "security": given.security, "links": given.links}

    def one(rows: int, partitions: int, folder: Path) -> dict[str, Any]:
        case = Case(rows, partitions, **how)
        found = measure(case, folder)
        print(f"{rows:,} rows, {case.way}: {found['cpu']:.1f} s, {found['wall']:.1f} s by the clock", file=sys.stderr)
        return found

    with kept(given.keep) as folder:
        for _ in range(given.repeats if given.compare else 0):
            count = max(2, power(given.compare, given.each))
            pairs.append((one(given.compare, 1, folder), one(given.compare, count, folder)))
        for rows in [] if given.sizes is None else given.sizes or SIZES:
            runs.append(one(rows, max(2, power(rows, given.each)), folder))
    if given.log and runs:
        runs = logged(given.log, runs, how | {"each": given.each})
    case = Case(0, 1, **how)
    sections = [section("Beside a study without lanes", compare_page(pairs), case)] if pairs else []
    sections += [section("By rows", sizes_page(runs), case)] if runs else []
    print(json.dumps({"compared": pairs, "sizes": runs}, indent=2) if given.json else "\n".join(sections))
    if given.write:
        write(sections)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
