"""The command line: all commands that are in no group."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from copy import copy
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup
from typer.models import CommandInfo

from colonnade.cli import agents, audits, console, examples, groups, hubs, participants, scaling
from colonnade.cli.groups import StudyPath
from colonnade.cli.output import Json, about, complain, emit, pour, progress_bar, say
from colonnade.cli.participants import Again, Approve, Out, PartyPath
from colonnade.errors import Interrupted, StudyError
from colonnade.versions import installed

_ORDER = (
    *(
        "demo",
        "example",
        "init",
        "schema",
        "privacy",
        "plan",
        "bench",
        "doctor",
        "run",
        "party",
        "coordinator",
        "relay",
        "predict",
        "scores",
        "export",
        "quality",
    ),
    *("keys", "ledger"),
)


class _InOrder(TyperGroup):
    """Commands in the order in which they are needed; those that are not named come last, as they were written."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands."""
        found = super().list_commands(ctx)
        return sorted(found, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


app = typer.Typer(
    name="colonnade",
    cls=_InOrder,
    help="Differentially private learning on columns that different organisations hold, with no trusted party.",
    epilog="First steps: `colonnade demo`; with files of your own `colonnade init trial --party NAME=FILE ...`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(participants.party)
app.command()(participants.coordinator)
app.command()(participants.relay)
agents.add_to(app)
hubs.add_to(app)
app.command()(console.console)
app.command()(scaling.bench)
app.add_typer(audits.audit_app, name="audit")
app.add_typer(examples.example_app, name="example")
app.add_typer(groups.init_app, name="init")
app.add_typer(groups.ledger_app, name="ledger")
app.add_typer(groups.schema_app, name="schema")


def _show_version(wanted: bool) -> None:
    if wanted:
        pour("".join(f"{name} {version}\n" for name, version in installed().items()))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the versions of Colonnade and of what it stands on.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """What is asked of no command in particular."""


@app.command("_worker", hidden=True)
def worker() -> None:
    """Be a worker of a head, on the line that it has given as standard input."""
    from colonnade.cli.lean import few_arenas
    from colonnade.study.engine.processes import main

    few_arenas(1)
    main()


@app.command()
def scores(
    path: Annotated[
        Path,
        typer.Argument(metavar="PARTY.toml|STUDY.toml", help="The party's own file, or the coordinator's study."),
    ],
    key: Annotated[Path | None, typer.Option("--key", help="The coordinator's private key, with a study.")] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", help="Listen at HOST:PORT: a party for programs, the coordinator as hub.")
    ] = None,
) -> None:
    """Keep standing questions open: scores on demand."""
    from colonnade.cli import scores as command

    if key is None:
        command.party(path, listen)
    else:
        command.coordinator(path, key, listen)


@app.command()
def keys(study: StudyPath, config: PartyPath, json: Json = False) -> None:
    """Show a party its own keys, as a study would compare them."""
    from colonnade.cli import keys as command

    command.keys(study, config, json)


@app.command()
def plan(
    study: StudyPath,
    rounds: Annotated[bool, typer.Option("--rounds", help="Ask how many rounds fit the budget (sketch).")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Ask how many rows are enough for the budget.")] = False,
    epsilon: Annotated[bool, typer.Option("--epsilon", help="Ask what each observer would learn.")] = False,
    cost: Annotated[bool, typer.Option("--cost", help="Ask what a run takes: time, bytes, memory, disk.")] = False,
    error: Annotated[
        float | None,
        typer.Option("--error", metavar="E", help="The noise: deviation on a mean, entry of X'X/n, slope or score."),
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option("--noise-multiplier", metavar="M", help="The noise, as a multiple of the sensitivity."),
    ] = None,
    rows_given: Annotated[
        int | None,
        typer.Option("--rows-given", metavar="N", min=1, help="There are so many rows.  [default: as the study says]"),
    ] = None,
    workers: scaling.Workers = None,
    hubs: scaling.Hubs = None,
    bandwidth: scaling.Bandwidth = None,
    round_trip: scaling.RoundTrip = None,
    partitions: scaling.PartitionCount = None,
    table: scaling.TableOption = None,
    one_machine: scaling.OneMachine = False,
    links: scaling.LinksOption = None,
    bench: scaling.Bench = None,
    json: Json = False,
) -> None:
    """How many rows or rounds; what noise costs; what a run takes."""
    from colonnade.cli import plan as command

    asked = scaling.Asked(workers, hubs, bandwidth, round_trip, partitions, table, one_machine, bench, links)
    if cost + rounds + rows + epsilon > 1 or not (asked.anything or cost + rounds + rows + epsilon):
        raise StudyError("ask one question at a time: --rounds, --rows, --epsilon or --cost [ST017]")
    if asked.anything and (rounds or rows or epsilon):
        raise StudyError("workers, hubs and lines are about --cost, and not about rounds, rows or epsilon [ST018]")
    if asked.anything or cost:
        command.cost(study, asked, error, noise_multiplier, rows_given, json)
        return
    question: Literal["rounds", "rows", "epsilon"] = "rounds" if rounds else "rows" if rows else "epsilon"
    command.plan(study, question, error, noise_multiplier, rows_given, json)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Where to leave the study and its run.")] = Path("runs/demo"),
    rows: Annotated[int, typer.Option("--rows", min=100, help="How many people to make up.")] = 25_000,
    json: Json = False,
) -> None:
    """See it all once: three organisations and a private PCA."""
    from colonnade.cli.demo import run_demo, tell_outcome
    from colonnade.cli.lean import without_pandas

    without_pandas()
    with progress_bar(not json) as progress:
        facts = run_demo(out, rows, progress)
    if json:
        emit(facts)
        return
    tell_outcome(out, facts)
    from colonnade.cli import showing

    if showing.can_be_shown():
        showing.show_in_browser(out / "study" / "STUDY.toml")


@app.command()
def privacy(
    study: StudyPath,
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="Size the estimates for so many rows.")] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Show delta at many epsilons too, for each observer.")] = False,
    workers: scaling.Workers = None,
    hubs: scaling.Hubs = None,
    bandwidth: scaling.Bandwidth = None,
    bench: scaling.Bench = None,
    json: Json = False,
) -> None:
    """What a study would cost, for whom, before anybody says yes."""
    from colonnade.cli import show
    from colonnade.study import Study, preflight
    from colonnade.study.preflight import outlook, rows_of

    loaded = Study.load(study)
    answer, expected = preflight(loaded, rows), outlook(loaded, rows)
    curves = show.curves(answer.statement) if curve else {}
    asked = scaling.Asked(workers, hubs, bandwidth, bench=bench)
    taken = asked.estimated(loaded, rows_of(loaded, rows)) if asked.anything else None
    if json:
        more = {"description": loaded.content.description, "forecast": None if expected is None else expected.to_dict()}
        scaled = {} if taken is None else {"scale": taken.to_dict()}
        emit(answer.to_dict() | more | ({"curves": curves} if curve else {}) | scaled)
    else:
        parts = [show.about(loaded), show.preflight(answer), show.curve_table(curves) if curve else ""]
        parts.append("" if taken is None else scaling.show(taken))
        say("\n\n".join(filter(None, [*parts, show.forecast(expected, loaded), show.wrong_pins(loaded)])))


