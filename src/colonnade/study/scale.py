"""How long a study takes, how much it sends and needs: plain arithmetic on what there is to do and who does it.

The work is counted from the public task and alignment of a study. A study without lanes is one process for each
participant. In lanes, every owner's workers put its table into partitions; then they take lanes, all participants the
same one at the same time; then the heads add up, draw noise and open. A table of CSV is taken to be one file, which the
head reads alone. Everything passes through hubs, which share the lanes, or with direct links from one participant to
the other. All figures are estimates: nobody is lost, nobody waits for a slower machine, links reach everybody, and
workers have a core each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from colonnade.errors import StudyError
from colonnade.privacy import Trust
from colonnade.protocols.align import AlignmentTask
from colonnade.protocols.cost import BASE_MEMORY, WORD, ParticipantLoad, checking_cost
from colonnade.protocols.lanes.partitions import check_count, filled_length
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import Task
from colonnade.study.spec import Study
from colonnade.tables.keys import Key
from colonnade.tables.partitioning.partitions import run_bytes
from colonnade.tables.sources.file_sets import shard_bytes

TableFormat = Literal["csv", "parquet"]
Links = Literal["hub", "direct"]
PHASES = ("reading", "splitting", "alignment", "dealing", "multiplying", "noise", "wire")
SPOOLED_ROW = 40
"""Bytes on disk of a row in its partition, without its cells: key, its length, number in the table."""
SPOOLED_CELL = 8
SPOOLED_COPIES = 2
"""The rows in the order of the table, and in that of partitions, for as long as they are being split."""
SPLIT_BASE = 1 << 27
"""Bytes of memory of a head that reads or splits a small table itself, or one that comes in one stream."""
ALIGNED_ID = 500
"""Bytes of memory for each id of a list that is being aligned: by `ot` at three parties, in lanes, some 480."""
KEPT = 1 << 26
"""Bytes that a process keeps of memory that was freed (cli/lean)."""
MEETING = 4_000
"""Bytes that one participant sends another in a lane before they have a direct link, and to say goodbye."""
_MOST_CELLS_IN_MEMORY = 1 << 28  # as tables/reading keeps them


@dataclass(frozen=True)
class MachineConstants:
    """Seconds of one core, unless said otherwise; a number is a cell, or a number on shares modulo one prime.

    Those that stand here were measured on two cores of an aarch64 server.
    """

    csv_row: float = 5e-7
    """Reading and encoding a row of a CSV file, without its cells."""
    csv_cell: float = 6.2e-7
    parquet_row: float = 4.9e-7
    parquet_cell: float = 4.9e-8
    split_row: float = 7.0e-7
    """Copying a row, finding its partition by its key, putting it there and reading it back from there."""
    split_cell: float = 2.6e-8
    agree_row: float = 1.5e-7
    """Comparing what rows are about with the other owners."""
    align_start: float = 0.37
    """One alignment of any length: keys and base transfers; of one of two parties, mode ot."""
    align_id: float = 7.3e-6
    """The same for each id of the list."""
    round_cell: float = 9.0e-9
    """Encoded cells rounded at random to whole numbers."""
    deal_cell: float = 8.2e-9
    """One number dealt to the seats, a prime."""
    take_cell: float = 2.9e-9
    """One number of another owner received as a share, a prime."""
    pair: float = 2.0e-10
    """One product of two shares added up, a prime."""
    own_pair: float = 1.6e-10
    """One product of an owner's own columns, in the clear."""
    draw: float = 1.0e-8
    """One number of noise."""
    send_byte: float = 2.7e-9
    receive_byte: float = 2.7e-9
    hub_byte: float = 3.5e-9
    """One byte passed on by a hub."""
    session: float = 0.036
    """Joining a session: keys, certificates and handshakes with its peers."""
    round_trip: float = 2.3e-3
    """Seconds by the clock until a small message was answered, through a hub of the same machine."""
    linked_byte: float = 1.4e-9
    """One byte sent or received by a direct link."""
    linked_trip: float = 3.0e-4
    """As the round trip, by a direct link."""
    interpreter: float = 1.38e8
    """Bytes of memory of a worker that has nothing to do."""


BUILT_IN = MachineConstants()
SOURCE = "constants that were measured on another machine (aarch64, 2 processors)"
"""Where they come from, for whoever reads an estimate."""


