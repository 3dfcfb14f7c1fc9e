"""How members ask the hub: a line of JSON each way, and the bytes that belong to it behind that line.

Whoever holds a connection decides when to try again: an answer that did not come is a ``ConnectError``, one that says
no a ``FederationError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from colonnade.disk import reading
from colonnade.errors import ConnectError, FederationError, IdentityError
from colonnade.federation.attempts import FetchedResult
from colonnade.federation.invitations import InvitationToken
from colonnade.federation.members import MOST_MEMBERS, FederationMembers, FederationRole
from colonnade.federation.proposal_store import MAX_NEWS, State
from colonnade.federation.statements import (
    LONGEST_PURPOSE,
    LONGEST_REASON,
    MOST_ATTEMPTS,
    MOST_FILES,
    MOST_PACKED,
    MOST_PARTIES,
    Draw,
    MemberName,
    Proposal,
    ProposalAnswer,
    SignedStatement,
    StudyId,
    canonical_json,
    matches_form,
    parse_json,
    type_adapter,
)
from colonnade.protocols.roles import COORDINATOR
from colonnade.sanitize import sanitize
from colonnade.wire import Certificate, HubClient, Identity

SERVICE, METHOD = "colonnade.Federation", "Ask"
LONGEST_WAIT = 25.0
"""Seconds that the hub keeps a question for news before it says that there is none."""
MOST_HEADER = 1 << 23
MOST_ASKED = 1 << 12
"""The longest line of a question: the hub reads it while everybody waits."""
MOST_QUESTION = MOST_PACKED + (1 << 10)
MOST_ANSWER = 1 << 28
MOST_CERTIFICATE = 1 << 14

Method = Literal[
    "propose", "proposal", "news", "answer", "outcome", "withdraw", "result", "members", "enrol", "show_draw",
    "enrolment", "leave", "notice", "notices",
]  # fmt: skip
FOR_INVITED: frozenset[Method] = frozenset({"enrol", "show_draw", "enrolment", "leave"})
"""What those ask who are invited, and nobody else; all other questions are for members."""
_Time = Annotated[str, Field(pattern=r"^[2-8]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00$")]
_Signed = Annotated[str, Field(pattern="^[\x00-\x7f]*$", max_length=1 << 11)]
_Reason = Annotated[str, Field(max_length=LONGEST_REASON)]
_ShortText = Annotated[str, Field(max_length=300)]
_Files = Annotated[dict[MemberName, Annotated[int, Field(ge=0, le=MOST_ANSWER)]], Field(max_length=MOST_FILES)]


@dataclass(frozen=True)
class HubQuestion:
    """One question to the hub, and what it is about."""

    ask: Method
    study: StudyId = ""
    since: Annotated[int, Field(ge=0, lt=1 << 62)] = 0
    wait: Annotated[float, Field(ge=0, le=LONGEST_WAIT)] = 0.0
    draw: Draw = ""
    __pydantic_config__ = ConfigDict(extra="forbid")

    def pack(self, behind: bytes = b"") -> bytes:
        """The question on its way."""
        return pack_message(type_adapter(HubQuestion).dump_python(self, exclude_defaults=True), behind)

    @classmethod
    def unpack(cls, raw: bytes) -> tuple[HubQuestion, bytes]:
        """A question that came, and what stands behind it."""
        line, behind = _split_message(raw, MOST_ASKED)
        question: HubQuestion = parse_json(HubQuestion, line, "this question")
        return question, behind


class StudyState(TypedDict):
    """A study as the hub tells it."""

    id: StudyId
    name: Annotated[str, Field(max_length=80)]
    kind: Annotated[str, Field(max_length=80)]
    digest: Annotated[str, Field(max_length=64)]
    analyst: MemberName
    purpose: Annotated[str, Field(max_length=LONGEST_PURPOSE)]
    state: State
    attempt: Annotated[int, Field(ge=0, le=100)]
    made: _Time
    deadline: _Time
    ended: _Time | None
    parties: Annotated[list[MemberName], Field(max_length=MOST_PARTIES)]
    answers: Annotated[dict[MemberName, bool | None], Field(max_length=MOST_PARTIES)]
    signed: NotRequired[Annotated[dict[MemberName, _Signed], Field(max_length=MOST_PARTIES)]]
    reasons: NotRequired[Annotated[dict[MemberName, _Reason], Field(max_length=MOST_PARTIES)]]
    withdrawn: MemberName | None
    room: Annotated[str, Field(max_length=100)] | None
    serial: Annotated[int, Field(ge=0, le=1 << 62)]


def with_proven_answers(study: dict[str, Any], members: FederationMembers) -> dict[str, Any]:
    """A study as the hub tells it, with the answers that parties have signed in place of what the hub says of them."""
    proven: dict[str, bool | None] = dict.fromkeys(study["parties"])
    for party, raw in study.get("signed", {}).items():
        with suppress(FederationError, IdentityError):
            said = ProposalAnswer.unpack(raw.encode("ascii"), members)
            if (said.proposal, said.party) == (study["id"], party):
                proven[party] = said.yes
    return {key: said for key, said in study.items() if key != "signed"} | {"answers": proven}


class StudyAnswer(TypedDict):
    """How one study stands."""

    study: StudyState


class NewsAnswer(TypedDict):
    """Studies that have changed, and the number from which to go on."""

    serial: int
    studies: Annotated[list[StudyState], Field(max_length=MAX_NEWS)]


class ResultAnswer(TypedDict):
    """The sizes of the files of a result, and what parties have signed about it."""

    files: _Files
    finished: Annotated[
        list[Annotated[str, Field(pattern="^[\x00-\x7f]*$")]], Field(max_length=MOST_PARTIES * MOST_ATTEMPTS)
    ]


class MembersAnswer(TypedDict):
    """Who belongs to the federation."""

    name: _ShortText
    address: _ShortText
    roles: Annotated[dict[MemberName, FederationRole], Field(max_length=MOST_MEMBERS)]
    files: Annotated[dict[MemberName, Annotated[int, Field(ge=0, le=MOST_CERTIFICATE)]], Field(max_length=MOST_MEMBERS)]


class NoticesAnswer(TypedDict):
    """What members have signed about keys."""

    notices: Annotated[
        list[Annotated[str, Field(pattern="^[\x00-\x7f]*$", max_length=1 << 17)]], Field(max_length=3 * MOST_MEMBERS)
    ]


class DrawAnswer(TypedDict):
    """What the hub has drawn for the six words."""

    draw: Draw


def pack_message(header: Mapping[str, Any], *behind: bytes) -> bytes:
    """A question or an answer on its way."""
    return b"".join((canonical_json(header), b"\n", *behind))


def pack_files(header: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """An answer with files behind it, in the order of their names."""
    sizes = {name: len(content) for name, content in files.items()}
    return pack_message({**header, "files": sizes}, *(content for _, content in sorted(files.items())))


def read_files(header: Mapping[str, Any], behind: bytes) -> dict[str, bytes]:
    """The files behind an answer whose form was checked."""
    found, start = {}, 0
    for name, size in sorted(header["files"].items()):
        found[name] = behind[start : start + size]
        start += size
    return found


def read_answer(raw: bytes, form: Any = dict) -> tuple[dict[str, Any], bytes]:
    """What the hub answers, which is not trusted; an error if it refuses, cannot answer now, or answers nonsense."""
    line, behind = _split_message(raw, MOST_HEADER)
    try:
        header = reading.parse_json(line.decode("ascii"))
    except (UnicodeDecodeError, reading.MalformedFile):
        header = None
    if isinstance(header, dict) and isinstance(header.get("later"), str):
        raise ConnectError(f"the hub cannot answer now: {sanitize(header['later'])} [CN008]")
    if isinstance(header, dict) and isinstance(header.get("refused"), str):
        raise FederationError(f"{sanitize(header['refused'])} [FE106]")
    try:  # what the form does not name is dropped, for nothing bounds it
        return type_adapter(form).validate_python(header, strict=True), behind
    except ValidationError:
        raise FederationError("the hub's answer is none to what was asked: is it of another release? [FE108]") from None


def _split_message(raw: bytes, most: int) -> tuple[bytes, bytes]:
    """The line, of at most so many bytes, and what stands behind it."""
    end = raw.find(b"\n", 0, most)
    if end < 0:
        raise FederationError("this is no question or answer of a standing hub: is it of another release? [FE104]")
    return raw[:end], raw[end + 1 :]


_MOST_PIECES = 500
"""Of news, of many studies each: a hub that goes on for ever is not listened to for ever."""
_ANSWER_SECONDS = 60.0
_LARGE_SECONDS = 600.0
_STATEMENTS: Mapping[str, Method] = {
    "proposal": "propose",
    "answer": "answer",
    "outcome": "outcome",
    "withdrawal": "withdraw",
}


class HubConnection(HubClient):
    """Questions of members to a standing hub."""

    def request(
        self, form: Any, question: HubQuestion, behind: bytes = b"", seconds: float = _ANSWER_SECONDS
    ) -> tuple[dict[str, Any], bytes]:
        """The hub's answer, which has this form, and what stands behind it."""
        return read_answer(self.ask(SERVICE, METHOD, question.pack(behind), timeout=seconds, most=MOST_ANSWER), form)


