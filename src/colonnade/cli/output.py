"""How commands speak: tables and bars for a person, JSON for a program, one sentence for a failure."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from colonnade.errors import ColonnadeError, Interrupted, StudyError
from colonnade.protocols.roles import Progress as Report

console = Console(highlight=False, soft_wrap=True)
INTERNAL_ERROR = 70

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


class _State:
    """Whether this process speaks JSON."""

    json = False


def speak_json(enabled: bool) -> bool:
    """Remember how a failure of this command is to be reported."""
    _State.json = enabled
    return enabled


def say(text: str) -> None:
    """Print text for a person, unless a program is listening."""
    if not _State.json:
        console.print(text, markup=False)


def emit(value: Any) -> None:
    """Print one JSON object on one line, at once."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def complain(error: BaseException) -> int:
    """Report a failure in one sentence and return the exit code."""
    if isinstance(error, ColonnadeError):
        message, code = str(error), error.exit_code
    elif isinstance(error, Interrupted):
        message, code = "interrupted", error.exit_code
    elif isinstance(error, OSError) and error.filename is not None:
        message, code = f"{error.filename} cannot be used: {error.strerror}", StudyError.exit_code
    else:
        message = f"this is a fault of Colonnade ({type(error).__name__}); set COLONNADE_DEBUG=1 to see where"
        code = INTERNAL_ERROR
    if os.environ.get("COLONNADE_DEBUG") and not isinstance(error, Interrupted):
        traceback.print_exception(error)
    if _State.json:
        emit({"error": type(error).__name__, "message": message, "exit_code": code})
    else:
        sys.stderr.write(f"colonnade: {message}\n")
    return code


@contextmanager
def progress_bar(enabled: bool) -> Iterator[Report]:
    """A bar a phase, with steps done and time left."""
    if not enabled:
        yield lambda phase, done, total: None
        return
    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def report(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=total)
            bars.update(tasks[phase], completed=done, total=total)

        yield report


def piped(phase: str, done: int, total: int) -> None:
    """Progress as JSON lines, for a parent process."""
    emit({"progress": phase, "done": done, "total": total})
