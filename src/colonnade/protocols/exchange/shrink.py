"""How much of received scores to believe: noise makes them spread, and errors that all of them share shift them.

Everything here follows from what was received and from public bounds, so it costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_UNSURE = 0.7  # how far, in part of itself, the variance of a party's scores may be from what was expected
_LEAST = 0.1  # of the expected variance: as small the scores' own may be, and as large that of their mean


@dataclass(frozen=True)
class Believed:
    """What is probably behind some received scores: their mean, their variance, and that of noise on each."""

    middle: float
    signal: float
    noise: float

    @property
    def share(self) -> float:
        """The part of the variance that is no noise."""
        return self.signal / (self.signal + self.noise)


def believed(received: NDArray[np.float64], clip: float, noise: float, shared: float = 0.0) -> Believed:
    """What to believe of scores within ``clip``, each with noise of a variance of its own and a ``shared`` error.

    Scores are expected to spread by half of their clip; what was received corrects that, the more the longer it is. A
    shared error, such as blurred weights give, is drawn once for all scores: no number of them averages it out.
    """
    count, expected, whole = len(received), (clip / 2) ** 2, noise + shared
    # Most of a noisy mean is noise, and it would move everybody.
    middle = float(received.mean()) * _LEAST * expected / (_LEAST * expected + noise / count + shared)
    seen = float(received.var()) - whole
    doubt, error = (_UNSURE * expected) ** 2, 2 * (whole + expected) ** 2 / count + 2 * shared**2
    signal = max((expected * error + seen * doubt) / (error + doubt), _LEAST * expected)
    return Believed(middle, signal, whole)
