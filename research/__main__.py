"""``python -m research``: the papers' tables and figures again, their data sets, and attacks on our own checks."""

from __future__ import annotations

import os
import sys

# Before numpy is imported: one BLAS thread, since primes, blocks and processes run side by side.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import report_error, say
from research.cheats.command import cheats
from research.datasets import FETCHED, fetch_dataset
from research.reproduce.command import reproduce
from research.story import story, story_files
from research.synthesis import command as synthesis
from research.twins.command import twins

app = typer.Typer(
    name="python -m research",
    help="The papers' tables and figures again, their data sets, and attacks on our own checks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(reproduce)
for _part in (synthesis.synthesise, synthesis.real, synthesis.coded, synthesis.peers):
    app.command()(_part)
app.command()(story)
app.command()(cheats)
app.command()(twins)
app.command("story-files")(story_files)


@app.command()
def fetch(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Data sets.  [default: all]")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="The folder of the data sets.  [default: COLONNADE_DATA]")
    ] = None,
) -> None:
    """Download data sets, check them, and convert them to the files that are read here."""
    for name in names or FETCHED:
        say(f"{name}: {fetch_dataset(name, data)}")


def main() -> None:
    """The command; a failure that was foreseen is one sentence and an exit code."""
    try:
        app()
    except Exception as error:
        sys.exit(report_error(error))


if __name__ == "__main__":
    main()