@app.command()
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
    from colonnade.cli import quality as command

    command.quality(synthetic, real, held_out or [], id=id, label=label, sdmetrics=sdmetrics, page=page, json=json)


@app.command()
def export(
    model: Annotated[Path, typer.Argument(metavar="MODEL.json", help="A fitted model with public weights.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="onnx (encoder inside) or json.")] = "onnx",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: Json = False,
) -> None:
    """Write a model for people who do not have Colonnade."""
    from colonnade.cli import export as command

    command.export(model, to, out, force=force, json=json)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL.json", help="A fitted model, or scores that we received.")],
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
    from colonnade.cli import predict as command

    command.predict(
        model,
        table or [],
        kept or [],
        out=out,
        id=id or [],
        same_order=same_order,
        common=common,
        written={"encoding": encoding or [], "separator": separator or [], "decimal": decimal or []},
        threshold=threshold,
        assess=assess,
        of=of,
        page=page,
        own=own,
        force=force,
        json=json,
    )


@app.command()
def run(study: StudyPath, out: Out = None, approve: Approve = None, again: Again = False, json: Json = False) -> None:
    """Run a whole study on this machine, a process for each party."""
    from colonnade.cli import show
    from colonnade.cli.approve import approval_for_all, say_news
    from colonnade.cli.forking import copied
    from colonnade.cli.publish import publish
    from colonnade.study import Study, preflight, run_local
    from colonnade.study.local import local_configs

    loaded = Study.load(study).runnable()
    folder = out or Path("runs") / loaded.name
    say("\n\n".join(filter(None, (show.about(loaded), show.preflight(preflight(loaded))))))
    forks = copied(loaded)  # before anything of a party is looked at: nobody shall inherit it
    configs = list(local_configs(loaded).values())
    if not json and (enough := show.own_forecast(loaded, configs)):  # it counts the rows of every table
        say(f"\n{enough}")
    about(study, *(own.path for own in configs))
    say_news(loaded, configs)
    approved, repeated = approval_for_all(loaded, configs, approve, again, mute=json)
    with progress_bar(not json) as progress:
        folders = run_local(loaded, folder, progress=progress, approve=approved, again=repeated, forks=forks)
    facts = publish(loaded, folder, folders)
    emit(facts) if json else say(show.outcome(loaded, folder, facts["run"]))


@app.command()
def doctor(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study; or a PARTY.toml alone.")],
    config: Annotated[Path | None, typer.Argument(metavar="[PARTY.toml]", help="Check as this party.")] = None,
    json: Json = False,
) -> None:
    """Check files, keys, table, ledger, clock and connection."""
    from colonnade.cli import show
    from colonnade.study.doctor import examine
    from colonnade.study.spec import is_party_file

    if config is None and is_party_file(study):
        from colonnade.standing.checkup import examine_member

        checks = list(examine_member(study))
    else:
        checks = list(examine(study, config))
    emit({"checks": [asdict(check) for check in checks]}) if json else say(show.checks(checks))
    if any(check.level == "bad" for check in checks):
        raise typer.Exit(1)


@cache
def built(first: str = "") -> Callable[[], Any]:
    """A command, or a group of them, as read from the functions here; all of them where there is none of this name.

    To read all takes a tenth of a second, and whoever names one needs no other.
    """
    commands = [one for one in app.registered_commands if _name_of(one) == first]
    members = [one for one in app.registered_groups if one.name == first]
    if not commands and not members:
        return typer.main.get_command(app)
    alone = copy(app)
    alone.registered_commands, alone.registered_groups = commands, members
    return typer.main.get_command(alone)


def _name_of(command: CommandInfo) -> str:
    return command.name or typer.main.get_command_name(getattr(command.callback, "__name__", ""))


def command_line() -> None:
    """Run a command; a user's mistake is one sentence and a documented exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # so that nohup still works
            signal.signal(number, _interrupted)
    try:
        built(sys.argv[1] if len(sys.argv) > 1 else "")()
    except (Interrupted, Exception) as error:
        sys.exit(complain(error))


def _interrupted(number: int, frame: FrameType | None) -> None:
    # A terminal interrupts everybody, and then `colonnade run` ends its participants: they are cleaning up by now.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Interrupted
