"""A standing question over TLS: its answers are those of a study, its price is in the ledger before they are given."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import numpy as np
import pytest

from colonnade.privacy import Ledger, Observer, Repeated
from colonnade.standing.scores.questions import Refused
from colonnade.standing.scores.settings import Standing
from tests.support.studies import play

from . import kit

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return kit.Place.make(tmp_path_factory.mktemp("scores") / "s")


@pytest.fixture(autouse=True)
def _fresh(place):
    for name in kit.COLUMNS:
        for path in [*(place.folder / name).glob("ledger.sqlite*"), *(place.folder / name / "agent").glob("*")]:
            path.unlink()


def test_answers_are_exactly_those_of_a_study_about_the_same_people(place):
    study = place.study("once")
    want = play(study, place.folder / "runs" / "once")["bank"].joint
    assert want.probabilities is not None
    with kit.standing_up(place, Standing.of(place.study("standing"), per_person=3)) as questions:
        some = [want.ids[7], "nobody of that name", want.ids[3], want.ids[7]]
        found = questions.ask(some).result(30)
        everybody = questions.ask(want.ids).result(30)
    assert found[1] is None
    assert found[0] == found[3] == everybody[7]
    assert found[2] == everybody[3]
    assert [row["id"] for row in everybody] == want.ids
    assert np.array_equal([row["probabilities"] for row in everybody], want.probabilities)
    assert np.array_equal([row["scores"] for row in everybody], want.scores)
    assert np.array_equal([row["prediction"] for row in everybody], want.predictions)


def test_a_day_is_reserved_before_the_first_answer_and_kept_over_a_restart(place):
    place.allow("shop", exact="")
    standing = Standing.of(place.study("noisy", kit.NOISY), per_person=2, per_day=4)
    moment = [NOON]
    ledger = place.config("shop").ledger
    with kit.standing_up(place, standing, lambda: moment[0]) as questions:
        assert not ledger.exists() or not Ledger(ledger).entries()
        first = questions._places and [*questions._places][:3]
        assert all("deviations" in row for row in questions.ask(first[:1]).result(30))
        (entry,) = Ledger(ledger).entries()
        assert entry.state == "sent"
        assert entry.events == (Repeated(standing.task.event, 2),)
    with kit.standing_up(place, standing, lambda: moment[0]) as questions:
        assert questions.ask(first[:1]).result(30)[0]["id"] == first[0]
        again = questions.ask(first[:2]).result(30)
        assert again[0] == Refused(int(datetime(2031, 5, 7, tzinfo=UTC).timestamp()))
        assert again[1]["id"] == first[1]
        over = questions.ask(first[1:]).result(30)  # the fourth of four, and a fifth
        assert [type(one) is Refused for one in over] == [False, True]
        assert len(Ledger(ledger).entries()) == 1
        one_day = Ledger(ledger).spent(Observer.party("bank"), 1e-5)
        moment[0] = datetime(2031, 5, 7, 0, 0, 1, tzinfo=UTC)
        assert questions.ask(first[:1]).result(30)[0]["id"] == first[0]
        states = [entry.state for entry in Ledger(ledger).entries()]
        assert states == ["committed", "sent"]
        assert one_day < Ledger(ledger).spent(Observer.party("bank"), 1e-5) <= 2 * one_day


def test_without_budget_everybody_is_refused_and_nothing_is_counted(place):
    standing = Standing.of(place.study("noisy", kit.NOISY), per_person=3)
    single = standing.study.statement.epsilon("bank")
    place.allow("shop", exact="", epsilon=single)  # one question would do, three do not
    with kit.standing_up(place, standing, lambda: NOON) as questions:
        first = [*questions._places][:2]
        assert all(isinstance(one, Refused) for one in questions.ask(first).result(30))
    assert not Ledger(place.config("shop").ledger).entries()
    place.allow("shop")


def test_requests_that_come_together_are_one_question(place):
    standing = Standing.of(place.study("standing"), per_person=100)
    with kit.standing_up(place, standing, lambda: NOON) as questions:
        ids = [*questions._places][:20]
        asked, inner = [], questions._taken
        questions._taken = lambda: asked.append(inner()) or asked[-1]
        futures = []
        with questions._changed:  # nothing is taken before all have come
            futures = [questions.ask([one, ids[0]]) for one in ids]
        found = [future.result(30) for future in futures]
    assert [len(one) for one in asked] == [20]
    assert [[row["id"] for row in one] for one in found] == [[one, ids[0]] for one in ids]
    assert threading.active_count() < 50
