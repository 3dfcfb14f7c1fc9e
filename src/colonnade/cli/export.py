"""``colonnade export``: a model for people who do not have this library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import Json, emit, say
from colonnade.errors import StorageError, StudyError
from colonnade.models import files
from colonnade.models.base import Estimator
from colonnade.study.record import as_text

FORMATS = ("onnx", "json")


def export(
    path: Annotated[Path, typer.Argument(metavar="MODEL.json", help="A fitted model with public weights.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="onnx (encoder inside) or json.")] = "onnx",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: Json = False,
) -> None:
    """Write a model for people who do not have Colonnade."""
    if to not in FORMATS:
        raise StudyError(
            f"--to is {' or '.join(FORMATS)}, not {to!r}; a scikit-learn pipeline is made in Python [ST032]"
        )
    if out.exists() and not force:
        raise StorageError(f"{out} is there already: add --force to replace it, or choose another --out [SO008]")
    model = Estimator.load(path)
    with files.about(out):
        if to == "onnx":
            model.to_onnx(out)
        else:
            files.replace_file(out, as_text(model.to_json()))
    if json:
        emit({"model": str(path), "format": to, "out": str(out)})
    else:
        encoder = "raw columns in, predictions out" if to == "onnx" else "weights, and how columns are encoded"
        say(f"{out}: {encoder}")
