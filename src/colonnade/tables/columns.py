"""What a column may hold, and all that follows from it: ``number``, ``category`` and ``flag``; dates are in ``dates``.

A column is a frozen value. It says everything the encoder needs, so that nothing is ever learned from data. It reads
its cells, encodes and decodes them, has codes, bounds and middles, is compared with constants, is described in words,
and writes itself into a TOML file and an ONNX graph. Whoever uses columns asks them, and never which class they have:
so a new type of column is one class here or elsewhere, and one row in :data:`~colonnade.tables.schema.COLUMN_TYPES`.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import SchemaError
from colonnade.tables import cell_parsing
from colonnade.tables.bins import (
    MAX_WHOLE,
    Bins,
    Matrix,
    Quantity,
    Scale,
    Transform,
    check_real,
    check_text,
    list_words,
    make_bins,
)
from colonnade.tables.cell_parsing import CellLocation, Mask, pa, suggest_name

if TYPE_CHECKING:
    from colonnade.randomness import Stream

Field: TypeAlias = str | float | bool | list[str]
Codes = NDArray[np.int64]
Norm = Literal["l2", "l1"]

MAX_VALUES = 10_000
REFUSE = "refuse"
NOWHERE = "none"
_NUMBER_WORDS = (REFUSE, "middle", "low", "high", NOWHERE)
_MISSING_PART = "=missing"
_NEITHER = "none of these"
_SHOWN_VALUES = 6


class Column(ABC):
    """What each cell of one column may be; what a class does not say, is so for one of few values, encoded to [0, 1].

    ``kind`` is the word after ``type =`` in a schema, ``example`` what an error proposes for missing cells. ``column``
    is the name of the column in the file, if it is another, and ``part`` what the column is of a date.
    """

    __slots__ = ()

    kind: ClassVar[str]
    example: ClassVar[str] = "false"
    one_hot: ClassVar[bool] = False
    """Whether each value has an encoded column of its own, which is 1 for this value and else 0."""
    reads_numbers: ClassVar[bool] = False
    """Whether cells that are numbers are the values, so that many columns of a quantity are encoded together."""
    missing: Any
    column: str = ""
    part: str = ""

    # --- what a schema says

    @abstractmethod
    def fields(self) -> dict[str, Field]:
        """The column as plain values, in the order they are written to a file."""

    @property
    def parts(self) -> tuple[str, ...]:
        """What is appended to the column's name for each encoded column: a missing cell may have one of its own."""
        return ("", _MISSING_PART) if self.may_be_missing else ("",)

    @property
    def classes(self) -> tuple[Any, ...]:
        """The values that a cell can have, in the order of their codes; none of a quantity."""
        return ()

    @property
    def labels(self) -> tuple[str, ...]:
        """A text for each of these values."""
        return tuple(str(value).lower() if isinstance(value, bool) else str(value) for value in self.classes)

    @property
    def quantity(self) -> Quantity | None:
        """What is measured, if the column holds a quantity: its bounds and its scale."""
        return self if isinstance(self, Quantity) else None

    @property
    def may_be_missing(self) -> bool:
        """Whether a missing cell stays one, because the schema says so."""
        return bool(self.missing == NOWHERE)

    @property
    def may_lack_value(self) -> bool:
        """Whether an encoded cell can stand for no value: by the type and the schema, never by a cell."""
        return self.may_be_missing

    def columns(self, name: str) -> dict[str, Column]:
        """The columns that it becomes in a schema."""
        return {name: self}

    def source(self, name: str) -> str:
        """The column of a party's file that this column, of that name in its schema, is read from."""
        return self.column or name

    def section(self, name: str) -> str:
        """The name of the date that the column was made of, where a date has several; otherwise its own."""
        return name.removesuffix(f".{self.part}") if self.part else name

    def decoded_column(self) -> Column:
        """How the cells of a table made from encoded rows are read again."""
        return self

    # --- reading and encoding cells

    @abstractmethod
    def read(self, cells: Any, place: CellLocation) -> tuple[Any, Mask]:
        """The values of Arrow cells as an array, and the mask of missing ones; cells that fit nothing are refused."""

    @abstractmethod
    def write(self, values: Any, gone: Mask, out: Matrix) -> int:
        """Encode values into ``out``, which holds zeros, where ``gone`` have none; return how many were clipped."""

    def encode(self, cells: Any, place: CellLocation, out: Matrix) -> tuple[int, int, int]:
        """Write the encoding of cells into ``out``, which holds zeros; return the missing, clipped and unfit counts."""
        values, missing = self.read(cells, place)
        if self.missing == REFUSE:
            place.refuse(
                missing,
                "the cell is missing; fill it or let the schema say what it becomes "
                f"(missing = {self.example}) [DA152]",
            )
        gone = place.without_value(missing)
        clipped = self.write(values, gone, out)
        if place.invalid is None:
            return int(missing.sum()), clipped, 0
        return int((missing & ~place.invalid).sum()), clipped, int(place.invalid.sum())

    # --- encoded cells

    def has_value(self, encoded: Matrix) -> Mask:
        """Which encoded cells stand for a value: those that are not marked as missing."""
        return np.asarray(encoded[:, 1] <= 0) if self.may_be_missing else np.ones(len(encoded), dtype=np.bool_)

    @abstractmethod
    def decode(self, encoded: Matrix, place: CellLocation, stream: Stream | None) -> Any:
        """An Arrow array of cells from encoded ones; with a stream, values that are chances are drawn."""

    def as_label(self, encoded: Matrix) -> Matrix:
        """The encoding of a column that serves as a label."""
        return encoded

    def codes(self, encoded: Matrix) -> Codes:
        """The code of each encoded cell: its place among the values, and beyond them where a missing cell has one."""
        last = len(self.classes) - 1
        return np.clip(np.rint(encoded[:, 0] * last), 0, last).astype(np.int64)

    def cells(self, values: Any, missing: Mask | None = None) -> Any:
        """An Arrow array of cells: of the numbers of a quantity, or of the values with these codes."""
        return pa.array(np.array(self.classes)[values], mask=missing)

    def bins(self, asked: int | Sequence[Any] | None, usual: int) -> Bins | None:
        """The bins of a quantity: as many as asked, between edges that are asked, or the usual number."""
        if asked is not None:
            raise SchemaError(f"it is a {self.kind}, and only numbers have bins; delete them [SC015]")
        return None

    # --- bounds of what is encoded

    def middle(self, norm: Norm) -> float:
        """What is subtracted from each encoded column to centre it."""
        return 0.5

    def longest(self, norm: Norm) -> list[list[tuple[int, Fraction]]]:
        """The longest centred encodings: for each, how many entries have which size, as an exact fraction."""
        middle = self.middle(norm)
        # Of a number and the mark of a missing one, one is as long as it can be and the other as far from its middle
        # as 0 is: both cases have the same sizes.
        marked = [(1, Fraction(middle))] if self.may_be_missing else []
        return [[(1, Fraction(1.0 - middle)), *marked]]

    def score_bounds(self, weights: Sequence[Fraction], shrinks: bool) -> tuple[Fraction, Fraction]:
        """The least and the largest weighted sum of one cell's encoding; ``shrinks`` where rows are scaled down."""
        reached = [*weights, Fraction(0)]
        return min(reached), max(reached)

    def uniform_moments(self, weights: Matrix) -> tuple[Matrix, Matrix]:
        """Mean and variance of a weighted sum of the encoding, where every value is equally likely."""
        count = len(self.classes)
        return weights[0] / 2, np.square(weights[0]) * ((count + 1) / (12 * (count - 1)))

    # --- what a column is compared with

    def constant(self, name: str, text: str) -> Any:
        """The value that a text means where cells are compared with it; an error, with the column's name, if none."""
        if text not in self.labels:
            raise SchemaError(f"{name!r} is a {self.kind}, which is {self.describe_values()} and not {text!r} [SC063]")
        return self.classes[self.labels.index(text)]

    def can_satisfy(self, compared: Iterable[tuple[str, Any]]) -> bool:
        """Whether a cell can meet all of these comparisons, each an operator and a constant."""
        wanted = list(compared)
        return any(all((cell == value) == (operator == "=") for operator, value in wanted) for cell in self.classes)

    # --- in words

    @abstractmethod
    def describe_values(self) -> str:
        """What the schema says of a cell that is there, in a few words."""

    def summary(self) -> str:
        """What the schema says of the column, in one line."""
        return f"{self.describe_values()}; {self._if_missing()}"

    def describe(self) -> dict[str, Any]:
        """What the column of a made-up table holds, as plain values."""
        return {"type": self.kind, "values": list(self.classes)}

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of the encoding, besides what is so for every number, category and flag."""
        return ()

    def _if_missing(self) -> str:
        if self.missing == REFUSE:
            return "a missing cell is mapped"
        if self.may_be_missing:
            return "a missing cell has a place of its own"
        return f"a missing cell counts as {self._stand_in_text()}"

    def _stand_in_text(self) -> str:
        return str(self.missing).lower() if isinstance(self.missing, bool) else str(self.missing)

    # --- a histogram for the party's own eyes

    def bar_count(self, most: int) -> int:
        """How many bars a histogram has, before those of rare values are joined."""
        return len(self.classes) + 1

    def tally(self, encoded: Matrix, bars: int) -> NDArray[np.int64]:
        """How many encoded cells fall into each bar; the last one is for cells without a value."""
        codes = np.where(self.has_value(encoded), self.codes(encoded), bars - 1)
        return np.bincount(codes, minlength=bars)

    def label_bars(
        self, counts: NDArray[np.int64], most: int
    ) -> tuple[tuple[str, ...], tuple[str, str] | None, NDArray[np.int64]]:
        """The labels of the bars, or the ends of their scale, and the bars: the most frequent values, then all else."""
        kept = list(range(len(self.classes)))
        if len(kept) >= most:
            kept = sorted(np.argsort(-counts[:-1], kind="stable")[: most - 1].tolist())
        rest = int(counts.sum() - counts[kept].sum())
        labels = (*(self.labels[place] for place in kept), *([_NEITHER] if rest else []))
        return labels, None, np.append(counts[kept], np.array([rest] if rest else [], dtype=np.int64))

    # --- in a graph for others

    @abstractmethod
    def to_onnx(self, graph: Any, name: str) -> Any:
        """The encoding of a raw column in a graph of ``colonnade.models.onnx_export``."""


@dataclass(frozen=True, slots=True)
class Number(Quantity, Column):
    """A quantity between two public bounds; see :func:`number`."""

    missing: str | float = REFUSE

    kind = "number"
    example = '"middle"'
    reads_numbers = True

    def __post_init__(self) -> None:
        Quantity.__post_init__(self)
        if not isinstance(self.missing, str):
            stand_in = check_real("missing", self.missing)
            if not self.low <= stand_in <= self.high:
                raise SchemaError(f"missing ({stand_in:g}) must lie between low and high [SC021]")
            object.__setattr__(self, "missing", stand_in)
        elif self.missing not in _NUMBER_WORDS:
            raise SchemaError(
                f"missing must be a number or one of {list_words(_NUMBER_WORDS)}, not {self.missing!r} [SC020]"
            )
        self._check_whole()

    def _check_whole(self) -> None:
        if not isinstance(self.whole, bool):
            raise SchemaError(f"whole must be true or false, not {self.whole!r} [SC022]")
        if not self.whole:
            return
        for what in ("low", "high", "missing"):
            value = getattr(self, what)
            if isinstance(value, float) and not value.is_integer():
                raise SchemaError(f"{what} ({value:g}) must be a whole number where whole = true; round it [SC023]")
        if max(abs(self.low), abs(self.high)) > MAX_WHOLE:
            raise SchemaError(
                "whole = true needs bounds of at most 10^12 in size; drop it or change the bounds [SC024]"
            )

    def fields(self) -> dict[str, Field]:
        """The column as plain values, in the order they are written to a file."""
        usual: dict[str, Field] = {"unit": "", "scale": "signed", "transform": "none", "missing": REFUSE}
        found: dict[str, Field] = {"type": self.kind, "low": self.low, "high": self.high}
        found |= {key: value for key, known in usual.items() if (value := getattr(self, key)) != known}
        return found | ({"whole": True} if self.whole else {})

    def read(self, cells: Any, place: CellLocation) -> tuple[Matrix, Mask]:
        """The numbers, 0 where a cell has none, and the mask of missing ones."""
        return cell_parsing.parse_numbers(cells, place)

    def write(self, values: Matrix, gone: Mask, out: Matrix) -> int:
        """Encode numbers, clipped to the bounds and rounded if they are whole; a missing one as the schema says."""
        outside = ((values < self.low) | (values > self.high)) & ~gone
        np.clip(values, self.low, self.high, out=values)
        if self.whole:
            np.rint(values, out=values)
        if (stand_in := self._stand_in()) is not None:
            values[gone] = stand_in
        out[:, 0] = self.encode_values(values)
        if self.missing in ("middle", REFUSE):
            out[gone, 0] = 0.0 if self.signed else 0.5
        if self.may_be_missing:
            out[gone] = (0.0, 1.0)
        return int(outside.sum())

    def _stand_in(self) -> float | None:
        """The value that a missing cell becomes, if it becomes one."""
        if isinstance(self.missing, str):
            return {"low": self.low, "high": self.high}.get(self.missing)
        return self.missing

    def decode(self, encoded: Matrix, place: CellLocation, stream: Stream | None) -> Any:
        """Numbers within their bounds; null where the second encoded number is above one half, or above a draw."""
        values = self.decode_values(np.clip(encoded[:, 0], -1.0 if self.signed else 0.0, 1.0))
        missing = encoded[:, 1] > _threshold(encoded, stream) if self.may_be_missing else None
        return self.cells(np.clip(values, self.low, self.high, out=values), missing)

    def cells(self, values: Any, missing: Mask | None = None) -> Any:
        """An Arrow array of numbers within their bounds, rounded to int64 if they are whole; null where missing."""
        return pa.array(np.rint(values).astype(np.int64) if self.whole else values, mask=missing)

    def bins(self, asked: int | Sequence[Any] | None, usual: int) -> Bins:
        """As many bins as asked or usual, or those between the edges that are asked, in the column's own units."""
        return make_bins(self, usual if asked is None else asked)

    def middle(self, norm: Norm) -> float:
        """The middle of the encoded range; of a number and its mark one is zero, and stays so for an L1 norm."""
        return 0.0 if self.signed or (self.may_be_missing and norm == "l1") else 0.5

    def score_bounds(self, weights: Sequence[Fraction], shrinks: bool) -> tuple[Fraction, Fraction]:
        """The least and the largest part of a score; a second weight is for a missing cell alone."""
        reached = [weights[0], -weights[0] if self.signed else Fraction(0), *weights[1:]]
        return min(reached), max(reached)

    def uniform_moments(self, weights: Matrix) -> tuple[Matrix, Matrix]:
        """Mean and variance where numbers are spread evenly over their range."""
        first = weights[0]
        return (np.zeros_like(first), np.square(first) / 3) if self.signed else (first / 2, np.square(first) / 12)

    def constant(self, name: str, text: str) -> Any:
        """The number that a text means, within the bounds."""
        if not re.fullmatch(cell_parsing.NUMERAL, text) or not math.isfinite(value := float(text)):
            raise SchemaError(f"{name!r} is a number and cannot be compared with {text!r} [SC060]")
        if not self.low <= value <= self.high:
            raise SchemaError(f"{value:g} lies outside the bounds of {name!r}, {self.low:g} and {self.high:g} [SC061]")
        return value + 0.0

    def can_satisfy(self, compared: Iterable[tuple[str, Any]]) -> bool:
        """Whether a number within the bounds meets all comparisons."""
        below, above, apart = self.high, self.low, set[float]()
        open_below = open_above = False
        for operator, given in compared:
            value = self.value_of(given)
            if operator == "!=":
                apart.add(value)
            if operator in ("=", "<", "<=") and (value < below or (value == below and operator == "<")):
                below, open_below = value, operator == "<"
            if operator in ("=", ">", ">=") and (value > above or (value == above and operator == ">")):
                above, open_above = value, operator == ">"
        if self.whole:
            lowest = math.floor(above) + 1 if open_above else math.ceil(above)
            highest = math.ceil(below) - 1 if open_below else math.floor(below)
            return highest - lowest + 1 > sum(lowest <= value <= highest and value.is_integer() for value in apart)
        if above == below:
            return not (open_below or open_above) and above not in apart
        return above < below

    def describe_values(self) -> str:
        """The bounds, the unit and the transform."""
        text = f"{'whole number' if self.whole else 'number'} from {self.low:.15g} to {self.high:.15g}"
        text += f" {self.unit}" if self.unit else ""
        return f"{text}, by its logarithm" if self.transform == "log1p" else text

    def _stand_in_text(self) -> str:
        return self.missing if isinstance(self.missing, str) else self.text_of(self.missing)

    def describe(self) -> dict[str, Any]:
        """The bounds and the unit."""
        kind = int if self.whole else float
        unit = {"unit": self.unit} if self.unit else {}
        bounds = {"low": kind(self.low), "high": kind(self.high)}
        return {"type": "whole number" if self.whole else "number", **unit, **bounds}

    @property
    def notes(self) -> tuple[str, ...]:
        """Of missing cells and of whole numbers."""
        marked = 'Where a number with missing = "none" is missing, it is 0 and its column NAME=missing is 1, else 0.'
        return (*self._notes_of_unit(), *([marked] if self.may_be_missing else []))

    def _notes_of_unit(self) -> list[str]:
        return ["A whole number is rounded first."] if self.whole else []

    def bar_count(self, most: int) -> int:
        """One bar for each whole number if there are few, else the most."""
        return int(self.high - self.low) + 1 if self._each_whole(most) else most

    def tally(self, encoded: Matrix, bars: int) -> NDArray[np.int64]:
        """How many numbers fall into each bar; missing ones into none."""
        share = self.to_share(encoded[self.has_value(encoded), 0])
        at = np.rint(share * (bars - 1)) if self._each_whole(bars) else np.floor(share * bars)
        return np.bincount(np.minimum(at.astype(np.int64), bars - 1), minlength=bars)

    def label_bars(
        self, counts: NDArray[np.int64], most: int
    ) -> tuple[tuple[str, ...], tuple[str, str] | None, NDArray[np.int64]]:
        """The bounds, between which the bars lie, and the bars."""
        return (), (self.text_of(self.low), self.text_of(self.high)), counts

    def _each_whole(self, most: int) -> bool:
        """Whether every whole number between the bounds has a bar of its own."""
        return self.whole and self.transform == "none" and self.high - self.low < most

    def to_onnx(self, graph: Any, name: str) -> Any:
        """The encoding of doubles, which are NaN where the cell is missing."""
        value = graph.input(name, text=False)
        gone = graph.add("Or", graph.add("IsNaN", value), graph.add("IsInf", value))
        filled = graph.add("Where", gone, graph.constant(self.low), self._onnx_value(graph, value))
        within = graph.of("Clip", filled, self.low, self.high)
        within = graph.add("Round", within) if self.whole else within
        if (stand_in := self._stand_in()) is not None:
            within = graph.add("Where", gone, graph.constant(stand_in), within)
        start, end = self.ends
        bent = graph.add("Log", graph.of("Add", within, 1.0)) if self.transform == "log1p" else within
        share = graph.of("Clip", graph.of("Div", graph.of("Sub", bent, start), end - start), 0.0, 1.0)
        scaled = graph.of("Sub", graph.of("Mul", share, 2.0), 1.0) if self.signed else share
        if self.missing in ("middle", REFUSE, NOWHERE):
            middle = 0.0 if self.signed or self.may_be_missing else 0.5
            scaled = graph.add("Where", gone, graph.constant(middle), scaled)
        return graph.add("Concat", scaled, graph.double(gone), axis=1) if self.may_be_missing else scaled

    def _onnx_value(self, graph: Any, value: str) -> Any:
        """The number of a raw cell that is there."""
        return value


