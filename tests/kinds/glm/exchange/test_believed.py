from __future__ import annotations

import numpy as np
import pytest

from colonnade.kinds.glm.exchange.fits import believed


def test_the_less_can_be_signal_the_less_is_believed():
    received = 0.3 + np.linspace(-1, 1, 400)
    calm, loud, shifted = (believed(received, 2.0, noise, shared) for noise, shared in ((0, 0), (100, 0), (1, 1)))
    assert (calm.middle, calm.share) == (pytest.approx(0.3), 1.0)
    assert calm.signal == pytest.approx(received.var(), rel=0.05)
    assert loud.share < 0.02
    assert 0 < loud.middle < 0.1
    # What all scores share does not average out, however many there are.
    assert believed(np.tile(received, 100), 2.0, 1.0).middle == pytest.approx(0.3, rel=0.01)
    assert believed(np.tile(received, 100), 2.0, 1.0, 1.0).middle == pytest.approx(shifted.middle, rel=0.05)
    assert 0 < shifted.middle < 0.03
