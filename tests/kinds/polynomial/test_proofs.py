"""Sums of polynomials whose owners prove their bounds: exact sums, what is proven, and owners that cheat."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from colonnade.errors import NO_RESULT, ShareError, StudyError
from colonnade.kinds.polynomial import programs as polynomial, task as task_module
from colonnade.kinds.polynomial.expressions import parse
from colonnade.kinds.polynomial.model import PolynomialSum
from colonnade.kinds.polynomial.programs import MonomialsSum, OwnMonomials, evaluate
from colonnade.kinds.polynomial.task import DealtColumns, multiplied_up
from colonnade.models import Roster
from colonnade.mpc.verification.claims import MOST_HELD
from colonnade.mpc.verification.input_proofs import InputProofs
from colonnade.privacy import epsilon, views
from colonnade.privacy.observers import Observer
from colonnade.protocols.session import RunResult
from colonnade.tables import Schema, category, number
from tests.kinds.polynomial.test_polynomial import expressions, without_noise
from tests.mpc.verification.test_inputs import AnyRows
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import active, polynomial_task, tables_of

proven = partial(active, inputs="proven")


def bounded(task, clip, unsigned):
    """The same with these bounds: some of the columns are never negative, by what is left after a division by three."""
    held = [
        replace(one, clip=clip, unsigned=tuple((i + j) % 3 in unsigned for j in range(len(one.columns))))
        for i, one in enumerate(task.holdings)
    ]
    return replace(task, holdings=tuple(held))


def rows_for(task, rows, seed):
    """Random rows within the bounds."""
    tables = tables_of(task, rows, seed)
    return {
        held.owner: np.where(held.unsigned, np.abs(tables[held.owner]), tables[held.owner]) for held in task.holdings
    }


def in_windows(task, tables, blocks=2):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_module.Polynomials, "blocks_per_window", property(lambda self: blocks))
        return without_noise(task, tables)


# --- honest owners


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.data(),
    seating=st.sampled_from(kit.SEATINGS),
    rows=st.integers(1, 12),
    block=st.integers(1, 15),
    clip=st.sampled_from([0.5, 1.0, 2.0]),
    unsigned=st.sampled_from([(), (0,), (0, 1, 2)]),
)
def test_the_secure_sums_equal_the_plaintext_reference_exactly(data, seating, rows, block, clip, unsigned):
    owners, seats, threshold = seating
    widths = [1 + i % 2 for i in range(owners)]
    names = [f"o{i}.c{j}" for i, width in enumerate(widths) for j in range(width)]
    texts = [text for text in data.draw(expressions(widths)) if parse(text, names)] or ["1"]
    task = proven(bounded(polynomial_task(widths, texts, seats, threshold, block_rows=block), clip, unsigned))
    results, whole = in_windows(task, rows_for(task, rows, data.draw(st.integers(0, 999))))
    for result in results.values():
        assert result.opened.tolist() == polynomial.reference(whole, task)


@pytest.mark.parametrize(
    ("texts", "widths"),
    [
        (["o0.c0 * o1.c0", "o0.c1 * o1.c0"], [2, 1]),
        (["o0.c0^2 * o0.c1 * o1.c0 - o0.c1^3"], [2, 1]),
        (["o0.c0 * o0.c1 * o1.c0 * o1.c1 * o2.c0^2", "o2.c0 * o0.c0^4 - 3 * o1.c0"], [2, 2, 1]),
        (["o0.c0^4 * o1.c0^4", "o2.c1 + 1"], [1, 1, 2]),
    ],
)
@pytest.mark.parametrize(("clip", "unsigned"), [(1.0, ()), (2.0, ()), (1.0, (0, 1, 2)), (2.0, (1,))])
def test_every_layout_gives_the_exact_sums(texts, widths, clip, unsigned):
    plain = bounded(polynomial_task(widths, texts), clip, unsigned)
    task = proven(plain)
    assert set(task.proof_groups) == {o for i, o in enumerate(task.owners) if i in task.layout.factors}
    results, whole = without_noise(task, rows_for(task, 9, 3))
    assert results["o0"].opened.tolist() == polynomial.reference(whole, task)
    assert (task.sensitivity, task.others) == (plain.sensitivity, plain.others)


def test_of_what_meets_nobody_nothing_is_dealt_or_proven():
    task = proven(polynomial_task([2, 1, 1], ["o0.c0 * o1.c0 + o0.c1^2 + o2.c0"]))
    assert task.layout.factors == {0: (((0, 1),),), 1: (((2, 1),),)}
    assert set(task.proof_groups) == {"o0", "o1"}
    assert task.event.lost > 0
    alone = proven(polynomial_task([2, 1, 1], ["o0.c1^2 + o2.c0"]))
    assert (alone.proof_groups, alone.event.lost) == ({}, 0)
    results, whole = without_noise(alone, tables_of(alone, 5))
    assert results["o1"].opened.tolist() == polynomial.reference(whole, alone)


# --- what is proven


@pytest.mark.parametrize("reach", [2, 3])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_exactly_the_rows_of_the_domain_can_be_proven(reach, count):
    for unsigned in product([False, True], repeat=count):
        for norm in (0, 3, reach**2, reach**2 + 1, 2 * reach**2, count * reach**2, 99):
            columns = DealtColumns(unsigned, norm, reach)
            rows = np.array(list(product(range(-2 * reach, 2 * reach + 1), repeat=count)))
            low = np.where(unsigned, 0, -reach)
            inside = ((rows >= low) & (rows <= reach)).all(axis=1) & ((rows**2).sum(axis=1) <= norm)
            read, at, passes = columns.of_rows(rows, lambda values: values), 0, np.ones(len(rows), dtype=bool)
            for group in columns.groups:
                passes &= (read[:, at : at + group.columns] ** 2).sum(axis=1) <= group.squared
                at += group.columns
            assert at == read.shape[1] > 0
            assert np.array_equal(passes, inside)


@given(st.lists(st.dictionaries(st.integers(0, 4), st.integers(1, 3), min_size=1, max_size=2), min_size=1, max_size=5))
def test_factors_are_multiplied_up_from_columns_one_at_a_time(given):
    factors = [tuple(sorted(one.items())) for one in given]
    found = multiplied_up(factors)
    variables = {variable for factor in factors for variable, _ in factor}
    assert set(factors) <= set(found)
    assert [one for one in found if one[0][1] == len(one) == 1] == [((variable, 1),) for variable in sorted(variables)]
    assert [sum(power for _, power in one) for one in found] == sorted(sum(p for _, p in one) for one in found)
    texts = [" * ".join(["o1.c0", *(f"o0.c{v}^{p}" for v, p in factor)]) for factor in set(factors)]
    task = proven(polynomial_task([5, 1], texts))
    row, claimed = np.arange(2, 7)[None], []
    own = task.layout.factors[0]
    for [[_, left]], [[_, other]], [[_, made]] in MonomialsSum(task).circuit.dealt_products:
        for one, whole in zip(left, made, strict=True):
            assert evaluate(own[whole], row) == evaluate(own[one], row) * evaluate(own[other[0]], row)
        claimed += made
    assert sorted(claimed) == list(range(len(variables), len(own)))


def test_what_a_seat_keeps_of_a_window_is_bounded_by_public_sizes():
    texts = [f"o0.c{i}^2 * o1.c{i} * o2.c0" for i in range(60)]
    passive = bounded(polynomial_task([60, 60, 1], texts, rows_at_most=2**20), 9.0, (0, 1))
    for task in (active(passive), proven(passive)):
        rows = task.rows_per_block * task.blocks_per_window
        assert rows == task.rows_at_once <= task.rows_per_window <= 65_536
        assert 8 * len(task.for_sums.primes) * rows * task.width <= MOST_HELD
    assert (passive.proven, passive.committee.system, passive.event.lost) == ({}, passive.for_sums, 0)
    assert active(passive).layout == passive.layout
    assert proven(passive).agreement != active(passive).agreement


def test_proofs_cost_no_noise():
    schema = Schema({"x": number(-1, 1), "y": number(0, 1), "c": category(["a", "b", "d"])})
    model = PolynomialSum(["bank.x * shop.y", "bank.y * bank.x * shop.c=a"], epsilon=2.0, rows_at_most=2**17)
    roster = Roster.of({"bank": schema, "shop": schema})
    plain, checked = model.plan(roster.with_checks("unproven")), model.plan(roster.with_checks("proven"))
    assert checked.proven
    assert (plain.gamma, plain.sensitivity) == (checked.gamma, checked.sensitivity)
    assert checked.noise <= plain.noise * 1.0001
    owner = Observer.party("bank")
    found = [epsilon(views(task.events, owner, task.trust), 1e-5).epsilon for task in (plain, checked)]
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_numbers_that_are_too_long_for_a_proof_are_not_proven():
    schema = Schema({"x": number(-1, 1)})

    def plan(gamma, **asked):
        model = PolynomialSum("bank.x * shop.x", epsilon=2.0, rows_at_most=100, gamma=gamma)
        return model.plan_as_requested(Roster.of({"bank": schema, "shop": schema}, security="active", **asked))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_module.Polynomials, "proofs", ("proven", "unproven"))
        assert plan(2**25).trust.inputs == "proven"
        assert plan(2**26).trust.inputs == "unproven"
    with raises(StudyError, "ST155", "unproven"):
        plan(2**26, inputs="proven")
    task = plan(2**25, inputs="proven")
    results, whole = without_noise(task, rows_for(task, 20, 3))
    assert results["bank"].opened.tolist() == polynomial.reference(whole, task)


# --- cheats


def ends(task, tables):
    """Whether everybody has the reference, or nobody has anything because a check failed."""
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        kit.nearest(patch)
        found = kit.outcomes(task, kit.programs_of(polynomial, task, tables))
    if all(isinstance(one, RunResult) for one in found.values()):
        want = polynomial.reference(kit.integers(task, tables), task)
        return "right" if all(one.result.opened.tolist() == want for one in found.values()) else "wrong"
    assert not any(isinstance(one, RunResult) for one in found.values())
    errors = [one for one in found.values() if isinstance(one, ShareError)]
    assert errors
    assert all(NO_RESULT in str(one) or "nothing was opened" in str(one) for one in errors)
    return "caught"


def deals(monkeypatch, row):
    """The first owner deals, in place of its second row, another one and all factors of it; its own sums stay honest.

    It proves what it dealt as well as that can be done.
    """
    real = OwnMonomials.dealt

    def dealt(self, whole):
        if self._start == 0:
            whole = whole.copy()
            whole[1] = row
        return real(self, whole)

    monkeypatch.setattr(OwnMonomials, "dealt", dealt)


def spoils(monkeypatch, column, by):
    """One number of what the first owner deals is another one, in its proof too."""
    real = OwnMonomials.dealt

    def dealt(self, whole):
        found = real(self, whole)
        if self._start == 0:
            found = found.copy()
            found[1, column] += by
        return found

    monkeypatch.setattr(OwnMonomials, "dealt", dealt)


def proves_anything(monkeypatch):
    real = InputProofs.__init__

    def begin(self, engine, ranges):
        real(self, engine, ranges)
        if engine.name == "o0":
            self.prover = AnyRows

    monkeypatch.setattr(InputProofs, "__init__", begin)


TEXTS = ["o0.c0^2 * o0.c1 * o1.c0 + o0.c0^2 - 5 * o0.c1", "o0.c1 * o1.c0"]
"""With monomials of its own columns, which an owner can deal so that its sums look like those of an honest row."""


def cheating_task(seating, clip, unsigned=()):
    owners, seats, threshold = seating
    return bounded(polynomial_task([2, *([1] * (owners - 1))], TEXTS, seats, threshold), clip, unsigned)


@pytest.mark.parametrize("seating", [kit.SEATINGS[0], kit.SEATINGS[1], kit.SEATINGS[2], kit.SEATINGS[4]])
@pytest.mark.parametrize(
    ("clip", "unsigned", "row"),
    [
        (1.0, (), [32 * 10**4, 0]),  # one cell far beyond
        (1.0, (), [32, 32]),  # each within its bound, and the row beyond its norm
        (2.0, (), [40, 0]),  # within the norm of two columns, which leaves one of them too free
        (2.0, (0,), [-16, 3]),  # the first column is never negative
        (1.0, (0, 1), [3, -1]),  # nor is the second here
    ],
)
def test_an_owner_that_deals_a_row_beyond_its_bounds_is_caught(monkeypatch, seating, clip, unsigned, row):
    task = cheating_task(seating, clip, unsigned)
    tables = rows_for(task, 6, 8)
    tables["o1"][1] = 0.75  # so that what is wrong shows
    assert ends(proven(task), tables) == "right"
    deals(monkeypatch, row)
    proves_anything(monkeypatch)
    assert ends(proven(task), tables) == "caught"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_module.Polynomials, "bound", property(lambda self: 2**58))
        assert ends(active(task), tables) == "wrong"


@pytest.mark.parametrize("seating", [kit.SEATINGS[1], kit.SEATINGS[2]])
@pytest.mark.parametrize(("factor", "by"), [("x^2", 1), ("x^2 y", -1), ("x^2 y", 4194301), ("x", 1)])
def test_an_owner_whose_factors_are_no_products_of_its_columns_is_caught(monkeypatch, seating, factor, by):
    """Nor is it enough that they are such products modulo one of the primes."""
    task = cheating_task(seating, 2.0)
    tables = rows_for(task, 6, 8)
    tables["o0"][1], tables["o1"][1] = (0.25, 0.25), 0.75
    column = {"x": 0, "y": 1, "x^2": 2, "x^2 y": 3}[factor]
    assert [sum(p for _, p in one) for one in proven(task).layout.factors[0]] == [1, 1, 2, 3]
    spoils(monkeypatch, column, by)
    assert ends(proven(task), tables) == "caught"


def test_a_row_far_beyond_its_bounds_reads_another_owners_row_where_nobody_proves(monkeypatch):
    """That is what proofs are for: through noise of more than a person may move."""
    far = 10**6
    task = active(polynomial_task([1, 1], ["o0.c0 * o1.c0 + o0.c0^2"], rows_at_most=2**20, noise=2 * 10**7))
    rng = np.random.default_rng(4)
    tables = {name: np.clip(rng.normal(0, 0.3, (50, 1)), -1, 1) for name in task.owners}
    deals(monkeypatch, [far])
    kit.nearest(monkeypatch)
    monkeypatch.setattr(task_module.Polynomials, "bound", property(lambda self: 2**58))
    opened = kit.execute(polynomial, task, tables)["o1"].opened[0]
    assert round(int(opened) / far) == kit.integers(task, tables)["o1"][1, 0]
    assert task.additive.deviation > task.sensitivity.l2_squared**0.5
