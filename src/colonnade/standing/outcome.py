"""How an attempt ended, from what its process left in its folder."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from colonnade.errors import ConnectError, Interrupted, PeerLost, PeerStopped, StudyError
from colonnade.standing.output import said_lately
from colonnade.standing.proposal import MOST_FILES, Ended
from colonnade.standing.signed import MemberName, Sha256, fits
from colonnade.study.given import digest_of
from colonnade.study.record import read_facts

_LOST = frozenset(error.exit_code for error in (ConnectError, PeerLost, PeerStopped, Interrupted))
_TOO_LONG = {-signal.SIGXCPU}


def outcome_of(folder: Path, status: int | None) -> tuple[Ended, str | None]:
    """How it ended, and a sentence for this participant alone; ``status`` is ``None`` where nobody saw it end.

    It has finished once it holds the result, whatever happened afterwards: there must be no second one. It was lost
    where a peer, the hub or the process itself was lost, or a peer stopped, so that trying again may help; else it
    stopped for a reason of its own, which would be the same the next time.
    """
    if (folder / "model.json").exists():
        return "finished", _message(folder)
    code, message = _code(folder), _message(folder)
    if status in _TOO_LONG:
        return "stopped", "it took more processor time than a study may have here [CO046]"
    if code is None:
        return "lost", message or "the process ended without a word [CO047]"
    return ("lost" if code in _LOST else "stopped"), message


def result_of(folder: Path) -> str | None:
    """The hash of a result that is for everybody, as the process noted it once the result was on disk.

    There is none of a result for one party alone: whoever guesses what it says could try the guess against the hash.
    """
    try:
        found = read_facts(folder).get("result")
    except StudyError:
        return None
    return found if fits(Sha256, found) else None


def files_of(folder: Path) -> dict[str, str]:
    """The hashes of the files beside a result that is for everybody: the statement, and what was published."""
    try:
        names = ["privacy.json", *map(str, read_facts(folder).get("published", ()))][:MOST_FILES]
        return {name: digest_of(folder / name) for name in names if fits(MemberName, name) and (folder / name).exists()}
    except StudyError:
        return {}


def _said(folder: Path) -> dict[str, Any]:
    """The record of the run where it says how it ended; else the last error that the process printed."""
    try:
        facts = read_facts(folder)
    except StudyError:
        facts = {}
    if facts.get("status") == "failed":
        return facts
    errors = [line for line in said_lately(folder) if "error" in line and "exit_code" in line]
    return errors[-1] if errors else {}


def _code(folder: Path) -> int | None:
    code = _said(folder).get("exit_code")
    return code if isinstance(code, int) else None


def _message(folder: Path) -> str | None:
    message = _said(folder).get("message")
    return message if isinstance(message, str) else None
