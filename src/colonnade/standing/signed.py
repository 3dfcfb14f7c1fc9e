"""Statements that members sign: one line that names the signer, and a body of JSON that can be written in one way only.

The hub passes them on and cannot make one. What is signed begins with the kind of statement, so that no statement can
be shown as one of another kind; and each names, by its hash, the proposal that it is about.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, Field, PlainSerializer, TypeAdapter, ValidationError

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
_FORM_ERRORS = ("missing", "unexpected_keyword_argument", "dataclass_type", "dict_type")


def written(moment: datetime) -> str:
    """A moment as statements and stores have it: in UTC, of a fixed length, so that texts compare as moments do."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


Moment = Annotated[datetime, PlainSerializer(written)]
StudyId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Draw = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
MemberName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")]


@cache
def adapter(form: Any) -> TypeAdapter[Any]:
    """What reads and writes values of a type."""
    return TypeAdapter(form)


def fits(form: Any, value: Any) -> bool:
    """Whether a value, which may be anything, is of this type as it stands."""
    try:
        adapter(form).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def parse(form: Any, content: str | bytes, what: str) -> Any:
    """A value of this type from its JSON; an error if it has other fields, or impossible values in them."""
    try:
        return adapter(form).validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        raise FederationError(f"{what} cannot be read [FE099]")
    if not first["loc"] or first["type"] in _FORM_ERRORS:
        raise FederationError(f"{what} has not the fields that it must have: is it of another release? [FE101]")
    raise FederationError(f"{what} has an impossible {first['loc'][0]} [FE102]")


@dataclass(frozen=True)
class Statement:
    """What one member says to the others, signed."""

    kind: ClassVar[str]
    signer_field: ClassVar[str]
    """Which field names the member who says it."""
    largest: ClassVar[int] = 1 << 14
    unsigned: ClassVar[frozenset[str]] = frozenset()
    """Fields that follow from the signed bytes, and so are not among them."""
    __pydantic_config__ = ConfigDict(extra="forbid")

    @property
    def signer(self) -> str:
        """The member who says it."""
        return str(getattr(self, self.signer_field))

    def content(self) -> bytes:
        """The body; what has its default is left out."""
        form: Any = type(self)
        return canonical(adapter(form).dump_python(self, exclude=set(self.unsigned), exclude_defaults=True))

    def pack(self, identity: Identity) -> bytes:
        """The statement, signed by whoever says it."""
        if identity.name != self.signer:
            raise FederationError(f"{identity.name} cannot sign for {self.signer} [FE084]")
        return seal(self.kind, self.content(), identity)

    @classmethod
    def unpack(cls, raw: bytes, members: Members) -> Self:
        """A statement as one of these members has signed it; anything else is an error."""
        name, content = _verified(cls.kind, raw, members, cls.largest)
        what = f"this {cls.kind} of {name}"
        found: Self = parse(cls, content, what)
        if found.signer != name:
            raise FederationError(f"{what} speaks for {harmless(found.signer, 63)} [FE000]")
        if found.content() != content:
            raise FederationError(f"{what} is not written as all write it [FE100]")
        return found


def canonical(value: Any) -> bytes:
    """JSON that is written in one way only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def seal(kind: str, content: bytes | Mapping[str, Any], identity: Identity) -> bytes:
    """A statement of this kind, signed."""
    content = content if isinstance(content, bytes) else canonical(content)
    signature = b64encode(identity.sign(_to_sign(kind, identity.name, content))).decode()
    return f"{_MAGIC} {kind} {identity.name} {signature}\n".encode() + content


def _verified(kind: str, raw: bytes, members: Members, largest: int) -> tuple[str, bytes]:
    """Who signed a statement, and its body; an error if it is of another kind or signer."""
    if len(raw) > largest:
        raise FederationError(f"this {kind} has {len(raw):,} bytes, and at most {largest:,} are read [FE094]")
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
    return name, content


def _to_sign(kind: str, name: str, content: bytes) -> bytes:
    return f"{_MAGIC} {kind} {name}\n".encode() + content
