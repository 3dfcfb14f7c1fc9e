"""What is believed of a mixture's parameters before any data: proper, public, the same for every component.

Mixing weights and the chances of a category are uniform over all that add up to 1 (Dirichlet with all ones), shape
parameters of a Beta are Gamma(1, 1), the chance of a flag is uniform. All are densities of unconstrained parameters:
the logarithm u of a Gamma(1, 1) variable has log density u - e^u, and independent Gamma(1, 1) variables divided by
their sum are uniform over the simplex, so logits have that density too.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.synthesis.mixture.families import Bernoulli, Family, Gaussian

_MIDDLE, _SPREAD = 0.5, 0.5
_TYPICAL, _FACTOR = math.log(0.2), 1.0
Matrix = NDArray[np.float64]


def gamma_slope(parameters: Matrix) -> Matrix:
    """The slope of the log prior of logits, and of logarithms of shape parameters."""
    return 1.0 - np.exp(parameters)


def prior_slope(family: Family, parameters: Matrix) -> Matrix:
    """The slope of the log prior of one column's parameters, (K, ``family.width``)."""
    if isinstance(family, Bernoulli):
        return -np.tanh(parameters / 2)
    if isinstance(family, Gaussian):
        middle, typical = (_MIDDLE - parameters[:, :1]) / _SPREAD**2, (_TYPICAL - parameters[:, 1:]) / _FACTOR**2
        return np.hstack([middle, typical])
    return gamma_slope(parameters)
