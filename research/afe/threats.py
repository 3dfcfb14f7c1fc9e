"""Attacks on every way to a head: who was among the people, and can a half of a picture be recovered?

All ways learn from the same few people, so that what they remember of each is as much as it can be, and all networks
take the same fast steps. The decoder and the shadow models are those of ``colonnade audit``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from colonnade.audit.attacks.inversion import Inversion, InversionData, Kind, invert
from colonnade.audit.attacks.membership import Membership, infer_membership, log_odds
from colonnade.audit.attacks.views import draw_members, observe_people, shadow_models
from colonnade.kinds.split.model import SplitClassifier
from research.afe import ours, published, settings
from research.afe.cases import Case, Matrix, People, Places
from research.afe.published import Learned, Mode
from research.reproduce.chance import stream


class Way(StrEnum):
    """What is attacked."""

    UNPROTECTED = "unprotected"
    VANILLA = "vanilla"
    PUBLISHED = "VFL-AFE"
    TOLD = "Colonnade, embeddings told (AFE-R)"
    COMMITTEE = "Colonnade, committee at epsilon 1"
    LOOSE = "Colonnade, committee at epsilon 8"


class Seen(StrEnum):
    """What is inverted, of which way; whatever a committee has to do with is at epsilon 8."""

    EXACT = "unprotected: exact embeddings"
    VANILLA = "vanilla: noised embeddings"
    PUBLISHED = "VFL-AFE: noised embeddings"
    TOLD = "Colonnade, embeddings told (AFE-R): noised embeddings"
    SUMS = "Colonnade, committee: its published sums, less all other people"
    CLASS = "Colonnade, committee: the predicted class of somebody asked about"
    SCORES = "Colonnade, committee: exact scores of somebody asked about"


@dataclass(frozen=True)
class _AsPublished:
    learned: Learned
    seed: int

    def scores(self, people: People) -> Matrix:
        return self.learned.scores(people.parts, self.seed + 1)

    def seen(self, what: Seen, party: str, people: People) -> Matrix:
        return self.learned.shown(party, people.parts[party], self.seed + people.rows)


@dataclass(frozen=True)
class _Ours:
    model: SplitClassifier
    seed: int

    def scores(self, people: People) -> Matrix:
        return ours.scores(self.model, people)

    def seen(self, what: Seen, party: str, people: People) -> Matrix:
        if what is Seen.SUMS:
            # Whoever knows all others subtracts them: what is left is one person's row, under the noise of the sums.
            return observe_people(self.model, party, people.tables, self.seed + people.rows).numbers
        if what in (Seen.CLASS, Seen.SCORES):
            scores = self.scores(people)
            return scores if what is Seen.SCORES else np.eye(scores.shape[1])[scores.argmax(axis=1)]
        coins = stream(self.seed, "seen", people.rows)
        return ours.seen(self.model, party, people.tables[party], self.model.plan_["deviations"][party], coins)


BY = {
    Seen.EXACT: Way.UNPROTECTED,
    Seen.VANILLA: Way.VANILLA,
    Seen.PUBLISHED: Way.PUBLISHED,
    Seen.TOLD: Way.TOLD,
    Seen.SUMS: Way.LOOSE,
    Seen.CLASS: Way.LOOSE,
    Seen.SCORES: Way.LOOSE,
}
"""Whose model shows it."""
OURS = (Way.TOLD, Way.COMMITTEE, Way.LOOSE)
_BATCH = 32  # many steps: a network that learns few people by heart
_MODES = {Way.UNPROTECTED: Mode.UNPROTECTED, Way.VANILLA: Mode.VANILLA, Way.PUBLISHED: Mode.BOTH}


def fitted(way: Way, case: Case, people: People, seed: int, epochs: int) -> _AsPublished | _Ours:
    """One way to a head, fitted to these people."""
    if way in _MODES:
        learned = published.learn(case, _MODES[way], seed, people=people, epochs=epochs, batch=_BATCH)
        return _AsPublished(learned, seed)
    if way is Way.TOLD:
        return _Ours(ours.told(case, seed, people=people), seed)
    epsilon = 1.0 if way is Way.COMMITTEE else settings.OURS_EPSILON
    return _Ours(ours.committee(case, epsilon, seed, people=people), seed)


def membership(way: Way, case: Case, size: int, models: int, epochs: int, seed: int) -> Membership:
    """The likelihood-ratio attack: each of ``models`` knows ``size`` of twice as many people."""
    pool = case.train.take(np.arange(2 * size))
    onehot = np.eye(case.classes)[pool.labels]

    def fit(places: Places) -> Matrix:
        found = fitted(way, case, pool.take(places), seed + int(places[:8].sum()), epochs)
        return log_odds(found.scores(pool), onehot)

    return infer_membership(shadow_models(fit, draw_members(pool.rows, size, models, np.random.default_rng(seed))))


def inversion(
    what: Seen, case: Case, size: int, attacked: int, epochs: int, seed: int, *, decoding: int = 40
) -> Inversion:
    """A decoder of what is seen of the first party's columns, trained on as many others as the model learned from.

    Those attacked were learned from. A committee's answers are those that it would give if they were asked about again.
    """
    party = case.passives[0]
    found = fitted(BY[what], case, case.train.take(np.arange(size)), seed, epochs)
    others = case.train.take(np.arange(size, min(2 * size, case.train.rows)))
    people = case.train.take(np.arange(attacked))
    views = InversionData(
        found.seen(what, party, others),
        others.parts[party],
        found.seen(what, party, people),
        people.parts[party],
        what,
    )
    kind: Kind = "ridge" if what is Seen.CLASS else "auto"  # of a class nothing beats the mean picture
    return invert(views, kind, shape=case.shapes[party], span=1.0, epochs=decoding, seed=seed)
