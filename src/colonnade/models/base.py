"""What every model shares: a public plan, a program for each role, the fitted model, saving and loading.

New people are as a caller passes them: tables as the parties hold them, or one matrix that is encoded already.

Tables are raw: they are encoded by the model's schemas, and their rows are matched by ids. A matrix of encoded columns
is taken for one only where the caller says so, because the two cannot be told apart by their names.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from colonnade.errors import DataError, StudyError, without_code
from colonnade.models import notebook, registry, serialization
from colonnade.models.planner import Planner, Roster
from colonnade.models.serialization import plain_value
from colonnade.privacy import Event, Statement, Trust, parse_budgets
from colonnade.privacy.calibrate import describe_unspent
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner
from colonnade.protocols.rows import Rows
from colonnade.protocols.task import Task
from colonnade.randomness import Stream
from colonnade.tables import Schema, Table
from colonnade.tables.bins import Matrix as Matrix, real_array
from colonnade.tables.cell_parsing import itemise, pa
from colonnade.tables.encoding import InvalidValues
from colonnade.tables.files import LACKS_ID

if TYPE_CHECKING:
    from colonnade.drawing.canvas import Picture
    from colonnade.models.assessment import Assessment
    from colonnade.models.federation import Federation

People = Any
"""A federation, a mapping from party to table, one table with all parties' columns, or an encoded matrix."""


class ReadingOptions(TypedDict, total=False):
    """How people are given to a model: by what their rows are matched, or that they are an encoded matrix."""

    id: str | Mapping[str, str] | None
    same_order: bool
    common: bool
    encoded: bool


class MatchedPeople(dict[str, Table]):
    """Tables of several parties in which the same row is the same person."""

    left_out: Mapping[str, int] = MappingProxyType({})
    """How many rows of a party are of people whom not all tables hold, where those were asked for whom all hold."""

    @property
    def ids(self) -> list[str] | None:
        """Who the rows are, as the first party calls them; ``None`` where nobody said."""
        first = next(iter(self.values()))
        return list(first.own_ids) if first.named else None


def gather_people(
    X: People,
    wanted: Mapping[str, Schema],
    schemas: Mapping[str, Schema],
    what: str,
    *,
    id: str | Mapping[str, str] | None = None,
    same_order: bool = False,
    common: bool = False,
    encoded: bool = False,
    misfits: InvalidValues = "refuse",
) -> MatchedPeople:
    """The tables of the wanted columns, with the same people in each row; ``what`` needs them, in words."""
    from colonnade.models.federation import Federation

    if encoded:
        raise DataError(f"encoded=True is for one matrix of encoded columns, and {what} takes tables here [DA060]")
    if not isinstance(X, Mapping | Federation):
        return _from_one(X, wanted, schemas, id, misfits)
    tables = X.tables() if isinstance(X, Federation) else X
    if missing := [party for party in wanted if party not in tables]:
        raise DataError(f"no table of {', '.join(missing)}; {what} needs one of each party [DA061]")
    if isinstance(X, Federation | MatchedPeople):
        return MatchedPeople({party: table_of(tables[party], schema) for party, schema in wanted.items()})
    return match_people(tables, wanted, id, what, same_order=same_order, common=common, misfits=misfits)


def match_people(
    given: Mapping[str, Any],
    schemas: Mapping[str, Schema],
    id: str | Mapping[str, str] | None,
    what: str,
    *,
    same_order: bool = False,
    common: bool = False,
    misfits: InvalidValues = "refuse",
) -> MatchedPeople:
    """The tables of some parties with the same people in each row, in the order of the first one that was given.

    Rows are matched where each table names its people: by the column ``id``, or because it was read with ids. Tables
    that do not are refused, unless the caller says that they are in the same order. So are tables of other people,
    unless ``common`` asks for those whom all tables hold.
    """
    column = id if isinstance(id, Mapping) else dict.fromkeys(schemas, id)
    there = [party for party in given if party in schemas]
    tables = MatchedPeople(
        {party: table_of(given[party], schemas[party], column.get(party), party, misfits) for party in there}
    )
    first, *others = tables
    if not others:
        return tables
    if same_order and id is None:
        if len({table.rows for table in tables.values()}) > 1:
            raise DataError(f"the tables have different numbers of rows; {what} needs the same people in each [DA062]")
        return tables
    if nameless := [party for party, table in tables.items() if not table.named]:
        raise DataError(
            f"nothing says who the rows of {itemise(nameless)} are: name the column of ids with id=, or say "
            "same_order=True if the same row is the same person in every table [DA063]"
        )
    if common:
        return _whom_all_hold(tables)
    for party in others:
        tables[party] = _matched(tables, first, party)
    return tables


