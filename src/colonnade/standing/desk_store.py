"""What is in the SQLite file of the hub's desk."""

from __future__ import annotations

from colonnade.errors import FederationError, StorageError
from colonnade.standing.standing_file import StandingFile

_SCHEMA = """
CREATE TABLE proposals (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, digest TEXT NOT NULL, analyst TEXT NOT NULL,
    purpose TEXT NOT NULL, parties TEXT NOT NULL, made TEXT NOT NULL, deadline TEXT NOT NULL, received TEXT NOT NULL,
    bytes INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'open', attempt INTEGER NOT NULL DEFAULT 0, queued INTEGER,
    waits INTEGER NOT NULL DEFAULT 0,    withdrawn TEXT, ended TEXT, serial INTEGER NOT NULL
) STRICT;
CREATE INDEX by_serial ON proposals (serial);
CREATE INDEX by_state ON proposals (state);
CREATE TABLE packed (proposal TEXT PRIMARY KEY REFERENCES proposals (id), raw BLOB NOT NULL) STRICT;
CREATE TABLE answers (
    proposal TEXT NOT NULL REFERENCES proposals (id), party TEXT NOT NULL, yes INTEGER NOT NULL, why TEXT NOT NULL,
    retries INTEGER NOT NULL, received TEXT NOT NULL, raw BLOB NOT NULL, PRIMARY KEY (proposal, party)
) STRICT;
CREATE TABLE attempts (
    proposal TEXT NOT NULL REFERENCES proposals (id), number INTEGER NOT NULL, started TEXT NOT NULL,
    first_report TEXT, PRIMARY KEY (proposal, number)
) STRICT;
CREATE TABLE outcomes (
    proposal TEXT NOT NULL REFERENCES proposals (id), attempt INTEGER NOT NULL, participant TEXT NOT NULL,
    ended TEXT NOT NULL, received TEXT NOT NULL, raw BLOB NOT NULL, PRIMARY KEY (proposal, attempt, participant)
) STRICT;
CREATE TABLE withdrawals (
    proposal TEXT NOT NULL REFERENCES proposals (id), by TEXT NOT NULL, received TEXT NOT NULL, raw BLOB NOT NULL,
    PRIMARY KEY (proposal, by)
) STRICT;
CREATE TABLE invitations (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, certificate TEXT NOT NULL, made TEXT NOT NULL,
    expires TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'open', enrolled TEXT
) STRICT;
CREATE TABLE serials (last INTEGER NOT NULL) STRICT;
INSERT INTO serials VALUES (0);
"""
_LATER = """
CREATE TABLE IF NOT EXISTS draws (
    invitation TEXT PRIMARY KEY REFERENCES invitations (id), sealed TEXT NOT NULL, ours TEXT NOT NULL, theirs TEXT
) STRICT;
"""
"""What both ends drew for the six words: a newcomer's draw is sealed until it has ours."""


class DeskFile(StandingFile):
    """Proposals with what was said about them, and invitations."""

    name, schema, application_id = "desk.db", _SCHEMA, 0x436F4465
    later = _LATER
    unusable, foreign = StorageError, FederationError
