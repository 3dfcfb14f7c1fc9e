"""Measures the constants of this machine, by the very programs that a study runs, on rows that are made up.

Everything is processor time, so that other programs of the machine do not blur it, except the time of a round trip.
"""

from __future__ import annotations

import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from colonnade.privacy import Trust
from colonnade.privacy.additive import CLOSEST, law_named
from colonnade.protocols import align
from colonnade.protocols.align import Aligning
from colonnade.protocols.lanes.partitions import Partitions
from colonnade.protocols.moments import programs
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR, Progress, silent
from colonnade.protocols.rows import Block
from colonnade.protocols.session import Played, play
from colonnade.protocols.task import Playable
from colonnade.randomness import KEY_BYTES, Stream
from colonnade.study.scale.carrying import Carried, carry
from colonnade.study.scale.constants import BUILT_IN, Constants, Measured
from colonnade.tables import Schema, number, read_table
from colonnade.tables.arrow import pa
from colonnade.tables.keys import Key
from colonnade.tables.spool import gather
from colonnade.versions import own_version
from colonnade.wire import Room

_PHASE = "measure"
_COLUMNS = _NARROW, _WIDE = 4, 36
_OWNERS = ("a", "b", "c")
_WIDTH = 32
_CLIP = 3**-0.5
_PARTITIONS = 2  # as long as can be: the time to open one is of partitions, not of rows
_LEAST = 1e-12  # a difference of two measurements that comes out as nothing


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    table: int
    joint: int
    ids: int
    draws: int
    messages: int
    rounds: int
    repeats: int


FULL = Sizes(table=50_000, joint=98_304, ids=100_000, draws=1 << 20, messages=96, rounds=200, repeats=2)
QUICK = Sizes(table=8_000, joint=24_576, ids=8_000, draws=1 << 17, messages=24, rounds=60, repeats=1)


def measure(sizes: Sizes = FULL, progress: Progress = silent) -> Measured:
    """The constants of this machine."""
    found: dict[str, float] = {}
    steps: list[Callable[[], Mapping[str, float]]] = [
        partial(_reading, sizes, "csv"),
        partial(_reading, sizes, "parquet"),
        partial(_splitting, sizes),
        partial(_computing, sizes),
        partial(_aligning, sizes),
        partial(_drawing, sizes),
        partial(_carrying, sizes),
    ]
    with threadpool_limits(1):  # as every process of a study has it
        for done, step in enumerate(steps):
            progress(_PHASE, done, len(steps))
            found |= step()
        progress(_PHASE, len(steps), len(steps))
    count = os.cpu_count() or 1
    return Measured(
        Constants(**found),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        processors=count,
        machine=f"{platform.machine() or 'unknown'}, {count} processor{'s' if count > 1 else ''}",
        colonnade=own_version(),
        quick=sizes == QUICK,
    )


