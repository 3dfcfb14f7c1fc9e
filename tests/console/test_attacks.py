"""What other sites, other people and other machines try on a console: none of it comes through, nor waits for long."""

from __future__ import annotations

import asyncio
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

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Scope
from typer.testing import CliRunner

from colonnade.cli.app import app
from colonnade.cli.console_commands import greeting, whose
from colonnade.console import app as live
from colonnade.console.access import (
    IDLE_SECONDS,
    LINK_SECONDS,
    MOST_SESSIONS,
    SESSION_SECONDS,
    AccessControl,
    TrustedHeader,
)
from colonnade.console.app import ConsoleServer, access_control_of, make_app, serve_console
from colonnade.console.security_middleware import HEADERS, LARGEST_FORM
from colonnade.errors import ConnectError
from colonnade.federation.members import FederationMembers
from colonnade.study import PartyConfig
from colonnade.study.party_file import ConsoleRole, ConsoleSection
from tests.federation.club import club
from tests.support.errors import raises
from tests.support.waiting import until

from .kit import (
    BY_PROXY,
    HOST,
    ORIGIN,
    OURS,
    PAGES,
    SECRET,
    Hands,
    Notebook,
    TestClient,
    access,
    browser,
    console,
    csrf,
    hides,
    shows,
    signed_in,
)  # fmt: skip

PROXY = TrustedHeader("X-Remote-User", ("192.0.2.7", "2001:db8::/64"))
OVER_TLS = {"x-forwarded-proto": "https"}
ADA = {"x-remote-user": "Ada", **BY_PROXY}


def asked(method: str, path: str, **headers: str) -> Scope:
    named = {"host": HOST, **headers}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8471),
    }


@pytest.fixture
def view() -> Notebook:
    return Notebook()


@pytest.fixture
def keys(tmp_path: Path) -> AccessControl:
    return access(tmp_path)


@pytest.fixture
def ada(keys: AccessControl, view: Notebook) -> TestClient:
    return signed_in(console(keys, view))


def enter(keys: AccessControl, link: str, **headers: str) -> httpx.Response:
    return browser(console(keys)).post("/login", data={"link": link}, headers=OURS | headers)


def test_a_link_works_once_and_for_ten_minutes_and_no_other_text_is_one(tmp_path: Path) -> None:
    clock = Hands()
    keys = access(tmp_path, clock)
    link = keys.link("Ada", "approver")
    assert len(link) * 4 >= 128
    for _ in range(3):  # whoever looks ahead at a link uses nothing up
        shows(browser(console(keys)).get(f"/login?link={link}").text, link)
    for wrong in ("", "0" * 32, "' or 1=1 --", "\N{SNOWMAN}", "%00"):
        assert enter(keys, wrong).status_code == 403
    flags = enter(keys, link).headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/"} <= {flag.strip() for flag in flags.split(";")}
    hides(flags, "domain")
    replayed = enter(keys, link)
    assert (replayed.status_code, "set-cookie" in replayed.headers) == (403, False)
    late = keys.link("Ada", "approver")
    for passed in (LINK_SECONDS + 1, -LINK_SECONDS):  # then it was used up
        clock.now += passed
        assert enter(keys, late).status_code == 403
    tls = AccessControl(tmp_path / "tls", ("console.example.org",), secure=True, secret=SECRET)
    named = {"host": "console.example.org", "origin": "https://console.example.org"} | BY_PROXY | OVER_TLS
    said = enter(tls, tls.link("Ada", "viewer"), **named).headers["set-cookie"]
    assert (said.partition("=")[0], "; secure" in said.lower()) == ("__Host-colonnade", True)


