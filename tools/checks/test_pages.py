"""The pages hold together: links resolve, and what they list is what there is."""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from collections.abc import Iterator
from functools import cache
from inspect import signature
from pathlib import Path

import pytest
import typer
from pydantic import BaseModel

import colonnade
from colonnade import PCA, Statement, errors
from colonnade.cli.app import app
from colonnade.cli.output import INTERNAL_ERROR
from colonnade.models import Roster, registry
from colonnade.study import party_config, study_file
from colonnade.study.study_file import task_section_of
from colonnade.tables import schema
from colonnade.tables.datasets import population
from tools.names import gone
from tools.pages import ROOT, blocks, named, pages, text_of

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_NOT_OURS = re.compile(
    r"(?<![\w.])/(?:tmp|home|root|mnt|opt|srv)/|localhost:\d|#\d+\b(?![-\w]*\))|\bissue \d|\bsession \d", re.IGNORECASE
)
_ALL = "\n".join(page.read_text(encoding="utf-8") for page in pages())


def prose(page: Path) -> str:
    """A page without its fenced blocks and inline code."""
    text = re.sub(r"^```.*?^```\s*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```\s*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+)$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        kept = "".join(c for c in plain if c in " -_" or unicodedata.category(c)[0] in "LN")
        slug = kept.replace(" ", "-")
        number = sum(1 for other in found if other == slug or re.fullmatch(re.escape(slug) + r"-\d+", other))
        found.add(f"{slug}-{number}" if slug in found else slug)
    return found


def broken(page: Path) -> Iterator[str]:
    """Links of a page that lead nowhere."""
    for link in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            if not link.startswith("https://"):
                yield f"{named(page)}: {link}"
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or not target.is_relative_to(ROOT):
            yield f"{named(page)}: {link}"
        elif anchor and anchor not in anchors(target):
            yield f"{named(page)}: {link}; there are {sorted(anchors(target))}"


def test_links_resolve() -> None:
    found = [words for page in pages() for words in broken(page)]
    assert not found, "\n".join(found)


def test_pages_speak_of_colonnade_alone() -> None:
    found = {named(page): _NOT_OURS.search(page.read_text(encoding="utf-8")) for page in pages()}
    assert not any(found.values()), {name: words.group() for name, words in found.items() if words}


@pytest.mark.parametrize("folder", ["tutorials", "notebooks", "how-to", "reference", "explanation", "theory"])
def test_every_page_of_the_documentation_is_reached_from_the_index_of_its_folder(folder: str) -> None:
    assert f"({folder}/README.md)" in (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    index = ROOT / "docs" / folder / "README.md"
    listed = index.read_text(encoding="utf-8")
    for page in index.parent.rglob("*.md"):
        assert page == index or f"({page.relative_to(index.parent).as_posix()})" in listed, page


def test_images_are_there_and_small() -> None:
    for image in (ROOT / "docs" / "images").iterdir():
        assert image.stat().st_size < 200_000
        assert f"images/{image.name}" in _ALL


def test_exit_codes_are_documented_and_no_others() -> None:
    text = text_of("reference/errors*.md")
    listed = {
        int(code): name for code, name in re.findall(r"^\| \[(\d+)\]\([^)]*\) \|\s*`?(\w*)`?\s*\|", text, re.MULTILINE)
    }
    raised = {
        kind.exit_code: kind.__name__
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, errors.ColonnadeError | errors.Interrupted)
        and (kind is errors.ColonnadeError or "exit_code" in vars(kind))
    }
    assert all(kind in text for kind in vars(errors) if kind.endswith("Error"))
    assert listed == raised | {0: "", 2: "", INTERNAL_ERROR: ""}
    headed = {int(code) for code in re.findall(r"^## (\d+) ", text, re.MULTILINE)}
    assert headed == set(listed)


def test_what_peers_are_told_is_documented() -> None:
    text = text_of("explanation/when-it-goes-wrong.md")
    for said in (errors.NO_PART, errors.CANNOT_GO_ON, "it was interrupted by its operator"):
        assert f"| {said} |" in text
    passed_on = {
        kind.__name__
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.ColonnadeError) and kind.public
    }
    told = {"IdentityError", "ConnectError", "PeerLost", "PeerStopped", "ProtocolError", "ShareError"}
    assert passed_on == told | {"DisagreementError"}


def parts(module: object) -> list[type[BaseModel]]:
    found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, BaseModel)]
    return [value for value in found if value.__module__ == getattr(module, "__name__", "")]


def test_every_key_of_study_and_party_files_is_documented() -> None:
    text = text_of("reference/*.md")
    for part in [
        *parts(study_file),
        *(task_section_of(row.kind) for row in registry.rows()),
        *parts(party_config),
    ]:
        for name, field in part.model_fields.items():
            key = field.alias or name
            nested = f"[{key}" in text or f"[policy.{key}" in text
            assert nested or f"| `{key}` |" in text, f"{part.__name__}.{key}"


def test_the_defaults_in_study_files_are_the_real_ones() -> None:
    text = text_of("reference/*.md")
    for part in (task_section_of("pca"), study_file.LimitsSection):
        for name, field in part.model_fields.items():
            if field.is_required():
                assert f"| `{name}` | required |" in text
            else:
                said = re.search(rf"^\| `{name}` \| `([^`]*)` \|", text, re.MULTILINE)
                assert said, name
                assert (None if said[1] == "none" else json.loads(said[1])) == field.default, name


