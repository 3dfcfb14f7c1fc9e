"""A first study of one's own files: schemas, keys, configurations and a study file, on one machine, ready to run."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.cli.initialise import free_port, party, trial
from colonnade.cli.output import writing
from colonnade.errors import ColonnadeError, DataError, StudyError
from colonnade.models import registry
from colonnade.models.design import owner_of
from colonnade.models.files import replace_private, write_whole
from colonnade.study.deviating import line_for
from colonnade.study.preflight import outlook
from colonnade.study.spec import Study
from colonnade.tables import Schema, draft_schema
from colonnade.tables.dataset import PERSON_ID
from colonnade.tables.sources.opening import likely_format, read_columns
from colonnade.tables.wording import listed, suggestion
from colonnade.wire import check_name

KINDS = ("pca", "linear", "logistic", "synthetic", "split-classifier", "split-regressor")
"""Kinds that need no more than columns and, but for two of them, a label."""
_UNLABELLED = ("pca", "synthetic")
_CAPS = 3.0
"""A party's caps, in budgets of this study."""
_FEWEST = 1000
_STUDY = """\
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
class Draft:
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


def prepare(
    study: Path,
    parties: Sequence[str],
    ids: Sequence[str],
    *,
    label: str | None,
    kind: str | None,
    epsilon: float,
) -> dict[str, Any]:
    """Write everything that a first study of these files needs; nothing is written if the study cannot be."""
    if study.exists():
        raise StudyError(f"{study} is there already: leave --party out to use it, or name another file [ST047]")
    files = _named(parties)
    if len(files) < 2:
        raise StudyError("a study has two parties or more: give --party NAME=FILE for each of them [ST048]")
    columns = _ids(ids, files)
    drafts = [_draft(name, file, columns[name], label) for name, file in files.items()]
    chosen = _kind(kind, label, drafts)
    text = _STUDY.format(
        name=_quoted(re.sub(r"[^A-Za-z0-9_.-]", "-", study.stem).lstrip("_.-")[:80] or "trial"),
        kind=_quoted(chosen),
        security=line_for(chosen),
        label="" if label is None else f"\nlabel = {_quoted(label)}",
        rows=10 ** len(str(max(_FEWEST, *(draft.rows for draft in drafts)) - 1)),
        epsilon=f"{epsilon:g}",
        on=_quoted(next(iter(columns.values()))),
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
            }
            for draft in drafts
        }
    }


def _check(text: str, drafts: Sequence[Draft], study: Path) -> None:
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


def _named(parties: Sequence[str]) -> dict[str, Path]:
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
    own = dict(each.split("=", 1) for each in ids if each.partition("=")[0] in files)
    common = [each for each in ids if each.partition("=")[0] not in files]
    if len(common) > 1:
        raise StudyError(
            "--id names several columns: say whose they are, such as --id bank=client --id shop=buyer [ST052]"
        )
    return {name: own.get(name, common[0] if common else PERSON_ID) for name in files}


def _draft(name: str, file: Path, id: str, label: str | None) -> Draft:
    columns: list[str] = []

    def only_id(there: Sequence[str]) -> Sequence[str]:
        columns.extend(there)
        return [id] if id in there else there[:1]

    rows = read_columns(file, str(file), only_id, likely_format(file, str(file))).num_rows
    if id not in columns:
        hint = suggestion(id, columns) or f"; its columns are {listed(columns)}."
        raise DataError(
            f"{file} has no column {id!r}{hint} Name the one that holds ids with --id {name}=COLUMN [DA045]"
        )
    draft = Draft(name, file, id, draft_schema(file, id=id, fill=lambda column: f"{name}.{column}" != label), rows)
    if not re.search(r"^\[columns\.", draft.text, re.MULTILINE):
        beside = f" (left out: {', '.join(draft.left_out)})" if draft.left_out else ""
        wrong = f", so --label {label} names none either" if label is not None and label.startswith(f"{name}.") else ""
        raise DataError(
            f"{file} has no column beside the id {id!r} that a study can use{beside}{wrong}: add a column of numbers "
            f"or of a few different values, or give another file as --party {name}=FILE [DA046]"
        )
    return draft


def _kind(kind: str | None, label: str | None, drafts: Sequence[Draft]) -> str:
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
        hint = suggestion(column, known) or f"; those drafted are {listed(known)}"
        raise StudyError(f"--label: {owner} has no column {column!r} in its draft{hint} [ST057]")
    numeric = schemas[owner].columns[column].quantity is not None
    return kind or ("linear" if numeric else "logistic")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