@dataclass(frozen=True, slots=True)
class Category(Column):
    """One of a public list of values; see :func:`category`."""

    values: tuple[str, ...]
    missing: str = REFUSE

    kind = "category"
    example = '"none"'
    one_hot = True

    def __post_init__(self) -> None:
        if isinstance(self.values, str) or not isinstance(self.values, Sequence):
            raise SchemaError("values must be a list of texts [SC025]")
        values = tuple(_value(value) for value in self.values)
        object.__setattr__(self, "values", values)
        if not values:
            raise SchemaError("values is empty; list every value the column may take [SC026]")
        if len(values) > MAX_VALUES:
            raise SchemaError(
                f"values lists {len(values)} entries of at most {MAX_VALUES}; group the rare ones [SC027]"
            )
        if len(set(values)) < len(values):
            twice = next(value for place, value in enumerate(values) if value in values[:place])
            raise SchemaError(f"values lists {twice!r} twice; delete one of them [SC028]")
        if not isinstance(self.missing, str):
            object.__setattr__(self, "missing", _value(self.missing))
        if self.missing == NOWHERE and NOWHERE in values:
            raise SchemaError('missing = "none" is ambiguous because "none" is also a value; rename the value [SC029]')
        if self.missing not in (REFUSE, NOWHERE, *values):
            raise SchemaError(f'missing must be "refuse", "none" or one of the values, not {self.missing!r} [SC030]')

    def fields(self) -> dict[str, Field]:
        """The column as plain values, in the order they are written to a file."""
        found: dict[str, Field] = {"type": self.kind, "values": list(self.values)}
        return found if self.missing == REFUSE else found | {"missing": self.missing}

    @property
    def parts(self) -> tuple[str, ...]:
        """What is appended to the column's name for each encoded column."""
        return tuple(f"={value}" for value in self.values)

    @property
    def classes(self) -> tuple[str, ...]:
        """The values."""
        return self.values

    @property
    def may_lack_value(self) -> bool:
        """Any category can: a cell that is none of its values is encoded as zeros, also where none may be missing."""
        return True

    @property
    def stand_in(self) -> int:
        """The place of what a cell becomes that is none of the values; beyond the last one if it becomes none."""
        if self.missing not in (REFUSE, NOWHERE):
            return self.values.index(self.missing)
        # Bounds on a centred row rest on it: without it the only value would be off.
        return 0 if self.missing == REFUSE and len(self.values) == 1 else len(self.values)

    def read(self, cells: Any, place: CellLocation) -> tuple[Codes, Mask]:
        """The place of each cell's value, -1 where it has none, and the mask of missing ones."""
        return cell_parsing.parse_codes(cells, self.values, place)

    def write(self, values: Codes, gone: Mask, out: Matrix) -> int:
        """Encode places one-hot."""
        values[gone] = self.stand_in
        known = np.flatnonzero((values >= 0) & (values < len(self.values)))
        out[known, values[known]] = 1.0
        return 0

    def has_value(self, encoded: Matrix) -> Mask:
        """Which cells are one of the values."""
        return np.asarray(encoded.max(axis=1) > 0)

    def decode(self, encoded: Matrix, place: CellLocation, stream: Stream | None) -> Any:
        """The value with the largest number, or one that is drawn by its weight; null where there is none."""
        if stream is None:
            return self.cells(self.codes(encoded))
        with np.errstate(over="ignore"):  # an infinite sum is refused below
            sums = np.cumsum(np.maximum(encoded, 0.0), axis=1)
        total = np.maximum(sums[:, -1], 1.0) if self.may_be_missing else sums[:, -1]
        unusable = ~((total > 0) & (total < np.inf))
        if unusable.any():
            raise place.fail(unusable, "the weights of the values must have a positive and finite sum [DA150]")
        # Below the total even where the product is rounded up to it; so no value of weight zero is ever drawn.
        mark = np.minimum(uniform(stream, len(encoded)) * total, np.nextafter(total, 0.0))
        return self.cells(np.asarray((sums <= mark[:, None]).sum(axis=1), dtype=np.int64))

    def as_label(self, encoded: Matrix) -> Matrix:
        """A label that is none of the values is the first, unless the schema says ``missing = "none"``."""
        if self.may_be_missing:
            return encoded
        settled = encoded.copy()
        settled[~encoded.any(axis=1), 0] = 1.0
        return settled

    def codes(self, encoded: Matrix) -> Codes:
        """The place of the largest number, and the number of values where all are zero and a cell may be missing."""
        codes: Codes = encoded.argmax(axis=1)
        if self.may_be_missing:
            zero = np.flatnonzero(encoded[np.arange(len(encoded)), codes] == 0)  # few rows, to look at again
            codes[zero[~encoded[zero].any(axis=1)]] = encoded.shape[1]
        return codes

    def cells(self, values: Any, missing: Mask | None = None) -> Any:
        """The values at these places; null where the place is the number of values."""
        places = values.astype(np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(places, mask=places == len(self.values)), pa.array(self.values))

    def middle(self, norm: Norm) -> float:
        """The share of each value, which makes the L2 norm small; as they are, values have the smaller L1 norm."""
        return 1 / len(self.values) if norm == "l2" else 0.0

    def longest(self, norm: Norm) -> list[list[tuple[int, Fraction]]]:
        """One of the values, or none where a cell may be missing."""
        middle, size = self.middle(norm), len(self.values)
        off = Fraction(middle)
        chosen = [(1, Fraction(1.0 - middle)), (size - 1, off)]
        return [chosen, [(size, off)]] if self.may_be_missing else [chosen]

    def score_bounds(self, weights: Sequence[Fraction], shrinks: bool) -> tuple[Fraction, Fraction]:
        """The least and the largest weight; zero too, where there may be no value or less than a whole one."""
        reached = [*weights, *([Fraction(0)] if shrinks or self.may_be_missing else [])]
        return min(reached), max(reached)

    def uniform_moments(self, weights: Matrix) -> tuple[Matrix, Matrix]:
        """Mean and variance of the weights."""
        return weights.mean(axis=0), weights.var(axis=0)

    def constant(self, name: str, text: str) -> Any:
        """One of the values."""
        if text not in self.values:
            raise SchemaError(f"{name!r} has no value {text!r}{suggest_name(text, self.values)} [SC062]")
        return text

    def describe_values(self) -> str:
        """The first of the values."""
        more = len(self.values) - _SHOWN_VALUES
        return f"one of {', '.join(self.values[:_SHOWN_VALUES])}" + (f" and {more} more" if more > 0 else "")

    def describe(self) -> dict[str, Any]:
        """All values."""
        return {"type": "category", "values": list(self.values)}

    def to_onnx(self, graph: Any, name: str) -> Any:
        """The encoding of text."""
        places = range(len(self.values))
        found = graph.add(
            "LabelEncoder",
            graph.input(name, text=True),
            domain="ai.onnx.ml",
            keys_strings=list(self.values),
            values_int64s=list(places),
            default_int64=self.stand_in,
        )
        return graph.one_hot(found, len(places))


