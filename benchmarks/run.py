"""All speed benchmarks, one after the other; each page of figures goes to results/PAGE.md.

`python benchmarks/run.py regression` runs only those of one page.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import csv
import importlib
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
MB = 1e6
Row = tuple[str, str, str]
Words = Callable[[Any], Iterator[Row]]


def figures(script: str) -> Any:
    """What a benchmark prints with --json, in a process of its own; None if it is not there or cannot run."""
    if not (HERE / script).exists():
        return None
    print(f"{script} ...", flush=True)
    done = subprocess.run([sys.executable, HERE / script, "--json"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(f"{script} failed with exit status {done.returncode}")
        return None
    return json.loads(done.stdout)


def gram_rows(found: dict[str, Any]) -> Iterator[Row]:
    base, nodes, memory = found["dgemm"], found["nodes"], found["memory"]
    low, high = (part / base for part in found["work_range"])
    small, large = memory["by_rows"].values()
    size = f"X'X of {found['rows']:,} x {found['columns']}"
    yield f"{size}: one plaintext dgemm, one thread", f"{base:.3f} s ({found['syrk']:.3f} s symmetric)", ""
    yield (
        "dealing and arithmetic of all three nodes, CPU",
        f"**{found['ratio']:.1f} x dgemm** ({low:.1f} to {high:.1f}); {found['work']:.2f} s",
        _verdict(found["ratio"] <= 10, "at most 10 x"),
    )
    yield (
        "encryption and transport of all nodes and the hub, CPU",
        f"{found['transport'] / base:.1f} x dgemm; {found['transport']:.2f} s, end-to-end TLS {found['tls']:.2f} s",
        "",
    )
    yield (
        "wall time, three nodes and the hub on this machine",
        f"{found['wall'] / base:.1f} x dgemm; {found['wall']:.1f} s",
        "",
    )
    yield (
        "bytes sent by one node, by all",
        f"{nodes[1]['payload'] / MB:.1f} MB, {sum(n['payload'] for n in nodes) / MB:.1f} MB; sealed "
        f"{sum(n['sealed'] for n in nodes) / MB:.1f} MB",
        "",
    )
    yield (
        "peak memory of a node, 195,666 rows against 50,000",
        f"{memory['ratio']:.2f} x ({large['peak'] / MB:.0f} against {small['peak'] / MB:.0f} MB)",
        _verdict(memory["ratio"] < 1.25, "bounded by the block"),
    )


def peers_rows(found: dict[str, Any]) -> Iterator[Row]:
    ours = found["colonnade"]
    size = f"X'X of {found['rows']:,} x {found['columns']}"
    own = {
        f"{size}: Colonnade over TLS, no noise drawn": ours,
        "the same, noise drawn": found["colonnade_noise"],
        "over direct links, no noise drawn": found["colonnade_direct"],
    }
    for name, line in own.items():
        yield name, f"{line['wall']:.3f} s wall, {line['cpu']:.2f} s CPU", ""
    names = {
        "mpyc_integers": "MPyC, secure integers",
        "mpyc_whole": "MPyC, smallest prime field",
        "mpyc_cross": "MPyC, smallest field, cross-party blocks only",
    }
    for key, name in names.items():
        wall, cpu = (found[key][part] / ours[part] for part in ("wall", "cpu"))
        linked = found[key]["wall"] / found["colonnade_direct"]["wall"]
        words = f"**{wall:.0f} x** the wall time ({found[key]['wall']:.1f} s), {cpu:.0f} x the CPU"
        words += f"; {linked:.0f} x over direct links"
        yield name, words, _verdict(wall >= 150, "at least 150 x") if key != "mpyc_cross" else ""


def sampler_rows(found: dict[str, Any]) -> Iterator[Row]:
    rates = found["rates"]
    for name, line in rates.items():
        low, high = min(line.values()), max(line.values())
        yield f"{name}, samples/s, one core", f"{low / 1e6:.3g} to {high / 1e6:.3g} million", ""


def _verdict(good: bool, words: str) -> str:
    return f"{'PASS' if good else 'FAIL'}: {words}"


def machine() -> str:
    model = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    versions = ", ".join(f"{name} {_version(name)}" for name in ("numpy", "mpyc", "phe"))
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}, {versions}; load at start {load:.1f}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def own_rows(script: str) -> Words:
    """The rows that a benchmark makes of its figures itself."""

    def rows(found: Any) -> Iterator[Row]:
        module = importlib.import_module(script.removesuffix(".py"))
        yield from module.rows(found)

    return rows


PAGES: dict[str, tuple[str, str, dict[str, Words]]] = {
    "speed": (
        "Speed",
        "Ratios are of figures measured in one run.",
        {
            "gram.py": gram_rows,
            "peers.py": peers_rows,
            "throughput.py": own_rows("throughput.py"),
            "samplers.py": sampler_rows,
        },
    ),
    "regression": (
        "Speed of private regression",
        "K parties and the coordinator are processes on this machine, over TLS through the hub. A whole fit lasts from "
        "the moment all programs are loaded until everybody holds the model; what is in it, and what the peers do, is "
        "said in [the list of benchmarks](../README.md). Epsilon 1 for the analyst.",
        {script: own_rows(script) for script in ("regression.py", "rounds.py", "scaling.py")},
    ),
    "alignment": (
        "Speed of private alignment",
        "Every party and the coordinator are processes on this machine, over TLS through the hub. The time is from "
        "files of ids, each in its own order, to aligned tables. SPU's programs run on the same lists.",
        {"alignment.py": own_rows("alignment.py")},
    ),
    "exchange": (
        "Speed of learning over noised messages",
        "Two parties and the coordinator are processes on this machine, over TLS through the hub. A whole fit "
        "lasts from the moment all programs are loaded until the last one holds its weights; what is in it, and what "
        "the peer does, is said in [the list of benchmarks](../README.md). Epsilon 1, delta 0.01.",
        {"exchange.py": own_rows("exchange.py")},
    ),
    "ledger": (
        "Speed of a ledger",
        "No two studies are alike; each has three parties, two of them among twelve partners. One number caps "
        "everyone, for ever and within 30 days. 25 studies in a fresh process, every change flushed to disk, once the "
        "cost of the study itself is known; medians.",
        {"ledger.py": own_rows("ledger.py")},
    ),
}


OWN_PAGES: dict[str, tuple[str, str, str]] = {
    "arithmetic": (
        "Speed of arithmetic on shares",
        "Three processes on this machine hold shares; what is in the times, and how peers are called, is said in "
        "[the list of benchmarks](../README.md).",
        "arithmetic.py",
    ),
}
"""Pages whose script makes the text, from `markdown`, and a CSV file, from `csv_rows`."""


NAMES = (*PAGES, *OWN_PAGES)


def heading(name: str, title: str, about: str) -> list[str]:
    return [
        f"# {title}",
        "",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {machine()}.",
        f"Made by `make bench` (`python benchmarks/run.py {name}`). {about}",
        "",
    ]


def own_page(name: str) -> bool:
    """Measure and write a page that a script words itself."""
    title, about, script = OWN_PAGES[name]
    head, found = heading(name, title, about), figures(script)
    if found is None:
        return False
    module = importlib.import_module(script.removesuffix(".py"))
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="") as target:
        csv.writer(target, lineterminator="\n").writerows(module.csv_rows(found))
    text = "\n".join([*head, module.markdown(found)])
    (RESULTS / f"{name}.md").write_text(text)
    print(text)
    return not found["missing"] and not found["failed"]


def page(name: str) -> bool:
    """Measure and write one page of results; whether all of it could be measured."""
    if name in OWN_PAGES:
        return own_page(name)
    title, about, parts = PAGES[name]
    head = [*heading(name, title, about), "| what | measured | required |", "|---|---|---|"]
    rows: list[Row] = []
    for script, words in parts.items():
        found = figures(script)
        rows += list(words(found)) if found else [(script, "not measured", "")]
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{name}.md"
    target.write_text("\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n")
    print(target.read_text())
    return not any(row[1] == "not measured" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"{' or '.join(NAMES)}; all unless given")
    wanted = parser.parse_args().pages or list(NAMES)
    if unknown := [name for name in wanted if name not in NAMES]:
        parser.error(f"there is no page {unknown[0]!r}; there are {', '.join(NAMES)}")
    complete = [page(name) for name in wanted]
    sys.exit(0 if all(complete) else 1)


if __name__ == "__main__":
    main()
