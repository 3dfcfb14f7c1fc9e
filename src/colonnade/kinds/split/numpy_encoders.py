"""Encoders in numpy: random features, oriented edges of images, and linear maps, which can learn.

Random features are drawn without looking at any row. Edges say how strongly brightness changes in each direction, in
each part of an image; what is common to all directions is taken out, and every image has the same norm, so that
features of different images differ much while none of them is long, which is what noise asks for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.split.encoder_base import (
    WIDEST,
    Arrays,
    Encoder,
    EncoderOptions,
    Matrix,
    TrainableEncoder,
    Vector,
    expect_arrays,
    image_shape,
    random_directions,
    row_blocks,
)

_SMALLEST = 1e-12
_BELOW = "over."


class DrawnOptions(EncoderOptions):
    """Options of an encoder whose arrays are drawn: weights, and what is added to products with them."""

    def sizes(self, columns: int) -> tuple[int, int] | None:
        """How many numbers the weights are given and how many they give; ``None`` where there are no weights."""
        raise NotImplementedError


class DrawnEncoder(Encoder):
    """An encoder that is its options and its arrays."""

    def __init__(self, columns: int, options: Any, arrays: Arrays) -> None:
        self.columns, self._arrays = columns, arrays
        self._said, self._options = options, options.plain()
        if arrays:
            self.width = len(arrays["offsets"])

    @classmethod
    def restore(cls, columns: int, options: DrawnOptions, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The encoder whose options and arrays these are."""
        sizes = options.sizes(columns)
        return cls(columns, options, expect_arrays(arrays, {"weights": sizes, "offsets": sizes[1:]} if sizes else {}))

    def arrays(self) -> Arrays:
        """Weights and offsets, if there are any."""
        return dict(self._arrays)


@dataclass(frozen=True)
class CosineOptions(DrawnOptions):
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

    def sizes(self, columns: int) -> tuple[int, int]:
        """From columns to cosines."""
        return columns, self.width


class CosineEncoder(DrawnEncoder):
    """Random cosine features: sqrt(2 / width) cos(x W + b), whose products approach a Gaussian kernel's."""

    kind = "cosine"

    @classmethod
    def draw(cls, columns: int, options: CosineOptions, random: np.random.Generator) -> Self:
        """Directions whose numbers have the deviation ``scale / sqrt(columns)``, and uniform offsets."""
        found = random_directions(options.width, columns, random, orthogonal=options.orthogonal)
        offsets = random.uniform(0.0, 2 * math.pi, options.width)
        return cls(columns, options, {"weights": found * (options.scale / math.sqrt(columns)), "offsets": offsets})

    def embed(self, rows: Matrix) -> Matrix:
        """Features between -sqrt(2 / width) and sqrt(2 / width), so a row's norm is at most sqrt(2)."""
        found = self.check(rows)
        if self._options["normalise"]:
            found = normalise_rows(found)
        return random_cosines(found, **self._arrays)


def random_cosines(rows: Matrix, weights: Matrix, offsets: Vector) -> Matrix:
    """Cosines of random projections, each between -sqrt(2 / width) and sqrt(2 / width)."""
    return np.asarray(math.sqrt(2 / len(offsets)) * np.cos(rows @ weights + offsets))


