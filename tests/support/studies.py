"""Real studies over TLS on loopback: a small population, in processes of their own or in threads of this one."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from colonnade.cli import initialise
from colonnade.errors import ColonnadeError, PeerStopped
from colonnade.models import Estimator
from colonnade.privacy import Ledger, Observer
from colonnade.study import PartyConfig, Study, run_coordinator, run_party
from colonnade.study.local import folder_of, local_configs
from colonnade.tables import Dataset
from research.datasets import load_dataset
from tests.support.ports import free_port
from tests.support.repeatable import named
from tools.pages import EXAMPLE

STUDY = """\
name = "trial"
[task]
kind = "pca"
n_components = 2
rows_at_most = 100_000
[budget]
epsilon = {{ analyst = 1.0 }}
[coordinator]
address = "127.0.0.1:{port}"
[limits]
join = {join}
reconnect = {reconnect}
silence = 60
"""


def study_text(task: str = 'kind = "pca"\n', budget: str = "epsilon = 1.0\n", parties: str = "ab") -> str:
    """A study of parties with names of one letter that is read and never run."""
    named = "".join(f'[parties.{name}]\nschema = "{name}.toml"\n' for name in parties)
    place = '[coordinator]\naddress = "127.0.0.1:7000"\n'
    return f'name = "s"\n[task]\n{task}[budget]\n{budget}{place}{named}'


def runnable_text(
    name: str,
    task: str,
    budget: str,
    columns: Mapping[str, Sequence[str]],
    limits: str,
    pins: Mapping[str, str] | None = None,
) -> str:
    """A study of these columns of each party on a free port; ``budget`` is a section or nothing."""
    text = f'name = "{name}"\n[task]\n{task}{budget}[coordinator]\naddress = "127.0.0.1:{free_port()}"\n'
    text += f"[limits]\njoin = 30\n{limits}"
    for party, chosen in columns.items():
        text += f'[parties.{party}]\nschema = "schemas/{party}.toml"\ncolumns = {json.dumps(chosen)}\n'
    return text + ("[pins]\n" + "".join(f'{who} = "{pin}"\n' for who, pin in pins.items()) if pins else "")


def copy_example(folder: Path) -> tuple[Path, int]:
    """A fresh copy of the example without anything made in it, and a port that is free in place of 7443."""
    shutil.copytree(
        EXAMPLE,
        folder,
        ignore=shutil.ignore_patterns("certs", "runs", "coordinator", "*.key", "*.crt", "ledger.sqlite*", "alignments"),
    )
    port = free_port()
    for study in folder.glob("*.toml"):
        text = study.read_text(encoding="utf-8").partition("\n[pins]")[0]
        study.write_text(text.replace(":7443", f":{port}"), encoding="utf-8")
    return folder, port


def edit(path: Path, *changes: tuple[str, str]) -> None:
    """Replace texts in a file, all of which must be there."""
    text = path.read_text()
    for old, new in changes:
        assert old in text, f"{old!r} is not in {path}"
        text = text.replace(old, new)
    path.write_text(text)


def check_words(text: str, *words: str) -> None:
    """Fail unless a text holds every one of these words."""
    for word in words:
        assert word in text, f"{word!r} is not in: {text}"


def scatter(table: Path, place: int) -> None:
    """Leave every twentieth person out, another one at each party, and write the others in another order."""
    head, *rows = table.read_text().splitlines(keepends=True)
    left = [row for number, row in enumerate(rows) if number % 20 != place]
    left.sort(key=lambda row: hashlib.sha256(f"{place} {row}".encode()).digest())
    table.write_text(head + "".join(left))


def check_ended(
    ended: Mapping[str, Ended], names: Sequence[str], errors: Sequence[type[ColonnadeError]], *words: str
) -> None:
    """Fail unless these participants ended with one of these errors, and a sentence with all these words."""
    for name in names:
        assert ended[name].code in {error.exit_code for error in errors}, (name, ended[name])
        check_words(ended[name].sentence, *words)


@dataclass
class Ended:
    """How a participant's process ended."""

    code: int
    text: str

    @property
    def sentence(self) -> str:
        """The one line that a person sees."""
        lines = [line for line in self.text.splitlines() if line.startswith("colonnade: ")]
        assert len(lines) == 1, self.text
        assert "Traceback" not in self.text, self.text
        return lines[0]


