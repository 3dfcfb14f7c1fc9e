"""What members sign about keys, and the hub passes on: another certificate, a key that is no good, and lists of those.

A hub may hold any of it back, and makes none of it: a new certificate is signed by the key that is pinned, a key is
called back, with all its certificates, by itself or on a list that more than half of the signers of FEDERATION.toml
have signed alike. What calls keys back is read first, and no renewal brings another key. Lists have the number of the
hour in which they were made; one that is older than what we have, or not newer, changes nothing.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field

from colonnade.errors import FederationError, IdentityError
from colonnade.federation.invitations import Pem
from colonnade.federation.members import MOST_MEMBERS, FederationMembers, MemberIdentity, RevokedKeys
from colonnade.federation.statements import SKEW, MemberName, Moment, SignedStatement
from colonnade.models.serialization import replace_private

_HOUR = 3600
Fingerprint = Annotated[str, Field(pattern="^sha256:[0-9a-f]{64}$")]


@dataclass(frozen=True)
class Renewal(SignedStatement):
    """A member says which certificate takes the place of the one with which it signs this."""

    member: MemberName
    certificate: Pem
    made: Moment

    kind, signer_field = "renewal", "member"

    def check(self, members: FederationMembers) -> None:
        """Raise an error if the certificate is of another name or member, or older than the one that is pinned."""
        members.renewed(self.certificate, self.member)
        if MemberIdentity(self.member, "party", self.certificate).since < MemberIdentity.of(members, self.member).since:
            raise FederationError(f"the certificate of {self.member} is older than the one that it had [FE786]")


@dataclass(frozen=True)
class Revocation(SignedStatement):
    """A member calls the key back with which it signs this: that of now or an earlier one, also where that expired."""

    member: MemberName
    key: Fingerprint
    made: Moment

    kind, signer_field, dated = "revocation", "member", False

    def check(self, members: FederationMembers) -> None:
        """Raise an error if it is about another key."""
        if self.key != members.certificates[self.member].key_fingerprint:
            raise FederationError(
                f"this revocation of {self.member} names another key than the one that signed [FE806]"
            )


@dataclass(frozen=True)
class RevocationList(SignedStatement):
    """All keys that are no good, as one signer knows them in an hour, which is the number of the list."""

    by: MemberName
    number: Annotated[int, Field(ge=0, lt=1 << 40)]
    revoked: Annotated[tuple[Fingerprint, ...], Field(max_length=MOST_MEMBERS)]

    kind, signer_field, largest = "revocations", "by", 1 << 17


NOTICES: tuple[type[SignedStatement], ...] = (Renewal, Revocation, RevocationList)


def read_notice(raw: bytes, members: FederationMembers) -> SignedStatement:
    """A notice that one of these members has signed."""
    kind = next((each for each in NOTICES if raw.split(b" ", 2)[1:2] == [each.kind.encode()]), Renewal)
    return kind.unpack_earlier(raw, members)[0] if kind is Revocation else kind.unpack(raw, members)


class NoticeBoard:
    """The notices that a hub passes on: the last of each kind of each member."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, raw: bytes, caller: str, members: FederationMembers) -> None:
        """Keep a notice of whoever asks, and go by it here, too."""
        said = read_notice(raw, members)
        if said.signer != caller and not isinstance(said, Revocation):  # anybody may hand on what a key says of itself
            raise FederationError(f"{caller} cannot give a notice of {said.signer} [FE781]")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = f".{said.key[-32:]}" if isinstance(said, Revocation) else ""  # the next one leaves that of the first
        replace_private(self._folder / f"{said.kind}.{said.signer}{key}", raw)
        take_notices(members.path, self.all(), datetime.now(UTC))

    def all(self) -> list[bytes]:
        """All that are kept."""
        return [path.read_bytes() for path in sorted(self._folder.glob("*.*"))]


def take_notices(federation: Path, notices: Iterable[bytes], now: datetime) -> None:
    """Go by what was signed: note keys that were called back, then pin certificates that others had renewed."""
    with FederationMembers.changing(federation) as members:
        lists: dict[tuple[int, frozenset[str]], dict[str, frozenset[str]]] = defaultdict(dict)
        current = {each.key_fingerprint for each in members.certificates.values()}
        known = found = members.revoked
        latest = (now + SKEW).timestamp() / _HOUR
        renewals: list[Renewal] = []
        for raw in notices:
            with suppress(FederationError, IdentityError):
                said = read_notice(raw, members)
                if isinstance(said, Renewal):
                    renewals.append(said)
                elif isinstance(said, Revocation):
                    found = replace(found, revoked=found.revoked | {said.key})
                elif isinstance(said, RevocationList) and known.number < said.number <= latest:
                    # Of a key that another has replaced not every signer may know, so it keeps no list from counting.
                    revoked = frozenset(said.revoked)
                    lists[said.number, revoked & current][said.by] = revoked
        part = members.revocations
        for (number, _), signed in sorted(lists.items(), key=lambda each: each[0][0]):
            by = [] if part is None else [name for name in part.signers if name in signed]
            counted = [signed[name] for name in by if not found.cover(members.certificates[name])]
            if part is not None and len(counted) >= part.needed:
                said_by = Counter(key for each in counted for key in each)
                enough = {key for key, signers in said_by.items() if signers >= part.needed}
                found = replace(found, number=number, revoked=found.revoked | enough)
        if found != known:
            found.save(federation.parent)
            members = FederationMembers.load(federation)
            os.utime(federation)  # whoever goes by the file reads it again
        for said in renewals:
            with suppress(FederationError, IdentityError):
                if members.pins.get(said.member, said.certificate.fingerprint) != said.certificate.fingerprint:
                    said.check(members)
                    members = members.renewed(said.certificate, said.member)
                    members.put(said.member)


def own_list(members: FederationMembers, name: str, now: datetime) -> RevocationList | None:
    """What a signer signs in this hour; nothing where it is none, or where the hour has its list with all we know."""
    known, part = RevokedKeys.load(members.path.parent), members.revocations
    number = int(now.timestamp()) // _HOUR
    if part is None or name not in part.signers or (known.number >= number and known.wanted <= known.revoked):
        return None
    return RevocationList(name, number, tuple(sorted(known.revoked | known.wanted)))
