"""The commands about ledgers and schemas."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from colonnade.cli import text_output
from colonnade.cli.approve import ask_yes_or_no
from colonnade.cli.output import Json, emit, say, write_verbatim
from colonnade.errors import ColonnadeError, LedgerError, PolicyError
from colonnade.models.serialization import replace_private
from colonnade.privacy import Ledger
from colonnade.privacy.ledger.storage import convert_ledger
from colonnade.study import PartyConfig, ledger_view
from colonnade.tables import Schema, draft_schema, read_table
from colonnade.tables.datasets import PERSON_ID
from colonnade.tables.sources.databases import Query
from colonnade.tables.sources.factory import open_source
from colonnade.tables.sources.object_stores import is_address

TableName = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="CSV or Parquet: a file, a folder, an address; or a party.toml, for its table."
    ),
]
LedgerPath = Annotated[Path, typer.Argument(metavar="LEDGER", help="A ledger file.")]


def ledger_show(
    path: LedgerPath,
    delta: Annotated[float, typer.Option("--delta", help="The delta of the totals.")] = 1e-5,
    days: Annotated[float | None, typer.Option("--days", help="Only what was reserved in so many days.")] = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="PARTY.toml", help="Also what is left under these caps.")
    ] = None,
    json: Json = False,
) -> None:
    """Every study a party took part in, what each observer has learned in all, and the head of the chain."""
    own = None if policy is None else PartyConfig.load(policy)
    ledger = Ledger(_existing(path), owner="" if own is None else own.name)
    emit(ledger_view.ledger_facts(ledger, delta, days, own)) if json else say(
        ledger_view.ledger_text(ledger, delta, days, own)
    )


def ledger_verify(
    path: LedgerPath,
    head: Annotated[
        str | None, typer.Option("--head", metavar="HASH", help="A head noted earlier, which must still be in it.")
    ] = None,
    json: Json = False,
) -> None:
    """Check that a ledger is whole, and that it continues from a head noted earlier."""
    ledger = Ledger(_existing(path))
    ledger.verify(head)
    since = "" if head is None else f" and continues from {head}"
    emit({"ledger": str(path), "whole": True, "head": ledger.head}) if json else say(f"{path} is whole{since}")


def ledger_convert(path: LedgerPath, json: Json = False) -> None:
    """Bring a ledger of an earlier version up to this one; the chain is verified, and the old file is kept."""
    done = convert_ledger(_existing(path))
    ledger = Ledger(path)
    if json:
        kept = {} if done is None else {"from": done.version, "kept": str(done.kept_path), "chained": done.chained}
        emit({"ledger": str(path), "converted": done is not None, "head": ledger.head, **kept})
    elif done is None:
        say(f"{path} is of this version already, and whole; nothing was changed")
    else:
        unsure = "" if done.chained else "; before, it had no chain, so compare it with the run records"
        say(
            f"{path}: version {done.version} converted, {done.entries} entries, head {done.head}{unsure}\n"
            f"the old file is kept as {done.kept_path}"
        )


def ledger_release(
    path: LedgerPath,
    entry: Annotated[int, typer.Argument(metavar="ENTRY", help="The number of the entry, as `show` prints it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Give back a reservation of which no share has left, after a crash; a run that still goes on stops then."""
    ledger = Ledger(_existing(path))
    found = ledger_view.find_reservation(ledger, entry)
    if not yes and (json or not sys.stdin.isatty()):
        raise PolicyError(f"nobody said yes to releasing entry {entry} of {path}: look at it, and add `--yes` [PO003]")
    if not yes and not ask_yes_or_no(
        f"Release entry {entry} ({found.study!r}, reserved {found.created[:19]}) of {path}?"
    ):
        raise PolicyError(f"entry {entry} of {path} was not released [PO004]")
    ledger.release(found)
    emit({"ledger": str(path), "entry": entry, "state": "released", "head": ledger.head}) if json else say(
        f"released entry {entry} of {path}{' and chained it' if ledger.upgraded else ''}; head {ledger.head}"
    )


