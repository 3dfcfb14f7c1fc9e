"""Mutants are found again after moves, change one place, and are noticed by the tests that reach them."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from research.mutation import running
from research.mutation.functions import functions
from research.mutation.mutants import Mutant, Tree, read_mutants, write_mutants
from research.mutation.reach import Reach
from research.mutation.running import read_results, run_all, totals
from research.mutation.sampling import sound

KEPT = Path(__file__).parents[2] / "research" / "mutation"
CODE = '''\
"""A module."""


class Box:
    def size(self, a, b):
        """Words."""
        import math

        if a < b and (
            a > 0
        ):  # a comment stays
            raise ValueError(f"{a} is less than {b}")
        self.log("sizes", a)
        return math.floor(a - b)


def size(a):
    return a
'''
MOVED = CODE.replace("import math", "from elsewhere import math").replace("less than {b}", "less than {b} [XY101]")


@pytest.fixture
def mutant():
    (found, _) = functions(ast.parse(CODE), "colonnade/old.py")
    line, becomes = "if a < b and a > 0:", "if a <= b and a > 0:"
    return Mutant("m001", "colonnade/old.py", "Box.size", "Lt_LtE", line, becomes, 0, found.digest)


def tree(folder, files):
    for name, code in files.items():
        path = folder / "src" / "colonnade" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
    return Tree(folder / "src")


def test_a_mutant_changes_one_expression_and_no_other_character(tmp_path, mutant):
    here = tree(tmp_path, {"old.py": CODE})
    place = here.locate(mutant)
    assert place.how == "same file"
    assert here.applied(mutant, place) == CODE.replace("a < b", "(a <= b)")
    assert sound(here, mutant)


@pytest.mark.parametrize(
    ("files", "how", "module"),
    [
        ({"new/place.py": MOVED, "other.py": CODE.replace("a - b", "b - a")}, "moved", "new/place.py"),
        (
            {"new.py": CODE.replace("a - b", "b - a"), "other.py": CODE.replace("a < b", "a == b")},
            "moved and changed",
            "new.py",
        ),
        ({"new.py": CODE.replace("def size(self", "def length(self")}, None, None),
        ({"new.py": CODE.replace("a < b", "a == b")}, None, None),
        ({"new.py": CODE, "newer.py": CODE}, None, None),
    ],
    ids=["other sentences and imports", "by its statement", "renamed", "another statement", "two of them"],
)
def test_a_function_that_has_moved_is_found_unless_it_is_not_sure(tmp_path, mutant, files, how, module):
    here = tree(tmp_path, files)
    place = here.locate(mutant)
    if how is None:
        assert place is None
        return
    assert (place.how, place.function.module) == (how, f"colonnade/{module}")
    assert here.applied(mutant, place) == files[module].replace("a < b", "(a <= b)")


def test_a_function_that_left_the_package_for_research_is_found_there(tmp_path, mutant):
    gone = tmp_path / "research" / "cheats" / "old.py"
    gone.parent.mkdir(parents=True)
    gone.write_text(CODE, encoding="utf-8")
    here = tree(tmp_path, {"other.py": ""})
    place = here.locate(mutant)
    assert (place.how, place.function.module) == ("moved", "../research/cheats/old.py")
    assert "(a <= b)" in here.applied(mutant, place)


@pytest.mark.system
def test_a_run_in_a_private_copy(tmp_path, monkeypatch):
    """Killed, survived, reached by nothing and gone; a test that fails anyway kills nothing."""
    monkeypatch.setattr(running, "WARM", ())
    code = "def f(a):\n    return a > 2\n\n\ndef g():\n    return 1\n"
    root, module, out = tmp_path / "root", "colonnade/__init__.py", tmp_path / "out.csv"
    here = tree(root, {"__init__.py": code})
    (root / "tests").mkdir()
    (root / "tests" / "test_f.py").write_text(
        "from colonnade import f\n\n\ndef test_bad():\n    assert f(0)\n\n\ndef test_good():\n    assert f(3)\n",
        encoding="utf-8",
    )
    for words in (["init"], ["add", "."]):
        subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True)
    rows = [
        ("f", "return a > 2", "return a > 3"), ("f", "return a > 2", "return a >= 2"),
        ("g", "return 1", "return None"), ("h", "return 1", "return None"),
    ]  # fmt: skip
    bodies = {found.qualname: found.digest for found in functions(ast.parse(code), module)}
    mutants = [
        Mutant(f"m{n}", module, name, "", line, becomes, 0, bodies.get(name, ""))
        for n, (name, line, becomes) in enumerate(rows)
    ]
    assert [sound(here, mutant) for mutant in mutants] == [True, True, True, False]
    bad, good = "tests/test_f.py::test_bad", "tests/test_f.py::test_good"
    reach = Reach({bad: 0.1, good: 0.2}, {"m0": [bad, good], "m1": [good], "m3": [good]})
    said: list[str] = []
    results = run_all(root, mutants, reach, out, tmp_path / "scratch", 1, said.append)
    assert [result.result for result in results] == ["killed", "survived", "unreached", "gone"]
    assert results[0].killer == good
    assert f"fails without mutants, and is left out: {bad}" in said
    assert read_results(out) == results
    assert totals(mutants, results)["colonnade"]["killed"] == 1


def test_the_kept_list_is_whole(tmp_path):
    mutants = read_mutants(KEPT / "mutants.json")
    names = [mutant.id for mutant in mutants]
    assert len(set(names)) == len(names) >= 640
    assert list(Reach.read(KEPT / "reach.json.gz").tests) == names
    assert [result.id for result in read_results(KEPT / "baseline.csv")] == names
    write_mutants(tmp_path / "again", mutants)
    assert (tmp_path / "again").read_bytes() == (KEPT / "mutants.json").read_bytes()
