"""How alike two pictures are: peak signal-to-noise ratio and structural similarity (Wang et al. 2004)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import uniform_filter

from colonnade.errors import DataError

Array = NDArray[np.float64]
_WINDOW = 7
_STABLE = (0.01, 0.03)
_MOST_DECIBELS = 100.0  # of equal pictures, where the ratio is infinite


def psnr(truth: ArrayLike, guess: ArrayLike, span: float = 1.0) -> Array:
    """Decibels for each picture of a stack; ``span`` is the range of pixel values, and 100 dB the most."""
    first, second = _pair(truth, guess)
    error = np.mean((first - second) ** 2, axis=tuple(range(1, first.ndim)))
    with np.errstate(divide="ignore"):
        ratio: Array = 10 * np.log10(span * span / error)
    return np.minimum(ratio, _MOST_DECIBELS)


def ssim(truth: ArrayLike, guess: ArrayLike, span: float = 1.0) -> Array:
    """Structural similarity for each picture of a stack, (n, height, width) or (n, height, width, channels).

    Means over windows of 7 by 7 pixels that lie inside, with unbiased variances; smaller pictures have smaller windows.
    """
    first, second = (_with_channels(each) for each in _pair(truth, guess))
    side = min(_WINDOW, *first.shape[1:3])
    side -= 1 - side % 2
    if side < 2:
        raise DataError("structural similarity needs pictures of at least 3 by 3 pixels [DA015]")

    def local(values: Array) -> Array:
        edge = side // 2
        means: Array = uniform_filter(values, size=(1, side, side, 1))
        return means[:, edge : values.shape[1] - edge, edge : values.shape[2] - edge]

    unbiased = side * side / (side * side - 1)
    mean_1, mean_2 = local(first), local(second)
    var_1 = unbiased * (local(first * first) - mean_1**2)
    var_2 = unbiased * (local(second * second) - mean_2**2)
    both = unbiased * (local(first * second) - mean_1 * mean_2)
    c1, c2 = ((factor * span) ** 2 for factor in _STABLE)
    found = (2 * mean_1 * mean_2 + c1) * (2 * both + c2)
    found /= (mean_1**2 + mean_2**2 + c1) * (var_1 + var_2 + c2)
    each: Array = found.mean(axis=(1, 2, 3))
    return each


def as_pictures(rows: Array, shape: tuple[int, ...]) -> Array:
    """Rows of pixels, in the order of reading, as a stack of pictures."""
    if len(shape) not in (2, 3) or int(np.prod(shape)) != rows.shape[1]:
        said = " x ".join(str(side) for side in shape)
        raise DataError(
            f"a picture of {said} does not have {rows.shape[1]} pixels, as many as the rows have columns [DA016]"
        )
    return rows.reshape(len(rows), *shape)


def _pair(truth: ArrayLike, guess: ArrayLike) -> tuple[Array, Array]:
    first, second = np.asarray(truth, dtype=np.float64), np.asarray(guess, dtype=np.float64)
    if first.shape != second.shape or first.ndim < 2:
        raise DataError("two stacks of pictures are compared only if they have the same shape [DA017]")
    return first, second


def _with_channels(pictures: Array) -> Array:
    if pictures.ndim not in (3, 4):
        raise DataError("a stack of pictures is (n, height, width) or (n, height, width, channels) [DA018]")
    return pictures if pictures.ndim == 4 else pictures[..., None]
