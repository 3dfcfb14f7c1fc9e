"""Run the notebooks of the documentation, each in a fresh kernel, and write their outputs into them.

``make notebooks`` does it for all in ``docs/notebooks``; paths say which ones. With ``--check`` nothing is written, and
a notebook whose outputs were made from other cells than it has is refused.

Noise comes from the operating system in users' hands. Here it follows from the name of the notebook, so that outputs in
the repository change only where something else has changed. What a notebook says must be true of any noise.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from PIL import Image
from traitlets.config import Config

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
MADE_FROM = "made_from"
"""Where the metadata of a notebook names the cells that its outputs were made from."""
SECONDS = 600
"""The longest for one cell. Cells take seconds: this ends one that hangs, on any machine."""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
START = """
def keys_by_name():
    import hashlib
    import threading
    from collections import Counter
    from types import SimpleNamespace

    from colonnade import randomness

    lock, drawn = threading.Lock(), Counter()

    def urandom(count):
        thread = threading.current_thread().name
        with lock:
            drawn[thread] += 1
            number = drawn[thread]
        return hashlib.shake_256(f"{name} {{thread}} {{number}}".encode()).digest(count)

    randomness.os = SimpleNamespace(urandom=urandom)


keys_by_name()
del keys_by_name
"""


def digest(notebook: nbformat.NotebookNode) -> str:
    """The cells without their outputs."""
    cells = [[cell.cell_type, cell.source] for cell in notebook.cells]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def run(path: Path) -> nbformat.NotebookNode:
    """A notebook with the outputs of a fresh kernel, started where the notebook lies."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as place:
        start = Path(place) / "ipython" / "profile_default" / "startup" / "00-start.py"
        start.parent.mkdir(parents=True)
        start.write_text(START.format(name=path.stem), encoding="utf-8")
        # Nothing that the user has set up for Jupyter takes part, and nothing is left there.
        places = {"IPYTHONDIR": "ipython", "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data"}
        places |= {"JUPYTER_RUNTIME_DIR": "runtime", "MPLCONFIGDIR": "matplotlib"}
        os.environ |= {name: str(Path(place) / folder) for name, folder in places.items()}
        client = NotebookClient(
            notebook,
            timeout=SECONDS,
            startup_timeout=SECONDS,
            record_timing=False,
            config=Config({"KernelManager": {"transport": "ipc", "ip": str(Path(place) / "kernel")}}),  # no open port
            resources={"metadata": {"path": str(path.resolve().parent)}},
        )
        client.execute()
    return tidied(notebook)


def tidied(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without what differs from machine to machine, and with a note of its cells."""
    notebook.metadata = nbformat.from_dict(METADATA | {MADE_FROM: digest(notebook)})
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"
        cell.metadata = nbformat.from_dict({})
        for shown in (output["data"] for output in cell.get("outputs", []) if "data" in output):
            if len(shown) > 1:  # beside a table or a picture nobody sees its text
                shown.pop("text/plain", None)
            if "image/png" in shown:
                shown["image/png"] = smaller(shown["image/png"])
    return notebook


def smaller(picture: str) -> str:
    """A picture with few colours and no notes about the program that made it: charts need no more."""
    drawn = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGBA")
    paper = Image.new("RGBA", drawn.size, "white")
    kept = io.BytesIO()
    Image.alpha_composite(paper, drawn).convert("RGB").quantize(64).save(kept, "PNG", optimize=True)
    return base64.b64encode(kept.getvalue()).decode()


def wrong(path: Path) -> str:
    """One sentence about outputs that do not belong to the cells; nothing if they do."""
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if notebook.metadata.get(MADE_FROM) != digest(notebook):
        return f"{path.name}: its cells were changed after its outputs were made; run `make notebooks`"
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        return f"{path.name}: its cells were not run once each from top to bottom; run `make notebooks`"
    if foreign := re.search(r"/(?:tmp|home|root|work|mnt|opt|Users)/", path.read_text(encoding="utf-8")):
        return f"{path.name}: an output names a place on the machine that it was made on ({foreign.group()})"
    return ""


def main() -> None:
    """Run what is asked for."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("paths", nargs="*", type=Path, help="notebooks; all of the documentation if none is named")
    asked.add_argument("--check", action="store_true", help="write nothing, and look whether outputs belong to cells")
    given = asked.parse_args()
    if missing := [str(path) for path in given.paths if not path.is_file()]:
        sys.exit(f"no such notebook: {', '.join(missing)}")
    failed = [said for path in given.paths or sorted(FOLDER.glob("*.ipynb")) if (said := _failure(path, given.check))]
    if failed:
        sys.exit("\n".join(failed))


def _failure(path: Path, check: bool) -> str:
    """Run a notebook, and say how many cells it has, or return why it failed."""
    if check and (said := wrong(path)):
        return said
    try:
        made = run(path)
    except (CellExecutionError, CellTimeoutError) as error:
        return f"{path.name}: {error}"
    if not check:
        nbformat.write(made, path)
    sys.stdout.write(f"{path.name}: {sum(cell.cell_type == 'code' for cell in made.cells)} cells ran\n")
    return ""


if __name__ == "__main__":
    main()