def test_tokens_are_not_on_disk(tmp_path: Path, keys: AccessControl, ada: TestClient) -> None:
    link = keys.link("Ada", "viewer")
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"Ada" in held
    assert not any(secret.encode() in held for secret in (ada.cookies[keys.cookie], link))
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_a_session_is_never_one_that_somebody_chose(keys: AccessControl) -> None:
    """Session fixation: whoever brings a cookie gets a new one, and the old one is worth nothing."""
    old = signed_in(console(keys), person="Mallory").cookies[keys.cookie]
    for chosen in ("chosen", old):
        victim = browser(console(keys))
        victim.cookies.set(keys.cookie, chosen)
        answer = victim.post("/login", data={"link": keys.link("Ada", "approver")}, headers=OURS)
        assert keys.cookie in answer.headers["set-cookie"]
        assert keys.session(chosen) is None


def test_sessions_end(tmp_path: Path) -> None:
    clock = Hands()
    keys = access(tmp_path, clock)
    app = console(keys)
    client = signed_in(app)
    clock.now += IDLE_SECONDS + 1
    assert client.get("/first").status_code == 303
    client = signed_in(app)
    for _ in range(SESSION_SECONDS // (IDLE_SECONDS - 1) + 1):
        assert client.get("/first").status_code == 200
        clock.now += IDLE_SECONDS - 1
    assert client.get("/first").status_code == 303, "however often it is used"
    client = signed_in(app, "viewer")
    cookie, token = client.cookies[keys.cookie], {"csrf": csrf(client)}
    assert client.post("/first", data=token | {"what": "approved"}, headers=OURS).status_code == 403
    assert client.post("/logout", data=token, headers=OURS).status_code == 303, "all that a viewer may do"
    assert keys.session(cookie) is None
    first = signed_in(app)
    for _ in range(MOST_SESSIONS):
        clock.now += 1
        signed_in(app)
    assert first.get("/first").status_code == 303
    assert len(keys.sessions()) == MOST_SESSIONS


def test_whoever_is_not_signed_in_sees_nothing(tmp_path: Path) -> None:
    client = browser(console(access(tmp_path)))
    for path in ("/", "/first", "/audit-log", "/events", "/nowhere"):
        answer = client.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login?next=/")
    assert client.post("/first", data={"what": "x"}, headers=OURS).status_code == 401
    client.cookies.set("colonnade", "x" * 32)
    assert client.get("/first").status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": f"https://{HOST}"},
        {"origin": "http://127.0.0.1:8472"},
        {"origin": f"http://{HOST}.evil.example"},
        {"origin": f"http://{HOST}@evil.example"},
        {"origin": ORIGIN, "sec-fetch-site": "cross-site"},
        {"origin": ORIGIN, "sec-fetch-site": "same-site"},
    ],
)
def test_other_sites_cannot_send_forms(
    keys: AccessControl, ada: TestClient, view: Notebook, headers: dict[str, str]
) -> None:
    assert ada.post("/first", data={"csrf": csrf(ada), "what": "approved"}, headers=headers).status_code == 403
    assert [click.what for click in view.written] == ["signed in"]
    link = keys.link("Mallory", "approver")
    assert ada.post("/login", data={"link": link}, headers=headers).status_code == 403, "nor sign anybody in"


