"""A noise law is one class: a new one is registered here, and everything else takes it as it is."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from colonnade.errors import PrivacyError
from colonnade.privacy import Adjacency, Observer, accountant, noise_laws, parse_budgets, views
from colonnade.privacy.events import from_dict
from colonnade.privacy.noise import discrete_gaussian
from colonnade.privacy.noise_laws import AdditiveNoise, SquaredRelease, View
from colonnade.protocols.moments import programs
from colonnade.randomness import Stream
from tests.support import protocols
from tests.support.errors import refused
from tests.support.protocols import moments_task, tables_of

ANALYST = Observer.analyst()


class ToyRelease(SquaredRelease):
    """Shares of toy noise."""

    kind = "toy"


class Toy(AdditiveNoise):
    """A discrete Gaussian of three times the variance that its parameter says."""

    name = title = "toy"
    event_type = ToyRelease
    unit = 3
    renyi_theorem = "toy-renyi"

    @staticmethod
    def sample(size, shape, stream):
        return discrete_gaussian(3 * size, shape, stream)

    @classmethod
    def renyi(cls, view, orders):
        return orders * noise_laws.ratio(view.l2_squared, 2 * cls.unit * view.noise)


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(noise_laws.LAWS_BY_EVENT_KIND, Toy.event_type.kind, Toy)  # it is forgotten afterwards
    return noise_laws.register(Toy)


def test_a_law_is_one_class_for_all_that_is_not_about_it(toy) -> None:
    """From the budget to the error bar, and through a study of second moments."""
    draft = moments_task(law="toy")
    budgets = parse_budgets(1.0, 1e-6, draft.trust)
    task = draft.calibrate(budgets)
    (event,) = task.events
    assert isinstance(event, ToyRelease)
    assert from_dict(json.loads(json.dumps(event.to_dict()))) == event
    bound = accountant.epsilon(views(task.events, ANALYST, task.trust), 1e-6)
    assert (bound.route, bound.theorem) == ("renyi", "toy-renyi")
    usual = replace(draft, law="skellam").calibrate(budgets)
    assert task.noise < usual.noise, "a unit of it is more noise"
    assert task.noise_std == math.sqrt(3 * task.noise) / task.gamma**2

    tables = tables_of(task, 40)
    with pytest.MonkeyPatch.context() as patch:
        drawn = protocols.noise_drawn(patch, programs)
        protocols.nearest(patch)
        found = protocols.execute(programs, task, tables)
    expected = programs.reference(protocols.integers(task, tables), task) + sum(drawn)
    assert len(drawn) == 3
    assert all(np.array_equal(result.opened, expected) for result in found.values())


def test_its_noise_is_as_large_as_it_says(toy) -> None:
    noise = AdditiveNoise("toy", 3 * 10**8, ("bank", "shop", "clinic"))
    assert (type(noise), noise.share, noise.parts) == (Toy, Fraction(10**8), 3)
    drawn = noise.draw((4000,), Stream(bytes(32)), copies=2)
    assert np.std(drawn) == pytest.approx(math.sqrt(2 * 3 * 10**8), rel=0.1)
    assert np.abs(drawn).max() * 3 < noise.reach(copies=2)
    assert replace(noise, scale=noise.most_scale(Fraction(1000))).deviation <= 1000


def test_a_law_that_nobody_registered_is_refused() -> None:
    refused(PrivacyError, "PR*", AdditiveNoise, "toy", 3, ("bank", "shop", "clinic"))
    shares = (("bank", Fraction(1)),)
    refused(PrivacyError, "PR028", from_dict, ToyRelease("sums", shares, 1, 1, 1, 2, 4).to_dict())
    seen = View("toy", Adjacency.REPLACE, noise=Fraction(1), parts=1, dimension=1, l1=1, l2_squared=1)
    refused(PrivacyError, "PR016", accountant.epsilon, [seen], 1e-6)