@dataclass(frozen=True, slots=True)
class Flag(Column):
    """True or false; see :func:`flag`."""

    missing: bool | str = REFUSE

    kind = "flag"
    classes = (False, True)

    def __post_init__(self) -> None:
        if self.missing != REFUSE and not isinstance(self.missing, bool):
            raise SchemaError(f'missing must be "refuse", true or false, not {self.missing!r} [SC031]')

    def fields(self) -> dict[str, Field]:
        """The column as plain values, in the order they are written to a file."""
        return {"type": self.kind} if self.missing == REFUSE else {"type": self.kind, "missing": self.missing}

    def read(self, cells: Any, place: CellLocation) -> tuple[Mask, Mask]:
        """Which cells are true, and the mask of missing ones."""
        return cell_parsing.parse_flags(cells, place)

    def write(self, values: Mask, gone: Mask, out: Matrix) -> int:
        """Encode truth as 1 and anything else as 0."""
        values[gone] = self.missing is True
        out[:, 0] = values
        return 0

    def decode(self, encoded: Matrix, place: CellLocation, stream: Stream | None) -> Any:
        """True where the number is above one half, or above a draw."""
        return pa.array(encoded[:, 0] > _threshold(encoded, stream))

    def describe_values(self) -> str:
        """Both values."""
        return "true or false"

    def to_onnx(self, graph: Any, name: str) -> Any:
        """The encoding of doubles: 1, 0, or neither where the cell is missing."""
        given = graph.input(name, text=False)
        truth = graph.of("Equal", given, 1.0)
        if self.missing is True:
            neither = graph.add("Not", graph.add("Or", truth, graph.of("Equal", given, 0.0)))
            truth = graph.add("Or", truth, neither)
        return graph.double(truth)


