"""The pages of the consoles of a party and of a hub, and what a price means: against a real store, ledger and view."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
from dataclasses import replace
from fractions import Fraction
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from colonnade.console import party_pages, privacy_explainer
from colonnade.console.access import AccessControl, TrustedHeader
from colonnade.console.app import make_app
from colonnade.console.hub import HUB_PAGES, HubView
from colonnade.console.layout import FRAME_POLICY
from colonnade.console.party_pages import explain_failure
from colonnade.console.privacy_explainer import CapForecast, StudyPrices, one_in
from colonnade.console.security_middleware import SecurityMiddleware
from colonnade.errors import ConnectError, DataError, PolicyError
from colonnade.federation import checks
from colonnade.federation.comparison import WordTries
from colonnade.federation.members import OFFERED, HubPart, MemberIdentity, six_words
from colonnade.federation.statements import Proposal
from colonnade.models import Estimator
from colonnade.privacy import NonPrivate, SkellamRelease
from colonnade.privacy.ledger.approvers import Approver
from colonnade.privacy.observers import Trust
from colonnade.privacy.statement import (
    LargestEpsilon,
    Statement,
    format_rounded_up,
    log_odds,
    log_odds_by_row,
    posterior,
)
from colonnade.report import privacy, wording
from colonnade.study import ledger_view as ledger_text
from colonnade.study.party_config import DigestApproval
from colonnade.tables import Schema
from colonnade.tables.profiling import profile_table
from colonnade.wire import Identity
from tests.federation.club import PARTIES, Talk, refused
from tests.support.errors import raises
from tests.support.standing import BUDGET
from tests.support.waiting import until

from .kit import BAD, BY_PROXY, HOST, OURS, SECRET, Bank, TestClient, browser, csrf, hides, shows, signed_in

PROXY = TrustedHeader("X-Remote-User", ("192.0.2.7",))


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """A bank that was asked for two studies, and has spent one before."""
    bank = Bank.make(tmp_path_factory.mktemp("asked") / "three")
    first = bank.propose("an earlier question")
    bank.spend(first)
    bank.store.decline(first.id, "Ada", "no time")
    bank.propose()
    return bank


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank.make(tmp_path / "three")


def post(client: TestClient, path: str, **fields: str) -> int:
    return client.post(path, data={"csrf": csrf(client, "/inbox"), **fields}, headers=OURS).status_code


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
        assert (page.status_code, page.text.count("<h1>")) == (200, 1), path
        shows(page.text, sentence, "No agent runs here")
        hides(page.text, BAD)
    assert not bank.config.ledger.exists(), "looking makes no ledger"


def test_the_inbox_says_who_asks_what_for_until_when_and_the_price(asked: Bank) -> None:
    (waiting,) = asked.store.entries(("waiting",))
    client = signed_in(asked.app())
    text = client.get("/inbox").text
    others = [row for row in asked.study_of(waiting).statement.rows if "bank" not in row.observer.names]
    most = max(row.epsilon for row in others if math.isfinite(row.epsilon))
    price = f"epsilon {wording.epsilon(most)}"
    shows(text, "&lt;script&gt;alert(", f'href="/studies/{waiting.id}"', "ana, on", "3 days left", price)
    hides(text, BAD)
    for name in ("..%2f..%2fetc", "0" * 32, "a", "", "%00", BAD):
        for path in (f"/studies/{name}", f"/studies/{name}/report"):
            assert client.get(path).status_code in (404, 400), path


def test_the_page_of_a_study_has_the_figures_of_the_library(asked: Bank) -> None:
    (waiting,) = asked.store.entries(("waiting",))
    study, client = asked.study_of(waiting), signed_in(asked.app())
    counted = f"Our table has {asked.config.count_rows(study.schemas['bank'])} rows"
    assert (waiting.assessment or {})["people"] is None, "they are counted for this page"
    page = until(lambda: found if counted in (found := client.get(f"/studies/{waiting.id}").text) else None)
    hides(page, BAD)
    text = unescape(page)
    rows = re.findall(r'<tr role="row"[^>]*><th role="rowheader" scope="row">(.*?)</tr>', text, re.DOTALL)
    for row in study.statement.rows:
        (shown,) = [each for each in rows if each.startswith(f"{row.who}<")][:1]
        rise = log_odds(study.statement, row.observer)
        odds = "no limit" if math.isinf(rise) else f">{wording.times(rise)} times<"
        shows(shown, f"<strong>{wording.epsilon(row.epsilon)}</strong>", odds, row.adjacency.value)
    shows(text, *study.statement.assumptions, *(f">{name}</th>" for name in study.schemas["bank"].names))
    for cap in asked.config.foresee(study, 3):
        shows(text, wording.epsilon(cap.after, 4), wording.epsilon(cap.before.spent, 4))
    digits = f'begins with <span class="mono">{waiting.digest[:16]}</span>'
    sentences = ("This text is sent to the analyst", "for ana the row of the coordinator holds")
    shows(text, "FORECAST for 60 people", waiting.digest, asked.three.members().pins["ana"], *sentences, digits)
    shows(client.get("/doctor?run=1").text, "This party alone", ">key</th>")
    text = unescape(client.get(f"/doctor?run=1&study={waiting.id}").text)
    for check in asked.view.checks(waiting):
        # The time, the room of a disk and a ledger may have changed since the page was made.
        moved = check.what in ("clock", "ledger", "temporary files")
        shows(text, f">{check.what}</th>", *(() if moved else (check.detail,)))


def test_what_is_shown_of_a_study_is_in_its_digest_or_said_to_be_beside_it(bank: Bank) -> None:
    def told(old: str = "", new: str = "", purpose: str = "to know") -> tuple[str, str]:
        """The digest and the page of the study with a change."""
        path = bank.three.study_named("shown")
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        asked = bank.three.proposal(path, purpose)
        proposal = Proposal.unpack(asked.pack(bank.three.identity()), bank.three.members())
        entry = bank.store.receive(proposal)
        file = proposal.write(entry.study_file.parent, bank.three.members())
        found, _ = checks.assess(file, bank.config, entry.name, entry.digest)
        bank.store.record_assessment(entry.id, found, "waiting", None)
        return entry.digest, unescape(signed_in(bank.app()).get(f"/studies/{entry.id}").text)

    plain, page = told()
    shows(page, "These words are ana's, beside the study.", "signed by ana, and no part of the digest")
    assert told(purpose="another")[0] == plain
    for old, new, word in (
        ('name = "shown"', 'name = "shown2"', "<h1>shown2</h1>"),
        ("[task]", 'description = "for wards"\n[task]', "for wards"),
        ("[task]", "trial = true\n[task]", "This is a trial"),
        (BUDGET, "{ analyst = 0.25, coordinator = 0.5, party = 1.0 }", "0.25"),
    ):
        digest, page = told(old, new)
        assert digest != plain
        shows(page, word)


def test_a_column_that_the_study_calls_otherwise_is_shown_as_ours(tmp_path: Path) -> None:
    text = '[columns.visits]\ntype = "date"\nfrom = 2000-01-01\nuntil = 2020-01-01\ncolumn = "birthday"\n'
    (tmp_path / "s.toml").write_text(f'{text}[columns.age]\ntype = "number"\nlow = 18.25\nhigh = 90.0000001\n')
    columns = Schema.load(tmp_path / "s.toml").columns
    assert checks._what_is_read("visits", columns["visits"]).startswith("read from our column 'birthday'; days from")
    assert checks._what_is_read("age", columns["age"]).startswith("number from 18.25 to 90.0000001")


def test_an_approver_says_yes_to_what_was_shown_or_no_with_a_reason_and_a_viewer_only_looks(bank: Bank) -> None:
    entry, other = bank.propose(), bank.propose("another")
    client, viewer = signed_in(bank.app()), signed_in(bank.app(), "viewer", "Vic")
    path, yes = f"/studies/{entry.id}", {"answer": "approve", "digits": entry.digest[:16], "sure": "yes"}
    text = viewer.get(path).text
    shows(text, "You may look, but not decide")
    hides(text, 'name="answer"')
    assert post(viewer, path, **yes) == 403
    assert post(client, path, answer="approve", digits=entry.digest[:16]) == 400
    assert post(client, path, **yes | {"digits": "0" * 16}) == 400
    assert bank.store.entry(entry.id).state == "waiting"
    assert post(client, path, **yes) == 303
    known = bank.store.entry(entry.id)
    assert (known.state, known.answer_by) == ("approved", "Ada in the console")
    assert post(client, path, **yes) == 409
    assert bank.store.audit.latest()[0].what == "approve"
    shows(client.get("/running").text, "Waiting for the answer of")
    assert post(client, path, answer="withdraw", why="changed our mind") == 303
    assert bank.store.entry(entry.id).state == "cancelled"
    for wrong in ({"answer": "decline", "why": "  "}, {"answer": "dance"}):
        assert post(client, f"/studies/{other.id}", **wrong) == 400
    assert post(client, f"/studies/{other.id}", answer="decline", why=f"no {BAD}") == 303
    known = bank.store.entry(other.id)
    assert (known.state, known.why) == ("declined", f"no {BAD}")
    text = client.get("/history").text
    shows(text, "no &lt;script&gt;")
    hides(text, BAD)


def test_a_second_person_approves_where_the_policy_asks_for_two(bank: Bank) -> None:
    bank.three.change("bank", "[policy]", "[policy]\napprovers = 2")
    entry = bank.propose()
    path, yes = f"/studies/{entry.id}", {"answer": "approve", "digits": entry.digest[:16], "sure": "yes"}
    ada = signed_in(bank.app())
    assert (post(ada, path, **yes), bank.store.entry(entry.id).state) == (303, "waiting")
    shows(ada.get(path).text, "Approved by Ada in the console. A second person must approve it too.")
    assert post(ada, path, **yes) == 409, "not even twice"
    assert post(signed_in(bank.app(), person="Bob"), path, **yes) == 303
    known = bank.store.entry(entry.id)
    assert (known.state, known.answer_by) == ("approved", "Ada in the console, Bob in the console")
    assert bank.store.approvers(entry.id) == tuple(
        Approver(who, "console", "127.0.0.1, signed in by a link") for who in ("Ada", "Bob")
    )
    study = bank.study_of(entry)
    for alone in (None, DigestApproval(study.digest)):
        with raises(PolicyError, "PO012|PO780"):
            bank.config.approve(study, study.statement, alone)
    both = DigestApproval(study.digest, approvers=bank.store.approvers(entry.id))
    assert bank.config.approve(study, study.statement, both)[1] == both.approvers


def test_where_the_policy_lists_names_others_are_refused_in_a_sentence(bank: Bank) -> None:
    before = bank.three.file("bank").read_text()
    listed = '[policy]\napprovers = ["Ada", "Bob"]'
    bank.three.file("bank").write_text(re.sub(r"\[policy\]\n(approvers = .*)?", f"{listed}\n", before))
    try:
        entry = bank.propose("of listed people")
        path, yes = f"/studies/{entry.id}", {"answer": "approve", "digits": entry.digest[:16], "sure": "yes"}
        max_, ada = signed_in(bank.app(), person="Max"), signed_in(bank.app())
        shows(
            unescape(ada.get(path).text),
            "It takes two of Ada, Bob.",
            "It does not hold against whoever runs commands as",
        )
        answer = max_.post(path, data={**yes, "csrf": csrf(max_, path)}, headers=OURS)
        assert answer.status_code == 409
        shows(unescape(answer.text), "Max cannot approve studies here: approvers in [policy] asks for two of Ada, Bob")
        assert [post(who, path, **yes) for who in (ada, ada)] == [303, 409]
        assert post(signed_in(bank.app(), person="Bob"), path, **yes) == 303
        assert [each.who for each in bank.store.approvers(entry.id)] == ["Ada", "Bob"]
    finally:
        bank.three.file("bank").write_text(before)


def test_a_study_that_is_being_checked_has_its_page_and_one_over_budget_its_sentence(bank: Bank) -> None:
    checking, refused = bank.receive(), bank.propose(budget="{ analyst = 9.0 }")
    client = signed_in(bank.app())
    shows(client.get("/inbox").text, "It is being checked")
    page = client.get(f"/studies/{checking.id}").text
    shows(page, "checking", checking.digest)
    hides(page, 'value="approve"')
    assert client.get("/doctor").status_code == 200
    assert refused.state == "refused"
    for path in (f"/studies/{refused.id}", "/history"):
        shows(client.get(path).text, "over budget")
        hides(client.get(path).text, 'value="approve"')


def test_what_runs_shows_its_progress_and_what_ran_its_report_in_a_frame_and_why_attempts_failed(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = bank.propose(state="approved")
    lines: list[dict[str, Any]] = [
        {"presence": {"rounds": 7, "bytes": 1_234_567, "here": ["bank", "coordinator"], "waited_for": [BAD]}},
        {"progress": "products", "done": 3, "total": 12},
    ]
    before, client = bank.view.state_text(), signed_in(bank.app())
    first = bank.attempt(entry, lines=lines)
    text = client.get("/running").text
    hides(text, BAD)
    shows(text, "3 of 12", "1.2 MB", "bank, coordinator", "Waiting for &lt;script&gt;", "data-live", "<dd>7</dd>")
    assert bank.view.state_text() != before
    (first / "run.json").write_text(json.dumps({"status": "failed", "exit_code": 22, "message": "clinic is gone"}))
    bank.store.end_attempt(entry.id, 1, "lost", "clinic was lost")
    (second := bank.attempt(entry, 2)).joinpath("report.html").write_text(f"<h1>Result</h1>{BAD}")
    statement, path = bank.study_of(entry).statement, f"/studies/{entry.id}"
    for more, shown in (({}, False), ({"attempts": statement.of_attempts(2)}, True)):
        (second / "privacy.json").write_text(json.dumps(statement.to_dict() | more))
        assert ("All 2 attempts together tell" in client.get(path).text) == shown
    bank.store.end_attempt(entry.id, 2, "finished", None)
    bank.store.record_hub_state(entry.id, {"bank": True}, "done")
    text = client.get(f"/history?study={entry.id}").text
    frame = f'src="/studies/{entry.id}/report" sandbox'
    shows(text, "clinic was lost", "tried again by itself", "code 22 of docs/reference/errors.md", frame)
    hides(text, "Result")
    framed = client.get(f"/studies/{entry.id}/report")
    shows(framed.text, BAD)
    shows(framed.headers["content-security-policy"], "sandbox", "default-src 'none'")
    hides(framed.headers["content-security-policy"], "script-src")
    for number in range(2):
        bank.store.record_hub_state(bank.receive(f"number {number}").id, {}, "cancelled")
    monkeypatch.setattr(party_pages, "PAGE", 2)
    pages = [client.get(f"/history?page={place}").text for place in (1, 2, 3)]
    assert [[number for number in (1, 0) if f"number {number}" in page] for page in pages] == [[1, 0], [], []]
    assert ["clinic was lost" in page for page in pages] == [False, True, False]


def test_the_ledger_shows_what_the_library_says_and_leaves_as_a_file(asked: Bank) -> None:
    client, config = signed_in(asked.app()), asked.config
    text = client.get("/ledger").text
    facts = ledger_text.ledger_facts(config.open_ledger(), 1e-5, None, config)
    for who, total in facts["totals"].items():
        shown = wording.epsilon(math.inf if total is None else total, 4)
        shows(text, f">{'all others together' if who == 'others' else who}</th>", shown)
    for left in config.open_ledger().remaining(config.caps, config.periods):
        shows(text, f"{left.remaining:.4f} of {left.epsilon:g}", format_rounded_up(left.spent))
    shows(text, facts["head"], "<svg", "1 entry in all")
    shows(client.get("/ledger?verify=1").text, "The ledger is whole")
    for kind in ("csv", "jsonl"):
        found = client.get(f"/ledger/export.{kind}")
        assert found.text == ledger_text.export_chain(config.open_ledger(), kind)[0]
        assert found.headers["content-disposition"] == f'attachment; filename="ledger.{kind}"'
    assert next(csv.reader(io.StringIO(client.get("/ledger/export.csv").text)))[0] == "change"
    assert client.get("/ledger/export.exe").status_code == 404
    assert asked.store.audit.latest()[0].what == "exported the ledger"


def test_a_cap_that_was_raised_is_seen_at_once_and_a_ledger_that_was_altered_does_not_verify(bank: Bank) -> None:
    book = bank.spend(bank.propose())
    client = signed_in(bank.app())
    shows(client.get("/ledger").text, "of 3</td>")
    file = bank.three.file("bank")
    text = file.read_text()
    file.write_text("not a party file")
    shows(client.get("/ledger").text, "of 3</td>")
    file.write_text(text.replace("analyst = 3.0", "analyst = 4.5"))
    shows(client.get("/ledger?verify=1").text, "of 4.5</td>", "The ledger is whole")
    before = book.path.read_bytes()
    with open(book.path, "r+b") as stored:
        stored.write(before.replace(b"what-we-share", b"what-we-sharf"))
    assert book.path.read_bytes() != before
    hides(client.get("/ledger?verify=1").text, "The ledger is whole")


def test_our_table_is_counted_as_a_study_reads_it_and_one_that_does_not_fit_says_so(bank: Bank) -> None:
    entry = bank.propose()
    client = signed_in(bank.app())
    text = unescape(read_table_page(client, entry.id))
    found = profile_table(bank.config.data, bank.study_of(entry).schemas["bank"], ["person_id"])
    shows(text, f"{found.rows:,} rows of bank.csv", "<svg", "nothing on this page is sent")
    for each in found.columns:
        shows(text, f">{each.name}</th>", each.summary)
    bank.config.data.write_text("person_id,other\n1,2\n")
    shows(read_table_page(client, entry.id), "not there")


def test_a_newcomer_is_accepted_by_a_person_who_has_heard_the_words(bank: Bank) -> None:
    insurer, other = (Identity.create("insurer").certificate for _ in range(2))
    pin, members = insurer.fingerprint, bank.three.members("bank")
    members.with_member(insurer, "party").save(bank.store.folder / OFFERED / "FEDERATION.toml")
    client = signed_in(bank.app())
    text, key = client.get("/people").text, MemberIdentity.of(members, "bank")
    shows(text, "insurer wants to be known", "three &lt;script&gt;", f"{key.left} more days")
    hides(text, six_words(pin), "Six words of the key")
    for name, known in members.pins.items():
        shows(text, f">{name}", known, six_words(known))
    asked, left = bank.view.comparison(MemberIdentity("insurer", "party", insurer))
    shows(text, asked.places.capitalize(), f"Tries: {left}")
    words = " ".join(asked.words.split()[at] for at in asked.asked)
    for ticked in ({}, {"compared": "yes"}):
        assert post(client, "/people", name="insurer", pin=pin, **ticked) == 400, "a tick is no comparison"
    assert post(client, "/people", name="insurer", pin=other.fingerprint, words=words) == 409
    assert post(client, "/people", name="insurer", pin=pin, words=f"{words} {words}") == 403
    assert "insurer" not in bank.view.members().roles
    assert post(client, "/people", name="insurer", pin=pin, words=words) == 303
    assert bank.view.members().pins["insurer"] == pin
    hides(client.get("/people").text, "wants to be known")
    assert bank.store.audit.latest()[0].what == "accepted a member"
    members.with_member(other, "party").save(bank.store.folder / OFFERED / "FEDERATION.toml")
    text = client.get("/people").text
    shows(text, "insurer has another key at the hub")
    hides(text, "Accept insurer")


def test_a_wrong_word_three_times_shuts_a_key_out_also_after_a_restart(bank: Bank) -> None:
    insurer = Identity.create("insurer").certificate
    pin = insurer.fingerprint
    bank.three.members("bank").with_member(insurer, "party").save(bank.store.folder / OFFERED / "FEDERATION.toml")
    for _ in range(3):
        asked, left = bank.view.comparison(MemberIdentity("insurer", "party", insurer))
        assert left
        assert post(signed_in(bank.app()), "/people", name="insurer", pin=pin, words="abbey absent acid") == 403
    assert post(signed_in(bank.app()), "/people", name="insurer", pin=pin, words=asked.words) == 403
    shows(signed_in(bank.app()).get("/people").text, "accepted here no more")
    assert WordTries(bank.view.federation.parent).compare(pin, asked, asked.words) == 0, "nor by the command"


def read_table_page(client: TestClient, study: str) -> str:
    while "refresh" in (page := client.get(f"/table?study={study}")).headers:
        pass
    return page.text


# --- the hub: members, proposals with their answers, results side by side, and who may see which

FIXTURES = Path(__file__).parents[1] / "fixtures" / "models"
IMAGE = "<img src=x onerror=alert(1)>"


class Hub:
    """A hub's console over a real view, with members who speak to it."""

    def __init__(self, folder: Path) -> None:
        self.talk = Talk(folder)
        self.operators("Ada", IMAGE, "Olga of the hub")
        self.view = HubView(self.talk.desk, folder / "results", lambda: ("bank",))
        access = AccessControl(
            folder / "console", (HOST,), lambda: {"ana": "viewer", "Ana": "viewer"}, PROXY, secret=SECRET
        )
        access.may_enter = lambda person: self.talk.desk.members.may_enter(person)
        self.app: SecurityMiddleware = make_app(self.view, access, HUB_PAGES)
        self.results = folder / "results"

    def done(self, model: str = "pca.json", purpose: str = "to test") -> str:
        study = self.talk.agreed(name=purpose)
        self.talk.outcomes(study, "finished")
        folder = self.results / study
        folder.mkdir(parents=True)
        text = (FIXTURES / model).read_text()
        (folder / "model.json").write_text(text)
        (folder / "privacy.json").write_text(json.dumps(json.loads(text)["privacy"]))
        (folder / "report.html").write_text("<!DOCTYPE html><title>r</title><script>alert(1)</script>")
        return study

    def operators(self, *names: str) -> None:
        """Whom the federation's file names as the hub's own people."""
        self.talk.desk.members = replace(self.talk.desk.members, hub=HubPart(operators=names))

    def person(self, name: str) -> TestClient:
        return signed_in(self.app, "viewer", name)


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


