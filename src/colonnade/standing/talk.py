"""How members ask the hub's desk: a line of JSON each way, and the bytes that belong to it behind that line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.disk import reading
from colonnade.errors import ConnectError, FederationError
from colonnade.harmless import harmless
from colonnade.standing.proposal import LONGEST_PURPOSE, MOST_PACKED, MOST_PARTIES
from colonnade.standing.signed import Form, canonical, is_count, is_id, is_moment, is_name, is_text
from colonnade.standing.verdict import STATES

SERVICE, METHOD = "colonnade.Desk", "Ask"
LONGEST_WAIT = 25.0
"""Seconds that the hub keeps a question for news before it says that there is none."""
MOST_HEADER = 1 << 23
MOST_ASKED = 1 << 12
"""The longest line of a question: the hub reads it while everybody waits."""
MOST_QUESTION = MOST_PACKED + (1 << 10)
MOST_ANSWER = 1 << 28


def _opt(test: Any) -> Any:
    return lambda value: value is None or test(value)


_STUDY: Form = {
    "id": is_id,
    "name": is_text(80),
    "kind": is_text(80),
    "digest": is_text(64),
    "analyst": is_name,
    "purpose": is_text(LONGEST_PURPOSE),
    "state": lambda value: isinstance(value, str) and value in STATES,
    "attempt": is_count(100),
    "made": is_moment,
    "deadline": is_moment,
    "ended": _opt(is_moment),
    "parties": lambda value: isinstance(value, list) and len(value) <= MOST_PARTIES and all(map(is_name, value)),
    "answers": lambda value: isinstance(value, dict) and all(each in (True, False, None) for each in value.values()),
    "withdrawn": _opt(is_name),
    "room": _opt(is_text(100)),
    "serial": is_count(1 << 62),
}


def packed(header: Mapping[str, Any], *behind: bytes) -> bytes:
    """A question or an answer on its way."""
    return b"".join((canonical(header), b"\n", *behind))


def unpacked(raw: bytes, most: int = MOST_HEADER) -> tuple[dict[str, Any], bytes]:
    """The line, of at most so many bytes, and what stands behind it; an error if it is none of ours."""
    end = raw.find(b"\n", 0, most)
    try:
        header = reading.json_of(raw[: max(end, 0)].decode("ascii"))
    except (UnicodeDecodeError, reading.Malformed):
        header = None
    if not isinstance(header, dict):
        raise FederationError("this is no question or answer of a standing hub: is it of another release? [FE104]")
    return header, raw[end + 1 :]


def with_files(header: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """An answer with files behind it, in the order of their names."""
    sizes = {name: len(content) for name, content in files.items()}
    return packed({**header, "files": sizes}, *(content for _, content in sorted(files.items())))


def files_in(header: Mapping[str, Any], behind: bytes) -> dict[str, bytes]:
    """The files behind an answer."""
    sizes = header.get("files")
    if not isinstance(sizes, dict) or not all(map(is_count(len(behind)), sizes.values())):
        raise FederationError("the hub's answer does not say which files it holds [FE105]")
    found, start = {}, 0
    for name, size in sorted(sizes.items()):
        found[name] = behind[start : start + size]
        start += size
    return found


def heard(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """What the hub answers; an error if it refuses, or cannot answer now."""
    header, behind = unpacked(raw)
    if isinstance(header.get("later"), str):
        raise ConnectError(f"the hub cannot answer now: {harmless(header['later'])} [CN008]")
    if isinstance(header.get("refused"), str):
        raise FederationError(f"{harmless(header['refused'])} [FE106]")
    return header, behind


def studies_in(told: Any) -> list[dict[str, Any]]:
    """Studies as the hub tells them; the hub is not trusted, so their form is checked."""
    if not isinstance(told, list) or not all(is_study(study) for study in told):
        raise FederationError("the hub tells something of a study that cannot be: is it of another release? [FE107]")
    return told


def is_study(told: Any) -> bool:
    """Whether this can be a study as the hub tells it; keys that we do not know are left alone."""
    return isinstance(told, dict) and all(key in told and test(told[key]) for key, test in _STUDY.items())
