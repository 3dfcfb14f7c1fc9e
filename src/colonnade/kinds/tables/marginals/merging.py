"""From noisy counts of many narrow bins to few wide ones with about as many people in each, in integers alone.

Everybody computes this from the same opened integers. No float is in it, so all machines find the same bins and nobody
has to say which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.tables.marginals.published import NoisyMarginals


@dataclass(frozen=True)
class Merge:
    """How many codes are left of a column; ``apart`` is a code that is never merged, such as that of missing cells.

    Codes are merged with their neighbours, so they stand in an order.
    """

    size: int
    apart: int | None = None

    def check(self, fine: int, name: str) -> None:
        """Refuse a merge that is none, for a column with so many codes."""
        if self.apart is not None and not 0 <= self.apart < fine:
            raise StudyError(f"the code of {name!r} that stays apart is one of {fine}, not number {self.apart} [ST481]")
        if not 2 <= self.size <= fine:
            raise StudyError(
                f"the {fine} codes of {name!r} are merged to as many or fewer, at least 2, not {self.size} [ST482]"
            )
        if self.apart is not None and self.size < 3 <= fine:
            raise StudyError(f"a code of {name!r} stays apart, so at least 3 codes are left of more than 2 [ST483]")


def merged_codes(first: NoisyMarginals, merges: Sequence[Merge]) -> tuple[tuple[int, ...], ...]:
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


def _new_codes(counts: Sequence[int], merge: Merge) -> tuple[int, ...]:
    if merge.size == len(counts):
        return tuple(range(len(counts)))
    ordered = [code for code in range(len(counts)) if code != merge.apart]
    wide = merge.size - (merge.apart is not None)
    ends = cuts([counts[code] for code in ordered], wide)
    new = dict(zip(ordered, (bin_ for bin_, width in enumerate(_widths(ends)) for _ in range(width)), strict=True))
    return tuple(new.get(code, merge.size - 1) for code in range(len(counts)))


def cuts(counts: Sequence[int], bins: int) -> list[int]:
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


def _widths(ends: Sequence[int]) -> list[int]:
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def merged_edges(edges: Sequence[float], new: Sequence[int]) -> tuple[float, ...]:
    """Of the edges of narrow bins those that are left, where ``new`` are the new codes of these bins, in order."""
    inner = [edge for edge, (before, after) in zip(edges[1:], pairwise(new), strict=False) if before != after]
    return (edges[0], *inner, edges[-1])


def apply(codes: NDArray[np.float64], new: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Rows of codes after merging; what was none of the codes is none afterwards, and is refused then."""
    merged = np.full(codes.shape, -1.0)
    for column, known in enumerate(new):
        own = codes[:, column]
        valid = (own >= 0) & (own < len(known)) & (own == np.floor(own))
        merged[valid, column] = np.asarray(known, dtype=float)[own[valid].astype(np.int64)]
    return merged
