"""What other sites, other people and other machines try on a console, that none of it comes through, and its frame."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from httpx import Response
from starlette.types import Message, Scope

from colonnade.console.access import IDLE_SECONDS, LINK_SECONDS, MOST_SESSIONS, SESSION_SECONDS, Access, TrustedHeader
from colonnade.console.app import make_app
from colonnade.console.guard import HEADERS, LARGEST_FORM
from colonnade.study.console_part import Role

from .kit import (
    HOST,
    ORIGIN,
    OURS,
    PAGES,
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
ADA = {"x-remote-user": "Ada"}


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
def desk() -> Notebook:
    return Notebook()


@pytest.fixture
def keys(tmp_path: Path) -> Access:
    return access(tmp_path)


@pytest.fixture
def ada(keys: Access, desk: Notebook) -> TestClient:
    return signed_in(console(keys, desk))


def enter(keys: Access, link: str, **headers: str) -> Response:
    return browser(console(keys)).post("/enter", data={"link": link}, headers=OURS | headers)


def test_a_link_works_once_and_for_ten_minutes_and_no_other_text_is_one(tmp_path: Path) -> None:
    clock = Hands()
    keys = access(tmp_path, clock)
    link = keys.link("Ada", "approver")
    assert len(link) * 4 >= 128
    for _ in range(3):  # whoever looks ahead at a link uses nothing up
        shows(browser(console(keys)).get(f"/enter?link={link}").text, link)
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
    tls = Access(tmp_path / "tls", ("console.example.org",), secure=True)
    named = {"host": "console.example.org", "origin": "https://console.example.org"}
    said = enter(tls, tls.link("Ada", "viewer"), **named).headers["set-cookie"]
    assert (said.partition("=")[0], "; secure" in said.lower()) == ("__Host-colonnade", True)


def test_tokens_are_not_on_disk(tmp_path: Path, keys: Access, ada: TestClient) -> None:
    link = keys.link("Ada", "viewer")
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"Ada" in held
    assert not any(secret.encode() in held for secret in (ada.cookies[keys.cookie], link))
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_a_session_is_never_one_that_somebody_chose(keys: Access) -> None:
    """Session fixation: whoever brings a cookie gets a new one, and the old one is worth nothing."""
    old = signed_in(console(keys), person="Mallory").cookies[keys.cookie]
    for chosen in ("chosen", old):
        victim = browser(console(keys))
        victim.cookies.set(keys.cookie, chosen)
        answer = victim.post("/enter", data={"link": keys.link("Ada", "approver")}, headers=OURS)
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
    assert client.post("/leave", data=token, headers=OURS).status_code == 303, "all that a viewer may do"
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
def test_other_sites_cannot_send_forms(keys: Access, ada: TestClient, desk: Notebook, headers: dict[str, str]) -> None:
    assert ada.post("/first", data={"csrf": csrf(ada), "what": "approved"}, headers=headers).status_code == 403
    assert [click.what for click in desk.written] == ["signed in"]
    link = keys.link("Mallory", "approver")
    assert ada.post("/enter", data={"link": link}, headers=headers).status_code == 403, "nor sign anybody in"


def test_a_form_carries_the_token_of_its_session(keys: Access, ada: TestClient, desk: Notebook) -> None:
    bob = signed_in(console(keys, desk), person="Bob")
    forms = [{"data": {"csrf": token, "what": "approved"}} for token in ("", "x", csrf(bob), "\N{SNOWMAN}")]
    forms += [{"data": {"what": "approved"}}, {"content": b"\xff\xfe"}, {"content": b"&".join([b"a=1"] * 200)}]
    for form in forms:
        assert ada.post("/first", headers=OURS, **form).status_code == 403
    assert {click.what for click in desk.written} == {"signed in"}
    assert ada.post("/first", data={"csrf": csrf(ada), "what": "approved"}, headers=OURS).status_code == 200
    assert desk.written[0].what == "approved"
    assert csrf(ada) != ada.cookies["colonnade"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8471", "127.0.0.1", "127.0.0.1:8472", "", HOST + "."])
def test_names_that_resolve_to_this_machine_lead_nowhere(ada: TestClient, host: str) -> None:
    """DNS rebinding: a page of another site asks its own name, which now has this machine's address."""
    for path in ("/first", "/static/style.css", "/enter", "/v1/scores", "/events"):
        answer = ada.get(path, headers={"host": host})
        assert (answer.status_code, "Ada" in answer.text) == (421, False)
    assert ada.post("/first", headers={"host": host, "origin": f"http://{host}"}).status_code == 421


