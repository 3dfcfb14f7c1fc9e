"""What an attacker sees of people through a split network: embeddings with their noise, published sums, slopes.

Slopes come back only where encoders learn together with the party that has the label. The protocol is then played in
one place, with the same steps, rounding and noise as in a study, and what comes back to each party is written down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.attacks.labels import Codes, ReturnedGradients
from colonnade.audit.attacks.views import NO_SLOPES, Matrix, ModelViews, observe_people
from colonnade.errors import StudyError
from colonnade.kinds.split.committee_head import JointEmbeddings
from colonnade.kinds.split.embedding_programs import EmbeddingSide, play_rounds
from colonnade.kinds.split.embedding_task import EmbeddingTask
from colonnade.kinds.split.encoders import RowEncoder
from colonnade.kinds.split.head_strategy import label_targets, party_rows
from colonnade.kinds.split.model import SplitModel, strategy_named
from colonnade.models.planner import Roster
from colonnade.privacy.noise.local_mechanisms import randomised_response
from colonnade.privacy.releases import RandomisedResponse
from colonnade.protocols.task import own_noise
from colonnade.randomness import Stream
from colonnade.tables import Table

_MOST_EPOCHS = 5
"""Of which slopes are kept: the first ones, when predictions still know little, point to labels best."""


def slopes_by_epoch(said: Sequence[tuple[str, NDArray[np.int64], Matrix, Matrix]], rows: int) -> Matrix:
    """The slopes that came back to the first party in the first epochs, (epochs, people, numbers).

    ``said`` is of each batch and party who was in it, what was told and what came back; everybody is in one batch of an
    epoch.
    """
    own = [(places, slopes) for party, places, _, slopes in said if party == said[0][0]]
    order = np.concatenate([places for places, _ in own]).reshape(-1, rows)
    slopes = np.vstack([found for _, found in own]).reshape(*order.shape, -1)
    return np.take_along_axis(slopes, np.argsort(order)[:, :, None], axis=1)[:_MOST_EPOCHS]


def observe_labels(
    model: SplitModel, people: Mapping[str, Table], task: EmbeddingTask, known: NDArray[np.intp], stream: Stream
) -> ReturnedGradients:
    """What the first passive party learns about everybody's label while encoders learn from these people."""
    labels = label_targets(model, task.active, people[task.active], task.classes)
    event = task.labels_event
    told = labels if task.label_odds is None else randomised_response(labels, task.classes, task.label_odds, stream)
    slopes: Matrix = np.eye(task.classes)[told]
    if task.training == "rounds":
        slopes = slopes_by_epoch(_train_rounds(model, people, told, task, stream), task.rows)
    epsilon = event.epsilon if isinstance(event, RandomisedResponse) else None
    itself = task.training == "labels"
    return ReturnedGradients(
        slopes, np.asarray(labels, dtype=np.intp), known, task.classes, epsilon, labels_told=itself
    )


def observe_slopes(
    model: SplitModel, people: Mapping[str, Table], roster: Roster, known: NDArray[np.intp], stream: Stream
) -> ReturnedGradients:
    """What the first passive party gets back while encoders and head learn together as published."""
    said: list[Any] = []
    model.watch = lambda *one: said.append(one)
    model.simulate(people, roster, stream)
    active = model.design_.owner
    labels = label_targets(model, active, people[active], model.plan_["classes"])
    slopes = slopes_by_epoch(said, next(iter(people.values())).rows)
    return ReturnedGradients(slopes, np.asarray(labels, dtype=np.intp), known, model.plan_["classes"])


def _train_rounds(
    model: SplitModel, people: Mapping[str, Table], told: Codes, task: EmbeddingTask, stream: Stream
) -> list[tuple[str, NDArray[np.int64], Matrix, Matrix]]:
    """The rounds of the first epochs, as the parties play them."""
    sides = {}
    for party in task.passives:
        encoder = model.encoder_of(party, people[party], task, int(stream.uint64(1)[0]))
        assert encoder is not None  # noqa: S101 - for the type checker; a passive party has columns
        sides[party] = EmbeddingSide(
            RowEncoder(encoder, party_rows(model, party, people[party])),
            party,
            task,
            lambda name, size, count: own_noise(name, size).draw((count,), stream),
        )
    return list(play_rounds(sides, told, task, min(task.epochs, _MOST_EPOCHS)))


