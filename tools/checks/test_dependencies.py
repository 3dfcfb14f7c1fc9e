"""What is installed and run for a release: known holes are told from those not looked up, actions are commits."""

from __future__ import annotations

import json
import re

import pytest

from tools import audit_dependencies, licences
from tools.locks import ROOT


@pytest.mark.parametrize(
    ("packages", "holes", "skipped"),
    [
        ([], [], []),
        ([{"name": "a", "version": "1", "vulns": []}], [], []),
        ([{"name": "a", "skip_reason": "not found"}], [], ["a"]),
        (
            [{"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2", "3"]}]}],
            ["a 1: X-1, fixed in 2, 3"],
            [],
        ),
        (
            [{"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": []}]}],
            ["a 1: X-1, fixed in no version yet"],
            [],
        ),
    ],
)
def test_a_package_that_was_not_looked_up_is_no_package_without_holes(packages, holes, skipped) -> None:
    assert audit_dependencies.read_findings(json.dumps({"dependencies": packages})) == (holes, skipped)


def test_every_lock_is_audited() -> None:
    assert {path.stem for path in (ROOT / "requirements").glob("*.txt")} == set(audit_dependencies.LOCKS)


def test_actions_are_named_by_commit() -> None:
    text = "".join(path.read_text("utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    used = re.findall(r"uses: (\S+)(.*)", text)
    assert used
    assert [one for one, _ in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one)] == []
    assert all(re.fullmatch(r"  # v\d+\.\d+\.\d+", version) for _, version in used)


def test_the_table_of_licences_is_that_of_what_is_installed() -> None:
    rows = set(licences.PAGE.read_text("utf-8").splitlines())
    table = licences.table().splitlines()
    names = {row.split(" | ")[0] for row in rows}
    missing = [row for row in table if row.startswith("| ") and row.split(" | ")[0] not in names]
    assert missing == [], "run python -m tools.licences --write"
