"""The page of a model over noised messages: who sent what, what is promised, and no weight that a party keeps."""

from __future__ import annotations

from copy import copy

import pytest

from colonnade.kinds.glm.model import GLM
from colonnade.models import Roster
from colonnade.privacy.rows import rounded_up
from colonnade.tables import population
from tests.support.pages import Page
from tests.support.reports import make_run, rendered

PARTIES = ("bank", "shop", "clinic")


def fitted(**more):
    """A small model, as the coordinator holds it, and what the parties keep."""
    people = population(80)
    roster = Roster.of({name: people.schemas[name] for name in PARTIES})
    tables = {name: people.table(name) for name in PARTIES}
    model = GLM(label="bank.default", epsilon=5.0, rows=80, **more).simulate(tables, roster)
    kept, model.kept_ = model.kept_, {}
    return model, kept


def page_of(model, **facts):
    run = make_run() | {"task": {"kind": "glm", **model.plan_}, **facts}
    return Page(rendered(run, model.privacy_, model))


@pytest.fixture(scope="module")
def quiet():
    return fitted()


def test_the_page_says_who_sent_what_and_what_that_promises(quiet):
    model, _ = quiet
    page = page_of(model)
    words = page.words
    assert "bank, shop and clinic computed one logistic model over noised messages on 39 columns" in words
    assert "noisy scores of shop and clinic" in words
    assert words.count("noisy slopes of bank") == 2
    for row in model.guarantees_[:7]:
        assert row.what in words
        assert rounded_up(row.epsilon, 3) in words
    assert "eavesdropper on every channel" in words
    assert "largest epsilon short of all parties together" in words
    for name in PARTIES:
        assert f"{model.plan_['deviations'][name]:,.4g}" in words
    assert "in its kept.json and nowhere else" in words
    for absent in ("threshold", "committee", "share", "Coefficients"):
        assert absent not in words.replace("threshold of", "")
    assert page.headings[0] == 1
    assert all(later <= earlier + 1 for earlier, later in zip(page.headings, page.headings[1:], strict=False))


def test_the_page_holds_no_weight_that_a_party_keeps(quiet):
    model, kept = quiet
    text = rendered(make_run(), model.privacy_, model)
    for own in kept.values():
        for weight in own.weights:
            assert f"{abs(float(weight)):.6f}" not in text


def test_released_weights_are_drawn():
    model, _ = fitted(release=True, method="gradient", epochs=2, batch=40)
    words = page_of(model).words
    assert "Coefficients" in words
    assert f"{float(abs(model.coef_).max()):.2f}" in words
    assert "those below were published with noise" in words
    assert "messages and released weights of clinic" in words
    assert words.count("everyone's, with noise") == len(PARTIES) + 2
    assert "Learning rate" in words
    assert "Batches" in words


def test_a_record_that_lacks_things_still_makes_a_page(quiet):
    model = copy(quiet[0])
    assert "Who saw what" in Page(rendered({}, model.privacy_, model)).words
    model.plan_ = {name: fact for name, fact in model.plan_.items() if name not in ("sides", "deviations")}
    assert "The parties" not in page_of(model).words
