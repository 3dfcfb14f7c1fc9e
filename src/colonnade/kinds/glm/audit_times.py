"""Games about time: how many steps a party takes before it sends, on two neighbouring tables.

A step is a call of a function of ours, or a call from there into a compiled module, so a run has as many on every
machine. Nothing may be learned from their number: what is promised is an epsilon of 0. Seconds are not played with; no
figure covers them.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.registry import Game, register
from colonnade.kinds.glm.audit_messages import ends, scores_told
from colonnade.kinds.glm.exchange import sides
from colonnade.kinds.glm.exchange.bounds import Side
from colonnade.kinds.glm.exchange.fits import Matrix, Vector
from colonnade.kinds.glm.exchange.task import Exchange
from colonnade.kinds.glm.losses.labels import family_for
from colonnade.privacy import Observer, Trust
from colonnade.protocols.rows import Block
from colonnade.randomness import Stream
from colonnade.tables import number

_PAIRS = 16
_SPREAD = 2.0
_HOME = str(Path(__file__).parents[2])


def steps_of(work: Callable[[], object]) -> int:
    """How many functions this package calls in this thread while ``work`` runs."""
    steps = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call") and frame.f_code.co_filename.startswith(_HOME)

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # or what others left behind may be removed meanwhile, and counted
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return steps


@dataclass(frozen=True)
class StepsTaken:
    """How many more steps one owner takes on a table than on the first of its pair: always none on the first.

    Columns are at one of two ends, so that many rows share each corner of the loss, where fits have the hardest time.
    One person is turned around, with its label. ``certified`` says whether fits are those of which numbers are sent.
    """

    task: Exchange
    owner: str
    certified: bool = True

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The differences of all pairs, over and over."""
        return np.resize(self.more[neighbour], count)

    @cached_property
    def more(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """For each pair of tables, the steps on its first and on its second table beyond those on the first."""
        found = []
        for seed in range(_PAIRS):
            first, second = (self._steps(*self._table(seed, turned=turned)) for turned in (False, True))
            found.append((0.0, float(second - first)))
        both = np.array(found)
        return both[:, 0], both[:, 1]

    def _table(self, seed: int, *, turned: bool) -> tuple[Matrix, Vector]:
        rng, block, family = np.random.default_rng(seed), self.task.block(self.owner), self.task.family
        columns = len(block.columns)
        rows = rng.choice([-1.0, 1.0], (self.task.rows, columns)) * block.clip / np.sqrt(columns)
        drawn = rng.poisson(np.exp(family.centre + rows @ rng.normal(0.0, _SPREAD, columns)))
        low, high = ends(family)
        labels = np.clip(drawn.astype(np.float64), low, high)
        if turned:
            rows[0], labels[0] = -rows[0], high if labels[0] < high else low
        return rows, labels

    def _steps(self, rows: Matrix, labels: Vector) -> int:
        task = self.task
        slopes = np.tile(task.message_clip * np.sign(labels - labels.mean()), (len(task.steps), 1))

        def work() -> object:
            if self.owner != task.active:
                return scores_told(rows, self.owner, slopes, task)
            held = sides.with_constant(rows, task.active, task)
            return sides.ActiveFit(held, labels, task).refit(task.side(task.active).ridge, certified=self.certified)

        work()  # what is computed once and kept is computed now
        return steps_of(work)


def _counts() -> Exchange:
    """Counts of 30 people with a small penalty, so that one person can matter to how soon a fit is near its end."""
    owners, sides_of = ("bank", "shop"), (Side("bank", 0.1, 1.0, 1.0), Side("shop", 0.05, 0.3, 0.9))
    return Exchange(
        blocks=tuple(Block(owner, ("u", "v", "w"), 1.0) for owner in owners),
        sides=sides_of,
        active="bank",
        family=family_for("poisson", number(0, 100)),
        trust=Trust(owners, (), 0),
        rows=30,
        method="alternating",
        epochs=2,
        batches=1,
        message_clip=1.0,
    )


@register("time", "steps that a party of a glm takes before it sends", _counts)
def time_games(task: Exchange) -> Iterator[Game]:
    """Each other party against the steps of one."""
    for owner in task.owners:
        (watching, *_) = (name for name in task.owners if name != owner)
        story = f"a row of {owner} turned around; how many functions {owner} calls before it sends"
        part = "slopes" if owner == task.active else "scores"
        yield Game("time", Observer.party(watching), story, (), task.trust, StepsTaken(task, owner), part)
