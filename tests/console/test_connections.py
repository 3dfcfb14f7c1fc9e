"""A console on a real socket: idle connections, slow readers and half requests, and people who go on beside them."""

from __future__ import annotations

import http.client
import resource
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from colonnade.console import connections, live
from colonnade.console.guard import HEADERS
from colonnade.console.serve import Served, serve
from colonnade.errors import ConnectError
from colonnade.study.console_part import ConsolePart
from tests.support.errors import raises

from .kit import PAGES, Notebook


@pytest.fixture
def desk() -> Notebook:
    return Notebook()


@pytest.fixture
def served(tmp_path: Path, desk: Notebook) -> Iterator[Served]:
    console = serve(desk, tmp_path, ConsolePart(listen="127.0.0.1:0"), dict, PAGES)
    yield console
    console.stop()


def place(served: Served) -> tuple[str, int]:
    return "127.0.0.1", int(served.url.rpartition(":")[2])


def ask(served: Served, method: str, path: str, headers: dict[str, str], body: str | None = None) -> tuple[int, str]:
    """Status, and the cookie that was set or the text."""
    with closing(http.client.HTTPConnection(*place(served), timeout=30)) as line:
        line.request(method, path, body, headers)
        answer = line.getresponse()
        text = answer.read().decode()
        return answer.status, answer.headers.get("set-cookie", text).split(";")[0] if answer.status == 303 else text


def cookie(served: Served) -> dict[str, str]:
    link = served.link("Ada", "approver")
    token = link.rpartition("=")[2]
    headers = {"origin": served.url, "content-type": "application/x-www-form-urlencoded"}
    status, found = ask(served, "POST", "/enter", headers, urlencode({"link": token}))
    assert status == 303
    return {"cookie": found}


def is_closed(line: socket.socket) -> bool:
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_console_is_served_and_its_link_signs_in(served: Served) -> None:
    status, text = ask(served, "GET", "/first", cookie(served))
    assert status == 200
    assert "Signed in as Ada" in text


def test_a_port_that_is_taken_is_said_so(served: Served, tmp_path: Path) -> None:
    taken = ConsolePart(listen=f"127.0.0.1:{place(served)[1]}")
    with raises(ConnectError, "CN005"):
        serve(Notebook(), tmp_path, taken, dict, PAGES)


def test_two_consoles_of_a_machine_keep_their_cookies_apart(served: Served, tmp_path: Path) -> None:
    other = serve(Notebook(name="shop"), tmp_path / "other", ConsolePart(listen="127.0.0.1:0"), dict, PAGES)
    try:
        names = {entry["cookie"].partition("=")[0] for entry in (cookie(served), cookie(other))}
    finally:
        other.stop()
    assert len(names) == 2


def test_a_thousand_open_connections_keep_nobody_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 3600)  # the oldest make room, however long they may stay
    signed = cookie(served)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        with ExitStack() as open_lines:
            lines = []
            for number in range(1000):
                line = open_lines.enter_context(socket.create_connection(place(served), timeout=30))
                line.sendall(b"GET /first HT" if number % 2 else b"")
                lines.append(line)
            for _ in range(10):
                assert ask(served, "GET", "/first", signed)[0] == 200
            assert all(is_closed(line) for line in lines[: 1000 - connections.MOST_CONNECTIONS])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_strangers_make_room_and_people_who_signed_in_do_not(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 8)
    signed = cookie(served)
    with closing(http.client.HTTPConnection(*place(served), timeout=30)) as kept, ExitStack() as open_lines:
        kept.request("GET", "/first", headers=signed)
        assert kept.getresponse().read()
        for _ in range(30):
            open_lines.enter_context(socket.create_connection(place(served), timeout=30))
        kept.request("GET", "/first", headers=signed)
        assert kept.getresponse().status == 200


def test_half_a_request_is_not_waited_for(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.2)
    for begun in (b"", b"GET /first HTTP/1.1\r\nHost: ", b"GET /enter HTTP/1.1\r\nHost: x\r\n\r\nGET /"):
        with socket.create_connection(place(served), timeout=30) as line:
            line.sendall(begun)
            answer = b"" if not begun.count(b"\r\n\r\n") else line.recv(1 << 16)
            assert b"421" in answer or not answer
            while not is_closed(line):
                pass


