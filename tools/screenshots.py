"""Pictures of every page of the consoles, at the width of a desk and of a telephone, and of two reports.

``make screenshots`` runs the example of three organisations as a standing federation: an analyst proposes, one party
approves in the browser, the others follow; one study is beyond the budget, and one fails. All pictures go to
``runs/pictures``, and those that the documentation shows to ``docs/pictures``.

Then it runs ``colonnade demo`` and ``colonnade audit pca``, and leaves the upper part of the report, its plot
of variance and the plots of the audit in ``docs/images``. ``python tools/screenshots.py reports`` does this alone, and
``consoles`` the rest alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from playwright.sync_api import Browser, sync_playwright

from tests.browser.people import FLAGS, Person, sign_in
from tests.support.standing import HUB, PARTIES, standing

ROOT = Path(__file__).parents[1]
WIDTHS = (1280, 390)
SHOWN = {
    "study": ("price.png", 0),
    "ledger": ("ledger.png", 0),
    "running": ("running.png", 1),
}
"""Of which pages the documentation shows the upper part: the name of the picture, and at which width."""
OF_RUNS = ("report.png", "audit.png", "variance.svg")
"""What reports give, in ``docs/images``."""
STUDY = "three-organisations"
_STANDALONE = """drawn => {
    const ofText = ["font-size", "font-weight", "text-anchor", "paint-order"];
    const styles = ["fill", "fill-opacity", "opacity", "stroke", "stroke-width", "stroke-dasharray", ...ofText];
    for (const mark of drawn.querySelectorAll("*")) {
        if (mark.closest("title, desc")) continue;
        const found = getComputedStyle(mark);
        const own = styles.filter(name => mark.tagName === "text" || !ofText.includes(name));
        for (const name of own) mark.setAttribute(name, found.getPropertyValue(name));
        mark.removeAttribute("class");
    }
    const { width, height } = drawn.viewBox.baseVal;
    for (const [name, value] of Object.entries({ width, height, "font-family": "system-ui, Arial, sans-serif" }))
        drawn.setAttribute(name, value);
    drawn.removeAttribute("class");
    const ground = `<rect width="${width}" height="${height}" fill="#fff"/>`;
    drawn.querySelector("desc").insertAdjacentHTML("afterend", ground);
    return new XMLSerializer().serializeToString(drawn);
}"""
"""A plot of a page with the styles that the page gives it, so that it can stand alone."""
_PLOTS_ALONE = "table, footer { display: none } .panels { display: grid; grid-template-columns: repeat(3, 1fr) }"
"""Of an audit the plots, three in a row; its tables say the same in numbers."""


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


def of_consoles(chromium: Browser, place: Path) -> None:
    """Every page of the consoles of a party and of the hub."""
    folder = ROOT / "runs" / "pictures"
    for needed in (folder, ROOT / "docs" / "pictures"):
        needed.mkdir(parents=True, exist_ok=True)
    with standing(place / "federation", small=False, console=True) as federation:
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
        pages |= {"hub-results": f"/results?id={proposed}", "hub-members": "/members", "hub-log": "/audit-log"}
        for title, path in pages.items():
            take(hub, path, title, folder)
        for one in (*people, *hub):
            one.page.context.clear_cookies()
        take(people, "/login?link=0123456789abcdef", "enter", folder)
        take(hub, "/login", "enter-without-link", folder)


def of_reports(chromium: Browser, place: Path) -> None:
    """The report of the demonstration, and an audit of a PCA."""
    runs = {"demo": ("demo",), "audit": ("audit", "pca", "--seed", "1")}
    for name, command in runs.items():
        subprocess.run([sys.executable, "-m", "colonnade", *command, "--out", str(place / name)], check=True)  # noqa: S603
    photograph(chromium, place)


def photograph(chromium: Browser, place: Path) -> None:
    """Take what the documentation shows of the two pages."""
    report, audit, variance = (ROOT / "docs" / "images" / name for name in OF_RUNS)
    page = chromium.new_page(viewport={"width": 1000, "height": 1150}, color_scheme="light")
    page.goto((place / "demo" / "report.html").as_uri())
    page.screenshot(path=report)
    plot = page.locator("svg", has=page.locator("title", has_text="Variance captured")).first
    variance.write_text(plot.evaluate(_STANDALONE) + "\n", encoding="utf-8")
    page.set_viewport_size({"width": 1100, "height": 900})
    page.goto((place / "audit" / "audit.html").as_uri())
    page.add_style_tag(content=_PLOTS_ALONE)
    page.screenshot(path=audit, full_page=True)


def main() -> None:
    """Take all pictures, or those that are asked for."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if program is None:
        sys.exit("no browser: install Debian's package chromium, or name a Chromium in CHROMIUM")
    asked = sys.argv[1:] or ["consoles", "reports"]
    with tempfile.TemporaryDirectory() as place, sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=program, args=list(FLAGS))
        if "consoles" in asked:
            of_consoles(chromium, Path(place))
        if "reports" in asked:
            of_reports(chromium, Path(place))
        chromium.close()


if __name__ == "__main__":
    main()
