"""What an agent keeps of proposals: no member can fill a party's disk, however often it proposes and takes back.

The row of a proposal stays for ever. Its files go some days after it has ended without a result, or sooner where its
analyst has proposed much. Folders with a result are never touched: they are the party's own, and were paid for.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from colonnade.errors import FederationError
from colonnade.standing.office import Entry, Office
from colonnade.standing.proposal import Proposal
from colonnade.standing.signed import written

MOST_OPEN = 100
"""Proposals of one analyst that have not ended."""
MOST_A_DAY = 1000
"""Proposals of one analyst that are taken in within 24 hours."""
MOST_BYTES = 1 << 28
"""Of the files of one analyst's proposals, those without a result."""
MOST_ENDED = 100
"""Proposals of one analyst that have ended without a result and keep their files."""
_RESULTS = ("attempts/*/model.json", "result/model.json")


def prune(office: Office, keep: timedelta) -> int:
    """Delete the files of what ended without a result: long ago, or too many of one analyst; returns of how many."""
    before = written(datetime.now(UTC) - keep)
    seen: dict[str, int] = {}
    gone = 0
    for entry in office.unfinished():  # the newest first
        if not entry.over or not entry.folder.exists() or _has_result(entry):
            continue
        seen[entry.analyst] = seen.get(entry.analyst, 0) + 1
        if (entry.ended or entry.deadline) <= before or seen[entry.analyst] > MOST_ENDED:
            _forget(office, entry)
            gone += 1
    return gone


def make_room(office: Office, proposal: Proposal) -> None:
    """Delete the oldest files of this analyst's until a new proposal has room; an error if it has not even then."""
    still_open, lately = office.proposed_by(proposal.analyst, written(datetime.now(UTC) - timedelta(days=1)))
    if still_open >= MOST_OPEN or lately >= MOST_A_DAY:
        raise FederationError(
            f"{proposal.analyst} has proposed more than is kept here at a time: {MOST_OPEN} studies that have not "
            f"ended, and {MOST_A_DAY} a day [FE086]"
        )
    _make_bytes_free(office, [entry for entry in office.unfinished() if entry.analyst == proposal.analyst], proposal)


def _make_bytes_free(office: Office, known: Sequence[Entry], proposal: Proposal) -> None:
    sizes = {entry.id: _size(entry.folder) for entry in known if entry.folder.exists() and not _has_result(entry)}
    held = sum(sizes.values()) + sum(map(len, proposal.files.values()))
    for entry in reversed(known):
        if held > MOST_BYTES and entry.over and entry.id in sizes:
            _forget(office, entry)
            held -= sizes[entry.id]
    if held > MOST_BYTES:
        raise FederationError(
            f"the proposals of {proposal.analyst} that have not ended leave no room for this one [FE087]"
        )


def _forget(office: Office, entry: Entry) -> None:
    shutil.rmtree(entry.folder, ignore_errors=True)
    office.forget_assessment(entry.id)


def _has_result(entry: Entry) -> bool:
    return any(any(entry.folder.glob(pattern)) for pattern in _RESULTS)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
