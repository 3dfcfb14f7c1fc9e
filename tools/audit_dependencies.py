"""Known holes in what the locks install, by pip-audit.

    make audit-dependencies

Where the database of holes cannot be reached, or does not know a package, this says that it did not run, which is no
finding either way: it ends with 0, and with ``--must-run`` with 2. A hole ends with 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCKS = ("core", "test", "torch", "system", "servers")
_PATIENCE = 600.0
_OPTIONS = ("--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json")


def read_findings(printed: str) -> tuple[list[str], list[str]]:
    """Holes, and packages that were not looked up, from what pip-audit printed; a ValueError if that is no report."""
    holes, skipped = [], []
    packages: list[dict[str, Any]] = json.loads(printed)["dependencies"]
    for package in packages:
        if "skip_reason" in package:
            skipped.append(package["name"])
        for hole in package.get("vulns", ()):
            fixed = ", ".join(hole["fix_versions"]) or "no version yet"
            holes.append(f"{package['name']} {package['version']}: {hole['id']}, fixed in {fixed}")
    return holes, skipped


def audit(lock: str) -> tuple[list[str], list[str]]:
    """What is known of the packages of one lock, and which of them were not looked up."""
    file = ROOT / "requirements" / f"{lock}.txt"
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(file), *_OPTIONS]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_PATIENCE)  # noqa: S603
        return read_findings(done.stdout)
    except (ValueError, KeyError, subprocess.TimeoutExpired):
        return [], ["everything"]


def main() -> None:
    """Audit every lock."""
    words = argparse.ArgumentParser(description="Known holes in what the locks install.")
    words.add_argument("--must-run", action="store_true", help="fail where something was not looked up")
    must_run = words.parse_args().must_run
    holes, skipped = list[str](), 0
    for lock in LOCKS:
        found, missing = audit(lock)
        holes += [one for one in found if one not in holes]
        skipped += len(missing)
        names = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        said = f"DID NOT RUN for {len(missing)} packages ({names})" if missing else f"{len(found)} known holes"
        sys.stdout.write(f"{lock}.txt: {said}\n")
    sys.stdout.writelines(f"{hole}\n" for hole in holes)
    sys.exit(1 if holes else 2 if skipped and must_run else 0)


if __name__ == "__main__":
    main()
