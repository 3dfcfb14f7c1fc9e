"""What a run of the suite says at its end: where the time went, and what was left out for want of something."""

from __future__ import annotations

import re
from collections import Counter

import pytest

SLOWEST = 20
INSTALLED_BY = {
    "ray": "make system",
    "nbformat": "make system",
    "cosmic_ray": "pip install --no-deps cosmic-ray",
    "phe": "make bench",
    "mbi": "pip install private-pgm",
}
"""What installs a module, where it is not ``make test``."""
_MISSING = re.compile(r"could not import '([\w]+)[\w.]*'.*")


def times(reports: list[pytest.TestReport]) -> list[str]:
    """Seconds by folder, and the slowest tests, in four lines."""
    folders, tests = Counter[str](), Counter[str]()
    for report in reports:
        path = report.nodeid.partition("::")[0]
        folder = "/".join(path.split("/")[1:-1][:2]) or "tests"
        folders[folder] += report.duration
        tests[report.nodeid.removeprefix("tests/")] += report.duration
    whole = sum(folders.values())
    spent = ", ".join(f"{folder} {seconds:.0f} s" for folder, seconds in folders.most_common() if seconds >= 0.5)
    slowest = [f"{name} {seconds:.1f} s" for name, seconds in tests.most_common(SLOWEST)]
    return [
        f"{len(tests)} tests took {whole:.0f} s of all workers together; by folder:",
        spent,
        f"the slowest {len(slowest)} took {sum(dict(tests.most_common(SLOWEST)).values()):.0f} s:",
        ", ".join(slowest),
    ]


def left_out(reports: list[pytest.TestReport]) -> list[str]:
    """Every reason for which tests were skipped, once; it names the command that installs what is missing."""
    reasons = Counter[str]()
    for report in reports:
        said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[_MISSING.sub(_command, re.sub(r"^Skipped: ", "", said))] += 1
    return [f"{count} left out: {reason}" for reason, count in reasons.most_common()]


def _command(missing: re.Match[str]) -> str:
    return f"no {missing[1]}: {INSTALLED_BY.get(missing[1], 'make test')} installs it"
