"""All speed benchmarks, one after the other; each page of figures goes to results/PAGE.md.

`python benchmarks/run.py regression` runs only those of one page.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import importlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness import RESULTS, Benchmark, write_page

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Part:
    """One benchmark of a script."""

    script: str
    name: str = ""

    @property
    def command(self) -> list[str]:
        """How it is called."""
        return [f"{self.script}.py", self.name] if self.name else [f"{self.script}.py"]

    def body(self) -> str:
        """The figures in markdown, measured in a process of its own; nothing if that fails."""
        print(f"{' '.join(self.command)} ...", flush=True)
        script, *name = self.command
        done = subprocess.run([sys.executable, HERE / script, *name, "--json"], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            print(f"{script} failed with exit status {done.returncode}")
            return ""
        benchmark: Benchmark = importlib.import_module(self.script).BENCHMARKS[self.name]
        return benchmark.body(json.loads(done.stdout))

    def write(self) -> bool:
        """Let the script write its own page; whether it could."""
        script, *name = self.command
        return not subprocess.run([sys.executable, HERE / script, *name, "--write"]).returncode


JOINT = {
    "speed": (
        "Speed",
        "Ratios are of figures measured in one run.",
        (Part("gram"), Part("network", "throughput"), Part("privacy", "samplers")),
    ),
    "regression": (
        "Speed of private regression",
        "K parties and the coordinator are processes on this machine, over TLS through the hub. A whole fit lasts from "
        "the moment all programs are loaded until everybody holds the model; what is in it is said in [the list of "
        "benchmarks](../README.md). Epsilon 1 for the analyst.",
        (Part("models", "regression"), Part("rounds")),
    ),
}
"""Pages with the figures of several scripts."""
OWN = {
    "alignment": Part("alignment"),
    "exchange": Part("models", "exchange"),
    "ledger": Part("privacy", "ledger"),
    "arithmetic": Part("arithmetic", "peers"),
}
"""Pages that a script writes by itself."""
NAMES = (*JOINT, *OWN)


def page(name: str) -> bool:
    """Measure and write one page of results; whether all of it could be measured."""
    if name in OWN:
        return OWN[name].write()
    title, about, parts = JOINT[name]
    bodies = [part.body() or f"{' '.join(part.command)}: not measured" for part in parts]
    write_page(name, title, about, f"python benchmarks/run.py {name}", bodies)
    print((RESULTS / f"{name}.md").read_text(encoding="utf-8"))
    return not any(body.endswith("not measured") for body in bodies)


def main() -> None:
    """Write the pages that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"{' or '.join(NAMES)}; all unless given")
    wanted = parser.parse_args().pages or list(NAMES)
    if unknown := [name for name in wanted if name not in NAMES]:
        parser.error(f"there is no page {unknown[0]!r}; there are {', '.join(NAMES)}")
    complete = [page(name) for name in wanted]
    sys.exit(0 if all(complete) else 1)


if __name__ == "__main__":
    main()
