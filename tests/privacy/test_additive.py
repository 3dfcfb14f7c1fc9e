"""Noise of several owners: what its law says about it holds for what is drawn, released and reached."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from colonnade.privacy import Sensitivity
from colonnade.privacy.additive import AdditiveNoise
from colonnade.privacy.noise import TAIL

OWNERS = ("bank", "shop", "clinic")
LAWS = ("skellam", "discrete-gaussian", "discrete-laplace")
MOVED = Sensitivity(3, 5, 6, 20)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("copies", [1, 2])
def test_the_parts_of_all_owners_have_the_variance_that_is_claimed(stream, law, copies):
    noise = AdditiveNoise(law, 60, OWNERS, known=1)
    drawn = sum(noise.draw((200, 100), stream, copies) for _ in OWNERS)
    assert drawn.shape == (200, 100)
    assert drawn.dtype == np.int64
    assert np.mean(drawn.astype(float) ** 2) == pytest.approx(copies * noise.variance, rel=0.1)
    assert noise.deviation == pytest.approx(math.sqrt(noise.variance))
    assert np.abs(drawn).max() <= noise.reach(copies)


@pytest.mark.parametrize("law", LAWS)
def test_a_release_says_what_each_owner_adds_and_how_far_a_person_moves_it(law):
    noise = AdditiveNoise(law, 60, OWNERS, known=1)
    event = noise.release(
        "sums", 4, MOVED, theorem="proof", audience=("shop",), about=("bank",), others=(("bank", 1, 1),)
    )
    each = Fraction(1, 2) if noise.laplace else Fraction(20)
    assert event.kind == law.replace("-", "_")
    assert event.shares == tuple((owner, each) for owner in OWNERS)
    assert (event.name, event.dimension, event.theorem, event.tail) == ("sums", 4, "proof", float(TAIL))
    assert (event.audience, event.about, event.others) == (("shop",), ("bank",), (("bank", 1, 1),))
    assert (event.l1, event.replace_l1) == (MOVED.l1, MOVED.replace_l1)
    if noise.laplace:
        assert event.scale == 60
    else:
        assert (event.l2_squared, event.replace_l2_squared) == (MOVED.l2_squared, MOVED.replace_l2_squared)


def test_only_laplace_noise_needs_no_even_split():
    assert [AdditiveNoise(law, 60, OWNERS).parts for law in LAWS] == [3, 3, 1]
