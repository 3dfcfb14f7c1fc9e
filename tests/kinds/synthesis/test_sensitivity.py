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
from colonnade.kinds.synthesis.sensitivity import (
    mixture_sensitivity,
    responsibilities_square,
    vector_square,
)
from colonnade.privacy.routes.gaussian import gaussian_mu
from research.bounds import noise_ratio
from tests.support.errors import raises

EXTRA = json.loads((Path(__file__).parents[2] / "privacy" / "vectors.json").read_text())["extra"]


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


def test_senseless_noise_is_refused() -> None:
    with raises(PrivacyError, "PR094"):
        noise_ratio(1.0, 5, parties=2, known=2)
    with raises(PrivacyError, "PR095"):
        noise_ratio(0.0, 5)