class FederationClient(HubConnection):
    """What members ask."""

    def __init__(self, members: FederationMembers, identity: Identity) -> None:
        super().__init__(members.address, identity, members.certificates[COORDINATOR])
        self._members, self._signer = members, identity

    def tell(self, statement: SignedStatement) -> dict[str, Any]:
        """Sign a statement and give it to the hub; what the hub then says of the study, with proven answers."""
        seconds = _LARGE_SECONDS if isinstance(statement, Proposal) else _ANSWER_SECONDS
        question = HubQuestion(_STATEMENTS[statement.kind])
        study = self.request(StudyAnswer, question, statement.pack(self._signer), seconds)[0]["study"]
        return with_proven_answers(study, self._members)

    def proposal(self, study: str) -> bytes:
        """A proposal as it was signed; :meth:`Proposal.unpack` checks it."""
        return self.request(dict, HubQuestion("proposal", study), seconds=_LARGE_SECONDS)[1]

    def news(self, since: int = 0, wait: float = LONGEST_WAIT) -> dict[str, Any]:
        """Studies that have changed since a serial number, with proven answers; waits for a while if there are none."""
        question = HubQuestion("news", since=since, wait=min(wait, LONGEST_WAIT))
        said = self.request(NewsAnswer, question, seconds=_ANSWER_SECONDS + wait)[0]
        return said | {"studies": [with_proven_answers(study, self._members) for study in said["studies"]]}

    def studies(self) -> list[dict[str, Any]]:
        """All studies that concern us, as they stand now, those that changed last at the end."""
        found: dict[str, dict[str, Any]] = {}
        since = 0
        for _ in range(_MOST_PIECES):
            said = self.news(since, wait=0.0)
            if not said["studies"] or said["serial"] <= since:
                return list(found.values())
            for study in said["studies"]:
                found.pop(study["id"], None)
                found[study["id"]] = study
            since = said["serial"]
        raise FederationError(
            f"the hub has more than {_MOST_PIECES} pieces of news of your studies, and no more are read [FE860]"
        )

    def result(self, study: str) -> FetchedResult:
        """What the hub calls the result of a study; :meth:`Fetched.compare` says who has signed for it."""
        said, behind = self.request(ResultAnswer, HubQuestion("result", study), seconds=_LARGE_SECONDS)
        return FetchedResult(study, read_files(said, behind), [each.encode("ascii") for each in said["finished"]])

    def members(self) -> FederationMembers:
        """The members as the hub knows them. A pin is one's own: nobody is accepted because the hub says so."""
        return read_members(self._members, *self.request(dict, HubQuestion("members")))

    def notices(self) -> list[bytes]:
        """What members have signed about keys, as far as the hub shows it."""
        return [each.encode() for each in self.request(NoticesAnswer, HubQuestion("notices"))[0]["notices"]]

    def give_notice(self, notice: SignedStatement | bytes) -> None:
        """Sign something about keys, unless it is signed, and have the hub pass it on."""
        raw = notice if isinstance(notice, bytes) else notice.pack(self._signer)
        self.request(dict, HubQuestion("notice"), raw)


class EnrolmentClient(HubConnection):
    """What somebody asks who is invited: to enrol, and to hear what became of it."""

    def __init__(self, token: InvitationToken) -> None:
        super().__init__(token.address, token.identity, token.hub)
        self._token = token

    def enrol(self, identity: Identity, draw: str) -> str:
        """Show the hub our certificate, that we hold its key, and our sealed draw; returns what the hub has drawn."""
        said, _ = self.request(DrawAnswer, HubQuestion("enrol"), self._token.sign_enrolment(identity, draw))
        return str(said["draw"])

    def show_draw(self, draw: str) -> None:
        """Show the hub what we have drawn, now that its own draw is fixed."""
        self.request(dict, HubQuestion("show_draw", draw=draw))

    def leave(self) -> None:
        """Tell the hub that the words were others: its invitation ends."""
        self.request(dict, HubQuestion("leave"))

    def admitted(self, path: Path) -> FederationMembers | None:
        """The federation as it will stand in ``path``, once we were admitted; an error if we were refused."""
        said, behind = self.request(dict, HubQuestion("enrolment"))
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