class SplitViews(ModelViews):
    """What split networks show of one person, by the way to their head."""

    def observe(self, model: SplitModel, party: str, table: Table, seed: int, releases: int) -> tuple[Matrix, str, str]:
        """A party's embeddings under the noise of their releases, or as the published sums hold them."""
        factor, deviation, what, needs = _release_of(model, party)
        embedded = factor * np.asarray(model.embedded(party, table))
        noise = np.random.default_rng(seed).normal(size=embedded.shape)
        if releases > 1:
            most = int(model.plan_.get("epochs", 0)) or 1 if model.head_ == "published" else 1
            if releases > most:
                raise StudyError(f"embeddings were told {most} times in this model, so no more can be averaged [ST007]")
            deviation, what = deviation / math.sqrt(releases), f"{what}, averaged over {releases} releases,"
        return embedded + deviation * noise, what, needs

    def near(self, model: SplitModel, party: str, people: Mapping[str, Table], seed: int) -> Matrix:
        """A party's embeddings under their noise; only a classifier has classes to be near to."""
        if getattr(model, "classes_", None) is None:
            return super().near(model, party, people, seed)
        if model.head_ == "committee":
            raise StudyError(
                f"{party} tells nobody anything about single people, only shares: attack the scores [ST009]"
            )
        return observe_people(model, party, people, seed).numbers

    def check_kept(self, model: SplitModel, needed: Iterable[str]) -> None:
        """Every party of which rows are embedded must have given its encoder."""
        encoded = [party for party in needed if model.feature_schema(party) is not None]
        if missing := [party for party in encoded if party not in model.encoders_]:
            raise StudyError(
                f"the attack needs what {', '.join(missing)} kept of the model: give each party's kept "
                "file by --kept [ST012]"
            )

    def has_public_scores(self, model: SplitModel) -> bool:
        """Encoders that were drawn without the table tell nothing of it; those that learned stay with their parties."""
        return strategy_named(model.head_).training_of(model) == "none"

    def fresh(self, model: SplitModel) -> Any:
        """The model not fitted; encoders that learned nothing from anybody are kept: whoever attacks may know them."""
        again = super().fresh(model)
        if model.encoders_ and self.has_public_scores(model):
            said = model.parameters_["encoders"] or {}
            # An encoder by itself names no clip: of those that have one the specification stays.
            clipped = {party for party, each in said.items() if isinstance(each, Mapping) and "clip" in each}
            again.encoders = said | {party: each for party, each in model.encoders_.items() if party not in clipped}
        return again

    def gradients(
        self, model: SplitModel, people: Mapping[str, Table], known: int, seed: int, stream: Stream
    ) -> ReturnedGradients:
        """Slopes of the algorithm as published, or what a teacher answers about labels."""
        again = self.fresh(model)
        rows = next(iter(people.values())).rows
        roster = Roster(dict(model.schemas_), model.privacy_.trust)
        task = again.planned(roster, rows)
        places = np.random.default_rng(seed).permutation(rows)[:known]
        if task.scheme == "published" and task.classes:
            return observe_slopes(again, people, roster, places, stream)
        if task.scheme != "embeddings" or task.training == "none":
            raise StudyError(NO_SLOPES)
        return observe_labels(again, people, task, places, stream)


SPLIT_VIEWS = SplitViews()


def _release_of(model: SplitModel, party: str) -> tuple[float, float, str, str]:
    """A factor and a deviation of noise, under which embeddings of a party can be seen, what that is, what it needs."""
    if model.head_ == "committee":
        plan = model.plan_
        joint = JointEmbeddings(tuple(plan["widths"].items()), plan["active"], plan["classes"])
        # Who knows everybody else subtracts them: left is one row, of which the products with its label are a copy.
        needs = "the published sums, the embeddings of everybody else that are in them, the person's label"
        return joint.weight, model.noise_std_, "published sums", needs
    if (deviation := model.plan_.get("deviations", {}).get(party)) is None:
        raise StudyError(f"{party} tells nobody anything about single people, so there is nothing to invert [ST010]")
    return 1.0, float(deviation), "noised embeddings" if deviation else "unprotected embeddings", ""
