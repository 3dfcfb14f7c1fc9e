"""The command line."""

from __future__ import annotations

import os


def main() -> None:
    """The ``colonnade`` command."""
    # Before numpy is imported: one BLAS thread, since primes, blocks and processes run side by side.
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    from colonnade.cli.app import command_line
    from colonnade.cli.lean import keep_memory

    keep_memory()
    command_line()