def test_a_form_carries_the_token_of_its_session(keys: AccessControl, ada: TestClient, view: Notebook) -> None:
    bob = signed_in(console(keys, view), person="Bob")
    forms = [{"data": {"csrf": token, "what": "approved"}} for token in ("", "x", csrf(bob), "\N{SNOWMAN}")]
    forms += [{"data": {"what": "approved"}}, {"content": b"\xff\xfe"}, {"content": b"&".join([b"a=1"] * 200)}]
    for form in forms:
        assert ada.post("/first", headers=OURS, **form).status_code == 403
    assert {click.what for click in view.written} == {"signed in"}
    assert ada.post("/first", data={"csrf": csrf(ada), "what": "approved"}, headers=OURS).status_code == 200
    assert view.written[0].what == "approved"
    assert csrf(ada) != ada.cookies["colonnade"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8471", "127.0.0.1", "127.0.0.1:8472", "", HOST + "."])
def test_names_that_resolve_to_this_machine_lead_nowhere(ada: TestClient, host: str) -> None:
    """DNS rebinding: a page of another site asks its own name, which now has this machine's address."""
    for path in ("/first", "/static/style.css", "/login", "/v1/scores", "/events"):
        answer = ada.get(path, headers={"host": host})
        assert (answer.status_code, "Ada" in answer.text) == (421, False)
    assert ada.post("/first", headers={"host": host, "origin": f"http://{host}"}).status_code == 421


def test_who_is_taken_out_of_the_file_is_out_at_once_and_all_sessions_can_be_ended(tmp_path: Path) -> None:
    people: dict[str, ConsoleRole] = {"Ada": "approver"}
    keys = AccessControl(tmp_path, (HOST,), lambda: people, PROXY, clock=Hands(), secret=SECRET)
    client = browser(console(keys), "192.0.2.7")
    token, session = csrf(client, **ADA), keys.by_proxy("192.0.2.7", "Ada")
    assert keys.is_current(session)
    keys.sign_out_all()
    assert not keys.is_current(session)
    sent = client.post("/first", data={"csrf": token, "what": "approved"}, headers=OURS | ADA)
    assert sent.status_code == 403, "a form from before"
    assert client.get("/first", headers=ADA).status_code == 200, "the proxy still lets her in, as the command says"
    session = keys.by_proxy("192.0.2.7", "Ada")
    assert keys.is_current(session)
    people["Ada"] = "viewer"
    shows(client.get("/first", headers=ADA).text, "Signed in as Ada (viewer).")
    assert not keys.is_current(session), "open pages end with the role"
    people.clear()
    assert client.get("/first", headers=ADA).status_code == 303


def test_a_header_is_believed_from_the_proxy_alone(tmp_path: Path, view: Notebook) -> None:
    keys = access(tmp_path, header=PROXY, Ada="approver", Vera="viewer")
    app = console(keys, view)
    for address in ("127.0.0.1", "192.0.2.8", "::1", "testclient"):
        forged = browser(app, address)
        assert forged.get("/first", headers=ADA | {"x-forwarded-for": "192.0.2.7"}).status_code == 303
    proxy = browser(app, "192.0.2.7")
    shows(proxy.get("/first", headers=ADA).text, "Signed in as Ada (approver).")
    assert browser(app, "2001:db8::9").get("/first", headers=ADA).status_code == 200
    assert proxy.get("/first", headers=ADA | {"x-remote-user": "Mallory"}).status_code == 303, "nobody of ours"
    assert proxy.get("/first", headers=[("x-remote-user", "Vera"), *ADA.items()]).status_code == 303
    token = {"csrf": csrf(proxy, **ADA)}
    for headers, fields, status in ((ADA, token, 200), (ADA | {"x-remote-user": "Vera"}, token, 403), (ADA, {}, 403)):
        answer = proxy.post("/first", data={"what": "approved", **fields}, headers=headers | OURS)
        assert answer.status_code == status
    assert [click.who for click in view.written] == ["Ada"]
    proxy.cookies.set(keys.cookie, "0" * 32)  # an old one
    assert proxy.get("/first").status_code == 303
    shows(proxy.get("/first", headers=ADA).text, "Signed in as Ada (approver).")
    proxy.cookies.clear()
    proxy.post("/login", data={"link": keys.link("Vera", "viewer")}, headers=OURS)
    shows(proxy.get("/first", headers=ADA).text, "Signed in as Vera (viewer).")  # a session that goes on comes first
    alone = browser(console(access(tmp_path / "alone", Ada="approver")))
    assert alone.get("/first", headers=ADA).status_code == 303, "without a proxy a header says nothing"


@pytest.mark.parametrize(
    "shown", [[], [("x-colonnade-proxy", "")], [("x-colonnade-proxy", "6" * 64)], 2 * [*BY_PROXY.items()]], ids=len
)
@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::9"])
def test_a_local_program_at_the_address_of_the_proxy_signs_in_as_nobody(
    tmp_path: Path, address: str, shown: list[tuple[str, str]]
) -> None:
    for secret in (SECRET, ""):  # without a secret the header is never believed
        keys = AccessControl(tmp_path / secret, (HOST,), lambda: {"Ada": "approver"}, PROXY, secret=secret)
        program = browser(console(keys), address)
        assert program.get("/first", headers=[("x-remote-user", "Ada"), *shown]).status_code == 303


def test_with_tls_plain_http_is_not_answered(tmp_path: Path, view: Notebook) -> None:
    """Neither to a program that asks the port itself, nor to a browser that came to the proxy without TLS."""
    tls = AccessControl(tmp_path, ("console.example.org",), secure=True, secret=SECRET)
    link, named = tls.link("Ada", "approver"), {"host": "console.example.org"}
    app = console(tls, view)
    plain = ({}, OVER_TLS, BY_PROXY, BY_PROXY | {"x-forwarded-proto": "http"})
    for given in plain:
        for path in ("/first", "/login", "/metrics", "/health", "/static/style.css", "/v1/scores"):
            answer = browser(app).get(path, headers=named | given)
            assert (answer.status_code, "CO781" in answer.text) == (403, True), (path, given)
        assert enter(tls, link, **named, **given).status_code == 403
    over = named | BY_PROXY | OVER_TLS | {"origin": "https://console.example.org"}
    signed = browser(app).post("/login", data={"link": link}, headers=over).headers["set-cookie"].partition(";")[0]
    assert browser(app).get("/first", headers=over | {"cookie": signed}).status_code == 200


def test_no_path_leads_to_another_file(ada: TestClient) -> None:
    tried = ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "....//app.py", "%2fetc%2fpasswd", "style.css%00.html"]
    for path in ("/static", *(f"/static/{name}" for name in (*tried, "base.html", ""))):
        answer = ada.get(path)
        assert answer.status_code == 404, path
        hides(answer.text, "import", "root:")


