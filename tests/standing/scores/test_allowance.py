"""Counts of scores on demand: what a day is charged as, what is told stays in the ledger, and who still waits.

A ledger or a file of counts may be put back from a copy, or be new: what is told is in the ledger all the same.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from concurrent.futures import Future
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import numpy as np
import pytest

from colonnade.errors import PeerLost
from colonnade.privacy import NonPrivate, Observer, PostProcessing, Repeated, SkellamRelease, Trust, epsilon, views
from colonnade.protocols.standing import Answer, Verdict
from colonnade.standing.scores.allowance import Allowance, days_worth
from colonnade.standing.scores.questions import Questions
from colonnade.standing.scores.settings import Standing

from . import kit

TRUST = Trust(("bank", "shop", "clinic"), ("bank", "shop", "clinic"), 1)
SCORES = SkellamRelease(
    "scores", (("shop", Fraction(10**8)), ("clinic", Fraction(10**8))), 1, 5000, 25 * 10**6, 5000, 25 * 10**6,
    0.0, "joint-prediction", "", ("bank",), ("shop", "clinic"),
)  # fmt: skip


@pytest.mark.parametrize("times", [1, 2, 10])
def test_a_day_costs_what_as_many_questions_about_one_person_cost(times: int) -> None:
    day = days_worth((SCORES,), times)
    assert day == ((SCORES,) if times == 1 else (Repeated(SCORES, times),))
    for who in ("bank", "bank+coordinator"):
        seen = Observer.parse(who)
        asked = epsilon(views([SCORES] * times, seen, TRUST), 1e-6).epsilon
        assert epsilon(views(day, seen, TRUST), 1e-6).epsilon == pytest.approx(asked, rel=1e-9)
        assert 0 < asked < float("inf")
    free = (NonPrivate("exact scores", audience=("bank",)), PostProcessing("opened to shop", audience=("shop",)))
    assert days_worth(free, times) == free


# --- files that were lost or put back

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
PEOPLE = ("anna", "berta", "carla")


class Shop:
    def __init__(self, place: kit.Place, **limits: int) -> None:
        self.config = place.config("shop")
        self.standing = Standing.of(place.study("noisy", kit.NOISY), **limits)
        self.counts = self.config.path.parent / "agent" / "scores.db"
        self.now = NOON
        self.start()

    def start(self, **limits: int) -> None:
        if limits:
            self.standing = Standing.of(self.standing.study, **limits)
        self.allowance = Allowance(self.standing, self.config, self.counts, clock=lambda: self.now)
        self.gate = self.allowance.opened(PEOPLE)

    def stop(self) -> None:
        self.allowance.close()

    def told(self, *names: str) -> list[str]:
        refused = self.gate(np.array([PEOPLE.index(name) for name in names])).refused
        return [name for name, one in zip(names, refused.tolist(), strict=True) if not one]

    def entries(self):
        return self.config.book().entries()

    def lose(self, name: str) -> None:
        for path in self.config.ledger.parent.glob(f"**/{name}"):
            path.unlink()

    def lose_ledger(self) -> None:
        """Its marks of scores stay."""
        for name in ("ledger.sqlite", "ledger.sqlite-*"):
            self.lose(name)

    def restart(self, **limits: int) -> None:
        self.stop()
        self.start(**limits)

    def reserve_another(self) -> None:
        study = self.standing.study
        self.config.book().reserve("another", "0" * 64, study.events, study.trust, self.config.caps)


@pytest.fixture
def shop(place):
    place.allow("shop", exact="")
    for path in [*(place.folder / "shop").glob("ledger.sqlite*"), *(place.folder / "shop" / "agent").glob("*")]:
        path.unlink()
    found = Shop(place)
    yield found
    found.stop()


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("marks", [True, False])
def test_a_new_ledger_holds_the_rest_of_the_day(shop, restarted, marks):
    assert shop.told("anna") == ["anna"]
    if restarted:
        shop.stop()
    shop.lose_ledger() if marks else shop.lose("ledger.sqlite*")
    if restarted:
        shop.start()
    assert shop.told("anna", "berta") == ["berta"]  # what was counted goes on
    assert [(entry.state, entry.events) for entry in shop.entries()] == [("sent", (shop.standing.task.event,))]


def test_a_ledger_that_was_put_back_holds_the_day_again(shop, tmp_path):
    shop.reserve_another()
    shutil.copy(shop.config.ledger, tmp_path / "copy")
    assert shop.told("anna") == ["anna"]
    shop.lose_ledger()
    shutil.copy(tmp_path / "copy", shop.config.ledger)
    assert shop.told("berta") == ["berta"]
    assert [(entry.study, entry.state) for entry in shop.entries()] == [
        ("another", "reserved"),
        ("noisy: scores of 2031-05-06", "sent"),
    ]


def test_the_entry_of_another_study_with_the_same_number_is_left_alone(shop):
    assert shop.told("anna") == ["anna"]
    shop.lose_ledger()
    shop.reserve_another()
    shop.now += timedelta(days=1)  # the day before ended, and its entry is gone
    assert shop.told("anna") == ["anna"]
    assert [entry.state for entry in shop.entries()] == ["reserved", "sent"]
    shop.now -= timedelta(days=1)
    assert shop.told("berta") == ["berta"]
    assert [entry.state for entry in shop.entries()] == ["reserved", "committed", "sent"]


def test_a_new_ledger_pays_for_as_many_times_as_were_allowed_before(shop):
    shop.restart(per_person=3)
    assert shop.told("anna") == shop.told("anna") == ["anna"]
    shop.stop()
    shop.lose_ledger()
    shop.start(per_person=1)
    assert shop.told("anna", "berta") == ["berta"]
    assert [entry.events for entry in shop.entries()] == [(Repeated(shop.standing.task.event, 3),)]


def test_where_a_new_ledger_allows_no_day_nobody_is_answered_about(place, shop):
    assert shop.told("anna") == ["anna"]
    shop.stop()
    shop.lose_ledger()
    single = shop.standing.study.statement.epsilon("bank")
    shop.config = place.allow("shop", exact="", epsilon=single)  # one question would do, three do not
    shop.start(per_person=3)
    refused = shop.told("berta") + shop.told("carla")
    assert (refused, len(shop.entries())) == ([], 0)


@pytest.mark.parametrize("open_file", [True, False])
def test_counts_that_were_put_back_cost_another_day_each_time(shop, tmp_path, open_file):
    assert shop.told("berta") == ["berta"]
    shop.stop()
    shutil.copy(shop.counts, tmp_path / "copy")
    shop.start()
    assert shop.told("anna") == ["anna"]
    for times in (2, 3):
        if open_file:
            with closing(sqlite3.connect(tmp_path / "copy")) as copy, closing(sqlite3.connect(shop.counts)) as counts:
                copy.backup(counts)
        else:
            shop.stop()
            shop.lose("scores.db*")
            shutil.copy(tmp_path / "copy", shop.counts)
            shop.start()
        assert shop.told("anna", "berta") == ["anna"]
        assert shop.told("anna") == []
        assert [entry.state for entry in shop.entries()] == ["sent"] * times


@pytest.mark.parametrize("lost", ["scores.db*", "*.scores*", "nothing"])
def test_counts_or_a_mark_that_were_lost_cost_another_day(shop, lost):
    assert shop.told("anna") == ["anna"]
    shop.reserve_another()  # whatever else the ledger records
    shop.stop()
    shop.lose(lost)
    shop.start()
    assert shop.told("berta") == ["berta"]
    days = [entry.study for entry in shop.entries()].count("noisy: scores of 2031-05-06")
    assert days == (1 if lost == "nothing" else 2)


# --- callers who stopped waiting: nobody is asked about for them, and everybody else is answered


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


def test_nobody_is_asked_about_for_a_caller_that_has_gone_and_others_have_their_answers(questions):
    for gone_before in (True, False):
        late, other = questions.ask(["anna"]), questions.ask(["berta"])
        if gone_before:
            give_up(late)
        places = questions.question()
        if not gone_before:
            give_up(late)
        assert places.tolist() == ([1] if gone_before else [0, 1])
        questions.answer(Answer(None, Verdict(np.zeros(len(places), dtype=bool))))
        assert other.result(0) == [{"place": 1}]
    give_up(questions.ask(["anna"]))
    assert not len(questions.question())


def test_the_end_of_a_session_reaches_everybody_who_still_waits(questions):
    asked = questions.ask(["anna"])
    questions.question()
    late, other = questions.ask(["anna"]), questions.ask(["berta"])
    give_up(asked)
    give_up(late)
    questions.end()
    with pytest.raises(PeerLost):
        other.result(0)
