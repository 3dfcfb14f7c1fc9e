"""The tables of a ledger's file, in every version that is read, and the questions that are asked of them."""

SCHEMA_VERSION = 3
UNCHAINED = 1
WITHOUT_KEYS = 2
_ENTRIES = """
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, study TEXT NOT NULL, digest TEXT NOT NULL, created TEXT NOT NULL,
    events TEXT NOT NULL, trust TEXT NOT NULL);
CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, entry INTEGER NOT NULL REFERENCES entries (id), at TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'sent', 'committed', 'released')),
    UNIQUE (entry, state));
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER entries_last BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER changes_stay BEFORE UPDATE ON changes BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER changes_last BEFORE DELETE ON changes BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""
_CHAIN = """
CREATE TABLE chain (change INTEGER PRIMARY KEY REFERENCES changes (id), hash TEXT NOT NULL);
CREATE TRIGGER chain_stay BEFORE UPDATE ON chain BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER chain_last BEFORE DELETE ON chain BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""
_PEOPLE = """
CREATE TABLE people (entry INTEGER PRIMARY KEY REFERENCES entries (id), known TEXT NOT NULL);
CREATE TRIGGER people_stay BEFORE UPDATE ON people BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER people_last BEFORE DELETE ON people BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""
_SUMS = """
CREATE TABLE sums (
    first INTEGER NOT NULL, last INTEGER NOT NULL, content TEXT NOT NULL, seal TEXT NOT NULL,
    PRIMARY KEY (first, last));
"""
BY_VERSION = {
    UNCHAINED: _ENTRIES,
    WITHOUT_KEYS: _ENTRIES + _CHAIN,
    SCHEMA_VERSION: _ENTRIES + _CHAIN + _PEOPLE + _SUMS,
}
"""The whole schema of each version of the file."""
_HISTORY = (
    "SELECT c.id, c.entry, c.state, c.at, {hash}, e.study, e.digest, e.created, e.events, e.trust, {people} "
    "FROM changes c LEFT JOIN entries e ON e.id = c.entry {rest} {which} ORDER BY c.id"
)
_HASHES = "LEFT JOIN chain h ON h.change = c.id"
_KEYS = "LEFT JOIN people p ON p.entry = c.entry"
HISTORIES = {
    UNCHAINED: _HISTORY.format(hash="NULL", people="NULL", rest="", which=""),
    WITHOUT_KEYS: _HISTORY.format(hash="h.hash", people="NULL", rest=_HASHES, which=""),
    SCHEMA_VERSION: _HISTORY.format(hash="h.hash", people="p.known", rest=f"{_HASHES} {_KEYS}", which=""),
}
ONE = _HISTORY.format(hash="NULL", people="p.known", rest=_KEYS, which="WHERE c.id = ?")
LATER = _HISTORY.format(hash="h.hash", people="p.known", rest=f"{_HASHES} {_KEYS}", which="WHERE c.id > ?")
SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
