"""A console on a real socket: idle connections, slow readers and half requests; and `colonnade console` beside it."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from typer.testing import CliRunner

from colonnade.cli.app import app
from colonnade.cli.console import greeting
from colonnade.console import connections, live
from colonnade.console.guard import HEADERS
from colonnade.console.serve import Served, serve
from colonnade.errors import ConnectError
from colonnade.study import PartyConfig
from colonnade.study.console_part import ConsolePart
from tests.support.errors import raises
from tests.support.waiting import until

from .kit import PAGES, Notebook, shows

LOOPBACK = ConsolePart(listen="127.0.0.1:0")


@pytest.fixture
def desk() -> Notebook:
    return Notebook()


@pytest.fixture
def served(tmp_path: Path, desk: Notebook) -> Iterator[Served]:
    async def scores(request: Request) -> Response:
        return Response(status_code=401)

    route = Route("/v1/scores", scores, methods=["POST"])
    console = serve(desk, tmp_path, LOOPBACK, dict, PAGES, [route])
    yield console
    console.stop()


def place(served: Served) -> tuple[str, int]:
    return "127.0.0.1", int(served.url.rpartition(":")[2])


def connect(served: Served, said: bytes = b"") -> socket.socket:
    line = socket.create_connection(place(served), timeout=60)
    line.sendall(said)
    return line


def ask(served: Served, method: str, path: str, headers: dict[str, str], body: str | None = None) -> tuple[int, str]:
    """Status, and the cookie that was set or the text."""
    with closing(http.client.HTTPConnection(*place(served), timeout=60)) as line:
        line.request(method, path, body, headers)
        answer = line.getresponse()
        text = answer.read().decode()
        return answer.status, answer.headers.get("set-cookie", text).split(";")[0] if answer.status == 303 else text


def cookie(served: Served, link: str | None = None) -> dict[str, str]:
    """Sign in with a link, Ada's if none is given."""
    token = (link or served.link("Ada", "approver")).rpartition("=")[2]
    headers = {"origin": served.url, "content-type": "application/x-www-form-urlencoded"}
    status, found = ask(served, "POST", "/enter", headers, urlencode({"link": token}))
    assert status == 303
    return {"cookie": found}


def get(served: Served, path: str, signed: dict[str, str], more: str = "") -> bytes:
    host, port = place(served)
    return f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {signed['cookie']}\r\n{more}\r\n".encode()


def is_closed(line: socket.socket) -> bool:
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True


def heard(line: socket.socket, word: bytes) -> bytes:
    """What came, up to this word or to the end."""
    got = b""
    while word not in got and (part := line.recv(1 << 16)):
        got += part
    return got


def test_a_console_is_served_its_link_signs_in_and_its_port_is_its_own(served: Served, tmp_path: Path) -> None:
    status, text = ask(served, "GET", "/first", cookie(served))
    assert (status, "Signed in as Ada" in text) == (200, True)
    with raises(ConnectError, "CN005"):
        serve(Notebook(), tmp_path, ConsolePart(listen=f"127.0.0.1:{place(served)[1]}"), dict, PAGES)
    other = serve(Notebook(name="shop"), tmp_path / "other", LOOPBACK, dict, PAGES)
    names = {entry["cookie"].partition("=")[0] for entry in (cookie(served), cookie(other))}
    other.stop()
    assert len(names) == 2, "two consoles of a machine keep their cookies apart"


def test_strangers_make_room_and_people_who_signed_in_do_not(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 3600)  # the oldest make room, however long they may stay
    signed, halves = cookie(served), [b"GET /first HT" if number % 2 else b"" for number in range(30)]
    with closing(http.client.HTTPConnection(*place(served), timeout=60)) as kept, ExitStack() as opened:
        for strangers in (halves, []):
            kept.request("GET", "/first", headers=signed)
            answer = kept.getresponse()
            assert (answer.status, bool(answer.read())) == (200, True)
            lines = [opened.enter_context(connect(served, half)) for half in strangers]
            assert ask(served, "GET", "/first", signed)[0] == 200, "nobody is kept out"
            assert all(is_closed(line) for line in lines[:20])


