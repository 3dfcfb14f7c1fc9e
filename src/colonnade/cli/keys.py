"""``colonnade keys``: show a party its own keys, as a study compares them; ``colonnade doctor``: check its files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.groups import StudyPath
from colonnade.cli.output import Json, emit, say
from colonnade.cli.participants import PartyPath
from colonnade.cli.show import rules
from colonnade.errors import StudyError
from colonnade.harmless import harmless
from colonnade.models.alignment import keys_of
from colonnade.protocols.align import Aligning
from colonnade.study import PartyConfig, Study
from colonnade.study.doctor import examine, in_counts
from colonnade.study.spec import is_party_file
from colonnade.tables.keys import Keys

_MARKS = {"good": "ok  ", "unsure": "?   ", "bad": "BAD "}


def keys(study: StudyPath, config: PartyPath, json: Json = False) -> None:
    """Show a party its own keys, as a study would compare them."""
    loaded, own = Study.load(study), PartyConfig.load(config)
    own.check_membership(loaded)
    task, found, rows = _read_keys(loaded, own)
    facts = {
        "study": loaded.name,
        "party": own.name,
        "on": [key.name for key in task.keys],
        "rows": rows,
        "keys": len(found),
        "missing": found.missing,
        "repeated": found.repeated,
        "examples": list(found.examples),
    }
    emit(facts) if json else say(_text(loaded, own, task, found, rows))


def doctor(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study; or a PARTY.toml alone.")],
    config: Annotated[Path | None, typer.Argument(metavar="[PARTY.toml]", help="Check as this party.")] = None,
    json: Json = False,
) -> None:
    """Check files, keys, table, ledger, clock and connection."""
    if config is None and is_party_file(study):
        from colonnade.standing.checkup import examine_member

        checks = list(examine_member(study))
    else:
        checks = list(examine(study, config))
    if json:
        emit({"checks": [asdict(check) for check in checks]})
    else:
        say("\n".join(harmless(f"{_MARKS[check.level]} {check.what}: {check.detail}") for check in checks))
    if any(check.level == "bad" for check in checks):
        raise typer.Exit(1)


def _read_keys(study: Study, config: PartyConfig) -> tuple[Aligning, Keys, int]:
    """The alignment of a study, a party's own keys, and the number of its rows."""
    task = study.aligning
    if task is None:
        raise StudyError(
            f"study {study.name!r} has no [align], so it compares ids as they stand: there are no keys [ST036]"
        )
    table = config.table(study.roster.schemas[config.name], task.plan)
    return task, keys_of(table), table.rows


def _text(study: Study, config: PartyConfig, task: Aligning, found: Keys, rows: int) -> str:
    where = config.source().name
    lines = [
        f"{config.name} in {study.name!r}: {rows:,} rows of {where}, {len(found):,} keys; {in_counts(found)}",
        "",
        *(f"  {key.name}: {rules(key)}" for key in task.keys),
        "",
        "some of them, as they would be compared (only for you: talk about the format, not about these people):",
        *(f"  {example}" for example in found.examples),
    ]
    return "\n".join(lines)