def test_answers_are_shown_as_they_come_and_members_with_their_keys(hub: Hub) -> None:
    client, before = signed_in(hub.app, "viewer", IMAGE), hub.view.state_text()
    assert client.get("/").headers["location"] == "/proposals"
    shows(client.get("/proposals").text, "colonnade federation propose")
    shows(client.get("/results").text, "No study is done yet")
    study = hub.talk.propose(name=IMAGE)
    assert hub.view.state_text() != before
    hub.talk.answer(study, "bank")
    hub.talk.answer(study, "shop", yes=False, why=IMAGE)
    page, log, members = (client.get(path).text for path in (f"/proposals/{study}", "/audit-log", "/members"))
    shows(page, ">yes<", ">no<", ">not yet<", ">declined<")
    for text in (page, client.get("/proposals").text):
        shows(text, "&lt;img src=x onerror=alert(1)&gt;")
        hides(text, "<img")
    shows(log, "signed in")
    hides(log, "<img")
    assert hub.view.audit.latest(1)[0].who == IMAGE
    for name, pin in hub.talk.club.members.pins.items():
        shows(members, f'<th role="rowheader" scope="row">{name}</th>', pin)
    assert (members.count(">here<"), members.count(">away<")) == (2, 3), "the hub and the bank are here"


def test_a_result_is_shown_with_its_report_in_a_frame_to_parties_and_the_people_of_the_hub(hub: Hub) -> None:
    study = hub.done()
    summary = [line.strip() for line in Estimator.load(FIXTURES / "pca.json").summary()]
    frame = f'<iframe class="report" sandbox src="/proposals/{study}/report"'
    for person, code in (("bank", 200), ("Olga of the hub", 200), ("ana", 409)):
        client = hub.person(person)
        page = client.get(f"/proposals/{study}").text
        shows(page, *summary)
        answer = client.get(f"/proposals/{study}/report")
        assert (answer.status_code, frame in page) == (code, code == 200), person
        if code == 200:
            policy = answer.headers["content-security-policy"]
            assert (policy, answer.headers["x-frame-options"]) == (FRAME_POLICY, "SAMEORIGIN")
    hides(FRAME_POLICY, "script")


