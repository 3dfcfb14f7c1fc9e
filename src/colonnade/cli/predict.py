"""``colonnade predict``: what a model says of new people, or the scores that we received, as a CSV file."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from colonnade.cli.output import Json, emit, say
from colonnade.errors import DataError, StorageError, StudyError
from colonnade.models import files
from colonnade.models.base import Estimator
from colonnade.models.predicting import check_threshold
from colonnade.report.reliability import write_assessment
from colonnade.tables.arrow import pa
from colonnade.tables.files import need, read_columns
from colonnade.tables.formats import WHERE, TextFormat
from colonnade.tables.wording import suggestion


def predict(
    path: Annotated[Path, typer.Argument(metavar="MODEL.json", help="A fitted model, or scores that we received.")],
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="PARTY=FILE", help="A party's columns of the people; or one FILE with all."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The CSV file to write.")] = Path("predictions.csv"),
    id: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="COLUMN", help="The column of ids, or PARTY=COLUMN.  [default: person_id]"),
    ] = None,
    same_order: Annotated[
        bool, typer.Option("--same-order", help="No ids: the same row is the same person in every file.")
    ] = False,
    common: Annotated[bool, typer.Option("--common", help="Only the people whom all files hold.")] = False,
    encoding: Annotated[
        list[str] | None, typer.Option("--encoding", metavar="[PARTY=]X", help="Of CSV files, such as latin-1.")
    ] = None,
    separator: Annotated[
        list[str] | None,
        typer.Option("--separator", metavar="[PARTY=]X", help="What separates the cells of CSV files."),
    ] = None,
    decimal: Annotated[
        list[str] | None, typer.Option("--decimal", metavar="[PARTY=]X", help="The decimal sign in CSV files.")
    ] = None,
    threshold: Annotated[
        str | None, typer.Option("--threshold", help="Predict the second class above this chance, or: balanced.")
    ] = None,
    assess: Annotated[bool, typer.Option("--assess", help="The label is in the files: say how good it is.")] = False,
    of: Annotated[str | None, typer.Option("--class", help="The class to assess, where there are several.")] = None,
    page: Annotated[Path | None, typer.Option("--page", help="Assess, and write a page with curves here.")] = None,
    kept: Annotated[list[Path] | None, typer.Option("--kept", help="What a party kept of the model.")] = None,
    own: Annotated[
        Path | None,
        typer.Option("--own", metavar="FILE", help="For scores: id and probability by a model of our own columns."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    json: Json = False,
) -> None:
    """Write predictions, or scores that we received, to a CSV file."""
    tables, files_kept = table or [], kept or []
    written = {"encoding": encoding or [], "separator": separator or [], "decimal": decimal or []}
    for target in filter(None, (out, page)):
        if target.exists() and not force:
            raise StorageError(f"{target} is there already: choose another name, or replace it with --force [SO012]")
    model: Any = Estimator.load(path)
    given, limit, formats = _ids(model, id or [], same_order, common), _threshold(threshold), _formats(model, written)
    with _in_options(tables):
        people = _people(model, path, tables, formats[None])
    if files_kept and not model.keeps:
        raise StudyError(f"parties keep nothing of {path}, so leave --kept out [ST040]")
    for file in files_kept:
        model.load_kept(file)
    if own is not None and model.recipient is None:
        raise StudyError(f"{path} holds no scores that were received, so leave --own out [ST041]")
    if model.recipient is None:
        model.schemas_ = {party: schema.written(formats[party]) for party, schema in model.schemas_.items()}
    with _in_options(tables):
        told = model.assess(people, of=of, **given) if assess or page is not None else None
        found = (
            model.predictions(people, limit, **given)
            if own is None
            else model.joint.with_own(_own(own, model.joint.probabilities is None)).table(limit)
        )
        left = model.people(people, **given).left_out if common and model.recipient is None else {}
    files.replace_private(out, _csv(found))
    said: dict[str, Any] = {"model": str(path), "people": found.num_rows, "out": str(out)}
    lines = [f"{found.num_rows:,} predictions are in {out}, which only you can read"]
    if left:
        said["left_out"] = dict(left)
        lines.append(", ".join(f"{count:,} rows of {party}" for party, count in left.items()) + " left out: not in all")
    if told is not None:
        decision = told.at(model.limit(limit)) if len(model.classes_) == 2 and of is None else None
        said |= {"assessment": told.to_dict(), "at_threshold": decision and asdict(decision)}
        lines += ["", str(told)]
        if decision is not None:
            lines.append(f"accuracy           {decision.accuracy:.3f} at the threshold {decision.threshold:.3g}")
        if page is not None:
            said["page"] = str(write_assessment(page, path.name, told, decision))
            lines += ["", f"{page}: for those who hold the labels, not for publication"]
    emit(said) if json else say("\n".join(lines))


def _people(model: Any, path: Path, tables: Sequence[str], text: TextFormat) -> Any:
    """The files by party, or the cells of the one file that has all columns; nothing for scores that were received."""
    if model.recipient is not None:
        if tables:
            raise StudyError(f"{path} holds scores that were received, so leave --table out [ST042]")
        return None
    if not tables:
        parties = ", ".join(model.schemas_)
        raise DataError(
            f"there are no tables: give --table PARTY=FILE for each of {parties}, or one --table FILE [DA031]"
        )
    named = {party: Path(file) for party, mark, file in (text.partition("=") for text in tables) if mark}
    if not named and len(tables) == 1:
        return read_columns(Path(tables[0]), tables[0], lambda there: there, text)
    for party in named:
        if party not in model.schemas_:
            hint = suggestion(party, list(model.schemas_))
            raise DataError(
                f"--table {party}=...: the model knows {', '.join(model.schemas_)} and no {party}{hint} [DA032]"
            )
    if len(named) < len(tables):
        raise DataError("give each party's file once, as --table PARTY=FILE; or one file with all columns [DA033]")
    return named


def _formats(model: Any, written: Mapping[str, Sequence[str]]) -> dict[str | None, TextFormat]:
    """How each party's file is written, and under ``None`` how all of them are, from ``[PARTY=]VALUE``."""
    parties = list(model.schemas_) if model.recipient is None else []
    said: dict[str | None, dict[str, str]] = {party: {} for party in (None, *parties)}
    for key, texts in written.items():
        for text in texts:
            party, _, value = text.partition("=")
            whose, value = (party, value) if party in parties else (None, text)
            said[whose][key] = "\t" if value == "\\t" else value
    return {party: TextFormat(**(said[None] | own)) for party, own in said.items()}


