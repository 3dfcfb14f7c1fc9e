"""Scores on demand in a standing federation: a hub and two agents as real processes, one of them killed and started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import httpx
import numpy as np
import pytest

from colonnade.privacy import Ledger
from colonnade.standing.federation import Members
from colonnade.standing.scores.allowance import Allowance
from colonnade.standing.scores.settings import Standing
from colonnade.wire import Certificate
from tests.support.ports import free_port

from . import kit

PATIENCE = 180.0


def test_a_count_is_on_disk_before_the_process_is_killed(tmp_path):
    """An owner is killed right after it decided about a question: the next process still counts it."""
    place = kit.Place.make(tmp_path / "s")
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
    ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert ended.stdout.strip() == "[[False], [False]]"
    allowance = Allowance(Standing.of(study, 2), place.config("shop"), tmp_path / "scores.db")
    gate = allowance.opened(("anna", "berta"))
    assert [gate(np.array([who])).refused.tolist() for who in (0, 1)] == [[True], [False]]
    allowance.close()
    (entry,) = Ledger(place.config("shop").ledger).entries()  # one day, reserved once
    assert entry.state == "sent"


@pytest.mark.slow
def test_a_federation_of_processes_answers_and_comes_back_after_a_kill(tmp_path):
    place = kit.Place.make(tmp_path / "s")
    study = place.study("who defaults")
    roles = {"coordinator": "hub", "bank": "party", "shop": "party"}
    certificates = {name: Certificate.load(place.key(name).with_suffix(".crt")) for name in roles}
    federation, console = place.folder / "FEDERATION.toml", free_port()
    Members("two", f"127.0.0.1:{free_port()}", certificates, roles, None, federation).save(federation)
    with open(federation, "a") as file:
        file.write(f'\n[hub]\nkey = "coordinator/coordinator.key"\nscores = ["{study.path.name}"]\n')
    for name in kit.COLUMNS:
        served = f'console = "127.0.0.1:{console}"\n' if name == "bank" else ""
        model = f'{{ study = "../{study.path.name}", digest = "{study.digest}", per_person = 2 }}'
        with open(place.config(name).path, "a") as file:
            file.write(f'\n[agent]\nfederation = "../FEDERATION.toml"\n{served}\n[agent.scores]\nmodels = [{model}]\n')
    running = {}

    def start(name: str) -> None:
        words = ["hub", str(federation)] if name == "hub" else ["agent", str(place.folder / name / "party.toml")]
        with open(tmp_path / f"{name}.log", "ab") as log:
            command = [sys.executable, "-m", "colonnade", *words]
            running[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ask(person: str) -> httpx.Response:
        """Ask until all are there."""
        token, ends = place.folder / "bank" / "agent" / "scores.token", time.monotonic() + PATIENCE
        while True:
            assert time.monotonic() < ends, (tmp_path / "bank.log").read_text() + (tmp_path / "shop.log").read_text()
            if token.exists():
                try:
                    answer = httpx.post(
                        f"http://127.0.0.1:{console}/v1/scores",
                        json={"ids": [person]},
                        headers={"authorization": f"Bearer {token.read_text().strip()}"},
                        timeout=60,
                    )
                    if answer.status_code != 503:
                        return answer
                except httpx.TransportError:
                    pass
            time.sleep(0.2)

    try:
        for name in ("hub", "bank", "shop"):
            start(name)
        person = (place.folder / "tables" / "shop.csv").read_text().splitlines()[1].split(",")[0].strip('"')
        first = ask(person)
        assert first.status_code == 200
        if first.json()["scores"] == [None]:  # the bank does not hold everybody
            bank = (place.folder / "tables" / "bank.csv").read_text()
            lines = (place.folder / "tables" / "shop.csv").read_text().splitlines()[2:]
            person = next(who for line in lines if (who := line.split(",")[0]) in bank).strip('"')
            first = ask(person)
        assert first.json()["scores"][0]["id"] == person
        os.kill(running["shop"].pid, signal.SIGKILL)
        running["shop"].wait()
        start("shop")
        again = ask(person)
        assert again.json()["scores"] == first.json()["scores"]
        assert ask(person).status_code == 429
        running["hub"].kill()
        running["hub"].wait()
        start("hub")
        assert ask(person).status_code == 429
        assert len(Ledger(place.config("shop").ledger).entries()) == 1
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait(timeout=60)
