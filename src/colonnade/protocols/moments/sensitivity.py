"""How far one person can move second moments: bounds that owners enforce on their integers, and the events of releases.

Skellam and discrete Gaussian noise rest on the L2 norm of an owner's row, discrete Laplace noise on the L1 norm of
each group of its columns (docs/theory/moments-sensitivity.md, docs/theory/functional-sensitivity.md).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from colonnade.errors import PrivacyError
from colonnade.privacy.noise_laws import AdditiveNoise, AdditiveRelease, Norm
from colonnade.privacy.sensitivity import Sensitivity, rounded_norm_squared
from colonnade.privacy.sensitivity.moments import (
    CoordinateRadii,
    changed_columns_sensitivity,
    grouped_l1,
    grouped_replace_l1,
    moments_sensitivity,
)
from colonnade.protocols.rows import ColumnBlock

NAME = "second moments"
THEOREM = "moments-sensitivity"
GROUPED_THEOREM = "functional-sensitivity"
HIDDEN_THEOREM = "hidden-members"
_MOST_REFINED = 16  # owners; of more owners each holds too few of the columns for a smaller bound to matter


@dataclass(frozen=True)
class NoiseLevel:
    """The entries that get Laplace noise of one scale.

    ``fresh`` owners have this scale and ``lower`` owners a smaller one. The entries are all products of a column of a
    fresh owner with a column of a fresh or lower owner or with the constant; if ``top``, also the constant's square.
    """

    scale: int
    fresh: tuple[str, ...]
    lower: tuple[str, ...]
    top: bool

    @property
    def about(self) -> tuple[str, ...]:
        """Whose columns these entries depend on."""
        return (*self.lower, *self.fresh)


@dataclass(frozen=True)
class MomentsBounds:
    """Bounds on the integer rows of all owners, with a constant column, for noise that rests on this norm.

    With ``hidden``, one record of one owner decides whether a whole row counts (docs/theory/hidden-members.md).
    """

    blocks: tuple[ColumnBlock, ...]
    gamma: int
    constant: int
    norm: Norm
    hidden: bool = False

    def __post_init__(self) -> None:
        for block in self.blocks if self.norm == "l1" else ():
            if sum(width for width, _ in block.groups) != len(block.columns):
                raise PrivacyError(
                    f"Laplace noise needs the L1 radius of every column of {block.owner}: give groups "
                    "that cover them [PR131]"
                )

    @property
    def owners(self) -> tuple[str, ...]:
        """Who holds columns, in order."""
        return tuple(block.owner for block in self.blocks)

    @property
    def width(self) -> int:
        """How many columns there are, with the constant."""
        return sum(len(block.columns) for block in self.blocks) + 1

    def groups(self, block: ColumnBlock) -> tuple[tuple[int, int], ...]:
        """Runs of an owner's columns and the largest L1 norm of their integers."""
        return tuple((width, math.ceil(self.gamma * radius)) for width, radius in block.groups)

    def block_norm_squared(self, block: ColumnBlock) -> int:
        """The largest squared norm of one owner's rounded row."""
        if self.norm == "l1":
            return sum(radius**2 for _, radius in self.groups(block))
        return rounded_norm_squared(self.gamma, [block.clip], [len(block.columns)])

    @cached_property
    def norms_squared(self) -> dict[str, int]:
        """For every owner, the largest squared norm of its rounded row."""
        return {block.owner: self.block_norm_squared(block) for block in self.blocks}

    @property
    def norm_squared(self) -> int:
        """The largest squared norm of a whole integer row."""
        return sum(self.norms_squared.values()) + self.constant**2

    @property
    def entry(self) -> int:
        """The largest magnitude of what one row adds to an opened entry: |2 x_i x_j| <= x_i^2 + x_j^2."""
        if self.norm == "l2":
            return self.norm_squared
        radii = [radius for block in self.blocks for _, radius in self.groups(block)]
        return max([self.constant, *radii]) ** 2

    # --- L2, for noise close to Gaussian

    def changed(self, owners: Collection[str]) -> tuple[int, int]:
        """L1 and squared L2 of the full matrix when one person's columns of these owners are replaced."""
        if self.hidden:  # then a whole row can be exchanged for another
            moved = moments_sensitivity(self.norm_squared, self.width)
            return moved.replace_l1, moved.replace_l2_squared
        changing = sum(self.norms_squared[owner] for owner in owners)
        return changed_columns_sensitivity(changing, self.norm_squared - changing, self.width)

    # --- L1, for Laplace noise

    @cached_property
    def _radii(self) -> dict[str, CoordinateRadii]:
        return {block.owner: CoordinateRadii.of(self.groups(block)) for block in self.blocks}

    def radii(self, owners: Collection[str]) -> CoordinateRadii:
        """The groups of some owners."""
        found = [self._radii[block.owner] for block in self.blocks if block.owner in owners]
        return CoordinateRadii(
            tuple(radius for radii in found for radius in radii.alone),
            tuple(radius for radii in found for radius in radii.several),
        )

    def added_l1(self, level: NoiseLevel) -> int:
        """L1 of a level's entries of one row."""
        beside = self.radii(level.lower).total + self.constant
        return math.floor(grouped_l1(self.radii(level.fresh), beside) + self.constant**2 * level.top)

    def replaced_l1(self, level: NoiseLevel, owners: Collection[str]) -> int:
        """How far a level's entries move when one person's columns of these owners are replaced."""
        if self.hidden:  # then a whole row can be exchanged for another, appear or disappear
            return max(self._replaced_l1(level, self.owners), self.added_l1(level))
        return self._replaced_l1(level, owners)

    def _replaced_l1(self, level: NoiseLevel, owners: Collection[str]) -> int:
        fresh, lower = (self.radii(set(side) & set(owners)) for side in (level.fresh, level.lower))
        kept, below = (self.radii(set(side) - set(owners)).total for side in (level.fresh, level.lower))
        fixed = kept + below + self.constant
        # The smaller of two bounds: all pairs of these owners at once, or the two kinds of pairs one after the other.
        together = grouped_replace_l1(fresh + lower, fixed)
        apart = grouped_replace_l1(fresh, fixed) + 2 * (fresh.total + kept) * lower.total
        return math.floor(min(together, apart))

    def changed_l1(self, owners: Collection[str]) -> int:
        """How far all entries of the upper triangle move when one person's columns of these owners are replaced."""
        return self.replaced_l1(NoiseLevel(1, self.owners, (), top=True), owners)

    def size(self, level: NoiseLevel) -> int:
        """How many entries a level has."""
        fresh, lower = (
            sum(len(b.columns) for b in self.blocks if b.owner in side) for side in (level.fresh, level.lower)
        )
        return fresh * (fresh + 1) // 2 + fresh * (lower + 1) + level.top


