"""The sections of a party file, as they are written: each key with its type, its default and what it must fit.

Those about workers are also what a hub, or whoever starts a participant, says of them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from colonnade.errors import DataError, SchemaError, StudyError
from colonnade.privacy.ledger.approvers import ApprovalRule
from colonnade.privacy.ledger.caps import MOST_DAYS
from colonnade.protocols.align import Mode
from colonnade.study.engine.base import Engine
from colonnade.study.fork_server import ForkServer
from colonnade.study.spec import first_problem
from colonnade.study.study_file import BudgetSection, FileSection, PathText, check_path
from colonnade.tables.cell_parsing import TextFormat
from colonnade.tables.encoding import InvalidValues
from colonnade.tables.keys import KeyColumn
from colonnade.tables.sources.databases import Database, Query
from colonnade.tables.sources.object_stores import check_address, is_address
from colonnade.wire.link_offers import DirectLinkSettings, PeerRoute, PortRange, is_address as is_host_and_port
from colonnade.wire.peer_liveness import PeerTraffic

PROCESSES, RAY = "processes", "ray"
_CLIENT = "ray://"
_LEAST_OF_WORKER = 3 * 10**8
_MOST_WORKERS = 4096


class WorkersSection(FileSection):
    """Where workers run, and how many there are: all that is said of a coordinator's."""

    engine: str = PROCESSES
    workers: int | None = Field(default=None, ge=1, le=_MOST_WORKERS, strict=True)

    @field_validator("engine")
    @classmethod
    def _known(cls, text: str) -> str:
        if text not in (PROCESSES, RAY) and not is_host_and_port(text.removeprefix(_CLIENT)):
            raise ValueError(
                f'must be "{PROCESSES}", "{RAY}", or the address of a Ray cluster: "host:port" on one of its nodes, '
                f'"{_CLIENT}host:port" from elsewhere [VA182]'
            )
        return text


class ComputeSection(WorkersSection):
    """``[compute]``: has a meaning in studies with lanes alone."""

    memory: int | None = None
    spool: PathText | None = None

    @field_validator("memory", mode="before")
    @classmethod
    def _bytes(cls, given: Any) -> Any:
        size = parse_size(given)
        if size is None:
            raise ValueError('must be a size such as "1 GB" or "800 MB" [VA183]')
        if size < _LEAST_OF_WORKER:
            raise ValueError("must be at least 300 MB: a worker needs so much before its first row [VA184]")
        return size

    @model_validator(mode="after")
    def _shared(self) -> ComputeSection:
        if self.address is not None and (self.spool is None or not self.spool.startswith("/")):
            raise ValueError(
                f"engine = {self.engine!r} may have several machines, so spool must name a folder that all of them "
                "see under the same path, which begins with / [VA185]"
            )
        return self

    @property
    def address(self) -> str | None:
        """The address of a Ray cluster, if one is given."""
        return None if self.engine in (PROCESSES, RAY) else self.engine

    def open_engine(self, forks: ForkServer | None = None) -> Engine[Any]:
        """The engine, not started yet; an ``EngineError`` where a cluster is not guarded."""
        if self.engine == PROCESSES:
            from colonnade.study.engine.base import ProcessEngine

            return ProcessEngine(self.memory, forks)
        from colonnade.study.engine.ray_cluster import RayEngine, check_guarded

        if self.address is not None:
            check_guarded(self.address)
        return RayEngine(self.address, self.memory)


