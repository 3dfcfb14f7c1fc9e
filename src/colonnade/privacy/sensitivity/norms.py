"""How long a clipped, scaled and rounded row can be; every bound is only rounded up.

``docs/theory/moments-sensitivity.md`` proves the bounds. Clips arrive as floats, which are exact fractions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from colonnade.errors import PrivacyError
from colonnade.privacy.sensitivity.exact import checked_whole, rational, root_up

Rounding = Literal["stochastic", "nearest", "toward_zero", "exact"]
# How far rounding may push one coordinate away from zero.
_PUSH: dict[str, Fraction] = {
    "stochastic": Fraction(1),
    "nearest": Fraction(1, 2),
    "toward_zero": Fraction(0),
    "exact": Fraction(0),
}
_MODES = {"toward-zero": "toward_zero"}


def _check(gamma: int, clip: float, width: int, rounding: str) -> Fraction:
    checked_whole(gamma, "the scale gamma", 1)
    checked_whole(width, "a number of columns")
    if rounding not in _PUSH:
        raise PrivacyError(f"unknown rounding {rounding!r}; choose from {', '.join(_PUSH)} [PR100]")
    return gamma * rational(clip, "a clip")


def _party_square(gamma: int, clip: float, width: int, rounding: Rounding) -> Fraction:
    # |x_hat| <= |gamma x| + push sqrt(n): the rounding error has n coordinates of size at most push.
    reach = _check(gamma, clip, width, rounding)
    push = _PUSH[rounding]
    return reach * reach + push * push * width + 2 * root_up(reach * reach * push * push * width)


@lru_cache(maxsize=1024, typed=True)  # a search for the noise asks for the same norms again and again
def party_norm_squared(gamma: int, clip: float, width: int, rounding: Rounding = "stochastic") -> int:
    """Largest squared norm of one party's rounded sub-row; a party checks its integers against this number.

    A rounded row is a row of integers, so its squared norm is an integer and the bound may be rounded down.
    """
    return math.floor(_party_square(gamma, clip, width, rounding))


def rounded_norm_squared(
    gamma: int,
    clips: Sequence[float],
    widths: Sequence[int],
    rounding: Rounding = "stochastic",
    constants: Sequence[int] = (),
) -> int:
    """Largest squared norm of a whole rounded row; a constant column of value k adds exactly k^2."""
    parts = zip(clips, widths, strict=True)
    own = sum(party_norm_squared(gamma, clip, width, rounding) for clip, width in parts)
    return own + sum(int(value) ** 2 for value in constants)


def conditional_norm_squared(gamma: int, clip: float, width: int, beta: float = math.exp(-0.5)) -> int:
    """What a party enforces when it redraws its stochastic rounding until the norm is small (KLS21).

    ``beta`` bounds the chance that one draw is rejected; the bound itself is enforced and costs no delta.
    """
    return math.floor(_conditional_square(gamma, clip, width, beta))


def enforced_norm_squared(gamma: int, clip: float, width: int, sources: int, mode: str) -> int:
    """The bound on a party's squared norm that it enforces under a way of rounding, at most gamma^2 for each column.

    A number stays in its box whichever way it is rounded, and of a one-hot category at most one part is not zero.
    """
    if mode == "conditional":
        ball = conditional_norm_squared(gamma, clip, width)
    else:
        ball = party_norm_squared(gamma, clip, width, _MODES.get(mode, mode))
    return min(ball, gamma * gamma * sources)


def _conditional_square(gamma: int, clip: float, width: int, beta: float) -> Fraction:
    if not 0 < beta < 1:
        raise PrivacyError(f"the rejection chance must lie strictly between 0 and 1, not {beta} [PR101]")
    reach = _check(gamma, clip, width, "stochastic")
    # The factor is a float, but any value is sound here: the party enforces the very number this returns.
    factor = Fraction(math.sqrt(2 * -math.log(beta)))
    centre = reach * reach + Fraction(width, 4)
    return min(
        centre + factor * (reach + root_up(width) / 2),
        _party_square(gamma, clip, width, "stochastic"),
    )
