"""A standing federation of three parties in real processes, by commands and as people see it in a browser.

The first two tests show the whole way from a proposal to a result and run with the quick suite.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from colonnade.federation.members import six_words
from colonnade.models import Estimator
from tests.support.standing import HUB, PARTIES, Standing, standing
from tests.support.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.people import Person

PAGES = ("/inbox", "/running", "/history", "/ledger", "/scores", "/table", "/people", "/doctor", "/audit-log")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Three agents that ask their people, with consoles, and a hub; whoever tests restarts what it stops."""
    with standing(tmp_path_factory.mktemp("standing") / "federation", console=True) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window; tests skip with a sentence where there is none.

    One for each file: Playwright keeps an event loop running in this thread for as long as it is there, and no
    other test of the same process could start one of its own.
    """
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if program is None:
        pytest.skip("no browser: `apt install chromium`, or name a Chromium in CHROMIUM")
    play = pytest.importorskip("playwright.sync_api")
    from tests.browser.people import FLAGS

    with play.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=program, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def people(federation: Standing, browser: Browser) -> dict[str, Person]:
    from tests.browser.people import sign_in

    return {party: sign_in(browser, federation, party) for party in PARTIES}


def test_from_a_proposal_to_a_result_at_every_party(federation: Standing, colonnade: Callable[..., Any]) -> None:
    study = federation.propose(federation.study_named("by-command"), purpose="to know")
    entry = federation.wait_all(study, "waiting")["clinic"]
    assert (entry.analyst, entry.purpose) == ("ana", "to know")
    for party in PARTIES:
        colonnade("federation", "approve", federation.file(party), study[:8], "--yes")
    federation.wait_all(study, "done")
    for party in PARTIES:
        report = until(lambda party=party: federation.store(party).report(study), f"{party} has a report")
        assert f"For {party} alone" in report.read_text()
        assert federation.ledger(party) == ["committed"]
    until(lambda: federation.finished(study) == [(party, 1) for party in PARTIES], "all processes have ended")
    clinic = federation.store("clinic")
    by = json.loads((clinic.attempts(study)[0].folder / "events.jsonl").read_text().splitlines()[0])
    assert (by["what"], by["by"]) == ("approved", clinic.entry(study).answer_by)
    result, key = federation.folder / "result", ("--federation", federation.file("ana"), "--key", federation.key("ana"))
    told = colonnade("federation", "result", study[:8], *key, "--out", result, "--json")
    assert (bool(told["signed"]), told["differs"]) == (True, [])
    folders = [result, *(federation.store(party).attempts(study)[0].folder for party in PARTIES)]
    learned = {str(Estimator.load(folder / "model.json").learned_values()) for folder in folders}
    assert len(learned) == 1, "everybody has the same result"
    assert set(told["files"]) == {"model.json", "model.npz", "privacy.json"} & set(os.listdir(folders[1]))
    assert (result / "privacy.json").read_bytes() == (folders[1] / "privacy.json").read_bytes(), "parties signed it"
    # Whoever was away at the end takes what others have signed, and writes a page about it alone.
    place = federation.store("shop").entry(study).folder / "result"
    shutil.copytree(result, place, ignore=shutil.ignore_patterns("privacy.json"))
    colonnade("_report", place.parent / "study" / "study.toml", federation.file("shop"), "--out", place)
    assert "For shop alone" in (place / "report.html").read_text()


@pytest.mark.browser
def test_three_people_approve_watch_and_read_and_the_ledger_moves(
    federation: Standing, people: dict[str, Person]
) -> None:
    bank, paid = people["bank"], federation.ledger("bank")
    before = bank.reads("/ledger")
    bank.open("/inbox")
    proposed = federation.propose(federation.study_named("first"), purpose="to see <b>what</b> they share")
    bank.heading("first", exact=True).wait_for()  # the page changes by itself
    bank.open_study("first")
    bank.sees("to see <b>what</b> they share")  # as text, and not as markup
    statement = (federation.store("bank").entry(proposed).assessment or {})["statement"]
    prices = {row["epsilon"] for row in statement["rows"] if row["epsilon"]}
    shown = bank.page.locator("table.promise").inner_text()
    assert len(prices) > 1
    assert all(f"{price:.4f}"[:4] in shown for price in prices), (prices, shown)
    bank.approve("first")
    bank.open("/running")
    bank.sees("shop: not yet")
    people["shop"].approve("first")
    people["clinic"].approve("first")
    federation.wait_all(proposed, "done")
    bank.sees("Nothing runs.")
    for party, person in people.items():
        person.read_the_report()
        assert federation.ledger(party) == [*paid, "committed"]
    assert bank.reads("/ledger") != before
    bank.sees("first")


@pytest.mark.browser
@pytest.mark.system
def test_a_party_is_away_and_a_hub_and_an_agent_are_killed_and_nothing_is_lost(
    federation: Standing, people: dict[str, Person]
) -> None:
    federation.stop("clinic")
    proposed = federation.propose(federation.study_named("fourth"))
    people["bank"].approve("fourth")
    federation.kill(HUB)
    federation.start(HUB)
    people["shop"].approve("fourth")
    people["bank"].open("/running")
    people["bank"].sees("clinic: not yet")
    federation.kill("shop")
    federation.start("shop", "clinic")
    federation.wait("clinic", proposed, "waiting")
    people["clinic"].approve("fourth")  # still signed in: sessions outlast the agent
    for party in PARTIES:
        until(
            lambda party=party: (
                federation.happened(party, proposed, "connected") or federation.state(party, proposed) == "done"
            ),
            f"{party} to connect",
        )
    federation.kill(HUB)
    federation.start(HUB)
    ended = federation.wait_all(proposed, "done")
    assert len({entry.attempt for entry in ended.values()}) == 1
    for party in PARTIES:
        folders = [attempt.folder for attempt in federation.store(party).attempts(proposed)]
        assert sum((folder / "model.json").exists() for folder in folders) <= 1
    people["clinic"].open("/history")
    assert "done" in people["clinic"].heading("fourth").inner_text()


@pytest.fixture(scope="module")
def ended(federation: Standing) -> dict[str, str]:
    """A study of the bank in each state that a page shows in its own way: what earlier tests left, or made now."""
    found = {entry.state: entry.id for entry in federation.store("bank").entries() if entry.over}
    if "done" not in found:
        found["done"] = proposed = federation.propose(federation.study_named("is-done"))
        federation.wait_all(proposed, "waiting")
        federation.approve(proposed)
        federation.wait_all(proposed, "done")
    return found | {"failed": federation.without_a_table("bank"), "refused": federation.beyond_the_budget("bank")}


@pytest.mark.browser
@pytest.mark.system
def test_every_page_is_open_to_everybody_and_fits_a_telephone(
    federation: Standing, ended: dict[str, str], people: dict[str, Person], browser: Browser
) -> None:
    """Nothing serious by axe, and no page that must be moved sideways."""
    from tests.browser.people import Person, sign_in

    proposed = federation.propose(federation.study_named("waits"))
    federation.wait("bank", proposed, "waiting")
    bank, done = people["bank"], ended["done"]
    studies = (f"/studies/{one}" for one in (proposed, *ended.values()))
    more = (f"/history?study={done}", "/doctor?run=1", f"/doctor?run=1&study={done}", "/ledger?verify=1")
    assert bank.looked(*PAGES, *studies, *more, "/no-such-page") == {}
    assert sign_in(browser, federation, "bank", role="viewer").looked(f"/studies/{proposed}") == {}
    person, told = sign_in(browser, federation, HUB, role="viewer"), federation.told()
    chosen = "&".join([f"id={one}" for one, study in told.items() if study["state"] == "done"][:4])
    one_each = {study["state"]: one for one, study in told.items()}.values()
    paths = ("/proposals", *(f"/proposals/{one}" for one in one_each), "/results", f"/results?{chosen}", "/members")
    assert person.looked(*paths, "/audit-log", "/no-such-page") == {}
    for url in (bank.url, person.url):
        context = browser.new_context()  # of somebody who is not signed in, with a link and without one
        assert Person(context.new_page(), url).looked("/login", "/login?link=0123456789abcdef") == {}
        context.close()
    shown = person.reads("/members")
    assert all(six_words(pin) in shown for pin in federation.members().pins.values())
