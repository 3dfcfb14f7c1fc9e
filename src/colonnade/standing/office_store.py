"""What is in the SQLite file of an agent's office."""

from __future__ import annotations

from colonnade.errors import OfficeError
from colonnade.standing.standing_file import StandingFile

_SCHEMA = """
CREATE TABLE studies (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, digest TEXT NOT NULL, analyst TEXT NOT NULL,
    purpose TEXT NOT NULL, made TEXT NOT NULL, deadline TEXT NOT NULL, received TEXT NOT NULL, state TEXT NOT NULL,
    answers TEXT NOT NULL DEFAULT '{}', attempt INTEGER NOT NULL DEFAULT 0, assessment TEXT, answer_by TEXT, why TEXT,
    ended TEXT, told INTEGER NOT NULL DEFAULT 0, withdrawal INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX by_state ON studies (state);
CREATE TABLE attempts (
    study TEXT NOT NULL REFERENCES studies (id), number INTEGER NOT NULL, room TEXT NOT NULL, state TEXT NOT NULL,
    started TEXT NOT NULL, ended TEXT, message TEXT, told INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (study, number)
) STRICT;
CREATE TABLE clicks (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, who TEXT NOT NULL, role TEXT NOT NULL,
    what TEXT NOT NULL, study TEXT, detail TEXT NOT NULL
) STRICT;
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""


class OfficeFile(StandingFile):
    """What was proposed to a party, what it answered, and who clicked what."""

    name, schema, application_id = "agent.db", _SCHEMA, 0x436F4F66
    unusable = foreign = OfficeError