def test_readers_that_stop_are_not_waited_for(served: Served, desk: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READING_SECONDS", 0.2)
    signed = cookie(served)
    for _ in range(500):
        desk.log("Ada", "approver", "wrote", None, "x" * 3000)
    host, port = place(served)
    ask_log = f"GET /log HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {signed['cookie']}\r\n\r\n".encode()
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(30)
        line.connect((host, port))
        line.sendall(ask_log * 8)
        time.sleep(1)
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
        with socket.create_connection(place(served), timeout=30) as line:
            line.sendall(wrong)
            answer = b"".join(iter(lambda: line.recv(1 << 16), b"")).decode()
        assert answer.startswith("HTTP/1.1 400")
        assert all(f"{name}: {value}" in answer for name, value in HEADERS.items())


def test_long_headers_and_web_sockets_are_refused(served: Served) -> None:
    host, port = place(served)
    with socket.create_connection((host, port), timeout=30) as line:
        line.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * (1 << 18))
        answer = line.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 400")
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": "x", "sec-websocket-version": "13"}
    assert ask(served, "GET", "/events", upgrade | {"origin": "http://evil.example"})[0] == 303


def test_what_is_sent_without_a_token_is_not_waited_for(tmp_path: Path) -> None:
    async def scores(request: Request) -> Response:
        return Response(status_code=401)

    route = Route("/v1/scores", scores, methods=["POST"])
    console = serve(Notebook(), tmp_path, ConsolePart(listen="127.0.0.1:0"), dict, PAGES, [route])
    try:
        host, port = place(console)
        with socket.create_connection((host, port), timeout=60) as line:
            head = f"POST /v1/scores HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {1 << 30}\r\n\r\n"
            line.sendall(head.encode() + b"x" * 1000)
            assert line.recv(1 << 12).startswith(b"HTTP/1.1 401")
    finally:
        console.stop()


def events(served: Served, signed: dict[str, str], last: str | None = None) -> socket.socket:
    host, port = place(served)
    line = socket.create_connection((host, port), timeout=30)
    more = f"Last-Event-ID: {last}\r\n" if last else ""
    line.sendall(f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {signed['cookie']}\r\n{more}\r\n".encode())
    return line


def heard(line: socket.socket, word: bytes) -> bytes:
    """What came, up to this word or to the end."""
    got = b""
    while word not in got and (part := line.recv(1 << 16)):
        got += part
    return got


def test_pages_hear_of_changes_and_of_those_they_missed(served: Served, desk: Notebook) -> None:
    signed = cookie(served)
    with events(served, signed) as line:
        first = heard(line, b"id: ")
        assert b"text/event-stream" in first
        assert b"cache-control: no-store" in first
        known = first.partition(b"id: ")[2].split()[0].decode()
        desk.state = "busy"
        assert b"event: change" in heard(line, b"data: ")
    desk.state = "other"
    with events(served, signed, known) as line:
        assert b"event: change" in heard(line, b"data: ")


def test_streams_that_arrive_together_are_as_few(served: Served) -> None:
    signed = cookie(served)
    with ExitStack() as lines:
        streams = [lines.enter_context(events(served, signed)) for _ in range(3 * live.MOST_PER_SESSION)]
        answers = [heard(stream, b"\r\n").split()[1] for stream in streams]
    assert Counter(answers) == {b"200": live.MOST_PER_SESSION, b"429": 2 * live.MOST_PER_SESSION}
    until = time.monotonic() + 60
    while True:  # those that were closed are noticed at their next word
        with events(served, signed) as line:
            if heard(line, b"\r\n").split()[1] == b"200":
                break
        assert time.monotonic() < until
        time.sleep(0.1)


def test_streams_are_few_and_end_with_the_session(
    served: Served, desk: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_STILL", 0.1)
    signed = cookie(served)
    with ExitStack() as lines:
        streams = [lines.enter_context(events(served, signed)) for _ in range(live.MOST_PER_SESSION)]
        for stream in streams:
            assert b"200" in heard(stream, b"retry")
        beyond = lines.enter_context(events(served, signed))
        assert beyond.recv(1 << 12).startswith(b"HTTP/1.1 429")
        session = served.access.session(signed["cookie"].partition("=")[2])
        assert session is not None
        served.access.leave(session)
        assert b"0\r\n\r\n" in heard(streams[0], b"0\r\n\r\n"), "the stream ends"
