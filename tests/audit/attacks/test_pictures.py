"""How alike two pictures are."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.audit.attacks import psnr, ssim
from colonnade.audit.attacks.pictures import as_pictures
from colonnade.errors import DataError
from tests.support.errors import raises


def by_hand(first, second, side, span):
    """Structural similarity, window by window."""
    c1, c2, found = (0.01 * span) ** 2, (0.03 * span) ** 2, []
    for row in range(first.shape[0] - side + 1):
        for column in range(first.shape[1] - side + 1):
            a, b = (each[row : row + side, column : column + side].ravel() for each in (first, second))
            both = np.cov(a, b)
            found.append(
                (2 * a.mean() * b.mean() + c1)
                * (2 * both[0, 1] + c2)
                / ((a.mean() ** 2 + b.mean() ** 2 + c1) * (both[0, 0] + both[1, 1] + c2))
            )
    return np.mean(found)


@pytest.mark.parametrize(("shape", "side", "span"), [((28, 14), 7, 1.0), ((9, 12), 7, 255.0), ((4, 6), 3, 1.0)])
def test_structural_similarity_is_that_of_every_window(shape, side, span):
    draw = np.random.default_rng(3)
    first = draw.random((3, *shape)) * span
    second = np.clip(first + draw.normal(size=first.shape) * 0.2 * span, 0, span)
    assert ssim(first, second, span) == pytest.approx(
        [by_hand(a, b, side, span) for a, b in zip(first, second, strict=True)]
    )


def test_equal_pictures_and_channels():
    pictures = np.random.default_rng(4).random((2, 16, 32, 3))
    assert ssim(pictures, pictures) == pytest.approx(1.0)
    assert (psnr(pictures, pictures) == 100.0).all()
    other = pictures[..., ::-1]
    each = [ssim(pictures[..., k], other[..., k]) for k in range(3)]
    assert ssim(pictures, other) == pytest.approx(np.mean(each, axis=0))


def test_decibels():
    black = np.zeros((2, 8, 8))
    assert psnr(black, black + 0.1) == pytest.approx(20.0)
    assert psnr(black, black + 1.0, span=10.0) == pytest.approx(20.0)
    assert ssim(black, black + 1.0)[0] == pytest.approx(1e-4 / 1.0001)


def test_what_is_no_picture_is_refused():
    with raises(DataError, "DA016", "28", "14"):
        as_pictures(np.zeros((1, 391)), (28, 14))
    with raises(DataError, "DA017"):
        psnr(np.zeros((1, 4)), np.zeros((1, 5)))
    with raises(DataError, "DA015"):
        ssim(np.zeros((1, 2, 9)), np.zeros((1, 2, 9)))
    with raises(DataError, "DA018"):
        ssim(np.zeros((1, 9)), np.zeros((1, 9)))
