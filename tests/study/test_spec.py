"""Study files, party files and records of runs: what is read, refused by name, agreed on and kept."""

from __future__ import annotations

import os
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
ALL = ('columns = ["x"]', 'columns = "all"')
PERIOD = "[[policy.periods]]\ndays = 3\nepsilon = 3.0\n"
PORT = ':7000"'
SECOND = "[parties.b]"


@pytest.fixture
def folder(tmp_path):
    Schema({"x": number(0, 1), "w": number(0, 1)}).save(tmp_path / "a.toml")
    Schema({"y": number(0, 1), "z": number(-5, 5)}).save(tmp_path / "b.toml")
    (tmp_path / "STUDY.toml").write_text(GOOD)
    (tmp_path / "party.toml").write_text(PARTY)
    return tmp_path


def changed(text, changes):
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def load(folder, *changes):
    """The study as it lies there, or written anew with these changes; ``None`` changes nothing."""
    if changes:
        (folder / "STUDY.toml").write_text(changed(GOOD, filter(None, changes)))
    return Study.load(folder / "STUDY.toml")


def party(folder, *changes, more=""):
    (folder / "party.toml").write_text(changed(PARTY, changes) + more)
    return PartyConfig.load(folder / "party.toml")


# --- a study


def test_a_study_is_read_with_its_schemas(folder):
    study = load(folder)
    assert study.roster.schemas["b"].names == ("y",)
    assert study.roster.trust.committee == study.participants == ("a", "b", "coordinator")
    assert study.statement.epsilon("a") <= 1.0
    study = load(folder, ("parties.a]", 'parties."a.b"]'), ("127.0.0.1:7000", "[::1]:7000"))
    assert study.participants[0] == "a.b"
    write_pins(folder / "STUDY.toml", {"a.b": "sha256:2"})
    assert load(folder).content.pins == {"a.b": "sha256:2"}


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


def test_a_missing_study_file(tmp_path):
    with raises(StudyError, "ST600"):
        Study.load(tmp_path / "STUDY.toml")


def test_the_digest_covers_what_is_agreed_and_no_more(folder):
    first = load(folder)
    assert first.content.coordinator.lane_hubs == ("127.0.0.1:7000",)
    for same in (('name = "s"', 'name = "s"\ndescription = "words"'), (PORT, ':7000"\nhubs = []')):
        assert load(folder, same).digest == first.digest
    more = load(folder, (PORT, ':7000"\nhubs = ["b.example.org:1", "[::1]:7000"]'))
    assert more.content.coordinator.lane_hubs == ("127.0.0.1:7000", "b.example.org:1", "[::1]:7000")
    other = load(folder, ("epsilon = 1.0", "epsilon = 1.1"))
    Schema({"x": number(0, 2), "w": number(0, 1)}).save(folder / "a.toml")
    wider = load(folder, None)
    assert first.digest not in {more.digest, other.digest, wider.digest}


def test_pins_are_written_and_rewritten_at_the_end(folder):
    write_pins(folder / "STUDY.toml", {"a": "sha256:1"})
    write_pins(folder / "STUDY.toml", {"a": "sha256:2", "b": "sha256:3"})
    assert load(folder).content.pins == {"a": "sha256:2", "b": "sha256:3"}
    with raises(IdentityError, "ID032", "a.crt"):
        load(folder).certificates()


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


def test_preflight_scales_with_the_rows(folder):
    small, large = (preflight(load(folder), rows) for rows in (1_000, 1_000_000))
    assert large.run.bytes_total > 100 * small.run.bytes_total
    assert large.run.value_bits <= large.run.system_bits
    plain = small.to_dict()
    assert plain["statement"]["rows"]
    assert {load["participant"] for load in plain["loads"]} == {"a", "b", "coordinator"}


def test_promises_and_budgets_are_about_the_committee_of_the_task_which_may_have_none(folder):
    study, alone = load(folder), load(folder)
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
        party(folder, ALL, more="[[policy.periods]]\ndays = 7\nepsilon = { analist = 1 }\n").check(study)
    party(folder).check(load(folder, ('schema = "a.toml"', 'schema = "a.toml"\ncolumns = ["x"]')))


