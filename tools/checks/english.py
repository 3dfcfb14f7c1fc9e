"""Sentences and words of a page in Markdown: what a reader reads, without code blocks, comments and shown formulas.

Each paragraph, list item and table cell stands by itself. Headings are no sentences. Inline code is one word, and so is
an inline formula, where operators join what they stand between. A link counts by its text, an image not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PARSER = MarkdownIt("commonmark").enable("table")
_CODE = "`code`"
"""What an inline formula between dollars is replaced by; one between double dollars is shown, and left out."""
_BOX = re.compile(r"(?:!!!|\?\?\?\+?|===) +\S|: {1,3}(?=\S)")
"""What begins a note, a tab or a definition; its text is indented by four."""
_ICON = re.compile(r"\{:?\s*[.#][^}]*\}|:(?:material|octicons|fontawesome|simple)-[\w-]+:")
_FORMULA = re.compile(
    r"(?P<code>`+)[^`]+(?P=code)|\$\$.+?\$\$|(?<![\\\w$])\$(?=[^\s$])[^$]*(?<=[^\s$])\$(?![\w$])", re.DOTALL
)
_OPERATOR = re.compile(r"[=<>≤≥≠≈≡∼∝+−±×·∘/÷∈∉⊂⊆∪∩∖⊕⊗∧∨≪≫]+")
_STOP = re.compile(r"(?P<mark>[.?!…]+)[\"'”’)\]]*\s+")
_ABBREVIATION = re.compile(r"(?<![\w.])(?:[Ee]\.g|[Ii]\.e|[Cc]f|al|vs|resp|approx|viz|Dr|Mrs?|Ms|Prof)\.$")
_PLACE = re.compile(r"(?<![\w.])(?:Secs?|Thms?|Prop|Cor|Lem|Def|Figs?|Eqs?|App|Alg|Tab)\.$", re.IGNORECASE)
_NUMBERED = re.compile(r"(?<![\w.])(?:Nos?|pp?|Ch)\.$", re.IGNORECASE)
"""What is short for a place, if its number follows; for some also if its letter does."""
_INITIAL = re.compile(r"(?:^|[(\[,]\s?|\b[A-Z]\.\s?|\b(?:by|and)\s)[A-Z]\.$")
_NO_NAME = re.compile(
    r"(?:A|An|And|As|At|Both|But|By|Each|Every|For|From|Hence|How|If|In|It|Its|Let|No|Nobody|Now|Of|On|One|Or|So|That|"
    r"The|Then|There|These|They|This|Those|Thus|To|We|What|When|Where|Which|Who|With|Without)\b"
)
"""What comes after the name of a set or a matrix at the end of a sentence, but not after somebody's initial."""


@dataclass(frozen=True)
class Sentence:
    """A sentence as plain text, and the line of the page on which it begins."""

    line: int
    text: str

    @property
    def words(self) -> int:
        """How many words it has."""
        return words_in(self.text)

    @property
    def opening(self) -> str:
        """Its first words, by which one finds it."""
        return " ".join(self.text.split()[:8])


def words_in(text: str) -> int:
    """The words of plain text: what stands between spaces and has a letter or a digit; operators join two into one."""
    count, joined = 0, False
    for piece in text.split():
        if _OPERATOR.fullmatch(piece):
            joined = count > 0
        elif re.search(r"[^\W_]", piece):
            count += not joined
            joined = False
    return count


def words_of(page: str) -> int:
    """The words of a page: of its paragraphs, lists and tables."""
    return sum(words_in(text) for _, text in passages(page))


def sentences(page: str) -> list[Sentence]:
    """The sentences of a page, in order."""
    return [sentence for line, text in passages(page) for sentence in _divided(line, text)]


def passages(page: str) -> list[tuple[int, str]]:
    """Paragraphs, list items and table cells as plain text with the line ends of the page, each with its first line."""
    lines = list(_unboxed(_numbered(page)))
    found, place, heading = [], 0, False
    for token in _PARSER.parse("\n".join(text for _, text in lines)):
        place = token.map[0] if token.map else place
        heading = token.type == "heading_open" or (heading and token.type != "heading_close")
        if token.type == "inline" and not heading:
            (inline,) = _PARSER.parseInline(_FORMULA.sub(_as_code, token.content))
            text = _ICON.sub("", "".join(_plain(inline.children or [])))
            found.append((lines[place][0], text))
    return [(line, text) for line, text in found if text.strip()]


def _numbered(page: str) -> Iterator[tuple[int, str]]:
    """The lines of a page with their numbers; what a page says about itself before its text (front matter) is empty."""
    before = re.match(r"---\n.*?\n---\n", page, re.DOTALL)
    hidden = before.group().count("\n") if before else 0
    for number, line in enumerate(page.split("\n"), start=1):
        yield number, "" if number <= hidden else line


def _unboxed(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines with the text of notes, tabs and definitions at the margin, where the parser takes it for text."""
    boxed: list[tuple[int, str]] | None = None
    for number, line in lines:
        if boxed is not None and (not line.strip() or line.startswith("    ")):
            boxed.append((number, line[4:]))
            continue
        if boxed:
            yield from _unboxed(boxed)
        boxed = None
        if opening := _BOX.match(line):
            boxed = [(number, line[opening.end() :])] if line.startswith(":") else []
            yield number, ""
        else:
            yield number, line
    if boxed:
        yield from _unboxed(boxed)


def _as_code(found: re.Match[str]) -> str:
    if found["code"]:
        return found.group()
    return ("" if found.group().startswith("$$") else _CODE) + "\n" * found.group().count("\n")


def _plain(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type == "text":
            yield token.content
        elif token.type == "code_inline":
            yield "code"
        elif token.type in ("softbreak", "hardbreak"):
            yield "\n"
        elif token.type == "html_inline" and token.content.startswith("<br"):
            yield " "


def _divided(line: int, text: str) -> Iterator[Sentence]:
    """The sentences of a passage; each has the line of its first word."""
    begin = len(text) - len(text.lstrip())
    for stop in _STOP.finditer(text):
        if stop.end() < len(text) and _ends(text[begin : stop.end("mark")], text[stop.end() :]):
            yield Sentence(line + text.count("\n", 0, begin), text[begin : stop.end()].strip())
            begin = stop.end()
    yield Sentence(line + text.count("\n", 0, begin), text[begin:].strip())


def _ends(before: str, after: str) -> bool:
    """Whether a sentence ends between two parts of a passage, of which the first ends in a stop."""
    if not before.endswith(".") or before.endswith(".."):
        return not after[0].islower()
    if _ABBREVIATION.search(before):
        return False
    if _PLACE.search(before) and re.match(r"[(\[]?(?:\d|[A-Z]\b)", after):
        return False
    if _NUMBERED.search(before) and after[0].isdigit():
        return False
    if re.search(r"\b[A-Z]\.$", before) and re.match(r"[A-Z]\.\s", after):
        return False
    return not (_INITIAL.search(before) and after[0].isupper() and not _NO_NAME.match(after))
