"""The command line: which commands there are, and where each is; it is imported when somebody names it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from colonnade.cli.output import report_error, write_verbatim
from colonnade.errors import Interrupted
from colonnade.versions import installed_versions

Listed = Mapping[str, Mapping[str, tuple[str, str]]]
"""By section of the help: commands, each with the module and name of what it is (none: a group), and a line of help.

Those in no section stand in no help: what is rarely needed is named by pages and sentences that lead to it.
"""
_FEDERATION: Listed = {
    "The hub": {
        "create": (
            "membership:create",
            "Make a hub's key and the FEDERATION.toml to which members are invited.",
        ),
        "hub": ("membership:hub", "Serve a federation: its studies, proposals and results."),
        "invite": ("membership:invite", "At the hub: invite somebody; both ends compare six words."),
        "admit": ("membership:admit", "At the hub: make an invited one a member, by six words."),
    },
    "Members": {
        "join": ("membership:join", "Join a federation: make a key, compare six words."),
        "members": ("membership:members", "List members with the six words of their keys; accept some."),
        "agent": ("proposals:agent", "Stay connected to the hub, and take part in what is approved."),
        "console": (
            "console_commands:console",
            "Let somebody into the console of an agent or hub that runs.",
        ),
    },
    "Studies": {
        "propose": ("proposals:propose", "Ask the parties of a federation to run a study."),
        "studies": ("proposals:studies", "List proposed studies: state, who is waited for, cost."),
        "approve": ("proposals:approve", "Say yes to a proposed study, after reading what it costs."),
        "decline": ("proposals:decline", "Say no to a proposed study, and why."),
        "cancel": ("proposals:cancel", "Take back a yes, or one's own proposal; ends what runs."),
        "logs": ("proposals:follow_logs", "Show what happens in a study, from this party's own record."),
        "result": ("proposals:result", "Fetch the result of a study that has ended well."),
    },
}
_FLAT = {
    "init": {
        "party": ("initialise:make_party", "Make a party's key, certificate and configuration."),
        "coordinator": ("initialise:make_coordinator", "Make the coordinator's key and certificate."),
        "pins": (
            "initialise:write_fingerprints",
            "Pin the certificates in certs/ by writing their fingerprints into the study file.",
        ),
        "trial": ("initialise:make_trial", "For a trial on one machine: from files to a study that can run."),
    },
    "schema": {
        "draft": ("group_commands:schema_draft", "Write a schema for review."),
        "check": ("group_commands:schema_check", "Check a party's file against its schema, row by row."),
    },
    "ledger": {
        "show": ("group_commands:ledger_show", "Every study a party took part in, and what each observer learned."),
        "verify": ("group_commands:ledger_verify", "Check that a ledger is whole."),
        "export": ("group_commands:ledger_export", "Write the whole chain, from which anybody can check it."),
    },
    "keys": {
        "show": ("checks:keys", "Show a party its own keys of people, as a study would compare them."),
        "renew": ("key_commands:renew", "Make a new certificate, and have the hub tell the others."),
        "protect": ("key_commands:protect", "Put a passphrase on a private key, or take it off."),
        "revoke": ("key_commands:revoke", "Call our own key back, or ask for another's to be called back."),
    },
    "audit": {
        "games": ("attacks:games", "Attack the promises from below: what can an observer show."),
        "membership": ("attacks:membership", "Find out who was among the people of a model."),
        "inversion": ("attacks:inversion", "Recover a party's columns from what leaves it."),
        "labels": ("attacks:labels", "Guess labels from the slopes that are returned to others."),
    },
}
_RARE = {
    "federation": {
        "scores": ("console_commands:scores", "Keep standing questions open: scores on demand."),
    },
    "schema": {
        "digest": ("group_commands:schema_digest", "Print the digest by which a party's policy names a schema."),
    },
    "ledger": {
        "convert": ("group_commands:ledger_convert", "Bring a ledger of an earlier version up to this one."),
        "release": ("group_commands:ledger_release", "Give back a reservation of which no share has left."),
    },
}
_SECTIONS: Mapping[str, Listed] = {name: {"Commands": each} for name, each in _FLAT.items()} | {
    "federation": _FEDERATION
}
GROUPS: Mapping[str, Listed] = {name: {**each, "": _RARE.get(name, {})} for name, each in _SECTIONS.items()}
"""The groups, in the same way."""
COMMANDS: Listed = {
    "First steps": {
        "demo": ("demo:demo", "See it all once: three organisations and a private PCA."),
        "example": ("examples:example", "List the examples that come with Colonnade, or copy one."),
        "init": ("", "Make keys, certificates and configurations."),
        "schema": ("", "Draft and check public schemas."),
    },
    "Before a study": {
        "privacy": ("checks:privacy", "What a study would cost, for whom, before anybody says yes."),
        "plan": ("checks:plan", "How many rows or rounds; what noise costs; what a run takes."),
        "doctor": ("checks:doctor", "Check files, keys, table, ledger, clock and connection."),
    },
    "A study": {
        "run": ("participants:run", "Run a whole study on this machine, a process for each party."),
        "party": ("participants:party", "Take part in a study with one's own columns."),
        "coordinator": (
            "participants:coordinator",
            "Relay a study between its parties and publish the result.",
        ),
        "federation": ("", "Study after study: a hub, agents, proposals, consoles."),
    },
    "After a study": {
        "predict": ("results:predict", "Write predictions, or scores that we received, to a CSV file."),
        "export": ("results:export", "Write a model for people who do not have Colonnade."),
        "quality": ("results:quality", "Compare a synthetic table with the real one."),
        "ledger": ("", "What a party has spent."),
        "audit": ("", "Attack the promises, or a model."),
    },
    "": {
        "keys": ("", "Renew, protect and revoke keys; show a party its keys of people."),
        "relay": ("participants:relay", "Serve a further hub of a study in lanes, for its coordinator."),
        "_worker": ("participants:worker", ""),
        "_assess": ("proposals:assess", ""),
        "_report": ("proposals:report", ""),
    },
}


class LazyGroup(TyperGroup):
    """Commands that are imported when they are named, and listed with their help without that."""

    @property
    def listed(self) -> Listed:
        """The commands of this group."""
        return GROUPS.get(str(self.name), COMMANDS)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, in the order in which they are needed."""
        return [name for section in self.listed.values() for name in section]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, or a group of them, by its name; ``None`` if there is none."""
        known = next((section[cmd_name] for section in self.listed.values() if cmd_name in section), None)
        return None if known is None else build_command(known[0], cmd_name, known[1])

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the sections of the help."""
        for title, section in self.listed.items():
            if title:
                with formatter.section(title):
                    formatter.write_dl([(name, about) for name, (_, about) in section.items()])


