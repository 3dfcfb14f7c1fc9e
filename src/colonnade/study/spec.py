"""A study as all participants know it: what is computed, by whom, at what price, and about which public model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from colonnade.disk import reading
from colonnade.errors import ColonnadeError, IdentityError, SchemaError, StudyError
from colonnade.models import registry
from colonnade.models.planner import NAMES_LABEL, NAMES_MODEL, Roster
from colonnade.models.serialization import write_whole
from colonnade.privacy import Budget, Event, Statement, Trust, parse_budgets
from colonnade.privacy.calibrate import BindingBudget, binding_budget
from colonnade.privacy.statement import UNMATCHED
from colonnade.protocols.roles import COORDINATOR
from colonnade.sanitize import sanitize
from colonnade.tables import Schema
from colonnade.tables.cell_parsing import itemise, suggest_full_name
from colonnade.wire import Certificate

if TYPE_CHECKING:
    from pydantic import ValidationError

    from colonnade.models.base import Estimator
    from colonnade.models.planner import Planner
    from colonnade.protocols.align import AlignmentTask
    from colonnade.protocols.task import PricedTask, Task
    from colonnade.study.study_file import StudyFile


def load_public_model(path: Path, kind: type[Planner], study: Path) -> Estimator:
    """The model in a file; an error if studies of this kind cannot use it."""
    from colonnade.models.base import Estimator

    found = Estimator.load(path)
    if (why := kind.why_not_about(found)) is not None:
        raise StudyError(f"{study}: task.model - {path} {why} [ST551]")
    return found


def digest_of(path: Path) -> str:
    """SHA-256 of a file, such as that of a public model."""
    try:
        return hashlib.sha256(reading.read_bytes(path, reading.MAX_LEARNED_BYTES)).hexdigest()
    except reading.UnreadableFile as error:
        raise StudyError(f"{path} cannot be read: {error} [ST552]") from None


def drop_label(model: Any, party: str, schema: Schema) -> Schema:
    """A schema without the columns that the model knows and has no weights for: new people have no label."""
    from colonnade.models.score_result import scored_features

    used, known = scored_features(model, party), model.schemas_.get(party, schema).names
    unused = [name for name in schema.names if name in known and name not in used]
    return schema.without(unused) if used and unused else schema


def load_kept_file(model: Estimator, party: str, kept: Path | None, config: Path) -> None:
    """Give a model what this party kept of an earlier study."""
    if model.brings is None:
        return
    if kept is None:
        raise StudyError(
            f"{config.name} of {party} names no kept {model.brings}, which this study is about: add "
            f'kept = "PATH", the {model.kept_file} that {party} wrote when the model was fitted [ST553]'
        )
    model.bring(kept, party)
    if kept.stat().st_mode & 0o077:
        raise StudyError(
            f"{kept} can be read by others, and holds private {model.brings}: run `chmod 600 {kept}` [ST554]"
        )


def check_run_folder(model: Estimator, kept: Path | None, out: Path) -> None:
    """Raise an error if the run directory holds the kept weights: a run moves the files of an earlier one away."""
    if model.brings is not None and kept is not None and kept.parent.resolve() == out.resolve():
        raise StudyError(
            f"the kept {model.brings} lie in {out}, whose files a new run moves away: choose another --out [ST555]"
        )


TRIAL = (
    "this is a trial: schemas may hold bounds and values that were taken from the data, and what these tell about it "
    "is in no epsilon"
)
_NAMED = 100  # characters of a name in a sentence


_PRELOADED_STUDIES: dict[Path, Study] = {}
"""The studies that this process was forked with."""


@dataclass(eq=False)
class Study:
    """A study file together with the schemas and certificates beside it."""

    path: Path
    content: StudyFile
    read: Mapping[Path, str] = field(default_factory=dict, repr=False)
    """SHA-256 of each file as it was when it was loaded; certificates, which are always read anew, are not in it."""

    @classmethod
    def load(cls, path: str | Path) -> Study:
        """Read and check a study file; an error names the key that is wrong."""
        path = Path(path)
        if (handed_on := _preloaded_study(path)) is not None:
            return handed_on
        with reading.record_digests() as read:
            study = cls._load(path)
        if not all(read.values()):
            raise StudyError(f"{path}: a file of this study has changed while it was read; read it again [ST592]")
        study.read = read
        return study

    @classmethod
    def _load(cls, path: Path) -> Study:
        from pydantic import ValidationError  # with it come the forms of all sections, which take long to make

        from colonnade.study.study_file import StudyFile, parse_task

        raw = read_toml(path, "study file")
        if "policy" in raw and "task" not in raw:
            raise StudyError(f"{path} is a party's own file: name the study file in its place [ST593]")
        if "columns" in raw and "task" not in raw:
            raise StudyError(f"{path} is a schema: name the study file in its place [ST594]")
        section = ""
        try:
            with name_file_in_errors(path):
                if "task" in raw:
                    section = "task"
                    raw = raw | {"task": parse_task(raw["task"], path)}
                section = ""
                study = cls(path, StudyFile.model_validate(raw))
        except ValidationError as error:
            raise StudyError(f"{path}: {first_problem(error, section)} [ST595]") from None
        study.roster  # noqa: B018 - the schemas must be there and fit
        study._check_label()
        return study

    def keep_for_forks(self) -> None:
        """Plan it now, so that processes forked from this one need not; they load it again if a file has changed."""
        _PRELOADED_STUDIES[self.path.absolute()] = self
        _ = self.digest, self.statement, self.binding

    @property
    def is_unchanged(self) -> bool:
        """Whether every file of it is still as it was when it was loaded."""
        try:
            return all(digest_of(path) == digest for path, digest in self.read.items())
        except StudyError:
            return False

    @property
    def name(self) -> str:
        """The study's name."""
        return self.content.name

    @property
    def folder(self) -> Path:
        """The folder of the study's other public files."""
        return self.path.parent

    @property
    def participants(self) -> tuple[str, ...]:
        """The names of all participants: the parties and the coordinator."""
        return (*self.content.parties, COORDINATOR)

    @cached_property
    def schemas(self) -> dict[str, Schema]:
        """Each party's schema as its file has it, with the columns that this study does not ask for."""
        files, drafts = self.content.parties.items(), self.content.trial
        return {name: Schema.load(self.folder / party.schema_file, drafts=drafts) for name, party in files}

    @cached_property
    def roster(self) -> Roster:
        """Schemas, restricted to the columns asked for, and the committee."""
        asked = {name: party.columns for name, party in self.content.parties.items()}
        whole = self.schemas.items()
        schemas = {name: self._selected(name, schema, asked[name]) for name, schema in whole}
        if self.model is not None:
            schemas = {name: drop_label(self.model, name, schema) for name, schema in schemas.items()}
        committee, align = self.content.committee, self.content.align
        with name_file_in_errors(self.path):
            roster = Roster.of(
                schemas,
                committee.seats,
                committee.threshold,
                hidden=align is not None and align.hidden,
                security=self.content.security,
                inputs=self.content.inputs,
                noise_missing=self.content.noise_missing,
            )
            aligning = None if align is None else align.aligning(roster.trust, self.content.partitions)
        told: tuple[str, ...] = () if aligning is None else (aligning.sentence,)
        if self.content.trial:
            told = (*(told or (UNMATCHED,)), TRIAL)
        if self.content.lanes is not None:
            from colonnade.protocols.lanes.arbiter import RUNS_THAT_MAY_CHEAT  # most studies have no lanes

            roster = replace(roster, trust=replace(roster.trust, tries=RUNS_THAT_MAY_CHEAT))
        return replace(roster, assumptions=told)

    @cached_property
    def aligning(self) -> AlignmentTask | None:
        """The alignment task, by which parties find their common people; ``None`` where their ids are the same."""
        align, partitions = self.content.align, self.content.partitions
        return None if align is None else align.aligning(self.roster.trust, partitions)

    def _selected(self, party: str, schema: Schema, columns: Sequence[str] | None) -> Schema:
        try:
            return schema if columns is None else schema.select(columns)
        except SchemaError as error:
            raise SchemaError(f"{self.path}: parties.{party}.columns - {error} [SC003]") from None

    @property
    def model_file(self) -> Path | None:
        """The path of the public model that the study predicts with; each participant has the same copy."""
        named = self.content.task.value_with_mark(NAMES_MODEL)
        return None if named is None else self.folder / named

    @cached_property
    def model(self) -> Estimator | None:
        """That model, read and checked."""
        if self.model_file is None:
            return None
        return load_public_model(self.model_file, registry.load(self.content.task.kind), self.path)

    def _check_label(self) -> None:
        """Raise an error unless the label is a column that its party brings to this study."""
        from colonnade.models.design import columns_of, owner_of

        label = self.content.task.value_with_mark(NAMES_LABEL)
        if label is None:
            return
        owner, column = owner_of(label, self.roster.schemas)
        if owner is None:
            hint = suggest_full_name(label, columns_of(self.roster.schemas))
            raise StudyError(
                f"{self.path}: task.label names {sanitize(repr(label), _NAMED)}, and no party of the study begins "
                f"it{hint} [ST596]"
            )
        if column not in self.roster.schemas[owner].names:
            holders = [f"{name}.{column}" for name, schema in self.roster.schemas.items() if column in schema.names]
            near = suggest_full_name(label, holders or columns_of(self.roster.schemas))
            brings = itemise(self.roster.schemas[owner].names)
            hint = near or f"; those it brings are {brings}: add it to the schema and columns of {owner}"
            raise StudyError(
                f"{self.path}: task.label - {owner} brings no column {sanitize(repr(column), _NAMED)} to this "
                f"study{hint} [ST597]"
            )

    def label_of(self, party: str) -> str | None:
        """The column of this party that the study predicts, if it is one of its own."""
        from colonnade.models.design import owner_of

        label = self.content.task.value_with_mark(NAMES_LABEL)
        owner, column = (None, None) if label is None else owner_of(label, self.roster.schemas)
        return column if owner == party else None

    def runnable(self) -> Study:
        """This study, if it can be run; otherwise an error, before anything is written or sent."""
        if (why := self.planner.why_not_run) is not None:
            raise StudyError(
                f"study {self.name!r} {why}: see what it costs with `colonnade privacy {self.path.name}` [ST598]"
            )
        return self

    def estimator(self) -> Estimator:
        """An unfitted model with the study's parameters."""
        self.runnable()
        return cast("Estimator", self._planner())

    @cached_property
    def planner(self) -> Planner:
        """The object that plans the task; if the study can be run, it is an unfitted model."""
        return self._planner()

    def _planner(self) -> Planner:
        given = self.content.task.parameters | self.content.budget.model_dump()
        own = {} if self.model is None else {"model": self.model}
        with name_file_in_errors(self.path):
            return registry.load(self.content.task.kind)(**given | own)

    @cached_property
    def task(self) -> Task:
        """The public task, its noise calibrated to the budgets; of a kind without a program only what has a price."""
        with name_file_in_errors(self.path):
            task: Task = self.planner.plan_as_requested(self.roster)
            if self.content.lanes is not None:
                from colonnade.study.study_file import check_lanes

                check_lanes(task, self.content.partitions)
        return task

    @cached_property
    def binding(self) -> BindingBudget | None:
        """The budget that decides the noise; ``None`` where the task sets the price."""
        return binding_budget(self.events, self.trust, self.budgets) if self.budgets else None

    @property
    def trust(self) -> Trust:
        """The owners and the committee of the task, which may have no committee."""
        return self.task.trust

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything that the task reveals."""
        return self.task.events

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The most that each observer may learn; empty where the task sets the price."""
        price = self.content.budget
        return () if price.epsilon is None else parse_budgets(price.epsilon, price.delta)

    @cached_property
    def statement(self) -> Statement:
        """What the study will cost, for every observer."""
        return self.statement_of(self.task)

    def statement_of(self, task: PricedTask) -> Statement:
        """The privacy statement of this study with another task."""
        delta, also = self.content.budget.delta, self.planner.assumptions(self.roster)
        return Statement.of(task.events, task.trust, delta, clipped=task.clipped, also=also)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that the participants must agree on, with the order of the parties and the noise.

        What people read before they agree is in it too.
        """
        agreed = self.content.model_dump(mode="json")
        # The task's agreement has what came of them, so that studies of earlier releases stay the same.
        del agreed["security"], agreed["inputs"]
        # Keys that came later, in sections that are older: a study without them is the study that it was.
        later = (("trial", agreed, False), ("noise_missing", agreed, None), ("lanes", agreed, None))
        for key, section, usual in (
            *later,
            ("description", agreed, ""),
            ("links", agreed["coordinator"], "hub"),
            ("hubs", agreed["coordinator"], []),
        ):
            if section[key] == usual:
                del section[key]
        agreed["limits"] = self.content.limits.agreed
        agreed["task"] = {
            key: value for key, value in agreed["task"].items() if key not in self.content.task.defaulted_keys
        }
        agreed["schemas"] = {name: schema.digest for name, schema in self.roster.schemas.items()}
        if self.model_file is not None:
            agreed["model"] = self.read.get(self.model_file.absolute()) or digest_of(self.model_file)
        agreed["agreement"] = self.task.agreement
        if self.aligning is None:
            del agreed["align"]
        else:
            agreed["aligning"] = self.aligning.agreement
        text = json.dumps(agreed, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def certificates(self) -> dict[str, Certificate]:
        """Everyone's certificate from ``certs/``, each checked against its pin."""
        found = {}
        for name in self.participants:
            pin = self.content.pins.get(name)
            if pin is None:
                raise IdentityError(
                    f"{self.path} has no pin for {name}: put its certificate at certs/{name}.crt and run "
                    f"`colonnade init pins {self.path.name}` [ID009]"
                )
            found[name] = Certificate.load(self.folder / "certs" / f"{name}.crt", pin)
        keys: dict[str, str] = {}
        for name, certificate in found.items():
            if (other := keys.setdefault(certificate.key_fingerprint, name)) != name:
                raise IdentityError(
                    f"{self.path}: {other} and {name} have the same key, so they would be one participant with two "
                    "names; each needs a key of its own [ID010]"
                )
        return found

    def keys(self) -> dict[str, str]:
        """The hash of everyone's key, by which ledgers recognise it under any name; empty before all are pinned."""
        if not set(self.participants) <= set(self.content.pins):
            return {}
        return {name: certificate.key_fingerprint for name, certificate in self.certificates().items()}


