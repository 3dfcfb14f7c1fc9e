"""Second moments as integers: what an owner rounds and adds up alone, and the noise that it draws."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from colonnade.privacy.noise.rounding import bounded_round
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.rows import Rows
from colonnade.protocols.sums import OwnPart
from colonnade.randomness import Stream
from colonnade.tables.places import Spread


class OwnBlock(OwnPart):
    """What an owner computes alone: its rounded rows, its Gram block, its sums."""

    def __init__(self, task: Moments, owner: str) -> None:
        self.task = task
        self.span = task.span(owner)
        self.first = owner == task.owners[0]
        block = task.block(owner)
        self.limit = task.block_norm_squared(block)
        self.groups = task.limits.groups(block) if task.laplace else ()
        width = self.span.stop - self.span.start
        self.gram = np.zeros((width, width), dtype=np.int64)
        self.sums = np.zeros(width, dtype=np.int64)
        self.rows = 0

    def blocks(self, table: Rows, stream: Stream) -> Iterator[NDArray[np.float64]]:
        """What is dealt: rounded rows; if members are hidden, one row per slot, the last number 1 if it is taken."""
        step = self.task.rows_per_block
        if table.places is None:
            for rows in table.blocks(step):
                yield self.quantise(rows, stream)
            return
        for rows, present in Spread(table, table.places, len(self.sums)).blocks(step):
            yield np.column_stack([self.quantise(rows, stream), present])

    def quantise(self, rows: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
        """Algorithm 2: scale and round at random, and enforce the bound on the integers themselves."""
        whole = bounded_round(rows * float(self.task.gamma), self.limit, stream)
        start = 0
        for width, radius in self.groups:
            whole[np.abs(whole[:, start : start + width]).sum(axis=1) > radius] = 0.0
            start += width
        return whole

    def add(self, whole: NDArray[np.float64]) -> None:
        """Add a block of integer rows, exactly; if members are hidden, nobody knows which of them count."""
        if self.task.hidden:
            return
        self.gram += exact_gram(whole, self.limit)
        self.sums += whole.sum(axis=0).astype(np.int64)
        self.rows += len(whole)

    def take_window(self) -> NDArray[np.int64]:
        """The upper triangle of the Gram block and the sums, since the last call."""
        found = np.concatenate([self.gram[np.triu_indices(len(self.gram))], self.sums])
        self.gram, self.sums = np.zeros_like(self.gram), np.zeros_like(self.sums)
        return found

    def entries(self) -> NDArray[np.int64]:
        """This owner's part of the released vector; where seats check, it was dealt with every window."""
        if self.task.trust.active:
            return np.zeros(self.task.entries, dtype=np.int64)
        width, constant = self.task.width, self.task.constant
        full = np.zeros((width, width), dtype=np.int64)
        full[self.span, self.span] = self.gram
        full[self.span, width - 1] = constant * self.sums
        if self.first:
            full[width - 1, width - 1] = constant**2 * self.rows
        entries: NDArray[np.int64] = full[np.triu_indices(width)] * self.task.weights
        return entries


def exact_gram(whole: NDArray[np.float64], norm_squared: int) -> NDArray[np.int64]:
    """X'X of integer rows of bounded norm, exact because it is computed in blocks whose sums stay below 2^53."""
    gram = np.zeros((whole.shape[1], whole.shape[1]), dtype=np.int64)
    step = max(1, 2**53 // max(1, norm_squared))
    for start in range(0, len(whole), step):
        part = whole[start : start + step]
        gram += (part.T @ part).astype(np.int64)
    return gram


def noise_share(task: Moments, stream: Stream) -> NDArray[np.int64]:
    """One owner's noise for all entries, such as Sk(mu/P) on the diagonal and Sk(2 mu/P) above it."""
    noise = np.zeros(task.entries, dtype=np.int64)
    for level, here in zip(task.levels, task.opened_together, strict=True):
        noise[here] = entry_noise(task, task.weights[here], stream, level.scale)
    return noise


def entry_noise(task: Moments, copies: NDArray[np.int64], stream: Stream, scale: int = 0) -> NDArray[np.int64]:
    """One owner's noise for entries, each of which stands ``copies`` times in the full matrix; audits attack this.

    ``scale`` is the scale of Laplace noise on these entries; 0 means the noise of the task.
    """
    noise = np.zeros(copies.shape, dtype=np.int64)
    added = task.additive_of(scale)
    for often in np.flatnonzero(np.bincount(copies)).tolist():
        here = copies == often
        noise[here] = added.draw((int(here.sum()),), stream, copies=often)
    return noise
