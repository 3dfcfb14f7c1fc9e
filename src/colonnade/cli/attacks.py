"""``colonnade audit``: play games against the promises, or attack a model with people whom the auditor has."""

from __future__ import annotations

import json as plain_json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import typer

from colonnade.audit import games, subject, subjects
from colonnade.audit.attacks.inversion import Kind, invert
from colonnade.audit.attacks.labels import infer_labels
from colonnade.audit.attacks.membership import confidence, infer_membership
from colonnade.audit.attacks.views import (
    attach_kept_parts,
    collect_gradients,
    fit_shadows,
    nearness_to_embeddings,
    observe_people,
    read_promise,
)
from colonnade.audit.registry import GameVerdict, judge
from colonnade.cli.output import emit, progress_bar, say
from colonnade.errors import DataError, StorageError, StudyError
from colonnade.models import serialization
from colonnade.models.base import Estimator
from colonnade.models.new_rows import match_people
from colonnade.privacy.statement import format_rounded_up
from colonnade.randomness import new_key
from colonnade.report import audit_pages as page
from colonnade.report.audit_pages import NAME, write_audit
from colonnade.study import Study
from colonnade.tables import Table, read_table
from colonnade.tables.cell_parsing import pa, pc
from colonnade.tables.sources.factory import read_columns
from colonnade.tables.text_format import TextFormat

_ALL = "all"
_FIGURES = "audit.json"
Tasks = list[tuple[str, Any, str]]


def audit(name: str | None, samples: int, seed: int | None, out: Path, json: bool) -> None:
    """Play the games of one name, of all names or of a study, or list the names."""
    if name is None:
        emit({"games": _listing()}) if json else say(_list())
        return
    number = new_seed() if seed is None else seed
    title, tasks = audited_tasks(name)
    played = [replace(game, subject=called) for subject, task, called in tasks for game in games(subject, task)]
    prepare_folder(out, (NAME, _FIGURES))
    verdicts = []
    with progress_bar(not json) as progress:
        for index, game in enumerate(played):
            progress("play", index, len(played))
            verdicts.append(judge(game, samples, number))
        progress("play", len(played), len(played))
    facts = {"audited": name, "seed": number, "games": [verdict.to_dict() for verdict in verdicts]}
    page = write_audit(out, f"Audit of {title}", verdicts)
    serialization.write_whole(out / _FIGURES, (plain_json.dumps(facts, indent=1) + "\n").encode())
    emit(facts | {"out": str(out)}) if json else say(_show(verdicts, page, number))
    if not all(verdict.good for verdict in verdicts):
        raise typer.Exit(1)


def new_seed() -> int:
    """A seed by which an audit can be repeated."""
    return int.from_bytes(new_key()[:4], "little")


def audited_tasks(name: str) -> tuple[str, Tasks]:
    """The title of the audit, and the tasks to attack: that of a study, or the registered ones.

    Of each task: whose games are played, the task itself unless it is the registered one, and what to call it.
    """
    names = [known.name for known in subjects()]
    if name == _ALL:
        return name, [(known, None, known) for known in names]
    if name not in names and (name.endswith(".toml") or os.path.basename(name) != name):
        study = Study.load(name)
        task = study.runnable().task
        return study.name, [(subject(task), task, study.content.task.kind)]
    return name, [(name, None, name)]


def prepare_folder(out: Path, names: Sequence[str]) -> None:
    """Make the folder for these files and test that it can be written, before an audit that may take hours."""
    for place in (out, *out.parents):
        if place.exists() and not place.is_dir():
            raise StorageError(
                f"{place} is a file and the audit is to be left in a folder: choose another --out [SO001]"
            )
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise StorageError(f"{out} cannot be written ({error.strerror}): choose another --out [SO002]") from None
    for name in names:
        if (out / name).is_dir():
            raise StorageError(f"{out / name} is a folder where the audit writes a file: choose another --out [SO003]")


def _listing() -> list[dict[str, Any]]:
    return [
        {"name": known.name, "summary": known.summary, "games": [game.name for game in games(known.name)]}
        for known in subjects()
    ]


def _list() -> str:
    wide = max(len(known.name) for known in subjects())
    lines = ["games that can be played, each against every observer it is about:", ""]
    lines += [f"  {known.name:<{wide}}  {known.summary}" for known in subjects()]
    return "\n".join([*lines, "", "colonnade audit NAME plays one, colonnade audit STUDY.toml a study's own"])


def _show(verdicts: Sequence[GameVerdict], page: Path, seed: int) -> str:
    lines = [
        conditions(verdicts),
        "",
        *verdict_table("game", verdicts),
        "",
        "reach: how much of the promised curve was shown; noise clearly below that share would have been seen",
    ]
    return "\n".join([*lines, "", f"pictures: {page} (repeat with --seed {seed})"])


def conditions(verdicts: Sequence[GameVerdict]) -> str:
    """How many samples were drawn, and what is said with which confidence."""
    result = verdicts[0].result
    return (
        f"{result.samples[0]:,} samples of each table; confidence {result.confidence:g} a game; epsilon at delta "
        f"{result.delta:g}"
    )


