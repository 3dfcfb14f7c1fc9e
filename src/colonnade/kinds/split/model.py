"""Split classifiers and regressors: every party keeps an encoder, and a head joins what the encoders say.

The ways to a head are chosen by name and by the task that each plans. A fitted model says what everybody has of it and
what parties keep, and predicts.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from colonnade.drawing.canvas import Picture
from colonnade.errors import DataError, StudyError
from colonnade.kinds.pca.task import SubspaceIteration
from colonnade.kinds.split import encoders, head_strategy
from colonnade.kinds.split.embedding_task import AdaptiveTask, EmbeddingTask, Training
from colonnade.kinds.split.embeddings_strategy import EmbeddingsStrategy, PublishedStrategy
from colonnade.kinds.split.encoder_base import LinearEncoder, image_shape, worse_training
from colonnade.kinds.split.encoders import (
    Encoder,
    EncoderSpec,
    PartyArchive,
    SpecCompleter,
    encoder_from,
    load_encoder,
    refuse_code,
    refuse_learned,
    runs_code,
)
from colonnade.kinds.split.head_strategy import (
    CommitteeStrategy,
    HeadStrategy,
    LearnedHead,
    PlanSetting,
    embed_scaled,
    merge_outcomes,
)
from colonnade.kinds.split.heads import Solver
from colonnade.models import serialization
from colonnade.models.base import Matrix, People, ReadingOptions, table_of
from colonnade.models.classifier_mixin import ClassifierMixin, PredictionMixin, Threshold, check_threshold
from colonnade.models.design import LabelDesign, split_label, without_label
from colonnade.models.federation import Federation
from colonnade.models.planner import (
    NAMES_PARTIES,
    SETS_PRICE,
    STRICT,
    CheckedBy,
    Count,
    InFile,
    Label,
    PlanDetails,
    Positive,
    Roster,
    RowsAtMost,
    SampleSizeForecast,
    check_whole,
    one_of,
)
from colonnade.models.serialization import read_array, read_facts, read_size, read_text, read_texts
from colonnade.privacy import Statement
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner
from colonnade.protocols.task import Task
from colonnade.randomness import Stream
from colonnade.tables import Column, Schema, Table
from colonnade.tables.table import ColumnCentring

STRATEGIES: dict[str, HeadStrategy] = {
    way.name: way for way in (CommitteeStrategy(), EmbeddingsStrategy(), PublishedStrategy())
}
HEAD_NAMES = ("auto", *STRATEGIES)
HEADS_OF_PARAMETER: dict[str, tuple[str, ...]] = {
    "epsilon": ("committee", "embeddings"),
    "solver": ("committee",),
    "training": ("embeddings",),
    "epochs": ("embeddings", "published"),
    "batches": ("embeddings", "published"),
    "learning_rate": ("embeddings", "published"),
    "label_epsilon": ("embeddings",),
    "head_module": ("embeddings", "published"),
    "constants": ("embeddings", "published"),
    "per_release": ("published",),
    "unprotected": ("published",),
    "rescale": ("published",),
    "adjust": ("published",),
}
"""The heads with which each parameter has a meaning; all others belong to every head."""
_TRAINING_PARAMETERS = ("epochs", "batches", "learning_rate")
_ADVICE = {
    "epsilon": "nothing is proven about it: give per_release, the epsilon of one release by itself, or unprotected",
    "label_epsilon": 'labels are told in training with head = "embeddings" alone',
    "training": 'encoders learn under noise with head = "embeddings" alone, and as published they always learn',
    "head_module": "a committee's head is linear and follows from noisy moments",
}


def check_parameters(model: Any, way: HeadStrategy) -> None:
    """Refuse what was given and has no meaning with the chosen head, rather than ignore it."""
    one_of("training", model.training, get_args(Training))
    defaults = {each.name: each.default for each in fields(model)}
    given = [name for name in HEADS_OF_PARAMETER if name in defaults and getattr(model, name) is not defaults[name]]
    for name in (each for each in given if getattr(model, each) != defaults[each]):
        if way.name not in HEADS_OF_PARAMETER[name]:
            heads = " or ".join(f'"{each}"' for each in HEADS_OF_PARAMETER[name])
            why = _ADVICE.get(name, f"it is for head = {heads}")
            raise StudyError(f'{name} has no meaning with head = "{way.name}": {why}; leave it out [ST231]')
        if name in _TRAINING_PARAMETERS and way.name != "published" and model.training == "none":
            raise StudyError(
                f'{name} is about training, and training is "none": choose one, or leave {name} out [ST232]'
            )


def strategy_named(name: str, *, committee: bool = True) -> HeadStrategy:
    """The way of this name; ``auto`` is a committee where one can be had."""
    if name == "auto":
        return STRATEGIES["committee" if committee else "embeddings"]
    if name not in STRATEGIES:
        raise StudyError(f"head must be one of {', '.join(HEAD_NAMES)}, not {name!r} [ST234]")
    return STRATEGIES[name]


def strategy_of(task: Task) -> HeadStrategy:
    """The way that planned a task."""
    return STRATEGIES.get(str(task.scheme), STRATEGIES["committee"])


_InFile = InFile(Annotated[dict[str, dict[str, Any]] | None, CheckedBy(refuse_code)], None)
Encoders = Annotated[Mapping[str, Any] | None, _InFile, NAMES_PARTIES]


@dataclass(kw_only=True, eq=False, repr=False)
class SplitParameters:
    """What is said of every head over embeddings, of classes or of a number."""

    label: Label = None
    epsilon: float | Mapping[str, float] | None = None
    delta: float = 1e-5
    head: str = "auto"
    encoders: Encoders = None
    width: Count | None = None
    rows: Count | None = None
    rows_at_most: RowsAtMost = 2**24


class SplitModel(SplitParameters, PredictionMixin[Task, LearnedHead]):
    """A head over embeddings; each party's encoder reads the party's columns alone, and stays there."""

    keeps = "encoder"
    kept_file = "kept.npz"
    saved: ClassVar = {"feature_names_in": read_texts, "head": read_text, "noise_std": read_size, "plan": read_facts}

    solver: Solver = "auto"
    training: Training = "none"
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

    def centred_columns(self, party: str, table: Table) -> ColumnCentring:
        """How a party's columns are centred, with the label last where it is the party's."""
        column = str(self.label).removeprefix(f"{party}.")
        return ColumnCentring(table.schema, column if column in table.schema.columns and column != self.label else None)

    # --- the fitted model

    def finish(self, result: LearnedHead) -> None:
        """Set what everybody has, and what of encoders and heads this process has."""
        self.feature_names_in_ = self.design_.features
        self.plan_ = dict(result.facts)
        self.public_, self.encoders_ = dict(result.public), dict(result.encoders)
        self.own_ = {party: dict(arrays) for party, arrays in result.own.items() if arrays}
        training = strategy_named(self.head_).training_of(self)
        for encoder in self.encoders_.values():
            if training != "none":  # then they moved, and each is a copy of what was supplied
                encoder.learned = worse_training(encoder.learned, training)

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
        if self.head_ not in STRATEGIES or self.feature_names_in_ != self.design_.features:
            raise ValueError("the model and its columns do not belong together [VA062]")
        for party in self.schemas_:
            self.encoder_kind(party)  # questions are about encoders, too
        strategy_named(self.head_).check_restored(self)

    def plain_parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters for a file: of an encoder that was passed as an object, its width alone."""
        said, plain = given["encoders"], dict(given) | ({"head_module": None} if "head_module" in given else {})
        if said is None:
            return plain
        design = self.design(self.schemas_, given["label"]) if hasattr(self, "schemas_") else None
        return plain | {"encoders": {party: _plain_encoder(party, each, design) for party, each in said.items()}}

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
        return self._party_file(party)

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
        return encoders.write_party_file(Path(path), party, self._party_file(party))

    def load_kept(self, path: str | Path, module: Any = None) -> str:
        """Read what :meth:`save_kept` wrote, and return whose it is.

        Of an encoder that is a module of its party's own the file holds the weights alone: ``module`` is the module, or
        the function that makes it.
        """
        self._check_fitted()
        found = encoders.read_party_file(Path(path), self.digest, module)
        with serialization.name_file_in_errors(Path(path)):
            self._check_party(found.party)
            self._check_kept(found)
        if found.encoder is not None:
            self.encoders_[found.party] = found.encoder
        if found.own:
            self.own_[found.party] = dict(found.own)
        return found.party

    def _check_kept(self, found: PartyArchive) -> None:
        """Raise an error unless an encoder, and what its party keeps besides, fit this model."""
        columns = len(self.design_.centred_columns(found.party).feature_names)
        if (found.encoder is None) != (columns == 0):
            raise ValueError("a party with columns keeps an encoder [VA063]")
        if found.encoder is not None:
            width = self.plan_["widths"].get(found.party, found.encoder.width)
            if (found.encoder.columns, found.encoder.width) != (columns, width):
                raise StudyError(f"it is damaged: its encoder does not belong to the columns of {found.party} [ST267]")
        strategy_named(self.head_).check_kept(self, found.party, found.own, found.encoder)

    @property
    def holders(self) -> tuple[str, ...]:
        """The parties of whose encoders, or heads, this process has one."""
        return tuple(party for party in self.schemas_ if party in self.encoders_ or party in self.own_)

    def _party_file(self, party: str) -> bytes:
        training, own = strategy_named(self.head_).training_of(self), self.own_.get(party, {})
        if (encoder := self.encoders_.get(party)) is not None:
            training = worse_training(encoder.learned, training)
        return encoders.party_file_content(PartyArchive(party, self.digest, training, encoder, own))

    # --- predictions

    def scores(self, X: People, **given: Unpack[ReadingOptions]) -> Matrix:
        """The scores, (rows, outputs); all parties' encoders must be in this process."""
        people = self.people(X, **given)
        wanted = [party for party in self.schemas_ if self.feature_schema(party) is not None]
        return strategy_named(self.head_).scores(self, {party: self.embedded(party, people[party]) for party in wanted})

    def embedded(self, party: str, source: Any) -> Matrix:
        """One party's embeddings as the head takes them; the party's encoder must be in this process."""
        self._check_fitted()
        self._check_party(party)
        raw = self.own_encoder(party).embed(self.encoded_rows(party, source))
        return strategy_named(self.head_).prepare(self, party, raw)

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
        embedded = embed_scaled(encoder, head_strategy.party_rows(self, active, own[1]), active)
        scores = head_strategy.own_columns_head(self, encoder, own[0]).scores(embedded)
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
            return encoders.OWN
        active, training = party == self.design_.owner, self.parameters_.get("training", "none")
        return str(strategy_named(self.head_).complete_spec(said, 1, active=active, training=training)["kind"])

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
        return strategy_named(self.head_).picture(self)

    def summary(self) -> list[str]:
        """What was learned and how; encoders that parties keep are not shown."""
        self._check_fitted()
        way = strategy_named(self.head_)
        lines = [self.in_short, "each party keeps its encoder, in its kept.npz and nowhere else"]
        return [*lines, *way.summary(self)]

    # --- planning

    def strategy(self, roster: Roster) -> HeadStrategy:
        """Who learns the head from what: a committee where one can be had, unless another way was asked for."""
        return strategy_named(self.head, committee=bool(roster.trust.committee))

    def setting(self, roster: Roster) -> PlanSetting:
        """What is public before a plan."""
        design, way = self.design(roster.schemas), self.strategy(roster)
        width = way.default_width(self, design, roster) if self.width is None else self.width
        check_whole("width", width, 1, 2**16)
        complete = self._spec_completer(way, design.owner, int(width))
        found = encoders.read_encoders(self.encoders, design, complete)
        for each in found.values():
            check_options(each)
        return PlanSetting(design, roster, found)

    def _spec_completer(self, way: HeadStrategy, active: str, width: int) -> SpecCompleter:
        """What the way adds to specifications that leave something out; a module says itself how wide it is."""
        return lambda party, said: (
            dict(said)
            if said.get("kind") == "module"
            else way.complete_spec(said, width, active=party == active, training=self.training)
        )

    def plan(self, roster: Roster) -> Task:
        """The public task of the chosen way, with the least noise that meets the budgets."""
        return self.planned(roster, self.rows)

    def planned(self, roster: Roster, rows: int | None) -> Task:
        """The task for a public number of rows, which some ways need."""
        check_whole("rows_at_most", self.rows_at_most, 1, 2**40)
        if rows is not None:
            check_whole("rows", rows, 1, 2**31)
        way = self.strategy(roster)
        check_parameters(self, way)
        return way.plan(self, self.setting(roster), rows)

    @property
    def rows_expected(self) -> int | None:
        """About how many people there are, where that was said."""
        return self.rows

    def plan_for(self, people: Federation) -> Task:
        """The task for these people; they are counted where the way needs their number and it is not given."""
        counted = self.rows is None and self.strategy(people.roster).name != "committee"
        rows = people.common_rows() if counted else self.rows
        return self.plan_as_requested(people.roster, lambda roster: self.planned(roster, rows))

    def suppositions(self, roster: Roster) -> tuple[str, ...]:
        """Which parties supply encoders, which no code can check."""
        return tuple(each.supposition for each in self.setting(roster).encoders.values() if each.supposition)

    def details(self, task: Task, statement: Statement) -> PlanDetails:
        """What a pre-flight says about the chosen way."""
        return strategy_of(task).details(task, statement)

    def outlook(self, roster: Roster, task: Task, rows: int | None) -> SampleSizeForecast | None:
        """Whether so many people are enough for the chosen way."""
        return strategy_of(task).outlook(self, task, rows)

    # --- the joint computation

    def equip(self, party: str, encoder: Mapping[str, Any] | None) -> None:
        """Take the encoder that a party's own configuration names, for studies that leave it to the party."""
        said = (self.encoders or {}).get(party)
        if encoder is None and isinstance(said, Mapping) and said.get("kind") == encoders.OWN:
            raise encoders.missing_encoder_error(party)  # before anything is reserved or sent
        self._own = {} if encoder is None else {party: encoder}

    def encoder_of(self, party: str, table: Table, task: Task, seed: int | None = None) -> Encoder | None:
        """A party's encoder, made anew or as it was supplied; ``None`` where the party has nothing to encode."""
        columns = len(self.centred_columns(party, table).feature_names)
        if not columns:
            return None
        way, said = strategy_of(task), (self.encoders or {}).get(party)
        active, _ = split_label(self.label, task.owners)
        found = encoders.read_encoder(party, said, columns, self._spec_completer(way, active, way.width(task, party)))
        brought = getattr(self, "_own", {}).get(party) if found.supplied else None
        made = deepcopy(found.make(None if brought is None else own_encoder(party, brought, columns), seed))
        made.party = party
        return made

    def owner(self, me: Owner, table: Table, task: Task) -> LearnedHead:
        """An owner's program: its encoder is made, or taken as it was supplied, and stays with it."""
        way, ordered = strategy_of(task), table.sorted_by_id()
        encoder = self.encoder_of(me.name, ordered, task)
        return way.owner(self, me, encoder, ordered, task)

    def coordinator(self, me: Coordinator, task: Task) -> LearnedHead:
        """The coordinator's program."""
        return strategy_of(task).coordinator(self, me, task)

    def outcome(self, outcomes: Mapping[str, Any], task: Task) -> LearnedHead:
        """What all participants ended with, where all of them run in one process."""
        return merge_outcomes({name: outcomes[name] for name in task.owners}, outcomes[COORDINATOR])

    def simulate(
        self, tables: Mapping[str, Table], roster: Roster, stream: Stream | None = None, *, task: Task | None = None
    ) -> Self:
        """Fit in one place, without the protocol; the number of rows is that of the tables if ``rows`` is not given."""
        if task is None:
            rows = next(iter(tables.values())).rows if self.rows is None else self.rows
            task = self.plan_as_requested(roster, lambda roster: self.planned(roster, rows))
        return super().simulate(tables, roster, stream, task=task)

    def simulate_result(self, tables: Mapping[str, Table], task: Task, stream: Stream) -> LearnedHead:
        """What all participants would end with; encoders that are drawn follow from the stream."""
        way = strategy_of(task)
        found = {}
        for party in task.owners:
            seed = int(stream.uint64(1)[0])
            if (encoder := self.encoder_of(party, tables[party], task, seed)) is not None:
                found[party] = encoder
        return way.simulate(self, found, tables, task, stream)

    def conclude(self, roster: Roster, task: Task, result: LearnedHead) -> Self:
        """Become the fitted model that a result describes."""
        self.head_, self.noise_std_ = strategy_of(task).name, task.noise_std
        return super().conclude(roster, task, result)


