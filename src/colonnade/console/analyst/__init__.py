"""The pages of the hub's console: what an analyst asks of a federation, and what came of it."""

PAGES: tuple[tuple[str, str | None, str], ...] = (
    ("/proposals", "Proposals", "colonnade.console.analyst.proposals"),
    ("/results", "Results", "colonnade.console.analyst.results"),
    ("/members", "Members", "colonnade.console.analyst.members"),
)
"""Path, title in the menu and module of each page."""
