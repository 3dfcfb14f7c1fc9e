"""What an encoder is: one party's map from its encoded rows to embeddings, which stays with its party; those in numpy.

Its options are plain values, checked one by one. A supplied encoder is tried on made-up rows: a person's embedding must
be a function of the person's row alone.

Without torch there are random features, oriented edges of images, and linear maps, which can learn. Random features are
drawn without looking at any row. Edges say how strongly brightness changes in each direction, in each part of an image;
what is common to all directions is taken out, and every image has the same norm, so that features of different images
differ much while none of them is long, which is what noise asks for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ColonnadeError, DataError, StudyError

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Places = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]
Training = Literal["none", "charged", "uncharged"]
"""Whether an encoder was trained on private rows, and whether what it tells of them is in the events."""


class Encoder(ABC):
    """A map from encoded rows, (n, columns), to embeddings, (n, width); clipping is left to who releases them."""

    kind: str
    columns: int
    width: int
    _options: Mapping[str, Any]
    party: str = ""
    """Whose it is, where that is known; for messages alone."""
    learned: Training = "none"
    """Whether a study trained it on private rows; its file says so too, and no other study takes it then."""

    @abstractmethod
    def embed(self, rows: Matrix) -> Matrix:
        """Embeddings of rows; the same for equal rows, whatever stands beside them."""

    def options(self) -> dict[str, Any]:
        """Plain values from which, with :meth:`arrays`, an equal encoder can be made."""
        return dict(self._options)

    @abstractmethod
    def arrays(self) -> Arrays:
        """Everything that was drawn or learned."""

    def check(self, rows: Matrix) -> Matrix:
        """The rows as float64, if they have as many columns as this encoder reads."""
        found = np.asarray(rows, dtype=np.float64)
        if found.ndim != 2 or found.shape[1] != self.columns:
            raise DataError(
                f"this encoder reads rows of {self.columns} encoded columns, not of shape {found.shape} [DA086]"
            )
        return found

    def learned_part(self, rows: Matrix) -> tuple[Encoder, Matrix]:
        """The part of this encoder that learns, and what it is given: what does not change is computed once."""
        return self, self.check(rows)

    @contextmanager
    def own_code(self) -> Iterator[None]:
        """Where a party's own code meets its rows: a failure is told without its words, which may hold cells."""
        try:
            yield
        except ColonnadeError:
            raise
        except Exception as error:
            whose = f"{self.party}'s encoder" if self.party else "an encoder"
            raise StudyError(
                f"the module of {whose} failed on its rows: {type(error).__name__} (its message may hold cells and is "
                "not shown); try the module on rows of this table [ST247]"
            ) from None


def worse_training(one: Training, other: Training) -> Training:
    """What is to be said of an encoder of which both are true."""
    return max(one, other, key=get_args(Training).index)


class TrainableEncoder(Encoder):
    """An encoder whose parameters can be learned; they are listed in one vector, always in the same order."""

    @property
    @abstractmethod
    def parameters(self) -> int:
        """How many numbers the encoder has."""

    @abstractmethod
    def pull_back(self, rows: Matrix, slopes: Matrix) -> Vector:
        """The sum over rows of (d embedding / d parameters)' times the row's slope, (parameters,)."""

    @abstractmethod
    def pull_back_each(self, rows: Matrix, slopes: Matrix) -> Iterator[Matrix]:
        """The same for each row alone, in blocks of rows, (rows of the block, parameters)."""

    @abstractmethod
    def move(self, step: Vector) -> None:
        """Add a step to the parameters."""

    def factors(self, rows: Matrix, slopes: Matrix) -> tuple[Matrix, Matrix] | None:
        """Two vectors for each row, of which all products are its gradient, where the encoder is of that form."""
        return None


