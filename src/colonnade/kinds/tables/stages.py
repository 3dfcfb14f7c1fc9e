"""Marginals in two stages: narrow bins are counted first, and merged to even ones before everything else is released.

1. One-way marginals of fine codes, and the count: an owner computes them alone, so this takes one opening.
2. Everybody merges the codes by the same rule, from the same opened integers. No float is in it, so all machines find
   the same bins and nobody has to say which.
3. All marginals of the merged codes, as always.

Both releases are planned and paid for ahead. The price of the second depends on how many codes each column has left,
which is fixed before, and not on which codes were merged (docs/theory/marginals.md).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.tables import programs
from colonnade.kinds.tables.release import NoisyMarginals
from colonnade.kinds.tables.task import CodedColumn, MarginalQuery, Marginals
from colonnade.mpc import Committee
from colonnade.privacy import Event, Trust
from colonnade.privacy.noise_laws import AdditiveNoise, LawName
from colonnade.protocols.committee_task import CommitteeTask
from colonnade.protocols.cost import ShareCounts
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.rows import Rows
from colonnade.protocols.task import TaskPrograms
from colonnade.randomness import Stream


@dataclass(frozen=True)
class CodeMerge:
    """How many codes are left of a column; ``apart`` is a code that is never merged, such as that of missing cells.

    Codes are merged with their neighbours, so they stand in an order.
    """

    size: int
    apart: int | None = None

    def conditions(self, column: CodedColumn, left: CodedColumn) -> Iterator[tuple[bool, str]]:
        """What must hold for a column that is asked about afterwards as it is left, and what is said otherwise."""
        fine, name, alone = column.size, column.name, self.apart is not None
        yield from (
            (
                self.apart is None or 0 <= self.apart < fine,
                f"the code of {name!r} that stays apart is one of {fine}, not number {self.apart} [ST481]",
            ),
            (
                2 <= self.size <= fine,
                f"the {fine} codes of {name!r} are merged to as many or fewer, at least 2, not {self.size} [ST482]",
            ),
            (
                not alone or not self.size < 3 <= fine,
                f"a code of {name!r} stays apart, so at least 3 codes are left of more than 2 [ST483]",
            ),
            (
                self.size == left.size,
                f"{name!r} is merged to {self.size} codes and asked about with {left.size} [ST487]",
            ),
        )


def merge_codes(first: NoisyMarginals, merges: Sequence[CodeMerge]) -> tuple[tuple[int, ...], ...]:
    """For every column, the new code of each code: as even as the noisy counts of the first stage make them."""
    return tuple(_new_codes(_counts(first, place), merge) for place, merge in enumerate(merges))


def _counts(first: NoisyMarginals, place: int) -> list[int]:
    """Noisy numbers of people for each code, all times one positive number; they may be negative."""
    task = first.task
    weights = {block.columns: block.weight for block in task.asked}
    opened = [int(value) for value in first.cells((place,))]
    opened = [opened[0], -opened[0]] if task.sizes[place] == 2 else opened
    # v = w (n k - N) and c = w0 N give w0 v + w c = w0 w n k.
    everybody = weights[(place,)] * int(first.cells(())[0])
    return [weights[()] * value + everybody for value in opened]


def _new_codes(counts: Sequence[int], merge: CodeMerge) -> tuple[int, ...]:
    if merge.size == len(counts):
        return tuple(range(len(counts)))
    ordered = [code for code in range(len(counts)) if code != merge.apart]
    wide = merge.size - (merge.apart is not None)
    ends = cut_evenly([counts[code] for code in ordered], wide)
    new = {code: bisect_right(ends, place) for place, code in enumerate(ordered)}
    return tuple(new.get(code, merge.size - 1) for code in range(len(counts)))


def cut_evenly(counts: Sequence[int], bins: int) -> list[int]:
    """Where each bin ends: after the least run of codes that holds an even part of the people who are left.

    At least one code is left for every bin after it.
    """
    # Cumulative sums are made to ascend: noise can take people away, and clipping each count would only ever add some.
    total = list(accumulate(accumulate(counts, initial=0), max))
    ends, begin = [], 0
    for left in range(bins, 0, -1):
        end, last = begin + 1, len(counts) - left + 1
        while end < last and (total[end] - total[begin]) * left < total[-1] - total[begin]:
            end += 1
        begin = end if left > 1 else len(counts)
        ends.append(begin)
    return ends


def merge_edges(edges: Sequence[float], new: Sequence[int]) -> tuple[float, ...]:
    """Of the edges of narrow bins those that are left, where ``new`` are the new codes of these bins, in order."""
    inner = [edge for edge, (before, after) in zip(edges[1:], pairwise(new), strict=False) if before != after]
    return (edges[0], *inner, edges[-1])


def recode_rows(codes: NDArray[np.float64], new: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Rows of codes after merging; what was none of the codes is none afterwards, and is refused then."""
    merged = np.full(codes.shape, -1.0)
    for column, known in enumerate(new):
        own = codes[:, column]
        valid = (own >= 0) & (own < len(known)) & (own == np.floor(own))
        merged[valid, column] = np.asarray(known, dtype=float)[own[valid].astype(np.int64)]
    return merged


