"""Studies of synthetic tables: planned, run over TLS in threads, after a hidden alignment, and everything refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from colonnade.cli import initialise
from colonnade.cli.publish import publish
from colonnade.errors import ColonnadeError, PolicyError, StudyError
from colonnade.kinds import Synthesizer
from colonnade.study import PartyConfig, Study, preflight
from colonnade.study.local import folder_of
from colonnade.tables import population
from tests.support.errors import raises
from tests.support.studies import play, runnable_text, scatter, study_text

ROWS = 400
PARTIES = ("bank", "shop", "clinic")
COLUMNS = {"bank": ["age", "default"], "shop": ["tier", "visits"], "clinic": ["smoker", "bmi"]}
TASK = 'kind = "synthetic"\nlabel = "bank.default"\nbins = 5\ncomponents = 20\nrows_at_most = 10_000\n'
BROAD = "[budget]\nepsilon = { analyst = 8.0 }\n"
READERS = {"synthetic.parquet", "synthetic.csv", "dictionary.json", "dictionary.md", "card.md"}


class Place:
    """One folder with everyone's keys, tables and policies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        people = population(ROWS)
        people.write(folder / "tables")
        (folder / "schemas").mkdir()
        for place, name in enumerate(PARTIES):
            scatter(folder / "tables" / f"{name}.csv", place)
            people.schemas[name].save(folder / "schemas" / f"{name}.toml")
            initialise.party(name, folder / name, f"../tables/{name}.csv", "person_id", "auto-within-budget")
            path = folder / name / "party.toml"
            text = re.sub(r"^tasks = .*$", 'tasks = ["synthetic"]', path.read_text(), flags=re.M)
            path.write_text(re.sub(r"^epsilon = .*$", "epsilon = { analyst = 500.0 }", text, count=1, flags=re.M))
        self.pins: dict[str, str] = {}
        self.pins = initialise.trial(self.study("keys").path)

    def study(self, name: str, task: str = TASK, more: str = "", budget: str = BROAD) -> Study:
        path = self.folder / f"{name}.toml"
        align = f'[align]\non = "person_id"\n{more}'
        path.write_text(runnable_text(name, task, budget, COLUMNS, align, self.pins))
        return Study.load(path)

    def run(self, study: Study) -> tuple[Path, dict[str, Synthesizer]]:
        out = self.folder / "runs" / study.name
        models = play(study, out)
        publish(study, out, {name: folder_of(out, name) for name in models})
        return out, models


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    return Place(tmp_path_factory.mktemp("synthetic") / "s")


@pytest.fixture(scope="module")
def ran(place) -> tuple[Path, dict[str, Synthesizer]]:
    return place.run(place.study("plain"))


def test_everybody_ends_with_the_same_table_and_the_same_card(ran):
    out, models = ran
    for name in READERS:
        held = {(folder_of(out, who) / name).read_bytes() for who in models}
        assert len(held) == 1, name
    table = pyarrow.parquet.read_table(out / "synthetic.parquet")
    assert table.column_names == ["age", "default", "visits", "tier", "bmi", "smoker"]
    assert abs(table.num_rows - 0.85 * ROWS) < 60
    assert 18 <= table["age"].to_numpy().min() <= table["age"].to_numpy().max() <= 95
    assert set(json.loads((out / "run.json").read_text())["published"]) == READERS | {"privacy.json"}


def test_published_files_are_for_everybody_and_the_record_is_not(ran):
    out, _ = ran
    for name in READERS:
        assert (out / name).stat().st_mode & 0o044, name
    assert not (out / "run.json").stat().st_mode & 0o077


def test_the_report_shows_what_was_asked_and_what_came_of_it(ran):
    page = (ran[0] / "report.html").read_text()
    for said in ("a synthetic table of 6 columns", "What was asked for", "triples with the label", "One column at",
                 "Which columns go together", "Chi-squared of the fit", "What it is not good for"):  # fmt: skip
        assert said in page


def test_a_hidden_alignment_gives_a_table_of_people_whom_nobody_can_name(place):
    out, models = place.run(place.study("hidden", more="hidden = true\n"))
    table = pyarrow.parquet.read_table(out / "synthetic.parquet")
    assert abs(table.num_rows - 0.85 * ROWS) < 100
    tier = models["coordinator"].marginal("shop.tier")
    real = (place.folder / "tables" / "shop.csv").read_text()
    truth = np.array([len(re.findall(rf",\W?{value}\W?[,\n]", real)) for value in tier.labels[0]]) * 0.9
    assert (abs(tier.counts - truth) < 8 * tier.deviations + 0.15 * ROWS).all()


def test_a_model_that_cannot_be_published_says_that_it_is_whole(place, monkeypatch):
    study = place.study("full", TASK.replace("bins = 5", "bins = 4"))
    taken = place.folder / "runs" / "full" / "card.md"
    taken.mkdir(parents=True)
    with pytest.raises(ColonnadeError) as caught:
        place.run(study)
    assert "the study ended well" in str(caught.value)
    assert "card.md cannot be written" in str(caught.value)
    assert Synthesizer.load(taken.parent / "model.json").publish(place.folder)


