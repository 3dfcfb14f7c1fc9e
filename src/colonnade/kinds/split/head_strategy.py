"""What the ways to a head have in common: what each plans, what its participants do and end with, how it scores.

A strategy is one answer to the question of who learns the head from what: a committee from noisy moments, the party
with the label from embeddings with noise, or the same as it was published. Heads learn labels as the place of each
person's class, or as the encoded number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.drawing.canvas import Picture
from colonnade.kinds.split import encoder_base
from colonnade.kinds.split.encoders import Encoder
from colonnade.kinds.split.validate_params import EncoderSpec
from colonnade.models.design import LabelDesign
from colonnade.models.pictures import noise_picture
from colonnade.models.planner import PlanDetails, Roster
from colonnade.models.sample_size import SampleSizeForecast
from colonnade.privacy import Statement
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.task import Task
from colonnade.randomness import Stream
from colonnade.tables import Table
from colonnade.tables.centring import ColumnCentring

if TYPE_CHECKING:
    from colonnade.kinds.split.model import SplitModel


EmbeddingMatrix = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]
Training = encoder_base.Training


@dataclass(frozen=True)
class PlanSetting:
    """What is public before a plan: columns, who holds the label, who takes part, and which encoders there are."""

    design: LabelDesign
    roster: Roster
    encoders: Mapping[str, EncoderSpec]

    @property
    def active(self) -> str:
        """The party with the label."""
        return self.design.owner

    @property
    def classes(self) -> int:
        """How many classes the label has; 0 where it is a number."""
        return len(self.design.declared.classes)

    @property
    def widths(self) -> dict[str, int]:
        """The width of each party's embeddings; 0 where a party has nothing but the label."""
        return {party: self.encoders[party].width if party in self.encoders else 0 for party in self.design.schemas}


@dataclass(frozen=True)
class LearnedHead:
    """What a participant ends with.

    ``public`` are arrays that everybody has, ``facts`` plain values that everybody may know, ``encoders`` those that
    are in this process, and ``own`` the arrays that single parties have for themselves, such as a head.
    """

    facts: Mapping[str, Any]
    public: Arrays = field(default_factory=dict)
    encoders: Mapping[str, Encoder] = field(default_factory=dict)
    own: Mapping[str, Arrays] = field(default_factory=dict)


def merge_outcomes(outcomes: Mapping[str, LearnedHead], coordinator: LearnedHead) -> LearnedHead:
    """All that the participants ended with, where all of them run in one process."""
    encoders = {party: encoder for each in outcomes.values() for party, encoder in each.encoders.items()}
    own = {party: arrays for each in outcomes.values() for party, arrays in each.own.items()}
    return LearnedHead(coordinator.facts, coordinator.public, encoders, own)


class HeadStrategy(ABC):
    """One way to a head."""

    name: ClassVar[str]

    def complete_spec(self, said: Mapping[str, Any], width: int, *, active: bool, training: str) -> dict[str, Any]:
        """A specification of an encoder, with what was left out of it; ``active`` is the party with the label."""
        return {"kind": "edges" if "shape" in said else "cosine", "width": width, **said}

    @abstractmethod
    def plan(self, model: SplitModel, setting: PlanSetting, rows: int | None) -> Task:
        """The public task."""

    @abstractmethod
    def owner(self, model: SplitModel, me: Owner, encoder: Encoder | None, table: Table, task: Any) -> LearnedHead:
        """An owner's program."""

    @abstractmethod
    def coordinator(self, model: SplitModel, me: Coordinator, task: Any) -> LearnedHead:
        """The coordinator's program."""

    @abstractmethod
    def simulate(
        self, model: SplitModel, encoders: Mapping[str, Encoder], tables: Mapping[str, Table], task: Any, stream: Stream
    ) -> LearnedHead:
        """What all of them would end with, computed in one place."""

    @abstractmethod
    def prepare(self, model: SplitModel, party: str, raw: EmbeddingMatrix) -> EmbeddingMatrix:
        """Embeddings of a party as the head takes them, from those of its encoder."""

    @abstractmethod
    def scores(self, model: SplitModel, parts: Mapping[str, EmbeddingMatrix]) -> EmbeddingMatrix:
        """Scores, (rows, outputs), from the prepared embeddings of all parties."""

    @abstractmethod
    def width(self, task: Any, party: str) -> int:
        """The width of a party's embeddings in a task; 0 where it has none."""

    @abstractmethod
    def check_restored(self, model: SplitModel) -> None:
        """Raise an error unless the arrays and facts of a model that was read belong together."""

    def check_kept(self, model: SplitModel, party: str, own: Arrays, encoder: Encoder | None) -> None:
        """Raise an error unless arrays that a party kept for itself belong to this model; here nobody keeps any."""
        if own:
            raise ValueError("nobody keeps a head that everybody has [VA073]")

    def training_of(self, model: SplitModel) -> Training:
        """Whether private rows trained the encoders of a fitted model."""
        return "none"

    def summary(self, model: SplitModel) -> list[str]:
        """Further lines about a fitted model, for the terminal."""
        return []

    def picture(self, model: SplitModel) -> Picture:
        """What is public about a fitted model, for a picture: the noise of what parties told."""
        return noise_picture(model.plan_["deviations"], "each number of an embedding")

    def details(self, task: Any, statement: Statement) -> PlanDetails:
        """What a pre-flight says about this way in particular."""
        return PlanDetails(self.name)

    def outlook(self, model: SplitModel, task: Any, rows: int | None) -> SampleSizeForecast | None:
        """Whether so many people are enough; no figure for most ways."""
        return None

    @abstractmethod
    def default_width(self, model: SplitModel, design: LabelDesign, roster: Roster) -> int:
        """The width of embeddings for which nobody named one, from public quantities."""


def label_targets(centred: ColumnCentring, table: Table, classes: int) -> NDArray[Any]:
    """The labels in a table of the party that holds them: classes as 0, 1, 2, ..., or encoded numbers."""
    encoded = centred.labels(table)
    if not classes:
        return np.asarray(encoded[:, 0], dtype=np.float64)
    if encoded.shape[1] == 1:
        return np.asarray(encoded[:, 0] > 0.5, dtype=np.int64)
    return np.asarray(encoded.argmax(axis=1), dtype=np.int64)
