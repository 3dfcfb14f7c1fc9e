"""What a passive party is told of labels while a split network is learned: the labels themselves, or slopes.

The protocol is played in one place, with the same steps, rounding and noise as in a study, and what comes back to each
party is written down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.attacks.labels import Codes, Matrix, ReturnedGradients
from colonnade.errors import StudyError
from colonnade.kinds.split.embedding_programs import EmbeddingSide, SlopeTeacher, batch_places
from colonnade.kinds.split.embedding_task import EmbeddingTask
from colonnade.kinds.split.encoders import RowEncoder
from colonnade.kinds.split.head_strategy import label_targets
from colonnade.kinds.split.model import SplitModel
from colonnade.models.planner import Roster
from colonnade.privacy.noise.local_mechanisms import randomised_response
from colonnade.privacy.releases import RandomisedResponse
from colonnade.protocols.message_task import own_noise
from colonnade.randomness import Stream
from colonnade.tables import Table

_MOST_EPOCHS = 5
"""Of which slopes are kept: the first ones, when predictions still know little, point to labels best."""


class SlopeTranscript:
    """Embeddings and slopes that were exchanged about each person, by party and epoch."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.embeddings: dict[str, list[Matrix]] = defaultdict(list)
        self.slopes: dict[str, list[Matrix]] = defaultdict(list)
        self._left: dict[str, int] = defaultdict(int)

    def note(self, party: str, places: NDArray[np.int64], embeddings: Matrix, slopes: Matrix) -> None:
        """One batch of one party; an epoch is over when everybody was in a batch."""
        if not self._left[party]:
            self.embeddings[party].append(np.zeros((self.rows, embeddings.shape[1])))
            self.slopes[party].append(np.zeros((self.rows, slopes.shape[1])))
            self._left[party] = self.rows
        self.embeddings[party][-1][places] = embeddings
        self.slopes[party][-1][places] = slopes
        self._left[party] -= len(places)

    def watch(self, said: Any) -> None:
        """The same for what a protocol says of a batch."""
        self.note(said.owner, said.places, said.embeddings, said.slopes)

    def of(self, party: str, epochs: int = _MOST_EPOCHS) -> Matrix:
        """The slopes of the first epochs, (epochs, people, numbers)."""
        return np.stack(self.slopes[party][:epochs])


def observe_labels(
    model: SplitModel, people: Mapping[str, Table], task: EmbeddingTask, known: NDArray[np.intp], stream: Stream
) -> ReturnedGradients:
    """What the first passive party learns about everybody's label while encoders learn from these people."""
    labels = _labels(model, people, task.active, task.classes)
    event = task.labels_event
    told = labels if task.label_odds is None else randomised_response(labels, task.classes, task.label_odds, stream)
    slopes: Matrix = np.eye(task.classes)[told]
    if task.training == "none":
        raise StudyError(
            "encoders do not learn in this model, so nothing about labels leaves the party that has them [ST004]"
        )
    if task.training == "rounds":
        slopes = _train_rounds(model, people, told, task, stream).of(task.passives[0])
    epsilon = event.epsilon if isinstance(event, RandomisedResponse) else None
    itself = task.training == "labels"
    return ReturnedGradients(
        slopes, np.asarray(labels, dtype=np.intp), known, task.classes, epsilon, labels_told=itself
    )


def observe_slopes(
    model: SplitModel, people: Mapping[str, Table], roster: Roster, known: NDArray[np.intp], stream: Stream
) -> ReturnedGradients:
    """What the first passive party gets back while encoders and head learn together as published."""
    seen = SlopeTranscript(next(iter(people.values())).rows)
    model.watch = seen.watch
    model.simulate(people, roster, stream)
    labels = _labels(model, people, model.design_.owner, model.plan_["classes"])
    slopes = seen.of(next(iter(seen.slopes)))
    return ReturnedGradients(slopes, np.asarray(labels, dtype=np.intp), known, model.plan_["classes"])


def _labels(model: SplitModel, people: Mapping[str, Table], active: str, classes: int) -> NDArray[np.int64]:
    """The numbers of everybody's class."""
    return np.asarray(
        label_targets(model.centred_columns(active, people[active]), people[active], classes), dtype=np.int64
    )


def _train_rounds(
    model: SplitModel, people: Mapping[str, Table], told: Codes, task: EmbeddingTask, stream: Stream
) -> SlopeTranscript:
    """The rounds of the first epochs, as the parties play them."""
    sides = {}
    for party in task.passives:
        rows = model.centred_columns(party, people[party]).centre_features(people[party]).matrix()
        encoder = model.encoder_of(party, people[party], task, int(stream.uint64(1)[0]))
        assert encoder is not None  # noqa: S101 - for the type checker; a passive party has columns
        sides[party] = EmbeddingSide(
            RowEncoder(encoder, rows),
            party,
            task,
            lambda name, size, count: own_noise(name, size).draw((count,), stream),
        )
    teacher, seen = SlopeTeacher(told, task), SlopeTranscript(task.rows)
    for step in range(min(task.epochs, _MOST_EPOCHS) * task.batches):
        places = batch_places(step % task.batches, task)
        heard = {
            party: task.grid.real(side.embeddings(places)).reshape(len(places), -1) for party, side in sides.items()
        }
        for party, slopes in teacher.slopes(places, heard).items():
            seen.note(party, places, heard[party], slopes)
            sides[party].take(places, slopes, told)
            if (step + 1) % task.batches == 0:
                sides[party].end_epoch(told)
    return seen
