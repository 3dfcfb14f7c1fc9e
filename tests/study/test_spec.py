from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

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
from colonnade.privacy import Adjacency, Ledger, Trust
from colonnade.study import PartyConfig, RunRecord, Study, preflight
from colonnade.study.policy import ByDigest
from colonnade.study.run import _reservation, public_facts
from colonnade.study.spec import write_pins
from colonnade.tables import Schema, date, number
from colonnade.wire import Certificate, Identity, certificates
from tests.support.errors import raises
from tests.support.studies import study_text

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


@pytest.fixture
def folder(tmp_path):
    Schema({"x": number(0, 1), "w": number(0, 1)}).save(tmp_path / "a.toml")
    Schema({"y": number(0, 1), "z": number(-5, 5)}).save(tmp_path / "b.toml")
    (tmp_path / "STUDY.toml").write_text(GOOD)
    (tmp_path / "party.toml").write_text(PARTY)
    return tmp_path


def load(folder, text=None):
    if text is not None:
        (folder / "STUDY.toml").write_text(text)
    return Study.load(folder / "STUDY.toml")


def test_a_study_is_read_with_its_schemas(folder):
    study = load(folder)
    assert study.roster.schemas["b"].names == ("y",)
    assert study.roster.trust.committee == ("a", "b", "coordinator")
    assert study.participants == ("a", "b", "coordinator")
    assert study.statement.epsilon("a") <= 1.0


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ('kind = "pca"', 'kind = "pca"\nsolver = 1', StudyError, ("ST595", "task.solver")),
        ('kind = "pca"', 'kind = "tree"', StudyError, "ST557"),
        ("epsilon = 1.0", "", StudyError, "VA234"),
        ("epsilon = 1.0", "epsilon = -1", StudyError, "PR065"),
        ("127.0.0.1:7000", "nowhere", StudyError, ("VA235", "coordinator.address")),
        ("127.0.0.1:7000", "host:99999", StudyError, "VA236"),
        (':7000"', ':7000"\nhubs = ["nowhere"]', StudyError, ("VA235", "coordinator.hubs")),
        (':7000"', ':7000"\nhubs = "host:1"', StudyError, ("ST595", "coordinator.hubs")),
        (':7000"', ':7000"\nhubs = ["127.0.0.1:7000"]', StudyError, ("VA220", "127.0.0.1:7000")),
        (':7000"', ':7000"\nhubs = ["Host:1", "host:1"]', StudyError, ("VA220", "Host:1")),
        (':7000"', ':7000"\nhubs = ["host:01", "host.:1"]', StudyError, ("VA220", "host:01")),
        ("[parties.b]", '[pins]\nq = "sha256:1"\n[parties.b]', StudyError, ("VA224", "q")),
        ("[parties.b]", '[pins]\na = "sha256:1"\nb = "SHA256:1"\n[parties.b]', StudyError, ("VA223", "b")),
        ("[parties.b]", "[parties.others]", StudyError, ("VA222", "others")),
        (
            "epsilon = 1.0",
            "epsilon = { analyst = 1.0, others = 2.0 }",
            StudyError,
            ("VA219", "others", "budget.epsilon"),
        ),
        ("[parties.b]", '[parties."my bank"]', IdentityError, "ID031"),
        ('columns = ["y"]', 'columns = ["yy"]', SchemaError, ("SC071", "yy")),
        ("b.toml", "c.toml", SchemaError, ("SC074", "c.toml")),
        ('name = "s"', 'name = "../s"', StudyError, "VA221"),
        ("[parties.b]", "[parties.b", StudyError, "ST599"),
        ("[parties.a]", "[committee]\nthreshold = 2\n[parties.a]", PrivacyError, "PR057"),
        ("[parties.a]", '[committee]\nseats = ["a", "b", "c"]\n[parties.a]', PrivacyError, "PR054"),
    ],
)
def test_what_is_wrong_in_a_study_file_is_named(folder, old, new, error, message):
    with raises(error, message):
        _ = load(folder, GOOD.replace(old, new)).task


def test_names_with_dots_and_addresses_of_version_six(folder):
    study = load(folder, GOOD.replace("parties.a]", 'parties."a.b"]').replace("127.0.0.1:7000", "[::1]:7000"))
    assert study.participants[0] == "a.b"
    write_pins(folder / "STUDY.toml", {"a.b": "sha256:2"})
    assert load(folder).content.pins == {"a.b": "sha256:2"}


