"""A graphical model by private-pgm, where its package ``mbi`` is installed: an alternative to the mixture.

It is the model of greatest entropy for the marginals that it is given, but it can be given only few of them: its size
grows with how they hang together. So pairs are added by how much they tell, as long as the model stays small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import combinations
from typing import Any

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.products import Codes, apportioned, check_marginal, checked_codes
from colonnade.kinds.synthesis.tree import told_by_pairs
from colonnade.kinds.tables.release import Floats, Residual, check_residuals
from colonnade.protocols.roles import Progress, silent
from colonnade.randomness import Stream

MEGABYTES = 1.0
"""How large the junction tree may get."""
STEPS = 500


@dataclass(frozen=True)
class Network:
    """Columns in an order, each given some that come before it.

    ``tables[i]`` has an axis for each of ``parents[i]`` and a last one for column i itself.
    """

    order: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...]
    tables: tuple[Floats, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of codes of each column."""
        return tuple(table.shape[-1] for table in self.tables)

    def marginal(self, columns: Sequence[int]) -> Floats:
        """The joint probabilities of some columns, an axis for each."""
        check_marginal(columns, self.sizes)
        needed = set(columns)
        operands: list[Any] = []
        for column in reversed(self.order):  # what nobody asked for depends on nothing that is left
            if column in needed:
                needed |= set(self.parents[column])
                operands += [self.tables[column], [*self.parents[column], column]]
        return np.asarray(np.einsum(*operands, list(columns), optimize="greedy") if operands else 1.0)

    def log_likelihood(self, codes: Codes) -> Floats:
        """The natural logarithm of each row's probability."""
        codes = checked_codes(codes, self.sizes)
        with np.errstate(divide="ignore"):
            logs = [
                np.log(table[tuple(codes[:, each] for each in (*self.parents[column], column))])
                for column, table in enumerate(self.tables)
            ]
        return np.asarray(np.sum(logs, axis=0))

    def sample(self, rows: int, stream: Stream) -> Codes:
        """A table of codes by systematic rounding, column by column given the codes of its parents."""
        if rows < 1:
            raise StudyError("a synthetic table needs at least one row [ST374]")
        codes = np.zeros((rows, len(self.tables)), dtype=np.int64)
        for column in self.order:
            table = self.tables[column].reshape(-1, self.sizes[column])
            above = np.zeros(rows, dtype=np.int64)
            for parent in self.parents[column]:
                above = above * self.sizes[parent] + codes[:, parent]
            people = np.bincount(above, minlength=len(table))
            counts = apportioned(people, table, rows * self.marginal((column,)), stream)
            places = np.argsort((above.astype(np.uint64) << np.uint64(32)) | stream.uint32(rows).astype(np.uint64))
            codes[places, column] = np.repeat(np.tile(np.arange(table.shape[1]), len(counts)), counts.ravel())
        return codes

    def arrays(self) -> dict[str, Floats]:
        """All numbers by name, to be kept in a file."""
        found = {"order": np.array(self.order, dtype=np.float64)}
        for column, (parents, table) in enumerate(zip(self.parents, self.tables, strict=True)):
            found |= {f"parents_{column}": np.array(parents, dtype=np.float64), f"table_{column}": table}
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats]) -> Network:
        """The network of these numbers, exactly."""
        columns = sum(name.startswith("table_") for name in arrays)
        try:
            order = tuple(int(each) for each in arrays["order"])
            parents = tuple(tuple(int(each) for each in arrays[f"parents_{i}"]) for i in range(columns))
            found = cls(order, parents, tuple(arrays[f"table_{i}"] for i in range(columns)))
        except KeyError:
            raise StudyError("the numbers of a network are incomplete; fit or save it again [ST375]") from None
        found.check()
        return found

    def check(self) -> None:
        """Refuse what is no network of probabilities."""
        right = sorted(self.order) == list(range(len(self.tables))) and len(self.parents) == len(self.tables)
        seen = set[int]()
        for column in self.order if right else ():
            table = self.tables[column]
            right &= set(self.parents[column]) <= seen
            right = right and table.shape[:-1] == tuple(self.sizes[each] for each in self.parents[column])
            right = right and bool((table >= 0).all() and np.allclose(table.sum(axis=-1), 1, rtol=0, atol=1e-9))
            seen.add(column)
        if not right:
            raise StudyError("a network needs, for every column, probabilities given columns before it [ST376]")


