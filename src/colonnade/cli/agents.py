"""The commands of a party's agent and of an analyst: propose a study, answer, follow it, fetch its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.groups import StudyPath
from colonnade.cli.output import Json, emit
from colonnade.cli.participants import PartyPath, WhileOpen, end_with_standard_input

Federation = Annotated[
    Path | None, typer.Option("--federation", metavar="FEDERATION.toml", help="The members, for an analyst.")
]
Key = Annotated[Path | None, typer.Option("--key", help="The analyst's private key.")]
StudyId = Annotated[str, typer.Argument(metavar="ID", help="The first digits of the study's id.")]
Where = Annotated[list[str], typer.Argument(metavar="[PARTY.toml] ID", help="A party names its file; an analyst not.")]


def agent(config: PartyPath, json: Json = False) -> None:
    """Stay connected to the hub, and take part in what is approved."""
    from colonnade.cli import standing

    standing.agent(config, json)


def propose(
    study: StudyPath,
    federation: Annotated[Path, typer.Option("--federation", help="The members.")] = Path("FEDERATION.toml"),
    key: Annotated[Path, typer.Option("--key", help="Your private key; its certificate lies beside it.")] = ...,  # type: ignore[assignment]
    deadline: Annotated[str, typer.Option("--deadline", help="Until when all must say yes: 12h, 7d or a date.")] = "7d",
    purpose: Annotated[str, typer.Option("--purpose", help="What it is for, for the people who are asked.")] = "",
    json: Json = False,
) -> None:
    """Ask the parties of a federation to run a study."""
    from colonnade.cli import standing

    standing.propose(study, federation, key, deadline, purpose, json)


def studies(
    config: Annotated[Path | None, typer.Argument(metavar="[PARTY.toml]", help="The party's own file.")] = None,
    federation: Federation = None,
    key: Key = None,
    json: Json = False,
) -> None:
    """List proposed studies: state, who is waited for, cost."""
    from colonnade.cli import standing

    standing.studies(config, federation, key, json)


def approve(
    config: PartyPath,
    id: StudyId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask again, where there is no terminal.")] = False,
    json: Json = False,
) -> None:
    """Say yes to a proposed study, after reading what it costs."""
    from colonnade.cli import standing

    standing.approve(config, id, yes, json)


def decline(
    config: PartyPath,
    id: StudyId,
    why: Annotated[str, typer.Option("--why", help="The reason; the analyst is told these words.")],
    json: Json = False,
) -> None:
    """Say no to a proposed study, and why."""
    from colonnade.cli import standing

    standing.decline(config, id, why, json)


def cancel(
    where: Where,
    why: Annotated[str, typer.Option("--why", help="The reason, for your own record.")] = "",
    federation: Federation = None,
    key: Key = None,
    json: Json = False,
) -> None:
    """Take back a yes, or one's own proposal; ends what runs."""
    from colonnade.cli import standing

    standing.cancel(where, why, federation, key, json)


def logs(
    config: PartyPath,
    id: StudyId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the study has ended.")] = False,
    json: Json = False,
) -> None:
    """Show what happens in a study, from this party's own record."""
    from colonnade.cli import standing

    standing.follow_logs(config, id, follow, json)


def result(
    where: Where,
    out: Annotated[Path | None, typer.Option("--out", help="Where to write the files.  [default: results/ID]")] = None,
    unconfirmed: Annotated[
        bool, typer.Option("--unconfirmed", help="Write it even if no party has signed it, or one signed another.")
    ] = False,
    federation: Federation = None,
    key: Key = None,
    json: Json = False,
) -> None:
    """Fetch the result of a study that has ended well."""
    from colonnade.cli import standing

    standing.result(where, out, unconfirmed, federation, key, json)


def assess(
    study: StudyPath,
    config: PartyPath,
    name: Annotated[str, typer.Option("--name")],
    digest: Annotated[str, typer.Option("--digest")],
    while_open: WhileOpen = False,
) -> None:
    """Check a proposed study, for an agent."""
    from colonnade.cli.output import speak_json
    from colonnade.standing.assess import assess as assessed, own_eyes
    from colonnade.study import PartyConfig

    end_with_standard_input(while_open)
    speak_json(True)
    own = PartyConfig.load(config)
    found, loaded = assessed(study, own, name, digest)
    emit({"assessment": found})
    if loaded is not None:
        emit({"own": own_eyes(loaded, own)})


def report(study: StudyPath, config: PartyPath, out: Annotated[Path, typer.Option("--out")]) -> None:
    """Write the report of a run that ended well before it was written, for an agent."""
    from colonnade.cli.output import speak_json
    from colonnade.cli.publish import publish_own
    from colonnade.models import Estimator
    from colonnade.study import PartyConfig, Study

    speak_json(True)
    publish_own(Study.load(study), PartyConfig.load(config), out, Estimator.load(out / "model.json"))


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (agent, propose, studies, approve, decline, cancel, logs, result):
        app.command()(command)
    for name, hidden in (("_assess", assess), ("_report", report)):
        app.command(name, hidden=True)(hidden)
