"""The result of an alignment, as its caller sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from colonnade.errors import StudyError
from colonnade.protocols.align import AlignmentLeak, AlignmentTask
from colonnade.tables import Table
from colonnade.tables.keys import Key, TableKeys

if TYPE_CHECKING:
    from colonnade.protocols.align import AlignmentCounts

_WIDTHS = (12, 48, 48)


@dataclass(frozen=True)
class AlignmentSummary:
    """How many people the parties have in common, how many rows were left out, and who learned what from the alignment.

    ``rows`` counts each party's rows, ``missing`` those left out because their key is incomplete, and ``repeated``
    those left out because their key occurs more than once. ``count`` is the number of people in common; after a
    hidden alignment the coordinator knows it and the parties do not.
    """

    mode: str
    hidden: bool
    on: tuple[str, ...]
    count: int | None
    rows: Mapping[str, int]
    missing: Mapping[str, int]
    repeated: Mapping[str, int]
    seconds: float
    leakage: tuple[AlignmentLeak, ...]

    @classmethod
    def of(
        cls, task: AlignmentTask, tables: Mapping[str, Table], matched: AlignmentCounts, seconds: float
    ) -> AlignmentSummary:
        """Counts from all roles of one run."""
        keys = {name: keys_of(table) for name, table in tables.items()}
        return cls(
            mode=task.mode,
            hidden=task.hidden,
            on=tuple(key.name for key in task.keys),
            count=matched.count,
            rows={name: table.rows for name, table in tables.items()},
            missing={name: found.missing for name, found in keys.items()},
            repeated={name: found.repeated for name, found in keys.items()},
            seconds=seconds,
            leakage=task.leakage,
        )

    def __str__(self) -> str:
        hidden = ", of which no party knows" if self.hidden else ""
        count = "an unknown number of" if self.count is None else f"{self.count:,}"
        lines = [
            f"{count} people in common by {', '.join(self.on)}{hidden} (mode {self.mode}, {self.seconds:.1f} s)",
            *(
                f"  {name}: {', '.join([f'{rows:,} rows', *rows_left_out(self.missing[name], self.repeated[name])])}"
                for name, rows in self.rows.items()
            ),
            "",
            *leakage_table(self.leakage),
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def rows_left_out(missing: int, repeated: int, unlabelled: int = 0) -> list[str]:
    """How many of a party's rows are left out, and why, as texts."""
    counts = ((missing, "without a full key"), (repeated, "with a repeated key"), (unlabelled, "without a label"))
    return [f"{count:,} {why}" for count, why in counts if count]


def leakage_table(leaks: Sequence[AlignmentLeak]) -> list[str]:
    """Who learns what, as lines of wrapped cells under a heading."""
    heads = AlignmentLeak("who", "learns, outside every epsilon", "to learn more")
    lines: list[str] = []
    for leak in (heads, *leaks):
        cells = [wrap(text, width) for text, width in zip((leak.who, leak.learns, leak.beyond), _WIDTHS, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [part.ljust(width) for part, width in zip(parts, _WIDTHS, strict=True)]
            lines.append("  " + "  ".join(padded).rstrip())
    return lines


def keys_on(on: object) -> tuple[Key, ...]:
    """The keys as a tuple, from one name or key or from a list of them."""
    listed: Sequence[Any] = on if isinstance(on, Sequence) and not isinstance(on, str) else [on]
    for given in listed:
        if not isinstance(given, str | Key):
            raise StudyError(
                f'on= takes a name such as "person_id", a Key such as Key("birth", kind="date"), or a list of them, '
                f"not {type(given).__name__} [ST059]"
            )
    return tuple(Key(given) if isinstance(given, str) else given for given in listed)


def keys_of(table: Table) -> TableKeys:
    """The keys that a table was read with."""
    if table.keys is None:
        raise StudyError(f"{table.source} was read without keys, so its rows cannot be aligned [ST058]")
    return table.keys
