"""One line of a reproduced table or figure, and how lines become CSV and Markdown."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from colonnade.errors import StudyError

PUBLISHED = "printed in the paper"
AS_PUBLISHED = "as published, not proven"
PROVEN = "proven"
CURATOR = "needs a trusted curator"
LOCAL = "rows published with noise"
NONE = "no privacy"
ALONE = "nothing leaves the party"


@dataclass(frozen=True)
class Row:
    """One number: where it belongs (part, data, setting, place on the axis), whose it is, and what it rests on."""

    part: str
    data: str
    setting: str
    axis: str
    at: float
    method: str
    promise: str
    measure: str
    mean: float
    deviation: float
    runs: int

    @property
    def group(self) -> tuple[str, str, str, str]:
        """What stands in one table and one chart."""
        return self.part, self.data, self.setting, self.measure

    @property
    def text(self) -> str:
        """The mean, and the deviation where it would be seen beside it."""
        seen = self.deviation > 1e-4 * abs(self.mean)
        return f"{self.mean:.4g} ± {self.deviation:.1g}" if seen else f"{self.mean:.4g}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Group:
    """Where rows belong; calling it makes one."""

    part: str
    data: str
    setting: str
    axis: str
    measure: str

    def row(self, at: float, method: str, promise: str, draws: ArrayLike) -> Row:
        """Mean and deviation of some draws."""
        found = np.atleast_1d(np.asarray(draws, dtype=np.float64))
        deviation = float(found.std(ddof=1)) if len(found) > 1 else 0.0
        mean = float(found.mean())
        return self.known(at, method, promise, mean, deviation, len(found))

    def known(self, at: float, method: str, promise: str, mean: float, deviation: float = 0.0, runs: int = 1) -> Row:
        """A number that is known, such as a published one."""
        place = (self.part, self.data, self.setting, self.axis)
        return Row(*place, at, method, promise, self.measure, mean, deviation, runs)


def groups(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows that belong into one table, in the order in which the tables first appear."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(row.group, []).append(row)
    return list(found.values())


def write_csv(path: Path, rows: Sequence[Row]) -> Path:
    """All rows, one a line, numbers to six digits."""
    with path.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow([field.name for field in fields(Row)])
        for row in rows:
            writer.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in astuple(row)])
    return path


def read_csv(path: Path) -> list[Row]:
    """Rows that :func:`write_csv` (or a peer's script) wrote."""
    try:
        with path.open(newline="", encoding="utf-8") as opened:
            return [_row(cells) for cells in csv.DictReader(opened)]
    except OSError as error:
        raise StudyError(f"{path} cannot be read: {error.strerror} [ST613]") from None
    except (KeyError, TypeError, ValueError):
        raise StudyError(f"{path} is no table of results: its columns are those of Row [ST614]") from None


def _row(cells: dict[str, str]) -> Row:
    kinds = {"at": float, "mean": float, "deviation": float, "runs": int}
    return Row(**{field.name: kinds.get(field.name, str)(cells[field.name]) for field in fields(Row)})


def markdown(rows: Sequence[Row]) -> str:
    """A heading and a small table for each group: a line a method, a column a place on the axis.

    Where not everything was measured equally often, a column says how often: once, or place by place.
    """
    counted = len({row.runs for row in rows if row.runs > 1}) > 1  # what is known was measured once, or never
    return "\n".join(_table(found, counted) for found in groups(rows))


def _table(rows: Sequence[Row], counted: bool) -> str:
    first = rows[0]
    places = sorted({row.at for row in rows})
    runs = {(row.method, row.promise, row.at): row.runs for row in rows if row.promise != PUBLISHED}
    cells = {(row.method, row.promise, row.at): row.text for row in rows}
    title = ", ".join(text for text in (first.part, first.data, first.setting) if text)
    lines = [f"### {title}: {first.measure}", ""]
    heads = [first.axis, "promise", *(["runs"] if counted else []), *(f"{place:g}" for place in places)]
    lines += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for method, promise in dict.fromkeys((row.method, row.promise) for row in rows):
        shown = [cells.get((method, promise, place), "") for place in places]
        if counted:
            often = [str(runs[method, promise, place]) for place in places if (method, promise, place) in runs]
            shown.insert(0, often[0] if len(set(often)) == 1 else ", ".join(often))
        lines.append(f"| {method} | {promise} | {' | '.join(shown)} |")
    return "\n".join([*lines, ""])
