"""What an owner computes to prove that its rows are within their bounds; :mod:`inputs` says how a proof goes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ShareError
from colonnade.mpc.residues import Integers, Residues
from colonnade.mpc.verify.four_squares import four_squares
from colonnade.mpc.verify.window import Signs, Window
from colonnade.randomness import Stream

Whole = NDArray[np.float64]
_ROWS = 2048
_FEWEST_ROWS = 256
"""Rows that are multiplied by signs at a time."""


class Prover:
    """What an owner computes from its own whole numbers; it deals all that it returns."""

    def __init__(self, window: Window, blocks: Sequence[Integers]) -> None:
        self.window, ranges = window, window.ranges
        self.blocks = [np.ascontiguousarray(block, dtype=np.float64) for block in blocks]
        if not ranges.plain:
            scales, offsets = np.array(ranges.scales), np.array(ranges.offsets)
            self.blocks = [(block - offsets) / scales for block in self.blocks]
        self.slack = self.squares()
        looked = window.looked_at(self.blocks, self.slack, 0)
        self.rows = [block[0] if len(block) == 1 else np.hstack(block) for block in looked]
        """The rows whose equations are checked, beside their squares."""

    def squares(self) -> Whole | None:
        """For every row that is looked at and every norm, four numbers whose squares fill it up to the bound."""
        window, columns = self.window, []
        for group, span in zip(window.ranges.groups, window.ranges.spans, strict=True):
            if group.slack:
                rows = [block[0][:, span] for block in window.looked_at(self.blocks, None, 0)]
                lengths = np.concatenate([np.einsum("ij,ij->i", part, part) for part in rows])
                columns.append(four_squares(group.squared - lengths, group.squared + 1))
        return np.hstack(columns) if columns else None

    def masks(self) -> Integers:
        """Uniform numbers that hide sums of bits."""
        bits = self.window.ranges.mask_bits
        stream, size = Stream.fresh(), -(-bits // 8)
        drawn = [
            int.from_bytes(stream.bytes(size), "little") >> (8 * size - bits)
            for _ in range(self.window.ranges.projections)
        ]
        return np.array(drawn, dtype=object)

    def digits(self, drawn: Signs) -> Whole:
        """The bits of the sums of all columns with signs: a matrix with rows for each sum and bit."""
        ranges, chosen = self.window.ranges, self.window.chosen
        if chosen is None:
            return self.bits_of(self._sums(drawn, self.rows))
        sums = [self._sums(drawn, self.blocks)]
        if self.slack is not None:
            sums.append(self._sums(np.ascontiguousarray(drawn[:, chosen]), [self.slack]))
        return self.bits_of(np.hstack(sums).reshape(ranges.projections, ranges.width))

    def _sums(self, drawn: Signs, blocks: Sequence[Whole]) -> Whole:
        """Sums of columns with signs."""
        # Short floats hold whole numbers below 2^24, and are multiplied twice as fast.
        step = (1 << 24) // max(1, self.window.ranges.cell)
        short = step >= _FEWEST_ROWS
        kind, step = np.dtype("f4" if short else "f8"), min(step, _ROWS) if short else _ROWS
        sums, done = np.zeros((len(drawn), blocks[0].shape[1])), 0
        for block in blocks:
            for start in range(0, len(block), step):
                part = block[start : start + step].astype(kind)
                found: Whole = drawn[:, done : done + len(part)].astype(kind) @ part
                sums += found
                done += len(part)
        return sums

    def bits_of(self, sums: Whole) -> Whole:
        """Sums as bits, the lowest first."""
        ranges = self.window.ranges
        shifted = sums.astype(np.int64) + (1 << (ranges.bits - 1))
        if shifted.min() < 0 or shifted.max() >> ranges.bits:
            raise ShareError(
                "a proof that numbers are within their bounds could not be made; run the study again [SH017]"
            )
        self.dealt = (shifted[:, None] >> np.arange(ranges.bits)[:, None] & 1).astype(np.float64)
        return self.dealt.reshape(-1, ranges.width)

    def help(self) -> Residues:
        """The first values that help to fold the equations of rows."""
        return self.window.equations.helped(self.rows)

    def help_again(self) -> Residues:
        """The second values, and those that help to fold the equations of bits."""
        window, equations, primes = self.window, self.window.equations, len(self.window.system.primes)
        # Below 2^26 in magnitude: the same numbers modulo every prime, without a reduction.
        alike = [[np.broadcast_to(block, (primes, *block.shape))] for block in self.rows]
        folded = equations.folded(alike, window.point, None)
        return np.concatenate([equations.helped_again(folded), window.bits.helped([self.dealt.reshape(-1, 1)])], axis=2)
