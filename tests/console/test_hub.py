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
from tests.standing.test_desk import EVERYBODY, Talk

from .kit import HOST, signed_in

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
        study = self.talk.propose(name=purpose)
        self.talk.agree(study)
        for name in EVERYBODY:
            self.talk.outcome(study, name, "finished")
        folder = self.results / study
        folder.mkdir(parents=True)
        text = (FIXTURES / model).read_text()
        (folder / "model.json").write_text(text)
        (folder / "privacy.json").write_text(json.dumps(json.loads(text)["privacy"]))
        (folder / "report.html").write_text("<!DOCTYPE html><title>r</title><script>alert(1)</script>")
        return study


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


def test_empty_pages_say_what_comes_next(hub: Hub) -> None:
    client = signed_in(hub.app)
    assert client.get("/").headers["location"] == "/proposals"
    assert "colonnade propose" in client.get("/proposals").text
    assert "No study is done yet" in client.get("/results").text


def test_members_are_shown_with_their_keys(hub: Hub) -> None:
    text = signed_in(hub.app).get("/members").text
    for name, pin in hub.talk.club.members.pins.items():
        assert f'<th role="rowheader" scope="row">{name}</th>' in text
        assert pin in text
    assert text.count(">here<") == 2, "the hub and the bank"
    assert text.count(">away<") == 3


def test_answers_are_shown_as_they_come(hub: Hub) -> None:
    client = signed_in(hub.app)
    before = hub.desk.pulse()
    study = hub.talk.propose(name=BAD)
    assert hub.desk.pulse() != before
    hub.talk.answer(study, "bank")
    hub.talk.answer(study, "shop", yes=False, why=BAD)
    page = client.get(f"/proposals/{study}").text
    assert ">yes<" in page
    assert ">no<" in page
    assert ">not yet<" in page
    assert ">declined<" in page
    for text in (page, client.get("/proposals").text):
        assert "<img" not in text
        assert "&lt;img src=x onerror=alert(1)&gt;" in text


def test_a_result_is_shown_with_its_report_in_a_frame(hub: Hub) -> None:
    study = hub.done()
    client = signed_in(hub.app)
    page = client.get(f"/proposals/{study}").text
    for line in Estimator.load(FIXTURES / "pca.json").summary():
        assert line.strip() in page
    assert f'<iframe class="report" sandbox src="/proposals/{study}/report"' in page
    report = client.get(f"/proposals/{study}/report")
    assert report.headers["content-security-policy"] == FRAME_POLICY
    assert report.headers["x-frame-options"] == "SAMEORIGIN"
    assert "script" not in FRAME_POLICY


def test_results_stand_side_by_side(hub: Hub) -> None:
    first, second = hub.done(), hub.done("linear.json", purpose="another")
    client = signed_in(hub.app)
    page = client.get(f"/results?id={first}&id={second}").text
    assert page.count(" checked>") == 2
    for model in ("pca.json", "linear.json"):
        for row in json.loads((FIXTURES / model).read_text())["privacy"]["rows"]:
            if row["epsilon"] is not None:
                shown = f"{rounded_up(row['epsilon'])} (delta {row['delta']:g}; {row['adjacency']})"
                assert str(escape(shown)) in page
    assert client.get("/results?id=../../etc&id=%00").text.count(" checked>") == 0


def test_a_member_sees_what_concerns_it_and_no_more(hub: Hub) -> None:
    study = hub.talk.propose("bank", "shop")
    assert study in signed_in(hub.app, "viewer", "ana").get("/proposals").text
    assert study in signed_in(hub.app, "viewer", "Olga of the hub").get("/proposals").text
    clinic = signed_in(hub.app, "approver", "clinic")
    assert study not in clinic.get("/proposals").text
    hidden, unknown = clinic.get(f"/proposals/{study}"), clinic.get(f"/proposals/{'0' * 32}")
    assert hidden.status_code == unknown.status_code == 409
    assert "the hub knows no proposal" in hidden.text
    assert hidden.text == unknown.text, "so that nobody learns what others propose"


def test_the_report_is_for_parties_and_the_people_of_the_hub(hub: Hub) -> None:
    study = hub.done()
    for person, code in (("bank", 200), ("Olga of the hub", 200), ("ana", 409)):
        client = signed_in(hub.app, "viewer", person)
        page = client.get(f"/proposals/{study}")
        assert page.status_code == 200
        assert (f"/proposals/{study}/report" in page.text) == (code == 200), person
        assert Estimator.load(FIXTURES / "pca.json").summary()[0].strip() in page.text
        assert client.get(f"/proposals/{study}/report").status_code == code, person


def test_a_member_is_told_no_counts_and_no_clicks_of_others(hub: Hub) -> None:
    hub.talk.propose("bank", "shop")
    people = {name: signed_in(hub.app, "viewer", name) for name in ("ana", "clinic", "Olga of the hub")}
    waiting = {name: "0 running, 1 waiting" in client.get("/members").text for name, client in people.items()}
    assert waiting == {"ana": True, "clinic": False, "Olga of the hub": True}
    read = {name: {click.who for click in hub.desk.clicks(name)} for name in people}
    assert read == {"ana": {"ana"}, "clinic": {"clinic"}, "Olga of the hub": set(people)}
    for name in ("ana", "clinic"):
        text = people[name].get("/log").text
        assert "signed in" in text
        assert "Olga" not in text


@pytest.mark.parametrize("id", ["..%2f..%2fetc", "%00", "' or 1=1", "x" * 5000, BAD.replace("/", "")])
def test_ids_lead_to_no_file(hub: Hub, id: str) -> None:
    client = signed_in(hub.app)
    for path in (f"/proposals/{id}", f"/proposals/{id}/report"):
        answer = client.get(path)
        assert answer.status_code in (404, 409)
        assert "<img" not in answer.text


def test_a_result_that_is_damaged_is_said_so(hub: Hub) -> None:
    study = hub.done()
    (hub.results / study / "model.json").write_text("{")
    (hub.results / study / "privacy.json").write_text("[]")
    (hub.results / study / "report.html").unlink()
    client = signed_in(hub.app)
    page = client.get(f"/proposals/{study}")
    assert page.status_code == 200
    assert "The model cannot be shown here" in page.text
    assert client.get(f"/proposals/{study}/report").status_code == 409
    assert client.get(f"/results?id={study}").status_code == 200


def test_who_signed_in_is_written_down(hub: Hub) -> None:
    client = signed_in(hub.app, "viewer", BAD)
    text = client.get("/log").text
    assert "signed in" in text
    assert "<img" not in text
    assert hub.desk.clicks(BAD, 1)[0].who == BAD
