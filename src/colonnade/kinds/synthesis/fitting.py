"""From a release to a model of it, of any kind; a release whose fit failed is kept, because it was paid for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from colonnade.errors import ColonnadeError, StudyError
from colonnade.kinds.synthesis.fidelity import Numbers, OfCodes
from colonnade.kinds.synthesis.fit import COMPONENTS, fit
from colonnade.kinds.synthesis.pgm import Network, fit_pgm
from colonnade.kinds.synthesis.products import Products
from colonnade.kinds.synthesis.tree import Tree, fit_tree
from colonnade.kinds.tables.layout import Codes
from colonnade.kinds.tables.release import MarginalsRelease
from colonnade.randomness import Stream
from colonnade.tables.coding import ForbiddenCodes

KINDS: dict[str, type[Products] | type[Tree] | type[Network]] = {"products": Products, "tree": Tree, "pgm": Network}


@dataclass(frozen=True)
class Unfitted:
    """A model that could not be fitted; whatever needs it is refused and told why."""

    sizes: tuple[int, ...]
    why: str

    def marginal(self, columns: Sequence[int]) -> Numbers:
        """Refused."""
        self.refuse()

    def log_likelihood(self, codes: Codes) -> Numbers:
        """Refused."""
        self.refuse()

    def sample(self, rows: int, stream: Stream) -> Codes:
        """Refused."""
        self.refuse()

    def arrays(self) -> dict[str, Numbers]:
        """There is nothing to keep."""
        return {}

    def refuse(self) -> NoReturn:
        """Say why there is no model, and how to get one."""
        raise StudyError(
            f"no model was fitted to the release ({self.why}); the release is whole, so load the model and call refit, "
            'such as refit("tree"), which costs nothing [ST347]'
        )


def fitted(
    release: MarginalsRelease,
    sizes: tuple[int, ...],
    model: str,
    components: int | None,
    impossible: Sequence[ForbiddenCodes],
) -> OfCodes:
    """A model of this kind for a release, or one that says why there is none: the release is paid for, and is kept."""
    try:
        if model == "tree":
            return fit_tree(sizes, release.count, release.parts)
        if model == "pgm":
            return fit_pgm(sizes, release.count, release.parts)
        kept = int(components or COMPONENTS)
        return fit(sizes, release.count, release.parts, components=kept, impossible=impossible)
    except ColonnadeError as error:
        return Unfitted(sizes, str(error))
    except Exception as error:  # whatever it is, also a lack of memory, it must not take the release with it
        return Unfitted(sizes, f"stopped by {type(error).__name__}")
