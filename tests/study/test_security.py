"""What a study says about participants that deviate: keys, defaults, digests, statements, and what they cost."""

from __future__ import annotations

import pytest

from colonnade.cli.show import preflight as shown
from colonnade.errors import PrivacyError, StudyError
from colonnade.kinds import LinearRegression, LogisticRegression
from colonnade.kinds.glm.model import GLM
from colonnade.kinds.pca.model import PCA
from colonnade.models import Federation, Party
from colonnade.models.federation import Roster
from colonnade.privacy import Statement, Trust
from colonnade.privacy.statement import DEALT, FOLLOWING, NOT_CHECKED
from colonnade.protocols.moments.task import Moments
from colonnade.report.deviating import deviating
from colonnade.study import Study, preflight
from colonnade.study.deviating import line_for
from colonnade.study.doctor import examine
from colonnade.study.local import folder_of
from colonnade.study.record import read_facts
from colonnade.tables import Schema, flag, number
from tests.support.errors import raises
from tests.support.studies import play, study_text

OWNERS = ("a", "b", "c")
SCHEMAS = {name: Schema({f"{name}x": number(0, 1), f"{name}y": number(-1, 1)}) for name in OWNERS}
ROWS = 'kind = "pca"\nmethod = "moments"\nrows_at_most = 10_000\n'
SKETCH = 'kind = "sketch"\nrounds = 10\nrows = 1000\ndimension = 4\ngamma = 4096\nsampling = "poisson"\nbatch = 50\n'


@pytest.fixture
def checked(monkeypatch):
    """Second moments that can be checked, and whose owners can prove bounds, whatever is the default here."""
    monkeypatch.setattr(Moments, "why_not_active", None)
    monkeypatch.setattr(Moments, "active_by_default", True)
    monkeypatch.setattr(Moments, "proofs", ("proven", "covert", "unproven"))


def study(folder, said="", task=ROWS):
    for name, schema in SCHEMAS.items():
        schema.save(folder / f"{name}.toml")
    path = folder / "STUDY.toml"
    path.write_text(said + study_text(task, parties="abc"))
    return Study.load(path)


def test_a_study_that_says_nothing_is_the_study_that_it_was(tmp_path, checked):
    unsaid = study(tmp_path)
    assert unsaid.trust == Trust(OWNERS, OWNERS, 1)
    assert "security" not in unsaid.task.agreement
    assert unsaid.digest == study(tmp_path, 'security = "semi-honest"\n').digest
    assert FOLLOWING in unsaid.statement.assumptions


def test_participants_of_different_security_hold_different_studies(tmp_path, checked):
    said = ['security = "semi-honest"\n', 'security = "active"\n']
    said += [f'security = "active"\ninputs = "{inputs}"\n' for inputs in ("covert", "unproven")]
    found = [study(tmp_path, each) for each in said]
    assert len({each.digest for each in found}) == 4
    assert [each.task.agreement.get("inputs") for each in found] == [None, "proven", "covert", "unproven"]
    assert found[1].digest == study(tmp_path, 'security = "active"\ninputs = "proven"\n').digest


def test_the_statement_says_who_may_deviate_and_what_is_proven(tmp_path, checked):
    for inputs in ("proven", "covert", "unproven"):
        statement = study(tmp_path, f'security = "active"\ninputs = "{inputs}"\n').statement
        first, *others = statement.assumptions
        assert first.startswith("at most 1 of the 3 seats (")
        assert DEALT[inputs] in others
        assert NOT_CHECKED in others
        assert FOLLOWING not in statement.assumptions
        again = Statement.from_dict(statement.to_dict())
        assert again.trust == statement.trust
        assert again.assumptions == statement.assumptions


