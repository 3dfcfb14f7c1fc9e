"""What the ways to a head have in common: what each plans, what its participants do and end with, how it scores.

A way is one answer to the question of who learns the head from what: a committee from noisy moments, the party with
the label from embeddings with noise, or the same as it was published.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from colonnade.models.federation import Roster
from colonnade.models.planner import Details
from colonnade.models.regression.design import Design
from colonnade.models.split.encoders import Encoder
from colonnade.models.split.given import Given
from colonnade.privacy import Statement
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.task import Task
from colonnade.randomness import Stream
from colonnade.tables import Category, Number, Table

if TYPE_CHECKING:
    from colonnade.models.split.base import SplitModel

Matrix = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]
Training = Literal["none", "charged", "uncharged"]
"""Whether an encoder was trained on private rows, and whether what it tells of them is in the events."""


@dataclass(frozen=True)
class Setting:
    """What is public before a plan: columns, who holds the label, who takes part, and which encoders there are."""

    design: Design
    roster: Roster
    encoders: Mapping[str, Given]

    @property
    def active(self) -> str:
        """The party with the label."""
        return self.design.owner

    @property
    def classes(self) -> int:
        """How many classes the label has; 0 where it is a number."""
        declared = self.design.declared
        if isinstance(declared, Number):
            return 0
        return len(declared.values) if isinstance(declared, Category) else 2

    @property
    def widths(self) -> dict[str, int]:
        """The width of each party's embeddings; 0 where a party has nothing but the label."""
        return {party: self.encoders[party].width if party in self.encoders else 0 for party in self.design.schemas}


@dataclass(frozen=True)
class Learned:
    """What a participant ends with.

    ``public`` are arrays that everybody has, ``facts`` plain values that everybody may know, ``encoders`` those that
    are in this process, and ``own`` the arrays that single parties have for themselves, such as a head.
    """

    facts: Mapping[str, Any]
    public: Arrays = field(default_factory=dict)
    encoders: Mapping[str, Encoder] = field(default_factory=dict)
    own: Mapping[str, Arrays] = field(default_factory=dict)


def together(outcomes: Mapping[str, Learned], coordinator: Learned) -> Learned:
    """All that the participants ended with, where all of them run in one process."""
    encoders = {party: encoder for each in outcomes.values() for party, encoder in each.encoders.items()}
    own = {party: arrays for each in outcomes.values() for party, arrays in each.own.items()}
    return Learned(coordinator.facts, coordinator.public, encoders, own)


class Way(ABC):
    """One way to a head."""

    name: ClassVar[str]

    @abstractmethod
    def plan(self, model: SplitModel, setting: Setting, rows: int | None) -> Task:
        """The public task."""

    @abstractmethod
    def owner(self, model: SplitModel, me: Owner, encoder: Encoder | None, table: Table, task: Any) -> Learned:
        """An owner's program."""

    @abstractmethod
    def coordinator(self, model: SplitModel, me: Coordinator, task: Any) -> Learned:
        """The coordinator's program."""

    @abstractmethod
    def simulated(
        self, model: SplitModel, encoders: Mapping[str, Encoder], tables: Mapping[str, Table], task: Any, stream: Stream
    ) -> Learned:
        """What all of them would end with, computed in one place."""

    @abstractmethod
    def prepared(self, model: SplitModel, party: str, raw: Matrix) -> Matrix:
        """Embeddings of a party as the head takes them, from those of its encoder."""

    @abstractmethod
    def scores(self, model: SplitModel, parts: Mapping[str, Matrix]) -> Matrix:
        """Scores, (rows, outputs), from the prepared embeddings of all parties."""

    @abstractmethod
    def width(self, task: Any, party: str) -> int:
        """The width of a party's embeddings in a task; 0 where it has none."""

    def check_restored(self, model: SplitModel) -> None:
        """Raise an error unless the arrays and facts of a model that was read belong together."""

    def trained(self, model: SplitModel) -> Training:
        """Whether private rows trained the encoders of a fitted model."""
        return "none"

    def summary(self, model: SplitModel) -> list[str]:
        """Further lines about a fitted model, for the terminal."""
        return []

    def details(self, task: Any, statement: Statement) -> Details:
        """What a pre-flight says about this way in particular."""
        return Details(self.name)

    def default_width(self, model: SplitModel, design: Design, roster: Roster) -> int:
        """The width of embeddings for which nobody named one, from public quantities."""
        return 64
