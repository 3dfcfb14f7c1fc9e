"""Linear maps, in numpy: of the rows, or of features of them that do not change. They can learn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.split.contract import Arrays, Encoder, Matrix, Trainable, Vector
from colonnade.kinds.split.features import normalised
from colonnade.kinds.split.options import WIDEST, Options, blocks, directions, expect


@dataclass(frozen=True)
class LinearOptions(Options):
    """Without a width the rows are embedded as they are; ``over`` specifies an encoder whose embeddings are mapped."""

    width: int | None = None
    over: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.width is not None:
            self._whole("width", 1, WIDEST)


class Linear(Trainable):
    """A linear map x W + b: random orthogonal directions at first, or the rows as they are. It can learn."""

    kind = "linear"

    def __init__(self, columns: int, options: LinearOptions, weights: Matrix, offsets: Vector) -> None:
        self.columns, self.width, self._options = columns, len(offsets), options
        self._weights, self._offsets = weights, offsets

    @classmethod
    def draw(cls, columns: int, options: LinearOptions, random: np.random.Generator) -> Self:
        """Random directions of length 1, orthogonal to each other if there are no more of them than columns."""
        if options.width is None:
            return cls(columns, options, np.eye(columns), np.zeros(columns))
        found = directions(options.width, columns, random, orthogonal=True)
        return cls(columns, options, found / np.linalg.norm(found, axis=0), np.zeros(options.width))

    @classmethod
    def restore(cls, columns: int, options: LinearOptions, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The encoder whose options and arrays these are."""
        width = columns if options.width is None else options.width
        found = expect(arrays, {"weights": (columns, width), "offsets": (width,)})
        return cls(columns, options, found["weights"], found["offsets"])

    def embed(self, rows: Matrix) -> Matrix:
        """The linear map of the rows."""
        return np.asarray(self.check(rows) @ self._weights + self._offsets)

    def options(self) -> dict[str, Any]:
        """The options of the specification."""
        return self._options.plain()

    def arrays(self) -> Arrays:
        """The weights and what is added to their products."""
        return {"weights": self._weights, "offsets": self._offsets}

    @property
    def parameters(self) -> int:
        """How many numbers the weights and the offsets have."""
        return self._weights.size + self._offsets.size

    def pull_back(self, rows: Matrix, slopes: Matrix) -> Vector:
        """The sum of the rows' gradients."""
        return np.concatenate([(self.check(rows).T @ slopes).ravel(), slopes.sum(axis=0)])

    def pull_back_each(self, rows: Matrix, slopes: Matrix) -> Iterator[Matrix]:
        """Each row's gradient: its outer product with its slope, then the slope."""
        found = self.check(rows)
        for block in blocks(len(found), self.parameters):
            outer = found[block, :, None] * slopes[block, None, :]
            yield np.hstack([outer.reshape(len(outer), -1), slopes[block]])

    def factors(self, rows: Matrix, slopes: Matrix) -> tuple[Matrix, Matrix]:
        """The row with a constant 1 after it, and its slope."""
        return np.hstack([self.check(rows), np.ones((len(rows), 1))]), slopes

    def move(self, step: Vector) -> None:
        """Add a step to weights and offsets."""
        self._weights = self._weights + step[: self._weights.size].reshape(self._weights.shape)
        self._offsets = self._offsets + step[self._weights.size :]


class LinearOver(Trainable):
    """A linear map of another encoder's embeddings, each divided by its norm. The map starts at 0 and alone learns.

    Embeddings of norm 1 make every gradient at most as long as its slope, so one clip serves all rows.
    """

    kind = "linear"
    _BELOW = "over."

    def __init__(self, below: Encoder, top: Linear) -> None:
        self.below, self.top, self.columns, self.width = below, top, below.columns, top.width

    @classmethod
    def start(cls, below: Encoder, width: int) -> Self:
        """The map that embeds every row as zeros, from which learning starts."""
        zeros = np.zeros((below.width, width)), np.zeros(width)
        return cls(below, Linear(below.width, LinearOptions(width), *zeros))

    @classmethod
    def restore(cls, below: Encoder, width: int, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The encoder whose map has these arrays."""
        return cls(below, Linear.restore(below.width, LinearOptions(width), arrays))

    def embed(self, rows: Matrix) -> Matrix:
        """The map of the other encoder's embeddings."""
        return self.top.embed(self._features(rows))

    def options(self) -> dict[str, Any]:
        """The width, and the specification of the other encoder."""
        return {"width": self.width, "over": {"kind": self.below.kind, **self.below.options()}}

    def arrays(self) -> Arrays:
        """Those of the map, and those of the other encoder, under a longer name."""
        return self.top.arrays() | {f"{self._BELOW}{name}": value for name, value in self.below.arrays().items()}

    @classmethod
    def parted(cls, arrays: Mapping[str, NDArray[Any]]) -> tuple[Arrays, Arrays]:
        """The arrays of the map and those of the encoder below it, from those of both."""
        below = {name.removeprefix(cls._BELOW): each for name, each in arrays.items() if name.startswith(cls._BELOW)}
        return {name: each for name, each in arrays.items() if not name.startswith(cls._BELOW)}, below

    @property
    def parameters(self) -> int:
        """How many numbers the map has."""
        return self.top.parameters

    def pull_back(self, rows: Matrix, slopes: Matrix) -> Vector:
        """The sum of the rows' gradients."""
        return self.top.pull_back(self._features(rows), slopes)

    def pull_back_each(self, rows: Matrix, slopes: Matrix) -> Iterator[Matrix]:
        """Each row's gradient."""
        return self.top.pull_back_each(self._features(rows), slopes)

    def factors(self, rows: Matrix, slopes: Matrix) -> tuple[Matrix, Matrix]:
        """What the map is given, with a constant 1, and the slope."""
        return self.top.factors(self._features(rows), slopes)

    def move(self, step: Vector) -> None:
        """Add a step to the map."""
        self.top.move(step)

    def learned_part(self, rows: Matrix) -> tuple[Trainable, Matrix]:
        """The map, and the features that it is given."""
        return self.top, self._features(rows)

    def _features(self, rows: Matrix) -> Matrix:
        return normalised(self.below.embed(rows)) / math.sqrt(self.below.width)