_BY_DEFAULT = {"audit": "games", "keys": "show"}


class _WithDefault(LazyGroup):
    """A group in which anything that is not the name of a command belongs to one of them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name that command where none is named."""
        named = bool(args) and args[0] in self.list_commands(ctx)
        return super().parse_args(ctx, args if named else [_BY_DEFAULT[str(self.name)], *args])


def _make_group(name: str, about: str, epilog: str | None = None) -> typer.Typer:
    return typer.Typer(
        name=name,
        cls=_WithDefault if name in _BY_DEFAULT else LazyGroup,
        help=about,
        epilog=epilog,
        no_args_is_help=name not in _BY_DEFAULT,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


@cache
def build_command(where: str, name: str, about: str = "") -> Any:
    """A command from the function that it is: to read one takes milliseconds, to read all much longer."""
    if not where:
        made = _make_group(name, about)
        made.callback()(_nothing)
        return typer.main.get_command(made)
    module, _, attribute = where.partition(":")
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    alone.command(name, hidden=name.startswith("_"))(getattr(import_module(f"colonnade.cli.{module}"), attribute))
    return typer.main.get_command(alone)


def _nothing() -> None:
    """What a group does before its commands."""


app = _make_group(
    "colonnade",
    "Differentially private learning on columns that different organisations hold, with no trusted party.",
    "First steps: `colonnade demo`; with files of your own `colonnade init trial --party NAME=FILE ...`.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        write_verbatim("".join(f"{name} {version}\n" for name, version in installed_versions().items()))
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


def command_line() -> None:
    """Run a command; a user's mistake is one sentence and a documented exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # so that nohup still works
            signal.signal(number, _interrupt)
    try:
        app()
    except (Interrupted, Exception) as error:
        sys.exit(report_error(error))


def _interrupt(number: int, frame: FrameType | None) -> None:
    # A terminal interrupts everybody, and then `colonnade run` ends its participants: they are cleaning up by now.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Interrupted
