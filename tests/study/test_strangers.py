"""What whoever writes a study cannot choose: a party's keys, what an empty list tells, and how often it may fail."""

from __future__ import annotations

import io
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from colonnade import errors
from colonnade.cli import initialise
from colonnade.cli.approve import Question
from colonnade.cli.output import speak_json
from colonnade.study import Study, run_party
from colonnade.study.doctor import examine
from tests.support.errors import raises
from tests.support.studies import outcomes, runnable_text

from .test_refusals import PCA, ROWS, World

BUDGET = "[budget]\nepsilon = 5.0\n"
BOTH = '[align]\non = ["id", "work"]\n'


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)


def study(world: World, align: str, value: str = "retired") -> Study:
    """A study of the bank's ages that recognises people as a stranger likes; the others hold one value for all."""
    for name in ("shop", "clinic"):
        path = world.folder / name / f"{name}.csv"
        head, *rows = path.read_text().splitlines()
        if "work" not in head:
            path.write_text("\n".join([f"{head},work", *(f"{row},{value}" for row in rows)]) + "\n")
    columns = {"bank": ["age"], "shop": ["spend"], "clinic": ["spend"]}
    path = world.folder / "STUDY.toml"
    path.write_text(runnable_text("probe", PCA, align + BUDGET, columns, "reconnect = 2\nexcuse = 0.1\n"))
    initialise.trial(path)
    return Study.load(path)


@pytest.mark.parametrize("columns", ['"all"', '["age"]', '["age", "work"]'])
def test_a_column_is_no_key_because_a_study_names_it(world, columns):
    world.edit_party("bank", 'columns = "all"', f"columns = {columns}")
    (world.folder / "bank" / "bank.csv").unlink()
    asked = study(world, BOTH)
    with raises(errors.PolicyError, "PO025", "work", "party.toml"):
        run_party(asked, world.config, world.folder / "run")
    assert not world.config.ledger.exists()


def test_a_party_agrees_to_a_key_by_its_id_or_by_name(world):
    for on in ('"id"', '"person"'):
        world.config.check(study(world, f"[align]\non = {on}\n"))
    world.edit_party("bank", "# [keys]\n", '[keys]\nwork = "work"\n')
    world.config.check(study(world, BOTH))
    world.edit_party("bank", 'id = "id" ', "# ")
    with raises(errors.PolicyError, "PO025", "person"):
        world.config.check(study(world, '[align]\non = "person"\n'))


def test_whoever_approves_is_shown_the_columns_that_are_compared(world, monkeypatch, capsys):
    world.edit_party("bank", "# [keys]\n", '[keys]\nwork = "member"\n')
    speak_json(False)  # another test may have run a command that prints JSON
    for align, shown in ((BOTH, "id in 'id', work in 'member'"), ("", None)):
        asked = study(world, align)
        monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
        assert not Question((world.config,))(asked, asked.statement)
        said = capsys.readouterr().out
        assert "compared exactly" not in said if shown is None else f"outside every epsilon: {shown}" in said


@pytest.mark.parametrize(
    ("lists", "ends"),
    [
        ("", "AlignmentError"),
        ('duplicates = "drop"\npad_to = 40\n', "AlignmentError"),
        ("hidden = true\n", "PCA"),
        ('mode = "helper"\nhidden = true\npad_to = 40\n', "PCA"),
    ],
)
def test_a_list_without_keys_is_one_without_common_people(world, lists, ends):
    """One cell of the bank is a number, or none: then its table has no key at all."""
    for name in ("bank", "shop", "clinic"):
        world.edit_party(name, "# [keys]\n", '[keys]\nwork = "work"\n')
        world.edit_party(name, 'align = ["ot", "dh"]', 'align = ["ot", "dh", "helper"]')
    asked = study(world, f'{BOTH}{lists}[align.keys.work]\nkind = "number"\n', value="7")
    seen = []
    for cells in ({"work": "8"}, {}):
        world.person(cells)
        ended = outcomes(asked, world.folder / "run")
        assert {type(end).__name__ for end in ended.values()} == {ends}
        seen.append({name: str(end) for name, end in ended.items()})
    assert seen[0] == seen[1]
    (checked,) = [line for line in world.happened() if line["what"] == "table checked"]
    assert (checked["rows"], checked["keys"]) == (ROWS, 0)
    found = {check.what: check for check in examine(asked.path, world.config.path)}
    assert (found["keys"].level, found["keys"].detail[:17]) == ("bad", "no row has a key,")


def test_no_more_studies_may_fail_because_they_were_asked_about_at_once(world):
    """Six studies wait for an answer together; the policy lets two of them open the table."""
    world.edit_party(
        "bank", "# [policy.failures]\n# at_most = 20\n# days = 30", "[policy.failures]\nat_most = 2\ndays = 7"
    )
    world.edit_party("bank", 'approval = "auto-within-budget"', 'approval = "ask"')
    (world.folder / "bank" / "bank.csv").unlink()
    asked, together = world.study(excuse=0.1), threading.Barrier(6)
    assert asked.statement.rows  # planned once for all threads

    def answered(*_: object) -> bool:
        return together.wait(30) >= 0

    def ended(number: int) -> type[BaseException] | None:
        try:
            run_party(asked, world.config, world.folder / f"run{number}", approve=answered)
        except errors.ColonnadeError as error:
            return type(error)
        return None

    with ThreadPoolExecutor(6) as threads:
        ends = Counter(threads.map(ended, range(6)))
    assert ends == {errors.DataError: 2, errors.PolicyError: 4}
    assert world.states("bank") == ["released"] * 2
