"""The process that reads a party's table for its own eyes, or counts its rows for a study that waits for an answer.

It loads little, and has limits of memory and time: whoever wrote the schema or the study is not trusted with ours.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

from colonnade.errors import ColonnadeError
from colonnade.tables import Schema
from colonnade.tables.cell_parsing import TextFormat
from colonnade.tables.profiling import profile_table
from colonnade.tables.sources.databases import data_from_plain

SECONDS = 300
"""A table that takes longer is not drawn."""
MEMORY = 4 << 30


def _main(asked: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    given = json.loads(asked)
    try:
        said = _forecast(given) if "study" in given else _survey(given)
    except ColonnadeError as error:
        said = {"error": str(error)}
    json.dump(said, sys.stdout)


def _survey(given: dict[str, Any]) -> dict[str, Any]:
    schema = Schema.load(given["schema"], drafts=True).with_text_format(TextFormat(**given["written"]))
    return profile_table(data_from_plain(given["data"]), schema, given["also"]).to_dict()


def _forecast(given: dict[str, str]) -> dict[str, Any]:
    from colonnade.federation.checks import private_forecast
    from colonnade.study import PartyConfig, Study

    return private_forecast(Study.load(Path(given["study"])), PartyConfig.load(Path(given["party"])))


if __name__ == "__main__":
    _main(sys.stdin.read())  # and not as an argument, which other users of the machine can list