def _plain_encoder(party: str, said: Any, design: LabelDesign | None) -> dict[str, Any]:
    """An encoder for a file: a specification as it is; of anything else that its party brings it, and its width."""
    if isinstance(said, Mapping) and not runs_code(said):
        return {key: list(value) if isinstance(value, tuple) else value for key, value in said.items()}
    if design is None:
        return {"kind": encoders.OWN}
    columns = len(design.centred_columns(party).feature_names)
    return {
        "kind": encoders.OWN,
        "width": encoders.read_encoder(party, said, columns, lambda _, spec: dict(spec)).width,
    }


def check_options(each: EncoderSpec) -> None:
    """Refuse options that the kind does not have, and images of other sizes than the table; nothing is drawn."""
    if each.held is not None or each.kind == encoders.OWN:
        return
    try:
        _check_spec(encoders.describe(each.spec), each.columns)
    except StudyError as error:
        raise StudyError(f"the encoder of {each.party}: {error} [ST336]") from None


def _check_spec(spec: Mapping[str, Any], columns: int) -> None:
    options = dict(spec)
    kind = options.pop("kind", None)
    if kind == LinearEncoder.kind and "over" in options:
        below, _ = encoders.below_of(options)
        _check_spec(below, columns)
        return
    read = encoders.encoder_kind(kind)[1].read(kind, options)
    if (shape := getattr(read, "shape", None)) is not None:
        image_shape(shape, columns)


