"""A standing federation: a hub, three agents and an analyst, each in a folder of its own, and their processes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.cli.console_commands import whose
from colonnade.console.app import access_control_of, read_address, sign_in_address
from colonnade.errors import ConnectError
from colonnade.federation.agent_store import AgentStore, ProposedStudy
from colonnade.federation.hub_protocol import FederationClient
from colonnade.federation.members import FederationMembers
from colonnade.federation.statements import Proposal, make_proposal, parse_deadline
from colonnade.privacy import Ledger
from colonnade.privacy.ledger.approvers import Approver
from colonnade.study import PartyConfig
from colonnade.study.party_file import ConsoleRole
from colonnade.wire import Identity
from tests.support.ports import free_port
from tests.support.waiting import until
from tools.pages import EXAMPLE

PARTIES = ("bank", "shop", "clinic")
HUB, ANALYST = "coordinator", "ana"
ROLES = {HUB: "hub", **dict.fromkeys(PARTIES, "party"), ANALYST: "analyst"}
BUDGET = "{ analyst = 0.5, coordinator = 0.5, party = 1.0 }"
ALIGNED = '\n[align]\non = "person_id"\n'
_PATH = os.pathsep.join(path for path in sys.path if path)


@dataclass
class Standing:
    """A federation in a folder, and the processes of those members that run."""

    folder: Path
    ports: dict[str, int]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    # --- files

    def of(self, name: str) -> Path:
        return self.folder / name

    def file(self, name: str) -> Path:
        return self.of(name) / ("FEDERATION.toml" if name in (HUB, ANALYST) else "party.toml")

    @property
    def study(self) -> Path:
        return self.of(ANALYST) / "STUDY.toml"

    def key(self, name: str) -> Path:
        return self.of(name) / f"{name}.key"

    def identity(self, name: str = ANALYST) -> Identity:
        return Identity.load(self.key(name), self.key(name).with_suffix(".crt"))

    def members(self, name: str = ANALYST) -> FederationMembers:
        """The federation as a member knows it."""
        return FederationMembers.load(self.of(name) / "FEDERATION.toml")

    def config(self, party: str) -> PartyConfig:
        return PartyConfig.load(self.file(party))

    def store(self, party: str) -> AgentStore:
        return AgentStore(self.of(party) / "agent")

    def ledger(self, party: str) -> list[str]:
        """The states of the entries in a party's ledger."""
        path = self.of(party) / "ledger.sqlite"
        return [entry.state for entry in Ledger(path).entries()] if path.exists() else []

    def study_named(self, name: str, *, budget: str = BUDGET, more: str = "") -> Path:
        """The analyst's study under another name: a study of its own, where one that ran would not run again."""
        text = self.study.read_text(encoding="utf-8").replace(BUDGET, budget)
        first = next(line for line in text.splitlines() if line.startswith("name = "))
        path = self.study.with_name(f"{name}.toml")
        path.write_text(text.replace(first, f'name = "{name}"') + more, encoding="utf-8")
        return path

    def proposal(self, study: Path | None = None, purpose: str = "to know", until: str = "1d") -> Proposal:
        return make_proposal(study or self.study, self.members(), ANALYST, purpose, parse_deadline(until))[0]

    def change(self, name: str, old: str, new: str) -> None:
        path = self.file(name)
        text = path.read_text(encoding="utf-8")
        assert old in text, (path, old)
        path.write_text(text.replace(old, new), encoding="utf-8")

    # --- processes

    def start(self, *names: str) -> None:
        """Start the processes of these members, or of all but the analyst."""
        for name in names or (HUB, *PARTIES):
            assert name not in self.running, name
            words = ["federation", "hub" if name == HUB else "agent", str(self.file(name))]
            with open(self.of(name) / "process.log", "ab") as log:
                self.running[name] = subprocess.Popen(
                    [sys.executable, "-m", "colonnade", *words], cwd=self.of(name), stdin=subprocess.DEVNULL,
                    stdout=log, stderr=subprocess.STDOUT, env=environment(),
                )  # fmt: skip

    def kill(self, name: str) -> None:
        """End a member's process as a failing machine would."""
        self.running[name].kill()
        self.running.pop(name).wait()

    def stop(self, *names: str) -> None:
        """Ask processes to end, and wait until they have, without a complaint."""
        for name in names:
            self.running[name].send_signal(signal.SIGTERM)
        for name in names:
            assert self.running.pop(name).wait(60) == 0, self.log(name)

    def children(self, name: str) -> list[int]:
        return descendants(self.running[name].pid) if name in self.running else []

    def log(self, name: str) -> str:
        path = self.of(name) / "process.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def check_alive(self) -> None:
        """An error with its words, if a process has ended that nobody ended."""
        for name, process in self.running.items():
            assert process.poll() is None, f"{name} ended with {process.returncode}:\n{self.log(name)}"

    # --- what people type

    def propose(self, study: Path | None = None, *, purpose: str = "to see what the three have in common") -> str:
        """The analyst proposes a study, as the command does; returns the proposal's id."""
        proposal = self.proposal(study, purpose)
        return until(lambda: self._proposed(proposal), "the hub to take a proposal")

    def _proposed(self, proposal: Proposal) -> str | None:
        with suppress(ConnectError), FederationClient(self.members(), self.identity()) as line:
            return str(line.tell(proposal)["id"])
        return None

    def approve(self, id: str) -> None:
        for party in PARTIES:
            self.store(party).approve(id, Approver.at_terminal("pat"))

    def beyond_the_budget(self, party: str) -> str:
        """A study that this party's check refuses, since its caps are small for a moment; the id of its proposal."""
        cap = next(line for line in self.file(party).read_text("utf-8").splitlines() if line.startswith("epsilon = "))
        little = "epsilon = { analyst = 0.01, coordinator = 0.01, party = 0.01 }"
        self.change(party, cap, little)
        proposed = self.propose(self.study_named("beyond-the-budget"))
        self.wait(party, proposed, "refused")
        self.change(party, little, cap)
        return proposed

    def without_a_table(self, party: str) -> str:
        """A study that fails, because this party's table is away when it runs; the id of its proposal."""
        proposed = self.propose(self.study_named("without-a-table"))
        self.wait_all(proposed, "waiting")
        table = self.of(party) / f"{party}.csv"
        away = table.rename(table.with_suffix(".away"))
        self.approve(proposed)
        self.wait_all(proposed, "failed")
        away.rename(table)
        return proposed

    def told(self) -> dict[str, Mapping[str, Any]]:
        with FederationClient(self.members(), self.identity()) as line:
            return {study["id"]: study for study in line.studies()}

    def link(self, name: str, role: ConsoleRole = "approver") -> str:
        """A link that signs one person in at the console of a party or of the hub, as the command makes it."""
        folder, part = whose(self.file(name))
        address = until(lambda: read_address(folder) if self._serves(name) else None, f"the console of {name}")
        access = access_control_of(folder, part, dict, part.address[1])
        return sign_in_address(address, access.link("pat", role))

    def _serves(self, name: str) -> bool:
        self.check_alive()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.ports["hub console" if name == HUB else name])) == 0

    # --- states

    def state(self, party: str, id: str) -> str | None:
        return next((entry.state for entry in self.store(party).entries() if entry.id == id), None)

    def wait(self, party: str, id: str, *states: str) -> ProposedStudy:
        def look() -> bool:
            self.check_alive()
            return self.state(party, id) in states

        try:
            until(look, f"{party}'s {id[:8]} to be {' or '.join(states)}")
        except AssertionError as error:
            said = {name: self.state(name, id) for name in PARTIES}
            logs = "\n".join(f"--- {name}\n{self.log(name)[-4000:]}" for name in (HUB, *PARTIES))
            raise AssertionError(f"{error}; now {said}\n{logs}") from None
        return self.store(party).entry(id)

    def wait_all(self, id: str, *states: str) -> dict[str, ProposedStudy]:
        """The same at every party."""
        return {party: self.wait(party, id, *states) for party in PARTIES}

    def happened(self, party: str, id: str, what: str, attempt: int = 1) -> bool:
        """Whether a party's attempt has noted something."""
        path = self.of(party) / "agent" / "studies" / id / "attempts" / str(attempt) / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return any(f'"what": "{what}"' in line for line in lines)

    def finished(self, id: str) -> list[tuple[str, int]]:
        """Who holds a result of its own, and of which attempt."""
        attempts = [(name, attempt) for name in PARTIES for attempt in self.store(name).attempts(id)]
        return [(name, attempt.number) for name, attempt in attempts if attempt.state == "finished"]


