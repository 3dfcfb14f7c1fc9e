"""The codes of errors: collected from the source, checked, and written to one page of the reference.

    python -m tools.error_codes           # says what is wrong, and whether the page is as the source
    python -m tools.error_codes --write   # numbers new sentences and writes the page

A new sentence ends with the letters of its class and three zeros, such as ``[ST000]``; ``--write`` gives it the next
number. A number is never given again: a code that is gone from the source stays on the page as retired.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import fill

from colonnade import errors

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (ROOT / "src" / "colonnade", ROOT / "research")
PAGE = ROOT / "docs" / "reference" / "error-codes.md"
COMMAND = "python -m tools.error_codes --write"
CLASSES = {
    "SC": "SchemaError",
    "DA": "DataError",
    "DS": "DatasetError",
    "ST": "StudyError",
    "AL": "AlignmentError",
    "PO": "PolicyError",
    "BU": "BudgetError",
    "LE": "LedgerError",
    "PR": "PrivacyError",
    "SO": "StorageError",
    "OF": "ProposalError",
    "ID": "IdentityError",
    "CN": "ConnectError",
    "PE": "PeerLost, PeerStopped",
    "MS": "ProtocolError",
    "DI": "DisagreementError",
    "FE": "FederationError",
    "EN": "EngineError",
    "CA": "CapacityError",
    "SH": "ShareError",
    "CO": "ColonnadeError",
    "VA": "ValueError, TypeError, IndexError",
}
"""The letters of codes, and the classes of the sentences that have them."""
_BESIDE = {"UnreadableFile": "VA", "_SilentError": "EN", "_RefusedError": "EN", "BadParameter": "CO"}
"""Reasons that an error of ours always quotes, and what typer says for us."""
_ABOUT = {
    "CO": "Also what consoles, the interface for programs and `colonnade doctor` refuse or report by themselves.",
    "VA": "Values that are not of the form due, and why a file cannot be read. The same sentences stand inside others, "
    "which name the file and the key; the exit code is theirs.",
}
_HEAD = """# Error codes

Every sentence of an error ends with a code in brackets, such as `[{example}]`: two letters for the class and a number. The number stays the same when the sentence is improved, so it is what to search for, to write to others and to test for. With `--json` it is the field `code`; in Python it is `error.code`. Where a sentence quotes another, the code is that of the quoted one, which says where the trouble began; class and exit code are those of the sentence that quotes it. What the command line itself does not understand (exit code 2) has no code, and neither has what Python, numpy or another library says by itself.

[Errors and exit codes](errors.md) says what each class means and what to do. Words in braces stand for what differs from case to case.

This page is made from the source by `{command}`, and a test compares the two.
"""  # noqa: E501
_RETIRED = "## Retired codes\n\nThese are not given again.\n\n"
_CODE = re.compile(r"\[([A-Z]{2})(\d{3})\]")
_WRAPPERS = {"shorten", "sanitize"}
_NEW = "000"


@dataclass(frozen=True)
class Coded:
    """A literal with a code, and where it stands."""

    code: str
    sentence: str
    place: str


def modules() -> list[Path]:
    """Every module of Colonnade, and of what research adds to it."""
    return [path for folder in SOURCES for path in sorted(folder.rglob("*.py"))]


@cache
def _nodes(text: str) -> list[ast.AST]:
    """All of a module; to parse one takes time, so each is parsed once."""
    return list(ast.walk(ast.parse(text)))


def collected() -> list[Coded]:
    """Every literal of the source that has a code, in the order of the files."""
    return [one for path in modules() if _CODE.search(text := path.read_text("utf-8")) for one in _coded(path, text)]


def _coded(path: Path, text: str) -> Iterator[Coded]:
    nodes = _nodes(text)
    comments = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings, too
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    constants = _constants(text)
    for node in nodes:
        if id(node) in comments or id(node) in parts or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        said = _shown(node, constants)
        for letters, number in _CODE.findall(said):
            place = f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"
            yield Coded(letters + number, " ".join(_CODE.sub("", said).split()), place)


@cache
def _constants(text: str) -> dict[str, str]:
    """The texts that a module names once for all, in capitals."""
    found = {}
    for node in _nodes(text):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(said))) if name.isupper():
                found[name] = _CODE.sub("", said)
    return found


def _shown(node: ast.Constant | ast.JoinedStr, constants: Mapping[str, str]) -> str:
    """A literal as readers see it, with words in braces for what is put in, unless that is always the same."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    shown = []
    for part in node.values:
        match part:
            case ast.Constant(value=value):
                shown.append(str(value))
            case ast.FormattedValue(value=ast.Name(id=name)) if name in constants:
                shown.append(constants[name])
            case _:
                shown.append(f"{{{_word(part)}}}")
    return "".join(shown)


def _word(node: ast.AST) -> str:
    """One word for an expression: the last name in it that is not a function; dots where there is none."""
    match node:
        case ast.FormattedValue():
            return _word(node.value)
        case ast.Name():
            return node.id.strip("_").lower()
        case ast.Attribute():
            return node.attr.strip("_").lower()
        case ast.Subscript(slice=ast.Constant(value=str(key))) if key.isidentifier():
            return key
        case ast.Subscript() | ast.Starred():
            return _word(node.value)
        case ast.Call(args=[first, *_]):
            return _word(first)
        case ast.Call(func=ast.Attribute(value=value)):
            return _word(value)
        case ast.GeneratorExp() | ast.ListComp():
            return _word(node.generators[0].iter)
        case ast.BoolOp(values=[first, *_]):
            return _word(first)
    return "..."


