"""What the commands of a federation's hub and of those who join it do."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from colonnade.cli.approve import ask_for_text
from colonnade.cli.console_commands import greeting, open_hub_console
from colonnade.cli.initialise import identity, party
from colonnade.cli.output import Json, emit, say, writing
from colonnade.disk import reading
from colonnade.errors import ConnectError, FederationError, IdentityError
from colonnade.federation import monitoring
from colonnade.federation.comparison import WordComparison, WordTries, name_subject
from colonnade.federation.hub_protocol import EnrolmentClient, FederationClient
from colonnade.federation.hub_server import HubServer
from colonnade.federation.invitations import Invitations, InvitationToken, new_draw
from colonnade.federation.members import (
    FederationMembers,
    MemberIdentity,
    accept_member as accept_newcomer,
    find_new_members,
    six_words,
)
from colonnade.federation.notices import take_notices
from colonnade.federation.proposal_store import HubFile
from colonnade.federation.statements import Draw, format_moment, matches_form
from colonnade.memory import freeze_baseline
from colonnade.models.serialization import replace_private, write_whole
from colonnade.protocols.roles import COORDINATOR
from colonnade.report.wording import count_noun
from colonnade.study import PartyConfig
from colonnade.study.connect import load_identity
from colonnade.tables.datasets import PERSON_ID
from colonnade.wire import Certificate, Identity

_NOT_THE_WORDS = "these are not the words, so somebody else may be in between, or one was misheard"
_HUB_DAYS = 3650
"""Nobody can vouch for a new key of a hub, so it lasts."""
_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 10.0
_MOST_TOKEN = 1 << 14
FEDERATION = "FEDERATION.toml"
FederationPath = Annotated[Path, typer.Argument(metavar="FEDERATION.toml", help="The federation's file.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The new member's name.")]
Words = Annotated[
    str | None,
    typer.Option("--words", metavar="'W W W W W W'", help="What the other end reads out: all six, or those asked."),
]
_HUB_PART = """\
# What the hub alone needs to know; members have the rest of this file.
[hub]
key = "coordinator.key"
folder = "hub"                  # proposals, attempts and results
# listen = "0.0.0.0:9300"       # where it listens, if not at the address that members dial
# health = "127.0.0.1:9301"     # grpc.health.v1 in the clear, for a supervisor on this machine
# console = "127.0.0.1:8470"    # the console for analysts
# operators = ["NAME"]          # people whom it shows everything; others see what the member of their name may
"""


def create(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The hub's folder.")],
    name: Annotated[str, typer.Option("--name", help="What the federation is called.")],
    address: Annotated[str, typer.Option("--address", metavar="HOST:PORT", help="Where members dial its hub.")],
    json: Json = False,
) -> None:
    """Make a hub's key and the FEDERATION.toml to which members are invited."""
    path = folder / FEDERATION
    if path.exists():
        raise FederationError(f"{path} exists already and is not overwritten [FE001]")
    made = identity(COORDINATOR, folder, _HUB_DAYS)
    certificate = Certificate.load(made["certificate"])
    FederationMembers(name, address, {COORDINATOR: certificate}, {COORDINATOR: "hub"}, None, path).save(path)
    with writing(path):
        write_whole(path, f"{path.read_text('utf-8')}\n{_HUB_PART}".encode())
    try:
        FederationMembers.load(path)
    except FederationError:
        path.unlink()
        raise
    facts = {"federation": str(path), "key": made["key"], "fingerprint": made["fingerprint"]}
    emit(facts) if json else say(
        f"federation {name!r} in {path}; its hub's private key is {made['key']}; keep it here\n"
        f"next: colonnade federation hub {path}; and in another terminal: colonnade federation invite {path} NAME"
    )


def hub(federation: FederationPath, json: Json = False) -> None:
    """Serve a federation: its studies, proposals and results."""
    server = HubServer(federation)
    with server.alone():  # before its console is served
        _serve(server, federation, json)


def _serve(server: HubServer, federation: Path, json: bool) -> None:
    monitoring.configure_logging(server.part.log.format, server.part.log.level)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.stop())
    results, present = server.folder / "results", server.service.present
    served = open_hub_console(server.proposals, results, present, server.counts)

    if served is not None:
        server.members_changed = served.access.sign_out_strangers

    def ready() -> None:
        count = len(server.members.roles)
        facts = {"hub": server.hub.address, "members": count, "folder": str(server.folder)}
        emit(facts) if json else say(
            f"hub of {server.members.name!r} at {server.hub.address} for {count_noun(count, 'member')}; "
            f"stop it with Ctrl-C\nto let somebody in: colonnade federation invite {federation} NAME"
        )
        if served is not None and not json:
            say(greeting(served, federation))
        freeze_baseline()

    try:
        server.run(ready)
    finally:
        if served is not None:
            served.stop()


