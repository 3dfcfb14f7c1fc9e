"""By which distribution each column of a mixture's component is described (docs/theory/mixture-model.md).

Families work on shares: a number's place between its bounds, from 0 to 1, after its transform. Every family has
unconstrained parameters and a proper prior on them, so that a noisy step leads nowhere where it is not defined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from colonnade.errors import StudyError
from colonnade.tables.columns import Column
from colonnade.tables.schema import Schema

INSIDE = 2.0**-8
"""How far values at the ends of a number's range are pulled inside, where a Beta density may be infinite."""
BINS = 16
CELLS = 64
_MOST = 4096


@dataclass(frozen=True)
class Beta:
    """A number between its bounds; the parameters are the logarithms of the two shape parameters."""

    width = 2


@dataclass(frozen=True)
class Categorical:
    """One of ``size`` values, or of as many equal bins of a number; the parameters are one logit for each."""

    size: int

    @property
    def width(self) -> int:
        """How many parameters a component has for this column."""
        return self.size


@dataclass(frozen=True)
class Bernoulli:
    """True or false; the parameter is the logit of true."""

    width = 1


@dataclass(frozen=True)
class Gaussian:
    """One of ``cells`` equal cells of a number's range, with the mass that a normal density has there.

    The outer cells hold what lies beyond the bounds. The parameters are the mean and the logarithm of the deviation.
    """

    cells: int
    width = 2


Family: TypeAlias = Beta | Categorical | Bernoulli | Gaussian


def families_of(schema: Schema, chosen: Mapping[str, str] | None = None) -> dict[str, Family]:
    """The family of every column: as chosen, otherwise Beta for numbers, categorical and Bernoulli.

    A choice is "beta", "bins", "gaussian", "categorical" or "bernoulli"; "bins:32" and "gaussian:100" say how many.
    """
    wanted = dict(chosen or {})
    schema.require(wanted)
    return {name: _family(name, column, wanted.get(name)) for name, column in schema.columns.items()}


def _family(name: str, column: Column, choice: str | None) -> Family:
    if not isinstance(choice, str | None):
        raise StudyError(f"the family of column {name!r} must be a text, not {choice!r} [ST494]")
    word, _, count = (choice or "").partition(":")
    if column.quantity:
        allowed = '"beta", "bins" or "gaussian"'
        if word in ("", "beta") and not count:
            return Beta()
        if word == "bins":
            return Categorical(_whole(name, count, BINS))
        if word == "gaussian":
            return Gaussian(_whole(name, count, CELLS))
    else:
        alone = Categorical(len(column.classes)) if column.one_hot else Bernoulli()
        allowed = '"categorical"' if column.one_hot else '"bernoulli"'
        if choice in (None, allowed.strip('"')):
            return alone
    raise StudyError(f"column {name!r} cannot be described by {choice!r}; a {column.kind} takes {allowed} [ST495]")


def _whole(name: str, count: str, usual: int) -> int:
    if not count:
        return usual
    if not (count.isascii() and count.isdigit() and len(count) < 6 and 2 <= int(count) <= _MOST):
        raise StudyError(
            f"the family of column {name!r} needs a whole number from 2 to {_MOST} after the colon [ST496]"
        )
    return int(count)
