"""One participant's part in the alignment of a study, and what it keeps so that later studies need not align again.

The alignment runs in the study's session, before any budget is spent. There is one file for each set of participants
and settings, in ``alignments/`` beside the party's ledger. For each matched row it holds a hash of the key, so that it
also fits a table in another order. The salt is in the file too, so somebody who has the file can test keys and learn
which of the party's people the others hold. Therefore other users of the machine cannot read it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.disk import reading
from colonnade.errors import StorageError
from colonnade.models import serialization
from colonnade.protocols import align
from colonnade.protocols.align import AlignedRows, AlignmentTask
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.randomness import new_key
from colonnade.study.party_config import PartyConfig
from colonnade.study.spec import Study
from colonnade.tables import Table
from colonnade.tables.keys import TableKeys

_VERSION = 1
_HASH = 16
Hashes = NDArray[np.uint8]
StoreNote = Callable[[str], None]


class AlignmentStore:
    """The alignment that one party keeps for the participants and settings of a study."""

    def __init__(self, folder: Path, study: Study, party: str) -> None:
        self.path = folder / f"{_agreement_digest(study, party)}.npz"

    def find(self, keys: TableKeys, note: StoreNote) -> AlignedRows | None:
        """An earlier alignment of exactly these keys, in any order, or ``None``; ``note`` is called with the reason.

        Its rows are positions among the keys as they stand now.
        """
        if not self.path.exists():
            return None
        try:
            stored = _read_arrays(self.path)
            salt = stored["salt"].tobytes()
            hashes = _hashes(keys, salt)
            if _people(hashes, salt) != stored["people"].tobytes():
                note("the keys have changed since they were aligned: aligning again")
                return None
            return _restore_alignment(stored, hashes)
        except Exception:  # a damaged file may raise anything; the parties only have to align again
            note("alignment store damaged: aligning again")
            return None

    def keep(self, keys: TableKeys, aligned: AlignedRows) -> None:
        """Write a new alignment in place of an earlier one, as a whole or not at all."""
        salt = new_key()
        hashes = _hashes(keys, salt)
        arrays: dict[str, NDArray[Any]] = {
            "version": np.array([_VERSION], dtype=np.int64),
            "size": np.array([aligned.size], dtype=np.int64),
            "salt": _bytes(salt),
            "token": _bytes(aligned.token),
            "people": _bytes(_people(hashes, salt)),
            "rows": hashes[aligned.rows],
        }
        if aligned.index is not None:
            arrays["index"] = aligned.index
        if aligned.slots is not None:
            arrays["slots"] = aligned.slots
        _write_arrays(self.path, arrays | {"seal": _bytes(_seal(arrays))})


def _agreement_digest(study: Study, party: str) -> str:
    """A digest that is the same for all studies with the same participants, pins and ``[align]``."""
    aligning = None if study.aligning is None else study.aligning.agreement
    everyone = {name: study.content.pins.get(name) for name in study.participants}
    text = json.dumps([aligning, everyone, party], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _hashes(keys: TableKeys, salt: bytes) -> Hashes:
    """A hash of each key under the salt, in the order of the keys."""
    found = b"".join(hashlib.blake2b(value, digest_size=_HASH, key=salt).digest() for value in keys.values)
    return np.frombuffer(found, dtype=np.uint8).reshape(-1, _HASH)


def _words(hashes: Hashes) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    words = np.ascontiguousarray(hashes).view("<u8").reshape(-1, 2)
    return words[:, 0], words[:, 1]


def _people(hashes: Hashes, salt: bytes) -> bytes:
    """One digest of a set of keys, in any order."""
    first, second = _words(hashes)
    return hashlib.blake2b(hashes[np.lexsort((second, first))].tobytes(), digest_size=32, key=salt).digest()


def _positions(wanted: Hashes, hashes: Hashes) -> NDArray[np.int64]:
    """Where each wanted hash is among the hashes of today's keys."""
    there, sought = _words(hashes)[0], _words(wanted)[0]
    order = np.argsort(there, kind="stable")
    found = order[np.searchsorted(there[order], sought)]
    if not np.array_equal(hashes[found], wanted):
        raise ValueError("a row of the alignment is not among the keys [VA179]")
    return found.astype(np.int64)


def _restore_alignment(stored: Mapping[str, NDArray[Any]], hashes: Hashes) -> AlignedRows:
    rows, size = _positions(stored["rows"], hashes), int(stored["size"][0])
    return AlignedRows(stored["token"].tobytes(), size, rows, stored.get("index"), stored.get("slots"), reused=True)


