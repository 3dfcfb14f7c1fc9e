"""How long it takes to begin: importing the package, its help, its first model, beside importing numpy.

Every figure is the median processor time of cold processes, so that a machine that is shared does not blur it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from statistics import median

RUNS = 9
NUMPY = "import numpy"
PROGRAMS = {
    NUMPY: ["-c", NUMPY],
    "python alone": ["-c", ""],
    "import colonnade": ["-c", "import colonnade"],
    "colonnade --help": ["-m", "colonnade", "--help"],
    "from colonnade import PCA": ["-c", "from colonnade import PCA"],
    "from colonnade import Study": ["-c", "from colonnade import Study"],
}


def seconds(arguments: list[str]) -> float:
    """Processor time of one cold process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    found = {name: median(seconds(arguments) for _ in range(RUNS)) for name, arguments in PROGRAMS.items()}
    print("| program | seconds | times `import numpy` |")
    print("|---|---:|---:|")
    for name, taken in found.items():
        print(f"| `{name}` | {taken:.2f} | {taken / found[NUMPY]:.2f} |")


if __name__ == "__main__":
    main()
