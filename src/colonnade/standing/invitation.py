"""How somebody becomes a member: a short-lived invitation, a key of one's own, six words compared at both ends.

The invitation is a text with the hub's address and certificate, and the seed of a key that opens one door: whoever has
it may show the hub one certificate, once, and prove that it holds the key. A person at the hub then compares six words
with the one who joined, and admits it; whoever else got hold of the text has other words.
"""

from __future__ import annotations

import json
import sqlite3
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Literal

from colonnade.disk import reading
from colonnade.errors import FederationError, IdentityError
from colonnade.protocols.roles import COORDINATOR
from colonnade.randomness import new_key
from colonnade.standing.desk_store import DeskFile
from colonnade.standing.federation import INVITED, Members, Role
from colonnade.standing.signed import check_form, is_moment, is_name, is_text, read_moment, seal, unseal, written
from colonnade.standing.words import six_words
from colonnade.wire import Certificate, Identity

State = Literal["open", "enrolled", "admitted", "refused"]
LONGEST = timedelta(days=30)
_AFTER_ADMISSION = timedelta(hours=1)
_PREFIX = "colonnade-invitation-"
_LONGEST_TOKEN = 1 << 13
_MOST_STATEMENT = 1 << 14


@dataclass(frozen=True)
class Token:
    """What is in the text of an invitation."""

    address: str
    hub: Certificate
    id: str
    seed: bytes
    name: str
    role: Role
    expires: datetime

    def pack(self) -> str:
        """The text. Whoever has it can try to join, so it is sent to the one who is invited and to nobody else."""
        body = {
            "address": self.address,
            "hub": self.hub.pem.decode("ascii"),
            "id": self.id,
            "seed": self.seed.hex(),
            "name": self.name,
            "role": self.role,
            "expires": written(self.expires),
        }
        return _PREFIX + urlsafe_b64encode(json.dumps(body, separators=(",", ":")).encode()).decode().rstrip("=")

    @classmethod
    def unpack(cls, text: str) -> Token:
        """Read the text of an invitation."""
        text = "".join(text.split())
        try:
            if not text.startswith(_PREFIX) or len(text) > _LONGEST_TOKEN:
                raise ValueError
            packed = text.removeprefix(_PREFIX)
            body = reading.json_of(urlsafe_b64decode(packed + "=" * (-len(packed) % 4)).decode())
        except (ValueError, Base64Error, reading.Malformed):
            raise FederationError(
                "this is no invitation: copy the whole text that `colonnade federation invite` printed [FE044]"
            ) from None
        form = {"address": is_text(300), "hub": is_text(4000), "id": is_hex(32), "seed": is_hex(64), "name": is_name}
        check_form("this invitation", body, {**form, "role": _is_role, "expires": is_moment})
        hub = Certificate.from_pem(body["hub"].encode("ascii", "replace"), "the hub's certificate in this invitation")
        seed, expires = bytes.fromhex(body["seed"]), read_moment(body["expires"])
        return cls(body["address"], hub, body["id"], seed, body["name"], body["role"], expires)

    @property
    def identity(self) -> Identity:
        """The identity that opens the door to enrolment, and no other."""
        return Identity.from_seed(INVITED + self.id, self.seed, self.expires)

    def check_time(self, now: datetime) -> None:
        """Raise an error if it comes too late."""
        if now >= self.expires:
            raise FederationError(
                f"this invitation was good until {self.expires:%Y-%m-%d %H:%M} UTC: ask the hub for a new one [FE045]"
            )

    def proof(self, identity: Identity, draw: str) -> bytes:
        """Our certificate's request to be let in with this invitation, signed by its key, with our draw sealed."""
        body = {"invitation": self.id, "hub": self.hub.fingerprint, "certificate": identity.certificate.pem.decode()}
        return seal("enrolment", body | {"sealed": sealed(draw)}, identity)

    def words(self, member: Certificate, hub_draw: str, draw: str) -> str:
        """What both ends compare."""
        return words_of(self.hub, member, self.id, hub_draw, draw)


def words_of(hub: Certificate, member: Certificate, invitation: str, hub_draw: str, draw: str) -> str:
    """Six words of the hub's key, the new member's key, the invitation, and what both ends drew for it."""
    return six_words(hub.fingerprint, member.fingerprint, invitation, hub_draw, draw)


