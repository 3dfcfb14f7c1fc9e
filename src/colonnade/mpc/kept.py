"""Shares of rows that many products need: on an accelerator where that pays, else in half the memory of floats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc.accelerator import Accelerator, worth
from colonnade.mpc.residues import Residues, ResidueSystem


class Kept:
    """Blocks of rows Z, each (primes, rows, columns), for so many products Z'(Z Q) with about so many columns of Q."""

    def __init__(
        self, system: ResidueSystem, blocks: Sequence[NDArray[np.int32]], products: int, columns: int, step: int
    ) -> None:
        self._system, self._blocks, self._step = system, blocks, step
        self._device = worth(2 * products * columns * sum(block.size for block in blocks))
        self._placed: list[Any] = []
        if self._device:
            try:
                self._placed = [self._device.place(part) for part in self.parts()]
            except self._device.torch.OutOfMemoryError:  # the work of somebody else fills the device
                self._device, self._placed = None, []

    def parts(self) -> Iterator[Residues]:
        """The rows, some at a time."""
        for block in self._blocks:
            for start in range(0, block.shape[1], self._step):
                yield block[:, start : start + self._step].astype(np.float64)

    def products(self, public: Residues) -> Residues:
        """Z'(Z Q) for each prime, exactly, for a public Q of (primes, columns, directions)."""
        if self._device:
            try:
                return self._system.reduce(self._on(self._device, public))
            except self._device.torch.OutOfMemoryError:
                self._device, self._placed = None, []
        total = np.zeros(public.shape)
        for rows in self.parts():
            scores = self._system.inner(rows.transpose(0, 2, 1), public)
            total += self._system.inner(rows, scores)
        return self._system.reduce(total)

    def _on(self, device: Accelerator, public: Residues) -> Residues:
        primes, total = self._system.primes, np.zeros(public.shape)
        there = device.place(public)
        for rows in self._placed:
            total += device.fetch(device.inner(rows, device.matmul(rows, there, primes), primes))
        return total
