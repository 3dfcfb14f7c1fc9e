"""The public task of marginals: what is refused, priced and agreed on, and who computes what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colonnade.errors import CapacityError, StudyError
from colonnade.kinds.tables.marginals.layout import MADE, ONES
from colonnade.kinds.tables.marginals.task import Asked, Coded, Marginals
from colonnade.kinds.tables.sensitivity import changed_cells_sensitivity
from colonnade.privacy import Observer, epsilon, parse_budgets, views
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import check_complete
from tests.support.errors import raises
from tests.support.protocols import marginals_task as make_task


def test_it_keeps_the_contract():
    check_complete(Marginals, "here")
    task = make_task()
    assert task.names == ("o0.c0", "o0.c1", "o1.c0", "o2.c0", "o2.c1")
    assert task.rows_limit == 1000
    assert task.noise_std > 0
    assert task.facts["cells"] == task.entries == 1 + 12 + 54 + 43  # of sizes 3, 2, 4, 2, 3: 2 is one number


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"asked": ()}, "ST476"),
        ({"asked": (Asked((0,), 1), Asked((0,), 2))}, "ST477"),
        ({"asked": (Asked((1, 0), 1),)}, "ST478"),
        ({"asked": (Asked((0, 9), 1),)}, ("ST478", "5")),
        ({"asked": (Asked((0,), 0),)}, ("ST479", "0")),
        ({"asked": (Asked((0,), 1.5),)}, ("ST479", "1.5")),
        ({"asked": (Asked((0, 2, 3), 1),)}, "ST480"),
        ({"asked": (Asked((0, 1, 2, 3), 1),)}, "ST480"),
        ({"label": 5}, ("ST475", "5")),
        ({"law": "discrete-laplace"}, ("ST489", "discrete-laplace")),
        ({"coded": (Coded("o0", "a", 1),), "label": None}, ("ST474", "o0")),
        ({"coded": (Coded("o1", "a", 2), Coded("o0", "a", 2)), "label": None}, "ST473"),
        ({"coded": (Coded("stranger", "a", 2),), "label": None}, "ST473"),
    ],
)
def test_what_cannot_be_computed_is_refused(changes, said):
    with raises(StudyError, said):
        replace(make_task(), **changes)


def test_what_is_too_large_is_refused():
    with raises(CapacityError, "CA022"):
        make_task([[3000], [3000], [2]], label=None)
    with raises(CapacityError, "CA021"):
        make_task([[1000] * 5, [1000] * 5, [2]], label=None)
    large = make_task(rows_at_most=2**40)
    with raises(CapacityError, "CA023"):
        _ = replace(large, asked=tuple(replace(b, weight=b.weight << 25) for b in large.asked)).bound


def test_a_change_of_anything_public_changes_the_agreement():
    task = make_task()
    changed = [
        replace(task, noise=task.noise + 3),
        replace(task, asked=task.asked[:-1]),
        replace(task, asked=(*task.asked[:-1], replace(task.asked[-1], weight=77))),
        replace(task, coded=(replace(task.coded[0], size=4), *task.coded[1:])),
        replace(task, coded=(replace(task.coded[0], name="other"), *task.coded[1:])),
        replace(task, law="discrete-gaussian"),
        replace(task, hidden=True),
        replace(task, label=None, asked=tuple(b for b in task.asked if len(b.columns) < 3)),
    ]
    assert all(other.agreement != task.agreement for other in changed)
    assert replace(task).agreement == task.agreement


@pytest.mark.parametrize("law", ["skellam", "discrete-gaussian"])
def test_noise_is_the_least_that_keeps_every_budget(law):
    draft = make_task(law=law)
    draft = replace(draft, asked=tuple(replace(b, weight=100 * b.weight) for b in draft.asked))
    seen = {"analyst": Observer.analyst(), COORDINATOR: Observer.coordinator(), "o1": Observer.party("o1")}

    def kept(task, budgets):
        figures = {name: epsilon(views(task.events, seen[name], task.trust), 1e-5).epsilon for name in budgets}
        return all(figures[name] <= most for name, most in budgets.items())

    for budgets in ({"analyst": 1.0}, {COORDINATOR: 1.0}, {"o1": 0.5, "analyst": 3.0}):
        task = draft.calibrated(parse_budgets(budgets, 1e-5, draft.trust))
        assert kept(task, budgets)
        assert not kept(task.with_noise(task.noise * 99 // 100), budgets)
    everyone = draft.calibrated(parse_budgets(2.0, 1e-5, draft.trust))
    assert kept(everyone, dict.fromkeys(seen, 2.0))


def test_an_owner_learns_no_more_than_what_others_columns_can_move():
    task = make_task()
    whole = task.sensitivity.replace_l2_squared
    blocks = [(block.columns, block.weight) for block in task.asked]
    figures = {owner: square for owner, _, square in task.others}
    assert figures
    for owner in task.owners:
        elsewhere = [place for place in range(5) if task.coded[place].owner != owner]
        assert figures.get(owner, whole) == changed_cells_sensitivity(task.sizes, blocks, elsewhere)[1] <= whole


def test_whoever_holds_all_columns_learns_nothing():
    task = make_task([[3, 2, 4], [], []])
    assert ("o0", 0, 0) in task.others


# --- who computes what


def asked_of(task):
    return {block.columns for block in task.asked}


def test_every_block_is_computed_once_and_where_it_belongs():
    task = make_task([[3, 2, 4], [2, 5], [3]], label=1)
    layout, found = task.layout, []
    for owner, products in layout.own.items():
        for product in products:
            for index, left, right in product.blocks:
                columns = (*left, *right)
                assert {task.holder[column] for column in columns} <= {owner}
                found.append(index)
    for product in layout.shared:
        assert ONES not in (product.left_source, product.right_source)
        for index, left, right in product.blocks:
            assert tuple(sorted((*left, *right))) == task.asked[index].columns
            assert len({task.holder[column] for column in (*left, *right)}) > 1
            assert (product.left_source == MADE) == (len(left) == 2 and task.holder[left[0]] != task.holder[1])
            found.append(index)
    assert sorted(found) == list(range(len(task.asked)))


def test_of_two_owners_only_the_narrower_side_is_multiplied_with_the_label():
    task = make_task([[2], [9, 8], [4, 3, 2]], label=0)
    between = [b for b in task.asked if len(b.columns) < 3 or {task.holder[c] for c in b.columns} == {0, 1, 2}]
    task = replace(task, asked=tuple(between))
    assert {factor[0] for factor in task.layout.made.names} == {3, 4, 5}
    assert task.layout.made.width == 3 + 2 + 1


def test_of_all_pairs_of_others_the_widest_column_is_not_multiplied():
    task = make_task([[2], [9, 8], [4, 3, 2]], label=0)
    assert {factor[0] for factor in task.layout.made.names} == {2, 3, 4, 5}


def test_what_is_not_asked_for_is_neither_dealt_nor_multiplied():
    task = make_task([[3, 2], [4, 7], [5]], label=None)
    few = replace(task, asked=(Asked((), 1), Asked((0,), 1), Asked((0, 2), 1), Asked((2, 3), 1)))
    assert {owner: factors.names for owner, factors in few.layout.dealt.items()} == {0: ((0,),), 1: ((2,),)}
    alone = replace(task, asked=(Asked((0, 1), 1),))
    assert alone.layout.dealt == {}


def test_a_few_pairs_of_many_columns_are_not_computed_as_all_pairs():
    sizes = [[4] * 20, [4] * 20, [2]]
    pairs = tuple(Asked((place, place + 20), 1) for place in range(20))
    task = replace(make_task(sizes, label=None), asked=pairs)
    area = sum(product.left.width * product.right.width for product in task.layout.shared)
    assert area == 20 * 9


def test_it_can_be_priced_before_it_is_run():
    task = make_task(noise=3 * 10**6)
    loads = task.loads(task.everyone, 500)
    assert all(load.bytes_sent > 0 for load in loads if load.participant != COORDINATOR)
    adjusted = task.adjustable(500)
    assert adjusted.error == pytest.approx(task.noise_std / 500)
    assert adjusted.with_error(adjusted.error / 2).error == pytest.approx(adjusted.error / 2, rel=0.01)
    assert adjusted.with_error(adjusted.error / 2).error <= adjusted.error / 2
    assert adjusted.with_multiplier(50.0).multiplier == pytest.approx(50.0, rel=0.01)
    assert adjusted.with_multiplier(50.0).multiplier >= 50.0
    assert adjusted.with_rows(1000).error == pytest.approx(adjusted.error / 2)
    with raises(StudyError, "ST490"):
        adjusted.with_error(1e-9)
