"""What a study gives its participants to do, counted from its public task and alignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from colonnade.errors import StudyError
from colonnade.privacy import Trust
from colonnade.protocols.align import Aligning
from colonnade.protocols.cost import BASE_MEMORY, WORD, Load, checking
from colonnade.protocols.lanes.lane import why_not
from colonnade.protocols.lanes.partitions import check_count, filled_length
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import Task
from colonnade.study.scale.model import Part, TableFormat, Work
from colonnade.study.spec import Study
from colonnade.tables.keys import Key

ROUNDS_OF_ALIGNMENT = 12
"""Of the leader of three owners in mode ot; the other modes have fewer."""
ROUNDS_OF_A_LANE = 3
"""To say that a worker is there, to meet, and to settle that the lane counts."""
_REFERENCE = 10**6
_ANY_CORES = 1 << 40  # so many that group operations take no time, which tells them from the rest


def work_of_study(study: Study, rows: int, partitions: int | None = None, table: TableFormat = "parquet") -> Work:
    """The work of a study whose parties have lists of ``rows`` rows; ``partitions``: other than its own."""
    study.runnable()
    columns = {name: len(schema.names) for name, schema in study.schemas.items()}
    return work_of_task(study.task, study.aligning, study.participants, columns, rows, partitions, table)


def work_of_task(
    task: Task,
    aligning: Aligning | None,
    participants: Sequence[str],
    columns: dict[str, int],
    rows: int,
    partitions: int | None = None,
    table: TableFormat = "parquet",
) -> Work:
    """The work of a task; where nothing is aligned, all tables have the same rows."""
    count = partitions or (1 if aligning is None else aligning.partitions)
    check_count(count)
    if count > 1 and (why := why_not_parted(task, aligning)) is not None:
        raise StudyError(why)
    people = rows if aligning is None or aligning.pad_to is None else aligning.pad_to
    listed = filled_length(people, count)
    joint = rows
    if aligning is not None and aligning.hidden:  # nobody knows who matched: as many rows as all lists together
        joint = len(task.owners) * count * listed
    of_a_lane = task.loads(participants, max(1, joint // count))
    loads = {load.participant: load for load in of_a_lane}
    parts = tuple(
        _part(task, aligning, name, columns.get(name, 0), rows, joint, listed, loads[name]) for name in participants
    )
    aligned = 0 if aligning is None else ROUNDS_OF_ALIGNMENT
    if count == 1:
        return Work(parts, 1, listed, task.waits + aligned, table=table)
    return Work(parts, count, listed, task.waits + aligned + ROUNDS_OF_A_LANE, task.message_rounds, table)


def why_not_parted(task: Task, aligning: Aligning | None) -> str | None:
    """Why a study cannot be done in partitions, in a sentence; ``None``: it can."""
    if aligning is None:
        return "only a study that aligns people can be done in partitions: add [align] [ST589]"
    if (why := why_not(task)) is not None:
        return f"this study cannot be done in lanes: it {why} [ST590]"
    if (why := aligning.why_not_partitions) is not None:
        return f"this alignment cannot be done in partitions: {why} [ST591]"
    return None


def _part(
    task: Task, aligning: Aligning | None, name: str, columns: int, rows: int, joint: int, listed: int, load: Load
) -> Part:
    owner = name in task.owners
    starts, ids, align_sent = _aligned(aligning, name, listed)
    given = Part(
        name=name,
        rows=rows if owner else 0,
        columns=columns if owner else 0,
        align_starts=starts,
        align_ids=ids,
        align_sent=align_sent,
        agreed=joint if owner else 0,
    )
    if not task.committee.seats:  # its participants tell each other numbers: it says itself how long that takes
        return replace(given, sent=load.bytes_sent, held=max(0, load.memory - BASE_MEMORY), other=load.seconds)
    cells, primes, seats = task.cells(name, joint), len(task.committee.system.primes), task.trust.committee
    seated, checks = name in seats, checking(task.trust)
    explicit = len(seats) - task.trust.threshold - seated
    dealt = cells.dealt - task.cells(name, 0).dealt
    return replace(
        given,
        rounded=dealt if owner else 0,
        dealt=primes * cells.dealt,
        taken=primes * max(0, cells.held - cells.dealt) if seated else 0,
        products=primes * task.products(joint) if seated else 0,
        own_products=joint * columns**2 if owner else 0,
        drawn=task.cells(name, 0).dealt if owner else 0,
        sent=int(checks.sent * WORD * primes * (cells.dealt * explicit + cells.opened)),
        held=max(0, load.memory - BASE_MEMORY),
        checks=checks.work,
    )


def _aligned(aligning: Aligning | None, name: str, listed: int) -> tuple[float, float, int]:
    """One lane's alignment in units of what is measured, and the bytes that are sent in it.

    What is measured as the beginning of an alignment in mode ot is group operations, and mode dh has them for each id.
    """
    if aligning is None or (name == COORDINATOR and aligning.leader_joins and not aligning.hidden):
        return 0.0, 0.0, 0
    plain = replace(aligning, pad_to=None)
    (seconds, sent), (keys, _) = plain.load(name, listed, 1), plain.load(name, listed, _ANY_CORES)
    reference_start, reference_id = _reference()
    return (seconds - keys) / reference_start, keys / reference_id, sent


@cache
def _reference() -> tuple[float, float]:
    """What one of two parties takes in mode ot by the same figures, which is what is measured: to begin, and an id."""
    owners = ("a", "b")
    task = Aligning(Trust(owners, (*owners, COORDINATOR), 1), (Key("id"),), mode="ot")
    start = sum(task.load(name, 0, 1)[0] for name in owners) / len(owners)
    whole = sum(task.load(name, _REFERENCE, 1)[0] for name in owners) / len(owners)
    return start, (whole - start) / _REFERENCE
