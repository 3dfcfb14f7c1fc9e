"""Keys, certificates, configurations and pins; and a first study of one's own files, ready to run on one machine."""

from __future__ import annotations

import os
import re
import secrets
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from colonnade.cli import text_output
from colonnade.cli.output import Json, StudyPath, emit, say, writing
from colonnade.errors import ColonnadeError, DataError, IdentityError, StudyError
from colonnade.models import registry
from colonnade.models.design import owner_of
from colonnade.models.serialization import replace_private, write_whole
from colonnade.protocols.align import NO_HELPER, Mode
from colonnade.protocols.roles import COORDINATOR
from colonnade.study import PartyConfig
from colonnade.study.local import local_configs
from colonnade.study.party_file import CONSOLE_ADDRESS, ApprovalMode
from colonnade.study.preflight import outlook, security_line
from colonnade.study.spec import Study, write_pins
from colonnade.tables import Schema, draft_schema
from colonnade.tables.cell_parsing import itemise, suggest_name
from colonnade.tables.datasets import PERSON_ID
from colonnade.tables.profiling import profile_table
from colonnade.tables.sources.factory import guess_format, read_columns
from colonnade.tables.sources.object_stores import has_pattern
from colonnade.wire import Certificate, Identity, check_name
from colonnade.wire.identity import IDENTITY_DAYS

PARTY_TEMPLATE = """\
# What {name} brings to a study and what it allows. This file stays with {name}.
name = "{name}"
data = {data}
id = {id:<27}# delete this line if the table has no such column
key = "{name}.key"
ledger = "ledger.sqlite"
# misfits = "refuse"            # do not take part if a cell is not in the schema; by default it is mapped and counted
# separator = ";"               # of a CSV file; likewise encoding = "latin-1", decimal = "," and thousands = "."
# kept = "kept.json"            # what {name} kept of a model (or kept.npz), for "glm-scores" and "split-scores"

# The columns by which a study with [align] may recognise people, under the study's names for them. Cells are compared
# exactly, so no other column but `id` is used; a single key is `id`, unless it stands here.
# [keys]
# name = "client"
# birth = {{ column = "born", format = "%d.%m.%Y" }}    # of dates that are text

# The encoder that {name} brings to split networks which leave it to {name} (kind = "own"); give make, weights, or both.
# [encoder]
# make = "mypackage.encoders:make"        # a function that makes a torch module
# weights = "encoder.npz"
# made_without_this_table = true          # {name}'s declaration, which nothing can check

[policy]
# "ask": a person says yes to each study, at the terminal or with --approve DIGEST; "auto-within-budget": whatever
# this policy and its caps allow, without asking; "never": nothing.
approval = "{approval}"
tasks = {tasks:<24}# and {others}
columns = "all"                 # or the list of columns that may be used
# exact = ["NAME"]              # parties that may be told exact answers about single people; nobody by default
align = {align:<24}# how people may be matched; "helper" and "fuzzy" promise less, so name them if you agree
# hidden = true                 # take part only where no party learns who matched
# security = "active"           # take part only where seats check each other, so that some of them may cheat
# again = true                  # run a study once more without asking; false: ask also where nothing else is asked
{trial:<32}# take part in trials, whose schemas may tell about the data
# schemas = ["DIGEST"]          # the only schemas that {name} agrees to, as `colonnade schema digest` prints them

[policy.budget]
delta = 1e-5
# The most that each of these may ever learn about {name}'s people, over all studies. `party` is each other party
# alone; above the threshold of a study nothing is promised, whatever stands here. All others together are always
# capped, by `others`, or else by the largest of these.
epsilon = {{ analyst = {cap}, coordinator = {cap}, party = {cap} }}

# Studies that end early tell whoever asked that they did. After so many of them, no more studies.
# [policy.failures]
# at_most = 20
# days = 30

# An alignment tells others whom of their people we hold. After so many of them, no more alignments.
# [policy.alignments]
# at_most = 100
# at_most_each = 25             # for one who proposes; so nobody uses up what others need
# days = 30

# A brake besides: the most that may be learned within so many days. Any number of these; none is in force yet.
# [[policy.periods]]
# days = 30
# epsilon = 1.5
"""
AGENT_TEMPLATE = """
# The process that stays connected, checks what is proposed, and asks: colonnade federation agent party.toml
[agent]
federation = {federation}
folder = "agent"                # what it keeps
console = {console:<22}# in the browser, on this machine alone; false for none
retries = 2                     # how often a study is tried again that was lost with a machine; each try is paid for
"""


