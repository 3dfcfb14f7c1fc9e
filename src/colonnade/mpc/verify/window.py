"""What is public about a window of rows whose bounds are proven, and the coins of such a proof."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc.residues import ResidueSystem
from colonnade.mpc.verify.identities import Affine, RowEquations
from colonnade.mpc.verify.ranges import BIT_FOLD, BITS, FOLDS, SAMPLED, Ranges
from colonnade.randomness import Stream

Numbers = NDArray[np.float64]
Signs = NDArray[np.int8]


class Coins:
    """Public coins of one step: streams by name, so that an owner reads those of its own proof alone."""

    def __init__(self, stream: Stream) -> None:
        self._key = stream.bytes(32)

    def of(self, name: str) -> Stream:
        """The stream of this name."""
        return Stream(sha256(self._key + name.encode()).digest())


def signs(stream: Stream, count: int, length: int) -> Signs:
    """Numbers that are 0 with chance 1/2 and 1 or -1 with chance 1/4."""
    size = -(-length // 8)
    drawn = np.frombuffer(stream.bytes(2 * count * size), dtype=np.uint8).reshape(2, count, size)
    first, second = np.unpackbits(drawn, axis=2, count=length).view(np.int8)
    found: Signs = first - second
    return found


class Window:
    """What is public about one window of one owner: its blocks, the rows that are looked at, and the equations."""

    def __init__(self, system: ResidueSystem, ranges: Ranges, sizes: Sequence[int], coins: Coins | None) -> None:
        self.system, self.ranges, self.sizes, self.rows = system, ranges, list(sizes), sum(sizes)
        if self.rows > ranges.rows or len(system.primes) < ranges.primes:
            raise ValueError(
                "a window has more rows, or the arithmetic fewer primes, than the proof was made for [VA106]"
            )
        self.chosen: NDArray[np.int64] | None = None
        if coins is not None:
            order = np.argsort(coins.of("rows").uint64(self.rows), kind="stable")
            self.chosen = np.sort(order[: -(-self.rows // SAMPLED)])
        looked = self.sizes if self.chosen is None else [len(self.chosen)]
        again = ranges.repetitions
        self.equations = RowEquations(system, ranges.identity, looked, FOLDS, again)
        self.looked = sum(looked)
        self.bits = RowEquations(system, BITS, [ranges.dealt_bits], [BIT_FOLD], again)
        self.read = None if ranges.plain else Affine(ranges.scales, ranges.offsets)

    @property
    def starts(self) -> list[int]:
        """Where each block starts."""
        return [0, *np.cumsum(self.sizes).tolist()]

    def looked_at(self, blocks: Sequence[Numbers], slack: Numbers | None, axis: int) -> list[list[Numbers]]:
        """The rows whose equations are checked, block by block, each beside its squares; rows are this axis."""
        if self.chosen is not None:
            where = [self.chosen[(self.chosen >= a) & (self.chosen < b)] - a for a, b in pairwise(self.starts)]
            parts = [np.take(block, rows, axis=axis) for block, rows in zip(blocks, where, strict=True)]
            blocks = [np.concatenate(parts, axis=axis)]
        if slack is None:
            return [[block] for block in blocks]
        ends = np.cumsum([block.shape[axis] for block in blocks])[:-1]
        return [[block, part] for block, part in zip(blocks, np.split(slack, ends, axis=axis), strict=True)]

    def draw(self, coins: Coins, owner: str) -> None:
        """The coins by which rows are combined."""
        self.equations.combine(coins.of(f"equations {owner}"))

    def draw_again(self, coins: Coins, owner: str) -> None:
        """The point of the first fold, and the coins by which bits are combined."""
        self.point = self.equations.point(coins.of("point"), FOLDS[0])
        self.bits.combine(coins.of(f"bits {owner}"))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Everything that the owner deals for the proof, in this order."""
        ranges, again = self.ranges, self.ranges.repetitions
        squares = {"squares": (self.looked, ranges.slack)} if ranges.slack else {}
        return squares | {
            "masks": (ranges.projections,),
            "bits": (ranges.projections * ranges.bits, ranges.width),
            "help": (again, FOLDS[0] - 1),
            "help again": (again, 2 * FOLDS[1] - 1 + BIT_FOLD - 1),
        }
