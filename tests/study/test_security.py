"""What a study says about participants that deviate or leave out their noise: keys, digests, statements, and prices."""

from __future__ import annotations

import pytest

from colonnade.cli.text_output import preflight as shown
from colonnade.errors import ColonnadeError, PrivacyError, StudyError
from colonnade.kinds import LinearRegression, LogisticRegression
from colonnade.kinds.glm.model import GLM
from colonnade.kinds.pca.model import PCA
from colonnade.models.federation import Roster
from colonnade.privacy import Statement, Trust
from colonnade.privacy.statement import DEALT, FOLLOWING, NOT_CHECKED
from colonnade.protocols.moments.task import Moments
from colonnade.report.page import describe_deviations
from colonnade.study import Study, preflight
from colonnade.study.doctor import examine
from colonnade.study.local import folder_of
from colonnade.study.preflight import security_line
from colonnade.study.record import read_facts
from colonnade.tables import Schema, flag, number
from tests.support.errors import raises
from tests.support.federations import federation
from tests.support.studies import check_words, play, study_text

OWNERS = ("a", "b", "c")
SCHEMAS = {name: Schema({f"{name}x": number(0, 1), f"{name}y": number(-1, 1)}) for name in OWNERS}
ILL = Schema({"cx": number(0, 1), "ill": flag()})
ROWS = 'kind = "pca"\nmethod = "moments"\nrows_at_most = 10_000\n'
SKETCH = 'kind = "sketch"\nrounds = 10\nrows = 1000\ndimension = 4\ngamma = 4096\nsampling = "poisson"\nbatch = 50\n'
MESSAGES = 'kind = "glm"\nlabel = "a.ax"\nrows = 100\nfamily = "linear"\n'
ACTIVE = 'security = "active"\n'
INPUTS = ("unproven", "proven")
USUAL = INPUTS[::-1]
MODEL = PCA(1, epsilon=1.0, method="moments", rows_at_most=10_000)


@pytest.fixture
def checked(monkeypatch):
    """Second moments that can be checked, and whose owners can prove bounds, whatever is the default here."""
    monkeypatch.setattr(Moments, "why_not_active", None)
    monkeypatch.setattr(Moments, "active_by_default", True)
    monkeypatch.setattr(Moments, "proofs", ("proven", "unproven"))


@pytest.fixture
def study(tmp_path):
    def load(said="", task=ROWS, parties="abc", threshold=None):
        for name in parties:
            SCHEMAS.get(name, Schema({f"{name}x": number(0, 1)})).save(tmp_path / f"{name}.toml")
        seats = "" if threshold is None else f"[committee]\nseats = {list(parties)}\nthreshold = {threshold}\n"
        (tmp_path / "STUDY.toml").write_text(said + study_text(task, parties=parties) + seats)
        return Study.load(tmp_path / "STUDY.toml")

    return load


# --- in files


def test_a_study_that_says_nothing_is_what_python_makes_of_it(study, checked):
    trusting, unsaid = study('security = "semi-honest"\n'), study()
    assert trusting.trust == Trust(OWNERS, OWNERS, 1)
    assert "security" not in trusting.task.agreement
    assert FOLLOWING in trusting.statement.assumptions
    assert unsaid.task == MODEL.plan_as_requested(Roster.of(SCHEMAS, security=None))
    assert unsaid.digest == study(ACTIVE).digest
    found = [trusting, unsaid, study(f'{ACTIVE}inputs = "unproven"\n')]
    assert len({each.digest for each in found}) == 3
    assert [each.task.agreement.get("inputs") for each in found] == [None, "proven", "unproven"]
    for each in found[1:]:
        first, *others = each.statement.assumptions
        assert first.startswith("at most 1 of the 3 seats (")
        assert {DEALT[each.trust.inputs], NOT_CHECKED} <= set(others)
        assert FOLLOWING not in others
        again = Statement.from_dict(each.statement.to_dict())
        assert (again.trust, again.assumptions) == (each.statement.trust, each.statement.assumptions)
    assert unsaid.digest == study('inputs = "proven"\n').digest == study(f'{ACTIVE}inputs = "proven"\n').digest


@pytest.mark.parametrize(
    ("said", "task", "message"),
    [
        ('security = "malicious"\n', ROWS, ("ST595", "semi-honest", "active")),
        ('inputs = "proven"\n', 'kind = "synthetic"\nmethod = "mixture"\nrows = 1000\n', "ST156"),
        ('security = "semi-honest"\ninputs = "proven"\n', ROWS, "VA232"),
        (f'{ACTIVE}inputs = "covert"\n', ROWS, ("ST595", "inputs")),
        (ACTIVE, MESSAGES, ("VA230", "glm")),
        (ACTIVE, SKETCH, ("ST154", "sketch")),
        ("noise_missing = 2\n", ROWS, ("PR055", "1")),
        ("noise_missing = -1\n", ROWS, ("ST595", "noise_missing")),
        ("noise_missing = true\n", ROWS, ("ST595", "noise_missing")),
        ("noise_missing = 1.5\n", ROWS, ("ST595", "noise_missing")),
        ("noise_missing = 0\n", MESSAGES, ("VA230", "noise_missing")),
    ],
)
def test_what_a_study_cannot_have_is_refused_with_one_sentence(study, said, task, message):
    with raises(ColonnadeError, message):
        study(said, task).task  # noqa: B018 - planning refuses


