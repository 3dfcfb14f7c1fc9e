"""A mixture of columns that are true or false, started from marginals of them; for tests of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from colonnade.kinds.synthesis.mixture import warm_start
from colonnade.kinds.synthesis.mixture.task import MixtureTask
from colonnade.kinds.synthesis.mixture.warm_start import WarmStartedMixture
from colonnade.kinds.tables.release import NoisyMarginals
from colonnade.randomness import Stream
from tests.kinds.synthesis.mixture.learners import Array, Flags, mixture_task
from tests.support import protocols as kit


def started_task(
    widths: Sequence[int] = (2, 3, 1), seats: Sequence[str] | None = None, threshold: int = 1, **changes: Any
) -> WarmStartedMixture:
    """Marginals of all pairs of flags, and then the rounds of the usual small mixture."""
    second = mixture_task(widths, seats, threshold, **changes)
    first = kit.marginals_task([(2,) * width for width in widths], seats, threshold, rows_at_most=second.rows_limit)
    heavy = tuple(replace(block, weight=100 * block.weight) for block in first.asked)
    first = replace(first, asked=heavy, law=second.law)
    return WarmStartedMixture(first, second, 1 + sum(widths), Fraction(1, 4), second.noise)


def begin(task: WarmStartedMixture, counted: NoisyMarginals) -> Array:
    """Parameters that follow from the noisy shares of people with each flag, a little apart in every component."""
    shares = np.array([residue.values[1] for residue in counted.residuals() if len(residue.columns) == 1])
    middle = np.concatenate([[0.0], np.clip(4 * shares / counted.count, -2, 2)])
    return middle + np.linspace(-1, 1, task.second.components * task.parameters).reshape(-1, task.parameters)


def make(task: MixtureTask, start: Array) -> Flags:
    """The learner that starts there."""
    found, at = Flags(task), 1
    found.log_weights = start[:, 0] - np.log(np.exp(start[:, 0]).sum())
    for name, values in found.logits.items():
        found.logits[name] = start[:, at : at + values.shape[1]].copy()
        at += values.shape[1]
    return found


def codes_of(rows: Array) -> Array:
    """Flags, whether written as 0 and 1 or as -1 and 1, by their codes."""
    return (rows > 0).astype(np.int64)


def owner(me: Any, rows: Any, task: WarmStartedMixture) -> Flags:
    """The owner's program with this model."""
    held = np.concatenate(list(rows.blocks(1000)))
    codes = kit.Rows(codes_of(held), rows.ids)
    return warm_start.owner(me, codes, rows, task, partial(begin, task), partial(make, task.stages[1]))


def coordinator(me: Any, task: WarmStartedMixture) -> Flags:
    """The coordinator's program with this model."""
    return warm_start.coordinator(me, task, partial(begin, task), partial(make, task.stages[1]))


def simulate(tables: dict[str, Array], task: WarmStartedMixture, stream: Stream) -> Flags:
    """The same in one place."""
    codes = {name: codes_of(rows) for name, rows in tables.items()}
    return warm_start.simulate(codes, tables, task, partial(begin, task), partial(make, task.stages[1]), stream)