class RowEncoder:
    """An encoder and the rows of its party: what the protocols of split networks ask for, by places of rows.

    Places count the common people, in the order in which ``rows`` holds them.
    """

    def __init__(self, encoder: Encoder, rows: Matrix) -> None:
        self.encoder = encoder
        self._inner, self._given = encoder.learned_part(rows)

    @property
    def width(self) -> int:
        """How many numbers an embedding has."""
        return self.encoder.width

    @property
    def parameters(self) -> int:
        """How many numbers the encoder learns; a frozen one learns none."""
        return self._inner.parameters if isinstance(self._inner, TrainableEncoder) else 0

    def embed(self, places: Places, /) -> Matrix:
        """Embeddings of the rows at these places."""
        return self._inner.embed(self._at(places))

    def pull_back(self, places: Places, slopes: Matrix, /) -> Vector:
        """How the parameters move a loss whose slopes at these rows' embeddings are given."""
        return self._trainable.pull_back(self._at(places), slopes)

    def pull_back_each(self, places: Places, slopes: Matrix, /) -> Iterator[Matrix]:
        """The same for each row alone, in blocks of rows."""
        return self._trainable.pull_back_each(self._at(places), slopes)

    def factors(self, places: Places, slopes: Matrix, /) -> tuple[Matrix, Matrix] | None:
        """Two vectors for each row, of which all products are its gradient, where the encoder is of that form."""
        return self._trainable.factors(self._at(places), slopes)

    def move(self, step: Vector, /) -> None:
        """Add a step to the parameters."""
        self._trainable.move(step)

    def _at(self, places: Places) -> Matrix:
        """The rows at these places; those of a batch, at equal distances, are not copied."""
        step = int(places[1] - places[0]) if len(places) > 1 else 1
        if len(places) and step > 0 and places[0] >= 0:
            span = slice(int(places[0]), int(places[-1]) + 1, step)
            if np.array_equal(places, np.arange(len(self._given))[span]):
                return self._given[span]
        return self._given[places]

    @property
    def _trainable(self) -> TrainableEncoder:
        if isinstance(self._inner, TrainableEncoder):
            return self._inner
        raise StudyError(
            f"an encoder of kind {self.encoder.kind!r} has nothing to learn: leave it frozen, or choose linear, mlp, "
            "cnn or a module of your own [ST248]"
        )


WIDEST = 1 << 16
"""No embedding has more numbers."""
MOST_NUMBERS = 1 << 27
"""No array of an encoder has more."""
_LONG_TO_TURN = 4096


