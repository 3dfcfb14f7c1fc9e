"""What lies beside the code: workflows, templates, the citation and the locks agree with each other."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml

from tools import locks, release
from tools.pages import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"))


def test_locks_hold_what_is_asked_for() -> None:
    assert not list(locks.problems()), "run python tools/locks.py --write"


def test_pythons_are_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [text.rpartition(" :: ")[2] for text in project["classifiers"] if "Python :: 3." in text]
    made = re.search(r"^PYTHONS \?= (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert made is not None
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert list(release.PYTHONS) == named == made[1].replace("python", "").split()
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == named


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_a_workflow_runs_targets_that_there_are() -> None:
    (path,) = WORKFLOWS
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content["permissions"] == {"contents": "read"}
    steps = [step for job in content["jobs"].values() for step in job["steps"]]
    said = [step["run"] for step in steps if "run" in step]
    called = re.findall(r"\bmake ([\w-]+)", "\n".join(said))
    assert {"lint", "test", "system", "docs", "release"} <= set(called) <= targets()
    assert all(re.fullmatch(r"make [\w-]+", line) for line in said), "what CI does, make does"
    assert all(step["uses"].startswith("actions/") for step in steps if "uses" in step)


def test_there_is_a_workflow_and_a_template_of_each_kind() -> None:
    assert [path.stem for path in WORKFLOWS] == ["ci"]
    assert [path.stem for path in TEMPLATES] == ["bug", "privacy-hole", "question"]
    assert (ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md").exists()
    for path in TEMPLATES:
        _, head, body = path.read_text(encoding="utf-8").split("---\n", 2)
        assert set(yaml.safe_load(head)) == {"name", "about", "labels"}
        assert body.strip()


def test_whoever_opens_a_hole_in_public_is_sent_to_the_private_report() -> None:
    for path in (TEMPLATES[1], ROOT / "SECURITY.md"):
        assert "the repository's private vulnerability report" in path.read_text(encoding="utf-8").lower()


def test_the_citation_names_the_five_papers() -> None:
    content: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(content)
    assert (content["cff-version"], content["type"], content["license"]) == ("1.2.0", "software", "Apache-2.0")
    assert len(content["references"]) == 5
    for each in (content, *content["references"]):
        assert {"type", "title", "authors"} <= set(each)
        assert all(set(author) in ({"name"}, {"given-names", "family-names"}) for author in each["authors"])


def test_the_sources_name_no_address_that_is_not_ours() -> None:
    """Addresses of people and services are invented nowhere: neither in the pages at the root nor in the templates."""
    beside = [*ROOT.glob("*.md"), ROOT / "CITATION.cff", *(ROOT / ".github").rglob("*.*")]
    for path in beside:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"[\w.]+@[\w-]+\.[a-z]{2,}", text), path.name
        if path.name not in ("README.md", "CHANGELOG.md"):
            assert "http" not in text, path.name
