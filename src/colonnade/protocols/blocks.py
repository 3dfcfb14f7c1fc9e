"""Columns by owner: what the tasks about whole rows have in common."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from colonnade.protocols.roles import COORDINATOR


@dataclass(frozen=True)
class Block:
    """The columns of one owner: public names, and the bounds on a row that the owner enforces.

    ``clip`` bounds the L2 norm. ``groups`` are runs of columns, in order, with a bound on the L1 norm of each; only
    discrete Laplace noise needs them.
    """

    owner: str
    columns: tuple[str, ...]
    clip: float
    groups: tuple[tuple[int, Fraction], ...] = ()


class OfBlocks:
    """A task about the rows of all owners side by side, with a public constant as their last column."""

    blocks: tuple[Block, ...]

    @property
    def owners(self) -> tuple[str, ...]:
        """Who holds columns, in order."""
        return tuple(block.owner for block in self.blocks)

    @property
    def everyone(self) -> tuple[str, ...]:
        """Who learns the result."""
        return (*self.owners, COORDINATOR)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns of the joint matrix, without the constant."""
        return tuple(f"{block.owner}.{column}" for block in self.blocks for column in block.columns)

    @property
    def width(self) -> int:
        """The columns of the joint matrix, with the constant as the last one."""
        return len(self.names) + 1