def _least(repeats: int, work: Callable[[], object]) -> float:
    """Processor seconds, the least of some times."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


def _line(narrow: float, wide: float, rows: int) -> tuple[float, float]:
    """Seconds a row and a cell, from tables of few and of many columns."""
    cell = max((wide - narrow) / (rows * (_WIDE - _NARROW)), _LEAST)
    return max(narrow / rows - _NARROW * cell, _LEAST), cell


# --- tables


def _made(rows: int, columns: int) -> Any:
    values = np.random.default_rng(columns).uniform(0, 1, (columns, rows)).round(4)
    ids = pa.array([f"person-{i:09d}" for i in range(rows)])
    return pa.table({"id": ids} | {f"c{i}": pa.array(column) for i, column in enumerate(values)})


def _reading(sizes: Sizes, kind: str) -> Mapping[str, float]:
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        taken = [
            _least(sizes.repeats + 1, partial(_read, *_written(sizes, kind, columns, folder))) for columns in _COLUMNS
        ]
    row, cell = _line(taken[0], taken[1], sizes.table)
    return {f"{kind}_row": row, f"{kind}_cell": cell}


def _splitting(sizes: Sizes) -> Mapping[str, float]:
    """What it takes more to read a table, copy it, split it and read its partitions than to read it as a whole."""
    taken = []
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        for columns in _COLUMNS:
            path, schema = _written(sizes, "parquet", columns, folder)
            parted = _least(sizes.repeats + 1, partial(_read_in_parts, path, schema, folder))
            taken.append(parted - _least(sizes.repeats + 1, partial(_read, path, schema)))
    row, cell = _line(taken[0], taken[1], sizes.table)
    return {"split_row": row, "split_cell": cell}


def _written(sizes: Sizes, kind: str, columns: int, folder: str) -> tuple[Path, Schema]:
    import pyarrow.csv
    import pyarrow.parquet

    path, table = Path(folder) / f"{columns}.{kind}", _made(sizes.table, columns)
    if kind == "csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    return path, Schema({f"c{i}": number(0, 1) for i in range(columns)})


def _read(path: Path, schema: Schema) -> None:
    found = read_table(path, schema, id=None, keys=_aligning_of(_OWNERS[:2]).plan)
    found.check()
    for _ in found.blocks(1 << 13):
        pass


def _read_in_parts(path: Path, schema: Schema, folder: str) -> None:
    gathered = gather(path, schema, _aligning_of(_OWNERS[:2]).plan, folder, id=None)
    try:
        spool = gathered.split(Partitions(_PARTITIONS, bytes(KEY_BYTES)).of, _PARTITIONS)
        for place in range(_PARTITIONS):
            for _ in spool.partition(place).blocks(1 << 13):
                pass
    finally:
        gathered.remove()


# --- sharing and multiplying


@dataclass(frozen=True)
class _Rows:
    """Rows in memory."""

    ids: list[str]
    values: NDArray[np.float64]
    places: None = None

    def blocks(self, rows: int) -> Iterator[NDArray[np.float64]]:
        return (self.values[start : start + rows] for start in range(0, len(self.values), rows))


def _computing(sizes: Sizes) -> Mapping[str, float]:
    """Second moments of three owners, in threads, each of which has its own clock."""
    rows = sizes.joint
    blocks = tuple(Block(owner, tuple(f"c{i}" for i in range(_WIDTH)), _CLIP) for owner in _OWNERS)
    trust = Trust(_OWNERS, _OWNERS, 1)
    task = Moments(blocks, trust, gamma=4096, constant=2048, rows_at_most=2**25, noise=4 * 10**15)
    draws = np.random.default_rng(0)
    ids = [f"person-{i:09d}" for i in range(rows)]
    tables = {}
    for owner in _OWNERS:
        values = draws.uniform(-1, 1, (rows, _WIDTH))
        tables[owner] = _Rows(ids, values * (_CLIP * 0.99 / np.sqrt(_WIDTH)))
    whole: dict[str, float] = {}

    def program(me: Any) -> Any:
        if me.name == COORDINATOR:
            return programs.coordinator(me, task)
        start = time.thread_time()
        found = programs.owner(me, tables[me.name], task)
        whole[me.name] = time.thread_time() - start
        return found

    least: dict[str, float] = {}
    for _ in range(sizes.repeats):
        played = _in_threads(task, program)
        names = ("noise", "encode", "deal", "own block", "receive", "multiply", "open")
        phases = {name: sum(played[owner].phases[name].cpu for owner in _OWNERS) / len(_OWNERS) for name in names}
        phases["agree"] = sum(whole.values()) / len(_OWNERS) - sum(phases.values())
        least = {name: min(taken, least.get(name, taken)) for name, taken in phases.items()}
    primes, own = len(task.committee.system.primes), rows * _WIDTH
    others = len(_OWNERS) - 1
    counts = {
        "round_cell": ("encode", own),
        "deal_cell": ("deal", primes * own),
        "take_cell": ("receive", primes * own * others),
        "pair": ("multiply", primes * task.products(rows)),
        "own_pair": ("own block", own * _WIDTH),
        "agree_row": ("agree", rows),
    }
    return {name: max(least[phase] / count, _LEAST) for name, (phase, count) in counts.items()}


def _in_threads(task: Playable, program: Callable[[Any], Any], *, aligns: bool = False) -> dict[str, Played[Any]]:
    room, played = Room((*task.trust.owners, COORDINATOR)), dict[str, Played[Any]]()

    def take_part(name: str) -> None:
        played[name] = play(room.place(name), task, program, aligns=aligns)

    threads = [threading.Thread(target=take_part, args=(name,)) for name in room.names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return played


def _drawing(sizes: Sizes) -> Mapping[str, float]:
    stream = Stream.fresh()
    variance, draw = Fraction(1 << 40), law_named(CLOSEST).sample
    draw(variance, 1, stream)  # tables that are made once
    taken = _least(3, lambda: draw(variance, sizes.draws, stream))
    return {"draw": max(taken / sizes.draws, _LEAST)}


# --- alignment


def _aligning_of(owners: tuple[str, ...]) -> Aligning:
    return Aligning(Trust(owners, (*owners, COORDINATOR), 1), (Key("id"),), mode="ot")


def _aligning(sizes: Sizes) -> Mapping[str, float]:
    owners = _OWNERS[:2]
    task = _aligning_of(owners)
    few, many = 100, sizes.ids
    _alignment_of(task, few)()  # imports, and tables that are made once
    taken = [_least(sizes.repeats, _alignment_of(task, count)) for count in (few, many)]
    each = max((taken[1] - taken[0]) / ((many - few) * len(owners)), _LEAST)
    return {"align_id": each, "align_start": max(taken[0] / len(owners) - few * each, _LEAST)}


def _alignment_of(task: Aligning, count: int) -> Callable[[], object]:
    schema = Schema({"c0": number(0, 1)})
    tables = {name: read_table(_made(count, 1), schema, id=None, keys=task.plan) for name in task.owners}

    def program(me: Any) -> Any:
        if me.name == COORDINATOR:
            return align.coordinator(me, task)
        keys = tables[me.name].keys
        if keys is None:
            raise ValueError("a table that was read with keys has them [VA218]")
        return align.owner(me, keys, task).table(tables[me.name])

    return lambda: _in_threads(task, program, aligns=True)


def _carrying(sizes: Sizes) -> Mapping[str, float]:
    found: Carried = carry(sizes.messages, sizes.rounds)
    return {
        "send_byte": max(found.end_byte, _LEAST),
        "receive_byte": max(found.end_byte, _LEAST),
        "hub_byte": max(found.hub_byte, _LEAST),
        "session": max(found.session, _LEAST),
        "round_trip": max(found.round_trip, _LEAST),
        "linked_byte": max(found.linked_byte, _LEAST),
        "linked_trip": max(found.linked_trip, _LEAST),
        "interpreter": float(found.interpreter or BUILT_IN.constants.interpreter),
    }
