"""Ways to damage a file: in its bytes, in the values of its JSON or TOML, and in the cells of a ledger."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import random
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from colonnade.privacy.ledger.chain import GENESIS, hashed
from colonnade.privacy.ledger.file import changes

Damage = Callable[[random.Random, bytes], bytes]

NOT_TEXT = (b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\x00", b"\xef\xbb\xbf", b"\x1b[2J", b"\r", b"\xf4\x90\x80\x80")
NUMBERS = (b"1e999", b"-1e999", b"NaN", b"inf", b"1" + b"0" * 400, b"1" + b"0" * 5000, b"-1", b"0", b"1e-320", b"0x10",
           b"0x" + b"f" * 300, b"0x" + b"f" * 5000, b"0o" + b"7" * 5000, b"0b" + b"1" * 20_000)  # fmt: skip
DEEP = 20_000


def nested(depth: int) -> list[Any]:
    """Lists in lists."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def flip(chance: random.Random, content: bytes) -> bytes:
    found = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8))):
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def cut(chance: random.Random, content: bytes) -> bytes:
    return content[: chance.randrange(len(content))]


def _piece(chance: random.Random, content: bytes) -> tuple[int, int]:
    start = chance.randrange(len(content))
    return start, min(len(content), start + chance.choice((1, 2, 7, 40, 300)))


def drop(chance: random.Random, content: bytes) -> bytes:
    start, end = _piece(chance, content)
    return content[:start] + content[end:]


def double(chance: random.Random, content: bytes) -> bytes:
    start, end = _piece(chance, content)
    return content[:end] + content[start:]


def intrude(chance: random.Random, content: bytes) -> bytes:
    start = chance.choice((0, chance.randrange(len(content)), len(content)))
    what = chance.choice((*NOT_TEXT, chance.randbytes(9), b"A" * 3000, b"[" * DEEP, b'{"a":' * DEEP))
    return content[:start] + what + content[start:]


def overwrite(chance: random.Random, content: bytes) -> bytes:
    start, end = _piece(chance, content)
    return content[:start] + chance.randbytes(end - start) + content[end:]


def renumber(chance: random.Random, content: bytes) -> bytes:
    found = list(re.finditer(rb"-?\d+(\.\d+)?(e-?\d+)?", content))
    if not found:
        return flip(chance, content)
    chosen = chance.choice(found)
    return content[: chosen.start()] + chance.choice(NUMBERS) + content[chosen.end() :]


ANY: tuple[Damage, ...] = (flip, cut, drop, double, intrude, overwrite, renumber)

_ODD: tuple[Callable[[], Any], ...] = (
    lambda: None, lambda: True, lambda: False, lambda: 0, lambda: -1, lambda: 2, lambda: 10**30, lambda: 10**400,
    lambda: -(10**400), lambda: 1e308, lambda: 1e-320, lambda: 0.5, lambda: "", lambda: "1e999", lambda: "1/0",
    lambda: "1e99999999", lambda: "9" * 400, lambda: "9" * 9000, lambda: "x" * 50_000, lambda: "a\u001b[2Jb\u0000",
    lambda: "\ud800", lambda: [], lambda: {}, lambda: [[]], lambda: [None], lambda: {"a": 1}, lambda: nested(500),
    lambda: nested(50), lambda: [1, "a", None], lambda: ["analyst"], lambda: 3,
)  # fmt: skip
_LITERALS = ("NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 5000, "[" * DEEP + "]" * DEEP)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside: list[tuple[Any, Any]] = []
    if len(path) > 20:
        return [path]
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value[:50]))
    return [path, *(place for key, each in inside for place in _places(each, (*path, key)))]


