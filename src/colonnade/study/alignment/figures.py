"""What the alignment of a study would cost and tell, before it runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from colonnade.protocols.align import Aligning, Leak, Mode
from colonnade.protocols.cost import Loaded
from colonnade.tables.keys import Key

if TYPE_CHECKING:
    from colonnade.study.spec import Study

_OTHER_EXACT: dict[Mode, Mode] = {"ot": "helper", "dh": "helper", "helper": "dh"}


@dataclass(frozen=True)
class AlignLoad:
    """How many bytes one participant sends in an alignment, and how long it works."""

    participant: str
    bytes_sent: int
    seconds: float


@dataclass(frozen=True)
class Alignment(Loaded):
    """How the parties find the people that all of them hold, who learns what, and what it costs."""

    mode: str
    hidden: bool
    on: tuple[str, ...]
    keys: tuple[Key, ...]
    duplicates: str
    at_least: int
    similarity: float | None
    """How similar keys must be; ``None`` where they must be equal."""
    pad_to: int | None
    reuse: bool
    sentence: str
    leakage: tuple[Leak, ...]
    rows: int
    """The length of each party's list, filled up where lists are padded; time and bytes are estimated for it."""
    loads: tuple[AlignLoad, ...]
    instead: tuple[str, float] | None
    """Another mode for equal keys, and the seconds that its slowest participant would take for the same lists."""
    partitions: int = 1
    """In how many parts people are found, one in each lane."""

    @classmethod
    def of(cls, study: Study, rows: int) -> Alignment | None:
        """The figures for lists of ``rows`` rows; ``None`` where the study aligns nobody."""
        task, part = study.aligning, study.content.align
        if task is None or part is None:
            return None
        listed = task.pad_to or rows
        other = _OTHER_EXACT.get(task.mode)
        # Not every mode can be done in partitions, and what a list takes is the same without them.
        others = _loads(replace(task, mode=other, partitions=1), study.participants, listed) if other else ()
        return cls(
            mode=task.mode,
            hidden=task.hidden,
            on=tuple(key.name for key in task.keys),
            keys=task.keys,
            duplicates=task.duplicates,
            at_least=task.at_least,
            similarity=task.similarity if task.mode == "fuzzy" else None,
            pad_to=task.pad_to,
            reuse=part.used_again and task.partitions == 1,
            sentence=task.sentence,
            leakage=task.leakage,
            rows=listed,
            loads=_loads(task, study.participants, listed),
            instead=None if other is None else (other, max(load.seconds for load in others)),
            partitions=task.partitions,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        found = asdict(self) | self.totals
        if self.partitions == 1:
            del found["partitions"]
        return found


def _loads(task: Aligning, participants: tuple[str, ...], rows: int) -> tuple[AlignLoad, ...]:
    loads = {name: task.load(name, rows) for name in participants}
    return tuple(AlignLoad(name, sent, seconds) for name, (seconds, sent) in loads.items())
