"""The doctor's checks of a member of a federation: its own files and key, its list of members, and the hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from colonnade.errors import ColonnadeError, ConnectError
from colonnade.standing.federation import Members
from colonnade.standing.line import Line
from colonnade.standing.newcomers import newcomers
from colonnade.study.doctor import Check, examine_party
from colonnade.study.meeting import load_identity
from colonnade.study.policy import PartyConfig


def examine_member(path: Path) -> Iterator[Check]:
    """All checks of a party by its own file, whether or not somebody has proposed a study."""
    try:
        config = PartyConfig.load(path)
    except ColonnadeError as error:
        yield Check("party", "bad", str(error))
        return
    yield Check("party", "good", f"{config.name}, approval {config.approval!r}, {len(config.caps)} caps")
    yield from examine_party(config)
    if config.content.agent is not None:
        yield from _federation(config)


def _federation(config: PartyConfig) -> Iterator[Check]:
    try:
        members = Members.load(config.path.parent / config.standing.federation)
        members.check([config.name])
        identity = load_identity(config.key, config.name, members.certificates)
    except ColonnadeError as error:
        yield Check("federation", "bad", str(error))
        return
    yield Check(
        "federation", "good", f"{members.name!r} with {len(members.roles)} members, and our key is pinned in it"
    )
    try:
        with Line(members, identity) as line:
            there = line.members()
    except ConnectError as error:
        yield Check("hub", "bad", str(error))
        return
    except ColonnadeError as error:
        yield Check("hub", "bad", f"{members.address} answers otherwise than our hub would: {error} [CO025]")
        return
    yield Check("hub", "good", f"{members.address} is who {members.path.name} says, and knows us")
    if new := newcomers(members, there):
        named = ", ".join(each.name for each in new)
        yield Check(
            "members", "unsure", f"not accepted here: {named}; `colonnade federation members {config.path}` shows words"
        )
