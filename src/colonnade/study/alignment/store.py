"""What a party keeps of an alignment, so that later studies of the same participants need not run it again.

There is one file for each set of participants and settings, in ``alignments/`` beside the party's ledger. For each
matched row it holds a hash of the key, so that it also fits a table in another order. The salt is in the file too, so
somebody who has the file can test keys and learn which of the party's people the others hold. Therefore other users of
the machine cannot read it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.disk import reading
from colonnade.errors import StorageError
from colonnade.models import files
from colonnade.protocols.align import Aligned
from colonnade.randomness import new_key
from colonnade.study.spec import Study
from colonnade.tables.keys import Keys

_VERSION = 1
_HASH = 16
Hashes = NDArray[np.uint8]
Note = Callable[[str], None]


class Store:
    """The alignment that one party keeps for the participants and settings of a study."""

    def __init__(self, folder: Path, study: Study, party: str) -> None:
        self.path = folder / f"{_agreed(study, party)}.npz"

    def find(self, keys: Keys, note: Note) -> Aligned | None:
        """An earlier alignment of exactly these keys, in any order, or ``None``; ``note`` is called with the reason.

        Its rows are positions among the keys as they stand now.
        """
        if not self.path.exists():
            return None
        try:
            stored = _read(self.path)
            salt = stored["salt"].tobytes()
            hashes = _hashes(keys, salt)
            if _people(hashes, salt) != stored["people"].tobytes():
                note("the keys have changed since they were aligned: aligning again")
                return None
            return _aligned(stored, hashes)
        except Exception:  # a damaged file may raise anything; the parties only have to align again
            note("alignment store damaged: aligning again")
            return None

    def keep(self, keys: Keys, aligned: Aligned) -> None:
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
        _write(self.path, arrays | {"seal": _bytes(_seal(arrays))})


def _agreed(study: Study, party: str) -> str:
    """A digest that is the same for all studies with the same participants, pins and ``[align]``."""
    aligning = None if study.aligning is None else study.aligning.agreement
    everyone = {name: study.content.pins.get(name) for name in study.participants}
    text = json.dumps([aligning, everyone, party], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _hashes(keys: Keys, salt: bytes) -> Hashes:
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


def _aligned(stored: Mapping[str, NDArray[Any]], hashes: Hashes) -> Aligned:
    rows, size = _positions(stored["rows"], hashes), int(stored["size"][0])
    return Aligned(stored["token"].tobytes(), size, rows, stored.get("index"), stored.get("slots"), reused=True)


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


def _read(path: Path) -> dict[str, NDArray[Any]]:
    arrays = files.unpack_arrays(reading.read_bytes(path, reading.LEARNED))
    if _seal({name: array for name, array in arrays.items() if name != "seal"}) != arrays["seal"].tobytes():
        raise ValueError("the file does not hold what was written [VA180]")
    if arrays["version"].tolist() != [_VERSION]:
        raise ValueError("the file is of another version [VA181]")
    return arrays


def _write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror} [SO037]") from None
    files.replace_private(path, files.packed(arrays))
