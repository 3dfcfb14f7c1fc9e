"""The sections of a party file, as they are written: each key with its type, its default and what it must fit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, ValidatorFunctionWrapHandler, field_validator, model_validator

from colonnade.errors import DataError, SchemaError
from colonnade.privacy.ledger.caps import MOST_DAYS
from colonnade.protocols.align import Mode
from colonnade.study.compute import ComputePart, size_of
from colonnade.study.console_part import ConsolePart, Role
from colonnade.study.keys import Part, checked_path
from colonnade.study.network import NetworkPart
from colonnade.study.sections import BudgetPart
from colonnade.tables.encode import Misfits
from colonnade.tables.formats import TextFormat
from colonnade.tables.keys import KeyColumn
from colonnade.tables.sources.query import Database, Query
from colonnade.tables.sources.stores import check_address, is_address

_LEAST_MEMORY = 5 * 10**8
_SECRET = ("uri", "url", "dsn", "password", "user", "token", "secret")

Approval = Literal["ask", "auto-within-budget", "never"]


class CapPart(BudgetPart):
    """``[policy.budget]``: the most that observers may ever learn about this party's people."""


class PeriodPart(CapPart):
    """``[[policy.periods]]``: the most that observers may learn from studies that are reserved within these days."""

    days: float = Field(gt=0, le=MOST_DAYS, strict=True)


class FailuresPart(Part):
    """``[policy.failures]``: how many studies may end early within so many days, before this party takes no more part.

    That a study ended early, and when, is visible to everybody, and no epsilon bounds what it tells.
    """

    at_most: int = Field(default=20, ge=1, strict=True)
    days: float = Field(default=30, gt=0, le=MOST_DAYS, strict=True)