def test_signing_in_leads_nowhere_else(keys: AccessControl) -> None:
    for where in ("//evil.example", "/\\evil.example", "https://evil.example", "/\nx", "javascript:1"):
        fields = {"link": keys.link("Ada", "viewer"), "next": where}
        assert browser(console(keys)).post("/login", data=fields, headers=OURS).headers["location"] == "/"


def test_long_bodies_and_other_methods_are_refused(ada: TestClient, view: Notebook) -> None:
    long = {"csrf": csrf(ada), "what": "x" * (LARGEST_FORM + 1)}
    assert ada.post("/first", data=long, headers=OURS).status_code == 413
    assert ada.post("/v1/scores", content=b"{}", headers={"origin": "http://evil.example"}).status_code == 403
    assert len(view.written) == 1
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"):
        answer = ada.request(method, "/first", headers=OURS)
        assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (405, False), method


def test_whoever_hangs_up_leaves_nothing_behind(keys: AccessControl, caplog: pytest.LogCaptureFixture) -> None:
    """Half a form, or a stream before its first word; then the connection ends."""
    app = console(keys)
    token = signed_in(app).cookies["colonnade"]
    left: list[Message] = [{"type": "http.request", "body": b"link=", "more_body": True}]
    sent: list[Message] = []
    seen: list[int] = []

    async def receive() -> Message:
        return left.pop() if left else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def broken(message: Message) -> None:
        seen.append(app.app.state.pulse.listeners.total())
        raise OSError

    asyncio.run(app(asked("POST", "/login", origin=ORIGIN), receive, send))
    assert (sent[0]["status"], caplog.records) == (413, [])
    asyncio.run(app(asked("GET", "/events", cookie=f"colonnade={token}"), receive, broken))
    assert (seen[0], app.app.state.pulse.listeners.total()) == (1, 0)