def invite(
    federation: FederationPath,
    name: Name,
    role: Annotated[Literal["party", "analyst"], typer.Option("--role", help="What it may do.")] = "party",
    hours: Annotated[float, typer.Option("--hours", min=0.01, max=720, help="How long the invitation is good.")] = 24.0,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until it was used.")] = False,
    json: Json = False,
) -> None:
    """At the hub: invite somebody; both ends compare six words."""
    found, invitations = _at_the_hub(federation)
    token = invitations.make(found, name, role, timedelta(hours=hours), datetime.now(UTC))
    facts: dict[str, Any] = {
        "name": name,
        "role": role,
        "invitation": token.pack(),
        "expires": format_moment(token.expires),
    }
    if no_wait:
        emit(facts) if json else say(_invitation(token, federation))
        return
    if json:
        emit(facts)
    say(f"{_invitation(token, federation)}\n\nwaiting for {name} ...")
    while (held := invitations.find(name)) is not None and held.id == token.id and held.state == "open":
        token.check_time(datetime.now(UTC))
        time.sleep(_LOOK_SECONDS)
    if held is None or held.id != token.id or (said := held.words(token.hub)) is None:
        raise FederationError(f"the invitation of {name} was taken back [FE002]")
    emit({"name": name, "words": said}) if json else say(
        f"{name} has joined. Read it these words, by telephone, and have it read you the others:\n\n"
        f"  {WordComparison.of_invitation(said, hub=True).shown}\n\n"
        f"you type those that you hear: colonnade federation admit {federation} {name}"
    )


def admit(federation: FederationPath, name: Name, words: Words = None, json: Json = False) -> None:
    """At the hub: make an invited one a member, by six words."""
    found, invitations = _at_the_hub(federation)
    held = invitations.find(name)
    said = None if held is None else held.words(found.certificates[COORDINATOR])
    if held is not None and said is not None:
        tries, asked = WordTries(invitations.folder), WordComparison.of_invitation(said, hub=True)
        if words is None and not json:
            say(f"read {name} these words:\n\n  {asked.shown}\n")
        if (left := _compare(tries, held.id, asked, words, name)) is not None:
            if not left:
                invitations.refuse(name)
            raise FederationError(f"{name} was not admitted: {_NOT_THE_WORDS}; {_left(left)} [FE003]")
    joined = invitations.admit(name, found, datetime.now(UTC))
    emit({"admitted": name, "pin": joined.pins[name]}) if json else say(
        f"{name} is a member now; the others accept it with `colonnade federation members PARTY.toml --accept {name}`"
    )


