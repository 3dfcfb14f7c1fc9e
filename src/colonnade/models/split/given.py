"""What a user says about encoders: one specification, module or encoder a party, checked before anything is planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colonnade.errors import StudyError
from colonnade.models.regression.design import Design
from colonnade.models.split.encoders import Encoder, encoder_from
from colonnade.tables.wording import listed

OWN = "own"
"""The kind of an encoder that its party brings itself; a study says nothing about it but its width."""
TRAINED_KINDS = ("linear", "mlp", "cnn", "module", OWN)
"""Kinds of encoders that have something to learn."""
_DRAWN = ("cosine", "convolution", "linear", "mlp", "cnn")


@dataclass(frozen=True)
class Given:
    """The encoder of one party, as everybody may know it: a specification, or an object of this process."""

    party: str
    columns: int
    spec: Mapping[str, Any]
    held: Any = None

    @property
    def kind(self) -> str:
        """The kind of the encoder."""
        return str(self.spec["kind"])

    @property
    def width(self) -> int:
        """How many numbers an embedding has."""
        return int(self.spec["width"])

    @property
    def supplied(self) -> bool:
        """Whether its party brings it, so that only the party can say how it was made."""
        return self.held is not None or self.kind == OWN

    @property
    def sentence(self) -> str:
        """What a privacy statement must suppose about it; empty where the code draws it itself."""
        if not self.supplied:
            return ""
        return f"{self.party} supplies an encoder that was made without this table, as it declares"

    def made(self, own: Any = None, seed: int | None = None) -> Encoder:
        """The encoder itself, at its party; ``own`` is what the party brings where the study leaves it to the party."""
        source = self.held if self.held is not None else own if self.kind == OWN else dict(self.spec)
        if source is None:
            raise StudyError(
                f"this study leaves the encoder of {self.party} to {self.party} itself, and none was given: add "
                f'[encoder] to the party.toml of {self.party}, or pass encoders={{"{self.party}": ...}}'
            )
        found = encoder_from(source, self.columns, seed=None if self.supplied else seed)
        if found.width != self.width:
            raise StudyError(
                f"the encoder of {self.party} gives embeddings of {found.width} numbers, and the study says {self.width}"
            )
        return found


def given(encoders: Mapping[str, Any] | None, design: Design, width: int) -> dict[str, Given]:
    """The encoder of every party that has a column besides the label; ``width`` is for those that name none."""
    named = {} if encoders is None else encoders
    if not isinstance(named, Mapping):
        raise StudyError(
            'encoders takes a mapping from parties to encoders, such as {"bank": {"kind": "cosine", "width": 64}}, '
            f"not {type(named).__name__}"
        )
    if strangers := [str(name) for name in named if name not in design.schemas]:
        raise StudyError(f"encoders names {listed(strangers)}; the parties are {listed(tuple(design.schemas))}")
    found = {}
    for party in design.schemas:
        columns = len(design.centred(party).feature_names)
        if columns:
            found[party] = one(party, named.get(party), columns, width)
        elif party in named:
            raise StudyError(f"{party} holds the label and no other column, so it has nothing to encode")
    return found


def one(party: str, said: Any, columns: int, width: int) -> Given:
    """The encoder of one party, as a user says it; ``width`` is used where nothing says how wide it is."""
    if said is None:
        said = {}
    if isinstance(said, Mapping):
        kind = "convolution" if "shape" in said else "cosine"
        spec = {"kind": kind, **said}
        if spec["kind"] == OWN and set(spec) - {"kind", "width"}:
            raise StudyError(f'of an encoder that {party} brings itself (kind = "own") a study says nothing but its width')
        if spec["kind"] not in (*_DRAWN, "module", OWN):
            kinds = listed((*_DRAWN, "module", OWN))
            raise StudyError(f"the encoder of {party} is of no kind that is known, {spec['kind']!r}; choose from {kinds}")
        spec.setdefault("width", width)
        return Given(party, columns, spec)
    encoder = encoder_from(said, columns, seed=None)
    return Given(party, columns, {"kind": encoder.kind, "width": encoder.width}, held=said)