def _whom_all_hold(tables: MatchedPeople) -> MatchedPeople:
    """The rows of the people whom every table holds."""
    first, *others = tables.values()
    everywhere = set(first.ids).intersection(*(table.ids for table in others))
    wanted = [each for each in first.ids if each in everywhere]
    if not wanted:
        raise DataError(f"{itemise(tables)} have nobody in common: no id is in each of their tables [DA064]")
    found = MatchedPeople({party: table.take(wanted) for party, table in tables.items()})
    found.left_out = {party: table.rows - len(wanted) for party, table in tables.items()}
    return found


def _matched(tables: Mapping[str, Table], first: str, party: str) -> Table:
    """A party's table in the order of the first one; an error unless both hold the same people."""
    one, other = tables[first], tables[party]
    wanted = list(one.ids)
    if other.ids == wanted:
        return other
    common = len(set(wanted) & set(other.ids))
    if common < one.rows or common < other.rows:
        raise DataError(
            f"{first} and {party} do not hold the same people: of {one.rows:,} and {other.rows:,} rows {common:,} have "
            "the same ids, so give tables of the same people, or say common=True to take those whom all hold [DA065]"
        )
    return other.take(wanted)


def _from_one(
    X: Any,
    wanted: Mapping[str, Schema],
    schemas: Mapping[str, Schema],
    id: str | Mapping[str, str] | None,
    misfits: InvalidValues,
) -> MatchedPeople:
    """The parties' tables out of one table that has all their columns."""
    from colonnade.tables import read_table
    from colonnade.tables.sources.factory import read_columns

    if not hasattr(X, "columns") and not isinstance(X, pa.RecordBatch):
        raise DataError(
            f"nothing says what the columns of this {type(X).__name__} are: pass tables as the parties hold them (a "
            "Federation, a mapping from party to table, or one data frame), or say encoded=True if it is an encoded "
            "matrix with the columns of feature_names_in_ [DA066]"
        )
    if isinstance(id, Mapping):
        raise DataError("one table has one column of ids, so name it by id= as a text [DA067]")
    naming = [] if id is None else [id]
    sources: dict[str, dict[str, str]] = {}

    def choose(there: Sequence[str]) -> Sequence[str]:
        sources.update(_sources(set(there), wanted, schemas))
        return [*naming, *dict.fromkeys(source for columns in sources.values() for source in columns.values())]

    read = read_columns(X, "the table", choose)
    found = MatchedPeople()
    for party, columns in sources.items():
        cells = pa.table({name: read[source] for name, source in [*((n, n) for n in naming), *columns.items()]})
        found[party] = read_table(cells, wanted[party], id=id, name=f"the columns of {party}", misfits=misfits)
    return found


def _sources(there: set[str], wanted: Mapping[str, Schema], schemas: Mapping[str, Schema]) -> dict[str, dict[str, str]]:
    """Under which name one table has each wanted column: ``party.column``, or the column if only one party has it."""
    taken: dict[str, str] = {}
    lacking: list[str] = []
    found: dict[str, dict[str, str]] = {party: {} for party in wanted}
    for party, schema in wanted.items():
        for name in schema.sources:
            full = f"{party}.{name}"
            source = full if full in there else name
            if source not in there:
                lacking.append(full)
                continue
            holders = [full] if source == full else [f"{p}.{name}" for p, s in schemas.items() if name in s.sources]
            if len(holders) > 1 or source in taken:
                several = holders if len(holders) > 1 else [taken[source], full]
                raise DataError(
                    f"the column {source!r} could be {' or '.join(several)}: pass a table of each party [DA068]"
                )
            taken[source], found[party][name] = full, source
    if lacking:
        encoded = {f"{party}.{name}" for party, schema in wanted.items() for name in schema.encoded_names}
        hint = "; if these are encoded columns, say encoded=True" if encoded <= there else ""
        raise DataError(
            f"the table has no column {itemise(lacking)}; in one table of all parties a column is named party.column, "
            f"or as its party names it if no other party has one of that name{hint} [DA069]"
        )
    return found