PROTOCOL = "marginals in two stages 1"
FIRST = "marginals of narrow bins"


@dataclass(frozen=True)
class StagedMarginals(CommitteeTask):
    """The public task. ``fine`` are the columns with their narrow codes, and ``merges`` says what becomes of each.

    ``second`` is what is asked of the merged columns; the noise in it does not count: ``noise`` is that of both stages.
    So the weights say how much either stage costs: ``first`` are the weights of the count and of each column.
    """

    fine: tuple[CodedColumn, ...]
    merges: tuple[CodeMerge, ...]
    first: tuple[int, ...]
    second: Marginals
    noise: int

    programs = TaskPrograms("colonnade.kinds.tables.stages")
    games = "marginals"
    gamma = 1
    noise_on = Marginals.noise_on
    why_not_active = Marginals.why_not_active
    why_not_lanes = "adds up its people twice, the second time after it has seen the first result"
    active_by_default = Marginals.active_by_default
    proofs = Marginals.proofs
    released: ClassVar[str] = "makes two releases, the second of which depends on the first"

    def __post_init__(self) -> None:
        merged = [(column.owner, column.name) for column in self.second.coded]
        same = [(column.owner, column.name) for column in self.fine] == merged and len(self.merges) == len(merged)
        columns = zip(self.merges, self.fine, self.second.coded, strict=False)
        for kept, otherwise in (
            (same, "both stages are about the same columns in the same order, with one merge for each [ST485]"),
            (
                len(self.first) == len(merged) + 1,
                "the first stage has a weight for the count and one for each column [ST486]",
            ),
            *(each for merge, column, left in columns for each in merge.conditions(column, left)),
        ):
            if not kept:
                raise StudyError(otherwise)

    @property
    def merged_columns(self) -> int:
        """Of how many columns narrow bins are counted first, and merged."""
        return sum(merge.size < column.size for merge, column in zip(self.merges, self.fine, strict=True))

    @cached_property
    def stages(self) -> tuple[Marginals, Marginals]:
        """Both releases, with the noise of this task."""
        second = self.second.with_noise(self.noise)
        blocks = [(), *((place,) for place in range(len(self.fine)))]
        asked = tuple(MarginalQuery(columns, weight) for columns, weight in zip(blocks, self.first, strict=True))
        return replace(second, coded=self.fine, asked=asked, label=None, called=FIRST), second

    @property
    def trust(self) -> Trust:  # type: ignore[override]  # all have the same
        """Who takes part."""
        return self.second.trust

    @property
    def rows_at_most(self) -> int:  # type: ignore[override]
        """The most rows for which the arithmetic is sized."""
        return self.second.rows_at_most

    @property
    def law(self) -> LawName:
        """The law of all noise."""
        return self.second.law

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that the result is about."""
        return self.second.names

    @property
    def event(self) -> Event:
        """What the second stage reveals."""
        return self.stages[-1].event

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """What each of them reveals."""
        return tuple(stage.event for stage in self.stages)

    @property
    def noise_draws(self) -> tuple[tuple[AdditiveNoise, int], ...]:
        """The noise of all of them."""
        return tuple(noise for stage in self.stages for noise in stage.noise_draws)

    @property
    def settlements(self) -> int:
        """How often the seats check what was computed, in all of them."""
        return sum(stage.settlements for stage in self.stages)

    @property
    def openings(self) -> Mapping[Event, int]:
        """The openings of each of them."""
        return {event: often for stage in self.stages for event, often in stage.openings.items()}

    @property
    def bound(self) -> int:
        """The largest magnitude of a number that any of them opens."""
        return max(stage.bound for stage in self.stages)

    @property
    def noise_std(self) -> float:
        """Deviation of the noise on a number of the second."""
        return self.stages[-1].noise_std

    def cells(self, name: str, rows: int) -> ShareCounts:
        """How many numbers a participant shares, holds and sends when opening, in all of them."""
        each = [stage.cells(name, rows) for stage in self.stages]
        return ShareCounts(*(sum(getattr(cells, part) for cells in each) for part in ("dealt", "held", "opened")))

    @property
    def hidden(self) -> bool:
        """Whether nobody knows which people all owners hold."""
        return self.second.hidden

    @cached_property
    def committee(self) -> Committee:
        """The seats, with as many primes as the stage that needs more."""
        return max((stage.committee for stage in self.stages), key=lambda found: len(found.system.primes))

    @property
    def rows_at_once(self) -> int:
        """How many rows a seat holds at a time."""
        return max(stage.rows_at_once for stage in self.stages)

    @property
    def message_rounds(self) -> int:
        """How often participants wait for each other: the second stage begins with the comparison of rows again."""
        return sum(stage.message_rounds for stage in self.stages) - 2

    @property
    def agreement(self) -> dict[str, Any]:
        """Everything that must be equal at every participant, in order and exactly."""
        return {
            "protocol": PROTOCOL,
            "stages": [stage.agreement for stage in self.stages],
            "merges": [[merge.size, merge.apart] for merge in self.merges],
            "primes": list(self.committee.system.primes),
        }

    @property
    def facts(self) -> dict[str, Any]:
        """What a record of a run says about the task: what it says about the second stage, and the cells of both."""
        first, second = self.stages
        return second.facts | {
            "cells": first.entries + second.entries,
            "openings": len(first.parts) + len(second.parts),
            "primes": len(self.committee.system.primes),
            "system_bits": self.committee.system.bits,
        }


@dataclass(frozen=True)
class StagedResult:
    """Both published results, and for every column the merged code of each narrow one."""

    first: NoisyMarginals
    second: NoisyMarginals
    merged: tuple[tuple[int, ...], ...]


class _MergedRows:
    """An owner's rows with merged codes."""

    def __init__(self, table: Rows, merged: Sequence[Sequence[int]]) -> None:
        self._table, self._merged = table, merged
        self.ids, self.places = table.ids, table.places

    def blocks(self, rows: int, /) -> Iterator[NDArray[np.float64]]:
        return (recode_rows(codes, self._merged) for codes in self._table.blocks(rows))


