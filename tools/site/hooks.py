"""What the site needs besides `docs/`: its order, pages that lie elsewhere in the repository, and links to them.

On disk, links between pages are relative paths, so that they work wherever the repository is browsed. The site has the
same pages: those of `docs/`, those of `examples/`, `benchmarks/` and `research/` beside them, and a few of the root.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SECTIONS = {
    "Tutorials": "tutorials",
    "Notebooks": "notebooks",
    "How-to guides": "how-to",
    "Reference": "reference",
    "Explanation": "explanation",
    "Theory": "theory",
}
BESIDE = ("examples", "benchmarks", "research")
SEARCH = {"docs/explanation/faq.md": 2.0, **dict.fromkeys((*BESIDE, "docs/explanation/decisions", "CHANGELOG"), 0.4)}
"""How much pages whose paths begin so count in a search: answers before records of what was measured or decided."""
ASKED = "benchmarks/results/questions.md"
"""Holds questions that the search is tried with, so it would be found for each of them."""
OF_THE_ROOT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
_FENCED = re.compile(r"(^ *```.*?^ *```[ \t]*$)", re.MULTILINE | re.DOTALL)
_MARKS = re.compile(r"^( *```\w+) .*$", re.MULTILINE)
_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_NAME_OF_A_NODE = re.compile(r"(\b(\w+)=\2\+\w+\+\w+\.id)\}return(?= \2\b)")
_ROW = re.compile(r"^## (?P<group>.+)$|^(?:\||-|\d+\.) .*?\]\((?P<page>[\w/.-]+\.(?:md|ipynb))\)", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The order of pages is that of each folder's README, with its headings as groups."""
    config.nav = [{"Home": "README.md"}, *({title: section(folder)} for title, folder in SECTIONS.items())]
    return config


def section(folder: str) -> list[Any]:
    """The pages of a folder as its README lists them."""
    pages: list[Any] = [f"{folder}/README.md"]
    group = pages
    for row in _ROW.finditer((DOCS / folder / "README.md").read_text(encoding="utf-8")):
        if row["group"]:
            group = []
            pages.append({row["group"]: group})
        elif (DOCS / folder / row["page"]).resolve().is_relative_to(DOCS / folder):
            group.append(f"{folder}/{row['page']}")
    return [entry for entry in pages if isinstance(entry, str) or all(entry.values())]


def place(path: Path) -> str:
    """Where a file of the repository lies within the site."""
    return path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT).as_posix()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages beside `docs/`, and files that pages link to."""
    outside = [ROOT / name for name in OF_THE_ROOT if (ROOT / name).is_file()]
    outside += [page for folder in BESIDE for page in sorted((ROOT / folder).rglob("*.md")) if "runs" not in page.parts]
    pages = [DOCS / file.src_uri for file in files.documentation_pages() if file.src_uri.endswith(".md")]
    linked = {target for page in [*outside, *pages] for target in _targets(page)}
    others = {path for path in linked if path.is_file() and path.suffix != ".md" and not path.is_relative_to(DOCS)}
    for path in sorted({*outside, *others}):
        files.append(File.generated(config, place(path), abs_src_path=str(path), inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns paths within the repository into paths within the site, and says what a page counts in a search."""
    source = Path(str(page.file.abs_src_path))
    path = source.relative_to(ROOT).as_posix()
    boost = next((boost for start, boost in SEARCH.items() if path.startswith(start)), 1.0)
    page.meta["search"] = {"boost": boost, "exclude": path == ASKED}
    here = os.path.dirname(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        opening, link, rest = match.groups()
        target = (source.parent / link).resolve()
        if re.match(r"[a-z]+:", link) or (target.is_relative_to(DOCS) and source.is_relative_to(DOCS)):
            return match[0]
        if target.is_dir():
            target /= "README.md"
        if target == ROOT / "README.md":
            target = DOCS / "README.md"
        if not target.is_relative_to(ROOT) or files.get_file_from_path(place(target)) is None:
            raise PluginError(f"{page.file.src_uri}: the site has no {link}")
        return f"{opening}{os.path.relpath(place(target), here or '.')}{rest}"

    parts = _FENCED.split(markdown)
    return "".join(
        _MARKS.sub(r"\1", part) if index % 2 else _LINK.sub(moved, part)  # marks tell the tests how to run a block
        for index, part in enumerate(parts)
    )


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links of notebooks, which the builder leaves as they stand on disk."""
    if not page.file.src_uri.endswith(".ipynb"):
        return html
    source = DOCS / page.file.src_uri

    def moved(match: re.Match[str]) -> str:
        link, _, anchor = match[1].partition("#")
        target = files.get_file_from_path(place((source.parent / link).resolve()))
        if target is None:
            raise PluginError(f"{page.file.src_uri}: the site has no {link}")
        return f'href="{get_relative_url(target.url, page.url)}{"#" + anchor if anchor else ""}"'

    return re.sub(r'href="(?![a-z]+:|#)([^"]+\.(?:md|ipynb)(?:#[^"]*)?)"', moved, html)


def on_post_build(config: MkDocsConfig) -> None:
    """Mends the search, which finds nothing for some words and figures of a site with many figures.

    Its library calls a node of its tree by letters and numbers of the next nodes, written one after the other. Where
    letters are digits, two nodes can have one name; they are taken for one, and words are found that are on no page.
    """
    for script in Path(config.site_dir).glob("assets/javascripts/workers/search.*.js"):
        mended, count = _NAME_OF_A_NODE.subn(r'\1+","}return', script.read_text(encoding="utf-8"))
        if count != 1:
            raise PluginError(f"{script.name}: the search is another one; see whether on_post_build is still needed")
        script.write_text(mended, encoding="utf-8")


def _targets(page: Path) -> set[Path]:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return {(page.parent / link).resolve() for _, link, _ in _LINK.findall(text) if not re.match(r"[a-z]+:", link)}
