"""A member's way to ask the hub.

Whoever holds it decides when to try again: an answer that did not come is a ``ConnectError``, one that says no a
``FederationError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from colonnade.errors import FederationError
from colonnade.federation.attempt_result import FetchedResult
from colonnade.federation.hub_protocol import (
    LONGEST_WAIT,
    METHOD,
    MOST_ANSWER,
    SERVICE,
    DrawAnswer,
    HubQuestion,
    MembersAnswer,
    Method,
    NewsAnswer,
    ResultAnswer,
    StudyAnswer,
    read_answer,
    read_files,
)
from colonnade.federation.invitations import InvitationToken
from colonnade.federation.members import FederationMembers
from colonnade.federation.statements import Proposal, SignedStatement, matches_form
from colonnade.protocols.roles import COORDINATOR
from colonnade.wire import Certificate, HubClient, Identity

_ANSWER_SECONDS = 60.0
_LARGE_SECONDS = 600.0
_STATEMENTS: Mapping[str, Method] = {
    "proposal": "propose",
    "answer": "answer",
    "outcome": "outcome",
    "withdrawal": "withdraw",
}


class HubConnection:
    """Questions to the hub; any thread may ask. It connects when it is asked something."""

    def __init__(self, address: str, identity: Identity, hub: Certificate) -> None:
        self._identity = identity
        self._caller = HubClient(address, identity, hub)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._caller.close()

    def ask(
        self, form: Any, question: HubQuestion, behind: bytes = b"", seconds: float = _ANSWER_SECONDS
    ) -> tuple[dict[str, Any], bytes]:
        """The hub's answer, which has this form, and what stands behind it."""
        raw = self._caller.ask(SERVICE, METHOD, question.pack(behind), timeout=seconds, most=MOST_ANSWER)
        return read_answer(raw, form)


class FederationClient(HubConnection):
    """What members ask."""

    def __init__(self, members: FederationMembers, identity: Identity) -> None:
        super().__init__(members.address, identity, members.certificates[COORDINATOR])
        self._members = members

    def tell(self, statement: SignedStatement) -> dict[str, Any]:
        """Sign a statement and give it to the hub; what the hub then says of the study."""
        seconds = _LARGE_SECONDS if isinstance(statement, Proposal) else _ANSWER_SECONDS
        question = HubQuestion(_STATEMENTS[statement.kind])
        study: dict[str, Any] = self.ask(StudyAnswer, question, statement.pack(self._identity), seconds)[0]["study"]
        return study

    def proposal(self, study: str) -> bytes:
        """A proposal as it was signed; :meth:`Proposal.unpack` checks it."""
        return self.ask(dict, HubQuestion("proposal", study), seconds=_LARGE_SECONDS)[1]

    def news(self, since: int = 0, wait: float = LONGEST_WAIT) -> dict[str, Any]:
        """Studies that have changed since a serial number; waits for some seconds if there are none."""
        question = HubQuestion("news", since=since, wait=min(wait, LONGEST_WAIT))
        return self.ask(NewsAnswer, question, seconds=_ANSWER_SECONDS + wait)[0]

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

    def result(self, study: str) -> FetchedResult:
        """What the hub calls the result of a study; :meth:`Fetched.compare` says who has signed for it."""
        said, behind = self.ask(ResultAnswer, HubQuestion("result", study), seconds=_LARGE_SECONDS)
        return FetchedResult(study, read_files(said, behind), [each.encode("ascii") for each in said["finished"]])

    def members(self) -> FederationMembers:
        """The members as the hub knows them. A pin is one's own: nobody is accepted because the hub says so."""
        return read_members(self._members, *self.ask(dict, HubQuestion("members")))


class EnrolmentClient(HubConnection):
    """What somebody asks who is invited: to enrol, and to hear what became of it."""

    def __init__(self, token: InvitationToken) -> None:
        super().__init__(token.address, token.identity, token.hub)
        self._token = token

    def enrol(self, identity: Identity, draw: str) -> str:
        """Show the hub our certificate, that we hold its key, and our sealed draw; returns what the hub has drawn."""
        said, _ = self.ask(DrawAnswer, HubQuestion("enrol"), self._token.sign_enrolment(identity, draw))
        return str(said["draw"])

    def show_draw(self, draw: str) -> None:
        """Show the hub what we have drawn, now that its own draw is fixed."""
        self.ask(dict, HubQuestion("show_draw", draw=draw))

    def admitted(self, path: Path) -> FederationMembers | None:
        """The federation as it will stand in ``path``, once we were admitted; an error if we were refused."""
        said, behind = self.ask(dict, HubQuestion("enrolment"))
        if said.get("state") == "refused":
            raise FederationError("the hub has taken this invitation back: ask for a new one [FE063]")
        if said.get("state") != "admitted":
            return None
        ours = FederationMembers(
            "", self._token.address, {COORDINATOR: self._token.hub}, {COORDINATOR: "hub"}, None, path
        )
        found = read_members(ours, said, behind)
        if found.certificates[COORDINATOR].fingerprint != self._token.hub.fingerprint:
            raise FederationError("the hub names another key of its own than the invitation [FE064]")
        return found


def read_members(ours: FederationMembers, said: Mapping[str, Any], behind: bytes) -> FederationMembers:
    """The members that the hub names, as they would stand beside ours; their form is checked, and nothing else."""
    roles, pems = (said["roles"], read_files(said, behind)) if matches_form(MembersAnswer, said) else ({}, {})
    if set(roles) != set(pems) or [name for name, role in roles.items() if role == "hub"] != [COORDINATOR]:
        raise FederationError("the hub names impossible members: is it of another release? [FE065]")
    certificates = {name: Certificate.from_pem(pem, f"the hub's certificate of {name}") for name, pem in pems.items()}
    named = replace(ours, name=said["name"], address=said["address"], certificates=certificates, roles=roles)
    return named.check_unique()
