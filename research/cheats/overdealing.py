"""Owners that deal rows beyond their bounds, and all that follows from such rows, so that nothing else gives them away.

Such an owner runs the real program. What it deals of a block of rows is changed, with all that it derives of them for
the seats; the sums of its own columns it says as if it had dealt the rows of its table. Where the seats know these
sums from shares, it takes what is too much out of them with what it deals last: its noise. So its own square shows
nothing, and the products with others' columns are its own large number times the others' cells.

A protocol's module is loaded once more for such an owner, with other names in it: so nobody else's program changes,
in threads and in processes. A kind on joint sums needs a class here if it derives columns of others, or if seats know
sums of its own columns; what a kind of rounds deals is changed as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import module_from_spec
from math import isqrt
from types import ModuleType
from typing import Any

import numpy as np

from colonnade.kinds.polynomial.programs import OwnMonomials
from colonnade.kinds.tables.programs import OwnMarginals
from colonnade.mpc import ResidueSystem
from colonnade.mpc.verification.input_proofs import ColumnGroup, InputProofs, InputProver, ProofWindow
from colonnade.protocols import iteration
from colonnade.protocols.joint_sum import engine
from colonnade.protocols.joint_sum.declaration import JointSum, OwnerSum
from colonnade.protocols.moments.programs import OwnMoments
from colonnade.randomness import Stream
from research.cheats.deviation import Array, replace_method
from research.cheats.liars import CutShort, Liar, LiarWithBits, idempotent

PROVERS: tuple[type[InputProver], ...] = (InputProver, LiarWithBits, Liar)
"""How rows are proven: as if they were those of the table, or by one of those who lie."""
PROVERS_OF_SMALL = (*PROVERS, CutShort)
"""The same for rows that are hardly too long."""


@dataclass
class DealtRows:
    """A block of rows that an owner is about to deal, as Python's integers, and what it should prove of them."""

    values: Array
    groups: Sequence[tuple[ColumnGroup, slice]]
    system: ResidueSystem
    start: int
    """How many rows were dealt before."""
    rng: np.random.Generator

    def of_kind(self, *, flags: bool, columns: int = 1) -> list[tuple[ColumnGroup, slice]]:
        """The groups of flags, or of norms, that have so many columns."""
        return [one for one in self.groups if one[0].flags is flags and one[0].columns >= columns]

    @property
    def cells(self) -> tuple[ColumnGroup, slice]:
        """A group of norms, or of flags where there is no other."""
        return (self.of_kind(flags=False) or list(self.groups))[0]

    @property
    def row(self) -> int:
        """Any row."""
        return int(self.rng.integers(len(self.values)))

    def put(self, row: int, column: int, group: ColumnGroup, number: int) -> None:
        """Make a cell this number, as it is read by the proof."""
        self.values[row, column] = group.offset + group.scale * number


@dataclass(frozen=True)
class Beyond:
    """What is beyond its bounds in dealt rows; ``change`` writes it into a block for which it ``fits``."""

    change: Callable[[DealtRows], None]
    fits: Callable[[DealtRows], bool] = lambda rows: bool(rows.groups)
    every: bool = False
    """Whether all blocks that follow are changed, too."""
    small: bool = False
    """Whether rows stay so short that an honest owner's arithmetic holds them."""


@dataclass
class Overdealing:
    """One owner in one run; ``use`` says of every block that could be changed whether it is."""

    beyond: Beyond
    prover: type[InputProver] = Liar
    use: Callable[[], bool] = lambda: True
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    dealt: int = 0
    begun: bool = False
    lying: bool = False
    """Whether a block of the window that is to be proven next was changed."""

    def alter(self, honest: Array, task: Any, owner: str) -> Array:
        """The next block, as it is dealt; a column that nothing is proven of stays."""
        values = np.rint(honest).astype(np.int64).astype(object)
        rows = DealtRows(values, groups_of(task, owner, values.shape[1]), task.committee.system, self.dealt, self.rng)
        self.dealt += len(values)
        if len(values) and self.beyond.fits(rows) and ((self.begun and self.beyond.every) or self.use()):
            self.beyond.change(rows)
            self.begun = self.lying = True
        return values

    def proven(self, honest: Array, changed: Array) -> Array:
        """The rows that it pretends to prove."""
        return honest if self.prover is InputProver else changed

    def prove(self, window: ProofWindow, blocks: Sequence[Array]) -> InputProver:
        """The prover of a window."""
        lying, self.lying = self.lying, False
        return (self.prover if lying else InputProver)(window, blocks)

    @property
    def proofs(self) -> type[InputProofs]:
        """Proofs that this prover makes."""
        prove = self.prove

        class LyingProofs(InputProofs):
            def __init__(self, *given: Any) -> None:
                super().__init__(*given)
                setattr(self, "prover", prove)  # noqa: B010 - a class otherwise

        return LyingProofs


