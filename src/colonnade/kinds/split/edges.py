"""Oriented edges of images, in numpy: how strongly brightness changes in each direction, in each part of the image.

What is common to all directions is taken out, and every image has the same norm. So features of different images differ
much while none of them is long, which is what noise asks for; nothing is learned and, without a width, nothing random.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.split.contract import Arrays, Encoder, Matrix
from colonnade.kinds.split.features import cosines, normalised
from colonnade.kinds.split.options import WIDEST, Options, blocks, directions, expect, image_shape

_Singles = NDArray[np.float32]


@dataclass(frozen=True)
class EdgesOptions(Options):
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

    def parts(self, side: int) -> int:
        """Into how many parts a side of an image is split."""
        return max(1, round(side / self.every) - 1)

    def edges(self, columns: int) -> int:
        """How many numbers describe the edges of an image."""
        height, width, _ = image_shape(self.shape, columns)
        return self.parts(height) * self.parts(width) * self.orientations


class Edges(Encoder):
    """Oriented edges of images whose pixels are the columns, row by row, channels last."""

    kind = "edges"

    def __init__(self, columns: int, options: EdgesOptions, arrays: Mapping[str, Matrix]) -> None:
        self.columns, self._options, self._arrays = columns, options, dict(arrays)
        self._shape, self._edges = image_shape(options.shape, columns), options.edges(columns)
        self.width = self._edges if options.width is None else options.width

    @classmethod
    def draw(cls, columns: int, options: EdgesOptions, random: np.random.Generator) -> Self:
        """Edges as they are, or random cosines of them."""
        if options.width is None:
            return cls(columns, options, {})
        weights = options.scale * directions(options.width, options.edges(columns), random, orthogonal=True)
        return cls(columns, options, {"weights": weights, "offsets": random.uniform(0, 2 * math.pi, options.width)})

    @classmethod
    def restore(cls, columns: int, options: EdgesOptions, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The encoder whose options and arrays these are."""
        width = options.width
        shapes = {} if width is None else {"weights": (options.edges(columns), width), "offsets": (width,)}
        return cls(columns, options, expect(arrays, shapes))

    def embed(self, rows: Matrix) -> Matrix:
        """Edges, of norm 1; or cosines of them, each between -sqrt(2 / width) and sqrt(2 / width)."""
        found = self.check(rows)
        edges = np.empty((len(found), self._edges))
        for block in blocks(len(found), 4 * self.columns):
            edges[block] = self._seen(found[block].astype(np.float32).reshape(-1, *self._shape))
        units = normalised(edges) / math.sqrt(self._edges)
        if not self._arrays:
            return np.asarray(units)
        return cosines(units, self._arrays["weights"], self._arrays["offsets"])

    def options(self) -> dict[str, Any]:
        """The options of the specification."""
        return self._options.plain()

    def arrays(self) -> Arrays:
        """The cosines, if there are any."""
        return dict(self._arrays)

    def _seen(self, images: _Singles) -> _Singles:
        """Roots of how much brightness rises in each direction, in each part, less their mean over directions."""
        height, width, _ = self._shape
        around = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")  # a frame of zeros would be an edge
        across = around[:, 1:-1, 2:] - around[:, 1:-1, :-2]
        down = around[:, 2:, 1:-1] - around[:, :-2, 1:-1]
        rows, columns = self._windows(height), self._windows(width)
        found = np.empty((len(images), len(rows), len(columns), self._options.orientations), dtype=np.float32)
        for turn in range(self._options.orientations):
            angle = 2 * math.pi * turn / self._options.orientations
            rising = np.maximum(across * np.float32(math.cos(angle)) + down * np.float32(math.sin(angle)), 0).sum(
                axis=3
            )
            found[..., turn] = rows @ rising @ columns.T
        roots = np.sqrt(found)
        roots -= roots.mean(axis=3, keepdims=True)
        return roots.reshape(len(images), -1)

    def _windows(self, side: int) -> _Singles:
        """Weights of the pixels of a side in each part: they fall off from the part's middle, (parts, side)."""
        middles = np.linspace(0, side - 1, self._options.parts(side) + 2)[1:-1]
        far = np.abs(np.arange(side) - middles[:, None]) / self._options.window
        return np.maximum(0.0, 1.0 - far).astype(np.float32)