def _preloaded_study(path: Path) -> Study | None:
    """A study that this process was forked with, if its files are still the same."""
    study = _PRELOADED_STUDIES.get(path.absolute())
    if study is None or not study.is_unchanged:
        return None
    found = copy(study)
    found.path = path
    return found


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Name a file in an error about the values in it."""
    try:
        yield
    except ColonnadeError as error:
        if str(path) not in str(error):
            error.args = (reading.shorten(f"{path}: {error}"),)
        raise


def is_party_file(path: Path) -> bool:
    """Whether a file is a party's own rather than a study; a file that cannot be read is neither."""
    try:
        raw = reading.read_toml(path)
    except reading.UnreadableFile:
        return False
    return "policy" in raw and "task" not in raw


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The content of a TOML file; an error says why it cannot be read."""
    try:
        return reading.read_toml(path)
    except reading.MalformedFile as error:
        raise StudyError(f"the {what} {path} is not valid TOML: {error} [ST599]") from None
    except reading.UnreadableFile as error:
        raise StudyError(f"the {what} {path} cannot be read: {error} [ST600]") from None


def first_problem(error: ValidationError, section: str = "") -> str:
    """The first problem, as a sentence; ``section`` is the section of the file that was checked."""
    problem = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in (*filter(None, [section]), *problem["loc"]))
    said = problem["msg"].removeprefix("Value error, ")
    what = _SENTENCES.get(problem["type"], said if problem["type"] == "value_error" else f"- {said}")
    return f"{reading.shorten(place, 200)} {reading.shorten(what)}".lstrip()


_SECTION = "must be a section with keys of its own"
_SENTENCES = {
    "extra_forbidden": "is not a key that is known here",
    "missing": "is missing",
    "tuple_type": "must be a list, in brackets",
    "list_type": "must be a list, in brackets",
    "dict_type": _SECTION,
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
    "bool_type": "must be true or false",
}


def write_pins(path: Path, pins: Mapping[str, str]) -> None:
    """Replace the ``[pins]`` table at the end of a study file."""
    try:
        text = reading.read_text(path)
    except reading.UnreadableFile as error:
        raise StudyError(f"the study file {path} cannot be read: {error} [ST601]") from None
    head, found, rest = text.partition("\n[pins]")
    if found and "\n[" in rest:
        raise StudyError(f"{path}: [pins] must be the last table of the file, so that it can be rewritten [ST602]")
    lines = "".join(f"{json.dumps(name)} = {json.dumps(pin)}\n" for name, pin in pins.items())
    write_whole(path.resolve(), f"{head.rstrip()}\n\n[pins]\n{lines}".encode())