def new_draw() -> str:
    """Sixteen random bytes of one end."""
    return new_key()[:16].hex()


def sealed(draw: str) -> str:
    """What the newcomer shows of its draw before it has the hub's: it can change it no more, and nobody can read it."""
    return sha256(b"colonnade draw 1\n" + bytes.fromhex(draw)).hexdigest()


def is_hex(digits: int) -> Any:
    """The test for text of so many hexadecimal digits."""
    return lambda value: isinstance(value, str) and len(value) == digits and set(value) <= set("0123456789abcdef")


def _is_role(value: Any) -> bool:
    return value in ("party", "analyst")


@dataclass(frozen=True)
class Invitation:
    """An invitation as the hub keeps it: without the seed."""

    id: str
    name: str
    role: Role
    certificate: Certificate
    expires: datetime
    state: State
    enrolled: Certificate | None
    draws: tuple[str, str] | None = None
    """Of the hub and of the newcomer, once both are known here."""

    def words(self, hub: Certificate) -> str | None:
        """What both ends compare, once somebody has enrolled with it."""
        if self.enrolled is None or self.draws is None:
            return None
        return words_of(hub, self.enrolled, self.id, *self.draws)

    @property
    def caller(self) -> str:
        """The name under which the invited one dials."""
        return self.certificate.name


