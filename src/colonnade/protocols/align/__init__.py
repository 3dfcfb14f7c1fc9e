"""Who do the owners have in common? Private alignment of rows."""

from typing import TYPE_CHECKING

from colonnade.lazy import exports

if TYPE_CHECKING:
    from colonnade.protocols.align.programs import (
        Aligned as Aligned,
        Matched as Matched,
        coordinator as coordinator,
        owner as owner,
        reference as reference,
    )
    from colonnade.protocols.align.task import (
        MODES as MODES,
        NO_HELPER as NO_HELPER,
        Aligning as Aligning,
        Leak as Leak,
        Mode as Mode,
    )

__all__, __getattr__, __dir__ = exports(
    __name__,
    {"programs": "Aligned Matched coordinator owner reference", "task": "MODES NO_HELPER Aligning Leak Mode"},
)
