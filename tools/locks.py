"""The versions that a clone installs, with the hashes of their files: ``requirements/``.

    python tools/locks.py           # are the locks true to pyproject.toml?
    python tools/locks.py --write   # lock anew; needs uv (pip install uv)
    python tools/locks.py --upgrade # the same with the newest versions
    python tools/locks.py --wheels  # is there a wheel of everything, for every Python and platform that we name?

``core.txt`` is what the wheel needs, and what builds it. ``test.txt`` has what lint and the quick suite need besides,
``system.txt`` also what clusters and notebooks need; each holds all of the one before. They are good for every Python
and platform that a package has files for. ``torch.txt`` has torch alone, and is installed without what its files for
accelerators ask for: that would be gigabytes. ``servers.txt`` (made from ``servers.in``) has the servers of object
stores that tests start, in an environment of their own.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
EXTRAS = ("console", "duckdb", "excel", "fuzzy", "onnx", "sql", "traces")
LOCKS = {
    "core": (("build",), ()),
    "test": (("build", "lint", "test"), EXTRAS),
    "system": (("build", "lint", "test", "system"), (*EXTRAS, "ray")),
}
"""The groups and extras of pyproject.toml that each lock holds."""

TORCH_NEEDS = ("filelock", "fsspec", "jinja2", "networkx", "sympy")
"""What torch asks for on every platform."""

PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-apple-darwin")

_PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[\w.+!]+)(?: ;[^\\\n]*)?(?P<hashes>(?: ?\\\n +--hash=\S+)*)", re.M)


def write(upgrade: bool) -> None:
    """Lock anew; what is locked stays as it is where it fits, unless newest versions are asked for."""
    FOLDER.mkdir(exist_ok=True)
    options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate"]
    options += ["--no-emit-index-url", "--no-emit-find-links", "--quiet", *(["--upgrade"] if upgrade else [])]
    _compile(["requirements/servers.in", *options], "servers")
    before: list[str] = []
    for lock, (groups, extras) in reversed(LOCKS.items()):  # the largest decides: all others are parts of it
        asked = [word for group in groups for word in ("--group", group)]
        asked += [word for extra in extras for word in ("--extra", extra)]
        more = FOLDER / "more.in"
        more.write_text("\n".join(TORCH_NEEDS if lock != "core" else ()))
        try:
            _compile(["pyproject.toml", str(more), *asked, *options, *before], lock)
        finally:
            more.unlink()
        before = ["--constraint", str(path_of(lock))]


def _compile(words: list[str], lock: str) -> None:
    command = ["uv", "pip", "compile", *words, "--output-file", str(path_of(lock))]
    try:
        subprocess.run(command, check=True, cwd=ROOT)  # noqa: S603
    except FileNotFoundError:
        raise SystemExit("locks are made by uv, which is not installed: pip install uv") from None


def path_of(lock: str) -> Path:
    """The file of a lock."""
    return FOLDER / f"{lock}.txt"


def pins(lock: str) -> dict[str, list[str]]:
    """The versions of each package in a lock: more than one where Pythons or platforms need different ones."""
    found: dict[str, list[str]] = {}
    for pin in _PIN.finditer(path_of(lock).read_text(encoding="utf-8")):
        if not pin["hashes"]:
            raise SystemExit(f"{path_of(lock).name}: {pin['name']} has no hash; run python tools/locks.py --write")
        found.setdefault(pin["name"].lower(), []).append(pin["version"])
    return found


def problems() -> Iterator[str]:
    """What pyproject.toml asks for and a lock lacks or has another version of."""
    from packaging.requirements import Requirement

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, held = settings["project"], dict[str, list[str]]()
    for lock, (groups, extras) in LOCKS.items():
        locked = pins(lock)
        yield from (f"{lock}.txt has other versions of {name}" for name in held if locked.get(name) != held[name])
        wanted = [
            *project["dependencies"],
            *(each for group in groups for each in settings["dependency-groups"][group]),
        ]
        wanted += [each for extra in extras for each in project["optional-dependencies"][extra]]
        for each in map(Requirement, wanted):
            versions = locked.get(each.name.lower(), [])
            if not versions or not all(each.specifier.contains(version, prereleases=True) for version in versions):
                yield f"{lock}.txt has {' and '.join(versions) or 'no version'} of {each.name}, which should be {each}"
        held = locked


def wheels() -> None:
    """Ask the index, for every Python and platform, for a wheel of everything in the core; nothing is installed."""
    for python, platform in itertools.product(PYTHONS, PLATFORMS):
        command = ["uv", "pip", "install", "--dry-run", "--quiet", "--only-binary", ":all:", "--require-hashes"]
        command += ["--python-version", python, "--python-platform", platform, "--requirement", str(path_of("core"))]
        with tempfile.TemporaryDirectory() as empty:
            subprocess.run([*command, "--target", empty], check=True, cwd=ROOT)  # noqa: S603


def main() -> None:
    """Check the locks, or make them anew."""
    words = argparse.ArgumentParser(description="The versions that a clone installs.")
    words.add_argument("--write", action="store_true", help="lock anew, keeping what fits")
    words.add_argument("--upgrade", action="store_true", help="lock anew, with the newest versions")
    words.add_argument("--wheels", action="store_true", help="look for wheels for every Python and platform")
    asked = words.parse_args()
    if asked.write or asked.upgrade:
        write(asked.upgrade)
    if asked.wheels:
        wheels()
    if found := list(problems()):
        raise SystemExit("\n".join((*found, "run python tools/locks.py --write")))


if __name__ == "__main__":
    main()
