"""Does a synthetic table give away who was in the real one? For auditors, on data that one may look at.

Two questions. Are made-up people closer to those whom the model learned from than to others like them? And can an
attacker who holds the table tell the ones from the others? The attack weighs how dense the made-up people are around
a person against how dense people are there anyway, known from a reference (van Breugel et al. 2023, DOMIAS); beside it
the plain distance to the closest made-up person. A success bounds what is protected from below; failure proves
nothing: the promise is the privacy statement's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.attacks.membership import area_and_deviation
from colonnade.errors import DataError
from colonnade.kinds.synthesis.table_comparison import CommonColumns, ComparedTable

Vector = NDArray[np.float64]

MAX_PEOPLE = 2000
"""People of each kind that are attacked at most."""
MIN_PEOPLE = 60
_MAX_NEIGHBOURS = 20_000
"""People among whom the closest are looked for, at most."""
_BLOCK = 256
_NEIGHBOURS = 5
_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True)
class NearestPeople:
    """Distances from made-up people to the closest real person, among as many learned from as held out.

    A distance is the share of columns in which two people differ, where numbers differ by parts. ``closer_to_real`` is
    the share of made-up people who are closer to somebody learned from (ties count half): 0.5 if nothing was copied.
    """

    to_real: float
    to_held_out: float
    closer_to_real: float
    interval: tuple[float, float]
    copies: float
    """The share of made-up people who equal somebody learned from in every column, numbers to 1/1000 of a range."""
    copies_held_out: float


@dataclass(frozen=True)
class MembershipAttack:
    """How well an attacker tells those learned from and those held out apart.

    ``auc`` is the chance that a score orders one of each rightly: 0.5 is guessing. ``advantage`` is the true minus the
    false positive rate at a threshold that was chosen on other people. Intervals hold 95 % of the time.
    """

    name: str
    auc: float
    auc_interval: tuple[float, float]
    advantage: float
    advantage_interval: tuple[float, float]
    baseline: float
    """The AUC of the same attack on a table that holds nobody learned from: what the two groups differ in anyway."""
    roc: tuple[tuple[float, float], ...]
    """Some points of the curve: false and true positive rates."""


def compare_nearest(
    common: CommonColumns, real: ComparedTable, synthetic: ComparedTable, held_out: ComparedTable
) -> NearestPeople:
    """Compare the distances from made-up people to people learned from and to people held out."""
    draw = np.random.default_rng(1)  # which people are looked at
    number = min(len(real), len(held_out), _MAX_NEIGHBOURS)
    people = _RowDistances.of(common, real, held_out)
    asked = synthetic.take(_choose_rows(draw, len(synthetic), MAX_PEOPLE))
    first = people.closest(asked, real.take(_choose_rows(draw, len(real), number)))
    second = people.closest(asked, held_out.take(_choose_rows(draw, len(held_out), number)))
    wins = (first < second) + 0.5 * (first == second)
    share = float(wins.mean())
    half = _NORMAL_95 * math.sqrt(max(float(wins.var(ddof=1)), 1 / len(wins)) / len(wins))
    same = 1e-3 / len(common.names)
    return NearestPeople(
        float(np.median(first)),
        float(np.median(second)),
        share,
        (max(0.0, share - half), min(1.0, share + half)),
        float(np.mean(first <= same)),
        float(np.mean(second <= same)),
    )


def attack_membership(
    common: CommonColumns, real: ComparedTable, synthetic: ComparedTable, held_out: ComparedTable
) -> tuple[MembershipAttack, ...]:
    """Attack by density and by distance.

    The people held out are dealt into three: those who are attacked beside as many of the real ones, the reference,
    and those who stand in for the table in the baseline.
    """
    if len(held_out) < 3 * MIN_PEOPLE or len(real) < MIN_PEOPLE:
        raise DataError(f"a membership attack needs {MIN_PEOPLE} people, and {3 * MIN_PEOPLE} held out [DA090]")
    draw = np.random.default_rng(2)
    third = len(held_out) // 3
    dealt = draw.permutation(len(held_out))
    outsiders = held_out.take(dealt[: min(third, MAX_PEOPLE)])
    reference, other = (held_out.take(dealt[begin:][: min(third, _MAX_NEIGHBOURS)]) for begin in (third, 2 * third))
    members = real.take(_choose_rows(draw, len(real), len(outsiders)))
    table = synthetic.take(_choose_rows(draw, len(synthetic), _MAX_NEIGHBOURS))
    people = _RowDistances.of(common, real, held_out)
    anyway = [people.nearness(group, reference) for group in (members, outsiders)]
    found = {}
    for name, against in (("table", table), ("other", other)):
        near = [people.nearness(group, against) for group in (members, outsiders)]
        found["density", name] = [_density_ratio(*pair) for pair in zip(near, anyway, strict=True)]
        found["distance", name] = [-group.closest for group in near]
    return tuple(
        _assess_attack(kind, found[kind, "table"], found[kind, "other"], draw) for kind in ("density", "distance")
    )


@dataclass(frozen=True)
class _Nearness:
    """To how near people some others are: the distance of the closest, and that of the fifth closest."""

    closest: Vector
    fifth: Vector
    among: int


def _density_ratio(table: _Nearness, reference: _Nearness) -> Vector:
    """The logarithm of how much denser the table is around a person than people are: a ratio of neighbour distances."""
    floor = 1e-3
    dense = -np.log(table.fifth + floor) - np.log(table.closest + floor)
    return np.asarray(dense + np.log(reference.fifth + floor) + np.log(reference.closest + floor))


@dataclass(frozen=True)
class _RowDistances:
    """Distances by all columns: numbers by their difference over the range of most people, others by being unequal."""

    common: CommonColumns
    low: Vector
    span: Vector

    @classmethod
    def of(cls, common: CommonColumns, *sides: ComparedTable) -> _RowDistances:
        numbers = np.vstack([side.values[:, common.numbers] for side in sides])
        if not numbers.shape[1]:
            return cls(common, np.empty(0), np.empty(0))
        numbers = np.where(np.isfinite(numbers), numbers, np.nan)
        empty = np.isnan(numbers).all(axis=0)
        numbers[:, empty] = 0.0
        low, high = np.nanquantile(numbers, [0.01, 0.99], axis=0)
        wide = np.where(high > low, high - low, np.nanmax(numbers, axis=0) - np.nanmin(numbers, axis=0))
        return cls(common, low, np.where(wide > 0, wide, 1.0))

    def closest(self, asked: ComparedTable, among: ComparedTable) -> Vector:
        return np.concatenate([block.min(axis=1) for block in self._blocks(asked, among)])

    def nearness(self, asked: ComparedTable, among: ComparedTable) -> _Nearness:
        several = min(_NEIGHBOURS, len(among))
        nearest = np.vstack(
            [np.partition(block, several - 1, axis=1)[:, :several] for block in self._blocks(asked, among)]
        )
        return _Nearness(nearest.min(axis=1), nearest.max(axis=1), len(among))

    def _blocks(self, asked: ComparedTable, among: ComparedTable) -> Iterator[Vector]:
        """The distances of some people to all of others, a few people at a time."""
        numbers = self.common.numbers
        others = [place for place in range(len(self.common.names)) if place not in numbers]
        mine, theirs = self._scaled(asked), self._scaled(among)
        small = np.uint16 if max(self.common.sizes) < 1 << 16 else np.int64
        codes, their_codes = asked.codes[:, others].astype(small), among.codes[:, others].astype(small).T.copy()
        for begin in range(0, len(asked), _BLOCK):
            rows = slice(begin, begin + _BLOCK)
            found = np.zeros((len(mine[rows]), len(among)), dtype=np.float32)
            for place in range(len(others)):
                found += codes[rows, place, None] != their_codes[place]
            for place in range(len(numbers)):
                gap = np.abs(mine[rows, place, None] - theirs[:, place])
                # A missing number is as far as possible from one that is there, and equal to another missing one.
                missing = np.isnan(mine[rows, place, None]), np.isnan(theirs[:, place])
                gap = np.where(np.isnan(gap), missing[0] != missing[1], np.minimum(gap, 1))
                found += gap
            yield (found / len(self.common.names)).astype(np.float64)

    def _scaled(self, side: ComparedTable) -> NDArray[np.float32]:
        values = side.values[:, self.common.numbers]
        return np.asarray((np.where(np.isfinite(values), values, np.nan) - self.low) / self.span, dtype=np.float32)


def _assess_attack(
    name: str, scores: list[Vector], before: list[Vector], draw: np.random.Generator
) -> MembershipAttack:
    """What scores of members and of outsiders are worth, beside those that a table without members gives."""
    members, outsiders = scores
    auc, deviation = area_and_deviation(members, outsiders)
    gained, interval = _advantage(members, outsiders, draw)
    return MembershipAttack(
        name,
        auc,
        (max(0.0, auc - _NORMAL_95 * deviation), min(1.0, auc + _NORMAL_95 * deviation)),
        gained,
        interval,
        area_and_deviation(*before)[0],
        _roc_curve(members, outsiders),
    )


def _advantage(members: Vector, outsiders: Vector, draw: np.random.Generator) -> tuple[float, tuple[float, float]]:
    """True minus false positives on one half, at the best threshold of the other half."""
    chosen, tested = [], []
    for scores in (members, outsiders):
        order = draw.permutation(len(scores))
        chosen.append(scores[order[: len(order) // 2]])
        tested.append(scores[order[len(order) // 2 :]])
    cuts = np.unique(np.concatenate(chosen))
    rates = [1 - np.searchsorted(np.sort(scores), cuts, "left") / len(scores) for scores in chosen]
    cut = cuts[int(np.argmax(rates[0] - rates[1]))]
    hits, alarms = (float(np.mean(scores >= cut)) for scores in tested)
    # Agresti and Caffo: two successes and two failures more, one of each on either side.
    smooth = [
        ((rate * len(scores) + 1) / (len(scores) + 2), len(scores) + 2)
        for rate, scores in zip((hits, alarms), tested, strict=True)
    ]
    middle = smooth[0][0] - smooth[1][0]
    half = _NORMAL_95 * math.sqrt(sum(rate * (1 - rate) / count for rate, count in smooth))
    return hits - alarms, (max(-1.0, middle - half), min(1.0, middle + half))


def _roc_curve(members: Vector, outsiders: Vector, points: int = 41) -> tuple[tuple[float, float], ...]:
    """True positive rates at evenly spaced false positive rates."""
    cuts = np.unique(np.concatenate([members, outsiders]))[::-1]
    hits = 1 - np.searchsorted(np.sort(members), cuts, "left") / len(members)
    alarms = 1 - np.searchsorted(np.sort(outsiders), cuts, "left") / len(outsiders)
    grid = np.linspace(0, 1, points)
    return tuple(zip(grid.tolist(), np.interp(grid, [0.0, *alarms], [0.0, *hits]).tolist(), strict=True))


def _choose_rows(draw: np.random.Generator, people: int, number: int) -> NDArray[np.int64]:
    return np.asarray(draw.choice(people, number, replace=False) if people > number else np.arange(people))
