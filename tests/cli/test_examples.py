"""Examples that come with Colonnade: all of them are listed, and a copy stands by itself."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from colonnade.cli import examples
from tests.support.errors import check_said

ROOT = Path(__file__).parents[2]
NAMES = sorted(page.parent.name for page in (ROOT / "examples").glob("*/README.md"))
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_folder_of_examples_is_one(colonnade):
    out = colonnade("example", "list", "--json")
    assert [each["name"] for each in out["examples"]] == NAMES
    assert all(each["title"] and not each["title"].startswith("#") for each in out["examples"])


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_holds_everything_and_its_links_lead_somewhere(name, away, colonnade):
    assert colonnade("example", "copy", name, "one/mine", "--json")["folder"] == "one/mine"
    copied = {path.relative_to("one/mine").as_posix() for path in Path("one/mine").rglob("*") if path.is_file()}
    known = subprocess.run(["git", "ls-files", "."], cwd=ROOT / "examples" / name, capture_output=True, text=True)
    assert copied == set(known.stdout.split())
    for path in copied - {"README.md"}:
        assert (away / "one/mine" / path).read_bytes() == (ROOT / "examples" / name / path).read_bytes()
    page = Path("one/mine/README.md").read_text(encoding="utf-8")
    for link in _LINK.findall(page):
        assert link.startswith("https://") or (Path("one/mine") / link.partition("#")[0]).exists(), link
    assert "cd examples/" not in page
    for text in (path.read_text(encoding="utf-8") for path in Path("one/mine").rglob("*.toml")):
        for other in re.findall(r"\.\./\.\./([a-z-]+)/", text):
            assert (away / "one" / other / "README.md").exists(), f"{name} reads tables of {other}"


def test_nothing_is_overwritten(away, colonnade):
    Path("glm").mkdir()
    said = colonnade("example", "copy", "glm", code=18)
    check_said(said, "SO007", "glm")
    assert not list(Path("glm").iterdir())
    Path("three-organisations").mkdir()
    (Path("three-organisations") / "mine.txt").write_text("mine", encoding="utf-8")
    assert "there already: three-organisations" in colonnade("example", "copy", "private-regression")
    assert [path.name for path in Path("three-organisations").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("nothing",), 13, "there is no example 'nothing': take one of glm, "),
        (("private-regression", "three-organisations"), 13, "is where three-organisations must lie"),
        (("glm", "file/inside"), 18, "file cannot be made"),
    ],
)
def test_mistakes_get_one_sentence(words, code, sentence, away, colonnade):
    Path("file").write_text("", encoding="utf-8")
    said = colonnade("example", "copy", *words, code=code)
    assert sentence in said
    assert said.count("\n") == 1


def test_what_somebody_made_in_a_clone_is_not_copied(tmp_path, monkeypatch):
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "examples" / "three-organisations", clone / "three-organisations")
    for made in (
        "bank/bank.key",
        "certs/bank.crt",
        "runs/study/run.json",
        "bank/ledger.sqlite",
        "bank/alignments/a.npz",
        "bank/agent/agent.db",
        "bank/kept.json",
    ):
        path = clone / "three-organisations" / made
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"private")
    monkeypatch.setattr(examples, "_INSTALLED", clone)
    examples.examples()["three-organisations"].copy(tmp_path / "copy")
    assert b"private" not in {path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file()}
