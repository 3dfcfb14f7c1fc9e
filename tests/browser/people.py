"""People at the consoles of parties: they sign in with a link, read, and click what they see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Browser, Page, expect

from colonnade.study.console_part import Role
from tests.support.standing import Standing

WIDTHS = (1280, 390)
PATIENCE = 240_000.0
"""Milliseconds after which a page that does not change is given up; nothing waits for them to pass."""


@dataclass
class Person:
    """Somebody in front of one console, in a browser of its own."""

    page: Page
    url: str

    def open(self, path: str) -> None:
        """Go to a page of the console."""
        found = self.page.goto(f"{self.url}{path}")
        assert found is not None
        assert found.ok, (path, found.status)

    def open_study(self, name: str) -> None:
        """Wait until a study is in the inbox and can be answered, and open it."""
        self.open("/inbox")
        asked = self.page.locator("section", has=self.page.get_by_role("heading", name=name, exact=True))
        asked.get_by_role("link", name="Read it and answer").click()
        expect(self.page.get_by_role("heading", level=1)).to_have_text(name)

    def approve(self, name: str) -> None:
        """Read a study in the inbox, see its price, and say yes."""
        self.open_study(name)
        self.page.get_by_role("checkbox").check()
        self.page.get_by_role("button", name="Approve").click()
        expect(self.page.get_by_role("button", name="Approve")).to_have_count(0)

    def looked(self, path: str) -> list[str]:
        """What is wrong with a page at the width of a desk and of a telephone: what axe finds, and what is too wide."""
        self.page.goto(f"{self.url}{path}")
        if path.startswith("/table"):
            self.page.locator("main table").first.wait_for()  # until the file has been read, it loads itself anew
        found = []
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 900})
            wrong = [*self.violations(), *(["it must be moved sideways to be read"] if self.too_wide() else [])]
            found += [f"at {width}: {one}" for one in wrong]
        return found

    def violations(self) -> list[str]:
        """What axe finds on this page that keeps people out: serious and critical issues."""
        from axe_playwright_python.sync_playwright import Axe

        found: dict[str, Any] = Axe().run(self.page).response
        return [
            f"{one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]

    def too_wide(self) -> bool:
        """Whether the page must be moved sideways to be read."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def look_at_sign_in(browser: Browser, url: str) -> dict[str, list[str]]:
    """What is wrong with the page for those who are not signed in, with a link and without one."""
    context = browser.new_context()
    stranger = Person(context.new_page(), url)
    found = {path: stranger.looked(path) for path in ("/enter", "/enter?link=0123456789abcdef")}
    context.close()
    return found


def sign_in(
    browser: Browser, federation: Standing, party: str, role: Role = "approver", width: int = 1280, **how: Any
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
    return Person(page, link.partition("/enter")[0])
