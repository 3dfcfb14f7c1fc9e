"""The public task of marginals: what everybody knows before the protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Any, Self

from colonnade.errors import CapacityError, StudyError
from colonnade.kinds.tables.marginals.blocks import (
    Asked,
    Coded,
    cells_of,
    check_blocks,
    check_columns,
    moved_by_others,
    sensitivity_of,
)
from colonnade.kinds.tables.marginals.layout import Factors, Layout, lay_out, lay_out_hidden
from colonnade.kinds.tables.marginals.proofs import Codes
from colonnade.mpc.verify.ranges import Ranges
from colonnade.privacy import Event, Sensitivity, Trust
from colonnade.privacy.additive import NORMAL_LAWS, USUAL, NormalLaw
from colonnade.protocols.cost import WORD, Cells
from colonnade.protocols.on_shares import LARGEST_MESSAGE, AdjustedSum, JointSumTask
from colonnade.protocols.task import Programs

__all__ = ["Asked", "Coded", "Marginals"]

PROTOCOL = "marginals 1"
NAME = "marginals"
THEOREM = "marginals"
HIDDEN_THEOREM = "hidden-members"
_CELLS_AT_ONCE = 1 << 22
_BLOCK_CELLS = 1 << 22


@dataclass(frozen=True)
class Marginals(JointSumTask):
    """The public task. All owners and the coordinator hold an equal one.

    ``coded`` are the columns, owner by owner in the order of ``trust.owners``; ``label`` is the place of one of them,
    which every block of three columns holds. ``noise`` is mu of Skellam noise or the variance of discrete Gaussian
    noise, all owners' shares together, on every opened number alike. With ``hidden`` nobody knows which people all
    owners hold: rows are dealt for every slot of a common universe. ``called`` is the name of the event.
    """

    coded: tuple[Coded, ...]
    asked: tuple[Asked, ...]
    trust: Trust
    rows_at_most: int
    noise: int
    law: NormalLaw = USUAL
    block_rows: int = 8192
    hidden: bool = False
    label: int | None = None
    called: str = NAME

    programs = Programs("colonnade.kinds.tables.marginals.programs")
    games = "marginals"
    gamma = 1  # coordinates are integers already
    noise_on = "a cell of the least exact marginal, in people"
    proofs = ("unproven", "covert", "proven")

    def __post_init__(self) -> None:
        if self.law not in NORMAL_LAWS:
            raise StudyError(f"unknown noise {self.law!r} for marginals; choose from {', '.join(NORMAL_LAWS)} [ST489]")
        check_columns(self.coded, self.trust.owners, self.label)
        check_blocks(self.asked, self.sizes, self.label)

    # --- columns and cells

    merged_columns = 0
    """Of how many columns narrow bins are counted first, and merged."""

    @property
    def last(self) -> Marginals:
        """The task whose result it is; it has no stages before."""
        return self

    @property
    def stages(self) -> tuple[Marginals, ...]:
        """Its only release."""
        return (self,)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many values each column has."""
        return tuple(column.size for column in self.coded)

    @cached_property
    def holder(self) -> tuple[int, ...]:
        """The owner of each column, by number."""
        places = {owner: place for place, owner in enumerate(self.owners)}
        return tuple(places[column.owner] for column in self.coded)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The coded columns."""
        return tuple(f"{column.owner}.{column.name}" for column in self.coded)

    def held_by(self, owner: str) -> tuple[int, ...]:
        """The places of an owner's columns."""
        return tuple(place for place, column in enumerate(self.coded) if column.owner == owner)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where the numbers of each block begin among all that are opened; the last one is where they end."""
        found = [0]
        for block in self.asked:
            found.append(found[-1] + cells_of(block.columns, self.sizes))
        return tuple(found)

    @property
    def entries(self) -> int:
        """How many numbers are opened."""
        return self.starts[-1]

    @cached_property
    def parts(self) -> tuple[range, ...]:
        """Runs of blocks, each of which is opened by one message of every seat."""
        found, begin = [], 0
        for index in range(len(self.asked)):
            if self.starts[index + 1] - self.starts[begin] > _CELLS_AT_ONCE:
                found.append(range(begin, index))
                begin = index
        return (*found, range(begin, len(self.asked)))

    @cached_property
    def layout(self) -> Layout:
        """What is computed where."""
        blocks = [block.columns for block in self.asked]
        if self.hidden:
            return lay_out_hidden(blocks, self.sizes, self.holder, self.label)
        # 2t + 1 seats deal when a degree is lowered, and each puts together what all of them dealt.
        making = 2 * (2 * self.trust.threshold + 1) if self._few_seats else 0
        proven = self.trust.inputs != "unproven"
        return lay_out(blocks, self.sizes, self.holder, self.label, making, proven)

    @property
    def _few_seats(self) -> bool:
        """Whether a product of three cannot be opened, or checked, without lowering the degree first."""
        return self.trust.active or len(self.trust.committee) <= 3 * self.trust.threshold

    @property
    def lowered(self) -> bool:
        """Whether the degree of shares is lowered: there are products of three, and too few seats to open them."""
        return bool(self.layout.made.names) and (self.hidden or self._few_seats)

    @property
    def opened_degree(self) -> int:
        """The degree of the sharing that is opened: checked sums are lowered to that of an input."""
        if self.trust.active:
            return self.trust.threshold
        return (3 if self.layout.made.names and not self.lowered else 2) * self.trust.threshold

    # --- bounds and noise

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """How far one person can move what is opened."""
        return sensitivity_of(*self._moved_by)

    @cached_property
    def others(self) -> tuple[tuple[str, int, int], ...]:
        """For each owner, how far a change of columns that it does not hold can move what is opened."""
        return moved_by_others(*self._moved_by, self.owners)

    @property
    def _moved_by(self) -> tuple[Any, ...]:
        """What sensitivities depend on: not on the noise, so they are computed once for a study."""
        return self.sizes, tuple((block.columns, block.weight) for block in self.asked), self.holder, self.hidden

    @cached_property
    def event(self) -> Event:
        """What all openings together reveal."""
        theorem = f"{THEOREM}, {HIDDEN_THEOREM}" if self.hidden else THEOREM
        return self.additive.release(
            self.called,
            self.entries,
            self.sensitivity,
            theorem=theorem,
            others=self.others,
            lost=self.shown_by_proofs if self.codes else 0.0,
        )

    def with_noise(self, noise: int) -> Self:
        """The same with other noise; blocks are not checked again, and what the noise does not change is kept."""
        found = copy(self)
        for name in ("event", "bound", "committee", "for_sums"):
            found.__dict__.pop(name, None)
        object.__setattr__(found, "noise", noise)
        return found

    @property
    def openings(self) -> Mapping[Event, int]:
        """Each part is one opening, and all of them are one event."""
        return {self.event: len(self.parts)}

    def scale_squared(self, block: Asked) -> int:
        """The square of the scale of a block: noise of an opened number over it is that of a cell, in people."""
        return block.weight**2 * math.prod(2 if self.sizes[c] == 2 else self.sizes[c] ** 2 for c in block.columns)

    def deviation(self, block: Asked) -> float:
        """The standard deviation of the noise of a cell, in people, before it is projected to sum to zero."""
        return float(self.additive.deviation / math.sqrt(self.scale_squared(block)))

    @cached_property
    def coarseness(self) -> Fraction:
        """The variance of a cell of the least exact marginal, in people, for noise of variance one.

        The marginal of a set of columns is the sum of the blocks of its subsets, each spread evenly over the columns
        that it does not name (docs/theory/fitting-marginals.md, section 2). Different blocks have independent noise.
        """
        kept = {block.columns: self._kept(block) for block in self.asked}

        def variance(columns: tuple[int, ...]) -> Fraction:
            whole = math.prod(self.sizes[column] for column in columns)
            subsets = (each for order in range(len(columns) + 1) for each in combinations(columns, order))
            named = (each for each in subsets if each in kept)
            return (
                sum((kept[each] * math.prod(self.sizes[c] ** 2 for c in each) for each in named), Fraction()) / whole**2
            )

        return max(variance(columns) for columns in kept)

    def _kept(self, block: Asked) -> Fraction:
        """The variance of a block's cell in people, projected to sum to zero, for noise of variance one."""
        part = Fraction(1, self.scale_squared(block))
        return part * math.prod(Fraction(self.sizes[column] - 1, self.sizes[column]) for column in block.columns)

    @property
    def error_scale(self) -> Fraction:
        """An opened number over this is a cell of the least exact marginal, in people, rounded down."""
        return Fraction(math.isqrt(int((1 << 64) / self.coarseness)), 1 << 32)

    @property
    def noise_std(self) -> float:
        """The standard deviation of the noise on a cell of the least exact marginal, in people."""
        return float(self.additive.deviation) * math.sqrt(self.coarseness)

    @cached_property
    def bound(self) -> int:
        """The largest magnitude an opened number can have, noise included."""
        person = max(b.weight * math.prod(self.sizes[column] - 1 for column in b.columns) for b in self.asked)
        bound = self.rows_at_most * person + self.additive.reach()
        if bound >= 2**62:
            raise CapacityError(
                f"sums of marginals may need {bound.bit_length() + 1} bits and 63 are available: lower the weights or "
                f"the row limit ({self.rows_at_most}) [CA023]"
            )
        return bound

    # --- what it takes

    @cached_property
    def width(self) -> int:
        """How many numbers of a row a seat holds: what owners deal, and what is made of it."""
        return sum(factors.width for factors in self.layout.dealt.values()) + self.layout.made.width

    @property
    def rows_per_block(self) -> int:
        """How many rows are dealt at a time: as many as fit a message and the memory of a seat."""
        widest = max([*(factors.width for factors in self.layout.dealt.values()), self.layout.made.width, 1]) + 1
        fitting = LARGEST_MESSAGE // (WORD * widest * len(self.committee.system.primes))
        most = min(self.block_rows, self.rows_per_window) if self.trust.active else self.block_rows
        return max(1, min(most, fitting, _BLOCK_CELLS // max(1, self.width)))

    @property
    def rows_at_once(self) -> int:
        """How many rows a seat holds at a time: a block is multiplied and forgotten, or kept until it is checked."""
        return self.rows_per_block * (self.blocks_per_window if self.trust.active else 1)

    @cached_property
    def codes(self) -> Mapping[str, Codes]:
        """For each owner that proves something of what it deals, which numbers these are."""
        if self.trust.inputs == "unproven":
            return {}
        dealt, none = self.layout.dealt, Factors((), ())
        return {
            owner: Codes(dealt.get(number, none), self.hidden)
            for number, owner in enumerate(self.owners)
            if self.hidden or number in dealt
        }

    @cached_property
    def proven(self) -> Mapping[str, Ranges]:
        """For each owner that deals coordinates: that they are those of codes, and flags if members are hidden."""
        if not self.codes:
            return {}
        rows = min(self.rows_at_most, self.rows_per_window)
        windows = -(-2 * self.rows_at_most // rows)  # blocks fill at least half of a window
        covert = self.trust.inputs == "covert"
        return {
            owner: Ranges(codes.groups, rows, len(self.owners) * windows, covert) for owner, codes in self.codes.items()
        }

    @property
    def message_rounds(self) -> int:
        """How often participants wait for each other, in a study of one block of rows."""
        lowered = int(self.lowered)
        if self.hidden:  # flags, two at a time; the label; then all other factors
            lowered = (len(self.owners) - 1).bit_length() + 1 + any(len(name) > 1 for name in self.layout.made.names)
        # ready, go; salt, digests, verdict; shares; then, for each part, noise and opening
        return 6 + lowered + self.trust.active + 2 * len(self.parts)

    def cells(self, name: str, rows: int) -> Cells:
        """How many numbers a participant shares, holds and sends when opening; lowering a degree is sharing too."""
        layout, seats, flags = self.layout, self.trust.committee, len(self.owners) if self.hidden else 0
        lowered = rows * (layout.made.width + max(0, flags - 1)) if self.lowered else 0
        if self.trust.active:
            sums = sum(product.left.width * product.right.width for product in layout.shared)
            lowered += sums * -(-rows // (self.rows_per_block * self.blocks_per_window))
        dealers = seats[: 2 * self.trust.threshold + 1]
        dealt = 0
        if name in self.owners:
            own = layout.dealt.get(self.owners.index(name))
            dealt = rows * ((own.width if own else 0) + self.hidden) + self.entries
        if name not in seats:
            return Cells(dealt, 0, 0)
        inputs = sum(factors.width for factors in layout.dealt.values()) + flags
        return Cells(
            dealt=dealt + lowered * (name in dealers),
            held=rows * inputs + lowered * len(dealers) + self.entries * len(self.owners),
            opened=self.entries * (len(self.everyone) - (name in self.everyone)),
        )

    def products(self, rows: int) -> int:
        """Of codes of two columns that are asked for together."""
        return rows * sum(product.left.width * product.right.width for product in self.layout.shared)

    def adjustable(self, rows: int | None) -> AdjustedMarginals:
        """The task with given noise."""
        return AdjustedMarginals(self, rows, "the weights")

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return self.shares_agreement | {
            "protocol": PROTOCOL,
            "coded": [[column.owner, column.name, column.size] for column in self.coded],
            "asked": [[list(block.columns), str(block.weight)] for block in self.asked],
            "label": self.label,
            "law": self.law,
            "rows_per_block": self.rows_per_block,
            "called": self.called,
            **({"hidden": True} if self.hidden else {}),
        }

    @property
    def facts(self) -> dict[str, Any]:
        """What a record of a run says about the task."""
        return self.shares_facts | {
            "blocks": len(self.asked),
            "cells": self.entries,
            "openings": len(self.parts),
            **({"hidden": True} if self.hidden else {}),
        }


@dataclass(frozen=True)
class AdjustedMarginals(AdjustedSum):
    """Marginals with given noise; the error is that of a cell of the least exact marginal, as a share of all people."""

    error_on = "share of people in a cell of the least exact marginal"
