"""A member's line to the hub's desk.

Whoever holds it decides when to try again: an answer that did not come is a ``ConnectError``, one that says no a
``FederationError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast, get_args

from colonnade.errors import FederationError
from colonnade.protocols.roles import COORDINATOR
from colonnade.standing.federation import MOST_MEMBERS, Members, Role
from colonnade.standing.fetched import Fetched, statements_in
from colonnade.standing.invitation import Token, is_hex
from colonnade.standing.proposal import Answer, Outcome, Proposal, Withdrawal
from colonnade.standing.signed import is_name, is_text
from colonnade.standing.talk import (
    LONGEST_WAIT,
    METHOD,
    MOST_ANSWER,
    SERVICE,
    files_in,
    heard,
    is_study,
    packed,
    studies_in,
)
from colonnade.wire import Caller, Certificate, Identity

_ANSWER_SECONDS = 60.0
_LARGE_SECONDS = 600.0


class Line:
    """Questions to the desk; any thread may ask. It connects when it is asked something."""

    def __init__(self, members: Members, identity: Identity, address: str | None = None) -> None:
        self._members, self._identity = members, identity
        self._caller = Caller(address or members.address, identity, members.certificates[COORDINATOR])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._caller.close()

    def propose(self, proposal: Proposal) -> dict[str, Any]:
        """Propose a study; what the hub then says of it."""
        return self._study("propose", proposal.pack(self._identity), _LARGE_SECONDS)

    def proposal(self, study: str) -> bytes:
        """A proposal as it was signed; :meth:`Proposal.unpack` checks it."""
        return self._ask({"ask": "proposal", "study": study}, seconds=_LARGE_SECONDS)[1]

    def news(self, since: int = 0, wait: float = LONGEST_WAIT) -> dict[str, Any]:
        """Studies that have changed since a serial number; waits for some seconds if there are none."""
        asked = {"ask": "news", "since": since, "wait": min(wait, LONGEST_WAIT)}
        said, _ = self._ask(asked, seconds=_ANSWER_SECONDS + wait)
        serial = said.get("serial")
        if type(serial) is not int:
            raise FederationError("the hub's news have no serial number: is it of another release? [FE059]")
        return {"serial": serial, "studies": studies_in(said.get("studies"))}

    def studies(self) -> list[dict[str, Any]]:
        """All studies that concern us, as they stand now, those that changed last at the end."""
        found: dict[str, dict[str, Any]] = {}
        since = 0
        while True:
            said = self.news(since, wait=0.0)
            if not said["studies"] or said["serial"] <= since:
                return list(found.values())
            for study in said["studies"]:
                found.pop(study["id"], None)
                found[study["id"]] = study
            since = said["serial"]

    def answer(self, answer: Answer) -> dict[str, Any]:
        """Say yes or no to a proposal."""
        return self._study("answer", answer.pack(self._identity))

    def outcome(self, outcome: Outcome) -> dict[str, Any]:
        """Say how an attempt ended for us."""
        return self._study("outcome", outcome.pack(self._identity))

    def withdraw(self, withdrawal: Withdrawal) -> dict[str, Any]:
        """Take back a proposal, or a yes."""
        return self._study("withdraw", withdrawal.pack(self._identity))

    def result(self, study: str) -> Fetched:
        """What the hub calls the result of a study; :meth:`Fetched.compare` says who has signed for it."""
        said, behind = self._ask({"ask": "result", "study": study}, seconds=_LARGE_SECONDS)
        found = files_in(said, behind)
        if not all(Path(name).name == name and is_name(name) for name in found):
            raise FederationError("the hub's answer holds files with impossible names [FE060]")
        return Fetched(study, found, statements_in(said.get("finished", [])))

    def members(self) -> Members:
        """The members as the hub knows them. A pin is one's own: nobody is accepted because the hub says so."""
        return offered(self._members, *self._ask({"ask": "members"}))

    def _study(self, method: str, statement: bytes, seconds: float = _ANSWER_SECONDS) -> dict[str, Any]:
        said = self._ask({"ask": method}, statement, seconds)[0].get("study")
        if not is_study(said):
            raise FederationError(
                "the hub's answer does not say how the study stands: is it of another release? [FE061]"
            )
        return cast("dict[str, Any]", said)

    def _ask(
        self, header: Mapping[str, Any], behind: bytes = b"", seconds: float = _ANSWER_SECONDS
    ) -> tuple[dict[str, Any], bytes]:
        return heard(self._caller.ask(SERVICE, METHOD, packed(header, behind), timeout=seconds, most=MOST_ANSWER))


class Entrance:
    """The line of somebody who is invited: to enrol, and to hear what became of it."""

    def __init__(self, token: Token) -> None:
        self._token = token
        self._caller = Caller(token.address, token.identity, token.hub)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._caller.close()

    def enrol(self, identity: Identity, draw: str) -> str:
        """Show the hub our certificate, that we hold its key, and our sealed draw; returns what the hub has drawn."""
        said, _ = self._ask({"ask": "enrol"}, self._token.proof(identity, draw))
        if not is_hex(32)(said.get("draw")):
            raise FederationError("the hub draws nothing for the six words: is it of another release? [FE062]")
        return str(said["draw"])

    def show_draw(self, draw: str) -> None:
        """Show the hub what we have drawn, now that its own draw is fixed."""
        self._ask({"ask": "show_draw", "draw": draw})

    def admitted(self, path: Path) -> Members | None:
        """The federation as it will stand in ``path``, once we were admitted; an error if we were refused."""
        said, behind = self._ask({"ask": "enrolment"})
        if said.get("state") == "refused":
            raise FederationError("the hub has taken this invitation back: ask for a new one [FE063]")
        if said.get("state") != "admitted":
            return None
        ours = Members("", self._token.address, {COORDINATOR: self._token.hub}, {COORDINATOR: "hub"}, None, path)
        found = offered(ours, said, behind)
        if found.certificates[COORDINATOR].fingerprint != self._token.hub.fingerprint:
            raise FederationError("the hub names another key of its own than the invitation [FE064]")
        return found

    def _ask(self, header: Mapping[str, Any], behind: bytes = b"") -> tuple[dict[str, Any], bytes]:
        return heard(self._caller.ask(SERVICE, METHOD, packed(header, behind), timeout=_ANSWER_SECONDS))


def offered(ours: Members, said: Mapping[str, Any], behind: bytes) -> Members:
    """The members that the hub names, as they would stand beside ours; their form is checked, and nothing else."""
    roles, pems = said.get("roles"), files_in(said, behind)
    if (
        not isinstance(roles, dict)
        or set(roles) != set(pems)
        or len(roles) > MOST_MEMBERS
        or not all(is_name(name) and role in get_args(Role) for name, role in roles.items())
        or [name for name, role in roles.items() if role == "hub"] != [COORDINATOR]
        or not all(is_text(300)(said.get(key)) for key in ("name", "address"))
    ):
        raise FederationError("the hub names impossible members: is it of another release? [FE065]")
    certificates = {name: Certificate.from_pem(pem, f"the hub's certificate of {name}") for name, pem in pems.items()}
    named = replace(ours, name=said["name"], address=said["address"], certificates=certificates, roles=roles)
    return named.checked()