def test_results_stand_side_by_side_one_that_is_damaged_is_said_so_and_ids_lead_to_no_file(hub: Hub) -> None:
    first, second = hub.done(), hub.done("linear.json", purpose="another")
    client = signed_in(hub.app)
    page = client.get(f"/results?id={first}&id={second}").text
    assert page.count(" checked>") == 2
    for model in ("pca.json", "linear.json"):
        for row in json.loads((FIXTURES / model).read_text())["privacy"]["rows"]:
            if row["epsilon"] is not None:
                shows(page, escape(f"{format_rounded_up(row['epsilon'])} (delta {row['delta']:g}; {row['adjacency']})"))
    assert client.get("/results?id=../../etc&id=%00").text.count(" checked>") == 0
    lacking = hub.done("split.json", purpose="a fourth")
    model = hub.results / lacking / "model.json"
    content = json.loads(model.read_text())
    del content["learned"]["plan"]["rows"]
    model.write_text(json.dumps(content))
    shutil.copyfile(FIXTURES / "split.npz", model.with_suffix(".npz"))
    shows(client.get(f"/proposals/{lacking}").text, "The model cannot be shown here", "is damaged")
    damaged = hub.done(purpose="a third")
    (hub.results / damaged / "model.json").write_text("{")
    (hub.results / damaged / "privacy.json").write_text("[]")
    (hub.results / damaged / "report.html").unlink()
    shows(client.get(f"/proposals/{damaged}").text, "The model cannot be shown here")
    statuses = [client.get(path).status_code for path in (f"/proposals/{damaged}/report", f"/results?id={damaged}")]
    assert statuses == [409, 200]
    for name in ("..%2f..%2fetc", "%00", "' or 1=1", "x" * 5000, IMAGE.replace("/", "")):
        for path in (f"/proposals/{name}", f"/proposals/{name}/report"):
            answer = client.get(path)
            assert answer.status_code in (404, 409)
            hides(answer.text, "<img")


