"""What docs/theory/errors-in-the-papers.md says, where no other test shows it."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.models import baselines
from colonnade.privacy import Adjacency, Observer, Trust
from colonnade.privacy.gaussian import gaussian_mu
from colonnade.randomness import Stream

TRUST = Trust(("bank", "shop", "clinic"), ("bank", "shop", "clinic"), 1)


def test_noisy_rows_tell_how_many_there_are() -> None:
    """SQM Lemma 14: whatever the noise, the server counts rows, so adding one is never hidden from it."""
    rng = np.random.default_rng(1)
    for sigma in (1.0, 1e6):
        here = [len(rng.normal(0, sigma, (rows, 2))) for rows in (100, 101)]
        assert here[0] != here[1]


def test_our_local_baseline_pays_for_a_replaced_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shift of a replaced row is 2 clip, and that is what the baseline's noise is made for."""
    asked: list[float] = []

    def watched(sigma: float, shape: tuple[int, ...], stream: Stream | None) -> np.ndarray:
        asked.append(sigma)
        return np.zeros(shape)

    monkeypatch.setattr(baselines, "_gaussian", watched)
    baselines.local_noise(np.eye(3), 1, epsilon=1.0, delta=1e-5, clip=0.7, center=False)
    assert asked == [pytest.approx(2 * 0.7 / gaussian_mu(1.0, 1e-5))]


def test_a_change_in_ones_own_column_cannot_be_hidden() -> None:
    """SQM Definition 4: a client's view holds its own column, so only changes in others' can be hidden."""
    own, changed = np.array([0.1, 0.2]), np.array([0.1, 0.9])
    noise = np.random.default_rng(2).normal(0, 1e9, 2)
    views = [(column, column.sum() + noise[index]) for index, column in enumerate((own, changed))]
    assert not np.array_equal(views[0][0], views[1][0])
    for observer in (Observer.party("bank"), Observer.coalition("bank", "coordinator")):
        assert TRUST.adjacency(observer) is Adjacency.REPLACE_OTHERS
    assert TRUST.adjacency(Observer.coordinator()) is Adjacency.REPLACE
    assert TRUST.adjacency(Observer.analyst()) is Adjacency.ADD_REMOVE


@pytest.mark.parametrize(("mean", "step"), [(1e16, 2), (1e17, 8)])
def test_numpy_poisson_leaks_low_bits(mean: float, step: int) -> None:
    drawn = np.random.default_rng(3).poisson(mean, 20_000)
    assert np.all(drawn % step == 0)
    secret = 5
    assert np.all((drawn + secret) % step == secret % step)  # the noise hides nothing of these bits


def test_numpy_poisson_has_the_wrong_shape() -> None:
    mean = 1e15
    fourth = np.mean(((np.random.default_rng(4).poisson(mean, 200_000) - mean) / np.sqrt(mean)) ** 4)
    assert fourth > 3.2  # 3 for the law itself; the error of this estimate is about 0.02
    with pytest.raises(ValueError, match="too large"):
        np.random.default_rng(5).poisson(1e19)
