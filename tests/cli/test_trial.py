"""From files of one's own to a study that can run; the page about getting started runs it."""

from __future__ import annotations

import csv
import random

import pytest

from colonnade.errors import DataError, FederationError, LedgerError, PolicyError, PrivacyError, SchemaError, StudyError
from colonnade.study import PartyConfig, Study
from colonnade.study.spec import TRIAL
from colonnade.tables import Schema
from tests.support.errors import raises


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two files as somebody may have them: other orders, other people, another name of the id, holes, free text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    draw = random.Random(7)  # noqa: S311 - made-up people
    people = [f"p{n:04}" for n in range(400)]
    columns = {
        "bank.csv": ["person_id", "age", "home", "default", "city name"],
        "shop.csv": ["customer", "visits", "spend", "member", "remark"],
    }
    for file, heads in columns.items():
        with open(file, "w", newline="") as target:
            rows = csv.writer(target)
            rows.writerow(heads)
            for person in draw.sample(people, 360):
                first = draw.randint(18, 90)
                second = draw.choice(["own", "rent", ""]) if file == "bank.csv" else f"{draw.uniform(0, 90):.2f}"
                flag = draw.choice(["yes", "no"]) if file == "shop.csv" else int(draw.random() < first / 100)
                rows.writerow([person, first, second, flag, f"text of {person}"])
    return tmp_path


def trial(colonnade, *more, **kwargs):
    return colonnade("init", "trial", "--party", "bank=bank.csv", "--party", "shop=shop.csv", *more, **kwargs)


def test_too_few_people_are_said_before_anything_is_spent(colonnade, files):
    made = trial(colonnade, "--id", "shop=customer", "--label", "bank.default")
    assert "FORECAST for 360 people" in made
    assert "TOO FEW PEOPLE" in made
    for name in ("bank", "shop"):
        config = files / name / "party.toml"
        config.write_text(config.read_text().replace('"auto-within-budget"\n', '"ask"\n'))
    few = "at most 360 people can match, as many as {} rows\nFORECAST for 360 people"
    told = colonnade("run", "study.toml", code=PolicyError.exit_code)
    assert few.format("the shortest table has") in told
    assert "TOO FEW PEOPLE" in told
    told = colonnade("party", "study.toml", "bank/party.toml", code=PolicyError.exit_code)
    assert few.format("bank's table has") in told
    assert "TOO FEW PEOPLE" in told
    assert "people can match" not in colonnade("privacy", "study.toml")  # from public numbers alone


def test_files_become_a_study_that_every_party_agrees_to(colonnade, files):
    text = trial(colonnade, "--id", "shop=customer", "--label", "bank.default")
    assert "logistic of bank.default, epsilon 1 against everyone" in text
    assert 'left out: "city name" (every cell differs' in text
    assert text.rstrip().endswith("then: colonnade run study.toml")
    study = Study.load("study.toml")
    assert study.content.task.kind == "logistic"
    assert study.content.task.parameters_given["rows_at_most"] == 1000
    assert TRIAL in study.statement.assumptions
    assert "TRIAL" not in colonnade("init", "trial", "study.toml")  # what is there stays
    for name, column in {"bank": "person_id", "shop": "customer"}.items():
        config = PartyConfig.load(f"{name}/party.toml")
        assert config.content.id == column
        config.check(study)
        config.table(study.roster.schemas[name], study.aligning.plan).check()
        config.check_budget(study)


def test_drafts_are_for_trials_alone(colonnade, files):
    trial(colonnade, "--id", "shop=customer", "--kind", "synthetic")
    study = Study.load("study.toml")
    with raises(SchemaError, "SC084"):
        Schema.load("schemas/bank.toml")
    for file, mark, error in (("study.toml", "trial = true", SchemaError), ("bank/party.toml", "trial = true", None)):
        text = (files / file).read_text()
        (files / file).write_text(text.replace(mark, f"# {mark}"))
        if error is not None:
            with pytest.raises(error):
                Study.load("study.toml")
            (files / file).write_text(text)
    with raises(PolicyError, "PO019"):
        PartyConfig.load("bank/party.toml").check(study)


