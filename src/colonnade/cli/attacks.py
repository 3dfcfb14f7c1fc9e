"""``colonnade audit``: play games against the promises, or attack a model with people whom the auditor has."""

from __future__ import annotations

import json as plain_json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from colonnade.audit import MOST_SAMPLES, SAMPLES, registry
from colonnade.audit.attacks.inversion import Kind, invert
from colonnade.audit.attacks.membership import confidence, infer_labels, infer_membership
from colonnade.audit.attacks.views import (
    attach_kept_parts,
    collect_gradients,
    fit_shadows,
    nearness_to_embeddings,
    observe_people,
    read_promise,
)
from colonnade.audit.registry import GameVerdict, judge
from colonnade.cli.output import Json, emit, progress_bar, say
from colonnade.errors import DataError, StorageError, StudyError
from colonnade.models import serialization
from colonnade.models.base import Estimator, match_people
from colonnade.privacy.statement import format_rounded_up
from colonnade.randomness import new_key
from colonnade.report import audit_pages as page
from colonnade.report.audit_pages import NAME, write_audit
from colonnade.study import Study
from colonnade.tables import Table, read_table
from colonnade.tables.cell_parsing import pa, pc
from colonnade.tables.sources.factory import read_columns

_ALL = "all"
_FIGURES = "audit.json"
Tasks = list[tuple[str, Any, str]]
Model = Annotated[Path, typer.Argument(metavar="MODEL.json", help="The model under attack.")]
Members = Annotated[
    list[str],
    typer.Option("--members", metavar="[PARTY=]FILE", help="The people it was learned from; once for each party."),
]
Kept = Annotated[
    list[Path] | None,
    typer.Option("--kept", metavar="FILE", help="What a party keeps of the model, such as its encoder."),
]
Id = Annotated[str | None, typer.Option("--id", help="The column of ids.  [default: rows belong together by place]")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Choices of people and starting points follow from it.")]
Out = Annotated[Path, typer.Option("--out", help="Where to leave the page and the figures.")]
_OUT = Path("runs/audit")


def games(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME | STUDY.toml]", help="What to attack; all, or nothing for a list.")
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=1000, max=MOST_SAMPLES, help="Samples of each of the two tables.")
    ] = SAMPLES,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Repeat an audit.  [default: a new one]")] = None,
    out: Annotated[Path, typer.Option("--out", help="Where to leave audit.html and audit.json.")] = _OUT,
    json: Json = False,
) -> None:
    """Attack the promises from below: what can an observer show.

    To attack a model of your own, with people of your own: colonnade audit inversion, membership or labels MODEL.json;
    each has its own --help.
    """
    if name is None:
        emit({"games": _listing()}) if json else say(_list())
        return
    number = new_seed() if seed is None else seed
    title, tasks = audited_tasks(name)
    played = [
        replace(game, subject=called) for subject, task, called in tasks for game in registry.games(subject, task)
    ]
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
    names = [known.name for known in registry.subjects()]
    if name == _ALL:
        return name, [(known, None, known) for known in names]
    if name not in names and (name.endswith(".toml") or os.path.basename(name) != name):
        study = Study.load(name)
        task = study.runnable().task
        return study.name, [(registry.subject(task), task, study.content.task.kind)]
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
        {"name": known.name, "summary": known.summary, "games": [game.name for game in registry.games(known.name)]}
        for known in registry.subjects()
    ]


def _list() -> str:
    wide = max(len(known.name) for known in registry.subjects())
    lines = ["games that can be played, each against every observer it is about:", ""]
    lines += [f"  {known.name:<{wide}}  {known.summary}" for known in registry.subjects()]
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
    path: Model,
    members: Members,
    others: Annotated[
        list[str],
        typer.Option("--others", metavar="[PARTY=]FILE", help="People like them who were not; once for each party."),
    ],
    kept: Kept = None,
    id: Id = None,
    shadows: Annotated[
        int,
        typer.Option(
            "--shadows",
            min=8,
            max=4096,
            help="How many models to fit, all in all: at least 8, and more where members and others are not equally "
            "many, so that 3 know each person and 3 do not.",
        ),
    ] = 64,
    seen: Annotated[
        str | None,
        typer.Option("--seen", metavar="PARTY", help="The attacker has what this party tells of people, not scores."),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="The attacker cannot fit models with the person it asks about.")
    ] = False,
    seed: Seed = 0,
    out: Out = _OUT,
    json: Json = False,
) -> None:
    """Find out who was among the people that a model was learned from."""
    model = Estimator.load(path)
    if seen is not None:
        _check_party(model, seen)
    attach_kept_parts(model, kept or (), model.schemas_ if seen is None else (seen,))
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
    path: Model,
    party: Annotated[str, typer.Option("--party", help="Whose columns to recover.")],
    people: Annotated[
        list[str], typer.Option("--people", metavar="[PARTY=]FILE", help="Those who are attacked; once for each party.")
    ],
    auxiliary: Annotated[
        list[str],
        typer.Option("--auxiliary", metavar="[PARTY=]FILE", help="People the attacker knows; once for each party."),
    ],
    kept: Kept = None,
    id: Id = None,
    shape: Annotated[
        str | None, typer.Option("--shape", metavar="HxW[xC]", help="How columns make a picture, such as 28x14.")
    ] = None,
    decoder: Annotated[Kind, typer.Option("--decoder", help="What learns to recover columns.")] = "auto",
    scores: Annotated[
        bool, typer.Option("--scores", help="The attacker has exact scores of these people, and nothing else of them.")
    ] = False,
    releases: Annotated[
        int, typer.Option("--releases", min=1, help="Average embeddings that were told so often, and their noise.")
    ] = 1,
    epochs: Annotated[int, typer.Option("--epochs", min=1, max=10_000, help="Of training, at most.")] = 60,
    seed: Seed = 0,
    out: Out = _OUT,
    json: Json = False,
) -> None:
    """Recover a party's columns from what leaves it."""
    model: Any = Estimator.load(path)
    _check_party(model, party)
    attach_kept_parts(model, kept or (), model.schemas_ if scores else (party,))
    arranged = _shape(shape)
    _prepare_attack(out, "inversion")
    everyone, sizes = _people(model, {"people": people, "auxiliary": auxiliary}, id)
    asked = np.arange(sum(sizes.values())) < sizes["people"]
    seen = observe_people(model, party, everyone, seed, scores=scores, releases=releases)
    result = invert(seen.split(asked), decoder, shape=arranged, epochs=epochs, seed=seed)
    _leave(out, "inversion", path, result, {"seed": seed, "party": party}, json)


def labels(
    path: Model,
    members: Members,
    kept: Kept = None,
    id: Id = None,
    known: Annotated[
        int, typer.Option("--known", min=2, max=1_000_000, help="How many people's labels the attacker knows.")
    ] = 50,
    seed: Seed = 0,
    out: Out = _OUT,
    json: Json = False,
) -> None:
    """Guess labels from the slopes that the party with the label returns to others."""
    model = attach_kept_parts(Estimator.load(path), kept or ())
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
        read = {
            party: read_columns(path, str(path), lambda there: there, model.schemas_[party].text)
            for party, path in files.items()
        }
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