def test_a_missing_study_file(tmp_path):
    with raises(StudyError, "ST600"):
        Study.load(tmp_path / "STUDY.toml")


def test_the_digest_covers_what_is_agreed_and_no_more(folder):
    first = load(folder).digest
    assert load(folder, 'description = "words"\n' + GOOD).digest == first
    assert load(folder, GOOD.replace("epsilon = 1.0", "epsilon = 1.1")).digest != first
    Schema({"x": number(0, 2), "w": number(0, 1)}).save(folder / "a.toml")
    assert load(folder, GOOD).digest != first


def test_further_hubs_are_part_of_the_digest_only_where_there_are_some(folder):
    first = load(folder)
    assert first.content.coordinator.lane_hubs == ("127.0.0.1:7000",)
    assert load(folder, GOOD.replace(':7000"', ':7000"\nhubs = []')).digest == first.digest
    more = load(folder, GOOD.replace(':7000"', ':7000"\nhubs = ["b.example.org:1", "[::1]:7000"]'))
    assert more.content.coordinator.lane_hubs == ("127.0.0.1:7000", "b.example.org:1", "[::1]:7000")
    assert more.digest != first.digest


def test_pins_are_written_and_rewritten_at_the_end(folder):
    write_pins(folder / "STUDY.toml", {"a": "sha256:1"})
    write_pins(folder / "STUDY.toml", {"a": "sha256:2", "b": "sha256:3"})
    assert load(folder).content.pins == {"a": "sha256:2", "b": "sha256:3"}
    with raises(IdentityError, "ID032", "a.crt"):
        load(folder).certificates()


def test_a_policy_allows_tasks_and_columns(folder):
    config = PartyConfig.load(folder / "party.toml")
    with raises(PolicyError, "PO017", "w"):
        config.check(load(folder))
    config.check(load(folder, GOOD.replace('schema = "a.toml"', 'schema = "a.toml"\ncolumns = ["x"]')))
    (folder / "party.toml").write_text(PARTY.replace('["pca"]', '["regression"]'))
    with raises(PolicyError, "PO015", "pca"):
        PartyConfig.load(folder / "party.toml").check(load(folder))
    (folder / "party.toml").write_text(PARTY.replace('name = "a"', 'name = "q"'))
    with raises(PolicyError, "PO014", "q"):
        PartyConfig.load(folder / "party.toml").check(load(folder))


def test_approval_and_periods_of_a_policy(folder):
    config = PartyConfig.load(folder / "party.toml")
    assert config.approval == "ask"
    assert config.periods == ()
    periods = "[[policy.periods]]\ndays = 7\nepsilon = 0.5\n[[policy.periods]]\ndays = 30\nepsilon = { a = 1.5 }\n"
    (folder / "party.toml").write_text(PARTY + periods)
    week, month = PartyConfig.load(folder / "party.toml").periods
    assert (week.days, week.budgets[0].selector, week.budgets[0].epsilon) == (7, "everyone", 0.5)
    assert (month.days, month.budgets[0].selector, month.budgets[0].delta) == (30, "a", 1e-5)


@pytest.mark.parametrize(
    ("addition", "where"),
    [
        ("[[policy.periods]]\ndays = 0\nepsilon = 1", ("ST573", "policy.periods.", "0")),
        ("[[policy.periods]]\ndays = nan\nepsilon = 1", ("ST573", "policy.periods.", "0")),
        ("[[policy.periods]]\nepsilon = 1", ("ST573", "policy.periods.", "0")),
        ("[[policy.periods]]\ndays = 1\nweeks = 1\nepsilon = 1", ("ST573", "policy.periods.", "0")),
    ],
)
def test_what_is_wrong_in_a_period_is_named(folder, addition, where):
    (folder / "party.toml").write_text(PARTY + addition)
    with raises(StudyError, where):
        PartyConfig.load(folder / "party.toml")