def test_a_member_sees_what_concerns_it_and_is_told_no_counts_and_no_clicks_of_others(hub: Hub) -> None:
    study = hub.talk.propose("bank", "shop")
    people = {name: hub.person(name) for name in ("ana", "clinic", "Olga of the hub")}
    concerned = {"ana": True, "clinic": False, "Olga of the hub": True}
    for path, piece in (("/proposals", study), ("/members", "0 running, 1 waiting")):
        assert {name: piece in client.get(path).text for name, client in people.items()} == concerned
    hidden, unknown = (people["clinic"].get(f"/proposals/{each}") for each in (study, "0" * 32))
    assert (hidden.status_code, hidden.text) == (409, unknown.text), "so that nobody learns what others propose"
    shows(hidden.text, "the hub knows no proposal")
    read = {name: {click.who for click in hub.view.audit.latest(who=hub.view.audit_reader(name))} for name in people}
    assert read == {"ana": {"ana"}, "clinic": {"clinic"}, "Olga of the hub": set(people)}
    for name in ("ana", "clinic"):
        text = people[name].get("/audit-log").text
        shows(text, "signed in")
        hides(text, "Olga")


def test_whoever_is_on_no_list_sees_nothing_and_a_member_who_is_gone_is_out_at_once(hub: Hub) -> None:
    study, everybody = hub.done(), hub.talk.desk.members
    ana, paths = hub.person("ana"), ("/proposals", "/results", "/members", f"/proposals/{study}/report", "/audit-log")
    assert [ana.get(path).status_code for path in paths] == [200, 200, 200, 409, 200]
    unused, proxy = hub.app.access.link("ana", "viewer"), browser(hub.app, PROXY.sources[0])
    assert proxy.get("/proposals", headers=BY_PROXY | {"x-remote-user": "ana"}).status_code == 200
    for name in ("Ana", "ANA", "ana ", "an\u0430", "coordinator", "Mallory"):
        link = {"link": hub.app.access.link(name, "approver")}
        assert browser(hub.app).post("/login", data=link, headers=OURS).status_code == 403, name
        for see in (hub.view.studies, hub.view.audit_reader, lambda name: hub.view.result(study, name)):
            refused("FE723", see, name)
    assert proxy.get("/proposals", headers=BY_PROXY | {"x-remote-user": "Ana"}).status_code == 303
    hub.talk.desk.members = everybody.select(*PARTIES, "coordinator")
    assert [ana.get(path).status_code for path in paths] == [303] * 5
    assert proxy.get("/proposals", headers=BY_PROXY | {"x-remote-user": "ana"}).status_code == 303, (
        "though people names her"
    )
    hub.talk.desk.members = everybody
    assert ana.get("/proposals").status_code == 303, "another one of her name is not she"
    assert browser(hub.app).post("/login", data={"link": unused}, headers=OURS).status_code == 403
    olga = hub.person("Olga of the hub")
    assert olga.get("/proposals").status_code == 200
    hub.operators("Ada")
    assert olga.get("/proposals").status_code == 303


