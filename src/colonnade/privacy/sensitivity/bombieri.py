"""Sensitivity of any integer polynomial over a ball, by Bombieri's norm: always valid, seldom tight.

``docs/theory/gradient-sensitivity.md`` has the proof. Use it where no structure is known.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction

from colonnade.errors import PrivacyError
from colonnade.privacy.sensitivity.exact import Exact, Sensitivity, root_up

Polynomial = Mapping[tuple[int, ...], int]
"""Exponents of the variables to an integer coefficient: ``{(2, 0): 1, (1, 1): -3}`` is x^2 - 3 x y."""


def bombieri_squares(polynomials: Sequence[Polynomial]) -> dict[int, Fraction]:
    """For each degree, the sum over all coordinates of ``a_b^2 b!/l!``: the squared norm of that homogeneous part."""
    squares: dict[int, Fraction] = defaultdict(Fraction)
    for polynomial in polynomials:
        for exponents, coefficient in polynomial.items():
            if min(exponents, default=0) < 0:
                raise PrivacyError("an exponent of a polynomial is negative; only polynomials have this bound")
            degree = sum(exponents)
            weight = Fraction(math.prod(map(math.factorial, exponents)), math.factorial(degree))
            squares[degree] += weight * coefficient**2
    return dict(squares)


def polynomial_sensitivity(polynomials: Sequence[Polynomial], norm_squared: Exact) -> Sensitivity:
    """Sensitivity of the sum over rows of an integer polynomial map, for rows with ``|x|^2 <= norm_squared``."""
    squares = bombieri_squares(polynomials)
    parts = {degree: root_up(square * norm_squared**degree) for degree, square in squares.items()}
    added = Sensitivity.from_l2(sum(parts.values(), Fraction(0)) ** 2, len(polynomials))
    # A constant does not change when a row is replaced.
    moved = Sensitivity.from_l2((sum(parts.values(), Fraction(0)) - parts.get(0, 0)) ** 2, len(polynomials))
    return Sensitivity(added.l1, added.l2_squared, moved.replace_l1, moved.replace_l2_squared)
