"""A standing federation of three parties, as people see it in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.standing import HUB, PARTIES, Standing, standing

pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'colonnade[dev]'")
from playwright.sync_api import expect

from colonnade.privacy import Ledger
from colonnade.standing.words import six_words
from tests.browser.people import Person, look_at_sign_in, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES = ("/inbox", "/running", "/history", "/ledger", "/scores", "/table", "/people", "/doctor", "/log")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Standing]:
    """Three agents that ask their people, with consoles, and a hub; whoever tests restarts what it stops."""
    with standing(tmp_path_factory.mktemp("standing") / "federation", small=True, console=True) as found:
        yield found


@pytest.fixture(scope="module")
def people(federation: Standing, browser: Browser) -> dict[str, Person]:
    """Somebody at each party's console, signed in."""
    return {party: sign_in(browser, federation, party) for party in PARTIES}


def test_three_people_approve_watch_and_read_and_the_ledger_moves(
    federation: Standing, people: dict[str, Person]
) -> None:
    bank = people["bank"]
    bank.open("/ledger")
    before = bank.page.locator("main").inner_text()
    bank.open("/inbox")
    proposed = federation.propose(federation.study_named("first"), purpose="to see <b>what</b> they share")
    expect(bank.page.get_by_role("heading", name="first", exact=True)).to_be_visible()  # the page changes by itself
    bank.open_study("first")
    expect(bank.page.get_by_text("to see <b>what</b> they share")).to_be_visible()  # as text, and not as markup
    assessment = federation.entry("bank", proposed)
    assert assessment is not None
    assert assessment.assessment is not None
    prices = {row["epsilon"] for row in assessment.assessment["statement"]["rows"] if row["epsilon"]}
    shown = bank.page.locator("table.promise").inner_text()
    assert len(prices) > 1
    assert all(f"{price:.4f}"[:4] in shown for price in prices), (prices, shown)
    bank.approve("first")
    bank.open("/running")
    expect(bank.page.get_by_text("shop: not yet")).to_be_visible()
    people["shop"].approve("first")
    people["clinic"].approve("first")
    federation.wait_all(proposed, "done")
    expect(bank.page.get_by_text("Nothing runs.")).to_be_visible()
    for party, person in people.items():
        person.open("/history")
        person.page.get_by_role("link", name="Read the report").first.click()
        report = person.page.frame_locator("iframe.report")
        expect(report.get_by_role("heading").first).to_be_visible()
        ledger = Ledger(federation.ledger(party))
        assert [ledger.state(entry) for entry in ledger.entries()] == ["committed"]
    bank.open("/ledger")
    assert bank.page.locator("main").inner_text() != before
    expect(bank.page.get_by_text("first").first).to_be_visible()


def test_a_person_declines_and_the_analyst_is_told_why(federation: Standing, people: dict[str, Person]) -> None:
    proposed = federation.propose(federation.study_named("second"))
    people["bank"].approve("second")
    shop = people["shop"]
    shop.open_study("second")
    shop.page.get_by_role("textbox").fill("not with <script>alert(1)</script> this purpose")
    shop.page.get_by_role("button", name="Decline").click()
    federation.wait_all(proposed, "declined")
    assert federation.told()[proposed]["state"] == "declined"
    assert Ledger(federation.ledger("bank")).entries()[1:] == ()


def test_a_study_beyond_the_budget_is_refused_before_anybody_is_asked(
    federation: Standing, people: dict[str, Person]
) -> None:
    path = federation.study_named("third")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("analyst = 0.5, coordinator = 0.5, party = 1.0", "everyone = 50"), encoding="utf-8")
    proposed = federation.propose(path)
    ended = federation.wait_all(proposed, "refused", "declined")  # the first that refuses declines for all
    refusing = next(party for party, entry in ended.items() if entry.state == "refused")
    person = people[refusing]
    person.open("/history")
    refused = person.page.locator("section", has=person.page.get_by_role("heading", name="third"))
    expect(refused).to_contain_text("budget")
    for other in people.values():
        other.open("/inbox")
        expect(other.page.get_by_role("heading", name="third")).to_have_count(0)


