"""What other sites, other people and other machines try on a console, and that none of it comes through."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from starlette.types import Message, Scope

from colonnade.console.access import IDLE_SECONDS, LINK_SECONDS, MOST_SESSIONS, SESSION_SECONDS, Access, TrustedHeader
from colonnade.console.guard import HEADERS, LARGEST_FORM
from colonnade.study.console_part import Role

from .kit import HOST, ORIGIN, Hands, Notebook, access, browser, console, csrf, signed_in

OURS = {"origin": ORIGIN}


def asked(method: str, path: str, **headers: str) -> Scope:
    """A request as the server hands it on."""
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
def desk() -> Notebook:
    return Notebook()


def test_a_link_works_once_and_for_ten_minutes(tmp_path: Path) -> None:
    clock = Hands()
    keys = access(tmp_path, clock)
    app = console(keys)
    link = keys.link("Ada", "approver")
    for _ in range(3):  # whoever looks ahead at a link uses nothing up
        assert link in browser(app).get(f"/enter?link={link}").text
    assert browser(app).post("/enter", data={"link": link}, headers=OURS).status_code == 303
    replayed = browser(app).post("/enter", data={"link": link}, headers=OURS)
    assert replayed.status_code == 403
    assert "set-cookie" not in replayed.headers
    late = keys.link("Ada", "approver")
    clock.now += LINK_SECONDS + 1
    assert browser(app).post("/enter", data={"link": late}, headers=OURS).status_code == 403
    clock.now -= LINK_SECONDS
    assert browser(app).post("/enter", data={"link": late}, headers=OURS).status_code == 403, "it was used up"
    assert len(link) * 4 >= 128


@pytest.mark.parametrize("link", ["", "0" * 32, "' or 1=1 --", "\N{SNOWMAN}", "%00"])
def test_no_other_text_is_a_link(tmp_path: Path, link: str) -> None:
    keys = access(tmp_path)
    keys.link("Ada", "approver")
    assert browser(console(keys)).post("/enter", data={"link": link}, headers=OURS).status_code == 403


def test_tokens_are_not_on_disk(tmp_path: Path) -> None:
    keys = access(tmp_path)
    client = signed_in(console(keys))
    cookie = client.cookies[keys.cookie]
    link = keys.link("Ada", "viewer")
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"Ada" in held
    assert cookie.encode() not in held
    assert link.encode() not in held
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_a_session_is_never_one_that_somebody_chose(tmp_path: Path) -> None:
    """Session fixation: whoever brings a cookie gets a new one, and the old one is worth nothing."""
    keys = access(tmp_path)
    app = console(keys)
    client = browser(app)
    client.cookies.set(keys.cookie, "chosen")
    client.post("/enter", data={"link": keys.link("Ada", "approver")}, headers=OURS)
    assert keys.session("chosen") is None
    attacker = signed_in(app, person="Mallory")
    victim = browser(app)
    old = attacker.cookies[keys.cookie]
    victim.cookies.set(keys.cookie, old)
    answer = victim.post("/enter", data={"link": keys.link("Ada", "approver")}, headers=OURS)
    assert keys.cookie in answer.headers["set-cookie"]
    assert keys.session(old) is None


def test_cookies_are_for_this_site_alone(tmp_path: Path) -> None:
    keys = access(tmp_path)
    answer = browser(console(keys)).post("/enter", data={"link": keys.link("Ada", "viewer")}, headers=OURS)
    flags = answer.headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/"} <= {flag.strip() for flag in flags.split(";")}
    assert "domain" not in flags
    tls = Access(tmp_path / "tls", ("console.example.org",), secure=True)
    client = browser(console(tls))
    answer = client.post(
        "/enter",
        data={"link": tls.link("Ada", "viewer")},
        headers={"host": "console.example.org", "origin": "https://console.example.org"},
    )
    assert answer.headers["set-cookie"].startswith("__Host-colonnade=")
    assert "; secure" in answer.headers["set-cookie"].lower()


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
    client = signed_in(app)
    cookie = client.cookies[keys.cookie]
    assert client.post("/leave", data={"csrf": csrf(client)}, headers=OURS).status_code == 303
    assert keys.session(cookie) is None
    first = signed_in(app)
    for _ in range(MOST_SESSIONS):
        clock.now += 1
        signed_in(app)
    assert first.get("/first").status_code == 303
    assert len(keys.sessions()) == MOST_SESSIONS


def test_whoever_is_not_signed_in_sees_nothing(tmp_path: Path) -> None:
    client = browser(console(access(tmp_path)))
    for path in ("/", "/first", "/log", "/events", "/nowhere"):
        answer = client.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/enter?next=/")
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
def test_other_sites_cannot_send_forms(tmp_path: Path, desk: Notebook, headers: dict[str, str]) -> None:
    keys = access(tmp_path)
    client = signed_in(console(keys, desk))
    token = csrf(client)
    assert client.post("/first", data={"csrf": token, "what": "approved"}, headers=headers).status_code == 403
    assert [click.what for click in desk.written] == ["signed in"]
    link = keys.link("Mallory", "approver")
    assert client.post("/enter", data={"link": link}, headers=headers).status_code == 403, "nor sign anybody in"


def test_a_form_carries_the_token_of_its_session(tmp_path: Path, desk: Notebook) -> None:
    app = console(access(tmp_path), desk)
    ada, bob = signed_in(app), signed_in(app, person="Bob")
    for token in ("", "x", csrf(bob), "\N{SNOWMAN}"):
        answer = ada.post("/first", data={"csrf": token, "what": "approved"}, headers=OURS)
        assert answer.status_code == 403
    assert ada.post("/first", data={"what": "approved"}, headers=OURS).status_code == 403
    assert ada.post("/first", content=b"\xff\xfe", headers=OURS).status_code == 403
    assert ada.post("/first", content=b"&".join([b"a=1"] * 200), headers=OURS).status_code == 403
    assert {click.what for click in desk.written} == {"signed in"}
    assert ada.post("/first", data={"csrf": csrf(ada), "what": "approved"}, headers=OURS).status_code == 200
    assert desk.written[0].what == "approved"
    assert csrf(ada) != ada.cookies["colonnade"]


def test_viewers_decide_nothing(tmp_path: Path, desk: Notebook) -> None:
    client = signed_in(console(access(tmp_path), desk), role="viewer")
    token = csrf(client)
    answer = client.post("/first", data={"csrf": token, "what": "approved"}, headers=OURS)
    assert answer.status_code == 403
    assert "approver" in answer.text
    assert [click.what for click in desk.written] == ["signed in"]
    assert client.post("/leave", data={"csrf": token}, headers=OURS).status_code == 303, "but may sign out"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8471", "127.0.0.1", "127.0.0.1:8472", "", HOST + "."])
def test_names_that_resolve_to_this_machine_lead_nowhere(tmp_path: Path, host: str) -> None:
    """DNS rebinding: a page of another site asks its own name, which now has this machine's address."""
    client = signed_in(console(access(tmp_path)))
    for path in ("/first", "/static/style.css", "/enter", "/v1/scores", "/events"):
        answer = client.get(path, headers={"host": host})
        assert answer.status_code == 421
        assert "Ada" not in answer.text
    assert client.post("/first", headers={"host": host, "origin": f"http://{host}"}).status_code == 421