def environment() -> dict[str, str]:
    """Processes find the package where this one does, and use one thread."""
    return {**os.environ, "PYTHONPATH": _PATH, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, below = [], [pid]
    while below:
        below = [child for parent in below for child in parents.get(parent, ())]
        found += below
    return found


SMALL_STUDY = f"""
name = "small"

[task]
kind = "pca"
n_components = 1
rows_at_most = 1000

[budget]
delta = 1e-5
epsilon = {BUDGET}

[committee]
seats = ["bank", "shop", "clinic"]
threshold = 1

[limits]
join = 60
reconnect = 5
silence = 60

[parties.bank]
schema = "schemas/bank.toml"

[parties.shop]
schema = "schemas/shop.toml"

[parties.clinic]
schema = "schemas/clinic.toml"
"""
_SMALL_SCHEMA = """
[columns.first]
type = "number"
low = -1
high = 1

[columns.second]
type = "number"
low = -1
high = 1
"""


def _small(folder: Path, rows: int = 60) -> None:
    """Three tables of the same few people, and the smallest study of all of them."""
    rng = np.random.default_rng(21)
    (folder / "schemas").mkdir(parents=True)
    (folder / "STUDY.toml").write_text(SMALL_STUDY, encoding="utf-8")
    for party in PARTIES:
        (folder / party).mkdir()
        (folder / "schemas" / f"{party}.toml").write_text(_SMALL_SCHEMA, encoding="utf-8")
        cells = np.round(rng.uniform(-1, 1, (rows, 2)), 3)
        lines = ["person_id,first,second", *(f"p{i:04d},{a},{b}" for i, (a, b) in enumerate(cells))]
        (folder / party / f"{party}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        shutil.copy(EXAMPLE / party / "party.toml", folder / party)


def make(
    folder: Path,
    *,
    called: str = "three organisations",
    small: bool = True,
    approval: Mapping[str, str] | str = "ask",
    cap: float = 3.0,
    console: bool = False,
    agent: str = "",
    hub: str = "",
) -> Standing:
    """Write the files of a federation: three small tables, or the example of three organisations."""
    source = folder / "source"
    if small:
        _small(source)
    else:
        shutil.copytree(EXAMPLE, source)
    ports = {name: free_port() for name in (HUB, *PARTIES, "hub console")}
    keys = {name: Identity.create(name) for name in ROLES}
    certificates = {name: key.certificate for name, key in keys.items()}
    address = f"127.0.0.1:{ports[HUB]}"
    members = FederationMembers(called, address, certificates, ROLES, None, folder / "FEDERATION.toml")  # type: ignore[arg-type]
    for name, key in keys.items():
        (folder / name).mkdir()
        key.save(folder / name)
        members.save(folder / name / "FEDERATION.toml")
    with open(folder / HUB / "FEDERATION.toml", "a", encoding="utf-8") as file:
        served = f'console = "127.0.0.1:{ports["hub console"]}"\noperators = ["pat"]\n' if console else ""
        file.write(f'\n[hub]\nkey = "{HUB}.key"\nfolder = "hub"\n{served}{hub}')
    shutil.copy(source / "STUDY.toml", folder / ANALYST)
    shutil.copytree(source / "schemas", folder / ANALYST / "schemas")
    for party in PARTIES:
        for path in (source / party).glob("*.csv"):
            shutil.copy(path, folder / party)
        said = approval if isinstance(approval, str) else approval[party]
        text = (source / party / "party.toml").read_text(encoding="utf-8")
        text = text.replace('approval = "auto-within-budget"', f'approval = "{said}"')
        text = text.replace("epsilon = { analyst = 3.0, coordinator = 3.0, party = 3.0 }",
                            f"epsilon = {{ analyst = {cap}, coordinator = {cap}, party = {cap} }}")  # fmt: skip
        listen = f'"127.0.0.1:{ports[party]}"' if console else "false"
        text += f'\n[agent]\nfederation = "FEDERATION.toml"\nfolder = "agent"\nconsole = {listen}\n{agent}'
        (folder / party / "party.toml").write_text(text, encoding="utf-8")
    shutil.rmtree(source)
    return Standing(folder, ports)


@contextmanager
def standing(folder: Path, start: Sequence[str] = (), **how: Any) -> Iterator[Standing]:
    """A federation whose processes run, all of them or some, and are ended at the end."""
    found = make(folder, **how)
    try:
        found.start(*start)
        yield found
    finally:
        for name in tuple(found.running):
            for pid in found.children(name):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            found.kill(name)
