"""The command line: all commands that are in no group."""

from __future__ import annotations

import signal
import sys
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from colonnade.cli import audits, groups
from colonnade.cli.groups import StudyPath
from colonnade.cli.output import Json, about, complain, emit, piped, pour, progress_bar, say, speak_json
from colonnade.errors import Interrupted, StudyError
from colonnade.versions import installed

_ORDER = (
    *("demo", "init", "schema", "privacy", "plan", "doctor", "run", "party", "coordinator", "predict"),
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
app.add_typer(audits.audit_app, name="audit")
app.add_typer(groups.init_app, name="init")
app.add_typer(groups.ledger_app, name="ledger")
app.add_typer(groups.schema_app, name="schema")

PartyPath = Annotated[Path, typer.Argument(metavar="PARTY.toml", help="The party's own configuration.")]
Out = Annotated[Path | None, typer.Option("--out", help="The run directory.  [default: runs/NAME]")]
Approve = Annotated[
    str | None,
    typer.Option("--approve", metavar="DIGEST", help="Approve the study of this digest (32 digits or more)."),
]
Again = Annotated[
    bool, typer.Option("--again", help="Run, and spend, once more if this study already ran; without it one is asked.")
]
Pipe = Annotated[bool, typer.Option("--pipe", hidden=True)]


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
    json: Json = False,
) -> None:
    """Ask how many rounds or rows it takes, or what noise costs."""
    from colonnade.cli import plan as command

    if rounds + rows + epsilon != 1:
        raise StudyError("ask one question at a time: --rounds, --rows or --epsilon")
    question: Literal["rounds", "rows", "epsilon"] = "rounds" if rounds else "rows" if rows else "epsilon"
    command.plan(study, question, error, noise_multiplier, rows_given, json)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Where to leave the study and its run.")] = Path("runs/demo"),
    rows: Annotated[int, typer.Option("--rows", min=100, help="How many people to make up.")] = 20_000,
    json: Json = False,
) -> None:
    """See it all once: three organisations and a private PCA."""
    from colonnade.cli.demo import run_demo
    from colonnade.cli.lean import without_pandas

    without_pandas()
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
    from colonnade.cli import show
    from colonnade.study import Study, preflight
    from colonnade.study.preflight import outlook

    loaded = Study.load(study)
    answer, expected = preflight(loaded, rows), outlook(loaded, rows)
    curves = show.curves(answer.statement) if curve else {}
    if json:
        more = {"description": loaded.content.description, "forecast": None if expected is None else expected.to_dict()}
        emit(answer.to_dict() | more | ({"curves": curves} if curve else {}))
    else:
        parts = [show.about(loaded), show.preflight(answer), show.curve_table(curves) if curve else ""]
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
    from colonnade.cli.publish import publish
    from colonnade.study import Study, preflight, run_local
    from colonnade.study.local import local_configs

    loaded = Study.load(study).runnable()
    folder = out or Path("runs") / loaded.name
    say("\n\n".join(filter(None, (show.about(loaded), show.preflight(preflight(loaded))))))
    configs = list(local_configs(loaded).values())
    if enough := show.own_forecast(loaded, configs):
        say(f"\n{enough}")
    about(study, *(own.path for own in configs))
    say_news(loaded, configs)
    approved, repeated = approval_for_all(loaded, configs, approve, again, mute=json)
    with progress_bar(not json) as progress:
        folders = run_local(loaded, folder, progress=progress, approve=approved, again=repeated)
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
    from colonnade.cli import show
    from colonnade.cli.lean import without_pandas
    from colonnade.cli.publish import publish
    from colonnade.study import Study, run_coordinator

    without_pandas()
    speak_json(json or pipe)
    about(study, "PARTY.toml")  # its real path is known to the party alone
    loaded = Study.load(study).runnable()
    folder = out or Path("runs") / loaded.name
    address = listen or loaded.content.coordinator.address
    loaded.certificates()  # an error about a wrong pin must come before "waiting"
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
    again: Again = False,
    json: Json = False,
    pipe: Pipe = False,
) -> None:
    """Take part in a study with one's own columns."""
    from colonnade.cli import show
    from colonnade.cli.approve import approval, once_more, say_news, say_repeat
    from colonnade.cli.lean import without_pandas
    from colonnade.cli.publish import publish_own
    from colonnade.study import PartyConfig, Study, preflight, run_party
    from colonnade.study.local import folder_of
    from colonnade.study.record import read_facts

    without_pandas()
    speak_json(json or pipe)
    about(study, config)
    loaded, own = Study.load(study).runnable(), PartyConfig.load(config)
    folder = out or folder_of(Path("runs") / loaded.name, own.name)
    if not (json or pipe):
        said = (show.about(loaded), show.asked(own.name, preflight(loaded)), show.own_forecast(loaded, [own]))
        say("\n".join(filter(None, said)))
    say_news(loaded, [own])
    say_repeat(loaded, own)
    approved = approval([own], approve, mute=json or pipe)
    repeat = once_more(again, mute=json or pipe)
    with progress_bar(not (json or pipe)) as bar:
        model = run_party(loaded, own, folder, piped if pipe else bar, approve=approved, again=repeat)
    publish_own(loaded, own, folder, model)
    if not pipe:
        record = read_facts(folder)
        told = show.summary(model) if model.recipient else []  # a result for everybody is in the coordinator's report
        own_file = folder / model.kept_file
        kept = [f"our own {model.keeps} are in {own_file}, which only we can read"] if own_file.exists() else []
        done = [*show.common(loaded, record), *show.lost(record), *show.misfits(record), *told, *kept]
        done += [
            show.forecast_of(record),
            f"done; our report is {folder / 'report.html'}, beside the record of the run",
        ]
        facts: dict[str, Any] = {"study": loaded.name, "out": str(folder), "report": str(folder / "report.html")}
        facts |= {key: record.get(key) for key in ("alignment", "phases", "rounds", "lost", "misfits")}
        facts |= {"kept": str(own_file)} if kept else {}
        emit(facts) if json else say("\n".join(filter(None, done)))


@app.command()
def doctor(
    study: StudyPath,
    config: Annotated[Path | None, typer.Argument(metavar="[PARTY.toml]", help="Check as this party.")] = None,
    json: Json = False,
) -> None:
    """Check files, keys, pins, table, ledger, clock and connection."""
    from colonnade.cli import show
    from colonnade.cli.doctor import examine

    checks = list(examine(study, config))
    emit({"checks": [asdict(check) for check in checks]}) if json else say(show.checks(checks))
    if any(check.level == "bad" for check in checks):
        raise typer.Exit(1)


def command_line() -> None:
    """Run a command; a user's mistake is one sentence and a documented exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # so that nohup still works
            signal.signal(number, _interrupted)
    try:
        app()
    except (Interrupted, Exception) as error:
        sys.exit(complain(error))


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise Interrupted
