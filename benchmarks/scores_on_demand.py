"""How long does a score on demand take, and how many people a second can be asked about?

A bank asks and a shop answers; the coordinator keeps the third seat and the hub. Each is a process of its own, as
`colonnade federation scores` starts it, and they meet by TLS on loopback. A program asks the bank's interface, on one
connection that stays open. Seats check each other, as predictions do by default; the shop's count is on disk before
each answer. "20 ms away" puts a proxy between each party and the hub that holds every byte for 10 ms in each direction:
a round trip to the hub takes 20 ms, and one from party to party 40 ms.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import asyncio
import contextlib
import http.client
import json
import platform
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from colonnade import Federation, LogisticRegression, Party
from colonnade.cli import initialise
from colonnade.study import Study
from colonnade.tables import population

ROWS = 20_000
SHOWN = Path(__file__).parent / "results" / "scores_on_demand.md"
ALLOWED = {"median, ms": 25.0, "99 %, ms": 100.0, "people a second": 1000.0, "far, median, ms": 150.0}
PRICES = {"exact": ("exact = true\n", ""), "epsilon 2": ("", "[budget]\nepsilon = { bank = 2.0 }\n")}
ONE_WAY = 0.01
BATCH = 1000
OFTEN = {"exact": 10_000, "epsilon 2": 8}
"""How often the shop may be asked about one person: with noise, as its epsilon is reserved for so many."""
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
            model = f'{{ study = "../{study.path.name}", digest = "{study.digest}", per_person = {OFTEN[price]}'
            text += f"\n[agent]\n[agent.scores]\nmodels = [{model}, per_day = 100_000_000 }}]\n"
            path.write_text(text)
            for old in (self.folder / name).glob("ledger.sqlite*"):  # exact answers leave nothing of any cap
                old.unlink()


@contextlib.contextmanager
def far(target: int, one_way: float) -> Iterator[int]:
    """A proxy that holds every byte for a while in each direction; returns its port."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    ports: list[int] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            while data := await reader.read(1 << 16):
                queue.put_nowait((loop.time() + one_way, data))
            queue.put_nowait((loop.time() + one_way, b""))

        reading = loop.create_task(read())
        with contextlib.suppress(ConnectionError):
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        reading.cancel()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_hub = await asyncio.open_connection("127.0.0.1", target)
        for stream in (writer, to_hub[1]):
            stream.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(carry(reader, to_hub[1]), carry(to_hub[0], writer))

    async def serve() -> None:
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()

    def run() -> None:
        loop.create_task(serve())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    yield ports[0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


@contextlib.contextmanager
def standing(house: House, price: str, away: bool) -> Iterator[tuple[int, str, list[str]]]:
    """Three processes with a session open; the port of the interface, the token, and people to ask about."""
    own, api = free_port(), free_port()
    pins = Study.load(house.folder / "keys.toml").content.pins
    with contextlib.ExitStack() as stack:
        dialled = stack.enter_context(far(own, ONE_WAY)) if away else own
        study = house.study("standing", price, dialled, dict(pins))
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


def measure(house: House, price: str, away: bool, singles: int, batches: int) -> dict[str, float]:
    """Figures of one price, near or far."""
    with standing(house, price, away) as (port, token, people):
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


def answered(found: tuple[int, float]) -> float:
    """The seconds of an answer; a benchmark of refusals would measure nothing."""
    status, seconds = found
    if status != 200:
        raise SystemExit(f"a question was answered with status {status}")
    return seconds


def page(found: dict[str, dict[str, float]], singles: int, batches: int) -> str:
    """The figures in markdown."""
    keys = list(next(iter(found.values())))
    lines = [f"| | {' | '.join(keys)} |", "|" + "---|" * (len(keys) + 1)]
    lines += [f"| {name} | {' | '.join(f'{row[key]:,.1f}' for key in keys)} |" for name, row in found.items()]
    table = "\n".join(lines)
    near = [row for name, row in found.items() if "away" not in name]
    away = [row for name, row in found.items() if "away" in name]
    held = {
        "median, ms": max(row["median, ms"] for row in near),
        "99 %, ms": max(row["99 %, ms"] for row in near),
        "people a second": min(row["people a second"] for row in near),
        "far, median, ms": max((row["median, ms"] for row in away), default=0.0),
    }
    said = "\n".join(
        f"| {key} | {value:,.1f} | {'at least' if key.startswith('people') else 'at most'} {ALLOWED[key]:,.0f} |"
        for key, value in held.items()
    )
    return f"""# Scores on demand

Written by `python benchmarks/scores_on_demand.py --write`, on {platform.machine()} with {os.cpu_count()} cores for all
processes and whatever else ran (load {os.getloadavg()[0]:.1f} at the end), Python {platform.python_version()}.
{singles} questions about one person and {batches} about {BATCH:,} people for each row; the table has {ROWS:,} people
of two parties.

{table}

| the worst of them | | asked for |
|---|---|---|
{said}

"20 ms away": every byte between a party and the hub is held for 10 ms in each direction, so a round trip to the hub
takes 20 ms and one between parties 40 ms. A question takes four messages in turn: the question, shares, a
comparison among the seats, the opening.
"""


def main() -> None:
    """Measure, and print the page or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--singles", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=15)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        house = House.make(Path(folder) / "house")
        for away in (False, True):
            for price in PRICES:
                label = price + (", 20 ms away" if away else "")
                found[label] = measure(house, price, away, options.singles, options.batches)
                print(label, found[label], flush=True)
    text = page(found, options.singles, options.batches)
    if options.write:
        SHOWN.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