def groups_of(task: Any, owner: str, columns: int) -> list[tuple[ColumnGroup, slice]]:
    """What an owner proves of its columns, or would prove where everybody is trusted."""
    proven = replace(task, trust=replace(task.trust, security="active", inputs="proven"))
    found, start = [], 0
    for group in proven.proof_groups.get(owner, ()):
        found.append((group, slice(start, start + group.columns)))
        start += group.columns
    return [one for one in found if one[1].stop <= columns]


def load_again(module: ModuleType, **instead: Any) -> Any:
    """A module once more, with other things under some of its names."""
    spec: Any = module.__spec__
    again = module_from_spec(spec)
    spec.loader.exec_module(again)
    vars(again).update(instead)
    return again


def overdealing_owner(module: Any, how: Overdealing) -> Callable[..., Any]:
    """The owner's program of a protocol, given by its module, of an owner that deals beyond its bounds."""
    programs = getattr(module.owner, "__self__", None)
    return _of_rounds(module, how) if programs is None else overdealing_sum(programs, how).owner


# --- joint sums


def overdealing_sum(programs: engine.JointSumPrograms, how: Overdealing) -> engine.JointSumPrograms:
    """The programs of a joint sum, for such an owner."""
    made: engine.JointSumPrograms = load_again(engine, InputProofs=how.proofs).JointSumPrograms(
        overdealt(programs.declare, how)
    )
    return made


class OverdealtSum(OwnerSum):
    """What an owner computes alone that deals other rows than it says: sums are those of its table."""

    def __init__(self, real: Any, owner: str, how: Overdealing) -> None:
        self.real, self.owner, self.how, self.deals = real, owner, how, real.deals
        self.honest = self.dealt_honestly = self.dealt_now = np.zeros((0, 0))

    def blocks(self, table: Any, stream: Stream) -> Iterator[Array]:
        """The rows of the table, changed."""
        for honest in self.real.blocks(table, stream):
            self.honest = honest
            yield self.changed(honest)

    def changed(self, honest: Array) -> Array:
        """A block with what follows from the change."""
        return self.how.alter(honest, self.real.task, self.owner)

    def dealt(self, whole: Array) -> Array:
        """What of a block is dealt, and what would be of the rows of the table."""
        self.dealt_honestly, self.dealt_now = self.real.dealt(self.honest), self.real.dealt(whole)
        return self.dealt_now

    def add(self, whole: Array) -> None:
        """Add up the rows of the table."""
        self.real.add(self.honest)

    def check(self, table: Any) -> None:
        """As an honest owner does."""
        self.real.check(table)

    def take_window(self) -> Array:
        """As an honest owner does."""
        return np.asarray(self.real.take_window())

    def entries(self) -> Array:
        """As an honest owner does."""
        return np.asarray(self.real.entries())


class OverdealtMoments(OverdealtSum):
    """Second moments: where seats check them, products of own columns are those of what was dealt.

    With its noise the owner then takes away what they have too much; if members are hidden, as if all of its people
    were held by everybody.
    """

    def __init__(self, real: OwnMoments, owner: str, how: Overdealing) -> None:
        super().__init__(real, owner, how)
        width = len(real.sums)
        self.window, self.excess = (np.zeros((width + 1, width + 1), dtype=object) for _ in range(2))

    def _square(self, rows: Array) -> Array:
        """The products of all columns and a one, exactly; if members are hidden, those of the rows that count."""
        whole = np.rint(rows).astype(np.int64) if rows.dtype != object else rows
        whole, ones = whole.astype(object), np.ones((len(rows), 1), dtype=object)
        columns, counts = (whole[:, :-1], whole[:, -1:]) if self.real.task.hidden else (whole, ones)
        beside = np.hstack([columns, ones])
        return np.asarray((beside * counts).T @ beside)

    def add(self, whole: Array) -> None:
        """Add up what was dealt, and how far it is from the table."""
        super().add(whole)
        found = self._square(whole)
        self.window += found
        self.excess += found - self._square(self.honest)

    def take_window(self) -> Array:
        """The products of what was dealt."""
        self.real.take_window()
        above = np.triu_indices(len(self.window) - 1)
        found = np.concatenate([self.window[:-1, :-1][above], self.window[:-1, -1]])
        self.window = np.zeros_like(self.window)
        return found

    def entries(self) -> Array:
        """Those of the table, less what the seats have too much."""
        task, entries = self.real.task, super().entries().astype(object)
        if not (task.trust.active or task.hidden):
            return entries
        full, factors = np.zeros((task.width, task.width), dtype=object), np.ones(task.width, dtype=object)
        factors[-1] = task.constant
        own = [*range(self.real.span.start, self.real.span.stop), task.width - 1]
        full[np.ix_(own, own)] = self.excess
        full = full * factors[:, None] * factors
        return np.asarray(entries - full[np.triu_indices(task.width)] * task.weights)


