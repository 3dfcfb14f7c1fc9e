"""The output of commands: text and progress bars for a person, JSON for a program, one sentence for an error."""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.errors import AlignmentError, ColonnadeError, Interrupted, StorageError, StudyError, code_of
from colonnade.sanitize import sanitize, sanitize_lines

if TYPE_CHECKING:
    from colonnade.protocols.roles import Progress as Report

INTERNAL_ERROR = 70
_LONGEST_SENTENCE = 2000
_LONGEST_LINE = 4000
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE, errno.EROFS)
"""Errors of a machine that cannot write; they are neither a user's mistake nor a fault of Colonnade."""


class _State:
    """Whether this process prints JSON, and which commands show a party its own keys."""

    json = False
    keys: tuple[str, ...] = ()


def speak_json(enabled: bool) -> bool:
    """Remember whether this command prints JSON; also its errors are printed so."""
    _State.json, _State.keys = enabled, ()
    return enabled


StudyPath = Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.", callback=speak_json)]


def remember_files(study: Path, *configs: Path | str) -> None:
    """Remember the files of this command, so that hints can name them."""
    _State.keys = tuple(shlex.join(["colonnade", "keys", str(study), str(config)]) for config in configs)


def say(text: str) -> None:
    """Print text for a person, unless this process prints JSON."""
    if not _State.json:
        from colonnade.cli.terminal import console

        with _standard_output():
            console.print(sanitize_lines(text, _LONGEST_LINE), markup=False)


def write_verbatim(text: str) -> None:
    """Print text exactly as it is."""
    with _standard_output():
        sys.stdout.write(text)
        sys.stdout.flush()


def emit(value: Any) -> None:
    """Print one JSON object on one line, at once."""
    write_verbatim(json.dumps(value) + "\n")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say of whatever fails here that a file cannot be written; an error of a full disk does not know which."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{error.filename or path} cannot be written: {error.strerror} [SO009]") from None


@contextmanager
def _standard_output() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _give_up_standard_output()
        raise StorageError(f"standard output cannot be written: {error.strerror} [SO010]") from None


def _give_up_standard_output() -> None:
    """Discard what is still in the buffer; otherwise the interpreter raises an error when it ends."""
    _State.json = False
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):  # in a test the stream may have no file descriptor
        os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def report_error(error: BaseException) -> int:
    """Report a failure in one sentence and return the exit code."""
    if isinstance(error, ColonnadeError):
        message, code = sanitize(error, _LONGEST_SENTENCE), error.exit_code
    elif isinstance(error, Interrupted):
        message, code = "interrupted [CO003]", error.exit_code
    elif isinstance(error, OSError) and (error.errno in _NO_ROOM or error.filename is not None):
        message = sanitize(f"{error.filename or 'a file'} cannot be used: {error.strerror} [SO011]")
        code = StorageError.exit_code if error.errno in _NO_ROOM else StudyError.exit_code
    else:
        message = f"this is a fault of Colonnade ({type(error).__name__}); set COLONNADE_DEBUG=1 to see where [CO004]"
        code = INTERNAL_ERROR
    if os.environ.get("COLONNADE_DEBUG") and not isinstance(error, Interrupted):
        sys.stderr.write(sanitize_lines("".join(traceback.format_exception(error)), _LONGEST_SENTENCE))
    if _State.json:
        try:
            told = {"error": type(error).__name__, "code": code_of(message), "message": message, "exit_code": code}
            emit(told | _advice_facts(error))
            return code
        except StorageError:
            pass
    with suppress(OSError):  # nobody can read it; there is still the exit code
        lines = [f"colonnade: {message}", *map(sanitize, _advice(error))]
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        sys.stderr.flush()
    return code


def _advice(error: BaseException) -> list[str]:
    """Hints for a party whose people do not match: its own keys, on its own screen only, not in a log."""
    if not isinstance(error, AlignmentError):
        return []
    shown = error.examples if sys.stderr.isatty() else ()
    own = ["some of our own keys, as they were compared:", *(f"  {example}" for example in shown)] if shown else []
    look = ["to see a party's own keys, as they are compared:", *(f"  {command}" for command in _State.keys)]
    return own + (look if _State.keys else [])


def _advice_facts(error: BaseException) -> dict[str, Any]:
    """The same hints for JSON: the commands, and how many keys a screen would show."""
    if not isinstance(error, AlignmentError):
        return {}
    return ({"examples": len(error.examples)} if error.examples else {}) | {"try": list(_State.keys)}


@contextmanager
def progress_bar(enabled: bool) -> Iterator[Report]:
    """A progress bar for each phase, with the steps done, their rate and the time left."""
    if not enabled:
        yield lambda phase, done, total: None
        return
    from rich.console import Console

    from colonnade.cli.terminal import bars_on

    bars = bars_on(Console(stderr=True))
    tasks: dict[str, Any] = {}

    def report(phase: str, done: int, total: int) -> None:
        if not tasks:
            bars.start()  # not earlier: the user may be asked a question first
        if phase not in tasks:
            tasks[phase] = bars.add_task(phase, total=total)
        bars.update(tasks[phase], completed=done, total=total)

    try:
        yield report
    finally:
        if tasks:
            bars.stop()


def emit_progress(phase: str, done: int, total: int) -> None:
    """Progress as JSON lines, for a parent process."""
    emit({"time": _now(), "progress": phase, "done": done, "total": total})


def emit_presence(said: dict[str, Any]) -> None:
    """Who is here and what was sent so far, as a JSON line for a parent process."""
    emit({"time": _now(), "presence": said})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
