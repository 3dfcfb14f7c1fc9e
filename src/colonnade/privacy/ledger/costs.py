"""What views cost, as numbers that add up: enough to see quickly that a cap is kept, never to say that it is not.

Every route of the accountant that is used here depends on sums over the views, and grows with each of them. So what
many studies cost together is bounded by one short list of numbers, however many they are. The bound is at least what
the accountant finds; ``docs/theory/across-studies.md`` has the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from colonnade.privacy.accountant import Profile, Pure, Shifted, Twice, single
from colonnade.privacy.observers import Adjacency, Budget
from colonnade.privacy.releases import PURE, NonPrivate, View
from colonnade.privacy.routes.coins import GaussianMixture
from colonnade.privacy.routes.renyi import ORDERS, Renyi, view_rdp
from colonnade.privacy.routes.transfer import MOST_CLOSENESS, REACHES, Closeness, closeness_of, gaussian_square

Numbers = NDArray[np.float64]

_WANTED = (2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 192, 256, 512, 1024, 4096)
PICKED = np.array([int(np.flatnonzero(order == ORDERS)[0]) for order in _WANTED])
"""Which orders of the Renyi divergence are summed: fewer than the accountant has, which only costs precision."""
_MARGIN = 1e-9
"""Sums of up to a billion numbers are exact to far less than this part of themselves; results are raised by it."""
_SMALLER = (30.0, 10.0, 3.0, 1.0, 0.3)
_SCALARS = 5
_SQUARE, _PURE, _SAMPLER, _NOISY, _HIDDEN = range(_SCALARS)
_NEAR = slice(_SCALARS, _SCALARS + 2 * len(REACHES))
_KNOWN = slice(_NEAR.stop, _NEAR.stop + len(PICKED))
_SECRET = slice(_KNOWN.stop, _KNOWN.stop + len(PICKED))
SIZE = _SECRET.stop


def costs(views: Iterable[View]) -> Numbers:
    """The costs of one observer's views, all under one relation."""
    total = np.zeros(SIZE)
    for view in views:
        if not view.empty:
            total = total + _cost(view)
    return total


@lru_cache(maxsize=4096)
def _cost(view: View) -> Numbers:
    found = np.zeros(SIZE)
    if view.kind == NonPrivate.kind:
        found[:] = math.inf
        return found
    # Who knows the batches knows more, and being in fewer of them only costs less.
    everywhere, known = replace(view, rate=type(view.rate)(1)), replace(view, coins_known=True)
    # What is lost of delta whatever epsilon is counts here as if it grew with epsilon, which is never too little.
    found[_SAMPLER], found[_HIDDEN] = view.draws * view.tail + view.lost * view.times, float(view.secret_batch)
    if view.kind == PURE:
        found[_PURE] = view.pure * view.times
    else:
        found[_NOISY] = 1.0
        found[_SQUARE] = gaussian_square(everywhere) * view.times
        near = [closeness_of(everywhere, reach) for reach in REACHES]
        found[_NEAR] = [number for one in near for number in (one.close, one.outside)]
    with np.errstate(over="ignore", invalid="ignore"):
        found[_KNOWN] = view_rdp(known)[PICKED]
        alone = view if view.adjacency is Adjacency.ADD_REMOVE else single(view)
        found[_SECRET] = view_rdp(alone)[PICKED]
    return np.where(np.isnan(found), math.inf, found)


def keeps(cap: Budget, total: Numbers, relation: Adjacency) -> bool:
    """Whether such costs are seen to keep a cap; false does not mean that they exceed it."""
    if math.isinf(total[_SAMPLER]):
        return False
    if not np.any(total):
        return True
    profiles = list(_profiles(total * (1 + _MARGIN), relation))
    # What holds at an epsilon holds at every larger one, where the sampler's part of delta would be larger.
    for epsilon in (cap.epsilon * (1 - _MARGIN), *(less for less in _SMALLER if less < cap.epsilon)):
        for profile in profiles:
            if profile.deltas(np.array([epsilon]))[0] <= cap.delta * (1 - _MARGIN):  # not so for what is no number
                return True
    return False


def _profiles(total: Numbers, relation: Adjacency) -> Iterable[Profile]:
    sampler, pure = float(total[_SAMPLER]), float(total[_PURE])
    if total[_NOISY]:
        pairs = total[_NEAR].reshape(-1, 2)
        near = tuple(Closeness(float(c), float(o)) for c, o in pairs if c <= MOST_CLOSENESS and math.isfinite(o))
        if near and math.isfinite(total[_SQUARE]):
            yield Shifted(GaussianMixture([(float(total[_SQUARE]), 1, 1.0)]), pure, near, sampler)
    else:
        yield Shifted(Pure(pure), 0.0, sampler=sampler)
    yield Shifted(_renyi(total[_KNOWN]), 0.0, sampler=sampler)
    if total[_HIDDEN]:
        secret = Shifted(_renyi(total[_SECRET]), 0.0, sampler=sampler)
        yield secret if relation is Adjacency.ADD_REMOVE else Twice(secret)


def _renyi(picked: Numbers) -> Renyi:
    tau = np.full(len(ORDERS), math.inf)
    tau[PICKED] = picked
    return Renyi.of(tau)
