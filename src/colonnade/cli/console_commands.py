"""Who is signed in to a console and links that let people in; standing questions without an agent or a hub."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from colonnade.cli.output import Json, emit, say
from colonnade.disk import reading
from colonnade.errors import ConnectError, FederationError, StudyError
from colonnade.privacy.ledger.approvers import Approver

if TYPE_CHECKING:
    from colonnade.console.app import ConsoleServer, MetricsPage
    from colonnade.federation.agent_store import AgentStore
    from colonnade.federation.proposal_store import ProposalStore
    from colonnade.federation.scores.service import ScoresService
    from colonnade.study import PartyConfig
    from colonnade.study.party_file import ConsoleRole, ConsoleSection


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
    if key is None:
        _answer(path, listen)
    else:
        _meet(path, key, listen)


def _answer(path: Path, listen: str | None) -> None:
    """Keep a party's standing questions open until it is interrupted; where it may ask, serve the interface."""
    from colonnade.federation.scores.service import ScoresService
    from colonnade.study import PartyConfig

    config = PartyConfig.load(path)
    agent = config.agent_section
    if agent.scores is None:
        raise StudyError(
            f"{path} has no [agent.scores] section: docs/how-to/scores-on-demand.md says what goes into it [ST045]"
        )
    service = ScoresService(config, agent.scores, path.parent / agent.folder)
    served = None
    service.start()
    try:
        if service.asked_here:
            try:
                from colonnade.federation.scores.web_api import serve_scores
            except ModuleNotFoundError as error:
                raise StudyError("the interface for scores needs `pip install 'colonnade[console]'` [ST544]") from error

            served = serve_scores(service, listen or "127.0.0.1:8472")
            say(f"{config.name} asks at {served.url}/v1/scores, with the token in {service.token_file}")
        for name, kept in service.kept.items():
            if kept.questions is None:
                limits = kept.standing
                say(f"{config.name} answers {name}: {limits.per_day} people a day, once in a {limits.period}")
        threading.Event().wait()
    finally:
        if served is not None:
            served.stop()
        service.stop()


def _meet(path: Path, key: Path, listen: str | None) -> None:
    """Keep a hub and the coordinator's seat for one standing question until it is interrupted."""
    from colonnade.federation.scores.session import StandingStudy, keep_coordinator, make_own_hub
    from colonnade.study import Study

    standing = StandingStudy.of(Study.load(path))
    with make_own_hub(standing, key, listen=listen) as hub:
        seat = keep_coordinator(standing, key, hub)
        say(f"the room of {standing.study.name} is open at {hub.address}")
        try:
            threading.Event().wait()
        finally:
            seat.stop()


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
    server = _console("app")
    address = server.read_address(folder)
    if address is None:
        raise ConnectError(f"no console runs for {config}: start its agent or hub first [CN001]")
    access = server.access_control_of(folder, part, dict, part.address[1])
    facts: dict[str, Any] = {"address": address}
    if end_sessions:
        facts["ended"] = access.sign_out_all()
        emit(facts) if json else say(_sessions_ended(facts["ended"], part))
        return
    if link:
        name = user_name(person)
        _check_listed(config, name)
        facts["link"] = server.sign_in_address(address, access.link(name, role))
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
    server = _console("app")
    address = server.read_address(folder)
    if address is None:
        return None
    access = server.access_control_of(folder, part, dict, part.address[1])
    _check_listed(config, user_name())
    return str(server.sign_in_address(address, access.link(user_name(), "approver")))


def open_party_console(
    config: PartyConfig,
    store: AgentStore,
    metrics: MetricsPage | None = None,
    beside: Iterable[Any] = (),
    scores: ScoresService | None = None,
) -> ConsoleServer | None:
    """Serve the console of a party, where its file says so; ``beside`` are routes for programs, under ``/v1/``."""
    folder, part = _of_agent(config)
    if not part:
        return None
    party = _console("party_pages")
    pages, view = party.PARTY_PAGES, party.PartyView(config, store, scores)
    served: ConsoleServer = _console("app").serve_console(
        view, folder, part, lambda: view.config.agent_section.people, pages, beside=beside, metrics=metrics
    )
    return served


def open_hub_console(
    proposals: ProposalStore,
    results: Path,
    present: Callable[[], Collection[str]] = tuple,
    metrics: MetricsPage | None = None,
) -> ConsoleServer | None:
    """Serve the analyst's side of a hub, where its file says so; ``results`` has a folder for each study."""
    if not proposals.part.console:
        return None
    of_hub = _console("hub")
    view = of_hub.HubView(proposals, results, present)

    def people() -> Mapping[str, ConsoleRole]:
        return {} if proposals.members.hub is None else proposals.members.hub.people

    served: ConsoleServer = _console("app").serve_console(
        view,
        proposals.folder / "console",
        proposals.part.console,
        people,
        of_hub.HUB_PAGES,
        metrics=metrics,
        may_enter=lambda person: proposals.members.may_enter(person),
    )
    return served


def greeting(served: ConsoleServer, config: Path) -> str:
    """What is said when a console begins; a link only where a terminal, and no log, reads it."""
    if not sys.stdout.isatty() or not served.access.may_enter(user_name()):
        return f"console at {served.url}; let somebody in: colonnade federation console {config} --link"
    return f"console: {served.link(user_name(), 'approver')}\n(this link signs you in once, within ten minutes)"


def whose(config: Path) -> tuple[Path, ConsoleSection]:
    """The folder and the settings of the console of a party or a hub."""
    from colonnade.federation.members import FederationMembers
    from colonnade.study import PartyConfig

    try:
        is_hub = "members" in reading.read_toml(config)
    except reading.UnreadableFile as error:
        raise StudyError(f"{config} cannot be read: {error} [ST025]") from None
    if is_hub:
        hub = FederationMembers.load(config).hub
        if hub is None or not hub.console:
            raise StudyError(f'{config} names no console: add console = "127.0.0.1:8470" to its [hub] [ST026]')
        return config.parent / hub.folder / "console", hub.console
    folder, part = _of_agent(PartyConfig.load(config))
    if not part:
        raise StudyError(f'{config} names no console: add console = "127.0.0.1:8471" to its [agent] [ST027]')
    return folder, part


def _check_listed(config: Path, person: str) -> None:
    """Raise an error if this is the console of a hub that would show this person nothing."""
    from colonnade.federation.members import NOT_LISTED, FederationMembers

    if "members" in reading.read_toml(config) and not FederationMembers.load(config).may_enter(person):
        raise FederationError(NOT_LISTED)


def _of_agent(config: PartyConfig) -> tuple[Path, ConsoleSection | Literal[False]]:
    agent = config.agent_section
    return config.path.parent / agent.folder / "console", agent.console


def _sessions_ended(count: int, part: ConsoleSection) -> str:
    said = "1 session ended" if count == 1 else f"{count} sessions ended"
    if part.trust_header is None:
        return said
    return f"{said}; whom the proxy signs in comes back until you take that person out of people in the file"


def _console(name: str) -> Any:
    """A module of the console, if what it is made of is installed."""
    try:
        return import_module(f"colonnade.console.{name}")
    except ModuleNotFoundError as error:
        raise StudyError(NEEDS_EXTRA) from error


def user_name(person: str | None = None) -> str:
    """Who is meant by ``--person``, by default whoever runs this."""
    person = Approver.at_terminal(person).who if person is None else person
    if not person.strip() or not person.isprintable() or len(person) > 80:
        raise StudyError("--person must be one short line of text [ST028]")
    return person


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
