"""Rows of shares that many products need: they stay in the device's memory, or on the CPU as 32-bit integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc.accelerator.choice import found, give_up
from colonnade.mpc.accelerator.device import Accelerator
from colonnade.mpc.residues import Residues, ResidueSystem


class HeldRows:
    """Blocks of rows Z, each (primes, rows, columns), for products Z'(Z Q); computed in parts of ``step`` rows."""

    def __init__(self, system: ResidueSystem, blocks: Sequence[NDArray[np.int32]], step: int) -> None:
        self._system, self._blocks, self._step = system, blocks, step
        self._placed: list[Any] = []
        self._refused = False

    @property
    def count(self) -> int:
        """How many rows there are."""
        return sum(block.shape[1] for block in self._blocks)

    def parts(self) -> Iterator[Residues]:
        """The rows as floats, at most ``step`` at a time."""
        for block in self._blocks:
            for start in range(0, block.shape[1], self._step):
                yield block[:, start : start + self._step].astype(np.float64)

    def products(self, public: Residues) -> Residues:
        """Z'(Z Q) modulo each prime, exactly, for a public array Q (primes, columns, directions)."""
        device = None if self._refused else found()  # the search may end between two products
        if device:
            try:
                return self._system.reduce(self._on(device, public))
            except RuntimeError as error:
                give_up(device, error)
                self._refused, self._placed = True, []
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(len(public)) as workers:
            return np.stack(list(workers.map(self._here, range(len(public)), public)))

    def _here(self, index: int, public: Residues) -> Residues:
        """The product modulo one prime, on the CPU; each prime has its own thread."""
        system, total = ResidueSystem((self._system.primes[index],)), np.zeros((1, *public.shape[::-1]))
        for block in self._blocks:
            for start in range(0, block.shape[1], self._step):
                rows = block[index : index + 1, start : start + self._step].astype(np.float64)
                scores = system.inner(rows.transpose(0, 2, 1), public[None])
                total += system.inner(scores, rows)  # the long axis is last, because BLAS is faster then
        product: Residues = system.reduce(total)[0].T
        return product

    def _on(self, device: Accelerator, public: Residues) -> Residues:
        if not self._placed:
            self._placed = [device.place(part) for part in self.parts()]
        primes, total = self._system.primes, np.zeros(public.shape)
        there = device.place(public)
        for rows in self._placed:
            total += device.fetch(device.inner(rows, device.matmul(rows, there, primes), primes))
        return total