def normalise_rows(rows: Matrix) -> Matrix:
    """Rows of norm sqrt(columns); a row of zeros stays."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows * (math.sqrt(rows.shape[1]) / np.maximum(norms, _SMALLEST)))


_EdgeSingles = NDArray[np.float32]


@dataclass(frozen=True)
class EdgeOptions(DrawnOptions):
    """``orientations`` around the circle, in parts ``every`` so many pixels, each seen through a ``window``.

    With a width the edges go through so many random cosines, whose directions have the deviation ``scale``.
    """

    shape: tuple[int, ...] = ()
    width: int | None = None
    orientations: int = 8
    every: int = 4
    window: int = 5
    scale: float = 1.4

    def __post_init__(self) -> None:
        self._wholes("shape", (2, 3), 4096)
        if self.width is not None:
            self._whole("width", 1, WIDEST)
        for name, low, high in (("orientations", 3, 64), ("every", 1, 1024), ("window", 1, 1024)):
            self._whole(name, low, high)
        self._real("scale", 1e-6, 1e6)

    def sizes(self, columns: int) -> tuple[int, int] | None:
        """From edges to cosines of them."""
        return None if self.width is None else (self.edges(columns), self.width)

    def parts(self, side: int) -> int:
        """Into how many parts a side of an image is split."""
        return max(1, round(side / self.every) - 1)

    def edges(self, columns: int) -> int:
        """How many numbers describe the edges of an image."""
        height, width, _ = image_shape(self.shape, columns)
        return self.parts(height) * self.parts(width) * self.orientations


class EdgeEncoder(DrawnEncoder):
    """Oriented edges of images whose pixels are the columns, row by row, channels last."""

    kind = "edges"

    def __init__(self, columns: int, options: EdgeOptions, arrays: Arrays) -> None:
        self._shape, self._edges = image_shape(options.shape, columns), options.edges(columns)
        self.width = self._edges
        super().__init__(columns, options, arrays)

    @classmethod
    def draw(cls, columns: int, options: EdgeOptions, random: np.random.Generator) -> Self:
        """Edges as they are, or random cosines of them."""
        if options.width is None:
            return cls(columns, options, {})
        weights = options.scale * random_directions(options.width, options.edges(columns), random, orthogonal=True)
        return cls(columns, options, {"weights": weights, "offsets": random.uniform(0, 2 * math.pi, options.width)})

    def embed(self, rows: Matrix) -> Matrix:
        """Edges, of norm 1; or cosines of them, each between -sqrt(2 / width) and sqrt(2 / width)."""
        found = self.check(rows)
        edges = np.empty((len(found), self._edges))
        for block in row_blocks(len(found), 4 * self.columns):
            edges[block] = self._seen(found[block].astype(np.float32).reshape(-1, *self._shape))
        units = normalise_rows(edges) / math.sqrt(self._edges)
        if not self._arrays:
            return np.asarray(units)
        return random_cosines(units, **self._arrays)

    def _seen(self, images: _EdgeSingles) -> _EdgeSingles:
        """Roots of how much brightness rises in each direction, in each part, less their mean over directions."""
        height, width, _ = self._shape
        around = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")  # a frame of zeros would be an edge
        across = around[:, 1:-1, 2:] - around[:, 1:-1, :-2]
        down = around[:, 2:, 1:-1] - around[:, :-2, 1:-1]
        rows, columns = self._windows(height), self._windows(width)
        found = np.empty((len(images), len(rows), len(columns), self._said.orientations), dtype=np.float32)
        for turn in range(self._said.orientations):
            angle = 2 * math.pi * turn / self._said.orientations
            rising = np.maximum(across * np.float32(math.cos(angle)) + down * np.float32(math.sin(angle)), 0).sum(
                axis=3
            )
            found[..., turn] = rows @ rising @ columns.T
        roots = np.sqrt(found)
        roots -= roots.mean(axis=3, keepdims=True)
        return roots.reshape(len(images), -1)

    def _windows(self, side: int) -> _EdgeSingles:
        """Weights of the pixels of a side in each part: they fall off from the part's middle, (parts, side)."""
        middles = np.linspace(0, side - 1, self._said.parts(side) + 2)[1:-1]
        far = np.abs(np.arange(side) - middles[:, None]) / self._said.window
        return np.maximum(0.0, 1.0 - far).astype(np.float32)


@dataclass(frozen=True)
class LinearOptions(DrawnOptions):
    """Without a width the rows are embedded as they are; ``over`` specifies an encoder whose embeddings are mapped."""

    width: int | None = None
    over: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.width is not None:
            self._whole("width", 1, WIDEST)

    def sizes(self, columns: int) -> tuple[int, int]:
        """From columns, or what the other encoder makes of them, to the embedding."""
        return columns, columns if self.width is None else self.width


