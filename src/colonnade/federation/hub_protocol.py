"""How members ask the hub: a line of JSON each way, and the bytes that belong to it behind that line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from colonnade.disk import reading
from colonnade.errors import ConnectError, FederationError
from colonnade.federation.members import MOST_MEMBERS, FederationRole
from colonnade.federation.proposal_state import State
from colonnade.federation.statements import (
    LONGEST_PURPOSE,
    MOST_ATTEMPTS,
    MOST_FILES,
    MOST_PACKED,
    MOST_PARTIES,
    Draw,
    MemberName,
    StudyId,
    canonical_json,
    matches_form,
    parse_json,
    type_adapter,
)
from colonnade.sanitize import sanitize

SERVICE, METHOD = "colonnade.Federation", "Ask"
LONGEST_WAIT = 25.0
"""Seconds that the hub keeps a question for news before it says that there is none."""
MOST_HEADER = 1 << 23
MOST_ASKED = 1 << 12
"""The longest line of a question: the hub reads it while everybody waits."""
MOST_QUESTION = MOST_PACKED + (1 << 10)
MOST_ANSWER = 1 << 28

Method = Literal[
    "propose", "proposal", "news", "answer", "outcome", "withdraw", "result", "members", "enrol", "show_draw",
    "enrolment",
]  # fmt: skip
FOR_INVITED: frozenset[Method] = frozenset({"enrol", "show_draw", "enrolment"})
"""What those ask who are invited, and nobody else; all other questions are for members."""
_Time = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00$")]
_ShortText = Annotated[str, Field(max_length=300)]
_Files = Annotated[dict[MemberName, Annotated[int, Field(ge=0, le=MOST_ANSWER)]], Field(max_length=MOST_MEMBERS)]


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
    """A study as the hub tells it; keys that we do not know are left alone."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

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
    answers: dict[MemberName, bool | None]
    withdrawn: MemberName | None
    room: Annotated[str, Field(max_length=100)] | None
    serial: Annotated[int, Field(ge=0, le=1 << 62)]


class StudyAnswer(TypedDict):
    """How one study stands."""

    study: StudyState


class NewsAnswer(TypedDict):
    """Studies that have changed, and the number from which to go on."""

    serial: int
    studies: list[StudyState]


class ResultAnswer(TypedDict):
    """The sizes of the files of a result, and what parties have signed about it."""

    files: Annotated[_Files, Field(max_length=MOST_FILES)]
    finished: Annotated[
        list[Annotated[str, Field(pattern="^[\x00-\x7f]*$")]], Field(max_length=MOST_PARTIES * MOST_ATTEMPTS)
    ]


class MembersAnswer(TypedDict):
    """Who belongs to the federation."""

    name: _ShortText
    address: _ShortText
    roles: Annotated[dict[MemberName, FederationRole], Field(max_length=MOST_MEMBERS)]
    files: _Files


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
    if not isinstance(header, dict) or not matches_form(form, header):
        raise FederationError("the hub's answer is none to what was asked: is it of another release? [FE000]")
    return header, behind


def _split_message(raw: bytes, most: int) -> tuple[bytes, bytes]:
    """The line, of at most so many bytes, and what stands behind it."""
    end = raw.find(b"\n", 0, most)
    if end < 0:
        raise FederationError("this is no question or answer of a standing hub: is it of another release? [FE104]")
    return raw[:end], raw[end + 1 :]
