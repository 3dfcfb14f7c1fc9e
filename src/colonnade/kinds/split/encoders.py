"""Encoders from what a study or a party says of them: a specification, a module, an encoder that is there, a file.

What a party keeps of a split model is such a file too: its encoder, and the head where it alone has one. What a user
says of parties' encoders is checked before anything is planned.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from colonnade.disk import reading
from colonnade.errors import StudyError
from colonnade.kinds.split.encoder_base import (
    CosineEncoder,
    CosineOptions,
    EdgeEncoder,
    EdgeOptions,
    Encoder,
    EncoderOptions,
    LinearEncoder,
    LinearOptions,
    Matrix,
    RowEncoder,
    TrainableEncoder,
    Training,
    image_shape,
    split_arrays,
    try_encoder,
    worse_training,
)
from colonnade.kinds.split.torch_encoders import (
    ConvolutionalNetwork,
    ConvolutionalOptions,
    NetworkEncoder,
    Perceptron,
    PerceptronOptions,
    set_weights,
)
from colonnade.models import serialization
from colonnade.models.design import LabelDesign
from colonnade.models.planner import check_whole
from colonnade.models.pytorch import load_torch
from colonnade.models.serialization import name_file_in_errors, packed, replace_private, unpack_arrays
from colonnade.randomness import new_key
from colonnade.tables.cell_parsing import itemise

if TYPE_CHECKING:
    from torch import nn


__all__ = [
    "KINDS",
    "Encoder",
    "Matrix",
    "RowEncoder",
    "TrainableEncoder",
    "encoder_from",
    "from_bytes",
    "load_encoder",
    "runs_code",
    "save_encoder",
    "to_bytes",
]

_BUILT: dict[str, tuple[Any, type[EncoderOptions]]] = {
    "cosine": (CosineEncoder, CosineOptions),
    "edges": (EdgeEncoder, EdgeOptions),
    "linear": (LinearEncoder, LinearOptions),
    "mlp": (Perceptron, PerceptronOptions),
    "cnn": (ConvolutionalNetwork, ConvolutionalOptions),
}
_MODULE = "module"
KINDS = (*_BUILT, _MODULE)
"""The kinds of encoders that a specification can name."""
_ABOUT = "encoder"
_ARRAY = "array."
_LONGEST = 1 << 16
_MOST_COLUMNS = 1 << 20


def encoder_from(
    spec: Mapping[str, Any] | nn.Module | Encoder, columns: int, *, seed: int | None = None, device: str = "auto"
) -> Encoder:
    """The encoder of a party whose rows have so many encoded columns.

    A specification is public: ``kind``, mostly ``width``, and options of the kind. What it leaves to chance is drawn
    from a fresh secret, unless a seed is given, which is then as public as the specification. A module is copied. It,
    and an encoder that is there, is tried on made-up rows: each embedding must be a function of its row alone. A
    specification of kind ``module`` names a function of the party's own, which is imported and called, so it may come
    from the party itself only (:func:`runs_code`).
    """
    if isinstance(spec, Encoder):
        if spec.columns != columns:
            raise StudyError(f"the encoder reads {spec.columns} encoded columns, but the table has {columns} [ST249]")
        try_encoder(spec.embed, columns, spec.width)
        return spec
    if not isinstance(spec, Mapping):
        return NetworkEncoder(columns, _module_of(spec), {}, None, device)
    options = dict(spec)
    kind = options.pop("kind", None)
    if kind == _MODULE:
        return _build_supplied(options, columns, device)
    if kind == LinearEncoder.kind and "over" in options:
        below, width = below_of(options)
        return LinearEncoder.over(encoder_from(below, columns, seed=seed, device=device), width)
    made, read = encoder_kind(kind)
    random = np.random.default_rng(int.from_bytes(new_key(), "little") if seed is None else seed)
    return _place(made.draw(columns, read.read(kind, options), random), device)


def runs_code(spec: Any) -> bool:
    """Whether making this encoder calls a function that the specification names; nobody else may choose that."""
    return isinstance(spec, Mapping) and (spec.get("kind") == _MODULE or runs_code(spec.get("over")))


def to_bytes(encoder: Encoder) -> bytes:
    """The encoder as the content of an npz file: what it is, as JSON, and its arrays; nothing in it is code."""
    said = {"kind": encoder.kind, "columns": encoder.columns, "options": encoder.options()}
    if encoder.learned != "none":
        said["learned"] = encoder.learned
    arrays = {f"{_ARRAY}{name}": value for name, value in encoder.arrays().items()}
    return packed({_ABOUT: np.array(json.dumps(said)), **arrays})


def from_bytes(
    data: bytes, module: nn.Module | Callable[[], nn.Module] | str | None = None, *, device: str = "auto"
) -> Encoder:
    """The encoder that a file holds. One of kind ``module`` needs the module again, or what makes it."""
    try:
        arrays = unpack_arrays(data)
        said = reading.parse_json(str(arrays.pop(_ABOUT)[()])[:_LONGEST])
        columns, spec = said["columns"], {"kind": said["kind"], **said["options"]}
        learned = said.get("learned", "none")
    except (ValueError, LookupError, TypeError, AttributeError, reading.MalformedFile):
        raise StudyError("this is no file of an encoder, or it is damaged [ST250]") from None
    if isinstance(columns, bool) or not isinstance(columns, int) or not 1 <= columns <= _MOST_COLUMNS:
        raise StudyError("the file of an encoder does not say how many columns it reads [ST251]")
    if learned not in get_args(Training):
        raise StudyError("the file of an encoder does not say how it was trained [ST252]")
    named = {name.removeprefix(_ARRAY): value for name, value in arrays.items()}
    found = _restore(spec, columns, named, module, device)
    found.learned = learned
    return found


def save_encoder(encoder: Encoder, path: str | Path) -> None:
    """Write an encoder to a file that other users of the machine cannot read."""
    replace_private(Path(path), to_bytes(encoder))


def load_encoder(
    path: str | Path, module: nn.Module | Callable[[], nn.Module] | str | None = None, *, device: str = "auto"
) -> Encoder:
    """The encoder in a file; see :func:`from_bytes`."""
    found = Path(path)
    try:
        content = reading.read_bytes(found, reading.MAX_LEARNED_BYTES)
    except reading.UnreadableFile as error:
        raise StudyError(f"{found} cannot be read: {error} [ST253]") from None
    with name_file_in_errors(found):
        return from_bytes(content, module, device=device)


def _restore(
    spec: Mapping[str, Any], columns: int, arrays: Mapping[str, NDArray[Any]], module: Any, device: str
) -> Encoder:
    options = dict(spec)
    kind = options.pop("kind", None)
    if kind == _MODULE:
        if module is None:
            raise StudyError(
                "the file holds weights of a module of its party: give the module, or what makes it [ST254]"
            )
        return _with_weights({**options, "make": module}, columns, arrays, device)
    if kind == LinearEncoder.kind and "over" in options:
        below, width = below_of(options)
        own, theirs = split_arrays(arrays)
        return LinearEncoder.over(_restore(below, columns, theirs, module, device), width, own)
    made, read = encoder_kind(kind)
    return _place(made.restore(columns, read.read(kind, options), arrays), device)


def below_of(options: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
    """The specification of the encoder of which a linear map is asked for, and the width of the map."""
    below, width = options["over"], LinearOptions.read(LinearEncoder.kind, {**options, "over": None}).width
    if not isinstance(below, Mapping) or "over" in below or width is None:
        raise StudyError(
            "a linear map over another encoder has a width, and that encoder's specification as 'over' [ST255]"
        )
    return below, width


def encoder_kind(kind: Any) -> tuple[Any, type[EncoderOptions]]:
    """What draws encoders of a kind, and what reads their options."""
    if not isinstance(kind, str) or kind not in _BUILT:
        raise StudyError(f"an encoder's kind is one of {', '.join(KINDS)} [ST256]")
    return _BUILT[kind]


def _place(encoder: Encoder, device: str) -> Encoder:
    return encoder.to(device) if isinstance(encoder, NetworkEncoder) else encoder


def _build_supplied(options: dict[str, Any], columns: int, device: str) -> Encoder:
    """An encoder whose module the party brings: ``make``, perhaps the file of its ``weights``, and a ``shape``."""
    weights = options.pop("weights", None)
    if weights is None:
        return _with_weights(options, columns, None, device)
    path = Path(weights)
    try:
        arrays = unpack_arrays(reading.read_bytes(path, reading.MAX_LEARNED_BYTES))
    except reading.UnreadableFile as error:
        raise StudyError(f"{path} cannot be read: {error} [ST257]") from None
    except ValueError:
        raise StudyError(f"{path} holds no weights: write them as npz, by their names in the module [ST258]") from None
    return _with_weights(options, columns, arrays, device)


def _with_weights(
    options: dict[str, Any], columns: int, weights: Mapping[str, NDArray[Any]] | None, device: str
) -> Encoder:
    if unknown := sorted(set(options) - {"make", "shape"}):
        raise StudyError(
            f"an encoder of kind 'module' has no option {str(unknown[0])!r}; it has make, weights and shape [ST259]"
        )
    made, shape = _module_of(options.get("make")), options.get("shape")
    whole = isinstance(shape, list | tuple) and len(shape) in (2, 3) and all(type(side) is int for side in shape)
    if shape is not None and not whole:
        raise StudyError("option 'shape' of an encoder must be 2 or 3 whole numbers [ST260]")
    if weights is not None:
        set_weights(made, weights)
    image = None if shape is None else image_shape(shape, columns)
    return NetworkEncoder(columns, made, {} if shape is None else {"shape": list(shape)}, image, device)


def _module_of(given: Any) -> nn.Module:
    """A copy of a module, or what a function makes; a function can be named as ``package.module:function``."""
    torch = load_torch()
    if isinstance(given, str):
        home, _, name = given.partition(":")
        try:
            given = getattr(import_module(home), name)
        except (ImportError, AttributeError, ValueError):
            raise StudyError(
                f"{given!r} cannot be imported: write package.module:function, and install the package here [ST261]"
            ) from None
    made: Any = given
    try:
        if isinstance(given, torch.nn.Module):
            made = copy.deepcopy(given)
        elif callable(given):
            made = given()
    except Exception as error:  # whatever the party's own code raises
        said = (str(error).splitlines() or [""])[0][:200]
        raise StudyError(f"the module of an encoder cannot be made: {type(error).__name__}: {said} [ST262]") from None
    if not isinstance(made, torch.nn.Module):
        raise StudyError(
            "an encoder is given as a specification with a kind, as an encoder, or as a torch module [ST263]"
        )
    module: nn.Module = made
    return module


PARTY_FILE_FORMAT = "colonnade kept encoder 1"
_ARCHIVE_ABOUT, _ENCODER, _OWN = "about", "encoder", "own."


@dataclass(frozen=True)
class PartyArchive:
    """One party's file: whose it is, of which model, whether private rows trained it, and what it holds."""

    party: str
    model: str
    training: Training
    encoder: Encoder | None
    own: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def party_file_content(kept: PartyArchive) -> bytes:
    """The content of the file."""
    about = {"format": PARTY_FILE_FORMAT, "party": kept.party, "model": kept.model, "training": kept.training}
    arrays: dict[str, NDArray[Any]] = {_ARCHIVE_ABOUT: np.array(json.dumps(about))}
    if kept.encoder is not None:
        arrays[_ENCODER] = np.frombuffer(to_bytes(kept.encoder), dtype=np.uint8)
    for name, array in kept.own.items():
        arrays[f"{_OWN}{name}"] = array
    return serialization.packed(arrays)


