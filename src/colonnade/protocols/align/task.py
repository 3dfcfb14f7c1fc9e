"""The public settings of an alignment, and what it tells to whom."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from colonnade.errors import CapacityError, StudyError
from colonnade.message_schema import Integer
from colonnade.mpc import Committee, ResidueSystem
from colonnade.mpc.blinding import POINT_BYTES, SECONDS_PER_HASH, SECONDS_PER_PRODUCT, processor_count
from colonnade.mpc.key_value_store import cell_count
from colonnade.mpc.oblivious import CODE_BITS, MESSAGE_BITS, SUMS, piece_sizes
from colonnade.privacy import Trust
from colonnade.privacy.events import Event
from colonnade.protocols.align.messages import LONGEST, TAG_BYTES
from colonnade.protocols.lanes.partitions import check_count as check_partitions, filled_length
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import RunnableTask
from colonnade.tables.keys import Duplicates, Key, KeyPlan

Mode = Literal["ot", "dh", "helper", "fuzzy"]
MODES: tuple[Mode, ...] = ("ot", "dh", "helper", "fuzzy")
DEFAULT_MODE: Mode = "ot"
"""What everybody gets who names none: in a study file, in Python, and in files that commands write."""
NO_HELPER: tuple[Mode, ...] = ("ot", "dh")
"""Modes in which no helper is trusted; they tell the same to the same people."""

PROTOCOL = "alignment 1"
ROWS_AT_MOST = 50_000
"""The longest list of which people are compared by similarity."""
_SECONDS_PER_KEY = 5e-6  # hashing, storing and looking up, without group operations
_SECONDS_PER_LISTED = 3e-6  # laying a list out to ask for it, once for all holders
_SECONDS_PER_VALUE = 3.5e-6  # sending or taking a key, and its value, for each holder
_SECONDS_PER_PAIR = 7e-8  # comparing two linkage keys
_SECONDS_PER_FILTER = 2e-4
_LINKAGE_BYTES = 128


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def require_clkhash() -> tuple[Any, Any]:
    """The two modules that make linkage keys, or an error that says what to install."""
    try:
        with warnings.catch_warnings():  # it asks for its own version in a way that is on its way out
            warnings.simplefilter("ignore", DeprecationWarning)
            from clkhash import clk, schema
    except ImportError as error:
        raise StudyError(
            "fuzzy alignment needs a package that is not installed: install colonnade[fuzzy] [ST420]"
        ) from error
    return clk, schema


@dataclass(frozen=True)
class AlignmentLeak:
    """What somebody learns, and what it would take to learn more."""

    who: str
    learns: str
    beyond: str


@dataclass(frozen=True)
class AlignmentTask(RunnableTask):
    """How owners find the people they have in common. Equal at every participant.

    With ``partitions`` above one it is about one of so many parts of every list, which may have nobody in common; what
    ``at_least`` says is about all parts together (``protocols/lanes``).
    """

    trust: Trust
    keys: tuple[Key, ...]
    mode: Mode = DEFAULT_MODE
    hidden: bool = False
    duplicates: Duplicates = "drop"
    at_least: int = 1
    similarity: float = 0.85
    pad_to: int | None = None
    partitions: int = 1

    aligns = True

    def __post_init__(self) -> None:
        padded, fuzzy = self.pad_to is not None, self.mode == "fuzzy"
        refused = {
            f"alignment has the modes {', '.join(MODES)}, not {self.mode!r} [ST421]": self.mode not in MODES,
            "hidden must be true or false [ST422]": not isinstance(self.hidden, bool),
            "at_least must be a whole number, one or more [ST423]": not _counts(self.at_least),
            "a hidden alignment tells nobody whether people match, so it takes no at_least [ST424]": (
                self.hidden and self.at_least != 1
            ),
            "fuzzy alignment is for two parties, and it cannot hide who matched: use exact keys [ST425]": (
                fuzzy and (self.hidden or len(self.owners) != 2)
            ),
            "similarity must be a number above 0 and at most 1 [ST426]": (
                not isinstance(self.similarity, int | float) or not 0 < self.similarity <= 1
            ),
            "pad_to must be a whole number, one or more [ST427]": padded and not _counts(self.pad_to),
            "fuzzy alignment cannot pad lists: made-up people would look unlike real ones [ST428]": padded and fuzzy,
        }
        for sentence in (sentence for sentence, wrong in refused.items() if wrong):
            raise StudyError(sentence)
        check_partitions(self.partitions)
        if self.partitions > 1 and (why := self.why_not_partitions) is not None:
            raise StudyError(f"this alignment cannot be done in partitions: {why} [ST429]")
        self.plan  # noqa: B018 - checks the keys

    @property
    def why_not_partitions(self) -> str | None:
        """Why people cannot be aligned partition by partition; ``None``: they can."""
        if self.mode == "fuzzy":
            return "people who are alike may be in different ones; use exact keys"
        if self.hidden and self.leader_joins and len(self.owners) > 2:
            return (
                "where members are hidden among three parties or more, the coordinator and one of them would see in "
                'which partitions the others have people in common; use mode = "helper", which tells them this anyway, '
                "or hidden = false"
            )
        return None

    @property
    def leaders(self) -> tuple[str, ...]:
        """The owners that can lead: those with a seat, who talk to everybody."""
        return tuple(owner for owner in self.owners if owner in self.trust.committee)

    @property
    def leader_joins(self) -> bool:
        """Whether the leader compares the lists, as it does where no helper is trusted."""
        return self.mode in NO_HELPER

    @property
    def plan(self) -> KeyPlan:
        """How keys are read."""
        return KeyPlan(self.keys, self.duplicates)

    @property
    def longest(self) -> int | None:
        """The longest list that is allowed; ``None`` if there is no limit."""
        return ROWS_AT_MOST if self.mode == "fuzzy" else self.pad_to

    @property
    def lengths(self) -> Integer:
        """How long a list may be said to be."""
        if self.pad_to is not None:
            return Integer(self.listed_length(0), self.listed_length(0))
        return Integer(0, LONGEST if self.longest is None else self.longest)

    def listed_length(self, people: int) -> int:
        """How long a list of so many keys is said to be, or in partitions each part of it."""
        return filled_length(people if self.pad_to is None else self.pad_to, self.partitions)

    @property
    def enough(self) -> int:
        """How many people must be common for this alignment to go on: where it is about a part, nobody must."""
        return self.at_least if self.partitions == 1 else 0

    def check_length(self, keys: int) -> None:
        """Refuse a list that is too long; the others do not learn that it is."""
        if self.mode == "fuzzy":
            require_clkhash()
        most, change = self.longest, "use exact keys" if self.mode == "fuzzy" else "raise pad_to"
        if most is not None and keys > most:
            raise CapacityError(
                f"there are {keys} keys, and this alignment takes at most {most} a party: {change} [CA015]"
            )

    @property
    def committee(self) -> Committee:
        """The seats; an alignment shares no numbers."""
        return Committee(self.trust.committee, self.trust.threshold, ResidueSystem.for_bound(1))

    @property
    def events(self) -> tuple[Event, ...]:
        """No numbers are released, so no budget is charged."""
        return ()

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant."""
        settings = {"mode": self.mode, "hidden": self.hidden, "duplicates": self.duplicates, "at_least": self.at_least}
        similarity = {"similarity": float(self.similarity).hex()} if self.mode == "fuzzy" else {}
        padded = {"pad_to": self.pad_to} if self.pad_to is not None else {}
        parted = {"partitions": self.partitions} if self.partitions > 1 else {}
        return {
            "protocol": PROTOCOL,
            "owners": list(self.owners),
            "seats": list(self.trust.committee),
            "keys": [asdict(key) for key in self.keys],
            **settings,
            **similarity,
            **padded,
            **parted,
        }

    # --- what it tells

    @cached_property
    def leakage(self) -> tuple[AlignmentLeak, ...]:
        """Who learns what; all of it is outside every epsilon."""
        if self.mode == "fuzzy":
            return _FUZZY
        hidden, several = self.hidden, len(self.owners) > 2
        counted = _OVERLAPS if hidden and several else _COUNT
        counted += _BY_PARTITION if self.partitions > 1 else ""
        kind = "alone" if self.leader_joins else "helper"
        pooled = _WITH_COORDINATOR[kind, hidden]
        among = _AMONG_OWNERS[kind, hidden] if several else _ALONE
        padded = self.pad_to is not None
        own, all_lengths = (_PADDED, _PADDED) if padded else (_LENGTHS[kind, hidden], "the length of every list")
        members = _MEMBERS[hidden] + (_TOO_FEW_TOO if self.partitions > 1 and not hidden else "")
        owners = AlignmentLeak("each owner", f"{members}; {own}", f"{_TRY[kind]}; {among}")
        return (owners, AlignmentLeak(COORDINATOR, f"{counted}; {all_lengths}; never a key", pooled), _NOBODY)

    @property
    def sentence(self) -> str:
        """What alignment tells outside every epsilon, for a privacy statement."""
        lengths = "" if self.pad_to is not None else ", and the lengths of lists,"
        if self.hidden:
            groups = "and a group can compare slots"
            if self.mode == "helper":
                groups = f"a group can compare slots, and {_GUESSED}"
            counted = " in each partition" if self.partitions > 1 else ""
            return (
                "who is common to the parties is hidden from each owner alone and within its figure; for the "
                "coordinator and for groups figures are about values only, because the coordinator knows how many are "
                f"common{counted}, {groups}; that{lengths} is outside every epsilon"
            )
        told = _TOLD[self.mode]
        if self.partitions > 1:
            told = told.replace("how many", "how many in each partition")
        return (
            f"the figures are about people in the joint table: alignment ({self.mode}) told every owner which of its "
            f"people {told}; that{lengths} is outside every epsilon"
        )

    # --- what it takes

    def load(self, name: str, rows: int, cores: int | None = None) -> tuple[float, int]:
        """Seconds and bytes sent of one participant, for lists of ``rows`` rows, if the first of the leaders leads.

        Group operations are shared by ``cores``; by default by all of this machine.
        """
        cores = cores or processor_count()
        rows = rows if self.pad_to is None else self.pad_to
        others, leads = len(self.owners) - 1, name == self.leaders[0]
        store = 8 * 2 * cell_count(rows)
        if self.mode == "fuzzy":
            if name == COORDINATOR:
                return _SECONDS_PER_PAIR * rows**2, 24 * rows * len(self.owners)
            return _SECONDS_PER_FILTER * rows, _LINKAGE_BYTES * rows
        seconds = _SECONDS_PER_KEY * rows * (1 + others)
        lists = others if leads else 1
        sent = lists * TAG_BYTES * rows if self.hidden else 2 * TAG_BYTES * rows if leads else store
        if name == COORDINATOR:
            told = (8 if self.hidden else 2 * TAG_BYTES) * rows * len(self.owners)
            return seconds, told if self.hidden or self.mode == "helper" else 0
        if self.mode == "dh":
            products = rows * (1 + others if leads else 2)
            points = rows * lists
            if self.hidden:  # every list goes both ways
                products += rows * lists
                points *= 2
            else:
                sent = 2 * TAG_BYTES * rows * others if leads else store
            seconds += (products * SECONDS_PER_PRODUCT + rows * SECONDS_PER_HASH) / cores
            sent += points * POINT_BYTES
        if self.mode == "ot":
            asks, holds = self.hidden or leads, self.hidden or not leads
            transfers = CODE_BITS * lists * (2 * SECONDS_PER_PRODUCT + 2 * SECONDS_PER_HASH) / cores
            seconds += (asks + holds) * (transfers + _SECONDS_PER_VALUE * rows * lists)
            seconds += asks * _SECONDS_PER_LISTED * rows
            if not self.hidden:
                sent = 2 * TAG_BYTES * rows * others if leads else store
            asked = 8 * (CODE_BITS * sum(piece_sizes(rows)) + (CODE_BITS + MESSAGE_BITS) * SUMS)
            sent += lists * (asks * asked + holds * CODE_BITS * 2 * POINT_BYTES)
        return seconds, sent


