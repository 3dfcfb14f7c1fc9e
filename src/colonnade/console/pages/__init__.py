"""The pages of a party's console: one module each, in the order of the menu."""

PAGES: tuple[tuple[str, str | None, str], ...] = (
    ("/inbox", "Inbox", "colonnade.console.pages.inbox"),
    ("/running", "Running", "colonnade.console.pages.running"),
    ("/history", "History", "colonnade.console.pages.history"),
    ("/ledger", "Ledger", "colonnade.console.pages.ledger"),
    ("/scores", "Scores", "colonnade.console.pages.scores"),
    ("/table", "Our table", "colonnade.console.pages.table"),
    ("/people", "People and keys", "colonnade.console.pages.people"),
    ("/doctor", "Doctor", "colonnade.console.pages.doctor"),
    ("/studies/{id}", None, "colonnade.console.pages.study"),
)
"""Path, title in the menu (none: not in it) and module of each page."""
