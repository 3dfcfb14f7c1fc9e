"""How somebody becomes a member: a short-lived invitation, a key of one's own, six words compared at both ends.

The invitation is a text with the hub's address and certificate, and the seed of a key that opens one door: whoever has
it may show the hub one certificate, once, and prove that it holds the key. A person at the hub then compares six words
with the one who joined, and admits it; whoever else got hold of the text has other words.
"""

from __future__ import annotations

import sqlite3
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainSerializer, PlainValidator

from colonnade.disk import reading
from colonnade.errors import FederationError, IdentityError
from colonnade.federation.members import INVITED, FederationMembers, six_words
from colonnade.federation.proposal_store import HubFile
from colonnade.federation.statements import (
    Draw,
    MemberName,
    Moment,
    Sha256,
    SignedStatement,
    canonical_json,
    format_moment,
    parse_json,
    type_adapter,
)
from colonnade.protocols.roles import COORDINATOR
from colonnade.randomness import new_key
from colonnade.wire import Certificate, Identity

InvitedRole = Literal["party", "analyst"]
InvitationState = Literal["open", "enrolled", "admitted", "refused"]
LONGEST = timedelta(days=30)
_AFTER_ADMISSION = timedelta(hours=1)
_REFUSE = "UPDATE invitations SET state = 'refused' WHERE name = ? AND state IN ('open', 'enrolled')"
_PREFIX = "colonnade-invitation-"
_LONGEST_TOKEN, _LONGEST_PEM = 1 << 13, 4000


def _parse_certificate(pem: Any) -> Certificate:
    if not isinstance(pem, str) or len(pem) > _LONGEST_PEM:
        raise ValueError("must be a certificate [VA280]")
    try:
        return Certificate.from_pem(pem.encode("ascii", "replace"), "the certificate in this text")
    except IdentityError as error:
        raise ValueError(str(error)) from None


Pem = Annotated[
    Certificate,
    PlainValidator(_parse_certificate),
    PlainSerializer(lambda certificate: certificate.pem.decode("ascii")),
]
"""A certificate, which stands as PEM in texts and statements."""


@dataclass(frozen=True)
class InvitationToken:
    """What is in the text of an invitation."""

    address: Annotated[str, Field(max_length=300)]
    hub: Pem
    id: Draw
    seed: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    name: MemberName
    role: InvitedRole
    expires: Moment
    __pydantic_config__ = ConfigDict(extra="forbid")

    def pack(self) -> str:
        """The text. Whoever has it can try to join, so it is sent to the one who is invited and to nobody else."""
        return _PREFIX + urlsafe_b64encode(
            canonical_json(type_adapter(InvitationToken).dump_python(self))
        ).decode().rstrip("=")

    @classmethod
    def unpack(cls, text: str) -> InvitationToken:
        """Read the text of an invitation."""
        text = "".join(text.split())
        packed = text.removeprefix(_PREFIX)
        try:
            if packed == text or len(text) > _LONGEST_TOKEN:
                raise ValueError
            found: InvitationToken = parse_json(
                InvitationToken, urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), "this invitation"
            )
        except (ValueError, FederationError):
            raise FederationError(
                "this is no invitation: copy the whole text that `colonnade federation invite` printed [FE044]"
            ) from None
        return found

    @property
    def identity(self) -> Identity:
        """The identity that opens the door to enrolment, and no other."""
        return Identity.from_seed(INVITED + self.id, bytes.fromhex(self.seed), self.expires)

    def check_time(self, now: datetime) -> None:
        """Raise an error if it comes too late."""
        if now >= self.expires:
            raise FederationError(
                f"this invitation was good until {self.expires:%Y-%m-%d %H:%M} UTC: ask the hub for a new one [FE045]"
            )

    def sign_enrolment(self, identity: Identity, draw: str) -> bytes:
        """Our certificate's request to be let in with this invitation, signed by its key, with our draw sealed."""
        return Enrolment(identity.name, self.id, self.hub.fingerprint, identity.certificate, seal_draw(draw)).pack(
            identity
        )

    def words(self, member: Certificate, hub_draw: str, draw: str) -> str:
        """What both ends compare: six words of both keys, the invitation with its role, and what both drew."""
        return six_words(self.hub.fingerprint, member.fingerprint, self.id, self.role, hub_draw, draw)