_GUESSED = "the coordinator with any one owner can try out every key on every list"
_TOLD = {
    "ot": "all the others hold too, and the coordinator how many",
    "dh": "all the others hold too, and the coordinator how many",
    "helper": f"all the others hold too, and the coordinator how many, and {_GUESSED}",
    "fuzzy": "resemble somebody the other holds, and the coordinator got a Bloom filter of every row, from which names "
    "can be guessed",
}
_MEMBERS = {
    False: "which of its own people all the others hold too, and so how many",
    True: "nothing about who is common, nor how many",
}
_LENGTHS = {
    (
        "alone",
        False,
    ): "who leads, having the shortest list of those with a seat; the leader the length of every list, "
    "the others that of the leader's",
    (
        "alone",
        True,
    ): "who leads, having the shortest list of those with a seat; the leader the length of every list, "
    "the others that of the leader's and the sum of all",
    ("helper", False): "no length but its own",
    ("helper", True): "the sum of all lengths",
}
_PADDED = "no lengths, as lists are padded"
_TRY = {
    "alone": "it cannot try out keys on another's list",
    "helper": "it has the key of the hashes, but sees no other hashes than its own",
}
_ALONE = "there is nobody to pool with but the other owner"
_AMONG_OWNERS = {
    ("alone", False): "with others: whom of the leader's people all owners outside their group hold",
    ("helper", False): "with others: nothing more",
    ("alone", True): "with another: who is on both lists, and whom of these the leader holds",
    ("helper", True): "with another: who is on both lists, and whom of these the leader holds",
}
_COUNT = "how many people all hold"
_OVERLAPS = "how many of the leader's people each group of the others holds"
_TOO_FEW_TOO = ", even if they are fewer than at_least"
_BY_PARTITION = ", in each partition, of which it does not know whose they are"
_WITH_COORDINATOR = {
    ("alone", False): "with an owner: nothing more",
    ("alone", True): "with an owner: who else holds that owner's people, as far as the leader does; no other key",
    ("helper", False): "with any one owner: every key of every list that can be guessed",
    ("helper", True): "with any one owner: every key of every list that can be guessed",
}
_NOBODY = AlignmentLeak("anybody else", "nothing", "")
_FUZZY = (
    AlignmentLeak(
        "each owner",
        "which of its own people resemble somebody the other holds, and so how many; no length but its own",
        "nothing by itself; it has the key of the linkage keys",
    ),
    AlignmentLeak(
        COORDINATOR,
        "the length of both lists, how similar any two people on them are, and how often pieces of names recur",
        "by itself: Bloom filters give way to attacks by frequency and pattern, which tell names, also of who does not "
        "match; with an owner: every key that can be guessed",
    ),
    _NOBODY,
)