def identity(name: str, folder: Path, days: int = IDENTITY_DAYS) -> dict[str, Any]:
    """A key and certificate, made unless they are there already."""
    key = folder / f"{check_name(name)}.key"
    there = key.exists()
    if there:
        found = Identity.load(key, key.with_suffix(".crt"))
        if found.certificate.name != name:
            raise IdentityError(
                f"{key} is the key of {found.certificate.name}, not of {name}; choose another folder [ID003]"
            )
    else:
        found = Identity.create(name, days=days)
        found.save(folder)
    return {
        "name": name,
        "key": str(key),
        "certificate": str(key.with_suffix(".crt")),
        "fingerprint": found.fingerprint,
        "kept": ["key"] if there else [],
    }


def party(
    name: str,
    folder: Path,
    data: str,
    id: str,
    approval: ApprovalMode = "ask",
    align: Sequence[Mode] = NO_HELPER,
    *,
    tasks: Sequence[str] = ("pca",),
    cap: float = 3.0,
    trial: bool = False,
    federation: str | None = None,
    console: str = CONSOLE_ADDRESS,
) -> dict[str, Any]:
    """An identity, and a configuration to review; what is there already stays as it is.

    With a federation's file, as seen from the folder, the party gets an agent too.
    """
    check_name(name)
    config = folder / "party.toml"
    there = config.exists()
    if there and PartyConfig.load(config).name != name:
        raise StudyError(f"{config} is the configuration of another party; choose another folder with --out [ST035]")
    made = identity(name, folder)
    if not there:
        lists = {"tasks": list(tasks), "align": list(align)}
        text = PARTY_TEMPLATE.format(
            name=name,
            approval=approval,
            others=", ".join(f'"{row.kind}"' for row in registry.rows() if row.section and row.kind not in tasks),
            cap=cap,
            trial="trial = true" if trial else "# trial = true",
            **{key: dumps(value) for key, value in (lists | {"data": data, "id": id}).items()},
        )
        if federation is not None:
            named = {"federation": federation, "console": console}
            text += AGENT_TEMPLATE.format(**{key: dumps(value) for key, value in named.items()})
        replace_private(config, text.encode())
    return made | {"config": str(config), "kept": [*made["kept"], *(["config"] if there else [])]}


def pins(study: Path) -> dict[str, str]:
    """Write the fingerprint of everyone's certificate into the study file."""
    loaded = Study.load(study)
    found = {}
    for name in loaded.participants:
        path = loaded.folder / "certs" / f"{name}.crt"
        if not path.exists():
            raise IdentityError(f"no certificate of {name} at {path}: ask {name} for it (it is public) [ID004]")
        certificate = Certificate.load(path)
        if certificate.name != name:
            raise IdentityError(f"{path} is the certificate of {certificate.name}, not of {name} [ID005]")
        found[name] = certificate.fingerprint
    write_pins(study, found)
    return found


def trial(study: Path) -> dict[str, str]:
    """Everyone's keys and configurations on one machine, where they are missing, and their pins."""
    loaded = Study.load(study)
    certificates = loaded.folder / "certs"
    with writing(certificates):
        certificates.mkdir(exist_ok=True)
    for name in loaded.participants:
        folder = loaded.folder / name
        if name == COORDINATOR:
            identity(name, folder)
        else:
            modes: tuple[Mode, ...] = NO_HELPER if loaded.aligning is None else (loaded.aligning.mode,)
            kind, drafts = loaded.content.task.kind, loaded.content.trial
            party(name, folder, f"{name}.csv", PERSON_ID, align=modes, tasks=[kind], trial=drafts)
        write_whole(certificates / f"{name}.crt", Certificate.load(folder / f"{name}.crt").pem)
    return pins(study)


def without_tables(study: Path) -> list[PartyConfig]:
    """The configurations beside a study file whose table is not where they say."""
    found = [(config, config.data) for config in local_configs(Study.load(study)).values()]
    files = [(config, data) for config, data in found if isinstance(data, Path) and not has_pattern(str(data))]
    return [config for config, data in files if not data.exists()]