def new_draw() -> str:
    """Sixteen random bytes of one end."""
    return new_key()[:16].hex()


def seal_draw(draw: str) -> str:
    """What the newcomer shows of its draw before it has the hub's: it can change it no more, and nobody can read it."""
    return sha256(b"colonnade draw 1\n" + bytes.fromhex(draw)).hexdigest()


@dataclass(frozen=True)
class Enrolment(SignedStatement):
    """Somebody invited asks to be let in: with which certificate, by which invitation, and a sealed draw."""

    name: MemberName
    invitation: Draw
    hub: Annotated[str, Field(max_length=80)]
    certificate: Pem
    sealed: Sha256

    kind, signer_field = "enrolment", "name"


@dataclass(frozen=True)
class Invitation:
    """An invitation as the hub keeps it: without the seed."""

    id: str
    name: str
    role: InvitedRole
    certificate: Certificate
    expires: datetime
    state: InvitationState
    enrolled: Certificate | None
    draws: tuple[str, str] | None = None
    """Of the hub and of the newcomer, once both are known here."""

    def words(self, hub: Certificate) -> str | None:
        """What both ends compare, once somebody has enrolled with it."""
        if self.enrolled is None or self.draws is None:
            return None
        return six_words(hub.fingerprint, self.enrolled.fingerprint, self.id, self.role, *self.draws)


class Invitations:
    """The invitations in the hub's store."""

    def __init__(self, file: HubFile) -> None:
        self._file, self.folder = file, file.path.parent

    def make(
        self, members: FederationMembers, name: str, role: InvitedRole, lasts: timedelta, now: datetime
    ) -> InvitationToken:
        """A new invitation; earlier ones of that name are void."""
        members.check_new(name)
        if not timedelta(0) < lasts <= LONGEST:
            raise FederationError(f"an invitation lasts more than 0 and at most {LONGEST.days * 24} hours [FE046]")
        hub = members.certificates[COORDINATOR]
        expires = (now + lasts).replace(microsecond=0)
        token = InvitationToken(members.address, hub, new_key()[:16].hex(), new_key().hex(), name, role, expires)
        with self._file.writing() as file:
            file.execute(_REFUSE, (name,))
            file.execute(
                "INSERT INTO invitations (id, name, role, certificate, made, expires) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    token.id,
                    name,
                    role,
                    token.identity.certificate.pem.decode(),
                    format_moment(now),
                    format_moment(expires),
                ),
            )
        return token

    def find(self, name: str) -> Invitation | None:
        """The last invitation of a name."""
        return self._one("SELECT * FROM invitations WHERE name = ? ORDER BY rowid DESC", name)

    def of_caller(self, caller: str) -> Invitation:
        """The invitation with which somebody dials."""
        found = self._one("SELECT * FROM invitations WHERE id = ?", caller.removeprefix(INVITED))
        if found is None:
            raise FederationError("the hub knows nothing of this invitation [FE047]")
        return found

    def open_identities(self, now: datetime) -> dict[str, Certificate]:
        """Who may dial to enrol, or to hear what became of it."""
        rows = self._file.rows(
            "SELECT * FROM invitations WHERE state != 'refused' AND expires > ?", (format_moment(now),)
        )
        return {found.certificate.name: found.certificate for found in map(_read_invitation, rows)}

    def enrol(self, caller: str, raw: bytes, members: FederationMembers, now: datetime) -> str:
        """Take the certificate of an invited one in: once, in time, and only from whoever holds its key.

        Returns the hub's draw, which is made only now: certificate and draw of the other end can no longer be chosen.
        """
        invitation = self.of_caller(caller)
        asked = _verify_enrolment(raw, invitation, members)
        certificate = asked.certificate
        if now >= invitation.expires or invitation.state == "refused":
            raise FederationError("this invitation is no longer good: ask the hub for a new one [FE048]")
        if certificate.name != invitation.name:
            raise FederationError(f"this invitation is for {invitation.name}, not for {certificate.name} [FE049]")
        if invitation.name not in members.roles:
            members.with_member(certificate, invitation.role)  # its key must not be that of another member
        with self._file.writing() as file:
            file.execute(
                "UPDATE invitations SET enrolled = ?, sealed = ?, ours = ? "
                "WHERE id = ? AND state = 'open' AND enrolled IS NULL",
                (certificate.pem.decode(), asked.sealed, new_draw(), invitation.id),
            )
            known = file.execute(
                "SELECT ours FROM invitations WHERE id = ? AND enrolled = ? AND sealed = ?",
                (invitation.id, certificate.pem.decode(), asked.sealed),
            ).fetchone()
        if known is None:
            raise FederationError(
                "this invitation was used before, with another key or draw: tell the hub, because somebody else may "
                "have it, and ask for a new one [FE050]"
            )
        return str(known["ours"])

    def show_draw(self, caller: str, draw: str) -> Invitation:
        """Take in what the newcomer has drawn: what it had sealed, and nothing else."""
        if not self._file.change(
            "UPDATE invitations SET theirs = ?, state = iif(state = 'open', 'enrolled', state) "
            "WHERE id = ? AND sealed = ?",
            (draw, caller.removeprefix(INVITED), seal_draw(draw)),
        ):
            raise FederationError("this is not the draw that was sealed: ask for a new invitation [FE051]")
        return self.of_caller(caller)

    def admit(self, name: str, members: FederationMembers, now: datetime) -> FederationMembers:
        """Make an enrolled one a member; the six words were compared by whoever calls this."""
        invitation = self.find(name)
        if invitation is None or invitation.state != "enrolled" or invitation.enrolled is None:
            what = "has not enrolled yet" if invitation is not None and invitation.state == "open" else "is not invited"
            raise FederationError(
                f"{name} {what}: invite it by `colonnade federation invite`, and wait until it has joined [FE052]"
            )
        if now >= invitation.expires:
            raise FederationError(f"the invitation of {name} is no longer good: invite it again [FE053]")
        with FederationMembers.changing(members.path) as ours:
            ours.check_new(name)
            joined = ours.with_member(invitation.enrolled, invitation.role)
            joined.put(name)
        self._file.change(  # the door stays open for a moment: the new member asks what became of it
            "UPDATE invitations SET state = 'admitted', expires = min(expires, ?) WHERE id = ?",
            (format_moment(now + _AFTER_ADMISSION), invitation.id),
        )
        return joined

    def refuse(self, name: str) -> None:
        """Make the invitation of a name void."""
        self._file.change(_REFUSE, (name,))

    def leave(self, caller: str) -> Invitation:
        """Whoever dials with an invitation says that the words were others: it is good for nothing any more."""
        self.refuse(self.of_caller(caller).name)
        return self.of_caller(caller)

    def _one(self, query: str, value: str) -> Invitation | None:
        row = self._file.row(query, (value,))
        return None if row is None else _read_invitation(row)


