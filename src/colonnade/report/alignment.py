"""The people that the result is about: how the parties found them, and what everybody learned from that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.drawing.markup import Html, join, table, tag
from colonnade.errors import StudyError
from colonnade.privacy.observers import Trust
from colonnade.protocols.align import MODES, Aligning, Leak
from colonnade.report import words
from colonnade.report.words import mapping, number
from colonnade.tables.keys import Key

_MODES = {
    "ot": "Keys were compared under secrets of which every party has its own, by oblivious transfers (mode ot): no "
    "helper is trusted.",
    "dh": "Keys were compared under secrets of which every party has its own (mode dh): no helper is trusted.",
    "helper": "Hashes of keys, under a key that the coordinator does not have, were compared by it (mode helper).",
    "fuzzy": "Similar keys were paired by the coordinator, as Bloom filters (mode fuzzy): a weaker guarantee, and a "
    "pair may be wrong.",
}


def alignment(run: Mapping[str, Any], trust: Trust) -> Html | None:
    """How people were matched, in counts, and who learned what; None where the parties did not match people."""
    found = mapping(run.get("alignment"))
    if not found:
        return None
    leaks = leakage(found, trust)
    return join(
        tag("h2", "Whom it is about"),
        tag("p", _opening(found, run, trust)),
        _lists(run, found),
        tag("h3", "Who learned what from this") if leaks else None,
        _again(found) if leaks else None,
        _leaks(leaks, "ot" if found["mode"] == "ot" else "dh") if leaks else None,
    )


def people(run: Mapping[str, Any]) -> int | None:
    """How many people all parties hold, from the record of the coordinator or else of a party; None: not known."""
    records = [mapping(run.get("alignment")), *(_own(facts) for facts in mapping(run.get("parties")).values())]
    found = [number(record.get("matched")) for record in records]
    return next((int(count) for count in found if count is not None and count >= 0), None)


def leakage(found: Mapping[str, Any], trust: Trust) -> tuple[Leak, ...]:
    """What everybody learns from an alignment of this mode; empty where the record names no mode that exists."""
    mode, hidden, pad_to = found.get("mode"), found.get("hidden"), found.get("pad_to")
    if mode not in MODES or not isinstance(hidden, bool):
        return ()
    try:
        parts = _partitions(found)
        return Aligning(trust, (Key("key"),), mode=mode, hidden=hidden, pad_to=pad_to, partitions=parts).leakage
    except StudyError:
        return ()


def _partitions(found: Mapping[str, Any]) -> int:
    """In how many parts people were found; a record without lanes does not say it. 0 stands for what is no number."""
    count = found.get("partitions", 1)
    return count if isinstance(count, int) else 0


def _opening(found: Mapping[str, Any], run: Mapping[str, Any], trust: Trust) -> str:
    count, took = people(run), number(found.get("seconds"))
    on = words.listed(words.sequence(found.get("on")))
    how_many = f": {words.counted(count, 'person', 'people')}" if count is not None else ""
    lanes = _partitions(found)
    when = "Before anything was computed" if lanes <= 1 else f"In {lanes:,} partitions, lane by lane,"
    parts = [
        f"{words.listed(trust.owners)} need not hold the same people. {when} they found those "
        f"whom all of them hold{f', by {on}' if on else ''}{how_many}. The result is about these."
    ]
    if found.get("hidden") is True:
        parts.append("No party knows which of its people they are: who matched stayed in shares.")
    if found.get("reused") is True:
        parts.append("An earlier alignment of the same lists was used again.")
    elif took is not None and took >= 0:
        parts.append(f"That{'' if lanes <= 1 else ', and adding them up,'} took {words.seconds(took)}.")
    return " ".join([*parts, _MODES.get(str(found.get("mode")), "")]).strip()


def _lists(run: Mapping[str, Any], found: Mapping[str, Any]) -> Html | None:
    """How long each party's list was and how many rows it left out, as far as the record says."""
    lengths = mapping(found.get("rows"))
    parties = {str(name): _own(facts) for name, facts in mapping(run.get("parties")).items()}
    rows = []
    for name in [*lengths, *(name for name in parties if name not in lengths)]:
        own = parties.get(str(name), {})
        cells = [number(lengths.get(name)), *(number(own.get(key)) for key in ("rows", "missing", "repeated"))]
        if any(cell is not None for cell in cells):
            rows.append((name, *("–" if cell is None else f"{cell:,.0f}" for cell in cells)))
    if not rows:
        return None
    heads = ("Party", "Keys compared", "Rows", "Without a full key", "With a repeated key")
    return table(heads, rows, caption="What each party brought. Rows left out are its own affair.", numeric=range(1, 5))


def _again(found: Mapping[str, Any]) -> Html | None:
    if found.get("reused") is not True:
        return None
    return tag("p", "The table is about the first time; using it again told only that no list had changed.")


def _leaks(leaks: tuple[Leak, ...], alone: str) -> Html:
    rows = [(leak.who, leak.learns, leak.beyond or "–") for leak in leaks]
    caption = "All of this is outside every epsilon."
    if any("leader" in leak.learns + leak.beyond for leak in leaks):
        caption += (
            f" Of the parties with a seat one leads: in {alone} that with the shortest list, in helper the first."
        )
    return table(("Who", "Learned", "What it would take to learn more"), rows, caption=caption)


def _own(facts: object) -> Mapping[str, Any]:
    return mapping(mapping(facts).get("alignment"))