class Invitations:
    """The invitations in the hub's desk."""

    def __init__(self, file: DeskFile) -> None:
        self._file = file

    def make(self, members: Members, name: str, role: Role, lasts: timedelta, now: datetime) -> Token:
        """A new invitation; earlier ones of that name are void."""
        members.check_new(name)
        if not timedelta(0) < lasts <= LONGEST:
            raise FederationError(f"an invitation lasts more than 0 and at most {LONGEST.days * 24} hours [FE046]")
        hub = members.certificates[COORDINATOR]
        token = Token(members.address, hub, new_key()[:16].hex(), new_key(), name, role, _whole(now + lasts))
        with self._file.writing() as file:
            file.execute(
                "UPDATE invitations SET state = 'refused' WHERE name = ? AND state IN ('open', 'enrolled')", (name,)
            )
            file.execute(
                "INSERT INTO invitations (id, name, role, certificate, made, expires) VALUES (?, ?, ?, ?, ?, ?)",
                (token.id, name, role, token.identity.certificate.pem.decode(), written(now), written(token.expires)),
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

    def doors(self, now: datetime) -> dict[str, Certificate]:
        """Who may dial to enrol, or to hear what became of it."""
        with self._file.reading() as file:
            rows = file.execute("SELECT * FROM invitations WHERE state != 'refused' AND expires > ?", (written(now),))
            return {found.caller: found.certificate for found in map(_read, rows)}

    def enrol(self, caller: str, raw: bytes, members: Members, now: datetime) -> str:
        """Take the certificate of an invited one in: once, in time, and only from whoever holds its key.

        Returns the hub's draw, which is made only now: certificate and draw of the other end can no longer be chosen.
        """
        invitation = self.of_caller(caller)
        certificate, seal_of_draw = _proven(raw, invitation, members)
        if now >= invitation.expires or invitation.state == "refused":
            raise FederationError("this invitation is no longer good: ask the hub for a new one [FE048]")
        if certificate.name != invitation.name:
            raise FederationError(f"this invitation is for {invitation.name}, not for {certificate.name} [FE049]")
        if invitation.name not in members.roles:
            members.with_member(certificate, invitation.role)  # its key must not be that of another member
        with self._file.writing() as file:
            changed = file.execute(
                "UPDATE invitations SET enrolled = ? WHERE id = ? AND state = 'open' AND enrolled IS NULL",
                (certificate.pem.decode(), invitation.id),
            ).rowcount
            if changed:
                file.execute("INSERT INTO draws VALUES (?, ?, ?, NULL)", (invitation.id, seal_of_draw, new_draw()))
            row = file.execute("SELECT * FROM draws WHERE invitation = ?", (invitation.id,)).fetchone()
        found = self.of_caller(caller)
        known = found.enrolled is not None and found.enrolled.fingerprint == certificate.fingerprint
        if row is None or not known or row["sealed"] != seal_of_draw:
            raise FederationError(
                "this invitation was used before, with another key or draw: tell the hub, because somebody else may "
                "have it, and ask for a new one [FE050]"
            )
        return str(row["ours"])

    def show_draw(self, caller: str, draw: str) -> Invitation:
        """Take in what the newcomer has drawn: what it had sealed, and nothing else."""
        with self._file.writing() as file:
            changed = file.execute(
                "UPDATE draws SET theirs = ? WHERE invitation = ? AND sealed = ?",
                (draw, caller.removeprefix(INVITED), sealed(draw)),
            ).rowcount
            if changed:
                file.execute(
                    "UPDATE invitations SET state = 'enrolled' WHERE id = ? AND state = 'open'",
                    (caller.removeprefix(INVITED),),
                )
        if not changed:
            raise FederationError("this is not the draw that was sealed: ask for a new invitation [FE051]")
        return self.of_caller(caller)

    def admit(self, name: str, members: Members, now: datetime) -> Members:
        """Make an enrolled one a member; the six words were compared by whoever calls this."""
        invitation = self.find(name)
        if invitation is None or invitation.state != "enrolled" or invitation.enrolled is None:
            what = "has not enrolled yet" if invitation is not None and invitation.state == "open" else "is not invited"
            raise FederationError(
                f"{name} {what}: invite it by `colonnade federation invite`, and wait until it has joined [FE052]"
            )
        if now >= invitation.expires:
            raise FederationError(f"the invitation of {name} is no longer good: invite it again [FE053]")
        joined = members.with_member(invitation.enrolled, invitation.role)
        joined.append(name)
        with self._file.writing() as file:  # the door stays open for a moment: the new member asks what became of it
            file.execute(
                "UPDATE invitations SET state = 'admitted', expires = min(expires, ?) WHERE id = ?",
                (written(now + _AFTER_ADMISSION), invitation.id),
            )
        return joined

    def refuse(self, name: str) -> None:
        """Make the invitation of a name void."""
        if (invitation := self.find(name)) is not None and invitation.state in ("open", "enrolled"):
            self._set(invitation.id, "refused")

    def _set(self, id: str, state: State) -> None:
        with self._file.writing() as file:
            file.execute("UPDATE invitations SET state = ? WHERE id = ?", (state, id))

    def _one(self, query: str, value: str) -> Invitation | None:
        with self._file.reading() as file:
            row = file.execute(query, (value,)).fetchone()
            drawn = (
                None
                if row is None
                else file.execute(
                    "SELECT ours, theirs FROM draws WHERE invitation = ? AND theirs IS NOT NULL", (row["id"],)
                ).fetchone()
            )
        if row is None:
            return None
        return replace(_read(row), draws=None if drawn is None else (drawn["ours"], drawn["theirs"]))


def _proven(raw: bytes, invitation: Invitation, members: Members) -> tuple[Certificate, str]:
    """Certificate and sealed draw in a request to be let in, which its own key must have signed, for this hub."""
    form = {"invitation": is_hex(32), "hub": is_text(80), "certificate": is_text(4000), "sealed": is_hex(64)}
    try:
        claimed = Certificate.from_pem(_certificate_in(raw), "the certificate that was sent")
        alone = Members(members.name, members.address, {claimed.name: claimed}, {}, None, members.path)
        _, body = unseal("enrolment", raw, alone, form, _MOST_STATEMENT)
    except IdentityError as error:
        raise FederationError(str(error)) from None
    if (body["invitation"], body["hub"]) != (invitation.id, members.certificates[COORDINATOR].fingerprint):
        raise FederationError("this request was made for another invitation or another hub [FE054]")
    return claimed, body["sealed"]


def _certificate_in(raw: bytes) -> bytes:
    """The certificate that a request names, before anything about it is known to be true."""
    try:
        body = reading.json_of(raw[:_MOST_STATEMENT].partition(b"\n")[2].decode("ascii"))
        return str(body["certificate"]).encode("ascii")
    except (UnicodeError, KeyError, TypeError, reading.Malformed):
        raise FederationError("this is not a signed enrolment [FE055]") from None


def _read(row: sqlite3.Row) -> Invitation:
    certificate = Certificate.from_pem(row["certificate"].encode())
    enrolled = None if row["enrolled"] is None else Certificate.from_pem(row["enrolled"].encode())
    return Invitation(
        row["id"], row["name"], row["role"], certificate, read_moment(row["expires"]), row["state"], enrolled
    )


def _whole(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)
