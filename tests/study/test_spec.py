"""Study files, party files and records of runs: what is read, refused by name, agreed on and kept."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from pydantic import ValidationError

from colonnade.errors import (
    BudgetError,
    IdentityError,
    LedgerError,
    PolicyError,
    PrivacyError,
    SchemaError,
    StorageError,
    StudyError,
)
from colonnade.models import registry
from colonnade.models.planner import LIMITS_ROWS, NAMES_LABEL
from colonnade.privacy import Adjacency, Ledger, Trust
from colonnade.study import PartyConfig, RunRecord, Study
from colonnade.study.party_config import DigestApproval
from colonnade.study.run import _reservation, public_facts
from colonnade.study.spec import write_pins
from colonnade.study.study_file import parse_task, task_section_of
from colonnade.tables import Schema, date, flag, number
from colonnade.wire import Certificate, Identity, certificates
from tests.support.errors import raises
from tests.support.studies import edit, study_text

GOOD = study_text() + 'columns = ["y"]\n'
PARTY = """\
name = "a"
data = "a.csv"
id = "id"
key = "a.key"
ledger = "l.sqlite"
[policy]
tasks = ["pca"]
columns = ["x"]
[policy.budget]
epsilon = 3.0
"""
ALL = ('columns = ["x"]', 'columns = "all"')
PORT = ':7000"'
PERIODS = "[[policy.periods]]\ndays = {}\nepsilon = {}\n"
NO_DAYS = ("0", "nan", "true", '"30"', "inf", "-1", "36526", "[3]")
NO_EPSILON = ("true", '"3"', "nan", "-1", "0", "[1.0]", "{ }", "{ analyst = true }")
NO_PATH = ("", "  ", "a\\u0000b", "a\\nb", "\\u001b[31m")
WRONG = [
    *(("", PERIODS.format(days, 1), ("ST573", "policy.periods.", "0")) for days in NO_DAYS),
    ("", "[[policy.periods]]\nepsilon = 1\n", ("ST573", "policy.periods.", "0")),
    ("", PERIODS.format(1, "1\nweeks = 1"), ("ST573", "policy.periods.", "0")),
    *(("", PERIODS.format(3, value), ("PR063|PR064|PR065", "policy.periods.0")) for value in NO_EPSILON),
    *((("epsilon = 3.0", f"epsilon = {value}"), "", ("PR063|PR064|PR065", "policy.budget")) for value in NO_EPSILON),
    *(("", f"delta = {value}\n", ("PR066", "policy.budget.delta")) for value in ("true", '"0.1"', "nan", "0", "1")),
    *((('data = "a.csv"', f'data = "{value}"'), "", ("VA196", "data")) for value in NO_PATH),
    (('key = "a.key"', 'key = ""'), "", ("VA196", "key")),
    (('ledger = "l.sqlite"', 'ledger = ""'), "", ("VA196", "ledger")),
    (("ledger =", "leger ="), "", ("VA195", "leger", "ledger")),
    (("[policy]", '[policy]\napproval = "always"'), "", ("ST573", "policy.approval")),
]
SECOND = "[parties.b]"


@pytest.fixture
def folder(tmp_path):
    Schema({"x": number(0, 1), "w": number(0, 1)}).save(tmp_path / "a.toml")
    Schema({"y": number(0, 1), "z": number(-5, 5)}).save(tmp_path / "b.toml")
    (tmp_path / "STUDY.toml").write_text(GOOD)
    (tmp_path / "party.toml").write_text(PARTY)
    return tmp_path


def load(folder, *changes):
    if changes:
        (folder / "STUDY.toml").write_text(GOOD)
        edit(folder / "STUDY.toml", *changes)
    return Study.load(folder / "STUDY.toml")


def party(folder, *changes, more=""):
    (folder / "party.toml").write_text(PARTY + more)
    edit(folder / "party.toml", *changes)
    return PartyConfig.load(folder / "party.toml")


# --- a study


def test_a_study_is_read_with_its_schemas(folder):
    study = load(folder)
    assert study.roster.schemas["b"].names == ("y",)
    assert study.roster.trust.committee == study.participants == ("a", "b", "coordinator")
    assert study.statement.epsilon("a") <= 1.0
    study = load(folder, ("parties.a]", 'parties."a.b"]'), ("127.0.0.1:7000", "[::1]:7000"))
    assert study.participants[0] == "a.b"
    for pins in ({"a.b": "sha256:2"}, {"a.b": "sha256:3", "b": "sha256:4"}):
        write_pins(folder / "STUDY.toml", pins)
        assert load(folder).content.pins == pins
    with raises(IdentityError, "ID032", "a.b.crt"):
        load(folder).certificates()
    with raises(StudyError, "ST600"):
        Study.load(folder / "nothing.toml")


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ('kind = "pca"', 'kind = "pca"\nsolver = 1', StudyError, ("ST595", "task.solver")),
        ('kind = "pca"', 'kind = "tree"', StudyError, "ST557"),
        ("epsilon = 1.0", "", StudyError, "VA234"),
        ("epsilon = 1.0", "epsilon = -1", StudyError, "PR065"),
        *(
            ("epsilon = 1.0", f"epsilon = {value}", StudyError, ("PR064|PR065", "STUDY.toml", "budget.epsilon"))
            for value in ("true", '"1.0"', "{ analyst = '1' }", "nan")
        ),
        ("127.0.0.1:7000", "nowhere", StudyError, ("VA235", "coordinator.address")),
        ("127.0.0.1:7000", "host:99999", StudyError, "VA236"),
        (PORT, ':7000"\nhubs = ["nowhere"]', StudyError, ("VA235", "coordinator.hubs")),
        (PORT, ':7000"\nhubs = "host:1"', StudyError, ("ST595", "coordinator.hubs")),
        (PORT, ':7000"\nlinks = "none"', StudyError, ("ST595", "coordinator.links")),
        (PORT, ':7000"\nhubs = ["127.0.0.1:7000"]', StudyError, ("VA220", "127.0.0.1:7000")),
        (PORT, ':7000"\nhubs = ["Host:1", "host:1"]', StudyError, ("VA220", "Host:1")),
        (PORT, ':7000"\nhubs = ["host:01", "host.:1"]', StudyError, ("VA220", "host:01")),
        (SECOND, '[pins]\nq = "sha256:1"\n[parties.b]', StudyError, ("VA224", "q")),
        (SECOND, '[pins]\na = "sha256:1"\nb = "SHA256:1"\n[parties.b]', StudyError, ("VA223", "b")),
        (SECOND, "[parties.others]", StudyError, ("VA222", "others")),
        ("1.0", "{ analyst = 1.0, others = 2.0 }", StudyError, ("VA219", "others", "budget.epsilon")),
        (SECOND, '[parties."my bank"]', IdentityError, "ID031"),
        ('columns = ["y"]', 'columns = ["yy"]', SchemaError, ("SC071", "yy")),
        ("b.toml", "c.toml", SchemaError, ("SC074", "c.toml")),
        ('name = "s"', 'name = "../s"', StudyError, "VA221"),
        (SECOND, "[parties.b", StudyError, "ST599"),
        ("[parties.a]", "[committee]\nthreshold = 2\n[parties.a]", PrivacyError, "PR057"),
        ("[parties.a]", '[committee]\nseats = ["a", "b", "c"]\n[parties.a]', PrivacyError, "PR054"),
    ],
)
def test_what_is_wrong_in_a_study_file_is_named(folder, old, new, error, message):
    with raises(error, message):
        _ = load(folder, (old, new)).task


def test_the_digest_covers_what_is_agreed_and_no_more(folder):
    first = load(folder)
    assert first.content.coordinator.lane_hubs == ("127.0.0.1:7000",)
    for same in (('name = "s"', 'name = "s"\ndescription = ""'), (PORT, ':7000"\nhubs = []')):
        assert load(folder, same).digest == first.digest
    said = [load(folder, ('name = "s"', f'name = "s"\ndescription = "{words}"')) for words in ("for care", "for sale")]
    assert len({first.digest, *(each.digest for each in said)}) == 3, "people approve what they read"
    more = load(folder, (PORT, ':7000"\nhubs = ["b.example.org:1", "[::1]:7000"]'))
    assert more.content.coordinator.lane_hubs == ("127.0.0.1:7000", "b.example.org:1", "[::1]:7000")
    other = load(folder, ("epsilon = 1.0", "epsilon = 1.1"))
    Schema({"x": number(0, 2), "w": number(0, 1)}).save(folder / "a.toml")
    wider = load(folder, ("epsilon", "epsilon"))
    assert first.digest not in {more.digest, other.digest, wider.digest}
    # The order of the parties is the order of the columns: two orders must never meet unnoticed.
    seats, a = (
        ("[coordinator]", '[committee]\nseats = ["a", "b", "coordinator"]\n[coordinator]'),
        GOOD[GOOD.index("[parties.a]") : GOOD.index(SECOND)],
    )
    assert load(folder, seats).digest != load(folder, seats, (a, ""), ('["y"]\n', f'["y"]\n{a}')).digest


def test_one_key_in_two_certificates_is_one_participant(folder):
    key, pem = certificates.create("a", 10)
    first = Certificate("a", pem)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "b")])
    again = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    again = again.serial_number(7).not_valid_before(first.parsed.not_valid_before_utc)
    signed = again.not_valid_after(first.parsed.not_valid_after_utc).sign(key, None)
    known = {"a": first, "b": Certificate.from_pem(certificates.pem_of(signed))}
    assert known["b"].fingerprint != first.fingerprint
    assert known["b"].key_fingerprint == first.key_fingerprint
    known["coordinator"] = Identity.create("coordinator").certificate
    (folder / "certs").mkdir()
    for name, one in known.items():
        (folder / "certs" / f"{name}.crt").write_bytes(one.pem)
    assert load(folder).keys() == {}
    write_pins(folder / "STUDY.toml", {name: one.fingerprint for name, one in known.items()})
    for ask in (load(folder).certificates, load(folder).keys):
        with raises(IdentityError, "ID010", "b"):
            ask()


def test_promises_and_budgets_are_about_the_committee_of_the_task_which_may_have_none(folder):
    trusting = ("name = ", 'security = "semi-honest"\nname = ')
    study, alone = load(folder, trusting), load(folder, trusting)
    assert study.trust == study.roster.trust
    alone.task = replace(alone.task, trust=Trust(("a", "b"), (), 0))
    assert alone.trust.committee == ()
    assert alone.roster.trust.committee == ("a", "b", "coordinator")  # as an alignment would use it
    analyst = {row.observer.label: row for row in alone.statement.rows}["analyst"]
    seated = study.statement.rows[0].epsilon
    assert analyst.adjacency is Adjacency.REPLACE
    assert analyst.epsilon > seated
    between = (seated + analyst.epsilon) / 2
    config = party(folder, ("epsilon = 3.0", f"epsilon = {{ analyst = {between}, others = 100.0 }}"))
    config.check_budget(study)
    with raises(BudgetError, "BU002", "analyst"):
        config.check_budget(alone)
    facts = public_facts(alone)
    assert (facts["seats"], facts["threshold"]) == ([], 0)


# --- a party's file


def test_a_policy_allows_tasks_columns_and_parties(folder):
    study = load(folder)
    for changes, said in (
        ([], ("PO017", "w")),
        ([('["pca"]', '["regression"]')], ("PO015", "pca")),
        ([('name = "a"', 'name = "q"')], ("PO014", "q")),
        ([ALL, ("epsilon = 3.0", "epsilon = { analist = 3.0 }")], ("PR061", "analist")),
    ):
        with raises(PolicyError, said):
            party(folder, *changes).check(study)
    with raises(PolicyError, "PR061", "analist"):
        party(folder, ALL, more=PERIODS.format(7, "{ analist = 1 }")).check(study)
    party(folder).check(load(folder, ('schema = "a.toml"', 'schema = "a.toml"\ncolumns = ["x"]')))


def test_what_is_wrong_in_a_party_file_is_named_and_periods_are_read(folder):
    assert (party(folder).approval, party(folder).periods) == ("ask", ())
    week, month = party(folder, more=PERIODS.format(7, 0.5) + PERIODS.format(30, "{ a = 1.5 }")).periods
    assert (week.days, week.budgets[0].selector, week.budgets[0].epsilon) == (7, "everyone", 0.5)
    assert (month.days, month.budgets[0].selector, month.budgets[0].delta) == (30, "a", 1e-5)
    for change, more, said in WRONG:
        with raises(StudyError, "party.toml", said):
            party(folder, *([change] if change else []), more=more)


def approving(folder, mode):
    return party(folder, ("[policy]", f'[policy]\napproval = "{mode}"'))


def test_who_approves(folder):
    study, asked = load(folder), []

    def answer(yes):
        return lambda *about: asked.append(about) or yes

    config = approving(folder, "ask")
    assert config.approve(study, study.statement, answer(True))[0] == "the calling program"
    assert asked == [(study, study.statement)]
    with raises(PolicyError, "PO013"):
        config.approve(study, study.statement, answer(False))
    with raises(PolicyError, "PO012", study.digest, "--approve"):
        config.approve(study, study.statement, None)
    asked.clear()
    assert "policy" in approving(folder, "auto-within-budget").approve(study, study.statement, answer(False))[0]
    assert asked == []
    never = approving(folder, "never")
    for refuse in (lambda: never.approve(study, study.statement, answer(True)), lambda: never.check(study)):
        with raises(PolicyError, "PO016"):
            refuse()


@pytest.mark.parametrize("mode", ["ask", "auto-within-budget"])
def test_a_digest_approves_this_very_study(folder, mode):
    study, config = load(folder), approving(folder, mode)
    for digits in (study.digest, study.digest[:32], study.digest[:40].upper()):
        config.approve(study, study.statement, DigestApproval(digits))
    for digits in ("", study.digest[:12], study.digest[:31], study.digest + "0", "not a digest"):
        with raises(PolicyError, "PO010", "32", "64"):
            config.approve(study, study.statement, DigestApproval(digits))
    other = load(folder, ("epsilon = 1.0", "epsilon = 1.1"))
    with raises(PolicyError, "PO011"):
        config.approve(other, other.statement, DigestApproval(study.digest))


def test_a_cap_for_a_party_of_an_earlier_study_is_kept(folder):
    config = party(folder, ALL, ("epsilon = 3.0", "epsilon = { analyst = 3.0, insurer = 2.0 }"))
    study = load(folder)
    with raises(PolicyError, "PR061", "insurer"):
        config.check(study)
    earlier = Trust(("a", "insurer"), ("a", "insurer", "coordinator"), 1)
    event = replace(study.task.event, shares=(("a", 10**12), ("insurer", 10**12)))
    Ledger(config.ledger).reserve("earlier", "digest", [event], earlier, [])
    config.check(study)


def test_a_cap_for_all_others_is_read_and_the_party_is_known_to_its_ledger(folder):
    config, study = party(folder, ALL, ("3.0", "{ analyst = 3.0, others = 0.01 }")), load(folder)
    config.check(study)
    for _ in range(2):  # without a ledger, and with an empty one
        with raises(BudgetError, "BU002", "others", "policy.budget"):
            config.check_budget(study)
        config.open_ledger()


def test_a_party_says_how_its_file_is_written(folder):
    (folder / "a.csv").write_bytes("id;x;w\nä;0,25;1\nö;0,75;0\n".encode("latin-1"))
    said = 'data = "a.csv"\nseparator = ";"\nencoding = "latin-1"\ndecimal = ","'
    table = party(folder, ('data = "a.csv"', said)).table(load(folder).roster.schemas["a"])
    assert table.column("x").ravel().tolist() == [-0.5, 0.5]
    with raises(StudyError, "SC049", "party.toml"):
        party(folder, ('data = "a.csv"', said.replace('","', '"x"')))


def dated(folder, **said):
    """The study whose first column is a date that is read in this way, and the digest of its schema."""
    schema = Schema({"x": date("2020-01-01", "2021-01-01", **said)})
    schema.save(folder / "a.toml")
    return load(folder), schema.digest


def test_a_policy_names_the_columns_of_the_file_and_not_what_a_study_calls_them(folder):
    config = party(folder)
    study, _ = dated(folder, parts=["days", "month"])
    assert study.roster.schemas["a"].names == ("x.days", "x.month")
    config.check(study)
    for parts in ("days", ["days", "month"]):
        with raises(PolicyError, "PO017"):
            config.check(dated(folder, parts=parts, column="secret")[0])
    # A name that a study gives is no consent, nor is that of a part: a file may have another column of that name.
    config = party(folder, ('columns = ["x"]', 'columns = ["x.days", "y"]'))
    with raises(PolicyError, "PO017", "x.days"):
        config.check(dated(folder, parts=["days"])[0])
    config.check(dated(folder, column="y")[0])


def test_another_column_or_another_reading_of_it_is_another_study(folder):
    study, digest = dated(folder, format="%d/%m/%Y")
    config = party(folder, ('columns = ["x"]', f'columns = "all"\nschemas = ["{digest}"]'))
    config.check(study)
    for said in ({"format": "%d/%m/%Y", "column": "secret"}, {"format": "%m/%d/%Y"}):
        other, _ = dated(folder, **said)
        for refuse, code in (
            (config.check, "PO020"),
            (lambda other: DigestApproval(study.digest)(other, None), "PO011"),
        ):
            with raises(PolicyError, code):
                refuse(other)


def test_how_a_schema_reads_a_file_is_part_of_a_study_unless_the_party_says_it_itself(folder):
    before, schema = load(folder), Schema.load(folder / "a.toml")
    (folder / "a.toml").write_text('[table]\ndecimal = ","\nencoding = "ascii"\n' + (folder / "a.toml").read_text())
    study = load(folder)
    assert study.digest != before.digest
    assert study.schemas["a"].digest != schema.digest
    # Whether a file can be read in an encoding is an exact answer about its cells, so no stranger chooses one.
    with raises(PolicyError, "PO021", "ascii"):
        party(folder, ALL).check(study)
    party(folder, (ALL[0], f'columns = "all"\nschemas = ["{study.schemas["a"].digest}"]')).check(study)
    with raises(PolicyError, "PO021"):
        party(folder, ALL, ('id = "id"', 'id = "id"\nencoding = "utf-8"')).check(study)
    (folder / "a.csv").write_text("id,x,w\nä,0.25,1\nö,0.75,0\n")
    config = party(folder, ALL, ('data = "a.csv"', 'data = "a.csv"\nencoding = "utf-8"\ndecimal = "."'))
    config.check(study)
    table = config.table(study.roster.schemas["a"])
    assert table.column("x").ravel().tolist() == [-0.5, 0.5]
    assert table.schema.digest == study.roster.schemas["a"].digest


# --- the record of a run

OF = {"participant": "a", "study": "s", "digest": "d"}


def test_a_run_record_tells_how_it_ended(tmp_path):
    record = RunRecord(tmp_path / "run", **OF)
    record.record_public("something", rows=3)
    record.fail("DataError", "a sentence", 11)
    assert record.facts["status"] == "failed"
    assert '"something"' in (tmp_path / "run" / "events.jsonl").read_text()
    (tmp_path / "run" / "earlier").touch()  # files of an earlier run cannot be moved away, or there is no folder
    for place in (tmp_path / "run", tmp_path / "run" / "run.json"):
        with raises(StorageError, "SO038"):
            RunRecord(place, **OF)


@pytest.mark.parametrize("step", ["commit", "head"])
def test_a_ledger_without_room_for_the_end_says_that_the_study_ended_well(step, folder, monkeypatch):
    study, ledger = load(folder), Ledger(folder / "l.sqlite")
    entry = ledger.reserve("s", study.digest, study.events, study.trust, [])
    ledger.mark_sent(entry)

    def full(*_):
        raise LedgerError("the ledger cannot be used: database or disk is full")

    monkeypatch.setattr(Ledger, step, full if step == "commit" else property(full))
    with raises(LedgerError, "LE039", "model.json"), _reservation(ledger, entry, RunRecord(folder / "run", **OF)):
        pass
    monkeypatch.undo()
    assert ledger.entries()[0].state == ("sent" if step == "commit" else "committed")


def test_a_line_that_cannot_be_written_ends_a_run_only_before_it_is_paid_for(tmp_path):
    record = RunRecord(tmp_path / "run", **OF)
    (tmp_path / "run" / "events.jsonl").mkdir()
    with raises(StorageError, "SO039", "events.jsonl"):
        record.record_public("something")
    record.mark_paid()
    record.record_public("something")
    assert "events.jsonl" in record.lost
    record.finish()
    assert record.facts["status"] == "finished"
    (tmp_path / "run" / "run.json").unlink()
    (tmp_path / "run" / "run.json").mkdir()
    record.fail("DataError", "a sentence", 11)
    assert "run.json" in record.lost


def test_an_earlier_run_is_put_away_not_overwritten(tmp_path):
    for digest in ("one", "two", "three"):
        record = RunRecord(tmp_path, **OF | {"digest": digest})
        (tmp_path / "model.json").write_text(digest)
        record.finish()
    places = (tmp_path / "earlier" / "1", tmp_path / "earlier" / "2", tmp_path)
    assert [(place / "model.json").read_text() for place in places] == ["one", "two", "three"]


# --- ``[task]``: keys that follow from constructors, what is refused when it is read, and one price

TAIL = """
[coordinator]
address = "127.0.0.1:7000"
[parties.a]
schema = "a.toml"
[parties."a.b"]
schema = "ab.toml"
columns = ["y"]
[parties.c]
schema = "c.toml"
"""
LOGISTIC = '[task]\nkind = "logistic"\nlabel = "a.hit"\n'
LINEAR = '[task]\nkind = "linear"\nlabel = "a.x"\n'
GLM = '[task]\nkind = "glm"\nlabel = "a.hit"\nrows = 50\n'
POLYNOMIAL = '[task]\nkind = "polynomial"\nexpressions = ["a.x * c.z"]\n'
PREDICTION = '[task]\nkind = "prediction"\nmodel = "model.json"\nto = "a"\n'
PRICE = "[budget]\nepsilon = 1.0\n"
BY_PARTY = "epsilon_by_party = { a = 1.0, 'a.b' = 0.5, c = 2.0 }\n"


@pytest.fixture
def read(tmp_path):
    Schema({"x": number(0, 1), "hit": flag()}).save(tmp_path / "a.toml")
    Schema({"y": number(0, 1), "late": flag()}).save(tmp_path / "ab.toml")
    Schema({"z": number(-1, 1)}).save(tmp_path / "c.toml")

    def load(task, budget=PRICE):
        (tmp_path / "STUDY.toml").write_text(f'name = "s"\n{task}{budget}{TAIL}')
        return Study.load(tmp_path / "STUDY.toml")

    return load


@pytest.mark.parametrize(
    ("task", "message"),
    [
        *((task + "solver = 1\n", ("ST595", "task.solver")) for task in (LOGISTIC, LINEAR, GLM, POLYNOMIAL)),
        (LOGISTIC.replace('label = "a.hit"\n', ""), ("ST595", "task.label")),
        (LOGISTIC.replace("a.hit", "hit"), ("VA029", "task.label")),
        (LOGISTIC.replace("a.hit", "q.hit"), ("ST596", "q.hit")),
        (
            LOGISTIC.replace("a.hit", "c.hit"),
            ("ST597", "c", "'hit'", "a.hit"),
        ),
        (
            LOGISTIC.replace("a.hit", "a.b.late"),
            ("ST597", "a.b", "late", "y"),
        ),
        (LOGISTIC + 'method = "magic"\n', ("ST595", "task.method")),
        (LOGISTIC + "expansion = 2\n", ("ST595", "task.expansion")),
        (LOGISTIC + "rate = 0.0\n", ("ST595", "task.rate")),
        (LOGISTIC + "threshold = 2\n", ("ST174", "2")),
        (GLM + 'threshold = "high"\n', ("ST174", "high")),
        (LOGISTIC + "rate = 1.5\n", ("ST595", "task.rate")),
        (LOGISTIC + "epochs = 0\n", ("ST595", "task.epochs")),
        (LOGISTIC + 'sampling = "full"\n', ("ST595", "task.sampling")),
        (LOGISTIC + "learning_rate = inf\n", ("ST595", "task.learning_rate")),
        (LOGISTIC + "ridge = -1.0\n", "ST595"),
        (LOGISTIC + 'ridge = "some"\n', "ST595"),
        (LINEAR + 'method = "sqm"\n', ("ST595", "task.method")),
        (LINEAR + "rows = 5\n", ("ST595", "task.rows")),
        (GLM.replace("rows = 50\n", ""), ("ST595", "task.rows")),
        (GLM.replace("50", "0"), ("ST595", "task.rows")),
        (GLM.replace("a.hit", "hit"), ("VA029", "task.label")),
        (GLM + 'family = "normal"\n', ("ST595", "task.family")),
        (GLM + 'penalty = "l3"\n', ("ST595", "task.penalty")),
        (GLM + 'method = "sqm"\n', ("ST595", "task.method")),
        (GLM + "strength = 0.0\n", ("ST595", "task.strength")),
        (GLM + "l1_ratio = 1.5\n", ("ST595", "1")),
        (GLM + "epochs = 0\n", ("ST595", "task.epochs")),
        (GLM + "batch = 0\n", ("ST595", "task.batch")),
        (GLM + "learning_rate = nan\n", ("ST595", "task.learning_rate")),
        (GLM + "message_clip = -1.0\n", ("ST595", "task.message_clip")),
        (GLM + "release = 1\n", ("ST595", "task.release")),
        (GLM + "rows_at_most = 5\n", ("ST595", "task.rows_at_most")),
        (GLM + "family_options = { range = 1.0 }\n", ("ST595", "task.family_options.range")),
        (GLM + "family_options = { reach = 0.0 }\n", ("ST595", "task.family_options.reach")),
        (GLM + "family_options = { region = [0.0] }\n", "ST595"),
        (POLYNOMIAL.replace('["a.x * c.z"]', "[]"), ("ST595", "task.expressions")),
        (POLYNOMIAL + 'rounding = "down"\n', ("ST595", "task.rounding")),
        (PREDICTION.replace('"a"', '"q"'), ("VA225", "q")),
        (PREDICTION.replace('to = "a"\n', ""), ("ST595", "task.to")),
        (PREDICTION, ("ST098", "model.json")),
        (GLM + 'method = "alternating"\npenalty = "l1"\n', "ST133"),
        (GLM + "learning_rate = 0.1\n", "ST134"),
        (GLM + 'method = "gradient"\nbatch = 51\n', "ST132"),
        (GLM + 'family = "poisson"\n', "ST468"),
        (GLM + "family_options = { clip = 1.0 }\n", ("ST461", "clip")),
        (LOGISTIC + BY_PARTY, ("VA233", "epsilon_by_party")),
        (PREDICTION + "exact = true\n", "VA233"),
    ],
)
def test_what_is_wrong_in_a_task_is_named(read, task, message):
    with raises(StudyError, message):
        read(task).digest  # noqa: B018 - planning refuses what does not fit together


def test_every_key_of_a_model_over_messages_reaches_its_task(read):
    steps = 'method = "gradient"\npenalty = "elastic-net"\nstrength = 0.02\nl1_ratio = 0.25\nepochs = 3\nbatch = 25\n'
    steps += "learning_rate = 0.1\nweight_bound = 2.0\nscore_clip = 1.5\nmessage_clip = 4.0\nrelease = true\n"
    task = read(GLM + steps + "family_options = { reach = 2.5 }\n").task
    assert (task.rows, task.method, task.epochs, task.batches) == (50, "gradient", 3, 2)
    assert (task.learning_rate, task.message_clip, task.release, task.family.reach) == (0.1, 4.0, True, 2.5)
    assert (task.l1, task.prox_ridge) == (0.02 * 0.25, 0.02 * 0.75)
    assert {(side.weight_bound, side.score_clip) for side in task.sides} == {(2.0, 1.5)}
    assert len(task.events) == 6


def test_parties_may_set_the_price(read):
    for task, budget, message in (
        (LOGISTIC, "", ("VA234", "STUDY.toml")),
        (LOGISTIC, "[budget]\ndelta = 1e-6\n", ("VA234", "STUDY.toml")),
        (PREDICTION + "exact = false\n", "", "VA234"),
        (LOGISTIC + "epsilon_by_party = { q = 1.0 }\n", "", ("VA225", "epsilon_by_party", "q")),
        (LOGISTIC + "epsilon_by_party = { a = -1.0 }\n", "", ("PR065", "task.epsilon_by_party")),
        (LOGISTIC + "epsilon_by_party = { a = true }\n", "", ("PR064", "task.epsilon_by_party")),
        (LOGISTIC + "epsilon_by_party = {}\n", "", ("ST595", "task.epsilon_by_party")),
    ):
        with raises(StudyError, message):
            read(task, budget)
    study = read(LOGISTIC + 'method = "functional"\n' + BY_PARTY, "[budget]\ndelta = 1e-6\n")
    assert study.budgets == ()
    assert study.content.task.epsilon_by_party == {"a": 1.0, "a.b": 0.5, "c": 2.0}


# --- keys follow from constructors

LEAST = {
    "pca": {},
    "linear": {"label": "a.y"},
    "logistic": {"label": "a.y"},
    "glm": {"label": "a.y", "rows": 50},
    "glm-scores": {"model": "model.json"},
    "polynomial": {"expressions": ["a.x * b.y"]},
    "prediction": {"model": "model.json", "to": "a"},
    "synthetic": {},
    "split-classifier": {"label": "a.y"},
    "split-regressor": {"label": "a.y"},
    "split-scores": {"model": "model.json"},
    "sketch": {"rounds": 2, "rows": 100, "dimension": 3},
}
"""What a file must say, by kind."""
ELSE = {("glm-scores", "rows_at_most"): 2**20}
"""Defaults in a file where the constructor has none."""
NAN, INFINITE = float("nan"), float("inf")
CODE = {"kind": "module", "make": "somewhere.else:function"}


def parsed(kind, **keys):
    return parse_task({"kind": kind, **LEAST[kind], **keys}, "study.toml")


@pytest.mark.parametrize("kind", [row.kind for row in registry.rows()])
def test_keys_are_the_parameters_of_the_constructor_without_the_budget(kind):
    parameters = inspect.signature(registry.load(kind)).parameters
    known = [name for name in parameters if name not in ("epsilon", "delta")]
    assert list(task_section_of(kind).model_fields) == ["kind", *known]
    task = parsed(kind)
    assert task.kind == kind
    for name, value in task.parameters.items():
        if name in LEAST[kind]:
            assert value == LEAST[kind][name] or list(value) == LEAST[kind][name]
        else:
            assert value == ELSE.get((kind, name), parameters[name].default)
    without = [{key: value for key, value in LEAST[kind].items() if key != name} for name in LEAST[kind]]
    missing = [("missing", name, given) for name, given in zip(LEAST[kind], without, strict=True)]
    unknown = [("extra_forbidden", key, LEAST[kind] | {key: 1}) for key in ("epsilon", "delta", "colour")]
    for error, name, given in missing + unknown:
        with pytest.raises(ValidationError) as caught:
            parse_task({"kind": kind, **given}, "study.toml")
        assert [(each["type"], each["loc"]) for each in caught.value.errors()] == [(error, (name,))]


POSITIVE = (0.0, -1.0, INFINITE, NAN)
NO_LABELS = ("y", ".y", "a.", "", None, 3)


@pytest.mark.parametrize(
    ("kind", "key", "wrong", "right"),
    [
        ("glm", "release", ("true", 1, "yes"), (True,)),  # a strict truth
        ("pca", "center", (), (True, "true", 1, "yes")),  # which this one is not
        *((kind, key, POSITIVE, (0.25,)) for kind, key in (("glm", "strength"), ("glm", "message_clip"))),
        *((kind, key, POSITIVE, (0.25,)) for kind, key in (("logistic", "learning_rate"), ("sketch", "clip"))),
        ("glm", "l1_ratio", (-0.1, 1.1, NAN), (0.0, 1.0)),
        ("linear", "ridge", (INFINITE, NAN, -1.0, "some"), ("auto", 0.0, 2)),
        *((kind, "label", NO_LABELS, ("a.b.y",)) for kind in ("linear", "logistic", "glm")),
        *((kind, "label", NO_LABELS, ("a.b.y",)) for kind in ("split-classifier", "split-regressor")),
        ("linear", "epsilon_by_party", ({}, {"a": 0.0}, {"a": -1.0}, {"a": INFINITE}, {"a": "much"}, 3), ()),
        ("split-classifier", "encoders", (3, {"b": "cosine"}, ["cosine"]), ({"b": {"kind": "cosine", "width": 8}},)),
        ("glm", "family_options", ({"range": 1.0}, {"clip": 0.0}), ()),
    ],
)
def test_marks_on_parameters_say_what_a_value_may_be(kind, key, wrong, right):
    for value in wrong:
        with pytest.raises(ValidationError, match=key):
            parsed(kind, **{key: value})
    for value in right:
        assert parsed(kind, **{key: value}).parameters[key] == (True if key == "center" else value)


def test_encoders_are_specifications_and_never_code():
    for spec in (CODE, {"kind": "linear", "width": 2, "over": CODE}):
        with raises(ValidationError, "VA066"):
            parsed("split-classifier", encoders={"b": spec})


def test_marks_on_parameters_are_found():
    assert parsed("prediction").parties_named == {"to": ("a",)}
    assert parsed("linear").parties_named == {"epsilon_by_party": ()}
    assert parsed("linear", epsilon_by_party={"b": 1, "a": 0.5}).parties_named == {"epsilon_by_party": ("b", "a")}
    given = {"b": {"kind": "cosine", "width": 8}, "a": {"kind": "own", "width": 4}}
    assert parsed("split-classifier", encoders=given).parties_named == {"encoders": ("b", "a")}
    assert parsed("pca").parties_named == {}
    assert {parsed(kind).own_price for kind in ("linear", "prediction", "glm")} == {None}
    assert parsed("linear", epsilon_by_party={"a": 1.0}).own_price == "epsilon_by_party"
    assert parsed("prediction", exact=True).own_price == parsed("split-scores", exact=True).own_price == "exact = true"
    assert parsed("split-classifier", per_release=0.5).own_price == "per_release"
    assert parsed("glm", rows=70).value_with_mark(LIMITS_ROWS) == 70
    assert parsed("pca", rows_at_most=80).value_with_mark(LIMITS_ROWS) == 80
    assert parsed("logistic", rows=70, rows_at_most=90).value_with_mark(LIMITS_ROWS) == 90
    assert parsed("polynomial").value_with_mark(NAMES_LABEL) is None
    assert parsed("glm", family_options={"reach": 2.0}).parameters["family_options"]["reach"] == 2.0