# --- what a price means: figures are those of the library, sentences follow from docs/theory/beliefs.md

TRUST = Trust(("bank", "shop"), ("bank", "shop", "coordinator"), 1)
EVENT = SkellamRelease(
    "moments", (("bank", Fraction(10**12)), ("shop", Fraction(10**12))), 9, 10**6, 10**12, 2 * 10**6,
    2 * 10**12, tail=1e-30, theorem="moments-sensitivity",
)  # fmt: skip


@pytest.fixture(scope="module")
def statement() -> Statement:
    return Statement.of([EVENT], TRUST, 1e-5)


@pytest.fixture(scope="module")
def prices(statement: Statement) -> StudyPrices:
    kept = json.loads(json.dumps(statement.to_dict()))
    return StudyPrices.of(kept, log_odds_by_row(Statement.from_dict(kept)), "bank")


def test_every_row_of_the_statement_has_its_price_and_who_learns_most_is_somebody_else(
    statement: Statement, prices: StudyPrices
) -> None:
    assert [price.row for price in prices.rows] == list(statement.rows)
    assert [price.row for price in prices.missing] == list(statement.missing_noise)
    for price in prices.rows:
        assert price.rise == pytest.approx(log_odds(statement, price.row.observer))
        assert price.ours == ("bank" in price.row.observer.names)
    others = [row for row in statement.rows if "bank" not in row.observer.names and math.isfinite(row.epsilon)]
    assert prices.exposed.row.epsilon == max(row.epsilon for row in others)