class OverdealtMarginals(OverdealtSum):
    """Marginals: products with the label are those of the coordinates that were dealt."""

    def changed(self, honest: Array) -> Array:
        """Other coordinates, and what is multiplied of them."""
        if not self.deals:
            return honest
        spans, dealt = (
            self.real.spans,
            self.real.factors.names[: len(self.real.task.layout.dealt[self.real.number].names)],
        )
        width = max((spans[factor].stop for factor in dealt if len(factor) == 1), default=0)
        whole = np.rint(honest).astype(np.int64).astype(object)
        whole[:, :width] = super().changed(honest[:, :width])
        for factor, span in spans.items():
            if len(factor) > 1:
                left, right = (whole[:, spans[one,]] for one in factor)
                whole[:, span] = (left[:, :, None] * right[:, None, :]).reshape(len(whole), -1)
        return whole


class OverdealtMonomials(OverdealtSum):
    """Polynomials: factors are monomials of the columns that were changed."""

    def dealt(self, whole: Array) -> Array:
        """The factors, exactly."""
        super().dealt(self.honest)
        factors = [[whole[:, variable] ** power for variable, power in one] for one in self.real._factors]
        self.dealt_now = np.column_stack([np.prod(powers, axis=0) for powers in factors])
        return self.dealt_now


_SUMS: dict[Any, type[OverdealtSum]] = {
    OwnMoments: OverdealtMoments, OwnMarginals: OverdealtMarginals, OwnMonomials: OverdealtMonomials,
}  # fmt: skip


