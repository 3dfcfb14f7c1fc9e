"""The command line: every command in one list, each in a few lines."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import typer

from colonnade.cli import initialise, ledger as book, show
from colonnade.cli.approve import answered, approval, approval_for_all, say_news
from colonnade.cli.audit import audit
from colonnade.cli.demo import run_demo
from colonnade.cli.doctor import examine
from colonnade.cli.keys import keys
from colonnade.cli.output import Json, about, complain, emit, piped, pour, progress_bar, say, speak_json
from colonnade.cli.plan import plan
from colonnade.cli.publish import publish, read_record
from colonnade.errors import ColonnadeError, Interrupted, PolicyError
from colonnade.privacy import Ledger
from colonnade.study import PartyConfig, Study, preflight, run_coordinator, run_local, run_party
from colonnade.study.local import folder_of, local_configs
from colonnade.study.record import KEPT
from colonnade.tables import Schema, draft_schema, read_table
from colonnade.tables.dataset import PERSON_ID
from colonnade.tables.files import read_columns

app = typer.Typer(
    name="colonnade",
    help="Differentially private learning on columns that different organisations hold, with no trusted party.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
init_app = typer.Typer(help="Make keys, certificates and configurations.", no_args_is_help=True)
ledger_app = typer.Typer(help="What a party has spent.", no_args_is_help=True)
schema_app = typer.Typer(help="Draft and check public schemas.", no_args_is_help=True)
app.add_typer(init_app, name="init")
app.add_typer(ledger_app, name="ledger")
app.add_typer(schema_app, name="schema")
app.command()(audit)
app.command()(keys)
app.command()(plan)

StudyPath = Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study file.")]
PartyPath = Annotated[Path, typer.Argument(metavar="PARTY.toml", help="The party's own configuration.")]
Out = Annotated[Path | None, typer.Option("--out", help="The run directory.  [default: runs/NAME]")]
Approve = Annotated[
    str | None,
    typer.Option("--approve", metavar="DIGEST", help="Approve the study of this digest (32 digits or more)."),
]
LedgerPath = Annotated[Path, typer.Argument(metavar="LEDGER", help="A ledger file.")]
Pipe = Annotated[bool, typer.Option("--pipe", hidden=True)]


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Where to leave the study and its run.")] = Path("runs/demo"),
    rows: Annotated[int, typer.Option("--rows", min=100, help="How many people to make up.")] = 20_000,
    json: Json = False,
) -> None:
    """Three organisations and a coordinator, four processes, one private PCA, a report with pictures."""
    speak_json(json)
    with progress_bar(not json) as progress:
        facts = run_demo(out, rows, progress)
    if json:
        emit(facts)


@app.command()
def privacy(
    study: StudyPath,
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="Size the estimates for so many rows.")] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Show delta at many epsilons too, for each observer.")] = False,
    json: Json = False,
) -> None:
    """What a study would cost, for whom, before anybody says yes."""
    speak_json(json)
    answer = preflight(Study.load(study), rows)
    curves = show.curves(answer.statement) if curve else {}
    if json:
        emit(answer.to_dict() | ({"curves": curves} if curve else {}))
    else:
        say(show.preflight(answer) + (f"\n\n{show.curve_table(curves)}" if curve else ""))


@app.command()
def run(study: StudyPath, out: Out = None, approve: Approve = None, json: Json = False) -> None:
    """Run a whole study with local processes, each party in its own."""
    speak_json(json)
    loaded = Study.load(study).runnable()
    folder = out or Path("runs") / loaded.name
    say(show.preflight(preflight(loaded)))
    configs = list(local_configs(loaded).values())
    about(study, *(own.path for own in configs))
    say_news(configs)
    approved = approval_for_all(loaded, configs, approve, mute=json)
    with progress_bar(not json) as progress:
        folders = run_local(loaded, folder, progress=progress, approve=approved)
    facts = publish(loaded, folder, folders)
    emit(facts) if json else say(show.outcome(loaded, folder, facts["run"]))


@app.command()
def coordinator(
    study: StudyPath,
    key: Annotated[Path, typer.Option("--key", help="The coordinator's private key.")] = Path(
        "coordinator/coordinator.key"
    ),
    listen: Annotated[
        str | None, typer.Option("--listen", help="Listen at HOST:PORT when that is not what the parties dial.")
    ] = None,
    out: Out = None,
    json: Json = False,
    pipe: Pipe = False,
) -> None:
    """Relay a study between its parties and publish the result."""
    speak_json(json or pipe)
    about(study, "PARTY.toml")  # which lies with the party
    loaded = Study.load(study).runnable()
    folder = out or Path("runs") / loaded.name
    address = listen or loaded.content.coordinator.address
    loaded.certificates()  # a wrong pin is better said now than after "waiting"
    say(f"coordinator of {loaded.name!r}: waiting for {', '.join(loaded.content.parties)} at {address}")
    with progress_bar(not (json or pipe)) as bar:
        run_coordinator(loaded, key, folder, piped if pipe else bar, listen=listen)
    if not pipe:
        facts = publish(loaded, folder, {"coordinator": folder})
        emit(facts) if json else say(show.outcome(loaded, folder, facts["run"]))


@app.command()
def party(
    study: StudyPath,
    config: PartyPath,
    out: Annotated[
        Path | None, typer.Option("--out", help="The run directory.  [default: runs/NAME/parties/PARTY]")
    ] = None,
    approve: Approve = None,
    json: Json = False,
    pipe: Pipe = False,
) -> None:
    """Take part in a study with one's own columns."""
    speak_json(json or pipe)
    about(study, config)
    loaded, own = Study.load(study).runnable(), PartyConfig.load(config)
    folder = out or folder_of(Path("runs") / loaded.name, own.name)
    if not (json or pipe):
        say(show.asked(own.name, preflight(loaded)))
    say_news([own])
    approved = approval([own], approve, mute=json or pipe)
    with progress_bar(not (json or pipe)) as bar:
        model = run_party(loaded, own, folder, piped if pipe else bar, approve=approved)
    if not pipe:
        record = read_record(folder)
        told = model.summary() if model.recipient else []  # what is for everybody is in the coordinator's report
        own_file = folder / KEPT
        kept = [f"our own weights are in {own_file}, for our eyes alone"] if own_file.exists() else []
        done = [*show.common(loaded, record), *show.lost(record), *told, *kept, f"done; the record is in {folder}"]
        facts: dict[str, Any] = {"study": loaded.name, "out": str(folder)}
        facts |= {key: record.get(key) for key in ("alignment", "phases", "rounds", "lost")}
        facts |= {"kept": str(own_file)} if kept else {}
        emit(facts) if json else say("\n".join(done))