def ledger_export(
    path: LedgerPath,
    out: Annotated[Path | None, typer.Option("--out", help="Where to write it.  [default: standard output]")] = None,
    format: Annotated[
        Literal["jsonl", "csv"], typer.Option("--format", help="Lines of the chain, or a table.")
    ] = "jsonl",
    json: Json = False,
) -> None:
    """Write the whole chain, from which anybody can check it."""
    content, head = ledger_view.export_chain(Ledger(_existing(path)), format)
    if out is not None:
        if out.exists():
            raise ColonnadeError(f"{out} is there already; choose another place with --out [CO038]")
        replace_private(out, content.encode())  # a ledger tells which studies a party takes part in
    if json:
        emit({"ledger": str(path), "head": head, **({"content": content} if out is None else {"out": str(out)})})
    elif out is None:
        write_verbatim(content)  # every character counts
    else:
        say(f"wrote {out}; head {head}")


def schema_draft(
    file: TableName,
    out: Annotated[Path | None, typer.Option("--out", help="Where to write it.  [default: FILE with .toml]")] = None,
    id: Annotated[str | None, typer.Option("--id", help="The id column, which is left out.")] = None,
    decimal: Annotated[str | None, typer.Option("--decimal", help="The decimal sign.  [default: as found]")] = None,
    thousands: Annotated[
        str | None, typer.Option("--thousands", help="The sign between thousands.  [default: as found]")
    ] = None,
    json: Json = False,
) -> None:
    """Write a schema for review; bounds taken from the data are marked and must be replaced."""
    given, _ = _table_source(file)
    if out is None and not isinstance(given, Path):
        raise ColonnadeError("say with --out where to write the schema [CO001]")
    target = out or Path(file).with_suffix(".toml")
    if target.exists():
        raise ColonnadeError(f"{target} is there already; choose another place with --out [CO002]")
    draft = draft_schema(given, id=id, decimal=decimal, thousands=thousands)
    replace_private(target, draft.encode())  # until it is reviewed it tells about the data
    if json:
        emit({"schema": str(target)})
    else:
        say(f"wrote {target}: replace every bound marked `drafted` by one everybody may know, then delete the mark")
        say(f"next: colonnade schema check {file} {target}{f' --id {id}' if id else ''}")


def schema_digest(
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA.toml", help="A schema.")], json: Json = False
) -> None:
    """Print the digest by which a party's policy names a schema it agrees to."""
    found = Schema.load(schema).digest
    emit({"schema": str(schema), "digest": found}) if json else say(found)


def schema_check(
    file: TableName,
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA.toml", help="Its schema.")],
    id: Annotated[
        str | None, typer.Option("--id", help="The id column.  [default: person_id, if there is one]")
    ] = None,
    json: Json = False,
) -> None:
    """Check a party's file against its schema, on this machine, row by row."""
    given, own = _table_source(file)
    declared = Schema.load(schema) if own is None else Schema.load(schema).with_text_format(own.content.text_format)
    named = id or (None if own is None else own.content.id) or _id_column(given, declared)
    table = read_table(given, declared, id=named)
    report = table.check()
    ids = "" if named else "; without an id column, so it takes part only in studies with [align]"
    emit({"rows": table.rows, "id": named, "report": text_output.plain(report)}) if json else say(
        f"{file}: {table.rows} rows fit{ids}\n{report}"
    )


def _table_source(text: str) -> tuple[str | Path | Query, PartyConfig | None]:
    """What a command reads: a path or an address, or the table of a party file, with that file."""
    if text.endswith(".toml"):
        own = PartyConfig.load(text)
        return own.data, own
    return (text if is_address(text) else Path(text)), None


def _id_column(given: str | Path | Query, schema: Schema) -> str | None:
    """The default id column, if the table has it; otherwise ``None``."""
    return PERSON_ID if PERSON_ID in open_source(given, None, schema.text).columns() else None


def _existing(path: Path) -> Path:
    """The path of a ledger; an error if there is none, because opening would make one."""
    if not path.is_file():
        raise LedgerError(f"there is no ledger at {path} [LE001]")
    return path
