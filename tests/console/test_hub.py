"""The hub's side: members, proposals with their answers, results side by side, and who may see which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from markupsafe import escape

from colonnade.console.access import Access
from colonnade.console.analyst import PAGES
from colonnade.console.app import make_app
from colonnade.console.frames import FRAME_POLICY
from colonnade.console.guard import Guard
from colonnade.console.hub import HubDesk
from colonnade.models import Estimator
from colonnade.privacy.rows import rounded_up
from tests.standing.club import Talk

from .kit import HOST, TestClient, hides, shows, signed_in

FIXTURES = Path(__file__).parents[1] / "fixtures" / "models"
BAD = "<img src=x onerror=alert(1)>"


class Hub:
    """A hub's console over a real desk, with members who speak to it."""

    def __init__(self, folder: Path) -> None:
        self.talk = Talk(folder)
        self.desk = HubDesk(self.talk.desk, folder / "results", lambda: ("bank",))
        self.app: Guard = make_app(self.desk, Access(folder / "console", (HOST,)), PAGES)
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

    def person(self, name: str) -> TestClient:
        """Somebody who has signed in to look."""
        return signed_in(self.app, "viewer", name)


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


def test_empty_pages_say_what_comes_next_and_members_are_shown_with_their_keys(hub: Hub) -> None:
    client = signed_in(hub.app)
    assert client.get("/").headers["location"] == "/proposals"
    shows(client.get("/proposals").text, "colonnade propose")
    shows(client.get("/results").text, "No study is done yet")
    text = client.get("/members").text
    for name, pin in hub.talk.club.members.pins.items():
        shows(text, f'<th role="rowheader" scope="row">{name}</th>', pin)
    assert (text.count(">here<"), text.count(">away<")) == (2, 3), "the hub and the bank are here"


def test_answers_are_shown_as_they_come(hub: Hub) -> None:
    before = hub.desk.pulse()
    study = hub.talk.propose(name=BAD)
    assert hub.desk.pulse() != before
    hub.talk.answer(study, "bank")
    hub.talk.answer(study, "shop", yes=False, why=BAD)
    client = signed_in(hub.app, "viewer", BAD)
    page = client.get(f"/proposals/{study}").text
    shows(page, ">yes<", ">no<", ">not yet<", ">declined<")
    for text in (page, client.get("/proposals").text):
        shows(text, "&lt;img src=x onerror=alert(1)&gt;")
        hides(text, "<img")
    log = client.get("/log").text
    shows(log, "signed in")
    hides(log, "<img")
    assert hub.desk.clicks(BAD, 1)[0].who == BAD


def test_a_result_is_shown_with_its_report_in_a_frame(hub: Hub) -> None:
    study = hub.done()
    client = signed_in(hub.app)
    page = client.get(f"/proposals/{study}").text
    shows(page, *(line.strip() for line in Estimator.load(FIXTURES / "pca.json").summary()))
    shows(page, f'<iframe class="report" sandbox src="/proposals/{study}/report"')
    headers = client.get(f"/proposals/{study}/report").headers
    assert (headers["content-security-policy"], headers["x-frame-options"]) == (FRAME_POLICY, "SAMEORIGIN")
    hides(FRAME_POLICY, "script")


def test_results_stand_side_by_side(hub: Hub) -> None:
    first, second = hub.done(), hub.done("linear.json", purpose="another")
    client = signed_in(hub.app)
    page = client.get(f"/results?id={first}&id={second}").text
    assert page.count(" checked>") == 2
    for model in ("pca.json", "linear.json"):
        for row in json.loads((FIXTURES / model).read_text())["privacy"]["rows"]:
            if row["epsilon"] is not None:
                shows(page, escape(f"{rounded_up(row['epsilon'])} (delta {row['delta']:g}; {row['adjacency']})"))
    assert client.get("/results?id=../../etc&id=%00").text.count(" checked>") == 0


def test_a_member_sees_what_concerns_it_and_is_told_no_counts_and_no_clicks_of_others(hub: Hub) -> None:
    study = hub.talk.propose("bank", "shop")
    people = {name: hub.person(name) for name in ("ana", "clinic", "Olga of the hub")}
    concerned = {"ana": True, "clinic": False, "Olga of the hub": True}
    for path, piece in (("/proposals", study), ("/members", "0 running, 1 waiting")):
        assert {name: piece in client.get(path).text for name, client in people.items()} == concerned
    hidden, unknown = (people["clinic"].get(f"/proposals/{each}") for each in (study, "0" * 32))
    assert (hidden.status_code, hidden.text) == (409, unknown.text), "so that nobody learns what others propose"
    shows(hidden.text, "the hub knows no proposal")
    read = {name: {click.who for click in hub.desk.clicks(name)} for name in people}
    assert read == {"ana": {"ana"}, "clinic": {"clinic"}, "Olga of the hub": set(people)}
    for name in ("ana", "clinic"):
        text = people[name].get("/log").text
        shows(text, "signed in")
        hides(text, "Olga")


def test_the_report_is_for_parties_and_the_people_of_the_hub(hub: Hub) -> None:
    study = hub.done()
    for person, code in (("bank", 200), ("Olga of the hub", 200), ("ana", 409)):
        client = hub.person(person)
        page = client.get(f"/proposals/{study}").text
        assert (f"/proposals/{study}/report" in page) == (code == 200), person
        shows(page, Estimator.load(FIXTURES / "pca.json").summary()[0].strip())
        assert client.get(f"/proposals/{study}/report").status_code == code, person


def test_ids_lead_to_no_file(hub: Hub) -> None:
    client = signed_in(hub.app)
    for name in ("..%2f..%2fetc", "%00", "' or 1=1", "x" * 5000, BAD.replace("/", "")):
        for path in (f"/proposals/{name}", f"/proposals/{name}/report"):
            answer = client.get(path)
            assert answer.status_code in (404, 409)
            hides(answer.text, "<img")


def test_a_result_that_is_damaged_is_said_so(hub: Hub) -> None:
    study = hub.done()
    (hub.results / study / "model.json").write_text("{")
    (hub.results / study / "privacy.json").write_text("[]")
    (hub.results / study / "report.html").unlink()
    client = signed_in(hub.app)
    shows(client.get(f"/proposals/{study}").text, "The model cannot be shown here")
    statuses = [client.get(path).status_code for path in (f"/proposals/{study}/report", f"/results?id={study}")]
    assert statuses == [409, 200]
