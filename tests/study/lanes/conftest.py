"""Real studies in lanes: every worker is a process, and everybody talks by TLS."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from colonnade.protocols.joint_sum.declaration import JointSum
from colonnade.protocols.lanes.arbiter import LaneAttempt
from colonnade.protocols.moments.programs import MomentsSum
from colonnade.study import PartyConfig, Study, run_coordinator, run_party
from colonnade.study.connect import OWN_HUB
from colonnade.study.engine.base import ProcessEngine
from colonnade.study.lanes import crew as lane_crew
from colonnade.study.lanes.crew import LaneWorkerPool
from colonnade.study.local import folder_of, run_local
from colonnade.study.party_file import WorkerOptions
from tests.support.studies import InThread, Trial, edit
from tests.support.waiting import below

TASK = """\
kind = "polynomial"
expressions = ["1", "bank.income * shop.basket", "bank.income^2"]
rounding = "nearest"
gamma = 64
rows_at_most = 100_000
"""
"""Rounded in one way only, so that without noise there is one result."""
PORTS = "127.0.0.1:20000-29999"
"""Below those that the system gives to whoever asks for any."""
Hook = Callable[["Watched", str, LaneAttempt], None]


def events_of(folder):
    """The lines of a record; another process may be writing the last one."""
    file = folder / "events.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


class Watched(LaneWorkerPool):
    """Tells a test what is asked of workers, so that it can kill them there."""

    all: dict[str, Watched]
    hook: Hook | None

    def __init__(self, engine, duty, *given):
        self.name, self.taken = duty.name, list[LaneAttempt]()
        super().__init__(engine, duty, *given)
        self.all[duty.name] = self

    def meet(self, lane, hub, introductions):
        super().meet(lane, hub, introductions)
        self._tell("meet", lane)

    def begin(self, lane):
        self.taken.append(lane)
        self._tell("begin", lane)
        super().begin(lane)

    def _tell(self, what, lane):
        hook = type(self).hook
        if hook is not None:
            hook(self, what, lane)

    @classmethod
    def kill_at(cls, name, what, lane):
        """Kill this participant's worker when this is asked of it; each time, whether it was there."""
        killed = list[bool]()

        def kill(crew, asked, of):
            if (crew.name, asked, of) == (name, what, lane):
                killed.append(crew.kill(crew.busy()[lane]))

        cls.hook = kill
        return killed

    def busy(self):
        with self._lock:
            return dict(self._lanes)

    def kill(self, worker):
        assert isinstance(self._engine, ProcessEngine)
        with suppress(ProcessLookupError):
            if (pid := self._engine.process(worker)) is not None:
                os.kill(pid, signal.SIGKILL)
                return True
        return False


@pytest.fixture
def crews(monkeypatch):
    watched = type("Watched", (Watched,), {"all": {}, "hook": None})
    monkeypatch.setattr(lane_crew, "LaneWorkerPool", watched)
    return watched


@pytest.fixture
def without_noise(monkeypatch):
    def none(self, stream, count):
        return np.zeros(count, dtype=np.int64)

    for declaration in (JointSum, MomentsSum):
        monkeypatch.setattr(declaration, "noise", none)


class Laned(Trial):
    """A study of bank, shop and perhaps clinic in lanes."""

    def __init__(
        self,
        folder,
        forks,
        rows=200,
        *,
        partitions=4,
        workers=2,
        align="",
        top="",
        task=TASK,
        **settings,
    ):
        super().__init__(folder, rows, **settings)
        self.forks, self.workers = forks, workers
        _, _, rest = self.file.read_text().partition("[coordinator]")
        start = f'name = "trial"\n{top}[task]\n{task}[budget]\nepsilon = {{ analyst = 1.0 }}\n[coordinator]{rest}'
        self.file.write_text(start.replace('on = "person_id"\n', f'on = "person_id"\n{align}'))
        for name in self.parties:
            self.edit(f"{name}/party.toml", r"^epsilon = .*", "epsilon = { analyst = 100.0 }")
            self.edit(f"{name}/party.toml", r"^tasks = .*", 'tasks = ["polynomial", "pca"]')
            self.edit(f"{name}/party.toml", r"\Z", f"\n[compute]\nworkers = {workers}\n")
        self.plain = self.folder / "PLAIN.toml"
        self.plain.write_text(self.file.read_text())
        self.replace("[align]\n", f"[lanes]\npartitions = {partitions}\n[align]\n")

    def replace(self, old, new):
        edit(self.file, (old, new))

    def connect(self, **networks):
        self.replace("[coordinator]\n", '[coordinator]\nlinks = "direct"\n')
        for name, network in networks.items():
            self.edit(f"{name}/party.toml", r"\Z", f"\n[network]\n{network}\n")

    def in_processes(self, name="lanes"):
        return run_local(self.study(), self.folder / "out" / name, forks=self.forks)

    def in_threads(self, path=None, dial=True, place=OWN_HUB):
        """Run it with heads in threads; workers are processes. The coordinator may be one that does not dial."""
        ended = self.ended(path, dial, place)
        for child in ended.values():
            assert child.returncode == 0, child.communicate()
        return self.places(path)

    def places(self, path=None):
        out = self.folder / "out" / (path or self.file).stem
        return {name: folder_of(out, name) for name in ("coordinator", *self.parties)}

    def ended(self, path=None, dial=True, place=OWN_HUB):
        children = self.begun(path, dial=dial, place=place)
        for child in children.values():
            child.communicate(timeout=300)
        return children

    def begun(self, path=None, without=None, dial=True, place=OWN_HUB):
        """All heads, or all but one; in a room of a standing hub, if there is one."""
        study, places = Study.load(path or self.file), self.places(path)
        assert study.statement.rows
        asked, children = WorkerOptions(self.workers, forks=self.forks), dict[str, InThread]()
        if without != "coordinator":
            children["coordinator"] = InThread(
                lambda: run_coordinator(study, self._key, places["coordinator"], dial=dial, place=place, workers=asked)
            )
        for name in [name for name in self.parties if name != without]:
            config = PartyConfig.load(self.folder / name / "party.toml")
            children[name] = InThread(
                lambda config=config, name=name: run_party(
                    study, config, places[name], workers=asked, again=True, place=place
                )
            )
        return children

    def values(self, out, what="values"):
        found = [json.loads((place / "model.json").read_text())["learned"][what] for place in out.values()]
        assert all(each == found[0] for each in found)
        return found[0]

    def facts(self, out):
        return {name: json.loads((place / "run.json").read_text()) for name, place in out.items()}

    def people(self, name):
        lines = (self.folder / name / f"{name}.csv").read_text().split()[1:]
        return {line.split(",")[0].strip('"') for line in lines}

    @property
    def common(self):
        return len(set.intersection(*map(self.people, self.parties)))

    def left_behind(self):
        return below(self.folder, "*colonnade-spool*", "run-*.arrow")


@pytest.fixture
def laned(tmp_path, forks):
    made: list[Laned] = []

    def make(**settings):
        made.append(Laned(tmp_path / f"study{len(made)}", forks, **settings))
        return made[-1]

    yield make
    for each in made:
        each.clean_up()


def error_of(children):
    return {name: child.communicate()[1] for name, child in children.items() if child.returncode}