def parse_size(given: Any) -> int | None:
    """The bytes that a text such as ``"4 GB"`` means; ``None`` if it means none."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?) ?([MGT])B", given) if isinstance(given, str) else None
    return None if found is None else int(float(found[1]) * {"M": 10**6, "G": 10**9, "T": 10**12}[found[2]])


@dataclass(frozen=True)
class WorkerOptions:
    """What whoever runs a participant says of its workers: how many, and at the coordinator, where they run."""

    workers: int | None = None
    engine: str | None = None
    """The coordinator's; a party's file names its own."""
    forks: ForkServer | None = None
    """By which processes are started."""

    def compute(self, own: ComputeSection | None = None) -> ComputeSection:
        """What is used in the end; a coordinator has no table, so it needs no folder that machines share."""
        found = own or self._coordinators
        return found.model_copy(update={} if self.workers is None else {"workers": self.workers})

    @property
    def _coordinators(self) -> ComputeSection:
        try:
            return ComputeSection(engine=self.engine or PROCESSES, spool="/")
        except ValidationError as error:
            raise StudyError(f"--{first_problem(error)} [ST558]") from None

    def close(self) -> None:
        """End what starts processes."""
        if self.forks is not None:
            self.forks.close()


DEFAULT_WORKERS = WorkerOptions()


ConsoleRole = Literal["viewer", "approver"]
CONSOLE_ADDRESS = "127.0.0.1:8471"
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?")


class ConsoleSection(FileSection):
    """The console of an agent or of the hub; ``console = "ADDRESS:PORT"`` alone says where it is."""

    listen: str = CONSOLE_ADDRESS
    tls: bool = Field(default=False, strict=True)
    hosts: tuple[str, ...] = ()
    trust_header: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]{1,64}$")
    sources: tuple[str, ...] = Field(default=("127.0.0.1",), alias="from")

    @model_validator(mode="before")
    @classmethod
    def _address_alone(cls, given: Any) -> Any:
        return {"listen": given} if isinstance(given, str) else given

    @field_validator("listen")
    @classmethod
    def _address(cls, text: str) -> str:
        host, _, port = text.rpartition(":")
        try:
            ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            raise ValueError('must be an address and a port, such as "127.0.0.1:8471" [VA186]') from None
        if not port.isdecimal() or int(port) > 65535:
            raise ValueError('must be an address and a port, such as "127.0.0.1:8471" [VA187]')
        return text

    @field_validator("hosts")
    @classmethod
    def _names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        lower = tuple(host.lower() for host in hosts)
        if not all(_HOST.fullmatch(host) for host in lower):
            raise ValueError('must be names as a browser shows them, such as "console.example.org" [VA188]')
        return lower

    @field_validator("sources")
    @classmethod
    def _networks(cls, sources: tuple[str, ...]) -> tuple[str, ...]:
        for source in sources:
            try:
                ipaddress.ip_network(source)
            except ValueError:
                raise ValueError(
                    'must be addresses or networks, such as "127.0.0.1" or "10.0.0.0/24" [VA189]'
                ) from None
        return sources

    @model_validator(mode="after")
    def _reachable(self) -> ConsoleSection:
        if not self.tls and not ipaddress.ip_address(self.address[0]).is_loopback:
            raise ValueError(
                "must listen on a loopback address, or behind a proxy with TLS: say tls = true, and the "
                "names in hosts [VA190]"
            )
        if self.tls and not self.hosts:
            raise ValueError(
                'must name in hosts what people type, such as "console.example.org", where tls = true [VA191]'
            )
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    def names(self, port: int) -> tuple[str, ...]:
        """What a browser may say as the Host, for the port that is listened on."""
        own = () if self.tls else (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}")
        return (*own, *self.hosts)


class NetworkSection(FileSection):
    """``[network]``: has a meaning in studies with ``links = "direct"`` alone."""

    listen: str | None = None
    advertise: str | None = None
    dial: bool = Field(default=True, strict=True)

    @field_validator("listen")
    @classmethod
    def _ports(cls, text: str | None) -> str | None:
        if text is not None:
            PortRange.parse(text)
        return text

    @field_validator("advertise")
    @classmethod
    def _dialled(cls, text: str | None) -> str | None:
        if text is not None and not (is_host_and_port(text) or is_host_and_port(f"{text}:1")):
            raise ValueError("must be host or host:port, such as bank.example.org or [2001:db8::5]:9400 [VA200]")
        return text

    @model_validator(mode="after")
    def _reachable(self) -> NetworkSection:
        if self.listen is None:
            if self.advertise is not None:
                raise ValueError("advertise has no meaning without listen [VA201]")
            return self
        ports = PortRange.parse(self.listen)
        if self.advertise is None and ports.is_wildcard:
            raise ValueError(
                f"listen = {self.listen!r} means every address, so advertise must say which peers dial [VA202]"
            )
        if self.advertise is not None and is_host_and_port(self.advertise) and ports.first != ports.last:
            raise ValueError("advertise must be a host without a port where listen has several ports [VA203]")
        return self

    @property
    def direct(self) -> DirectLinkSettings:
        """The same for the wire."""
        return DirectLinkSettings(self.listen, self.advertise, self.dial)


def record_links(ways: Mapping[str, PeerRoute], traffic: Mapping[str, PeerTraffic]) -> dict[str, dict[str, Any]]:
    """What ``run.json`` says of the way to each peer: which it was, how many bytes went it, and why it was the hub."""
    return {
        peer: {
            "way": "hub" if not way.links else "both" if way.broken_links else "direct",
            "direct_sent": way.sent,
            "direct_received": way.received,
            "hub_sent": traffic[peer].sealed_sent - way.sent,
            "hub_received": traffic[peer].sealed_received - way.received,
            "connections": way.links,
            **({"why": way.reason} if way.broken_links or not way.links else {}),
        }
        for peer, way in ways.items()
    }


def bytes_by_way(run: Mapping[str, Any]) -> tuple[int, int]:
    """How many sealed bytes a participant sent directly, and how many through the hub, by the record of its run."""
    direct = sum(_byte_count(facts, "direct_sent") for facts in run.get("links", {}).values())
    return direct, max(sum(_byte_count(facts, "sealed_sent") for facts in run.get("traffic", {}).values()) - direct, 0)


def _byte_count(facts: Mapping[str, Any], key: str) -> int:
    found = facts.get(key, 0)
    return found if isinstance(found, int) and found > 0 else 0


_LEAST_MEMORY = 5 * 10**8
_SECRET = ("uri", "url", "dsn", "password", "user", "token", "secret")

ApprovalMode = Literal["ask", "auto-within-budget", "never"]


class CapSection(BudgetSection):
    """``[policy.budget]``: the most that observers may ever learn about this party's people."""


