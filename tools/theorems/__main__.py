"""``python -m tools.theorems``: say what is missing; with ``--write``, write the tables into the page of theory."""

from __future__ import annotations

import argparse
import sys

from .checks import missing
from .figures import TABLES
from .page import write, written


def main() -> int:
    """Check all links, and write if there is nothing missing."""
    reader = argparse.ArgumentParser(prog="python -m tools.theorems", description=__doc__)
    reader.add_argument("--write", action="store_true", help="write the tables into docs/theory/README.md")
    wanted = reader.parse_args()
    said = missing(TABLES)
    sys.stderr.writelines(f"{line}\n" for line in said)
    if not said and wanted.write:
        write(TABLES)
    elif not said and not written(TABLES):
        said = ["docs/theory/README.md is not as the code: python -m tools.theorems --write"]
        sys.stderr.write(f"{said[0]}\n")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
