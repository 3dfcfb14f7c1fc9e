"""How long a study takes, how much it sends and needs: plain arithmetic on what there is to do and who does it.

A study without lanes is one process for each participant. In lanes, every owner's workers put its table into
partitions; then they take lanes, all participants the same one at the same time; then the heads add up, draw noise and
open. A table of CSV is taken to be one file, which the head reads alone. Everything passes through hubs, which share
the lanes, or with direct links from one participant to the other. All figures are estimates: nobody is lost, nobody
waits for a slower machine, links reach everybody, and workers have a core each, unless everything is on one machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from colonnade.errors import StudyError
from colonnade.study.scale.constants import Constants
from colonnade.tables.sources.pieces import piece_bytes
from colonnade.tables.spool.partitions import run_bytes

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
class Fleet:
    """Who computes, and how they are connected."""

    workers: int = 1
    """Of each participant, the coordinator too."""
    hubs: int = 1
    bandwidth: float = 125e6
    """Bytes a second of each hub, and of each participant's line, in each direction."""
    round_trip: float | None = None
    """Seconds to a peer and back by the network, besides what programs take; ``None``: one machine's."""
    cores: int | None = None
    """All participants and hubs are on one machine with so many; ``None``: each worker and hub has a core."""
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
class Part:
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
class Work:
    """What there is to do."""

    parts: tuple[Part, ...]
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
class Estimate:
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def estimate(work: Work, fleet: Fleet, constants: Constants) -> Estimate:
    """What the work takes by this fleet, of machines with these constants."""
    lanes_in_turn = -(-work.partitions // fleet.workers)
    share = lanes_in_turn / work.partitions  # of the lanes, for the busiest worker
    total = sum(_sent(part, work) for part in work.parts)
    phases = {part.name: _phases(part, work, fleet.links, constants) for part in work.parts}
    linked = fleet.links == "direct"
    trip = (constants.linked_trip if linked else constants.round_trip) + (fleet.round_trip or 0.0)
    waiting = trip * (work.lane_rounds * lanes_in_turn + work.last_rounds)

    before = {part.name: _before(part, work, fleet, phases[part.name]) for part in work.parts}
    busy = {name: share * _in_lanes(work, found) for name, found in phases.items()}
    lines = {part.name: _line(part, work) / fleet.bandwidth for part in work.parts}
    after = max(found["noise"] for found in phases.values())
    meetings = work.partitions * len(work.parts) * (len(work.parts) - 1)
    relayed = min(total, meetings * MEETING) if linked else total
    hub = _hub(relayed, fleet, constants)

    splitter, worker, line = (max(each, key=lambda name: each[name]) for each in (before, busy, lines))
    middle = {
        f"workers of {worker}, mostly {_longest(phases[worker], work)}": busy[worker] + waiting,
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
    if fleet.cores is not None and processor / fleet.cores > seconds:
        seconds, bottleneck = processor / fleet.cores, f"the {fleet.cores} processors of the one machine"
    parties = tuple(
        PartyEstimate(
            name=part.name,
            seconds=before[part.name] + max(busy[part.name] + waiting, lines[part.name]) + phases[part.name]["noise"],
            bytes_sent=_sent(part, work),
            worker_memory=_memory(part, work, constants),
            head_memory=_head_memory(part, work, constants),
            disk=_disk(part) if work.partitions > 1 else 0,
            core_hours=math.fsum(phases[part.name].values()) / 3600,
            phases=phases[part.name],
        )
        for part in work.parts
    )
    return Estimate(
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


def _phases(part: Part, work: Work, links: Links, constants: Constants) -> dict[str, float]:
    """Seconds of one core by phase."""
    row, cell = (
        (constants.csv_row, constants.csv_cell)
        if work.table == "csv"
        else (constants.parquet_row, constants.parquet_cell)
    )
    cells = part.rows * part.columns
    sent, received = _sent(part, work), _received(part, work)
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


def _before(part: Part, work: Work, fleet: Fleet, phases: Mapping[str, float]) -> float:
    """Seconds by the clock before the first lane, until the table lies in partitions."""
    if work.partitions == 1 or not part.rows:
        return 0.0
    copy = _copy(part)
    # The busiest worker does its share of the bytes, and at least one piece of the table, or one run of partitions.
    reading, splitting = (
        max(1 / fleet.workers, min(1.0, least / copy)) for least in (piece_bytes(copy), run_bytes(copy))
    )
    return (1.0 if work.table == "csv" else reading) * phases["reading"] + splitting * phases["splitting"]


def _in_lanes(work: Work, phases: Mapping[str, float]) -> float:
    """Seconds of one core in all lanes."""
    return math.fsum(phases[name] for name in phases if name not in _once(work))


def _sent(part: Part, work: Work) -> int:
    return part.sent + work.partitions * part.align_sent


def _received(part: Part, work: Work) -> float:
    """Bytes that reach a participant: what others send goes to all who hold something, in equal parts."""
    takers = [each for each in work.parts if each.taken or each.align_ids]
    if part not in takers or len(takers) < 2:
        return 0.0
    return sum(_sent(each, work) / (len(takers) - (each in takers)) for each in work.parts if each is not part)


def _line(part: Part, work: Work) -> float:
    """Bytes in the direction in which a participant's line carries more."""
    return max(float(_sent(part, work)), _received(part, work))


def _hub(relayed: int, fleet: Fleet, constants: Constants) -> HubEstimate:
    passed = -(-relayed // fleet.hubs)
    by_line, by_processor = passed / fleet.bandwidth, passed * constants.hub_byte
    limited: Literal["bandwidth", "processor"] = "bandwidth" if by_line >= by_processor else "processor"
    return HubEstimate(passed, max(by_line, by_processor), limited, by_processor / 3600)


def _disk(part: Part) -> int:
    return SPOOLED_COPIES * _copy(part)


def _copy(part: Part) -> int:
    return part.rows * (SPOOLED_ROW + SPOOLED_CELL * part.columns)


def _head_memory(part: Part, work: Work, constants: Constants) -> int:
    if work.partitions == 1:
        return _memory(part, work, constants)
    return int(constants.interpreter) + KEPT + (SPLIT_BASE if part.rows else 0)


def _memory(part: Part, work: Work, constants: Constants) -> int:
    listed = work.listed if part.align_ids else 0
    cells = 8 * part.columns * min(part.rows, work.listed)
    base = int(constants.interpreter) + KEPT
    in_lane = ALIGNED_ID * listed + min(cells, _MOST_CELLS_IN_MEMORY) + part.held
    splitting = 2 * run_bytes(_copy(part)) if work.partitions > 1 and part.rows else 0
    return base + max(in_lane, splitting)


def _longest(phases: Mapping[str, float], work: Work) -> str:
    return max((name for name in phases if name not in _once(work)), key=lambda name: phases[name])


def _once(work: Work) -> tuple[str, ...]:
    """Phases that are no part of lanes."""
    return ("reading", "splitting", "noise") if work.partitions > 1 else ("noise",)
