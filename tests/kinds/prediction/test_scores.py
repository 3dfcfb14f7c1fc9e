"""Scores and levels over channels: the integers, who is told what, what that costs, and what is refused."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.integrate import quad
from scipy.stats import norm, skellam

from colonnade.errors import CapacityError, DataError, PrivacyError, ProtocolError, StudyError
from colonnade.kinds.prediction import (
    model as on_demand,
    programs as scores,
    randomised_answers as levels,
    task as choice,
)
from colonnade.kinds.prediction.model import GateDecision, StandingScores
from colonnade.kinds.prediction.programs import OwnScoreParts, quantise, reference, simulate
from colonnade.kinds.prediction.task import NOISE_UNIT, QuantisedAnswers, Respondent, ScorePart, Scores
from colonnade.privacy import NonPrivate, SkellamRelease, Statement, Trust, parse_budgets
from colonnade.privacy.accounting.loss_distributions import gaussian_epsilon
from colonnade.privacy.calibrate import add_least_noise
from colonnade.privacy.events import from_dict
from colonnade.privacy.noise.local_mechanisms import MOST_EPSILON
from colonnade.protocols.roles import COORDINATOR, Owner
from colonnade.protocols.session import RunResult, run_role
from colonnade.testing import seeded
from colonnade.wire import InMemoryNetwork
from tests.support import protocols as kit
from tests.support.errors import raises, refused
from tests.support.protocols import levels_task, scores_task as make_task

GAMMA = 256
execute = partial(kit.execute, scores)


def random_parts(task, rows, seed):
    rng = np.random.default_rng(seed)
    ids = tuple(f"p{i:06d}" for i in range(rows))
    return {name: OwnScoreParts(ids, rng.uniform(-1, 1, (rows, task.classes))) for name in task.owners}


@settings(max_examples=15, deadline=None)
@given(
    seating=st.sampled_from(kit.SEATINGS),
    rows=st.integers(1, 30),
    classes=st.integers(1, 4),
    seed=st.integers(0, 2**31),
)
def test_the_secure_sum_equals_the_plaintext_reference_exactly(seating, rows, classes, seed):
    owners, seats, threshold = seating
    to = f"o{seed % owners}"
    task = make_task(owners, seats, threshold, classes, to=to)
    parts = random_parts(task, rows, seed)
    results = execute(task, parts)
    want = reference({name: part.values for name, part in parts.items()}, task)
    assert np.array_equal(results[to].others, want)
    assert {name for name, result in results.items() if result is not None} == {to}
    exact = sum(part.values for part in parts.values())
    found = results[to].own + results[to].others / GAMMA
    np.testing.assert_allclose(found, exact, atol=len(task.dealers) / 2 / GAMMA + 1e-12)


def test_noise_comes_on_top_of_the_same_integers(monkeypatch):
    task, drawn = make_task(3, noise=2 * 50), kit.noise_drawn(monkeypatch, scores)
    parts = random_parts(task, 40, 3)
    opened = execute(task, parts)["o0"].others
    want = reference({name: part.values for name, part in parts.items()}, task)
    assert len(drawn) == 2  # the entitled party adds none: it would know it
    assert np.array_equal(opened.reshape(-1), want.reshape(-1) + sum(drawn))
    assert all(np.any(share) for share in drawn)


@pytest.mark.parametrize(("owners", "seats"), [(2, None), (3, None), (5, ("o1", "o2", "o3")), (5, None)])
def test_openings_are_sent_to_the_entitled_party_alone(owners, seats):
    """Of all messages there are, openings go to one participant; and that one deals nothing of its own."""
    task = make_task(owners, seats, noise=20 * (owners - 1))
    log = {}
    execute(task, random_parts(task, 5, 1), log=log)
    kinds = {pair: [kind for kind, _ in sent] for pair, sent in log.items()}
    opened = {pair for pair, sent in kinds.items() if "opening" in sent}
    assert opened == {(seat, "o0") for seat in task.trust.committee if seat != "o0"}
    dealt = [sent.count("share") for (sender, _), sent in kinds.items() if sender == "o0"]
    assert max(dealt) == (1 if "o0" in task.trust.committee else 0)  # a sharing of zero at most


def test_the_entitled_partys_part_does_not_touch_what_is_opened():
    task = make_task(3)
    parts = random_parts(task, 6, 5)
    first = execute(task, parts)["o0"]
    moved = parts | {"o0": OwnScoreParts(parts["o0"].ids, parts["o0"].values + 100)}
    second = execute(task, moved)["o0"]
    assert np.array_equal(first.others, second.others)
    np.testing.assert_allclose(second.own - first.own, 100)


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8),
    low=st.integers(-(2**60), 2**60),
    width=st.integers(0, 2**60),
)
def test_integers_keep_their_bounds_whatever_the_floats_are(values, low, width):
    part = ScorePart("o1", (low,), (low + width,))
    task = Scores((ScorePart("o0", (0,), (0,)), part), kit.trust_of(2), "o0", 2**30, 10)
    whole = quantise(np.array(values)[:, None], task, "o1")
    assert whole.dtype == np.int64
    assert all(low <= int(number) <= low + width for number in whole[:, 0])


def test_what_is_refused_before_anything_is_opened():
    task, parts = make_task(3), random_parts(make_task(3), 3, 0)
    strange = parts["o1"].values.copy()
    strange[1, 0] = np.nan
    for changed, error, said in (
        ({"o1": OwnScoreParts(parts["o1"].ids, strange)}, DataError, "DA131"),
        ({"o2": OwnScoreParts(("a", "b", "c"), np.zeros((3, 1)))}, DataError, ("DA132", "2")),
        ({"o2": OwnScoreParts(("x", "y", "z"), parts["o2"].values)}, StudyError, "ST532"),
    ):
        with raises(error, said) as caught:
            execute(task, parts | changed)
        assert "nan" not in str(caught.value)
    refused(CapacityError, "CA030", "rows_at_most", execute, replace(task, rows_at_most=2), parts)
    assert not StandingScores(task).openings
    role = Owner("o0", {}, task.committee, planned={replace(task, to="o1").event: 1})
    with raises(PrivacyError, "PR138"):  # nothing can be revealed that was not planned
        role.reveal(None, to=["o0"], event=task.event, shape=(1, 2), bound=1)


# --- what it costs


def test_the_exact_scores_cost_infinity_to_the_entitled_party_and_nothing_to_anybody_else():
    task = make_task(3)
    assert isinstance(task.event, NonPrivate)
    statement = Statement.of(task.events, task.trust, 1e-5)
    assert math.isinf(statement.epsilon("o0"))
    for other in ("analyst", "coordinator", "o1", "o2"):
        assert statement.epsilon(other) == 0
    assert "o0: o0 receives the exact score of every person" in str(statement)
    assert statement.epsilon("o0+coordinator") == math.inf
    assert statement.epsilon("o1+coordinator") == 0


def test_the_noisy_scores_cost_what_the_others_columns_can_move():
    task = make_task(3, noise=2 * 10**6)
    event = task.event
    assert isinstance(event, SkellamRelease)
    # o1 moves class 0 by 4 GAMMA and class 1 by one more; o2 by 5 GAMMA and one more.
    moved = [9 * GAMMA, 9 * GAMMA + 2]
    assert (event.replace_l1, event.replace_l2_squared) == (sum(moved), sum(m**2 for m in moved))
    assert event.shares == (("o1", Fraction(10**6)), ("o2", Fraction(10**6)))
    statement = Statement.of(task.events, task.trust, 1e-5)
    # A Gaussian of deviation sqrt(2 mu) and this shift, up to the closeness of the laws.
    ratio = math.sqrt(event.replace_l2_squared / (2 * task.noise))
    assert statement.epsilon("o0") == pytest.approx(gaussian_epsilon(ratio, 1e-5), rel=1e-3)
    for other in ("analyst", "coordinator", "o1", "o2", "o1+coordinator"):
        assert statement.epsilon(other) == 0
    assert math.isinf(statement.epsilon("o0+o1"))


def test_no_two_people_are_told_apart_better_than_the_printed_epsilon_says():
    """The theorem against the exact law, summed over all answers: every change within the boxes, and a tight one."""
    parts = (
        ScorePart("o0", (-99, -99), (99, 99)),
        ScorePart("o1", (-10, 0), (10, 10)),
        ScorePart("o2", (0, 0), (10, 10)),
    )
    task = replace(make_task(3, noise=2 * 1000), parts=parts)
    delta = 1e-3
    epsilon = Statement.of(task.events, task.trust, delta).epsilon("o0")
    law = skellam.pmf(np.arange(-500, 501), task.noise, task.noise)

    def spent(shift, epsilon):
        here = np.outer(law, law)
        there = np.outer(np.roll(law, shift[0]), np.roll(law, shift[1]))
        return float(np.maximum(here - np.exp(epsilon) * there, 0).sum())

    moves = [(a, b) for a in range(-30, 31, 15) for b in range(-20, 21, 20)]
    costs = {move: spent(move, epsilon) for move in moves}
    assert max(costs.values()) <= delta
    assert max(costs, key=costs.get) in {(30, 20), (30, -20), (-30, 20), (-30, -20)}
    assert spent((30, 20), 0.8 * epsilon) > delta


def test_accomplices_know_their_share_of_the_noise():
    task = make_task(5, threshold=2, noise=4 * 10**6)
    statement = Statement.of(task.events, task.trust, 1e-5)
    alone, two = statement.epsilon("o0"), statement.epsilon("o0+o1")
    fewer = Statement.of(replace(task, noise=3 * 10**6 // 4 * 4).events, task.trust, 1e-5)
    assert alone < two < math.inf
    assert two == pytest.approx(fewer.epsilon("o0"), rel=1e-6)
    assert statement.epsilon("o1+o2") == 0


def test_asking_twice_composes():
    task = make_task(3, noise=2 * 10**6)
    once = Statement.of(task.events, task.trust, 1e-5).epsilon("o0")
    twice = Statement.of(task.events * 2, task.trust, 1e-5).epsilon("o0")
    assert 1.3 * once < twice < 2 * once
    assert replace(task, rows_at_most=10**6).event == task.event  # more people cost nothing more


@pytest.mark.parametrize("noise", [0, 60])
def test_events_survive_being_written_down_and_tasks_are_told_apart(noise):
    task = make_task(3, noise=noise)
    assert from_dict(json.loads(json.dumps(task.event.to_dict()))) == task.event
    assert task.event.audience == ("o0",)
    for change in ({"to": "o1"}, {"noise": 62}, {"model": "x"}, {"names": ("o0.a",)}, {"rows_at_most": 5}):
        assert replace(task, **change).agreement != task.agreement
    assert make_task(3, noise=noise).agreement == task.agreement
    json.dumps([task.agreement, task.facts])


def test_a_simulation_has_the_law_of_the_protocol(stream):
    task = make_task(3, noise=2 * 5000, classes=1)
    parts = random_parts(task, 4000, 8)
    drawn = simulate(parts, task, stream)
    noise = drawn.others - reference({name: part.values for name, part in parts.items()}, task)
    assert np.std(noise) / GAMMA == pytest.approx(task.noise_std, rel=0.05)
    assert abs(np.mean(noise)) < 5 * np.sqrt(2 * task.noise / 4000)
    exact = simulate(parts, replace(task, noise=0), stream)
    assert np.array_equal(exact.others, reference({name: part.values for name, part in parts.items()}, task))


# --- the public task


def test_the_bound_covers_the_largest_sum():
    task = make_task(3, noise=2 * 10**6)
    assert task.bound >= sum(task.part(name).reach for name in ("o1", "o2")) + 30 * 10**3
    assert task.committee.system.modulus > 2 * task.bound
    far = tuple(replace(part, high=(2**61,) * 2) for part in task.parts)
    for said, changes in (("CA027", {"parts": far}), ("CA031", {"rows_at_most": 2**30})):
        refused(CapacityError, said, getattr, replace(task, **changes), "committee")


def test_tasks_that_make_no_sense():
    task = make_task(3)
    for changes, error, said in (
        ({"to": COORDINATOR}, StudyError, "ST533"),
        ({"to": "o9"}, StudyError, ("ST533", "o0", "o1", "o2")),
        ({"noise": 3}, ValueError, "VA151"),
        ({"parts": (ScorePart("o0", (0,), (1,)), *task.parts[1:])}, ValueError, "VA150"),
    ):
        refused(error, said, replace, task, **changes)
    refused(ValueError, "VA149", ScorePart, "o0", (1,), (0,))


# --- questions at any time, in one session


@dataclass
class Asked:
    """Questions to ask, and what came of them."""

    questions: list
    answers: list = field(default_factory=list)
    people: tuple = ()
    period: str = "2031-05"

    def begin(self, people):
        self.people = people

    def question(self):
        return np.array(self.questions.pop(0), dtype=np.int64) if self.questions else None

    def answer(self, answer):
        self.answers.append(answer)


def everybody(summands):
    return lambda _, places: (GateDecision(len(places)), summands(places))


def ask(task, parts, questions, gates=None, alter=None):
    """Play a session, which the entitled party ends after its last question."""
    asked, session = Asked(list(questions)), StandingScores(task)

    def program(me):
        if me.name == COORDINATOR:
            return on_demand.coordinator(me, session)
        on_demand.agree(me, parts[me.name], session)
        if me.name == task.to:
            return on_demand.asker(me, parts[me.name], session, asked)
        return on_demand.dealer(me, parts[me.name], session, (gates or {}).get(me.name, everybody))

    room = InMemoryNetwork((*task.owners, COORDINATOR), timeout=60)

    def part(name):
        try:
            return run_role(alter(room.place(name)) if alter else room.place(name), session, program)
        except BaseException as error:
            return error

    with ThreadPoolExecutor(len(task.owners) + 1) as pool:
        ended = dict(zip((*task.owners, COORDINATOR), pool.map(part, (*task.owners, COORDINATOR)), strict=True))
    return asked, ended


@settings(max_examples=12, deadline=None)
@given(
    seating=st.sampled_from(kit.SEATINGS),
    security=st.booleans(),
    questions=st.lists(st.lists(st.integers(0, 19), min_size=0, max_size=6, unique=True), min_size=1, max_size=4),
    seed=st.integers(0, 2**31),
)
def test_every_answer_equals_the_plaintext_reference(seating, security, questions, seed):
    owners, seats, threshold = seating
    task = make_task(owners, seats, threshold, to=f"o{seed % owners}")
    task = kit.active(task) if security else task
    parts = random_parts(task, 20, seed)
    asked, ended = ask(task, parts, questions)
    assert {type(end) for end in ended.values()} == {RunResult}
    want = reference({name: part.values for name, part in parts.items()}, task)
    asked_about = [question for question in questions if question]
    assert len(asked.answers) == len(asked_about)
    for question, answer in zip(asked_about, asked.answers, strict=True):
        assert np.array_equal(answer.opened.others, want[question])
        assert np.array_equal(answer.opened.own, parts[task.to].values[question])
        assert answer.opened.ids == tuple(asked.people[place] for place in question)
        assert answer.verdict == GateDecision(len(question))


@pytest.mark.parametrize("security", [False, True])
def test_of_whom_one_owner_does_not_tell_nothing_is_opened(security):
    """Not even of the owner that would have answered, whose part alone would be more than the sum of all."""
    task = make_task(3)
    task = kit.active(task) if security else task
    parts = random_parts(task, 6, 4)
    seen = []

    def stingy(summands):
        def gate(period, places):
            seen.append((period, places.tolist()))
            told = places[: 3 - len(places)]
            return GateDecision(len(told), 1_800_000_000), summands(told)

        return gate

    log, opened = [], on_demand.ScoresSum.published

    def published(self, task, numbers):
        log.append(numbers.copy())
        return opened(self, task, numbers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_demand.ScoresSum, "published", published)
        asked, _ = ask(task, parts, [[1, 5], [1, 2, 5]], {"o2": stingy})
    want = reference({name: part.values for name, part in parts.items()}, task)
    first, second = asked.answers
    assert [(one.verdict.told, one.verdict.until) for one in asked.answers] == [(1, 1_800_000_000), (0, 1_800_000_000)]
    assert np.array_equal(first.opened.others, want[[1]])
    assert (len(second.opened.others), second.opened.ids) == (0, ())
    everything = [numbers.reshape(-1, task.classes) for numbers in log if numbers.any()]
    assert [each.any(axis=1).tolist() for each in everything] == [[True, False]], (
        "the rest is opened as zero to anybody"
    )
    assert seen == [("2031-05", [1, 5]), ("2031-05", [1, 2, 5])]


def test_what_is_dealt_again_is_opened_again_under_fresh_shares():
    """Kept summands of two owners: the same sum is opened each time, and no share of it comes twice."""
    task = make_task(3, noise=2 * 10_000)
    parts = random_parts(task, 3, 8)

    def keeping(summands):
        kept = summands(np.arange(3))
        return lambda _, places: (GateDecision(len(places)), kept[places])

    shares, kinds = [], []

    def altered(place):
        real = place.channel

        def channel(peer):
            link = real(peer)

            def send(kind, **fields):
                if kind == "share" and place.name == "o1":
                    shares.append(repr(fields))
                kinds.append((place.name, peer, kind))
                link.send(kind, **fields)

            return SimpleNamespace(send=send, recv=link.recv)

        place.channel = channel
        return place

    asked, ended = ask(task, parts, [[0, 2], [2, 0], [0, 2]], {"o1": keeping, "o2": keeping}, altered)
    assert {type(end) for end in ended.values()} == {RunResult}
    first, turned, again = (answer.opened.others for answer in asked.answers)
    assert np.array_equal(first, again)
    assert np.array_equal(first, turned[::-1])
    assert len(shares) >= 3
    assert len(set(shares)) == len(shares)


def test_levels_stand_open_too():
    """Those who are asked tell as many as they let through; bystanders hear how many were asked about."""
    task, new = levels_task(), level_parts(20)
    log = {}

    def altered(place):
        real = place.channel

        def channel(peer):
            link = real(peer)

            def send(kind, **fields):
                log.setdefault((place.name, peer), []).append(kind)
                link.send(kind, **fields)

            return SimpleNamespace(send=send, recv=link.recv)

        place.channel = channel
        return place

    def one_of_each(summands):
        kept = summands(np.arange(20))
        return lambda _, places: (GateDecision(1, 7), kept[places[:1]])

    def keeping(summands):
        kept = summands(np.arange(20))
        return lambda _, places: (GateDecision(len(places)), kept[places])

    asked, ended = ask(task, new, [[3, 4], [3]], {"mid": keeping, "right": one_of_each}, altered)
    assert {type(end) for end in ended.values()} == {RunResult}
    first, second = asked.answers
    assert (first.verdict, second.verdict) == (GateDecision(1, 7), GateDecision(1, 7))
    assert first.opened.levels.keys() == second.opened.levels.keys() == {"mid", "right"}
    assert all(np.array_equal(first.opened.levels[name], second.opened.levels[name]) for name in first.opened.levels)
    assert "question" not in [*log["left", "other"], *log["left", COORDINATOR]]
    assert {pair for pair, kinds in log.items() if "levels" in kinds} == {("mid", "left"), ("right", "left")}


def test_owners_that_were_asked_different_questions_open_nothing():
    task = kit.active(make_task(3))
    parts = random_parts(task, 5, 2)

    def altered(place):
        """The entitled party's place, which asks the last owner about somebody else."""
        real = place.channel

        def channel(peer):
            link = real(peer)

            def send(kind, **fields):
                if kind == "question":
                    fields["places"] = (fields["places"] + 1) % 5
                link.send(kind, **fields)

            return SimpleNamespace(send=send, recv=link.recv) if (place.name, peer) == ("o0", "o2") else link

        place.channel = channel
        return place

    asked, ended = ask(task, parts, [[1]], alter=altered)
    assert not asked.answers
    assert any(isinstance(end, ProtocolError) and "asked another question" in str(end) for end in ended.values())


