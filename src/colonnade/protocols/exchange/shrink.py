"""How much of received scores is signal: noise spreads them, and an error that all of them share shifts them.

Everything here follows from what was received and from public bounds, so it costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_UNSURE = 0.7  # relative error of the variance that was expected of a party's scores
_LEAST = 0.1  # as part of the expected variance: the least variance of scores, and the variance of their mean


@dataclass(frozen=True)
class Believed:
    """An estimate from received scores: mean and variance of the true scores, and the variance of noise on each."""

    middle: float
    signal: float
    noise: float

    @property
    def share(self) -> float:
        """The part of the variance that is no noise."""
        return self.signal / (self.signal + self.noise)


def believed(received: NDArray[np.float64], clip: float, noise: float, shared: float = 0.0) -> Believed:
    """An estimate from scores within ``clip``; ``noise`` is the variance on each, ``shared`` that of a common error.

    The deviation of scores is expected to be half of their clip; received scores correct that, the more there are. A
    shared error, such as that of blurred weights, is drawn once for all scores, so averages over scores keep it.
    """
    count, expected, whole = len(received), (clip / 2) ** 2, noise + shared
    # Most of a noisy mean is noise, and its error would shift the scores of everybody.
    middle = float(received.mean()) * _LEAST * expected / (_LEAST * expected + noise / count + shared)
    seen = float(received.var()) - whole
    doubt, error = (_UNSURE * expected) ** 2, 2 * (whole + expected) ** 2 / count + 2 * shared**2
    signal = max((expected * error + seen * doubt) / (error + doubt), _LEAST * expected)
    return Believed(middle, signal, whole)
