"""Rows that a fitted mixture makes up, and what it says of real ones."""

from __future__ import annotations

import numpy as np
from scipy import stats

from colonnade.kinds.synthesis.mixture.components import OwnComponents
from colonnade.kinds.synthesis.mixture.families import INSIDE
from colonnade.kinds.synthesis.mixture.fitted import FittedMixture
from colonnade.kinds.synthesis.mixture.inference import Posterior
from colonnade.kinds.synthesis.mixture.model import MixtureModel
from colonnade.tables.decode import decode
from colonnade.testing.seeded import seeded
from tests.kinds.synthesis.mixture.people import FAMILIES, SCHEMA

OWN = OwnComponents(SCHEMA, FAMILIES)
MODEL = MixtureModel([OWN], 3)
MEAN = np.random.default_rng(0).normal(size=(3, MODEL.width))
FITTED = FittedMixture(("clinic",), MODEL, Posterior(MEAN, np.full_like(MEAN, 0.3)))


def test_made_up_people_have_the_chances_of_the_mixture() -> None:
    rows = 20_000
    found = FITTED.sample(rows, seeded(1))["clinic"]
    weights = np.exp(MEAN[:, 0]) / np.exp(MEAN[:, 0]).sum()
    slack = 6 / np.sqrt(rows)
    for name in ("city", "sort"):
        logits = MEAN[:, 1:][:, OWN.places[name]]
        chances = weights @ (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
        np.testing.assert_allclose(found[:, SCHEMA.places[name]].mean(axis=0), chances, atol=slack)
    shapes = np.exp(MEAN[:, 1:][:, OWN.places["age"]])
    share = INSIDE + (1 - 2 * INSIDE) * (found[:, 0] + 1) / 2
    assert abs(share.mean() - weights @ (shapes[:, 0] / shapes.sum(axis=1))) < slack
    cells = np.minimum((found[:, SCHEMA.places["height"]][:, 0] + 1) / 2 * 20, 19).astype(int)
    ends = np.r_[-np.inf, np.arange(1, 20) / 20, np.inf]
    middle, spread = MEAN[:, 1:][:, OWN.places["height"]].T
    masses = sum(
        w * np.diff(stats.norm.cdf(ends, m, np.exp(s))) for w, m, s in zip(weights, middle, spread, strict=True)
    )
    np.testing.assert_allclose(np.bincount(cells, minlength=20) / rows, masses, atol=slack)


def test_the_mean_log_likelihood_of_made_up_people_is_highest_under_their_own_mixture() -> None:
    rows = FITTED.sample(3000, seeded(2))
    other = FITTED.drawn(seeded(3))
    assert FITTED.log_likelihood(rows).mean() > other.log_likelihood(rows).mean()
    assert not np.array_equal(other.posterior.mean, MEAN)


def test_made_up_people_become_a_table_of_the_schema() -> None:
    table = decode(SCHEMA, FITTED.sample(500, seeded(4))["clinic"])
    assert table.column_names == list(SCHEMA.names)
    assert table.num_rows == 500
    assert sum(column.null_count for column in table.columns) == 0


def test_components_get_their_shares_and_nobody_asked_for_is_nobody() -> None:
    assert FITTED.sample(0, seeded(5))["clinic"].shape == (0, SCHEMA.encoded_width)
    certain = FittedMixture(
        ("clinic",), MODEL, Posterior(np.where(np.arange(3)[:, None] == 1, 12.0, -12.0) + 0 * MEAN, 0 * MEAN)
    )
    assert (certain.sample(200, seeded(6))["clinic"][:, SCHEMA.places["member"]] == 1).all()


def test_a_mixture_is_the_same_after_saving() -> None:
    again = FittedMixture.from_arrays(["clinic"], MODEL, FITTED.arrays())
    np.testing.assert_array_equal(again.sample(100, seeded(7))["clinic"], FITTED.sample(100, seeded(7))["clinic"])
