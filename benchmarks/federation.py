"""A standing federation: scores on demand, studies back to back, and random kills."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import contextlib
import csv
import http.client
import io
import json
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from colonnade import Federation, LogisticRegression, Party
from colonnade.cli import initialise
from colonnade.privacy import Ledger
from colonnade.study import Study
from colonnade.tables import population
from harness import (
    Benchmark,
    Row,
    command,
    free_ports,
    table,
    tabled,
    verdict,
)
from tests.support.standing import HUB, PARTIES, Standing, standing, until

# --- scores on demand

ROWS = 20_000
ALLOWED = {"median, ms": 25.0, "99 %, ms": 100.0, "people a second": 1000.0}
PRICES = {"exact": ("exact = true\n", ""), "epsilon 2": ("", "[budget]\nepsilon = { bank = 2.0 }\n")}
BATCH = 1000
CALLERS = 32


@dataclass
class House:
    """A folder with everyone's keys, tables and policies, and the public model."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> House:
        """Made-up people of a bank and a shop, in another order at each."""
        people = population(ROWS)
        people.write(folder / "tables")
        (folder / "schemas").mkdir()
        names = ("bank", "shop")
        for name in names:
            people.schemas[name].save(folder / "schemas" / f"{name}.toml")
            initialise.party(name, folder / name, f"../tables/{name}.csv", "person_id", "auto-within-budget")
        known = Federation([Party(n, people.arrow[n], schema=people.schemas[n], id="person_id") for n in names])
        LogisticRegression(epsilon=2.0, label=people.label, rows=ROWS).fit(known).save(folder / "model.json")
        house = cls(folder)
        house.study("keys", "exact", 1, None)
        return house

    def study(self, name: str, price: str, port: int, pins: dict[str, str] | None) -> Study:
        """A prediction for the bank; pins come from the first study."""
        task, budget = PRICES[price]
        path = self.folder / f"{name}.toml"
        text = f'name = "{name}"\n[task]\nkind = "prediction"\nmodel = "model.json"\nto = "bank"\n{task}{budget}'
        text += f'[coordinator]\naddress = "127.0.0.1:{port}"\n[align]\non = "person_id"\n'
        text += "".join(f'[parties.{n}]\nschema = "schemas/{n}.toml"\n' for n in ("bank", "shop"))
        text += "[pins]\n" + "".join(f'{who} = "{pin}"\n' for who, pin in (pins or {}).items()) if pins else ""
        path.write_text(text)
        if pins is None:
            initialise.trial(path)
        return Study.load(path)

    def agree(self, study: Study, price: str) -> None:
        """Both parties agree to the study, and the shop allows as much as is asked."""
        for name in ("bank", "shop"):
            path = self.folder / name / "party.toml"
            text = re.sub(r"^tasks = .*$", 'tasks = ["prediction"]', path.read_text(), flags=re.M)
            text = re.sub(
                r"^epsilon = .*$", "epsilon = { analyst = 1e4, coordinator = 1e4 }", text, count=1, flags=re.M
            )
            exact = 'exact = ["bank"]' if price == "exact" else "# exact = []"
            text = re.sub(r"^(# )?exact = .*$", exact, text, count=1, flags=re.M).partition("\n[agent]")[0]
            model = f'{{ study = "../{study.path.name}", digest = "{study.digest}", period = "month"'
            text += f"\n[agent]\n[agent.scores]\nmodels = [{model}, per_day = 100_000_000 }}]\n"
            path.write_text(text)
            for old in (self.folder / name).glob("ledger.sqlite*"):  # exact answers leave nothing of any cap
                old.unlink()


@dataclass
class Caller:
    """A program that asks, on one connection that stays open."""

    port: int
    token: str

    def __post_init__(self) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, ids: Sequence[str]) -> tuple[int, float]:
        """Ask; the status, and seconds until all of the answer was there."""
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        begun = time.perf_counter()
        self.connection.request("POST", "/v1/scores", json.dumps({"ids": list(ids)}), headers)
        answer = self.connection.getresponse()
        found = answer.read()
        taken = time.perf_counter() - begun
        if answer.status == 200 and [one and one["id"] for one in json.loads(found)["scores"]] != list(ids):
            raise SystemExit("an answer is not about those who were asked about")
        return answer.status, taken


