"""``colonnade export``: a model for people who do not have this library."""

from __future__ import annotations

from pathlib import Path

from colonnade.cli.output import emit, say
from colonnade.errors import StorageError, StudyError
from colonnade.models import files
from colonnade.models.base import Estimator
from colonnade.study.record import as_text

FORMATS = ("onnx", "json")


def export(path: Path, to: str, out: Path, *, force: bool, json: bool) -> None:
    """Write the file and say what it takes and gives."""
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
