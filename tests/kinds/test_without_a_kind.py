"""A kind can be taken away: without its folder and its rows, everything else works as before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.checks.test_architecture import KINDS, SOURCE, kinds_of_the_page

NEEDED = set().union(*kinds_of_the_page().values())
STUDIES = Path(__file__).parents[1] / "fixtures" / "studies"
ALONE = [kind for kind in KINDS if kind not in NEEDED]

# The folder is not there and its rows are gone; what is left is asked for its parts, its help and a study.
PROGRAM = """
import sys, tomllib
gone = "colonnade.kinds.{kind}"
import colonnade
assert colonnade.__file__.startswith({home!r}), colonnade.__file__
from colonnade import *
from colonnade.errors import StudyError
from colonnade.models import registry

def belongs(row):
    parts = [row.model, row.section, *row.games, *dict(row.more).values()]
    return any(part.startswith(gone + ".") for part in parts)

before = registry.rows()
for row in before:
    if belongs(row):
        del registry._KNOWN[row.kind]
left = registry.rows()
assert len(left) < len(before)
for row in left:
    registry.load(row.kind)
    if row.section:
        registry.section_of(row.kind)
for name in {{name for row in left for name, _ in row.more}}:
    assert registry.parts(name)

from colonnade.audit.registry import games, subjects
assert subjects()
for one in subjects():
    assert games(one.name)

from typer.testing import CliRunner
import typer
from colonnade.cli.app import app
runner = CliRunner()
def helped(command, words):
    said = runner.invoke(app, [*words, "--help"])
    assert said.exit_code == 0, (words, said.output)
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            helped(command.get_command(None, name), [*words, name])
helped(typer.main.get_command(app), [])

from pathlib import Path
from colonnade.study import Study
for path in Path({studies!r}).glob("*.toml"):
    kind = tomllib.loads(path.read_text())["task"]["kind"]
    if kind in registry._KNOWN:
        assert Study.load(path).digest
    else:
        try:
            Study.load(path)
        except StudyError as error:
            assert "task.kind" in str(error)
        else:
            raise AssertionError(path)

import numpy as np
import pyarrow as pa
from colonnade import Federation, Party, Schema, number
rng = np.random.default_rng(1)
columns = {{"bank": ["income"], "shop": ["visits"], "clinic": ["bmi"]}}
def table(own):
    cells = {{column: rng.uniform(0, 1, 40).tolist() for column in own}}
    return pa.table({{"id": [f"p{{i}}" for i in range(40)], **cells}})

people = Federation([
    Party(name, table(own), schema=Schema({{column: number(0, 1) for column in own}}), id="id")
    for name, own in columns.items()
])
fitted = registry.load("pca")(n_components=1, epsilon=4.0).fit(people)
assert fitted.privacy_.epsilon("analyst") <= 4.0
print("whole")
"""


def without(kind: str, folder: Path) -> Path:
    """The package in another place, with what is compiled of it, without the folder of a kind and its exports."""
    place = folder / "colonnade"
    shutil.copytree(SOURCE, place)
    shutil.rmtree(place / "kinds" / kind)
    listed = place / "kinds" / "__init__.py"
    lines = listed.read_text(encoding="utf-8").splitlines(keepends=True)
    listed.write_text("".join(line for line in lines if f'"{kind}.' not in line), encoding="utf-8")
    return place


@pytest.mark.system
@pytest.mark.parametrize("kind", ALONE)
def test_everything_else_works_without_it(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp(kind)
    without(kind, folder)
    program = PROGRAM.format(kind=kind, studies=str(STUDIES), home=str(folder))
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert ended.stdout.endswith("whole\n")


def test_kinds_that_others_are_built_on_are_few() -> None:
    assert set(ALONE) >= {"glm", "synthesis", "split", "polynomial", "sketch"}