def answered(found: tuple[int, float]) -> float:
    """The seconds of an answer; a benchmark of refusals would measure nothing."""
    status, seconds = found
    if status != 200:
        raise SystemExit(f"a question was answered with status {status}")
    return seconds


@contextlib.contextmanager
def session(house: House, price: str) -> Iterator[tuple[int, str, list[str]]]:
    """Three processes with a session open; the port of the interface, the token, and people to ask about."""
    own, api = free_ports(2)
    pins = Study.load(house.folder / "keys.toml").content.pins
    with contextlib.ExitStack() as stack:
        study = house.study("standing", price, own, dict(pins))
        house.agree(study, price)
        start = [sys.executable, "-m", "colonnade", "scores"]
        key = house.folder / "coordinator" / "coordinator.key"
        commands = [
            [*start, str(study.path), "--key", str(key), "--listen", f"127.0.0.1:{own}"],
            [*start, str(house.folder / "shop" / "party.toml")],
            [*start, str(house.folder / "bank" / "party.toml"), "--listen", f"127.0.0.1:{api}"],
        ]
        for command in commands:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        listed = (house.folder / "tables" / "bank.csv").read_text().splitlines()[1:]
        people = [row.split(",")[0].strip('"') for row in listed]
        token = house.folder / "bank" / "agent" / "scores.token"
        ends = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                if Caller(api, token.read_text().strip()).ask(people[:1])[0] == 200:
                    break
            if time.monotonic() > ends:
                raise SystemExit("the session did not begin")
            time.sleep(0.2)
        yield api, token.read_text().strip(), people


