"""Who may see and do what in the console: one-time links, sessions, roles, and headers of a trusted proxy.

Tokens are kept as hashes in a file that its owner alone can read, so the command line can make a link for an agent
that runs, and a restart signs nobody out.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from colonnade.disk import writing
from colonnade.federation.store_file import StoreFile
from colonnade.randomness import new_key
from colonnade.study.party_file import ConsoleRole

LINK_SECONDS = 600
"""A link that was not used is worth nothing after ten minutes."""
SESSION_SECONDS = 12 * 3600
IDLE_SECONDS = 2 * 3600
MOST_SESSIONS = 64
"""Sessions at one time; who signs in beyond that ends the one that was used least recently."""
_USED_SECONDS = 60  # how exactly the last use is known, so that not every request writes
_TOKEN_BYTES = 16
_SECRET = "access.key"  # noqa: S105 - the name of a file


class AccessFile(StoreFile):
    """Links and sessions, by the hashes of their tokens."""

    name, application_id = "access.db", 0x436F4163
    private_folder = True
    schema = """
CREATE TABLE links (hash TEXT PRIMARY KEY, person TEXT NOT NULL, role TEXT NOT NULL, ends REAL NOT NULL) STRICT;
CREATE TABLE sessions (
    hash TEXT PRIMARY KEY, person TEXT NOT NULL, role TEXT NOT NULL, begun REAL NOT NULL, used REAL NOT NULL
) STRICT;
"""


@dataclass(frozen=True)
class ConsoleSession:
    """A person who is signed in, in one browser."""

    person: str
    role: ConsoleRole
    key: str
    """A name of the session that is no secret: nobody can sign in with it."""
    csrf: str
    """What every form of this session carries, and no other site can know."""
    at_proxy: bool = False
    """Whether it was begun at a proxy, and ends there."""

    @property
    def may_decide(self) -> bool:
        """Whether this person may do more than look."""
        return self.role == "approver"


@dataclass(frozen=True)
class TrustedHeader:
    """A header in which a proxy says who signed in there, believed from these addresses, and with its secret alone."""

    name: str
    sources: tuple[str, ...]

    def __post_init__(self) -> None:
        for source in self.sources:
            ipaddress.ip_network(source)

    def believes(self, address: str) -> bool:
        """Whether what comes from this address is believed."""
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in ipaddress.ip_network(source) for source in self.sources)


@dataclass
class AccessControl:
    """The people of one console, their links and their sessions."""

    folder: Path
    hosts: tuple[str, ...]
    """The names, with the port, under which a browser may ask for this console."""
    people: Callable[[], Mapping[str, ConsoleRole]] = dict
    """Who may sign in through the proxy now, and as what; links carry their role with them."""
    header: TrustedHeader | None = None
    secure: bool = False
    """Whether browsers reach the console over TLS, at a proxy."""
    label: str = ""
    """What tells the cookie from those of other consoles on this machine: browsers send cookies to every port."""
    clock: Callable[[], float] = time.time
    secret: str = ""
    """What the proxy shows with every request, so that no other program of its machine passes for it."""
    may_enter: Callable[[str], bool] = lambda person: True
    """Whether a person may be here at all now; the sessions of one who may not end."""

    def __post_init__(self) -> None:
        self._file = AccessFile(self.folder)

    @property
    def cookie(self) -> str:
        """The name of the cookie; the prefix has browsers check that it is secure and of this host alone."""
        return f"{'__Host-' if self.secure else ''}colonnade{self.label}"

    def link(self, person: str, role: ConsoleRole) -> str:
        """A token that signs this person in once, within ten minutes."""
        token = new_key()[:_TOKEN_BYTES].hex()
        with self._file.writing() as store:
            store.execute("delete from links where ends < ?", (self.clock(),))
            store.execute(
                "insert into links values (?, ?, ?, ?)", (_hash(token), person, role, self.clock() + LINK_SECONDS)
            )
        return token

    def sign_in(self, token: str, before: str | None = None) -> tuple[str, ConsoleSession] | None:
        """A new session and the token of its cookie for a good link; the session before it ends."""
        with self._file.writing() as store:
            row = store.execute(
                "delete from links where hash = ? returning person, role, ends", (_hash(token),)
            ).fetchone()
            if row is None or row[2] < self.clock() or not self.may_enter(row[0]):
                return None
            if before:
                store.execute("delete from sessions where hash = ?", (_hash(before),))
            fresh = new_key()[:_TOKEN_BYTES].hex()
            now = self.clock()
            store.execute("insert into sessions values (?, ?, ?, ?, ?)", (_hash(fresh), row[0], row[1], now, now))
            store.execute(
                "delete from sessions where hash not in (select hash from sessions order by used desc limit ?)",
                (MOST_SESSIONS,),
            )
        return fresh, _session(fresh, row[0], row[1])

    def session(self, token: str) -> ConsoleSession | None:
        """Whose session a cookie belongs to, if it is still good, and the person may still be here."""
        row = self._file.row(
            "select person, role, used from sessions where hash = ? and begun > ? and used > ?",
            (_hash(token), *self._good()),
        )
        if row is not None and not self.may_enter(row["person"]):
            self.sign_out_person(row["person"])
            return None
        if row is not None and self.clock() - row["used"] > _USED_SECONDS:
            self._file.change("update sessions set used = ? where hash = ?", (self.clock(), _hash(token)))
        return None if row is None else _session(token, row[0], row[1])

    def is_current(self, session: ConsoleSession) -> bool:
        """Whether a session goes on; asking does not prolong it."""
        if session.at_proxy:
            return self._at_proxy(session.person) == session
        query = "select 1 from sessions where hash = ? and begun > ? and used > ?"
        return self.may_enter(session.person) and self._file.row(query, (session.key, *self._good())) is not None

    def sign_out(self, session: ConsoleSession) -> None:
        """End a session."""
        self._file.change("delete from sessions where hash = ?", (session.key,))

    def sign_out_person(self, person: str) -> None:
        """End every session and every link of one person."""
        with self._file.writing() as store:
            store.execute("delete from links where person = ?", (person,))
            store.execute("delete from sessions where person = ?", (person,))

    def sign_out_strangers(self) -> None:
        """End the sessions and links of everybody who may not be here any more."""
        known = {row["person"] for row in self._file.rows("select person from links union select person from sessions")}
        for person in known:
            if not self.may_enter(person):
                self.sign_out_person(person)

    def sign_out_all(self) -> int:
        """End every session and every link; returns how many people were signed in by links.

        Whoever is signed in at the proxy is let in again by its header; but forms and pages that are open end.
        """
        writing.write_files({self.folder / _SECRET: new_key()}, private=True)
        with self._file.writing() as store:
            store.execute("delete from links")
            return store.execute("delete from sessions").rowcount

    def sessions(self) -> Sequence[tuple[str, str, float, float]]:
        """Who is signed in: name, role, since when, and when last seen."""
        query = "select person, role, begun, used from sessions where begun > ? and used > ? order by used desc"
        return [tuple(row) for row in self._file.rows(query, self._good())]

    def _good(self) -> tuple[float, float]:
        """Before which moments no session that goes on was begun or used."""
        return self.clock() - SESSION_SECONDS, self.clock() - IDLE_SECONDS

    def by_proxy(self, address: str, said: str | None) -> ConsoleSession | None:
        """Who signed in at the proxy, if the header comes from there and the person is known here."""
        if self.header is None or said is None or not self.header.believes(address):
            return None
        return self._at_proxy(said)

    def is_proxy(self, shown: Sequence[str]) -> bool:
        """Whether a request shows the proxy's secret, once; without a secret none does."""
        alike = len(shown) == 1 and hmac.compare_digest(shown[0].encode(), self.secret.encode())
        return alike and self.secret != ""

    def _at_proxy(self, said: str) -> ConsoleSession | None:
        role = self.people().get(said)
        if role is None or not self.may_enter(said):
            return None
        token = hmac.new(self._secret(), said.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
        return _session(token, said, role, at_proxy=True)

    def _secret(self) -> bytes:
        """What tokens of people behind the proxy are made of; drawn once for each folder."""
        path = self.folder / _SECRET
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(new_key())
        except FileExistsError:
            pass
        return path.read_bytes()


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _session(token: str, person: str, role: ConsoleRole, *, at_proxy: bool = False) -> ConsoleSession:
    csrf = hmac.new(token.encode(), b"colonnade console form", hashlib.sha256).hexdigest()
    return ConsoleSession(person, role, _hash(token), csrf, at_proxy)