def free_port() -> int:
    """A port of this machine at which nothing listens now."""
    while True:
        # Below 32768, from where systems take the ports of outgoing connections, which come and go.
        port = 16384 + secrets.randbelow(16384)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


KINDS = ("pca", "linear", "logistic", "synthetic", "split-classifier", "split-regressor")
"""Kinds that need no more than columns and, but for two of them, a label."""
_UNLABELLED = ("pca", "synthetic")
_CAPS = 3.0
"""A party's caps, in budgets of this study."""
_FEWEST = 1000
_STUDY_TEMPLATE = """\
# Written by `colonnade init trial` from files of this machine. Everyone holds an equal copy of such a file.
name = {name}
trial = true         # schemas/ was drafted from data; review it for a real study, and delete this line
{security}
[task]
kind = {kind}{label}
rows_at_most = {rows}

[budget]
epsilon = {epsilon}        # for everyone: alone, in pairs, and up to the threshold together
delta = 1e-5

[align]
on = {on}            # first the parties find out, in private, whom all of them hold
mode = "ot"

[coordinator]
address = "127.0.0.1:{port}"
"""


@dataclass(frozen=True)
class SchemaDraft:
    """One party's file, and the schema drafted for it."""

    name: str
    file: Path
    id: str
    text: str
    rows: int

    @property
    def schema(self) -> Schema:
        """The schema as it stands."""
        return Schema.from_toml(self.text, name=f"schemas/{self.name}.toml", drafts=True)

    @property
    def left_out(self) -> list[str]:
        """The columns that the draft has no place for, each with the reason."""
        found = re.findall(r"^# Left out: (.*)\.$", self.text, re.MULTILINE)
        return [each for each in found if not each.endswith("(the id)")]

    def count_missing(self, label: str | None) -> int:
        """How many labels are missing; none where the label is another party's."""
        party, _, column = (label or "").partition(".")
        if party != self.name:
            return 0
        return profile_table(self.file, self.schema.select([column])).columns[0].unknown


