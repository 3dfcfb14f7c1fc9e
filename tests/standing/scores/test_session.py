"""A standing question over TLS: its answers are those of a study, its price is in the ledger before they are given."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import httpx
import numpy as np
import pytest

from colonnade.errors import PeerLost
from colonnade.privacy import (
    Ledger,
    NonPrivate,
    Observer,
    PostProcessing,
    Repeated,
    SkellamRelease,
    Trust,
    epsilon,
    views,
)
from colonnade.protocols.standing import Answer, Verdict
from colonnade.standing.federation import Members
from colonnade.standing.scores.allowance import Allowance, days_worth
from colonnade.standing.scores.questions import Questions, Refused
from colonnade.standing.scores.settings import Standing
from colonnade.wire import Certificate
from tests.support import standing as processes
from tests.support.ports import free_port
from tests.support.studies import play

from . import kit

NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _fresh(place):
    place.allow("shop")
    for name in kit.COLUMNS:
        for path in [*(place.folder / name).glob("ledger.sqlite*"), *(place.folder / name / "agent").glob("*")]:
            path.unlink()


def test_answers_are_exactly_those_of_a_study_about_the_same_people(place):
    study = place.study("once")
    want = play(study, place.folder / "runs" / "once")["bank"].joint
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


@pytest.mark.system
def test_a_count_is_on_disk_before_the_process_is_killed(place, tmp_path):
    """An owner is killed right after it decided about a question: the next process still counts it."""
    study = place.study("who defaults")
    script = f"""
import os, signal
import numpy as np
from pathlib import Path
from colonnade.standing.scores.allowance import Allowance
from colonnade.standing.scores.settings import Standing
from colonnade.study import PartyConfig, Study
config = PartyConfig.load({str(place.config("shop").path)!r})
allowance = Allowance(Standing.of(Study.load({str(study.path)!r}), 2), config, Path({str(tmp_path / "scores.db")!r}))
gate = allowance.opened(("anna", "berta"))
print([gate(np.array([0])).refused.tolist() for _ in range(2)], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    words = [sys.executable, "-c", script]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert ended.stdout.strip() == "[[False], [False]]"
    allowance = Allowance(Standing.of(study, 2), place.config("shop"), tmp_path / "scores.db")
    gate = allowance.opened(("anna", "berta"))
    assert [gate(np.array([who])).refused.tolist() for who in (0, 1)] == [[True], [False]]
    allowance.close()
    (entry,) = Ledger(place.config("shop").ledger).entries()  # one day, reserved once
    assert entry.state == "sent"


@pytest.mark.slow
def test_a_federation_of_processes_answers_and_comes_back_after_a_kill(place):
    study, console = place.study("who defaults"), free_port()
    roles = {"coordinator": "hub", "bank": "party", "shop": "party"}
    certificates = {name: Certificate.load(place.key(name).with_suffix(".crt")) for name in roles}
    path = place.folder / "coordinator" / "FEDERATION.toml"
    Members("two", f"127.0.0.1:{free_port()}", certificates, roles, None, path).save(path)
    model = f'{{ study = "../{study.path.name}", digest = "{study.digest}", per_person = 2 }}'
    agent = '\n[agent]\nfederation = "../coordinator/FEDERATION.toml"\n'
    served = {"bank": f'console = "127.0.0.1:{console}"\n', "shop": ""}
    more = {name: f"{agent}{served[name]}\n[agent.scores]\nmodels = [{model}]\n" for name in served}
    more["coordinator"] = f'\n[hub]\nkey = "coordinator.key"\nscores = ["../{study.path.name}"]\n'
    for name, text in more.items():
        with open(path if name == "coordinator" else place.config(name).path, "a") as file:
            file.write(text)
    two = processes.Standing(place.folder, {})
    tables = [(place.folder / "tables" / f"{name}.csv").read_text().splitlines()[1:] for name in kit.COLUMNS]
    person = min(set.intersection(*({line.split(",")[0].strip('"') for line in lines} for lines in tables)))

    def ask() -> httpx.Response | None:
        two.check_alive()
        with suppress(httpx.TransportError, FileNotFoundError):
            token = (place.folder / "bank" / "agent" / "scores.token").read_text().strip()
            shown, asked = {"authorization": f"Bearer {token}"}, {"ids": [person]}
            answer = httpx.post(f"http://127.0.0.1:{console}/v1/scores", json=asked, headers=shown, timeout=60)
            return answer if answer.status_code != 503 else None
        return None

    answers: list[httpx.Response] = []
    two.start("coordinator", "bank", "shop")
    try:
        for name in ("shop", "coordinator"):
            answers.append(processes.until(ask, "an answer"))
            two.kill(name)
            two.start(name)
        answers.append(processes.until(ask, "an answer"))
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[0].json()["scores"] == answers[1].json()["scores"]
        assert answers[0].json()["scores"][0]["id"] == person
        assert len(Ledger(place.config("shop").ledger).entries()) == 1
    finally:
        two.stop(*two.running)


# --- counts: what a day is charged as, and what is told stays in the ledger whatever becomes of its files

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