def encoded_matrix(source: Any, names: Sequence[str]) -> Matrix:
    """The matrix of these encoded columns; columns with names, as in a data frame, are chosen by name."""
    from colonnade.models.federation import Federation

    if isinstance(source, Federation | Mapping):
        raise DataError(
            "encoded=True is for one matrix of encoded columns; tables are encoded by the model itself [DA070]"
        )
    try:
        if hasattr(source, "columns"):
            there = set(getattr(source, "column_names", source.columns))
            if missing := [name for name in names if name not in there]:
                raise DataError(
                    f"the encoded matrix has no column {itemise(missing)}; its columns are named as in "
                    "feature_names_in_, and tables as the parties hold them are passed without encoded=True [DA074]"
                )
            source = np.column_stack([np.asarray(source[name]) for name in names])
        found: Matrix = real_array(source)
    except (TypeError, ValueError):
        raise DataError("with encoded=True people are one matrix of numbers, and this is none [DA071]") from None
    if found.ndim != 2 or found.shape[1] != len(names):
        raise DataError(
            f"an encoded matrix has rows of {len(names)} columns; this array has shape {found.shape} [DA072]"
        )
    if not np.isfinite(found).all():
        raise DataError("an encoded matrix holds finite numbers only; this one has missing or infinite entries [DA073]")
    return found


def table_of(
    source: Any, schema: Schema, id: str | None = None, party: str | None = None, misfits: InvalidValues = "refuse"
) -> Table:
    """A table with the columns of a schema, from a table or from anything that can be read as one."""
    if not isinstance(source, Table):
        from colonnade.tables import read_table

        try:
            name = None if isinstance(source, str | Path) else party
            return read_table(source, schema, id=id, name=name, misfits=misfits)
        except DataError as error:
            if party is None or LACKS_ID not in (said := str(error)):
                raise
            mark = "" if without_code(said).endswith("?") else ";"
            raise DataError(f"{said}{mark} name the one that holds ids with id={{{party!r}: COLUMN}} [DA075]") from None
    if missing := [name for name in schema.names if name not in source.schema.columns]:
        raise DataError(f"{source.source} has no column {missing[0]!r}, which the model needs [DA076]")
    view = source.select(schema.names)
    if view.schema != schema:
        raise DataError(f"{source.source} was read under another schema than the model was fitted with [DA077]")
    return view


def labels_of(X: People, schemas: Mapping[str, Schema], label: str | None) -> Matrix:
    """The encoded label of people, where X has a table with the label column."""
    from colonnade.models.design import split_label
    from colonnade.models.federation import Federation

    owner, column = split_label(label, tuple(schemas))
    if isinstance(X, Mapping | Federation) and owner not in (X.parties if isinstance(X, Federation) else X):
        raise DataError(f"the true labels are not in what was given: pass y, or a table of {owner} [DA078]")
    wanted = {owner: schemas[owner].select([column])}
    return gather_people(X, wanted, schemas, "a comparison")[owner].column(column)


class ParameterError(StudyError, ValueError):
    """A parameter that a model does not have; scikit-learn's tools expect a ValueError."""


FORMAT = 1
RunTask = TypeVar("RunTask", bound=Task, default=Any)
"""The type of the tasks that a model plans and runs."""
Result = TypeVar("Result", default=Any)
"""The type of what a run returns; the fitted model is made from it."""