def own_encoder(party: str, given: Mapping[str, Any], columns: int) -> Encoder:
    """The encoder that a party's configuration names: ``make`` and ``weights``, at least one of them.

    A party states that it was made without the table of the study. That cannot be checked, but a file that says
    otherwise is refused: that of an encoder that an earlier study trained on private rows.
    """
    make, weights = given.get("make"), given.get("weights")
    if make is not None:
        spec = {"kind": "module", "make": make, "weights": None if weights is None else str(weights)}
        return encoder_from(spec | ({"shape": list(given["shape"])} if given.get("shape") else {}), columns)
    if weights is None:
        raise StudyError(
            f'[encoder] of {party} needs make = "package.module:function", weights = "FILE.npz", or both [ST317]'
        )
    path = Path(weights)
    found = encoders.read_party_file(path, None).encoder if encoders.is_party_file(path) else load_encoder(path)
    if found is None:
        raise StudyError(f"{path} holds no encoder [ST318]")
    return encoder_from(refuse_learned(found, f"the encoder in {path}"), columns)


Head = Literal["auto", "committee", "embeddings", "published"]


@dataclass(kw_only=True, eq=False, repr=False)
class SplitClassifier(ClassifierMixin[Task, LearnedHead], SplitModel):
    """A classifier over embeddings of columns that nobody holds together.

    Each party maps its columns to an embedding by an encoder of its own, which never leaves it. The head is learned

    * by a committee, from one noisy release of second moments of all embeddings and the label (``head="committee"``):
      nobody's embedding leaves anybody;
    * by the party with the label, from embeddings with noise that the others tell it (``"embeddings"``);
    * or as it was published (``"published"``): embeddings at a noise for each release alone, encoders that learn
      without a charge. For this nothing is proven, and each party's policy must allow it.

    Args:
        label: the column to predict, a flag or a category, written ``"party.column"``.
        epsilon: one number for everyone, or a mapping such as ``{"analyst": 1.0, "party": 2.0}``.
        delta: the delta of all promises.
        head: as above; ``"auto"`` takes a committee where one can be had.
        encoders: for each party a specification such as ``{"kind": "cosine", "width": 100}``, a torch module, or an
            encoder. Parties that are not named get random cosine features, and edges of images where ``shape`` is
            given; as published small networks, and where encoders are trained a linear map over features.
            A module or encoder counts as made without the table, which its party declares by passing it.
        width: of the embeddings for which no encoder names one; follows from public figures.
        rows: how many people all parties hold; ways without a committee need it, and ``fit`` counts them.
        rows_at_most: a public limit on the number of rows, for a committee.
        solver: of a committee's head: ``"ridge"``, ``"discriminant"``, ``"logistic"``, or ``"auto"``.
        training: of encoders, charged, for ``"embeddings"``. ``"labels"``: labels are told once and every party trains
            alone; or ``"rounds"``: slopes of a head come back in every epoch.
        epochs: of training, or of the published algorithm.
        batches: into which all rows are split: 1 in training that is charged, else of about 256 rows.
        learning_rate: of encoders that learn over messages, and of a head beside them; 0.02, published 0.001.
        label_epsilon: tell labels through randomised response at this epsilon; without it they are told as they are.
        per_release: of the published algorithm: the epsilon of each release by itself, which bounds nothing in all.
        unprotected: the published algorithm without noise.
        rescale: of the published algorithm, its rescaling.
        adjust: of the published algorithm, its loss that pulls classes apart.
        constants: of the chosen head's algorithm, by name. Of ``"embeddings"``: ``stage``, ``first_share``, ``share``,
            ``gradient_clip``, ``margin``, ``contrast``, ``stretch``; with ``"stage": True`` centre and scale of
            embeddings are learned from a first release. Of ``"published"``: ``delta`` of one release, ``alpha``,
            ``beta``, ``confidence``, ``apart``, ``rule``.
        head_module: a torch module that becomes the head, from all embeddings to one score a class; not for a
            committee, and not in a study file.
        threshold: the second of two classes is predicted where its chance is above this.
    """

    kind = "split-classifier"
    tasks = (Moments, SubspaceIteration, EmbeddingTask, AdaptiveTask)
    many_classes = True

    head: Head = "auto"
    solver: Solver = "auto"
    training: Training = "none"
    epochs: Count | None = None
    batches: Count | None = None
    learning_rate: Positive | None = None
    label_epsilon: Positive | None = None
    per_release: Annotated[Positive | None, SETS_PRICE] = None
    unprotected: Annotated[bool, STRICT, SETS_PRICE] = False
    rescale: Annotated[bool, STRICT] = True
    adjust: Annotated[bool, STRICT] = True
    constants: Annotated[Mapping[str, Any] | None, InFile(dict[str, Any] | None, None)] = None
    head_module: Annotated[Any, InFile(None, None)] = None
    threshold: Threshold = 0.5

    @property
    def _estimator_type(self) -> str:
        return "classifier"

    def check_label(self, declared: Column) -> None:
        """Raise an error unless the label is a flag or a category."""
        if declared.quantity:
            raise StudyError(
                f'label {self.label!r} is a number; use SplitRegressor (kind = "split-regressor" in a study file), or '
                "make it a flag or category [ST293]"
            )
        check_threshold(self.threshold, len(declared.classes), released=False)

    def decision_function(self, X: People, **given: Unpack[ReadingOptions]) -> Matrix:
        """Scores: of two classes how much the second leads, else a column for each class."""
        scores = self.scores(X, **given)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def chances(self, scores: Matrix) -> Matrix:
        """Chances of the classes, by the scores as log-odds; of a head that was fitted by squares they are rough."""
        found = np.exp(np.asarray(scores, dtype=np.float64) - np.max(scores, axis=1, keepdims=True))
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def true_of(self, X: People) -> NDArray[Any]:
        """The classes of people, where X has a table with the label column."""
        encoded = self.label_of(X)
        chosen = encoded[:, 0].astype(np.intp) if encoded.shape[1] == 1 else encoded.argmax(axis=1)
        found: NDArray[Any] = self.classes_[chosen]
        return found

    def score_of(self, true: NDArray[Any], predicted: NDArray[Any]) -> float:
        """The share of people whose class is predicted."""
        return float(np.mean(true == predicted))


