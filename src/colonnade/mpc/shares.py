"""Shares of integer arrays, as one seat holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from colonnade.mpc.residues import Residues


@dataclass(frozen=True)
class Shares:
    """One seat's shares of an integer array, as residues, and the degree of the polynomials that they are values of."""

    values: Residues
    degree: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the shared array."""
        return self.values.shape[1:]

    def columns(self, which: slice | Sequence[int]) -> Shares:
        """Some columns of a shared matrix."""
        return Shares(self.values[:, :, which], self.degree)


def beside(*shares: Shares) -> Shares:
    """Shared matrices with the same rows, side by side."""
    if len(shares) == 1:
        return shares[0]
    degree = max(share.degree for share in shares)
    return Shares(np.concatenate([share.values for share in shares], axis=2), degree)
