"""How six words are compared: whoever has heard them types some that were not shown, and some wrong tries end it.

Which ones an end is asked for follows at an invitation from what both ends have drawn, so that each reads out the words
that the other is asked for: three each, and three wrong tries. Words of a key can be searched for, by whoever makes the
key that is shown here, so there five are typed. Which one is not was drawn here, once for each key, and six wrong tries
end a name, with whatever keys.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from colonnade.federation.members import WORD_COUNT, word_list
from colonnade.federation.store_file import StoreFile
from colonnade.randomness import new_key
from colonnade.report.wording import join_names

ASKED, ASKED_OF_KEY = 3, 5
MOST_WRONG, MOST_WRONG_OF_NAME = 3, 6
_LEAST_LETTERS = 3


@dataclass(frozen=True)
class WordComparison:
    """Six words, of which one end types some as it hears them."""

    words: str
    asked: tuple[int, ...]
    most: int = MOST_WRONG
    """Wrong tries that end it."""

    @classmethod
    def of_invitation(cls, words: str, *, hub: bool) -> WordComparison:
        """The words of an invitation: the hub is asked for three of them, and the newcomer for the others."""
        order = _draw_order(words.encode())
        return cls(words, tuple(sorted(order[:ASKED] if hub else order[ASKED:])))

    @property
    def shown(self) -> str:
        """What this end reads out: the words that it is not asked for."""
        said = enumerate(self.words.split())
        return "  ".join(f"{at + 1}:{'.....' if at in self.asked else word}" for at, word in said)

    @property
    def places(self) -> str:
        """Which words are asked for, such as "words 1, 4 and 6"."""
        return f"words {join_names([str(at + 1) for at in self.asked])}"

    def fits(self, said: str) -> bool:
        """Whether these are the words asked for, or all six; the beginning of a word that begins no other will do."""
        given, known = said.lower().split(), self.words.split()
        wanted = known if len(given) == len(known) else [known[at] for at in self.asked]
        whole = [[word for word in word_list() if word.startswith(each)] for each in given]
        return len(given) == len(wanted) and all(
            each == word or (len(each) >= _LEAST_LETTERS and found == [word])
            for each, word, found in zip(given, wanted, whole, strict=True)
        )


class _TriesFile(StoreFile):
    """Which words are asked for, and how often others were typed, by what they belong to."""

    name, application_id = "words.db", 0x436F5764
    schema = "CREATE TABLE tries (subject TEXT PRIMARY KEY, asked TEXT NOT NULL, wrong INTEGER NOT NULL) STRICT;"


class WordTries:
    """What was typed wrongly so far, on disk, so that a restart forgets nothing."""

    def __init__(self, folder: Path) -> None:
        self._file = _TriesFile(folder)

    def of_key(self, pin: str, words: str) -> WordComparison:
        """The words of a key; which of them are asked for was drawn at the first look and stays so."""
        drawn, key = json.dumps(sorted(_draw_order(new_key())[:ASKED_OF_KEY])), f"key {pin}"
        self._file.change("INSERT OR IGNORE INTO tries VALUES (?, ?, 0)", (key, drawn))
        row = self._file.row("SELECT asked FROM tries WHERE subject = ?", (key,))
        return WordComparison(words, tuple(json.loads(drawn if row is None else row["asked"])), MOST_WRONG_OF_NAME)

    def left(self, subject: str, words: WordComparison) -> int:
        """How many tries are left."""
        row = self._file.row("SELECT wrong FROM tries WHERE subject = ?", (subject,))
        return words.most - (0 if row is None else int(row["wrong"]))

    def compare(self, subject: str, words: WordComparison, said: str) -> int | None:
        """``None`` if these are the words; else how many tries are left, and after the last one nothing is compared."""
        with self._file.writing() as file:
            file.execute("INSERT OR IGNORE INTO tries VALUES (?, ?, 0)", (subject, json.dumps(words.asked)))
            row = file.execute("SELECT wrong FROM tries WHERE subject = ?", (subject,)).fetchone()
            wrong = row["wrong"] if row["wrong"] >= words.most or words.fits(said) else row["wrong"] + 1
            file.execute("UPDATE tries SET wrong = ? WHERE subject = ?", (wrong, subject))
        return None if wrong == row["wrong"] < words.most else words.most - wrong


def name_subject(name: str) -> str:
    """What wrong tries belong to where keys are compared: the name, with whatever keys and letters."""
    return f"name {name.lower()}"


def _draw_order(seed: bytes) -> list[int]:
    """The places of six words in an order that follows from these bytes."""
    return sorted(range(WORD_COUNT), key=lambda at: sha256(b"colonnade places" + bytes([at]) + seed).digest())
