"""Parameters as users give them, checked before anything is planned: encoders of parties, and constants of algorithms.

Few people need others than the default constants, so they stand in one mapping. Those of told embeddings are how the
charge is divided and what encoders learn towards; those of the published algorithm are the paper's. None of them adds
to what is told without being in the plan, from which prices follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from colonnade.errors import StudyError
from colonnade.kinds.split.encoders import KINDS, Encoder, TrainableEncoder, encoder_from, runs_code
from colonnade.models.design import LabelDesign
from colonnade.models.parameters import check_whole
from colonnade.tables.wording import itemise

ConstantReader = Callable[[str, Any], Any]


def _number(name: str, value: Any) -> float:
    """A finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise StudyError(f"constants: {name} must be a finite number, not negative [ST241]")
    return float(value)


def _part(name: str, value: Any) -> Fraction:
    return Fraction(_number(name, value)).limit_denominator(1 << 20)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise StudyError(f"constants: {name} must be true or false [ST242]")
    return value


def _rule(name: str, value: Any) -> str:
    if value not in ("sgd", "adam"):
        raise StudyError(f"constants: {name} must be one of sgd, adam [ST243]")
    return str(value)


def _delta(name: str, value: Any) -> float:
    if not 0 < _number(name, value) < 1:
        raise StudyError(f"constants: {name} must lie between 0 and 1, both excluded [ST244]")
    return float(value)


CONSTANTS: dict[str, dict[str, ConstantReader]] = {
    "embeddings": {
        "stage": _flag,
        "first_share": _part,
        "share": _part,
        "gradient_clip": _number,
        "margin": _number,
        "contrast": _number,
        "stretch": _number,
    },
    "published": {
        "delta": _delta,
        "alpha": _number,
        "beta": _number,
        "confidence": _number,
        "apart": _flag,
        "rule": _rule,
    },
}
"""The constants of each head that has any, with how each is read."""


def read_constants(given: Mapping[str, Any] | None, head: str) -> dict[str, Any]:
    """The constants that a user gives for the task of a head, checked one by one."""
    if given is None:
        return {}
    known = CONSTANTS[head]
    if not isinstance(given, Mapping):
        raise StudyError(f"constants takes a mapping of some of {', '.join(known)}, not {type(given).__name__} [ST245]")
    if unknown := sorted(str(name) for name in set(given) - set(known)):
        raise StudyError(f'constants of head = "{head}" has no {unknown[0]!r}; it has {", ".join(known)} [ST246]')
    return {name: known[name](name, value) for name, value in given.items()}


OWN = "own"
"""The kind of an encoder that its party brings itself; a study says nothing about it but its width."""
_FEATURES = 200  # frozen ones, below a map that learns
CLIP = 1.0
"""The largest norm of an embedding, where nobody names one."""
USAGE_KEYS = ("clip", "seed")
"""Keys of a specification that are about how an encoder is used, not about what it is."""


@dataclass(frozen=True)
class EncoderSpec:
    """The encoder of one party, as everybody may know it: a specification, or an object of this process."""

    party: str
    columns: int
    spec: Mapping[str, Any]
    width: int
    """How many numbers an embedding has."""
    held: Any = None

    @property
    def kind(self) -> str:
        """The kind of the encoder."""
        return str(self.spec["kind"])

    @property
    def clip(self) -> float:
        """The largest norm of an embedding; longer ones are scaled down."""
        return float(self.spec.get("clip", CLIP))

    @property
    def supplied(self) -> bool:
        """Whether its party brings it, so that only the party can say how it was made."""
        return self.held is not None or self.kind == OWN

    @property
    def supposition(self) -> str:
        """What a privacy statement must suppose about it; empty where the code makes it itself."""
        if not self.supplied:
            return ""
        return supposition_about(self.party)

    def make(self, own: Any = None, seed: int | None = None) -> Encoder:
        """The encoder itself, at its party; ``own`` is what the party brings where the study leaves it to the party."""
        source = self.held if self.held is not None else own if self.kind == OWN else _describe(self.spec)
        if source is None:
            raise missing_encoder_error(self.party)
        found = encoder_from(source, self.columns, seed=self.spec.get("seed", seed))
        if found.width != self.width:
            raise StudyError(
                f"the encoder of {self.party} gives embeddings of {found.width} numbers, not of "
                f"{self.width} as planned [ST269]"
            )
        return found


def supposition_about(party: str) -> str:
    """What everything that is made with a supplied encoder rests on."""
    return f"{party} supplies an encoder that was made without this table and treats each row by itself, as it declares"


def refuse_learned(encoder: Encoder, what: str) -> Encoder:
    """This encoder, unless an earlier study trained it.

    It tells of the rows that trained it whoever sees what is made with it, and the earlier study charged nobody for
    that, or those who saw *its* result.
    """
    if encoder.learned != "none":
        raise StudyError(
            f"{what} is one that an earlier study trained on private rows, and no event of this study would say so: "
            "bring an encoder that was made without the table, or train it in this study [ST270]"
        )
    return encoder