@contextmanager
def _in_options(tables: Sequence[str]) -> Iterator[None]:
    """Errors that say what to write in a program or in a party's file say instead which option does it here."""
    try:
        yield
    except DataError as error:
        said = str(error)
        owner = next((text.partition("=")[0] for text in tables if said.startswith(f"{text.partition('=')[2]}: ")), "")
        whose = f"{owner}=" if owner else ""
        said = re.sub(rf'write (\w+) = "(.*)" {re.escape(WHERE)}', rf"give --\1 '{whose}\2'", said)
        said = re.sub(r"with id=\{'(.*)': COLUMN\}", r"with --id \1=COLUMN", said)
        raise DataError(said.replace("say common=True", "say --common")) from None


def _ids(model: Any, given: Sequence[str], same_order: bool, common: bool) -> dict[str, Any]:
    """The column of ids, or one for each party, or that rows stand in the same order."""
    if same_order and common:
        raise DataError("--common finds people by their ids, so leave --same-order out [DA034]")
    if same_order:
        return {"same_order": True}
    named = {party: column for party, mark, column in (text.partition("=") for text in given) if mark}
    whole = [text for text in given if "=" not in text]
    if len(whole) > 1:
        raise DataError("give one --id COLUMN, and --id PARTY=COLUMN for parties that name it otherwise [DA035]")
    usual = whole[0] if whole else "person_id"
    ids = {party: named.get(party, usual) for party in model.schemas_} if named else usual
    return {"id": ids, "common": True} if common else {"id": ids}


def _threshold(text: str | None) -> float | str | None:
    if text is None or text == "balanced":
        return text
    try:
        found: float | str = float(text)
    except ValueError:
        found = text
    check_threshold(found)
    return found


def _own(path: Path, numbers: bool) -> dict[str, float]:
    """What a model of our own columns says, by id."""
    wanted = ["id", "prediction" if numbers else "probability"]

    def choose(there: Sequence[str]) -> Sequence[str]:
        need(wanted, there, str(path))
        return wanted

    ids, values = (column.to_pylist() for column in read_columns(path, str(path), choose).columns)
    try:
        found = {str(person): float(value) for person, value in zip(ids, values, strict=True)}
    except (TypeError, ValueError):
        raise DataError(f"{path}: the column {wanted[1]} must have a number in every row [DA036]") from None
    if len(found) < len(ids):
        raise DataError(f"{path}: some ids are there more than once; keep one row for each person [DA037]")
    return found


def _csv(table: Any) -> bytes:
    written = io.BytesIO()
    pa.csv.write_csv(table, written, pa.csv.WriteOptions(quoting_style="needed"))
    return written.getvalue()
