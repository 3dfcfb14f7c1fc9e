"""``pa`` and ``pc``: pyarrow and its compute functions, which are imported when one of them is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colonnade.lazy import Later

__all__ = ["pa", "pc"]

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa, pc = Later("pyarrow"), Later("pyarrow.compute")