def test_the_largest_epsilon_is_that_of_the_report_and_who_pools_is_named(
    statement: Statement, prices: StudyPrices
) -> None:
    found = LargestEpsilon.of(statement)
    assert prices.largest == found
    assert found.row.epsilon == max(row.epsilon for row in statement.rows if math.isfinite(row.epsilon))
    assert found.missing.epsilon == max(row.epsilon for row in statement.missing_noise) > 0
    assert prices.figures == (
        (wording.epsilon(found.row.epsilon), found.row.who, "if every owner draws its noise"),
        (wording.epsilon(found.missing.epsilon), found.missing.who, "if 1 owner draws no noise"),
    )
    assert prices.pools == ("coordinator and shop together",)
    page = str(privacy.privacy(statement))
    assert f"is {wording.epsilon(found.row.epsilon)}, a factor" in page
    assert math.isinf(found.missing.epsilon)  # of two owners, the other one's noise was all that there was
    assert "Nothing is promised against any other party, if 1 owner draws no noise." in page


def test_three_owners_are_promised_something_without_the_noise_of_one() -> None:
    names = ("bank", "shop", "clinic")
    event = replace(EVENT, shares=tuple((name, Fraction(10**12)) for name in names))
    statement = Statement.of([event], Trust(names, names, 1), 1e-5)
    found = LargestEpsilon.of(statement).missing
    assert found.epsilon == max(row.epsilon for row in statement.missing_noise) < math.inf
    page = str(privacy.privacy(statement))
    assert f"It is {wording.epsilon(found.epsilon)}, for {found.who}, if 1 owner draws no noise." in page


