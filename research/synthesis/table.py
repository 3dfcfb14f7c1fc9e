"""Lines of the comparison in CSV files: every synthetic table that was measured, ours and peers'."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import astuple, fields
from pathlib import Path

from colonnade.errors import StudyError
from research.synthesis.scores import Score


def add(path: Path, scores: Iterable[Score]) -> Path:
    """Write lines at the end of a file; a new file begins with the names of the columns."""
    fresh = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        if fresh:
            writer.writerow([field.name for field in fields(Score)])
        for score in scores:
            writer.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in astuple(score)])
    return path


def read(path: Path) -> list[Score]:
    """All lines of a file."""
    kinds = {"epsilon": float, "seed": int, "accuracy": float, "auc": float, "two_way": float}
    try:
        with path.open(newline="", encoding="utf-8") as opened:
            return [
                Score(**{field.name: kinds.get(field.name, str)(line[field.name]) for field in fields(Score)})
                for line in csv.DictReader(opened)
            ]
    except OSError as error:
        raise StudyError(f"{path} cannot be read: {error.strerror} [ST617]") from None
    except (KeyError, TypeError, ValueError):
        raise StudyError(
            f"{path} is no table of scores: its columns are {', '.join(f.name for f in fields(Score))} [ST618]"
        ) from None
