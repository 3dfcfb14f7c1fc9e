"""One side of an exchange against a script: what it would tell, before noise, if it received just that.

The bounds on messages hold for anything that a side receives. So the others need not be played: what they send is
written down beforehand, and both neighbouring tables meet the same script.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.protocols.exchange.programs import with_constant
from colonnade.protocols.exchange.sides import ActiveDescent, ActiveFit, PassiveDescent, PassiveFit
from colonnade.protocols.exchange.task import Exchange

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Script = NDArray[np.float64]
"""A number for each step and row; of a step's, those of its batch are received."""


@dataclass(frozen=True)
class Told:
    """All messages of one side in their order, and the weights it would release in the end."""

    messages: Vector
    weights: Vector


def scores_told(rows: Matrix, owner: str, slopes: Script, task: Exchange) -> Told:
    """What a passive party with these rows tells when it receives these slopes."""
    held = with_constant(rows, owner, task)
    kind = PassiveFit if task.method == "alternating" else PassiveDescent
    side, told = kind(held, owner, task), []
    for step in task.steps:
        side.take(step.batch, slopes[step.number, step.batch :: task.batches])
        if step.answer is not None:
            told.append(side.scores(step.answer))
    return Told(np.concatenate(told), side.weights)


def slopes_told(rows: Matrix, labels: Vector, scores: Mapping[str, Script], task: Exchange) -> Told:
    """What the active party with these rows and labels tells when it receives these scores."""
    held = with_constant(rows, task.active, task)
    kind = ActiveFit if task.method == "alternating" else ActiveDescent
    side, told = kind(held, labels, task), []
    for step in task.steps:
        told.append(side.slopes(step.batch))
        side.learn(step.answer)
        if step.answer is not None:
            for party, script in scores.items():
                side.hear(party, step.answer, script[step.number, step.answer :: task.batches])
    return Told(np.concatenate(told), side.released())
