"""Wording for messages: similar names, lists of names, and row numbers."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

import numpy as np
from numpy.typing import NDArray

MAX_SHOWN_ROWS = 5
"""How many rows an error names."""
_CLOSE, _CLOSER, _VERY_CLOSE = 0.6, 0.65, 0.75


def suggest_name(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'age'?"`` if a known name is similar, otherwise an empty text."""
    by_plain = {other.strip().casefold(): other for other in known}
    close = get_close_matches(name.strip().casefold(), by_plain, n=1, cutoff=_CLOSE)
    return f"; did you mean {by_plain[close[0]]!r}?" if close else ""


def suggest_full_name(name: str, known: Iterable[str]) -> str:
    """The same for names such as ``bank.age``: party and column are compared apart, as an equal party means little."""
    ranked = max(((_closeness(name, other), other) for other in sorted(known)), default=(0.0, ""))
    return f"; did you mean {ranked[1]!r}?" if ranked[0] > 0 else ""


def _closeness(name: str, other: str) -> float:
    """How similar two names are; 0 where the columns are not, or differ and so do the parties."""
    if "." not in name:
        name = f".{name}"
    party, _, column = name.strip().casefold().partition(".")
    there, _, known = other.casefold().partition(".")
    columns, parties = (SequenceMatcher(None, *pair).ratio() for pair in ((column, known), (party, there)))
    close = columns >= (_CLOSER if parties == 1 else _VERY_CLOSE)
    close = close and (columns == 1 or not party or parties >= _VERY_CLOSE)
    return columns + parties if close else 0.0


def itemise(names: Iterable[str], limit: int = 8) -> str:
    """Names in quotes, the first few of them."""
    everything = list(names)
    more = f" and {len(everything) - limit} more" if len(everything) > limit else ""
    return ", ".join(repr(name) for name in everything[:limit]) + more


def list_rows(rows: NDArray[np.int64], count: int | None = None) -> str:
    """``"row 7"`` or ``"rows 7, 9, 12 and 40 more"``: places, never values.

    If the first of them are given, ``count`` is how many there are.
    """
    total = len(rows) if count is None else count
    shown = ", ".join(str(row) for row in np.sort(rows)[:MAX_SHOWN_ROWS])
    more = f" and {total - MAX_SHOWN_ROWS} more" if total > MAX_SHOWN_ROWS else ""
    return f"row {shown}" if total == 1 else f"rows {shown}{more}"
