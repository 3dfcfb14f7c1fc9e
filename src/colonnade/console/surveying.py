"""A party's table read for its own eyes: by a child process with limits, once for each state of file and schema.

What is found stays on this machine and in memory; no page or log of others ever has it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Hashable
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError as NotYet
from dataclasses import dataclass, field
from pathlib import Path

from colonnade.console import survey_child
from colonnade.console.survey_child import MEMORY, SECONDS
from colonnade.errors import DataError
from colonnade.study.policy import PartyConfig
from colonnade.tables import Schema
from colonnade.tables.sources.query import plainly
from colonnade.tables.survey import Survey

_KEPT = 8
_SHOWN = 600.0
Key = tuple[str, Hashable]


@dataclass
class Surveys:
    """Surveys that were made or are being made; one at a time."""

    _known: dict[Key, Future[Survey]] = field(default_factory=dict)
    _hand: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "survey"))

    def ask(self, config: PartyConfig, schema_file: Path, wait: float) -> Survey | None:
        """The survey of the party's file under a schema; ``None`` while it takes longer than ``wait`` seconds."""
        try:
            digest = Schema.load(schema_file, drafts=True).digest
            state = config.source().state()
        except OSError as error:
            raise DataError(f"{schema_file}: the file cannot be read: {error.strerror} [DA047]") from None
        # A database does not say whether its rows are others now; what it answered is shown for a while.
        key = (digest, time.monotonic() // _SHOWN if state is None else state)
        made = self._known.get(key)
        if made is None or (made.done() and made.exception() is not None):
            made = self._known[key] = self._hand.submit(in_child, config, schema_file)
            for old in [*self._known][:-_KEPT]:
                del self._known[old]
        try:
            return made.result(wait)
        except NotYet:
            return None


def in_child(config: PartyConfig, schema_file: Path) -> Survey:
    """Read the table in a process of its own, with limits of memory and time."""
    own = config.content
    also = [*([own.id] if own.id else []), *(part.column for part in own.keys.values())]
    asked = {"data": plainly(config.data), "schema": str(schema_file.resolve()), "also": also}
    command = [sys.executable, "-m", survey_child.__name__]
    given = json.dumps(asked | {"written": own.written.stated}).encode()
    try:
        ended = subprocess.run(command, input=given, capture_output=True, timeout=SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise DataError(f"the table was not read within {SECONDS} seconds, so it is not drawn here [DA048]") from None
    try:
        said = json.loads(ended.stdout)
    except ValueError:
        raise DataError(
            f"the table could not be read within {MEMORY >> 30} GiB of memory, so it is not drawn [DA049]"
        ) from None
    if "error" in said:
        raise DataError(said["error"])
    return Survey.from_dict(said)