PROXY = TrustedHeader("X-Remote-User", ("192.0.2.7",))


def test_an_old_cookie_does_not_hide_what_the_proxy_says(tmp_path: Path) -> None:
    keys = access(tmp_path, header=PROXY, Ada="approver")
    client = browser(console(keys), "192.0.2.7")
    client.cookies.set(keys.cookie, "0" * 32)
    assert client.get("/first").status_code == 303, "the cookie itself is worth nothing"
    assert "Signed in as Ada (approver)." in client.get("/first", headers={"x-remote-user": "Ada"}).text
    client.cookies.clear()
    client.post("/enter", data={"link": keys.link("Vera", "viewer")}, headers=OURS)
    both = client.get("/first", headers={"x-remote-user": "Ada"})
    assert "Signed in as Vera (viewer)." in both.text, "a session that goes on comes first"


def test_who_is_taken_out_of_the_file_is_out_at_once(tmp_path: Path) -> None:
    people: dict[str, Role] = {"Ada": "approver"}
    keys = Access(tmp_path, (HOST,), lambda: people, PROXY, clock=Hands())
    client, said = browser(console(keys), "192.0.2.7"), {"x-remote-user": "Ada"}
    assert client.get("/first", headers=said).status_code == 200
    session = keys.by_proxy("192.0.2.7", "Ada")
    assert session is not None
    assert keys.still(session)
    people["Ada"] = "viewer"
    assert "Signed in as Ada (viewer)." in client.get("/first", headers=said).text
    assert not keys.still(session), "open pages end with the role"
    people.clear()
    assert client.get("/first", headers=said).status_code == 303


