"""Build what a release consists of, check it, and try it in clean environments. Nothing is uploaded.

    make release

What is committed is built, from a clone of it: wheel and sdist, each twice, which must give the same bytes. The wheel
holds what git knows of the package and of the examples, and nothing else. It is installed with every Python that is
here, in an environment of its own, and used. dist/ then holds wheel, sdist, a bill of materials and SHA256SUMS; if
anything fails, dist/ stays as it was.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
SHIPPED = {"src/": "", "examples/": "colonnade/examples/"}
"""Which folders of the repository are in the wheel, and what they are called there."""
NEEDED = (
    "colonnade/py.typed",
    "colonnade/console/templates/base.html",
    "colonnade/console/static/style.css",
    "colonnade/report/style.css",
    "colonnade/federation/words.txt",
    "colonnade/examples/three-organisations/STUDY.toml",
)
_SAID = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
_PATIENCE = 1800.0
_IMPORTS = (
    "import sys, colonnade; colonnade.PCA, colonnade.SplitClassifier; "
    "sys.exit('torch' in sys.modules or not colonnade.__version__)"
)


class ReleaseError(Exception):
    """Why there is no release, in one sentence."""


@dataclass(frozen=True)
class Tried:
    """What came of one Python."""

    python: str
    found: str
    seconds: float


def main() -> None:
    """Do all of it, and say what there is in the end."""
    with tempfile.TemporaryDirectory(prefix="colonnade-release-") as folder:
        work = Path(folder)
        version, built = build(work)
        say(f"{version}: wheel and sdist have the same bytes when they are built again")
        check(built, work)
        say("wheel: py.typed, templates and examples are there, and nothing that is not committed")
        pythons = find_pythons()
        tried = [attempt(name, python, built[0], version, work) for name, python in pythons.items()]
        bill = built[0].with_name(f"colonnade-{version}.cdx.json")
        materials(work / f"python{tried[0].python}", bill, version)
        keep([*built, bill], ROOT / "dist")
    for line in table(tried, [name for name in PYTHONS if name not in pythons]):
        say(line)
    for line in (ROOT / "dist" / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        say(line)
    if not re.fullmatch(r"\d+(\.\d+)+", version):
        say(f"{version} is a development version: a release has its tag, such as v0.2.0, on the commit that is built")


# --- building


def build(work: Path) -> tuple[str, list[Path]]:
    """Wheel and sdist of what is committed, each built twice; the version is that of the tag."""
    if run(["git", "status", "--porcelain"], ROOT):
        raise ReleaseError(
            "there are changes that are not committed: commit or stash them, since they would be left out"
        )
    moment = run(["git", "log", "-1", "--format=%ct"], ROOT).strip()
    first, second = work / "first", work / "second"
    for place in (first, second):
        run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(place / "source")], work)
        run(
            [sys.executable, "-m", "build", "--outdir", str(place), str(place / "source")],
            work,
            SOURCE_DATE_EPOCH=moment,
        )
    for one, other in zip(outcome(first), outcome(second), strict=True):
        if one.name != other.name or digest(one) != digest(other):
            raise ReleaseError(
                f"{one.name} was built twice, and not the same: something of the machine or the hour is in it"
            )
    wheel, source = outcome(first)
    return wheel.name.split("-")[1], [wheel, source]


def outcome(place: Path) -> list[Path]:
    """The wheel and the sdist that a build left; the wheel is built from the sdist, so without git and its tags."""
    (wheel,), (source,) = place.glob("*.whl"), place.glob("*.tar.gz")
    return [wheel, source]


# --- checking


def check(built: Sequence[Path], work: Path) -> None:
    """What is in the two files, by twine and by what git knows."""
    run([sys.executable, "-m", "twine", "check", "--strict", *map(str, built)], work)
    known = run(["git", "ls-files", "-z"], ROOT).split("\0")
    with zipfile.ZipFile(built[0]) as wheel:
        problems = misplaced(wheel.namelist(), known)
        told = [name for name in wheel.namelist() if tells_places(wheel.read(name), (ROOT, work, Path.home()))]
    if problems:
        raise ReleaseError(f"the wheel is not what is committed: {'; '.join(problems[:5])}")
    if told:
        raise ReleaseError(f"{told[0]} in the wheel names a folder of this machine")


def misplaced(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """What a wheel has too much or lacks, by the files of the repository."""
    due = {new + path.removeprefix(old) for path in known for old, new in SHIPPED.items() if path.startswith(old)}
    found = {name for name in names if not is_said(name)}
    problems = [f"{name} is too much" for name in sorted(found - due)]
    return problems + [f"{name} is missing" for name in sorted({*due, *NEEDED} - found)]


def is_said(name: str) -> bool:
    """Whether a file of a wheel is one of those that say what it is."""
    first, _, rest = name.partition("/")
    return first.startswith("colonnade-") and first.endswith(".dist-info") and rest in _SAID


def tells_places(content: bytes, places: Iterable[Path]) -> bool:
    """Whether a file names one of these folders; the root of all is none, and every path would name it."""
    return any(str(place).encode() in content for place in places if len(PurePosixPath(place).parts) > 2)


# --- trying


def find_pythons(wanted: Sequence[str] = PYTHONS) -> dict[str, str]:
    """Every Python that is here, by its version: on the path, or where pyenv keeps them."""
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = {}
    for version in wanted:
        kept = sorted(home.glob(f"{version}.*/bin/python"), key=lambda path: [*map(int, re.findall(r"\d+", str(path)))])
        for python in (f"python{version}", *map(str, reversed(kept))):
            if is_python(python, version):
                found[version] = python
                break
    if not found:
        raise ReleaseError(f"none of Python {', '.join(wanted)} is here: install one, so that the wheel can be tried")
    return found


def is_python(command: str, version: str) -> bool:
    """Whether a command is a Python of this version; pyenv has commands of versions that are not chosen."""
    asked = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        ended = subprocess.run([command, "-c", asked], capture_output=True, text=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0 and ended.stdout.strip() == version


def attempt(name: str, python: str, wheel: Path, version: str, work: Path) -> Tried:
    """Install the wheel into an environment that holds nothing else, and use it."""
    begun, place = time.monotonic(), work / f"python{name}"
    run([python, "-m", "venv", "--without-pip", str(place)], work)
    run(
        [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet", str(wheel)], work
    )
    colonnade, away = str(place / "bin" / "colonnade"), work / f"away{name}"
    away.mkdir()
    said = run([colonnade, "--version"], away).splitlines()[0]
    if said != f"colonnade {version}":
        raise ReleaseError(f"with Python {name} the wheel of {version} says that it is {said!r}")
    run([str(place / "bin" / "python"), "-c", _IMPORTS], away)
    run([colonnade, "example", "three-organisations"], away)
    run([colonnade, "privacy", "STUDY.toml", "--rows", "3000"], away / "three-organisations")
    run([colonnade, "demo", "--out", "demo"], away)
    if not (away / "demo" / "report.html").exists():
        raise ReleaseError(f"with Python {name} the demo left no report")
    full = run([str(place / "bin" / "python"), "-c", "import platform; print(platform.python_version())"], away).strip()
    say(f"Python {full}: installed, imported without torch, example copied and priced, demo run")
    return Tried(name, full, time.monotonic() - begun)


# --- what is left


def materials(environment: Path, out: Path, version: str) -> None:
    """Write what is installed beside Colonnade, as CycloneDX; without folders of this machine."""
    made = ["--output-reproducible", "--of", "JSON", "-o", str(out), str(environment / "bin" / "python")]
    run([str(Path(sys.executable).with_name("cyclonedx-py")), "environment", *made], out.parent)
    content = json.loads(out.read_text(encoding="utf-8"))
    names = {each["name"]: each["version"] for each in content["components"]}
    if names.get("colonnade") != version or "numpy" not in names:
        raise ReleaseError("the bill of materials does not name Colonnade and what it stands on")
    text = json.dumps(without_places(content), indent=2, ensure_ascii=False) + "\n"
    if "file://" in text or str(environment) in text:
        raise ReleaseError("the bill of materials names a folder of this machine")
    out.write_text(text, encoding="utf-8")


def without_places(value: object) -> object:
    """A bill of materials without references to files of this machine."""
    if isinstance(value, Mapping):
        return {name: without_places(inside) for name, inside in value.items()}
    if isinstance(value, list):
        return [without_places(each) for each in value if not is_local(each)]
    return value


def is_local(reference: object) -> bool:
    """Whether something is a reference to a file."""
    return isinstance(reference, Mapping) and str(reference.get("url", "")).startswith("file:")


def keep(files: Iterable[Path], dist: Path) -> None:
    """Put the files into dist/ in place of what was there, with the hash of each."""
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    sums = []
    for file in files:
        shutil.copyfile(file, dist / file.name)
        sums.append(f"{digest(file)}  {file.name}\n")
    (dist / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def table(tried: Iterable[Tried], absent: Iterable[str]) -> list[str]:
    """A line for every Python, also for those that are not here."""
    rows = [f"{each.found:<9} works    {each.seconds:5.0f} s" for each in tried]
    return ["Python", *rows, *(f"{name:<9} not here, so not tried" for name in absent)]


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return sha256(path.read_bytes()).hexdigest()


def run(command: Sequence[str], folder: Path, **more: str) -> str:
    """What a command prints; one that fails ends the release with its last lines."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    try:
        ended = subprocess.run(  # noqa: S603
            command,
            cwd=folder,
            env=plain | more,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReleaseError(f"{Path(command[0]).name} could not be run to its end: {error}") from None
    if ended.returncode:
        last = "\n".join((ended.stdout + ended.stderr).strip().splitlines()[-15:])
        raise ReleaseError(f"`{' '.join(command)}` ended with {ended.returncode}:\n{last}")
    return ended.stdout


def say(text: str) -> None:
    """A line for whoever makes the release, at once."""
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    try:
        main()
    except ReleaseError as error:
        sys.exit(f"no release: {error}")
