"""The command line."""

from __future__ import annotations

import os
import sys

_STANDING = ("hub", "agent")
"""Commands that stay for months and leave arithmetic to their children."""


def main() -> None:
    """The ``colonnade`` command."""
    # Before numpy is imported: one BLAS thread, since primes, blocks and processes run side by side.
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    from colonnade.cli.app import command_line
    from colonnade.cli.lean import few_arenas, keep_memory

    if sys.argv[1:] and sys.argv[1] in _STANDING:
        few_arenas()
    else:
        keep_memory()
    command_line()
