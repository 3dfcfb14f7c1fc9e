"""A ledger as text for a person, as plain values for a program, and as a file for somebody outside."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from colonnade.errors import LedgerError
from colonnade.models.serialization import finite_or_null
from colonnade.privacy import Ledger, LedgerEntry, Observer
from colonnade.privacy.ledger.caps import RemainingBudget
from colonnade.privacy.ledger.storage import GENESIS
from colonnade.privacy.observers import COORDINATOR, OTHERS, RESERVED_NAMES
from colonnade.privacy.statement import format_rounded_up
from colonnade.study.party_config import PartyConfig

COLUMNS = (
    "change",
    "entry",
    "study",
    "digest",
    "created",
    "state",
    "at",
    "events",
    "trust",
    "people",
    "hash",
    "line",
    "approvers",
)
_SHOWN = 12
_PAIR = 2
_FIRST = ("analyst", COORDINATOR)


def ledger_facts(book: Ledger, delta: float, days: float | None, policy: PartyConfig | None) -> dict[str, Any]:
    """A ledger as plain values; an infinite epsilon is ``null``."""
    entries, totals = book.entries(days=days), book.totals(delta, days=days)
    found: dict[str, Any] = {
        "ledger": str(book.path),
        "head": book.head,
        "chained": book.chained,
        "delta": delta,
        "days": days,
        "entries": [
            {
                "id": e.id,
                "study": e.study,
                "digest": e.digest,
                "created": e.created,
                "state": e.state,
                "approvers": [asdict(each) for each in e.approvers],
            }
            for e in entries
        ],
        "ended_early": book.count_aborted_studies(days=days),
        "totals": {who: finite_or_null(totals[who]) for who in sorted(totals, key=_row)},
    }
    if policy is not None:
        found["left"] = [
            {"observer": c.who, "days": c.days, "delta": c.delta, "cap": c.epsilon, "spent": finite_or_null(c.spent),
             "left": c.remaining} for c in book.remaining(policy.caps, policy.periods)
        ]  # fmt: skip
        limit = policy.content.policy.failures
        found["failures"] = {"days": limit.days, "at_most": limit.at_most, "ended_early": _early(book, policy)}
        begun = policy.alignment_limit
        found["alignments"] = vars(begun) | {"begun": book.count_alignments(days=begun.days)}
    return found


def ledger_text(book: Ledger, delta: float, days: float | None, policy: PartyConfig | None) -> str:
    """A ledger's entries, the totals of every observer, what is left, and the head."""
    known = ledger_facts(book, delta, days, None)
    lines = [
        f"{e['id']:>3}  {e['created'][:19]}  {e['state']:<9}  {e['study']}  ({e['digest'][:12]}){_approval(e)}"
        for e in known["entries"]
    ]
    lines = lines or ["no study yet" if days is None else f"no study in the last {days:g} days"]
    if known["ended_early"]:
        lines += ["", f"{known['ended_early']} of these ended early, or have not ended"]
    if known["totals"]:
        lines += ["", f"learned {'in all' if days is None else f'in {days:g} days'}, at delta {delta:g}:"]
        totals = {who: math.inf if total is None else total for who, total in known["totals"].items()}
        lines += _few([(who, total, f"  {_name(who):<24} {format_rounded_up(total)}") for who, total in totals.items()])
    if policy is not None:
        lines += ["", f"left under {policy.path}:", remaining_text(book.remaining(policy.caps, policy.periods))]
        limit = policy.content.policy.failures
        lines += [f"  {_early(book, policy)} of at most {limit.at_most} studies ended early in {limit.days:g} days"]
        begun = policy.alignment_limit
        made = book.count_alignments(days=begun.days)
        each = f"and at most {begun.at_most_each} for one who asks"
        lines += [f"  {made} of at most {begun.at_most} alignments were begun in {begun.days:g} days, {each}"]
    unchained = "" if known["chained"] else "  (not chained yet: the next study will chain it as it stands)"
    return "\n".join([*lines, "", f"head {known['head']}{unchained}"])


def _approval(entry: dict[str, Any]) -> str:
    """Who said yes, and from where, where that is on record."""
    said = [f"{each['who']} ({each['kind']}, {each['place']})" for each in entry["approvers"]]
    return f"  approved by {' and '.join(said)}" if said else ""


def remaining_text(caps: Sequence[RemainingBudget]) -> str:
    """What is left under each cap, for each observer, as text."""
    lines = []
    for _, some in groupby(caps, lambda cap: (cap.days, cap.delta, cap.epsilon)):
        lines += _few([(cap.who, cap.spent, _line(cap)) for cap in some])
    return "\n".join(lines)


def _line(cap: RemainingBudget) -> str:
    span = "for ever" if cap.days is None else f"in {cap.days:g} days"
    figures = (
        f"spent {format_rounded_up(cap.spent)}, left {cap.remaining:.4f} of {cap.epsilon:g} at delta {cap.delta:g}"
    )
    return f"  {_name(cap.who):<24} {figures}, {span}"


def _few(rows: Sequence[tuple[str, float, str]]) -> list[str]:
    """The lines of rows; of many rows, those of who learned most alone, in pairs and in larger groups."""
    found = []
    for size, some in groupby(sorted(rows, key=lambda row: _row(row[0])), lambda row: _row(row[0])[0]):
        ranked = list(some)
        worst = sorted(ranked, key=lambda row: -row[1])[:_SHOWN]
        found += [line for who, total, line in ranked if (who, total, line) in worst]
        if len(ranked) > _SHOWN:
            kind = "alone" if size < _PAIR else "pairs" if size == _PAIR else "larger groups"
            found.append(f"  ... and {len(ranked) - _SHOWN} more {kind}, none above {format_rounded_up(worst[-1][1])}")
    return found


def _row(who: str) -> tuple[int, str]:
    """Where a row stands: first who is alone, then pairs, then larger groups, at last all others together."""
    if who in _FIRST:
        return _FIRST.index(who) - len(_FIRST), who
    return (_PAIR + 2 if who == OTHERS else min(who.count("+") + 1, _PAIR + 1)), who


def _name(who: str) -> str:
    if who == OTHERS:
        return "others, all together"
    # While nobody was told anything, a cap for a kind of observer has one row, with the name of the kind.
    return who if who in RESERVED_NAMES else Observer.parse(who).short


def export_chain(book: Ledger, format: str) -> tuple[str, str]:
    """The whole chain as text, a line for every change, and its head."""
    lines = book.lines()
    head = (lines[-1][0].hash if lines else GENESIS) or ""
    if format == "jsonl":
        return "".join(f"{line}\n" for line in [*(text for _, text in lines), json.dumps({"head": head})]), head
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(COLUMNS)
    for change, line in lines:
        entry = (change.events, change.trust, change.people or "") if change.state == "reserved" else ("", "", "")
        about = (change.number, change.entry, change.study, change.digest, change.created)
        writer.writerow([*about, change.state, change.at, *entry, change.hash, line, change.approvers or ""])
    return sheet.getvalue(), head


def find_reservation(book: Ledger, number: int) -> LedgerEntry:
    """The entry of this number; an error unless it is only reserved, so that it may be released by hand."""
    entry = next((entry for entry in book.entries() if entry.id == number), None)
    if entry is None:
        raise LedgerError(f"{book.path} has no entry {number}; `colonnade ledger show` lists them [LE037]")
    if entry.state != "reserved":
        raise LedgerError(f"entry {number} is {entry.state}; only one that is reserved can be released [LE038]")
    return entry


def _early(book: Ledger, policy: PartyConfig) -> int:
    return book.count_aborted_studies(days=policy.content.policy.failures.days)