@pytest.mark.parametrize(
    ("said", "task", "message"),
    [
        ('security = "malicious"\n', ROWS, ("ST595", "semi-honest", "active")),
        ('inputs = "proven"\n', ROWS, ("VA232", "proven")),
        ('security = "semi-honest"\ninputs = "covert"\n', ROWS, "VA232"),
        ('security = "active"\n', 'kind = "glm"\nlabel = "a.ax"\nrows = 100\n', ("VA230", "glm")),
        ('security = "active"\n', SKETCH, ("ST154", "sketch")),
    ],
)
def test_what_a_study_cannot_have_is_refused_with_one_sentence(tmp_path, said, task, message):
    with raises(StudyError, message):
        study(tmp_path, said, task).task  # noqa: B018 - planning refuses


def test_a_task_without_checks_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(Moments, "why_not_active", "has no checks of what others compute")
    with raises(StudyError, "ST154", "pca"):
        study(tmp_path, 'security = "active"\n').task  # noqa: B018 - planning refuses


def test_bounds_that_a_task_cannot_prove_are_refused(tmp_path, checked, monkeypatch):
    monkeypatch.setattr(Moments, "proofs", ("unproven",))
    with raises(StudyError, "ST155", "unproven"):
        study(tmp_path, 'security = "active"\ninputs = "proven"\n').task  # noqa: B018 - planning refuses


# --- in Python


def people(**given):
    tables = {name: {"id": ["p", "q"], f"{name}x": [0.0, 1.0], f"{name}y": [0.5, -0.5]} for name in OWNERS}
    import pandas

    frames = {name: pandas.DataFrame(table) for name, table in tables.items()}
    return Federation([Party(name, frames[name], schema=SCHEMAS[name], id="id") for name in OWNERS], **given)


def test_a_federation_has_the_default_of_the_task_unless_it_says(checked):
    model = PCA(1, epsilon=1.0, method="moments", rows_at_most=10_000)
    assert model.plan_for(people()).trust.active
    assert model.plan_for(people()).trust.inputs == "proven"
    assert model.plan_for(people(inputs="covert")).trust.inputs == "covert"
    assert not model.plan_for(people(security="semi-honest")).trust.active
    assert not model.plan(people().roster).trust.active


def sqm(degree):
    return LogisticRegression(label="c.ill", method="sqm", rows=2_000, epsilon=4.0, expansion=degree)


@pytest.mark.parametrize(
    ("model", "security", "possible"),
    [
        (PCA(1, epsilon=1.0, method="moments"), "active", ("unproven", "covert", "proven")),
        (PCA(1, epsilon=1.0, method="power"), "active", ("unproven", "covert", "proven")),
        (LinearRegression(label="a.ax", epsilon=1.0), "active", ("unproven", "covert", "proven")),
        (LinearRegression(label="a.ax", epsilon=1.0, method="functional"), "active", ("unproven",)),
        (sqm(1), "active", ("unproven", "covert", "proven")),
        (sqm(3), "semi-honest", ("unproven", "covert", "proven")),
        (GLM(label="a.ax", epsilon=1.0, family="linear", rows=100), "semi-honest", ("unproven",)),
    ],
    ids=["moments", "power", "linear", "functional", "sqm", "sqm-3", "glm"],
)
def test_what_models_do_where_nobody_says(model, security, possible):
    """As they are, and as the pages say: owners prove nothing unless they are asked to."""
    roster = Roster.of(SCHEMAS | {"c": Schema({"cx": number(0, 1), "ill": flag()})}, security=None)
    task = model.as_asked(roster)
    assert (task.trust.security, task.trust.inputs) == (security, "unproven")
    assert task.possible_proofs == possible


def test_a_task_that_is_not_checked_by_default_is_not(checked, monkeypatch):
    monkeypatch.setattr(Moments, "active_by_default", False)
    model = PCA(1, epsilon=1.0, method="moments", rows_at_most=10_000)
    assert not model.plan_for(people()).trust.active
    assert model.plan_for(people(security="active")).trust.active
    with raises(StudyError, "ST156"):
        model.plan_for(people(inputs="proven"))


