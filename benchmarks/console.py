"""How long a page of the console takes for somebody who is signed in, while others hold or flood its connections.

    python -m benchmarks.console

Three attacks from one machine: 1,000 connections on which nothing comes, 1,000 on which a request never ends, and 64
readers that ask for a long page and stop reading; beside each of them one person loads a page 100 times.
"""

from __future__ import annotations

import http.client
import multiprocessing
import resource
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from colonnade.console.hub import HUB_PAGES, HubView
from colonnade.console.server import ConsoleServer, serve_console
from colonnade.federation.members import FederationMembers, HubPart
from colonnade.federation.proposal_store import ProposalStore
from colonnade.study.party_file import ConsoleSection
from colonnade.wire import Identity

LOADS = 100
MANY = 1000
READERS = 64
REOPENED = 200
"""Connections that an attacker opens anew in a second."""


def place(served: ConsoleServer) -> tuple[str, int]:
    """Host and port."""
    return "127.0.0.1", int(served.url.rpartition(":")[2])


def sign_in(served: ConsoleServer) -> str:
    """The cookie of a person who signed in."""
    token = served.link("Ada", "viewer").rpartition("=")[2]
    with closing(http.client.HTTPConnection(*place(served), timeout=60)) as line:
        headers = {"origin": served.url, "content-type": "application/x-www-form-urlencoded"}
        line.request("POST", "/enter", urlencode({"link": token}), headers)
        return line.getresponse().headers["set-cookie"].split(";")[0]


def loads(served: ConsoleServer, cookie: str) -> tuple[list[float], int]:
    """Seconds of each load on a connection of its own, and how many failed."""
    taken, failed = [], 0
    for _ in range(LOADS):
        begun = time.perf_counter()
        try:
            with closing(http.client.HTTPConnection(*place(served), timeout=60)) as line:
                line.request("GET", "/members", headers={"cookie": cookie})
                answer = line.getresponse()
                answer.read()
                failed += answer.status != 200
        except OSError:
            failed += 1
        taken.append(time.perf_counter() - begun)
    return taken, failed


def hold(where: tuple[str, int], said: bytes, count: int, buffer: int | None, ready: Any) -> None:
    """Keep so many connections on which this was said, opened anew when they are closed, until this is ended."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))

    def opened() -> socket.socket:
        line = socket.socket()
        if buffer:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        line.connect(where)
        line.sendall(said)
        line.setblocking(False)
        return line

    alive = [opened() for _ in range(count)]
    ready.set()
    while True:
        time.sleep(0.2)
        again = REOPENED // 5
        for k, line in enumerate(alive):
            try:
                gone = line.recv(1 if buffer else 1 << 16) == b""
            except BlockingIOError:
                continue
            except OSError:
                gone = True
            if gone and again:
                again -= 1
                line.close()
                with suppress(OSError):
                    alive[k] = opened()


@contextmanager
def held(served: ConsoleServer, said: bytes, count: int = MANY, buffer: int | None = None) -> Iterator[None]:
    """Such an attacker, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    attacker = context.Process(target=hold, args=(place(served), said, count, buffer, ready), daemon=True)
    attacker.start()
    try:
        if not ready.wait(120):
            raise RuntimeError("the attacker did not get its connections")
        yield
    finally:
        attacker.terminate()
        attacker.join()


def row(name: str, served: ConsoleServer, cookie: str) -> None:
    """One line of the table."""
    taken, failed = loads(served, cookie)
    median, high, most = (1000 * float(np.quantile(taken, q)) for q in (0.5, 0.99, 1.0))
    print(f"| {name} | {failed} of {LOADS} | {median:.1f} | {high:.1f} | {most:.1f} |")


def main() -> None:
    """Measure."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        key = Identity.create("coordinator").certificate
        members = FederationMembers(
            "a federation", "127.0.0.1:9300", {"coordinator": key}, {"coordinator": "hub"}, None, folder / "F"
        )
        view = HubView(ProposalStore(folder / "hub", members, HubPart()), folder / "results")
        for _ in range(500):
            view.audit.add("Ada", "viewer", "looked", None, "x" * 1000)
        served = serve_console(view, folder / "console", ConsoleSection(listen="127.0.0.1:0"), dict, HUB_PAGES)
        cookie = sign_in(served)
        host = f"127.0.0.1:{place(served)[1]}"
        long_page = f"GET /log HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n".encode()
        print("| beside | failed | median, ms | 99 % below, ms | longest, ms |\n|---|---|---|---|---|")
        row("nobody", served, cookie)
        with held(served, b""):
            row(f"{MANY} idle connections", served, cookie)
        with held(served, b"GET /members HTTP/1.1\r\nHost: "):
            row(f"{MANY} unfinished requests", served, cookie)
        with held(served, long_page * 4, READERS, 4096):
            row(f"{READERS} readers that stop", served, cookie)
        served.stop()


if __name__ == "__main__":
    main()
