"""Whether participants could have deviated from the protocol: what was checked, how often, how surely."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from colonnade.report.cost import participants
from colonnade.report.markup import Html, join, tag
from colonnade.report.words import mapping, number


def deviating(run: Mapping[str, Any]) -> Html | None:
    """What was done about participants that deviate; None for records of releases that did nothing about it."""
    found = mapping(run.get("security"))
    said = found.get("sentence")
    if not isinstance(said, str):
        return None
    return join(tag("h2", "If somebody had deviated"), tag("p", f"{said[:1].upper()}{said[1:]}."), _checks(run))


def _checks(run: Mapping[str, Any]) -> Html | None:
    """How many claims were checked, the most that any seat counted, and how often a wrong one would have passed."""
    each = [checks for facts in participants(run).values() if (checks := mapping(facts.get("checks")))]
    claims = max((number(checks.get("claims")) or 0.0 for checks in each), default=0.0)
    errors = [error for checks in each if (error := number(checks.get("error"))) is not None and 0 < error < 1]
    if not claims or not errors:
        return None
    how = "all of them, lane by lane" if mapping(run.get("lanes")) else "all of them together"
    said = (
        f"The seats made {claims:,.0f} claims about their shares and checked {how}; none failed. A "
        "run in which somebody cheats passes them with a chance of at most 2"
    )
    return tag("p", said, tag("sup", f"-{math.floor(-math.log2(max(errors)))}"), ".")