class InThread:
    """A participant in a thread, for whatever needs no process of its own; asked and waited for like one."""

    def __init__(self, program: Callable[[], object]) -> None:
        self.returncode: int | None = None
        self._text = ""
        self._thread = threading.Thread(target=self._play, args=(program,), daemon=True)
        self._thread.start()

    def _play(self, program: Callable[[], object]) -> None:
        try:
            program()
            self.returncode = 0
        except ColonnadeError as error:
            self._text, self.returncode = f"colonnade: {error}\n", error.exit_code
        except BaseException:
            self._text, self.returncode = traceback.format_exc(), 70

    def poll(self) -> int | None:
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "a participant hangs"
        return "", self._text

    def kill(self) -> None:
        """Nothing kills a thread; it ends when the others are gone for long enough."""


@cache
def people_of(rows: int, parties: int | None = None) -> Dataset:
    return load_dataset("population", rows=rows, parties=parties)


def outcomes(study: Study, out: Path) -> dict[str, Estimator | BaseException]:
    """A study in threads, over TLS through a real hub: everyone's model, or why there is none."""
    assert study.statement.trust is study.task.trust  # planned once for all threads
    key, configs = study.folder / "coordinator" / "coordinator.key", local_configs(study)
    with ThreadPoolExecutor(len(study.participants)) as pool:
        jobs = {"coordinator": pool.submit(named, "coordinator", run_coordinator, study, key, out)}
        for name, config in configs.items():
            jobs[name] = pool.submit(named, name, run_party, study, config, folder_of(out, name))
    return {name: job.exception() or job.result() for name, job in jobs.items()}


def play(study: Study, out: Path) -> dict[str, Estimator]:
    """The same; everyone's model, or the first cause of failure."""
    ended = outcomes(study, out)
    failures = [end for end in ended.values() if isinstance(end, BaseException)]
    causes = [error for error in failures if not isinstance(error, PeerStopped)]
    for error in (*causes, *failures):
        raise error
    return ended