def test_trust_is_read_back_and_says_nothing_where_everybody_follows():
    plain = Trust(OWNERS, OWNERS, 1)
    assert plain.to_dict() == {"owners": list(OWNERS), "committee": list(OWNERS), "threshold": 1}
    for inputs in INPUTS:
        trust = Trust(OWNERS, OWNERS, 1, "active", inputs)
        assert Trust.from_json(trust.to_json()) == trust
    earlier = plain.to_dict() | {"security": "active", "inputs": "covert"}
    assert Trust.from_dict(earlier).inputs == "unproven", "entries of ledgers of earlier releases"
    for damaged in ({"security": "none"}, {"security": "active", "inputs": 3}, {"inputs": "proven"}):
        with pytest.raises(PrivacyError):
            Trust.from_dict(plain.to_dict() | damaged)
    with raises(PrivacyError, "PR051"):
        Trust(OWNERS, (), 0, "active")


# --- in Python


def people(**given):
    return federation({name: {f"{name}x": [0.0, 1.0], f"{name}y": [0.5, -0.5]} for name in OWNERS}, SCHEMAS, **given)


def test_a_federation_has_the_default_of_the_task_unless_it_says(study, checked, monkeypatch):
    assert MODEL.plan_for(people()).trust.active
    assert MODEL.plan_for(people()).trust.inputs == "proven"
    assert MODEL.plan_for(people(inputs="unproven")).trust.inputs == "unproven"
    assert not MODEL.plan_for(people(security="semi-honest")).trust.active
    assert not MODEL.plan(people().roster).trust.active
    monkeypatch.setattr(Moments, "active_by_default", False)
    assert not MODEL.plan_for(people()).trust.active
    assert MODEL.plan_for(people(security="active")).trust.active
    with raises(StudyError, "ST156"):
        MODEL.plan_for(people(inputs="proven"))
    monkeypatch.setattr(Moments, "active_by_default", True)
    monkeypatch.setattr(Moments, "proofs", ("unproven",))
    assert MODEL.plan_for(people()).trust.inputs == "unproven"
    for ask in (lambda: MODEL.plan_for(people(inputs="proven")), lambda: study(f'{ACTIVE}inputs = "proven"\n').task):
        with raises(StudyError, "ST155"):
            ask()
    monkeypatch.setattr(Moments, "why_not_active", "has no checks of what others compute")
    with raises(StudyError, "ST154", "pca"):
        study(ACTIVE).task  # noqa: B018 - planning refuses


def sqm(degree):
    return LogisticRegression(label="c.ill", method="sqm", rows=2_000, epsilon=4.0, expansion=degree)


@pytest.mark.parametrize(
    ("model", "security", "possible"),
    [
        (PCA(1, epsilon=1.0, method="moments"), "active", USUAL),
        (LinearRegression(label="a.ax", epsilon=1.0, method="functional"), "active", ("unproven",)),
        (sqm(1), "active", USUAL),
        (sqm(3), "semi-honest", USUAL),
        (GLM(label="a.ax", epsilon=1.0, family="linear", rows=100), "semi-honest", ("unproven",)),
    ],
    ids=["moments", "functional", "sqm", "sqm-3", "glm"],
)
def test_what_models_do_where_nobody_says(model, security, possible):
    """As they are, and as the pages say: where seats check, owners prove what can be proven."""
    task = model.plan_as_requested(Roster.of(SCHEMAS | {"c": ILL}, security=None))
    usual = possible[0] if security == "active" else "unproven"
    assert (task.trust.security, task.trust.inputs, task.possible_proofs) == (security, usual, possible)


@pytest.mark.parametrize("method", ["moments", "power"])
def test_numbers_that_are_too_long_for_a_proof_are_not_proven(method):
    model = PCA(1, epsilon=1.0, method=method, gamma=2**26, rows_at_most=100)
    task = model.plan_as_requested(Roster.of(SCHEMAS | {"c": ILL}, security=None))
    assert (task.trust.security, task.trust.inputs, task.possible_proofs) == ("active", "unproven", ("unproven",))


def test_a_total_says_as_every_study_does_that_it_rests_on_unproven_bounds():
    for given, status in (({}, "proven"), ({"inputs": "unproven"}, "if owners keep their bounds")):
        federation_ = people(security="active", **given)
        fitted = PCA(1, epsilon=1.0, method="moments").fit(federation_)
        for told in (fitted.privacy_, federation_.privacy_):
            assert {row.status for row in told.rows} - {"no guarantee"} == {status}


