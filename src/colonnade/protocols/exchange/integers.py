"""Messages of an exchange as integers: what an owner checks and rounds alone, with its noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.protocols.exchange.task import Exchange
from colonnade.protocols.rounds import Draw

Integers = NDArray[np.int64]
Vector = NDArray[np.float64]


def with_constant(rows: NDArray[np.float64], name: str, task: Exchange) -> NDArray[np.float64]:
    """An owner's rows with the constant as last column; a row that the encoder failed to clip becomes zero."""
    block = task.block(name)
    if rows.shape != (task.rows, len(block.columns)):
        raise DataError(f"the rows of {name} must be {task.rows} of {len(block.columns)} columns")
    over = np.einsum("ij,ij->i", rows, rows) > block.clip**2 * (1 + 2.0**-40)
    return np.hstack([np.where(over[:, None], 0.0, rows), np.full((len(rows), 1), task.intercept)])


def noised(values: Vector, name: str, task: Exchange, draw: Draw) -> Integers:
    """One owner's message: values on the grid, with its noise; audits attack this function."""
    return task.grid.quantise(values) + draw(name, task.message_variance(name), len(values))


def noised_weights(values: Vector, name: str, task: Exchange, draw: Draw) -> Integers:
    """One owner's released weights: on the grid, with its noise."""
    return task.grid.quantise(values) + draw(name, task.weights_variance(name), len(values))