@pytest.mark.parametrize("value", ["true", '"3"', "nan", "inf", "-1", "0", "[1.0]", "{ }", "{ analyst = true }"])
@pytest.mark.parametrize("where", ["policy.budget", "policy.periods.0"])
def test_an_epsilon_that_is_no_number_is_named(folder, value, where):
    text = PARTY if where == "policy.budget" else PARTY + "[[policy.periods]]\ndays = 3\nepsilon = 3.0\n"
    head, _, tail = text.rpartition("epsilon = 3.0")
    (folder / "party.toml").write_text(f"{head}epsilon = {value}{tail}")
    with raises(StudyError, "PR063|PR064|PR065", "party.toml", where):
        PartyConfig.load(folder / "party.toml")


@pytest.mark.parametrize("value", ["true", '"30"', "inf", "-1", "36526", "[3]"])
def test_days_that_are_no_number_are_named(folder, value):
    (folder / "party.toml").write_text(PARTY + f"[[policy.periods]]\ndays = {value}\nepsilon = 1\n")
    with raises(StudyError, "ST573", "party.toml", "policy.periods.", "0"):
        PartyConfig.load(folder / "party.toml")


@pytest.mark.parametrize("value", ["true", '"0.1"', "nan", "0", "1"])
def test_a_delta_that_is_none_is_named(folder, value):
    (folder / "party.toml").write_text(PARTY + f"delta = {value}\n")
    with raises(StudyError, "PR066", "party.toml", "policy.budget.delta"):
        PartyConfig.load(folder / "party.toml")


@pytest.mark.parametrize("value", ["true", '"1.0"', "{ analyst = '1' }", "nan"])
def test_an_epsilon_of_a_study_is_a_number(folder, value):
    with raises(StudyError, "PR064|PR065", "STUDY.toml", "budget.epsilon"):
        load(folder, GOOD.replace("epsilon = 1.0", f"epsilon = {value}"))


@pytest.mark.parametrize("key", ["data", "key", "ledger"])
@pytest.mark.parametrize("value", ["", "  ", "a\\u0000b", "a\\nb", "\\u001b[31m"])
def test_a_path_that_is_none_is_named(folder, key, value):
    text = re.sub(rf'^{key} = ".*"$', lambda _: f'{key} = "{value}"', PARTY, flags=re.MULTILINE)
    (folder / "party.toml").write_text(text)
    with raises(StudyError, "VA196", "party.toml", key):
        PartyConfig.load(folder / "party.toml")


def test_what_a_person_should_know_of_a_ledger(folder):
    config = PartyConfig.load(folder / "party.toml")
    assert config.ledger_news == f"new ledger {config.ledger}: nothing on record before this study"
    Ledger(config.ledger)
    assert config.ledger_news is None


def test_a_period_for_somebody_who_is_not_in_the_study_is_refused(folder):
    text = PARTY.replace('["x"]', '"all"') + "[[policy.periods]]\ndays = 7\nepsilon = { analist = 1 }\n"
    (folder / "party.toml").write_text(text)
    with raises(PolicyError, "PR061", "analist"):
        PartyConfig.load(folder / "party.toml").check(load(folder))


def configured(folder, approval):
    (folder / "party.toml").write_text(PARTY.replace("[policy]", f'[policy]\napproval = "{approval}"'))
    return PartyConfig.load(folder / "party.toml")


def test_who_approves(folder):
    study = load(folder)
    asked = []

    def answer(yes):
        return lambda *about: asked.append(about) or yes

    config = configured(folder, "ask")
    assert config.approved(study, study.statement, answer(True)) == "the calling program"
    assert asked == [(study, study.statement)]
    with raises(PolicyError, "PO013"):
        config.approved(study, study.statement, answer(False))
    with raises(PolicyError, "PO012", study.digest, "--approve"):
        config.approved(study, study.statement, None)
    asked.clear()
    assert "policy" in configured(folder, "auto-within-budget").approved(study, study.statement, answer(False))
    assert asked == []
    never = configured(folder, "never")
    for refuse in (lambda: never.approved(study, study.statement, answer(True)), lambda: never.check(study)):
        with raises(PolicyError, "PO016"):
            refuse()
    with raises(StudyError, "ST573", "policy.approval"):
        configured(folder, "always")


@pytest.mark.parametrize("mode", ["ask", "auto-within-budget"])
def test_a_digest_approves_this_very_study(folder, mode):
    study, config = load(folder), configured(folder, mode)
    for digits in (study.digest, study.digest[:32], study.digest[:40].upper()):
        config.approved(study, study.statement, ByDigest(digits))
    for digits in ("", study.digest[:12], study.digest[:31], study.digest + "0", "not a digest"):
        with raises(PolicyError, "PO010", "32", "64"):
            config.approved(study, study.statement, ByDigest(digits))
    other = load(folder, GOOD.replace("epsilon = 1.0", "epsilon = 1.1"))
    with raises(PolicyError, "PO011"):
        config.approved(other, other.statement, ByDigest(study.digest))


