"""The commands of one participant of a study: a party, or the coordinator."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.output import (
    Json,
    StudyPath,
    emit,
    emit_presence,
    emit_progress,
    progress_bar,
    remember_files,
    say,
    speak_json,
)

if TYPE_CHECKING:
    from colonnade.study import Study
    from colonnade.study.party_file import WorkerOptions

PartyPath = Annotated[Path, typer.Argument(metavar="PARTY.toml", help="The party's own configuration.")]
Out = Annotated[Path | None, typer.Option("--out", help="The run directory.  [default: runs/NAME]")]
Approve = Annotated[
    str | None,
    typer.Option("--approve", metavar="DIGEST", help="Approve the study of this digest (32 digits or more)."),
]
Again = Annotated[
    bool, typer.Option("--again", help="Run, and spend, once more if this study already ran; without it one is asked.")
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, max=4096, help="Workers in lanes, if not as many as usual.")
]
Pipe = Annotated[bool, typer.Option("--pipe", hidden=True)]


def end_with_standard_input(wanted: bool) -> None:
    """Let a child of a standing process end when that closes its standard input, or dies.

    A process that watches for it has two threads, so whoever wants to be copied is copied before.
    """
    if wanted:
        from colonnade.federation.processes import end_with_parent

        end_with_parent()


HubAddress = Annotated[str | None, typer.Option("--hub", hidden=True)]
Room = Annotated[str, typer.Option("--room", hidden=True)]
Attempt = Annotated[int, typer.Option("--attempt", hidden=True)]
WhileOpen = Annotated[bool, typer.Option("--while-open", hidden=True)]
"""What a standing hub or agent says to its children."""


CoordinatorKey = Annotated[Path, typer.Option("--key", help="The coordinator's private key.")]
_COORDINATOR_KEY = Path("coordinator/coordinator.key")


def coordinator(
    study: StudyPath,
    key: CoordinatorKey = _COORDINATOR_KEY,
    listen: Annotated[
        str | None, typer.Option("--listen", help="Listen at HOST:PORT when that is not what the parties dial.")
    ] = None,
    dial: Annotated[
        bool,
        typer.Option("--dial/--no-dial", help="Whether to dial parties that listen, in a study with direct links."),
    ] = True,
    out: Out = None,
    workers: Workers = None,
    engine: Annotated[
        str | None, typer.Option("--engine", help="Where workers run: processes, ray, or the address of a cluster.")
    ] = None,
    json: Json = False,
    pipe: Pipe = False,
    hub: HubAddress = None,
    room: Room = "",
    attempt: Attempt = 0,
    while_open: WhileOpen = False,
) -> None:
    """Relay a study between its parties and publish the result."""
    from colonnade.cli import text_output
    from colonnade.cli.process_tuning import without_pandas
    from colonnade.cli.results import publish
    from colonnade.study import Study, run_coordinator
    from colonnade.study.connect import MeetingPoint

    without_pandas()
    speak_json(json or pipe)
    remember_files(study, "PARTY.toml")  # its real path is known to the party alone
    loaded = Study.load(study).runnable()
    asked = worker_options(loaded, workers, engine)
    end_with_standard_input(while_open)
    folder = out or Path("runs") / loaded.name
    address = listen or loaded.content.coordinator.address
    loaded.certificates()  # an error about a wrong pin must come before "waiting"
    say(f"coordinator of {loaded.name!r}: waiting for {', '.join(loaded.content.parties)} at {address}")
    with closing(asked), progress_bar(not (json or pipe)) as bar:
        place, watch = MeetingPoint(hub, room, attempt), emit_presence if while_open else None
        run_coordinator(
            loaded,
            key,
            folder,
            emit_progress if pipe else bar,
            listen=listen,
            dial=dial,
            place=place,
            watch=watch,
            tell=say,
            workers=asked,
        )
    if room or not pipe:
        facts = publish(loaded, folder, {"coordinator": folder})
        emit(facts) if json else None if pipe else say(text_output.outcome(loaded, folder, facts["run"]))


def worker_options(study: Study, workers: int | None, engine: str | None = None) -> WorkerOptions:
    """What is asked of workers; in a study in lanes they are forked from a copy of this process.

    To be called when nothing but public files was read.
    """
    from importlib import import_module

    from colonnade.cli.preload import fork_server_of_this_command
    from colonnade.errors import StudyError
    from colonnade.study.party_file import WorkerOptions

    if study.content.lanes is None:
        if workers is not None or engine is not None:
            raise StudyError(
                f"study {study.name!r} has no [lanes], so nobody has workers: leave --workers and --engine out [ST037]"
            )
        return WorkerOptions()
    WorkerOptions(workers, engine).compute()  # an error about --engine must come before anybody waits
    import_module("colonnade.study.lanes.crew")  # so that workers need not
    return WorkerOptions(workers, engine, fork_server_of_this_command(study))


def relay(
    study: StudyPath,
    key: CoordinatorKey = _COORDINATOR_KEY,
    listen: Annotated[
        str | None,
        typer.Option("--listen", help="Listen at HOST:PORT.  [default: the one address in hubs of the study]"),
    ] = None,
    json: Json = False,
) -> None:
    """Serve a further hub of a study in lanes, for its coordinator."""
    import signal
    import threading

    from colonnade.study import Study
    from colonnade.study.connect import serve_lanes as serving

    over = threading.Event()
    loaded = Study.load(study)
    with serving(loaded, key, listen) as hub:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        emit({"relay": hub.address, "study": loaded.name}) if json else say(
            f"relay of {loaded.name!r} at {hub.address}, for lanes alone; stop it with Ctrl-C"
        )
        over.wait()


def party(
    study: StudyPath,
    config: PartyPath,
    out: Annotated[
        Path | None, typer.Option("--out", help="The run directory.  [default: runs/NAME/parties/PARTY]")
    ] = None,
    approve: Approve = None,
    again: Again = False,
    workers: Workers = None,
    json: Json = False,
    pipe: Pipe = False,
    hub: HubAddress = None,
    room: Room = "",
    attempt: Attempt = 0,
    approved_by: Annotated[str | None, typer.Option("--approved-by", hidden=True)] = None,
    asked_by: Annotated[str, typer.Option("--asked-by", hidden=True)] = "",
    while_open: WhileOpen = False,
) -> None:
    """Take part in a study with one's own columns."""
    from colonnade.cli import text_output
    from colonnade.cli.approve import approval, rerun_decision, say_news, say_rerun
    from colonnade.cli.process_tuning import without_pandas
    from colonnade.cli.results import publish_own
    from colonnade.study import PartyConfig, Study, preflight, run_party
    from colonnade.study.connect import MeetingPoint
    from colonnade.study.local import folder_of
    from colonnade.study.record import read_facts

    without_pandas()
    speak_json(json or pipe)
    remember_files(study, config)
    loaded = Study.load(study).runnable()
    asked = worker_options(loaded, workers)
    end_with_standard_input(while_open)
    own = PartyConfig.load(config)
    own.asked_by = asked_by
    own.check_membership(loaded)  # before its price is shown
    folder = out or folder_of(Path("runs") / loaded.name, own.name)
    if not (json or pipe):
        said = (
            text_output.about(loaded),
            text_output.approval_text(own.name, preflight(loaded)),
            text_output.own_forecast(loaded, [own]),
        )
        say("\n".join(filter(None, said)))
    say_news(loaded, [own])
    say_rerun(loaded, own)
    approved = approval([own], approve, mute=json or pipe, by=approved_by)
    repeat = rerun_decision(again, mute=json or pipe)
    with closing(asked), progress_bar(not (json or pipe)) as bar:
        model = run_party(
            loaded,
            own,
            folder,
            emit_progress if pipe else bar,
            approve=approved,
            again=repeat,
            place=MeetingPoint(hub, room, attempt),
            watch=emit_presence if while_open else None,
            tell=say,
            workers=asked,
        )
    publish_own(loaded, own, folder, model)
    if not pipe:
        record = read_facts(folder)
        told = (
            text_output.summary(model) if model.recipient else []
        )  # a result for everybody is in the coordinator's report
        own_file = folder / model.kept_file
        kept = [f"our own {model.keeps} are in {own_file}, which only we can read"] if own_file.exists() else []
        done = [
            *text_output.common(loaded, record),
            *text_output.lost_parties(record),
            *text_output.misfits(record),
            *told,
            *kept,
        ]
        done += [
            text_output.forecast_of(record),
            f"done; our report is {folder / 'report.html'}, beside the record of the run",
        ]
        facts: dict[str, Any] = {"study": loaded.name, "out": str(folder), "report": str(folder / "report.html")}
        facts |= {key: record.get(key) for key in ("alignment", "phases", "rounds", "lost", "misfits")}
        facts |= {"kept": str(own_file)} if kept else {}
        facts |= {"lanes": record["lanes"]} if "lanes" in record else {}
        emit(facts) if json else say("\n".join(filter(None, done)))