def test_every_key_of_a_schema_is_documented() -> None:
    text = text_of("reference/schema.md")
    keys = {
        "type",
        schema.DRAFT_MARK,
        "description",
        "clip",
        "impossible",
        *(schema._KEYS.get(key, key) for make in schema.COLUMN_TYPES.values() for key in signature(make).parameters),
    }
    for key in keys:
        assert f"`{key}`" in text, key


def test_public_names_are_mentioned() -> None:
    for name in colonnade.__all__:
        if name != "__version__":
            assert re.search(rf"\b{name}\b", _ALL), name


def test_commands_are_mentioned() -> None:
    shown = "\n".join(block.text for page in pages() for block in blocks(page)) + _ALL
    left = [("colonnade", typer.main.get_command(app))]
    while left:
        name, command = left.pop()
        if hasattr(command, "get_command"):
            left += [(f"{name} {each}", command.get_command(None, each)) for each in command.list_commands(None)]
        elif not command.hidden:
            assert name in shown


def test_tests_named_on_the_pages_exist() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"`(test_\w+)`", text):
            assert any(f"def {name}(" in source for source in sources), f"{named(page)}: {name}"
        for path in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", text):
            assert (ROOT / path).exists(), f"{named(page)}: {path}"


def test_the_table_of_observers_on_the_first_page_is_a_real_one() -> None:
    roster = Roster.of(population(100).feature_schemas)
    event = PCA(5, epsilon=1.0, delta=1e-5, rows_at_most=1_000_000).plan(roster).event
    real = [line.split() for line in str(Statement.of([event], roster.trust, 1e-5)).splitlines()]
    page = ROOT / "docs" / "tutorials" / "getting-started.md"
    (shown,) = [block.text for block in blocks(page) if block.text.startswith("observer ")]
    for line in shown.splitlines():
        assert line.startswith("---") or line.split() in real, line


def test_the_next_version_has_its_entry() -> None:
    """The changes begin with the release that comes next, and so does the version of a tree without a tag."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    following = project["tool"]["hatch"]["version"]["fallback-version"].removesuffix(".dev0")
    sections = re.findall(
        r"^## \[([0-9.]+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sections[0] == (following, "unreleased")
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d|never published", when) for _, when in sections[1:])


SOURCE = ROOT / "src" / "colonnade"
_OF_SOURCE = re.compile(r"`(?:src/)?(?:colonnade/)?([a-z_]+/[\w/]*(?:\.py)?)(?=[`:])")


def test_files_of_the_source_that_pages_name_exist() -> None:
    """Such as ``kinds/pca/sensitivity.py``; a folder ends in a stroke, and kinds/NAME/ is any kind's."""
    lacking = [
        f"{named(page)}: {path}"
        for page in pages()
        if named(page) not in ("CHANGELOG.md", "research/mutation/README.md")  # both tell of earlier files
        for path in _OF_SOURCE.findall(page.read_text(encoding="utf-8"))
        if (SOURCE / path.split("/")[0]).is_dir() and path != "kinds/NAME/"
        if not ((SOURCE / path).is_file() or any((SOURCE / path).glob("*.py")) or (SOURCE / f"{path}.py").is_file())
    ]
    assert not lacking


_LIST = re.compile(r"`[^`\n]+`(?: \([^()\n]*\))?(?:(?:, |; | and )`[^`\n]+`(?: \([^()\n]*\))?)+")


def test_a_list_of_files_names_each_once() -> None:
    for page in pages():
        for listed in _LIST.findall(page.read_text(encoding="utf-8")):
            files = re.findall(r"`([\w/]+/\w+\.py)`", listed)
            assert len(files) == len(set(files)), f"{named(page)}: {listed}"


_NOT_NAMES_OF_OURS = {
    "model.fit": "of any model that a reader has",
    "numpy.exp": "of another library",
    "pyarrow.dataset": "of another library",
}
_OTHER_LIBRARIES = {
    f"docs/explanation/coming-from-{name}.md" for name in ("diffprivlib", "flower", "sdv", "secretflow")
}


def test_names_of_the_source_that_pages_of_theory_and_design_give_exist() -> None:
    """Such as ``Committee.required_seats``; pages that translate the names of other libraries are left out."""
    folders = ("docs/theory/", "docs/explanation/", "docs/how-to/add-a-kind.md")
    read = [page for page in pages() if named(page).startswith(folders) and named(page) not in _OTHER_LIBRARIES]
    lacking = [f"{named(page)}: {name}" for page in read for name in gone(page) if name not in _NOT_NAMES_OF_OURS]
    assert not lacking, "\n".join(lacking)


def test_a_name_that_is_gone_is_seen_in_every_form(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    kept = "`Committee.required_seats` `PCA(3)` `strip_table()` `messages.pack` `noise_draws` `I_n` `Sk`"
    beside = "`privacy/noise_laws.py`: `RepeatedRelease`; `complete_shares` in `mpc/shamir.py`"
    page.write_text(f"{kept} {beside}", encoding="utf-8")
    assert gone(page) == []
    missing = ["Committee.enough", "Followed", "strips()", "messages.unpacked_all", "kept_open"]
    wrong = "`privacy/noise_laws.py`: `complete_shares`; `RepeatedRelease` in `mpc/shamir.py`"
    page.write_text(" ".join(f"`{name}`" for name in missing) + f"; {wrong}", encoding="utf-8")
    assert gone(page) == [*missing, "complete_shares in privacy/noise_laws.py", "RepeatedRelease in mpc/shamir.py"]
