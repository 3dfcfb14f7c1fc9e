"""What others are told when a program stops: each sentence that can reach them, and whether its numbers are public."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import colonnade.protocols
from colonnade import errors
from colonnade.protocols.rows import mismatch

ROOT = Path(colonnade.protocols.__file__).parent
PLANNED = {
    "align/task.py", "cost.py", "directions/task.py", "exchange/bounds.py", "exchange/task.py", "gradients/task.py",
    "kept_scores/task.py", "losses/families.py", "losses/labels.py", "messages.py", "moments/limits.py",
    "moments/protection.py", "moments/task.py", "on_shares.py", "polynomial/circuit.py", "polynomial/expressions.py",
    "polynomial/task.py", "scores/task.py", "sketch.py", "task.py",
}  # fmt: skip
"""Modules about a study before it begins: whatever they complain of is in the study file, which everybody has."""
NAMES = {
    "COORDINATOR", "event.name", "joiner", "kind", "leader", "me.name", "name", "owner", "peer", "self.name",
    "self.task.speaker", "sender", "speaker", "task.active", "first", "vocabulary.WAITING.kind", "', '.join(about)",
    "', '.join(beyond)", "', '.join(task.owners)", "', '.join((key.name for key in task.keys))",
}  # fmt: skip
"""Who, and which message: names of participants, events, messages and keys."""
PUBLIC = {
    "align/fuzzy.py": {"BITS", "ROWS_AT_MOST"},
    "align/similarity.py": {"CANDIDATES_AT_MOST", "similarity"},
    "align/programs.py": {"task.at_least"},
    "exchange/programs.py": {"task.rows"},
    "roles.py": {"degree", "mask.degree", "shares.degree", "values.dtype"},
    "rows.py": {"most"},
}
"""Numbers of the study file or of the code."""
LISTED = {
    "align/programs.py": {"count", "found"},
    "rows.py": {"harmless(problem)", "problem", "said"},
}
"""Numbers that depend on tables and that all participants may know; docs/who-sees-what.md lists each."""
SAID_BY_MODULE = {"align/programs.py", "rows.py"}
"""Modules in which errors are passed on that are not public by their kind."""


def _sentences() -> Iterator[tuple[str, str, str]]:
    """The module, the class of error and each expression that stands in the text of an error or beside it."""
    for path in sorted(ROOT.rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id.endswith("Error")):
                continue
            shown = [ast.unparse(part.value) for part in ast.walk(call) if isinstance(part, ast.FormattedValue)]
            plain = [ast.unparse(text) for text in call.args if not isinstance(text, ast.Constant | ast.JoinedStr)]
            if where not in PLANNED:
                yield from ((where, call.func.id, each) for each in (*shown, *plain))


def _reaches_others(where: str, error: str) -> bool:
    """Whether the text of an error is told to others: where its kind is public, or a module says that this one is."""
    known = getattr(errors, error, None)
    return known is not None and (known.public or where in SAID_BY_MODULE)


def test_every_number_that_others_can_be_told_was_looked_at() -> None:
    unknown = {
        (where, each)
        for where, error, each in _sentences()
        if _reaches_others(where, error) and each not in NAMES | PUBLIC.get(where, set()) | LISTED.get(where, set())
    }
    assert not unknown


def test_the_modules_that_make_an_error_public_are_known() -> None:
    found = {
        path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if ".public = " in path.read_text("utf-8")
    }
    assert found == SAID_BY_MODULE


def test_the_scan_sees_sentences_of_every_protocol() -> None:
    found = {where.split("/")[0] for where, _, _ in _sentences()}
    assert found >= {"align", "directions", "exchange", "gradients", "kept_scores", "scores", "roles.py", "rows.py"}
    assert ("exchange/programs.py", "StudyError", "mine") in set(_sentences())


def test_numbers_of_rows_that_differ_are_not_told() -> None:
    assert not any(letter.isdigit() for letter in mismatch("bank", "shop"))


def test_what_is_listed_is_in_the_page_about_who_sees_what() -> None:
    page = (Path(__file__).parents[2] / "docs" / "who-sees-what.md").read_text(encoding="utf-8")
    part = page.split("## When something fails")[1]
    for text in (
        "the tables have no rows, or more than the study allows",
        "fewer people are common than `at_least`",
        "do not hold the same people",
    ):
        assert text in part
