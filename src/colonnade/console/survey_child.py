"""The process that reads a party's table for its own eyes; it loads little, and has limits of memory and time."""

from __future__ import annotations

import json
import resource
import sys

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
        schema = Schema.load(given["schema"], drafts=True).with_text_format(TextFormat(**given["written"]))
        said = profile_table(data_from_plain(given["data"]), schema, given["also"]).to_dict()
    except ColonnadeError as error:
        said = {"error": str(error)}
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    _main(sys.stdin.read())  # and not as an argument, which other users of the machine can list
