"""The pages of the documentation and their code blocks, for whatever checks or runs them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "three-organisations"
CODES = ROOT / "docs" / "reference" / "error-codes.md"
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```\s*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the words after it, its text and its line."""

    language: str
    marks: str
    text: str
    line: int


@cache
def pages() -> tuple[Path, ...]:
    """Every page that is part of the repository."""
    found = sorted(ROOT.glob("*.md"))
    folders = ("docs", "examples", "benchmarks", "research")
    found += [path for folder in folders for path in sorted((ROOT / folder).rglob("*.md"))]
    return tuple(path for path in found if "runs" not in path.parts)


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        language, _, marks = match["info"].strip().partition(" ")
        found.append(Block(language, marks.strip(), match["body"], text.count("\n", 0, match.start()) + 1))
    return found


_CONTINUES = re.compile(r"\A# .*\n\n<!-- continues (\S+) -->$", re.MULTILINE)


@cache
def continued(page: Path) -> Path | None:
    """The page whose blocks run before those of this one, if it says so below its title."""
    said = _CONTINUES.match(page.read_text(encoding="utf-8"))
    return (page.parent / said[1]).resolve() if said else None


def chain(page: Path) -> list[Path]:
    """A page, and those that continue it."""
    return [page, *(later for other in pages() if continued(other) == page for later in chain(other))]


def text_of(*patterns: str) -> str:
    """Pages of the documentation that people have written, one after the other."""
    found = [page for pattern in patterns for page in sorted((ROOT / "docs").glob(pattern)) if page != CODES]
    return "\n".join(page.read_text(encoding="utf-8") for page in found)


def named(path: Path) -> str:
    """A page as it is called in test names."""
    return path.relative_to(ROOT).as_posix()
