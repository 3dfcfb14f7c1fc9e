"""The mixture paper again: its people, its prices, and what tables from mixtures are worth."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from colonnade.kinds.synthesis.mixture.centralised import noiseless_sums
from colonnade.kinds.synthesis.mixture.programs import evaluated, in_people, reference
from colonnade.privacy.routes.gaussian import gaussian_epsilon
from research.reproduce import dpvi, mixtures
from research.reproduce.mixture_tables import Coded
from research.synthesis.layouts import bench

VECTORS = json.loads((Path(__file__).parents[1] / "privacy" / "vectors.json").read_text(encoding="utf-8"))


def test_a_party_learns_as_much_as_theory_says() -> None:
    """With the paper's noise: in disjoint batches, in batches that it knows, and as if people were in all of them."""
    mu = dpvi.party_mu(2.042, 2)
    expected = VECTORS["dpvi"]["dpvi"]
    assert gaussian_epsilon(mu * math.sqrt(67), 1e-5) == pytest.approx(expected["gdp_eps_P2_sens2_steps67"], rel=1e-6)
    assert gaussian_epsilon(mu * math.sqrt(20_000), 1e-5) == pytest.approx(
        expected["gdp_eps_P2_sens2_steps2e+04"], rel=1e-6
    )
    found = dpvi.known_coins_epsilon(mu, 20_000, 100 / 30_162, 1e-5)
    assert found == pytest.approx(VECTORS["coins_and_gdl"]["dpvi_coins_P2"], rel=1e-4)


def test_the_people_and_the_noise_are_those_of_the_paper(data_dir: Path) -> None:
    of = mixtures.census(data_dir)
    assert (of.train.rows, of.test.rows) == (30_162, 15_060)
    assert of.train.parties == ("demographic", "financial")
    plan = of.plan(20_000)
    multiple = plan.additive.multiple_of(plan.sensitivity)
    assert multiple == pytest.approx(VECTORS["dpvi"]["dpvi"]["sigma_pld_eps1"], rel=2e-3)
    prices = {row.method: row.mean for row in dpvi.prices(of, plan)}
    assert prices["Colonnade: the analyst, noise 2.042"] == pytest.approx(
        VECTORS["dpvi"]["dpvi"]["pld_eps_sigma2.042"], rel=1e-3
    )
    assert prices["a party, disjoint batches, noise 2.042"] == pytest.approx(111.78, abs=0.01)


def test_the_integers_of_a_round_are_the_sums_of_the_floats(data_dir: Path) -> None:
    of = mixtures.census(data_dir, 500)
    plan = of.plan(10, multiple=1.0)
    state = mixtures.variational(of, plan, 1, 0)
    learner = mixtures.Watched(of, state, ())
    dealt = {name: evaluated(learner, plan, name, rows) for name, rows in of.held.items()}
    clips = [part.clip for part in plan.parts]
    floats = noiseless_sums(of.model, of.cells, learner.parameters, clips, "local")
    integers = in_people(reference(dealt, plan), plan)
    assert np.abs(integers[:, 0] - floats[:, 0]).max() < 1e-4 * of.train.rows
    # Single derivatives beyond twice the clip are cut before the vector is clipped, so a few sums differ a little more.
    assert np.abs(integers - floats).max() < 1e-3 * of.train.rows


def test_tables_of_mixtures_have_the_columns_of_the_data(data_dir: Path) -> None:
    coded = Coded(bench("adult", data_dir, 400), em_rounds=2, dpvi_rounds=5)
    np.testing.assert_array_equal(coded.decoded(coded.rows), coded.bench.codes)
    for method in ("EM", "DPVI"):
        found = coded.fitted(method, coded.plan(method, 10.0), 0)
        assert math.isfinite(coded.cost(found))
        made_up = coded.table(found, 0)
        assert made_up.column_names == coded.bench.names
        assert made_up.num_rows == 400
