"""Statements that members sign: one line that names the signer, and a body of JSON that can be written in one way only.

The hub passes them on and cannot make one. What is signed begins with the kind of statement, so that no statement can
be shown as one of another kind; and each names, by its hash, the proposal that it is about.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from colonnade.disk import reading
from colonnade.errors import FederationError
from colonnade.harmless import harmless
from colonnade.standing.federation import Members
from colonnade.wire import Identity

_MAGIC = "colonnade-signed-1"
_HEADER = re.compile(rb"colonnade-signed-1 ([a-z]{1,20}) ([A-Za-z0-9_.-]{1,63}) ([A-Za-z0-9+/]{86}==)")
_LONGEST_HEADER = 256
_MOST_SIGNS = 1 << 14
"""So many commas and brackets at most, far more than any statement has: reading a list of millions takes seconds in
which nobody else is served, and a hundred times its own memory."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00")

Form = Mapping[str, Callable[[Any], bool]]
"""The fields of a body, each with the test of its value."""


def canonical(value: Any) -> bytes:
    """JSON that is written in one way only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def seal(kind: str, body: Mapping[str, Any], identity: Identity) -> bytes:
    """A statement of this kind, signed."""
    content = canonical(body)
    signature = b64encode(identity.sign(_to_sign(kind, identity.name, content))).decode()
    return f"{_MAGIC} {kind} {identity.name} {signature}\n".encode() + content


def unseal(
    kind: str, raw: bytes, members: Members, form: Form, most: int, optional: Form | None = None
) -> tuple[str, dict[str, Any]]:
    """Who signed a statement, and what it says; an error if it is of another kind, form or signer.

    Fields that are ``optional`` may be absent: earlier releases did not write them.
    """
    if len(raw) > most:
        raise FederationError(f"this {kind} has {len(raw):,} bytes, and at most {most:,} are read [FE094]")
    end = raw.find(b"\n", 0, _LONGEST_HEADER)
    header = _HEADER.fullmatch(raw, 0, end) if end > 0 else None
    if header is None or header[1].decode() != kind:
        raise FederationError(f"this is not a signed {kind} [FE095]")
    name, content = header[2].decode(), raw[end + 1 :]
    certificate = members.certificates.get(name)
    if certificate is None:
        raise FederationError(
            f"this {kind} is signed by {name}, who is no member of the federation {members.name!r} [FE096]"
        )
    certificate.check_dates()
    if not certificate.has_signed(b64decode(header[3]), _to_sign(kind, name, content)):
        raise FederationError(
            f"the signature of this {kind} is not that of {name}, whose certificate is pinned here [FE097]"
        )
    if sum(content.count(sign) for sign in (b",", b"[", b"{")) > _MOST_SIGNS:
        raise FederationError(f"this {kind} of {name} has more parts than any has: is it of another release? [FE098]")
    try:
        body = reading.json_of(content.decode("ascii"))
    except (UnicodeDecodeError, reading.Malformed):
        raise FederationError(f"this {kind} of {name} cannot be read [FE099]") from None
    given = {key: test for key, test in (optional or {}).items() if isinstance(body, dict) and key in body}
    check_form(f"this {kind} of {name}", body, {**form, **given})
    if canonical(body) != content:
        raise FederationError(f"this {kind} of {name} is not written as all write it [FE100]")
    return name, body


def check_form(what: str, body: Any, form: Form) -> None:
    """Raise an error unless a value has exactly the fields of a form, and each passes its test."""
    if not isinstance(body, dict) or set(body) != set(form):
        raise FederationError(f"{what} has not the fields that it must have: is it of another release? [FE101]")
    if wrong := [key for key, test in form.items() if not test(body[key])]:
        raise FederationError(f"{what} has an impossible {wrong[0]} [FE102]")


def _to_sign(kind: str, name: str, content: bytes) -> bytes:
    return f"{_MAGIC} {kind} {name}\n".encode() + content


def written(moment: datetime) -> str:
    """A moment as statements and stores have it: in UTC, of a fixed length, so that texts compare as moments do."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def read_moment(text: str) -> datetime:
    """The moment that :func:`written` wrote."""
    return datetime.fromisoformat(text)


def is_moment(value: Any) -> bool:
    """Whether a value is a moment as :func:`written` writes it."""
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        return False
    try:
        read_moment(value)
    except ValueError:
        return False
    return True


def is_id(value: Any) -> bool:
    """Whether a value has the form of the id of a proposal."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value) is not None


def is_hash(value: Any) -> bool:
    """Whether a value has the form of a SHA-256."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def is_name(value: Any) -> bool:
    """Whether a value has the form of a member's name."""
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", value) is not None


def is_text(longest: int) -> Callable[[Any], bool]:
    """The test for texts of at most so many characters."""
    return lambda value: isinstance(value, str) and len(value) <= longest


def is_count(most: int, least: int = 0) -> Callable[[Any], bool]:
    """The test for whole numbers of this range."""
    return lambda value: type(value) is int and least <= value <= most


def is_flag(value: Any) -> bool:
    """Whether a value is true or false."""
    return type(value) is bool


def shown(text: str, longest: int = 200) -> str:
    """Text of a stranger, for an error."""
    return harmless(text, longest)
