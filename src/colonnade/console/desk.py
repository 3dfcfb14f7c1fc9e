"""What the frame of every console asks of whoever it is served by: a party's agent, or the hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Desk(Protocol):
    """A party's desk or the hub's; pages ask more of it, the frame only this."""

    @property
    def name(self) -> str:
        """Whose console it is, as it stands at the top of every page."""

    def standing(self, person: str) -> tuple[bool, str]:
        """Whether all is well, and one sentence about it; it is shown to this person on every page."""

    def pulse(self) -> str:
        """Text that is another one whenever something on a live page has changed; asked often, so it is cheap."""

    def log(self, who: str, role: str, what: str, study: str | None = None, detail: str = "") -> None:
        """Write down who did what."""

    def clicks(self, person: str, limit: int = ...) -> Sequence[Any]:
        """What was written down and this person may read, the latest first, each as an office keeps it."""
