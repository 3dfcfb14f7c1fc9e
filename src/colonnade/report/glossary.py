"""Words that a reader may not know, each linked to a line at the end of the page.

docs/reference/glossary.md and glossary-machine.md have all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from colonnade.drawing.markup import Html, join, tag
from colonnade.privacy.additive import laws

_GENERAL = {
    "adaptive": "A noise, or a batch, that follows from what was opened before.",
    "agreement": "The squared correlation of one party's scores with what its columns really add; 1 is perfect.",
    "alignment": "Finding the people whom all parties hold, by keys that nobody else can read.",
    "alternating": "The parties fit their weights in turns, each to what the others leave.",
    "analyst": "Whoever reads the published result and nothing else.",
    "clipped": "Cut to its public bound, so that no one person can move a sum by more.",
    "committee": "The participants who hold shares; none of them sees what is shared.",
    "coordinator": "Relays sealed messages between the parties and publishes the result; it holds no columns.",
    "delta": "A small chance that is added to what epsilon allows.",
    "digest": "A short number that changes with every letter of a study; equal digests mean equal studies.",
    "embedding": "A few numbers that stand for a party's columns of one person, computed by its encoder.",
    "encoded column": "A column as the computation sees it: a number between public bounds, or one for each category.",
    "encoder": "The function by which a party turns its columns into an embedding.",
    "epsilon": "How well an observer can tell two tables apart that differ in one person; smaller is safer.",
    "even shares": "The variance of each component if the bounds' variance were spread evenly over all of them.",
    "functional": "One release of noisy sums with Laplace noise, from which a regression follows; it needs no delta.",
    "gamma": "The scale of the grid of whole numbers that cells are rounded to before anything is shared.",
    "gaussian-transfer": "The theorem that accounts for whole-number noise as for a Gaussian, with the error counted.",
    "gradient": "The direction in which weights must change to fit better.",
    "intercept": "The score of somebody whose encoded columns are all zero.",
    "joint table": "All parties' columns of the common people, side by side; it exists nowhere, only as shares.",
    "ledger": "A party's own record of everything its people were exposed to, over all studies.",
    "marginal": "How often each value, or each combination of values, of a few columns occurs.",
    "mixture": "A table described as several groups of people, each with its own simple law.",
    "moments-sensitivity": "The theorem that bounds how far one person moves the sums of products of columns.",
    "noisy count": "The number of people with noise added, since the number itself is about people.",
    "one-shot": "One release of noisy sums, from which a regression follows without asking again.",
    "pool": "Put together everything that several observers see.",
    "proven": "A theorem of the theory pages covers exactly what the program does.",
    "replacing-and-groups": "The theorem that replacing a person costs at most removing one and adding one.",
    "ridge": "A number that pulls coefficients towards zero, so that noise cannot make them large.",
    "round": "A wait for a message after having sent one; it costs at least the time to a peer and back.",
    "sealed": "Encrypted from participant to participant, so that the coordinator relays what it cannot read.",
    "shares": "Random-looking parts of a number; with too few of them nobody learns anything about it.",
    "sqm": "Many rounds of noisy gradients on random batches, by which a logistic regression learns.",
    "stretch": "A factor that undoes what the ridge shrank predictions by, between 1 and 2.",
    "subspace-iteration": "The theorem that products with few directions, asked in rounds, cost one release.",
    "threshold": "How many members of the committee may pool their shares and still learn nothing from them.",
    "total variation": "The largest difference in how likely anything is under two laws; 0 is the same law.",
}
WORDS: dict[str, str] = dict(sorted([*_GENERAL.items(), *(each for law in laws() for each in law.words)]))
"""Each word, and its line; those about noise are their laws'."""

_SILENT = ("svg", "a", "h1", "h2", "h3", "code", "pre", "nav", "title", "style")
_TAGS = re.compile(r"(<[^>]*>)")
_NAME = re.compile(r"</*([^\s>/]*)")


def linked(parts: Sequence[Html]) -> tuple[list[Html], Html | None]:
    """The parts of a page with the first occurrence of each word linked, and a section that explains these words."""
    found: dict[str, str] = {}
    done = [Html(_linked(part, found)) for part in parts]
    if not found:
        return done, None
    lines = [join(tag("dt", word, id=_anchor(word)), tag("dd", WORDS[word])) for word in sorted(found)]
    return done, join(tag("h2", "Words"), tag("dl", *lines, class_="facts"))


def _linked(text: str, found: dict[str, str]) -> str:
    depth, pieces = 0, []
    for piece in _TAGS.split(text):
        if piece.startswith("<"):
            if (name := _NAME.match(piece)) and name[1] in _SILENT:
                depth += -1 if piece.startswith("</") else 1
        elif not depth:
            piece = _PATTERN.sub(lambda match: _link(match, found), piece)
        pieces.append(piece)
    return "".join(pieces)


def _link(match: re.Match[str], found: dict[str, str]) -> str:
    word = _WORD_OF[match[0].lower()]
    if word in found:
        return match[0]
    found[word] = match[0]
    return f'<a class="word" href="#{_anchor(word)}">{match[0]}</a>'


def _anchor(word: str) -> str:
    return f"word-{word.replace(' ', '-')}"


def _written(word: str) -> list[str]:
    """The ways in which a word is written on a page."""
    plural = [f"{word}s"] if not word.endswith("s") and "-" not in word else []
    return [word, *plural, *([word.replace("-", " ")] if "-" in word else [])]


_WORD_OF = {way: word for word in WORDS for way in _written(word)}
_PATTERN = re.compile(
    r"(?<![\w-])(" + "|".join(sorted(map(re.escape, _WORD_OF), key=len, reverse=True)) + r")(?![\w-])", re.IGNORECASE
)
