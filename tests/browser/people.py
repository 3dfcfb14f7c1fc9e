"""People at the consoles of parties: they sign in with a link, read, and click what they see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from colonnade.study.party_file import ConsoleRole
from tests.support.standing import Standing

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
WIDTHS = (1280, 390)
PATIENCE = 240_000.0
"""Milliseconds after which a page that does not change is given up; nothing waits for them to pass."""


@dataclass
class Person:
    """Somebody in front of one console, in a browser of its own."""

    page: Page
    url: str

    def open(self, path: str) -> None:
        found = self.page.goto(f"{self.url}{path}")
        assert found.ok, (path, found.status)

    def reads(self, path: str) -> str:
        self.open(path)
        return self.page.locator("main").inner_text()

    def sees(self, *texts: str) -> None:
        """Wait until all of these can be read; pages change by themselves."""
        for text in texts:
            expect(self.page.get_by_text(text).first).to_be_visible()

    def heading(self, name: str, exact: bool = False) -> Locator:
        return self.page.get_by_role("heading", name=name, exact=exact)

    def section(self, name: str, exact: bool = False) -> Locator:
        return self.page.locator("section", has=self.heading(name, exact))

    def open_study(self, name: str) -> None:
        """Wait until a study is in the inbox and can be answered, and open it."""
        self.open("/inbox")
        self.section(name, exact=True).get_by_role("link", name="Read it and answer").click()
        expect(self.page.get_by_role("heading", level=1)).to_have_text(name)

    def approve(self, name: str) -> None:
        """Read a study in the inbox, see its price, and say yes."""
        self.open_study(name)
        self.page.get_by_role("checkbox").check()
        self.page.get_by_role("button", name="Approve").click()
        expect(self.page.get_by_role("button", name="Approve")).to_have_count(0)

    def read_the_report(self) -> None:
        self.open("/history")
        self.page.get_by_role("link", name="Read the report").first.click()
        expect(self.page.frame_locator("iframe.report").get_by_role("heading").first).to_be_visible()

    def looked(self, *paths: str) -> dict[str, list[str]]:
        """What is wrong with pages at the width of a desk and of a telephone: what axe finds, and what is too wide."""
        found: dict[str, list[str]] = {}
        for path in paths:
            self.page.goto(f"{self.url}{path}")
            if path.startswith("/table"):
                self.page.locator("main table").first.wait_for()  # until the file has been read, it loads itself anew
            for width in WIDTHS:
                self.page.set_viewport_size({"width": width, "height": 900})
                for one in self.violations():
                    found.setdefault(path, []).append(f"at {width}: {one}")
        return found

    def violations(self) -> list[str]:
        """What keeps people out of this page: serious and critical issues of axe, and a page that is too wide."""
        from axe_playwright_python.sync_playwright import Axe

        found: list[dict[str, Any]] = Axe().run(self.page).response["violations"]
        worst = [one for one in found if one["impact"] in ("serious", "critical")]
        wide = self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        said = [f"{one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]}" for one in worst]
        return said + (["it must be moved sideways to be read"] if wide else [])


def sign_in(
    browser: Browser, federation: Standing, party: str, role: ConsoleRole = "approver", width: int = 1280, **how: Any
) -> Person:
    """A person with a fresh browser, signed in by a one-time link."""
    context = browser.new_context(viewport={"width": width, "height": 900}, **how)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    expect.set_options(timeout=PATIENCE)
    link = federation.link(party, role)
    page.goto(link)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).not_to_have_text("Sign in")
    return Person(page, link.partition("/login")[0])
