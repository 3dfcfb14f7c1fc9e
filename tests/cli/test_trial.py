"""From files of one's own to a study that can run; the page about getting started runs it."""

from __future__ import annotations

import random
import re

import pytest

from colonnade.errors import DataError, FederationError, LedgerError, PolicyError, PrivacyError, SchemaError, StudyError
from colonnade.study import PartyConfig, Study
from colonnade.study.spec import TRIAL
from colonnade.tables import Days, Schema
from tests.support.errors import refused
from tests.support.studies import check_words, edit


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
        lines = [",".join(heads)]
        for person in draw.sample(people, 360):
            first = draw.randint(18, 90)
            second = draw.choice(["own", "rent", ""]) if file == "bank.csv" else f"{draw.uniform(0, 90):.2f}"
            flag = draw.choice(["yes", "no"]) if file == "shop.csv" else int(draw.random() < first / 100)
            lines.append(f"{person},{first},{second},{flag},text of {person}")
        (tmp_path / file).write_text("\n".join(lines) + "\n")
    return tmp_path


def trial(colonnade, *more, **kwargs):
    return colonnade("init", "trial", "--party", "bank=bank.csv", "--party", "shop=shop.csv", *more, **kwargs)


def test_files_become_a_study_that_every_party_agrees_to_and_too_few_people_are_said_first(colonnade, files):
    made = trial(colonnade, "--id", "shop=customer", "--label", "bank.default")
    check_words(made, "logistic of bank.default, epsilon 1 against everyone", 'left out: "city name"')
    check_words(made, "FORECAST for 360 people", "TOO FEW PEOPLE")
    for name in ("bank", "shop"):
        edit(files / name / "party.toml", ('"auto-within-budget"\n', '"ask"\n'))
    for words, whose in ((["run"], "the shortest table has"), (["party", "bank/party.toml"], "bank's table has")):
        told = colonnade(words[0], "study.toml", *words[1:], code=PolicyError.exit_code)
        few = f"at most 360 people can match, as many as {whose} rows\nFORECAST for 360 people"
        check_words(told, few, "TOO FEW PEOPLE")
    assert "people can match" not in colonnade("privacy", "study.toml")  # from public numbers alone
    study = Study.load("study.toml")
    assert study.content.task.parameters["rows_at_most"] == 1000
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
    refused(SchemaError, "SC084", Schema.load, "schemas/bank.toml")
    for file in ("study.toml", "bank/party.toml"):
        edit(files / file, ("trial = true", "# trial = true"))
    refused(SchemaError, (), Study.load, "study.toml")
    refused(PolicyError, "PO019", PartyConfig.load("bank/party.toml").check, study)


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


def test_labels_that_are_missing_are_said_and_so_are_numbers_that_can_be_read_in_two_ways(colonnade, files):
    lines = [line.split(",") for line in (files / "bank.csv").read_text().splitlines()]
    for line in lines[1:21]:
        line[3] = ""
    (files / "bank.csv").write_text("\n".join(",".join(line) for line in lines) + "\n")
    shop = (files / "shop.csv").read_text()
    (files / "shop.csv").write_text(re.sub(r"(\d+)\.(\d\d)", r'"1\1,1\2"', shop))
    given = ("--id", "shop=customer", "--label", "bank.default")
    text = trial(colonnade, *given, code=DataError.exit_code)
    check_words(text, "shop.csv: column 'spend'", "--thousands", "[DA740]")
    made = trial(colonnade, *given, "--thousands", "shop=,")
    assert made.count("20 labels are missing: whoever has none is left out") == 1
    assert Schema.load("schemas/shop.toml", drafts=True).columns["spend"].low >= 1000
    assert "20 without a label" in colonnade("keys", "study.toml", "bank/party.toml")


def test_a_file_of_ids_alone_is_named_whatever_the_label_is(colonnade, files):
    cells = [f"customer {n},remark {n}" for n in range(360)]
    (files / "shop.csv").write_text("\n".join(["customer,remark", *cells]) + "\n")
    named = ["--id", "shop=customer", "--label"]
    for label in ("shop.default", "bank.default"):
        text = trial(colonnade, *named, label, code=DataError.exit_code)
        check_words(text, "shop.csv has no column beside the id 'customer' that a study can use", "left out: remark")
        assert ("--label shop.default names none either" in text) == (label == "shop.default")
    assert sorted(path.name for path in files.iterdir()) == ["bank.csv", "shop.csv"]


