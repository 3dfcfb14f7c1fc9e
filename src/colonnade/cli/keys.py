"""``colonnade keys``: show a party its own keys as a study compares them, so that parties can agree on formats."""

from __future__ import annotations

from pathlib import Path

from colonnade.cli.output import emit, say
from colonnade.errors import StudyError
from colonnade.models.alignment import keys_of
from colonnade.protocols.align import Aligning
from colonnade.study import PartyConfig, Study
from colonnade.study.doctor import in_counts
from colonnade.tables.keys import Key, Keys


def keys(study: Path, config: Path, json: bool) -> None:
    """Show a party its own keys as a study would compare them; nothing is sent."""
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


def _read_keys(study: Study, config: PartyConfig) -> tuple[Aligning, Keys, int]:
    """The alignment of a study, a party's own keys, and the number of its rows."""
    task = study.aligning
    if task is None:
        raise StudyError(
            f"study {study.name!r} has no [align], so it compares ids as they stand: there are no keys [ST036]"
        )
    table = config.table(study.roster.schemas[config.name], task.plan)
    return task, keys_of(table), table.rows


def rules(key: Key) -> str:
    """In words, how the cells of one key are written before they are compared."""
    if key.kind == "number":
        return "as a number: 7, 007 and 7.0 are equal"
    if key.kind == "date":
        return "as a date, yyyy-mm-dd"
    words = {
        "case": {"keep": "", "fold": "capitals as small letters"},
        "blanks": {
            "keep": "blanks as they stand",
            "trim": "without blanks at the ends",
            "collapse": "without blanks at the ends, single ones between words",
            "remove": "without blanks",
        },
        "accents": {"keep": "", "strip": "without accents"},
        "unicode": {"keep": "Unicode as it stands", "NFC": "Unicode NFC", "NFKC": "Unicode NFKC"},
    }
    said = [choice[getattr(key, rule)] for rule, choice in words.items()]
    return f"as text: {', '.join(text for text in said if text)}"


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