def problems(found: list[Coded]) -> list[str]:
    """What is wrong with codes: numbers that stand twice, are not given yet, or were retired."""
    times = Counter(one.code for one in found)
    retired = retired_codes()
    said = []
    for one in found:
        if one.code[:2] not in CLASSES:
            said.append(f"{one.place}: no class has the letters of {one.code}")
        elif one.code.endswith(_NEW):
            said.append(f"{one.place}: a new sentence has no number yet; run {COMMAND}")
        elif times[one.code] > 1:
            said.append(f"{one.place}: {one.code} stands {times[one.code]} times; give this one [{one.code[:2]}{_NEW}]")
        elif one.code in retired:
            said.append(f"{one.place}: {one.code} was retired; give this one [{one.code[:2]}{_NEW}]")
    return said


def letters_of() -> dict[str, str]:
    """The letters of codes for each class of errors, also for those that modules define for themselves."""
    found = {name: letters for letters, names in CLASSES.items() for name in names.split(", ")} | _BESIDE
    below = {}
    for path in modules():
        for node in _nodes(path.read_text("utf-8")):
            if isinstance(node, ast.ClassDef) and node.name not in found:
                below[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
    while new := {
        name: next(found[base] for base in bases if base in found)
        for name, bases in below.items()
        if name not in found and not found.keys().isdisjoint(bases)
    }:
        found |= new
    return found


def uncoded() -> list[str]:
    """Where an error is made from a literal that has no code, or one with the letters of another class."""
    letters = letters_of()
    found = []
    for path in modules():
        for node in _nodes(path.read_text("utf-8")):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name not in letters:
                continue
            for literal in _literals(node.args[0]):
                codes = _CODE.findall(_shown(literal, {}))
                if [code[0] for code in codes] != [letters[name]]:
                    place = f"{path.relative_to(ROOT).as_posix()}:{literal.lineno}"
                    found.append(f"{place}: a {name} ends with a code [{letters[name]}{_NEW}]")
    return found


def _literals(node: ast.AST) -> Iterator[ast.Constant | ast.JoinedStr]:
    """The literals that an argument may be."""
    match node:
        case ast.Constant(value=str(text)) if text:
            yield node
        case ast.JoinedStr():
            yield node
        case ast.IfExp():
            yield from (*_literals(node.body), *_literals(node.orelse))
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_]) if name in _WRAPPERS:
            yield from _literals(first)


def raised_without_letters() -> set[str]:
    """The names of classes without codes of which an error is raised with a literal."""
    letters, found = letters_of(), set()
    for path in modules():
        for node in _nodes(path.read_text("utf-8")):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                name = ast.unparse(node.exc.func).rpartition(".")[2]
                if name[:1].isupper() and name not in letters and any(True for _ in _literals(node.exc.args[0])):
                    found.add(name)
    return found


def retired_codes() -> set[str]:
    """The codes that the page lists as retired."""
    if not PAGE.exists():
        return set()
    listed = PAGE.read_text("utf-8").partition(_RETIRED)[2]
    return set(re.findall(r"[A-Z]{2}\d{3}", listed))


def page(found: list[Coded], retired: set[str]) -> str:
    """The page of the reference."""
    parts = [_HEAD.format(example=min(one.code for one in found if one.code.startswith("ST")), command=COMMAND)]
    for letters, names in CLASSES.items():
        rows = sorted((one.code, one.sentence) for one in found if one.code.startswith(letters))
        said = " and ".join(f"`{name}`" for name in names.split(", "))
        exits = {errors.__dict__[name].exit_code for name in names.split(", ") if name in vars(errors)}
        exit_codes = f" Exit code {' or '.join(map(str, sorted(exits)))}." if exits else ""
        about = f" {_ABOUT[letters]}" if letters in _ABOUT else ""
        parts.append(f"## {letters}\n\n{said}.{exit_codes}{about}\n\n| code | sentence |\n|---|---|\n")
        parts[-1] += "".join(f"| `{code}` | {_cell(sentence)} |\n" for code, sentence in rows)
    listed = f"```text\n{fill(' '.join(sorted(retired)), 110)}\n```" if retired else "None so far."
    parts.append(f"{_RETIRED}{listed}\n")
    return "\n".join(parts)


def _cell(sentence: str) -> str:
    """A sentence as code in a table."""
    fence = "``" if "`" in sentence else "`"
    inside = f" {sentence} " if "`" in sentence else sentence
    return f"{fence}{inside}{fence}".replace("|", "\\|")


def listed_codes() -> set[str]:
    """The codes on the page, those that are retired too."""
    return set(re.findall(r"\b[A-Z]{2}\d{3}\b", PAGE.read_text("utf-8"))) if PAGE.exists() else set()


def number() -> None:
    """Give new sentences the numbers after the highest that was ever given to their class."""
    highest = Counter[str]()
    for code in {one.code for one in collected()} | listed_codes():
        highest[code[:2]] = max(highest[code[:2]], int(code[2:]))

    def given(found: re.Match[str]) -> str:
        highest[found[1]] += 1
        return f"[{found[1]}{highest[found[1]]:03d}]"

    new = re.compile(rf"\[({'|'.join(CLASSES)}){_NEW}\]")
    for path in modules():
        before = path.read_text("utf-8")
        if (after := new.sub(given, before)) != before:
            path.write_text(after, encoding="utf-8")


def main() -> int:
    """Check, or number and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="number new sentences, and write the page")
    writing = parser.parse_args().write
    if writing:
        number()
    found = collected()
    wrong = problems(found) + uncoded()
    retired = (retired_codes() | listed_codes()) - {one.code for one in found}
    if writing and not wrong:
        PAGE.write_text(page(found, retired), encoding="utf-8")
    elif not wrong and (not PAGE.exists() or PAGE.read_text("utf-8") != page(found, retired)):
        wrong = [f"{PAGE.relative_to(ROOT)} is not as the source: run {COMMAND}"]
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
