"""What one party alone reads about its own part in a run: what it has spent in all, what it keeps, what did not fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from colonnade.models.assessment import Assessment
from colonnade.privacy.observers import OTHERS
from colonnade.privacy.statement import Statement
from colonnade.report import words
from colonnade.report.markup import Html, breakable, join, named_values, table, tag
from colonnade.report.reliability import reliability_plot
from colonnade.report.words import mapping, number, sequence

_MOST = 30
_OTHERS = " The last row is everybody but {} together, as far as each study's threshold allows."


def own_part(run: Mapping[str, Any], statement: Statement, view: Assessment | None = None) -> Html | None:
    """The section for this party's eyes; None in the record of a coordinator.

    ``view`` is what it sees of the model's chances for the fit's people, if it holds their labels.
    """
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
        None if view is None else _chances(view),
        _spent(own, statement),
    )


def _chances(view: Assessment) -> Html:
    """A reliability diagram of the fit's people."""
    figures = [
        ("People", f"{view.count:,}"),
        ("AUC", None if view.auc is None else f"{view.auc:.3f}"),
        ("Log-loss", f"{view.log_loss:.4f}"),
        ("Slope of the recalibration", None if view.slope is None else f"{view.slope:.2f}"),
    ]
    lacking = "" if view.lacking is None else f" Not everything can be computed: {view.lacking}."
    said = (
        "Chances by own columns and by the scores that came with noise, beside the labels. People whom a model has "
        "seen make it look better than new ones will; these figures have no noise and are not for publication."
    )
    return join(
        tag("h3", "Are the chances right? In sample: the people of the fit"),
        tag("p", said + lacking, class_="note"),
        reliability_plot(view, "in sample"),
        named_values(figures),
    )


def _spent(own: Mapping[str, Any], statement: Statement) -> Html | None:
    totals = mapping(own.get("totals"))
    if not totals:
        return None
    here = {row.observer.label: row.epsilon for row in statement.rows}
    rows = [
        (breakable(who, after="+"), words.epsilon(here[who]) if who in here else "–", _total(total))
        for who, total in list(totals.items())[:_MOST]
    ]
    studies = number(own.get("studies"))
    counted = "" if studies is None else f" of {words.counted(int(studies), 'study', 'studies')}"
    caption = (
        f"Epsilon by this study and by all{counted} in the ledger, at delta {words.power(statement.delta)}, rounded "
        "up. What studies cost together is composed, not added."
        f"{_OTHERS.format(own.get('party')) if OTHERS in totals else ''}"
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
