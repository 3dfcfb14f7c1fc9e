"""A ledger or a file of counts that was put back from a copy, or is new: what is told is in the ledger all the same."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from colonnade.privacy import Repeated
from colonnade.standing.scores.allowance import Allowance
from colonnade.standing.scores.settings import Standing

from . import kit

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
PEOPLE = ("anna", "berta", "carla")


class Shop:
    """An owner that answers, with its files."""

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

    def lose(self, *names: str) -> None:
        for name in names:
            for path in self.config.ledger.parent.glob(f"**/{name}"):
                path.unlink()

    def reserve_another(self) -> None:
        study = self.standing.study
        self.config.book().reserve("another", "0" * 64, study.events, study.trust, self.config.caps)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = kit.Place.make(tmp_path_factory.mktemp("restored") / "s")
    made.allow("shop", exact="")
    return made


@pytest.fixture
def shop(place):
    for path in [*(place.folder / "shop").glob("ledger.sqlite*"), *(place.folder / "shop" / "agent").glob("*")]:
        path.unlink()
    found = Shop(place)
    yield found
    found.stop()


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("lost", [["ledger.sqlite", "ledger.sqlite-*"], ["ledger.sqlite*"]])
def test_a_new_ledger_holds_the_rest_of_the_day(shop, restarted, lost):
    assert shop.told("anna") == ["anna"]
    if restarted:
        shop.stop()
    shop.lose(*lost)
    if restarted:
        shop.start()
    assert shop.told("anna", "berta") == ["berta"]  # what was counted goes on
    (entry,) = shop.entries()
    assert entry.state == "sent"
    assert entry.events == (shop.standing.task.event,)


def test_a_ledger_that_was_put_back_holds_the_day_again(shop, tmp_path):
    shop.reserve_another()
    shutil.copy(shop.config.ledger, tmp_path / "copy")
    assert shop.told("anna") == ["anna"]
    shop.lose("ledger.sqlite", "ledger.sqlite-*")
    shutil.copy(tmp_path / "copy", shop.config.ledger)
    assert shop.told("berta") == ["berta"]
    assert [(entry.study, entry.state) for entry in shop.entries()] == [
        ("another", "reserved"),
        ("noisy: scores of 2031-05-06", "sent"),
    ]


def test_the_entry_of_another_study_with_the_same_number_is_left_alone(shop):
    assert shop.told("anna") == ["anna"]
    shop.lose("ledger.sqlite", "ledger.sqlite-*")
    shop.reserve_another()
    shop.now += timedelta(days=1)  # the day before ended, and its entry is gone
    assert shop.told("anna") == ["anna"]
    assert [entry.state for entry in shop.entries()] == ["reserved", "sent"]
    shop.now -= timedelta(days=1)
    assert shop.told("berta") == ["berta"]
    assert [entry.state for entry in shop.entries()] == ["reserved", "committed", "sent"]


def test_a_new_ledger_pays_for_as_many_times_as_were_allowed_before(shop):
    shop.stop()
    shop.start(per_person=3)
    assert shop.told("anna") == shop.told("anna") == ["anna"]
    shop.stop()
    shop.lose("ledger.sqlite", "ledger.sqlite-*")
    shop.start(per_person=1)
    assert shop.told("anna", "berta") == ["berta"]
    assert [entry.events for entry in shop.entries()] == [(Repeated(shop.standing.task.event, 3),)]


def test_where_a_new_ledger_allows_no_day_nobody_is_answered_about(place, shop):
    assert shop.told("anna") == ["anna"]
    shop.stop()
    shop.lose("ledger.sqlite", "ledger.sqlite-*")
    shop.config = place.allow("shop", exact="", epsilon=0.01)
    try:
        shop.start()
        assert shop.told("berta") == shop.told("carla") == []
        assert not shop.entries()
    finally:
        place.allow("shop", exact="")


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


@pytest.mark.parametrize("lost", ["scores.db*", "*.scores*"])
def test_counts_or_a_mark_that_were_lost_cost_another_day(shop, lost):
    assert shop.told("anna") == ["anna"]
    shop.stop()
    shop.lose(lost)
    shop.start()
    assert shop.told("berta") == ["berta"]
    assert len(shop.entries()) == 2


def test_a_day_is_reserved_once_whatever_else_the_ledger_records(shop):
    for name in PEOPLE:
        assert shop.told(name) == [name]
        shop.reserve_another()
        shop.stop()
        shop.start()
    assert [entry.study for entry in shop.entries()].count("noisy: scores of 2031-05-06") == 1
