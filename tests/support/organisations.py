"""Three organisations with a standing federation: their folders, keys and tables, and their real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from json import loads
from pathlib import Path
from typing import Any

from colonnade.cli import initialise
from colonnade.privacy import Ledger
from colonnade.standing.federation import Members
from colonnade.standing.office import Office
from colonnade.wire import Certificate
from tests.support.ports import free_port
from tests.support.studies import people_of, scatter

PARTIES = ("bank", "shop", "clinic")
STUDY = """\
name = "{name}"
[task]
kind = "pca"
n_components = 2
rows_at_most = 100_000
[budget]
epsilon = {{ analyst = {epsilon} }}
[limits]
join = 60
reconnect = {reconnect}
silence = 60
{align}
[parties.bank]
schema = "schemas/bank.toml"
[parties.shop]
schema = "schemas/shop.toml"
[parties.clinic]
schema = "schemas/clinic.toml"
"""
AGENT = """
[agent]
federation = "../FEDERATION.toml"
retries = {retries}
"""
HUB = """
[hub]
key = "coordinator/coordinator.key"
folder = "hub"
overdue = {overdue}
"""


class Organisations:
    """A folder with a federation of bank, shop and clinic, an analyst and a hub."""

    def __init__(self, folder: Path, *, rows: int = 120, ask: tuple[str, ...] = (), retries: int = 2) -> None:
        self.folder, self.processes = folder, {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        people = people_of(rows, None)
        (folder / "schemas").mkdir(parents=True)
        people.write(folder / "tables")
        for place, name in enumerate(PARTIES):
            people.feature_schemas[name].save(folder / "schemas" / f"{name}.toml")
            approval = "ask" if name in ask else "auto-within-budget"
            initialise.party(name, folder / name, f"{name}.csv", "person_id", approval)
            (folder / "tables" / f"{name}.csv").rename(folder / name / f"{name}.csv")
            scatter(folder / name / f"{name}.csv", place)
            with open(self.party_file(name), "a") as file:
                file.write(AGENT.format(retries=retries))
        for name in ("coordinator", "ana"):
            initialise.identity(name, folder / name)
        roles = {"coordinator": "hub", **dict.fromkeys(PARTIES, "party"), "ana": "analyst"}
        certificates = {name: Certificate.load(folder / name / f"{name}.crt") for name in roles}
        self.federation = folder / "FEDERATION.toml"
        address = f"127.0.0.1:{free_port()}"
        Members("three organisations", address, certificates, roles, None, self.federation).save(self.federation)  # type: ignore[arg-type]
        with open(self.federation, "a") as file:
            file.write(HUB.format(overdue=20))

    @property
    def members(self) -> Members:
        return Members.load(self.federation)

    def party_file(self, name: str) -> Path:
        return self.folder / name / "party.toml"

    def edit(self, name: str, pattern: str, replacement: str) -> None:
        text, count = re.subn(pattern, replacement, self.party_file(name).read_text(), count=1, flags=re.MULTILINE)
        assert count == 1, f"{pattern} is not in the file of {name}"
        self.party_file(name).write_text(text)

    def study(self, name: str = "survey", *, epsilon: float = 0.5, match: bool = True, reconnect: float = 4) -> Path:
        path = self.folder / f"{name}.toml"
        align = '[align]\non = "person_id"' if match else ""
        path.write_text(STUDY.format(name=name, epsilon=epsilon, align=align, reconnect=reconnect))
        return path

    # Processes

    def start(self, *names: str) -> None:
        for name in names:
            words = ["hub", str(self.federation)] if name == "hub" else ["agent", str(self.party_file(name))]
            with open(self.folder / f"{name}.log", "ab") as log:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "colonnade", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                )

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def end(self, name: str) -> int:
        self.processes[name].send_signal(signal.SIGTERM)
        return self.processes[name].wait(timeout=60)

    def clean_up(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def hold(self, name: str, study: str, attempt: int) -> int:
        """Stop a party's process of an attempt where it stands; it can go on with SIGCONT."""

        def number() -> int | None:
            attempts = self.office(name).attempts(study)
            file = attempts[attempt - 1].folder / "alive" if len(attempts) >= attempt else None
            text = file.read_text().strip() if file is not None and file.exists() else ""
            return int(text) if text else None

        pid = int(self.until(number, f"{name} runs attempt {attempt}"))
        os.kill(pid, signal.SIGSTOP)
        return pid

    # What a person types

    def command(self, *words: object, fails: bool | None = False, json: bool = True) -> Any:
        """A command with --json; what it printed. ``fails`` is ``None`` where it may."""
        done = subprocess.run(
            [sys.executable, "-m", "colonnade", *map(str, words), *(["--json"] if json else [])],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert fails is None or (done.returncode != 0) == fails, done.stdout + done.stderr
        return loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}

    def propose(self, study: Path, deadline: str = "1h", purpose: str = "to know") -> str:
        self.until(self._listens, "the hub listens")
        key = self.folder / "ana" / "ana.key"
        words = ["propose", study, "--federation", self.federation, "--key", key, "--deadline", deadline]
        return str(self.command(*words, "--purpose", purpose)["id"])

    def _listens(self) -> bool:
        host, _, port = self.members.address.rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def as_analyst(self, *words: object) -> Any:
        return self.command(*words, "--federation", self.federation, "--key", self.folder / "ana" / "ana.key")

    # What is known

    def office(self, name: str) -> Office:
        return Office.open(self.folder / name / "agent")

    def state(self, name: str, id: str) -> str | None:
        known = {entry.id: entry.state for entry in self.office(name).entries()}
        return known.get(id)

    def hub_state(self, id: str) -> str:
        return str(next(study["state"] for study in self.as_analyst("studies")["studies"] if study["id"] == id))

    def until(self, is_so: Callable[[], Any], what: str, timeout: float = 300, pause: float = 0.05) -> Any:
        """Wait until something is so; processes that ended are a failure that says what they wrote."""
        deadline = time.monotonic() + timeout
        while not (found := is_so()):
            assert time.monotonic() < deadline, f"never came to this: {what}\n{self.said()}"
            time.sleep(pause)
        return found

    def until_state(self, name: str, id: str, *states: str) -> str:
        return str(
            self.until(
                lambda: (s := self.state(name, id)) in states and s, f"{name} has {id[:8]} as {' or '.join(states)}"
            )
        )

    def said(self) -> str:
        logs = "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in self.folder.glob("*.log"))
        return f"{ {name: process.poll() for name, process in self.processes.items()} }\n{logs}"

    def ledger(self, name: str) -> list[str]:
        path = self.folder / name / "ledger.sqlite"
        return [entry.state for entry in Ledger(path).entries()] if path.exists() else []

    def events(self, name: str, id: str, attempt: int) -> list[dict[str, Any]]:
        path = self.office(name).attempts(id)[attempt - 1].folder / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def happened(self, name: str, id: str, attempt: int, what: str) -> bool:
        attempts = self.office(name).attempts(id)
        return len(attempts) >= attempt and any(line["what"] == what for line in self.events(name, id, attempt))