@pytest.mark.parametrize(
    ("more", "error", "says"),
    [
        ([], DataError, "shop.csv has no column 'person_id'; its columns are 'customer'"),
        (["--id", "shop=custoner"], DataError, "did you mean 'customer'? Name the one that holds ids"),
        (["--id", "shop=customer", "--label", "bank.defalt"], StudyError, "did you mean 'default'?"),
        (["--id", "shop=customer", "--label", "default"], StudyError, "begins with no party of bank, shop"),
        (["--id", "shop=customer", "--kind", "linear"], StudyError, "--label PARTY.COLUMN"),
        (["--id", "shop=customer", "--kind", "pca", "--label", "bank.age"], StudyError, "has no label"),
        (["--id", "shop=customer", "--kind", "glm"], StudyError, "other kinds need a study file"),
        (["--id", "shop=customer", "--label", "bank.home", "--kind", "linear"], None, "study.toml"),
        (["--id", "a", "--id", "b"], StudyError, "say whose they are"),
        (["--party", "bank=other.csv"], StudyError, "names bank twice"),
        (["--party", "clinic"], StudyError, "--party takes NAME=FILE"),
        (["--id", "shop=customer", "--party", "clinic=none.csv"], DataError, "none.csv"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_leaves_nothing(colonnade, files, more, error, says):
    text = trial(colonnade, *more, code=StudyError.exit_code if error is None else error.exit_code)
    assert says in text
    assert text.count("\n") == 1
    assert sorted(path.name for path in files.iterdir()) == ["bank.csv", "shop.csv"]


@pytest.mark.parametrize("head", ["customer", "customer,remark"])
@pytest.mark.parametrize("label", ["shop.default", "bank.default", None])
def test_a_file_of_ids_alone_is_named_whatever_the_label_is(colonnade, files, head, label):
    cells = [",".join(f"{part} {n}" for part in head.split(",")) for n in range(360)]
    (files / "shop.csv").write_text("\n".join([head, *cells]) + "\n")
    more = [] if label is None else ["--label", label]
    text = trial(colonnade, "--id", "shop=customer", *more, code=DataError.exit_code)
    assert "shop.csv has no column beside the id 'customer' that a study can use" in text
    assert ("left out: remark" in text) == ("remark" in head)
    assert ("--label shop.default names none either" in text) == (label == "shop.default")
    assert "give another file as --party shop=FILE" in text
    assert sorted(path.name for path in files.iterdir()) == ["bank.csv", "shop.csv"]


def test_keys_and_configurations_that_are_missing_are_made_for_a_study_file(colonnade, files):
    trial(colonnade, "--id", "shop=customer")
    for name in ("bank", "shop"):
        (files / name / "party.toml").unlink()
    text = colonnade("run", "study.toml", code=StudyError.exit_code)
    assert "there is no configuration of bank at bank/party.toml" in text
    assert "`colonnade init trial study.toml`" in text
    pins = Study.load("study.toml").content.pins
    text = colonnade("init", "trial", "study.toml")
    assert (
        "next: put bank's table at bank/bank.csv; put shop's table at shop/shop.csv; colonnade run study.toml" in text
    )
    study = Study.load("study.toml")
    assert study.content.pins == pins
    for name in ("bank", "shop"):
        config = PartyConfig.load(f"{name}/party.toml")
        config.check(study)
        assert config.approval == "ask"


def test_a_file_of_another_kind_is_named(colonnade, files):
    trial(colonnade, "--id", "shop=customer")
    text = colonnade("privacy", "bank/party.toml", code=StudyError.exit_code)
    assert "bank/party.toml is a party's own file: name the study file in its place" in text
    text = colonnade("privacy", "schemas/bank.toml", code=StudyError.exit_code)
    assert "schemas/bank.toml is a schema: name the study file in its place" in text
    text = colonnade("schema", "check", "schemas/bank.toml", "bank.csv", code=StudyError.exit_code)
    assert "schemas/bank.toml is a schema: name the party's own file in its place" in text
    text = colonnade("hub", "study.toml", code=FederationError.exit_code)
    assert "study.toml is a study file: name FEDERATION.toml in its place" in text
    text = colonnade("members", "bank/party.toml", code=StudyError.exit_code)
    assert "bank/party.toml has no [agent] section" in text
    text = colonnade("party", "study.toml", "study.toml", code=StudyError.exit_code)
    assert "study.toml is a study file: name the party's own file in its place" in text
    text = colonnade("ledger", "show", "study.toml", code=LedgerError.exit_code)
    assert "study.toml is no ledger: name the file that `ledger` says in party.toml" in text


def test_a_party_of_another_name_is_told_who_takes_part(colonnade, files):
    trial(colonnade, "--id", "shop=customer")
    (files / "bank/other.toml").write_text((files / "bank/party.toml").read_text().replace('"bank"', '"bnak"', 1))
    text = colonnade("party", "study.toml", "bank/other.toml", code=PolicyError.exit_code)
    assert "bnak is not a party of study 'study'; those are bank, shop" in text
    assert not (files / "bank/ledger.sqlite").exists()


def test_a_committee_that_cannot_be_is_named_with_its_file(colonnade, files):
    trial(colonnade, "--id", "shop=customer")
    study = files / "study.toml"
    written = study.read_text()
    study.write_text(written.replace("[coordinator]", "[committee]\nthreshold = 2\n\n[coordinator]"))
    text = colonnade("privacy", "study.toml", code=PrivacyError.exit_code)
    assert "study.toml: the threshold of a committee of 3 must be 1, not 2" in text
    study.write_text(written.replace("[coordinator]", '[committee]\nseats = ["bank", "shp"]\n\n[coordinator]'))
    text = colonnade("privacy", "study.toml", code=PrivacyError.exit_code)
    assert "study.toml: the committee names shp, who takes no part in the study" in text


def test_what_goes_together(colonnade, files):
    colonnade("init", "trial", code=StudyError.exit_code)
    text = colonnade("init", "trial", "--party", "bank=bank.csv", code=StudyError.exit_code)
    assert "two parties or more" in text
    trial(colonnade, "--id", "shop=customer")
    assert "is there already" in trial(colonnade, "--id", "shop=customer", code=StudyError.exit_code)
    text = colonnade("init", "trial", "study.toml", "--label", "bank.age", code=StudyError.exit_code)
    assert "go with --party" in text
    text = colonnade("init", "trial", "study.toml", "--epsilon", "3", code=StudyError.exit_code)
    assert "--epsilon go with --party" in text
    text = trial(colonnade, "other.toml", "--id", "shop=customer", code=StudyError.exit_code)
    assert "schemas/bank.toml is there already" in text