def _bytes(value: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(value, dtype=np.uint8)


def _seal(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """A digest of everything that the file holds, with names, types and shapes."""
    state = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        head = f"{name} {array.dtype.str} {array.shape} {array.nbytes}\n"
        state.update(head.encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.digest()


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    arrays = serialization.unpack_arrays(reading.read_bytes(path, reading.MAX_LEARNED_BYTES))
    if _seal({name: array for name, array in arrays.items() if name != "seal"}) != arrays["seal"].tobytes():
        raise ValueError("the file does not hold what was written [VA180]")
    if arrays["version"].tolist() != [_VERSION]:
        raise ValueError("the file is of another version [VA181]")
    return arrays


def _write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror} [SO037]") from None
    serialization.replace_private(path, serialization.packed(arrays))


class RunNotes(Protocol):
    """Where an alignment is written down: the record of a run, or the log of a session that stays."""

    def record_public(self, what: str, **details: Any) -> None:
        """One thing that happened."""

    def add(self, **facts: Any) -> None:
        """What came of it."""


class OwnerAlignment:
    """An owner's part: it uses an earlier alignment that it kept, or runs a new one.

    Where members are hidden it keeps none and always runs a new one.
    """

    def __init__(self, study: Study, config: PartyConfig, table: Table, record: RunNotes) -> None:
        self._task, self._table, self._record = study.aligning, table, record
        self._run = bytes.fromhex(study.digest)
        self._rows: NDArray[np.int64] | None = None
        self._count = partial(config.note_alignment, study)
        self._store: AlignmentStore | None = None
        self._kept: AlignedRows | None = None
        if self._task is not None and table.keys is not None:
            self._task.check_length(len(table.keys))
        if study.content.align is not None and study.content.align.used_again and table.keys is not None:
            self._store = AlignmentStore(config.alignments, study, config.name)
            self._kept = self._store.find(table.keys, record.record_public)

    def owner(self, me: Owner) -> Table:
        """The rows of the people that all parties hold; without ``[align]`` the table as it is."""
        task, keys = self._task, self._table.keys
        if task is None or keys is None:
            return self._table
        start = time.monotonic()
        with me.meter.phase("align"):
            aligned = align.owner(me, keys, task, self._kept, self._run, count=self._count)
        self._rows = aligned.rows
        if not aligned.reused:
            self._keep(aligned)
        matched = None if task.hidden else aligned.size
        left_out = {"missing": keys.missing, "repeated": keys.repeated}
        left_out |= {"unlabelled": keys.unlabelled} if keys.unlabelled else {}
        record_alignment(self._record, task, aligned.reused, start, matched, {"rows": self._table.rows, **left_out})
        return aligned.table(self._table)

    @property
    def people(self) -> list[bytes]:
        """The normalised keys of the people that all hold, in their common order; without ``[align]``, their ids."""
        if self._rows is None or self._table.keys is None:
            return [name.encode() for name in self._table.sorted_by_id().ids]
        values = self._table.keys.values
        return [values[row] for row in self._rows.tolist()]

    def _keep(self, aligned: AlignedRows) -> None:
        """Store the alignment; if that fails, the study goes on, and a later study aligns again."""
        if self._store is None or self._table.keys is None:
            return
        try:
            self._store.keep(self._table.keys, aligned)
        except StorageError as error:
            self._record.record_public("the alignment cannot be kept", reason=str(error))


def align_as_coordinator(me: Coordinator, study: Study, record: RunNotes) -> None:
    """The coordinator's part of the alignment, where the study has one.

    After a hidden alignment the number of matches, which it alone knows, is not recorded: owners may see the record.
    """
    if study.aligning is None:
        return
    start = time.monotonic()
    with me.meter.phase("align"):
        matched = align.coordinator(me, study.aligning)
    count = None if study.aligning.hidden else matched.count
    record_alignment(record, study.aligning, matched.reused, start, count, {"rows": matched.sizes})


def record_alignment(
    record: RunNotes, task: AlignmentTask, reused: bool, start: float, matched: int | None, counts: Mapping[str, Any]
) -> None:
    """Record an alignment in ``run.json`` and ``events.jsonl``: its settings and counts, nothing else."""
    seconds = round(time.monotonic() - start, 3)
    found = {"matched": matched, **counts, "reused": reused, "seconds": seconds}
    settings: dict[str, Any] = {"mode": task.mode, "hidden": task.hidden, "on": [key.name for key in task.keys]}
    settings |= {} if task.pad_to is None else {"pad_to": task.pad_to}
    settings |= {} if task.partitions == 1 else {"partitions": task.partitions}
    record.record_public("alignment used again" if reused else "aligned", **found)
    record.add(alignment=settings | found)
