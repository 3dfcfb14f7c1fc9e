"""Every command of the documentation runs, in a copy of the example, and prints what the page says it prints.

Blocks marked ``console`` run in order, in this process. Neighbouring blocks marked ``console terminal`` run at the same
time, one process each. A block marked ``console slow`` runs in ``make slow`` only, and one marked ``console run by
FILE`` in that test. Lines without ``$`` are output: each must appear, in this order; ``...`` stands for lines left out.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

from tests.support.studies import copy_example
from tools.pages import ROOT, Block, blocks, chain, continued, named, pages

ELSEWHERE = "run by "
CHANGING = [
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "HEX"),
    (re.compile(r":\d{4,5}\b"), ":PORT"),
]
"""What differs from run to run."""


@dataclass(frozen=True)
class Command:
    """A command, and the output that the page shows."""

    words: tuple[str, ...]
    shown: tuple[str, ...]
    line: int


def commands(block: Block) -> Iterator[Command]:
    lines = block.text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    assert starts[:1] == [0], f"line {block.line}: a console block starts with a command"
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield Command(tuple(shlex.split(lines[start][2:])), tuple(lines[start + 1 : end]), block.line + start + 1)


def script(page: Path, slow: bool = True) -> list[tuple[bool, list[Command]]]:
    """What the page asks for, in order; with True, at the same time."""
    consoles = [
        block
        for part in chain(page)
        for block in blocks(part)
        if block.language == "console" and not block.marks.startswith(ELSEWHERE)
    ]
    assert all(block.marks in ("", "terminal", "slow") for block in consoles)
    consoles = [block for block in consoles if slow or block.marks != "slow"]
    groups = groupby(consoles, key=lambda block: block.marks == "terminal")
    return [(together, [command for block in found for command in commands(block)]) for together, found in groups]


def steps(page: Path) -> tuple[tuple[str, ...], ...]:
    return tuple(command.words for _, group in script(page) for command in group)


PAGES = [page for page in pages() if any(block.language == "console" for block in blocks(page))]
FIRST_PAGES = [page for page in pages() if not continued(page)]
FIRST = [page for page in FIRST_PAGES if any(part in PAGES for part in chain(page))]
UNIQUE = list({steps(page): page for page in reversed(FIRST)}.values())
"""Pages with the same commands are run once."""
WITH_SLOW_BLOCKS = [page for page in UNIQUE if script(page) != script(page, slow=False)]


def test_the_readme_and_the_example_say_the_same_and_what_is_run_elsewhere_is_run_there() -> None:
    assert steps(ROOT / "README.md") == steps(ROOT / "examples/three-organisations/README.md")
    consoles = [block for page in PAGES for block in blocks(page) if block.language == "console"]
    for block in (block for block in consoles if block.marks.startswith(ELSEWHERE)):
        source = (ROOT / block.marks.removeprefix(ELSEWHERE)).read_text(encoding="utf-8")
        for command in commands(block):
            typed = " ".join(command.words[1:])
            assert f'colonnade("{command.words[1]}"' in source or f'"{typed}"' in source, command


class Shell:
    """As much of a shell as the pages need."""

    def __init__(self, folder: Path, command: Callable[..., tuple[int, str, str]]) -> None:
        self.folder = folder
        self.command = command
        self.status = 0

    def start(self, command: Command) -> subprocess.Popen[str]:
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "COLUMNS": "120"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [sys.executable, "-m", *command.words], cwd=self.folder, text=True, env=environment, **pipes
        )

    def run(self, command: Command) -> tuple[str, str]:
        name, *rest = command.words
        before, self.status = self.status, 0
        if name == "colonnade":
            self.status, *said = self.command(*rest)
            return said[0], said[1]
        if command.words == ("echo", "$?"):
            return f"{before}\n", ""
        if name == "mkdir":
            (self.folder / rest[0]).mkdir()
        elif name == "cp":
            for source in rest[:-1]:
                shutil.copy(self.folder / source, self.folder / rest[-1])
        else:
            assert command.words == ("cd", "examples/three-organisations"), f"line {command.line}: {name}?"
        return "", ""


def normal(text: str) -> str:
    for pattern, word in CHANGING:
        text = pattern.sub(word, text)
    return text.rstrip()


def assert_shown(command: Command, output: str, complained: str) -> None:
    lines = iter(normal(line) for line in output.splitlines())
    for shown in command.shown:
        if shown != "...":
            assert normal(shown) in lines, f"line {command.line}: {shown!r} is not in\n{output}\n{complained}"


def marks(page: Path) -> list[pytest.MarkDecorator]:
    """Where participants are processes, and where terminals are open at the same time."""
    started = {words[1] for words in steps(page) if words[0] == "colonnade"} & {"run", "demo", "audit", "attack"}
    return [pytest.mark.system] if started or any(together for together, _ in script(page)) else []


@pytest.mark.parametrize(
    ("page", "slow"),
    [
        *(pytest.param(page, False, id=named(page), marks=marks(page)) for page in UNIQUE),
        *(pytest.param(page, True, id=f"{named(page)}-all", marks=pytest.mark.slow) for page in WITH_SLOW_BLOCKS),
    ],
)
def test_commands_run(
    page: Path,
    slow: bool,
    tmp_path: Path,
    in_this_process: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, _ = copy_example(tmp_path / "three-organisations")
    monkeypatch.chdir(folder)
    shell = Shell(folder, in_this_process)
    plan = script(page, slow)
    for together, group in plan:
        if together:
            children = [shell.start(step) for step in group]
            for step, child in zip(group, children, strict=True):
                said, complained = child.communicate(timeout=1200)
                assert child.returncode == 0, f"line {step.line}: {complained}"
                assert_shown(step, said, complained)
            continue
        for step, following in zip(group, [*group[1:], None], strict=True):
            said, complained = shell.run(step)
            assert_shown(step, said, complained)
            if following is None or following.words[0] != "echo":
                assert shell.status == 0, f"line {step.line}: {complained}"


PROGRAMS = [
    page for page in FIRST_PAGES if any(block.language == "python" for part in chain(page) for block in blocks(part))
]


def guides(page: Path) -> list[pytest.MarkDecorator]:
    """How-to guides and reference run with the notebooks, as they fit many models."""
    return [pytest.mark.system] if named(page).startswith(("docs/how-to", "docs/reference")) else []


@pytest.mark.parametrize("page", [pytest.param(page, id=named(page), marks=guides(page)) for page in PROGRAMS])
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = copy_example(tmp_path / "three-organisations")
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    for part in chain(page):
        script = tmp_path / part.name.replace(".md", ".py")
        script.write_text("\n".join(lines(part)), encoding="utf-8")
        with warnings.catch_warnings():  # those of a user's Python, but for ours
            warnings.resetwarnings()
            warnings.filterwarnings("error", category=UserWarning, module="colonnade$")
            names = runpy.run_path(str(script), init_globals=names, run_name="__main__")


def lines(page: Path) -> list[str]:
    """The program of a page, each line where it stands there, as tracebacks name lines."""
    found: list[str] = []
    for block in blocks(page):
        if block.language != "python":
            continue
        reason = block.marks.removeprefix("no-run").strip(" :()")
        assert block.marks == "" or (block.marks.startswith("no-run") and reason), f"{page}:{block.line}: say why"
        if not block.marks:
            found += [""] * (block.line - len(found)) + block.text.splitlines()
    return found
