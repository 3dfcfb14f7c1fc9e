"""What is done with results: predictions as a CSV file, a model for other programs, a check of a synthetic table.

After a run: collect the records of the participants, and write the report.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from colonnade.cli.output import Json, emit, say, writing
from colonnade.disk import reading
from colonnade.errors import DataError, SchemaError, StorageError, StudyError
from colonnade.models import Estimator, registry, serialization
from colonnade.models.assessment import Assessment
from colonnade.models.classifier_mixin import check_threshold
from colonnade.models.registry import section_of
from colonnade.models.serialization import finite_or_null
from colonnade.privacy import LedgerEntry
from colonnade.privacy.ledger.participants import CrossStudyViews
from colonnade.protocols.roles import COORDINATOR
from colonnade.report import write_report
from colonnade.report.page import write_assessment
from colonnade.report.privacy import people
from colonnade.study import PartyConfig, Study
from colonnade.study.preflight import outlook
from colonnade.study.record import as_text, read_facts
from colonnade.study.run import public_facts
from colonnade.tables import cell_parsing
from colonnade.tables.cell_parsing import WHERE_TO_SAY, TextFormat, itemise, pa, pc, suggest_name
from colonnade.tables.columns import Category
from colonnade.tables.dates import ISO_DATE, guess_date_formats, parse_days
from colonnade.tables.files import require_columns
from colonnade.tables.sources.factory import read_columns


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
    thousands: Annotated[
        list[str] | None, typer.Option("--thousands", metavar="[PARTY=]X", help="The sign between thousands.")
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
    signs = {"decimal": decimal or [], "thousands": thousands or []}
    written = {"encoding": encoding or [], "separator": separator or [], **signs}
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
        model.schemas_ = {party: schema.with_text_format(formats[party]) for party, schema in model.schemas_.items()}
    with _in_options(tables):
        told = model.assess(people, of=of, **given) if assess or page is not None else None
        found = (
            model.predictions(people, limit, **given)
            if own is None
            else model.joint.with_own(_own_scores(own, model.joint.probabilities is None)).table(limit)
        )
        left = model.people(people, **given).left_out if common and model.recipient is None else {}
    serialization.replace_private(out, _csv(found))
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
            hint = suggest_name(party, list(model.schemas_))
            raise DataError(
                f"--table {party}=...: the model knows {', '.join(model.schemas_)} and no {party}{hint} [DA032]"
            )
    if len(named) < len(tables):
        raise DataError("give each party's file once, as --table PARTY=FILE; or one file with all columns [DA033]")
    return named


_SAID = re.compile(r'(\w+) = "(.*?)"')


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
        said = re.sub(
            rf'write ((?:(?:and )?\w+ = "[^ ]*" ?)+?) {re.escape(WHERE_TO_SAY)}',
            lambda keys: "give " + " ".join(f"--{key} '{whose}{sign}'" for key, sign in _SAID.findall(keys[1])),
            said,
        )
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


def _own_scores(path: Path, numbers: bool) -> dict[str, float]:
    """What a model of our own columns says, by id."""
    wanted = ["id", "prediction" if numbers else "probability"]

    def choose(there: Sequence[str]) -> Sequence[str]:
        require_columns(wanted, there, str(path))
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


FORMATS = ("onnx", "json")


def export(
    path: Annotated[Path, typer.Argument(metavar="MODEL.json", help="A fitted model with public weights.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="onnx (encoder inside) or json.")] = "onnx",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: Json = False,
) -> None:
    """Write a model for people who do not have Colonnade."""
    if to not in FORMATS:
        raise StudyError(
            f"--to is {' or '.join(FORMATS)}, not {to!r}; a scikit-learn pipeline is made in Python [ST032]"
        )
    if out.exists() and not force:
        raise StorageError(f"{out} is there already: add --force to replace it, or choose another --out [SO008]")
    model = Estimator.load(path)
    with writing(out), serialization.name_file_in_errors(out):
        if to == "onnx":
            model.to_onnx(out)
        else:
            serialization.replace_file(out, as_text(model.to_json()))
    if json:
        emit({"model": str(path), "format": to, "out": str(out)})
    else:
        encoder = "raw columns in, predictions out" if to == "onnx" else "weights, and how columns are encoded"
        say(f"{out}: {encoder}")


_OTHER = "(another value)"


def quality(
    synthetic: Annotated[Path, typer.Argument(metavar="SYNTHETIC.parquet", help="The table of made-up people.")],
    real: Annotated[list[Path], typer.Argument(metavar="REAL...", help="Files of the real people, side by side.")],
    held_out: Annotated[
        list[Path] | None, typer.Option("--held-out", help="A file of other real people; once for each party.")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="The column of ids in files of real people.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="The column that models shall predict.")] = None,
    sdmetrics: Annotated[bool, typer.Option("--sdmetrics", help="Add the score of SDMetrics.")] = False,
    page: Annotated[Path | None, typer.Option("--page", help="Write a page with plots here.")] = None,
    json: Json = False,
) -> None:
    """Compare a synthetic table with the real one."""
    comparison = registry.only("quality")
    made_up = _read_columns(synthetic)
    if all(cell_parsing.is_text(field.type) for field in made_up.schema):
        raise DataError(
            f"{synthetic} does not say of what type its columns are; give the Parquet file of the table [DA038]"
        )
    people, others = _join_columns(real, made_up, id, "of real people")
    aside, others_aside = _join_columns(held_out, made_up, id, "held out") if held_out else (None, 0)
    found = comparison.evaluate(people, made_up, held_out=aside, label=label, sdmetrics=sdmetrics)
    left_out = others + others_aside
    told = found.to_dict() | {"left_out": left_out}
    if page is not None:
        told["page"] = str(comparison.write(page, synthetic.name, found))
    if json:
        emit(told)
        return
    say(str(found))
    if left_out:
        say(f"\n{left_out:,} people were left out, because not all files hold them")
    if page is not None:
        say(f"\n{page}: for those who hold the data, not for publication")


def _read_columns(path: Path) -> Any:
    return read_columns(path, str(path), lambda there: there)


def _join_columns(paths: list[Path], made_up: Any, id: str | None, which: str) -> tuple[Any, int]:
    """The columns of some files side by side, and how many people not all of them hold.

    Rows belong together by their id or, without one, by their place.
    """
    tables, others = {path: _read_columns(path) for path in paths}, 0
    if id is not None:
        tables, others = _common(tables, id, which)
    elif len({table.num_rows for table in tables.values()}) > 1:
        raise DataError(f"the files {which} have different numbers of rows; name the column of ids by --id [DA039]")
    columns: dict[str, Any] = {}
    for path, table in tables.items():
        for name in table.column_names:
            if name in made_up.column_names and name != id:
                place = cell_parsing.CellLocation(
                    str(path), name, range(1, table.num_rows + 1), np.zeros(table.num_rows, np.bool_)
                )
                columns[name] = _convert_cells(table[name], made_up[name], place)
    lacking = [name for name in made_up.column_names if name not in columns]
    if lacking:
        raise DataError(f"the files {which} lack {itemise(lacking, 5)}, which the synthetic table has [DA040]")
    return pa.table({name: columns[name] for name in made_up.column_names}), others


def _common(tables: Mapping[Path, Any], id: str, which: str) -> tuple[dict[Path, Any], int]:
    """The rows of the people whom all tables hold, in the same order, and how many other people there are."""
    rows = {path: _rows_by_id(table, path, id) for path, table in tables.items()}
    everybody, common = set[str]().union(*rows.values()), sorted(set.intersection(*map(set, rows.values())))
    if not common:
        raise DataError(f"the files {which} have nobody in common by {id!r}; give files about the same people [DA041]")
    found = {path: table.take([rows[path][person] for person in common]) for path, table in tables.items()}
    return found, len(everybody) - len(common)


def _rows_by_id(table: Any, path: Path, id: str) -> dict[str, int]:
    """The row of each person; rows without an id belong to nobody."""
    if id not in table.column_names:
        raise DataError(f"{path} has no column {id!r}; --id names a column that all files of real people have [DA042]")
    named = [(str(cell), row) for row, cell in enumerate(table[id].to_pylist()) if cell not in (None, "")]
    found = dict(named)
    if len(found) < len(named):
        raise DataError(f"{path} has several rows for one person by {id!r}; keep one of them [DA043]")
    return found


def _convert_cells(cells: Any, like: Any, place: cell_parsing.CellLocation) -> Any:
    """Cells of a file as the synthetic table has them; numbers, dates and flags that cannot be read are missing."""
    unfit: Any = place.invalid
    if pa.types.is_boolean(like.type):
        yes, missing = cell_parsing.parse_flags(cells, place)
        return pa.array(yes, mask=missing | unfit)
    if pa.types.is_integer(like.type) or pa.types.is_floating(like.type):
        values, missing = cell_parsing.parse_numbers(cells, place)
        return pa.array(values, mask=missing | unfit)
    if pa.types.is_date(like.type):
        days, missing = parse_days(cells, _format(cell_parsing.flatten_column(cells)), place)
        return pa.array(days.astype("M8[D]"), mask=missing | unfit)
    known = _category_values(like, place)
    found, missing = cell_parsing.parse_codes(cells, known.values, place)
    texts = np.array([*known.values, _OTHER], dtype=object)
    return pa.array(texts[found], mask=missing)


def _format(cells: Any) -> str:
    """The format in which all these cells are dates, if there is one."""
    known = (
        guess_date_formats(cells.filter(pa.array(~cell_parsing.find_missing(cells))))
        if cell_parsing.is_text(cells.type)
        else []
    )
    return known[0] if known else ISO_DATE


def _category_values(like: Any, place: cell_parsing.CellLocation) -> Category:
    """The values of a category, which a synthetic table lists even where nobody has them."""
    try:
        if pa.types.is_dictionary(like.type):
            return Category(tuple(like.unify_dictionaries().chunk(0).dictionary.to_pylist()))
        return Category(tuple(value for value in pc.unique(like).to_pylist() if value is not None))
    except (SchemaError, IndexError):
        raise DataError(
            f"column {place.column!r} of the synthetic table is no category, number or flag [DA044]"
        ) from None


_COUNTS = {
    "sent": "payload_sent",
    "received": "payload_received",
    "sealed_sent": "sealed_sent",
    "sealed_received": "sealed_received",
    "messages": "messages_sent",
}
_FEW_STUDIES = 100
_SHOWN_WEIGHTS = 10
_ALIGNED = ("rows", "missing", "repeated", "matched")


def publish_own(study: Study, config: PartyConfig, folder: Path, model: Estimator) -> None:
    """Write a party's own ``report.html``: what is public, and what this party alone may know."""
    record = read_facts(folder) if (folder / "run.json").exists() else fetched_record(study, config)
    name, kept = config.name, folder / model.kept_file
    book = config.open_ledger()
    own: dict[str, Any] = {"party": name, "ledger": str(config.ledger), "studies": book.studies}
    if own["studies"] <= _FEW_STUDIES:  # to read and compose more of them takes long
        counted = [entry for entry in book.entries() if entry.state != "released"]
        own["totals"] = learned_of(name, counted, study.statement.delta)
    if kept.exists():
        own |= {"kept": kept.name, "keeps": model.keeps, "lines": _strongest(kept)}
    run = record | public_facts(study) | {"parties": {name: _participant(study, name, record)}, "own": own}
    with _still_paid_for(folder):
        _write(study, folder, run | _page_facts(study, record), model, view=model.own_view())


