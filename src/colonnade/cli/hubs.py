"""The commands of a federation's hub and of those who join it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from colonnade.cli.output import Json

FederationPath = Annotated[Path, typer.Argument(metavar="FEDERATION.toml", help="The federation's file.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The new member's name.")]
Words = Annotated[
    str | None, typer.Option("--words", metavar="'W W W W W W'", help="The six words that the other end reads out.")
]


def hub(federation: FederationPath, json: Json = False) -> None:
    """Serve a federation: its studies, proposals and results."""
    from colonnade.cli import federation as command

    command.hub(federation, json)


def invite(
    federation: FederationPath,
    name: Name,
    role: Annotated[Literal["party", "analyst"], typer.Option("--role", help="What it may do.")] = "party",
    hours: Annotated[float, typer.Option("--hours", min=0.01, max=720, help="How long the invitation is good.")] = 24.0,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until it was used.")] = False,
    json: Json = False,
) -> None:
    """At the hub: invite somebody; both ends compare six words."""
    from colonnade.cli import federation as command

    command.invite(federation, name, role, hours, not no_wait, json)


def admit(federation: FederationPath, name: Name, words: Words = None, json: Json = False) -> None:
    """At the hub: make an invited one a member, by six words."""
    from colonnade.cli import federation as command

    command.admit(federation, name, words, json)


def join(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The invitation, or - to read it from standard input.")],
    name: Annotated[str | None, typer.Option("--name", help="Our name, as the invitation has it.")] = None,
    out: Annotated[Path, typer.Option("--out", help="The folder for the key and FEDERATION.toml.")] = Path(),
    data: Annotated[
        str | None, typer.Option("--data", help="A party's table, from that folder.  [default: NAME.csv]")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until we are admitted.")] = False,
    json: Json = False,
) -> None:
    """Join a federation: make a key, compare six words."""
    from colonnade.cli import federation as command

    command.join(token, name, out, data, not no_wait, json)


def members(
    config: Annotated[Path, typer.Argument(metavar="FILE", help="FEDERATION.toml, or a party's own file.")],
    accept: Annotated[str | None, typer.Option("--accept", metavar="NAME", help="Pin a new member.")] = None,
    words: Words = None,
    key: Annotated[Path | None, typer.Option("--key", help="An analyst's key, to ask the hub who is new.")] = None,
    json: Json = False,
) -> None:
    """List members with the six words of their keys; accept some."""
    from colonnade.cli import federation as command

    command.members(config, accept, words, key, json)


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    for command in (hub, invite, admit, join, members):
        app.command()(command)