def disorder(chance: random.Random, value: Any) -> Any:
    """A copy of plain values with one or two changes; one may stand for a literal that is put in later."""
    found = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 2))):
        path = chance.choice([place for place in _places(found) if place] or [()])
        if not path:
            return chance.choice(_ODD)()
        holder = found
        for key in path[:-1]:
            holder = holder[key]
        old = holder[path[-1]]
        way = chance.randrange(8)
        if way == 0:
            del holder[path[-1]]
        elif way == 1 and isinstance(holder, list):
            holder.insert(path[-1], copy.deepcopy(old))
        elif way == 1:
            holder[chance.choice(("strange", "", "kind", "\u0000"))] = copy.deepcopy(old)
        elif way == 2 and isinstance(old, int | float) and not isinstance(old, bool):
            holder[path[-1]] = chance.choice((-old, old * 10**9, old + 1, str(old), [old]))
        elif way == 2:
            other = chance.choice([place for place in _places(found) if place])
            source = found
            for key in other:
                source = source[key]
            holder[path[-1]] = copy.deepcopy(source)
        elif way == 3:
            holder[path[-1]] = f"LITERAL {chance.randrange(len(_LITERALS))}"
        else:
            holder[path[-1]] = chance.choice(_ODD)()
    return found


def _written(value: Any) -> bytes:
    text = json.dumps(value)
    return re.sub(r'"LITERAL (\d+)"', lambda found: _LITERALS[int(found[1])], text).encode()


def json_values(chance: random.Random, content: bytes) -> bytes:
    return _written(disorder(chance, json.loads(content)))


_TOML = (
    "true", "0", "-1", "inf", "nan", "-inf", "1e308", "1" + "0" * 400, "1" + "0" * 5000, '""', '"x"', "[]", "{}",
    "[[[]]]", "1979-05-27", "07:32:00", '"\\u0000"', '"\\u001b[2J"', '["a", "a"]', "{a = 1, b = {c = 2}}",
    '"' + "x" * 50_000 + '"', "[" * DEEP + "]" * DEEP, "[" * 200 + "]" * 200, '"/dev/zero"', '"."', '"../.."', "0.5",
    "{x = " * 300 + "1" + "}" * 300, "1_000", "9" * 25, "1e-320", '["analyst"]',
    "0x" + "f" * 16, "0x" + "f" * 300, "0x" + "f" * 5000, "[0o" + "7" * 5000 + "]", "0b" + "1" * 20_000,
)  # fmt: skip


def toml_values(chance: random.Random, content: bytes) -> bytes:
    lines = content.decode().splitlines()
    places = [place for place, line in enumerate(lines) if "=" in line and not line.startswith("#")]
    place = chance.choice(places)
    name, _, value = lines[place].partition("=")
    way = chance.randrange(8)
    if way == 0:
        lines[place] = f"{'.'.join('a' * chance.choice((3, 40, 30_000)))} = 1"
    elif way == 1:
        other = lines[chance.choice(places)]
        lines[place] = f"{name}={other.partition('=')[2]}"
    elif way == 2:
        del lines[place]
    elif way == 3:
        strange = chance.choice(("strange", "_", '""', "x" * 30_000))
        lines.insert(place, f"{strange} ={value}")
    else:
        lines[place] = f"{name}= {chance.choice(_TOML)}"
    return ("\n".join(lines) + "\n").encode()


JSON = (*ANY, *[json_values] * 14)
TOML = (*ANY, *[toml_values] * 14)

_CELLS = ("study", "digest", "created", "events", "trust")


def ledger_cells(chance: random.Random, path: Path) -> None:
    """Change one cell of an entry; mostly the chain is then made to fit, as somebody who knows how could do."""
    _in_ledger(chance, path, _change_cell)


def people_and_sums(chance: random.Random, path: Path) -> None:
    """Change what a ledger says of who took part, or a sum; mostly chain and seals are then made to fit."""
    _in_ledger(chance, path, chance.choice((_change_people, _change_sum)))


