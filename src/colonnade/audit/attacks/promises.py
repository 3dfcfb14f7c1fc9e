"""What a privacy statement leaves to any attack: the most hits at each rate of false alarms, the best accuracy.

Who is attacked is either among the people of a table or was replaced by somebody else, so the relation is *replace one
person*. Where the promised curve is delta(epsilon), an attack with false alarms f finds at most
e^epsilon f + delta(epsilon) of the members, and at most 1 - e^-epsilon (1 - f - delta(epsilon)): the same for being
wrong about members. At epsilon 0, hits exceed false alarms by at most delta(0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.errors import PrivacyError
from colonnade.privacy import Statement, accountant
from colonnade.privacy.events import view
from colonnade.privacy.observers import Adjacency, Observer

Vector = NDArray[np.float64]
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

    @classmethod
    def simple(cls, epsilon: float, delta: float = 0.0, observer: str = "anybody") -> Promise:
        """One epsilon and delta."""
        if not (epsilon >= 0 and 0 <= delta <= 1):
            raise PrivacyError("a promise has an epsilon of at least 0 and a delta from 0 to 1 [PR001]")
        return cls(observer, (float(epsilon),), (float(delta),))

    def hits(self, false_alarms: ArrayLike) -> Vector:
        """The most members that any attack can find, on average, at these rates of false alarms."""
        alarms = np.asarray(false_alarms, dtype=np.float64)[..., None]
        epsilons, deltas = np.array(self.epsilons), np.array(self.deltas)
        above = np.exp(epsilons) * alarms + deltas
        below = 1 - np.exp(-epsilons) * (1 - alarms - deltas)
        bound: Vector = np.minimum(1.0, np.minimum(above, below).min(axis=-1))
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
    chances: Vector = np.atleast_2d(np.asarray(prior, dtype=np.float64)).max(axis=1)
    odds = math.exp(min(epsilon, 700.0))
    return float(np.mean(chances * odds / (chances * odds + 1 - chances)))