class PolicyPart(Part):
    """``[policy]``: which studies this party takes part in."""

    approval: Approval = "ask"
    tasks: tuple[str, ...]
    columns: tuple[str, ...] | Literal["all"]
    exact: tuple[str, ...] = ()
    align: tuple[Mode, ...] = ("ot", "dh")
    hidden: bool = Field(default=False, strict=True)
    security: Literal["active"] | None = Field(default=None, exclude=True)
    trial: bool = Field(default=False, strict=True, exclude=True)
    again: bool | None = Field(default=None, strict=True, exclude=True)
    schemas: tuple[str, ...] | None = Field(default=None, exclude=True)
    budget: CapPart
    periods: tuple[PeriodPart, ...] = ()
    failures: FailuresPart = Field(default_factory=FailuresPart, exclude=True)

    @field_validator("columns", mode="before")
    @classmethod
    def _listed(cls, columns: Any) -> Any:
        if columns != "all" and not isinstance(columns, list | tuple):
            raise ValueError('must be "all", or a list of columns [VA204]')
        return columns

    @field_validator("schemas")
    @classmethod
    def _digests(cls, schemas: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if not all(re.fullmatch("[0-9a-f]{64}", digest) for digest in schemas or ()):
            raise ValueError(
                "must be a list of digests of 64 hexadecimal digits, as `colonnade schema digest` prints [VA205]"
            )
        return schemas


class KeyColumnPart(Part):
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
    def _readable(self) -> KeyColumnPart:
        try:
            KeyColumn(self.column, self.format)
        except DataError as error:
            raise ValueError(f"- {error} [VA207]") from None
        return self


class LogPart(Part):
    """``[agent.log]``: how the agent writes its log."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


class AgentPart(Part):
    """``[agent]``: the standing process of this party."""

    federation: str = "FEDERATION.toml"
    folder: str = "agent"
    console: ConsolePart | Literal[False] = False
    retries: int = Field(default=2, ge=0, le=5, strict=True)
    studies_at_once: int = Field(default=1, ge=1, le=64, strict=True)
    memory: int | Literal[False] = 4 * 10**9
    hours: float = Field(default=12.0, gt=0, le=24 * 31)
    keep_days: float = Field(default=90.0, gt=0, le=36500)
    people: dict[str, Role] = Field(default_factory=dict)
    scores: dict[str, Any] | None = None
    log: LogPart = Field(default_factory=LogPart)

    @field_validator("federation", "folder")
    @classmethod
    def _path(cls, text: str) -> str:
        return checked_path(text)

    @field_validator("memory", mode="before")
    @classmethod
    def _bytes(cls, given: Any) -> Any:
        if given is False:
            return given
        if (size := size_of(given)) is None:
            raise ValueError('must be a size such as "4 GB" or "800 MB", or false for no limit [VA208]')
        if size < _LEAST_MEMORY:
            raise ValueError("must be at least 500 MB: a study of any size needs so much [VA209]")
        return size


class QueryPart(Part):
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
    def _whole(self) -> QueryPart:
        try:
            if self.file is not None:
                checked_path(self.file)
            self.asked(Path())
        except DataError as error:
            raise ValueError(f"- {error} [VA211]") from None
        return self

    def asked(self, folder: Path) -> Query:
        """The query, with the path of a file seen from a folder."""
        return Query(self.query, self.database, self.uri_env, self.file).beside(folder)


class EncoderPart(Part):
    """``[encoder]``: how the encoder is made, and what the party declares about it."""

    make: str | None = None
    weights: str | None = None
    shape: tuple[int, ...] | None = None
    made_without_this_table: bool = Field(strict=True)

    @field_validator("make")
    @classmethod
    def _function(cls, text: str | None) -> str | None:
        if text is not None and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
            raise ValueError('must name a function of an installed module, such as "mypackage.encoders:make" [VA192]')
        return text

    @field_validator("weights")
    @classmethod
    def _path(cls, text: str | None) -> str | None:
        return None if text is None else checked_path(text)

    @model_validator(mode="after")
    def _whole(self) -> EncoderPart:
        if self.make is None and self.weights is None:
            raise ValueError("needs make, weights, or both [VA193]")
        if not self.made_without_this_table:
            raise ValueError(
                "- an encoder that was trained on the rows of this table tells about them, and nothing would be "
                "charged for it: bring one that was made without them, or let the study train it [VA194]"
            )
        return self

    def found(self, config: Path) -> dict[str, Any]:
        """The encoder as a model takes it, the path of its weights resolved."""
        weights = None if self.weights is None else config.parent / self.weights
        return {"make": self.make, "weights": weights, "shape": self.shape}


class PartyFile(Part):
    """The whole file."""

    name: str = Field(max_length=63)
    data: str | QueryPart
    misfits: Misfits = Field(default="map", exclude=True)
    separator: str | None = Field(default=None, exclude=True)
    encoding: str | None = Field(default=None, exclude=True)
    decimal: str | None = Field(default=None, exclude=True)
    id: str | None = Field(default=None, min_length=1)
    keys: dict[str, KeyColumnPart] = Field(default_factory=dict)
    key: str
    ledger: str
    kept: str | None = None
    encoder: EncoderPart | None = Field(default=None, exclude=True)
    policy: PolicyPart
    agent: AgentPart | None = Field(default=None, exclude=True)
    network: NetworkPart = Field(default_factory=NetworkPart, exclude=True)
    compute: ComputePart = Field(default_factory=ComputePart, exclude=True)

    @field_validator("key", "ledger", "kept")
    @classmethod
    def _path(cls, text: str | None) -> str | None:
        return None if text is None else checked_path(text)

    @field_validator("data", mode="wrap")
    @classmethod
    def _lies(cls, given: Any, check: ValidatorFunctionWrapHandler) -> Any:
        if isinstance(given, Mapping):  # by itself, so that an error does not name both kinds
            return QueryPart.model_validate(given)
        if not isinstance(given, str) or not is_address(given):
            return checked_path(given) if isinstance(given, str) else check(given)
        try:
            check_address(given)
        except DataError as error:
            raise ValueError(f"- {error} [VA212]") from None
        return given

    @field_validator("separator", "encoding", "decimal")
    @classmethod
    def _text_format(cls, said: str | None, info: ValidationInfo) -> str | None:
        try:
            TextFormat(**{str(info.field_name): said})
        except SchemaError as error:
            raise ValueError(f"- {error} [VA213]") from None
        return said

    def lies(self, folder: Path) -> str | Path | Query:
        """Where the table is, seen from the folder of the file: a path or a pattern, an address, or a query."""
        if isinstance(self.data, QueryPart):
            return self.data.asked(folder)
        return self.data if is_address(self.data) else folder / self.data

    @property
    def written(self) -> TextFormat:
        """How the table's file is written, where the party says so."""
        return TextFormat(self.separator, self.encoding, self.decimal)
