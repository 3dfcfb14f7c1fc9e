"""A real browser, where there is one: Debian's Chromium, or what ``CHROMIUM`` names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window; tests skip with a sentence where there is none.

    One for each file: Playwright keeps an event loop running in this thread for as long as it is there, and no
    other test of the same process could start one of its own.
    """
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if program is None:
        pytest.skip("no browser: `apt install chromium`, or name a Chromium in CHROMIUM")
    play = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'colonnade[dev]'")
    with play.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=program, args=list(FLAGS))
        yield chromium
        chromium.close()
