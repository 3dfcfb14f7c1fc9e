"""Second moments: how far one person can move them, the public task, the result, and what it tells about each party.

An encoder that learned from the table voids every figure, and no task trains one (docs/theory/heads-from-moments.md).
What a result tells about one party's columns costs less than what
is promised about a whole person, because fewer columns change (docs/theory/functional-sensitivity.md,
moments-sensitivity.md). If members are hidden it costs the same (docs/theory/hidden-members.md).

Skellam and discrete Gaussian noise rest on the L2 norm of an owner's row, discrete Laplace noise on the L1 norm of
each group of its columns (docs/theory/moments-sensitivity.md, docs/theory/functional-sensitivity.md).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError, PrivacyError, StudyError
from colonnade.mpc.shamir import REPLICATED_SEATS
from colonnade.mpc.verification.claims import CLAIMED_ROWS, MOST_HELD
from colonnade.mpc.verification.input_proofs import (
    WINDOW_ROWS,
    ColumnGroup,
    binary_columns,
    bounded_norm,
)
from colonnade.mpc.verification.three_squares import LARGEST
from colonnade.privacy import (
    Budget,
    Event,
    Observer,
    Sensitivity,
    Trust,
    least_noise,
    views,
)
from colonnade.privacy.noise_laws import DEFAULT_LAW, AdditiveNoise, AdditiveRelease, LawName, Norm, SquaredRelease
from colonnade.privacy.observers import Inputs, check_epsilon
from colonnade.privacy.sensitivity import (
    CoordinateRadii,
    changed_columns_sensitivity,
    grouped_l1,
    grouped_replace_l1,
    moments_sensitivity,
    rounded_norm_squared,
)
from colonnade.protocols.committee_task import LARGEST_MESSAGE, AdjustedSum, JointSumTask
from colonnade.protocols.cost import WORD, ShareCounts
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.rows import ColumnBlock, JointRows
from colonnade.protocols.task import TaskPrograms

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


__all__ = ["ColumnBlock", "LawName", "Moments"]

PROTOCOL = "second moments 2"


@dataclass(frozen=True)
class Moments(JointRows, JointSumTask):
    """The public task. All owners and the coordinator hold an equal one.

    ``noise`` is mu of Skellam noise, the variance of discrete Gaussian noise or the scale of discrete Laplace noise,
    all owners' shares together. Laplace noise is still whole when the shares of ``known`` owners are subtracted (other
    laws ignore that number). With ``own_noise``, one scale per owner, an entry of two owners gets the larger of their
    scales; ``noise`` is then the largest of all. With ``hidden`` nobody knows which people all owners hold: rows are
    dealt for every slot of a common universe, and the number of slots counts as the number of rows.
    """

    blocks: tuple[ColumnBlock, ...]
    trust: Trust
    gamma: int
    constant: int
    rows_at_most: int
    noise: int
    law: LawName = DEFAULT_LAW
    known: int = 0
    own_noise: tuple[int, ...] = ()
    block_rows: int = 8192
    hidden: bool = False

    programs = TaskPrograms("colonnade.protocols.moments.programs")
    noise_on = "an entry of X'X"
    proofs = ("proven", "unproven")

    def __post_init__(self) -> None:
        if not 0 <= self.known < len(self.blocks):
            raise PrivacyError(
                f"fewer than all {len(self.blocks)} owners can know each other's noise, not {self.known} [PR132]"
            )
        if self.own_noise and not (
            self.pure and len(self.own_noise) == len(self.blocks) and self.noise == max(self.own_noise)
        ):
            raise PrivacyError(
                "own_noise is for Laplace noise: one scale per owner, the largest of which is the noise [PR133]"
            )

    @property
    def pure(self) -> bool:
        """Whether the noise is discrete Laplace; owners can then name scales of their own."""
        return self.additive.pure

    @property
    def copies(self) -> int:
        """How often an entry off the diagonal is released: L2 bounds count both copies in the full matrix."""
        return 1 if self.additive.norm == "l1" else 2

    @property
    def entries(self) -> int:
        """How many numbers are opened: the upper triangle."""
        return self.width * (self.width + 1) // 2

    @cached_property
    def weights(self) -> NDArray[np.int64]:
        """The number by which each entry of the upper triangle is multiplied before it gets its noise.

        All released copies of an entry are opened as one sum.
        """
        rows, columns = np.triu_indices(self.width)
        return np.where(rows == columns, 1, self.copies)

    # --- bounds and noise

    @cached_property
    def limits(self) -> MomentsBounds:
        """What one row can hold."""
        return MomentsBounds(self.blocks, self.gamma, self.constant, self.additive.norm, self.hidden)

    @property
    def games(self) -> str:
        """The name of the games that audit it."""
        return "functional" if self.pure else "pca"

    @property
    def norm_squared(self) -> int:
        """The largest squared norm of a whole integer row."""
        return self.limits.norm_squared

    def block_norm_squared(self, block: ColumnBlock) -> int:
        """The largest squared norm of one owner's rounded row."""
        return self.limits.block_norm_squared(block)

    @cached_property
    def additive(self) -> AdditiveNoise:
        """The noise of all owners; if owners named their own scales, that of the largest scale."""
        return AdditiveNoise(self.law, self.noise, self.owners, self.known)

    def additive_of(self, scale: int) -> AdditiveNoise:
        """The noise of entries with this scale, for Laplace noise; 0 means the noise of the task."""
        return replace(self.additive, scale=scale) if scale and self.pure else self.additive

    @property
    def noise_draws(self) -> tuple[tuple[AdditiveNoise, int], ...]:
        """The noise on entries of each scale, on the diagonal and beside it."""
        return tuple((self.additive_of(level.scale), often) for level in self.levels for often in {1, self.copies})

    @cached_property
    def levels(self) -> tuple[NoiseLevel, ...]:
        """The entries grouped by their scale; there is one group unless owners named their own scales."""
        scales = self.own_noise or (self.noise,) * len(self.owners)
        found = []
        for scale in sorted(set(scales)):
            fresh = tuple(owner for owner, own in zip(self.owners, scales, strict=True) if own == scale)
            lower = tuple(owner for owner, own in zip(self.owners, scales, strict=True) if own < scale)
            # An entry of two owners gets the larger of their scales.
            found.append(NoiseLevel(scale, fresh, lower, top=scale == max(scales)))
        return tuple(found)

    @cached_property
    def scales(self) -> NDArray[np.int64]:
        """The scale of each entry of the upper triangle, for Laplace noise."""
        own = self.own_noise or (self.noise,) * len(self.owners)
        widths = [len(block.columns) for block in self.blocks]
        columns = np.append(np.repeat(np.array(own, dtype=np.int64), widths), 0)
        rows, others = np.triu_indices(self.width)
        found: NDArray[np.int64] = np.maximum(columns[rows], columns[others])
        found[-1] = max(own)  # the constant's square
        return found

    @property
    def noise_std(self) -> float:
        """Largest standard deviation of the noise on an entry of X'X, in the units of the columns."""
        return math.sqrt(self.additive.variance) / self.gamma**2

    @property
    def error_scale(self) -> Fraction:
        """An opened entry is a product of two scaled numbers."""
        return Fraction(self.gamma**2)

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one person can move what is released."""
        event = self.event
        return Sensitivity(event.l1, event.l2_squared, event.replace_l1, event.replace_l2_squared)

    # --- what is revealed

    @cached_property
    def events(self) -> tuple[AdditiveRelease, ...]:
        """What is opened, in this order."""
        if self.pure:
            return tuple(laplace_release(self.limits, level, self.additive_of(level.scale)) for level in self.levels)
        return (normal_release(self.limits, self.additive, self.shown_by_proofs),)

    @property
    def event(self) -> AdditiveRelease:
        """What is opened, if that is a single event."""
        if len(self.events) > 1:
            raise PrivacyError("owners who named their own noise have several releases, one for each scale [PR134]")
        return self.events[0]

    @cached_property
    def opened_together(self) -> tuple[NDArray[np.int64], ...]:
        """For each event, which entries of the upper triangle it opens."""
        if not self.pure:
            return (np.arange(self.entries),)
        return tuple(np.flatnonzero(self.scales == level.scale) for level in self.levels)

    # --- what it takes

    @cached_property
    def bound(self) -> int:
        """The largest magnitude an opened entry can have, noise included."""
        bound = self.rows_at_most * self.limits.entry + self.additive.reach(self.copies)
        return self.within_63_bits(bound, f", the row limit ({self.rows_at_most}) or the clips")

    def check_messages(self, primes: int) -> None:
        """Refuse more entries than one message can carry."""
        if not self.fits_message(self.entries, primes):
            raise CapacityError(
                f"{len(self.names)} encoded columns give {self.entries} entries, more than one message can carry: use "
                "fewer columns or group the values of categories [CA026]"
            )

    def calibrate(self, budgets: Sequence[Budget]) -> Self:
        """The same with the least noise that keeps every budget."""
        if self.own_noise:
            raise PrivacyError(
                "where owners named their own noise there is none left to choose; drop one of the two [PR135]"
            )
        return super().calibrate(budgets)

    @property
    def rows_per_block(self) -> int:
        """How many rows are dealt at a time: as many as fit the largest message of an owner, or of a seat if hidden."""
        widest = self.width if self.hidden else max(len(block.columns) for block in self.blocks)
        fitting = LARGEST_MESSAGE // (WORD * widest * len(self.committee.system.primes))
        return self.block_of(min(self.block_rows, fitting))

    @property
    def possible_proofs(self) -> tuple[Inputs, ...]:
        """Laplace noise rests on sums of magnitudes, which no proof is about, and promises without a delta.

        Proofs are about numbers whose squares are short.
        """
        short = max(map(self.block_norm_squared, self.blocks)) < LARGEST
        return self.proofs if short and not self.pure else ("unproven",)

    @cached_property
    def proof_groups(self) -> Mapping[str, Sequence[ColumnGroup]]:
        """For each owner: the norm of its rows, and flags if members are hidden."""
        if not self.trust.proven:
            return {}
        flags = [binary_columns(1)] if self.hidden else []
        return {
            block.owner: [bounded_norm(len(block.columns), self.block_norm_squared(block)), *flags]
            for block in self.blocks
        }

    def spans(self, owners: slice) -> slice:
        """Where the columns of owners next to each other stand in the joint matrix."""
        found = [self.span(block.owner) for block in self.blocks[owners]]
        return slice(found[0].start, found[-1].stop)

    @property
    def rows_per_window(self) -> int:
        """After how many rows products are claimed, where participants may deviate.

        Rows are kept until then. A proof of bounds takes many messages, so it is of as many as memory may hold; a claim
        takes few, and new memory costs more than they do.
        """
        most = CLAIMED_ROWS if not self.trust.proven else WINDOW_ROWS
        fitting = MOST_HELD // (8 * len(self.for_sums.primes) * self.width * (1 + self.hidden))
        return max(8192, min(most, fitting))

    @property
    def opened_degree(self) -> int:
        """The degree of the sharing that is opened: checked products are lowered to that of an input."""
        return self.trust.threshold if self.trust.active else 2 * self.trust.threshold

    @property
    def in_parts(self) -> bool:
        """Whether rows are dealt in parts, not on polynomials: by owners that have seats, to two more that follow."""
        seats = self.trust.committee
        plain = not (self.trust.active or self.hidden)
        return plain and len(seats) == REPLICATED_SEATS and set(self.owners) <= set(seats)

    rows_at_once = rows_per_block  # a block of rows is multiplied and forgotten

    @property
    def rows_kept(self) -> int:
        """Checked products are about a window of rows."""
        return self.rows_per_window if self.trust.active else 0

    def adjustable(self, rows: int | None) -> AdjustedSum:
        """The task with given noise, equal for all parties; scales that parties named for themselves are dropped."""
        return AdjustedSum(replace(self, own_noise=()), rows)

    def protection(self, delta: float) -> dict[str, float]:
        """For each party the epsilon of the published result about its columns alone."""
        from colonnade.privacy import epsilon

        if self.pure:
            found = {owner: self._entries_about(owner) for owner in self.owners}
        else:
            found = {owner: [column_events(self, owner)] for owner in self.owners}
        # The coordinator knows none of the noise and is held to replacing a person, which here means these columns.
        known = Observer.coordinator()
        return {
            owner: min(epsilon(views(events, known, self.trust), delta).epsilon for events in ways)
            for owner, ways in found.items()
        }

    def _entries_about(self, owner: str) -> list[list[Event]]:
        """Two descriptions of what Laplace noise tells about one party's columns; each gives a valid epsilon."""
        by_level = [
            replace(event, replace_l1=self.limits.replaced_l1(level, [owner]), others=(), about=())
            for level, event in zip(self.levels, self.events, strict=True)
            if self.hidden or owner in level.about
        ]
        # All entries that change, each counted with the least noise of them.
        together = sum(event.dimension for event in by_level)
        at_once = replace(by_level[0], replace_l1=self.limits.changed_l1([owner]), dimension=together)
        return [[*by_level], [at_once]]

    @property
    def message_rounds(self) -> int:
        """How often participants wait for each other, in a study of one block of rows."""
        lowered = 1 + (len(self.owners) - 1).bit_length() if self.hidden else 0  # rows; flags, two at a time
        return 6 + lowered + 2 * len(self.events)  # ready, go; salt, digests, verdict; shares; then zero and opening

    def cells(self, name: str, rows: int) -> ShareCounts:
        """How many numbers a participant shares, holds and sends when opening; lowering a degree is sharing too."""
        own = next((len(block.columns) for block in self.blocks if block.owner == name), None)
        seated, flags = name in self.trust.committee, len(self.owners) if self.hidden else 0
        lowered = rows * (len(self.names) + flags - 1) if self.hidden else 0
        dealers = self.trust.committee[: 2 * self.trust.threshold + 1]
        dealt = 0 if own is None else rows * (own + self.hidden) + self.entries
        return ShareCounts(
            dealt=dealt + lowered * (name in dealers),
            held=rows * (len(self.names) + flags) + lowered * len(dealers) if seated else 0,
            opened=self.entries * (len(self.everyone) - (name in self.everyone)) if seated else 0,
        )

    def products(self, rows: int) -> int:
        """Of columns of two owners; if members are hidden, of any two columns."""
        widths = [len(block.columns) for block in self.blocks]
        return rows * (self.width**2 if self.hidden else (sum(widths) ** 2 - sum(width**2 for width in widths)) // 2)

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return self.shares_agreement | {
            "protocol": PROTOCOL,
            "blocks": [
                [block.owner, list(block.columns), block.clip.hex(), [[width, str(r)] for width, r in block.groups]]
                for block in self.blocks
            ],
            "constant": self.constant,
            "rows_per_block": self.rows_per_block,
            "law": self.law,
            "known": self.known,
            "own_noise": [str(scale) for scale in self.own_noise],
            **({"hidden": True} if self.hidden else {}),
        }

    @property
    def facts(self) -> dict[str, Any]:
        """What a record of a run says about the task."""
        named = {owner: str(scale) for owner, scale in zip(self.owners, self.own_noise, strict=False)}
        return self.shares_facts | {
            "constant": self.constant,
            **({"own_noise": named} if named else {}),
            **({"hidden": True} if self.hidden else {}),
        }


def column_events(task: Moments, owner: str) -> list[Event]:
    """The release of Skellam or Gaussian noise, as it depends on one party's columns alone."""
    event = task.event
    assert isinstance(event, SquaredRelease)  # noqa: S101 - for the type checker
    l1, l2_squared = task.limits.changed([owner])
    return [replace(event, replace_l1=l1, replace_l2_squared=l2_squared, others=())]


@dataclass(frozen=True)
class NoisyMoments:
    """The published result: the opened integers, and numbers that are computed from them."""

    task: Moments
    opened: NDArray[np.int64]

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """The noisy second-moment matrix of (x, constant), in the units of the encoded columns."""
        return self._symmetric(self.opened / (self.task.weights * float(self.task.gamma) ** 2))

    @cached_property
    def deviations(self) -> NDArray[np.float64]:
        """The standard deviation of the noise on each entry of the matrix."""
        task = self.task
        if task.pure:
            known = {scale: math.sqrt(task.additive_of(scale).variance) for scale in np.unique(task.scales).tolist()}
            found = np.array([known[scale] for scale in task.scales.tolist()])
        else:
            # A sum of two copies has noise of twice the variance; it is halved, and so is its noise.
            found = np.sqrt(task.additive.variance / task.weights)
        return self._symmetric(found / float(task.gamma) ** 2)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, without the constant."""
        return self.task.names

    @property
    def constant(self) -> float:
        """The constant column's value, in the units of the encoded columns."""
        return self.task.constant / self.task.gamma

    @property
    def second_moments(self) -> NDArray[np.float64]:
        """X'X."""
        return self.matrix[:-1, :-1]

    @property
    def count(self) -> float:
        """The noisy number of rows, never below one."""
        return max(1.0, float(self.matrix[-1, -1]) / self.constant**2)

    @property
    def means(self) -> NDArray[np.float64]:
        """The noisy column means."""
        return self.matrix[-1, :-1] / (self.constant * self.count)

    @property
    def covariance(self) -> NDArray[np.float64]:
        """The noisy covariance matrix; it follows from what is published, so it costs no privacy."""
        return self.second_moments / self.count - np.outer(self.means, self.means)

    def spectrum(self, *, center: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """All variances in rising order, and their directions as columns; around the means with ``center``."""
        return np.linalg.eigh(self.covariance if center else self.second_moments / self.count)

    def components(self, count: int, *, center: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The largest variances, never negative, and their directions as rows."""
        values, vectors = self.spectrum(center=center)
        return np.maximum(values[::-1][:count], 0.0), vectors[:, ::-1][:, :count].T

    def variance(self, *, center: bool) -> float:
        """The noisy mean squared norm of a row, less that of the means with ``center``."""
        return float(np.trace(self.covariance if center else self.second_moments / self.count))

    @property
    def entry_deviation(self) -> float:
        """The deviation of the noise on an entry of the diagonal."""
        return float(self.deviations[0, 0])

    @property
    def sum_deviations(self) -> NDArray[np.float64]:
        """The deviation of the noise on each column's sum, times the constant; last that of the constant itself."""
        found: NDArray[np.float64] = self.deviations[-1]
        return found

    @property
    def largest(self) -> float:
        """The largest sum of squares in one direction, as far as it is known."""
        return float(np.max(np.diag(self.matrix), initial=0.0))

    def with_label(self, label: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """X'X and X'y, where y is the named column and X the others."""
        index = self.task.names.index(label)
        rest = np.delete(np.arange(len(self.task.names)), index)
        return self.second_moments[np.ix_(rest, rest)], self.second_moments[rest, index]

    def _symmetric(self, upper: NDArray[np.float64]) -> NDArray[np.float64]:
        full = np.zeros((self.task.width, self.task.width))
        full[np.triu_indices(self.task.width)] = upper
        return full + np.triu(full, 1).T


def with_own_budgets(draft: Moments, epsilons: Mapping[str, float], delta: float) -> Moments:
    """The task with the least noise under which no party's columns cost more than the epsilon it names.

    With Laplace noise each party gets its own scale, and an entry of two parties the larger of theirs. With the other
    laws, and with hidden members, where each record changes all entries, all entries have the same noise.
    """
    if set(epsilons) != set(draft.owners):
        raise StudyError(
            "every party names an epsilon about its own columns, and nobody else does: "
            f"{', '.join(draft.owners)} [ST504]"
        )
    for value in epsilons.values():
        check_epsilon(value)
    if draft.pure:
        # Everything that a party's columns move gets noise of at least this scale, so epsilon is their L1 over it.
        moved = {owner: draft.limits.changed_l1([owner]) for owner in draft.owners}
        scales = tuple(max(1, ceil(l1 / Fraction(epsilons[owner]))) for owner, l1 in moved.items())
        return replace(draft, noise=max(scales), own_noise=() if draft.hidden else scales)

    def least(owner: str) -> int:
        budget = Budget(COORDINATOR, epsilons[owner], delta)

        def told(noise: int) -> Sequence[Event]:
            return column_events(replace(draft, noise=noise), owner)

        return least_noise(told, draft.trust, [budget], owners=draft.additive.parts)

    return replace(draft, noise=max(map(least, draft.owners)))