def test_ending_all_sessions_ends_open_forms_and_pages_of_people_at_the_proxy(tmp_path: Path) -> None:
    keys = access(tmp_path, header=PROXY, Ada="approver")
    client, said = browser(console(keys), "192.0.2.7"), {"x-remote-user": "Ada"}
    token = client.get("/first", headers=said).text.split('name="csrf" value="')[1].split('"')[0]
    session = keys.by_proxy("192.0.2.7", "Ada")
    assert session is not None
    keys.leave_all()
    assert not keys.still(session)
    sent = client.post("/first", data={"csrf": token, "what": "approved"}, headers=OURS | said)
    assert sent.status_code == 403, "a form from before"
    assert client.get("/first", headers=said).status_code == 200, "the proxy still lets her in, as the command says"


def test_a_header_is_believed_from_the_proxy_alone(tmp_path: Path, desk: Notebook) -> None:
    header = TrustedHeader("X-Remote-User", ("192.0.2.7", "2001:db8::/64"))
    keys = access(tmp_path, header=header, Ada="approver", Vera="viewer")
    app = console(keys, desk)
    said = {"x-remote-user": "Ada"}
    for address in ("127.0.0.1", "192.0.2.8", "::1", "testclient"):
        forged = browser(app, address)
        assert forged.get("/first", headers=said | {"x-forwarded-for": "192.0.2.7"}).status_code == 303
    proxy = browser(app, "192.0.2.7")
    page = proxy.get("/first", headers=said)
    assert "Signed in as Ada (approver)." in page.text
    assert browser(app, "2001:db8::9").get("/first", headers=said).status_code == 200
    assert proxy.get("/first", headers={"x-remote-user": "Mallory"}).status_code == 303, "nobody of ours"
    assert proxy.get("/first", headers=[("x-remote-user", "Vera"), ("x-remote-user", "Ada")]).status_code == 303
    token = page.text.split('name="csrf" value="')[1].split('"')[0]
    sent = {"csrf": token, "what": "approved"}
    assert proxy.post("/first", data=sent, headers=said | OURS).status_code == 200
    assert proxy.post("/first", data=sent, headers={"x-remote-user": "Vera"} | OURS).status_code == 403
    assert proxy.post("/first", data={"what": "approved"}, headers=said | OURS).status_code == 403
    assert [click.who for click in desk.written] == ["Ada"]


def test_a_header_without_a_proxy_says_nothing(tmp_path: Path) -> None:
    client = browser(console(access(tmp_path, Ada="approver")))
    assert client.get("/first", headers={"x-remote-user": "Ada"}).status_code == 303


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/....//app.py",
        "/static/%2fetc%2fpasswd",
        "/static/style.css%00.html",
        "/static/base.html",
        "/static/",
        "/static",
    ],
)
def test_no_path_leads_to_another_file(tmp_path: Path, path: str) -> None:
    client = signed_in(console(access(tmp_path)))
    answer = client.get(path)
    assert answer.status_code == 404
    assert "import" not in answer.text
    assert "root:" not in answer.text