def test_bounds_that_cannot_be_proven_are_refused_also_by_default(checked, monkeypatch):
    monkeypatch.setattr(Moments, "proofs", ("unproven",))
    model = PCA(1, epsilon=1.0, method="moments", rows_at_most=10_000)
    assert model.plan_for(people()).trust.inputs == "unproven"
    with raises(StudyError, "ST155"):
        model.plan_for(people(inputs="proven"))


def test_a_federation_refuses_what_it_cannot_have():
    with raises(StudyError, "ST078", "semi-honest", "active", "covert"):
        people(security="covert")
    with raises(StudyError, "ST079", "'unproven', 'covert', 'proven'", "7"):
        people(inputs=7)
    with raises(StudyError, "ST080"):
        people(security="semi-honest", inputs="proven")
    with raises(StudyError, "ST153", "glm"):
        GLM(label="a.ax", epsilon=1.0, family="linear").fit(people(security="active"))


def test_gradients_of_degree_three_are_not_checked_by_default(monkeypatch):
    from colonnade.kinds.regression.gradients.task import Gradients

    monkeypatch.setattr(Gradients, "why_not_active", None)
    monkeypatch.setattr(Gradients, "active_by_default", True)
    schemas = SCHEMAS | {"c": Schema({"cx": number(0, 1), "ill": flag()})}
    roster = Roster.of(schemas, security=None)
    common = {"label": "c.ill", "method": "sqm", "rows": 2_000, "epsilon": 4.0}
    linear, cubic = (LogisticRegression(**common, expansion=degree).as_asked(roster) for degree in (1, 3))
    assert linear.trust.active
    assert not cubic.trust.active
    assert linear.settlements < linear.rounds < cubic.settlements


# --- trust in files


def test_trust_is_read_back_and_says_nothing_where_everybody_follows():
    plain = Trust(OWNERS, OWNERS, 1)
    assert plain.to_dict() == {"owners": list(OWNERS), "committee": list(OWNERS), "threshold": 1}
    for inputs in ("unproven", "covert", "proven"):
        trust = Trust(OWNERS, OWNERS, 1, "active", inputs)
        assert Trust.from_json(trust.to_json()) == trust
    for damaged in ({"security": "none"}, {"security": "active", "inputs": 3}, {"inputs": "proven"}):
        with pytest.raises(PrivacyError):
            Trust.from_dict(plain.to_dict() | damaged)
    with raises(PrivacyError, "PR051"):
        Trust(OWNERS, (), 0, "active")


# --- the price


def test_checks_and_proofs_are_in_the_price(tmp_path, checked):
    said = ['security = "semi-honest"\n']
    said += [f'security = "active"\ninputs = "{inputs}"\n' for inputs in ("unproven", "proven")]
    plain, active, proven = (preflight(study(tmp_path, each)).run for each in said)
    assert plain.bytes_total < active.bytes_total < proven.bytes_total
    assert plain.rounds < active.rounds
    held = [max(load.memory for load in run.loads) for run in (plain, active, proven)]
    assert held[0] <= held[1] < held[2]


# --- what a person is told


def test_a_preflight_and_the_doctor_say_what_is_done(tmp_path, checked):
    unsaid = preflight(study(tmp_path))
    assert unsaid.to_dict()["security"]["security"] == "semi-honest"
    assert 'security = "active" does' in shown(unsaid)
    active = preflight(study(tmp_path, 'security = "active"\n'))
    assert active.to_dict()["security"]["inputs"] == "proven"
    assert "security is active: seats check" in shown(active)
    found = {check.what: check for check in examine(tmp_path / "STUDY.toml", None)}
    assert found["security"].level == "good"
    study(tmp_path)
    found = {check.what: check for check in examine(tmp_path / "STUDY.toml", None)}
    assert found["security"].level == "unsure"