@dataclass(frozen=True)
class WorkerFleet:
    """Who computes, and how they are connected."""

    workers: int = 1
    """Of each participant, the coordinator too."""
    hubs: int = 1
    bandwidth: float = 125e6
    """Bytes a second of each hub, and of each participant's line, in each direction."""
    round_trip: float | None = None
    """Seconds to a peer and back by the network, besides what programs take; ``None``: one machine's."""
    links: Links = "hub"
    """By which way packets go."""

    def __post_init__(self) -> None:
        if not (1 <= self.workers <= 1 << 20 and 1 <= self.hubs <= 1 << 20):
            raise StudyError("--workers and --hubs take whole numbers from 1 [ST586]")
        if not 0 < self.bandwidth < math.inf:
            raise StudyError("a bandwidth is a positive number of bits a second, such as 10Gbit [ST587]")
        if self.round_trip is not None and not 0 <= self.round_trip < 3600:
            raise StudyError("a round trip takes milliseconds, at least 0 [ST588]")


@dataclass(frozen=True)
class ParticipantWork:
    """What one participant has to do, for the whole study; numbers on shares are counted once for each prime."""

    name: str
    rows: int = 0
    """Rows of its table; 0 for the coordinator."""
    columns: int = 0
    align_starts: float = 0.0
    """Group operations of one lane's alignment, in those with which two parties begin one in mode ot."""
    align_ids: float = 0.0
    """The rest of one lane's alignment, in ids of such an alignment."""
    align_sent: int = 0
    """Bytes that it sends in one lane's alignment."""
    agreed: int = 0
    rounded: int = 0
    dealt: int = 0
    taken: int = 0
    products: int = 0
    own_products: int = 0
    drawn: int = 0
    sent: int = 0
    """Bytes, besides those of alignments."""
    held: int = 0
    """Bytes of memory for the block of rows that is being multiplied, and for sums."""
    checks: float = 1.0
    """How many times as long work on shares takes because it is checked."""
    other: float = 0.0
    """Seconds of work of other kinds."""


@dataclass(frozen=True)
class StudyWork:
    """What there is to do."""

    parts: tuple[ParticipantWork, ...]
    partitions: int
    listed: int
    """Ids of one list of one partition, as it is filled up."""
    lane_rounds: int
    """How often participants wait for each other in one lane."""
    last_rounds: int = 0
    """The same when all lanes are done."""
    table: TableFormat = "parquet"


@dataclass(frozen=True)
class PartyEstimate:
    """What one participant takes."""

    name: str
    seconds: float
    """By the clock, if the others never keep it waiting."""
    bytes_sent: int
    worker_memory: int
    head_memory: int
    """The same as a worker's where there are no lanes: then they are one process."""
    disk: int
    """The most at a time."""
    core_hours: float
    phases: Mapping[str, float]
    """Seconds of one core, of head and workers together."""


@dataclass(frozen=True)
class HubEstimate:
    """What one of the hubs takes."""

    bytes_passed: int
    seconds: float
    limited_by: Literal["bandwidth", "processor"]
    core_hours: float


@dataclass(frozen=True)
class RunTimeEstimate:
    """What the whole study takes."""

    seconds: float
    bottleneck: str
    """In words: what the time would be shortened by."""
    core_hours: float
    bytes_total: int
    partitions: int
    listed: int
    lanes_in_turn: int
    """How many lanes a worker takes, one after another."""
    parties: tuple[PartyEstimate, ...]
    hub: HubEstimate
    """Each of them."""