@dataclass(kw_only=True, eq=False, repr=False)
class SplitRegressor(SplitModel):
    """A regression of a number over embeddings of columns that nobody holds together; see :class:`SplitClassifier`.

    Args:
        label: the column to predict, a number, written ``"party.column"``.
        epsilon: one number for everyone, or a mapping such as ``{"analyst": 1.0, "party": 2.0}``.
        delta: the delta of all promises.
        head: ``"committee"``, ``"embeddings"``, or ``"auto"``: a committee where one can be had.
        encoders: for each party a specification, a torch module, or an encoder.
        width: of the embeddings for which no encoder names one.
        rows: how many people all parties hold; ``"embeddings"`` needs it, and ``fit`` counts them.
        rows_at_most: a public limit on the number of rows, for a committee.
    """

    kind = "split-regressor"
    tasks = (Moments, SubspaceIteration, EmbeddingTask)

    head: Literal["auto", "committee", "embeddings"] = "auto"

    @property
    def _estimator_type(self) -> str:
        return "regressor"

    def check_label(self, declared: Column) -> None:
        """Raise an error unless the label is a number."""
        if declared.quantity is None:
            raise StudyError(
                f'label {self.label!r} is no number; use SplitClassifier (kind = "split-classifier" '
                "in a study file) [ST294]"
            )

    def answers(self, scores: Matrix) -> NDArray[Any]:
        """The label in its unit, within its bounds."""
        quantity = self.design_.quantity
        low = -1.0 if quantity.signed else 0.0
        return quantity.decode_values(np.clip(np.asarray(scores, dtype=np.float64)[:, 0], low, 1.0))

    def true_of(self, X: People) -> NDArray[Any]:
        """The labels of people in their unit, where X has a table with the label column."""
        return self.design_.quantity.decode_values(self.label_of(X)[:, 0])

    def score_of(self, true: NDArray[Any], predicted: NDArray[Any]) -> float:
        """The part of the variance that is explained, R^2."""
        known = np.asarray(true, dtype=np.float64)
        left, whole = np.sum((known - predicted) ** 2), np.sum((known - known.mean()) ** 2)
        return float(1 - left / whole) if whole else 0.0
