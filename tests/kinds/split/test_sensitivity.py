"""Embeddings and updates of encoders: what a run of releases costs, against the vectors."""

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
from colonnade.kinds.split.sensitivity import embeddings_mu_squared
from colonnade.privacy.routes.gaussian import gaussian_epsilon, gaussian_mu
from research.bounds import noise_deviation, split_noise, two_stage_mu_squared
from research.formulas import classic_gaussian_sigma
from tests.support.errors import raises

AFE = json.loads((Path(__file__).parents[2] / "privacy" / "vectors.json").read_text())["hdp_fm_afe"]


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
    with raises(PrivacyError, "PR088"):
        split_noise(1.0, 5, 1.5)
    with raises(PrivacyError, "PR087"):
        embeddings_mu_squared(5, 0.0)