def join(
    text: Annotated[str, typer.Argument(metavar="TOKEN", help="The invitation, or - to read it from standard input.")],
    name: Annotated[str | None, typer.Option("--name", help="Our name, as the invitation has it.")] = None,
    out: Annotated[Path, typer.Option("--out", help="The folder for the key and FEDERATION.toml.")] = Path(),
    data: Annotated[
        str | None, typer.Option("--data", help="A party's table, from that folder.  [default: NAME.csv]")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until we are admitted.")] = False,
    json: Json = False,
    words: Words = None,
) -> None:
    """Join a federation: make a key, compare six words."""
    token = InvitationToken.unpack(sys.stdin.read(_MOST_TOKEN) if text == "-" else text)
    token.check_time(datetime.now(UTC))
    if name is not None and name != token.name:
        raise FederationError(f"this invitation is for {token.name}, not for {name} [FE004]")
    made = identity(token.name, out)
    own = Identity.load(made["key"], made["certificate"])
    path = out / FEDERATION
    with EnrolmentClient(token) as door:
        said = token.words(own.certificate, *_enrol(door, own, token, out / f"{token.name}.joining"))
        asked = WordComparison.of_invitation(said, hub=False)
        emit({"name": token.name, "key": made["key"], "words": said}) if json else say(
            f"our private key is {made['key']}; keep it here\n"
            "read the hub's people these words, by telephone, and have them read you the others:\n\n"
            f"  {asked.shown}\n"
        )
        if words is None and (json or not sys.stdin.isatty()):
            if no_wait:
                say("to go on, run the same command again, with --words and what the hub's people read out")
                return
            raise FederationError(
                "nothing is pinned before the words were compared: run the same command again, with --words and what "
                "the hub's people read out, or at a terminal [FE820]"
            )
        _compare_at_home(door, WordTries(out), f"join {token.id}", asked, words)
        if no_wait:
            say("once they have admitted us, run the same command again")
        members = door.admitted(path)
        while members is None and not no_wait:
            token.check_time(datetime.now(UTC))
            time.sleep(_LOOK_SECONDS)
            try:
                members = door.admitted(path)
            except ConnectError:
                continue  # the hub may be starting again
    if members is None:
        return
    if members.pins.get(token.name) != own.fingerprint:
        raise IdentityError("the hub has admitted another key in our name: tell its people [ID001]")
    if path.exists():
        raise FederationError(f"{path} exists already and is not overwritten; choose another --out [FE005]")
    ours = members.select(COORDINATOR, token.name)  # nobody compared words of the others: the hub may have made them up
    ours.save(path)
    (out / f"{token.name}.joining").unlink(missing_ok=True)
    config = _party_file(token.name, out, data) if token.role == "party" else None
    others = find_new_members(ours, members)
    facts = {"federation": str(path), "members": ours.pins, "new": _offers(others), "config": config and str(config)}
    lines = [f"we are a member; {path} pins the hub and ourselves:", _table(ours)]
    lines += _to_accept(others, config or path, None if config else Path(made["key"]))
    if config:
        lines.append(f"next: review {config}, then colonnade federation agent {config}")
    emit(facts) if json else say("\n".join(lines))


def _compare_at_home(
    door: EnrolmentClient, tries: WordTries, subject: str, asked: WordComparison, words: str | None
) -> None:
    """Compare what the hub's people read out; where it is not the same three times, the invitation ends here too."""
    while (left := _compare(tries, subject, asked, words, "the hub")) is not None:
        if not left:
            with suppress(FederationError, ConnectError):
                door.leave()
        if not left or words is not None:
            raise IdentityError(f"we did not join: {_NOT_THE_WORDS}; {_left(left)} [ID780]")
        say(f"{_NOT_THE_WORDS}; {_left(left)}")


def _enrol(door: EnrolmentClient, own: Identity, token: InvitationToken, notes: Path) -> tuple[str, str]:
    """Enrol, and return what the hub and we have drawn; the same again when the command is run again.

    Our draw is told once the hub's is written down, and is good for no other: who would know it first could search for
    a draw that makes the words it wants. A hub that was told of the invitation a moment ago may not know it yet.
    """
    invitation = sha256(token.pack().encode()).hexdigest()  # all of it: another hub with the same id is another one
    drawn = _read_notes(notes, invitation)
    draw = drawn.get("own") or new_draw()
    replace_private(notes, dumps({"invitation": invitation, **drawn, "own": draw}).encode())
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            theirs = door.enrol(own, draw)
            break
        except ConnectError:
            if time.monotonic() > until:
                raise
            time.sleep(_LOOK_SECONDS)
    if drawn.get("hub", theirs) != theirs:
        raise IdentityError(
            "the hub says something else for the six words than before: ask it for a new invitation [ID002]"
        )
    replace_private(notes, dumps({"invitation": invitation, "own": draw, "hub": theirs}).encode())
    door.show_draw(draw)
    return theirs, draw


def _read_notes(notes: Path, invitation: str) -> dict[str, str]:
    """What an earlier run of the command has drawn for this invitation."""
    try:
        found = reading.read_json(notes)
    except (reading.UnreadableFile, reading.MalformedFile, FileNotFoundError):
        return {}
    if not isinstance(found, dict) or found.get("invitation") != invitation:
        return {}
    return {key: str(found[key]) for key in ("own", "hub") if matches_form(Draw, found.get(key))}


def _party_file(name: str, out: Path, data: str | None) -> Path:
    """The party's own file, to review, with a section for its agent; one that is there stays as it is."""
    path = out / "party.toml"
    if not path.exists():
        party(name, out, data or f"{name}.csv", PERSON_ID, federation=FEDERATION)
    return path


def members(
    config: Annotated[Path, typer.Argument(metavar="FILE", help="FEDERATION.toml, or a party's own file.")],
    accept: Annotated[str | None, typer.Option("--accept", metavar="NAME", help="Pin a new member.")] = None,
    words: Words = None,
    key: Annotated[Path | None, typer.Option("--key", help="An analyst's key, to ask the hub who is new.")] = None,
    json: Json = False,
) -> None:
    """List members with the six words of their keys; accept some."""
    path, own = whose_key(config, key)
    ours = FederationMembers.load(path)
    new: Sequence[MemberIdentity] = ()
    gone = {each.name for each in ours.former} - ours.roles.keys()
    if own is not None and own[0] not in gone:  # with a key that was called back the hub answers nothing
        with FederationClient(ours, load_identity(own[1], own[0], ours.certificates)) as line:
            take_notices(path, line.notices(), datetime.now(UTC))
            new = find_new_members(ours := FederationMembers.load(path), line.members())
    if accept is not None:
        found = next((each for each in new if each.name == accept), None)
        if found is None:
            raise FederationError(
                f"the hub names no new member {accept!r}; `colonnade federation members {config}` lists them [FE006]"
            )
        tries = WordTries(path.parent)
        left = _compare(tries, name_subject(accept), tries.of_key(found.pin, found.words), words, accept)
        if left is not None:
            raise FederationError(
                f"{accept} was not accepted, and {path} stays as it was: {_NOT_THE_WORDS}; {_left(left)} [FE007]"
            )
        ours = accept_newcomer(path, found)
        new = [each for each in new if each is not found]
    facts = {
        "federation": ours.name,
        "members": {name: {"role": role, "pin": ours.pins[name], "words": six_words(ours.pins[name])}
                    for name, role in ours.roles.items()},
        "new": _offers(new),
    }  # fmt: skip
    emit(facts) if json else say("\n".join([_table(ours), *_to_accept(new, config, key)]))


def _offers(new: Sequence[MemberIdentity]) -> dict[str, dict[str, Any]]:
    return {each.name: {"role": each.role, "words": each.words, "known": each.known} for each in new}


def _to_accept(new: Sequence[MemberIdentity], config: Path, key: Path | None) -> list[str]:
    """Whom the hub names, and how each is accepted by who was shown ``config``, and an analyst's key."""
    command = f"colonnade federation members {config}" + ("" if key is None else f" --key {key}")
    lines = []
    for each in new:
        other = "has another key at the hub than here: ask it whether it has a new one, and why"
        lines.append(f"{each.name} {other if each.known else f'is new to us ({each.role})'}")
        lines.append(f"  while it reads you the six words of its key: {command} --accept {each.name}")
    return lines


def whose_key(config: Path, key: Path | None) -> tuple[Path, tuple[str, Path] | None]:
    """The federation's file, and the name and key with which the hub is asked; None where only the file is read."""
    try:
        raw = reading.read_toml(config)
    except reading.UnreadableFile as error:
        raise FederationError(f"{config} cannot be read: {error} [FE008]") from None
    if "members" in raw:
        return config, None if key is None else (key.stem, key)
    own = PartyConfig.load(config)
    return config.parent / own.agent_section.federation, (own.name, own.key)


def _compare(tries: WordTries, subject: str, asked: WordComparison, words: str | None, who: str) -> int | None:
    """Compare what was typed, here or at the terminal; returns how many tries are left where it is not the same."""
    if words is None and not sys.stdin.isatty():
        raise FederationError("compare the six words first: pass them by --words, or run this at a terminal [FE009]")
    if words is None and tries.left(subject, asked):
        words = ask_for_text(f"Type {asked.places}, as {who} reads them to you:")
        if not words:
            raise FederationError("no word was typed, so nothing was compared and no try was used up [FE780]")
    return tries.compare(subject, asked, words or "")


def _left(left: int) -> str:
    return f"{left} more tries" if left > 1 else "1 more try" if left else "no try is left, so that is the end of it"


def _at_the_hub(federation: Path) -> tuple[FederationMembers, Invitations]:
    found = FederationMembers.load(federation)
    if found.hub is None:
        raise FederationError(f"{federation} has no [hub] section: this is done where the hub runs [FE010]")
    return found, Invitations(HubFile(federation.parent / found.hub.folder))


def _invitation(token: InvitationToken, federation: Path) -> str:
    return (
        f"invitation of {token.name} ({token.role}), good once and until {token.expires:%Y-%m-%d %H:%M} UTC; send it "
        f"to {token.name} alone:\n\n{token.pack()}\n\n"
        f"there: colonnade federation join TOKEN --out FOLDER; "
        f"then here: colonnade federation admit {federation} {token.name}"
    )


def _table(found: FederationMembers) -> str:
    width = max(len(name) for name in found.roles)
    return "\n".join(f"{name:<{width}}  {role:<8}{six_words(found.pins[name])}" for name, role in found.roles.items())