def test_places_beyond_the_list_and_repeated_ones_are_refused():
    task = make_task(2)
    for question in ([7], [1, 1]):
        asked, ended = ask(task, random_parts(task, 5, 1), [question])
        assert not asked.answers
        assert isinstance(ended["o0"], ValueError)


# --- levels


def level_parts(rows):
    rng = np.random.default_rng(1)
    ids = [f"n{i:03d}" for i in range(rows)]
    return {name: OwnScoreParts(ids, rng.normal(0, 0.5, (rows, 1))) for name in levels_task().owners}


def truthful(monkeypatch):
    monkeypatch.setattr(levels, "randomised_response", lambda given, *_: given)


def test_the_entitled_party_hears_the_levels_of_those_asked_and_nobody_else_anything(monkeypatch):
    truthful(monkeypatch)
    task, new = levels_task(), level_parts(60)
    log = {}
    ended = kit.outcomes(task, kit.programs_of(levels, task, new), log=log)
    assert {name for name, played in ended.items() if played.result is not None} == {"left"}
    heard = ended["left"].result
    mid, right = (np.rint(new[name].values[:, 0] * 256) for name in ("mid", "right"))
    assert np.array_equal(heard.levels["mid"], (mid >= -64).astype(int) + (mid >= 64))
    assert np.array_equal(heard.levels["right"], right >= 0)
    here = levels.simulate(new, task, seeded(1))
    assert all(np.array_equal(heard.levels[name], here.levels[name]) for name in here.levels)
    assert ended["left"].revealed == ended["other"].revealed == ended[COORDINATOR].revealed == ()
    assert ended["mid"].revealed == (task.events[0],)
    told = {pair for pair, messages in log.items() if any(kind == "levels" for kind, _ in messages)}
    assert told == {("mid", "left"), ("right", "left")}


