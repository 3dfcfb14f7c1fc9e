"""What an encoder is: one party's map from its encoded rows to embeddings. It stays with its party.

Its options are plain values, checked one by one. A supplied encoder is tried on made-up rows: a person's embedding must
be a function of the person's row alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
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

    def learned_part(self, rows: Matrix) -> tuple[TrainableEncoder, Matrix]:
        """The part of this encoder that learns, and what it is given: what does not change is computed once."""
        return self, self.check(rows)


class RowEncoder:
    """An encoder and the rows of its party: what the protocols of split networks ask for, by places of rows.

    Places count the common people, in the order in which ``rows`` holds them.
    """

    def __init__(self, encoder: Encoder, rows: Matrix) -> None:
        self.encoder = encoder
        inner: Encoder
        if isinstance(encoder, TrainableEncoder):
            inner, given = encoder.learned_part(rows)
        else:
            inner, given = encoder, encoder.check(rows)
        self._inner, self._given = inner, given

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

    def _whole(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise StudyError(f"option {name!r} of an encoder must be a whole number from {low} to {high} [ST307]")

    def _real(self, name: str, low: float, high: float) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise StudyError(f"option {name!r} of an encoder must be a number from {low:g} to {high:g} [ST308]")

    def _flag(self, name: str) -> None:
        if not isinstance(getattr(self, name), bool):
            raise StudyError(f"option {name!r} of an encoder must be true or false [ST309]")

    def _among(self, name: str, choices: Sequence[str]) -> None:
        if getattr(self, name) not in choices:
            raise StudyError(f"option {name!r} of an encoder must be one of {', '.join(choices)} [ST310]")

    def _wholes(self, name: str, counts: Sequence[int], high: int) -> None:
        """Make a list of positive whole numbers a tuple, and check how many it has."""
        value = getattr(self, name)
        whole = isinstance(value, list | tuple) and all(
            isinstance(each, int) and not isinstance(each, bool) and 1 <= each <= high for each in value
        )
        if not whole or len(value) not in counts:
            said = " or ".join(str(count) for count in counts)
            raise StudyError(f"option {name!r} of an encoder must be {said} whole numbers from 1 to {high} [ST311]")
        object.__setattr__(self, name, tuple(value))


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


def try_encoder(encoder: Encoder) -> None:
    """Refuse an encoder that makes something else of a row when others stand beside it, or each time.

    Many rows at once, halves of them in another order, and single rows must give the same. That finds statistics of
    a batch, chance and memory; what happens only with other rows than these remains the party's word.
    """
    rows = np.random.default_rng(0).uniform(
        -1, 1, (max(_FEWEST, min(_MOST, _CELLS // encoder.columns)), encoder.columns)
    )
    together, half = _try_embedding(encoder, rows), len(rows) // 2
    again = np.vstack([_try_embedding(encoder, rows[half:]), _try_embedding(encoder, rows[:half][::-1])])
    alone = np.vstack([_try_embedding(encoder, rows[place : place + 1]) for place in range(_ALONE)])
    expected = np.vstack([together[half:], together[:half][::-1]])
    if not (same_embeddings(expected, again) and same_embeddings(together[:_ALONE], alone)):
        raise StudyError(
            "the encoder makes something else of a row when others stand beside it, or each time: an embedding must "
            "be a function of its own row alone, with public constants in place of means or "
            "deviations of the rows [ST337]"
        )


def same_embeddings(one: Matrix, other: Matrix) -> bool:
    """Whether embeddings are the same up to rounding."""
    return bool(np.allclose(one, other, rtol=APART, atol=APART * max(1.0, float(np.abs(one).max(initial=0.0)))))


def _try_embedding(encoder: Encoder, rows: Matrix) -> Matrix:
    try:
        found = np.asarray(encoder.embed(rows.copy()), dtype=np.float64)
    except Exception as error:  # whatever the party's own code raises; the rows are made up
        said = (str(error).splitlines() or [""])[0][:200]
        raise StudyError(
            f"the encoder cannot be applied to {len(rows)} rows of {encoder.columns} columns: "
            f"{type(error).__name__}: {said} [ST338]"
        ) from None
    if found.shape != (len(rows), encoder.width):
        raise StudyError(f"the encoder must make one vector of {encoder.width} numbers of each row [ST339]")
    if not np.isfinite(found).all():
        raise StudyError("the encoder makes numbers that are not finite of rows between -1 and 1 [ST340]")
    return found