def test_every_response_carries_the_headers_and_none_is_kept(keys: AccessControl, ada: TestClient) -> None:
    paths = ("/", "/first", "/audit-log", "/login", "/nowhere", "/static/style.css", "/static/live.js")
    answers = [
        *(ada.get(path) for path in paths),
        ada.get("/first", headers={"host": "evil.example"}),
        ada.post("/first", headers=OURS),
        ada.post("/first"),
        ada.put("/first"),
        ada.post("/v1/scores", content=b"{}"),
        ada.post("/login", data={"link": keys.link("Ada", "viewer")}, headers=OURS),
    ]
    assert {answer.status_code for answer in answers} == {200, 303, 403, 404, 405, 421}
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS, answer.url
        assert "server" not in answer.headers
    assert not re.search(r"unsafe|\*|https?:", HEADERS["content-security-policy"])


def test_no_template_holds_script_or_style_of_its_own() -> None:
    folder = Path(__file__).parents[2] / "src" / "colonnade" / "console" / "templates"
    for template in folder.rglob("*.html"):
        text = template.read_text(encoding="utf-8")
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|\|\s*safe\b|autoescape", text), template.name
        assert re.findall("<script[^>]*>", text) == (
            ['<script src="/static/live.js" defer>'] if template.name == "base.html" else []
        )
        for post in re.split(r"<form", text)[1:]:
            if 'method="post"' in post and 'action="/login"' not in post:
                assert re.search(r"token\(session\)|session\.csrf", post.split("</form>")[0]), template.name


