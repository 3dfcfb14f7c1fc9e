"""The sections of a study file, as they are written: each key with its type, its default and what it must fit."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import annotated_types
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    Strict,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from colonnade.errors import PrivacyError, StudyError
from colonnade.models import registry
from colonnade.models.planner import (
    FINITE,
    LIMITS_ROWS,
    NAMES_MODEL,
    NAMES_PARTIES,
    REQUIRED,
    SETS_PRICE,
    STRICT,
    CheckedBy,
    InFile,
    ParameterLimit,
    ParameterMark,
)
from colonnade.privacy import Trust, parse_budgets
from colonnade.privacy.observers import OTHERS, RequestedInputs, Security, check_delta
from colonnade.protocols.align import DEFAULT_MODE, AlignmentTask, Mode
from colonnade.protocols.lanes.partitions import MOST_PARTITIONS, filled_length
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import PricedTask
from colonnade.tables.cell_parsing import suggest_name
from colonnade.tables.keys import Accents, Blanks, Case, Duplicates, Key, KeyKind, UnicodeForm
from colonnade.wire import check_name
from colonnade.wire.codec import MAX_FRAME
from colonnade.wire.peer_liveness import WireLimits

if TYPE_CHECKING:
    from colonnade.protocols.committee_task import CommitteeTask

_LONGEST_PATH, _LONGEST_NAME = 4096, 255
_BUDGET = ("epsilon", "delta")  # these are keys of [budget]


class FileSection(BaseModel):
    """A piece of a study file in which every key must be known."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _meant(cls, given: Any) -> Any:
        """Name the key that an unknown one resembles; one of the budget, or like none, is refused without."""
        if isinstance(given, Mapping) and (known := [field.alias or name for name, field in cls.model_fields.items()]):
            for key in given:
                if key not in (*known, *_BUDGET) and (hint := suggest_name(str(key), known)):
                    raise ValueError(f"has no key {key!r}{hint} [VA195]")
        return given


def check_path(text: str) -> str:
    """The text, if it can be the path of a file; raises a ValueError."""
    if not text.strip() or not text.isprintable():
        raise ValueError("must be a path: not empty, and without control characters [VA196]")
    if len(text) > _LONGEST_PATH or max(len(part.encode()) for part in text.split("/")) > _LONGEST_NAME:
        raise ValueError("must be a path: no file has so long a name [VA197]")
    return text


PathText = Annotated[str, AfterValidator(check_path)]
"""A path as it stands in a file."""


class TaskSection(FileSection):
    """``[task]``: the kind, and the keys of that kind."""

    kind: str

    @property
    def parameters(self) -> dict[str, Any]:
        """All keys but the kind, defaults included."""
        return self.model_dump(exclude={"kind"})

    @property
    def defaulted_keys(self) -> set[str]:
        """Keys that came later and have their defaults: a study without them is the study that it was."""
        fields, given = type(self).model_fields, self.parameters
        return {key for key in registry.load(self.kind).later if key in fields and given[key] == fields[key].default}

    @property
    def parties_named(self) -> dict[str, tuple[str, ...]]:
        """For each key whose value names parties, the parties that it names."""
        marked = ((key, self.parameters[key]) for key in _keys_with_mark(self.kind, NAMES_PARTIES))
        return {key: (value,) if isinstance(value, str) else tuple(value or ()) for key, value in marked}

    @property
    def own_price(self) -> str | None:
        """The key by which the task sets the price; ``None`` if the budget sets it."""
        found = next((key for key in _keys_with_mark(self.kind, SETS_PRICE) if self.parameters[key]), None)
        return found if found is None or self.parameters[found] is not True else f"{found} = true"

    def value_with_mark(self, mark: ParameterMark) -> Any:
        """The value of the key whose parameter has this mark; nothing if no key has it."""
        return next((self.parameters[key] for key in _keys_with_mark(self.kind, mark)), None)


