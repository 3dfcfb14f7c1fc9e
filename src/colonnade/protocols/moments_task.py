"""The public task of second moments, and the published result: what is known before and after the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError
from colonnade.mpc import Committee, ResidueSystem
from colonnade.privacy import SkellamRelease, Trust
from colonnade.privacy.noise import TAIL
from colonnade.privacy.sensitivity import moments_sensitivity, rounded_norm_squared
from colonnade.protocols.roles import COORDINATOR

THEOREM = "moments-sensitivity"
PROTOCOL = "second moments 1"
_NOISE_REACH = 16  # deviations; the samplers cut their tails before
_LARGEST_MESSAGE = 2**27


def weights(width: int) -> NDArray[np.int64]:
    """How often an entry of the upper triangle stands in the full matrix: once on the diagonal, else twice."""
    rows, columns = np.triu_indices(width)
    return np.where(rows == columns, 1, 2)


@dataclass(frozen=True)
class Block:
    """The columns of one owner: public names, and the bound on a row's norm that the owner enforces."""

    owner: str
    columns: tuple[str, ...]
    clip: float


@dataclass(frozen=True)
class Moments:
    """The public task. All owners and the coordinator hold an equal one."""

    blocks: tuple[Block, ...]
    trust: Trust
    gamma: int
    constant: int
    rows_at_most: int
    mu: int
    block_rows: int = 8192

    @property
    def owners(self) -> tuple[str, ...]:
        """Who holds columns, in order."""
        return tuple(block.owner for block in self.blocks)

    @property
    def everyone(self) -> tuple[str, ...]:
        """Who learns the result."""
        return (*self.owners, COORDINATOR)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns of the joint matrix, without the constant."""
        return tuple(f"{block.owner}.{column}" for block in self.blocks for column in block.columns)

    @property
    def width(self) -> int:
        """The columns of the joint matrix, with the constant as the last one."""
        return len(self.names) + 1

    def span(self, owner: str) -> slice:
        """Where an owner's columns lie."""
        start = 0
        for block in self.blocks:
            if block.owner == owner:
                return slice(start, start + len(block.columns))
            start += len(block.columns)
        raise KeyError(owner)

    def block_norm_squared(self, block: Block) -> int:
        """The largest squared norm of one owner's rounded row."""
        return rounded_norm_squared(self.gamma, [block.clip], [len(block.columns)])

    @cached_property
    def norm_squared(self) -> int:
        """The largest squared norm of a whole integer row."""
        return sum(self.block_norm_squared(block) for block in self.blocks) + self.constant**2

    @cached_property
    def event(self) -> SkellamRelease:
        """What the one opening reveals."""
        sensitivity = moments_sensitivity(self.norm_squared, self.width)
        share = Fraction(self.mu, len(self.owners))
        return SkellamRelease(
            name="second moments",
            shares=tuple((owner, share) for owner in self.owners),
            dimension=self.width**2,
            l1=sensitivity.l1,
            l2_squared=sensitivity.l2_squared,
            replace_l1=sensitivity.replace_l1,
            replace_l2_squared=sensitivity.replace_l2_squared,
            tail=float(TAIL),
            theorem=THEOREM,
        )

    @property
    def events(self) -> tuple[SkellamRelease, ...]:
        """Everything that is revealed."""
        return (self.event,)

    @cached_property
    def bound(self) -> int:
        """The largest magnitude an opened entry can have: |2 x_i x_j| <= x_i^2 + x_j^2 <= B^2, plus noise."""
        owners = len(self.owners)
        noise = owners * _NOISE_REACH * (isqrt(4 * self.mu // owners) + 4)
        bound = self.rows_at_most * self.norm_squared + noise
        if bound >= 2**62:
            raise CapacityError(
                f"sums may need {bound.bit_length() + 1} bits and 63 are available: lower gamma ({self.gamma}), "
                f"the row limit ({self.rows_at_most}) or the clips"
            )
        return bound

    @cached_property
    def committee(self) -> Committee:
        """The seats, with as many primes as the bound needs."""
        system = ResidueSystem.for_bound(self.bound)
        if 3 * self.entries * len(system.primes) > _LARGEST_MESSAGE:
            raise CapacityError(
                f"{len(self.names)} encoded columns give {self.entries} entries, more than one message can carry: use "
                "fewer columns or group the values of categories"
            )
        return Committee(self.trust.committee, self.trust.threshold, system)

    @property
    def rows_per_block(self) -> int:
        """How many rows are dealt at a time: as many as fit a message of the widest owner."""
        widest = max(len(block.columns) for block in self.blocks)
        return max(1, min(self.block_rows, _LARGEST_MESSAGE // (3 * widest * len(self.committee.system.primes))))

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return {
            "protocol": PROTOCOL,
            "blocks": [[block.owner, list(block.columns), block.clip.hex()] for block in self.blocks],
            "seats": list(self.trust.committee),
            "threshold": self.trust.threshold,
            "gamma": self.gamma,
            "constant": self.constant,
            "rows_at_most": self.rows_at_most,
            "rows_per_block": self.rows_per_block,
            "mu": str(self.mu),
            "primes": list(self.committee.system.primes),
        }

    @property
    def entries(self) -> int:
        """How many numbers are opened: the upper triangle."""
        return self.width * (self.width + 1) // 2


@dataclass(frozen=True)
class NoisyMoments:
    """The published result: integers as opened, and what follows from them without looking at data again."""

    task: Moments
    opened: NDArray[np.int64]

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """The noisy second-moment matrix of (x, constant), in the units of the encoded columns."""
        full = np.zeros((self.task.width, self.task.width))
        upper = np.triu_indices(self.task.width)
        full[upper] = self.opened / (weights(self.task.width) * float(self.task.gamma) ** 2)
        return full + np.triu(full, 1).T

    @property
    def second_moments(self) -> NDArray[np.float64]:
        """X'X."""
        return self.matrix[:-1, :-1]

    @property
    def count(self) -> float:
        """The noisy number of rows, never below one."""
        return max(1.0, float(self.matrix[-1, -1]) / self._constant**2)

    @property
    def means(self) -> NDArray[np.float64]:
        """The noisy column means."""
        means: NDArray[np.float64] = self.matrix[-1, :-1] / (self._constant * self.count)
        return means

    @property
    def covariance(self) -> NDArray[np.float64]:
        """The noisy covariance matrix: centring after the fact costs nothing."""
        covariance: NDArray[np.float64] = self.second_moments / self.count - np.outer(self.means, self.means)
        return covariance

    def with_label(self, label: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """X'X and X'y, where y is the named column and X the others."""
        index = self.task.names.index(label)
        rest = np.delete(np.arange(len(self.task.names)), index)
        return self.second_moments[np.ix_(rest, rest)], self.second_moments[rest, index]

    @property
    def _constant(self) -> float:
        return self.task.constant / self.task.gamma
