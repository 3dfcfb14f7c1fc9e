"""What a child process says while it runs: JSON lines in ``output.jsonl`` beside the record of its run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUTPUT = "output.jsonl"
_MOST = 1 << 18
"""Bytes at the end of the file that are read: the last line of each kind counts."""


@dataclass(frozen=True)
class Progress:
    """How far an attempt has come."""

    phase: str
    done: int
    total: int
    rounds: int
    bytes: int
    here: list[str]
    """Participants that are connected."""
    waited_for: list[str]
    """Participants that are not."""


def progress_of(folder: Path) -> Progress | None:
    """The last that a child said about its progress; ``None`` if it has said nothing yet."""
    at: dict[str, Any] = {"phase": "", "done": 0, "total": 0}
    present: dict[str, Any] = {"rounds": 0, "bytes": 0, "here": [], "waited_for": []}
    said = False
    for line in said_lately(folder):
        if isinstance(line.get("progress"), str):
            at, said = {"phase": line["progress"], "done": line.get("done", 0), "total": line.get("total", 0)}, True
        elif isinstance(line.get("presence"), dict):
            present, said = present | {name: line["presence"].get(name, present[name]) for name in present}, True
    return Progress(**at, **present) if said else None


def said_lately(folder: Path, most: int = _MOST) -> Iterator[dict[str, Any]]:
    """The last objects in the output of a child; other lines are its log, and are left out."""
    try:
        with open(folder / OUTPUT, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            lines = file.read().split(b"\n")
    except OSError:
        return
    for line in lines[1:] if size > most else lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
