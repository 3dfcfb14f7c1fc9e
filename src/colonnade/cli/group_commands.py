"""The commands in groups: keys and certificates, ledgers, schemas."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from colonnade.cli.output import Json, emit, say, write_verbatim
from colonnade.errors import ColonnadeError, PolicyError, StudyError

if TYPE_CHECKING:
    from colonnade.study.party_config import PartyConfig
    from colonnade.tables import Schema
    from colonnade.tables.sources.databases import Query

StudyPath = Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study file.")]
TableName = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="CSV or Parquet: a file, a folder, an address; or a party.toml, for its table."
    ),
]
LedgerPath = Annotated[Path, typer.Argument(metavar="LEDGER", help="A ledger file.")]
init_app = typer.Typer(help="Make keys, certificates and configurations.", no_args_is_help=True)
ledger_app = typer.Typer(help="What a party has spent.", no_args_is_help=True)
schema_app = typer.Typer(help="Draft and check public schemas.", no_args_is_help=True)


@init_app.command("party")
def init_party(
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
    from colonnade.cli import initialise, text_output

    made = initialise.party(name, out or Path(name), data or f"{name}.csv", id, federation=federation)
    emit(made) if json else say(text_output.identity(made))


@init_app.command("coordinator")
def init_coordinator(
    out: Annotated[Path, typer.Option("--out", help="The coordinator's folder.")] = Path("coordinator"),
    json: Json = False,
) -> None:
    """Make the coordinator's key and certificate."""
    from colonnade.cli import initialise, text_output

    made = initialise.identity("coordinator", out)
    emit(made) if json else say(text_output.identity(made))


@init_app.command("pins")
def init_pins(study: StudyPath, json: Json = False) -> None:
    """Pin the certificates in certs/ by writing their fingerprints into the study file."""
    from colonnade.cli import initialise, text_output

    pins = initialise.pins(study)
    emit({"pins": pins}) if json else say(f"{text_output.pins(study, pins)}\nnext: colonnade privacy {study}")


@init_app.command("trial")
def init_trial(
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
    json: Json = False,
) -> None:
    """For a trial on one machine: from files to a study that can run, or everyone's keys for a study file."""
    from colonnade.cli import initialise, text_output

    if party:
        price = 1.0 if epsilon is None else epsilon
        made = initialise.prepare_trial(
            study or Path("study.toml"), party, id or [], label=label, kind=kind, epsilon=price
        )
        emit(made) if json else say(text_output.trial(made))
        return
    if study is None:
        raise StudyError("name a study file, or give each party's own with --party NAME=FILE [ST033]")
    if id or label or kind or epsilon is not None:
        raise StudyError(
            f"--id, --label, --kind and --epsilon go with --party; {study} says these things itself [ST034]"
        )
    pins = initialise.trial(study)
    lacking = [f"put {own.name}'s table at {own.data}" for own in initialise.without_tables(study)]
    then = "; ".join([*lacking, f"colonnade run {study}"])
    emit({"pins": pins}) if json else say(f"{text_output.pins(study, pins)}\nnext: {then}")


@ledger_app.command("show")
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
    from colonnade.cli import initialise
    from colonnade.privacy import Ledger
    from colonnade.study import PartyConfig, ledger_view

    own = None if policy is None else PartyConfig.load(policy)
    ledger = Ledger(initialise.existing(path), owner="" if own is None else own.name)
    emit(ledger_view.ledger_facts(ledger, delta, days, own)) if json else say(
        ledger_view.ledger_text(ledger, delta, days, own)
    )


@ledger_app.command("verify")
def ledger_verify(
    path: LedgerPath,
    head: Annotated[
        str | None, typer.Option("--head", metavar="HASH", help="A head noted earlier, which must still be in it.")
    ] = None,
    json: Json = False,
) -> None:
    """Check that a ledger is whole, and that it continues from a head noted earlier."""
    from colonnade.cli import initialise
    from colonnade.privacy import Ledger

    ledger = Ledger(initialise.existing(path))
    ledger.verify(head)
    since = "" if head is None else f" and continues from {head}"
    emit({"ledger": str(path), "whole": True, "head": ledger.head}) if json else say(f"{path} is whole{since}")


