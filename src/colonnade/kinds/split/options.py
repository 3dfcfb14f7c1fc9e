"""Options of encoders, as a specification gives them: plain values, checked one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError

WIDEST = 1 << 16
"""No embedding has more numbers."""
MOST_NUMBERS = 1 << 27
"""No array of an encoder has more."""
_LONG_TO_TURN = 4096


@dataclass(frozen=True)
class Options:
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


Shape = tuple[int, int, int]


def image_shape(shape: Sequence[int], columns: int) -> Shape:
    """Height, width and channels of an image that has these columns."""
    height, width, *rest = shape
    channels = rest[0] if rest else 1
    if height * width * channels != columns:
        raise StudyError(
            f"an image of shape {list(shape)} has {height * width * channels} pixels, but the table has {columns} "
            "encoded columns: correct the option 'shape' of the encoder [ST312]"
        )
    return height, width, channels


def expect(arrays: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float64]]:
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


def blocks(rows: int, cells_each: int, most: int = 1 << 24) -> list[slice]:
    """Blocks of rows of which each has at most so many cells, or is one row."""
    size = max(1, most // max(1, cells_each))
    return [slice(start, min(rows, start + size)) for start in range(0, rows, size)]


def directions(count: int, columns: int, random: np.random.Generator, *, orthogonal: bool) -> NDArray[np.float64]:
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
