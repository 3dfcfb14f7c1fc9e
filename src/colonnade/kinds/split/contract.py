"""What an encoder is: one party's map from its encoded rows to embeddings. It stays with its party."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

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
    party: str = ""
    """Whose it is, where that is known; for messages alone."""
    learned: Training = "none"
    """Whether a study trained it on private rows; its file says so too, and no other study takes it then."""

    @abstractmethod
    def embed(self, rows: Matrix) -> Matrix:
        """Embeddings of rows; the same for equal rows, whatever stands beside them."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Plain values from which, with :meth:`arrays`, an equal encoder can be made."""

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


def worse(one: Training, other: Training) -> Training:
    """What is to be said of an encoder of which both are true."""
    return max(one, other, key=get_args(Training).index)


class Trainable(Encoder):
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

    def learned_part(self, rows: Matrix) -> tuple[Trainable, Matrix]:
        """The part of this encoder that learns, and what it is given: what does not change is computed once."""
        return self, self.check(rows)


class OverRows:
    """An encoder and the rows of its party: what the protocols of split networks ask for, by places of rows.

    Places count the common people, in the order in which ``rows`` holds them.
    """

    def __init__(self, encoder: Encoder, rows: Matrix) -> None:
        self.encoder = encoder
        inner: Encoder
        if isinstance(encoder, Trainable):
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
        return self._inner.parameters if isinstance(self._inner, Trainable) else 0

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
    def _trainable(self) -> Trainable:
        if isinstance(self._inner, Trainable):
            return self._inner
        raise StudyError(
            f"an encoder of kind {self.encoder.kind!r} has nothing to learn: leave it frozen, or choose linear, mlp, "
            "cnn or a module of your own [ST248]"
        )