def test_half_a_request_is_not_waited_for(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.2)
    for begun in (b"", b"GET /first HTTP/1.1\r\nHost: ", b"GET /enter HTTP/1.1\r\nHost: x\r\n\r\nGET /"):
        with connect(served, begun) as line:
            answer = line.recv(1 << 16) if b"\r\n\r\n" in begun else b""
            assert b"421" in answer or not answer
            while not is_closed(line):
                pass


def test_readers_that_stop_are_not_waited_for(served: Served, desk: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READING_SECONDS", 0.2)
    signed, cut, abort = cookie(served), threading.Event(), connections.Connection.connection_lost

    def lost(connection: connections.Connection, error: Exception | None) -> None:
        abort(connection, error)
        if connection._reader_due is not None:
            cut.set()

    monkeypatch.setattr(connections.Connection, "connection_lost", lost)
    for _ in range(500):
        desk.log("Ada", "approver", "wrote", None, "x" * 3000)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(60)
        line.connect(place(served))
        line.sendall(get(served, "/log", signed) * 8)
        assert cut.wait(60)
        assert ask(served, "GET", "/first", signed)[0] == 200
        got = 0
        try:
            while part := line.recv(1 << 16):
                got += len(part)
        except ConnectionResetError:
            pass
        assert got < 8 * 1_500_000, "it was cut off"


def test_what_is_no_request_is_refused_with_the_headers(served: Served) -> None:
    for wrong in (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost : b\r\n\r\n"):
        with connect(served, wrong) as line:
            answer = heard(line, b"never").decode()
        assert answer.startswith("HTTP/1.1 400")
        shows(answer, *(f"{name}: {value}" for name, value in HEADERS.items()))
    with connect(served, b"GET / HTTP/1.1\r\nX: " + b"x" * (1 << 18)) as line:
        assert line.recv(1 << 16).startswith(b"HTTP/1.1 400")
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": "x", "sec-websocket-version": "13"}
    assert ask(served, "GET", "/events", upgrade | {"origin": "http://evil.example"})[0] == 303
    host, port = place(served)
    head = f"POST /v1/scores HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {1 << 30}\r\n\r\n"
    with connect(served, head.encode() + b"x" * 1000) as line:  # without a token: the rest is not waited for
        assert line.recv(1 << 12).startswith(b"HTTP/1.1 401")


def test_pages_hear_of_changes_and_of_those_they_missed(served: Served, desk: Notebook) -> None:
    signed = cookie(served)
    with connect(served, get(served, "/events", signed)) as line:
        first = heard(line, b"id: ")
        shows(first.decode(), "text/event-stream", "cache-control: no-store")
        known = first.partition(b"id: ")[2].split()[0].decode()
        desk.state = "busy"
        assert b"event: change" in heard(line, b"data: ")
    desk.state = "other"
    with connect(served, get(served, "/events", signed, f"Last-Event-ID: {known}\r\n")) as line:
        assert b"event: change" in heard(line, b"data: ")


def test_streams_are_few_even_if_they_arrive_together_and_end_with_the_session(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_STILL", 0.1)
    signed = cookie(served)
    asked = get(served, "/events", signed)

    def status(line: socket.socket) -> bytes:
        return heard(line, b"\r\n").split()[1]

    with ExitStack() as opened:
        streams = [opened.enter_context(connect(served, asked)) for _ in range(3 * live.MOST_PER_SESSION)]
        answers = Counter(map(status, streams))
    assert answers == {b"200": live.MOST_PER_SESSION, b"429": 2 * live.MOST_PER_SESSION}

    def again() -> socket.socket | None:
        line = connect(served, asked)
        if status(line) == b"200":
            return line
        line.close()
        return None

    with until(again, "those that were closed are noticed at their next word") as stream:
        session = served.access.session(signed["cookie"].partition("=")[2])
        served.access.leave(session)
        assert b"0\r\n\r\n" in heard(stream, b"0\r\n\r\n"), "the stream ends"


# --- the command

PARTY = """
name = "bank"
data = "bank.csv"
id = "person_id"
key = "bank.key"
ledger = "ledger.sqlite"
[policy]
tasks = ["pca"]
columns = "all"
budget = { epsilon = 1.0, delta = 1e-6 }
[agent]
%s
"""


def party(folder: Path, agent: str) -> Path:
    path = folder / "bank.toml"
    path.write_text(PARTY % agent)
    return path


def run(*words: object) -> str:
    """What a command has printed, or its error."""
    found = CliRunner().invoke(app, ["console", *map(str, words)])
    return str(found.exception) if found.exception else found.stdout


def test_a_link_is_made_while_the_console_runs(tmp_path: Path) -> None:
    path, folder = party(tmp_path, 'console = "127.0.0.1:0"'), tmp_path / "agent" / "console"
    folder.mkdir(parents=True)
    for left in ("", "http://127.0.0.1:1 127.0.0.1 1"):  # nothing, or what an agent left that was killed
        (folder / "address").write_text(left)
        shows(run(path, "--link"), "start its agent")
    part = PartyConfig.load(path).standing.console
    assert part
    console = serve(Notebook(), folder, part, dict, PAGES)
    try:
        link = json.loads(run(path, "--link", "--person", "Vera", "--role", "viewer", "--json"))["link"]
        assert link.startswith(f"{console.url}/enter?link=")
        signed = cookie(console, link)
        shows(ask(console, "GET", "/first", signed)[1], "Signed in as Vera (viewer)")
        assert [each["person"] for each in json.loads(run(path, "--json"))["signed in"]] == ["Vera"]
        assert json.loads(run(path, "--end-sessions", "--json"))["ended"] == 1
        assert ask(console, "GET", "/first", signed)[0] == 303
        told = greeting(console, path)
        assert ("--link" in told, "link=" in told) == (True, False), "standard output may be a log here"
        for name in ("", " ", "a\nb", "x" * 81):
            shows(run(path, "--link", "--person", name), "one short line")
    finally:
        console.stop()


@pytest.mark.parametrize(
    ("agent", "complaint"),
    [
        ('console = "0.0.0.0:8471"', "loopback"),
        ('console = "localhost:8471"', "an address and a port"),
        ('console = "127.0.0.1"', "an address and a port"),
        ('[agent.console]\nlisten = "10.0.0.1:8471"\ntls = true', "hosts"),
        ('[agent.console]\nhosts = ["*"]', "names as a browser shows them"),
        ('[agent.console]\ntrust_header = "X Remote"', "trust_header"),
        ('[agent.console]\ntrust_header = "X-Remote-User"\nfrom = ["everywhere"]', "addresses or networks"),
        ('[agent.people]\nada = "owner"', "approver"),
        ('federation = "FEDERATION.toml"', "names no console"),
    ],
)
def test_what_a_party_file_may_not_say(tmp_path: Path, agent: str, complaint: str) -> None:
    refused = run(party(tmp_path, agent))
    shows(refused, complaint)
    assert not re.search("Traceback|pydantic", refused)


def test_a_console_behind_a_proxy(tmp_path: Path) -> None:
    text = '[agent.console]\nlisten = "0.0.0.0:8471"\ntls = true\nhosts = ["Console.Example.org"]\n'
    text += 'trust_header = "X-Remote-User"\nfrom = ["10.0.0.7"]\n[agent.people]\nada = "approver"'
    agent = PartyConfig.load(party(tmp_path, text)).standing
    assert agent.console
    assert (agent.console.names(8471), agent.people) == (("console.example.org",), {"ada": "approver"})
