"""Random features, in numpy: encoders that are drawn without looking at any row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.split.contract import Arrays, Encoder, Matrix, Vector
from colonnade.kinds.split.options import WIDEST, Options, directions, expect

_SMALLEST = 1e-12


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


def cosines(rows: Matrix, weights: Matrix, offsets: Vector) -> Matrix:
    """Cosines of random projections, each between -sqrt(2 / width) and sqrt(2 / width)."""
    return np.asarray(math.sqrt(2 / len(offsets)) * np.cos(rows @ weights + offsets))


def normalised(rows: Matrix) -> Matrix:
    """Rows of norm sqrt(columns); a row of zeros stays."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows * (math.sqrt(rows.shape[1]) / np.maximum(norms, _SMALLEST)))
