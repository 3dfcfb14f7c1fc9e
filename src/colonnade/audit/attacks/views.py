"""What an attacker sees of people through a model, from the model itself and the people's tables.

Any model that scores people shows their exact scores. A kind whose model shows something else, such as a split network
that tells embeddings, says so in its row of the registry (``views``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from colonnade.errors import StudyError
from colonnade.models import registry
from colonnade.models.design import split_label
from colonnade.randomness import Stream
from colonnade.tables import Table

Matrix = NDArray[np.float64]
See = Callable[[Any, Mapping[str, Table]], Matrix]
NO_SLOPES = (
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


class ModelViews:
    """What models of a kind show of one person; here of those that show nothing but scores."""

    def told(self, model: Any, party: str, table: Table, seed: int, releases: int) -> tuple[Matrix, str, str] | None:
        """What left a party about each person, what that is, what it needs; ``None`` where nothing did but scores."""
        return None

    def near(self, model: Any, party: str, people: Mapping[str, Table], seed: int) -> Matrix:
        """What a party tells about each person, where an attacker has no scores."""
        raise StudyError("only of split classifiers something else than scores can be seen [ST008]")

    def check_kept(self, model: Any, needed: Iterable[str]) -> None:
        """Raise an error unless the model has what these parties keep of it."""

    def published(self, model: Any) -> bool:
        """Whether scores need nothing but what was published."""
        return bool(getattr(model, "has_public_weights", True))

    def fresh(self, model: Any) -> Any:
        """A model with the parameters that this one was fitted with, not fitted."""
        return type(model)(**model.parameters_)

    def returned(self, model: Any, people: Mapping[str, Table], known: int, seed: int, stream: Stream) -> Returned:
        """What is told about labels while a model like this one is learned."""
        raise StudyError(NO_SLOPES)


_SCORES_ALONE = ModelViews()


def views_of(model: Any) -> ModelViews:
    """What models of this kind show, or of the first kind that its class derives from and that says so."""
    known = {row.kind: row for row in registry.rows()}
    for kind in dict.fromkeys(getattr(cls, "kind", None) for cls in type(model).__mro__):
        if kind in known and (found := registry.part(kind, "views")) is not None:
            views: ModelViews = found
            return views
    return _SCORES_ALONE


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
    told = None if scores else views_of(model).told(model, party, people[party], seed, releases)
    if told is None:
        return Seen(np.asarray(model.scores(people)), columns, "exact scores")
    numbers, what, needs = told
    return Seen(numbers, columns, what, needs)


def nearness_of(party: str, seed: int = 0) -> See:
    """What shadow models are asked where an attacker has no scores, but what a party tells about each person.

    It is how much nearer that is to the mean of the person's class than to those of other classes.
    """

    def see(model: Any, people: Mapping[str, Table]) -> Matrix:
        return nearness(views_of(model).near(model, party, people, next(coins)), model.label_of(people))

    coins = count(seed)  # each model's noise is its own
    return see


def with_kept(model: Any, paths: Iterable[Path], needed: Iterable[str] = ()) -> Any:
    """The model with what parties keep of it, such as their encoders: an attacker may have these too.

    ``needed`` are parties without whose encoders an attack cannot begin.
    """
    for path in paths:
        if not hasattr(model, "load_kept"):
            raise StudyError(f"nobody keeps anything of a {type(model).__name__}, so --kept has no use [ST011]")
        model.load_kept(path)
    views_of(model).check_kept(model, needed)
    return model


def promised(model: Any) -> Promise | None:
    """What is proven against whoever has what the model published; ``None`` where scores need more than that."""
    if not views_of(model).published(model):
        return None
    return Promise.of(model.privacy_, model.recipient or "analyst")


def returned_by(
    model: Any, people: Mapping[str, Table], known: int, seed: int = 0, *, stream: Stream | None = None
) -> Returned:
    """What is told about labels while a model like this one is learned from these people; some labels are known.

    ``seed`` says whose; noise and encoders come from ``stream``, a fresh one unless it is given.
    """
    return views_of(model).returned(model, people, known, seed, stream or Stream.fresh())


def _columns(model: Any, party: str, table: Table) -> Matrix:
    """A party's encoded columns without the label."""
    owner, column = split_label(model.label_, tuple(model.schemas_))
    return (table.without([column]) if party == owner else table).unclipped().matrix()
