"""K-ary randomised response, exactly: a label is kept or replaced by another one, decided by whole random numbers.

The odds, kept against any one other label, are a fraction. Its logarithm is the whole privacy loss;
``docs/theory/randomised-response.md`` has the proof.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.errors import CapacityError, DataError, PrivacyError
from colonnade.privacy.sensitivity.exact import checked_whole
from colonnade.randomness import Stream

ODDS_BITS = 32
MOST_EPSILON = 20  # odds above e^20 with 32 bits behind the point would not leave room for the categories
_MOST_BITS = 62


def odds_for(epsilon: float) -> Fraction:
    """The largest fraction with denominator 2^32 whose logarithm is at most ``epsilon``."""
    if isinstance(epsilon, bool) or not (math.isfinite(epsilon) and epsilon >= 0):
        raise PrivacyError("an epsilon for randomised response must be a finite number, not negative [PR045]")
    if epsilon == 0:
        return Fraction(1)
    if epsilon > MOST_EPSILON:
        raise CapacityError(f"an epsilon above {MOST_EPSILON} would keep nearly every label; ask for less [CA011]")
    from flint import arb

    from colonnade.privacy.noise.laws import precise

    bits = 128
    while True:
        # exp of a rational other than zero is irrational, so some precision tells on which side of an integer it is.
        with precise(bits):
            floor = (arb(float(epsilon)).exp() * (1 << ODDS_BITS)).floor().unique_fmpz()
        if floor is not None:
            return Fraction(int(floor), 1 << ODDS_BITS)
        bits *= 2


def randomised_response(labels: ArrayLike, categories: int, odds: Fraction, stream: Stream) -> NDArray[np.int64]:
    """Keep each label with probability ``odds / (odds + categories - 1)``, or else draw another one uniformly."""
    checked_whole(categories, "the number of categories", 2)
    given = np.asarray(labels)
    if given.dtype.kind not in "iub":
        raise DataError("labels for randomised response must be whole numbers; encode them as 0, 1, 2, ... [DA107]")
    if given.size and not (given.min() >= 0 and given.max() < categories):
        raise DataError(f"a label lies outside 0 to {categories - 1}; encode labels or correct the categories [DA108]")
    if odds < 1:
        raise PrivacyError(
            "the odds of randomised response must be at least 1; take them from odds_for(epsilon) [PR047]"
        )
    keep, each = odds.numerator, odds.denominator
    total = keep + (categories - 1) * each
    if total > 1 << _MOST_BITS:
        raise CapacityError("there are too many categories, or the odds are too fine, for 64-bit integers [CA012]")
    # Of `total` equally likely numbers the first `keep` keep the label, and `each` lead to each of the others.
    drawn = _below(total, given.size, stream).reshape(given.shape)
    step = np.where(drawn < keep, 0, (drawn - keep) // each + 1)
    return (given.astype(np.int64) + step) % categories


def _below(bound: int, count: int, stream: Stream) -> NDArray[np.int64]:
    """Whole numbers from 0 up to, not including, ``bound``, each as likely as the next."""
    mask = np.uint64((1 << (bound - 1).bit_length()) - 1)
    found = [np.empty(0, dtype=np.int64)]
    missing = count
    while missing:
        drawn = (stream.uint64(missing) & mask).astype(np.int64)
        found.append(drawn[drawn < bound])
        missing -= len(found[-1])
    return np.concatenate(found)