def parse_task(raw: Any, where: object) -> TaskSection:
    """Read ``[task]``; raises a pydantic error that names the key, or a StudyError where the kind is not known."""
    if not isinstance(raw, Mapping):
        return TaskSection.model_validate(raw)
    if "kind" not in raw:
        raise StudyError(f"{where}: task.kind is missing [ST556]")
    known = [row.kind for row in registry.rows()]
    if raw["kind"] not in known:
        hint = suggest_name(str(raw["kind"]), known)
        raise StudyError(f"{where}: task.kind - Input should be one of {', '.join(map(repr, known))}{hint} [ST557]")
    return task_section_of(raw["kind"]).model_validate(raw)


@lru_cache(maxsize=64)
def task_section_of(kind: str) -> type[TaskSection]:
    """The keys of a kind: the parameters of its model's constructor, without the budget."""
    model = registry.load(kind)
    signature = inspect.signature(model.__init__).parameters
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(model.__init__, include_extras=True).items():
        if name not in (*_BUDGET, "return"):
            fields[name] = _file_field(hint, signature[name].default)
    return create_model(f"{model.__name__}Keys", __base__=TaskSection, **fields)


def _file_field(hint: Any, default: Any) -> tuple[Any, Any]:
    """The type and the default of a parameter in a file, as pydantic takes them."""
    instead = next((mark for mark in _marks(hint) if isinstance(mark, InFile)), None)
    if instead is not None:
        hint, default = instead.type, instead.default
    return _file_type(hint), ... if default in (inspect.Parameter.empty, REQUIRED) else default


def _file_type(hint: Any) -> Any:
    """The type with our marks replaced by those of pydantic; dataclasses become sections with known keys."""
    if hint is None:
        return NoneType  # an older pydantic takes None itself for a field without a type
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marks = [mark for mark in map(_validator, arguments[1:]) if mark is not None]
        return Annotated[(_file_type(arguments[0]), *marks)] if marks else _file_type(arguments[0])
    if origin in (Union, UnionType):
        return Union[tuple(map(_file_type, arguments))]  # noqa: UP007 - the members are only known here
    if is_dataclass(hint) and isinstance(hint, type):
        names = {
            name: (_file_type(each), getattr(hint, name))
            for name, each in get_type_hints(hint, include_extras=True).items()
        }
        return create_model(hint.__name__, __base__=FileSection, **names)  # type: ignore[call-overload]
    return hint


def _validator(mark: Any) -> Any:
    if mark is FINITE:
        return Field(allow_inf_nan=False)
    if mark is STRICT:
        return Strict()
    if isinstance(mark, ParameterLimit):
        return getattr(annotated_types, mark.name)(mark.value)
    if isinstance(mark, CheckedBy):
        return BeforeValidator(_checking(mark))
    return None if isinstance(mark, ParameterMark) else mark


def _checking(mark: CheckedBy) -> Any:
    def check(value: Any) -> Any:
        mark.check(value)
        return value

    return check


