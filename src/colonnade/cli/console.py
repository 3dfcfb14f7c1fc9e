"""`colonnade federation console`: where a console is, who is signed in, and links that let people in."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from colonnade.cli.output import Json, emit, say
from colonnade.disk import reading
from colonnade.errors import ConnectError, StudyError

if TYPE_CHECKING:
    from colonnade.console.serve import Served
    from colonnade.standing.desk import Desk
    from colonnade.standing.office import Office
    from colonnade.standing.scores.service import ScoresService
    from colonnade.study import PartyConfig
    from colonnade.study.console_part import ConsolePart, Role

NEEDS_EXTRA = "this needs what the console is made of: pip install 'colonnade[console]' [ST024]"


def console(
    config: Annotated[
        Path, typer.Argument(metavar="PARTY.toml", help="The party's configuration, or FEDERATION.toml.")
    ],
    link: Annotated[bool, typer.Option("--link", help="Make a link that signs one person in, once.")] = False,
    role: Annotated[
        Literal["viewer", "approver"], typer.Option("--role", help="What that person may do.")
    ] = "approver",
    person: Annotated[
        str | None,
        typer.Option("--person", metavar="NAME", help="Who that is, for the log.  [default: your user name]"),
    ] = None,
    end_sessions: Annotated[
        bool, typer.Option("--end-sessions", help="Sign everybody out, and make links that were not used worthless.")
    ] = False,
    json: Json = False,
) -> None:
    """Let somebody into the console of an agent or hub that runs."""
    folder, part = whose(config)
    access_of, sign_in_address, read_address = _serving()
    address = read_address(folder)
    if address is None:
        raise ConnectError(f"no console runs for {config}: start its agent or hub first [CN001]")
    access = access_of(folder, part, dict, part.address[1])
    facts: dict[str, Any] = {"address": address}
    if end_sessions:
        facts["ended"] = access.leave_all()
        emit(facts) if json else say(_ended(facts["ended"], part))
        return
    if link:
        name = _name(person)
        facts["link"] = sign_in_address(address, access.link(name, role))
        emit(facts) if json else say(f"for {name} ({role}), once and within ten minutes:\n{facts['link']}")
        return
    facts["signed in"] = [
        {"person": who, "role": held, "since": _moment(begun), "seen": _moment(used)}
        for who, held, begun, used in access.sessions()
    ]
    if json:
        emit(facts)
        return
    who = [f"  {each['person']} ({each['role']}), last seen {each['seen']}" for each in facts["signed in"]]
    say(
        "\n".join(
            [
                address,
                *(who or ["  nobody is signed in"]),
                f"let somebody in: colonnade federation console {config} --link",
            ]
        )
    )


def own_link(config: Path) -> str | None:
    """A link that signs whoever runs this in as an approver; ``None`` as long as no console runs there."""
    folder, part = whose(config)
    access_of, sign_in_address, read_address = _serving()
    address = read_address(folder)
    if address is None:
        return None
    return str(sign_in_address(address, access_of(folder, part, dict, part.address[1]).link(_name(None), "approver")))


def open_party_console(
    config: PartyConfig,
    office: Office,
    metrics: Callable[[], tuple[bytes, str]] | None = None,
    beside: Iterable[Any] = (),
    scores: ScoresService | None = None,
) -> Served | None:
    """Serve the console of a party, where its file says so; ``beside`` are routes for programs, under ``/v1/``."""
    folder, part = _of_agent(config)
    if not part:
        return None
    try:
        from colonnade.console.party import PartyDesk
        from colonnade.console.party_pages import PAGES
        from colonnade.console.serve import serve
    except ModuleNotFoundError as error:
        raise StudyError(NEEDS_EXTRA) from error
    desk = PartyDesk(config, office, scores)
    return serve(desk, folder, part, lambda: desk.config.standing.people, PAGES, beside=beside, metrics=metrics)


def open_hub_console(
    desk: Desk,
    results: Path,
    present: Callable[[], Collection[str]] = tuple,
    metrics: Callable[[], tuple[bytes, str]] | None = None,
) -> Served | None:
    """Serve the analyst's side of a hub, where its file says so; ``results`` has a folder for each study."""
    if not desk.part.console:
        return None
    try:
        from colonnade.console.hub import HubDesk
        from colonnade.console.hub_pages import PAGES
        from colonnade.console.serve import serve
    except ModuleNotFoundError as error:
        raise StudyError(NEEDS_EXTRA) from error
    view = HubDesk(desk, results, present)

    def people() -> Mapping[str, Role]:
        return {} if desk.members.hub is None else desk.members.hub.people

    return serve(view, desk.folder / "console", desk.part.console, people, PAGES, metrics=metrics)


def greeting(served: Served, config: Path) -> str:
    """What is said when a console begins; a link only where a terminal, and no log, reads it."""
    if not sys.stdout.isatty():
        return f"console at {served.url}; let somebody in: colonnade federation console {config} --link"
    return f"console: {served.link(_name(None), 'approver')}\n(this link signs you in once, within ten minutes)"


def whose(config: Path) -> tuple[Path, ConsolePart]:
    """The folder and the settings of the console of a party or a hub."""
    from colonnade.standing.federation import Members
    from colonnade.study import PartyConfig

    try:
        is_hub = "members" in reading.read_toml(config)
    except reading.Unreadable as error:
        raise StudyError(f"{config} cannot be read: {error} [ST025]") from None
    if is_hub:
        hub = Members.load(config).hub
        if hub is None or not hub.console:
            raise StudyError(f'{config} names no console: add console = "127.0.0.1:8470" to its [hub] [ST026]')
        return config.parent / hub.folder / "console", hub.console
    folder, part = _of_agent(PartyConfig.load(config))
    if not part:
        raise StudyError(f'{config} names no console: add console = "127.0.0.1:8471" to its [agent] [ST027]')
    return folder, part


def _of_agent(config: PartyConfig) -> tuple[Path, ConsolePart | Literal[False]]:
    agent = config.standing
    return config.path.parent / agent.folder / "console", agent.console


def _ended(count: int, part: ConsolePart) -> str:
    said = "1 session ended" if count == 1 else f"{count} sessions ended"
    if part.trust_header is None:
        return said
    return f"{said}; whom the proxy signs in comes back until you take that person out of people in the file"


def _serving() -> tuple[Any, Any, Any]:
    try:
        from colonnade.console.serve import access_of, read_address, sign_in_address
    except ModuleNotFoundError as error:
        raise StudyError(NEEDS_EXTRA) from error
    return access_of, sign_in_address, read_address


def _name(person: str | None) -> str:
    if person is None:
        try:
            person = getpass.getuser()
        except (KeyError, OSError):  # a user without a name, as in a container
            person = "somebody at the terminal"
    if not person.strip() or not person.isprintable() or len(person) > 80:
        raise StudyError("--person must be one short line of text [ST028]")
    return person


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