@pytest.mark.parametrize("where", ["//evil.example", "/\\evil.example", "https://evil.example", "/\nx", "javascript:1"])
def test_signing_in_leads_nowhere_else(tmp_path: Path, where: str) -> None:
    keys = access(tmp_path)
    fields = {"link": keys.link("Ada", "viewer"), "next": where}
    assert browser(console(keys)).post("/enter", data=fields, headers=OURS).headers["location"] == "/"


def test_long_bodies_are_not_read(tmp_path: Path, desk: Notebook) -> None:
    client = signed_in(console(access(tmp_path), desk))
    long = {"csrf": csrf(client), "what": "x" * (LARGEST_FORM + 1)}
    assert client.post("/first", data=long, headers=OURS).status_code == 413
    assert client.post("/v1/scores", content=b"{}", headers={"origin": "http://evil.example"}).status_code == 403
    assert len(desk.written) == 1


@pytest.mark.parametrize("hangs_up", [True, False])
def test_whoever_hangs_up_and_what_fails_leaves_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, hangs_up: bool
) -> None:
    """A form of which half has come, and then the end of the connection or an error that holds data."""
    app = console(access(tmp_path))
    left: list[Message] = [{"type": "http.request", "body": b"link=", "more_body": True}]
    sent: list[Message] = []

    async def receive() -> Message:
        if left:
            return left.pop()
        if hangs_up:
            return {"type": "http.disconnect"}
        raise RuntimeError("a cell of somebody")

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(asked("POST", "/enter", origin=ORIGIN), receive, send))
    assert sent[0]["status"] == (413 if hangs_up else 500)
    assert [record.getMessage().startswith("a page failed: RuntimeError") for record in caplog.records] == (
        [] if hangs_up else [True]
    )
    assert "somebody" not in caplog.text + str(sent)


def test_a_stream_that_is_cut_off_before_its_first_word_counts_no_more(tmp_path: Path) -> None:
    app = console(access(tmp_path))
    token = signed_in(app).cookies["colonnade"]
    seen: list[int] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        seen.append(app.app.state.pulse.listeners.total())
        raise OSError

    asyncio.run(app(asked("GET", "/events", cookie=f"colonnade={token}"), receive, send))
    assert seen[0] == 1
    assert not app.app.state.pulse.listeners


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_are_refused(tmp_path: Path, method: str) -> None:
    answer = signed_in(console(access(tmp_path))).request(method, "/first", headers=OURS)
    assert answer.status_code == 405
    assert "access-control-allow-origin" not in answer.headers


def test_every_response_carries_the_headers_and_none_is_kept(tmp_path: Path) -> None:
    keys = access(tmp_path)
    client = signed_in(console(keys))
    answers = [
        client.get("/"),
        client.get("/first"),
        client.get("/log"),
        client.get("/enter"),
        client.get("/nowhere"),
        client.get("/static/style.css"),
        client.get("/static/live.js"),
        client.get("/first", headers={"host": "evil.example"}),
        client.post("/first", headers=OURS),
        client.post("/first"),
        client.put("/first"),
        client.post("/v1/scores", content=b"{}"),
        client.post("/enter", data={"link": keys.link("Ada", "viewer")}, headers=OURS),
    ]
    assert {answer.status_code for answer in answers} == {200, 303, 403, 404, 405, 421}
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, (answer.url, name)
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
            if 'method="post"' in post and 'action="/enter"' not in post:
                assert re.search(r"token\(session\)|session\.csrf", post.split("</form>")[0]), template.name


def test_a_fault_of_a_page_tells_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    client = signed_in(console(access(tmp_path)))
    answer = client.post("/first", data={"csrf": csrf(client), "secret": "4711"}, headers=OURS)
    assert answer.status_code == 500
    assert "4711" not in answer.text
    assert "KeyError" not in answer.text
    assert "KeyError" in caplog.text
    assert "4711" not in caplog.text
    assert answer.headers["content-security-policy"]