def fetched_record(study: Study, config: PartyConfig) -> dict[str, Any]:
    """The record of a result that others have signed and this party took from the hub: it took no part in its end."""
    return {"study": study.name, "digest": study.digest, "participant": config.name, "status": "taken from the hub"}


def publish(
    study: Study, out: Path, folders: Mapping[str, Path], evaluation: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Add the records in ``folders`` to ``run.json``, and write ``report.html``; returns the facts for JSON."""
    run = read_facts(out)
    everyone: dict[str, Any] = {}
    for name, folder in folders.items():
        record = run if name == COORDINATOR else read_facts(folder)
        everyone[name] = _participant(study, name, record)
        if name != COORDINATOR and "alignment" in record:
            everyone[name]["alignment"] = {key: record["alignment"].get(key) for key in _ALIGNED}
    run[COORDINATOR] = everyone.pop(COORDINATOR)
    run["parties"] = everyone
    if evaluation:
        run["evaluation"] = dict(evaluation)
    run |= _page_facts(study, run)
    with _still_paid_for(out):
        _write(study, out, run, Estimator.load(out / "model.json"), evaluation)
    return {"study": study.name, "out": str(out), "run": run, "privacy": study.statement.to_dict()}


def learned_of(name: str, counted: Sequence[LedgerEntry], delta: float) -> dict[str, float | None]:
    """What everybody but a party, in groups without it, has learned from all studies in its ledger.

    What was told to the party itself is not in its ledger. A group above the threshold of a study has no figure; only
    all others together are counted as far as each threshold allows.
    """
    sight = CrossStudyViews([entry.content for entry in counted], name)
    others = [who for who in sight.standard_observers() if name not in who.label.split("+")]
    return {who.label: finite_or_null(sight.total(replace(who, held=who.others), delta).epsilon) for who in others}


def _strongest(kept: Path) -> list[str]:
    """The largest weights that a party keeps, for its own eyes; nothing where it keeps something else."""
    if kept.suffix != ".json":
        return []
    found = reading.read_json(kept)
    pairs = zip(found.get("columns", []), found.get("weights", []), strict=False)  # the last weight has no column
    ranked = sorted(pairs, key=lambda pair: -abs(pair[1]))
    named = ", ".join(f"{column} {weight:+.2f}" for column, weight in ranked[:_SHOWN_WEIGHTS])
    most = "" if len(ranked) <= _SHOWN_WEIGHTS else f" (the {_SHOWN_WEIGHTS} largest of {len(ranked)})"
    return [f"Own weights{most}: {named}."] if named else []


def _participant(study: Study, name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "columns": list(study.roster.schemas[name].names) if name != COORDINATOR else [],
        "seat": name in study.trust.committee,
        "phases": record.get("phases", {}),
        "traffic": _totals(record.get("traffic", {})) | {"rounds": record.get("rounds")},
        "seconds": record.get("seconds"),
        "processor_seconds": record.get("processor_seconds"),
        **{key: record[key] for key in ("checks", "links", "lanes") if key in record},
    }


def _page_facts(study: Study, record: Mapping[str, Any]) -> dict[str, Any]:
    """What a page says besides: what the study is for, whether there were enough people, and which words mean what."""
    found = outlook(study, people(record) or None)
    told: dict[str, Any] = {"description": study.content.description} if study.content.description else {}
    return told | ({} if found is None else {"forecast": found.to_dict()}) | {"words": True}


def _write(
    study: Study,
    folder: Path,
    run: dict[str, Any],
    model: Estimator,
    evaluation: Mapping[str, Any] | None = None,
    view: Assessment | None = None,
) -> None:
    with suppress(reading.UnreadableFile, KeyError, TypeError):  # there was one attempt
        run = run | {"attempts": reading.read_json(folder / "privacy.json")["attempts"]}
    serialization.replace_private(folder / "run.json", as_text(run))
    write_report(folder, run, study.statement, model, section_of(model.kind), evaluation, view)


@contextmanager
def _still_paid_for(folder: Path) -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        whole = f"the study ended well and {folder / 'model.json'} is whole, but"
        raise StorageError(f"{whole} {error}: the result is paid for, so do not run the study again [SO013]") from None


def _totals(traffic: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    totals: dict[str, Any] = {name: sum(peer.get(key, 0) for peer in traffic.values()) for name, key in _COUNTS.items()}
    totals["cpu_seconds"] = round(sum(peer.get("cpu_seconds", 0.0) for peer in traffic.values()), 4)
    return totals
