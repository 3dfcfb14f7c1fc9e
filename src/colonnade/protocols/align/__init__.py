"""Who do the owners have in common? Private alignment of rows, and the check that they are aligned."""

from __future__ import annotations

from colonnade.protocols.align.programs import Aligned, Matched, coordinator, owner, reference
from colonnade.protocols.align.rows import OfKnownPeople, agree_on_rows, check_count, compare_rows
from colonnade.protocols.align.task import MODES, Aligning, Leak, Mode

__all__ = [
    "MODES",
    "Aligned",
    "Aligning",
    "Leak",
    "Matched",
    "Mode",
    "OfKnownPeople",
    "agree_on_rows",
    "check_count",
    "compare_rows",
    "coordinator",
    "owner",
    "reference",
]