def noise_levels(scales: dict[str, int]) -> Iterator[NoiseLevel]:
    """The levels of scales that owners named; an entry of two owners gets the larger of their scales."""
    distinct = sorted(set(scales.values()))
    for scale in distinct:
        fresh = tuple(owner for owner, own in scales.items() if own == scale)
        lower = tuple(owner for owner, own in scales.items() if own < scale)
        yield NoiseLevel(scale, fresh, lower, top=scale == distinct[-1])


def normal_release(limits: MomentsBounds, noise: AdditiveNoise, lost: Fraction) -> AdditiveRelease:
    """The event of all entries, with Skellam or discrete Gaussian noise on each copy in the full matrix.

    ``lost`` is what masks of proofs let through, as a part of delta.
    """
    moved = moments_sensitivity(limits.norm_squared, limits.width)
    refined = ((owner, *limits.changed(others)) for owner, others in _other_owners(limits).items())
    return noise.release(
        NAME,
        limits.width**2,
        moved,
        theorem=_theorems(limits, THEOREM),
        others=tuple(found for found in refined if found[2] < moved.replace_l2_squared),
        lost=lost,
    )


def laplace_release(limits: MomentsBounds, level: NoiseLevel, noise: AdditiveNoise) -> AdditiveRelease:
    """The event of the entries of one level, each opened once with discrete Laplace noise of its scale."""
    added, replaced = limits.added_l1(level), limits.replaced_l1(level, limits.owners)
    refined = ((owner, limits.replaced_l1(level, others), 0) for owner, others in _other_owners(limits).items())
    whole = level.top and not level.lower
    return noise.release(
        NAME if whole else f"{NAME}, scale {level.scale}",
        limits.size(level),
        Sensitivity(added, added**2, replaced, replaced**2),  # no L2 norm is larger than the L1 norm
        theorem=_theorems(limits, GROUPED_THEOREM),
        about=() if level.top or limits.hidden else level.about,
        others=tuple(found for found in refined if found[1] < replaced),
    )


def _theorems(limits: MomentsBounds, theorem: str) -> str:
    return f"{theorem}, {HIDDEN_THEOREM}" if limits.hidden else theorem


def _other_owners(limits: MomentsBounds) -> dict[str, tuple[str, ...]]:
    """For each owner with a smaller bound, as its own columns stay the same, the others, whose columns change."""
    if limits.hidden or len(limits.owners) > _MOST_REFINED:
        return {}
    return {owner: tuple(other for other in limits.owners if other != owner) for owner in limits.owners}
