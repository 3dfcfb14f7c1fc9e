"""An owner that deals numbers beyond its bounds where they are only added up: it shifts scores, and learns nothing."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from colonnade.kinds.prediction import programs as scores
from colonnade.kinds.prediction.model import GateDecision
from colonnade.kinds.prediction.programs import OwnScoreParts, reference
from colonnade.protocols.session import RunResult
from tests.kinds.prediction.test_scores import ask, random_parts
from tests.support import protocols as kit
from tests.support.protocols import active, levels_task, marginals_task, polynomial_task, scores_task

execute = partial(kit.execute, scores)


def deals_more(monkeypatch, shift):
    """The second owner deals its parts and its noise, and a number on top."""
    real = scores.RoundedScores.entries
    monkeypatch.setattr(scores.RoundedScores, "entries", lambda self: real(self) + shift * (self.name == "o1"))


def as_opened(value, task):
    """What is opened of a sum: it is known modulo the primes, and what no honest owners have counts as the bound."""
    modulus = task.committee.system.modulus
    centred = (value + modulus // 2) % modulus - modulus // 2
    return np.clip(centred, -task.bound, task.bound).astype(np.int64)


SHIFTS = (1, -5000, 10**6, 10**12 + 7, 2**62)


@pytest.mark.parametrize(("seating", "classes"), [(kit.SEATINGS[1], 1), (kit.SEATINGS[2], 3), (kit.SEATINGS[4], 2)])
def test_an_owner_that_deals_more_shifts_the_scores_by_that_and_no_more(monkeypatch, seating, classes):
    owners, seats, threshold = seating
    task = active(scores_task(owners, seats, threshold, classes))
    parts = random_parts(task, 7, 4)
    honest = reference({name: part.values for name, part in parts.items()}, task).astype(object)
    assert not task.rests_on_bounds
    for shift in SHIFTS:
        with pytest.MonkeyPatch.context() as patch:
            deals_more(patch, shift)
            found = execute(task, parts)["o0"].others
        assert np.array_equal(found, as_opened(honest + shift, task))


@pytest.mark.parametrize("people", [-1.0, 1.0])
def test_nobody_learns_whether_a_shifted_score_is_beyond_its_bound(monkeypatch, people):
    """The third owner's part decides whether the shifted sum could be an honest one; all the same nobody stops."""
    task = active(scores_task(3, classes=1))
    parts = {name: OwnScoreParts(("p",), np.full((1, 1), people if name == "o2" else 0.0)) for name in task.owners}
    deals_more(monkeypatch, task.bound)
    ended = kit.outcomes(task, kit.programs_of(scores, task, parts))
    assert {type(end) for end in ended.values()} == {RunResult}
    assert ended["o0"].result.others.tolist() == [[task.bound + min(0, int(people) * task.gamma)]]


@pytest.mark.parametrize("shift", SHIFTS)
def test_in_a_standing_question_a_kept_answer_is_shifted_as_well(shift):
    """Shifts that are chosen anew for each question leave the rest of the answer as it was kept."""
    task = active(scores_task(3, noise=2 * 10_000))
    parts, kept = random_parts(task, 4, 9), {}

    def keeping(name, *shifts):
        left = list(shifts)

        def opened(summands):
            kept[name] = summands(np.arange(4))
            return lambda _, places: (GateDecision(len(places)), kept[name][places] + (left.pop(0) if left else 0))

        return opened

    gates = {"o1": keeping("o1", 0, shift), "o2": keeping("o2")}
    asked, ended = ask(task, parts, [[3, 1], [1, 3], [0]], gates)
    assert {type(end) for end in ended.values()} == {RunResult}
    true = (kept["o1"] + kept["o2"]).astype(object)
    first, second, third = (answer.opened.others for answer in asked.answers)
    assert np.array_equal(first, as_opened(true[[3, 1]], task))
    assert np.array_equal(second, as_opened(true[[1, 3]] + shift, task))
    assert np.array_equal(third, as_opened(true[[0]], task))


def test_what_rests_on_the_bounds_of_others():
    product, alone = polynomial_task([1, 1], ["o0.c0 * o1.c0"]), polynomial_task([1, 1], ["o0.c0^2 + o1.c0"])
    assert (product.rests_on_bounds, alone.rests_on_bounds) == (True, False)
    assert marginals_task().rests_on_bounds
    assert not marginals_task([[3], [], []], label=None).rests_on_bounds
    assert kit.moments_task().rests_on_bounds
    assert not levels_task().rests_on_bounds
