"""Who was among the people that a model was learned from: rates of an attack, and what a promise leaves to any.

Whose label is which? Labels from the slopes that the party with the label returns to the others.

A slope says how the loss falls with a person's embedding, and points towards the person's class. So slopes fall into as
many directions as there are classes; a few people whose labels are known say which direction is which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import betaincinv, logsumexp
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from colonnade.errors import DataError, StudyError
from colonnade.privacy import Statement, accountant
from colonnade.privacy.events import view
from colonnade.privacy.observers import Adjacency, Observer
from colonnade.tables import Table

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Interval = tuple[float, float]

CONFIDENCE = 0.95
RARE = 0.001
"""The rate of false alarms at which true ones are counted: an attack matters if it is sure of a few."""
_NORMAL_95 = 1.959964
_POINTS = 400


@dataclass(frozen=True)
class Rates:
    """An attack that tells members from others by a score, which is higher for members.

    ``accuracy`` is balanced, at a threshold that was chosen on other people. ``hits`` are the members found with at
    most ``rare`` of the others taken for members; with few others, that is none of them. Intervals hold 95 % of the
    time over the people who were drawn; they say nothing about the luck of one model.
    """

    members: int
    others: int
    auc: float
    auc_interval: Interval
    accuracy: float
    accuracy_interval: Interval
    rare: float
    false_alarms: int
    hits: float
    hits_interval: Interval
    roc: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, members: Array, others: Array, *, rare: float = RARE, seed: int = 0) -> Rates:
        """The rates of these scores."""
        if min(len(members), len(others)) < 4:
            raise DataError("an attack needs at least four members and four other people to be judged by [DA019]")
        if not (np.isfinite(members).all() and np.isfinite(others).all()):
            raise DataError("the scores of an attack must be finite numbers [DA020]")
        area, deviation = area_and_deviation(members, others)
        right = _right(members, others, np.random.default_rng(seed))
        allowed = math.floor(rare * len(others))
        found = int(np.sum(members > np.sort(others)[::-1][allowed])) if allowed < len(others) else len(members)
        return cls(
            len(members),
            len(others),
            area,
            (max(0.0, area - _NORMAL_95 * deviation), min(1.0, area + _NORMAL_95 * deviation)),
            (right[0] / len(members) + right[1] / len(others)) / 2,
            _balanced_accuracy(right, (len(members), len(others))),
            rare,
            allowed,
            found / len(members),
            clopper_pearson(found, len(members)),
            _thin_out(*curve(members, others)),
        )


def clopper_pearson(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """An interval that holds the true rate with this confidence, whatever it is."""
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, tail))
    high = 1.0 if successes == trials else float(betaincinv(successes + 1, trials - successes, 1 - tail))
    return low, high


def curve(members: Array, others: Array) -> tuple[Array, Array]:
    """Rates of false and of true alarms at every threshold, from (0, 0) to (1, 1); both only rise."""
    cuts = np.unique(np.concatenate([members, others]))[::-1]
    hits = 1 - np.searchsorted(np.sort(members), cuts, "left") / len(members)
    alarms = 1 - np.searchsorted(np.sort(others), cuts, "left") / len(others)
    return np.concatenate([[0.0], alarms]), np.concatenate([[0.0], hits])


def _right(members: Array, others: Array, draw: np.random.Generator) -> tuple[int, int]:
    """How many members and others are told rightly, each half at the best threshold of the other half."""
    halves = [np.array_split(scores[draw.permutation(len(scores))], 2) for scores in (members, others)]
    right = [0, 0]
    for tested in (0, 1):
        cut = _threshold(*(half[1 - tested] for half in halves))
        right[0] += int(np.sum(halves[0][tested] >= cut))
        right[1] += int(np.sum(halves[1][tested] < cut))
    return right[0], right[1]


def _threshold(members: Array, others: Array) -> float:
    alarms, hits = curve(members, others)
    cuts = np.unique(np.concatenate([members, others]))[::-1]
    best = int(np.argmax(hits - alarms))
    if best == 0:
        return math.inf
    return float(cuts[best - 1] if best == len(cuts) else (cuts[best - 1] + cuts[best]) / 2)


def _balanced_accuracy(right: tuple[int, int], of: tuple[int, int]) -> Interval:
    """Both rates are within their intervals at once, so their mean is within the mean of the intervals."""
    each = [clopper_pearson(count, total, (1 + CONFIDENCE) / 2) for count, total in zip(right, of, strict=True)]
    return (each[0][0] + each[1][0]) / 2, (each[0][1] + each[1][1]) / 2


def _thin_out(alarms: Array, hits: Array) -> tuple[tuple[float, float], ...]:
    """At most some hundred points of a curve, half of them evenly spaced and half towards rare false alarms."""
    if len(alarms) > _POINTS:
        low = max(float(alarms[alarms > 0].min()), 1e-9)
        wanted = np.concatenate([np.linspace(0, 1, _POINTS // 2), np.geomspace(low, 1, _POINTS // 2)])
        kept = np.unique(np.concatenate([[0], np.searchsorted(alarms, wanted, "right") - 1, [len(alarms) - 1]]))
        alarms, hits = alarms[kept], hits[kept]
    return tuple(zip(alarms.tolist(), hits.tolist(), strict=True))


def area_and_deviation(positive: Array, negative: Array) -> tuple[float, float]:
    """The area under the curve and its standard deviation (DeLong et al. 1988); ties count half."""
    above, below = np.sort(positive), np.sort(negative)
    won = (np.searchsorted(below, positive, "left") + np.searchsorted(below, positive, "right")) / (2 * len(below))
    lost = 1 - (np.searchsorted(above, negative, "left") + np.searchsorted(above, negative, "right")) / (2 * len(above))
    variance = won.var(ddof=1) / len(won) + lost.var(ddof=1) / len(lost)
    return float(won.mean()), math.sqrt(max(float(variance), 0.25 / (len(won) * len(lost))))


EPSILONS = (*np.linspace(0, 4, 81).tolist(), *np.linspace(4.25, 20, 64).tolist())


@dataclass(frozen=True)
class Promise:
    """A proven curve about replacing one person, as one observer sees a study."""

    observer: str
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    @classmethod
    def of(cls, statement: Statement, observer: Observer | str = "analyst") -> Promise | None:
        """The promise against an observer, by default whoever has what was published.

        ``None`` where nothing is proven, and where the observer sees nothing: who attacks has something that the
        statement does not speak of.
        """
        seen = Observer.parse(observer) if isinstance(observer, str) else observer
        statement.epsilon(seen)  # raises an error for a name that is not in the study
        relation = statement.trust.adjacency(seen)
        held = Adjacency.REPLACE if relation is Adjacency.ADD_REMOVE else relation
        views = [view(event, seen, statement.trust, held) for event in statement.events]
        if any(each.reason or each.unproven for each in views) or all(each.empty for each in views):
            return None
        deltas = [float(delta) for delta in accountant.profile(views, EPSILONS)]
        return None if min(deltas) >= 1 else cls(seen.label, EPSILONS, tuple(deltas))

    def hits(self, false_alarms: ArrayLike) -> Array:
        """The most members that any attack can find, on average, at these rates of false alarms."""
        alarms = np.asarray(false_alarms, dtype=np.float64)[..., None]
        epsilons, deltas = np.array(self.epsilons), np.array(self.deltas)
        above = np.exp(epsilons) * alarms + deltas
        below = 1 - np.exp(-epsilons) * (1 - alarms - deltas)
        bound: Array = np.minimum(1.0, np.minimum(above, below).min(axis=-1))
        return bound

    @property
    def accuracy(self) -> float:
        """The best balanced accuracy of any attack."""
        factors = [math.exp(epsilon) for epsilon in self.epsilons]
        return min(1.0, *((f + delta) / (f + 1) for f, delta in zip(factors, self.deltas, strict=True)))

    def to_dict(self, rare: float) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"observer": self.observer, "accuracy": self.accuracy, "hits": float(self.hits(rare)), "rare": rare}


def label_accuracy(prior: ArrayLike, epsilon: float) -> float:
    """The best accuracy, on average, of guessing labels that are told under a pure epsilon.

    ``prior`` is what the guesser believes without them: a chance of each class, for everybody or in a row for each
    person. Seeing what is told multiplies odds by e^epsilon at most.
    """
    chances: Array = np.atleast_2d(np.asarray(prior, dtype=np.float64)).max(axis=1)
    odds = math.exp(min(epsilon, 700.0))
    return float(np.mean(chances * odds / (chances * odds + 1 - chances)))


FEWEST = 8
"""Shadow models, where half of them know a person; more where members and others are not equally many."""
_ON_EACH_SIDE = 3  # one of them may be left out
_OWN_SPREAD = 32  # so many models on each side, and a person has a spread of its own
_FLOOR = 1e-12


@dataclass(frozen=True)
class ShadowModels:
    """What is seen of each person by models of the same kind: (models, people) or (models, people, numbers).

    ``inside`` says who was among the people of which model. Models 2k and 2k + 1 are partners: as far as numbers allow,
    who is in one is not in the other.
    """

    seen: Array
    inside: Flags

    def __post_init__(self) -> None:
        if self.seen.ndim not in (2, 3) or self.inside.shape != self.seen.shape[:2]:
            raise DataError("shadow models have one row each: what is seen of every person, and who was inside [DA009]")
        if not np.isfinite(self.seen).all():
            raise DataError("what is seen of people must be finite numbers [DA010]")

    def __len__(self) -> int:
        return len(self.seen)

    def check_enough(self) -> None:
        """Raise an error unless there are models enough, with and without each person."""
        check_inside(self.inside)

    def without(self, turn: int) -> ShadowModels:
        """The models that are neither this one nor its partner."""
        rest = np.arange(len(self)) // 2 != turn // 2
        return ShadowModels(self.seen[rest], self.inside[rest])


def check_inside(inside: Flags) -> None:
    """Raise an error unless so many models, with these people in each, are enough; known before any is fitted."""
    if len(inside) < FEWEST or len(inside) % 2:
        raise DataError(f"a membership attack needs an even number of shadow models, at least {FEWEST} [DA011]")
    if np.minimum(inside.sum(axis=0), (~inside).sum(axis=0)).min() < _ON_EACH_SIDE:
        raise DataError(
            f"each person must be in {_ON_EACH_SIDE} shadow models and outside {_ON_EACH_SIDE}: take "
            f"{_enough(inside)}, or as many people who are not members as members [DA012]"
        )


def _enough(inside: Flags) -> str:
    """How many models it takes if each has as many of the people as these have."""
    rarer = min(int(inside.sum()), int((~inside).sum()))
    if rarer == 0:
        return "more shadow models"
    least = -(-_ON_EACH_SIDE * inside.size // rarer)
    return f"at least {max(FEWEST, least + least % 2):,} shadow models"


@dataclass(frozen=True)
class Membership:
    """What an attack on one model found, and how it did on models that were fitted the same way.

    ``one`` is about the model under attack; ``alike`` about every shadow model in turn, by the others. One model is one
    draw of the noise, so ``alike`` says what is to be expected. ``inside`` is the share of the shadow models that knew
    a person.
    """

    one: Rates | None
    alike: Rates
    shadows: int
    inside: float
    offline: bool
    promise: Promise | None
    sees: str = "the model"

    @property
    def needed(self) -> str:
        """What the attacker needed, in one sentence."""
        part = "half" if abs(self.inside - 0.5) < 0.005 else f"{self.inside:.0%}".replace("%", " %")
        alone = f"{self.shadows * (1 - self.inside):.0f} models that it fitted in the same way without the person"
        both = f"{self.shadows} models that it fitted in the same way, {part} of which knew the person"
        return (
            f"the attacker needed {self.sees}, every column of the person it asks about, label included, other people "
            f"of the same kind, and {alone if self.offline else both}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        rare = self.alike.rare
        return {
            "attack": "membership",
            "needed": self.needed,
            "shadows": self.shadows,
            "inside": self.inside,
            "offline": self.offline,
            "this_model": None if self.one is None else asdict(self.one),
            "alike": asdict(self.alike),
            "promise": None if self.promise is None else self.promise.to_dict(rare),
        }


def infer_membership(
    shadows: ShadowModels,
    target: Array | None = None,
    member: Flags | None = None,
    *,
    offline: bool = False,
    promise: Promise | None = None,
    sees: str = "the model",
) -> Membership:
    """Attack a model by shadow models, and every shadow model by the others.

    ``target`` is what is seen of each person in the model under attack, and ``member`` the truth about it; ``sees``
    names what the attacker looks at.
    """
    shadows.check_enough()
    one = None
    if target is not None and member is not None:
        scores = likelihood_ratios(target, shadows, offline=offline)
        one = Rates.of(scores[member], scores[~member])
    inside, outside = _each_in_turn(shadows, offline)
    knew = float(shadows.inside.mean())
    return Membership(one, Rates.of(inside, outside), len(shadows), knew, offline, promise, sees)


def likelihood_ratios(target: Array, shadows: ShadowModels, *, offline: bool = False) -> Array:
    """For each person, the logarithm of how much likelier what is seen is if the person was inside.

    ``offline`` uses only models without the person: by how many deviations more is seen than they show.
    """
    if target.shape != shadows.seen.shape[1:]:
        raise DataError("the model under attack must show of each person what the shadow models show [DA013]")
    known = ~shadows.inside
    middle, spread = _normal(shadows.seen, known)
    if offline:
        if target.ndim > 1:
            raise DataError(
                "without models that knew a person, one number must be seen of each, higher for members [DA014]"
            )
        gap: Array = (target - middle) / np.sqrt(spread)
        return gap
    own, own_spread = _normal(shadows.seen, shadows.inside)
    return _likelihood(target, own, own_spread) - _likelihood(target, middle, spread)


def _each_in_turn(shadows: ShadowModels, offline: bool) -> tuple[Array, Array]:
    """Scores of those inside and outside, over all models; neither a model nor its partner is used against it."""
    inside, outside = [], []
    for turn, (seen, member) in enumerate(zip(shadows.seen, shadows.inside, strict=True)):
        scores = likelihood_ratios(seen, shadows.without(turn), offline=offline)
        inside.append(scores[member])
        outside.append(scores[~member])
    return np.concatenate(inside), np.concatenate(outside)


def _normal(seen: Array, used: Flags) -> tuple[Array, Array]:
    """Mean and variance over the models that are used for each person; one variance for all where these are few."""
    weight = used.astype(np.float64).reshape(*used.shape, *(1,) * (seen.ndim - 2))
    count = weight.sum(axis=0)
    middle = (weight * seen).sum(axis=0) / np.maximum(count, 1)
    square = (weight * (seen - middle) ** 2).sum(axis=0)
    if count.min() >= _OWN_SPREAD:
        spread = square / (count - 1)
    else:
        spread = np.broadcast_to(square.sum(axis=0) / np.maximum((count - 1).sum(axis=0), 1), square.shape)
    return middle, np.maximum(spread, _FLOOR)


def _likelihood(seen: Array, middle: Array, spread: Array) -> Array:
    each = -((seen - middle) ** 2) / (2 * spread) - np.log(spread) / 2
    summed: Array = each if each.ndim == 1 else each.sum(axis=1)
    return summed


def confidence(model: Any, people: Mapping[str, Table]) -> Array:
    """How sure a model is of each person's true label.

    Of a classifier, the log-odds of the true class; of other models with scores, the score towards the label: a
    normal law fits these better than it fits probabilities or losses.
    """
    if not (hasattr(model, "scores") and hasattr(model, "label_of")):
        raise StudyError(
            f"a {type(model).__name__} predicts nothing about a person, so there is no confidence to attack: a "
            "membership attack takes a regression, a classifier, a generalised linear model or a split network [ST003]"
        )
    scores, label = np.asarray(model.scores(people)), np.asarray(model.label_of(people))
    if getattr(model, "classes_", None) is None:
        return towards(scores[:, 0], label[:, 0])
    return log_odds(scores, label)


def log_odds(scores: Array, label: Array) -> Array:
    """The log-odds of the true class, from scores and labels of one column (two classes) or one for each class."""
    true = label[:, 0] if label.shape[1] == 1 else label.argmax(axis=1)
    chosen = np.rint(true).astype(np.intp)
    if scores.shape[1] == 1:
        odds: Array = np.where(chosen > 0, scores[:, 0], -scores[:, 0])
        return odds
    rows = np.arange(len(scores))
    others = scores.copy()
    others[rows, chosen] = -np.inf
    found: Array = scores[rows, chosen] - logsumexp(others, axis=1)
    return found


def nearness(numbers: Array, label: Array) -> Array:
    """The log-odds of the true class by distances from the means of the classes, in deviations within classes."""
    true = np.rint(label[:, 0]).astype(np.intp) if label.shape[1] == 1 else label.argmax(axis=1)
    flags = np.eye(max(2, label.shape[1]))[true]
    counts = np.maximum(flags.sum(axis=0), 1.0)[:, None]
    means = flags.T @ numbers / counts
    spread = np.maximum(np.mean((numbers - means[true]) ** 2), np.finfo(np.float64).tiny)
    squares = ((numbers[:, None, :] - means) ** 2).sum(axis=2)
    return log_odds(-squares / (2 * spread), flags)


def towards(scores: Array, label: Array) -> Array:
    """Minus the distance of a score to the label that it predicts."""
    gap: Array = -np.abs(scores - label)
    return gap


Matrix = NDArray[np.float64]
Codes = NDArray[np.intp]
_TRIES = 10


@dataclass(frozen=True)
class ReturnedGradients:
    """What was returned about each person, and the true labels as codes from 0.

    ``slopes`` is (people, numbers), or (rounds, people, numbers) where several rounds were seen. ``known`` are the
    places of people whose labels the attacker knows; it is judged by the others. ``epsilon`` is the promise about one
    label; ``None`` where labels are not protected. ``prior`` holds what anybody may believe without the slopes: a
    chance of each class for each person, by default how often each class occurs. ``labels_told`` where no slopes came
    back but labels themselves, one column for each class.
    """

    slopes: Matrix
    labels: Codes
    known: NDArray[np.intp]
    classes: int
    epsilon: float | None = None
    prior: Matrix | None = None
    labels_told: bool = False

    def __post_init__(self) -> None:
        if self.slopes.ndim not in (2, 3) or self.slopes.shape[-2] != len(self.labels):
            raise DataError("there is one slope for each person, in each round [DA005]")
        if not np.isfinite(self.slopes).all():
            raise DataError("slopes must be finite numbers [DA006]")
        if not (len(self.known) and len(np.unique(self.known)) == len(self.known) < len(self.labels)):
            raise DataError(
                "an attack on labels needs a few people whose labels are known, and others to be judged by [DA007]"
            )
        if self.labels.min() < 0 or self.labels.max() >= self.classes:
            raise DataError("labels are codes from 0, below the number of classes [DA008]")


@dataclass(frozen=True)
class LabelGuesses:
    """How often labels were guessed: by the directions of slopes alone, and by learning from the known people."""

    clusters: float
    learned: float | None
    interval: Interval
    base_rate: float
    most: float | None
    people: int
    known: int
    rounds: int
    labels_told: bool = False

    @property
    def accuracy(self) -> float:
        """That of the better attack."""
        return max(self.clusters, self.learned or 0.0)

    @property
    def needed(self) -> str:
        """What the attacker needed, in one sentence."""
        rounds = "of one round" if self.rounds == 1 else f"of {self.rounds} rounds"
        received = (
            "labels as they were told to it" if self.labels_told else f"the slopes {rounds} that it received anyway"
        )
        return f"the attacker needed {received}, and the labels of {self.known:,} people."

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"attack": "labels", "needed": self.needed, **vars(self), "accuracy": self.accuracy}


def infer_labels(returned: ReturnedGradients, *, seed: int = 0) -> LabelGuesses:
    """Guess the labels of everybody else, in two ways."""
    features = directions(returned.slopes)
    asked = np.setdiff1d(np.arange(len(returned.labels)), returned.known)
    truth = returned.labels[asked]
    by_direction = match_clusters(
        cluster_directions(features, returned.classes, seed), returned.labels, returned.known, returned.classes
    )
    right = [int(np.sum(by_direction[asked] == truth))]
    learned = _learn_labels(features, returned)
    if learned is not None:
        right.append(int(np.sum(learned[asked] == truth)))
    shares = np.bincount(truth, minlength=returned.classes) / len(truth)
    prior = shares if returned.prior is None else returned.prior[asked]
    rounds = 1 if returned.slopes.ndim == 2 else len(returned.slopes)
    return LabelGuesses(
        right[0] / len(truth),
        None if learned is None else right[1] / len(truth),
        # The better of two is reported, so each interval must hold more often.
        clopper_pearson(max(right), len(truth), 0.975),
        float(shares.max()),
        None if returned.epsilon is None else label_accuracy(prior, returned.epsilon),
        len(truth),
        len(returned.known),
        rounds,
        returned.labels_told,
    )


def directions(slopes: Matrix) -> Matrix:
    """Slopes without their length, those of all rounds side by side, and for what they are worth their lengths."""
    rounds: Sequence[Matrix] = [slopes] if slopes.ndim == 2 else list(slopes)
    parts = []
    for each in rounds:
        length = np.linalg.norm(each, axis=1, keepdims=True)
        parts.append(each / np.where(length > 0, length, 1.0))
    return np.hstack(parts)


def cluster_directions(features: Matrix, classes: int, seed: int = 0) -> Codes:
    """Groups of similar directions, as many as there are classes."""
    found = KMeans(classes, n_init=_TRIES, random_state=seed).fit_predict(features)
    return np.asarray(found, dtype=np.intp)


def match_clusters(groups: Codes, labels: Codes, known: NDArray[np.intp], classes: int) -> Codes:
    """The label of each group, one to one, that agrees with most of the known people (Hungarian method)."""
    agree = np.zeros((classes, classes))
    np.add.at(agree, (groups[known], labels[known]), 1)
    _, label = linear_sum_assignment(-agree)
    return np.asarray(label, dtype=np.intp)[groups]


def _learn_labels(features: Matrix, returned: ReturnedGradients) -> Codes | None:
    """What a classifier of directions says, learned from the known people; ``None`` if these are all of one class."""
    labels = returned.labels[returned.known]
    if len(np.unique(labels)) < 2:
        return None
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    model.fit(features[returned.known], labels)
    return np.asarray(model.predict(features), dtype=np.intp)
