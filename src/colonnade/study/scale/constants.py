"""How long one core of a machine takes for one thing of each kind, as ``colonnade bench`` measures it and writes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from colonnade.disk import reading
from colonnade.errors import StudyError
from colonnade.models.serialization import write_whole

FORMAT = "colonnade bench"
VERSION = 2
DEFAULT_FILE = Path("colonnade-bench.json")
_MOST_BYTES = 1 << 16
_MOST_SECONDS = 3600.0
_MOST_MEMORY = 1 << 40


@dataclass(frozen=True)
class MachineConstants:
    """Seconds of one core, unless said otherwise; a number is a cell, or a number on shares modulo one prime."""

    csv_row: float
    """Reading and encoding a row of a CSV file, without its cells."""
    csv_cell: float
    parquet_row: float
    parquet_cell: float
    split_row: float
    """Copying a row, finding its partition by its key, putting it there and reading it back from there."""
    split_cell: float
    agree_row: float
    """Comparing what rows are about with the other owners."""
    align_start: float
    """One alignment of any length: keys and base transfers; of one of two parties, mode ot."""
    align_id: float
    """The same for each id of the list."""
    round_cell: float
    """Encoded cells rounded at random to whole numbers."""
    deal_cell: float
    """One number dealt to the seats, a prime."""
    take_cell: float
    """One number of another owner received as a share, a prime."""
    pair: float
    """One product of two shares added up, a prime."""
    own_pair: float
    """One product of an owner's own columns, in the clear."""
    draw: float
    """One number of noise."""
    send_byte: float
    receive_byte: float
    hub_byte: float
    """One byte passed on by a hub."""
    session: float
    """Joining a session: keys, certificates and handshakes with its peers."""
    round_trip: float
    """Seconds by the clock until a small message was answered, through a hub of the same machine."""
    linked_byte: float
    """One byte sent or received by a direct link."""
    linked_trip: float
    """As the round trip, by a direct link."""
    interpreter: float
    """Bytes of memory of a worker that has nothing to do."""


UNITS: Mapping[str, tuple[str, str]] = {
    "csv_row": ("read a row of CSV", "s"),
    "csv_cell": ("read a cell of CSV", "s"),
    "parquet_row": ("read a row of Parquet", "s"),
    "parquet_cell": ("read a cell of Parquet", "s"),
    "split_row": ("put a row into its partition", "s"),
    "split_cell": ("put a cell into its partition", "s"),
    "agree_row": ("agree on a row", "s"),
    "align_start": ("begin an alignment", "s"),
    "align_id": ("align an id", "s"),
    "round_cell": ("round a cell", "s"),
    "deal_cell": ("deal a number", "s"),
    "take_cell": ("receive a number", "s"),
    "pair": ("multiply two shares", "s"),
    "own_pair": ("multiply two own cells", "s"),
    "draw": ("draw a number of noise", "s"),
    "send_byte": ("send a byte", "s"),
    "receive_byte": ("receive a byte", "s"),
    "hub_byte": ("pass a byte on", "s"),
    "session": ("join a session", "s"),
    "round_trip": ("small message and answer", "s by the clock"),
    "linked_byte": ("a byte by a direct link", "s"),
    "linked_trip": ("answer by a direct link", "s by the clock"),
    "interpreter": ("a worker's memory", "bytes"),
}
"""What each constant is about, in a few words, and its unit."""


@dataclass(frozen=True)
class MachineBenchmark:
    """Constants, and where they come from."""

    constants: MachineConstants
    made: str
    """When, as ISO 8601; empty for those that are built in."""
    processors: int
    machine: str
    colonnade: str
    quick: bool = False

    @property
    def source(self) -> str:
        """In a few words, for whoever reads an estimate."""
        if not self.made:
            return f"built-in constants of another machine ({self.machine}): measure yours with `colonnade bench`"
        how = "measured quickly" if self.quick else "measured"
        return f"constants {how} on {self.made[:10]} ({self.machine}, colonnade {self.colonnade})"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, as they stand in the file."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    def save(self, path: Path) -> None:
        """Write the file as a whole or not at all."""
        write_whole(path, (json.dumps(self.to_dict(), indent=2) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> MachineBenchmark:
        """Read a file; whatever is wrong with it is one sentence."""
        try:
            held = reading.read_json(path, _MOST_BYTES)
        except reading.UnreadableFile as error:
            raise StudyError(f"{path} cannot be used as constants: {error} [ST582]") from None
        if not isinstance(held, dict) or held.get("format") != FORMAT:
            raise StudyError(f"{path} is not a file that `colonnade bench` has written [ST583]")
        if held.get("version") != VERSION:
            raise StudyError(f"{path} is of another version of Colonnade: run `colonnade bench` again [ST584]")
        try:
            return cls._of(held)
        except (KeyError, TypeError, ValueError) as error:
            raise StudyError(f"{path} is damaged ({error}): run `colonnade bench` again [ST585]") from None

    @classmethod
    def _of(cls, held: Mapping[str, Any]) -> MachineBenchmark:
        given = held["constants"]
        names = [one.name for one in fields(MachineConstants)]
        if not isinstance(given, dict) or sorted(given) != sorted(names):
            raise ValueError("constants are missing, or there are others [VA214]")
        for name in names:
            most = _MOST_MEMORY if name == "interpreter" else _MOST_SECONDS
            value = given[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
                raise ValueError(f"{name} is no sensible number [VA215]")
        processors, quick = held["processors"], held["quick"]
        if isinstance(processors, bool) or not isinstance(processors, int) or not 1 <= processors <= 1 << 20:
            raise ValueError("processors is no sensible number [VA216]")
        texts = [held["made"], held["machine"], held["colonnade"]]
        if not isinstance(quick, bool) or not all(isinstance(text, str) and 0 < len(text) <= 100 for text in texts):
            raise ValueError("it does not say where it comes from [VA217]")
        datetime.fromisoformat(texts[0])
        values = MachineConstants(**{name: float(given[name]) for name in names})
        return cls(values, texts[0], processors, texts[1], texts[2], quick)


def in_words(name: str, value: float) -> str:
    """A constant with its unit, such as ``3.4 ns`` or ``158 MB``."""
    if UNITS[name][1] == "bytes":
        return f"{value / 1e6:.0f} MB"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-12:.3g} ps" if not math.isclose(value, 0) else "0 s"


BUILT_IN = MachineBenchmark(
    MachineConstants(
        csv_row=5e-7,
        csv_cell=6.2e-7,
        parquet_row=4.9e-7,
        parquet_cell=4.9e-8,
        split_row=7.0e-7,
        split_cell=2.6e-8,
        agree_row=1.5e-7,
        align_start=0.37,
        align_id=7.3e-6,
        round_cell=9.0e-9,
        deal_cell=8.2e-9,
        take_cell=2.9e-9,
        pair=2.0e-10,
        own_pair=1.6e-10,
        draw=1.0e-8,
        send_byte=2.7e-9,
        receive_byte=2.7e-9,
        hub_byte=3.5e-9,
        session=0.036,
        round_trip=2.3e-3,
        linked_byte=1.4e-9,
        linked_trip=3.0e-4,
        interpreter=1.38e8,
    ),
    made="",
    processors=2,
    machine="aarch64, 2 processors",
    colonnade="0.1.0",
)
"""Used where nobody has measured; the page on scale says where they come from."""
