"""Ask the search of the built site what readers ask, and see whether the answer comes first.

``make questions`` does it in a headless Chromium, once ``make docs`` has built ``site/``. Each is typed twice: in
full, and as the few words that somebody in a hurry types. One of the first two pages must be an expected one, and must
hold the expected sentence. A table of what was found goes to ``benchmarks/results/questions.md``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "questions.md"
HITS = 2
"""The answer stands on one of so many pages at the top."""
SECONDS = 60
"""A reader who has not found the answer by then asks somebody."""
HEAD = """# What the site's search finds

Readers' questions, typed into the search box of the built site in a headless browser, in full and in short. The answer
must stand on one of the first two pages. `make docs && make questions` makes this table. Seconds are from opening home
to the page with the answer; a person reads for longer.

| typed | first three pages | answered on | hit | seconds |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Question:
    """What is typed, and what the pages that answer it say."""

    typed: tuple[str, ...]
    answers: dict[str, str]


QUESTIONS = (
    Question(
        ("how do I hide who matched?", "hide matched"),
        {
            "explanation/faq.html": "Set hidden = true under [align].",
            "how-to/alignment.html": "Nobody learns who matched",
        },
    ),
    Question(
        ("what does the coordinator learn?", "coordinator learns"),
        {
            "explanation/faq.html": "It learns who takes part, when, how long messages are",
            "explanation/who-sees-what.html": "It sees who talks to whom, when, and how many bytes",
        },
    ),
    Question(
        ("how many people do I need at epsilon 1?", "how many people epsilon 1"),
        {
            "explanation/faq.html": "beats guessing from 1,000 to 3,000 people on",
            "how-to/which-model.html": "At epsilon 1, a thousand people may be enough",
        },
    ),
    Question(
        ("how do I add a protocol?", "add protocol"),
        {
            "explanation/faq.html": "One folder with a task and a program for each role",
            "how-to/add-a-kind.html": "Here is what to write to add one, and in which file.",
        },
    ),
    Question(
        ("my study failed with code 75, now what?", "code 75"),
        {
            "explanation/faq.html": "75 is not a code of Colonnade.",
            "reference/errors.html": "Colonnade ends with no other code than those above.",
        },
    ),
)


class Quiet(SimpleHTTPRequestHandler):
    """Files of the site, without a line for each."""

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The address of a site while it is served to this machine alone."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def found(page: Page, address: str, typed: str) -> list[str]:
    """The pages that the search lists for some words, best first; none if it finds none within a minute."""
    page.goto(address)
    page.click("label.md-header__button[for=__search]:visible, .md-search__input:visible")
    page.type(".md-search__input", typed)
    until, settled = time.monotonic() + SECONDS, [""]
    while time.monotonic() < until:  # results change while words are still looked up
        page.wait_for_timeout(500)
        links: list[str] = page.locator(".md-search-result__item").evaluate_all(
            "items => items.map(item => new URL(item.querySelector('a').href).pathname.slice(1))"
        )
        if links and links == settled:
            return links
        settled = links
    return []


def words(page: Page) -> str:
    """The text of a page as a person reads it, with single blanks."""
    return re.sub(r"\s+", " ", page.inner_text("article"))


def main() -> int:
    """Asks every question and writes the table; 1 if an answer is not where a reader looks."""
    parser = argparse.ArgumentParser(description="Ask the search of the built site what readers ask.")
    parser.add_argument("--site", type=Path, default=ROOT / "site", help="the built site")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the table goes")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not (options.site / "search" / "search_index.json").is_file():
        sys.stderr.write(f"{options.site} is not a built site: run `make docs` first, or name one by --site\n")
        return 1
    rows, missed = [], 0
    with served(options.site) as address, sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for question in QUESTIONS:
            for typed in question.typed:
                begun = time.monotonic()
                pages = found(page, address, typed)
                place = answered(page, address, question, pages[:HITS])
                took = time.monotonic() - begun
                missed += place is None or took > SECONDS
                listed = ", ".join(f"`{name.removesuffix('.html')}`" for name in pages[:3])
                where, hit = (f"`{place.removesuffix('.html')}`", pages.index(place) + 1) if place else ("nowhere", "")
                rows.append(f"| {typed} | {listed} | {where} | {hit} | {took:.1f} |")
                sys.stdout.write(rows[-1] + "\n")
        browser.close()
    options.out.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    if missed:
        sys.stderr.write(f"{missed} questions are not answered by the first {HITS} pages\n")
    return 1 if missed else 0


def answered(page: Page, address: str, question: Question, pages: list[str]) -> str | None:
    """The first of some pages that is expected and says what is expected."""
    for name in pages:
        if name in question.answers:
            page.goto(address + name)
            if question.answers[name] in words(page):
                return name
    return None


if __name__ == "__main__":
    sys.exit(main())
