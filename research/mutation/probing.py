"""Which tests reach a mutant: a call before each mutated statement of a scratch copy, and one run of the suite."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from research.mutation import hit
from research.mutation.functions import statements
from research.mutation.mutants import Mutant, Tree

PROBE = "_mutation_probe"


def instrument(source: Path, mutants: Iterable[Mutant], notes: Path) -> list[str]:
    """Write the calls into the files below ``source``, a scratch copy; the mutants that are not there any more."""
    tree, gone = Tree(source), []
    wanted: dict[str, list[tuple[ast.stmt, str]]] = defaultdict(list)
    for mutant in mutants:
        place = tree.locate(mutant)
        if place is None:
            gone.append(mutant.id)
        else:
            wanted[place.function.module].append((place.statement, mutant.id))
    for module, places in wanted.items():
        path = source / module
        path.write_text(_with_calls(path.read_text(encoding="utf-8"), places), encoding="utf-8")
    notes.mkdir(parents=True, exist_ok=True)
    code = Path(hit.__file__).read_text(encoding="utf-8").replace('FOLDER = "."', f"FOLDER = {str(notes.resolve())!r}")
    (source / f"{PROBE}.py").write_text(code, encoding="utf-8")
    return gone


def _with_calls(code: str, places: list[tuple[ast.stmt, str]]) -> str:
    """The file with one call before each of the statements."""
    whole = ast.parse(code)
    names = {(place.lineno, place.col_offset): name for place, name in places}
    found = [
        (block, here, names[here.lineno, here.col_offset])
        for here, block, _ in statements(whole)
        if (here.lineno, here.col_offset) in names
    ]
    assert len(found) == len(places)
    for block, statement, name in found:
        call = ast.parse(f"__import__({PROBE!r}).hit({name!r})").body[0]
        block.insert(next(place for place, each in enumerate(block) if each is statement), call)
    return ast.unparse(ast.fix_missing_locations(whole)) + "\n"