def missing_encoder_error(party: str) -> StudyError:
    """The error where a study leaves an encoder to its party, and the party brings none."""
    return StudyError(
        f"this study leaves the encoder of {party} to {party} itself, and none was given: add [encoder] to its "
        f'party.toml, or pass encoders={{"{party}": ...}} [ST271]'
    )


SpecCompleter = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""Adds to what was said of a party's encoder what was left out."""


def read_encoders(
    encoders: Mapping[str, Any] | None, design: LabelDesign, complete: SpecCompleter
) -> dict[str, EncoderSpec]:
    """The encoder of every party that has a column besides the label."""
    named = {} if encoders is None else encoders
    if not isinstance(named, Mapping):
        raise StudyError(
            'encoders takes a mapping from parties to encoders, such as {"bank": {"kind": "cosine", "width": 64}}, '
            f"not {type(named).__name__} [ST272]"
        )
    if strangers := [str(name) for name in named if name not in design.schemas]:
        raise StudyError(
            f"encoders names {itemise(strangers)}; the parties are {itemise(tuple(design.schemas))} [ST273]"
        )
    found = {}
    for party in design.schemas:
        columns = len(design.centred_columns(party).feature_names)
        if columns:
            found[party] = read_encoder(party, named.get(party), columns, complete)
        elif party in named:
            raise StudyError(f"{party} holds the label and no other column, so it has nothing to encode [ST274]")
    return found


def read_encoder(party: str, said: Any, columns: int, complete: SpecCompleter) -> EncoderSpec:
    """The encoder of one party, as a user says it."""
    if said is None:
        said = {}
    if isinstance(said, Mapping):
        spec = complete(party, said)
        if spec["kind"] == OWN and set(spec) - {"kind", "width", "parameters", *USAGE_KEYS}:
            raise StudyError(
                f'of an encoder that {party} brings itself (kind = "own") a study says nothing but its width, its clip '
                "and how many parameters it learns [ST275]"
            )
        if spec["kind"] not in (*KINDS, OWN):
            raise StudyError(
                f"the encoder of {party} is of no kind that is known, {spec['kind']!r:.40}; choose from "
                f"{itemise((*KINDS, OWN))} [ST276]"
            )
        _check_usage(party, spec)
        if runs_code(spec):
            made = encoder_from(_describe(spec), columns)
            return EncoderSpec(party, columns, {**spec, "kind": OWN}, made.width, held=made)
        if spec.get("width") is None:
            return EncoderSpec(party, columns, spec, encoder_from(_describe(spec), columns, seed=0).width)
        return EncoderSpec(party, columns, spec, int(spec["width"]))
    encoder = refuse_learned(encoder_from(said, columns), f"the encoder of {party}")
    return EncoderSpec(party, columns, {"kind": encoder.kind}, encoder.width, held=encoder)


def _describe(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What an encoder is made from."""
    return {key: value for key, value in spec.items() if key not in USAGE_KEYS and value is not None}


def _check_usage(party: str, spec: Mapping[str, Any]) -> None:
    """Refuse what is wrong about a specification whatever its kind; the kind checks its own options."""
    if spec.get("width") is not None or spec["kind"] == OWN:
        check_whole(f"the width of the encoder of {party}", spec.get("width"), 1, 2**16)
    clip, seed = spec.get("clip", CLIP), spec.get("seed", 0)
    if isinstance(clip, bool) or not isinstance(clip, int | float) or not 0 < clip < math.inf:
        raise StudyError(f"the clip of the encoder of {party} must be a finite number above 0 [ST277]")
    check_whole(f"the seed of the encoder of {party}", seed, 0, 2**63)


def refuse_code(said: Any) -> None:
    """Refuse a study file that names a function of somebody else's machine."""
    if isinstance(said, Mapping) and any(runs_code(spec) for spec in said.values()):
        raise ValueError(
            '- a study cannot name code of a party: write kind = "own" and its width, and let the party name the '
            "function under [encoder] in its party.toml [VA066]"
        )


def linear_over(said: Mapping[str, Any], width: int) -> dict[str, Any]:
    """A linear map of frozen features of rows or of an image, which few noisy updates can teach."""
    rest = {key: value for key, value in said.items() if key != "shape"}
    over = {"kind": "edges", "shape": said["shape"]} if "shape" in said else {"kind": "cosine", "width": _FEATURES}
    return {"kind": "linear", "width": width, "over": over, **rest}


def count_parameters(given: EncoderSpec) -> int:
    """How many parameters an encoder learns."""
    if given.kind == OWN and given.held is None:
        if not isinstance(count := given.spec.get("parameters"), int) or count < 1:
            raise StudyError(
                f"training needs to know how many parameters the encoder of {given.party} learns: "
                "add parameters [ST278]"
            )
        return count
    made = given.make(seed=0)
    if not isinstance(made, TrainableEncoder):
        raise StudyError(
            f"an encoder of kind {made.kind!r} has nothing to learn: choose linear, mlp, cnn or a module for "
            f'{given.party}, or training = "none" [ST279]'
        )
    return made.parameters