@dataclass(frozen=True)
class EncoderOptions:
    """Options of one kind of encoder; each class checks its own when it is made."""

    @classmethod
    def read(cls, kind: str, given: Mapping[str, Any]) -> Self:
        """Options from a specification without its kind."""
        known = [each.name for each in fields(cls)]
        if unknown := sorted(str(name) for name in set(given) - set(known)):
            raise StudyError(
                f"an encoder of kind {kind!r} has no option {unknown[0]!r}; it has {', '.join(known)} [ST306]"
            )
        return cls(**given)

    def plain(self) -> dict[str, Any]:
        """The options as JSON holds them."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value is not None
        }

    def __post_init__(self) -> None:
        for each in fields(self):
            value, said = getattr(self, each.name), each.metadata.get("said", "")
            if isinstance(value, list):
                object.__setattr__(self, each.name, tuple(value))
            if said and (value is not None or each.default is not None) and not each.metadata["fits"](value):
                raise StudyError(said.format(name=each.name))


def whole_option(default: int | None, low: int, high: int) -> Any:
    """An option that is a whole number."""

    def fits(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return field(
        default=default,
        metadata={
            "fits": fits,
            "said": f"option {{name!r}} of an encoder must be a whole number from {low} to {high} [ST307]",
        },
    )


def wholes_option(default: tuple[int, ...], counts: Sequence[int], high: int) -> Any:
    """An option that is a list of positive whole numbers, as many as one of these counts."""

    def fits(value: object) -> bool:
        listed = isinstance(value, list | tuple) and len(value) in counts
        return listed and all(type(each) is int and 1 <= each <= high for each in value)  # type: ignore[attr-defined]

    many = " or ".join(str(count) for count in counts)
    said = f"option {{name!r}} of an encoder must be {many} whole numbers from 1 to {high} [ST311]"
    return field(default=default, metadata={"fits": fits, "said": said})


def scale_option(default: float) -> Any:
    """An option that is a positive number."""

    def fits(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and 1e-6 <= value <= 1e6

    return field(
        default=default,
        metadata={"fits": fits, "said": "option {name!r} of an encoder must be a number from 1e-06 to 1e+06 [ST308]"},
    )


def flag_option(default: bool) -> Any:
    """An option that is true or false."""

    def fits(value: object) -> bool:
        return isinstance(value, bool)

    return field(
        default=default, metadata={"fits": fits, "said": "option {name!r} of an encoder must be true or false [ST309]"}
    )


ImageShape = tuple[int, int, int]


def image_shape(shape: Sequence[int], columns: int) -> ImageShape:
    """Height, width and channels of an image that has these columns."""
    height, width, *rest = shape
    channels = rest[0] if rest else 1
    if height * width * channels != columns:
        raise StudyError(
            f"an image of shape {list(shape)} has {height * width * channels} pixels, but the table has {columns} "
            "encoded columns: correct the option 'shape' of the encoder [ST312]"
        )
    return height, width, channels


def expect_arrays(
    arrays: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[np.float64]]:
    """These arrays as float64, if they are all there with these shapes and hold finite numbers only."""
    if set(arrays) != set(shapes):
        listed = ", ".join(sorted(shapes)) or "none"
        raise StudyError(f"the file of this encoder should hold these arrays and no others: {listed} [ST313]")
    found = {}
    for name, shape in shapes.items():
        array = arrays[name]
        if array.shape != shape or array.dtype.kind != "f":
            raise StudyError(f"the array {name!r} of an encoder should have the shape {shape}, and does not [ST314]")
        found[name] = array.astype(np.float64)
        if not np.isfinite(found[name]).all():
            raise StudyError(f"the array {name!r} of an encoder holds numbers that are not finite [ST315]")
    return found


def row_blocks(rows: int, cells_each: int, most: int = 1 << 24) -> list[slice]:
    """Blocks of rows of which each has at most so many cells, or is one row."""
    size = max(1, most // max(1, cells_each))
    return [slice(start, min(rows, start + size)) for start in range(0, rows, size)]


def random_directions(
    count: int, columns: int, random: np.random.Generator, *, orthogonal: bool
) -> NDArray[np.float64]:
    """Random directions, (columns, count), of mean squared length ``columns``; orthogonal ones in sets of that many.

    Many columns are nearly orthogonal by chance, and making them quite so takes long.
    """
    if count * columns > MOST_NUMBERS:
        raise StudyError(f"an encoder of {columns} by {count} numbers would be too large: take a smaller width [ST316]")
    drawn = random.standard_normal((columns, count))
    if not orthogonal or columns > _LONG_TO_TURN:
        return drawn
    sets = [np.linalg.qr(drawn[:, start : start + columns])[0] for start in range(0, count, columns)]
    return np.asarray(np.hstack(sets) * np.linalg.norm(random.standard_normal((columns, count)), axis=0))


APART = 1e-3
"""How far float32 may move an embedding when fewer rows are computed together."""
_CELLS, _FEWEST, _MOST = 1 << 16, 16, 1200
_ALONE = 3


def try_encoder(embed: Callable[[Matrix], Matrix], columns: int, width: int | None = None) -> int:
    """The width of embeddings; an error if something else is made of a row when others stand beside it, or each time.

    Many rows at once, halves of them in another order, and single rows must give the same. That finds statistics of
    a batch, chance and memory; what happens only with other rows than these remains the party's word.
    """
    rows = np.random.default_rng(0).uniform(-1, 1, (max(_FEWEST, min(_MOST, _CELLS // columns)), columns))
    together, half = _try_embedding(embed, width, rows), len(rows) // 2
    again = np.vstack([_try_embedding(embed, width, rows[half:]), _try_embedding(embed, width, rows[:half][::-1])])
    expected = np.vstack([together[half:], together[:half][::-1]])
    if not same_embeddings(expected, again) or not same_embeddings(
        together[:_ALONE], np.vstack([_try_embedding(embed, width, rows[place : place + 1]) for place in range(_ALONE)])
    ):
        raise StudyError(
            "the encoder makes something else of a row when others stand beside it, or each time: an embedding must "
            "be a function of its own row alone, with public constants in place of means or deviations of the rows, "
            "and in a network layers such as GroupNorm or LayerNorm [ST337]"
        )
    return int(together.shape[1])


def same_embeddings(one: Matrix, other: Matrix) -> bool:
    """Whether embeddings are the same up to rounding."""
    return bool(np.allclose(one, other, rtol=APART, atol=APART * max(1.0, float(np.abs(one).max(initial=0.0)))))


def _try_embedding(embed: Callable[[Matrix], Matrix], width: int | None, rows: Matrix) -> Matrix:
    try:
        found = np.asarray(embed(rows.copy()), dtype=np.float64)
    except Exception as error:  # whatever the party's own code raises; the rows are made up
        said = (str(error).splitlines() or [""])[0][:200]
        raise StudyError(
            f"the encoder cannot be applied to {len(rows)} rows of {rows.shape[1]} columns: "
            f"{type(error).__name__}: {said} [ST338]"
        ) from None
    if found.ndim != 2 or found.shape != (len(rows), width or found.shape[1]) or not 1 <= found.shape[1] <= WIDEST:
        numbers = "numbers" if width is None else f"{width} numbers"
        raise StudyError(f"the encoder must make one vector of {numbers} of each row [ST339]")
    if not np.isfinite(found).all():
        raise StudyError("the encoder makes numbers that are not finite of rows between -1 and 1 [ST340]")
    return found


_SMALLEST = 1e-12
_BELOW = "over."


class DrawnEncoder(Encoder):
    """An encoder that is its options and its arrays."""

    def __init__(self, columns: int, options: Any, arrays: Arrays) -> None:
        self.columns, self._arrays = columns, arrays
        self._said, self._options = options, options.plain()
        if arrays:
            self.width = len(arrays["offsets"])

    @classmethod
    def restore(cls, columns: int, options: Any, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The encoder whose options and arrays these are."""
        sizes = options.sizes(columns)
        return cls(columns, options, expect_arrays(arrays, {"weights": sizes, "offsets": sizes[1:]} if sizes else {}))

    def arrays(self) -> Arrays:
        """Weights and offsets, if there are any."""
        return dict(self._arrays)


