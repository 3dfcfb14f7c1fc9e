"""The pages of a party's console: each against a real office, ledger and table, and with figures of the library."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest

from colonnade.console.pages import history
from colonnade.console.people import KeyAge
from colonnade.privacy.beliefs import log_odds
from colonnade.privacy.rows import rounded_up
from colonnade.report import words
from colonnade.standing.newcomers import keep
from colonnade.standing.office import Office
from colonnade.standing.words import six_words
from colonnade.study import book as ledger_text
from colonnade.tables.survey import survey
from colonnade.wire import Identity

from .kit import ORIGIN, TestClient, signed_in
from .party_kit import BAD, Bank


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """A bank that was asked for two studies, and has spent one before."""
    bank = Bank.make(tmp_path_factory.mktemp("asked") / "three")
    first = bank.propose("an earlier question")
    bank.spend(first)
    bank.office.decline(first.id, "Ada", "no time")
    bank.propose()
    return bank


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank.make(tmp_path / "three")


def post(client: TestClient, path: str, **fields: str):
    token = client.get(path).text.split('name="csrf" value="')[1].split('"')[0]
    return client.post(path, data={"csrf": token, **fields}, headers={"origin": ORIGIN})


EMPTY = {
    "/inbox": "Nothing waits for your answer",
    "/running": "Nothing runs",
    "/history": "No study has ended yet",
    "/ledger": "There is no ledger yet",
    "/table": "No study has brought a schema yet",
    "/people": "5 members whom we have accepted",
    "/doctor": "Nothing was checked yet",
}


def test_every_page_of_a_new_party_says_what_to_do_next(bank: Bank) -> None:
    client = signed_in(bank.app())
    for path, sentence in EMPTY.items():
        page = client.get(path)
        assert page.status_code == 200, path
        assert sentence in page.text
        assert page.text.count("<h1>") == 1
        assert "No agent runs here" in page.text
        assert BAD not in page.text
    assert not bank.config.ledger.exists(), "looking makes no ledger"


def test_the_inbox_says_who_asks_what_for_until_when_and_the_price(asked: Bank) -> None:
    (entry,) = asked.office.entries(("waiting",))
    text = signed_in(asked.app()).get("/inbox").text
    assert BAD not in text
    assert "&lt;script&gt;alert(" in text
    assert f'href="/studies/{entry.id}"' in text
    assert "ana, on" in text
    assert "3 days left" in text
    others = [row for row in asked.study_of(entry).statement.rows if "bank" not in row.observer.names]
    most = max(row.epsilon for row in others if math.isfinite(row.epsilon))
    assert f"epsilon {words.epsilon(most)}" in text


def test_the_page_of_a_study_has_the_figures_of_the_library(asked: Bank) -> None:
    (entry,) = asked.office.entries(("waiting",))
    study = asked.study_of(entry)
    page = signed_in(asked.app()).get(f"/studies/{entry.id}").text
    assert BAD not in page
    text = unescape(page)
    rows = re.findall(r'<tr role="row"[^>]*><th role="rowheader" scope="row">(.*?)</tr>', text, re.DOTALL)
    for row in study.statement.rows:
        (shown,) = [each for each in rows if each.startswith(f"{row.who}<")][:1]
        assert f"<strong>{words.epsilon(row.epsilon)}</strong>" in shown
        rise = log_odds(study.statement, row.observer)
        assert ("no limit" if math.isinf(rise) else f">{words.times(rise)} times<") in shown
        assert row.adjacency.value in shown
    for assumption in study.statement.assumptions:
        assert assumption in text
    for name in study.schemas["bank"].names:
        assert f">{name}</th>" in text
    for cap in asked.config.foreseen(study, 3):
        assert words.epsilon(cap.after, 4) in text
        assert words.epsilon(cap.before.spent, 4) in text
    assert entry.digest in text
    assert asked.members.pins["ana"] in text
    assert "This text is sent to the analyst" in text
    assert "for ana the row of the coordinator holds" in text
    assert f'begins with <span class="mono">{entry.digest[:16]}</span>' in text
    assert "people" in text


def test_an_approver_says_yes_to_what_was_shown(bank: Bank) -> None:
    entry = bank.propose()
    client = signed_in(bank.app())
    path = f"/studies/{entry.id}"
    assert post(client, path, answer="approve", digits=entry.digest[:16]).status_code == 400
    assert post(client, path, answer="approve", digits="0" * 16, sure="yes").status_code == 400
    assert bank.office.entry(entry.id).state == "waiting"
    assert post(client, path, answer="approve", digits=entry.digest[:16], sure="yes").status_code == 303
    known = bank.office.entry(entry.id)
    assert (known.state, known.answer_by) == ("approved", "Ada in the console")
    again = client.post(
        path, data={"csrf": _token(client), "answer": "approve", "digits": entry.digest[:16], "sure": "yes"},
        headers={"origin": ORIGIN},
    )  # fmt: skip
    assert again.status_code == 409
    assert bank.office.clicks()[0].what == "approve"
    assert "Waiting for the answer of" in client.get("/running").text
    assert post(client, path, answer="withdraw", why="changed our mind").status_code == 303
    assert bank.office.entry(entry.id).state == "cancelled"


def test_a_no_needs_a_reason_and_a_viewer_only_looks(bank: Bank) -> None:
    entry = bank.propose()
    path = f"/studies/{entry.id}"
    viewer = signed_in(bank.app(), "viewer", "Vic")
    text = viewer.get(path).text
    assert "You may look, but not decide" in text
    assert 'name="answer"' not in text
    assert post(viewer, path, answer="approve", digits=entry.digest[:16], sure="yes").status_code == 403
    client = signed_in(bank.app())
    assert post(client, path, answer="decline", why="  ").status_code == 400
    assert post(client, path, answer="dance").status_code == 400
    assert post(client, path, answer="decline", why=f"no {BAD}").status_code == 303
    known = bank.office.entry(entry.id)
    assert (known.state, known.why) == ("declined", f"no {BAD}")
    text = client.get("/history").text
    assert BAD not in text
    assert "no &lt;script&gt;" in text


def test_a_study_that_is_being_checked_has_its_page(bank: Bank) -> None:
    entry = bank.receive(BAD)
    client = signed_in(bank.app())
    assert "It is being checked" in client.get("/inbox").text
    page = client.get(f"/studies/{entry.id}")
    assert page.status_code == 200
    assert "checking" in page.text
    assert 'value="approve"' not in page.text
    assert entry.digest in page.text
    assert client.get("/doctor").status_code == 200


def test_a_study_over_budget_is_refused_with_the_sentence(bank: Bank) -> None:
    entry = bank.propose(change={"analyst = 1.0, coordinator = 1.5, party = 2.0": "analyst = 9.0"})
    assert entry.state == "refused"
    client = signed_in(bank.app())
    for path in (f"/studies/{entry.id}", "/history"):
        assert "over budget" in client.get(path).text
    assert 'value="approve"' not in client.get(f"/studies/{entry.id}").text


def test_what_runs_shows_phases_rounds_bytes_and_who_is_waited_for(bank: Bank) -> None:
    entry = bank.propose(state="approved")
    lines = [
        {"presence": {"rounds": 7, "bytes": 1_234_567, "here": ["bank", "coordinator"], "waited_for": [BAD]}},
        {"progress": "products", "done": 3, "total": 12},
    ]
    before = bank.desk.pulse()
    bank.attempt(entry, lines)
    text = signed_in(bank.app()).get("/running").text
    assert BAD not in text
    for piece in ("3 of 12", "1.2 MB", "bank, coordinator", "Waiting for &lt;script&gt;", "data-live", "<dd>7</dd>"):
        assert piece in text
    assert bank.desk.pulse() != before


def test_history_has_the_report_in_a_frame_of_its_own_and_says_why_attempts_failed(bank: Bank) -> None:
    entry = bank.propose(state="approved")
    bank.attempt(entry, [])
    folder = bank.office.attempts(entry.id)[0].folder
    (folder / "run.json").write_text(json.dumps({"status": "failed", "exit_code": 22, "message": "clinic is gone"}))
    bank.office.end(entry.id, 1, "lost", "clinic was lost")
    assert bank.office.begin(entry.id, 2, f"{entry.id}.2", 3, timedelta(hours=12))
    second = bank.office.attempts(entry.id)[1].folder
    second.mkdir(parents=True)
    (second / "report.html").write_text(f"<h1>Result</h1>{BAD}")
    bank.office.end(entry.id, 2, "finished", None)
    bank.office.heard(entry.id, {"bank": True}, "done", None)
    client = signed_in(bank.app())
    text = client.get(f"/history?study={entry.id}").text
    assert "clinic was lost" in text
    assert "tried again by itself" in text
    assert "code 22 of docs/reference/errors.md" in text
    assert f'src="/studies/{entry.id}/report" sandbox' in text
    framed = client.get(f"/studies/{entry.id}/report")
    assert BAD in framed.text
    policy = framed.headers["content-security-policy"]
    assert "sandbox" in policy
    assert "script-src" not in policy
    assert "default-src 'none'" in policy
    assert "Result" not in text


def test_history_reads_one_page_and_not_all_that_has_ended(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        bank.office.heard(bank.receive(f"number {number}").id, {}, "cancelled", None)
    monkeypatch.setattr(history, "PAGE", 2)
    client, read, entry = signed_in(bank.app()), [], Office._entry
    monkeypatch.setattr(Office, "_entry", lambda self, row: (read.append(row["id"]), entry(self, row))[1])
    for place, shown in ((1, (4, 3)), (2, (2, 1)), (3, (0,)), (4, ())):
        text = client.get(f"/history?page={place}").text
        assert [number for number in (4, 3, 2, 1, 0) if f"number {number}" in text] == list(shown)
    assert len(read) <= 3 + 3 + 1


@pytest.mark.parametrize("id", ["..%2f..%2fetc", "0" * 32, "a", "", "%00", BAD])
def test_studies_that_are_not_there_are_not_found(asked: Bank, id: str) -> None:
    client = signed_in(asked.app())
    assert client.get(f"/studies/{id}").status_code in (404, 400)
    assert client.get(f"/studies/{id}/report").status_code in (404, 400)


def test_the_ledger_shows_what_the_library_says(asked: Bank) -> None:
    client = signed_in(asked.app())
    text = client.get("/ledger").text
    config = asked.config
    facts = ledger_text.facts(config.book(), 1e-5, None, config)
    for who, total in facts["totals"].items():
        shown = words.epsilon(math.inf if total is None else total, 4)
        assert f">{'all others together' if who == 'others' else who}</th>" in text
        assert shown in text
    for left in config.book().left(config.caps, config.periods):
        assert f"{left.left:.4f} of {left.epsilon:g}" in text
        assert rounded_up(left.spent) in text
    assert facts["head"] in text
    assert "<svg" in text
    assert "1 entry in all" in text
    assert "The ledger is whole" in client.get("/ledger?verify=1").text


def test_a_cap_that_was_raised_is_seen_at_once(bank: Bank) -> None:
    bank.spend(bank.propose())
    client = signed_in(bank.app())
    assert "of 3</td>" in client.get("/ledger").text
    file = bank.folder / "bank" / "party.toml"
    text = file.read_text()
    file.write_text("not a party file")
    assert "of 3</td>" in client.get("/ledger").text
    file.write_text(text.replace("analyst = 3.0", "analyst = 4.5"))
    assert "of 4.5</td>" in client.get("/ledger").text


def test_the_ledger_leaves_as_a_file(asked: Bank) -> None:
    client = signed_in(asked.app())
    for kind in ("csv", "jsonl"):
        found = client.get(f"/ledger/export.{kind}")
        assert found.text == ledger_text.export(asked.config.book(), kind)[0]
        assert found.headers["content-disposition"] == f'attachment; filename="ledger.{kind}"'
    assert next(csv.reader(io.StringIO(client.get("/ledger/export.csv").text)))[0] == "change"
    assert client.get("/ledger/export.exe").status_code == 404
    assert asked.office.clicks()[0].what == "exported the ledger"


def test_a_ledger_that_was_altered_does_not_verify(bank: Bank) -> None:
    book = bank.spend(bank.propose())
    with open(book.path, "r+b") as file:
        content = file.read().replace(b"three-organisations", b"three-organisationz")
        file.seek(0)
        file.write(content)
    text = signed_in(bank.app()).get("/ledger?verify=1").text
    assert "The ledger is whole" not in text


def test_our_table_is_counted_as_a_study_reads_it(asked: Bank) -> None:
    (entry,) = asked.office.entries(("waiting",))
    study, client = asked.study_of(entry), signed_in(asked.app())
    page = read_table_page(client, entry.id)
    found = survey(asked.config.data, study.schemas["bank"], ["person_id"])
    text = unescape(page)
    assert f"{found.rows:,} rows of bank.csv" in text
    for each in found.columns:
        assert f">{each.name}</th>" in text
        assert each.says in text
    assert "<svg" in text
    assert "nothing on this page is sent" in text


def test_a_table_that_does_not_fit_says_so(bank: Bank) -> None:
    entry = bank.propose()
    bank.config.data.write_text("person_id,other\n1,2\n")
    assert "not there" in read_table_page(signed_in(bank.app()), entry.id)


def test_people_and_keys(asked: Bank) -> None:
    text = signed_in(asked.app()).get("/people").text
    for name, pin in asked.members.pins.items():
        assert f">{name}" in text
        assert pin in text
        assert six_words(pin) in text
    assert "three &lt;script&gt;" in text
    assert "this is us" in text
    key = KeyAge.of(asked.members.certificates["bank"])
    assert (key.days, "today" in text) == (0, True)
    assert f"{key.left} more days" in text
    assert key.advice is None


def test_a_newcomer_is_accepted_by_a_person_who_compared_the_words(bank: Bank) -> None:
    insurer, other = Identity.create("insurer").certificate, Identity.create("insurer").certificate
    keep(bank.office.folder, bank.members.with_member(insurer, "party"))
    client = signed_in(bank.app())
    text = client.get("/people").text
    assert "insurer wants to be known" in text
    assert six_words(insurer.fingerprint) in text
    assert post(client, "/people", name="insurer", pin=insurer.fingerprint).status_code == 400
    assert post(client, "/people", name="insurer", pin=other.fingerprint, compared="yes").status_code == 409
    assert "insurer" not in bank.desk.members().roles
    assert post(client, "/people", name="insurer", pin=insurer.fingerprint, compared="yes").status_code == 303
    assert bank.desk.members().pins["insurer"] == insurer.fingerprint
    assert "wants to be known" not in client.get("/people").text
    assert bank.office.clicks()[0].what == "accepted a member"
    keep(bank.office.folder, bank.members.with_member(other, "party"))
    text = client.get("/people").text
    assert "insurer has another key at the hub" in text
    assert "Accept insurer" not in text


def test_doctor_says_what_the_command_says(asked: Bank) -> None:
    (entry,) = asked.office.entries(("waiting",))
    client = signed_in(asked.app())
    alone = client.get("/doctor?run=1").text
    assert "This party alone" in alone
    assert ">key</th>" in alone
    text = unescape(client.get(f"/doctor?run=1&study={entry.id}").text)
    for check in asked.desk.checks(entry):
        assert f">{check.what}</th>" in text
        if check.what not in ("clock", "ledger"):
            assert check.detail in text


def read_table_page(client: TestClient, id: str) -> str:
    """The page of the table, once the table was read."""
    while "refresh" in (page := client.get(f"/table?study={id}")).headers:
        pass
    return page.text


def _token(client: TestClient) -> str:
    return client.get("/inbox").text.split('name="csrf" value="')[1].split('"')[0]
