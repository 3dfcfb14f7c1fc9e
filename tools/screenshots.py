"""Pictures of every page of the consoles, at the width of a desk and of a telephone.

``make screenshots`` runs the example of three organisations as a standing federation: an analyst proposes, one party
approves in the browser, the others follow; one study is beyond the budget, and one fails. All pictures go to
``runs/pictures``, and those that the documentation shows to ``docs/pictures``.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from playwright.sync_api import sync_playwright

from tests.browser.conftest import FLAGS
from tests.browser.people import Person, sign_in
from tests.standing.kit import HUB, PARTIES, standing

ROOT = Path(__file__).parents[1]
WIDTHS = (1280, 390)
SHOWN = {
    "study": ("price.png", 0),
    "ledger": ("ledger.png", 0),
    "running": ("running.png", 1),
}
"""Of which pages the documentation shows the upper part: the name of the picture, and at which width."""
STUDY = "three-organisations"


def take(people: list[Person], path: str, name: str, folder: Path) -> None:
    """One page, as everybody sees it."""
    for person, width in zip(people, WIDTHS, strict=True):
        person.page.goto(f"{person.url}{path}")
        person.page.wait_for_load_state("load")
        if name == "table":
            person.page.locator("main table").first.wait_for()  # the file has been read
        if name == "running":
            person.page.locator("main progress").first.wait_for()  # everybody is here, and the first step has begun
        person.page.screenshot(path=folder / f"{name}-{width}.png", full_page=True)
    if name in SHOWN:
        picture, which = SHOWN[name]
        people[which].page.screenshot(path=ROOT / "docs" / "pictures" / picture)


def main() -> None:
    """Take all pictures."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if program is None:
        sys.exit("no browser: install Debian's package chromium, or name a Chromium in CHROMIUM")
    folder = ROOT / "runs" / "pictures"
    for needed in (folder, ROOT / "docs" / "pictures"):
        needed.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        sync_playwright() as running,
        standing(Path(place) / "federation", console=True) as federation,
    ):
        chromium = running.chromium.launch(executable_path=program, args=list(FLAGS))
        people = [sign_in(chromium, federation, "bank", width=width, color_scheme="light") for width in WIDTHS]
        take(people, "/inbox", "inbox-empty", folder)
        proposed = federation.propose(purpose="Which of our columns say the same, so that a common score is worth it?")
        federation.wait_all(proposed, "waiting")
        for name in ("inbox", "table", "people", "scores", "doctor"):
            take(people, f"/{name}", name, folder)
        take(people, f"/studies/{proposed}", "study", folder)
        people[0].approve(STUDY)
        for party in PARTIES[1:]:
            sign_in(chromium, federation, party).approve(STUDY)
        federation.wait("bank", proposed, "running", "done")
        take(people, "/running", "running", folder)
        federation.wait_all(proposed, "done")
        refused, failed = federation.beyond_the_budget("bank"), federation.without_a_table("bank")
        for name in ("history", "ledger", "log"):
            take(people, f"/{name}", name, folder)
        take(people, f"/history?study={proposed}", "history-of-one", folder)
        take(people, f"/studies/{refused}", "study-refused", folder)
        take(people, f"/studies/{failed}", "study-failed", folder)
        take(people, "/doctor?run=1", "doctor-party", folder)
        take(people, f"/doctor?run=1&study={proposed}", "doctor-study", folder)
        hub = [sign_in(chromium, federation, HUB, width=width, color_scheme="light") for width in WIDTHS]
        pages = {"hub": "/", "hub-proposal": f"/proposals/{proposed}", "hub-failed": f"/proposals/{failed}"}
        pages |= {"hub-results": f"/results?id={proposed}", "hub-members": "/members", "hub-log": "/log"}
        for title, path in pages.items():
            take(hub, path, title, folder)
        for one in (*people, *hub):
            one.page.context.clear_cookies()
        take(people, "/enter?link=0123456789abcdef", "enter", folder)
        take(hub, "/enter", "enter-without-link", folder)
        chromium.close()


if __name__ == "__main__":
    main()
