from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import PrivacyError, ProtocolError
from colonnade.kinds.prediction.scores import standing
from colonnade.kinds.prediction.scores.programs import Parts, reference
from colonnade.kinds.prediction.scores.standing import StandingScores, Verdict
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import Played, play
from colonnade.wire import Room
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import scores_task as make_task


@dataclass
class Asked:
    """Questions to ask, and what came of them."""

    questions: list
    answers: list = field(default_factory=list)
    people: tuple = ()

    def begin(self, people):
        self.people = people

    def question(self):
        return np.array(self.questions.pop(0), dtype=np.int64) if self.questions else None

    def answer(self, answer):
        self.answers.append(answer)


def everybody(_):
    return lambda places: Verdict(np.zeros(len(places), dtype=bool))


def random_parts(task, rows, seed):
    rng = np.random.default_rng(seed)
    ids = tuple(f"p{i:06d}" for i in range(rows))
    return {name: Parts(ids, rng.uniform(-1, 1, (rows, task.classes))) for name in task.owners}


def ask(task, parts, questions, gates=None, alter=None):
    """Play a session, which the entitled party ends after its last question."""
    asked, session = Asked(list(questions)), StandingScores(task)

    def program(me):
        if me.name == COORDINATOR:
            return standing.coordinator(me, session)
        if me.name == task.to:
            return standing.asker(me, parts[me.name], session, asked)
        return standing.dealer(me, parts[me.name], session, (gates or {}).get(me.name, everybody))

    room = Room((*task.owners, COORDINATOR), timeout=20)

    def part(name):
        try:
            return play(alter(room.place(name)) if alter else room.place(name), session, program)
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
    assert {type(end) for end in ended.values()} == {Played}
    want = reference({name: part.values for name, part in parts.items()}, task)
    asked_about = [question for question in questions if question]
    assert len(asked.answers) == len(asked_about)
    for question, answer in zip(asked_about, asked.answers, strict=True):
        assert np.array_equal(answer.opened.others, want[question])
        assert np.array_equal(answer.opened.own, parts[task.to].values[question])
        assert answer.opened.ids == tuple(asked.people[place] for place in question)
        assert not answer.verdict.refused.any()


@pytest.mark.parametrize("security", [False, True])
def test_whom_one_owner_refuses_nothing_is_opened_of(security):
    """Not even of the owner that would have answered, whose part alone would be more than the sum of all."""
    task = make_task(3)
    task = kit.active(task) if security else task
    parts = random_parts(task, 6, 4)
    seen = []

    def refusing(people):
        def gate(places):
            seen.append(tuple(people[place] for place in places))
            return Verdict(places == 2, 1_800_000_000)

        return gate

    asked, _ = ask(task, parts, [[1, 2, 5], [2]], {"o2": refusing})
    want = reference({name: part.values for name, part in parts.items()}, task)
    first, second = asked.answers
    assert first.verdict.refused.tolist() == [False, True, False]
    assert first.verdict.until == 1_800_000_000
    assert np.array_equal(first.opened.others[[0, 2]], want[[1, 5]])
    assert not first.opened.others[1].any()
    assert not second.opened.others.any()
    assert seen == [("p000001", "p000002", "p000005"), ("p000002",)]


def test_noise_is_fresh_in_every_answer():
    task = make_task(2, noise=10_000)
    parts = random_parts(task, 3, 8)
    asked, _ = ask(task, parts, [[0], [0], [0]])
    drawn = {tuple(answer.opened.others[0].tolist()) for answer in asked.answers}
    assert len(drawn) > 1  # all alike with a probability below 1e-7: two answers of two numbers of deviation 100 each


def test_owners_that_were_asked_different_questions_open_nothing():
    task = kit.active(make_task(3))
    parts = random_parts(task, 5, 2)

    class Split:
        """The entitled party's place, which asks the last owner about somebody else."""

        def __init__(self, place):
            self._place = place

        def __getattr__(self, name):
            return getattr(self._place, name)

        def channel(self, peer):
            link = self._place.channel(peer)
            if self.name != "o0" or peer != "o2":
                return link

            class Altered:
                def send(self, kind, **fields):
                    if kind == "question":
                        fields["places"] = (fields["places"] + 1) % 5
                    link.send(kind, **fields)

                def recv(self, kind, most):
                    return link.recv(kind, most)

            return Altered()

    asked, ended = ask(task, parts, [[1]], alter=Split)
    assert not asked.answers
    assert any(isinstance(end, ProtocolError) and "asked another question" in str(end) for end in ended.values())


def test_a_question_that_was_not_planned_is_not_opened():
    task = make_task(2)
    session = StandingScores(task)
    assert not session.openings

    def program(me):
        if me.hand.seated and me.name == "o0":
            with raises(PrivacyError, "PR138"):
                me.reveal(None, to=("o0",), event=task.event, shape=(1, 2), bound=task.bound, degree=1)

    kit.results(session, dict.fromkeys((*task.owners, COORDINATOR), program))


def test_places_beyond_the_list_and_repeated_ones_are_refused():
    task = make_task(2)
    for question in ([7], [1, 1]):
        asked, ended = ask(task, random_parts(task, 5, 1), [question])
        assert not asked.answers
        assert isinstance(ended["o0"], ValueError)
