"""How long it takes to begin: importing the package, its help, its first model, beside importing numpy; and studies.

Every figure is the median processor time of cold processes, so that a machine that is shared does not blur it. That of
a study is of all its processes together: the command, whatever it forks or starts, every participant.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

RUNS = 9
RUNS_OF_STUDIES = 3
NUMPY = "import numpy"
PROGRAMS = {
    NUMPY: ["-c", NUMPY],
    "python alone": ["-c", ""],
    "import colonnade": ["-c", "import colonnade"],
    "colonnade --help": ["-m", "colonnade", "--help"],
    "from colonnade import PCA": ["-c", "from colonnade import PCA"],
    "from colonnade import Study": ["-c", "from colonnade import Study"],
}
EXAMPLE = Path(__file__).parents[1] / "examples" / "three-organisations"


def seconds(arguments: list[str], folder: Path | None = None) -> float:
    """Processor time of one cold process and of those that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as they are where it is installed
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def study() -> float:
    """`colonnade run` of the example, by parties that have aligned their people before."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / EXAMPLE.name
        shutil.copytree(EXAMPLE, folder)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        for path in (folder / "STUDY.toml", *folder.glob("*/party.toml")):
            text = path.read_text(encoding="utf-8").replace("127.0.0.1:7443", f"127.0.0.1:{port}")
            path.write_text(text.replace("= 3.0", "= 30.0"), encoding="utf-8")  # caps for several runs
        seconds(["-m", "colonnade", "init", "trial", "STUDY.toml"], folder)
        command = ["-m", "colonnade", "run", "STUDY.toml", "--again", "--json"]
        seconds(command, folder)
        return median(seconds(command, folder) for _ in range(RUNS_OF_STUDIES))


def demo(rows: int) -> float:
    """`colonnade demo` with so many people, which are aligned anew."""
    with tempfile.TemporaryDirectory() as place:
        command = ["-m", "colonnade", "demo", "--rows", str(rows), "--out", "demo", "--json"]
        return seconds(command, Path(place))


def main() -> None:
    found = {name: median(seconds(arguments) for _ in range(RUNS)) for name, arguments in PROGRAMS.items()}
    found["colonnade run STUDY.toml"] = study()
    found["colonnade demo --rows 1000"] = demo(1000)
    print("| program | seconds | times `import numpy` |")
    print("|---|---:|---:|")
    for name, taken in found.items():
        print(f"| `{name}` | {taken:.2f} | {taken / found[NUMPY]:.2f} |")


if __name__ == "__main__":
    main()
