"""What an attacker sees of people through a model, and of shadow models that are fitted alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.attacks.inversion import InversionData
from colonnade.audit.attacks.membership import (
    Flags,
    Matrix,
    Promise,
    ReturnedGradients,
    ShadowModels,
    check_inside,
    confidence,
    nearness,
)
from colonnade.errors import DataError, StudyError
from colonnade.models import registry
from colonnade.models.base import Estimator
from colonnade.models.design import split_label
from colonnade.models.planner import Roster
from colonnade.protocols.roles import Progress, silent
from colonnade.randomness import Stream
from colonnade.tables import Table

See = Callable[[Any, Mapping[str, Table]], Matrix]
NO_SLOPES = (
    "nobody is told anything about single labels while this model is learned, so there is nothing to guess them from: "
    "the attack is for split networks whose encoders learn with the party that has the label [ST005]"
)


@dataclass(frozen=True)
class ObservedPeople:
    """What is seen of each person, and the columns behind it as the party encodes them.

    ``what`` is a name for what is seen, and ``needs`` what an attacker must have to see it.
    """

    numbers: Matrix
    columns: Matrix
    what: str
    needs: str = ""

    def split(self, attacked: NDArray[np.bool_]) -> InversionData:
        """For an attack on some of the people, by means of the others."""
        known = ~attacked
        return InversionData(
            self.numbers[known],
            self.columns[known],
            self.numbers[attacked],
            self.columns[attacked],
            self.what,
            self.needs,
        )


class ModelViews:
    """What models of a kind show of one person; here of those that show nothing but scores."""

    def observe(self, model: Any, party: str, table: Table, seed: int, releases: int) -> tuple[Matrix, str, str] | None:
        """What left a party about each person, what that is, what it needs; ``None`` where nothing did but scores."""
        return None

    def near(self, model: Any, party: str, people: Mapping[str, Table], seed: int) -> Matrix:
        """What a party tells about each person, where an attacker has no scores."""
        raise StudyError("only of split classifiers something else than scores can be seen [ST008]")

    def check_kept(self, model: Any, needed: Iterable[str]) -> None:
        """Raise an error unless the model has what these parties keep of it."""

    def has_public_scores(self, model: Any) -> bool:
        """Whether scores need nothing but what was published."""
        return bool(getattr(model, "has_public_weights", True))

    def fresh(self, model: Any) -> Any:
        """A model with the parameters that this one was fitted with, not fitted."""
        return type(model)(**model.parameters_)

    def gradients(
        self, model: Any, people: Mapping[str, Table], known: int, seed: int, stream: Stream
    ) -> ReturnedGradients:
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


def observe_people(
    model: Any,
    party: str,
    people: Mapping[str, Table],
    seed: int = 0,
    *,
    scores: bool = False,
    releases: int = 1,
) -> ObservedPeople:
    """What an attacker sees of a party's columns: what left the party about each person, or exact scores of them.

    Of a split network that is what it tells, or the sums that a committee published; of other models, and with
    ``scores``, it is the answer to a question about the person. An embedding that was told in many epochs by an encoder
    that hardly changed is averaged over as many ``releases``, and so is its noise.
    """
    if not hasattr(model, "scores"):
        raise StudyError(f"a {type(model).__name__} shows nothing of one person, so there is nothing to invert [ST006]")
    columns = _columns(model, party, people[party])
    told = None if scores else views_of(model).observe(model, party, people[party], seed, releases)
    if told is None:
        return ObservedPeople(np.asarray(model.scores(people)), columns, "exact scores")
    numbers, what, needs = told
    return ObservedPeople(numbers, columns, what, needs)


def nearness_to_embeddings(party: str, seed: int = 0) -> See:
    """What shadow models are asked where an attacker has no scores, but what a party tells about each person.

    It is how much nearer that is to the mean of the person's class than to those of other classes.
    """

    def see(model: Any, people: Mapping[str, Table]) -> Matrix:
        return nearness(views_of(model).near(model, party, people, next(coins)), model.label_of(people))

    coins = count(seed)  # each model's noise is its own
    return see


def attach_kept_parts(model: Any, paths: Iterable[Path], needed: Iterable[str] = ()) -> Any:
    """The model with what parties keep of it, such as their encoders: an attacker may have these too.

    ``needed`` are parties without whose encoders an attack cannot begin.
    """
    for path in paths:
        if not hasattr(model, "load_kept"):
            raise StudyError(f"nobody keeps anything of a {type(model).__name__}, so --kept has no use [ST011]")
        model.load_kept(path)
    views_of(model).check_kept(model, needed)
    return model


def read_promise(model: Any) -> Promise | None:
    """What is proven against whoever has what the model published; ``None`` where scores need more than that."""
    if not views_of(model).has_public_scores(model):
        return None
    return Promise.of(model.privacy_, model.recipient or "analyst")


def collect_gradients(
    model: Any, people: Mapping[str, Table], known: int, seed: int = 0, *, stream: Stream | None = None
) -> ReturnedGradients:
    """What is told about labels while a model like this one is learned from these people; some labels are known.

    ``seed`` says whose; noise and encoders come from ``stream``, a fresh one unless it is given.
    """
    return views_of(model).gradients(model, people, known, seed, stream or Stream.fresh())


def _columns(model: Any, party: str, table: Table) -> Matrix:
    """A party's encoded columns without the label."""
    owner, column = split_label(model.label_, tuple(model.schemas_))
    return (table.without([column]) if party == owner else table).unclipped().matrix()