def test_a_policy_that_does_not_name_the_kind_refuses_it(place):
    study = place.study("refused")
    path = place.folder / "shop" / "party.toml"
    text = path.read_text()
    path.write_text(text.replace('tasks = ["synthetic"]', 'tasks = ["pca"]'))
    with raises(PolicyError, "PO015", "synthetic"):
        PartyConfig.load(path).check(study)
    path.write_text(text)


def test_what_it_costs_and_how_exact_it_is_stands_in_the_preflight(place):
    facts = preflight(place.study("priced"), 400).to_dict()
    assert facts["method"] == "marginals"
    assert facts["marginals"] == {"0": 1, "1": 6, "2": 15, "3": 10}
    assert facts["binding"]["epsilon"] <= 8


def test_a_plan_answers_how_many_people_an_error_needs(place, colonnade):
    study = place.study("planned")
    more = colonnade("plan", study.path, "--rows", "--error", 0.001, "--json")
    fewer = colonnade("plan", study.path, "--rows", "--error", 0.01, "--json")
    assert more["rows"] > 5 * fewer["rows"]
    assert "share of people" in colonnade("plan", study.path, "--rows", "--error", 0.01)


SCHEMA = '[columns.x]\ntype = "number"\nlow = 0\nhigh = 9\n[columns.c]\ntype = "category"\nvalues = ["u", "v"]\n'


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
    ],
)
def test_bad_input_is_one_sentence_that_names_the_file_and_the_key(tmp_path, colonnade, keys, said):
    for name in "ab":
        (tmp_path / f"{name}.toml").write_text(SCHEMA)
    path = tmp_path / "study.toml"
    path.write_text(study_text(f'kind = "synthetic"\n{keys}\n'))
    text = colonnade("privacy", path, code=StudyError.exit_code)
    assert said in text
    assert str(path) in text
    assert text.count("\n") == 1


MIXTURE = 'kind = "synthetic"\nmethod = "mixture"\nrows = 340\ncomponents = 2\niterations = 3\nrows_at_most = 10_000\n'


@pytest.mark.parametrize("start", ["none", "marginals"])
def test_a_mixture_over_tls_gives_everybody_the_same_table(place, start):
    for name in PARTIES:
        for path in (place.folder / name).glob("ledger.sqlite*"):
            path.unlink()
    given = MIXTURE if start == "none" else f'{MIXTURE}start = "{start}"\n'
    study = place.study(f"mixture-{start}", given, budget="[budget]\nepsilon = { analyst = 2.0 }\n")
    assert "3 openings of sums for 2 components, each about all people" in preflight(study).details.brief
    out, models = place.run(study)
    assert len({(folder_of(out, who) / "synthetic.parquet").read_bytes() for who in models}) == 1
    assert pyarrow.parquet.read_table(out / "synthetic.parquet").num_rows == 340
    page = (out / "report.html").read_text()
    assert "Sums over people were released in rounds" in page
    assert ("Counts of people were released, with noise, to start from" in page) == (start == "marginals")
    assert "Orange" not in page


@pytest.mark.parametrize(
    ("keys", "more", "said"),
    [
        ("iterations = 5", "", 'iterations is for method = "mixture" alone'),
        ('method = "mixture"', "", 'method = "mixture" needs rows'),
        ('method = "mixture"\nrows = 9\nlabel = "a.x"', "", 'label is for method = "marginals" or start = "marginals"'),
        ('start = "marginals"', "", 'start is for method = "mixture" alone'),
        ('method = "mixture"\nrows = 9\nstart = "tables"', "", "start"),
        ('method = "mixture"\nrows = 9\nfamilies = { "a.c" = "beta" }', "", "families: a: column 'c' cannot be"),
        ('method = "mixture"\nrows = 9', '[align]\non = "id"\nhidden = true\n', "not work after a hidden alignment"),
    ],
)  # fmt: skip
def test_what_belongs_to_the_other_method_is_refused(tmp_path, colonnade, keys, more, said):
    for name in "ab":
        (tmp_path / f"{name}.toml").write_text(SCHEMA)
    path = tmp_path / "study.toml"
    path.write_text(study_text(f'kind = "synthetic"\n{keys}\n') + more)
    assert said in colonnade("privacy", path, code=StudyError.exit_code)


def test_a_start_is_agreed_on_and_none_is_as_if_nothing_was_said(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.toml").write_text(SCHEMA)
    digests = []
    for number, start in enumerate(("", 'start = "none"\n', 'start = "marginals"\n')):
        path = tmp_path / f"study{number}.toml"
        path.write_text(study_text(MIXTURE + start))
        digests.append(Study.load(path).digest)
    assert digests[0] == digests[1]
    assert digests[2] != digests[0]
