"""``[encoder]`` of a party file: the encoder that this party brings to studies which leave it to the party."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from colonnade.study.keys import Part, checked_path


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
