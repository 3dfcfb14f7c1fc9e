"""What an attacker sees of people through a split network: embeddings with their noise, published sums, slopes.

Slopes come back only where encoders learn together with the party that has the label.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from colonnade.audit.attacks.labels import ReturnedGradients
from colonnade.audit.attacks.views import NO_SLOPES, Matrix, ModelViews, observe_people
from colonnade.errors import StudyError
from colonnade.kinds.split.attack_slopes import observe_labels, observe_slopes
from colonnade.kinds.split.committee_head import JointEmbeddings
from colonnade.kinds.split.model import SplitModel, strategy_named
from colonnade.models.planner import Roster
from colonnade.randomness import Stream
from colonnade.tables import Table


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
            again.encoders = said | {
                party: each for party, each in model.encoders_.items() if not _is_clipped(said.get(party))
            }
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


def _is_clipped(said: Any) -> bool:
    """Whether a specification names a clip, which an encoder by itself would not."""
    return isinstance(said, Mapping) and "clip" in said