def test_answers_are_true_as_often_as_the_odds_say():
    """A true answer has probability 2/3 here; five deviations of 40,000 answers are missed once in a million runs."""
    task = replace(levels_task(), noise=round(NOISE_UNIT / (2 * math.log(4))))
    asked, rows = task.asked[0], 40_000
    told = levels.answer_at_random(np.full(rows, 10.0), asked, task, seeded(2))
    assert float(task.odds) == pytest.approx(4, rel=1e-6)
    shares = np.bincount(told, minlength=3) / rows
    assert np.allclose(shares, [1 / 6, 1 / 6, 2 / 3], atol=5 * math.sqrt(2 / 9 / rows))


@settings(max_examples=6, deadline=None)
@given(st.floats(0.01, 30), st.integers(1, 3))
def test_epsilon_is_shared_by_those_who_are_asked_and_never_exceeded(epsilon, count):
    names = ("a", "b", "c")[:count]
    trust = Trust(("to", *names), (), 0)
    draft = QuantisedAnswers(trust, "to", tuple(Respondent(name, (0,)) for name in names), 256, 10)
    budgets = parse_budgets(epsilon, 1e-30, trust)
    task = add_least_noise(draft.with_noise, trust, budgets, owners=1)
    found = Statement.of(task.events, trust, 1e-5)
    most = min(epsilon, count * MOST_EPSILON)
    assert 0.99 * most <= count * math.log(task.odds) <= epsilon
    assert found.epsilon("to") <= epsilon
    assert all(found.epsilon(name) == 0 for name in (*names, "analyst", "coordinator"))


