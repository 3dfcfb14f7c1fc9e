"""Seconds until `colonnade privacy` has priced 5,000 rounds: a cold process, best of three.

The example's budget is for the parties, who know the coins, and the analyst; with one for the analyst alone
the noise is searched for with privacy loss distributions, which is the most there is to compute.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "iterative-sketch"
RUNS = 3
ALLOWED = 2.0
BUDGETS = {
    "the analyst and the parties": "{ analyst = 1.0, party = 10.0 }",
    "the analyst alone": "{ analyst = 1.0 }",
}


def seconds(study: Path) -> tuple[float, float]:
    """Wall clock and processor time of one cold process."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.perf_counter()
    command = [sys.executable, "-m", "colonnade", "privacy", str(study), "--json"]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def main() -> None:
    print("| budget for | seconds | processor seconds | allowed |")
    print("|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(shutil.copytree(EXAMPLE, Path(scratch) / "study"))
        text = (EXAMPLE / "STUDY.toml").read_text(encoding="utf-8")
        shown = BUDGETS["the analyst and the parties"]
        assert shown in text
        for name, budget in BUDGETS.items():
            (folder / "STUDY.toml").write_text(text.replace(shown, budget), encoding="utf-8")
            wall, used = min(seconds(folder / "STUDY.toml") for _ in range(RUNS))
            print(f"| {name} | {wall:.2f} | {used:.2f} | {ALLOWED:.0f} |")


if __name__ == "__main__":
    main()
