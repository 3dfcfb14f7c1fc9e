"""What an attacker sees of people through a model, from the model itself and the people's tables.

A split network that tells embeddings shows them, with their noise; any other model that scores people shows their exact
scores. Slopes come back only where encoders learn together with the party that has the label.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.attacks.inversion import Views
from colonnade.audit.attacks.labels import Returned
from colonnade.audit.attacks.odds import nearness
from colonnade.audit.attacks.promises import Promise
from colonnade.audit.attacks.shadows import See, fresh
from colonnade.audit.attacks.slopes import returned_slopes, told_about_labels
from colonnade.errors import StudyError
from colonnade.models.federation import Roster
from colonnade.models.regression.design import split_label
from colonnade.models.split import choice
from colonnade.models.split.base import SplitModel
from colonnade.models.split.committee import Joint
from colonnade.protocols.adaptive.task import Adaptive
from colonnade.protocols.embeddings.task import Embeddings
from colonnade.randomness import Stream
from colonnade.tables import Table

Matrix = NDArray[np.float64]
_NO_SLOPES = (
    "nobody is told anything about single labels while this model is learned, so there is nothing to guess them from: "
    "the attack is for split networks whose encoders learn with the party that has the label [ST005]"
)


@dataclass(frozen=True)
class Seen:
    """What is seen of each person, and the columns behind it as the party encodes them.

    ``what`` is a name for what is seen, and ``needs`` what an attacker must have to see it.
    """

    numbers: Matrix
    columns: Matrix
    what: str
    needs: str = ""

    def split(self, attacked: NDArray[np.bool_]) -> Views:
        """For an attack on some of the people, by means of the others."""
        known = ~attacked
        return Views(
            self.numbers[known],
            self.columns[known],
            self.numbers[attacked],
            self.columns[attacked],
            self.what,
            self.needs,
        )


def seen_of(
    model: Any,
    party: str,
    people: Mapping[str, Table],
    seed: int = 0,
    *,
    scores: bool = False,
    releases: int = 1,
) -> Seen:
    """What an attacker sees of a party's columns: what left the party about each person, or exact scores of them.

    Of a split network that is what it tells, or the sums that a committee published; of other models, and with
    ``scores``, it is the answer to a question about the person. An embedding that was told in many epochs by an encoder
    that hardly changed is averaged over as many ``releases``, and so is its noise.
    """
    if not hasattr(model, "scores"):
        raise StudyError(f"a {type(model).__name__} shows nothing of one person, so there is nothing to invert [ST006]")
    columns = _columns(model, party, people[party])
    if scores or not isinstance(model, SplitModel):
        return Seen(np.asarray(model.scores(people)), columns, "exact scores")
    factor, deviation, what, needs = _told(model, party)
    told = factor * np.asarray(model.embedded(party, people[party]))
    noise = np.random.default_rng(seed).normal(size=told.shape)
    if releases > 1:
        most = int(model.plan_.get("epochs", 0)) or 1 if model.head_ == "published" else 1
        if releases > most:
            raise StudyError(f"embeddings were told {most} times in this model, so no more can be averaged [ST007]")
        deviation, what = deviation / math.sqrt(releases), f"{what}, averaged over {releases} releases,"
    return Seen(told + deviation * noise, columns, what, needs)


def nearness_of(party: str, seed: int = 0) -> See:
    """What shadow models are asked where an attacker has no scores, but what a party tells about each person.

    It is how much nearer that is to the mean of the person's class than to those of other classes.
    """

    def see(model: Any, people: Mapping[str, Table]) -> Matrix:
        if not isinstance(model, SplitModel) or getattr(model, "classes_", None) is None:
            raise StudyError("only of split classifiers something else than scores can be seen [ST008]")
        if model.head_ == "committee":
            raise StudyError(
                f"{party} tells nobody anything about single people, only shares: attack the scores [ST009]"
            )
        return nearness(seen_of(model, party, people, next(coins)).numbers, model.label_of(people))

    coins = count(seed)  # each model's noise is its own
    return see


def _told(model: SplitModel, party: str) -> tuple[float, float, str, str]:
    """A factor and a deviation of noise, under which embeddings of a party can be seen, what that is, what it needs."""
    if model.head_ == "committee":
        plan = model.plan_
        joint = Joint(tuple(plan["widths"].items()), plan["active"], plan["classes"])
        # Who knows everybody else subtracts them: left is one row, of which the products with its label are a copy.
        needs = "the published sums, the embeddings of everybody else that are in them, the person's label"
        return joint.weight, model.noise_std_, "published sums", needs
    if (deviation := model.plan_.get("deviations", {}).get(party)) is None:
        raise StudyError(f"{party} tells nobody anything about single people, so there is nothing to invert [ST010]")
    return 1.0, float(deviation), "noised embeddings" if deviation else "unprotected embeddings", ""


def with_kept(model: Any, paths: Iterable[Path], needed: Iterable[str] = ()) -> Any:
    """The model with what parties keep of it, such as their encoders: an attacker may have these too.

    ``needed`` are parties without whose encoders an attack cannot begin.
    """
    for path in paths:
        if not hasattr(model, "load_kept"):
            raise StudyError(f"nobody keeps anything of a {type(model).__name__}, so --kept has no use [ST011]")
        model.load_kept(path)
    if isinstance(model, SplitModel):
        encoded = [party for party in needed if model.feature_schema(party) is not None]
        if missing := [party for party in encoded if party not in model.encoders_]:
            raise StudyError(
                f"the attack needs what {', '.join(missing)} kept of the model: give each party's kept "
                "file by --kept [ST012]"
            )
    return model


def promised(model: Any) -> Promise | None:
    """What is proven against whoever has what the model published; ``None`` where scores need more than that."""
    if isinstance(model, SplitModel):
        # Encoders that were drawn without the table tell nothing of it; those that learned stay with their parties.
        published = choice.named(model.head_).trained(model) == "none"
    else:
        published = getattr(model, "has_public_weights", True)
    if not published:
        return None
    return Promise.of(model.privacy_, model.recipient or "analyst")


def returned_by(
    model: Any, people: Mapping[str, Table], known: int, seed: int = 0, *, stream: Stream | None = None
) -> Returned:
    """What is told about labels while a model like this one is learned from these people; some labels are known.

    ``seed`` says whose; noise and encoders come from ``stream``, a fresh one unless it is given.
    """
    if not isinstance(model, SplitModel):
        raise StudyError(_NO_SLOPES)
    again, coins = fresh(model), stream or Stream.fresh()
    rows = next(iter(people.values())).rows
    roster = Roster(dict(model.schemas_), model.privacy_.trust)
    task = again.planned(roster, rows)
    places = np.random.default_rng(seed).permutation(rows)[:known]
    if isinstance(task, Adaptive) and task.classes:
        return returned_slopes(again, people, roster, places, coins)
    if not isinstance(task, Embeddings) or task.training == "none":
        raise StudyError(_NO_SLOPES)
    return told_about_labels(again, people, task, places, coins)


def _columns(model: Any, party: str, table: Table) -> Matrix:
    """A party's encoded columns without the label."""
    owner, column = split_label(model.label_, tuple(model.schemas_))
    return (table.without([column]) if party == owner else table).unclipped().matrix()
