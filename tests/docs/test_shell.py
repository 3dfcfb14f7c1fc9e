"""The tutorial of a federation leads to a result when it is followed to the letter."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.waiting import below, until
from tools.pages import ROOT, blocks

TUTORIAL = ROOT / "docs" / "tutorials" / "federation.md"
pytestmark = pytest.mark.system
WAIT_SECONDS = 300


class Desk:
    """A folder, and the terminals that are open in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.open: list[subprocess.Popen[str]] = []

    def start(self, words: list[str], answer: str = "") -> subprocess.Popen[str]:
        """Type a command; whoever is asked at this terminal has given the answer already."""
        keyboard, terminal = pty.openpty()
        os.write(keyboard, answer.encode())
        output = self.folder / f"output-{len(self.open)}"
        with open(output, "wb") as file:
            child = subprocess.Popen(
                [sys.executable, "-m", "colonnade", *words], cwd=self.folder, stdin=terminal, stdout=file,
                stderr=subprocess.STDOUT, text=True, env=os.environ | {"COLUMNS": "200"},
            )  # fmt: skip
        os.close(terminal)
        self.open.append(child)
        child.keyboard, child.output = keyboard, output  # type: ignore[attr-defined]
        return child

    def said(self, child: Any) -> str:
        return str(child.output.read_text(encoding="utf-8"))

    def run(self, words: list[str], answer: str = "") -> str:
        return self.ended(self.start(words, answer))

    def ended(self, child: subprocess.Popen[str]) -> str:
        assert child.wait(timeout=WAIT_SECONDS) == 0, self.said(child)
        return self.said(child)

    def wait_for(self, child: subprocess.Popen[str], pattern: str) -> re.Match[str]:
        return until(lambda: re.search(pattern, self.said(child), re.MULTILINE), pattern)

    def close(self) -> None:
        for child in reversed(self.open):
            child.terminate()
        for child in self.open:
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=30)
            child.kill()
            child.wait()
            os.close(child.keyboard)  # type: ignore[attr-defined]


SHOWN = r"^ +(1:\S+(?:  [2-6]:\S+){5})$"
INVITATION = r"^colonnade-invitation-\S+$"


def test_the_tutorial_of_a_federation_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line of its blocks is typed in order; the invitation and free ports are put in, and nothing else."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    ports = {old: str(free_port()) for old in ("9300", "8471", "8472")}
    toml = next(block.text for block in blocks(TUTORIAL) if block.language == "toml")
    lines = [line for block in blocks(TUTORIAL) if block.language == "sh" for line in block.text.splitlines()]
    assert sum(line.startswith("colonnade ") for line in lines) == len(lines) - 1, "what else is to be typed?"
    with closing(Desk(tmp_path)) as at:
        at.run(["demo", "--rows", "400", "--out", "runs/demo"])
        (tmp_path / "runs/demo/study/TWO.toml").write_text(toml, encoding="utf-8")
        token, joining = "", {}
        for line in lines:
            for old, new in ports.items():
                line = line.replace(old, new)
            words = shlex.split(line.replace("$PWD", str(tmp_path)).replace("TOKEN", token), comments=True)
            match words:
                case ["sed", "-i", *_]:
                    subprocess.run(words, cwd=tmp_path, check=True)
                case [_, "federation", "hub", *_]:
                    at.wait_for(at.start(words[1:]), r"^hub of 'two organisations' at")
                case [_, "federation", "invite", _, name, *_]:
                    token = re.search(INVITATION, at.run(words[1:]), re.MULTILINE)[0]  # type: ignore[index]
                case [_, "federation", "join", *_]:
                    joining[name] = at.start(words[1:])
                    heard = at.wait_for(joining[name], SHOWN)[1]
                    if name == "shop":  # "in the second terminal"
                        admitted(at, name, heard, joining[name])
                case [_, "federation", "admit", _, "bank"]:
                    admitted(at, "bank", at.wait_for(joining["bank"], SHOWN)[1], joining["bank"])
                case [_, "federation", "members", party, _, other]:
                    listed = at.run(["federation", "members", f"{other}/party.toml", "--json"])
                    read_out = json.loads(listed)["members"][other]["words"]
                    at.run([*words[1:], "--words", read_out])
                    file = tmp_path / party
                    file.write_text(file.read_text().replace(":8471", f":{ports['8471']}"))
                case [_, "federation", "agent", party]:
                    at.wait_for(at.start(words[1:]), "console at http://")  # a link is for screens alone
                case _:
                    proposed = at.run(words[1:])
        study = re.search(r"^proposed .*: ([0-9a-f]{32})$", proposed, re.MULTILINE)[1]  # type: ignore[index]
        for name in ("bank", "shop"):
            config = f"{name}/party.toml"
            until(
                lambda config=config: study[:8] in at.run(["federation", "studies", config]), "the study with its party"
            )
            at.run(["federation", "approve", config, study[:8]], "y\n")
        until(lambda: all(below(tmp_path / name, "model.json") for name in ("bank", "shop")), "two models")


def admitted(at: Desk, name: str, heard: str, joining: Any) -> None:
    hub: Any = at.start(["federation", "admit", "hub/FEDERATION.toml", name])
    for reader, typist in ((at.wait_for(hub, SHOWN)[1], joining), (heard, hub)):
        words = [word for one in reader.split("  ") if (word := one.partition(":")[2]) != "....."]
        os.write(typist.keyboard, f"{' '.join(words)}\n".encode())
    at.ended(hub)
    assert "we are a member" in at.ended(joining)