def test_the_sentences_have_the_figures_of_their_theorems(prices: StudyPrices) -> None:
    found, by_analyst = prices.exposed, prices.rows[0]
    shows(found.conclusion, f"at most {wording.times(found.row.epsilon)} times what it would be", "plus 1 in 100,000")
    shows(found.odds, f"at most {wording.times(found.rise)} times what they were")
    assert found.rise > found.row.epsilon, "odds are not bounded by e^epsilon"
    shows(by_analyst.odds or "", "that one person is in the tables")
    shows(by_analyst.conclusion, "had been left out")
    hides(found.conclusion + found.odds, "safe", "anonym")


def test_where_nothing_is_promised_the_reason_is_said(prices: StudyPrices) -> None:
    together = next(price for price in prices.rows if price.row.observer.label == "bank+shop")
    assert (together.promised, together.odds, together.factor) == (False, None, "no limit")
    assert together.conclusion.startswith("Nothing is promised against bank and shop, if they pool what they see: ")
    exact = Statement.of([NonPrivate("exact answers")], TRUST, 1e-5).to_dict()
    found = StudyPrices.of(exact, log_odds_by_row(Statement.from_dict(exact)), "bank")
    assert (found.exposed, found.picture, bool(found.unprotected)) == (None, None, True)


def test_the_picture_says_in_words_what_it_draws(prices: StudyPrices) -> None:
    at_most = math.ceil(1000 * posterior(0.5, prices.exposed.rise)) / 10
    shows(prices.picture or "", f"50 % before, at most {at_most:g} % after", 'role="img"', "aria-labelledby")
    hides(prices.picture or "", "style=")  # the console's policy allows no inline style
    bad = "<script>alert(1)</script>"
    drawn = privacy_explainer.draw_beliefs(1.0, bad)
    shows(drawn, "&lt;script&gt;")
    hides(drawn, bad)