def write_party_file(path: Path, party: str, whole: bytes) -> Path:
    """Write it to a file that only its user can read; another party's file is not replaced."""
    if path.exists() and _about(_arrays(path)).get("party") != party:
        raise StudyError(
            f"{path} does not hold an encoder of {party}: choose another path, or delete it yourself [ST282]"
        )
    serialization.replace_private(path, whole)
    return path


def read_party_file(path: Path, model: str | None, module: Any = None) -> PartyArchive:
    """What a party kept; an error if it is not of the model with this digest, where one is given."""
    arrays = _arrays(path)
    about = _about(arrays)
    if about.get("format") != PARTY_FILE_FORMAT:
        raise StudyError(f"{path} does not hold a kept encoder; save_kept writes such a file [ST283]")
    if model is not None and about.get("model") != model:
        raise StudyError(
            f"{path} holds an encoder of another model or another fit of it; use the file of this one [ST284]"
        )
    with serialization.name_file_in_errors(path):
        party, training = str(about["party"]), about["training"]
        if training not in get_args(Training):
            raise ValueError("nobody knows how it was trained [VA070]")
        packed = arrays.pop(_ENCODER, None)
        encoder = None if packed is None else from_bytes(_bytes(packed), module)
        if encoder is not None:
            training = worse_training(encoder.learned, training)
            encoder.learned = training
        own = {name.removeprefix(_OWN): _finite(array) for name, array in arrays.items() if name.startswith(_OWN)}
    return PartyArchive(party, str(about["model"]), training, encoder, own)