def test_a_coalition_is_charged_for_those_outside_of_it():
    task = replace(levels_task(), noise=NOISE_UNIT // 4)
    found = Statement.of(task.events, task.trust, 1e-5)
    assert found.epsilon("left") == pytest.approx(4, rel=1e-4)
    assert found.epsilon("left+mid") == pytest.approx(2, rel=1e-4)
    assert found.epsilon("left+other") == pytest.approx(4, rel=1e-4)
    assert found.epsilon("mid+right") == 0


def test_levels_that_are_refused():
    task, new = levels_task(rows_at_most=20), level_parts(20)
    for held, error, said in (
        (new | {"mid": replace(new["mid"], ids=[f"x{i}" for i in range(20)])}, StudyError, "ST532"),
        (level_parts(21), CapacityError, ("CA030", "rows_at_most")),
        (new | {"mid": replace(new["mid"], values=new["mid"].values * np.nan)}, DataError, ("DA127", "mid")),
    ):
        refused(error, said, kit.execute, levels, task, held)
    refused(StudyError, "ST458", "left", "mid", "other", "right", "nobody", levels_task, to="nobody")
    refused(ValueError, "VA141", levels_task, asked=(Respondent("left", (0,)),))
    refused(ValueError, "VA140", Respondent, "mid", (3, 3))


def test_other_cuts_odds_or_owners_are_other_tasks():
    task = levels_task()
    others = [
        replace(task, noise=task.noise // 2),
        replace(task, asked=(Respondent("mid", (-64, 65)), task.asked[1])),
        replace(task, asked=task.asked[:1]),
        replace(task, model="another"),
    ]
    assert len({str(each.agreement) for each in (task, *others)}) == 5
    assert task.facts["levels"] == {"mid": 3, "right": 2}
    assert task.odds == Fraction(task.agreement["odds"])
    sent = {load.participant: load.bytes_sent for load in task.loads((*task.owners, COORDINATOR), 50)}
    assert sent == {"left": 0, "mid": 400, "other": 0, "right": 400, COORDINATOR: 0}


# --- which levels


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 5.0])
def test_the_share_that_is_told_is_that_of_the_integral(epsilon):
    found, odds = choice.best_cuts(epsilon), math.exp(epsilon)
    count = len(found.cuts) + 1
    told = 0.0
    for low, high in pairwise((-math.inf, *found.cuts, math.inf)):
        inside = norm.cdf(high) - norm.cdf(low)
        moment = quad(lambda x: x * norm.pdf(x), low, high)[0]
        chance = (odds * inside + (1 - inside)) / (odds + count - 1)
        mean = (odds - 1) * moment / (odds + count - 1) / chance
        told += chance * mean**2
    assert found.heard == pytest.approx(told, rel=1e-6)


def test_more_epsilon_tells_more_by_more_levels():
    found = [choice.best_cuts(epsilon) for epsilon in (0.1, 1.0, 3.0, 5.0, 8.0, 12.0)]
    assert [len(each.cuts) + 1 for each in found] == [2, 2, 3, 6, 16, 16]
    assert all(low.heard < high.heard for low, high in pairwise(found))
    assert found[2].heard == pytest.approx(0.59, abs=0.005)
    assert found[-1].heard < 1


def test_cuts_are_whole_and_apart_however_narrow_the_part_is():
    found = choice.best_cuts(5.0)
    assert found.whole(1.0, 1e-9, 64) == (64, 65, 66, 67, 68)
    wide = found.whole(-2.0, 3.0, 1 << 16)
    assert np.allclose(np.array(wide) / (1 << 16), -2 + 3 * np.array(found.cuts), atol=1e-4)
