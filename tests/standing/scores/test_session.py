"""A standing question over TLS: its answers are those of a study, its price is in the ledger before they are given."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime

import httpx
import numpy as np
import pytest

from colonnade.privacy import Ledger, Observer, Repeated
from colonnade.standing.federation import Members
from colonnade.standing.scores.allowance import Allowance
from colonnade.standing.scores.questions import Refused
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
        for name in ("shop", "coordinator", "shop"):
            answers.append(processes.until(ask, "an answer"))
            two.kill(name)
            two.start(name)
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[0].json()["scores"] == answers[1].json()["scores"]
        assert answers[0].json()["scores"][0]["id"] == person
        assert len(Ledger(place.config("shop").ledger).entries()) == 1
    finally:
        two.stop(*two.running)
