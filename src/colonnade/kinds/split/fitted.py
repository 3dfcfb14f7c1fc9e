"""A fitted split model: what everybody has of it, what parties keep, and predictions."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from colonnade.drawing.canvas import Picture
from colonnade.errors import DataError, StudyError
from colonnade.kinds.split import alone, choice, given, kept as split_kept
from colonnade.kinds.split.contract import worse
from colonnade.kinds.split.encoders import Encoder, runs_code
from colonnade.kinds.split.ways import Learned
from colonnade.models import serialization
from colonnade.models.classifier_mixin import PredictionMixin
from colonnade.models.design import LabelDesign, without_label
from colonnade.models.federation import Federation
from colonnade.models.new_rows import Matrix, People, ReadingOptions, table_of
from colonnade.models.serialization import read_array, read_facts, read_size, read_text, read_texts
from colonnade.protocols.task import Task
from colonnade.tables import Column, Schema, Table
from colonnade.tables.centring import ColumnCentring


class FittedSplit(PredictionMixin[Task, Learned]):
    """A head over embeddings, and of the encoders those that are in this process."""

    keeps = "encoder"
    kept_file = "kept.npz"
    saved: ClassVar = {"feature_names_in": read_texts, "head": read_text, "noise_std": read_size, "plan": read_facts}

    label: str | None
    epsilon: float | Mapping[str, float] | None
    delta: float
    head: str
    encoders: Mapping[str, Any] | None
    width: int | None
    rows: int | None
    rows_at_most: int
    solver: str = "auto"
    training: str = "none"
    epochs: int | None = None
    batches: int | None = None
    learning_rate: float | None = None
    label_epsilon: float | None = None
    per_release: float | None = None
    unprotected: bool = False
    rescale: bool = True
    adjust: bool = True
    constants: Mapping[str, Any] | None = None
    head_module: Any = None
    watch: Any = None
    """Of a simulation as published: called with what parties tell each other."""

    head_: str
    noise_std_: float
    plan_: dict[str, Any]
    encoders_: dict[str, Encoder]
    public_: dict[str, NDArray[Any]]
    own_: dict[str, dict[str, NDArray[Any]]]
    _own: dict[str, Any]

    @abstractmethod
    def check_label(self, declared: Column) -> None:
        """Raise an error if the label's column is of the wrong kind."""

    def design(self, schemas: Mapping[str, Schema], label: str | None = None) -> LabelDesign:
        """The columns, and who holds the label."""
        found = LabelDesign.of(schemas, self.label if label is None else label)
        self.check_label(found.declared)
        return found

    @property
    def design_(self) -> LabelDesign:
        """The columns that the model was fitted with."""
        return self.design(self.schemas_, self.label_)

    @property
    def label_(self) -> str | None:
        """The label that the model was fitted with."""
        found: str | None = self.parameters_["label"]
        return found

    def centred(self, party: str, table: Table) -> ColumnCentring:
        """How a party's columns are centred, with the label last where it is the party's."""
        column = str(self.label).removeprefix(f"{party}.")
        return ColumnCentring(table.schema, column if column in table.schema.columns and column != self.label else None)

    # --- the fitted model

    def finish(self, result: Learned) -> None:
        """Set what everybody has, and what of encoders and heads this process has."""
        self.feature_names_in_ = self.design_.features
        self.plan_ = dict(result.facts)
        self.public_, self.encoders_ = dict(result.public), dict(result.encoders)
        self.own_ = {party: dict(arrays) for party, arrays in result.own.items() if arrays}
        training = choice.named(self.head_).trained(self)
        for encoder in self.encoders_.values():
            if training != "none":  # then they moved, and each is a copy of what was supplied
                encoder.learned = worse(encoder.learned, training)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The part of the head that everybody has."""
        return dict(self.public_)

    def restore(self, learned: dict[str, Any]) -> None:
        """Set what everybody has; encoders are in the files that their parties keep."""
        super().restore(learned)
        self.public_ = {name: read_array(array) for name, array in learned.get("arrays", {}).items()}
        self.encoders_, self.own_ = {}, {}

    def check_restored(self) -> None:
        """Raise an error unless what was read from a file belongs together."""
        if self.head_ not in choice.WAYS or self.feature_names_in_ != self.design_.features:
            raise ValueError("the model and its columns do not belong together [VA062]")
        choice.named(self.head_).check_restored(self)

    def plain_parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters for a file: of an encoder that was passed as an object, its width alone."""
        said, plain = given["encoders"], dict(given) | ({"head_module": None} if "head_module" in given else {})
        if said is None:
            return plain
        design = self.design(self.schemas_, given["label"]) if hasattr(self, "schemas_") else None
        return plain | {"encoders": {party: _plain(party, each, design) for party, each in said.items()}}

    @property
    def digest(self) -> str:
        """SHA-256 of everything public about the fit; files of kept encoders hold it too."""
        schemas = {name: schema.digest for name, schema in self.schemas_.items()}
        arrays = {
            name: hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest() for name, a in self.public_.items()
        }
        public = [schemas, self.label_, self.head_, self.plan_, arrays]
        return hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest()

    @property
    def has_public_weights(self) -> bool:
        """Never: whoever has the head alone can predict nothing without the encoders."""
        return False

    # --- what a party keeps

    def kept_content(self) -> bytes:
        """This party's own encoder, and its head if it alone has one, as the content of a file."""
        (party,) = self.holders
        return self._kept_of(party)

    def save_kept(self, path: str | Path, party: str | None = None) -> Path:
        """Write one party's encoder, and its head if it alone has one, to a file that only this user can read."""
        self._check_fitted()
        held = self.holders
        if party is None and len(held) == 1:
            party = held[0]
        if party not in held:
            raise StudyError(
                "name the party whose encoder to write, one of those in this process: "
                f"{', '.join(held) or 'nobody'} [ST266]"
            )
        return split_kept.write(Path(path), party, self._kept_of(party))

    def load_kept(self, path: str | Path, module: Any = None) -> str:
        """Read what :meth:`save_kept` wrote, and return whose it is.

        Of an encoder that is a module of its party's own the file holds the weights alone: ``module`` is the module, or
        the function that makes it.
        """
        self._check_fitted()
        found = split_kept.read(Path(path), self.digest, module)
        with serialization.name_file_in_errors(Path(path)):
            self._check_party(found.party)
            self._check_kept(found)
        if found.encoder is not None:
            self.encoders_[found.party] = found.encoder
        if found.own:
            self.own_[found.party] = dict(found.own)
        return found.party

    def _check_kept(self, found: split_kept.Kept) -> None:
        """Raise an error unless an encoder, and what its party keeps besides, fit this model."""
        columns = len(self.design_.centred_columns(found.party).feature_names)
        if (found.encoder is None) != (columns == 0):
            raise ValueError("a party with columns keeps an encoder [VA063]")
        if found.encoder is not None:
            width = self.plan_["widths"].get(found.party, found.encoder.width)
            if (found.encoder.columns, found.encoder.width) != (columns, width):
                raise StudyError(f"it is damaged: its encoder does not belong to the columns of {found.party} [ST267]")
        choice.named(self.head_).check_kept(self, found.party, found.own, found.encoder)

    @property
    def holders(self) -> tuple[str, ...]:
        """The parties of whose encoders, or heads, this process has one."""
        return tuple(party for party in self.schemas_ if party in self.encoders_ or party in self.own_)

    def _kept_of(self, party: str) -> bytes:
        training, own = choice.named(self.head_).trained(self), self.own_.get(party, {})
        if (encoder := self.encoders_.get(party)) is not None:
            training = worse(encoder.learned, training)
        return split_kept.content(split_kept.Kept(party, self.digest, training, encoder, own))

    # --- predictions

    def scores(self, X: People, **given: Unpack[ReadingOptions]) -> Matrix:
        """The scores, (rows, outputs); all parties' encoders must be in this process."""
        people = self.people(X, **given)
        wanted = [party for party in self.schemas_ if self.feature_schema(party) is not None]
        return choice.named(self.head_).scores(self, {party: self.embedded(party, people[party]) for party in wanted})

    def embedded(self, party: str, source: Any) -> Matrix:
        """One party's embeddings as the head takes them; the party's encoder must be in this process."""
        self._check_fitted()
        self._check_party(party)
        raw = self.own_encoder(party).embed(self.encoded_rows(party, source))
        return choice.named(self.head_).prepared(self, party, raw)

    def own_encoder(self, party: str) -> Encoder:
        """The encoder that a party kept, where this process has it."""
        if party not in self.encoders_:
            raise StudyError(
                f"the encoder that {party} kept is not in this process: load_kept reads it from "
                f"{party}'s own file [ST268]"
            )
        return self.encoders_[party]

    def encoded_rows(self, party: str, source: Any) -> Matrix:
        """A party's rows as its encoder reads them: encoded, without the label, around public middles."""
        if (schema := self.feature_schema(party)) is None:
            raise DataError(f"{party} holds the label and no other column, so it has no embeddings [DA087]")
        return ColumnCentring(schema).centre_features(table_of(source, schema)).matrix()

    def score_alone(self, train: People, test: People) -> float:
        """The score that the party with the label reaches on its own columns alone, for comparison.

        Its own encoder and the same solver, without noise: what it knows already needs no protection against itself.
        """
        self._check_fitted()
        active = self.design_.owner
        own: list[Table] = []
        for X in (train, test):
            tables = X.tables() if isinstance(X, Federation) else X
            if not isinstance(tables, Mapping) or active not in tables:
                raise DataError(
                    f"a comparison with {active} alone needs two tables of {active}: to learn and to test [DA088]"
                )
            own.append(table_of(tables[active], self.schemas_[active]))
        encoder = self.own_encoder(active)
        scores = alone.head(self, encoder, own[0]).scores(alone.embedded(self, encoder, own[1]))
        return self.score_of(self.true_of({active: own[1]}), self.answers(scores))

    @abstractmethod
    def score_of(self, true: NDArray[Any], predicted: NDArray[Any]) -> float:
        """How good predictions are: the share that is right, or the part of the variance that is explained."""

    def score(self, X: People, y: NDArray[Any] | None = None, **given: Unpack[ReadingOptions]) -> float:
        """How good predictions are: the share that is right, or R^2; ``y`` only where the label is not in X.

        They are by exact embeddings of all parties, which nobody holds together after a study: one party reaches this
        by a question with ``exact=True``. What a question with noise reaches, and what own columns alone do, is in the
        answers of :class:`SplitScores` about people whose label is known.
        """
        return self.score_of(*self.compare_labels(X, y, **given))

    def encoder_kind(self, party: str) -> str:
        """The kind of a party's encoder, as everybody may know it; empty where the party has nothing to encode."""
        if self.feature_schema(party) is None:
            return ""
        said = (self.parameters_["encoders"] or {}).get(party, {})
        if not isinstance(said, Mapping) or runs_code(said):
            return given.OWN
        active, training = party == self.design_.owner, self.parameters_.get("training", "none")
        return str(choice.named(self.head_).completed(said, 1, active=active, training=training)["kind"])

    def feature_schema(self, party: str) -> Schema | None:
        """A party's schema without the label; ``None`` where the label is its only column."""
        return without_label(self.schemas_, self.label_, party)

    # --- as text

    @property
    def in_short(self) -> str:
        """What was learned, in one line."""
        widths = self.plan_["widths"]
        wide = " + ".join(str(width) for width in widths.values() if width)
        return f"{self.kind} of {self.label_} on embeddings of {wide} numbers, head by {self.plan_['how']}"

    def picture(self) -> Picture:
        """What is public about the head, or about the embeddings that were told."""
        return choice.named(self.head_).pictured(self)

    def summary(self) -> list[str]:
        """What was learned and how; encoders that parties keep are not shown."""
        self._check_fitted()
        way = choice.named(self.head_)
        lines = [self.in_short, "each party keeps its encoder, in its kept.npz and nowhere else"]
        return [*lines, *way.summary(self)]


def _plain(party: str, said: Any, design: LabelDesign | None) -> dict[str, Any]:
    """An encoder for a file: a specification as it is; of anything else that its party brings it, and its width."""
    if isinstance(said, Mapping) and not runs_code(said):
        return {key: list(value) if isinstance(value, tuple) else value for key, value in said.items()}
    if design is None:
        return {"kind": given.OWN}
    columns = len(design.centred_columns(party).feature_names)
    return {"kind": given.OWN, "width": given.one(party, said, columns, lambda _, spec: dict(spec)).width}