def is_party_file(path: Path) -> bool:
    """Whether a file is one that a study left, and not the bare file of an encoder."""
    return _about(_arrays(path)).get("format") == PARTY_FILE_FORMAT


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return serialization.unpack_arrays(reading.read_bytes(path, reading.MAX_LEARNED_BYTES))
    except reading.UnreadableFile as error:
        raise StudyError(f"{path} cannot be read: {error} [ST285]") from None
    except ValueError:
        return {}


def _about(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    try:
        found = json.loads(str(arrays[_ARCHIVE_ABOUT]))
    except (KeyError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _bytes(packed: NDArray[Any]) -> bytes:
    if packed.dtype != np.uint8 or packed.ndim != 1:
        raise ValueError("an encoder is kept as bytes [VA071]")
    return packed.tobytes()


def _finite(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise ValueError("a head holds finite numbers [VA072]")
    return array


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
        return supposition_about(self.party) if self.supplied else ""

    def make(self, own: Any = None, seed: int | None = None) -> Encoder:
        """The encoder itself, at its party; ``own`` is what the party brings where the study leaves it to the party."""
        source = self.held if self.held is not None else own if self.kind == OWN else describe(self.spec)
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
            made = encoder_from(describe(spec), columns)
            return EncoderSpec(party, columns, {**spec, "kind": OWN}, made.width, held=made)
        if spec.get("width") is None:
            return EncoderSpec(party, columns, spec, encoder_from(describe(spec), columns, seed=0).width)
        return EncoderSpec(party, columns, spec, int(spec["width"]))
    encoder = refuse_learned(encoder_from(said, columns), f"the encoder of {party}")
    return EncoderSpec(party, columns, {"kind": encoder.kind}, encoder.width, held=encoder)


def describe(spec: Mapping[str, Any]) -> dict[str, Any]:
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