def number(
    low: float,
    high: float,
    *,
    unit: str = "",
    scale: Scale = "signed",
    transform: Transform = "none",
    missing: str | float = REFUSE,
    whole: bool = False,
) -> Number:
    """A quantity between two public bounds, encoded to [-1, 1], or to [0, 1] with ``scale="unit"``.

    Values outside the bounds are clipped and counted. ``transform="log1p"`` takes log(1 + x) of values and
    bounds first, for counts and amounts that range over many orders of magnitude. ``missing`` is a number
    between the bounds, ``"low"``, ``"high"``, ``"middle"`` (the middle of the encoded range), ``"none"`` (a state of
    its own: the number is encoded as 0, and a second encoded column, ``NAME=missing``, as 1) or ``"refuse"``.
    ``whole=True`` says that only whole numbers occur: cells are rounded, and made-up ones are whole.
    """
    return Number(low, high, unit, scale, transform, whole, missing)


def category(values: Sequence[str | int], *, missing: str | int = REFUSE) -> Category:
    """One of a public list of values, encoded one-hot.

    Whole numbers in the list stand for their decimal text. ``missing`` is one of the values, ``"none"`` (all
    zeros) or ``"refuse"``.
    """
    return Category(values, missing)  # type: ignore[arg-type]  # made texts by the constructor


def flag(*, missing: bool | str = REFUSE) -> Flag:
    """True or false, encoded 1 or 0. ``missing`` is ``True``, ``False`` or ``"refuse"``."""
    return Flag(missing)


def uniform(stream: Stream, count: int) -> Matrix:
    """Numbers from 0 on and below 1, in steps of 2**-53."""
    return (stream.uint64(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _threshold(encoded: Matrix, stream: Stream | None) -> float | Matrix:
    """What a chance must lie above to come true: one half, or a draw for each row."""
    return 0.5 if stream is None else uniform(stream, len(encoded))


def _value(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not check_text("each of values", value):
        raise SchemaError('values holds an empty text; say what an empty cell means with "missing" instead [SC036]')
    return str(value)
