"""How the cost of a one-shot regression grows: four owners in processes over TLS, processor time summed over them.

Rows are doubled at 40 columns, columns at 20,000 rows. "Work" is dealing and arithmetic without the noise, whose
sampler takes a fixed time to set up, about a tenth of a second an owner, whatever the size; "all" is everything. Cost
in rows is a line. In columns it is a line, for what is done to each number (rounding, sharing, checking), plus a
square, for products of shares; so exponents lie between 1 and 2 and grow with the columns, and a parabola is fitted.
Processor time, since the clock of a shared machine says more about others.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from colonnade.privacy import Trust
from colonnade.protocols.moments.task import ColumnBlock, Moments
from harness import Job, Outcome, run
from rounds import Stored

OWNERS = ("bank", "clinic", "school", "shop")
ROWS, AT_COLUMNS = (20_000, 40_000, 80_000, 160_000), 40
COLUMNS, AT_ROWS = (20, 40, 80, 160, 320), 20_000
CLIP = 0.5  # of each owner, so that a whole row has norm at most 1
LEAST_FIT = 0.99


def table(rows: int, columns: int, owner: str) -> Stored:
    draws = np.random.default_rng(OWNERS.index(owner))
    values = draws.standard_normal((rows, columns // len(OWNERS)))
    values *= CLIP / np.linalg.norm(values, axis=1)[:, None]
    return Stored([f"P{i:06d}" for i in range(rows)], values)


def make_task(columns: int) -> Moments:
    """The same gamma, noise and primes at every size."""
    width = columns // len(OWNERS)
    blocks = tuple(ColumnBlock(owner, tuple(f"c{i}" for i in range(width)), CLIP) for owner in OWNERS)
    return Moments(blocks, Trust(OWNERS, OWNERS, 1), gamma=4096, constant=1365, rows_at_most=2**24, noise=4 * 10**15)


def cost(rows: int, columns: int, repeats: int) -> dict[str, float]:
    """Processor seconds, of some runs the least: work, of it products, and everything."""
    task = make_task(columns)
    assert len(task.committee.system.primes) == 3
    found = [_parts(run(Job(task, partial(table, rows, columns)))) for _ in range(repeats)]
    return {part: min(each[part] for each in found) for part in found[0]}


def _parts(outcome: Outcome) -> dict[str, float]:
    products = [node.work.get(phase, 0.0) for node in outcome.nodes for phase in ("multiply", "own block")]
    noise = sum(node.work["noise"] for node in outcome.nodes)
    return {
        "work": sum(node.own_work for node in outcome.nodes) - noise,
        "noise": noise,
        "products": sum(products),
        "all": outcome.cpu,
        "wall": outcome.wall,
    }


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> dict[str, float]:
    """The slope of log cost over log size, and how well a straight line fits."""
    x, y = np.log(sizes), np.log(costs)
    slope, start = np.polyfit(x, y, 1)
    return {"slope": float(slope), "fit": _explained(y, slope * x + start)}


def polynomial(sizes: Sequence[int], costs: Sequence[float], degree: int) -> dict[str, Any]:
    """A polynomial through cost over size, by relative errors, and how well it fits."""
    x, y = np.array(sizes, dtype=np.float64), np.array(costs)
    found = np.polyfit(x, y, degree, w=1 / y)
    return {"coefficients": found.tolist(), "fit": _explained(y, np.polyval(found, x))}


def _explained(y: np.ndarray, fitted: np.ndarray) -> float:
    return float(1 - ((y - fitted) ** 2).sum() / ((y - y.mean()) ** 2).sum())


def measure(repeats: int = 1, small: int = 1) -> dict[str, Any]:
    """Both series and their fits; ``small`` divides the rows, to try this out."""
    by_rows = {rows: cost(rows // small, AT_COLUMNS, repeats) for rows in ROWS}
    by_columns = {columns: cost(AT_ROWS // small, columns, repeats) for columns in COLUMNS}
    return {
        "repeats": repeats,
        "rows": _fits(by_rows, 1),
        "columns": _fits(by_columns, 2),
    }


def _fits(series: dict[int, dict[str, float]], degree: int) -> dict[str, Any]:
    sizes, found = list(series), {}
    for part in ("work", "products", "all"):
        costs = [each[part] for each in series.values()]
        found[part] = {
            **exponent(sizes, costs),
            "last": float(np.log2(costs[-1] / costs[-2])),
            "polynomial": polynomial(sizes, costs, degree),
        }
    return {"costs": series, "fits": found}


def rows(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Rows of a table: what, measured, required."""
    lines, squares = found["rows"]["fits"], found["columns"]["fits"]
    yield f"{AT_COLUMNS} columns, CPU of work by rows", _listed(found["rows"]["costs"]), ""
    work, everything = lines["work"], lines["all"]
    good = 0.8 <= work["slope"] <= 1.15 and work["polynomial"]["fit"] >= LEAST_FIT
    yield (
        "work by rows, log-log slope; R² of a line (with noise and transport)",
        f"**rows^{work['slope']:.2f}** (R² {work['fit']:.4f}); {work['polynomial']['fit']:.4f} "
        f"({everything['polynomial']['fit']:.4f})",
        f"{'PASS' if good else 'FAIL'}: linear, R² at least {LEAST_FIT}",
    )
    yield f"{AT_ROWS:,} rows, CPU of work by columns", _listed(found["columns"]["costs"]), ""
    work, products = squares["work"], squares["products"]
    leading = work["polynomial"]["coefficients"][0]
    good = leading > 0 and work["polynomial"]["fit"] >= LEAST_FIT and work["last"] <= 2.15
    yield (
        "work by columns, log-log slope; at the last doubling; R² of a parabola (with noise and transport)",
        f"**columns^{work['slope']:.2f}** (R² {work['fit']:.4f}); columns^{work['last']:.2f}; "
        f"{work['polynomial']['fit']:.4f} ({squares['all']['polynomial']['fit']:.4f})",
        f"{'PASS' if good else 'FAIL'}: a parabola, R² at least {LEAST_FIT}",
    )
    yield (
        "products alone by columns, log-log slope; at the last doubling",
        f"columns^{products['slope']:.2f} (R² {products['fit']:.4f}); columns^{products['last']:.2f}",
        "",
    )


def _listed(costs: dict[Any, dict[str, float]]) -> str:
    return ", ".join(f"{int(size):,}: {each['work']:.2f} s" for size, each in costs.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--small", type=int, default=1, help="divide the rows by this, to try this out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.repeats, options.small)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for what, measured, required in rows(found):
        print(f"{what:<62} {measured.replace('**', ''):<90} {required}")


if __name__ == "__main__":
    main()
