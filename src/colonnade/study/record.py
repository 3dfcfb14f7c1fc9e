"""The run directory: files about what happened in a run.

``run.json`` (who, when, how long, how many rounds and bytes, how it ended), ``privacy.json`` (the statement),
``events.jsonl`` (a line for each thing that happened), the model, what it publishes for readers (named in
``run.json``), and ``report.html``. Sizes and times tell the number of rows, so a reader of the coordinator's directory
learns as much as the coordinator, more than the analyst. A party's directory is for that party alone; what it keeps is
in ``kept.json`` or ``kept.npz``. Only the user who runs it can read these files, also where the directory was there
before, except the statement, and a model that is for everybody with what it publishes.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from colonnade.disk import reading
from colonnade.errors import StorageError, StudyError
from colonnade.models import serialization
from colonnade.privacy import Statement
from colonnade.sanitize import sanitize
from colonnade.versions import installed_versions

KEPT_FILES = ("kept.json", "kept.npz")
"""What a party keeps for itself, by the kind of model."""
_LONGEST = 2000
FILES = ("run.json", "privacy.json", "events.jsonl", "model.json", "model.npz", *KEPT_FILES, "report.html")


class RunRecord:
    """One participant's record of one run."""

    def __init__(self, folder: str | Path, *, participant: str, study: str, digest: str) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._put_earlier_away()
        except OSError as error:
            raise StorageError(f"the run directory {self.folder} cannot be written: {error.strerror} [SO038]") from None
        self._paid = False
        self.lost: str | None = None
        self._started = time.monotonic()
        self._facts: dict[str, Any] = {
            "participant": participant,
            "study": study,
            "digest": digest,
            "started": _now(),
            "status": "running",
            "platform": f"Python {platform.python_version()} on {platform.machine()}",
            "processors": os.cpu_count(),
            "versions": installed_versions(),
        }
        self._write()

    def _put_earlier_away(self) -> None:
        """Move the files of an earlier run to ``earlier/``: its result is not lost, because its budget is spent."""
        names = dict.fromkeys((*self._published_before(), *FILES))
        there = [self.folder / name for name in names if (self.folder / name).exists()]
        if not there:
            return
        shelf = self.folder / "earlier"
        place = next(shelf / str(n) for n in count(1) if not (shelf / str(n)).exists())
        place.mkdir(mode=0o700, parents=True)
        for path in there:
            path.rename(place / path.name)

    def _published_before(self) -> list[str]:
        """The files that an earlier run wrote for readers, by its record; none where that cannot be read."""
        try:
            named = read_facts(self.folder).get("published", [])
        except StudyError:
            return []
        return [name for name in named if Path(name).name == name] if _are_names(named) else []

    def record_public(self, what: str, **details: Any) -> None:
        """Append one line to ``events.jsonl``; it is on disk when this returns."""
        line = {"time": _now(), "what": what, **_harmless(details)}
        path = self.folder / "events.jsonl"
        with self._writing(path.name), open(path, "a", encoding="utf-8", opener=_private) as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def mark_paid(self) -> None:
        """From now on a line that cannot be written raises no error: ``lost`` says why it is missing."""
        self._paid = True

    def statement(self, statement: Statement, attempts: int = 1) -> None:
        """Write ``privacy.json``: what this attempt costs, and after earlier ones what all of them cost together."""
        together = {"attempts": statement.of_attempts(attempts)} if attempts > 1 else {}
        self._dump("privacy.json", statement.to_dict() | together, private=False)

    def finish(self, **facts: Any) -> None:
        """Record that the run succeeded."""
        self._end("finished", facts)

    def fail(self, error: str, message: str, exit_code: int) -> None:
        """Record that the run failed, with the sentence that the user saw; raises no error of its own."""
        self.mark_paid()
        message = sanitize(message, _LONGEST)
        self.record_public("failed", error=error, message=message, exit_code=exit_code)
        self._end("failed", {"error": error, "message": message, "exit_code": exit_code})

    def add(self, **facts: Any) -> None:
        """Add facts to ``run.json``."""
        self._facts |= facts
        self._write()

    @property
    def facts(self) -> Mapping[str, Any]:
        """What ``run.json`` holds."""
        return self._facts

    def _end(self, status: str, facts: Mapping[str, Any]) -> None:
        seconds = round(time.monotonic() - self._started, 3)
        used = round(time.process_time(), 3)  # of all threads, from the start of the process
        self._facts |= {"status": status, "ended": _now(), "seconds": seconds, "processor_seconds": used, **facts}
        self._write()

    def _write(self) -> None:
        self._dump("run.json", self._facts)

    def _dump(self, name: str, content: Any, *, private: bool = True) -> None:
        with self._writing(name):
            write_facts(self.folder / name, content, private=private)

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.lost = f"{self.folder / name} cannot be written: {error.strerror} [SO039]"
            if not self._paid:
                raise StorageError(self.lost) from None


def _harmless(value: Any) -> Any:
    """The same value; texts in it may come from another participant, or from a file that another wrote."""
    if isinstance(value, Mapping):
        return {sanitize(key): _harmless(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_harmless(item) for item in value]
    return sanitize(value, _LONGEST) if isinstance(value, str) else value


def write_facts(path: Path, content: Any, *, private: bool = True) -> None:
    """Write a file of a run directory as JSON; raises an OSError."""
    serialization.replace_file(path, as_text(content), private=private)


def as_text(content: Any) -> bytes:
    """Facts as JSON that a person can read."""
    return (json.dumps(content, indent=1) + "\n").encode()


def read_facts(folder: Path) -> dict[str, Any]:
    """The content of a participant's ``run.json``."""
    path = folder / "run.json"
    try:
        content = reading.read_json(path)
    except reading.MalformedFile as error:
        raise StudyError(f"{path} is damaged: {error} [ST577]") from None
    except reading.UnreadableFile as error:
        raise StudyError(f"{path} cannot be read: {error} [ST578]") from None
    keys = ("phases", "traffic", "links", "alignment")
    inside = [content.get(key, {}) for key in keys] if isinstance(content, dict) else [0]
    of_each = [each for key in inside[:3] if isinstance(key, dict) for each in key.values()]
    if not all(isinstance(each, dict) for each in (*inside, *of_each)) or not _are_names(content.get("lost", [])):
        raise StudyError(f"{path} is damaged: it is no record of a run [ST579]")
    return dict(content)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
