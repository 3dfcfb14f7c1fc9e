"""Sentences are short, as ``english`` counts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.checks.english import sentences, words_in, words_of
from tools.pages import ROOT, named

LONGEST_SENTENCE = 35


def read_pages() -> list[Path]:
    """The pages that people read: not the list of changes, nor what benchmarks and research write down."""
    top = [path for path in sorted(ROOT.glob("*.md")) if path.name != "CHANGELOG.md"]
    return top + sorted((ROOT / "docs").rglob("*.md")) + sorted((ROOT / "examples").glob("*/*.md"))


def too_long(name: str, text: str) -> list[str]:
    """The sentences of a page that are too long, each with its place."""
    return [
        f"{name}:{sentence.line}: {sentence.words} words in one sentence: {sentence.opening} …"
        for sentence in sentences(text)
        if sentence.words > LONGEST_SENTENCE
    ]


def test_sentences_are_short() -> None:
    found = [words for page in read_pages() for words in too_long(named(page), page.read_text(encoding="utf-8"))]
    assert not found, f"at most {LONGEST_SENTENCE} words a sentence:\n" + "\n".join(found)


def test_all_pages_are_read() -> None:
    read = {named(page) for page in read_pages()}
    assert {"README.md", "docs/README.md", "docs/theory/lanes.md", "examples/hospital/README.md"} <= read
    assert "CHANGELOG.md" not in read
    assert not any(name.startswith(("benchmarks/", "research/", "src/")) for name in read)


DIVIDED = (
    ("One. |Two? |Three! |Four"),
    ("One: two; three. |Four."),
    ("One\nline more. |Two."),
    ("See e.g. Sec. 4, i.e. Thm. A of Doe et al. (2020), cf. Eqs. (2) and Fig. 2. |Then go."),
    ("Noise of 0.5 at 3.14 and v1.2.3. |Then 1,000. |2 more."),
    ("It is due to C. R. Rao and J. Neyman. |So it is."),
    ("B. Pascal and P. Fermat wrote letters. |They met."),
    ("The seats outside of S. |The rest holds K. |Let it be so for S, and P. |Then stop."),
    ("It takes 5 ms. |Open a tab. |Turn to No. 7 on p. 7 at p. |A key. |No. |A page"),
    ('He asks "why?" and goes. |(An aside.) |"Well." |So it is.'),
    ("Rounds 1, 2, ... go on. |x is given. |δ is not."),
)


@pytest.mark.parametrize("page", DIVIDED)
def test_sentences_end_where_they_do(page: str) -> None:
    found = [sentence.text for sentence in sentences(page.replace("|", ""))]
    assert found == [text.strip() for text in page.split("|")]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("one two-fold, three/four (five) — six", 5),
        ("it's 1,000 or 0.5 %", 4),
        ("where f(T) = Σ_i g_i + 1 holds", 4),
        ("if ε ≤ 1 and x ∈ A ∪ B", 4),
        ("= 3 people", 2),
        ("δ and ‖x‖ are _ …", 4),
    ],
)
def test_a_formula_is_one_word(text: str, count: int) -> None:
    assert words_in(text) == count


PAGE = """---
title: No text. None.
---
# A heading is no sentence. Not even two.

First `inline code` here, with a [link of four words](https://example.org/some.where?x=1) and $a + b$.
<!-- A comment. -->
Second, which <!-- is not this. --> ends
on another line.

- One item
  that goes on. And on.
  - A nested item
1. Another

| A head | of a table |
|---|---|
| A cell.<br>Two. | `x y` ![Nothing is read of this.](p.png) |

```text
Code is not read. At all.
```

    Nor is a formula. That is shown.

$$
x. Y
$$

> A quotation. It is read.

!!! note "A title. No text."

    A note. It is read.

    ```text
    Code in a note.
    ```

=== "Tab"

    - In a tab.

Term
:   What it means.

    And more of it.

Above it
========
The end :material-check:
"""


def test_what_is_read_of_a_page_and_on_which_line() -> None:
    assert [(sentence.line, " ".join(sentence.text.split())) for sentence in sentences(PAGE)] == [
        (6, "First code here, with a link of four words and code."),
        (8, "Second, which ends on another line."),
        (11, "One item that goes on."),
        (12, "And on."),
        (13, "A nested item"),
        (14, "Another"),
        (16, "A head"),
        (16, "of a table"),
        (18, "A cell."),
        (18, "Two."),
        (18, "code"),
        (30, "A quotation."),
        (30, "It is read."),
        (34, "A note."),
        (34, "It is read."),
        (42, "In a tab."),
        (44, "Term"),
        (45, "What it means."),
        (47, "And more of it."),
        (51, "The end"),
    ]


def test_words_of_a_page_are_those_of_its_text_and_tables() -> None:
    assert words_of("# A heading\n\nTwo words.\n\n| a | b c |\n|---|---|\n| `x y` | d |\n\n```\ncode\n```\n") == 7
    assert words_of(PAGE) == 60


def test_what_is_too_long_is_named_with_its_place() -> None:
    short, long = "word " * 34 + "end.", "Now " + "word " * 34 + "end."
    assert too_long("docs/a.md", f"# Title\n\n{short}\n{long}\n") == [
        "docs/a.md:4: 36 words in one sentence: Now word word word word word word word …"
    ]