@ledger_app.command("convert")
def ledger_convert(path: LedgerPath, json: Json = False) -> None:
    """Bring a ledger of an earlier version up to this one; the chain is verified, and the old file is kept."""
    from colonnade.cli import initialise
    from colonnade.privacy import Ledger
    from colonnade.privacy.ledger.storage import convert_ledger

    done = convert_ledger(initialise.existing(path))
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


@ledger_app.command("release")
def ledger_release(
    path: LedgerPath,
    entry: Annotated[int, typer.Argument(metavar="ENTRY", help="The number of the entry, as `show` prints it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Give back a reservation of which no share has left, after a crash; a run that still goes on stops then."""
    from colonnade.cli import initialise
    from colonnade.cli.approve import ask_yes_or_no
    from colonnade.privacy import Ledger
    from colonnade.study import ledger_view

    ledger = Ledger(initialise.existing(path))
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


@ledger_app.command("export")
def ledger_export(
    path: LedgerPath,
    out: Annotated[Path | None, typer.Option("--out", help="Where to write it.  [default: standard output]")] = None,
    format: Annotated[
        Literal["jsonl", "csv"], typer.Option("--format", help="Lines of the chain, or a table.")
    ] = "jsonl",
    json: Json = False,
) -> None:
    """Write the whole chain, from which anybody can check it."""
    from colonnade.cli import initialise
    from colonnade.privacy import Ledger
    from colonnade.study import ledger_view

    content, head = ledger_view.export_chain(Ledger(initialise.existing(path)), format)
    if out is not None:
        ledger_view.write_private(out, content)
    if json:
        emit({"ledger": str(path), "head": head, **({"content": content} if out is None else {"out": str(out)})})
    elif out is None:
        write_verbatim(content)  # every character counts
    else:
        say(f"wrote {out}; head {head}")


@schema_app.command("draft")
def schema_draft(
    file: TableName,
    out: Annotated[Path | None, typer.Option("--out", help="Where to write it.  [default: FILE with .toml]")] = None,
    id: Annotated[str | None, typer.Option("--id", help="The id column, which is left out.")] = None,
    json: Json = False,
) -> None:
    """Write a schema for review; bounds taken from the data are marked and must be replaced."""
    from colonnade.models.serialization import replace_private
    from colonnade.tables import draft_schema

    given, _ = _table_source(file)
    if out is None and not isinstance(given, Path):
        raise ColonnadeError("say with --out where to write the schema [CO001]")
    target = out or Path(file).with_suffix(".toml")
    if target.exists():
        raise ColonnadeError(f"{target} is there already; choose another place with --out [CO002]")
    replace_private(target, draft_schema(given, id=id).encode())  # until it is reviewed it tells about the data
    if json:
        emit({"schema": str(target)})
    else:
        say(f"wrote {target}: replace every bound marked `drafted` by one everybody may know, then delete the mark")
        say(f"next: colonnade schema check {file} {target}{f' --id {id}' if id else ''}")


@schema_app.command("digest")
def schema_digest(
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA.toml", help="A schema.")], json: Json = False
) -> None:
    """Print the digest by which a party's policy names a schema it agrees to."""
    from colonnade.tables import Schema

    found = Schema.load(schema).digest
    emit({"schema": str(schema), "digest": found}) if json else say(found)


@schema_app.command("check")
def schema_check(
    file: TableName,
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA.toml", help="Its schema.")],
    id: Annotated[
        str | None, typer.Option("--id", help="The id column.  [default: person_id, if there is one]")
    ] = None,
    json: Json = False,
) -> None:
    """Check a party's file against its schema, on this machine, row by row."""
    from colonnade.cli import text_output
    from colonnade.tables import Schema, read_table

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
    from colonnade.study.party_config import PartyConfig
    from colonnade.tables.sources.object_stores import is_address

    if text.endswith(".toml"):
        own = PartyConfig.load(text)
        return own.data, own
    return (text if is_address(text) else Path(text)), None


def _id_column(given: str | Path | Query, schema: Schema) -> str | None:
    """The default id column, if the table has it; otherwise ``None``."""
    from colonnade.tables.datasets import PERSON_ID
    from colonnade.tables.sources.factory import open_source

    return PERSON_ID if PERSON_ID in open_source(given, None, schema.text).columns() else None
