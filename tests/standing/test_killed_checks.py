"""A machine that kills the check of a proposal says nothing about the study."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.standing import HUB, standing, until


def test_a_check_that_was_killed_is_made_again(tmp_path: Path) -> None:
    with standing(tmp_path / "federation", (HUB, "bank"), small=True) as federation:
        proposed = federation.propose()
        # One is the server from which others are forked; it is killed too.
        until(lambda: len(federation.children("bank")) > 1, "a process that checks it")
        for pid in federation.children("bank"):
            os.kill(pid, signal.SIGKILL)
        found = federation.wait("bank", proposed, "waiting", "refused")
        assert found.state == "waiting"
        assert found.assessment is not None
        assert found.assessment["refused"] is None
