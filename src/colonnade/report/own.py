"""What one party alone reads about its own part in a run: what it has spent in all, what it keeps, what did not fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from colonnade.privacy.statement import Statement
from colonnade.report import words
from colonnade.report.markup import Html, breakable, join, named_values, table, tag
from colonnade.report.words import mapping, number, sequence

_MOST = 30


def own_part(run: Mapping[str, Any], statement: Statement) -> Html | None:
    """The section for this party's eyes; None in the record of a coordinator."""
    own = mapping(run.get("own"))
    if not own:
        return None
    name = own.get("party")
    kept = own.get("kept")
    misfits = sum(number(count) or 0 for count in mapping(run.get("misfits")).values())
    found = [
        ("Rows of the own table", _whole(run.get("rows_held"))),
        ("Cells outside the schema", _whole(misfits) if "misfits" in run else None),
        ("Approved by", mapping(run.get("approval")).get("by")),
        ("Ledger", own.get("ledger")),
        ("Head of the ledger", tag("span", run["ledger_head"], class_="mono") if run.get("ledger_head") else None),
        ("Kept for itself", None if not kept else f"{own.get('keeps')}, in {kept}: back it up, nobody else has it"),
    ]
    return join(
        tag("h2", f"For {name} alone"),
        tag("p", f"This page is {name}'s own: it names what no other participant is told.", class_="note"),
        named_values(found),
        *(tag("p", line) for line in sequence(own.get("lines"))),
        _spent(own, statement),
    )


def _spent(own: Mapping[str, Any], statement: Statement) -> Html | None:
    totals = mapping(own.get("totals"))
    if not totals:
        return None
    here = mapping(own.get("here"))
    rows = [
        (breakable(who, after="+"), _total(here[who]) if who in here else "–", _total(total))
        for who, total in list(totals.items())[:_MOST]
    ]
    studies = number(own.get("studies"))
    counted = "" if studies is None else f" of {words.counted(int(studies), 'study', 'studies')}"
    caption = (
        f"Epsilon by this study and by all{counted} in the ledger, at delta {words.power(statement.delta)}, rounded "
        "up. What studies cost together is composed, not added."
    )
    rest = len(totals) - len(rows)
    caption += f" The first {len(rows)} observers; `colonnade ledger show` has {rest} more." if rest else ""
    return join(
        tag("h3", "What observers have learned about these people"),
        table(("Observer", "This study", "All studies"), rows, caption=caption, numeric=(1, 2)),
    )


def _total(value: object) -> str:
    found = number(value)
    return words.epsilon(math.inf if found is None else found)


def _whole(value: object) -> str | None:
    found = number(value)
    return None if found is None else f"{found:,.0f}"
