"""What the peers' programs share: operands, processes on this machine that are parties, and the figures of a run.

Needs numpy and nothing else, because peers have environments of their own.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

OPERATIONS = ("multiply", "less", "reciprocal", "softmax")
SMALL, LARGE = (100, 20), (50_000, 20)
ROWS, COLUMNS = 45_000, 41
TOLERATED = 0.05
_CLOSE = 2.0**-12
Shape = tuple[int, int]
Figures = dict[str, Any]


# --- what is computed


def operands(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Two positive arrays; the first party owns one, the second the other."""
    draws = np.random.default_rng(0)
    return draws.uniform(0.25, 2, shape), draws.uniform(0.25, 2, shape)


def plaintext(operation: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What an operation is; softmax stands for its secure steps: product, sum along rows, reciprocal, product."""
    if operation == "multiply":
        return x * y
    if operation == "less":
        return x < y
    if operation == "reciprocal":
        return 1 / x
    product = x * y
    return product * (1 / product.sum(axis=1, keepdims=True))


def error(operation: str, found: np.ndarray, shape: Shape) -> float:
    """The largest error; comparisons of numbers that fixed point can hardly tell apart may come out either way."""
    x, y = operands(shape)
    gaps = np.abs(np.asarray(found, dtype=np.float64) - plaintext(operation, x, y))
    worst = float(gaps[np.abs(x - y) > _CLOSE].max() if operation == "less" else gaps.max())
    assert worst <= TOLERATED, f"{operation} of {shape} is off by {worst}"
    return worst


def widths(columns: int, parties: int) -> list[int]:
    """How many columns each party has."""
    return [len(part) for part in np.array_split(np.arange(columns), parties)]


def table(place: int, rows: int, columns: int, parties: int) -> np.ndarray:
    """The columns of one party; a whole row has norm 1."""
    values = np.random.default_rng(place).standard_normal((rows, widths(columns, parties)[place]))
    return values / (np.linalg.norm(values, axis=1, keepdims=True) * parties**0.5)


def gram_error(found: np.ndarray, rows: int, columns: int, parties: int) -> float:
    """The largest error in X'X, which must be small beside the smallest sum of squares."""
    joint = np.hstack([table(place, rows, columns, parties) for place in range(parties)])
    exact = joint.T @ joint
    worst = float(np.abs(np.asarray(found, dtype=np.float64) - exact).max())
    assert worst <= TOLERATED * np.diag(exact).min(), f"X'X is off by {worst}"
    return worst


# --- processes


def addresses(count: int) -> list[str]:
    """Where so many parties can listen: ports of this machine that are free."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [f"127.0.0.1:{opened.getsockname()[1]}" for opened in sockets]
    for opened in sockets:
        opened.close()
    return found


def together(
    program: str | Path, parties: Sequence[Sequence[object]], environment: Mapping[str, str] | None = None
) -> list[Figures]:
    """Run a program once for each list of arguments, all at the same time; what each prints last, as JSON."""
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        said = [(Path(folder) / f"{place}.out", Path(folder) / f"{place}.err") for place in range(len(parties))]
        processes = []
        for (out, err), arguments in zip(said, parties, strict=True):
            with out.open("w") as output, err.open("w") as errors:
                command = [sys.executable, str(program), *map(str, arguments)]
                settings = {**os.environ, **(environment or {})}
                processes.append(subprocess.Popen(command, stdout=output, stderr=errors, env=settings))
        if (failed := _wait(processes)) is not None:
            raise SystemExit(f"party {failed} of {Path(program).name} failed:\n{said[failed][1].read_text()[-2000:]}")
        return [_last_object(out.read_text()) for out, _ in said]


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """Which process failed, if one did; the others would wait for it for ever, so they are stopped."""
    while True:
        codes = [process.poll() for process in processes]
        failed = next((place for place, code in enumerate(codes) if code), None)
        if failed is not None or all(code == 0 for code in codes):
            break
        time.sleep(0.05)
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
    return failed


def _last_object(text: str) -> Figures:
    found: Figures = json.loads(next(line for line in reversed(text.splitlines()) if line.startswith("{")))
    return found


def spans(repeats: int, barrier: Callable[[], object], act: Callable[[], object]) -> Figures:
    """Time an act of all parties after a first, untimed one; alone, if there is nothing to repeat."""
    if repeats > 1:
        act()
    found, cpu = [], 0.0
    for _ in range(repeats):
        barrier()
        started, before = time.perf_counter(), time.process_time()
        act()
        found.append((started, time.perf_counter()))
        cpu += (time.process_time() - before) / repeats
    return {"spans": found, "cpu": cpu}


def typical(reports: Sequence[Figures]) -> Figures:
    """From the first party to start to the last to end, the median of the repeats; the clock is the same for all."""
    turns = zip(*(report["spans"] for report in reports), strict=True)
    walls = [max(ended for _, ended in turn) - min(started for started, _ in turn) for turn in turns]
    rest = {key: reports[0][key] for key in ("error", "rounds") if key in reports[0]}
    if all("sent" in report for report in reports):
        rest["sent"] = sum(report["sent"] for report in reports)
    return {"wall": median(walls), "walls": walls, "cpu": sum(report["cpu"] for report in reports), **rest}


# --- figures


def parse_shape(text: str) -> Shape:
    rows, columns = map(int, text.split("x"))
    return rows, columns


def arithmetic_options(about: str | None, most: int | None = None, repeats: int = 7) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--operations", nargs="+", default=OPERATIONS, choices=OPERATIONS)
    parser.add_argument("--shapes", nargs="+", type=parse_shape, default=[SMALL, LARGE], metavar="ROWSxCOLUMNS")
    parser.add_argument("--most", type=int, default=most, help="elements to measure; the time for more is scaled")
    parser.add_argument("--repeats", type=int, default=repeats, help="of arrays with fewer than 10,000 elements")
    return parser


@dataclass(frozen=True)
class Case:
    """One operation on arrays of one shape, some times."""

    operation: str
    shape: Shape
    repeats: int

    def __str__(self) -> str:
        return f"{self.operation}:{self.shape[0]}:{self.shape[1]}:{self.repeats}"

    @classmethod
    def parse(cls, text: str) -> Case:
        operation, rows, columns, repeats = text.split(":")
        return cls(operation, (int(rows), int(columns)), int(repeats))


def sweep(options: argparse.Namespace, measure: Callable[[list[Case]], list[Figures]]) -> list[Figures]:
    """All operations on all shapes, small ones first, as far as they are not scaled."""
    wanted = [(operation, shape) for operation in options.operations for shape in sorted(options.shapes)]
    cases = []
    for operation, (rows, columns) in wanted:
        part = min(rows, options.most // columns) if options.most else rows
        repeats = options.repeats if part * columns < 10_000 else 1
        cases.append(Case(operation, (part, columns), repeats))
    lines = measure(cases)
    points: dict[str, list[tuple[int, float]]] = {}
    for case, line, (operation, shape) in zip(cases, lines, wanted, strict=True):
        measured, elements = math.prod(case.shape), math.prod(shape)
        points.setdefault(operation, []).append((measured, line["wall"]))
        line |= {"operation": operation, "shape": shape, "elements": elements, "scaled_from": None}
        if measured < elements:
            line |= {"scaled_from": measured, "measured": line["wall"], "wall": scaled(points[operation], elements)}
            line["cpu"] *= elements / measured
    return lines


def run_cases(
    program: str | Path, parties: Sequence[Sequence[object]], environment: Mapping[str, str] | None = None
) -> list[Figures]:
    """The figures of each case, of processes that go through all of them."""
    reports = together(program, parties, environment)
    return [typical(turn) for turn in zip(*(report["cases"] for report in reports), strict=True)]


def scaled(points: Sequence[tuple[int, float]], count: int) -> float:
    """Seconds for a larger count: proportional, or by the line through the last two points if that is less."""
    more, long = points[-1]
    proportional = long * count / more
    if len(points) < 2 or points[-2][0] == more:
        return proportional
    few, short = points[-2]
    return min(proportional, max(long, long + (long - short) / (more - few) * (count - more)))


def gram_options(about: str | None, block: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--columns", type=int, default=COLUMNS)
    parser.add_argument("--block", type=int, default=block, help="rows of one product, or 0 for all in one")
    parser.add_argument("--limit", type=float, default=60, help="seconds; what would take longer is scaled from less")
    parser.add_argument("--repeats", type=int, default=3)
    return parser


def gram(options: argparse.Namespace, measure: Callable[[int, int, int], Figures]) -> Figures:
    """X'X of all rows if one product fits the limit, else of as many as take a quarter of it; then time is scaled."""
    rows, columns = options.rows, options.columns
    probe = max(rows // 64, 1)
    points = [(probe, measure(probe, columns, 1)["wall"])]
    foreseen = scaled(points, rows)
    fits = foreseen <= options.limit
    part = rows if fits else max(int(rows * options.limit / foreseen / 4), probe)
    line = measure(part, columns, options.repeats if fits and foreseen * options.repeats <= options.limit else 1)
    line |= {"rows": rows, "columns": columns, "scaled_from": None}
    if part < rows:
        points.append((part, line["wall"]))
        line |= {"scaled_from": part, "measured": line["wall"], "wall": scaled(points, rows)}
        line["cpu"] *= rows / part
    return line


def report(peer: str, parties: int, about: str, results: Any) -> None:
    """Print the one JSON object of a peer's program."""
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    print(json.dumps({"peer": peer, "parties": parties, "about": about, "command": command, "results": results}))
