"""What the frame of every console asks of whoever it is served by: a party's agent, or the hub."""

from __future__ import annotations

from typing import Protocol

from colonnade.standing.standing_file import AuditLog


class Desk(Protocol):
    """A party's desk or the hub's; pages ask more of it, the frame only this."""

    audit: AuditLog
    """Who did what."""

    @property
    def name(self) -> str:
        """Whose console it is, as it stands at the top of every page."""

    def standing(self, person: str) -> tuple[bool, str]:
        """Whether all is well, and one sentence about it; it is shown to this person on every page."""

    def pulse(self) -> str:
        """Text that is another one whenever something on a live page has changed; asked often, so it is cheap."""

    def only_lines_of(self, person: str) -> str | None:
        """Whose lines of the audit log this person may read; ``None`` for all."""
