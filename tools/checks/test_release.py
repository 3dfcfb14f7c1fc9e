"""What a release consists of, and the tool that checks it."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import colonnade
from tools import release
from tools.pages import ROOT

KNOWN = ["src/colonnade/__init__.py", *(f"src/{name}" for name in release.NEEDED if "/examples/" not in name)]
KNOWN += ["examples/three-organisations/STUDY.toml", "tests/test_suite.py", "docs/README.md"]
WHEEL = ["colonnade/__init__.py", *release.NEEDED, "colonnade-0.2.0.dist-info/METADATA"]


def test_the_version_is_that_of_the_installation() -> None:
    assert colonnade.__version__ == metadata.version("colonnade")
    bare = f"import sys; sys.path = [{str(ROOT / 'src')!r}, *[p for p in sys.path if 'site-packages' not in p]]; "
    bare += "import colonnade; print(colonnade.__version__)"
    told = subprocess.run([sys.executable, "-S", "-c", bare], capture_output=True, text=True, check=True, cwd=ROOT.root)
    assert told.stdout.strip() == "0+unknown", "sources that nobody installed have no version"


@pytest.mark.parametrize(
    ("more", "less", "problem"),
    [
        ("tests/test_suite.py", "", "tests/test_suite.py is too much"),
        ("colonnade/examples/three-organisations/bank/bank.key", "", "bank/bank.key is too much"),
        ("colonnade-0.2.0.dist-info/notes.txt", "", "notes.txt is too much"),
        ("", "colonnade/py.typed", "colonnade/py.typed is missing"),
        ("", "colonnade/examples/three-organisations/STUDY.toml", "STUDY.toml is missing"),
    ],
)
def test_what_is_too_much_or_missing_in_a_wheel_is_named(more: str, less: str, problem: str) -> None:
    names = [name for name in [*WHEEL, more] if name and name != less]
    (found,) = release.misplaced(names, KNOWN)
    assert found.endswith(problem)
    assert release.misplaced(WHEEL, KNOWN) == []


def test_hashes_are_written_beside_the_files(tmp_path: Path) -> None:
    made = tmp_path / "a.whl"
    made.write_bytes(b"abc")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "of-an-earlier-release.whl").write_bytes(b"")
    release.keep([made], tmp_path / "dist")
    assert sorted(path.name for path in (tmp_path / "dist").iterdir()) == ["SHA256SUMS", "a.whl"]
    done = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path / "dist", capture_output=True, text=True)
    assert done.stdout == "a.whl: OK\n"