class Trial:
    """A study folder of bank, shop and clinic, or of more parties, and their processes or threads.

    With ``match`` their tables are as tables are: in different orders, and each lacks some of the others' people.
    """

    def __init__(
        self,
        folder: Path,
        rows: int,
        parties: int = 3,
        join: float = 40,
        reconnect: float = 4,
        match: bool = True,
    ) -> None:
        self.folder = folder
        self.file = folder / "STUDY.toml"
        self.port = free_port()
        self.children: dict[str, subprocess.Popen[str] | InThread] = {}
        self._planned: dict[Path, Study] = {}
        people = people_of(rows, parties if parties > 3 else None)
        self.parties = people.parties[:parties]
        text = STUDY.format(port=self.port, join=join, reconnect=reconnect)
        text += '[align]\non = "person_id"\n' if match else ""
        (folder / "schemas").mkdir(parents=True)
        people.write(folder / "tables")
        for name in self.parties:
            people.feature_schemas[name].save(folder / "schemas" / f"{name}.toml")
            initialise.party(name, folder / name, f"{name}.csv", "person_id", "auto-within-budget")
            (folder / "tables" / f"{name}.csv").rename(folder / name / f"{name}.csv")
            if match:
                scatter(folder / name / f"{name}.csv", self.parties.index(name))
            text += f'[parties.{name}]\nschema = "schemas/{name}.toml"\n'
        self.file.write_text(text)
        initialise.trial(self.file)

    def study(self) -> Study:
        return Study.load(self.file)

    def out(self, name: str) -> Path:
        return self.folder / "runs" / name

    def start(
        self,
        *names: str,
        listen: str | None = None,
        dial: bool = True,
        study: Path | None = None,
        approve: str | None = None,
        stdin: int = subprocess.DEVNULL,
        threads: bool = False,
        script: str | None = None,
    ) -> None:
        """Start participants; ``script`` is Python to run in place of the command, with the same arguments."""
        for name in names:
            shutil.rmtree(self.out(name), ignore_errors=True)  # or an earlier run's events would be read
            if threads:
                self.children[name] = InThread(self._program(name, study or self.file, listen))
                continue
            command = [sys.executable, *(["-m", "colonnade"] if script is None else ["-c", script])]
            if name == "coordinator":
                command += ["coordinator", str(study or self.file), "--key", str(self._key)]
                command += ["--listen", listen] if listen else []
                command += [] if dial else ["--no-dial"]
            else:
                command += ["party", str(study or self.file), str(self.folder / name / "party.toml")]
                command += ["--approve", approve] if approve else []
            self.children[name] = subprocess.Popen(
                [*command, "--out", str(self.out(name))],
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            )

    @property
    def _key(self) -> Path:
        return self.folder / "coordinator" / "coordinator.key"

    def _program(self, name: str, path: Path, listen: str | None) -> Callable[[], object]:
        """What a participant's process would run, on a study that is planned once for all threads."""
        if path not in self._planned:
            self._planned[path] = Study.load(path)
            assert self._planned[path].statement.rows
        study, out = self._planned[path], self.out(name)
        if name == "coordinator":
            return lambda: run_coordinator(study, self._key, out, listen=listen)
        return lambda: run_party(study, self.config(name), out)

    def start_all(self, **kwargs: Any) -> None:
        self.start("coordinator", *self.parties, **kwargs)

    def start_bank_last(self, listen: str | None = None, **kwargs: Any) -> None:
        """The bank joins when everyone else is there, in threads."""
        others = ("coordinator", *self.parties[1:])
        self.start(*others, listen=listen, threads=True)
        for name in others:
            self.until(name, "connected")
        self.start("bank", **kwargs)

    def ends(self, timeout: float = 600) -> dict[str, Ended]:
        """Wait for every process; a hang is a failure."""
        deadline = time.monotonic() + timeout
        ended = {}
        for name, child in self.children.items():
            _, text = child.communicate(timeout=max(0.1, deadline - time.monotonic()))
            ended[name] = Ended(child.returncode, text)
        return ended

    def end_well(self) -> dict[str, Ended]:
        """Wait for everybody; whoever did not end well is a failure."""
        ended = self.ends()
        assert all(end.code == 0 for end in ended.values()), ended
        return ended

    def until(self, name: str, what: str, timeout: float = 400) -> None:
        """Wait until a participant has written down that something happened."""
        deadline = time.monotonic() + timeout
        path = self.out(name) / "events.jsonl"
        while not (path.exists() and f'"what": "{what}"' in path.read_text()):
            assert time.monotonic() < deadline, f"{name} never came to {what!r}"
            assert self.children[name].poll() is None, self.children[name].communicate()
            time.sleep(0.002)

    def run_json(self, name: str) -> dict[str, Any]:
        return json.loads((self.out(name) / "run.json").read_text())

    def spent(self, name: str) -> float:
        return Ledger(self.folder / name / "ledger.sqlite").epsilon_spent(Observer.analyst(), 1e-5)

    def states(self, name: str) -> list[str]:
        return [entry.state for entry in Ledger(self.folder / name / "ledger.sqlite").entries()]

    def check_states(self, *states: str, names: Sequence[str] | None = None) -> None:
        """Fail unless the ledgers of these parties, or of all, have entries in these states."""
        found = {name: self.states(name) for name in names or self.parties}
        assert found == {name: list(states) for name in found}

    def config(self, name: str = "bank") -> PartyConfig:
        return PartyConfig.load(self.folder / name / "party.toml")

    def happened(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out(name) / "events.jsonl").read_text().splitlines()]

    def edit(self, path: str, pattern: str, replacement: str) -> None:
        file = self.folder / path
        text, count = re.subn(pattern, replacement, file.read_text(), count=1, flags=re.MULTILINE)
        assert count == 1, f"{pattern} is not in {path}"
        file.write_text(text)

    def clean_up(self) -> None:
        for child in self.children.values():
            if child.poll() is None:
                child.kill()
            child.communicate()