def overdealt(declare: type[JointSum[Any]], how: Overdealing) -> type[JointSum[Any]]:
    """The same joint sum for one owner, which deals other rows."""
    made: list[OverdealtSum] = []

    def own(task: Any, owner: str) -> OverdealtSum:
        made.append(_SUMS.get(declare.own, OverdealtSum)(declare.own(task, owner), owner, how))
        return made[-1]

    def proof_rows(self: Any, owner: str, dealt: Array, *reduce: Any) -> Any:
        mine = next((one for one in made if dealt is one.dealt_now), None)
        if mine is None:  # shares, of this owner's rows too
            return declare.proof_rows(self, owner, dealt, *reduce)
        system: ResidueSystem = self.task.committee.system
        rows = how.proven(mine.dealt_honestly, dealt)
        found = declare.proof_rows(self, owner, np.array(system.to_residues(rows)), system.reduce)
        return [np.asarray(system.to_integers(part, system.modulus // 2)) for part in found]

    return type(declare.__name__, (declare,), {"own": staticmethod(own), "proof_rows": proof_rows})


# --- rounds


def _of_rounds(module: ModuleType, how: Overdealing) -> Callable[..., Any]:
    """Rows are changed where they are dealt and proven; what the owner says of them is about its table."""
    changed: dict[int, tuple[Array, Array]] = {}
    again, programs = load_again(iteration, InputProofs=how.proofs), load_again(module)
    rounds: Any = again.RoundProofs

    class LyingRoundProofs(rounds):  # type: ignore[misc]
        def add(self, rows: int, own: Array, dealt: Any) -> None:
            super().add(rows, how.proven(*changed[id(own)]), dealt)

    quantise = programs.quantise

    def noted(values: Array, block: Any, task: Any, stream: Stream) -> Array:
        honest = quantise(values, block, task, stream)
        changed[id(honest)] = honest, how.alter(honest, task, block.owner)
        return np.asarray(honest)

    def deal(real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda values, **given: real(changed.get(id(values), (values, values))[1], **given)

    def owner(me: Any, *given: Any) -> Any:
        replace_method(me.engine, "deal", deal)
        return programs.owner(me, *given)

    vars(programs).update(RoundProofs=LyingRoundProofs, quantise=noted)
    return owner


# --- what is beyond bounds


def _bound(group: ColumnGroup) -> int:
    return 1 if group.flags else isqrt(group.squared)


def _cell(number: Callable[[DealtRows, int], int]) -> Callable[[DealtRows], None]:
    """One cell, of a number that follows from its bound."""

    def change(rows: DealtRows) -> None:
        group, span = rows.cells
        rows.put(rows.row, int(rows.rng.integers(span.start, span.stop)), group, number(rows, _bound(group)))

    return change


def _whole_row(rows: DealtRows) -> None:
    row = rows.row
    for group, span in rows.groups:
        for column in range(span.start, span.stop):
            rows.put(row, column, group, 1000 * _bound(group) + column)


def _and_back(rows: DealtRows) -> None:
    """A number in one row, and less the same in the next."""
    group, span = rows.cells
    row, number = rows.row, 1000 * _bound(group)
    rows.put(row, span.start, group, number)
    rows.put((row + 1) % len(rows.values), span.start, group, -number)


def _small_modulo_one(rows: DealtRows) -> None:
    """A cell that is what it should be modulo the first prime."""
    group, span = rows.cells
    rows.values[rows.row, span.start] += group.scale * rows.system.primes[0]


def _short_modulo_one(rows: DealtRows) -> None:
    """Two cells whose squares add up to a norm within the bound modulo the first prime."""
    group, span = rows.of_kind(flags=False, columns=2)[0]
    row, prime, large = rows.row, rows.system.primes[0], 1000 * _bound(group)
    others = np.arange(1, prime, dtype=np.int64)
    fitting = np.flatnonzero((large**2 + others**2) % prime <= group.squared)
    rows.values[row, span] = 0
    rows.values[row, span.start : span.start + 2] = large, int(others[fitting[0]])


def just_beyond(squared: int, columns: int) -> list[int]:
    """The shortest row that is longer than a bound allows."""
    norm = squared + 1
    while True:
        found = _as_squares(norm, min(columns, 4))
        if found is not None:
            return found + [0] * (columns - len(found))
        norm += 1


def _as_squares(number: int, count: int) -> list[int] | None:
    """So many numbers whose squares add up to this one, the largest first."""
    if count == 1:
        return [isqrt(number)] if isqrt(number) ** 2 == number else None
    for first in range(isqrt(number), -1, -1):
        rest = _as_squares(number - first * first, count - 1)
        if rest is not None:
            return [first, *rest]
    return None


def _one_unit(rows: DealtRows) -> None:
    group, span = rows.of_kind(flags=False)[0]
    rows.values[rows.row, span] = just_beyond(group.squared, group.columns)


def _flag(number: Callable[[ResidueSystem], int]) -> Callable[[DealtRows], None]:
    def change(rows: DealtRows) -> None:
        group, span = rows.of_kind(flags=True)[0]
        rows.put(rows.row, span.start, group, number(rows.system))

    return change


def _two_ones(rows: DealtRows) -> None:
    group, span = rows.of_kind(flags=True, columns=2)[0]
    row = rows.row
    for column in range(span.start, span.start + 2):
        rows.put(row, column, group, 1)


def cells_of_victims(rows: Sequence[int], number: int) -> Beyond:
    """In each of these rows, another column is a large number."""

    def here(block: DealtRows) -> list[tuple[int, int]]:
        placed = ((row - block.start, column) for column, row in enumerate(rows))
        return [(row, column) for row, column in placed if 0 <= row < len(block.values)]

    def change(block: DealtRows) -> None:
        for cell in here(block):
            block.values[cell] = number

    return Beyond(change, lambda block: bool(here(block)))


def _has(*, flags: bool, columns: int = 1) -> Callable[[DealtRows], bool]:
    return lambda rows: bool(rows.of_kind(flags=flags, columns=columns))


VARIANTS: dict[str, Beyond] = {
    "a cell twice its bound": Beyond(_cell(lambda rows, bound: 2 * bound)),
    "a cell a thousand times its bound": Beyond(_cell(lambda rows, bound: 1000 * bound)),
    "a cell of half the modulus": Beyond(_cell(lambda rows, bound: rows.system.modulus // 2)),
    "a cell that is a third": Beyond(_cell(lambda rows, bound: pow(3, -1, rows.system.modulus))),
    "cells beyond their bounds in every block": Beyond(_cell(lambda rows, bound: 1000 * bound), every=True),
    "a whole row beyond its bounds": Beyond(_whole_row),
    "a cell beyond its bound and one that takes it back": Beyond(
        _and_back, lambda rows: bool(rows.groups) and len(rows.values) > 1
    ),
    "a cell that is right modulo one prime": Beyond(_small_modulo_one),
    "two cells whose norm is right modulo one prime": Beyond(_short_modulo_one, _has(flags=False, columns=2)),
    "a row one unit too long": Beyond(_one_unit, _has(flags=False), small=True),
    "a flag of 2": Beyond(_flag(lambda system: 2), _has(flags=True), small=True),
    "a flag of -1": Beyond(_flag(lambda system: -1), _has(flags=True), small=True),
    "a flag that is 0 and 1": Beyond(_flag(idempotent), _has(flags=True)),
    "a code with two ones": Beyond(_two_ones, _has(flags=True, columns=2), small=True),
}
"""Rows that an owner may not deal, by their names."""