def test_chances_are_rounded_towards_the_larger_and_what_is_left_down() -> None:
    said = [one_in(chance) for chance in (1e-5, 3e-6, 0.7, 0.0)]
    assert said == ["1 in 100,000", "1 in 333,333", "1 in 1", "nothing"]
    cap = CapForecast.of(
        {"observer": "others", "cap": 3.0, "period": 30, "spent": 1.00001, "after": 2.00001, "at_most": 2.5}
    )
    assert (cap.who, cap.span) == ("all others together", "in 30 days")
    assert (cap.spent_text, cap.after_text, cap.left_text, cap.percent) == ("1.0001", "2.0001", "0.9999", 67)
    gone = CapForecast.of(
        {"observer": "shop", "cap": 3.0, "period": None, "spent": None, "after": None, "at_most": None}
    )
    assert (gone.after_text, gone.left_text, gone.percent, gone.span) == ("no promise", "nothing", 100, "for ever")


def test_a_failure_has_a_sentence_an_advice_and_a_code() -> None:
    record = {"status": "failed", "message": "the hub is gone", "exit_code": ConnectError.exit_code}
    found = explain_failure(None, record)
    assert (found.sentence, found.code) == ("the hub is gone", ConnectError.exit_code)
    assert "Doctor" in found.advice
    lost = explain_failure("the machine was lost", {})
    assert lost.code is None
    assert explain_failure("x", {"exit_code": DataError.exit_code}).advice.startswith("Our table")  # type: ignore[union-attr]
    assert explain_failure(None, {"status": "finished"}) is None
    assert explain_failure(None, {}) is None
