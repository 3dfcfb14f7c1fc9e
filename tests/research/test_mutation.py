"""Mutants are found again after moves, change one place, and are noticed by the tests that reach them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from research.mutation import running
from research.mutation.comparing import changes, told
from research.mutation.functions import functions, parsed, text
from research.mutation.moved import Names, renames, translated
from research.mutation.mutants import Mutant, Tree, difference, read_mutants, write_mutants
from research.mutation.probing import instrument
from research.mutation.reach import Reach, choose
from research.mutation.running import Result, read_results, run_all, totals
from research.mutation.sampling import cosmic_changes, own_changes, sound

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
    code = "def f(a):\n    if a:\n        raise ValueError('one')\n    raise ValueError('two')\n"
    (found,) = functions(ast.parse(code), "colonnade/old.py")
    here, two = tree(tmp_path, {"old.py": code}), "raise ValueError('two')"
    second = Mutant("m001", "colonnade/old.py", "f", "RemoveRaise", two, "pass", 1, found.digest)  # told by occurrence
    assert here.applied(second, here.locate(second)) == code.replace(two, "pass")


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


@pytest.mark.parametrize(
    ("line", "becomes", "way"),
    [
        ("x = f(a + 1)", "x = f(a + 2)", [("value", None), ("args", 0), ("right", None)]),
        ("return a < b < c", "return a < b <= c", [("value", None)]),
        ("for x in y:", "for x in []:", [("iter", None)]),
        ("x += 1", "x -= 1", []),
        ("break", "continue", []),
    ],
)
def test_the_smallest_expression_that_differs(line, becomes, way):
    assert text(parsed(line)) == line
    assert difference(parsed(line), parsed(becomes)) == way


def test_our_own_operators_leave_text_and_logs_alone():
    code = "def f(a):\n    'Words.'\n    log.info('x')\n    a.go()\n    if a:\n        return None\n    return a\n"
    (function,) = ast.parse(code).body
    assert [change for _, change in own_changes(function)] == [
        ("RemoveCall", "a.go()", "pass", 0),
        ("ReturnNone", "return a", "return None", 0),
    ]


def test_cosmic_rays_operators_change_code_only():
    pytest.importorskip("cosmic_ray")
    code = "def f(a: int | None = 1) -> int | None:\n    b: int | str = f'{a + 1}'\n    return a > 2\n"
    found = {(line, becomes) for _, (_, line, becomes, _) in cosmic_changes(code)}
    assert found == {("return a > 2", f"return a {after}") for after in (">= 2", "<= 2", "> 3", "> 1")}


@pytest.mark.system
def test_the_probe_notes_which_test_comes_by(tmp_path, mutant):
    elsewhere = Mutant("m002", "colonnade/old.py", "gone", "", "pass", "return None", 0, "")
    tree(tmp_path, {"old.py": CODE})
    assert instrument(tmp_path / "src", [mutant, elsewhere], tmp_path / "notes") == ["m002"]
    probed = (tmp_path / "src" / "colonnade" / "old.py").read_text(encoding="utf-8")
    assert "__import__('_mutation_probe').hit('m001')\n        if a < b" in probed
    program = "import _mutation_probe; _mutation_probe.hit('m001'); _mutation_probe.hit('m001')"
    environment = {"PYTHONPATH": str(tmp_path / "src"), "PYTEST_CURRENT_TEST": "tests/test_a.py::test_b (call)"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    lines = [
        ["tests/test_a.py::test_b", "call", "passed", 0.5],
        ["tests/test_a.py::test_c", "call", "passed", 0.25],
        ["tests/test_d.py::test_e", "call", "failed", 0.25],
    ]
    (tmp_path / "notes" / "tests.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    reach = choose([mutant, elsewhere], tmp_path / "notes")
    assert reach.tests == {"m001": ["tests/test_a.py::test_b", "tests/test_a.py::test_c"], "m002": []}
    reach.write(tmp_path / "reach")
    assert Reach.read(tmp_path / "reach") == reach


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_tests_that_have_moved_are_run_under_their_new_names(tmp_path):
    (tmp_path / "tests" / "old").mkdir(parents=True)
    one, two, three = (tmp_path / "tests" / "old" / f"test_{name}.py" for name in ("one", "two", "three"))
    one.write_text("def test_a():\n    assert 1 + 1 == 2\n\n\ndef test_same():\n    assert 3 > 2\n", encoding="utf-8")
    two.write_text("def test_b():\n    pass\n\n\ndef test_same():\n    pass\n", encoding="utf-8")
    three.write_text("def test_c():\n    pass\n", encoding="utf-8")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "before")
    (tmp_path / "tests" / "new").mkdir()
    git(tmp_path, "mv", "tests/old/test_one.py", "tests/new/test_first.py")
    two.unlink()
    (tmp_path / "tests" / "new" / "test_more.py").write_text("def test_b():\n    assert True\n", encoding="utf-8")
    moves = renames(tmp_path, "HEAD")
    assert moves == {"tests/old/test_one.py": "tests/new/test_first.py"}
    old = ["one.py::test_a[x::y]", "one.py::test_same", "two.py::test_b", "three.py::test_c", "two.py::test_z"]
    names = [f"tests/old/test_{name}" for name in old]
    reach, lost = translated(Reach(dict.fromkeys(names, 1.0), {"m001": names}), Names(tmp_path, moves))
    first, more, same = "tests/new/test_first.py", "tests/new/test_more.py", "tests/old/test_three.py"
    assert reach.tests["m001"] == [
        f"{first}::test_a[x::y]",
        f"{first}::test_same",
        f"{more}::test_b",
        f"{same}::test_c",
    ]
    assert lost == ["tests/old/test_two.py::test_z"]


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
    git(root, "init")
    git(root, "add", ".")
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


@pytest.mark.parametrize(
    ("answers", "result"),
    [
        ([{"code": 0}, {"late": True}], "timeout"),
        ([{"code": 0}, {"code": 1, "failed": ["a"]}], "killed"),
        ([{"code": None}], "killed"),
        ([{"code": 0}, {"code": 0}], "survived"),
        ([{"code": 5, "ran": 0}, {"code": 5, "ran": 0}], "unreached"),
        ([{"missing": ["tests/test_a.py::test_0[old]"]}, {}, {"code": 1, "failed": ["test_0[new]"]}], "killed"),
    ],
)
def test_how_a_mutant_ends(mutant, answers, result):
    left = [
        {"ran": 1, "seconds": 1.0, "late": False, "failed": [], "missing": [], "code": 0, **answer}
        for answer in answers
    ]
    copy = SimpleNamespace(run=lambda *_: left.pop(0))
    assert running.tried(copy, mutant, [f"tests/test_a.py::test_{n}" for n in range(9)], {}).result == result
    assert left == []


def test_a_comparison_lists_what_has_changed(mutant):
    before = [Result("m001", "killed"), Result("m002", "survived"), Result("m003", "timeout"), Result("m004", "killed")]
    after = [Result("m001", "unreached"), Result("m002", "killed", "a test"), Result("m003", "killed")]
    after.append(Result("m004", "gone"))
    found = changes(before, after)
    assert (found.survived, found.killed, found.gone) == (["m001"], ["m002"], ["m004"])
    mutants = [Mutant(f"m00{n}", *list(mutant.__dict__.values())[1:]) for n in (1, 2, 3, 4)]
    lines = list(told(found, mutants, after))
    assert [line for line in lines if not line.startswith(" ")] == [
        "noticed before, not now: 1", "noticed only now: 1", "gone: 1",
    ]  # fmt: skip
    assert "       by a test" in lines


def test_the_kept_list_is_whole(tmp_path):
    mutants = read_mutants(KEPT / "mutants.json")
    names = [mutant.id for mutant in mutants]
    assert len(set(names)) == len(names) >= 640
    assert len({(mutant.module, mutant.qualname) for mutant in mutants}) >= 640
    assert min(sum(other.folder == folder for other in mutants) for folder in {m.folder for m in mutants}) >= 3
    assert list(Reach.read(KEPT / "reach.json.gz").tests) == names
    assert [result.id for result in read_results(KEPT / "baseline.csv")] == names
    write_mutants(tmp_path / "again", mutants)
    assert (tmp_path / "again").read_bytes() == (KEPT / "mutants.json").read_bytes()
