"""Who was among the people that a model was learned from? The likelihood-ratio attack (Carlini et al. 2022).

For each person the attacker knows how what it sees of that person is spread over models that were learned with the
person, and over models that were learned without: both spreads are measured on shadow models, and taken as normal.
What it sees of the model under attack is then likelier under one or under the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.attacks.promises import Promise
from colonnade.audit.attacks.rates import Rates
from colonnade.errors import DataError

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

FEWEST = 8
"""Shadow models, where half of them know a person; more where members and others are not equally many."""
_ON_EACH_SIDE = 3  # one of them may be left out
_OWN_SPREAD = 32  # so many models on each side, and a person has a spread of its own
_FLOOR = 1e-12


@dataclass(frozen=True)
class Shadows:
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

    def without(self, turn: int) -> Shadows:
        """The models that are neither this one nor its partner."""
        rest = np.arange(len(self)) // 2 != turn // 2
        return Shadows(self.seen[rest], self.inside[rest])


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
            "this_model": None if self.one is None else self.one.to_dict(),
            "alike": self.alike.to_dict(),
            "promise": None if self.promise is None else self.promise.to_dict(rare),
        }


def infer_membership(
    shadows: Shadows,
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


def likelihood_ratios(target: Array, shadows: Shadows, *, offline: bool = False) -> Array:
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


def _each_in_turn(shadows: Shadows, offline: bool) -> tuple[Array, Array]:
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
