"""Whole studies in separate processes that end well."""

from __future__ import annotations

import json

import numpy as np
import pytest

from colonnade import PCA
from colonnade.privacy import Statement
from colonnade.study import run_local


def test_three_parties_and_a_coordinator_in_processes_of_their_own(trial):
    study = trial(rows=600)
    study.edit("STUDY.toml", r'address = "127\.0\.0\.1', 'address = "127.0.0.2')  # another one of this machine
    study.start_all()
    ended = study.ends()
    assert all(end.code == 0 for end in ended.values()), ended
    models = {name: PCA.load(study.out(name) / "model.json") for name in ("coordinator", *study.parties)}
    for model in models.values():
        assert np.array_equal(model.components_, models["coordinator"].components_)
    for name in ("coordinator", *study.parties):
        run = study.run_json(name)
        assert run["status"] == "finished"
        assert {"phases", "traffic", "seconds", "digest"} <= set(run)
        assert run["rounds"] >= sum(phase["rounds"] for phase in run["phases"].values())
        sent = {key: sum(peer[f"{key}_sent"] for peer in run["traffic"].values()) for key in ("messages", "payload")}
        assert sent["messages"] >= sum(phase["messages"] for phase in run["phases"].values())
        assert sent["payload"] >= sum(phase["bytes"] for phase in run["phases"].values())
        said = json.loads((study.out(name) / "privacy.json").read_text())
        assert Statement.from_dict(said).epsilon("analyst") == pytest.approx(1.0, abs=1e-6)
        happened = [json.loads(line)["what"] for line in (study.out(name) / "events.jsonl").read_text().splitlines()]
        assert "revealed" in happened
    assert all(study.states(name) == ["committed"] for name in study.parties)
    whats = [json.loads(line)["what"] for line in (study.out("bank") / "events.jsonl").read_text().splitlines()]
    assert whats.index("budget reserved") < whats.index("connected") < whats.index("first share")
    assert (study.out("coordinator") / "report.html").stat().st_size > 10_000


def test_two_parties_with_the_coordinator_as_third_seat(trial):
    study = trial(rows=500, parties=2)
    folder = study.folder / "out"
    steps = []
    folders = run_local(study.study(), folder, progress=lambda *step: steps.append(step))
    assert set(folders) == {"coordinator", "bank", "shop"}
    phases = json.loads((folder / "run.json").read_text())["phases"]
    assert {"receive", "multiply", "open"} <= set(phases)
    assert phases["open"]["rounds"] >= 1
    assert phases["open"]["bytes"] > 0
    assert steps[-1] == ("multiply", 1, 1)