def run(study: StudyPath, out: Out = None, approve: Approve = None, again: Again = False, json: Json = False) -> None:
    """Run a whole study on this machine, a process for each party."""
    from colonnade.cli import text_output
    from colonnade.cli.approve import approval_for_all, say_news
    from colonnade.cli.preload import fork_server_of_this_command
    from colonnade.cli.results import publish
    from colonnade.study import Study, preflight, run_local
    from colonnade.study.local import local_configs

    loaded = Study.load(study).runnable()
    folder = out or Path("runs") / loaded.name
    say("\n\n".join(filter(None, (text_output.about(loaded), text_output.preflight(preflight(loaded))))))
    forks = fork_server_of_this_command(loaded)  # before anything of a party is looked at: nobody shall inherit it
    configs = list(local_configs(loaded).values())
    if not json and (enough := text_output.own_forecast(loaded, configs)):  # it counts the rows of every table
        say(f"\n{enough}")
    remember_files(study, *(own.path for own in configs))
    say_news(loaded, configs)
    approved, repeated = approval_for_all(loaded, configs, approve, again, mute=json)
    with progress_bar(not json) as progress:
        folders = run_local(loaded, folder, progress=progress, approve=approved, again=repeated, forks=forks)
    facts = publish(loaded, folder, folders)
    emit(facts) if json else say(text_output.outcome(loaded, folder, facts["run"]))


def worker() -> None:
    """Be a worker of a head, on the line that it has given as standard input."""
    from colonnade.cli.process_tuning import few_arenas
    from colonnade.study.engine.base import main

    few_arenas(1)
    main()
