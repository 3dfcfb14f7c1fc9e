"""Random features, in numpy: encoders that are drawn without looking at any row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.split.contract import Arrays, Encoder, Matrix, Vector
from colonnade.kinds.split.options import MOST_NUMBERS, WIDEST, Options, blocks, directions, expect, image_shape

_SMALLEST = 1e-12
_Singles = NDArray[np.float32]


@dataclass(frozen=True)
class CosineOptions(Options):
    """``scale`` is how far a row of typical values turns the cosines: small is smooth, large is fine."""

    width: int = 250
    scale: float = 3.0
    orthogonal: bool = True
    normalise: bool = False
    """Whether rows are first divided by their norm, times the root of the number of columns."""

    def __post_init__(self) -> None:
        self._whole("width", 1, WIDEST)
        self._real("scale", 1e-6, 1e6)
        self._flag("orthogonal")
        self._flag("normalise")


class Cosine(Encoder):
    """Random cosine features: sqrt(2 / width) cos(x W + b), whose products approach a Gaussian kernel's."""

    kind = "cosine"

    def __init__(self, columns: int, options: CosineOptions, weights: Matrix, offsets: Vector) -> None:
        self.columns, self.width, self._options = columns, options.width, options
        self._weights, self._offsets = weights, offsets

    @classmethod
    def draw(cls, columns: int, options: CosineOptions, random: np.random.Generator) -> Self:
        """Directions whose numbers have the deviation ``scale / sqrt(columns)``, and uniform offsets."""
        found = directions(options.width, columns, random, orthogonal=options.orthogonal)
        offsets = random.uniform(0.0, 2 * math.pi, options.width)
        return cls(columns, options, found * (options.scale / math.sqrt(columns)), offsets)

    @classmethod
    def restore(cls, columns: int, options: CosineOptions, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The encoder whose options and arrays these are."""
        found = expect(arrays, {"weights": (columns, options.width), "offsets": (options.width,)})
        return cls(columns, options, found["weights"], found["offsets"])

    def embed(self, rows: Matrix) -> Matrix:
        """Features between -sqrt(2 / width) and sqrt(2 / width), so a row's norm is at most sqrt(2)."""
        found = self.check(rows)
        if self._options.normalise:
            found = normalised(found)
        return cosines(found, self._weights, self._offsets)

    def options(self) -> dict[str, Any]:
        """The options of the specification."""
        return self._options.plain()

    def arrays(self) -> Arrays:
        """Directions and offsets."""
        return {"weights": self._weights, "offsets": self._offsets}


@dataclass(frozen=True)
class ConvolutionOptions(Options):
    """Filters of ``size`` by ``size`` pixels, a nonlinearity, means over ``pool`` by ``pool`` places, then ``width``.

    ``patches`` are random or the first cosine waves over a patch; ``normalise`` takes a patch's mean out and divides by
    its norm, so that brightness and contrast do not matter. If a width is given, what the pools hold is projected at
    random to so many numbers, and goes through cosines of ``scale`` where ``finish`` says so.
    """

    shape: tuple[int, ...] = ()
    width: int | None = None
    filters: int = 64
    size: int = 5
    stride: int = 1
    pool: int = 4
    patches: str = "random"
    nonlinearity: str = "relu"
    normalise: bool = True
    finish: str = "cosine"
    scale: float = 1.0

    def __post_init__(self) -> None:
        self._wholes("shape", (2, 3), 4096)
        if self.width is not None:
            self._whole("width", 1, WIDEST)
        for name, high in (("filters", 4096), ("size", 64), ("stride", 64), ("pool", 256)):
            self._whole(name, 1, high)
        self._among("patches", ("random", "waves"))
        self._among("nonlinearity", ("relu", "abs", "square"))
        self._flag("normalise")
        self._among("finish", ("cosine", "linear"))
        self._real("scale", 1e-6, 1e6)


class Convolution(Encoder):
    """Random convolutional features of images whose pixels are the columns, row by row, channels last."""

    kind = "convolution"

    def __init__(self, columns: int, options: ConvolutionOptions, arrays: Mapping[str, Matrix]) -> None:
        self.columns, self._options, self._arrays = columns, options, dict(arrays)
        self._shape, self._grid = image_shape(options.shape, columns), _grid(options, columns)
        self.width = self._pooled if options.width is None else options.width

    @classmethod
    def draw(cls, columns: int, options: ConvolutionOptions, random: np.random.Generator) -> Self:
        """Filters of norm 1, drawn or fixed, and a random projection of what the pools hold."""
        shapes = _shapes(columns, options)
        inside, filters = shapes["filters"]
        if options.patches == "waves":
            kernels = _waves(options.size, options.shape[2] if len(options.shape) == 3 else 1)[:, :filters]
        else:
            kernels = random.standard_normal((inside, filters))
            if options.normalise:
                kernels -= kernels.mean(axis=0)
        arrays = {"filters": kernels / np.maximum(np.linalg.norm(kernels, axis=0), _SMALLEST)}
        if "weights" in shapes:
            pooled, width = shapes["weights"]
            arrays["weights"] = directions(width, pooled, random, orthogonal=True) / math.sqrt(pooled)
            if options.finish == "cosine":
                arrays["weights"] *= options.scale
                arrays["offsets"] = random.uniform(0.0, 2 * math.pi, width)
        return cls(columns, options, arrays)

    @classmethod
    def restore(cls, columns: int, options: ConvolutionOptions, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The encoder whose options and arrays these are."""
        return cls(columns, options, expect(arrays, _shapes(columns, options)))

    def embed(self, rows: Matrix) -> Matrix:
        """Features of images, in blocks whose patches fit in memory."""
        found = self.check(rows)
        kernels = self._arrays["filters"].astype(np.float32)
        down, across = self._grid
        pooled = np.empty((len(found), self._pooled))
        for block in blocks(len(found), down * across * (len(kernels) + kernels.shape[1])):
            pooled[block] = self._pools(found[block].astype(np.float32), kernels)
        if "weights" not in self._arrays:
            return pooled
        if "offsets" not in self._arrays:
            return np.asarray(normalised(pooled) @ self._arrays["weights"])
        return cosines(normalised(pooled), self._arrays["weights"], self._arrays["offsets"])

    def options(self) -> dict[str, Any]:
        """The options of the specification."""
        return self._options.plain()

    def arrays(self) -> Arrays:
        """Filters, and the projection if there is one."""
        return dict(self._arrays)

    @property
    def _pooled(self) -> int:
        return _pooled(self._options, self._grid, self._arrays["filters"].shape[1])

    def _pools(self, rows: _Singles, kernels: _Singles) -> _Singles:
        height, width, channels = self._shape
        size, stride = self._options.size, self._options.stride
        down, across = self._grid
        images = rows.reshape(-1, height, width, channels)
        windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(1, 2))[:, ::stride, ::stride]
        patches = windows.reshape(len(rows) * down * across, channels * size * size)
        if self._options.normalise:
            patches = patches - patches.mean(axis=1, keepdims=True)
            patches /= np.linalg.norm(patches, axis=1, keepdims=True) + 0.1 * math.sqrt(patches.shape[1])
        answers = patches @ kernels
        if self._options.nonlinearity == "relu":
            np.maximum(answers, 0, out=answers)
        elif self._options.nonlinearity == "abs":
            np.abs(answers, out=answers)
        else:
            np.square(answers, out=answers)
        found = answers.reshape(len(rows), down, across, -1)
        for axis in (1, 2):
            starts = np.arange(0, found.shape[axis], self._options.pool)
            sums = np.add.reduceat(found, starts, axis=axis)
            counts = np.diff(np.append(starts, found.shape[axis])).astype(np.float32)
            found = sums / counts.reshape((-1, 1, 1) if axis == 1 else (-1, 1))
        return found.reshape(len(rows), -1)


def _grid(options: ConvolutionOptions, columns: int) -> tuple[int, int]:
    height, width, _ = image_shape(options.shape, columns)
    if options.size > min(height, width):
        raise StudyError(f"filters of {options.size} pixels do not fit an image of {height} by {width} [ST264]")
    return (height - options.size) // options.stride + 1, (width - options.size) // options.stride + 1


def _pooled(options: ConvolutionOptions, grid: tuple[int, int], filters: int) -> int:
    return math.prod(math.ceil(places / options.pool) for places in grid) * filters


def _shapes(columns: int, options: ConvolutionOptions) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays that such an encoder has."""
    grid, (_, _, channels) = _grid(options, columns), image_shape(options.shape, columns)
    inside = options.size**2 * channels
    filters = min(options.filters, inside - channels) if options.patches == "waves" else options.filters
    shapes: dict[str, tuple[int, ...]] = {"filters": (inside, filters)}
    if options.width is not None:
        shapes["weights"] = (_pooled(options, grid, filters), options.width)
        if options.finish == "cosine":
            shapes["offsets"] = (options.width,)
    if max(math.prod(shape) for shape in shapes.values()) > MOST_NUMBERS:
        raise StudyError(
            "an encoder of these options would be too large: take fewer filters, larger pools or a width [ST265]"
        )
    return shapes


def _waves(size: int, channels: int) -> Matrix:
    """Cosine waves over a patch, slow ones first, for each channel; the constant one is left out."""
    place = np.arange(size) + 0.5
    waves = np.cos(np.pi / size * np.outer(np.arange(size), place))
    order = sorted(((down, across) for down in range(size) for across in range(size)), key=sum)[1:]
    planes = [np.outer(waves[down], waves[across]).ravel() for down, across in order]
    return np.stack([np.kron(unit, plane) for plane in planes for unit in np.eye(channels)], axis=1)


def cosines(rows: Matrix, weights: Matrix, offsets: Vector) -> Matrix:
    """Cosines of random projections, each between -sqrt(2 / width) and sqrt(2 / width)."""
    return np.asarray(math.sqrt(2 / len(offsets)) * np.cos(rows @ weights + offsets))


def normalised(rows: Matrix) -> Matrix:
    """Rows of norm sqrt(columns); a row of zeros stays."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows * (math.sqrt(rows.shape[1]) / np.maximum(norms, _SMALLEST)))
