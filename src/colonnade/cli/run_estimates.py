"""How ``colonnade plan`` is told about workers, hubs and lines, and what it says that a run takes."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from colonnade.errors import StudyError

if TYPE_CHECKING:
    from colonnade.study import Study
    from colonnade.study.scale import RunTimeEstimate, WorkerFleet

Workers = Annotated[
    int | None, typer.Option("--workers", metavar="N", min=1, help="Workers of each participant.  [default: 1]")
]
Hubs = Annotated[int | None, typer.Option("--hubs", metavar="N", min=1, help="Hubs that share lanes.  [default: 1]")]
Bandwidth = Annotated[
    str | None,
    typer.Option(
        "--bandwidth", metavar="10Gbit", help="Of each hub and each participant's line, each way.  [default: 1Gbit]"
    ),
]
RoundTrip = Annotated[
    float | None,
    typer.Option("--round-trip", metavar="MS", min=0, help="Milliseconds to a peer and back.  [default: 0]"),
]
PartitionCount = Annotated[
    int | None,
    typer.Option("--partitions", metavar="N", min=1, help="A power of two.  [default: as the study says, or fit]"),
]
TableOption = Annotated[
    Literal["csv", "parquet"] | None, typer.Option("--table", help="What tables are.  [default: parquet]")
]
LinksOption = Annotated[
    Literal["hub", "direct"] | None,
    typer.Option("--links", help="Whether packets go through hubs.  [default: as the study says]"),
]
_BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?) ?([kMGT]?)(bit|B)(?:/s|ps)?")
_POWERS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_LONG_LIST = 500_000
"""People of one list for which partitions are chosen: longer ones take memory, shorter ones time to begin."""
_LANES_EACH = 4
_SHORT = 2_000_000
"""Rows for which one worker needs no partitions."""


@dataclass(frozen=True)
class StudyEstimate:
    """An estimate, and what it is about."""

    study: str
    rows: int
    table: str
    fleet: WorkerFleet
    estimate: RunTimeEstimate
    own_partitions: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        from colonnade.study.scale import BUILT_IN, SOURCE

        return {
            "study": self.study,
            "rows": self.rows,
            "table": self.table,
            "fleet": vars(self.fleet),
            "constants": vars(BUILT_IN),
            "constants_from": SOURCE,
            "estimate": asdict(self.estimate),
        }


def estimate_for(
    study: Study,
    rows: int,
    workers: int | None,
    hubs: int | None,
    bandwidth: str | None,
    round_trip: float | None,
    partitions: int | None,
    table: Literal["csv", "parquet"] | None,
    links: Literal["hub", "direct"] | None,
) -> StudyEstimate:
    """What a run of a study with lists of so many rows would take; ``None`` for what the command was not told."""
    from colonnade.study.scale import BUILT_IN, WorkerFleet, estimate, why_not_parted, work_of_study

    line = WorkerFleet.bandwidth if bandwidth is None else bytes_a_second(bandwidth)
    trip = None if round_trip is None else round_trip / 1000
    fleet = WorkerFleet(workers or 1, hubs or 1, line, trip, links or study.content.coordinator.links)
    own = 1 if study.aligning is None else study.aligning.partitions
    able = why_not_parted(study.task, study.aligning) is None
    chosen = partitions or (fit(rows, fleet.workers) if own == 1 and able else own)
    work = work_of_study(study, rows, chosen, table or "parquet")
    return StudyEstimate(study.name, rows, work.table, fleet, estimate(work, fleet, BUILT_IN), own)


def fit(rows: int, workers: int) -> int:
    """How many partitions fit lists of so many rows: some lanes for every worker, and lists that fit into memory."""
    if workers == 1 and rows <= _SHORT:
        return 1
    least = max(_LANES_EACH * workers, -(-rows // _LONG_LIST))
    return min(1 << 16, 1 << (least - 1).bit_length())


def bytes_a_second(text: str) -> float:
    """A bandwidth, such as 10Gbit, 100 Mbit/s or 50MB/s."""
    found = _BANDWIDTH.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise StudyError(f"a bandwidth is written like 10Gbit, 100Mbit/s or 50MB/s, not {text!r} [ST043]")
    return float(found[1]) * _POWERS[found[2]] / (8 if found[3] == "bit" else 1)


def show(outcome: StudyEstimate) -> str:
    """What a run would take, as text."""
    from colonnade.study.scale import SOURCE

    found, fleet = outcome.estimate, outcome.fleet
    chosen = " (chosen for this estimate)" if found.partitions != outcome.own_partitions else ""
    lanes = (
        f"{found.partitions:,}{chosen}, lists of {found.listed:,} people; {found.lanes_in_turn:,} for a worker"
        if found.partitions > 1
        else "none: one process for each participant does everything"
    )
    line = f"{fleet.bandwidth * 8 / 1e9:g} Gbit/s"
    by = "carry everything" if fleet.links == "hub" else "carry what comes before direct links, which reach everybody"
    facts = (
        ("rows", f"{outcome.rows:,} in every table ({outcome.table}), all of them common"),
        ("partitions", lanes),
        ("workers", f"{fleet.workers:,} for each participant, each with a core"),
        ("hubs", f"{fleet.hubs:,}; they and participants have lines of {line} each way"),
        ("links", f"{fleet.links}: hubs {by}"),
        ("from", SOURCE),
    )
    takes = f"about {clock(found.seconds)}, {found.core_hours:.3g} core-hours, {size(found.bytes_total)} on the wire"
    lines = [
        f"study {outcome.study!r}: what a run would take. These are ESTIMATES, not measurements.",
        "",
        *(f"  {name:<10}  {value}" for name, value in facts),
        "",
        takes,
        f"the bottleneck: {found.bottleneck}",
        "",
        *_parties(found),
        "",
        "seconds of one core, of head and workers together:",
        *_phases(found),
    ]
    return "\n".join(lines)


def _parties(found: RunTimeEstimate) -> list[str]:
    width = max(len("each hub"), *(len(party.name) for party in found.parties))
    heads = "".join(f"  {name:>9}" for name in ("sends", "a worker", "the head", "disk"))
    lines = [f"  {'':<{width}}  {'clock':>8}{heads}  {'core-hours':>10}"]
    for party in found.parties:
        lines.append(
            f"  {party.name:<{width}}  {clock(party.seconds):>8}  {size(party.bytes_sent):>9}  "
            f"{size(party.worker_memory):>9}  {size(party.head_memory):>9}  {size(party.disk):>9}  "
            f"{party.core_hours:>10.3g}"
        )
    hub = found.hub
    lines.append(
        f"  {'each hub':<{width}}  {clock(hub.seconds):>8}  {size(hub.bytes_passed):>9}  {'-':>9}  {'-':>9}  {'-':>9}  "
        f"{hub.core_hours:>10.3g}"
    )
    return lines


def _phases(found: RunTimeEstimate) -> list[str]:
    from colonnade.study.scale import PHASES

    width = max(len(party.name) for party in found.parties)
    heads = "".join(f"{name:>13}" for name in PHASES)
    lines = [f"  {'':<{width}}{heads}"]
    for party in found.parties:
        spent = "".join(f"{plain_seconds(party.phases[name]):>13}" for name in PHASES)
        lines.append(f"  {party.name:<{width}}{spent}")
    return lines


def plain_seconds(seconds: float) -> str:
    """Seconds as people write them, without powers of ten."""
    if seconds >= 100:
        return f"{seconds:,.0f}"
    return f"{seconds:.3g}" if seconds >= 0.001 or not seconds else "<0.001"


def clock(seconds: float) -> str:
    """A time by the clock, such as ``41 s``, ``12 min`` or ``3.4 h``."""
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def size(count: float) -> str:
    """A number of bytes, up to petabytes."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"