def test_keys_and_configurations_that_are_missing_are_made_for_a_study_file(colonnade, files):
    trial(colonnade, "--id", "shop=customer")
    (files / "bank" / "party.toml").unlink()
    text = colonnade("run", "study.toml", code=StudyError.exit_code)
    check_words(text, "there is no configuration of bank at bank/party.toml", "`colonnade init trial study.toml`")
    pins = Study.load("study.toml").content.pins
    assert "next: put bank's table at bank/bank.csv" in colonnade("init", "trial", "study.toml")
    study, config = Study.load("study.toml"), PartyConfig.load("bank/party.toml")
    config.check(study)
    assert (study.content.pins, config.approval) == (pins, "ask")


def test_files_and_words_that_do_not_go_together_are_named(colonnade, files):
    one, both = "--party bank=bank.csv", "--party bank=bank.csv --party shop=shop.csv --id shop=customer"
    assert "two parties or more" in colonnade("init", "trial", *one.split(), code=StudyError.exit_code)
    trial(colonnade, "--id", "shop=customer")
    (files / "bank/other.toml").write_text((files / "bank/party.toml").read_text().replace('"bank"', '"bnak"', 1))
    for words, error, said in (
        ("privacy bank/party.toml", StudyError, "bank/party.toml is a party's own file: name the study file"),
        ("privacy schemas/bank.toml", StudyError, "schemas/bank.toml is a schema: name the study file"),
        ("schema check schemas/bank.toml bank.csv", StudyError, "is a schema: name the party's own file in its place"),
        ("federation hub study.toml", FederationError, "study.toml is a study file: name FEDERATION.toml in its place"),
        ("federation members bank/party.toml", StudyError, "bank/party.toml has no [agent] section"),
        ("party study.toml study.toml", StudyError, "study.toml is a study file: name the party's own file"),
        ("ledger show study.toml", LedgerError, "is no ledger: name the file that `ledger` says in party.toml"),
        ("party study.toml bank/other.toml", PolicyError, "bnak is not a party of study 'study'; those are bank, shop"),
        ("init trial", StudyError, ""),
        (f"init trial {both}", StudyError, "is there already"),
        (f"init trial {both} other.toml", StudyError, "schemas/bank.toml is there already"),
        ("init trial study.toml --label bank.age", StudyError, "go with --party"),
        ("init trial study.toml --epsilon 3", StudyError, "--epsilon go with --party"),
    ):
        assert said in colonnade(*words.split(), code=error.exit_code)
    assert not (files / "bank/ledger.sqlite").exists()
    text = (files / "study.toml").read_text()
    for committee, said in (
        ("threshold = 2", "study.toml: the threshold of a committee of 3 must be 1, not 2"),
        ('seats = ["bank", "shp"]', "study.toml: the committee names shp, who takes no part in the study"),
    ):
        changed = text.replace("[coordinator]", f"[committee]\n{committee}\n\n[coordinator]")
        (files / "study.toml").write_text(changed)
        assert said in colonnade("privacy", "study.toml", code=PrivacyError.exit_code)


# --- other separators, encodings and decimal signs, and dates

BANK = "Name;eröffnet;umsatz\r\n" + "".join(
    f"Jörg {n};{1 + n % 28:02}.{1 + n % 12:02}.20{10 + n % 9};{n},5\r\n" for n in range(60)
)
SHOP = "Name,Ort\n" + "".join(f"Jörg {n},{'Köln' if n % 3 else 'Ulm'}\n" for n in range(60))


def test_a_trial_of_such_files(colonnade, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bank.csv").write_bytes(BANK.encode("latin-1"))
    (tmp_path / "shop.csv").write_bytes(SHOP.encode("utf-16"))
    text = colonnade(
        *("init", "trial", "--party", "bank=bank.csv", "--party", "shop=shop.csv", "--id", "Name"),
        *("--label", "bank.umsatz"),
    )
    assert "linear of bank.umsatz" in text
    study = Study.load("study.toml")
    assert isinstance(study.roster.schemas["bank"].columns["eröffnet"], Days)
    for name in ("bank", "shop"):
        table = PartyConfig.load(f"{name}/party.toml").table(study.roster.schemas[name], study.aligning.plan)
        assert table.rows == 60
        assert not table.report.misfits