def test_approval_and_periods_of_a_policy(folder):
    config = party(folder)
    assert (config.approval, config.periods) == ("ask", ())
    periods = "[[policy.periods]]\ndays = 7\nepsilon = 0.5\n[[policy.periods]]\ndays = 30\nepsilon = { a = 1.5 }\n"
    week, month = party(folder, more=periods).periods
    assert (week.days, week.budgets[0].selector, week.budgets[0].epsilon) == (7, "everyone", 0.5)
    assert (month.days, month.budgets[0].selector, month.budgets[0].delta) == (30, "a", 1e-5)


@pytest.mark.parametrize(
    "period",
    [
        *(f"days = {days}\nepsilon = 1" for days in ("0", "nan", "true", '"30"', "inf", "-1", "36526", "[3]")),
        "epsilon = 1",
        "days = 1\nweeks = 1\nepsilon = 1",
    ],
)
def test_what_is_wrong_in_a_period_is_named(folder, period):
    with raises(StudyError, "ST573", "party.toml", "policy.periods.", "0"):
        party(folder, more=f"[[policy.periods]]\n{period}\n")


@pytest.mark.parametrize("value", ["true", '"3"', "nan", "-1", "0", "[1.0]", "{ }", "{ analyst = true }"])
def test_an_epsilon_that_is_no_number_is_named(folder, value):
    with raises(StudyError, "PR063|PR064|PR065", "party.toml", "policy.budget"):
        party(folder, ("epsilon = 3.0", f"epsilon = {value}"))
    with raises(StudyError, "PR063|PR064|PR065", "party.toml", "policy.periods.0"):
        party(folder, more=PERIOD.replace("3.0", value))


@pytest.mark.parametrize("value", ["true", '"0.1"', "nan", "0", "1"])
def test_a_delta_that_is_none_is_named(folder, value):
    with raises(StudyError, "PR066", "party.toml", "policy.budget.delta"):
        party(folder, more=f"delta = {value}\n")


@pytest.mark.parametrize("written", ['data = "a.csv"', 'key = "a.key"', 'ledger = "l.sqlite"'])
@pytest.mark.parametrize("value", ["", "  ", "a\\u0000b", "a\\nb", "\\u001b[31m"])
def test_a_path_that_is_none_is_named(folder, written, value):
    key = written.partition(" ")[0]
    with raises(StudyError, "VA196", "party.toml", key):
        party(folder, (written, f'{key} = "{value}"'))


def test_a_party_file_with_a_typing_error(folder):
    with raises(StudyError, "VA195", "leger", "ledger", "party.toml"):
        party(folder, ("ledger =", "leger ="))


def test_what_a_person_should_know_of_a_ledger(folder):
    config = party(folder)
    assert config.ledger_news == f"new ledger {config.ledger}: nothing on record before this study"
    Ledger(config.ledger)
    assert config.ledger_news is None


def approving(folder, mode):
    return party(folder, ("[policy]", f'[policy]\napproval = "{mode}"'))


def test_who_approves(folder):
    study, asked = load(folder), []

    def answer(yes):
        return lambda *about: asked.append(about) or yes

    config = approving(folder, "ask")
    assert config.approved(study, study.statement, answer(True)) == "the calling program"
    assert asked == [(study, study.statement)]
    with raises(PolicyError, "PO013"):
        config.approved(study, study.statement, answer(False))
    with raises(PolicyError, "PO012", study.digest, "--approve"):
        config.approved(study, study.statement, None)
    asked.clear()
    assert "policy" in approving(folder, "auto-within-budget").approved(study, study.statement, answer(False))
    assert asked == []
    never = approving(folder, "never")
    for refuse in (lambda: never.approved(study, study.statement, answer(True)), lambda: never.check(study)):
        with raises(PolicyError, "PO016"):
            refuse()
    with raises(StudyError, "ST573", "policy.approval"):
        approving(folder, "always")