def _verify_enrolment(raw: bytes, invitation: Invitation, members: FederationMembers) -> Enrolment:
    """A request to be let in, which the key of its own certificate must have signed, for this hub."""
    try:
        claimed = Certificate.from_pem(_certificate_in(raw), "the certificate that was sent")
        alone = FederationMembers(members.name, members.address, {claimed.name: claimed}, {}, None, members.path)
        asked = Enrolment.unpack(raw, alone)
    except IdentityError as error:
        raise FederationError(str(error)) from None
    if (asked.invitation, asked.hub) != (invitation.id, members.certificates[COORDINATOR].fingerprint):
        raise FederationError("this request was made for another invitation or another hub [FE054]")
    return asked


def _certificate_in(raw: bytes) -> bytes:
    """The certificate that a request names, before anything about it is known to be true."""
    try:
        body = reading.parse_json(raw[: Enrolment.largest].partition(b"\n")[2].decode("ascii"))
        return str(body["certificate"]).encode("ascii")
    except (UnicodeError, KeyError, TypeError, reading.MalformedFile):
        raise FederationError("this is not a signed enrolment [FE055]") from None


def _read_invitation(row: sqlite3.Row) -> Invitation:
    certificate = Certificate.from_pem(row["certificate"].encode())
    enrolled = None if row["enrolled"] is None else Certificate.from_pem(row["enrolled"].encode())
    expires, draws = datetime.fromisoformat(row["expires"]), (row["ours"], row["theirs"])
    known = None if row["theirs"] is None else draws
    return Invitation(row["id"], row["name"], row["role"], certificate, expires, row["state"], enrolled, known)