def _marks(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


@lru_cache(maxsize=64)
def _keys_with_mark(kind: str, mark: ParameterMark) -> tuple[str, ...]:
    """The keys of a kind that have this mark."""
    hints = get_type_hints(registry.load(kind).__init__, include_extras=True)
    return tuple(name for name, hint in hints.items() if mark in _marks(hint))


_LONGEST_KEY_NAME = 80


class KeySection(FileSection):
    """``[align.keys.NAME]``: how every party writes the cells of one key before they are compared."""

    kind: KeyKind = "text"
    case: Case = "keep"
    blanks: Blanks = "trim"
    unicode: UnicodeForm = "NFC"
    accents: Accents = "keep"


class AlignSection(FileSection):
    """``[align]``: find the people that all parties hold, before anything is computed about them."""

    on: tuple[str, ...]
    mode: Mode = DEFAULT_MODE
    hidden: bool = Field(default=False, strict=True)
    duplicates: Duplicates = "drop"
    at_least: int = Field(default=1, ge=1, strict=True)
    similarity: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    pad_to: int | None = Field(default=None, ge=1, strict=True)
    reuse: bool = Field(default=True, strict=True)
    keys: dict[str, KeySection] = Field(default_factory=dict)

    @field_validator("on", mode="before")
    @classmethod
    def _listed(cls, on: Any) -> Any:
        if not isinstance(on, str | list | tuple):
            raise ValueError('must be the name of a key, or a list of names such as ["name", "birth"] [VA166]')
        return (on,) if isinstance(on, str) else on

    @field_validator("duplicates", mode="before")
    @classmethod
    def _retired(cls, duplicates: Any) -> Any:
        if duplicates == "first":
            raise ValueError(
                'cannot be "first": another row would take the place of one that leaves, and no figure counts that; '
                'write "drop", which leaves out all rows of a repeated key [VA770]'
            )
        return duplicates

    @field_validator("on")
    @classmethod
    def _names(cls, on: tuple[str, ...]) -> tuple[str, ...]:
        if not on:
            raise ValueError('must name at least one key, such as on = ["person_id"] [VA167]')
        for name in on:
            if not name.strip() or not name.isprintable() or len(name) > _LONGEST_KEY_NAME:
                raise ValueError(f"must hold names of 1 to {_LONGEST_KEY_NAME} printable characters [VA168]")
        if repeated := sorted({name for name in on if on.count(name) > 1}):
            raise ValueError(f"names {', '.join(repeated)} more than once [VA169]")
        return on

    @model_validator(mode="after")
    def _sensible(self) -> AlignSection:
        if strangers := sorted(set(self.keys) - set(self.on)):
            raise ValueError(
                f"has keys.{strangers[0]}, and on does not name {strangers[0]}: add it there or delete it [VA170]"
            )
        fuzzy = self.mode == "fuzzy"
        wrong = (
            (
                self.hidden and fuzzy,
                'cannot have hidden = true with mode = "fuzzy": linkage by similarity needs somebody who '
                "sees the pairs [VA171]",
            ),
            (
                self.hidden and self.at_least != 1,
                "cannot have at_least with hidden = true, which tells nobody whether people match [VA172]",
            ),
            (
                self.similarity is not None and not fuzzy,
                'has similarity, which only mode = "fuzzy" uses: the other modes compare exactly [VA173]',
            ),
            (
                self.pad_to is not None and fuzzy,
                'has pad_to, which mode = "fuzzy" cannot use: made-up people would look unlike real ones [VA174]',
            ),
            (
                self.pad_to is not None and self.at_least > self.pad_to,
                "has an at_least above pad_to, so too few people would always be common: lower it [VA175]",
            ),
        )
        if said := next((sentence for found, sentence in wrong if found), None):
            raise ValueError(said)
        return self

    @property
    def used_again(self) -> bool:
        """Whether the alignment is kept for later studies; never where members are hidden.

        That an earlier one can be used tells every owner that no set of keys has changed, its members' or not, which
        the figure of an owner after a hidden alignment promises not to tell.
        """
        return self.reuse and not self.hidden

    def check_rows(self, parties: int, most: int, partitions: int = 1) -> None:
        """Raise an error if no lists could fit into the number of rows that the study allows."""
        if self.at_least > most:
            raise ValueError(
                f"align.at_least = {self.at_least} is above the {most} rows that the task allows, so no study could "
                "run: lower the one or raise the other [VA177]"
            )
        slots = 0 if self.pad_to is None else parties * partitions * filled_length(self.pad_to, partitions)
        if self.hidden and slots > most:
            raise ValueError(
                f"align.pad_to = {self.pad_to} makes {slots} rows, because with hidden = true those of "
                f"all {parties} lists count, and task.rows_at_most is {most}: lower the one or raise the other [VA178]"
            )

    def aligning(self, trust: Trust, partitions: int = 1) -> AlignmentTask:
        """The public task that follows, for the parties of a study."""
        written = {name: self.keys.get(name, KeySection()) for name in self.on}
        keys = tuple(Key(name, **part.model_dump()) for name, part in written.items())
        settings = self.model_dump(exclude={"on", "keys", "reuse"}, exclude_none=True)
        return AlignmentTask(trust, keys, partitions=partitions, **settings)


_YEAR = 366 * 24 * 3600.0
_HOUR = 3600.0
_MIB = 1 << 20
_MESSAGE = MAX_FRAME // _MIB
_BESIDE = 4
"""MiB for what a message of the largest size takes besides: seals, headers, and packets that do not fill the room."""
_ALWAYS_AGREED = ("join", "reconnect", "silence")
"""Part of every study's digest; the others are only where they are not the default, as in studies that name none."""


class LimitsSection(FileSection):
    """``[limits]``: seconds to wait; ``window`` and ``backlog`` are in MiB."""

    join: float = Field(default=120.0, gt=0, le=_YEAR)
    reconnect: float = Field(default=WireLimits.reconnect_grace, gt=0, le=_YEAR)
    silence: float = Field(default=WireLimits.timeout, gt=0, le=_YEAR)
    attempt: float = Field(default=WireLimits.attempt, ge=0.1, le=_HOUR)
    handshake: float = Field(default=WireLimits.handshake, ge=0.1, le=_HOUR)
    heartbeat: float = Field(default=WireLimits.heartbeat, ge=0.1, le=_HOUR)
    stall: float = Field(default=WireLimits.stall, ge=0.1, le=_HOUR)
    excuse: float = Field(default=5.0, ge=0.1, le=_HOUR)
    closing: float = Field(default=WireLimits.closing, ge=0.1, le=_HOUR)
    window: int = Field(default=WireLimits.window // _MIB, ge=1, le=1024)
    backlog: int = Field(default=WireLimits.backlog // _MIB, ge=_MESSAGE + _BESIDE, le=8192)

    @model_validator(mode="after")
    def _room_to_grant(self) -> LimitsSection:
        if self.backlog < self.window + _MESSAGE:
            raise ValueError(
                f"backlog = {self.backlog} is too small for window = {self.window}: it must be larger by at least "
                f"{_MESSAGE}, the longest message, so that two who send one to each other at the same "
                "time can go on [VA199]"
            )
        return self

    @property
    def agreed(self) -> dict[str, Any]:
        """What of it is part of the digest of a study."""
        said = self.model_dump(mode="json")
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        return {key: value for key, value in said.items() if key in _ALWAYS_AGREED or value != defaults[key]}

    def of_participant(self, join: float | None = None) -> dict[str, Any]:
        """The settings of ``dial``; ``join`` is how long to go on trying, if not as long as the study says."""
        return {
            "connect_timeout": self.join if join is None else join,
            "reconnect_grace": self.reconnect,
            "timeout": self.silence,
            "attempt": self.attempt,
            "heartbeat": self.heartbeat,
            "closing": self.closing,
            "window": self.window * _MIB,
            "backlog": self.backlog * _MIB,
        }

    @property
    def of_hub(self) -> dict[str, Any]:
        """The settings of the hub."""
        return {
            "heartbeat": self.heartbeat,
            "handshake": self.handshake,
            "stall": self.stall,
            "closing": self.closing,
        }


class LanesSection(FileSection):
    """``[lanes]``: without it, people are added up in one part."""

    partitions: int = Field(strict=True)

    @field_validator("partitions")
    @classmethod
    def _power_of_two(cls, count: int) -> int:
        if not 2 <= count <= MOST_PARTITIONS or count & (count - 1):
            raise ValueError(
                f"must be a power of two from 2 to {MOST_PARTITIONS}, such as 64; without [lanes] there is one [VA198]"
            )
        return count


def check_lanes(task: PricedTask, partitions: int) -> None:
    """Raise an error if a task cannot be done in lanes."""
    from colonnade.protocols.lanes.lane import check_proofs  # most studies have no lanes

    if (why := task.why_not_lanes) is not None:
        raise StudyError(f"[lanes] does not work here: the study {why}; delete [lanes], or change that [ST561]")
    check_proofs(cast("CommitteeTask", task), partitions)


_MOST_HUBS = 63


class BudgetSection(FileSection):
    """A budget: epsilon for everyone, or for observers by name."""

    epsilon: float | dict[str, float]
    delta: float = 1e-5

    @field_validator("epsilon", "delta", mode="before")
    @classmethod
    def _valid(cls, given: Any, info: ValidationInfo) -> Any:
        try:
            if info.field_name == "epsilon":
                parse_budgets(given, 1e-5)
            else:
                check_delta(given)
        except PrivacyError as error:
            raise ValueError(f"- {error} [VA237]") from None
        return given


class PriceSection(BudgetSection):
    """``[budget]``: a budget; without epsilon if the task sets the price (``epsilon_by_party``, ``exact``)."""

    epsilon: float | dict[str, float] | None = None  # type: ignore[assignment]

    @field_validator("epsilon", mode="after")
    @classmethod
    def _of_one_study(cls, epsilon: Any) -> Any:
        if isinstance(epsilon, dict) and OTHERS in epsilon:
            raise ValueError(
                f"has no {OTHERS!r} here: it means all but one party over all its studies, so it belongs into the "
                "[policy.budget] of a party; name party, pair, coalition or everyone [VA219]"
            )
        return epsilon


class CommitteeSection(FileSection):
    """``[committee]``: who holds shares, and how many of them together learn nothing from their shares."""

    seats: tuple[str, ...] = ()
    threshold: int | None = None


def check_host_and_port(address: str) -> str:
    """The address, if it is one; otherwise a ValueError."""
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or any(c.isspace() for c in host) or (":" in host and bare == host):
        raise ValueError("must be host:port, such as hub.example.org:7443 or [::1]:7443 [VA235]")
    if not (port.isdigit() and 0 < int(port) < 65536):
        raise ValueError("must end in a port from 1 to 65535 [VA236]")
    return address


class CoordinatorSection(FileSection):
    """``[coordinator]``: the address that the parties dial, further hubs, and whether parties connect to each other."""

    address: str
    hubs: tuple[str, ...] = Field(default=(), max_length=_MOST_HUBS)
    links: Literal["hub", "direct"] = "hub"

    @field_validator("address", "hubs")
    @classmethod
    def _reachable(cls, given: Any) -> Any:
        for address in (given,) if isinstance(given, str) else given:
            check_host_and_port(address)
        return given

    @model_validator(mode="after")
    def _each_once(self) -> CoordinatorSection:
        all_hubs = [_host_and_port(address) for address in self.lane_hubs]
        if twice := [address for address in self.hubs if all_hubs.count(_host_and_port(address)) > 1]:
            raise ValueError(
                f"names the hub {twice[0]} twice: address is the first hub, and hubs are further ones [VA220]"
            )
        return self

    @property
    def lane_hubs(self) -> tuple[str, ...]:
        """The hubs over which lanes are spread: the coordinator's own, and the further ones."""
        return (self.address, *self.hubs)


class PartySection(FileSection):
    """``[parties.NAME]``: the public schema of one party, and the columns this study uses."""

    schema_file: PathText = Field(alias="schema")
    columns: tuple[str, ...] | None = None


class StudyFile(FileSection):
    """The whole file."""

    name: str
    description: str = ""
    trial: bool = Field(default=False, strict=True)
    security: Security | None = None
    inputs: RequestedInputs | None = None
    noise_missing: Annotated[int, Field(strict=True, ge=0)] | None = None
    task: SerializeAsAny[TaskSection]
    budget: PriceSection = PriceSection()
    align: AlignSection | None = None
    lanes: LanesSection | None = None
    committee: CommitteeSection = CommitteeSection()
    coordinator: CoordinatorSection
    parties: dict[str, PartySection] = Field(min_length=2)
    limits: LimitsSection = LimitsSection()
    pins: dict[str, str] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,79}", name):
            raise ValueError(
                "must be 1 to 80 letters, digits, blanks, '_', '.' or '-', a letter or digit first [VA221]"
            )
        return name

    @model_validator(mode="after")
    def _known_participants(self) -> StudyFile:
        for name in self.parties:
            check_name(name)
            if name == OTHERS:
                raise ValueError(f"parties - {name!r} is a reserved word and cannot name a party [VA222]")
        holders: dict[str, str] = {}
        for name, pin in self.pins.items():
            if (other := holders.setdefault(pin.strip().lower(), name)) != name:
                raise ValueError(
                    f"pins gives {other} and {name} the same certificate: they would be one participant [VA223]"
                )
        if strangers := sorted(set(self.pins) - {*self.parties, COORDINATOR}):
            raise ValueError(f"pins names {', '.join(strangers)}, who takes no part in the study [VA224]")
        for key, names in self.task.parties_named.items():
            if strangers := sorted(set(names) - set(self.parties)):
                raise ValueError(f"task.{key} names {', '.join(strangers)}, who is no party of the study [VA225]")
        if (model := self.task.value_with_mark(NAMES_MODEL)) is not None:
            try:
                check_path(model)
            except ValueError as error:
                raise ValueError(f"task.model {error} [VA226]") from None
        if not registry.load(self.task.kind).shares:
            self._check_without_shares()
        if self.align is not None:
            if self.align.mode == "fuzzy" and (parties := len(self.parties)) != 2:
                raise ValueError(
                    f'align.mode = "fuzzy" links two parties, and this study has {parties}: use ot, dh or helper '
                    "[VA176]"
                )
            if (most := self.task.value_with_mark(LIMITS_ROWS)) is not None:
                self.align.check_rows(len(self.parties), most, self.partitions)
        return self

    @property
    def partitions(self) -> int:
        """In how many parts people are added up."""
        return 1 if self.lanes is None else self.lanes.partitions

    @model_validator(mode="after")
    def _can_have_lanes(self) -> StudyFile:
        """Raise an error where people cannot be divided among lanes."""
        if self.lanes is None:
            return self
        if self.align is None:
            raise ValueError("lanes needs [align]: people are divided by the keys that it names [VA227]")
        if self.align.mode == "fuzzy":
            raise ValueError(
                'lanes does not work with align.mode = "fuzzy": people who are alike may be in '
                "different partitions [VA228]"
            )
        return self

    def _check_without_shares(self) -> None:
        """Raise an error for sections that need shares, of numbers or of who matched."""
        kind = self.task.kind
        if "committee" in self.model_fields_set:
            raise ValueError(
                f'committee has no meaning with task.kind = "{kind}", where nobody holds shares: delete it [VA229]'
            )
        for key in ("security", "inputs", "noise_missing"):
            if key in self.model_fields_set:
                raise ValueError(
                    f'{key} has no meaning with task.kind = "{kind}", where nobody holds shares that others could '
                    "check: delete it [VA230]"
                )
        if self.align is not None and self.align.hidden:
            raise ValueError(
                f'align.hidden = true does not work with task.kind = "{kind}", whose parties must know which rows are '
                "common: delete it, or choose another kind of task [VA231]"
            )

    @model_validator(mode="after")
    def _proven_to_somebody(self) -> StudyFile:
        """Raise an error where owners would prove bounds and nobody checks."""
        if self.inputs == "proven" and self.security == "semi-honest":
            raise ValueError(
                f'inputs = "{self.inputs}" means that owners prove their bounds to seats that check: it needs '
                'security = "active" [VA232]'
            )
        return self

    @model_validator(mode="after")
    def _one_price(self) -> StudyFile:
        """Raise an error unless epsilon is given in exactly one place: in the budget, or in the task."""
        own = self.task.own_price
        if own and self.budget.epsilon is not None:
            raise ValueError(f"budget.epsilon has no meaning beside task.{own}: leave one of them out [VA233]")
        if not own and self.budget.epsilon is None:
            raise ValueError("budget.epsilon is missing [VA234]")
        return self


HostAndPort = Annotated[str, AfterValidator(check_host_and_port)]


def _host_and_port(address: str) -> tuple[str, int]:
    """Host and port, the same for every way to write them."""
    host, _, port = address.rpartition(":")
    return host.lower().rstrip("."), int(port)
