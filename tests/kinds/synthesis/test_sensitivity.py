from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import PrivacyError
from colonnade.kinds.split.sensitivity import (
    embeddings_mu_squared,
    noise_deviation,
    split_noise,
    two_stage_mu_squared,
)
from colonnade.kinds.synthesis.sensitivity import (
    mixture_sensitivity,
    noise_ratio,
    responsibilities_square,
    vector_square,
)
from colonnade.privacy.routes.gaussian import gaussian_epsilon, gaussian_mu
from research.formulas import classic_gaussian_sigma
from tests.errors import raises

VECTORS = json.loads((Path(__file__).parents[2] / "privacy" / "vectors.json").read_text())
AFE, EXTRA = VECTORS["hdp_fm_afe"], VECTORS["extra"]


@pytest.mark.parametrize("case", EXTRA["dpvi_R"])
def test_mixtures_match_the_vectors(case: dict[str, Any]) -> None:
    bound = mixture_sensitivity(case["Cp"], 7, case["f"], case["f2"], case["eta"])
    assert math.sqrt(bound.l2_squared) == pytest.approx(case["delta2_int"], rel=1e-9)
    exact = (1 + Fraction(case["eta"])) ** 2 * (1 + sum(Fraction(c) ** 2 for c in case["Cp"]))
    assert bound.l2_squared == 4 ** (case["f"] + case["f2"]) * exact  # all of these are whole numbers
    assert bound.replace_l2_squared == 4 * bound.l2_squared


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), st.lists(st.floats(0, 3), min_size=1, max_size=3), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_no_row_contributes_more(components: int, clips: list[float], slack: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits, vector_bits, width = 6, 5, 2

    def contribution() -> list[int]:
        top = responsibilities_square(bits, slack)
        r = [int(v) for v in rng.dirichlet(np.ones(components) * 0.1) * math.sqrt(top)]
        if rng.random() < 0.3:
            r = [-v for v in r]  # the committee's check holds whatever the sign
        assert sum(v * v for v in r) <= top
        out = [v << vector_bits for v in r]
        for clip in clips:
            for weight in r:
                direction = rng.normal(size=width)
                whole = np.trunc(2**vector_bits * clip * direction / np.linalg.norm(direction)).astype(int)
                assert int(whole @ whole) <= vector_square(vector_bits, clip)
                out += [weight * int(v) for v in whole]
        return out

    one, other = contribution(), contribution()
    bound = mixture_sensitivity(clips, len(one), bits, vector_bits, slack)
    assert sum(v * v for v in one) <= bound.l2_squared
    assert sum(map(abs, one)) <= bound.l1
    gap = [a - b for a, b in zip(one, other, strict=True)]
    assert sum(v * v for v in gap) <= bound.replace_l2_squared
    assert sum(map(abs, gap)) <= bound.replace_l1


def test_a_certain_responsibility_reaches_the_bound() -> None:
    bound = mixture_sensitivity([3.0], 4, 4, 2, slack=0)
    row = [16 * 4, 0, 16 * 4 * 3, 0]
    assert sum(v * v for v in row) == bound.l2_squared


def test_a_smaller_weight_on_the_counts_costs_less() -> None:
    light = mixture_sensitivity([2.0], 4, 8, 8, slack=0, weight=0.5)
    assert light.l2_squared == 4**16 * Fraction(17, 4)


@pytest.mark.parametrize("case", EXTRA["em_sigma"])
def test_expectation_maximisation_matches_the_vectors(case: dict[str, Any]) -> None:
    mu = gaussian_mu(case["eps"], case["delta"])
    analyst = noise_ratio(mu, case["T"])
    party = noise_ratio(mu, case["T"], replace=True, parties=case["P"], known=1)
    assert analyst == pytest.approx(case["sigma_over_Delta_analyst_addremove"], rel=1e-6)
    assert party == pytest.approx(case["sigma_over_Delta_party_replace"], rel=1e-6)
    assert case["T"] / analyst**2 <= mu**2 * (1 + 1e-15)


@pytest.mark.parametrize("case", AFE["afe"])
def test_embeddings_match_the_vectors(case: dict[str, Any]) -> None:
    mu = gaussian_mu(case["eps"], case["delta"])
    assert mu == pytest.approx(case["mu_total"], rel=1e-6)
    embedding, update = split_noise(mu, case["epochs"], case["share_embed"])
    assert embedding == pytest.approx(case["sigma_h"], rel=1e-6)
    assert update == pytest.approx(float(case["sigma_g"]), rel=1e-6)
    assert noise_deviation(1, embedding) == pytest.approx(case["noise_std_embed_t1"], rel=1e-6)
    spent = embeddings_mu_squared(case["epochs"], embedding, update)
    assert Fraction(mu) ** 2 * (1 - Fraction(1, 10**12)) <= spent <= Fraction(mu) ** 2


@pytest.mark.parametrize("case", AFE["afe_paper_true"])
def test_the_true_epsilon_of_repeated_releases_matches_the_vectors(case: dict[str, Any]) -> None:
    sigma = classic_gaussian_sigma(case["eps"], case["delta"])
    assert sigma == pytest.approx(case["sigma"], rel=1e-9)
    mu = math.sqrt(embeddings_mu_squared(case["E"], sigma))
    assert gaussian_epsilon(mu, case["delta"]) == pytest.approx(case["eps_true_vanilla_fixed_encoder"], rel=1e-6)


def test_a_frozen_encoder_releases_once_or_twice() -> None:
    assert embeddings_mu_squared(1, 2.0) == Fraction(1, 4)
    assert two_stage_mu_squared(2.0, 4.0) == Fraction(5, 16)
    assert split_noise(1.0, 4, 0) == (math.inf, 2.0)
    assert noise_deviation(1, math.inf) == math.inf


@settings(max_examples=200, deadline=None)
@given(st.floats(0.1, 4), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_clipped_embeddings_of_one_row_move_by_twice_the_clip(clip: float, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = (v * min(1, clip / np.linalg.norm(v)) for v in rng.normal(size=(2, width)) * 5)
    assert np.linalg.norm(one - other) / noise_deviation(clip, 3.0) <= (1 + 1e-12) / 3


def test_senseless_noise_is_refused() -> None:
    with raises(PrivacyError, "PR094"):
        noise_ratio(1.0, 5, parties=2, known=2)
    with raises(PrivacyError, "PR095"):
        noise_ratio(0.0, 5)
    with raises(PrivacyError, "PR088"):
        split_noise(1.0, 5, 1.5)
    with raises(PrivacyError, "PR087"):
        embeddings_mu_squared(5, 0.0)
