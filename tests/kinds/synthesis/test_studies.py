"""Studies of synthetic tables: planned, run over TLS in threads, after a hidden alignment, and everything refused."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow.parquet
import pytest

from colonnade.errors import ColonnadeError, PolicyError, StudyError
from colonnade.kinds import Synthesizer
from colonnade.study import Study, preflight
from colonnade.study.local import folder_of
from colonnade.study.record import RunRecord
from tests.support.errors import raises
from tests.support.places import Place
from tests.support.studies import study_text

ROWS = 400


COLUMNS = {"bank": ["age", "default"], "shop": ["tier", "visits"], "clinic": ["smoker", "bmi"]}


TASK = 'kind = "synthetic"\nlabel = "bank.default"\nbins = 5\ncomponents = 20\nrows_at_most = 10_000\n'


BROAD = "[budget]\nepsilon = { analyst = 8.0 }\n"


READERS = {"synthetic.parquet", "synthetic.csv", "dictionary.json", "dictionary.md", "card.md"}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    folder = tmp_path_factory.mktemp("synthetic") / "s"
    return Place(folder, COLUMNS, '"synthetic"', "analyst = 500.0", TASK, ROWS, align=True)


def test_everybody_ends_with_the_same_table_and_the_same_card(place):
    out, models = place.run(place.study("plain", TASK, BROAD))
    for name in READERS:
        assert len({(folder_of(out, who) / name).read_bytes() for who in models}) == 1, name
        assert (out / name).stat().st_mode & 0o044, name  # published files are for everybody, and the record is not
    assert not (out / "run.json").stat().st_mode & 0o077
    table = pyarrow.parquet.read_table(out / "synthetic.parquet")
    assert table.column_names == ["age", "default", "visits", "tier", "bmi", "smoker"]
    assert abs(table.num_rows - 0.85 * ROWS) < 60
    assert 18 <= table["age"].to_numpy().min() <= table["age"].to_numpy().max() <= 95
    assert set(json.loads((out / "run.json").read_text())["published"]) == READERS | {"privacy.json"}
    page = (out / "report.html").read_text()
    for said in ("a synthetic table of 6 columns", "What was asked for", "triples with the label", "One column at",
                 "Which columns go together", "Chi-squared of the fit", "What it is not good for"):  # fmt: skip
        assert said in page


def test_a_hidden_alignment_gives_a_table_of_people_whom_nobody_can_name(place):
    out, models = place.run(place.study("hidden", TASK, BROAD, "hidden = true\n"))
    assert abs(pyarrow.parquet.read_table(out / "synthetic.parquet").num_rows - 0.85 * ROWS) < 100
    tier = models["coordinator"].marginal("shop.tier")
    real = (place.folder / "tables" / "shop.csv").read_text()
    truth = np.array([len(re.findall(rf",\W?{value}\W?[,\n]", real)) for value in tier.labels[0]]) * 0.9
    assert (abs(tier.counts - truth) < 8 * tier.deviations + 0.15 * ROWS).all()


def test_a_model_that_cannot_be_published_says_that_it_is_whole(place):
    study = place.study("full", TASK.replace("bins = 5", "bins = 4"), BROAD)
    taken = place.folder / "runs" / "full" / "card.md"
    taken.mkdir(parents=True)
    with pytest.raises(ColonnadeError) as caught:
        place.run(study)
    for said in ("the study ended well", "card.md cannot be written"):
        assert said in str(caught.value)
    assert Synthesizer.load(taken.parent / "model.json").publish(place.folder)


def test_what_it_costs_and_how_many_people_an_error_needs_is_known_before(place, tmp_path, colonnade):
    study = place.study("priced", TASK, BROAD)
    facts = preflight(study, 400).to_dict()
    assert (facts["method"], facts["marginals"]) == ("marginals", {"0": 1, "1": 6, "2": 15, "3": 10})
    assert facts["binding"]["epsilon"] <= 8
    more, fewer = (colonnade("plan", study.path, "--rows", "--error", error, "--json") for error in (0.001, 0.01))
    assert more["rows"] > 5 * fewer["rows"]
    assert "share of people" in colonnade("plan", study.path, "--rows", "--error", 0.01)
    other = place.copied(tmp_path / "other")
    other.set("shop", "tasks", '["pca"]')
    with raises(PolicyError, "PO015", "synthetic"):
        other.config("shop").check(study)


SCHEMA = '[columns.x]\ntype = "number"\nlow = 0\nhigh = 9\n[columns.c]\ntype = "category"\nvalues = ["u", "v"]\n'
MIXTURE = 'kind = "synthetic"\nmethod = "mixture"\nrows = 340\ncomponents = 2\niterations = 3\nrows_at_most = 10_000\n'
NINE = 'method = "mixture"\nrows = 9\n'


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A study of two parties that is read and never run, in a file."""
    folder = tmp_path_factory.mktemp("written")
    for name in "ab":
        (folder / f"{name}.toml").write_text(SCHEMA)

    def write(task, more=""):
        path = folder / "study.toml"
        path.write_text(study_text(task) + more)
        return path

    return write


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('label = "x"', 'task.label must be written party.column, such as "bank.default"'),
        ('label = "c.x"', "task.label names 'c.x', and no party of the study begins it"),
        ('label = "a.y"', "task.label - a brings no column 'y' to this study"),
        ('focus = [["a.x", "b.z"]]', "focus names 'b.z', and b has no such column"),
        ('focus = ["a.x"]', "task.focus.0 must be a list, in brackets"),
        ('focus = [["a.x", "a.c", "b.x"]]', "focus lists pairs of columns"),
        ("bins = 0", "task.bins"),
        ("bins = true", "task.bins"),
        ('bins = { "a.c" = 3 }', "a: bins of column 'c': it is a category, and only numbers have bins"),
        ('bins = { "a.x" = [5, 3, 9] }', "a: bins of column 'x'"),
        ('bins = { "a.q" = 3 }', "bins names 'a.q', which is no column of this study"),
        ('impossible = ["a.x > b.x"]', "impossible: 'a.x > b.x'"),
        ('impossible = ["a.c = w and b.x < 3"]', "'a.c' has no value 'w'"),
        ('impossible = "a.x > 3"', "task.impossible must be a list, in brackets"),
        ("size = 0", "task.size"),
        ("tables = 0", "task.tables"),
        ('method = "magic"', "task.method"),
        ('model = "tree"\ncomponents = 5', "components is for model"),
        ('noise = "discrete-laplace"', "task.noise"),
        ("gamma = 4", "task.gamma is not a key that is known here"),
        ("iterations = 5", 'iterations is for method = "mixture" alone'),
        ('method = "mixture"', 'method = "mixture" needs rows'),
        (NINE + 'label = "a.x"', 'label is for method = "marginals" or start = "marginals"'),
        ('start = "marginals"', 'start is for method = "mixture" alone'),
        (NINE + 'start = "tables"', "start"),
        (NINE + 'families = { "a.c" = "beta" }', "families: a: column 'c' cannot be"),
    ],
)
def test_bad_input_is_one_sentence_that_names_the_file_and_the_key(written, colonnade, keys, said):
    path = written(f'kind = "synthetic"\n{keys}\n')
    text = colonnade("privacy", path, code=StudyError.exit_code)
    assert said in text
    assert str(path) in text
    assert text.count("\n") == 1