class Estimator(Planner[RunTask], Generic[RunTask, Result]):
    """A model in the manner of scikit-learn whose training is a joint computation.

    ``plan`` turns public parameters into a public task, which has the programs that carry it out; ``owner`` and
    ``coordinator`` call them; ``finish`` makes the model from the published result and costs no privacy.
    ``parameters_`` are the parameters that the model was fitted with; they stay the same when one is changed later.

    ``sklearn.base.clone``, ``ParameterGrid`` and ``check_is_fitted`` can work with it: the parameters are those of the
    constructor, which stores each of them unchanged. No parameter has parameters of its own: a model that is a
    parameter of another model is fitted already.
    """

    feature_names_in_: list[str]
    many_classes: ClassVar[bool] = False
    """Whether a label of more than two classes can be learned."""

    parameters_: dict[str, Any]
    privacy_: Statement
    schemas_: dict[str, Schema]
    saved: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Learned attributes, without the underscore at their end, and how each is read back from a file."""
    saved_if_known: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """The same for those that files leave out where they are ``None``."""
    keeps: ClassVar[str | None] = None
    """One word for what each party keeps for itself after a run; see :meth:`keep`. ``None``: nothing is kept."""
    brings: ClassVar[str | None] = None
    """One word for what each party must bring from an earlier study; see :meth:`bring`. ``None``: nothing."""
    kept_file: ClassVar[str] = "kept.json"
    """The name of the file in a run directory that holds what a party keeps."""

    # --- what scikit-learn's tools ask

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of the constructor as they are now; ``deep`` changes nothing."""
        defaults = self.defaults()
        found = {name: getattr(self, name) for name in defaults}
        return {name: value for name, value in found.items() if name not in self.later or value != defaults[name]}

    def set_params(self, **params: Any) -> Self:
        """Replace some parameters; the learned attributes stay until the next fit."""
        known = self.defaults()
        if unknown := [name for name in params if name not in known]:
            raise ParameterError(
                f"{type(self).__name__} has no parameter {', '.join(unknown)}; its parameters are "
                f"{', '.join(known)} [ST075]"
            )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """All parameters by name with their defaults; ``inspect.Parameter.empty`` where one must be given."""
        found = inspect.signature(cls.__init__).parameters
        return {name: parameter.default for name, parameter in found.items() if name != "self"}

    @property
    def n_features_in_(self) -> int:
        """How many encoded columns the model was fitted with."""
        return len(self.feature_names_in_)

    @property
    def _estimator_type(self) -> str | None:
        """The kind of estimator; scikit-learn reads it here before version 1.6, and from the tags since then."""
        return None

    def _more_tags(self) -> dict[str, Any]:
        """Tags for scikit-learn before 1.6."""
        return {"non_deterministic": True, "requires_y": False}

    def __sklearn_tags__(self) -> Any:
        """Tags for scikit-learn from 1.6 on."""
        # Imported here because importing scikit-learn is slow.
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags, TransformerTags

        kind = self._estimator_type
        return Tags(
            estimator_type=kind or ("transformer" if hasattr(self, "transform") else None),
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags() if hasattr(self, "transform") else None,
            classifier_tags=ClassifierTags(multi_class=self.many_classes) if kind == "classifier" else None,
            regressor_tags=RegressorTags() if kind == "regressor" else None,
            non_deterministic=True,
            input_tags=InputTags(two_d_array=False),
        )

    # --- the joint computation

    def owner(self, me: Owner, table: Table, task: RunTask) -> Any:
        """An owner's program: that of the task, for the rows of :meth:`summands`, unless a kind brings more."""
        return task.programs.owner(me, self.summands(me.name, table, task), task)

    def coordinator(self, me: Coordinator, task: RunTask) -> Any:
        """The coordinator's program: that of the task, unless a kind brings more."""
        return task.programs.coordinator(me, task)

    def summands(self, party: str, table: Table, task: RunTask) -> Rows:
        """A party's rows as they are dealt: all encoded columns, unless a kind takes others or changes them."""
        return table.sorted_by_id()

    @abstractmethod
    def finish(self, result: Result) -> None:
        """Set the learned attributes from the published result alone."""

    def learned_values(self) -> dict[str, Any]:
        """The learned attributes as plain values."""
        known = [name for name in self.saved_if_known if getattr(self, f"{name}_") is not None]
        return {name: plain_value(getattr(self, f"{name}_")) for name in (*self.saved, *known)}

    def restore(self, learned: dict[str, Any]) -> None:
        """Set the learned attributes from plain values; arrays that were saved beside them are under ``arrays``."""
        for name, read in {**self.saved, **self.saved_if_known}.items():
            lacks = name in self.saved_if_known and name not in learned
            setattr(self, f"{name}_", None if lacks else read(learned[name]))

    def check_restored(self) -> None:
        """Raise an error unless what was read from a file belongs together, so that it can be used."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Learned arrays that are too large for JSON; they are saved in a file of their own."""
        return {}

    def published_files(self) -> dict[str, bytes]:
        """Files for the readers of a result, by name; a run leaves them beside ``model.json``."""
        return {}

    def publish(self, folder: str | Path) -> list[Path]:
        """Write these files, each as a whole, and return their paths."""
        self._check_fitted()
        written = {Path(folder) / name: content for name, content in self.published_files().items()}
        serialization.write_together(written, private=self.recipient is not None)
        return list(written)

    # --- what a party keeps for itself

    def kept_content(self) -> bytes:
        """What this party alone ends with, as the content of a file that only its user can read; see ``keeps``."""
        raise StudyError(f"a {type(self).__name__} leaves a party nothing of its own to keep [ST061]")

    def own_view(self) -> Assessment | None:
        """How good the chances are for the fit's people, where this process's party holds their labels and scores.

        It is for the private page of that party's run, and is saved nowhere else.
        """
        return None

    def bring(self, path: Path, party: str) -> None:
        """Read what a party kept of an earlier study; see ``brings``."""
        raise StudyError(f"a {type(self).__name__} needs nothing that {party} kept of an earlier study [ST062]")

    def equip(self, party: str, encoder: Mapping[str, Any] | None) -> None:
        """Take what a party's own configuration gives it for every study, its encoder; most kinds need none."""

    @classmethod
    def lacking(cls) -> list[str]:
        """Members that a complete kind has and this one lacks; what it keeps or brings needs a method."""
        promised = {"kept_content": cls.keeps, "bring": cls.brings}
        unmet = [name for name, what in promised.items() if what and getattr(cls, name) is getattr(Estimator, name)]
        return super().lacking() + unmet

    def outcome(self, outcomes: Mapping[str, Any], task: RunTask) -> Result:
        """One result from what the programs of all participants returned, where all of them run in one process."""
        result: Result = outcomes[COORDINATOR]
        return result

    @abstractmethod
    def summary(self) -> list[str]:
        """The result in a few lines of text, for the terminal."""

    def _repr_html_(self) -> str:
        learned = (self.in_notebook, self.privacy_) if self.fitted else None
        return notebook.model_html(type(self).__name__, self.get_params(), self.defaults(), learned)

    @property
    def in_short(self) -> str:
        """What was learned, in one line."""
        return f"learned from {self.n_features_in_} encoded columns"

    @property
    def in_notebook(self) -> list[str]:
        """What was learned, in lines for the HTML of a notebook."""
        return [self.in_short]

    @property
    def fitted(self) -> bool:
        """Whether the model has been fitted."""
        return hasattr(self, "privacy_")

    @property
    def recipient(self) -> str | None:
        """The party that alone receives the result; ``None`` where everybody receives it."""
        return None

    def fit(self, people: Federation) -> Self:
        """Learn from all parties of a federation, each in a thread of this process."""
        from colonnade.models.federation import Federation

        if not isinstance(people, Federation):
            raise StudyError(
                f"fit takes a Federation, not {type(people).__name__}: "
                "Federation([Party(name, table, schema=..., id=...), ...]) [ST063]"
            )
        task = self.plan_for(people)
        self.check_request(people.roster, task)
        programs = (lambda me, table: self.owner(me, table, task), lambda me: self.coordinator(me, task))
        results = people.run(task, *programs, self.kind)
        self.conclude(people.roster, task, self.outcome(results, task))
        # The statement says where a budget allows more than can be certified.
        allowed = self.parameters_.get("epsilon")
        budgets = () if allowed is None else parse_budgets(allowed, self.parameters_["delta"])
        if budgets and (said := describe_unspent(task.events, task.trust, budgets)):
            self.privacy_ = replace(self.privacy_, assumptions=(*self.privacy_.assumptions, said))
        return self

    def plan_for(self, people: Federation) -> RunTask:
        """The task for these people; a number of rows that is not given may be counted here."""
        return self.plan_as_requested(people.roster)

    def simulate(
        self, tables: Mapping[str, Table], roster: Roster, stream: Stream | None = None, *, task: RunTask | None = None
    ) -> Self:
        """Fit this model in one place, without the protocol: same integers and same law of noise as in :meth:`fit`.

        For evaluation, with data that may lie in one place; a study never calls it. The rows of all tables must be the
        same people in the same order. With a ``task`` from :meth:`plan` nothing is planned again.
        """
        planned = self.plan_as_requested(roster) if task is None else task
        return self.conclude(roster, planned, self.simulate_result(tables, planned, stream or Stream.fresh()))

    def simulate_result(self, tables: Mapping[str, Table], task: RunTask, stream: Stream) -> Result:
        """What the protocol would publish about these tables."""
        raise StudyError(f"a {type(self).__name__} cannot be simulated; fit it [ST064]")

    def conclude(self, roster: Roster, task: RunTask, result: Result) -> Self:
        """Make this model a fitted one, from the published result of a task."""
        self.parameters_ = self.get_params()
        self.privacy_ = _statement(tuple(task.events), task.trust, self.parameters_["delta"], self.assumptions(roster))
        self.schemas_ = dict(roster.schemas)
        self.finish(result)
        return self

    def predictions(self, X: Any = None, threshold: float | str | None = None, **given: Unpack[ReadingOptions]) -> Any:
        """Who is predicted what, as an Arrow table, for models that predict something about a person."""
        raise StudyError(f"a {type(self).__name__} predicts nothing about a person [ST065]")

    def assess(self, X: Any, y: Any = None, *, of: Any = None, **given: Unpack[ReadingOptions]) -> Assessment:
        """How good the chances of classes are, for models that have them."""
        raise StudyError(f"only chances of classes are assessed, and this {type(self).__name__} has none [ST066]")

    def plain_parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """These parameters as plain values for a file."""
        return dict(given)

    def save(self, path: str | Path) -> Path:
        """Write the model as JSON: parameters, learned values, schemas and the privacy statement.

        Arrays go into an ``.npz`` file beside it, whose digest the JSON holds. Each file is written as a whole or not
        at all. What is meant for one party alone can be read by nobody but this user.
        """
        self._check_fitted()
        target = Path(path)
        content = {
            "format": FORMAT,
            "kind": self.kind,
            "parameters": self.plain_parameters(self.parameters_),
            "schemas": {name: schema.to_toml() for name, schema in self.schemas_.items()},
            "privacy": self.privacy_.to_dict(),
            "learned": self.learned_values(),
        }
        written = {}
        if arrays := self.arrays():
            packed = written[target.with_suffix(serialization.ARRAYS)] = serialization.pack_arrays(arrays, target)
            content["arrays"] = hashlib.sha256(packed).hexdigest()
        written |= {target: (json.dumps(content, indent=1) + "\n").encode()}
        serialization.write_together(written, private=self.recipient is not None)
        return target

    def plot(self) -> Picture:
        """Draw what was learned. Nothing but what the model holds is drawn, so it costs no privacy."""
        self._check_fitted()
        return self.picture()

    def picture(self) -> Picture:
        """What :meth:`plot` draws; an error where a kind has nothing to draw."""
        raise StudyError(f"there is no picture of a model of the kind {self.kind} [ST067]")

    def to_onnx(self, path: str | Path) -> Path:
        """Write the model with its encoder as an ONNX file; an error where a kind cannot."""
        raise StudyError(f"a model of the kind {self.kind} cannot be written as ONNX [ST068]")

    def to_json(self) -> dict[str, Any]:
        """What somebody needs who does not have this library; an error where a kind cannot be told in plain values."""
        raise StudyError(
            f"a model of the kind {self.kind} cannot be exported as JSON: its file holds all that it is [ST069]"
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that :meth:`save` wrote."""
        content = serialization.read_json(Path(path))
        wanted = cls.kind if "kind" in vars(cls) else "model"
        try:
            kind = registry.load(str(content.get("kind")))
        except StudyError as error:
            raise StudyError(f"{path} is no {wanted} of format {FORMAT}: {error} [ST070]") from None
        if not issubclass(kind, cls) or content.get("format") != FORMAT:
            raise StudyError(f"{path} is no {wanted} of format {FORMAT} [ST071]")
        with serialization.name_file_in_errors(Path(path)):
            learned = content["learned"]
            if "arrays" in content:
                learned["arrays"] = serialization.read_arrays(
                    Path(path).with_suffix(serialization.ARRAYS), content["arrays"]
                )
            model = kind(**content["parameters"])
            model.parameters_ = model.get_params()
            model.schemas_ = {
                name: Schema.from_toml(text, name=f"{path}: {name}") for name, text in content["schemas"].items()
            }
            model.privacy_ = Statement.from_dict(content["privacy"])
            if set(model.schemas_) != set(model.privacy_.trust.owners):
                raise StudyError(
                    "it is damaged: its schemas and its privacy statement speak of different parties [ST072]"
                )
            model.restore(learned)
            model.check_restored()
            with suppress(StudyError):  # a release may lack its model, which says so when it is asked for
                model.summary()  # what it lacks would else be missed on a page
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return self.fitted

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.plain_parameters(self.get_params()).items())
        return f"{type(self).__name__}({given})"

    def _check_fitted(self) -> None:
        if not self.fitted:
            raise StudyError(f"this {type(self).__name__} is not fitted yet; call fit first [ST073]")

    def _check_party(self, party: str) -> None:
        if party not in self.schemas_:
            raise DataError(f"the model knows no party {party}; it knows {', '.join(self.schemas_)} [DA056]")


@lru_cache(maxsize=16)
def _statement(events: tuple[Event, ...], trust: Trust, delta: float, also: tuple[str, ...]) -> Statement:
    """The privacy statement of these events; several runs of one task have the same one."""
    return Statement.of(events, trust, delta, also=also)