def verdict_table(head: str, verdicts: Sequence[GameVerdict]) -> list[str]:
    """What was promised and shown, a line for each game."""
    wide = max(len(head), *(len(verdict.label) for verdict in verdicts))
    lines = [f"{head:<{wide}}  promised   shown  reach  verdict"]
    for verdict in verdicts:
        shown = f"{verdict.result.epsilon_lower_bound:.3f}"
        lines.append(
            f"{verdict.label:<{wide}}  {format_rounded_up(verdict.claimed):>8}  {shown:>6}  "
            f"{verdict.reach:>5}  {verdict.word}"
        )
    return lines


def membership(
    path: Path,
    members: list[str],
    others: list[str],
    kept: list[Path],
    id: str | None,
    shadows: int,
    seen: str | None,
    offline: bool,
    seed: int,
    out: Path,
    json: bool,
) -> None:
    """Fit shadow models to members and others, and attack the model by them."""
    model = Estimator.load(path)
    if seen is not None:
        _check_party(model, seen)
    attach_kept_parts(model, kept, model.schemas_ if seen is None else (seen,))
    _prepare_attack(out, "membership")
    pool, sizes = _people(model, {"members": members, "others": others}, id)
    size, everybody = sizes["members"], sum(sizes.values())
    if size < 4 or everybody - size < 4:
        raise DataError(
            "a membership attack needs at least four members and four others; a few hundred say more [DA022]"
        )
    see = confidence if seen is None else nearness_to_embeddings(seen, seed)
    target = see(model, pool)
    with progress_bar(not json) as progress:
        found = fit_shadows(model, pool, size, shadows + shadows % 2, seed=seed, see=see, progress=progress)
    member = np.arange(everybody) < size
    if seen is None:
        result = infer_membership(found, target, member, offline=offline, promise=read_promise(model))
    else:
        sees = f"what {seen} tells about each person"
        result = infer_membership(found, target, member, offline=offline, sees=sees)
    _leave(out, "membership", path, result, {"seed": seed, "members": size, "others": everybody - size}, json)


def inversion(
    path: Path,
    party: str,
    people: list[str],
    auxiliary: list[str],
    kept: list[Path],
    id: str | None,
    shape: str | None,
    decoder: Kind,
    scores: bool,
    releases: int,
    epochs: int,
    seed: int,
    out: Path,
    json: bool,
) -> None:
    """Train a decoder on the auxiliary people, and recover the columns of the others."""
    model: Any = Estimator.load(path)
    _check_party(model, party)
    attach_kept_parts(model, kept, model.schemas_ if scores else (party,))
    arranged = _shape(shape)
    _prepare_attack(out, "inversion")
    everyone, sizes = _people(model, {"people": people, "auxiliary": auxiliary}, id)
    asked = np.arange(sum(sizes.values())) < sizes["people"]
    seen = observe_people(model, party, everyone, seed, scores=scores, releases=releases)
    result = invert(seen.split(asked), decoder, shape=arranged, epochs=epochs, seed=seed)
    _leave(out, "inversion", path, result, {"seed": seed, "party": party}, json)


def labels(
    path: Path, members: list[str], kept: list[Path], id: str | None, known: int, seed: int, out: Path, json: bool
) -> None:
    """Group the slopes that are returned about members, and name the groups by the people who are known."""
    model = attach_kept_parts(Estimator.load(path), kept)
    _prepare_attack(out, "labels")
    people, sizes = _people(model, {"members": members}, id)
    if not known < sizes["members"]:
        raise DataError(
            f"there are {sizes['members']:,} members: fewer than that must be --known, to judge by the rest [DA023]"
        )
    result = infer_labels(collect_gradients(model, people, known, seed), seed=seed)
    _leave(out, "labels", path, result, {"seed": seed}, json)


# --- what is given


def _check_party(model: Estimator, party: str) -> None:
    if party not in model.schemas_:
        raise StudyError(f"the model knows no party {party}; it knows {', '.join(model.schemas_)} [ST019]")


def _people(
    model: Estimator, groups: Mapping[str, list[str]], id: str | None
) -> tuple[dict[str, Table], dict[str, int]]:
    """The tables of all parties with the people of all groups, one group after the other, and the size of each."""
    parts: dict[str, list[Any]] = {party: [] for party in model.schemas_}
    sizes = {}
    for group, given in groups.items():
        files = _by_party(group, given, tuple(model.schemas_))
        read = {party: _read_file(path, model.schemas_[party].text) for party, path in files.items()}
        for party, cells in read.items():
            parts[party].append(cells)
        rows = {cells.num_rows for cells in read.values()}
        if len(rows) > 1:
            raise DataError(
                f"the files of --{group} have different numbers of rows: give files about the same people [DA024]"
            )
        if id is None:
            _check_places(group, read)
        sizes[group] = rows.pop()
    if id is not None:
        _check_apart(parts, tuple(groups), id)
    try:
        joined = {party: pa.concat_tables(_alike(some, model, party, id)) for party, some in parts.items()}
    except pa.ArrowInvalid:
        raise DataError(
            "two files of one party have columns of different types: give files of one format [DA025]"
        ) from None
    read_in = {
        party: read_table(cells, model.schemas_[party], id=id, name=f"the files of {party}")
        for party, cells in joined.items()
    }
    return match_people(read_in, model.schemas_, id, "an attack", same_order=id is None), sizes


