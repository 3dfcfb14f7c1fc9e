"""What split classifiers and regressors share: encoders that stay with their party, and a head that joins them."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, StudyError
from colonnade.models.federation import Federation, Roster
from colonnade.models.newcomers import Matrix, People, table_of
from colonnade.models.parameters import check_whole
from colonnade.models.planner import Details
from colonnade.models.regression.design import Design, split_label
from colonnade.models.saved import Saved, facts, numbers, size, texts, word
from colonnade.models.split import choice, given, kept as split_kept
from colonnade.models.split.encoders import Encoder, runs_code
from colonnade.models.split.own import own_encoder
from colonnade.models.split.ways import Learned, Setting, Way, together
from colonnade.privacy import Statement
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner
from colonnade.protocols.task import Task
from colonnade.randomness import Stream
from colonnade.tables import Column, Schema, Table
from colonnade.tables.centred import Centred

MOST_ROWS = 2**31


class SplitModel(Saved[Task, Learned]):
    """A head over embeddings; each party's encoder reads the party's columns alone, and stays there."""

    keeps = "encoder"
    kept_file = "kept.npz"
    saved: ClassVar = {"feature_names_in": texts, "head": word, "noise_std": size, "plan": facts}

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
    label_epsilon: float | None = None
    per_release: float | None = None
    unprotected: bool = False
    rescale: bool = True
    adjust: bool = True
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

    # --- planning

    @abstractmethod
    def check_label(self, declared: Column) -> None:
        """Raise an error if the label's column is of the wrong kind."""

    def design(self, schemas: Mapping[str, Schema], label: str | None = None) -> Design:
        """The columns, and who holds the label."""
        found = Design.of(schemas, self.label if label is None else label)
        self.check_label(found.declared)
        return found

    @property
    def design_(self) -> Design:
        """The columns that the model was fitted with."""
        return self.design(self.schemas_, self.label_)

    @property
    def label_(self) -> str | None:
        """The label that the model was fitted with."""
        found: str | None = self.parameters_["label"]
        return found

    def way(self, roster: Roster) -> Way:
        """Who learns the head from what: a committee where one can be had, unless another way was asked for."""
        return choice.named(self.head, committee=bool(roster.trust.committee))

    def setting(self, roster: Roster) -> Setting:
        """What is public before a plan."""
        design, way = self.design(roster.schemas), self.way(roster)
        width = way.default_width(self, design, roster) if self.width is None else self.width
        check_whole("width", width, 1, 2**16)
        return Setting(design, roster, given.given(self.encoders, design, self._completed(way, int(width))))

    def _completed(self, way: Way, width: int) -> given.Complete:
        """What the way adds to specifications that leave something out."""
        active = str(self.label).rpartition(".")[0]
        return lambda party, said: way.completed(said, width, active=party == active, training=self.training)

    def plan(self, roster: Roster) -> Task:
        """The public task of the chosen way, with the least noise that meets the budgets."""
        return self.planned(roster, self.rows)

    def planned(self, roster: Roster, rows: int | None) -> Task:
        """The task for a public number of rows, which some ways need."""
        check_whole("rows_at_most", self.rows_at_most, 1, 2**40)
        if rows is not None:
            check_whole("rows", rows, 1, MOST_ROWS)
        return self.way(roster).plan(self, self.setting(roster), rows)

    def plan_for(self, people: Federation) -> Task:
        """The task for these people; they are counted where the way needs their number and it is not given."""
        counted = self.rows is None and self.way(people.roster).name != "committee"
        return self.planned(people.roster, people.common_rows() if counted else self.rows)

    def supposed(self, roster: Roster) -> tuple[str, ...]:
        """Which parties supply encoders, which no code can check."""
        return tuple(each.sentence for each in self.setting(roster).encoders.values() if each.sentence)

    def details(self, task: Task, statement: Statement) -> Details:
        """What a pre-flight says about the chosen way."""
        return choice.way_of(task).details(task, statement)

    # --- the joint computation

    def equip(self, party: str, encoder: Mapping[str, Any] | None) -> None:
        """Take the encoder that a party's own configuration names, for studies that leave it to the party."""
        self._own = {} if encoder is None else {party: encoder}

    def encoder_of(self, party: str, table: Table, task: Task, seed: int | None = None) -> Encoder | None:
        """A party's encoder, made anew or as it was supplied; ``None`` where the party has nothing to encode."""
        columns = len(self.centred(party, table).feature_names)
        if not columns:
            return None
        way, said = choice.way_of(task), (self.encoders or {}).get(party)
        found = given.one(party, said, columns, self._completed(way, way.width(task, party)))
        brought = getattr(self, "_own", {}).get(party) if found.supplied else None
        return deepcopy(found.made(None if brought is None else own_encoder(party, brought, columns), seed))

    def centred(self, party: str, table: Table) -> Centred:
        """How a party's columns are centred, with the label last where it is the party's."""
        owner, _, column = str(self.label).rpartition(".")
        return Centred(table.schema, column if party == owner else None)

    def owner(self, me: Owner, table: Table, task: Task) -> Learned:
        """An owner's program: its encoder is made, or taken as it was supplied, and stays with it."""
        way, ordered = choice.way_of(task), table.sorted_by_id()
        encoder = self.encoder_of(me.name, ordered, task)
        return way.owner(self, me, encoder, ordered, task)

    def coordinator(self, me: Coordinator, task: Task) -> Learned:
        """The coordinator's program."""
        return choice.way_of(task).coordinator(self, me, task)

    def outcome(self, outcomes: Mapping[str, Any], task: Task) -> Learned:
        """What all participants ended with, where all of them run in one process."""
        return together({name: outcomes[name] for name in task.owners}, outcomes[COORDINATOR])

    def simulate(
        self, tables: Mapping[str, Table], roster: Roster, stream: Stream | None = None, *, task: Task | None = None
    ) -> Self:
        """Fit in one place, without the protocol; the number of rows is that of the tables if ``rows`` is not given."""
        if task is None:
            task = self.planned(roster, next(iter(tables.values())).rows if self.rows is None else self.rows)
        return super().simulate(tables, roster, stream, task=task)

    def simulated(self, tables: Mapping[str, Table], task: Task, stream: Stream) -> Learned:
        """What all participants would end with; encoders that are drawn follow from the stream."""
        way = choice.way_of(task)
        found = {}
        for party in task.owners:
            seed = int(stream.uint64(1)[0])
            if (encoder := self.encoder_of(party, tables[party], task, seed)) is not None:
                found[party] = encoder
        return way.simulated(self, found, tables, task, stream)

    # --- the fitted model

    def conclude(self, roster: Roster, task: Task, result: Learned) -> Self:
        """Become the fitted model that a result describes."""
        self.head_, self.noise_std_ = choice.way_of(task).name, task.noise_std
        return super().conclude(roster, task, result)

    def finish(self, result: Learned) -> None:
        """Set what everybody has, and what of encoders and heads this process has."""
        self.feature_names_in_ = self.design_.features
        self.plan_ = dict(result.facts)
        self.public_, self.encoders_ = dict(result.public), dict(result.encoders)
        self.own_ = {party: dict(arrays) for party, arrays in result.own.items() if arrays}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The part of the head that everybody has."""
        return dict(self.public_)

    def restore(self, learned: dict[str, Any]) -> None:
        """Set what everybody has; encoders are in the files that their parties keep."""
        super().restore(learned)
        self.public_ = {name: numbers(array) for name, array in learned.get("arrays", {}).items()}
        self.encoders_, self.own_ = {}, {}

    def check_restored(self) -> None:
        """Raise an error unless what was read from a file belongs together."""
        if self.head_ not in choice.WAYS or self.feature_names_in_ != self.design_.features:
            raise ValueError("the model and its columns do not belong together")
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

    # --- what a party keeps

    def kept(self) -> bytes:
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
                f"name the party whose encoder to write, one of those in this process: {', '.join(held) or 'nobody'}"
            )
        return split_kept.write(Path(path), party, self._kept_of(party))

    def load_kept(self, path: str | Path, module: Any = None) -> str:
        """Read what :meth:`save_kept` wrote, and return whose it is.

        Of an encoder that is a module of its party's own the file holds the weights alone: ``module`` is the module, or
        the function that makes it.
        """
        self._check_fitted()
        found = split_kept.read(Path(path), self.digest, module)
        self._check_party(found.party)
        columns = len(self.design_.centred(found.party).feature_names)
        if found.encoder is not None:
            width = self.plan_["widths"].get(found.party, found.encoder.width)
            if (found.encoder.columns, found.encoder.width) != (columns, width):
                raise StudyError(f"{path} is damaged: its encoder does not belong to the columns of {found.party}")
            self.encoders_[found.party] = found.encoder
        if found.own:
            self.own_[found.party] = dict(found.own)
        return found.party

    @property
    def holders(self) -> tuple[str, ...]:
        """The parties of whose encoders, or heads, this process has one."""
        return tuple(party for party in self.schemas_ if party in self.encoders_ or party in self.own_)

    def _kept_of(self, party: str) -> bytes:
        training, own = choice.named(self.head_).trained(self), self.own_.get(party, {})
        return split_kept.content(split_kept.Kept(party, self.digest, training, self.encoders_.get(party), own))

    # --- predictions

    @abstractmethod
    def answers(self, scores: Matrix) -> NDArray[Any]:
        """What scores of shape (rows, outputs) predict."""

    def predict(self, X: People) -> NDArray[Any]:
        """Predictions for people of whom the caller has all columns, and all parties' encoders.

        A federation is matched on its ids. Of a mapping from party to table, the tables must hold the same people in
        the same order. Neither needs the label's column.
        """
        return self.answers(self.scores(X))

    def scores(self, X: People) -> Matrix:
        """The scores, (rows, outputs)."""
        self._check_fitted()
        tables = X.tables() if isinstance(X, Federation) else X
        if not isinstance(tables, Mapping):
            raise DataError("these are no people to predict: pass a Federation, or a mapping from party to table")
        wanted = [party for party in self.schemas_ if self.feature_schema(party) is not None]
        if missing := [party for party in wanted if party not in tables]:
            raise DataError(f"no table of {', '.join(missing)}; a prediction needs one of each party")
        parts = {party: self.embedded(party, tables[party]) for party in wanted}
        if len({len(part) for part in parts.values()}) > 1:
            raise DataError("the tables have different numbers of rows; a prediction needs the same people in each")
        return choice.named(self.head_).scores(self, parts)

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
                f"the encoder that {party} kept is not in this process: load_kept reads it from {party}'s own file"
            )
        return self.encoders_[party]

    def encoded_rows(self, party: str, source: Any) -> Matrix:
        """A party's rows as its encoder reads them: encoded, without the label, around public middles."""
        if (schema := self.feature_schema(party)) is None:
            raise DataError(f"{party} holds the label and no other column, so it has no embeddings")
        return Centred(schema).features(table_of(source, schema)).matrix()

    def feature_schema(self, party: str) -> Schema | None:
        """A party's schema without the label; ``None`` where the label is its only column."""
        schema = self.schemas_[party]
        owner, column = split_label(self.label_, tuple(self.schemas_))
        if party != owner:
            return schema
        return schema.without([column]) if len(schema.columns) > 1 else None

    def label_of(self, X: People) -> Matrix:
        """The encoded label of people, where X has a table with the label column."""
        self._check_fitted()
        owner, column = split_label(self.label_, tuple(self.schemas_))
        tables = X.tables() if isinstance(X, Federation) else X
        if not isinstance(tables, Mapping) or owner not in tables:
            raise DataError(f"the true labels are not in what was given: pass y, or a table of {owner}")
        return table_of(tables[owner], self.schemas_[owner].select([column])).column(column)

    # --- as text

    @property
    def in_short(self) -> str:
        """What was learned, in one line."""
        widths = self.plan_["widths"]
        wide = " + ".join(str(width) for width in widths.values() if width)
        return f"{self.kind} of {self.label_} on embeddings of {wide} numbers, head by {self.plan_['how']}"

    def summary(self) -> list[str]:
        """What was learned and how; encoders that parties keep are not shown."""
        self._check_fitted()
        way = choice.named(self.head_)
        lines = [self.in_short, "each party keeps its encoder, in its kept.npz and nowhere else"]
        return [*lines, *way.summary(self)]


def _plain(party: str, said: Any, design: Design | None) -> dict[str, Any]:
    """An encoder for a file: a specification as it is; of anything else that its party brings it, and its width."""
    if isinstance(said, Mapping) and not runs_code(said):
        return {key: list(value) if isinstance(value, tuple) else value for key, value in said.items()}
    if design is None:
        return {"kind": given.OWN}
    columns = len(design.centred(party).feature_names)
    return {"kind": given.OWN, "width": given.one(party, said, columns, lambda _, spec: dict(spec)).width}