def test_who_is_taken_out_of_the_file_is_out_at_once_and_all_sessions_can_be_ended(tmp_path: Path) -> None:
    people: dict[str, Role] = {"Ada": "approver"}
    keys = Access(tmp_path, (HOST,), lambda: people, PROXY, clock=Hands())
    client = browser(console(keys), "192.0.2.7")
    token, session = csrf(client, **ADA), keys.by_proxy("192.0.2.7", "Ada")
    assert keys.still(session)
    keys.leave_all()
    assert not keys.still(session)
    sent = client.post("/first", data={"csrf": token, "what": "approved"}, headers=OURS | ADA)
    assert sent.status_code == 403, "a form from before"
    assert client.get("/first", headers=ADA).status_code == 200, "the proxy still lets her in, as the command says"
    session = keys.by_proxy("192.0.2.7", "Ada")
    assert keys.still(session)
    people["Ada"] = "viewer"
    shows(client.get("/first", headers=ADA).text, "Signed in as Ada (viewer).")
    assert not keys.still(session), "open pages end with the role"
    people.clear()
    assert client.get("/first", headers=ADA).status_code == 303


def test_a_header_is_believed_from_the_proxy_alone(tmp_path: Path, desk: Notebook) -> None:
    keys = access(tmp_path, header=PROXY, Ada="approver", Vera="viewer")
    app = console(keys, desk)
    for address in ("127.0.0.1", "192.0.2.8", "::1", "testclient"):
        forged = browser(app, address)
        assert forged.get("/first", headers=ADA | {"x-forwarded-for": "192.0.2.7"}).status_code == 303
    proxy = browser(app, "192.0.2.7")
    shows(proxy.get("/first", headers=ADA).text, "Signed in as Ada (approver).")
    assert browser(app, "2001:db8::9").get("/first", headers=ADA).status_code == 200
    assert proxy.get("/first", headers={"x-remote-user": "Mallory"}).status_code == 303, "nobody of ours"
    assert proxy.get("/first", headers=[("x-remote-user", "Vera"), *ADA.items()]).status_code == 303
    token = {"csrf": csrf(proxy, **ADA)}
    for headers, fields, status in ((ADA, token, 200), ({"x-remote-user": "Vera"}, token, 403), (ADA, {}, 403)):
        answer = proxy.post("/first", data={"what": "approved", **fields}, headers=headers | OURS)
        assert answer.status_code == status
    assert [click.who for click in desk.written] == ["Ada"]
    proxy.cookies.set(keys.cookie, "0" * 32)  # an old one
    assert proxy.get("/first").status_code == 303
    shows(proxy.get("/first", headers=ADA).text, "Signed in as Ada (approver).")
    proxy.cookies.clear()
    proxy.post("/enter", data={"link": keys.link("Vera", "viewer")}, headers=OURS)
    shows(proxy.get("/first", headers=ADA).text, "Signed in as Vera (viewer).")  # a session that goes on comes first
    alone = browser(console(access(tmp_path / "alone", Ada="approver")))
    assert alone.get("/first", headers=ADA).status_code == 303, "without a proxy a header says nothing"


def test_no_path_leads_to_another_file(ada: TestClient) -> None:
    tried = ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "....//app.py", "%2fetc%2fpasswd", "style.css%00.html"]
    for path in ("/static", *(f"/static/{name}" for name in (*tried, "base.html", ""))):
        answer = ada.get(path)
        assert answer.status_code == 404, path
        hides(answer.text, "import", "root:")


def test_signing_in_leads_nowhere_else(keys: Access) -> None:
    for where in ("//evil.example", "/\\evil.example", "https://evil.example", "/\nx", "javascript:1"):
        fields = {"link": keys.link("Ada", "viewer"), "next": where}
        assert browser(console(keys)).post("/enter", data=fields, headers=OURS).headers["location"] == "/"


def test_long_bodies_and_other_methods_are_refused(ada: TestClient, desk: Notebook) -> None:
    long = {"csrf": csrf(ada), "what": "x" * (LARGEST_FORM + 1)}
    assert ada.post("/first", data=long, headers=OURS).status_code == 413
    assert ada.post("/v1/scores", content=b"{}", headers={"origin": "http://evil.example"}).status_code == 403
    assert len(desk.written) == 1
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"):
        answer = ada.request(method, "/first", headers=OURS)
        assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (405, False), method


