"""Who do the owners have in common? Private alignment of rows."""

from typing import TYPE_CHECKING

from colonnade.lazy import lazy_exports

if TYPE_CHECKING:
    from colonnade.protocols.align.programs import (
        AlignedRows as AlignedRows,
        AlignmentCounts as AlignmentCounts,
        coordinator as coordinator,
        owner as owner,
        reference as reference,
    )
    from colonnade.protocols.align.task import (
        DEFAULT_MODE as DEFAULT_MODE,
        MODES as MODES,
        NO_HELPER as NO_HELPER,
        AlignmentLeak as AlignmentLeak,
        AlignmentTask as AlignmentTask,
        Mode as Mode,
    )

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "programs": "AlignedRows AlignmentCounts coordinator owner reference",
        "task": "DEFAULT_MODE MODES NO_HELPER AlignmentTask AlignmentLeak Mode",
    },
)