def test_a_fault_of_a_page_tells_nothing(ada: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    answer = ada.post("/first", data={"csrf": csrf(ada), "secret": "4711"}, headers=OURS)
    assert answer.status_code == 500
    hides(answer.text, "4711", "KeyError")
    shows(caplog.text, "KeyError")
    hides(caplog.text, "4711")
    assert answer.headers["content-security-policy"]


def test_names_full_of_markup_stay_text(keys: AccessControl) -> None:
    bad = '"><script>alert(1)</script>\u202e'
    view = Notebook(name=bad, stands=(False, bad))
    client = signed_in(console(keys, view), person=bad)
    view.add(bad, "approver", bad, bad, bad)
    for path in ("/first", "/audit-log", "/nowhere"):
        text = client.get(path).text
        shows(text, "&lt;script&gt;alert")
        hides(text, "<script>alert", "\u202e")


def test_whoever_watches_the_process_needs_no_session_and_learns_no_more(keys: AccessControl) -> None:
    app = make_app(Notebook(), keys, PAGES, metrics=lambda _: (b"colonnade_up 1\n", "text/plain; version=0.0.4"))
    assert [browser(app).get(path).text for path in ("/health", "/metrics")] == [
        "serving\n",
        "colonnade_up 1\n",
    ]
    assert browser(console(keys)).get("/metrics").status_code == 404


# --- on a real socket: idle connections, slow readers and half requests; and the command beside it

LOOPBACK = ConsoleSection(listen="127.0.0.1:0")


@pytest.fixture
def served(tmp_path: Path, view: Notebook) -> Iterator[ConsoleServer]:
    async def scores(request: Request) -> Response:
        return Response(status_code=401)

    route = Route("/v1/scores", scores, methods=["POST"])
    console = serve_console(view, tmp_path, LOOPBACK, dict, PAGES, [route])
    yield console
    console.stop()


def place(served: ConsoleServer) -> tuple[str, int]:
    return "127.0.0.1", int(served.url.rpartition(":")[2])


def connect(served: ConsoleServer, said: bytes = b"") -> socket.socket:
    line = socket.create_connection(place(served), timeout=60)
    line.sendall(said)
    return line


def ask(
    served: ConsoleServer, method: str, path: str, headers: dict[str, str], body: str | None = None
) -> tuple[int, str]:
    """Status, and the cookie that was set or the text."""
    with closing(http.client.HTTPConnection(*place(served), timeout=60)) as line:
        line.request(method, path, body, headers)
        answer = line.getresponse()
        text = answer.read().decode()
        return answer.status, answer.headers.get("set-cookie", text).split(";")[0] if answer.status == 303 else text


def cookie(served: ConsoleServer, link: str | None = None) -> dict[str, str]:
    """Sign in with a link, Ada's if none is given."""
    token = (link or served.link("Ada", "approver")).rpartition("=")[2]
    headers = {"origin": served.url, "content-type": "application/x-www-form-urlencoded"}
    status, found = ask(served, "POST", "/login", headers, urlencode({"link": token}))
    assert status == 303
    return {"cookie": found}


def get(served: ConsoleServer, path: str, signed: dict[str, str], more: str = "") -> bytes:
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


def test_a_console_is_served_its_link_signs_in_and_its_port_is_its_own(served: ConsoleServer, tmp_path: Path) -> None:
    status, text = ask(served, "GET", "/first", cookie(served))
    assert (status, "Signed in as Ada" in text) == (200, True)
    with raises(ConnectError, "CN005"):
        serve_console(Notebook(), tmp_path, ConsoleSection(listen=f"127.0.0.1:{place(served)[1]}"), dict, PAGES)
    other = serve_console(Notebook(name="shop"), tmp_path / "other", LOOPBACK, dict, PAGES)
    names = {entry["cookie"].partition("=")[0] for entry in (cookie(served), cookie(other))}
    other.stop()
    assert len(names) == 2, "two consoles of a machine keep their cookies apart"


def test_strangers_make_room_and_people_who_signed_in_do_not(
    served: ConsoleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr(live, "REQUEST_SECONDS", 3600)  # the oldest make room, however long they may stay
    signed, halves = cookie(served), [b"GET /first HT" if number % 2 else b"" for number in range(30)]
    with closing(http.client.HTTPConnection(*place(served), timeout=60)) as kept, ExitStack() as opened:
        for strangers in (halves, []):
            kept.request("GET", "/first", headers=signed)
            answer = kept.getresponse()
            assert (answer.status, bool(answer.read())) == (200, True)
            lines = [opened.enter_context(connect(served, half)) for half in strangers]
            assert ask(served, "GET", "/first", signed)[0] == 200, "nobody is kept out"
            assert all(is_closed(line) for line in lines[:20])


def test_half_a_request_is_not_waited_for(served: ConsoleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "REQUEST_SECONDS", 0.2)
    for begun in (b"", b"GET /first HTTP/1.1\r\nHost: ", b"GET /login HTTP/1.1\r\nHost: x\r\n\r\nGET /"):
        with connect(served, begun) as line:
            answer = line.recv(1 << 16) if b"\r\n\r\n" in begun else b""
            assert b"421" in answer or not answer
            while not is_closed(line):
                pass


def test_readers_that_stop_are_not_waited_for(
    served: ConsoleServer, view: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "READING_SECONDS", 0.2)
    signed, cut, abort = cookie(served), threading.Event(), live.BrowserConnection.connection_lost

    def lost(connection: live.BrowserConnection, error: Exception | None) -> None:
        abort(connection, error)
        if connection._reader_due is not None:
            cut.set()

    monkeypatch.setattr(live.BrowserConnection, "connection_lost", lost)
    for _ in range(500):
        view.add("Ada", "approver", "wrote", None, "x" * 3000)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(60)
        line.connect(place(served))
        line.sendall(get(served, "/audit-log", signed) * 8)
        assert cut.wait(60)
        assert ask(served, "GET", "/first", signed)[0] == 200
        got = 0
        try:
            while part := line.recv(1 << 16):
                got += len(part)
        except ConnectionResetError:
            pass
        assert got < 8 * 1_500_000, "it was cut off"


def test_what_is_no_request_is_refused_with_the_headers(served: ConsoleServer) -> None:
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


def test_pages_hear_of_changes_and_of_those_they_missed(served: ConsoleServer, view: Notebook) -> None:
    signed = cookie(served)
    with connect(served, get(served, "/events", signed)) as line:
        first = heard(line, b"id: ")
        shows(first.decode(), "text/event-stream", "cache-control: no-store")
        known = first.partition(b"id: ")[2].split()[0].decode()
        view.state = "busy"
        assert b"event: change" in heard(line, b"data: ")
    view.state = "other"
    with connect(served, get(served, "/events", signed, f"Last-Event-ID: {known}\r\n")) as line:
        assert b"event: change" in heard(line, b"data: ")


def test_streams_are_few_even_if_they_arrive_together_and_end_with_the_session(
    served: ConsoleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_STILL", 0.1)
    signed = cookie(served)
    asked = get(served, "/events", signed)

    def status(line: socket.socket) -> bytes:
        return heard(line, b"\r\n").split()[1]

    with ExitStack() as opened:
        streams = [opened.enter_context(connect(served, asked)) for _ in range(3 * live.MAX_STREAMS_PER_SESSION)]
        answers = Counter(map(status, streams))
    assert answers == {b"200": live.MAX_STREAMS_PER_SESSION, b"429": 2 * live.MAX_STREAMS_PER_SESSION}

    def again() -> socket.socket | None:
        line = connect(served, asked)
        if status(line) == b"200":
            return line
        line.close()
        return None

    with until(again, "those that were closed are noticed at their next word") as stream:
        session = served.access.session(signed["cookie"].partition("=")[2])
        served.access.sign_out(session)
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
    found = CliRunner().invoke(app, ["federation", "console", *map(str, words)])
    return str(found.exception) if found.exception else found.stdout


def test_a_link_is_made_while_the_console_runs(tmp_path: Path) -> None:
    path, folder = party(tmp_path, 'console = "127.0.0.1:0"'), tmp_path / "agent" / "console"
    folder.mkdir(parents=True)
    for left in ("", "http://127.0.0.1:1 127.0.0.1 1"):  # nothing, or what an agent left that was killed
        (folder / "address").write_text(left)
        shows(run(path, "--link"), "start its agent")
    part = PartyConfig.load(path).agent_section.console
    assert part
    console = serve_console(Notebook(), folder, part, dict, PAGES)
    try:
        link = json.loads(run(path, "--link", "--person", "Vera", "--role", "viewer", "--json"))["link"]
        assert link.startswith(f"{console.url}/login?link=")
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


def test_a_hub_makes_links_for_its_members_and_operators_alone(tmp_path: Path) -> None:
    path = club(tmp_path).members.path
    with open(path, "a", encoding="utf-8") as file:
        file.write('\n[hub]\nconsole = "127.0.0.1:0"\noperators = ["Olga"]\n')
    folder, part = whose(path)
    members, gone = FederationMembers.load(path), set[str]()

    def may_enter(person: str) -> bool:
        return person not in gone and members.may_enter(person)

    console = serve_console(Notebook(), folder, part, dict, PAGES, may_enter=may_enter)
    try:
        for name in ("ana", "Olga"):
            link = json.loads(run(path, "--link", "--person", name, "--json"))["link"]
            shows(ask(console, "GET", "/first", cookie(console, link))[1], f"Signed in as {name}")
        for name in ("Ana", "olga", "coordinator", "pat"):
            shows(run(path, "--link", "--person", name), "operators", "FE723")
        gone.add("ana")
        console.access.sign_out_strangers()
        gone.clear()
        assert [who for who, *_ in console.access.sessions()] == ["Olga"], "also if she comes back"
    finally:
        console.stop()
    gone.add("Olga")
    console = serve_console(Notebook(), folder, part, dict, PAGES, may_enter=may_enter)
    console.stop()
    assert list(console.access.sessions()) == [], "whoever was removed while nobody served"


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
    agent = PartyConfig.load(party(tmp_path, text)).agent_section
    assert agent.console
    assert (agent.console.names(8471), agent.people) == (("console.example.org",), {"ada": "approver"})
    keys = access_control_of(tmp_path / "console", agent.console, dict, 8471)
    file = tmp_path / "console" / "proxy.token"
    assert keys.is_proxy([file.read_text().strip()])
    assert file.stat().st_mode & 0o077 == 0
    assert access_control_of(tmp_path / "alone", LOOPBACK, dict, 8471).secret == ""