def estimate(work: StudyWork, fleet: WorkerFleet, constants: MachineConstants) -> RunTimeEstimate:
    """What the work takes by this fleet, of machines with these constants."""
    lanes_in_turn = -(-work.partitions // fleet.workers)
    share = lanes_in_turn / work.partitions  # of the lanes, for the busiest worker
    total = sum(_bytes_sent(part, work) for part in work.parts)
    phases = {part.name: _phases(part, work, fleet.links, constants) for part in work.parts}
    linked = fleet.links == "direct"
    trip = (constants.linked_trip if linked else constants.round_trip) + (fleet.round_trip or 0.0)
    waiting = trip * (work.lane_rounds * lanes_in_turn + work.last_rounds)

    before = {part.name: _seconds_before_lanes(part, work, fleet, phases[part.name]) for part in work.parts}
    busy = {
        name: share * math.fsum(spent for phase, spent in found.items() if phase not in _once(work))
        for name, found in phases.items()
    }
    lines = {
        part.name: max(float(_bytes_sent(part, work)), _bytes_received(part, work)) / fleet.bandwidth
        for part in work.parts
    }
    after = max(found["noise"] for found in phases.values())
    meetings = work.partitions * len(work.parts) * (len(work.parts) - 1)
    relayed = min(total, meetings * MEETING) if linked else total
    hub = _hub(relayed, fleet, constants)

    splitter, worker, line = (max(each, key=lambda name: each[name]) for each in (before, busy, lines))
    longest = max((name for name in PHASES if name not in _once(work)), key=lambda name: phases[worker][name])
    middle = {
        f"workers of {worker}, mostly {longest}": busy[worker] + waiting,
        f"{hub.limited_by} of the hubs": hub.seconds,
        f"the line of {line}": lines[line],
    }
    slowest = max(middle, key=lambda what: middle[what])
    if slowest.startswith("workers") and waiting > busy[worker]:
        middle = {"round trips": middle.pop(slowest), **middle}
        slowest = "round trips"
    seconds = before[splitter] + middle[slowest] + after
    reader = "the head of {}, which reads its file alone" if work.table == "csv" else "reading and splitting by {}"
    stages = {reader.format(splitter): before[splitter], slowest: middle[slowest]}
    bottleneck = max(stages, key=lambda what: stages[what])

    hubs_busy = constants.hub_byte * relayed
    processor = math.fsum(second for found in phases.values() for second in found.values()) + hubs_busy
    parties = tuple(
        PartyEstimate(
            name=part.name,
            seconds=before[part.name] + max(busy[part.name] + waiting, lines[part.name]) + phases[part.name]["noise"],
            bytes_sent=_bytes_sent(part, work),
            worker_memory=_memory(part, work, constants),
            head_memory=_head_memory(part, work, constants),
            disk=SPOOLED_COPIES * _copy(part) if work.partitions > 1 else 0,
            core_hours=math.fsum(phases[part.name].values()) / 3600,
            phases=phases[part.name],
        )
        for part in work.parts
    )
    return RunTimeEstimate(
        seconds=seconds,
        bottleneck=bottleneck,
        core_hours=processor / 3600,
        bytes_total=total,
        partitions=work.partitions,
        listed=work.listed,
        lanes_in_turn=lanes_in_turn,
        parties=parties,
        hub=hub,
    )


def _phases(part: ParticipantWork, work: StudyWork, links: Links, constants: MachineConstants) -> dict[str, float]:
    """Seconds of one core by phase."""
    row, cell = (
        (constants.csv_row, constants.csv_cell)
        if work.table == "csv"
        else (constants.parquet_row, constants.parquet_cell)
    )
    cells = part.rows * part.columns
    sent, received = _bytes_sent(part, work), _bytes_received(part, work)
    carried = sent * constants.send_byte + received * constants.receive_byte
    if links == "direct":
        carried = (sent + received) * constants.linked_byte
    splits = work.partitions > 1
    aligned = part.align_starts * constants.align_start + part.align_ids * constants.align_id
    return {
        "reading": part.rows * row + cells * cell,
        "splitting": part.rows * constants.split_row + cells * constants.split_cell if splits else 0.0,
        "alignment": work.partitions * aligned + part.agreed * constants.agree_row,
        "dealing": part.rounded * constants.round_cell + part.checks * part.dealt * constants.deal_cell,
        "multiplying": part.checks * (part.taken * constants.take_cell + part.products * constants.pair)
        + part.own_products * constants.own_pair
        + part.other,
        "noise": part.drawn * constants.draw,
        "wire": carried + work.partitions * constants.session,
    }


def _seconds_before_lanes(
    part: ParticipantWork, work: StudyWork, fleet: WorkerFleet, phases: Mapping[str, float]
) -> float:
    """Seconds by the clock before the first lane, until the table lies in partitions."""
    if work.partitions == 1 or not part.rows:
        return 0.0
    copy = _copy(part)
    # The busiest worker does its share of the bytes, and at least one piece of the table, or one run of partitions.
    reading, splitting = (
        max(1 / fleet.workers, min(1.0, least / copy)) for least in (shard_bytes(copy), run_bytes(copy))
    )
    return (1.0 if work.table == "csv" else reading) * phases["reading"] + splitting * phases["splitting"]


def _bytes_sent(part: ParticipantWork, work: StudyWork) -> int:
    return part.sent + work.partitions * part.align_sent


def _bytes_received(part: ParticipantWork, work: StudyWork) -> float:
    """Bytes that reach a participant: what others send goes to all who hold something, in equal parts."""
    takers = [each for each in work.parts if each.taken or each.align_ids]
    if part not in takers or len(takers) < 2:
        return 0.0
    return sum(_bytes_sent(each, work) / (len(takers) - (each in takers)) for each in work.parts if each is not part)


def _hub(relayed: int, fleet: WorkerFleet, constants: MachineConstants) -> HubEstimate:
    passed = -(-relayed // fleet.hubs)
    by_line, by_processor = passed / fleet.bandwidth, passed * constants.hub_byte
    limited: Literal["bandwidth", "processor"] = "bandwidth" if by_line >= by_processor else "processor"
    return HubEstimate(passed, max(by_line, by_processor), limited, by_processor / 3600)


def _copy(part: ParticipantWork) -> int:
    return part.rows * (SPOOLED_ROW + SPOOLED_CELL * part.columns)


def _head_memory(part: ParticipantWork, work: StudyWork, constants: MachineConstants) -> int:
    if work.partitions == 1:
        return _memory(part, work, constants)
    return int(constants.interpreter) + KEPT + (SPLIT_BASE if part.rows else 0)


def _memory(part: ParticipantWork, work: StudyWork, constants: MachineConstants) -> int:
    listed = work.listed if part.align_ids else 0
    cells = 8 * part.columns * min(part.rows, work.listed)
    base = int(constants.interpreter) + KEPT
    in_lane = ALIGNED_ID * listed + min(cells, _MOST_CELLS_IN_MEMORY) + part.held
    splitting = 2 * run_bytes(_copy(part)) if work.partitions > 1 and part.rows else 0
    return base + max(in_lane, splitting)


def _once(work: StudyWork) -> tuple[str, ...]:
    """Phases that are no part of lanes."""
    return ("reading", "splitting", "noise") if work.partitions > 1 else ("noise",)


ROUNDS_OF_ALIGNMENT = 12
"""Of the leader of three owners in mode ot; the other modes have fewer."""
ROUNDS_OF_A_LANE = 3
"""To say that a worker is there, to meet, and to settle that the lane counts."""
_REFERENCE = 10**6
_ANY_CORES = 1 << 40  # so many that group operations take no time, which tells them from the rest


def work_of_study(study: Study, rows: int, partitions: int | None = None, table: TableFormat = "parquet") -> StudyWork:
    """The work of a study whose parties have lists of ``rows`` rows; ``partitions``: other than its own."""
    study.runnable()
    columns = {name: len(schema.names) for name, schema in study.schemas.items()}
    return work_of_task(study.task, study.aligning, study.participants, columns, rows, partitions, table)


def work_of_task(
    task: Task,
    aligning: AlignmentTask | None,
    participants: Sequence[str],
    columns: dict[str, int],
    rows: int,
    partitions: int | None = None,
    table: TableFormat = "parquet",
) -> StudyWork:
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
        _participant_work(task, aligning, name, columns.get(name, 0), rows, joint, listed, loads[name])
        for name in participants
    )
    aligned = 0 if aligning is None else ROUNDS_OF_ALIGNMENT
    if count == 1:
        return StudyWork(parts, 1, listed, task.waits + aligned, table=table)
    return StudyWork(parts, count, listed, task.waits + aligned + ROUNDS_OF_A_LANE, task.message_rounds, table)


def why_not_parted(task: Task, aligning: AlignmentTask | None) -> str | None:
    """Why a study cannot be done in partitions, in a sentence; ``None``: it can."""
    if aligning is None:
        return "only a study that aligns people can be done in partitions: add [align] [ST589]"
    if (why := task.why_not_lanes) is not None:
        return f"this study cannot be done in lanes: it {why} [ST590]"
    if (why := aligning.why_not_partitions) is not None:
        return f"this alignment cannot be done in partitions: {why} [ST591]"
    return None


def _participant_work(
    task: Task,
    aligning: AlignmentTask | None,
    name: str,
    columns: int,
    rows: int,
    joint: int,
    listed: int,
    load: ParticipantLoad,
) -> ParticipantWork:
    owner = name in task.owners
    starts, ids, align_sent = _alignment_work(aligning, name, listed)
    given = ParticipantWork(
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
    seated, checks = name in seats, checking_cost(task.trust)
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


def _alignment_work(aligning: AlignmentTask | None, name: str, listed: int) -> tuple[float, float, int]:
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
    task = AlignmentTask(Trust(owners, (*owners, COORDINATOR), 1), (Key("id"),), mode="ot")
    start = sum(task.load(name, 0, 1)[0] for name in owners) / len(owners)
    whole = sum(task.load(name, _REFERENCE, 1)[0] for name in owners) / len(owners)
    return start, (whole - start) / _REFERENCE