def test_a_cap_for_somebody_who_is_not_in_the_study_is_refused(folder):
    (folder / "party.toml").write_text(
        PARTY.replace("epsilon = 3.0", "epsilon = { analist = 3.0 }").replace('["x"]', '"all"')
    )
    with raises(PolicyError, "PR061", "analist"):
        PartyConfig.load(folder / "party.toml").check(load(folder))


def test_a_cap_for_a_party_of_an_earlier_study_is_kept(folder):
    (folder / "party.toml").write_text(
        PARTY.replace("epsilon = 3.0", "epsilon = { analyst = 3.0, insurer = 2.0 }").replace('["x"]', '"all"')
    )
    config = PartyConfig.load(folder / "party.toml")
    with raises(PolicyError, "PR061", "insurer"):
        config.check(load(folder))
    earlier = Trust(("a", "insurer"), ("a", "insurer", "coordinator"), 1)
    event = replace(load(folder).task.event, shares=(("a", 10**12), ("insurer", 10**12)))
    Ledger(config.ledger).reserve("earlier", "digest", [event], earlier, [])
    config.check(load(folder))


def test_a_cap_for_all_others_is_read_and_the_party_is_known_to_its_ledger(folder):
    (folder / "party.toml").write_text(
        PARTY.replace("epsilon = 3.0", "epsilon = { analyst = 3.0, others = 0.01 }").replace('["x"]', '"all"')
    )
    config, study = PartyConfig.load(folder / "party.toml"), load(folder)
    config.check(study)
    for _ in range(2):  # without a ledger, and with an empty one
        with raises(BudgetError, "BU002", "others", "policy.budget"):
            config.check_budget(study)
        config.book()


def test_one_key_in_two_certificates_is_one_participant(folder):
    key, pem = certificates.create("a", 10)
    twin = Identity(key, Certificate("a", pem))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "b")])
    again = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    first = twin.certificate.parsed
    again = again.serial_number(7).not_valid_before(first.not_valid_before_utc)
    other = Certificate.from_pem(certificates.pem_of(again.not_valid_after(first.not_valid_after_utc).sign(key, None)))
    assert other.fingerprint != twin.fingerprint
    assert other.key_fingerprint == twin.certificate.key_fingerprint
    third = Identity.create("coordinator").certificate
    (folder / "certs").mkdir()
    for name, one in (("a", twin.certificate), ("b", other), ("coordinator", third)):
        (folder / "certs" / f"{name}.crt").write_bytes(one.pem)
    pins = {"a": twin.fingerprint, "b": other.fingerprint, "coordinator": third.fingerprint}
    assert load(folder).keys() == {}
    write_pins(folder / "STUDY.toml", pins)
    for ask in (load(folder).certificates, load(folder).keys):
        with raises(IdentityError, "ID010", "b"):
            ask()


def test_a_party_file_with_a_typing_error(folder):
    (folder / "party.toml").write_text(PARTY.replace("ledger =", "leger ="))
    with raises(StudyError, "VA195", "leger", "ledger", "party.toml"):
        PartyConfig.load(folder / "party.toml")


def test_preflight_scales_with_the_rows(folder):
    small, large = (preflight(load(folder), rows) for rows in (1_000, 1_000_000))
    assert large.run.bytes_total > 100 * small.run.bytes_total
    assert large.run.value_bits <= large.run.system_bits
    plain = small.to_dict()
    assert plain["statement"]["rows"]
    assert {load["participant"] for load in plain["loads"]} == {"a", "b", "coordinator"}


def test_a_run_record_tells_how_it_ended(tmp_path):
    record = RunRecord(tmp_path / "run", participant="a", study="s", digest="d")
    record.note("something", rows=3)
    record.fail("DataError", "a sentence", 11)
    assert record.facts["status"] == "failed"
    assert '"something"' in (tmp_path / "run" / "events.jsonl").read_text()
    with raises(StorageError, "SO038"):
        RunRecord(tmp_path / "run" / "run.json", participant="a", study="s", digest="d")