def seated(folder, parties, said, task=ROWS, threshold=1):
    """A study of so many parties, each with a seat, and with another threshold than the usual one."""
    for name in parties:
        Schema({f"{name}x": number(0, 1), f"{name}y": flag()}).save(folder / f"{name}.toml")
    path = folder / "STUDY.toml"
    seats = f"[committee]\nseats = {list(parties)}\nthreshold = {threshold}\n"
    path.write_text(said + study_text(task, parties=parties) + seats)
    return Study.load(path)


@pytest.mark.parametrize(
    ("parties", "threshold", "lost"), [("abc", 1, 0), ("abcd", 1, 1), ("abcde", 1, 1), ("abcde", 2, 0)]
)
def test_a_preflight_says_how_many_seats_may_be_lost(tmp_path, parties, threshold, lost):
    found = preflight(seated(tmp_path, parties, 'security = "active"\n', threshold=threshold))
    assert found.to_dict()["security"]["may_be_lost"] == lost
    assert f"seats that may be lost once they have dealt everything: {lost}" in shown(found).splitlines()


def test_a_mixture_needs_every_seat_whatever_the_threshold(tmp_path):
    task = 'kind = "synthetic"\nmethod = "mixture"\nrows = 1000\n'
    found = preflight(seated(tmp_path, "abcd", 'security = "active"\n', task))
    assert found.to_dict()["security"]["may_be_lost"] == 0


def test_where_nobody_checks_the_page_says_who_may_be_lost(tmp_path):
    found = preflight(seated(tmp_path, "abcd", ""))
    assert found.to_dict()["security"]["may_be_lost"] is None
    assert "may be lost" not in shown(found)


def test_a_study_over_messages_says_what_holds_there(tmp_path):
    found = preflight(study(tmp_path, task='kind = "glm"\nlabel = "a.ax"\nrows = 100\nfamily = "linear"\n'))
    assert found.to_dict()["security"]["security"] == "messages"
    assert "hold whatever the others send" in " ".join(shown(found).split())


def test_new_study_files_ask_for_checks_where_that_is_the_default(checked):
    assert line_for("pca").startswith('security = "active"  #')
    assert line_for("glm") == ""


def test_a_report_says_how_many_claims_were_checked(tmp_path, checked):
    said = preflight(study(tmp_path, 'security = "active"\n')).to_dict()["security"]
    checks = {"claims": 1234, "error": 2.0**-40}
    page = str(deviating({"security": said, "parties": {"a": {"checks": checks}, "b": {}}}))
    assert "Security is active" in page
    assert "1,234 claims" in page
    assert "<sup>-40</sup>" in page
    assert "claims" not in str(deviating({"security": said}))
    assert deviating({}) is None


def test_participants_whose_plans_differ_end_with_one_sentence_and_spend_nothing(trial, checked):
    made = trial(match=False)
    other = made.file.with_name("OTHER.toml")
    other.write_text('security = "active"\n' + made.file.read_text())
    made.start_bank_last(threads=True, study=other)  # whoever comes after the others have ended finds no hub
    for name, ended in made.ends(120).items():
        assert ended.code != 0, name
        assert "holds another version of the study: give everyone the same study file" in ended.sentence
    assert all(made.states(name) == ["released"] for name in made.parties)


@pytest.mark.parametrize("inputs", ["proven", "unproven"])
def test_a_real_study_is_checked_and_its_record_says_so(trial, inputs):
    made = trial(match=False)
    made.file.write_text(f'security = "active"\ninputs = "{inputs}"\n' + made.file.read_text())
    models = play(made.study(), made.folder / "runs")
    assert models["bank"].privacy_.trust.inputs == inputs
    record = read_facts(made.folder / "runs")
    assert record["security"]["security"] == "active"
    assert "checks" not in record  # the coordinator has no seat
    for party in made.parties:
        checks = read_facts(folder_of(made.folder / "runs", party))["checks"]
        assert checks["claims"] >= 1
        assert 0 < checks["error"] <= 2.0**-40
        assert made.states(party) == ["committed"]