@pytest.mark.parametrize("hangs_up", [True, False])
def test_whoever_hangs_up_and_what_fails_leaves_nothing_behind(
    keys: Access, caplog: pytest.LogCaptureFixture, hangs_up: bool
) -> None:
    """Half a form, or a stream before its first word; then the connection ends, or an error holds data."""
    app = console(keys)
    token = signed_in(app).cookies["colonnade"]
    left: list[Message] = [{"type": "http.request", "body": b"link=", "more_body": True}]
    sent: list[Message] = []
    seen: list[int] = []

    async def receive() -> Message:
        if left or hangs_up:
            return left.pop() if left else {"type": "http.disconnect"}
        raise RuntimeError("a cell of somebody")

    async def send(message: Message) -> None:
        sent.append(message)

    async def broken(message: Message) -> None:
        seen.append(app.app.state.pulse.listeners.total())
        raise OSError

    asyncio.run(app(asked("POST", "/enter", origin=ORIGIN), receive, send))
    assert sent[0]["status"] == (413 if hangs_up else 500)
    failed = [record.getMessage().startswith("a page failed: RuntimeError") for record in caplog.records]
    assert failed == ([] if hangs_up else [True])
    assert "somebody" not in caplog.text + str(sent)
    if hangs_up:
        asyncio.run(app(asked("GET", "/events", cookie=f"colonnade={token}"), receive, broken))
        assert (seen[0], app.app.state.pulse.listeners.total()) == (1, 0)


def test_every_response_carries_the_headers_and_none_is_kept(keys: Access, ada: TestClient) -> None:
    paths = ("/", "/first", "/log", "/enter", "/nowhere", "/static/style.css", "/static/live.js")
    answers = [
        *(ada.get(path) for path in paths),
        ada.get("/first", headers={"host": "evil.example"}),
        ada.post("/first", headers=OURS),
        ada.post("/first"),
        ada.put("/first"),
        ada.post("/v1/scores", content=b"{}"),
        ada.post("/enter", data={"link": keys.link("Ada", "viewer")}, headers=OURS),
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
            if 'method="post"' in post and 'action="/enter"' not in post:
                assert re.search(r"token\(session\)|session\.csrf", post.split("</form>")[0]), template.name


def test_a_fault_of_a_page_tells_nothing(ada: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    answer = ada.post("/first", data={"csrf": csrf(ada), "secret": "4711"}, headers=OURS)
    assert answer.status_code == 500
    hides(answer.text, "4711", "KeyError")
    shows(caplog.text, "KeyError")
    hides(caplog.text, "4711")
    assert answer.headers["content-security-policy"]


# --- the frame of every page, for eyes, keyboards and screen readers


def test_a_person_signs_in_and_finds_the_way(ada: TestClient) -> None:
    home, page = ada.get("/"), ada.get("/first")
    assert (home.status_code, home.headers["location"]) == (303, "/first")
    assert (page.status_code, page.text.count("<h1>")) == (200, 1)
    way = '<a href="/first" aria-current="page">First</a>'
    shows(page.text, '<a class="skip" href="#content">', way, "Signed in as Ada (approver).", "The hub is reached.")
    shows(ada.get("/static/style.css").text, "--accent", ".skip")
    hides(page.text.replace("http-equiv", ""), "http")


def test_names_full_of_markup_stay_text(keys: Access) -> None:
    bad = '"><script>alert(1)</script>\u202e'
    desk = Notebook(name=bad, stands=(False, bad))
    client = signed_in(console(keys, desk), person=bad)
    desk.log(bad, "approver", bad, bad, bad)
    for path in ("/first", "/log", "/nowhere"):
        text = client.get(path).text
        shows(text, "&lt;script&gt;alert")
        hides(text, "<script>alert", "\u202e")


def test_whoever_watches_the_process_needs_no_session_and_learns_no_more(keys: Access) -> None:
    app = make_app(Notebook(), keys, PAGES, metrics=lambda: (b"colonnade_rooms 1\n", "text/plain; version=0.0.4"))
    assert [browser(app).get(path).text for path in ("/health", "/metrics")] == ["serving\n", "colonnade_rooms 1\n"]
    assert browser(console(keys)).get("/metrics").status_code == 404