@pytest.mark.parametrize("mode", ["ask", "auto-within-budget"])
def test_a_digest_approves_this_very_study(folder, mode):
    study, config = load(folder), approving(folder, mode)
    for digits in (study.digest, study.digest[:32], study.digest[:40].upper()):
        config.approved(study, study.statement, ByDigest(digits))
    for digits in ("", study.digest[:12], study.digest[:31], study.digest + "0", "not a digest"):
        with raises(PolicyError, "PO010", "32", "64"):
            config.approved(study, study.statement, ByDigest(digits))
    other = load(folder, ("epsilon = 1.0", "epsilon = 1.1"))
    with raises(PolicyError, "PO011"):
        config.approved(other, other.statement, ByDigest(study.digest))


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
        config.book()


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


@pytest.mark.parametrize("said", [{"column": "secret"}, {"format": "%m/%d/%Y"}], ids=["column", "format"])
def test_another_column_or_another_reading_of_it_is_another_study(folder, said):
    study, digest = dated(folder, format="%d/%m/%Y")
    config = party(folder, ('columns = ["x"]', f'columns = "all"\nschemas = ["{digest}"]'))
    config.check(study)
    other, _ = dated(folder, **{"format": "%d/%m/%Y"} | said)
    assert other.digest != study.digest
    with raises(PolicyError, "PO020"):
        config.check(other)
    with raises(PolicyError, "PO011"):
        ByDigest(study.digest)(other, other.statement)


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


def recorded(folder, digest="d"):
    return RunRecord(folder, participant="a", study="s", digest=digest)


def test_a_run_record_tells_how_it_ended(tmp_path):
    record = recorded(tmp_path / "run")
    record.note("something", rows=3)
    record.fail("DataError", "a sentence", 11)
    assert record.facts["status"] == "failed"
    assert '"something"' in (tmp_path / "run" / "events.jsonl").read_text()
    with raises(StorageError, "SO038"):
        recorded(tmp_path / "run" / "run.json")


@pytest.mark.parametrize("step", ["commit", "head"])
def test_a_ledger_without_room_for_the_end_says_that_the_study_ended_well(step, folder, monkeypatch):
    study, ledger = load(folder), Ledger(folder / "l.sqlite")
    entry = ledger.reserve("s", study.digest, study.events, study.trust, [])
    ledger.mark_sent(entry)

    def full(*_):
        raise LedgerError("the ledger cannot be used: database or disk is full")

    monkeypatch.setattr(Ledger, step, full if step == "commit" else property(full))
    with raises(LedgerError, "LE039", "model.json"), _reservation(ledger, entry, recorded(folder / "run")):
        pass
    monkeypatch.undo()
    assert ledger.entries()[0].state == ("sent" if step == "commit" else "committed")


def test_a_read_only_run_directory_is_a_place_that_cannot_be_written(tmp_path):
    """The earlier run's files are there and cannot be moved away."""
    folder = tmp_path / "run"
    recorded(folder)
    for place in (tmp_path, *tmp_path.parents):
        if place.stat().st_uid == os.geteuid() and place.stat().st_mode & 0o077 == 0:
            place.chmod(0o755)  # or another user could not even look
    folder.chmod(0o555)
    was = os.geteuid()
    try:
        if was == 0:
            os.seteuid(65534)  # nothing is read-only to root
        with raises(StorageError, "SO038", "Permission denied") as refused:
            recorded(folder)
    finally:
        os.seteuid(was)
        folder.chmod(0o755)
    assert refused.value.exit_code == 18


def test_a_line_that_cannot_be_written_ends_a_run_only_before_it_is_paid_for(tmp_path):
    record = recorded(tmp_path / "run")
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
        record = recorded(tmp_path, digest)
        (tmp_path / "model.json").write_text(digest)
        record.finish()
    places = (tmp_path / "earlier" / "1", tmp_path / "earlier" / "2", tmp_path)
    assert [(place / "model.json").read_text() for place in places] == ["one", "two", "three"]