def test_a_party_is_away_and_a_hub_and_an_agent_are_killed_and_nothing_is_lost(
    federation: Standing, people: dict[str, Person]
) -> None:
    federation.stop("clinic")
    proposed = federation.propose(federation.study_named("fourth"))
    people["bank"].approve("fourth")
    federation.kill(HUB)
    federation.start(HUB)
    people["shop"].approve("fourth")
    bank = people["bank"]
    bank.open("/running")
    expect(bank.page.get_by_text("clinic: not yet")).to_be_visible()
    federation.kill("shop")
    federation.start("shop")
    federation.start("clinic")
    federation.wait("clinic", proposed, "waiting")
    people["clinic"].approve("fourth")  # still signed in: sessions outlast the agent
    federation.wait_connected(proposed)
    federation.kill(HUB)
    federation.start(HUB)
    ended = federation.wait_all(proposed, "done")
    assert len({entry.attempt for entry in ended.values()}) == 1
    for party in PARTIES:
        folders = [attempt.folder for attempt in federation.office(party).attempts(proposed)]
        assert sum((folder / "model.json").exists() for folder in folders) <= 1
    clinic = people["clinic"]
    clinic.open("/history")
    expect(clinic.page.get_by_role("heading", name="fourth")).to_contain_text("done")


@pytest.fixture(scope="module")
def ended(federation: Standing) -> dict[str, str]:
    """A study of the bank in each state that a page shows in its own way: what earlier tests left, or made now."""
    found = {entry.state: entry.id for entry in federation.office("bank").entries() if entry.over}
    if "done" not in found:
        found["done"] = proposed = federation.propose(federation.study_named("is-done"))
        federation.wait_all(proposed, "waiting")
        federation.approve(proposed)
        federation.wait_all(proposed, "done")
    return found | {"failed": federation.without_a_table("bank"), "refused": federation.beyond_the_budget("bank")}


def test_every_page_is_open_to_everybody_and_fits_a_telephone(
    federation: Standing, ended: dict[str, str], people: dict[str, Person], browser: Browser
) -> None:
    """Nothing serious by axe, and no page that must be moved sideways."""
    proposed = federation.propose(federation.study_named("waits"))
    federation.wait("bank", proposed, "waiting")
    bank, done = people["bank"], ended["done"]
    of_one = (proposed, *ended.values())
    more = (f"/history?study={done}", "/doctor?run=1", f"/doctor?run=1&study={done}", "/ledger?verify=1")
    paths = (*PAGES, *(f"/studies/{one}" for one in of_one), *more, "/no-such-page")
    found = {path: bank.looked(path) for path in paths} | look_at_sign_in(browser, bank.url)
    viewer = sign_in(browser, federation, "bank", role="viewer")
    found["a study, for a viewer"] = viewer.looked(f"/studies/{proposed}")
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_every_page_of_the_hub_is_open_to_everybody_and_fits_a_telephone(
    federation: Standing, ended: dict[str, str], browser: Browser
) -> None:
    person = sign_in(browser, federation, HUB, role="viewer")
    told = federation.told()
    done = [one for one, study in told.items() if study["state"] == "done"]
    chosen = "&".join(f"id={one}" for one in done[:4])
    one_each = {study["state"]: one for one, study in told.items()}.values()
    paths = ("/proposals", *(f"/proposals/{one}" for one in one_each), "/results", f"/results?{chosen}", "/members")
    found = {path: person.looked(path) for path in (*paths, "/log", "/no-such-page")}
    found |= look_at_sign_in(browser, person.url)
    assert {path: wrong for path, wrong in found.items() if wrong} == {}
    person.open("/members")
    shown = person.page.locator("main").inner_text()
    assert all(six_words(pin) in shown for pin in federation.members().pins.values())
    person.open(f"/results?{chosen}")
    expect(person.page.get_by_role("heading", name="Side by side")).to_be_visible()
