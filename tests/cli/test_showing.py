"""The demonstration in a terminal: links that answer, and an end that leaves nothing behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.support.standing import descendants, environment
from tests.support.waiting import until

STUCK_SECONDS = 400.0
LINK = re.compile(r"(https?://\S+/enter\?link=[0-9a-f]+)")


class Terminal:
    """A command as somebody types it: what it prints, and the key Ctrl-C."""

    def __init__(self, *words: str, folder: Path) -> None:
        self._end, other = pty.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "colonnade", *words], cwd=folder, stdin=other, stdout=other, stderr=other,
            env=environment() | {"TERM": "xterm", "COLUMNS": "200"}, start_new_session=True, preexec_fn=_own_terminal,
        )  # fmt: skip
        os.close(other)

    def until(self, sentence: str) -> str:
        """Everything that was printed up to a sentence; an error if the command ends without it."""
        end = time.monotonic() + STUCK_SECONDS
        while sentence not in self.text:
            assert time.monotonic() < end, self.text[-3000:]
            if not self._read():
                raise AssertionError(f"it ended with {self.process.wait()}:\n{self.text[-3000:]}")
        return self.text

    def press_ctrl_c(self) -> int:
        """Ctrl-C, as a terminal sends it to all processes in it; returns the exit code."""
        os.write(self._end, b"\x03")
        while self._read():
            pass
        return self.process.wait(60)

    def _read(self) -> bool:
        try:
            if select.select([self._end], [], [], 1.0)[0]:
                self.text += os.read(self._end, 1 << 16).decode("utf-8", "replace")
            return True
        except OSError:  # nobody has the other end any more
            return False

    def close(self) -> None:
        """End what still runs."""
        for pid in (*descendants(self.process.pid), self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        os.close(self._end)


def running() -> set[int]:
    """All processes of this machine; a zombie is none."""
    return set(descendants(1))


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.system
def test_a_demonstration_in_a_terminal_goes_on_in_the_browser_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    httpx = pytest.importorskip("httpx", reason="no httpx: pip install 'colonnade[dev]'")
    pytest.importorskip("uvicorn", reason="no console: pip install 'colonnade[console]'")
    terminal = Terminal("demo", "--rows", "300", "--out", "demo", folder=tmp_path)
    try:
        said = terminal.until("Ctrl-C ends everything.")
        assert "report.html" in said, "no progress bar is drawn over the last lines"
        assert "starting a hub and three agents" in said
        links = LINK.findall(said)
        assert len(links) == 4
        for link in links:
            page, (origin, _, key) = httpx.get(link), link.partition("/enter?link=")
            assert (page.status_code, "This link signs you in once." in page.text) == (200, True)
            signed = httpx.post(f"{origin}/enter", data={"link": key}, headers={"origin": origin})
            assert signed.status_code == 303
        with httpx.Client(base_url=origin, cookies=signed.cookies, follow_redirects=True) as somebody:
            until(lambda: "three components" in somebody.get("/inbox").text or None, "the study in the inbox")
        below = descendants(terminal.process.pid)
        assert len(below) >= 4
        code = terminal.press_ctrl_c()
        assert code == 0, terminal.text[-2000:]
        assert "stopped; to start again: colonnade hub" in terminal.text
        assert "Traceback" not in terminal.text
        until(lambda: not set(below) & running(), "the end of everything that ran below")
    finally:
        terminal.close()
