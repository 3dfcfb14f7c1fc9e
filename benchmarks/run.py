"""All speed benchmarks, one after the other; the figures, as ratios, go to results/speed.md."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TARGET = HERE / "results" / "speed.md"
MB = 1e6
Row = tuple[str, str, str]


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
        _verdict(found["ratio"] <= 15, "at most 15 x"),
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
    ours, noisy = found["colonnade"], found["colonnade_noise"]
    size = f"X'X of {found['rows']:,} x {found['columns']}"
    yield f"{size}: Colonnade over TLS, no noise drawn", f"{ours['wall']:.2f} s wall, {ours['cpu']:.2f} s CPU", ""
    yield "the same, noise drawn", f"{noisy['wall']:.2f} s wall, {noisy['cpu']:.2f} s CPU", ""
    names = {
        "mpyc_integers": "MPyC, secure integers",
        "mpyc_whole": "MPyC, smallest prime field",
        "mpyc_cross": "MPyC, smallest field, cross-party blocks only",
    }
    for key, name in names.items():
        wall, cpu = (found[key][part] / ours[part] for part in ("wall", "cpu"))
        words = f"**{wall:.0f} x** the wall time ({found[key]['wall']:.1f} s), {cpu:.0f} x the CPU"
        yield name, words, _verdict(wall >= 100, "at least 100 x") if key != "mpyc_cross" else ""


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
    versions = ", ".join(f"{name} {_version(name)}" for name in ("numpy", "mpyc"))
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}, {versions}; load at start {load:.1f}"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    head = [
        "# Speed",
        "",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {machine()}.",
        "Made by `make bench` (`python benchmarks/run.py`). Ratios are of figures measured in one run.",
        "",
        "| what | measured | required |",
        "|---|---|---|",
    ]
    parts = {"gram.py": gram_rows, "peers.py": peers_rows, "samplers.py": sampler_rows}
    rows = []
    for script, words in parts.items():
        found = figures(script)
        rows += list(words(found)) if found else [(script, "not measured", "")]
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n")
    print(TARGET.read_text())
    sys.exit(1 if any(row[1] == "not measured" for row in rows) else 0)


if __name__ == "__main__":
    main()
