"""The sections of a party file, as they are written: each key with its type, its default and what it must fit."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from colonnade.errors import DataError, SchemaError
from colonnade.privacy.ledger.caps import MOST_DAYS
from colonnade.protocols.align import Mode
from colonnade.study.encoder import EncoderPart
from colonnade.study.keys import Part, checked_path
from colonnade.study.sections import BudgetPart
from colonnade.tables.encode import Misfits
from colonnade.tables.formats import TextFormat
from colonnade.tables.keys import KeyColumn

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
    align: tuple[Mode, ...] = ("dh",)
    hidden: bool = Field(default=False, strict=True)
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
            raise ValueError('must be "all", or a list of columns')
        return columns

    @field_validator("schemas")
    @classmethod
    def _digests(cls, schemas: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if not all(re.fullmatch("[0-9a-f]{64}", digest) for digest in schemas or ()):
            raise ValueError("must be a list of digests of 64 hexadecimal digits, as `colonnade schema digest` prints")
        return schemas


class KeyColumnPart(Part):
    """``[keys.NAME]``: this party's column for a key of studies, and the format of its dates."""

    column: str = Field(min_length=1)
    format: str | None = Field(default=None, min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _column_alone(cls, given: Any) -> Any:
        if not isinstance(given, str | dict):
            raise ValueError("must be the name of a column, or a section with column and format")
        return {"column": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _readable(self) -> KeyColumnPart:
        try:
            KeyColumn(self.column, self.format)
        except DataError as error:
            raise ValueError(f"- {error}") from None
        return self


class PartyFile(Part):
    """The whole file."""

    name: str = Field(max_length=63)
    data: str
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

    @field_validator("data", "key", "ledger", "kept")
    @classmethod
    def _path(cls, text: str | None) -> str | None:
        return None if text is None else checked_path(text)

    @field_validator("separator", "encoding", "decimal")
    @classmethod
    def _text_format(cls, said: str | None, info: ValidationInfo) -> str | None:
        try:
            TextFormat(**{str(info.field_name): said})
        except SchemaError as error:
            raise ValueError(f"- {error}") from None
        return said

    @property
    def written(self) -> TextFormat:
        """How the table's file is written, where the party says so."""
        return TextFormat(self.separator, self.encoding, self.decimal)