@dataclass(frozen=True)
class CosineOptions(EncoderOptions):
    """``scale`` is how far a row of typical values turns the cosines: small is smooth, large is fine."""

    width: int = whole_option(250, 1, WIDEST)
    scale: float = scale_option(3.0)
    orthogonal: bool = flag_option(True)
    normalise: bool = flag_option(False)
    """Whether rows are first divided by their norm, times the root of the number of columns."""

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
class EdgeOptions(EncoderOptions):
    """``orientations`` around the circle, in parts ``every`` so many pixels, each seen through a ``window``.

    With a width the edges go through so many random cosines, whose directions have the deviation ``scale``.
    """

    shape: tuple[int, ...] = wholes_option((), (2, 3), 4096)
    width: int | None = whole_option(None, 1, WIDEST)
    orientations: int = whole_option(8, 3, 64)
    every: int = whole_option(4, 1, 1024)
    window: int = whole_option(5, 1, 1024)
    scale: float = scale_option(1.4)

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
    _said: EdgeOptions

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
class LinearOptions(EncoderOptions):
    """Without a width the rows are embedded as they are; ``over`` specifies an encoder whose embeddings are mapped."""

    width: int | None = whole_option(None, 1, WIDEST)
    over: Mapping[str, Any] | None = None

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

    def learned_part(self, rows: Matrix) -> tuple[Encoder, Matrix]:
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
