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
"""By section of the help: commands, each with the module and name of what it is, and a line of help; none: hidden."""
FEDERATION: Listed = {
    "The hub": {
        "create": (
            "colonnade.cli.membership:create",
            "Make a hub's key and the FEDERATION.toml to which members are invited.",
        ),
        "hub": ("colonnade.cli.membership:hub", "Serve a federation: its studies, proposals and results."),
        "invite": ("colonnade.cli.membership:invite", "At the hub: invite somebody; both ends compare six words."),
        "admit": ("colonnade.cli.membership:admit", "At the hub: make an invited one a member, by six words."),
    },
    "Members": {
        "join": ("colonnade.cli.membership:join", "Join a federation: make a key, compare six words."),
        "members": ("colonnade.cli.membership:members", "List members with the six words of their keys; accept some."),
        "agent": ("colonnade.cli.proposals:agent", "Stay connected to the hub, and take part in what is approved."),
        "console": (
            "colonnade.cli.console_commands:console",
            "Let somebody into the console of an agent or hub that runs.",
        ),
        "scores": ("colonnade.cli.console_commands:scores", "Keep standing questions open: scores on demand."),
    },
    "Studies": {
        "propose": ("colonnade.cli.proposals:propose", "Ask the parties of a federation to run a study."),
        "studies": ("colonnade.cli.proposals:studies", "List proposed studies: state, who is waited for, cost."),
        "approve": ("colonnade.cli.proposals:approve", "Say yes to a proposed study, after reading what it costs."),
        "decline": ("colonnade.cli.proposals:decline", "Say no to a proposed study, and why."),
        "cancel": ("colonnade.cli.proposals:cancel", "Take back a yes, or one's own proposal; ends what runs."),
        "logs": ("colonnade.cli.proposals:follow_logs", "Show what happens in a study, from this party's own record."),
        "result": ("colonnade.cli.proposals:result", "Fetch the result of a study that has ended well."),
    },
}
COMMANDS: Listed = {
    "First steps": {
        "demo": ("colonnade.cli.demo:demo", "See it all once: three organisations and a private PCA."),
        "example": ("colonnade.cli.examples:example", "List the examples that come with Colonnade, or copy one."),
        "init": ("colonnade.cli.group_commands:init_app", "Make keys, certificates and configurations."),
        "schema": ("colonnade.cli.group_commands:schema_app", "Draft and check public schemas."),
    },
    "Before a study": {
        "privacy": ("colonnade.cli.checks:privacy", "What a study would cost, for whom, before anybody says yes."),
        "plan": ("colonnade.cli.checks:plan", "How many rows or rounds; what noise costs; what a run takes."),
        "keys": ("colonnade.cli.checks:keys", "Show a party its own keys, as a study would compare them."),
        "doctor": ("colonnade.cli.checks:doctor", "Check files, keys, table, ledger, clock and connection."),
    },
    "A study": {
        "run": ("colonnade.cli.participants:run", "Run a whole study on this machine, a process for each party."),
        "party": ("colonnade.cli.participants:party", "Take part in a study with one's own columns."),
        "coordinator": (
            "colonnade.cli.participants:coordinator",
            "Relay a study between its parties and publish the result.",
        ),
        "relay": ("colonnade.cli.participants:relay", "Serve a further hub of a study in lanes, for its coordinator."),
        "federation": ("colonnade.cli.app:federation_app", "Study after study: a hub, agents, proposals, consoles."),
    },
    "After a study": {
        "predict": ("colonnade.cli.results:predict", "Write predictions, or scores that we received, to a CSV file."),
        "export": ("colonnade.cli.results:export", "Write a model for people who do not have Colonnade."),
        "quality": ("colonnade.cli.results:quality", "Compare a synthetic table with the real one."),
        "ledger": ("colonnade.cli.group_commands:ledger_app", "What a party has spent."),
        "audit": ("colonnade.cli.audit_commands:audit_app", "Attack the promises, or a model."),
    },
    "": {
        "_worker": ("colonnade.cli.participants:worker", ""),
        "_assess": ("colonnade.cli.proposals:assess", ""),
        "_report": ("colonnade.cli.proposals:report", ""),
    },
}


class LazyGroup(TyperGroup):
    """Commands that are imported when they are named, and listed with their help without that."""

    listed: Listed = COMMANDS

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, in the order in which they are needed."""
        return [name for section in self.listed.values() for name in section]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, or a group of them, by its name; ``None`` if there is none."""
        where = next((section[cmd_name][0] for section in self.listed.values() if cmd_name in section), None)
        return None if where is None else build_command(where, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the sections of the help."""
        for title, section in self.listed.items():
            if title:
                with formatter.section(title):
                    formatter.write_dl([(name, about) for name, (_, about) in section.items()])


class _FederationGroup(LazyGroup):
    listed = FEDERATION


@cache
def build_command(where: str, name: str) -> Any:
    """A command from the function or the group that it is: to read one takes milliseconds, to read all much longer."""
    module, _, attribute = where.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        alone.command(name, hidden=name.startswith("_"))(found)
        found = alone
    return typer.main.get_command(found)


app = typer.Typer(
    name="colonnade",
    cls=LazyGroup,
    help="Differentially private learning on columns that different organisations hold, with no trusted party.",
    epilog="First steps: `colonnade demo`; with files of your own `colonnade init trial --party NAME=FILE ...`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
federation_app = typer.Typer(
    name="federation",
    cls=_FederationGroup,
    help="Study after study, with a hub that stands and an agent at every party.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
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


@federation_app.callback()
def _federation() -> None:
    """Study after study, with a hub that stands and an agent at every party."""


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