@app.command()
def doctor(
    study: StudyPath,
    config: Annotated[Path | None, typer.Argument(metavar="[PARTY.toml]", help="Check as this party.")] = None,
    json: Json = False,
) -> None:
    """Can we really talk? Check files, keys, pins, table, ledger, clock and connection."""
    speak_json(json)
    checks = examine(study, config)
    emit({"checks": [check.to_dict() for check in checks]}) if json else say(show.checks(checks))
    if any(check.level == "bad" for check in checks):
        raise typer.Exit(1)


@init_app.command("party")
def init_party(
    name: str,
    out: Annotated[Path | None, typer.Option("--out", help="The party's folder.  [default: NAME]")] = None,
    data: Annotated[str, typer.Option("--data", help="The party's table.")] = "",
    id: Annotated[str, typer.Option("--id", help="The id column.")] = "person_id",
    json: Json = False,
) -> None:
    """Make a party's key, certificate and configuration."""
    speak_json(json)
    made = initialise.party(name, out or Path(name), data or f"{name}.csv", id)
    emit(made) if json else say(show.identity(made))


@init_app.command("coordinator")
def init_coordinator(
    out: Annotated[Path, typer.Option("--out", help="The coordinator's folder.")] = Path("coordinator"),
    json: Json = False,
) -> None:
    """Make the coordinator's key and certificate."""
    speak_json(json)
    made = initialise.identity("coordinator", out)
    emit(made) if json else say(show.identity(made))


@init_app.command("pins")
def init_pins(study: StudyPath, json: Json = False) -> None:
    """Pin the certificates in certs/ by writing their fingerprints into the study file."""
    speak_json(json)
    pins = initialise.pins(study)
    emit({"pins": pins}) if json else say(show.pins(study, pins))