def fit_pgm(
    sizes: Sequence[int],
    count: float,
    residuals: Sequence[Residual],
    *,
    megabytes: float = MEGABYTES,
    steps: int = STEPS,
    progress: Progress = silent,
) -> Network:
    """The graphical model of private-pgm for the pairs that tell most, and for triples among them."""
    check_residuals(sizes, residuals)
    try:
        mbi = import_module("mbi")
    except ImportError:
        raise StudyError(
            "private-pgm is not installed; install its package mbi, or choose another method [ST377]"
        ) from None
    try:
        return _fitted(mbi, sizes, count, residuals, megabytes, steps, progress)
    except MemoryError:
        raise
    except Exception as error:  # of any kind: versions of its libraries change what they raise
        raise StudyError(
            "private-pgm does not work as it is installed, with its jax and chex; install versions of the three that "
            "fit, or choose another model [ST378]"
        ) from error


@cache
def check_works() -> None:
    """Raise an error unless private-pgm can fit two columns, so that nothing is spent where it cannot."""
    single, pair = np.array([1.0, -1.0]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    known = [Residual((0,), single, 1.0), Residual((1,), single, 1.0), Residual((0, 1), pair, 1.0)]
    fit_pgm((2, 2), 10.0, known, steps=2).check()


def _fitted(
    mbi: Any,
    sizes: Sequence[int],
    count: float,
    residuals: Sequence[Residual],
    megabytes: float,
    steps: int,
    progress: Progress,
) -> Network:
    names = [str(column) for column in range(len(sizes))]
    domain = mbi.Domain(names, list(sizes))
    kept = _kept(mbi, domain, sizes, count, residuals, megabytes)
    measured = [
        mbi.LinearMeasurement(each.values.ravel(), tuple(names[c] for c in each.columns), each.deviation, _residual)
        for each in residuals
        if each.columns in kept
    ]
    progress("fit", 0, steps)
    field = mbi.estimation.mirror_descent(domain, measured, known_total=max(count, 1.0), iters=steps)
    progress("fit", steps, steps)
    return _network(mbi, domain, field, sizes)


def _residual(factor: Any) -> Any:
    """The residual of a marginal, as jax traces it."""
    values = factor.datavector(flatten=False)
    for axis in range(values.ndim):
        values = values - values.mean(axis=axis, keepdims=True)
    return values.flatten()


def _kept(
    mbi: Any, domain: Any, sizes: Sequence[int], count: float, residuals: Sequence[Residual], megabytes: float
) -> set[tuple[int, ...]]:
    """All single columns, then pairs by what they tell, then triples all of whose pairs are kept."""
    asked = {each.columns for each in residuals}
    kept: list[tuple[int, ...]] = [columns for columns in asked if len(columns) == 1]
    told = told_by_pairs(sizes, count, residuals)

    def fits(columns: tuple[int, ...]) -> bool:
        cliques = [tuple(map(str, each)) for each in (*kept, columns)]
        return bool(mbi.junction_tree.hypothetical_model_size(domain, cliques) <= megabytes)

    for pair in sorted(told, key=lambda each: (-told[each][1], each)):
        if fits(pair):
            kept.append(pair)
    for triple in sorted(each for each in asked if len(each) == 3):
        if all(pair in kept for pair in combinations(triple, 2)) and fits(triple):
            kept.append(triple)
    return set(kept)


def _network(mbi: Any, domain: Any, field: Any, sizes: Sequence[int]) -> Network:
    """The same distribution, column by column along the junction tree."""
    tree, eliminated = mbi.junction_tree.make_junction_tree(domain, field.cliques)
    cliques = [{int(name) for name in clique} for clique in tree.nodes]
    order = tuple(int(name) for name in reversed(eliminated))
    parents: list[tuple[int, ...]] = [()] * len(sizes)
    tables: list[Floats] = [np.empty(0)] * len(sizes)
    for place, column in enumerate(order):
        before = set(order[:place])
        parents[column] = max(
            (tuple(sorted(c & before)) for c in cliques if column in c), key=lambda each: (len(each), each)
        )
        joint = field.project(tuple(map(str, (*parents[column], column)))).datavector(flatten=False)
        joint = np.maximum(np.asarray(joint, dtype=np.float64), 0) + 1e-9
        tables[column] = joint / joint.sum(axis=-1, keepdims=True)
    return Network(order, tuple(parents), tuple(tables))
