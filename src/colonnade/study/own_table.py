"""What a party's own file says of its table: where it is, how it is written, and which columns name people."""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from colonnade.errors import DataError, SchemaError
from colonnade.study.keys import Part, checked_path
from colonnade.tables.encode import Misfits
from colonnade.tables.formats import TextFormat
from colonnade.tables.keys import KeyColumn


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


class OwnTable(Part):
    """The keys of a party's file that are about its table."""

    data: str
    misfits: Misfits = Field(default="map", exclude=True)
    separator: str | None = Field(default=None, exclude=True)
    encoding: str | None = Field(default=None, exclude=True)
    decimal: str | None = Field(default=None, exclude=True)
    id: str | None = Field(default=None, min_length=1)
    keys: dict[str, KeyColumnPart] = Field(default_factory=dict)

    @field_validator("data")
    @classmethod
    def _data_path(cls, text: str) -> str:
        return checked_path(text)

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