@pytest.mark.parametrize("step", ["commit", "head"])
def test_a_ledger_without_room_for_the_end_says_that_the_study_ended_well(step, folder, tmp_path, monkeypatch):
    study = load(folder)
    ledger = Ledger(tmp_path / "l.sqlite")
    entry = ledger.reserve("s", study.digest, study.events, study.trust, [])
    ledger.mark_sent(entry)
    record = RunRecord(tmp_path / "run", participant="a", study="s", digest="d")

    def full(*_):
        raise LedgerError("the ledger cannot be used: database or disk is full")

    said = ("LE039", "model.json")
    monkeypatch.setattr(Ledger, step, full if step == "commit" else property(full))
    with raises(LedgerError, said), _reservation(ledger, entry, record):
        pass
    monkeypatch.undo()
    assert ledger.entries()[0].state == ("sent" if step == "commit" else "committed")


def test_a_read_only_run_directory_is_a_place_that_cannot_be_written(tmp_path):
    """The earlier run's files are there and cannot be moved away."""
    folder = tmp_path / "run"
    RunRecord(folder, participant="a", study="s", digest="d")
    for place in (tmp_path, *tmp_path.parents):
        if place.stat().st_uid == os.geteuid() and place.stat().st_mode & 0o077 == 0:
            place.chmod(0o755)  # or another user could not even look
    folder.chmod(0o555)
    was = os.geteuid()
    try:
        if was == 0:
            os.seteuid(65534)  # nothing is read-only to root
        with raises(StorageError, "SO038", "Permission denied") as refused:
            RunRecord(folder, participant="a", study="s", digest="d")
    finally:
        os.seteuid(was)
        folder.chmod(0o755)
    assert refused.value.exit_code == 18


def test_a_line_that_cannot_be_written_ends_a_run_only_before_it_is_paid_for(tmp_path):
    record = RunRecord(tmp_path / "run", participant="a", study="s", digest="d")
    (tmp_path / "run" / "events.jsonl").mkdir()
    with raises(StorageError, "SO039", "events.jsonl"):
        record.note("something")
    record.paid()
    record.note("something")
    assert "events.jsonl" in record.lost
    record.finish()
    assert record.facts["status"] == "finished"
    (tmp_path / "run" / "run.json").unlink()
    (tmp_path / "run" / "run.json").mkdir()
    record.fail("DataError", "a sentence", 11)
    assert "run.json" in record.lost


def test_an_earlier_run_is_put_away_not_overwritten(tmp_path):
    for digest in ("one", "two", "three"):
        record = RunRecord(tmp_path, participant="a", study="s", digest=digest)
        (tmp_path / "model.json").write_text(digest)
        record.finish()
    kept = [(tmp_path / "earlier" / n / "model.json").read_text() for n in ("1", "2")]
    assert kept == ["one", "two"]
    assert (tmp_path / "model.json").read_text() == "three"


def test_promises_and_budgets_are_about_the_committee_of_the_task_which_may_have_none(folder):
    study = load(folder)
    assert study.trust == study.roster.trust
    seated = study.statement
    alone = load(folder)
    alone.task = replace(alone.task, trust=Trust(("a", "b"), (), 0))
    assert alone.trust.committee == ()
    assert alone.roster.trust.committee == ("a", "b", "coordinator")  # as an alignment would use it
    rows = {row.observer.label: row for row in alone.statement.rows}
    assert rows["analyst"].adjacency is Adjacency.REPLACE
    assert rows["analyst"].epsilon > seated.rows[0].epsilon
    between = (seated.rows[0].epsilon + rows["analyst"].epsilon) / 2
    (folder / "party.toml").write_text(
        PARTY.replace("epsilon = 3.0", f"epsilon = {{ analyst = {between}, others = 100.0 }}")
    )
    config = PartyConfig.load(folder / "party.toml")
    config.check_budget(study)
    with raises(BudgetError, "BU002", "analyst"):
        config.check_budget(alone)
    facts = public_facts(alone)
    assert facts["seats"] == []
    assert facts["threshold"] == 0


