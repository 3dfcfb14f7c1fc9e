"""From a release to a model of it; a release whose fit failed is kept, because it was paid for."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.errors import ColonnadeError
from colonnade.kinds.synthesis.fit import COMPONENTS, fit
from colonnade.kinds.synthesis.products import Products
from colonnade.kinds.tables.release import MarginalsRelease
from colonnade.tables.coding import ForbiddenCodes


def fitted(
    release: MarginalsRelease, sizes: tuple[int, ...], components: int | None, impossible: Sequence[ForbiddenCodes]
) -> Products | str:
    """A model for a release, or why there is none: the release is paid for, and is kept."""
    several = int(components or COMPONENTS)
    try:
        return fit(sizes, release.count, release.parts, components=several, impossible=impossible)
    except ColonnadeError as error:
        return str(error)
    except Exception as error:  # whatever it is, also a lack of memory, it must not take the release with it
        return f"stopped by {type(error).__name__}"
