"""What standing processes say of themselves: one line an event, as text or as JSON, through the standard ``logging``.

A line has a fixed sentence and named facts: names, states, counts, seconds. No fact is ever a cell, a key of a person,
a private key, a link or a token: :func:`note` refuses names of facts that sound like one, so that nobody writes one
down by mistake. Texts of others are made harmless.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from colonnade.harmless import harmless

Style = Literal["text", "json"]
LEVELS = ("debug", "info", "warning", "error")
_FACTS = "colonnade_facts"
_NEVER = frozenset({"cell", "cells", "id", "ids", "key", "link", "password", "row", "rows", "secret", "token", "value"})
_LONGEST = 300


def note(log: logging.Logger, level: int, what: str, **facts: Any) -> None:
    """Log one event; facts are plain values, and none of what nobody may read."""
    if secret := _NEVER & facts.keys():
        raise ValueError(f"{', '.join(sorted(secret))} must not be logged [VA164]")
    log.log(level, what, extra={_FACTS: facts})


def configure(style: Style = "text", level: str = "info", stream: TextIO | None = None) -> logging.Handler:
    """Send what Colonnade logs to a stream, by default standard error; returns the handler.

    What the server of the console has to complain about goes there too, in the same form.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_AsJson() if style == "json" else _AsText())
    for name, least in (("colonnade", level.upper()), ("uvicorn", "WARNING")):
        found = logging.getLogger(name)
        for former in list(found.handlers):
            found.removeHandler(former)
        found.addHandler(handler)
        found.setLevel(least)
        found.propagate = False
    return handler


class _AsJson(logging.Formatter):
    """One object a line: time, level, where, what, and the facts."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return json.dumps(_told(record) | _facts(record), ensure_ascii=False)


class _AsText(logging.Formatter):
    """``2026-01-31T12:00:00.000+00:00 info agent: study began study=ab12 attempt=1``."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        told, facts = _told(record), _facts(record)
        named = "".join(f" {name}={_quoted(value)}" for name, value in facts.items())
        return f"{told['time']} {told['level']} {told['where']}: {told['what']}{named}"


def _told(record: logging.LogRecord) -> dict[str, Any]:
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    where = record.name.removeprefix("colonnade.")
    told = {
        "time": at,
        "level": record.levelname.lower(),
        "where": where,
        "what": harmless(record.getMessage().strip()),
    }
    # A traceback shows lines of code and no values, and only where an error was not foreseen.
    if record.exc_info and record.exc_info[0] is not None:
        told["error"] = record.exc_info[0].__name__
        last = record.exc_info[2]
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        if last is not None:
            told["at"] = f"{last.tb_frame.f_globals.get('__name__', '?')}:{last.tb_lineno}"
    return told


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    return {name: _plain(value) for name, value in getattr(record, _FACTS, {}).items()}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return harmless(value, _LONGEST)


def _quoted(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) and (not text or " " in text) else text
