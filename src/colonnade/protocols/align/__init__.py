"""Who do the owners have in common? Private alignment of rows."""

from __future__ import annotations

from colonnade.protocols.align.programs import Aligned, Matched, coordinator, owner, reference
from colonnade.protocols.align.task import MODES, NO_HELPER, Aligning, Leak, Mode

__all__ = [
    "MODES",
    "NO_HELPER",
    "Aligned",
    "Aligning",
    "Leak",
    "Matched",
    "Mode",
    "coordinator",
    "owner",
    "reference",
]
