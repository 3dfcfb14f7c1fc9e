"""The frame of every page: what stands around its content, for eyes, keyboards and screen readers."""

from __future__ import annotations

from pathlib import Path

from colonnade.console.app import make_app

from .kit import PAGES, Notebook, access, browser, console, signed_in


def test_a_person_signs_in_and_finds_the_way(tmp_path: Path) -> None:
    client = signed_in(console(access(tmp_path)))
    home = client.get("/")
    assert home.status_code == 303
    assert home.headers["location"] == "/first"
    page = client.get("/first")
    assert page.status_code == 200
    for piece in (
        '<html lang="en">',
        '<a class="skip" href="#content">',
        '<main id="content" tabindex="-1">',
        '<a href="/first" aria-current="page">First</a>',
        "Signed in as Ada (approver).",
        "The hub is reached.",
        'role="status"',
    ):
        assert piece in page.text
    assert page.text.count("<h1>") == 1


def test_style_and_script_are_files_of_our_own(tmp_path: Path) -> None:
    client = signed_in(console(access(tmp_path)))
    style = client.get("/static/style.css")
    assert style.headers["content-type"].startswith("text/css")
    assert "--accent" in style.text
    assert ".skip" in style.text
    assert client.get("/static/live.js").headers["content-type"].startswith("text/javascript")
    assert "http" not in client.get("/first").text.replace("http-equiv", "")


def test_names_full_of_markup_stay_text(tmp_path: Path) -> None:
    bad = '"><script>alert(1)</script>\u202e'
    desk = Notebook(name=bad, stands=(False, bad))
    client = signed_in(console(access(tmp_path), desk), person=bad)
    desk.log(bad, "approver", bad, bad, bad)
    for path in ("/first", "/log", "/nowhere"):
        text = client.get(path).text
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text
        assert "\u202e" not in text


def test_whoever_watches_the_process_needs_no_session_and_learns_no_more(tmp_path: Path) -> None:
    keys = access(tmp_path)
    app = make_app(Notebook(), keys, PAGES, metrics=lambda: (b"colonnade_rooms 1\n", "text/plain; version=0.0.4"))
    client = browser(app)
    assert client.get("/health").text == "serving\n"
    assert client.get("/metrics").text == "colonnade_rooms 1\n"
    assert browser(console(keys)).get("/metrics").status_code == 404