def owner(me: Owner, table: Rows, task: StagedMarginals) -> StagedResult:
    """An owner's program; the rows of the table are the fine codes of its columns."""
    first, second = task.stages
    counted = programs.owner(me, table, first)
    merged = merge_codes(counted, task.merges)
    own = [merged[place] for place in second.held_by(me.name)]
    return StagedResult(counted, programs.owner(me, _MergedRows(table, own), second), merged)


def coordinator(me: Coordinator, task: StagedMarginals) -> StagedResult:
    """The coordinator's program: both stages, one after the other."""
    first, second = task.stages
    counted = programs.coordinator(me, first)
    return StagedResult(counted, programs.coordinator(me, second), merge_codes(counted, task.merges))


def simulate(tables: Mapping[str, NDArray[np.int64]], task: StagedMarginals, stream: Stream) -> StagedResult:
    """What the protocol would publish, computed in one place; it is for evaluation, and a study never calls it."""
    first, second = task.stages
    counted = programs.simulate(tables, first, stream)
    merged = merge_codes(counted, task.merges)
    own = {owner: [merged[place] for place in second.held_by(owner)] for owner in task.owners}
    codes = {
        owner: recode_rows(np.asarray(tables[owner], dtype=float), own[owner]).astype(np.int64) for owner in task.owners
    }
    return StagedResult(counted, programs.simulate(codes, second, stream), merged)
