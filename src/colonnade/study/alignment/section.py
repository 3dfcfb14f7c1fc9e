"""``[align]`` of a study file: the keys by which people are matched, and who may learn what from that."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator, model_validator

from colonnade.privacy import Trust
from colonnade.protocols.align import Aligning, Mode
from colonnade.protocols.lanes.partitions import filled_length
from colonnade.study.keys import Part
from colonnade.tables.keys import Duplicates, Key, Kind
from colonnade.tables.normal import Accents, Blanks, Case, Form

_LONGEST_NAME = 80


class KeyPart(Part):
    """``[align.keys.NAME]``: how every party writes the cells of one key before they are compared."""

    kind: Kind = "text"
    case: Case = "keep"
    blanks: Blanks = "trim"
    unicode: Form = "NFC"
    accents: Accents = "keep"


class AlignPart(Part):
    """``[align]``: find the people that all parties hold, before anything is computed about them."""

    on: tuple[str, ...]
    mode: Mode = "dh"
    hidden: bool = Field(default=False, strict=True)
    duplicates: Duplicates = "refuse"
    at_least: int = Field(default=1, ge=1, strict=True)
    similarity: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    pad_to: int | None = Field(default=None, ge=1, strict=True)
    reuse: bool = Field(default=True, strict=True)
    keys: dict[str, KeyPart] = Field(default_factory=dict)

    @field_validator("on", mode="before")
    @classmethod
    def _listed(cls, on: Any) -> Any:
        if not isinstance(on, str | list | tuple):
            raise ValueError('must be the name of a key, or a list of names such as ["name", "birth"] [VA166]')
        return (on,) if isinstance(on, str) else on

    @field_validator("on")
    @classmethod
    def _names(cls, on: tuple[str, ...]) -> tuple[str, ...]:
        if not on:
            raise ValueError('must name at least one key, such as on = ["person_id"] [VA167]')
        for name in on:
            if not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
                raise ValueError(f"must hold names of 1 to {_LONGEST_NAME} printable characters [VA168]")
        if repeated := sorted({name for name in on if on.count(name) > 1}):
            raise ValueError(f"names {', '.join(repeated)} more than once [VA169]")
        return on

    @model_validator(mode="after")
    def _sensible(self) -> AlignPart:
        if strangers := sorted(set(self.keys) - set(self.on)):
            raise ValueError(
                f"has keys.{strangers[0]}, and on does not name {strangers[0]}: add it there or delete it [VA170]"
            )
        if self.hidden and self.mode == "fuzzy":
            raise ValueError(
                'cannot have hidden = true with mode = "fuzzy": linkage by similarity needs somebody who '
                "sees the pairs [VA171]"
            )
        if self.hidden and self.at_least != 1:
            raise ValueError("cannot have at_least with hidden = true, which tells nobody whether people match [VA172]")
        if self.similarity is not None and self.mode != "fuzzy":
            raise ValueError('has similarity, which only mode = "fuzzy" uses: the other modes compare exactly [VA173]')
        if self.pad_to is not None and self.mode == "fuzzy":
            raise ValueError(
                'has pad_to, which mode = "fuzzy" cannot use: made-up people would look unlike real ones [VA174]'
            )
        if self.pad_to is not None and self.at_least > self.pad_to:
            raise ValueError("has an at_least above pad_to, so too few people would always be common: lower it [VA175]")
        return self

    @property
    def used_again(self) -> bool:
        """Whether the alignment is kept for later studies; never where members are hidden.

        That an earlier one can be used tells every owner that no set of keys has changed, its members' or not, which
        the figure of an owner after a hidden alignment promises not to tell.
        """
        return self.reuse and not self.hidden

    def check_parties(self, parties: int) -> None:
        """Raise an error if the mode does not work with this number of parties."""
        if self.mode == "fuzzy" and parties != 2:
            raise ValueError(
                f'align.mode = "fuzzy" links two parties, and this study has {parties}: use ot, dh or helper [VA176]'
            )

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

    def aligning(self, trust: Trust, partitions: int = 1) -> Aligning:
        """The public task that follows, for the parties of a study."""
        written = {name: self.keys.get(name, KeyPart()) for name in self.on}
        keys = tuple(Key(name, **part.model_dump()) for name, part in written.items())
        settings = self.model_dump(exclude={"on", "keys", "reuse"}, exclude_none=True)
        return Aligning(trust, keys, partitions=partitions, **settings)