def _check_apart(parts: Mapping[str, Sequence[Any]], groups: Sequence[str], id: str) -> None:
    """Raise an error where somebody is in two groups; what else may be wrong with ids is told later."""
    for given in parts.values():
        named = [(group, _id_texts(cells, id)) for group, cells in zip(groups, given, strict=True)]
        for (before, some), (group, more) in combinations(named, 2):
            if count := pc.sum(pc.is_in(more, value_set=some, skip_nulls=True)).as_py():
                raise DataError(
                    f"{count:,} of the people of --{group} are among those of --{before}, too, by the column {id!r}: "
                    "give each person in one of the two [DA026]"
                )


def _check_places(group: str, read: Mapping[str, Any]) -> None:
    """Raise an error where rows are matched by place, and a column of ids that all files share has another order."""
    first, *rest = read.values()
    for name in first.column_names:
        ids, others = _id_texts(first, name), [_id_texts(cells, name) for cells in rest]
        if len(ids) and len(pc.unique(ids)) == len(ids) and any(_is_reordered(ids, each) for each in others):
            raise DataError(
                f"the files of --{group} have the same cells in their columns {name!r}, in different orders: say "
                f"--id {name}, so that rows of the same person belong together [DA027]"
            )


def _is_reordered(ids: Any, others: Any) -> bool:
    """Whether the second are the first in another order."""
    first, second = (each.take(pc.array_sort_indices(each)) for each in (ids, others))
    return bool(not ids.equals(others) and first.equals(second))


def _id_texts(cells: Any, id: str) -> Any:
    """The ids of a table as text; none where the column is missing or holds no ids."""
    try:
        return cells[id].cast(pa.string()).combine_chunks()
    except (KeyError, pa.ArrowException):
        return pa.array([], pa.string())


def _by_party(group: str, given: Sequence[str], parties: Sequence[str]) -> dict[str, Path]:
    """The file of each party: named by it, or one file that has the columns of all."""
    found: dict[str, Path] = {}
    for text in given:
        party, equals, path = text.partition("=")
        if not equals:
            found |= {each: Path(text) for each in parties if each not in found}
        elif party in parties:
            found[party] = Path(path)
        else:
            raise DataError(
                f"--{group} names {party}, whom the model does not know; it knows {', '.join(parties)} [DA028]"
            )
    if missing := [party for party in parties if party not in found]:
        raise DataError(
            f"--{group} lacks a file of {', '.join(missing)}: give --{group} PARTY=FILE for each party, or one file "
            "with the columns of all [DA029]"
        )
    return found


def _read_file(path: Path, text: TextFormat) -> Any:
    return read_columns(path, str(path), lambda there: there, text)


def _alike(parts: Sequence[Any], model: Estimator, party: str, id: str | None) -> list[Any]:
    """Tables of one party's people with the columns that are needed, in one order."""
    wanted = [*model.schemas_[party].sources, *([] if id is None else [id])]
    for cells in parts:
        if missing := [name for name in wanted if name not in cells.column_names]:
            why = "which --id names" if missing[0] == id else "which the model needs"
            raise DataError(f"a file of {party} has no column {missing[0]!r}, {why} [DA030]")
    return [cells.select(wanted) for cells in parts]


def _shape(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    sides = text.lower().split("x")
    if len(sides) not in (2, 3) or not all(side.isdecimal() and 0 < int(side) <= 4096 for side in sides):
        raise StudyError("--shape is written HEIGHTxWIDTH or HEIGHTxWIDTHxCHANNELS, such as 28x14 [ST020]")
    return tuple(int(side) for side in sides)


# --- what is left


def _prepare_attack(out: Path, name: str) -> None:
    prepare_folder(out, (f"{name}.html", f"{name}.json"))


def _leave(out: Path, name: str, model: Path, result: Any, more: Mapping[str, Any], json: bool) -> None:
    """Write the page and the figures, both for this user alone, and say what was found."""
    facts = {"model": str(model), **more, **result.to_dict()}
    target = page.write_attack(out / f"{name}.html", model.resolve().parent.name, result)
    serialization.replace_private(out / f"{name}.json", (plain_json.dumps(facts, indent=1) + "\n").encode())
    if json:
        emit(facts | {"out": str(out)})
        return
    needed = result.needed[:1].upper() + result.needed[1:]
    say(
        f"{page.summarise_attack(result)}\n\n{needed}\n\n"
        f"page: {target}, for those who hold the data, not for publication"
    )