class PeriodSection(CapSection):
    """``[[policy.periods]]``: the most that observers may learn from studies that are reserved within these days."""

    days: float = Field(gt=0, le=MOST_DAYS, strict=True)


class FailuresSection(FileSection):
    """``[policy.failures]``: how many studies may end early within so many days, before this party takes no more part.

    That a study ended early, and when, is visible to everybody, and no epsilon bounds what it tells.
    """

    at_most: int = Field(default=20, ge=1, strict=True)
    days: float = Field(default=30, gt=0, le=MOST_DAYS, strict=True)


class AlignmentsSection(FileSection):
    """``[policy.alignments]``: how many alignments may be made within so many days.

    Each tells others whom of their people this party holds, and no epsilon bounds that.
    """

    at_most: int = Field(default=100, ge=1, strict=True)
    at_most_each: int | None = Field(default=None, ge=1, strict=True)
    """For one who proposes: by default a quarter, so that nobody uses up what others need."""
    days: float = Field(default=30, gt=0, le=MOST_DAYS, strict=True)


class PolicySection(FileSection):
    """``[policy]``: which studies this party takes part in."""

    approval: ApprovalMode = "ask"
    approvers: int | tuple[str, ...] = Field(default=1, exclude=True)
    """How many people must say yes where people are asked, or of whom two must."""
    tasks: tuple[str, ...]
    columns: tuple[str, ...] | Literal["all"]
    exact: tuple[str, ...] = ()
    align: tuple[Mode, ...] = ("ot", "dh")
    hidden: bool = Field(default=False, strict=True)
    security: Literal["active"] | None = Field(default=None, exclude=True)
    inputs: Literal["proven"] | None = Field(default=None, exclude=True)
    trial: bool = Field(default=False, strict=True, exclude=True)
    again: bool | None = Field(default=None, strict=True, exclude=True)
    schemas: tuple[str, ...] | None = Field(default=None, exclude=True)
    budget: CapSection
    periods: tuple[PeriodSection, ...] = ()
    failures: FailuresSection = Field(default_factory=FailuresSection, exclude=True)
    alignments: AlignmentsSection = Field(default_factory=AlignmentsSection, exclude=True)

    @field_validator("columns", mode="before")
    @classmethod
    def _listed(cls, columns: Any) -> Any:
        if columns != "all" and not isinstance(columns, list | tuple):
            raise ValueError('must be "all", or a list of columns [VA204]')
        return columns

    @field_validator("approvers", mode="before")
    @classmethod
    def _people(cls, given: Any) -> Any:
        names = given if isinstance(given, list | tuple) else ()
        plain = all(isinstance(name, str) and name.strip() == name != "" and name.isprintable() for name in names)
        listed = plain and 2 <= len(names) == len({*map(str.casefold, names)})
        if not listed and (type(given) is not int or given not in (1, 2)):
            raise ValueError(
                "must be 1, 2, or a list of at least two names, each once, of whom two must say yes [VA820]"
            )
        return given

    @field_validator("schemas")
    @classmethod
    def _digests(cls, schemas: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if not all(re.fullmatch("[0-9a-f]{64}", digest) for digest in schemas or ()):
            raise ValueError(
                "must be a list of digests of 64 hexadecimal digits, as `colonnade schema digest` prints [VA205]"
            )
        return schemas

    @model_validator(mode="after")
    def _asked(self) -> PolicySection:
        if self.rule.needed > 1 and self.approval != "ask":
            raise ValueError(
                f'approvers asks for {self.rule}, and needs approval = "ask": a policy is no person [VA780]'
            )
        return self

    @property
    def rule(self) -> ApprovalRule:
        """Whose yes counts where people are asked."""
        return ApprovalRule(self.approvers) if isinstance(self.approvers, int) else ApprovalRule(2, self.approvers)


class KeyColumnSection(FileSection):
    """``[keys.NAME]``: this party's column for a key of studies, and the format of its dates."""

    column: str = Field(min_length=1)
    format: str | None = Field(default=None, min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _column_alone(cls, given: Any) -> Any:
        if not isinstance(given, str | dict):
            raise ValueError("must be the name of a column, or a section with column and format [VA206]")
        return {"column": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _readable(self) -> KeyColumnSection:
        try:
            KeyColumn(self.column, self.format)
        except DataError as error:
            raise ValueError(f"- {error} [VA207]") from None
        return self


class LogSection(FileSection):
    """``[agent.log]``: how the agent writes its log."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


class AgentSection(FileSection):
    """``[agent]``: the standing process of this party."""

    federation: PathText = "FEDERATION.toml"
    folder: PathText = "agent"
    console: ConsoleSection | Literal[False] = False
    retries: int = Field(default=2, ge=0, le=5, strict=True)
    studies_at_once: int = Field(default=1, ge=1, le=64, strict=True)
    memory: int | Literal[False] = 4 * 10**9
    hours: float = Field(default=12.0, gt=0, le=24 * 31)
    keep_days: float = Field(default=90.0, gt=0, le=36500)
    people: dict[str, ConsoleRole] = Field(default_factory=dict)
    scores: dict[str, Any] | None = None
    log: LogSection = Field(default_factory=LogSection)

    @field_validator("memory", mode="before")
    @classmethod
    def _bytes(cls, given: Any) -> Any:
        if given is False:
            return given
        if (size := parse_size(given)) is None:
            raise ValueError('must be a size such as "4 GB" or "800 MB", or false for no limit [VA208]')
        if size < _LEAST_MEMORY:
            raise ValueError("must be at least 500 MB: a study of any size needs so much [VA209]")
        return size


class QuerySection(FileSection):
    """``[data]``: a table that a database answers with. The address of a server is in an environment variable."""

    database: Database
    query: str = Field(min_length=1)
    uri_env: str | None = None
    file: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _no_secret(cls, given: Any) -> Any:
        # Before anything else, and without a word of what was written there.
        if isinstance(given, Mapping) and (secret := next((key for key in given if key in _SECRET), None)):
            raise ValueError(
                f"must not have {secret!r}: addresses and passwords of databases stand in no file. Put the whole "
                'address into an environment variable, and its name here: uri_env = "NAME" [VA210]'
            )
        return given

    @model_validator(mode="after")
    def _whole(self) -> QuerySection:
        try:
            if self.file is not None:
                check_path(self.file)
            self.query_in(Path())
        except DataError as error:
            raise ValueError(f"- {error} [VA211]") from None
        return self

    def query_in(self, folder: Path) -> Query:
        """The query, with the path of a file seen from a folder."""
        return Query(self.query, self.database, self.uri_env, self.file).relative_to(folder)


class EncoderSection(FileSection):
    """``[encoder]``: how the encoder is made, and what the party declares about it."""

    make: str | None = None
    weights: PathText | None = None
    shape: tuple[int, ...] | None = None
    made_without_this_table: bool = Field(strict=True)

    @field_validator("make")
    @classmethod
    def _function(cls, text: str | None) -> str | None:
        if text is not None and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
            raise ValueError('must name a function of an installed module, such as "mypackage.encoders:make" [VA192]')
        return text

    @model_validator(mode="after")
    def _whole(self) -> EncoderSection:
        if self.make is None and self.weights is None:
            raise ValueError("needs make, weights, or both [VA193]")
        if not self.made_without_this_table:
            raise ValueError(
                "- an encoder that was trained on the rows of this table tells about them, and nothing would be "
                "charged for it: bring one that was made without them, or let the study train it [VA194]"
            )
        return self

    def resolve(self, config: Path) -> dict[str, Any]:
        """The encoder as a model takes it, the path of its weights resolved."""
        weights = None if self.weights is None else config.parent / self.weights
        return {"make": self.make, "weights": weights, "shape": self.shape}


class PartyFile(FileSection):
    """The whole file."""

    name: str = Field(max_length=63)
    data: str | QuerySection
    misfits: InvalidValues = Field(default="map", exclude=True)
    separator: str | None = Field(default=None, exclude=True)
    encoding: str | None = Field(default=None, exclude=True)
    decimal: str | None = Field(default=None, exclude=True)
    thousands: str | None = Field(default=None, exclude=True)
    id: str | None = Field(default=None, min_length=1)
    keys: dict[str, KeyColumnSection] = Field(default_factory=dict)
    key: PathText
    ledger: PathText
    kept: PathText | None = None
    encoder: EncoderSection | None = Field(default=None, exclude=True)
    policy: PolicySection
    agent: AgentSection | None = Field(default=None, exclude=True)
    network: NetworkSection = Field(default_factory=NetworkSection, exclude=True)
    compute: ComputeSection = Field(default_factory=ComputeSection, exclude=True)

    @field_validator("data", mode="wrap")
    @classmethod
    def _lies(cls, given: Any, check: ValidatorFunctionWrapHandler) -> Any:
        if isinstance(given, Mapping):  # by itself, so that an error does not name both kinds
            return QuerySection.model_validate(given)
        if not isinstance(given, str) or not is_address(given):
            return check_path(given) if isinstance(given, str) else check(given)
        try:
            check_address(given)
        except DataError as error:
            raise ValueError(f"- {error} [VA212]") from None
        return given

    @field_validator("separator", "encoding", "decimal", "thousands")
    @classmethod
    def _text_format(cls, said: str | None, info: ValidationInfo) -> str | None:
        try:
            TextFormat(**{str(info.field_name): said})
        except SchemaError as error:
            raise ValueError(f"- {error} [VA213]") from None
        return said

    def table_source(self, folder: Path) -> str | Path | Query:
        """Where the table is, seen from the folder of the file: a path or a pattern, an address, or a query."""
        if isinstance(self.data, QuerySection):
            return self.data.query_in(folder)
        return self.data if is_address(self.data) else folder / self.data

    @property
    def text_format(self) -> TextFormat:
        """How the table's file is written, where the party says so."""
        return TextFormat(self.separator, self.encoding, self.decimal, self.thousands)
