"""Requests whose callers stopped waiting: nobody is asked about for them, and everybody else is answered."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import numpy as np
import pytest

from colonnade.errors import PeerLost
from colonnade.protocols.standing import Answer, Verdict
from colonnade.standing.scores.questions import Questions


@pytest.fixture
def questions():
    found = Questions(gather=0.0, quiet=0.0)
    found.begin(("anna", "berta"))
    found.expect(lambda answer, places: [{"place": place} for place in places.tolist()])
    return found


def give_up(answered: Future) -> None:
    async def wait() -> None:
        await asyncio.wait_for(asyncio.wrap_future(answered), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(wait())


def answer(questions: Questions, places: np.ndarray) -> None:
    questions.answer(Answer(None, Verdict(np.zeros(len(places), dtype=bool))))


def test_nobody_is_asked_about_for_a_caller_that_has_gone(questions):
    late, other = questions.ask(["anna"]), questions.ask(["berta"])
    give_up(late)
    places = questions.question()
    assert places.tolist() == [1]
    answer(questions, places)
    assert other.result(0) == [{"place": 1}]
    give_up(questions.ask(["anna"]))
    assert not len(questions.question())


def test_a_caller_that_goes_while_it_is_asked_takes_no_answer_from_others(questions):
    late, other = questions.ask(["anna"]), questions.ask(["berta"])
    places = questions.question()
    give_up(late)
    answer(questions, places)
    assert other.result(0) == [{"place": 1}]


def test_the_end_of_a_session_reaches_everybody_who_still_waits(questions):
    asked = questions.ask(["anna"])
    questions.question()
    late, other = questions.ask(["anna"]), questions.ask(["berta"])
    give_up(asked)
    give_up(late)
    questions.end()
    with pytest.raises(PeerLost):
        other.result(0)