@init_app.command("trial")
def init_trial(study: StudyPath, json: Json = False) -> None:
    """For a trial on one machine: make everyone's keys and pin them."""
    speak_json(json)
    pins = initialise.trial(study)
    emit({"pins": pins}) if json else say(show.pins(study, pins))


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
    speak_json(json)
    ledger, own = Ledger(initialise.existing(path)), None if policy is None else PartyConfig.load(policy)
    emit(book.facts(ledger, delta, days, own)) if json else say(book.text(ledger, delta, days, own))


@ledger_app.command("verify")
def ledger_verify(
    path: LedgerPath,
    head: Annotated[
        str | None, typer.Option("--head", metavar="HASH", help="A head noted earlier, which must still be in it.")
    ] = None,
    json: Json = False,
) -> None:
    """Check that a ledger is whole, and that it continues from a head noted earlier."""
    speak_json(json)
    ledger = Ledger(initialise.existing(path))
    ledger.verify(head)
    since = "" if head is None else f" and continues from {head}"
    emit({"ledger": str(path), "whole": True, "head": ledger.head}) if json else say(f"{path} is whole{since}")


@ledger_app.command("release")
def ledger_release(
    path: LedgerPath,
    entry: Annotated[int, typer.Argument(metavar="ENTRY", help="The number of the entry, as `show` prints it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Give back a reservation of which no share has left, after a crash; a run that still goes on stops then."""
    speak_json(json)
    ledger = Ledger(initialise.existing(path))
    found = book.reserved(ledger, entry)
    if not yes and (json or not sys.stdin.isatty()):
        raise PolicyError(f"nobody said yes to releasing entry {entry} of {path}: look at it, and add `--yes`")
    if not yes and not answered(f"Release entry {entry} ({found.study!r}, reserved {found.created[:19]}) of {path}?"):
        raise PolicyError(f"entry {entry} of {path} was not released")
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
    speak_json(json)
    content, head = book.export(Ledger(initialise.existing(path)), format)
    if out is not None:
        book.write(out, content)
    if json:
        emit({"ledger": str(path), "head": head, **({"content": content} if out is None else {"out": str(out)})})
    elif out is None:
        pour(content)  # every character counts
    else:
        say(f"wrote {out}; head {head}")


@schema_app.command("draft")
def schema_draft(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A CSV or Parquet file.")],
    out: Annotated[Path | None, typer.Option("--out", help="Where to write it.  [default: FILE with .toml]")] = None,
    id: Annotated[str | None, typer.Option("--id", help="The id column, which is left out.")] = None,
    json: Json = False,
) -> None:
    """Write a schema for review; bounds taken from the data are marked and must be replaced."""
    speak_json(json)
    target = out or file.with_suffix(".toml")
    if target.exists():
        raise ColonnadeError(f"{target} is there already; choose another place with --out")
    target.write_text(draft_schema(file, id=id), encoding="utf-8")
    if json:
        emit({"schema": str(target)})
    else:
        say(f"wrote {target}: replace every bound marked `drafted` by one everybody may know, then delete the mark")


@schema_app.command("check")
def schema_check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A CSV or Parquet file.")],
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA.toml", help="Its schema.")],
    id: Annotated[
        str | None, typer.Option("--id", help="The id column.  [default: person_id, if there is one]")
    ] = None,
    json: Json = False,
) -> None:
    """Check a party's file against its schema, on this machine, row by row."""
    speak_json(json)
    named = id or _id_column(file)
    table = read_table(file, Schema.load(schema), id=named)
    report = table.check()
    ids = "" if named else "; without an id column, so it takes part only in studies with [align]"
    emit({"rows": table.rows, "id": named, "report": show.plain(report)}) if json else say(
        f"{file}: {table.rows} rows fit{ids}\n{report}"
    )


def _id_column(file: Path) -> str | None:
    """The column that holds ids unless something else is said, if the file has it."""
    read = read_columns(file, str(file), lambda there: [name for name in there if name == PERSON_ID] or there[:1])
    return PERSON_ID if PERSON_ID in read.column_names else None


def command_line() -> None:
    """Run a command; a user's mistake is one sentence and a documented exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # or nohup would be in vain
            signal.signal(number, _interrupted)
    try:
        app()
    except (Interrupted, Exception) as error:
        sys.exit(complain(error))


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise Interrupted
