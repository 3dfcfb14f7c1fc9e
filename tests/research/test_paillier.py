"""The baseline under homomorphic encryption: real ciphertexts come to the plain steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def paillier(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("phe", reason="the benchmark's packages are not installed (extra: bench)")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import paillier

    return paillier


def _made_up() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    active, passive = rng.uniform(-1, 1, (14, 3)), rng.uniform(-1, 1, (14, 2))
    return active, passive, (active[:, 0] + passive[:, 0] > 0).astype(float)


def test_encrypted_steps_come_to_the_plain_ones(paillier: Any) -> None:
    data, recipe = _made_up(), paillier.Recipe(epochs=3, batch=6, learning_rate=1.0)
    found = paillier.in_one_place(*data, recipe, bits=512)
    plain = paillier.in_the_clear(*data, recipe)
    for ours, theirs in zip(found, plain, strict=True):
        assert np.abs(theirs).max() > 0.1
        assert np.allclose(ours, theirs, atol=1e-5)


def test_the_tangent_is_the_slope_of_the_loss_at_zero(paillier: Any) -> None:
    active, passive, labels = _made_up()
    step = paillier.Recipe(epochs=1, batch=14, learning_rate=1.0, ridge=0.0)
    own, other = paillier.in_the_clear(active, passive, labels, step)
    expected = -np.hstack([active, passive]).T @ (0.5 - labels) / 14
    assert np.allclose(np.concatenate([own, other]), expected)


def test_what_is_sent_says_nothing_twice(paillier: Any) -> None:
    """The same numbers become other ciphertexts each time, and the arbiter sees masked gradients only."""
    active, _, labels = _made_up()
    arbiter = paillier.Arbiter(512)
    party = paillier.Passive(active, arbiter.public, paillier.Recipe())
    everything = slice(None)
    assert party.scores(everything) != party.scores(everything)
    own = paillier.Active(active, arbiter.public, paillier.Recipe(), labels=labels)
    slopes = own.slopes(everything, party.scores(everything))
    first, second = (arbiter.opened(own.masked_gradient(everything, slopes)) for _ in range(2))
    assert all(abs(one - two) > 2**60 for one, two in zip(first, second, strict=True))