class LinearEncoder(DrawnEncoder, TrainableEncoder):
    """A linear map x W + b: random orthogonal directions at first, or the rows as they are. It can learn.

    Over another encoder it maps that one's embeddings, each divided by its norm; it starts at 0 and alone learns.
    Embeddings of norm 1 make every gradient at most as long as its slope, so one clip serves all rows.
    """

    kind = "linear"

    def __init__(self, columns: int, options: LinearOptions, arrays: Arrays, below: Encoder | None = None) -> None:
        super().__init__(columns, options, arrays)
        self.below = below

    @classmethod
    def draw(cls, columns: int, options: LinearOptions, random: np.random.Generator) -> Self:
        """Random directions of length 1, orthogonal to each other if there are no more of them than columns."""
        if options.width is None:
            return cls(columns, options, {"weights": np.eye(columns), "offsets": np.zeros(columns)})
        found = random_directions(options.width, columns, random, orthogonal=True)
        arrays = {"weights": found / np.linalg.norm(found, axis=0), "offsets": np.zeros(options.width)}
        return cls(columns, options, arrays)

    @classmethod
    def over(cls, below: Encoder, width: int, arrays: Mapping[str, NDArray[Any]] | None = None) -> Self:
        """The map of embeddings of another encoder that has these arrays, or embeds every row as zeros."""
        given = {"weights": np.zeros((below.width, width)), "offsets": np.zeros(width)} if arrays is None else arrays
        held = expect_arrays(given, {"weights": (below.width, width), "offsets": (width,)})
        return cls(below.columns, LinearOptions(width, {"kind": below.kind, **below.options()}), held, below)

    def embed(self, rows: Matrix) -> Matrix:
        """The linear map of the rows, or of the other encoder's embeddings."""
        return np.asarray(self._features(rows) @ self._arrays["weights"] + self._arrays["offsets"])

    def arrays(self) -> Arrays:
        """Those of the map, and those of the other encoder, under a longer name."""
        below = {} if self.below is None else self.below.arrays()
        return self._arrays | {f"{_BELOW}{name}": value for name, value in below.items()}

    @property
    def parameters(self) -> int:
        """How many numbers the weights and the offsets have."""
        return sum(each.size for each in self._arrays.values())

    def pull_back(self, rows: Matrix, slopes: Matrix) -> Vector:
        """The sum of the rows' gradients."""
        return np.concatenate([(self._features(rows).T @ slopes).ravel(), slopes.sum(axis=0)])

    def pull_back_each(self, rows: Matrix, slopes: Matrix) -> Iterator[Matrix]:
        """Each row's gradient: its outer product with its slope, then the slope."""
        found = self._features(rows)
        for block in row_blocks(len(found), self.parameters):
            outer = found[block, :, None] * slopes[block, None, :]
            yield np.hstack([outer.reshape(len(outer), -1), slopes[block]])

    def factors(self, rows: Matrix, slopes: Matrix) -> tuple[Matrix, Matrix]:
        """What the map is given, with a constant 1 after it, and the slope."""
        return np.hstack([self._features(rows), np.ones((len(rows), 1))]), slopes

    def move(self, step: Vector) -> None:
        """Add a step to weights and offsets."""
        weights = self._arrays["weights"]
        self._arrays["weights"] = weights + step[: weights.size].reshape(weights.shape)
        self._arrays["offsets"] = self._arrays["offsets"] + step[weights.size :]

    def learned_part(self, rows: Matrix) -> tuple[TrainableEncoder, Matrix]:
        """The map alone, whose arrays are those of this encoder, and the features that it is given."""
        if self.below is None:
            return super().learned_part(rows)
        return LinearEncoder(self.below.width, LinearOptions(self.width), self._arrays), self._features(rows)

    def _features(self, rows: Matrix) -> Matrix:
        if self.below is None:
            return self.check(rows)
        return normalise_rows(self.below.embed(rows)) / math.sqrt(self.below.width)


def split_arrays(arrays: Mapping[str, NDArray[Any]]) -> tuple[Arrays, Arrays]:
    """The arrays of a linear map and those of the encoder below it, from those of both."""
    below = {name.removeprefix(_BELOW): each for name, each in arrays.items() if name.startswith(_BELOW)}
    return {name: each for name, each in arrays.items() if not name.startswith(_BELOW)}, below