def _in_ledger(chance: random.Random, path: Path, change: Callable[[random.Random, sqlite3.Connection], None]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute("PRAGMA ignore_check_constraints = ON")
        guards = base.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            base.execute(f"DROP TRIGGER {name}")
        change(chance, base)
        if chance.random() < 0.7:
            _chain_anew(base)
        for _, text in guards:
            base.execute(text)


def _change_cell(chance: random.Random, base: sqlite3.Connection) -> None:
    entry = chance.choice([row[0] for row in base.execute("SELECT id FROM entries")])
    cell = chance.choice((*_CELLS, "events", "events", "trust"))
    way = chance.randrange(6)
    if way == 0:
        base.execute(f"UPDATE entries SET {cell} = CAST(? AS TEXT) WHERE id = ?", (b"\xff\xfe{", entry))  # noqa: S608
    elif way == 1:
        values = (b"\x00\xff", 7, 2.5, "", "\x1b[2J", "[" * DEEP, "1" * 6000, "9999-12-31T23:59:59-23:59", "0001-01-01")
        base.execute(f"UPDATE entries SET {cell} = ? WHERE id = ?", (chance.choice(values), entry))  # noqa: S608
    elif way == 2:
        column, value = chance.choice(
            (("state", b"sent"), ("at", 5), ("at", b"\xff"), ("entry", "x"), ("state", "gone"))
        )
        base.execute(f"UPDATE OR IGNORE changes SET {column} = ? WHERE entry = ?", (value, entry))  # noqa: S608
    else:
        cell = chance.choice(("events", "events", "trust"))
        (held,) = base.execute(f"SELECT {cell} FROM entries WHERE id = ?", (entry,)).fetchone()  # noqa: S608
        text = _written(disorder(chance, json.loads(held))).decode()
        base.execute(f"UPDATE entries SET {cell} = ? WHERE id = ?", (text, entry))  # noqa: S608


def _change_people(chance: random.Random, base: sqlite3.Connection) -> None:
    entry, held = chance.choice(base.execute("SELECT entry, known FROM people").fetchall())
    odd = (b"\xff", 7, 2.5, "", "[" * DEEP, "1" * 6000, '"x"', "null", "{}")
    text = _written(disorder(chance, json.loads(held))).decode()
    known = chance.choice(odd) if chance.random() < 0.3 else text
    base.execute("UPDATE people SET known = ? WHERE entry = ?", (known, entry))


def _change_sum(chance: random.Random, base: sqlite3.Connection) -> None:
    first, last, held, _ = chance.choice(base.execute("SELECT * FROM sums").fetchall())
    value = disorder(chance, json.loads(held))
    content = _written(value).decode()
    change = value.get("change") if isinstance(value, dict) else None
    seal = "SELECT h.hash FROM chain h JOIN changes c ON c.id = h.change WHERE h.change = ? AND c.entry = ?"
    number = change if isinstance(change, int) and abs(change) < 1 << 60 else 0
    found = base.execute(seal, (number, last)).fetchone()
    text = hashlib.sha256(f"{first} {last} {found} {content}".encode()).hexdigest()
    base.execute("UPDATE sums SET content = ?, seal = ? WHERE first = ? AND last = ?", (content, text, first, last))


def _chain_anew(base: sqlite3.Connection) -> None:
    try:
        previous, links = GENESIS, []
        for change in changes(base):
            previous = hashed(change.line(previous))
            links.append((previous, change.number))
    except Exception:
        return  # what cannot be hashed stays as it is
    base.executemany("UPDATE chain SET hash = ? WHERE change = ?", links)


def in_pem(chance: random.Random, content: bytes) -> bytes:
    """Damage what PEM text stands for, not the text: the structure within is then read."""
    lines = content.decode().splitlines()
    inside = base64.b64decode("".join(lines[1:-1]))
    damaged = chance.choice((flip, cut, drop, double, overwrite))(chance, inside)
    return "\n".join([lines[0], base64.b64encode(damaged).decode(), lines[-1], ""]).encode()


PEM = (*ANY, *[in_pem] * 14)
