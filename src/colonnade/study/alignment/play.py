"""One participant's part in the alignment of a study: in the study's session, before any budget is spent."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from colonnade.errors import ProtocolError, StorageError
from colonnade.protocols import align
from colonnade.protocols.align import Aligned, Aligning
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.study.alignment.store import Store
from colonnade.study.policy import PartyConfig
from colonnade.study.spec import Study
from colonnade.tables import Table


class Notes(Protocol):
    """Where an alignment is written down: the record of a run, or the log of a session that stays."""

    def note(self, what: str, **details: Any) -> None:
        """One thing that happened."""

    def add(self, **facts: Any) -> None:
        """What came of it."""


class Matching:
    """An owner's part: it uses an earlier alignment that it kept, or runs a new one.

    Where members are hidden it keeps none and always runs a new one.
    """

    def __init__(self, study: Study, config: PartyConfig, table: Table, record: Notes) -> None:
        self._task, self._table, self._record = study.aligning, table, record
        self._run = bytes.fromhex(study.digest)
        self._store: Store | None = None
        self._kept: Aligned | None = None
        if self._task is not None and table.keys is not None:
            self._task.check_length(len(table.keys))
        if study.content.align is not None and study.content.align.used_again and table.keys is not None:
            self._store = Store(config.alignments, study, config.name)
            self._kept = self._store.find(table.keys, record.note)

    def owner(self, me: Owner) -> Table:
        """The rows of the people that all parties hold; without ``[align]`` the table as it is."""
        task, keys = self._task, self._table.keys
        if task is None or keys is None:
            return self._table
        start = time.monotonic()
        with me.meter.phase("align"):
            played = align.owner(me, keys, task, b"" if self._kept is None else self._kept.token, self._run)
        aligned = self._kept if played.reused else played
        if aligned is None:
            raise ProtocolError("the coordinator named an earlier alignment that this party does not hold [MS050]")
        if not aligned.reused:
            self._keep(aligned)
        matched = None if task.hidden else aligned.size
        left_out = {"missing": keys.missing, "repeated": keys.repeated}
        write_down(self._record, task, aligned.reused, start, matched, {"rows": self._table.rows, **left_out})
        return aligned.table(self._table)

    def _keep(self, aligned: Aligned) -> None:
        """Store the alignment; if that fails, the study goes on, and a later study aligns again."""
        if self._store is None or self._table.keys is None:
            return
        try:
            self._store.keep(self._table.keys, aligned)
        except StorageError as error:
            self._record.note("the alignment cannot be kept", reason=str(error))


def align_as_coordinator(me: Coordinator, study: Study, record: Notes) -> None:
    """The coordinator's part of the alignment, where the study has one.

    After a hidden alignment the number of matches, which it alone knows, is not recorded: owners may see the record.
    """
    if study.aligning is None:
        return
    start = time.monotonic()
    with me.meter.phase("align"):
        matched = align.coordinator(me, study.aligning)
    count = None if study.aligning.hidden else matched.count
    write_down(record, study.aligning, matched.reused, start, count, {"rows": matched.sizes})


def write_down(
    record: Notes, task: Aligning, reused: bool, start: float, matched: int | None, counts: Mapping[str, Any]
) -> None:
    """Record an alignment in ``run.json`` and ``events.jsonl``: its settings and counts, nothing else."""
    seconds = round(time.monotonic() - start, 3)
    found = {"matched": matched, **counts, "reused": reused, "seconds": seconds}
    settings: dict[str, Any] = {"mode": task.mode, "hidden": task.hidden, "on": [key.name for key in task.keys]}
    settings |= {} if task.pad_to is None else {"pad_to": task.pad_to}
    settings |= {} if task.partitions == 1 else {"partitions": task.partitions}
    record.note("alignment used again" if reused else "aligned", **found)
    record.add(alignment=settings | found)