def test_a_party_says_how_its_file_is_written(folder):
    (folder / "a.csv").write_bytes("id;x;w\nä;0,25;1\nö;0,75;0\n".encode("latin-1"))
    said = 'data = "a.csv"\nseparator = ";"\nencoding = "latin-1"\ndecimal = ","\n'
    (folder / "party.toml").write_text(PARTY.replace('data = "a.csv"\n', said))
    table = PartyConfig.load(folder / "party.toml").table(load(folder).roster.schemas["a"])
    assert table.column("x").ravel().tolist() == [-0.5, 0.5]
    (folder / "party.toml").write_text(PARTY.replace('data = "a.csv"\n', said.replace('","', '"x"')))
    with raises(StudyError, "SC049", "party.toml"):
        PartyConfig.load(folder / "party.toml")


def test_a_policy_names_the_columns_of_the_file_and_not_what_a_study_calls_them(folder):
    def dated(**said):
        Schema({"x": date("2020-01-01", "2021-01-01", **said)}).save(folder / "a.toml")
        study = load(folder)
        config = PartyConfig.load(folder / "party.toml")
        return study, config

    study, config = dated(parts=["days", "month"])
    assert study.roster.schemas["a"].names == ("x.days", "x.month")
    config.check(study)
    for parts in ("days", ["days", "month"]):
        study, config = dated(parts=parts, column="secret")
        with raises(PolicyError, "PO017"):
            config.check(study)
    # A name that a study gives is no consent, nor is that of a part: a file may have another column of that name.
    (folder / "party.toml").write_text(PARTY.replace('columns = ["x"]', 'columns = ["x.days", "y"]'))
    study, config = dated(parts=["days"])
    with raises(PolicyError, "PO017", "x.days"):
        config.check(study)
    study, config = dated(column="y")
    config.check(study)


@pytest.mark.parametrize("said", [{"column": "secret"}, {"format": "%m/%d/%Y"}])
def test_another_column_or_another_reading_of_it_is_another_study(folder, said):
    def dated(**said):
        schema = Schema({"x": date("2020-01-01", "2021-01-01", **said)})
        schema.save(folder / "a.toml")
        return schema, load(folder)

    agreed, study = dated(format="%d/%m/%Y")
    pinned = PARTY.replace('columns = ["x"]', f'columns = "all"\nschemas = ["{agreed.digest}"]')
    (folder / "party.toml").write_text(pinned)
    config = PartyConfig.load(folder / "party.toml")
    config.check(study)
    _, other = dated(**{"format": "%d/%m/%Y"} | said)
    assert other.digest != study.digest
    with raises(PolicyError, "PO020"):
        config.check(other)
    with raises(PolicyError, "PO011"):
        ByDigest(study.digest)(other, other.statement)


def test_how_a_schema_reads_a_file_is_part_of_a_study_unless_the_party_says_it_itself(folder):
    schema = Schema.load(folder / "a.toml")
    before = load(folder).digest
    text = (folder / "a.toml").read_text()
    (folder / "a.toml").write_text('[table]\ndecimal = ","\nencoding = "ascii"\n' + text)
    study = load(folder)
    assert study.digest != before
    assert study.schemas["a"].digest != schema.digest
    allowed = PARTY.replace('columns = ["x"]', 'columns = "all"')
    (folder / "party.toml").write_text(allowed)
    # Whether a file can be read in an encoding is an exact answer about its cells, so no stranger chooses one.
    with raises(PolicyError, "PO021", "ascii"):
        PartyConfig.load(folder / "party.toml").check(study)
    pinned = allowed.replace('"all"', f'"all"\nschemas = ["{study.schemas["a"].digest}"]')
    (folder / "party.toml").write_text(pinned)
    PartyConfig.load(folder / "party.toml").check(study)
    (folder / "party.toml").write_text(allowed.replace('id = "id"', 'id = "id"\nencoding = "utf-8"'))
    with raises(PolicyError, "PO021"):
        PartyConfig.load(folder / "party.toml").check(study)
    (folder / "a.csv").write_text("id,x,w\nä,0.25,1\nö,0.75,0\n")
    said = 'data = "a.csv"\nencoding = "utf-8"\ndecimal = "."\n'
    (folder / "party.toml").write_text(allowed.replace('data = "a.csv"\n', said))
    config = PartyConfig.load(folder / "party.toml")
    config.check(study)
    table = config.table(study.roster.schemas["a"])
    assert table.column("x").ravel().tolist() == [-0.5, 0.5]
    assert table.schema.digest == study.roster.schemas["a"].digest
