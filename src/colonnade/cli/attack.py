"""``colonnade audit inversion | membership | labels``: attacks on a model, with people whom the auditor has."""

from __future__ import annotations

import json as plain_json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.audit.attacks.decoders import Kind
from colonnade.audit.attacks.inversion import invert
from colonnade.audit.attacks.labels import infer_labels
from colonnade.audit.attacks.membership import infer_membership
from colonnade.audit.attacks.odds import confidence
from colonnade.audit.attacks.shadows import shadows_of
from colonnade.audit.attacks.views import nearness_of, promised, returned_by, seen_of, with_kept
from colonnade.cli.audit import prepare
from colonnade.cli.output import emit, progress_bar, say
from colonnade.errors import DataError, StudyError
from colonnade.models import files
from colonnade.models.base import Estimator
from colonnade.models.newcomers import same_people
from colonnade.report import attacks as page
from colonnade.tables import Table, read_table
from colonnade.tables.arrow import pa, pc
from colonnade.tables.files import read_columns
from colonnade.tables.formats import TextFormat


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
    with_kept(model, kept, model.schemas_ if seen is None else (seen,))
    _prepare(out, "membership")
    pool, sizes = _people(model, {"members": members, "others": others}, id)
    size, everybody = sizes["members"], sum(sizes.values())
    if size < 4 or everybody - size < 4:
        raise DataError(
            "a membership attack needs at least four members and four others; a few hundred say more [DA022]"
        )
    see = confidence if seen is None else nearness_of(seen, seed)
    target = see(model, pool)
    with progress_bar(not json) as progress:
        found = shadows_of(model, pool, size, shadows + shadows % 2, seed=seed, see=see, progress=progress)
    member = np.arange(everybody) < size
    if seen is None:
        result = infer_membership(found, target, member, offline=offline, promise=promised(model))
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
    with_kept(model, kept, model.schemas_ if scores else (party,))
    arranged = _shape(shape)
    _prepare(out, "inversion")
    everyone, sizes = _people(model, {"people": people, "auxiliary": auxiliary}, id)
    asked = np.arange(sum(sizes.values())) < sizes["people"]
    seen = seen_of(model, party, everyone, seed, scores=scores, releases=releases)
    result = invert(seen.split(asked), decoder, shape=arranged, epochs=epochs, seed=seed)
    _leave(out, "inversion", path, result, {"seed": seed, "party": party}, json)


def labels(
    path: Path, members: list[str], kept: list[Path], id: str | None, known: int, seed: int, out: Path, json: bool
) -> None:
    """Group the slopes that are returned about members, and name the groups by the people who are known."""
    model = with_kept(Estimator.load(path), kept)
    _prepare(out, "labels")
    people, sizes = _people(model, {"members": members}, id)
    if not known < sizes["members"]:
        raise DataError(
            f"there are {sizes['members']:,} members: fewer than that must be --known, to judge by the rest [DA023]"
        )
    result = infer_labels(returned_by(model, people, known, seed), seed=seed)
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
        read = {party: _read(path, model.schemas_[party].text) for party, path in files.items()}
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
    return same_people(read_in, model.schemas_, id, "an attack", same_order=id is None), sizes


def _check_apart(parts: Mapping[str, Sequence[Any]], groups: Sequence[str], id: str) -> None:
    """Raise an error where somebody is in two groups; what else may be wrong with ids is told later."""
    for given in parts.values():
        named = [(group, _named(cells, id)) for group, cells in zip(groups, given, strict=True)]
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
        ids, others = _named(first, name), [_named(cells, name) for cells in rest]
        if len(ids) and len(pc.unique(ids)) == len(ids) and any(_reordered(ids, each) for each in others):
            raise DataError(
                f"the files of --{group} have the same cells in their columns {name!r}, in different orders: say "
                f"--id {name}, so that rows of the same person belong together [DA027]"
            )


def _reordered(ids: Any, others: Any) -> bool:
    """Whether the second are the first in another order."""
    first, second = (each.take(pc.array_sort_indices(each)) for each in (ids, others))
    return bool(not ids.equals(others) and first.equals(second))


def _named(cells: Any, id: str) -> Any:
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


def _read(path: Path, text: TextFormat) -> Any:
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


def _prepare(out: Path, name: str) -> None:
    prepare(out, (f"{name}.html", f"{name}.json"))


def _leave(out: Path, name: str, model: Path, result: Any, more: Mapping[str, Any], json: bool) -> None:
    """Write the page and the figures, both for this user alone, and say what was found."""
    facts = {"model": str(model), **more, **result.to_dict()}
    target = page.write_attack(out / f"{name}.html", model.resolve().parent.name, result)
    files.replace_private(out / f"{name}.json", (plain_json.dumps(facts, indent=1) + "\n").encode())
    if json:
        emit(facts | {"out": str(out)})
        return
    needed = result.needed[:1].upper() + result.needed[1:]
    say(f"{page.in_words(result)}\n\n{needed}\n\npage: {target}, for those who hold the data, not for publication")