Places = NDArray[np.int64]


def draw_members(people: int, size: int, models: int, draw: np.random.Generator) -> Flags:
    """Who is inside each model: ``size`` of the people, everybody nearly equally often.

    Whoever was inside least often comes first, by lot. So with twice as many people as a model has, who is in one is
    not in the next.
    """
    if not 0 < size < people:
        raise DataError(
            "a membership attack needs people who were not among the members, to fit models without each member [DA021]"
        )
    inside = np.zeros((models, people), dtype=np.bool_)
    often = np.zeros(people)
    for model in inside:
        chosen = np.argsort(often + draw.random(people))[:size]
        model[chosen] = True
        often[chosen] += 1
    return inside


def shadow_models(fit: Callable[[Places], Matrix], inside: Flags, progress: Progress = silent) -> ShadowModels:
    """What models show of everybody; ``fit`` gets the places of the people inside, and answers with what it sees.

    Whether there are models enough for an attack is found out before the first is fitted.
    """
    check_inside(inside)
    seen = []
    for number, model in enumerate(inside):
        progress("shadows", number, len(inside))
        seen.append(fit(np.flatnonzero(model)))
    progress("shadows", len(inside), len(inside))
    return ShadowModels(np.stack(seen), inside)


def fit_shadows(
    model: Estimator,
    pool: Mapping[str, Table],
    size: int,
    models: int,
    *,
    seed: int,
    see: See = confidence,
    progress: Progress = silent,
    stream: Stream | None = None,
) -> ShadowModels:
    """Shadow models of a fitted model, each simulated with ``size`` people of the pool, and what they show of all.

    The rows of the pool's tables must be the same people in the same order. ``seed`` says who is in which model; noise
    comes from ``stream``, a fresh one unless it is given.
    """
    roster = Roster(dict(model.schemas_), model.privacy_.trust)
    task, noise = plan_shadows(model, roster), stream or Stream.fresh()
    draw = np.random.default_rng(seed)
    inside = draw_members(next(iter(pool.values())).rows, size, models, draw)

    def fit(places: Places) -> Matrix:
        order = draw.permutation(places)  # batches may follow the order, which must not tell who was left out
        some = {party: table.take_rows(order) for party, table in pool.items()}
        return see(views_of(model).fresh(model).simulate(some, roster, noise, task=task), pool)

    return shadow_models(fit, inside, progress)


def plan_shadows(model: Estimator, roster: Roster) -> Any:
    """The task of a model, planned once for all; ``None`` where it depends on the number of rows of a table."""
    try:
        return views_of(model).fresh(model).plan(roster)
    except StudyError:
        return None  # a model that really cannot be planned says so when it is simulated