def test_a_start_is_agreed_on_and_no_mixture_is_learned_after_a_hidden_alignment(written, colonnade):
    hidden = written(f'kind = "synthetic"\n{NINE}', '[align]\non = "id"\nhidden = true\n')
    assert "not work after a hidden alignment" in colonnade("privacy", hidden, code=StudyError.exit_code)
    starts = ("", 'start = "none"\n', 'start = "marginals"\n')
    unsaid, none, marginals = (Study.load(written(MIXTURE + start)).digest for start in starts)
    assert unsaid == none != marginals


@pytest.mark.parametrize("start", ["none", "marginals"])
def test_a_mixture_over_tls_gives_everybody_the_same_table(place, start, tmp_path):
    given = MIXTURE if start == "none" else f'{MIXTURE}start = "{start}"\n'
    fresh = place.copied(tmp_path / "fresh")
    for path in fresh.folder.glob("*/ledger.sqlite*"):
        path.unlink()
    study = fresh.study("mixture", given, "[budget]\nepsilon = { analyst = 2.0 }\n")
    assert "3 openings of sums for 2 components, each about all people" in preflight(study).details.brief
    out, models = fresh.run(study)
    assert len({(folder_of(out, who) / "synthetic.parquet").read_bytes() for who in models}) == 1
    assert pyarrow.parquet.read_table(out / "synthetic.parquet").num_rows == 340
    page = (out / "report.html").read_text()
    assert "Sums over people were released in rounds" in page
    assert ("Counts of people were released, with noise, to start from" in page) == (start == "marginals")
    assert "Orange" not in page


def test_a_new_run_puts_away_what_an_earlier_one_published(tmp_path):
    record = RunRecord(tmp_path, participant="hospital", study="hospital", digest="0")
    names = ["synthetic-1.csv", "card.md"]
    for name in names:
        (tmp_path / name).write_text("earlier")
    record.add(published=[*names, "../elsewhere.csv"])
    (tmp_path / "notes.txt").write_text("not ours")
    (tmp_path.parent / "elsewhere.csv").write_text("not ours")
    RunRecord(tmp_path, participant="hospital", study="hospital", digest="0")
    assert sorted(path.name for path in (tmp_path / "earlier" / "1").iterdir()) == sorted([*names, "run.json"])
    assert (tmp_path / "notes.txt").is_file()
    assert (tmp_path.parent / "elsewhere.csv").is_file()