def test_a_federation_refuses_what_it_cannot_have():
    for given, said in (
        ({"security": "covert"}, ("ST078", "semi-honest", "active", "covert")),
        ({"inputs": 7}, ("ST079", "'unproven', 'proven'", "7")),
        ({"security": "semi-honest", "inputs": "proven"}, "ST080"),
    ):
        with raises(StudyError, said):
            people(**given)
    with raises(StudyError, "ST153", "glm"):
        GLM(label="a.ax", epsilon=1.0, family="linear").fit(people(security="active"))


# --- the price


def test_checks_and_proofs_are_in_the_price(study, checked):
    said = ['security = "semi-honest"\n', *(f'{ACTIVE}inputs = "{inputs}"\n' for inputs in ("unproven", "proven"))]
    plain, active, proven = (preflight(study(each)).run for each in said)
    assert plain.bytes_total < active.bytes_total < proven.bytes_total
    assert plain.rounds < active.rounds


def test_a_study_may_ask_for_noise_that_suffices_without_an_owners_part(study):
    trusting = 'security = "semi-honest"\n'
    plain, robust, none = (study(trusting + said) for said in ("", "noise_missing = 1\n", "noise_missing = 0\n"))
    assert plain.task.noise == none.task.noise < robust.task.noise
    assert len({plain.digest, robust.digest, none.digest}) == 3
    decides, allowed = robust.binding.observer, robust.binding.budget.epsilon
    assert robust.statement.epsilon(decides) == robust.statement.epsilon(decides, missing=1) <= allowed
    assert plain.statement.epsilon(decides, missing=1) > plain.binding.budget.epsilon


# --- what a person is told


def test_a_preflight_and_the_doctor_say_what_is_done(study, checked):
    for said, level, facts, words in (
        ("", "good", ("active", "proven"), "security is active: seats check"),
        ('security = "semi-honest"\n', "unsure", ("semi-honest", "unproven"), 'security = "active" does'),
    ):
        found = preflight(study(said))
        told = found.to_dict()["security"]
        assert (told["security"], told["inputs"]) == facts
        assert words in shown(found)
        checks = {check.what: check for check in examine(study(said).path, None)}
        assert checks["security"].level == level
    assert (security_line("pca")[:19], security_line("glm")) == ('security = "active"', "")  # in a new study file
    by_messages = preflight(study(task=MESSAGES))
    assert by_messages.to_dict()["security"]["security"] == "messages"
    assert "hold whatever the others send" in " ".join(shown(by_messages).split())
    missing = found.to_dict()["statement"]["missing_noise"]
    assert "\nif 1 owner draws no noise\nanalyst " in shown(found)
    assert [(row["observer"], row["missing"]) for row in missing][:2] == [("analyst", 1), ("coordinator", 1)]


@pytest.mark.parametrize(
    ("said", "parties", "threshold", "task", "lost"),
    [
        ("", "abc", 1, ROWS, 0),
        (ACTIVE, "abcd", 1, ROWS, 1),
        (ACTIVE, "abcde", 2, ROWS, 0),
        (ACTIVE, "abcd", 1, 'kind = "synthetic"\nmethod = "mixture"\nrows = 1000\n', 0),  # it needs every seat
        ('security = "semi-honest"\n', "abcd", 1, ROWS, None),
    ],
)
def test_a_preflight_says_how_many_seats_may_be_lost(study, said, parties, threshold, task, lost):
    found = preflight(study(said, task, parties, threshold))
    assert found.to_dict()["security"]["may_be_lost"] == lost
    told = f"seats that may be lost once they have dealt everything: {lost}" in shown(found).splitlines()
    assert told == (lost is not None)
    assert ("may be lost" in shown(found)) == told


def test_a_report_says_how_many_claims_were_checked(study, checked):
    said = preflight(study(ACTIVE)).to_dict()["security"]
    checks = {"claims": 1234, "error": 2.0**-40}
    page = str(describe_deviations({"security": said, "parties": {"a": {"checks": checks}, "b": {}}}))
    check_words(page, "Security is active", "1,234 claims", "<sup>-40</sup>")
    assert "claims" not in str(describe_deviations({"security": said}))


def test_a_real_study_is_checked_and_its_record_says_so(trial):
    made = trial(match=False)
    made.file.write_text(f'{ACTIVE}inputs = "proven"\n' + made.file.read_text())
    models = play(made.study(), made.folder / "runs")
    assert models["bank"].privacy_.trust.inputs == "proven"
    record = read_facts(made.folder / "runs")
    assert record["security"]["security"] == "active"
    assert "checks" not in record  # the coordinator has no seat
    for party in made.parties:
        checks = read_facts(folder_of(made.folder / "runs", party))["checks"]
        assert checks["claims"] >= 1
        assert 0 < checks["error"] <= 2.0**-40
    made.check_states("committed")