def prepare_trial(
    study: Path,
    parties: Sequence[str],
    ids: Sequence[str],
    *,
    label: str | None,
    kind: str | None,
    epsilon: float,
    signs: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Write everything that a first study of these files needs; nothing is written if the study cannot be."""
    if study.exists():
        raise StudyError(f"{study} is there already: leave --party out to use it, or name another file [ST047]")
    files = _files_by_party(parties)
    if len(files) < 2:
        raise StudyError("a study has two parties or more: give --party NAME=FILE for each of them [ST048]")
    columns = _ids(ids, files)
    written = {name: {key: _own(given, name, files) for key, given in signs.items()} for name in files}
    drafts = [_draft(name, file, columns[name], label, written[name]) for name, file in files.items()]
    chosen = _kind(kind, label, drafts)
    text = _STUDY_TEMPLATE.format(
        name=_toml_text(re.sub(r"[^A-Za-z0-9_.-]", "-", study.stem).lstrip("_.-")[:80] or "trial"),
        kind=_toml_text(chosen),
        security=security_line(chosen),
        label="" if label is None else f"\nlabel = {_toml_text(label)}",
        rows=10 ** len(str(max(_FEWEST, *(draft.rows for draft in drafts)) - 1)),
        epsilon=f"{epsilon:g}",
        on=_toml_text(next(iter(columns.values()))),
        port=free_port(),
    )
    text += "".join(f'\n[parties.{draft.name}]\nschema = "schemas/{draft.name}.toml"\n' for draft in drafts)
    folder = study.parent
    there = [path for draft in drafts if (path := folder / "schemas" / f"{draft.name}.toml").exists()]
    if there:
        raise StudyError(f"{there[0]} is there already: move it away, or name a study file in another folder [ST049]")
    _check(text, drafts, study)
    with writing(folder / "schemas"):
        (folder / "schemas").mkdir(parents=True, exist_ok=True)
    for draft in drafts:
        replace_private(folder / "schemas" / f"{draft.name}.toml", draft.text.encode())
        party(
            draft.name,
            folder / draft.name,
            os.path.relpath(draft.file, folder / draft.name),
            draft.id,
            "auto-within-budget",
            tasks=[chosen],
            cap=_CAPS * max(1.0, epsilon),
            trial=True,
        )
    write_whole(study, text.encode())
    pins = trial(study)
    expected = outlook(Study.load(study), min(draft.rows for draft in drafts))
    enough = [] if expected is None or expected.warning is None else [expected.forecast, expected.warning]
    return {"enough": enough, "study": str(study), "kind": chosen, "label": label, "epsilon": epsilon, "pins": pins} | {
        "parties": {
            draft.name: {
                "file": str(draft.file),
                "schema": str(folder / "schemas" / f"{draft.name}.toml"),
                "columns": len(draft.schema.names),
                "left_out": draft.left_out,
                "labels_missing": draft.count_missing(label),
            }
            for draft in drafts
        }
    }


def _check(text: str, drafts: Sequence[SchemaDraft], study: Path) -> None:
    """Raise the error that this study would lead to, before anything of it is left on disk."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "schemas").mkdir()
        for draft in drafts:
            replace_private(place / "schemas" / f"{draft.name}.toml", draft.text.encode())
        replace_private(place / study.name, text.encode())
        try:
            Study.load(place / study.name).statement  # noqa: B018 - computed only to see whether it can be
        except ColonnadeError as error:
            raise type(error)(str(error).replace(f"{place}{os.sep}", "")) from None


def _files_by_party(parties: Sequence[str]) -> dict[str, Path]:
    """The file of each party, from ``NAME=FILE``."""
    found: dict[str, Path] = {}
    for each in parties:
        name, equals, file = each.partition("=")
        if not (equals and name and file):
            raise StudyError(f"--party takes NAME=FILE, such as bank=bank.csv, not {each!r} [ST050]")
        if check_name(name) in found:
            raise StudyError(f"--party names {name} twice; each party has one file [ST051]")
        found[name] = Path(file)
    return found


def _ids(ids: Sequence[str], files: Mapping[str, Path]) -> dict[str, str]:
    """The id column of each party, from ``COLUMN`` for all or ``NAME=COLUMN`` for one."""
    common = [each for each in ids if each.partition("=")[0] not in files]
    if len(common) > 1:
        raise StudyError(
            "--id names several columns: say whose they are, such as --id bank=client --id shop=buyer [ST052]"
        )
    return {name: _own(ids, name, files) or PERSON_ID for name in files}


def _own(given: Sequence[str], name: str, files: Mapping[str, Path]) -> str | None:
    """What one party's file has, from ``X`` for all or ``NAME=X`` for one."""
    own = dict(each.split("=", 1) for each in given if each.partition("=")[0] in files)
    return own.get(name, next((each for each in given if each.partition("=")[0] not in files), None))


def _draft(name: str, file: Path, id: str, label: str | None, signs: Mapping[str, str | None]) -> SchemaDraft:
    columns: list[str] = []

    def only_id(there: Sequence[str]) -> Sequence[str]:
        columns.extend(there)
        return [id] if id in there else there[:1]

    rows = read_columns(file, str(file), only_id, guess_format(file, str(file))).num_rows
    if id not in columns:
        hint = suggest_name(id, columns) or f"; its columns are {itemise(columns)}."
        raise DataError(
            f"{file} has no column {id!r}{hint} Name the one that holds ids with --id {name}=COLUMN [DA045]"
        )
    text = draft_schema(file, id=id, fill=lambda column: f"{name}.{column}" != label, **signs)
    draft = SchemaDraft(name, file, id, text, rows)
    if not re.search(r"^\[columns\.", draft.text, re.MULTILINE):
        beside = f" (left out: {', '.join(draft.left_out)})" if draft.left_out else ""
        wrong = f", so --label {label} names none either" if label is not None and label.startswith(f"{name}.") else ""
        raise DataError(
            f"{file} has no column beside the id {id!r} that a study can use{beside}{wrong}: add a column of numbers "
            f"or of a few different values, or give another file as --party {name}=FILE [DA046]"
        )
    return draft


def _kind(kind: str | None, label: str | None, drafts: Sequence[SchemaDraft]) -> str:
    """The kind of study: as asked, or as the label suggests."""
    there = [row.kind for row in registry.rows()]
    offered = [each for each in KINDS if each in there]
    if kind is not None and kind not in offered:
        raise StudyError(
            f"--kind is one of {', '.join(offered)} here, not {kind!r}; other kinds need a study file [ST053]"
        )
    if label is None:
        if kind not in (None, *_UNLABELLED):
            raise StudyError(f"kind {kind} predicts a column: name it with --label PARTY.COLUMN [ST054]")
        return kind or "pca"
    if kind in _UNLABELLED:
        raise StudyError(f"kind {kind} has no label: leave --label out, or choose another --kind [ST055]")
    schemas = {draft.name: draft.schema for draft in drafts}
    owner, column = owner_of(label, schemas)
    if owner is None:
        raise StudyError(f"--label is PARTY.COLUMN, and {label!r} begins with no party of {', '.join(schemas)} [ST056]")
    if column not in schemas[owner].names:
        known = schemas[owner].names
        hint = suggest_name(column, known) or f"; those drafted are {itemise(known)}"
        raise StudyError(f"--label: {owner} has no column {column!r} in its draft{hint} [ST057]")
    numeric = schemas[owner].columns[column].quantity is not None
    return kind or ("linear" if numeric else "logistic")


def _toml_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# --- the commands


def make_party(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The party's name in studies.")],
    out: Annotated[Path | None, typer.Option("--out", help="The party's folder.  [default: NAME]")] = None,
    data: Annotated[str, typer.Option("--data", help="The party's table, from its folder.  [default: NAME.csv]")] = "",
    id: Annotated[str, typer.Option("--id", help="The id column.")] = "person_id",
    federation: Annotated[
        str | None,
        typer.Option("--federation", metavar="FEDERATION.toml", help="With an agent; the file, from its folder."),
    ] = None,
    json: Json = False,
) -> None:
    """Make a party's key, certificate and configuration."""
    made = party(name, out or Path(name), data or f"{name}.csv", id, federation=federation)
    emit(made) if json else say(text_output.identity(made))


def make_coordinator(
    out: Annotated[Path, typer.Option("--out", help="The coordinator's folder.")] = Path("coordinator"),
    json: Json = False,
) -> None:
    """Make the coordinator's key and certificate."""
    made = identity(COORDINATOR, out)
    emit(made) if json else say(text_output.identity(made))


def write_fingerprints(study: StudyPath, json: Json = False) -> None:
    """Pin the certificates in certs/ by writing their fingerprints into the study file."""
    pinned = pins(study)
    emit({"pins": pinned}) if json else say(f"{text_output.pins(study, pinned)}\nnext: colonnade privacy {study}")


def make_trial(
    study: Annotated[
        Path | None,
        typer.Argument(
            metavar="[STUDY.toml]", help="The study file; with --party it is written.  [default: study.toml]"
        ),
    ] = None,
    party: Annotated[
        list[str] | None,
        typer.Option("--party", metavar="NAME=FILE", help="A party and its file; once for each party."),
    ] = None,
    id: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="[NAME=]COLUMN", help="The id column, of all or of one.  [default: person_id]"),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option("--label", metavar="NAME.COLUMN", help="The column to predict; without it kind is pca."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="The kind of study.  [default: by the label: logistic or linear]")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", help="The budget against everyone.  [default: 1.0]")
    ] = None,
    decimal: Annotated[
        list[str] | None, typer.Option("--decimal", metavar="[NAME=]X", help="The decimal sign.  [default: as found]")
    ] = None,
    thousands: Annotated[
        list[str] | None,
        typer.Option("--thousands", metavar="[NAME=]X", help="The sign between thousands.  [default: as found]"),
    ] = None,
    json: Json = False,
) -> None:
    """For a trial on one machine: from files to a study that can run, or everyone's keys for a study file."""
    if party:
        price = 1.0 if epsilon is None else epsilon
        signs = {"decimal": decimal or [], "thousands": thousands or []}
        out = study or Path("study.toml")
        made = prepare_trial(out, party, id or [], label=label, kind=kind, epsilon=price, signs=signs)
        emit(made) if json else say(text_output.trial(made))
        return
    if study is None:
        raise StudyError("name a study file, or give each party's own with --party NAME=FILE [ST033]")
    if id or label or kind or decimal or thousands or epsilon is not None:
        raise StudyError(
            f"--id, --label, --kind, signs and --epsilon go with --party; {study} says these things itself [ST034]"
        )
    pinned = trial(study)
    lacking = [f"put {own.name}'s table at {own.data}" for own in without_tables(study)]
    then = "; ".join([*lacking, f"colonnade run {study}"])
    emit({"pins": pinned}) if json else say(f"{text_output.pins(study, pinned)}\nnext: {then}")