def ask(house: House, price: str, singles: int, batches: int) -> dict[str, float]:
    """Figures of one price."""
    with session(house, price) as (port, token, people):
        caller = Caller(port, token)
        for index in range(20):
            caller.ask(people[index : index + 1])
        took = np.array([answered(caller.ask([people[n % len(people)]])) for n in range(singles)]) * 1e3
        whole = [answered(caller.ask(people[n * BATCH : (n + 1) * BATCH])) for n in range(batches)]
        begun = time.perf_counter()
        with ThreadPoolExecutor(CALLERS) as pool:
            callers = [Caller(port, token) for _ in range(CALLERS)]
            each = max(1, singles // CALLERS)

            def asking(number: int) -> None:
                for n in range(each):
                    answered(callers[number].ask([people[number * each + n]]))

            list(pool.map(asking, range(CALLERS)))
        together = CALLERS * each / (time.perf_counter() - begun)
    return {
        "median, ms": float(np.median(took)),
        "99 %, ms": float(np.quantile(took, 0.99)),
        "people a second": BATCH / float(np.median(whole)),
        "one by one, 32 callers, a second": together,
    }


def measure_scores(singles: int = 1000, batches: int = 15) -> dict[str, dict[str, float]]:
    """How long does a score on demand take, and how many people a second can be asked about?

    A bank asks and a shop answers; the coordinator keeps the third seat and the hub. Each is a process of its own, as
    `colonnade scores` starts it, and they meet by TLS on loopback. A program asks the bank's interface, on one
    connection that stays open. Seats check each other, as predictions do by default; the shop's count is on disk before
    each answer.
    """
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        house = House.make(Path(folder) / "house")
        for price in PRICES:
            found[price] = ask(house, price, singles, batches)
            print(price, found[price], file=sys.stderr, flush=True)
    return found


def scores_body(found: dict[str, dict[str, float]]) -> str:
    """Every figure, and the worst of them beside what is asked for."""
    keys = list(next(iter(found.values())))
    rows = [[name, *(f"{row[key]:,.1f}" for key in keys)] for name, row in found.items()]
    held = {key: max(row[key] for row in found.values()) for key in ("median, ms", "99 %, ms")}
    held["people a second"] = min(row["people a second"] for row in found.values())
    worst = []
    for key, value in held.items():
        least = key.startswith("people")
        good = value >= ALLOWED[key] if least else value <= ALLOWED[key]
        required = f"at {'least' if least else 'most'} {ALLOWED[key]:,.0f}"
        worst.append([key, f"{value:,.1f}", verdict(good, required)])
    return "\n\n".join([table(["", *keys], rows), table(["the worst of them", "", "asked for"], worst)])


# --- memory and descriptors, study after study


NAMES = (HUB, *PARTIES)
COLOURS = dict(zip(NAMES, ("#8a3b12", "#1f5aa8", "#2d7d46", "#7a4fa3"), strict=True))
FIGURES = {"memory": "resident memory, MB", "descriptors": "open descriptors", "threads": "threads",
           "temporary": "files in the folder for temporary ones"}  # fmt: skip
MATTERS = {"memory": 0.02, "descriptors": 0.01, "threads": 0.01, "temporary": 0.01}
"""What a study may add: 20 KB of memory, or one of the others in a hundred studies."""
Sample = dict[str, dict[str, float]]


def sample(federation: Standing, temporary: Path) -> Sample:
    """What every process holds now, without its children; the folder for temporary files is common to all."""
    found: Sample = {}
    for name, process in federation.running.items():
        status = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
        found[name] = {
            "memory": int(status["VmRSS"].split()[0]) / 1000,
            "descriptors": len(os.listdir(f"/proc/{process.pid}/fd")),
            "threads": int(status["Threads"]),
            "temporary": sum(1 for _ in temporary.rglob("*")),
        }
    return found


def slope(values: list[float]) -> tuple[float, float]:
    """The slope of a line through the second half of the values, and its standard error; both for one study."""
    half = np.array(values[len(values) // 2 :])
    x = np.arange(len(half)) - (len(half) - 1) / 2
    found = float(x @ half / (x @ x))
    left = half - half.mean() - found * x
    return found, float(np.sqrt(left @ left / max(1, len(half) - 2) / (x @ x)))


def is_flat(figure: str, found: tuple[float, float]) -> bool:
    return found[0] <= max(2 * found[1], MATTERS[figure])


def picture(samples: list[Sample]) -> str:
    """A panel for each figure, with a line for each process."""
    wide, tall, left, gap = 720, 150, 60, 34
    body = []
    for place, (figure, title) in enumerate(FIGURES.items()):
        top = place * (tall + gap) + 24
        curves = {name: [one[name][figure] for one in samples] for name in NAMES}
        most = max(1.0, *(max(curve) for curve in curves.values())) * 1.05
        body.append(f'<text x="{left}" y="{top - 8}" class="title">{escape(title)}</text>')
        for part in (0.0, 0.5, 1.0):
            y = top + tall * (1 - part)
            body.append(f'<line x1="{left}" x2="{wide - 90}" y1="{y}" y2="{y}" class="grid"/>')
            body.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{most * part:.0f}</text>')
        for row, (name, curve) in enumerate(curves.items()):
            step = (wide - 90 - left) / max(1, len(curve) - 1)
            spots = " ".join(f"{left + k * step:.1f},{top + tall * (1 - y / most):.1f}" for k, y in enumerate(curve))
            body.append(f'<polyline points="{spots}" stroke="{COLOURS[name]}"/>')
            body.append(f'<text x="{wide - 84}" y="{top + 14 + 16 * row}" fill="{COLOURS[name]}">{name}</text>')
    high = len(FIGURES) * (tall + gap) + 20
    body.append(f'<text x="{left}" y="{high - 8}">studies, 1 to {len(samples)}</text>')
    style = "text{font:12px sans-serif}.title{font-weight:bold}.grid{stroke:#ccc}polyline{fill:none;stroke-width:1.5}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img">'
        "<title>What the processes of a federation hold, study after study</title>"
        f'<style>{style}</style><rect width="{wide}" height="{high}" fill="#fff"/>{"".join(body)}</svg>\n'
    )


def play_studies(
    federation: Standing, studies: int, minutes: float, temporary: Path
) -> tuple[list[Sample], list[float]]:
    """So many studies, one after the other, or fewer: what is held after each, and how long each took."""
    samples: list[Sample] = []
    seconds: list[float] = []
    until = time.monotonic() + 60 * minutes
    for number in range(studies):
        begun = time.monotonic()
        if begun > until and number > 3:
            break
        proposed = federation.propose(federation.study_named(f"small-{number}"))
        ended = federation.wait_all(proposed, "done", "failed", "refused", "expired")
        assert {entry.state for entry in ended.values()} == {"done"}, ended
        seconds.append(time.monotonic() - begun)
        samples.append(sample(federation, temporary))
        print(f"study {number + 1} of {studies}: {seconds[-1]:.1f} s", file=sys.stderr)
    return samples, seconds


def measure_soak(studies: int = 300, minutes: float = 1440.0) -> dict[str, Any]:
    """Studies back to back through the same hub and agents: do memory, descriptors, threads and files stay flat?

    Every study is a proposal of its own, which agents approve by policy. After each one the processes of the hub and of
    the agents are measured. A line is fitted to each figure over the second half of the studies, when everything has
    been used once. It counts as flat where its slope is at most two standard errors above zero, or too small to matter.
    """
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / "tmp"
        temporary.mkdir()
        os.environ["TMPDIR"] = str(temporary)
        how = {"small": True, "approval": "auto-within-budget", "cap": 1_000_000.0}
        with standing(Path(folder) / "federation", **how) as federation:
            samples, seconds = play_studies(federation, studies, minutes, temporary)
    slopes = {
        f"{figure}, {name}": slope([one[name][figure] for one in samples]) for figure in FIGURES for name in NAMES
    }
    wrong = [name for name, found in slopes.items() if not is_flat(name.split(",")[0], found)]
    return {"samples": samples, "seconds": seconds, "slopes": slopes, "wrong": wrong}


def soak_body(found: dict[str, Any]) -> str:
    """How many studies, and every slope."""
    samples, rows = found["samples"], []
    for key, (grown, deviation) in found["slopes"].items():
        figure, name = key.split(", ")
        first, last = (one[name][figure] for one in (samples[0], samples[-1]))
        word = "GROWS" if key in found["wrong"] else "flat"
        slope_words = f"{grown:+.4f} ± {deviation:.4f}"
        rows.append([FIGURES[figure], name, f"{first:.0f}", f"{last:.0f}", slope_words, word])
    said = f"{len(samples)} studies back to back, {float(np.median(found['seconds'])):.1f} s each at the median."
    heads = ("what", "whose", "after the first", "after the last", "slope", "")
    return "\n\n".join([said, table(heads, rows), "![what the processes hold, study after study](soak.svg)"])


def soak_files(found: dict[str, Any]) -> dict[str, str]:
    """The figures of every study, and a picture of them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["study", "seconds", *(f"{name} {figure}" for name in NAMES for figure in FIGURES)])
    for number, (one, took) in enumerate(zip(found["samples"], found["seconds"], strict=True), start=1):
        held = [round(one[name][figure], 3) for name in NAMES for figure in FIGURES]
        writer.writerow([number, round(took, 3), *held])
    return {"soak.csv": text.getvalue(), "soak.svg": picture(found["samples"])}


# --- random kills


FINAL = {"done", "declined", "failed", "expired", "cancelled"}
OPEN = 3
"""Proposals that are kept open while there is killing."""
LONGEST_PAUSE = 12.0
"""Seconds between the moment when all agents are connected again and the next kill; a third of it with --at-once."""
KIND = {"party": "a party's child", "coordinator": "the hub's child", "_assess": "a child that checks"}


@dataclass
class Found:
    """What came of a run."""

    kills: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    sent: int = 0
    charged: int = 0
    results: int = 0
    wrong: list[str] = field(default_factory=list)


def victims(federation: Standing) -> dict[int, tuple[str, str]]:
    """All processes: by number, what each is, and whose."""
    found = {process.pid: ("the hub" if name == HUB else "an agent", name)
             for name, process in federation.running.items()}  # fmt: skip
    for name in tuple(federation.running):
        for pid in federation.children(name):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            found[pid] = (next((KIND[word] for word in words if word in KIND), "another child"), name)
    return found


def kill_one(federation: Standing, rng: random.Random, found: Found) -> None:
    """Kill one process, each kind of them with the same chance; a hub or an agent is started again."""
    there = victims(federation)
    kind = rng.choice(sorted({what for what, _ in there.values()}))
    pid = rng.choice([pid for pid, (what, _) in there.items() if what == kind])
    name = there[pid][1]
    found.kills[kind] += 1
    if kind in ("the hub", "an agent"):
        federation.kill(name)
        federation.start(name)
        return
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        found.kills[kind] -= 1


def hub_states(federation: Standing) -> dict[str, str]:
    """Every proposal's state, as the hub tells the analyst."""
    return {one: study["state"] for one, study in federation.told().items()}


def events(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of an attempt; a line that was cut by a kill is none."""
    path = folder / "events.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def judge(federation: Standing, proposed: list[str], found: Found) -> None:
    """Compare what everybody holds at the end."""
    states = until(lambda: hub_states(federation), "the hub to say how proposals ended")
    charged = {party: _charged(federation, party) for party in PARTIES}
    for party in PARTIES:
        Ledger(federation.ledger(party)).verify()
        found.charged += len(charged[party])
    for one in proposed:
        state = states.get(one, "unknown to the hub")
        found.states[state] += 1
        told = {party: federation.state(party, one) for party in PARTIES}
        same = {state, "refused"} if state == "declined" else {state}  # a party's own no may be a refusal
        if state not in FINAL or not set(told.values()) <= same:
            found.wrong.append(f"{one[:8]}: the hub says {state}, parties say {told}")
        _judge_attempts(federation, one, state, charged, found)


def _judge_attempts(federation: Standing, id: str, state: str, charged: dict[str, set[int]], found: Found) -> None:
    models: dict[int, set[bytes]] = {}
    for number in sorted({attempt.number for party in PARTIES for attempt in federation.store(party).attempts(id)}):
        found.attempts += 1
        records = {party: list(events(_folder(federation, party, id, number))) for party in PARTIES}
        opened = any(line["what"] == "revealed" for record in records.values() for line in record)
        for party, record in records.items():
            entries = [line["entry"] for line in record if line["what"] == "budget reserved"]
            left = opened or any(line["what"] == "first share" for line in record)
            found.sent += left
            if left and not (entries and entries[-1] in charged[party]):
                found.wrong.append(f"{id[:8]}, attempt {number}: shares left {party}, and its ledger does not say so")
            model = _folder(federation, party, id, number) / "model.json"
            if model.exists():
                models.setdefault(number, set()).add(model.read_bytes())
    results = {result for attempt in models.values() for result in attempt}
    found.results += bool(results)
    if len(models) > 1 or len(results) > 1:
        found.wrong.append(f"{id[:8]}: {len(results)} results of {len(models)} attempts")
    if bool(results) != (state == "done"):
        found.wrong.append(f"{id[:8]}: {state}, with {len(results)} results")


def _folder(federation: Standing, party: str, id: str, number: int) -> Path:
    for attempt in federation.store(party).attempts(id):
        if attempt.number == number:
            return attempt.folder
    return federation.folder / "no such attempt"


def _charged(federation: Standing, party: str) -> set[int]:
    """The entries of a ledger that count."""
    ledger = Ledger(federation.ledger(party))
    return {entry.id for entry in ledger.entries() if ledger.state(entry) in ("sent", "committed")}


def play_and_kill(federation: Standing, kills: int, seed: int, at_once: bool, found: Found) -> list[str]:
    """Propose and kill, then let everything end."""
    rng, proposed = random.Random(seed), []  # noqa: S311 - chooses whom to kill
    for number in range(kills):
        alive = [one for one in proposed if any(federation.state(party, one) not in FINAL for party in PARTIES)]
        while len(alive) < OPEN:
            study = federation.study_named(f"small-{len(proposed)}")
            alive.append(federation.propose(study))
            proposed.append(alive[-1])
        if not at_once:
            until(lambda: all(federation.store(party).status().connected for party in PARTIES), "agents to be back")
        time.sleep(rng.uniform(0, LONGEST_PAUSE / 3 if at_once else LONGEST_PAUSE))
        kill_one(federation, rng, found)
        print(f"{number + 1} of {kills} kills, {len(proposed)} proposals", file=sys.stderr)
    for one in proposed:
        federation.wait_all(one, *FINAL, "refused")
    return proposed


def measure_kills(kills: int = 50, seed: int = 21, at_once: bool = False) -> dict[str, Any]:
    """Random SIGKILLs of a standing federation: does every proposal end once, and does every ledger say all that left?

    A hub and three agents run as processes and answer by policy; some proposals are always open. Now and then one
    process is killed, the hub, an agent, or a child of theirs that runs or checks a study, and a hub or an agent is
    started again. At the end everybody must agree how each proposal ended, no study may have two results, and a ledger
    must hold, as sent or spent, every attempt of which shares left: by the attempt's own record, and by others' where
    they opened anything.
    """
    found = Found()
    with tempfile.TemporaryDirectory() as folder:
        how = {"small": True, "approval": "auto-within-budget", "cap": 100_000.0, "agent": "retries = 5\n"}
        with standing(Path(folder) / "federation", **how) as federation:
            judge(federation, play_and_kill(federation, kills, seed, at_once, found), found)
    return asdict(found)


def kills_rows(found: dict[str, Any]) -> Iterator[Row]:
    """What was killed, and what came of it."""
    killed, ended = (
        f"{sum(found[key].values())}: {', '.join(f'{what} {count}' for what, count in found[key].items())}"
        for key in ("kills", "states")
    )
    yield "kills", killed
    yield "proposals, by how they ended", ended
    yield "attempts", str(found["attempts"])
    counted = f"{found['sent']} and {found['charged']}"
    yield "attempts of which a party's shares left, and entries that its ledger counts", counted
    yield "studies with a result, each of one attempt and the same everywhere", str(found["results"])
    yield "what should not be", "; ".join(found["wrong"]) or "nothing"


BENCHMARKS = {
    "scores": Benchmark(
        measure_scores,
        scores_body,
        page="scores_on_demand",
        title="Scores on demand",
        about=f"Questions about one person and about {BATCH:,} people; the table has {ROWS:,} people of two parties. "
        "A question takes four messages in turn: the question, "
        "shares, a comparison among the seats, the opening.",
        help={"singles": "questions about one person", "batches": f"questions about {BATCH:,} people"},
    ),
    "soak": Benchmark(
        measure_soak,
        soak_body,
        page="soak",
        title="A long day of a standing federation",
        about="Studies through the same hub and agents (proposed, checked, approved by policy, run, told). Slopes are "
        "of a line through the second half, for one study, with their standard errors. Flat is at most two of these "
        "above zero, or below 20 KB of memory or a hundredth of anything else for a study.",
        files=soak_files,
        help={"minutes": "begin no study after so many"},
    ),
    "kills": Benchmark(
        measure_kills,
        tabled(kills_rows, ("what", "found")),
        page="kills",
        title="Random kills",
        about="Processes of a [standing federation](../../docs/how-to/agents.md) are killed at random. Every proposal "
        "must end once, and the same for everybody; no study may have two results; and every ledger must say all that "
        f"left its party. A hub and three agents are processes, {OPEN} proposals always open, up to 5 further attempts "
        "each.",
        help={"at_once": "kill on, before agents are connected again"},
    ),
}

if __name__ == "__main__":
    command(__doc__, BENCHMARKS)
