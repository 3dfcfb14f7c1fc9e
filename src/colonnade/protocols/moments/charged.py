"""Second moments of columns that an encoder makes which learned from the table: its training is charged with them.

Training is one owner's own work and nothing of it is sent. But the moments depend on what was learned, so every
observer of the moments is charged as if the learned encoder had been published before
(docs/theory/heads-from-moments.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colonnade.privacy import Event
from colonnade.protocols.moments.task import Moments


@dataclass(frozen=True)
class ChargedMoments(Moments):
    """The public task of second moments, and the events of what happened before at single owners."""

    charged: tuple[Event, ...] = ()

    @property
    def events(self) -> tuple[Event, ...]:
        """What is opened, and what it may tell of the training before."""
        return (*self.opens, *self.charged)

    @property
    def games(self) -> str:
        """The name of the games that audit it."""
        return "split-moments"

    @property
    def openings(self) -> Mapping[Event, int]:
        """Only the moments are opened."""
        return Counter(self.opens)

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant."""
        return super().agreement | {"charged": [event.to_dict() for event in self.charged]}
